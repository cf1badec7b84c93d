"""`outlay budget` below the program itself: what tests of the presets and of the file's grammar do not reach."""

import json
import subprocess
import sys
from importlib import resources
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from outlay.cli import OK, USAGE
from outlay.cli.app import app
from outlay.formats.spec import MAX_BYTES, preset_names

VALID = "moments: {chat: {within: 1s}}\n"


def budget(*arguments: str) -> Result:
    return CliRunner(env={"COLUMNS": "80", "FORCE_COLOR": None}).invoke(app, ["budget", *arguments])


@pytest.mark.parametrize("name", preset_names())
def test_a_printed_preset_is_its_file_byte_for_byte(name: str) -> None:
    """Its comments are the reason to print it."""
    file = resources.files("outlay.formats") / "presets" / f"{name}.yaml"
    assert budget("presets", name).stdout_bytes == file.read_bytes()


@pytest.mark.parametrize("arguments", [(), ("validate",), ("show",), ("nonsense",), ("validate", "a", "b")])
def test_a_verb_that_lacks_something_is_a_usage_error(arguments: tuple[str, ...]) -> None:
    outcome = budget(*arguments)
    assert outcome.exit_code == USAGE
    assert "Traceback" not in outcome.output
    assert "outlay budget" in outcome.output  # the usage line


@pytest.mark.parametrize("verb", ["validate", "show"])
def test_problems_are_lines_that_an_editor_can_jump_to(tmp_path: Path, verb: str) -> None:
    file = tmp_path / "outlay.yaml"
    file.write_text("moments:\n  chat:\n    within: soon\n    percentil: 99\n", encoding="utf-8")
    outcome = budget(verb, str(file))
    assert (outcome.exit_code, outcome.stdout) == (USAGE, "")
    assert [line.partition(": ")[0] for line in outcome.stderr.splitlines()] == [f"{file}:3", f"{file}:4"]


@pytest.mark.parametrize(("verb", "options"), [("validate", ()), ("show", ()), ("show", ("--json",))])
def test_a_file_that_goes_on_for_ever_is_refused_and_not_read_whole(verb: str, options: tuple[str, ...]) -> None:
    outcome = budget(verb, "/dev/zero", *options)
    assert (outcome.exit_code, outcome.stdout) == (USAGE, "")
    assert outcome.stderr == f"/dev/zero:1: larger than {MAX_BYTES // 1024} KiB, the most that is read\n"


@pytest.mark.skipif(not Path("/dev/stdin").exists(), reason="needs a pipe with a name")
def test_a_file_may_come_through_a_pipe() -> None:
    command = [sys.executable, "-m", "outlay", "budget", "validate", "/dev/stdin"]
    outcome = subprocess.run(command, input=VALID.encode(), capture_output=True, timeout=60, check=False)
    assert (outcome.returncode, outcome.stdout) == (OK, b"/dev/stdin: ok, 1 moment, 0 rules\n")


def test_json_is_the_whole_of_standard_output(tmp_path: Path) -> None:
    file = tmp_path / "outlay.yaml"
    file.write_text(VALID, encoding="utf-8")
    outcome = budget("show", str(file), "--json")
    assert (outcome.exit_code, outcome.stderr) == (OK, "")
    assert json.loads(outcome.stdout)["outlay"] == "budget/1"


def test_what_the_schema_prints_is_what_an_editor_reads(tmp_path: Path) -> None:
    """UTF-8 whatever the terminal speaks, so that `> outlay.schema.json` works everywhere."""
    outcome = budget("schema")
    assert (outcome.exit_code, outcome.stderr) == (OK, "")
    assert json.loads(outcome.stdout_bytes.decode())["title"] == "outlay.yaml"
