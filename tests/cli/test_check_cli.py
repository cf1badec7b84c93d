"""`outlay check` as a pipeline meets it: exit codes, one line a moment, files for CI, baselines."""

import json
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from gate_world import YAML, load, turns, write
from typer.testing import CliRunner, Result

from outlay.cli import FAIL, OK, REFUSED, UNDECIDED, USAGE
from outlay.cli.app import app
from outlay.formats.baseline import read_baseline
from outlay.generator import DEGRADED, INVALID


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with an outlay.yaml, in which commands run."""
    (tmp_path / "outlay.yaml").write_text(YAML)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def check(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["check", *arguments])


# Verdicts


@pytest.mark.parametrize(
    ("n", "over", "failed", "code", "begins"),
    [
        # The upper bound of 0 in 300 is 0.994 %, below the 1 % that is allowed; of 0 in 298, 1.0002 %.
        (300, 0, 0, OK, "PASS       voice-turn  p99 549 ms"),
        (298, 0, 0, UNDECIDED, "UNDECIDED  voice-turn  p99 within 800 ms; 0 of 298 over the limit"),
        # 3 of 300 are just 1 %.
        (300, 3, 0, UNDECIDED, "UNDECIDED  voice-turn  p99 549 ms"),
        # The lower bound of 12 in 300 is 2.3 %.
        (300, 12, 0, FAIL, "FAIL       voice-turn  p99 1.3"),
        (300, 0, 12, FAIL, "FAIL       voice-turn  p99 never"),
    ],
)
def test_the_verdict_is_the_exit_code(here: Path, n: int, over: int, failed: int, code: int, begins: str) -> None:
    outcome = check(write(here / "run.jsonl", turns(n, over, failed=failed)))
    assert (outcome.exit_code, outcome.stderr) == (code, "")
    (line,) = outcome.stdout.splitlines()
    assert line.startswith(begins)


def test_undecided_says_how_many_more_it_takes(here: Path) -> None:
    # 0 of n is decided from 299 on: 200 more than 99.
    line = check(write(here / "run.jsonl", turns(99))).stdout
    assert line.endswith("; 200 more interactions could decide\n")


def test_the_entry_to_blame_stands_with_its_owner_and_its_excess(here: Path) -> None:
    # The slowest 1 % are the late ones: 900 ms in the queue, whose share is 300 ms.
    line = check(write(here / "run.jsonl", turns(300, 12))).stdout
    assert line.endswith("; llm/queue.wait (platform) takes 900 ms, its share is exceeded by 600 ms\n")


def test_without_shares_it_is_what_the_tail_adds_most_of(here: Path) -> None:
    (here / "outlay.yaml").write_text("moments: {voice-turn: {within: 800ms, percentile: 99}}")
    line = check(write(here / "run.jsonl", turns(300, 12))).stdout
    # 900 ms against 100 ms of a typical turn.
    assert line.endswith("; llm/queue.wait adds 800 ms in the tail\n")


def test_where_even_the_typical_one_is_late_it_is_what_takes_most(here: Path) -> None:
    (here / "outlay.yaml").write_text("moments: {voice-turn: {within: 400ms, percentile: 99}}")
    outcome = check(write(here / "run.jsonl", turns(300)))
    assert outcome.exit_code == FAIL
    assert "; llm/infer " in outcome.stdout


def test_a_moment_that_passes_blames_nobody(here: Path) -> None:
    assert "llm/" not in check(write(here / "run.jsonl", turns(300))).stdout


def test_moments_come_worst_first_and_only_those_asked_for(here: Path) -> None:
    names = ("a", "b", "c")
    (here / "outlay.yaml").write_text(
        "moments:\n" + "".join(f"  {name}: {{within: 800ms, percentile: 99}}\n" for name in (*names, "gone"))
    )
    run = [*turns(300, moment="a"), *turns(300, 3, moment="b"), *turns(300, 12, moment="c"), *turns(5, moment="other")]
    path = write(here / "run.jsonl", run)
    outcome = check(path)
    assert outcome.exit_code == FAIL
    heads = [line.split()[:2] for line in outcome.stdout.splitlines()]
    # "other" has no budget, so nothing is asked of it; "gone" is not in the data.
    assert heads == [["FAIL", "c"], ["UNDECIDED", "b"], ["UNDECIDED", "gone"], ["PASS", "a"], ["-", "other"]]
    assert check(path, "--moment", "a").exit_code == OK
    alone = check(path, "--moment", "gone")
    assert (alone.exit_code, alone.stdout) == (
        UNDECIDED,
        "UNDECIDED  gone  p99 within 800 ms; the data holds no interaction of it\n",
    )


def test_where_selects(here: Path) -> None:
    path = write(here / "run.jsonl", turns(300))
    outcome = check(path, "--where", "site=lon")
    assert (outcome.exit_code, outcome.stdout) == (
        UNDECIDED,
        "UNDECIDED  voice-turn  p99 within 800 ms; the data holds no interaction of it\n",
    )


def test_a_safety_budget_fails_by_one_alert_in_a_duty_period(here: Path) -> None:
    # Of 1,000 alerts one is late, which a p99 allows; every tenth of a second begins another duty of an hour.
    text = "moments: {voice-turn: {within: 800ms, percentile: 99, duty_period: 1h}}"
    (here / "outlay.yaml").write_text(text)
    outcome = check(write(here / "run.jsonl", turns(1000, 1)))
    # 1,000 turns, 10 s apart, are 2 whole hours, and the late one is the first.
    assert outcome.exit_code == FAIL
    assert "1 of 2 duty periods held one over the limit; 1 of 1,000 over the limit" in outcome.stdout


# What is refused


def test_under_an_invalid_load_there_is_no_verdict_and_no_baseline(here: Path) -> None:
    path = write(here / "run.jsonl", [*turns(300), load(INVALID, 300)])
    outcome = check(path, "--save-baseline", "main.json")
    assert outcome.exit_code == REFUSED
    assert (
        outcome.stdout == "REFUSED    voice-turn  p99 within 800 ms; its load was INVALID: the p99 of lateness is 2 s\n"
    )
    assert outcome.stderr == "outlay: main.json: no baseline was stored: the load of voice-turn was INVALID\n"
    assert not (here / "main.json").exists()


def test_a_degraded_load_lets_the_verdict_stand_and_is_told(here: Path) -> None:
    outcome = check(write(here / "run.jsonl", [*turns(300), load(DEGRADED, 300)]))
    assert outcome.exit_code == OK
    assert outcome.stdout.endswith("; the load was DEGRADED: the p99 of lateness is 2 s\n")


def test_a_damaged_input_leaves_no_whole_verdict(here: Path) -> None:
    (here / "bad.json").write_text("{")
    outcome = check(write(here / "run.jsonl", turns(300)), "bad.json", "--save-baseline", "main.json")
    assert outcome.exit_code == REFUSED
    assert outcome.stdout.startswith("PASS")
    assert "bad.json: the input looks like JSON" in outcome.stderr
    assert not (here / "main.json").exists()


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("run.jsonl", "--json", "--markdown"), USAGE, "both print to standard output"),
        (("run.jsonl", "--tolerance", "5%"), USAGE, "give --baseline too"),
        (("run.jsonl", "--where", "site"), USAGE, "expected DIM=VALUE"),
        (("run.jsonl", "--budget", "none.yaml"), USAGE, "none.yaml"),
        (("run.jsonl", "--baseline", "none.json"), USAGE, "none.json: No such file"),
        (("run.jsonl", "--baseline", "outlay.yaml"), REFUSED, "outlay.yaml: not a baseline"),
        (("gone.jsonl",), USAGE, "gone.jsonl: No such file"),
        (("empty",), REFUSED, "the input holds no interactions"),
        (("run.jsonl", "--moment", "other"), REFUSED, "none of 5 interactions is of a moment that is asked for"),
    ],
)
def test_what_cannot_be_checked_is_said_in_one_line(
    here: Path, arguments: tuple[str, ...], code: int, says: str
) -> None:
    write(here / "run.jsonl", turns(5))
    (here / "empty").mkdir()
    outcome = check(*arguments)
    assert (outcome.exit_code, outcome.stdout) == (code, "")
    (line,) = outcome.stderr.splitlines()
    assert says in line


@pytest.mark.parametrize("text", ["5", "x%", "-5%", "nan%", "5%%", "1001%", "20 apples"])
def test_a_tolerance_is_a_share_or_a_time(here: Path, text: str) -> None:
    write(here / "run.jsonl", turns(5))
    check("run.jsonl", "--save-baseline", "main.json")
    outcome = check("run.jsonl", "--baseline", "main.json", "--tolerance", text)
    assert outcome.exit_code == USAGE
    assert outcome.stderr.startswith(f"outlay: --tolerance {text}: ")


def test_without_anything_to_check_against_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = write(tmp_path / "run.jsonl", turns(300))
    outcome = check(path)
    assert (outcome.exit_code, outcome.stdout) == (USAGE, "")
    assert "nothing to check against" in outcome.stderr
    stored = check(path, "--save-baseline", "main.json")
    assert (stored.exit_code, stored.stdout[:13]) == (OK, "-          vo")


# Baselines


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the baselines of 400 turns, as they are and 100 ms faster in the queue."""
    folder = tmp_path_factory.mktemp("baselines")
    for name, faster_ms in (("usual", 0), ("faster", 100)):
        run = write(folder / f"{name}.jsonl", turns(400, faster_ms=faster_ms))
        outcome = check(run, "--save-baseline", str(folder / f"{name}.json"))
        assert outcome.stderr == f"outlay: stored a baseline of voice-turn: {folder}/{name}.json\n"
    return folder


