"""What starts quickly stays quick because of what it does not import; and importing Outlay does nothing else."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SKEW = Path(__file__).parent / "data" / "traces-zipkin" / "skew.json"

# The heavy ones: each costs a good part of the tenth of a second that a start may take.
HEAVY = ("numpy", "scipy", "msgspec", "yaml", "jinja2", "google.protobuf", "opentelemetry", "zstandard")
PROGRESS = ("rich.progress", "rich.console", "multiprocessing", "concurrent.futures")

LOADED = """
import json, os, sys
{code}
sys.stderr.write(json.dumps(sorted(sys.modules)))
"""

START = """
sys.argv = {argv!r}
sys.stdout = open(os.devnull, "w")
from outlay.cli import main
try:
    main()
except SystemExit as end:
    assert end.code == 0, end.code
"""


def loaded(code: str) -> set[str]:
    """The modules that a fresh interpreter holds after running some code, without those it holds anyway."""
    script = LOADED.format(code=code)
    outcome = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    return set(json.loads(outcome.stderr))


def started(*arguments: str) -> set[str]:
    return loaded(START.format(argv=["outlay", *arguments]))


@pytest.fixture(scope="module")
def bare() -> set[str]:
    """What any interpreter of this environment loads by itself."""
    return loaded("")


@pytest.mark.parametrize("arguments", [("--help",), ("--version",), ("explain", "--help"), ("budget", "--help")])
def test_help_imports_nothing_heavy(bare: set[str], arguments: tuple[str, ...]) -> None:
    assert (started(*arguments) - bare) & {*HEAVY, *PROGRESS} == set()


def test_importing_outlay_imports_nothing_of_others(bare: set[str]) -> None:
    own = loaded("import outlay") - bare
    assert "outlay" in own
    assert {name.partition(".")[0] for name in own} - set(sys.stdlib_module_names) == {"outlay"}


def test_the_units_and_stages_are_light_enough_for_an_application(bare: set[str]) -> None:
    own = loaded("import outlay.units, outlay.stages, outlay.interaction, outlay.budget, outlay.trace") - bare
    assert own & {*HEAVY, *PROGRESS, "typer", "rich"} == set()


def test_explaining_json_needs_no_protobuf_and_no_page(bare: set[str]) -> None:
    own = started("explain", str(SKEW), "--json") - bare
    assert "outlay.explain" in own
    assert own & {"google.protobuf", "opentelemetry", "jinja2", "rich.progress"} == set()


def test_importing_outlay_prints_nothing_and_starts_nothing() -> None:
    script = "import outlay, threading; assert threading.active_count() == 1; print(outlay.__version__)"
    outcome = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert (outcome.stdout.count("\n"), outcome.stderr) == (1, "")
