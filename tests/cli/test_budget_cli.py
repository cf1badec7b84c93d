"""`outlay budget` below the program itself: what tests of the presets and of the file's grammar do not reach."""

import json
import subprocess
import sys
from importlib import resources
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from outlay.cli import FAIL, OK, REFUSED, USAGE
from outlay.cli.app import app
from outlay.formats.log import write_line
from outlay.formats.spec import MAX_BYTES, load_spec, preset_names
from outlay.interaction import Interaction, Span
from outlay.units import NS_PER_MS, NS_PER_S

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


def test_a_duty_period_is_shown_and_checked(tmp_path: Path) -> None:
    file = tmp_path / "outlay.yaml"
    file.write_text("moments: {alert: {within: 300ms, duty_period: 1h}}\n", encoding="utf-8")
    assert "none over it in a duty period of 3600 s" in budget("show", str(file)).stdout
    (moment,) = json.loads(budget("show", str(file), "--json").stdout)["moments"]
    assert moment["duty_period_ns"] == 3600 * NS_PER_S


@pytest.mark.parametrize(
    ("moment", "said"),
    [
        ("{duty_period: 1h}", "duty_period: means nothing without `within`; add the limit, or leave this out"),
        ("{within: 1s, duty_period: 0s}", "duty_period: must be above 0"),
        ("{within: 1s, duty_period: 8}", "duty_period: expected a duration such as 250ms, got 8"),
    ],
)
def test_a_duty_period_that_makes_no_sense_is_refused(tmp_path: Path, moment: str, said: str) -> None:
    file = tmp_path / "outlay.yaml"
    file.write_text(f"moments: {{alert: {moment}}}\n", encoding="utf-8")
    assert budget("validate", str(file)).stderr == f"{file}:1: moments.alert.{said}\n"


# allocate

# 100 ms on the way, of which nothing can be saved, 60 ms in the queue and 240 ms in the model.
PARTS = (("client", "uplink", 100), ("llm", "queue.wait", 60), ("llm", "infer", 240))


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """300 interactions that are all alike, and one of another moment."""
    path = tmp_path / "log.jsonl"
    lines = [write_line(_interaction(number, "chat")) for number in range(300)]
    path.write_bytes(b"".join([*lines, write_line(_interaction(300, "voice"))]))
    return path


def _interaction(number: int, moment: str) -> Interaction:
    start, spans, at = number * NS_PER_S, [], number * NS_PER_S
    for component, stage, took_ms in PARTS:
        end = at + took_ms * NS_PER_MS
        spans.append(Span(id=stage, parent=None, name=stage, component=component, start_ns=at, end_ns=end, stage=stage))
        at = end
    return Interaction(id=f"i{number}", moment=moment, start_ns=start, end_ns=at, spans=tuple(spans))


def test_allocate_fits_80_columns(log: Path) -> None:
    lines = budget("allocate", str(log), "--moment", "chat", "--limit", "800ms").stdout.splitlines()
    assert max(map(len, lines)) <= 80


def test_allocate_draws_what_each_may_spend(log: Path) -> None:
    outcome = budget("allocate", str(log), "--moment", "chat", "--limit", "800ms")
    assert (outcome.exit_code, outcome.stderr) == (OK, "")
    assert [line.rstrip() for line in outcome.stdout.splitlines()] == [
        "chat  99 percent within 800 ms",
        "  now 400 ms (400 ms to ?); 300 interactions, 9 near the p99",
        "  entries         typical      p99   floor   share    owner",
        "  client/uplink    100 ms   100 ms  100 ms  100 ms    -",
        "  llm/infer        240 ms   240 ms       0  560 ms    -",
        "  llm/queue.wait  60.0 ms  60.0 ms       0  140 ms    -",
        "  in all           400 ms   400 ms          800 ms",
    ]


def test_allocate_as_json_is_the_whole_of_standard_output(log: Path) -> None:
    outcome = budget("allocate", str(log), "--moment", "chat", "--limit", "800ms", "--json")
    assert outcome.exit_code == OK
    document = json.loads(outcome.stdout)
    (moment,) = document["moments"]
    assert (document["outlay"], moment["moment"], moment["n"]) == ("allocation/1", "chat", 300)
    assert {each["entry"]: each["share_ns"] for each in moment["entries"]} == {
        "client/uplink": 100 * NS_PER_MS,
        "llm/infer": 560 * NS_PER_MS,
        "llm/queue.wait": 140 * NS_PER_MS,
    }
    assert moment["tail_interval_ns"] == [400 * NS_PER_MS, "inf"]