def test_a_baseline_is_what_was_there_not_a_number(here: Path) -> None:
    check(write(here / "run.jsonl", turns(300, 3, failed=2)), "--save-baseline", "main.json")
    kept = read_baseline((here / "main.json").read_bytes())["voice-turn"]
    assert (kept.started, kept.outcomes, kept.limits_ns) == (300, {"ok": 298, "error": 2}, (800 * 10**6,))
    assert kept.sketch.over(800 * 10**6) == 5
    assert len(kept.rows) == 300


@pytest.mark.parametrize(
    ("options", "code", "says"),
    [
        # The p99 goes from 449 to 549 ms, by 100 ms; the queue alone grew.
        ((), FAIL, "FAIL       voice-turn  against the baseline slower: p99 from 449 ms to 549 ms, by +100 ms ("),
        (("--tolerance", "25%"), OK, "PASS       voice-turn  against the baseline slower: "),
        (("--tolerance", "120ms"), OK, "120 ms more is allowed"),
    ],
)
def test_a_run_slower_than_the_baseline_fails_beyond_the_tolerance(
    here: Path, stored: Path, options: tuple[str, ...], code: int, says: str
) -> None:
    outcome = check(str(stored / "usual.jsonl"), "--baseline", str(stored / "faster.json"), *options)
    assert outcome.exit_code == code
    budget, baseline = outcome.stdout.splitlines()
    assert budget.startswith("PASS")
    assert says in baseline
    assert "; llm/queue.wait moved the mean of the tail by +100 ms of +100 ms" in baseline


