"""Writes what the renderers say about the sample into `golden/`; run it after a wanted change and read the diff."""

import io
from pathlib import Path

from rich.console import Console
from sample import SAMPLE

from outlay.render.machine import to_json
from outlay.render.markdown import to_markdown
from outlay.render.text import render
from outlay.report import Report

GOLDEN = Path(__file__).parent / "golden"


def as_text(report: Report, *, width: int, encoding: str = "utf-8", terminal: bool = False) -> str:
    """What a console of this width and encoding shows."""
    raw = io.BytesIO()
    with io.TextIOWrapper(raw, encoding=encoding, newline="\n") as file:
        colors = "standard" if terminal else None
        # An empty environment: what a machine sets about colours must not change what is recorded.
        console = Console(file=file, width=width, force_terminal=terminal, color_system=colors, _environ={})
        render(report, console)
        file.flush()
        return raw.getvalue().decode(encoding)


OUTPUTS = {
    "report-80.txt": lambda: as_text(SAMPLE, width=80),
    "report-120.txt": lambda: as_text(SAMPLE, width=120),
    "report-80-ascii.txt": lambda: as_text(SAMPLE, width=80, encoding="ascii"),
    "report.md": lambda: to_markdown(SAMPLE),
    "report.json": lambda: to_json(SAMPLE).decode() + "\n",
}

if __name__ == "__main__":
    for name, draw in OUTPUTS.items():
        (GOLDEN / name).write_text(draw(), encoding="utf-8", newline="\n")
