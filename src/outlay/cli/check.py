"""`outlay check`: the gate. Does each moment hold its budget, and is it no slower than before?"""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from outlay.cli import FAIL, OK, REFUSED, UNDECIDED, USAGE
from outlay.cli.saying import conditions, say, spec_of, stop, write_whole
from outlay.cli.sides import baseline_in, found_in, tolerance_of

if TYPE_CHECKING:  # what these import would slow `outlay --help`
    from outlay.cli.run import Found
    from outlay.explain.gate import Gate

HELP = """Judge whether each moment holds its budget: PASS, FAIL or UNDECIDED, for a pipeline to go by.

DATA is a file, a folder, or - for standard input; its formats are those of outlay explain.

\b
outlay check run.jsonl --budget outlay.yaml
outlay check logs/ --junit latency.xml --markdown >> "$GITHUB_STEP_SUMMARY"
outlay check run.jsonl --save-baseline main.json
outlay check run.jsonl --baseline main.json --tolerance 10%

Without --budget, ./outlay.yaml is used if it is there; a preset's name works too (see outlay budget presets).

Exit codes: 0 PASS, 1 FAIL, 2 usage, 3 UNDECIDED, 4 data was refused: no verdict is whole, 130 interrupted.
"""

TOLERANCE = "10%"


def check(  # noqa: PLR0913, PLR0917 - one parameter an option is what Typer reads
    paths: Annotated[list[str], typer.Argument(metavar="DATA...", help="Files or folders to read; - reads stdin.")],
    budget: Annotated[
        str | None, typer.Option("--budget", "-b", metavar="FILE|PRESET", help="Moments, budgets and mapping rules.")
    ] = None,
    moment: Annotated[str | None, typer.Option("--moment", "-m", metavar="NAME", help="Only this moment.")] = None,
    where: Annotated[
        list[str] | None,
        typer.Option("--where", "-w", metavar="DIM=VALUE", help="Only interactions like this; * and ? allowed."),
    ] = None,
    baseline: Annotated[
        Path | None, typer.Option("--baseline", metavar="FILE", help="Also hold it against this stored run.")
    ] = None,
    save_baseline: Annotated[
        Path | None, typer.Option("--save-baseline", metavar="FILE", help="Store this run, for later ones.")
    ] = None,
    tolerance: Annotated[
        str | None,
        typer.Option("--tolerance", metavar="5%|20ms", help=f"What may be slower than the baseline; {TOLERANCE}."),
    ] = None,
    junit: Annotated[Path | None, typer.Option("--junit", metavar="FILE", help="Also write JUnit XML.")] = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print Markdown, for a pull request.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON (docs/gate.md).")] = False,
) -> None:  # fmt: skip
    from outlay.explain import Question, build_report
    from outlay.explain.gate import check as judge

    if json and markdown:
        stop("--json and --markdown both print to standard output: choose one", USAGE)
    if tolerance is not None and baseline is None:
        stop("--tolerance says how much slower than a baseline is allowed: give --baseline too", USAGE)
    spec = spec_of(budget)
    if baseline is None and save_baseline is None and all(each.budget is None for each in spec.moments):
        stop("there is nothing to check against: give --budget, --baseline, or an outlay.yaml here", USAGE)
    allowed = tolerance_of(tolerance or TOLERANCE)
    before = None if baseline is None else baseline_in(str(baseline))
    question = Question(moments=spec.moments, only=moment, where=conditions(where or []), slowest=0)
    found = found_in(paths, question, spec.rules)
    gate = judge(found.gathering, build_report(found.gathering, found.sources), before, allowed)
    if not gate.moments:
        stop(f"none of {found.gathering.offered} interactions is of a moment that is asked for", REFUSED)
    if junit is not None:
        from outlay.render.junit import to_junit

        write_whole(junit, to_junit(gate))
    sys.stdout.buffer.write(_drawn(gate, json=json, markdown=markdown))
    sys.stdout.flush()
    if save_baseline is not None:
        _save(save_baseline, found)
    raise typer.Exit(_code(gate, found))


def _code(gate: "Gate", found: "Found") -> int:
    codes = {"PASS": OK, "FAIL": FAIL, "UNDECIDED": UNDECIDED, "REFUSED": REFUSED}
    return REFUSED if found.refusals else codes[gate.state]


def _save(path: Path, found: "Found") -> None:
    """Store the run; one that does not count is no measure for later ones."""
    from outlay.explain.gate import baseline_of, invalid_moments
    from outlay.formats.baseline import write_baseline

    invalid = invalid_moments(found.gathering)
    if invalid or found.refusals:
        why = f"the load of {invalid[0]} was INVALID" if invalid else "a part of the data was refused"
        stop(f"{path}: no baseline was stored: {why}", REFUSED)
    stored = baseline_of(found.gathering)
    if not stored:
        stop(f"{path}: no baseline was stored: nothing was measured", REFUSED)
    write_whole(path, write_baseline(stored))
    say(f"stored a baseline of {', '.join(sorted(stored))}: {path}")


def _drawn(gate: "Gate", *, json: bool, markdown: bool) -> bytes:
    from outlay.render import gate as drawn

    if json:
        return drawn.check_json(gate) + b"\n"
    text = drawn.check_markdown(gate) if markdown else drawn.check_text(gate)
    return text.encode(sys.stdout.encoding or "utf-8", "backslashreplace")