def test_a_faster_run_passes(here: Path, stored: Path) -> None:
    outcome = check(str(stored / "faster.jsonl"), "--baseline", str(stored / "usual.json"))
    assert outcome.exit_code == OK
    assert "against the baseline faster: p99 from 549 ms to 449 ms" in outcome.stdout


def test_too_few_are_undecided_against_a_baseline_too(here: Path, stored: Path) -> None:
    run = write(here / "run.jsonl", turns(100, faster_ms=100))
    outcome = check(run, "--baseline", str(stored / "usual.json"))
    assert outcome.exit_code == UNDECIDED
    says = "against the baseline not compared: p99 needs 299 interactions in each run, there are 400 and 100"
    assert says in outcome.stdout


def test_a_moment_of_the_baseline_that_is_gone_is_undecided_and_a_new_one_is_not_held_against_it(here: Path) -> None:
    check(write(here / "before.jsonl", turns(5, moment="old")), "--save-baseline", "main.json")
    outcome = check(write(here / "after.jsonl", turns(300)), "--baseline", "main.json")
    assert outcome.exit_code == UNDECIDED
    assert [line.split()[:2] for line in outcome.stdout.splitlines()] == [["UNDECIDED", "old"], ["PASS", "voice-turn"]]


# Files for a pipeline


def test_junit_markdown_and_json_say_the_same(here: Path) -> None:
    path = write(here / "run.jsonl", [*turns(300, 12), *turns(10, moment="free")])
    outcome = check(path, "--junit", "latency.xml", "--markdown")
    assert outcome.exit_code == FAIL
    suites = ET.fromstring((here / "latency.xml").read_bytes())
    assert suites.attrib == {"name": "outlay check", "tests": "2", "failures": "1", "errors": "0", "skipped": "1"}
    first, second = suites.iter("testcase")
    assert (first.get("name"), second.get("name")) == ("voice-turn", "free")
    (failure,) = first
    assert (failure.tag, failure.get("type")) == ("failure", "FAIL")
    assert "12 of 300 over the limit" in str(failure.get("message"))
    assert outcome.stdout.startswith("### Latency: ❌ FAIL\n")
    assert "| `voice-turn` |" in outcome.stdout
    whole = json.loads(check(path, "--json").stdout)
    assert (whole["outlay"], whole["verdict"]) == ("check/1", "FAIL")
    assert [moment.get("verdict") for moment in whole["moments"]] == ["FAIL", None]
    assert whole["moments"][0]["offender"] == {
        "entry": "llm/queue.wait",
        "owner": "platform",
        "tail_ns": 900 * 10**6,
        "excess_ns": 800 * 10**6,
        "over_ns": 600 * 10**6,
    }


def broken(path: Path) -> str:
    path.mkdir()
    return str(path)


@pytest.mark.parametrize("option", ["--junit", "--save-baseline"])
@pytest.mark.parametrize("target", [broken, lambda path: str(path / "gone" / "file")])
def test_a_file_that_cannot_be_written_is_usage(here: Path, option: str, target: Callable[[Path], str]) -> None:
    outcome = check(write(here / "run.jsonl", turns(5)), option, target(here / "there"))
    assert outcome.exit_code == USAGE
    assert "there" in outcome.stderr