def test_allocate_keeps_to_the_file_and_marks_who_spends_too_much(log: Path, tmp_path: Path) -> None:
    file = tmp_path / "outlay.yaml"
    file.write_text("moments: {chat: {within: 500ms, stages: {llm/queue*: {share: 30ms, owner: platform}}}}\n")
    outcome = budget("allocate", str(log), "--budget", str(file))
    rows = [line.split() for line in outcome.stdout.splitlines()]
    assert ["llm/queue*", "60.0", "ms", "60.0", "ms", "0", "30.0", "ms*", "over", "platform"] in rows
    assert rows[-1] == ["*", "granted", "by", "the", "budget"]


def test_a_limit_that_is_too_short_says_by_how_much_and_ends_with_1(log: Path, tmp_path: Path) -> None:
    new = tmp_path / "new.yaml"
    outcome = budget("allocate", str(log), "--moment", "chat", "--limit", "90ms", "--write", str(new))
    assert outcome.exit_code == FAIL
    told = " ".join(outcome.stdout.split())
    assert "Too short: the floors (client/uplink 100 ms) exceed the limit of 90.0 ms by 10.0 ms." in told
    assert not new.exists()


def test_write_makes_a_new_file_that_is_valid(log: Path, tmp_path: Path) -> None:
    new = tmp_path / "new.yaml"
    outcome = budget("allocate", str(log), "--moment", "chat", "--limit", "800ms", "--write", str(new))
    assert (outcome.exit_code, outcome.stderr) == (OK, f"outlay: wrote {new}\n")
    (moment,) = load_spec(new.read_text(encoding="utf-8"), "new.yaml").moments
    assert moment.budget is not None
    assert (moment.name, moment.budget.limit_ns, moment.budget.unassigned_ns) == ("chat", 800 * NS_PER_MS, 0)


def test_a_new_file_keeps_the_comments_of_the_one_it_comes_from(log: Path, tmp_path: Path) -> None:
    file, new = tmp_path / "outlay.yaml", tmp_path / "new.yaml"
    file.write_text("moments:\n  chat:\n    within: 800ms  # ours\n", encoding="utf-8")
    assert budget("allocate", str(log), "--budget", str(file), "--write", str(new)).exit_code == OK
    assert new.read_text(encoding="utf-8").startswith("moments:\n  chat:\n    within: 800ms  # ours\n    stages:\n")


def test_a_file_that_exists_gets_a_patch_and_is_left_alone(log: Path, tmp_path: Path) -> None:
    file = tmp_path / "outlay.yaml"
    before = "moments:\n  chat:\n    within: 800ms  # ours\n    stages:\n      llm/queue*: {owner: platform}\n"
    file.write_text(before, encoding="utf-8")
    outcome = budget("allocate", str(log), "--budget", str(file), "--write", str(file))
    assert (outcome.exit_code, file.read_text(encoding="utf-8")) == (OK, before)
    patch = outcome.stdout[outcome.stdout.index("---") :].splitlines()
    assert patch[:2] == [f"--- {file}", f"+++ {file}"]
    assert [line for line in patch[3:] if not line.startswith(" ")] == [
        "-      llm/queue*: {owner: platform}",
        "+      llm/queue*: {owner: platform, share: 140ms}",
        "+      client/uplink: {share: 100ms}",
        "+      llm/infer: {share: 560ms}",
    ]


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        ((), USAGE, "the data has several moments, choose one by --moment: chat, voice"),
        (("--moment", "chat"), USAGE, "chat has no budget: give --limit, or a --budget in which it has `within`"),
        (("--moment", "chat", "--limit", "soon"), USAGE, "'soon' is not a duration"),
        (("--moment", "chat", "--limit", "0s"), USAGE, "a budget's limit must be above 0"),
        (("--moment", "chat", "--limit", "1s", "--percentile", "100"), USAGE, "percentile must lie between 0 and 100"),
        (("--moment", "other", "--limit", "1s"), REFUSED, "the data holds no interactions of the moment other"),
        (("--moment", "voice", "--limit", "1s"), REFUSED, "voice: p99 needs 299 interactions, there are 1"),
        (("--moment", "chat", "--limit", "1s", "--budget", "no.yaml"), USAGE, "no.yaml: No such file or directory"),
    ],
)
def test_what_cannot_be_split_is_one_clear_line(log: Path, options: tuple[str, ...], code: int, said: str) -> None:
    outcome = budget("allocate", str(log), *options)
    assert (outcome.exit_code, outcome.stdout, outcome.stderr.count("\n")) == (code, "", 1)
    assert said in outcome.stderr


