"""`outlay compare`: data and baselines on either side, what it prints, how it exits."""

import json
from pathlib import Path

import pytest
from gate_world import YAML, load, turns, write
from typer.testing import CliRunner, Result

from outlay.cli import FAIL, OK, REFUSED, UNDECIDED, USAGE
from outlay.cli.app import app
from outlay.generator import INVALID


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in which commands run, with an outlay.yaml, a run, and one 100 ms faster in the queue."""
    (tmp_path / "outlay.yaml").write_text(YAML)
    write(tmp_path / "slow.jsonl", turns(300))
    write(tmp_path / "fast.jsonl", turns(300, faster_ms=100))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def outlay(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments)


def compare(*arguments: str) -> Result:
    return outlay("compare", *arguments)


@pytest.mark.parametrize(
    ("a", "b", "options", "code", "verdict"),
    [
        ("fast", "slow", (), OK, "slower"),
        ("fast", "slow", ("--fail-if-slower",), FAIL, "slower"),
        ("fast", "slow", ("--fail-if-slower", "--tolerance", "120ms"), OK, "slower"),
        ("slow", "fast", ("--fail-if-slower",), OK, "faster"),
        ("slow", "slow", ("--fail-if-slower",), UNDECIDED, "no difference shown"),
        ("slow", "slow", ("--fail-if-slower", "--tolerance", "10%"), OK, "no difference shown"),
    ],
)
def test_the_verdict_is_told_and_only_fails_when_asked_to(
    here: Path, a: str, b: str, options: tuple[str, ...], code: int, verdict: str
) -> None:
    outcome = compare(f"{a}.jsonl", f"{b}.jsonl", *options)
    assert (outcome.exit_code, outcome.stderr) == (code, "")
    assert outcome.stdout.startswith(f"voice-turn  {verdict}: p99 from ")


def test_text_tells_sizes_percentiles_share_and_entries(here: Path) -> None:
    lines = compare("fast.jsonl", "slow.jsonl").stdout.splitlines()
    assert lines[1] == "  A 300 interactions, B 300"
    assert [line.split()[0] for line in lines[2:5]] == ["p50", "p95", "p99"]
    assert lines[5].startswith("  over 800 ms: from 0 % to 0 %, by +0 points (")
    # All of the tail's 100 ms are the queue's; the first run had no queue at all.
    assert lines[6] == "  mean of the tail +100 ms, of it"
    assert lines[7] == "    llm/queue.wait  +100 ms (+100 ms to +100 ms), from 0 to 100 ms"
    assert lines[8].startswith("    llm/infer  0 (")


def test_runs_one_after_the_other_are_told_to_take_turns(here: Path) -> None:
    last = turns(600)
    write(here / "a.jsonl", last[:300])
    write(here / "b.jsonl", last[300:])
    assert compare("a.jsonl", "b.jsonl").stdout.endswith(
        "let them take turns (A, B, A, B), so that a drift meets both\n"
    )
    assert "take turns" not in compare("fast.jsonl", "slow.jsonl").stdout


def test_a_baseline_stands_for_the_run_it_was_made_of(here: Path) -> None:
    outlay("check", "fast.jsonl", "--save-baseline", "fast.json")
    stored, data = (json.loads(compare(a, "slow.jsonl", "--json").stdout) for a in ("fast.json", "fast.jsonl"))
    assert stored["outlay"] == "compare/1"
    assert stored["moments"] == data["moments"]
    assert (sorted(stored["sources"]), sorted(data["sources"])) == (["b"], ["a", "b"])


def test_a_folder_is_a_side_too_and_one_moment_can_be_asked_for(here: Path) -> None:
    for side in "ab":
        (here / side).mkdir()
        write(here / side / "voice.jsonl", turns(300))
        write(here / side / f"{side}.jsonl", turns(5, moment=f"only-{side}"))
    lines = compare("a", "b").stdout.splitlines()
    assert lines[:2] == [
        "only-a  not compared: B holds no interaction of it",
        "only-b  not compared: A holds no interaction of it",
    ]
    assert compare("a", "b", "--moment", "voice-turn").stdout.startswith("voice-turn  no difference shown")
    assert compare("a", "b", "--fail-if-slower").exit_code == UNDECIDED


def test_too_few_for_a_percentile_are_not_compared(here: Path) -> None:
    write(here / "few.jsonl", turns(298))
    outcome = compare("few.jsonl", "slow.jsonl")
    says = "voice-turn  not compared: p99 needs 299 interactions in each run, there are 298 and 300\n"
    assert outcome.stdout.startswith(says)
    assert compare("few.jsonl", "slow.jsonl", "--fail-if-slower").exit_code == UNDECIDED


def test_a_run_under_an_invalid_load_is_refused(here: Path) -> None:
    write(here / "bad.jsonl", [*turns(300), load(INVALID, 300)])
    outcome = compare("slow.jsonl", "bad.jsonl")
    assert (outcome.exit_code, outcome.stdout) == (REFUSED, "voice-turn  not compared: the load of B was INVALID\n")


def test_markdown_is_a_table(here: Path) -> None:
    lines = compare("fast.jsonl", "slow.jsonl", "--markdown").stdout.splitlines()
    assert lines[0] == "### Latency: B against A"
    cells = [line.count(" | ") for line in lines if line.startswith("|")]
    assert cells == [4, 4, 4]
    assert lines[4].startswith("| `voice-turn` | 🔺 slower | p99 from 449 ms to 549 ms, by +100 ms")


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("slow.jsonl", "fast.jsonl", "--json", "--markdown"), USAGE, "both print to standard output"),
        (("slow.jsonl", "gone.jsonl"), USAGE, "gone.jsonl: No such file"),
        (("slow.jsonl", "next.json"), REFUSED, "of version 'baseline/9'; this program reads 'baseline/1': update it"),
        (("slow.jsonl", "fast.jsonl", "--moment", "x"), REFUSED, "neither run holds an interaction of a moment"),
        (("slow.jsonl", "fast.jsonl", "--tolerance", "x"), USAGE, "--tolerance x"),
    ],
)
def test_what_cannot_be_compared_is_said_in_one_line(
    here: Path, arguments: tuple[str, ...], code: int, says: str
) -> None:
    (here / "next.json").write_text('{"outlay": "baseline/9", "moments": []}')
    outcome = compare(*arguments)
    assert (outcome.exit_code, outcome.stdout) == (code, "")
    (line,) = outcome.stderr.splitlines()
    assert says in line