def test_a_limit_below_what_the_file_grants_says_which_and_by_how_much(log: Path, tmp_path: Path) -> None:
    file = tmp_path / "outlay.yaml"
    file.write_text("moments: {chat: {within: 500ms, stages: {llm/queue*: {share: 300ms}}}}\n", encoding="utf-8")
    outcome = budget("allocate", str(log), "--budget", str(file), "--limit", "250ms")
    assert outcome.exit_code == USAGE
    assert outcome.stderr == "outlay: the shares (llm/queue* 300 ms) exceed the limit of 250 ms by 50.0 ms\n"


def test_a_patch_and_json_do_not_mix(log: Path, tmp_path: Path) -> None:
    file = tmp_path / "outlay.yaml"
    file.write_text(VALID, encoding="utf-8")
    outcome = budget("allocate", str(log), "--budget", str(file), "--write", str(file), "--json")
    assert (outcome.exit_code, outcome.stdout) == (USAGE, "")


def test_data_that_is_not_there_is_named(tmp_path: Path) -> None:
    outcome = budget("allocate", str(tmp_path / "no.jsonl"), "--limit", "1s")
    assert (outcome.exit_code, outcome.stderr) == (
        USAGE,
        f"outlay: {tmp_path / 'no.jsonl'}: No such file or directory\n",
    )


# What is left


def took(number: int, **ms: int) -> bytes:
    """A line of a log: an interaction that waited and then inferred."""
    begun = start = number * NS_PER_S
    spans = []
    for stage, each in ms.items():
        end = begun + each * NS_PER_MS
        spans.append(Span(id=stage, parent=None, name=stage, component="llm", start_ns=begun, end_ns=end, stage=stage))
        begun = end
    return write_line(Interaction(id=f"i{number}", moment="m", start_ns=start, end_ns=begun, spans=tuple(spans)))


@pytest.mark.parametrize(
    ("elapsed", "code", "said"),
    [
        # After the queue come 10 to 109 ms of the model, 1 ms apart: 95 of the 100 are over within 104.
        ("100ms", 0, "go on: 400 ms left, enough with a probability of 100 %"),
        ("440ms", 1, "too late: 60.0 ms left, enough with a probability of 51 %"),
        ("395ms", 3, "undecided: 105 ms left, enough with a probability of 96 %"),
        ("600ms", 1, "too late: nothing left, enough with a probability of 0 %"),
    ],
)
def test_what_is_left_is_held_against_what_is_ahead(elapsed: str, code: int, said: str, tmp_path: Path) -> None:
    log = tmp_path / "run.jsonl"
    log.write_bytes(b"".join(took(number, queue=300 - number, infer=10 + number) for number in range(100)))
    asked = ["--limit", "500ms", "--percentile", "95", "--after", "llm/queue*", "--elapsed", elapsed]
    outcome = CliRunner().invoke(app, ["budget", "remaining", str(log), *asked])
    assert outcome.exit_code == code, outcome.stderr
    assert outcome.stdout.startswith(f"m  {said}")
    document = json.loads(CliRunner().invoke(app, ["budget", "remaining", str(log), *asked, "--json"]).stdout)
    assert document["go_on"] is (code != 1)


@pytest.mark.parametrize(
    ("arguments", "code", "why"),
    [
        (["--after", "no/*", "--elapsed", "1ms", "--limit", "1s"], 4, "no interaction has an entry that matches no/*"),
        (["--after", "llm/*", "--elapsed", "soon", "--limit", "1s"], 2, "'soon' is not a duration"),
        (["--after", "llm/*", "--elapsed", "1ms"], 2, "has no budget"),
    ],
)
def test_what_cannot_be_said_of_what_is_left(arguments: list[str], code: int, why: str, tmp_path: Path) -> None:
    log = tmp_path / "run.jsonl"
    log.write_bytes(took(1, infer=1000))
    outcome = CliRunner().invoke(app, ["budget", "remaining", str(log), *arguments])
    assert (outcome.exit_code, outcome.stdout) == (code, "")
    assert why in outcome.stderr
