"""`outlay explain` as a user meets it: what it prints where, how it exits, what it leaves alone when things fail."""

import gzip
import json
import os
import re
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import chdir
from html import unescape
from pathlib import Path
from typing import Any

import pytest
import typer
from opentelemetry.proto.trace.v1.trace_pb2 import TracesData
from typer.testing import CliRunner, Result

from outlay.cli import INTERRUPTED, OK, REFUSED, USAGE
from outlay.cli.app import app
from outlay.formats.log import parse_lines, write_line
from outlay.formats.reading import BLOCK
from outlay.interaction import Interaction, Mark
from outlay.units import NS_PER_MS

DATA = Path(__file__).parents[1] / "data"
SKEW = str(DATA / "traces-zipkin" / "skew.json")
ERROR = str(DATA / "traces-jaeger" / "crisp" / "17.json")
LOG = str(DATA / "outlay-log" / "interaction-1.jsonl")
SUMMARY = str(DATA / "vllm-requests" / "RTX4090__Llama-3.1-8B__summary.txt")

ESCAPE = "\x1b[31m"


def explain(*arguments: str, **more: Any) -> Result:
    return CliRunner(env={"COLUMNS": "100", "FORCE_COLOR": None, "NO_COLOR": "1"}).invoke(
        app, ["explain", *arguments], **more
    )


def printed(*arguments: str) -> dict[str, Any]:
    outcome = explain(*arguments, "--json")
    assert (outcome.exit_code, outcome.stderr) == (OK, "")
    whole: dict[str, Any] = json.loads(outcome.stdout)
    return whole


def moments(*arguments: str) -> dict[str, Any]:
    return {moment["moment"]: moment for moment in printed(*arguments)["moments"]}


def one_line(outcome: Result, code: int) -> str:
    """The only line on standard error, without the program's name; nothing was printed."""
    assert (outcome.exit_code, outcome.stdout) == (code, "")
    (line,) = outcome.stderr.splitlines()
    assert line.startswith("outlay: ")
    return line.removeprefix("outlay: ")


# What is printed where


def test_json_is_the_whole_of_standard_output() -> None:
    outcome = explain(SKEW, "--json")
    assert (outcome.exit_code, outcome.stderr) == (OK, "")
    assert outcome.stdout.endswith("}\n")
    assert outcome.stdout.count("\n") == 1
    assert json.loads(outcome.stdout)["outlay"] == "report/1"


@pytest.mark.parametrize(("options", "says"), [((), "4 spans"), (("--markdown",), "\n| ")])
def test_text_and_markdown_go_to_standard_output(options: Sequence[str], says: str) -> None:
    outcome = explain(SKEW, *options)
    assert (outcome.exit_code, outcome.stderr) == (OK, "")
    assert says in outcome.stdout
    assert "serviceb/" in outcome.stdout


def test_a_page_is_written_beside_any_of_them_and_its_address_said(tmp_path: Path) -> None:
    page = tmp_path / "a report.html"
    for option in ("--json", "--markdown", "--slowest=0"):
        page.unlink(missing_ok=True)
        outcome = explain(SKEW, option, "--html", str(page))
        assert outcome.stderr == f"Report: {page.as_uri()}\n"
        assert page.read_bytes().startswith(b"<!doctype html>")
    assert [path.name for path in tmp_path.iterdir()] == [page.name]


def test_a_log_holds_every_interaction_and_gives_the_same_account(tmp_path: Path) -> None:
    log = tmp_path / "out.jsonl"
    direct = printed(SKEW, ERROR, LOG, "--log", str(log))
    lines = log.read_bytes().splitlines()
    assert len(list(parse_lines(lines))) == len(lines) == 22  # a trace each, and the 20 of the log
    again = printed(str(log))
    for moment in (*direct["moments"], *again["moments"]):
        # Which notes a trace carries as a whole is told by who read it first; times are not.
        del moment["health"]
    assert again["moments"] == direct["moments"]


def test_json_and_markdown_together_are_refused() -> None:
    assert "choose one" in one_line(explain(SKEW, "--json", "--markdown"), USAGE)


# What is asked


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        # 12 turns and 8 chats; one chat has no end, so it is started and not measured
        ((), {"chat": 7, "voice-turn": 12}),
        (("--moment", "chat"), {"chat": 7}),
        (("-m", "voice-turn"), {"voice-turn": 12}),
        (("--where", "version=2.4.0"), {"voice-turn": 4}),
        (("--where", "version=2.3.*"), {"voice-turn": 8}),
        (("--where", "start=cold"), {"chat": 1}),
        (("-w", "site=東京", "-w", "hardware=l40s"), {"chat": 4}),
        (("-w", " start = cold "), {"chat": 1}),
    ],
)
def test_filters_choose_interactions(options: Sequence[str], expected: dict[str, int]) -> None:
    assert {name: moment["n"] for name, moment in moments(LOG, *options).items()} == expected


@pytest.mark.parametrize("by", ["version", "version,", " version , "])
def test_by_splits_by_the_values_of_dimensions(by: str) -> None:
    turns = moments(LOG, "--moment", "voice-turn", "--by", by)["voice-turn"]
    assert {row["key"]["version"]: row["n"] for row in turns["cohorts"]} == {"2.3.1": 8, "2.4.0": 4}


def test_what_a_dimension_does_not_say_is_a_row_without_it() -> None:
    chats = moments(LOG, "--moment", "chat", "--by", "version,start")["chat"]
    assert [row["key"] for row in chats["cohorts"]] == [{"start": "warm"}, {"start": "cold"}]


@pytest.mark.parametrize(("asked", "shown"), [(0, 0), (1, 1), (3, 3), (1000, 11)])  # 12 turns, one cut short
def test_slowest_says_how_many_are_shown_whole(asked: int, shown: int) -> None:
    turns = moments(LOG, "-m", "voice-turn", "-n", str(asked))["voice-turn"]["slowest"]
    totals = [slow["total_ns"] for slow in turns]
    assert len(totals) == shown
    assert totals == sorted(totals, reverse=True)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--where", "site"), "--where site: expected DIM=VALUE"),
        (("--where", "=lon"), "--where =lon: expected DIM=VALUE"),
    ],
)
def test_a_condition_that_is_none_is_a_usage_error(options: Sequence[str], said: str) -> None:
    assert said in one_line(explain(LOG, *options), USAGE)


@pytest.mark.parametrize("options", [("--slowest", "-1"), ("--slowest", "many"), ("--jobs", "0"), ("--colour",)])
def test_an_option_that_cannot_be_is_a_usage_error(options: Sequence[str]) -> None:
    outcome = explain(LOG, *options)
    assert (outcome.exit_code, outcome.stdout) == (USAGE, "")
    assert options[0] in outcome.stderr


@pytest.mark.parametrize(
    ("options", "asked", "has"),
    [
        (("--where", "site=nyc"), "--where site=nyc", "moments: chat, voice-turn; site: fra, lon, são-paulo, 東京"),
        (("--moment", "alert"), "--moment alert", "moments: chat, voice-turn"),
        (("-w", "tier=x", "-m", "chat"), "--where tier=x --moment chat", "tier: in no interaction"),
    ],
)
def test_a_filter_that_matches_nothing_says_what_there_is(options: Sequence[str], asked: str, has: str) -> None:
    line = one_line(explain(LOG, *options), REFUSED)
    assert line.startswith(f"none of 20 interactions matches {asked}; the data has moments: ")
    assert line.endswith(has) or has in line


# Budgets


def test_a_preset_serves_as_a_budget() -> None:
    assert moments(LOG, "--budget", "voice-turn")["voice-turn"]["budget"]["limit_ns"] == 800 * NS_PER_MS


def test_an_outlay_yaml_in_the_folder_is_used_and_a_named_one_wins(tmp_path: Path) -> None:
    (tmp_path / "outlay.yaml").write_text("moments: {chat: {within: 2s}}")
    (tmp_path / "other.yaml").write_text("moments: {chat: {within: 3s}}")
    with chdir(tmp_path):
        assert moments(LOG)["chat"]["budget"]["limit_ns"] == 2_000 * NS_PER_MS
        assert moments(LOG, "-b", "other.yaml")["chat"]["budget"]["limit_ns"] == 3_000 * NS_PER_MS


def test_an_outlay_yaml_that_is_not_valid_is_named_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "outlay.yaml").write_text("moments:\n  chat:\n    within: 5\n")
    with chdir(tmp_path):
        outcome = explain(LOG)
    assert (outcome.exit_code, outcome.stdout) == (USAGE, "")
    assert outcome.stderr == "outlay.yaml:3: moments.chat.within: expected a duration such as 250ms, got 5\n"


@pytest.mark.parametrize("budget", ["voce-turn", "nowhere/outlay.yaml", "."])
def test_a_budget_that_is_neither_a_file_nor_a_preset_is_a_usage_error(budget: str) -> None:
    line = one_line(explain(LOG, "--budget", budget), USAGE)
    assert line.startswith(f"{budget}: ")
    assert "chat, document-analysis, safety-alert, voice-turn" in line


# Inputs


def test_a_missing_file_is_a_usage_error() -> None:
    assert one_line(explain("nowhere.json"), USAGE) == "nowhere.json: No such file or directory"
    assert one_line(explain(SKEW, "nowhere.json"), USAGE) == "nowhere.json: No such file or directory"


@pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="needs a file that opens and cannot be read")
def test_a_file_that_cannot_be_read_is_named() -> None:
    assert one_line(explain("/proc/self/mem"), USAGE) == "/proc/self/mem: Input/output error"


def test_a_file_named_twice_is_read_once(tmp_path: Path) -> None:
    copy = tmp_path / "log.jsonl"
    shutil.copy(LOG, copy)
    twice = printed(str(copy), str(tmp_path / "." / "log.jsonl"), str(tmp_path))
    assert [source["name"] for source in twice["sources"]] == [str(copy)]
    assert twice["moments"] == printed(str(copy))["moments"]


def test_a_folder_is_read_with_what_is_below_and_unknown_files_are_skipped_and_said(tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    shutil.copy(SKEW, tmp_path / "below" / "a.json")
    shutil.copy(SUMMARY, tmp_path / "notes.txt")
    (tmp_path / "empty").touch()
    (tmp_path / ".hidden").write_text("{")
    outcome = explain(str(tmp_path), "--json")
    assert outcome.exit_code == OK
    assert outcome.stderr == f"outlay: skipped 2 files of no known format: {tmp_path}/empty\n"
    assert [source["name"] for source in json.loads(outcome.stdout)["sources"]] == [f"{tmp_path}/below/a.json"]


def test_a_file_that_was_named_is_refused_and_the_rest_still_reported() -> None:
    outcome = explain(SUMMARY, SKEW, "--json")
    assert outcome.exit_code == REFUSED
    assert outcome.stderr == f"outlay: {SUMMARY}: the input is text, neither JSON nor OTLP protobuf\n"
    assert [source["name"] for source in json.loads(outcome.stdout)["sources"]] == [SKEW]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "{}: the input is empty"),
        ('{"messages":[]}', "{}: the JSON is of no known format: an object with messages; known are outlay-log"),
        ('{"outlay":"interaction/2"}', "{}: line 1 is of version 'interaction/2'; this program reads 'interaction/1'"),
        (
            f'{{"a{ESCAPE}b":1}}'.replace("\x1b", "\\u001b"),
            "{}: the JSON is of no known format: an object with a\\x1b[31mb",
        ),
    ],
)
def test_a_refusal_names_the_file_and_what_was_found(tmp_path: Path, content: str, said: str) -> None:
    file = tmp_path / "in.json"
    file.write_text(content)
    outcome = explain(str(file))
    first, last = outcome.stderr.splitlines()
    assert outcome.exit_code == REFUSED
    assert first.startswith("outlay: " + said.format(file))
    assert last == "outlay: nothing could be read"
    assert "\x1b" not in outcome.stderr


def test_when_nothing_is_left_the_reason_of_the_first_is_told(tmp_path: Path) -> None:
    file = tmp_path / "in.jsonl"
    file.write_text('{"outlay":"interaction/1"}\n' * 3)
    line = one_line(explain(str(file)), REFUSED)
    assert line.startswith("the input holds no interactions; 3 dropped-record, such as line 1: ")


@pytest.mark.parametrize("paths", [("-",), (SKEW, "-"), ("-", "-")])
def test_a_dash_is_standard_input(paths: Sequence[str]) -> None:
    outcome = explain(*paths, "--json", input=Path(LOG).read_bytes())
    assert outcome.exit_code == OK
    assert {source["name"] for source in json.loads(outcome.stdout)["sources"]} == set(paths)


def test_what_standard_input_held_cannot_be_listed() -> None:
    line = one_line(explain("-", "--where", "site=nyc", input=Path(LOG).read_bytes()), REFUSED)
    assert (
        line == "none of 20 interactions matches --where site=nyc; the input is gone, so what it holds cannot be listed"
    )


@pytest.mark.skipif(not Path("/dev/stdin").exists(), reason="needs a pipe with a name")
@pytest.mark.parametrize("options", [(), ("--jobs", "3")])
def test_a_pipe_with_a_name_is_read_once(options: Sequence[str]) -> None:
    """Looking into it first, to see whether workers could share it, would take what it holds."""
    outcome = run("explain", "/dev/stdin", "--json", *options, stdout=subprocess.PIPE, input=Path(LOG).read_bytes())
    assert (outcome.returncode, outcome.stderr) == (OK, b"")
    assert json.loads(outcome.stdout)["sources"][0]["records"] == 20


# Sharing the work


def many_lines(count: int) -> bytes:
    """A log of more than one block, whose interactions differ and some of whose lines are bad."""
    lines = []
    for number in range(count):
        at = number * NS_PER_MS
        mark = Mark(name="done", at_ns=at + 5 * number, component=f"c{number % 7}", stage="infer")
        made = Interaction(
            id=f"{number:06}",
            moment=f"m{number % 3}",
            start_ns=at,
            end_ns=at + 6 * number,
            dimensions={"site": f"s{number % 4}", "padding": "x" * 150},
            marks=(mark,),
            outcome="error" if number % 11 == 0 else "ok",
        )
        lines.append(write_line(made) if number % 1999 else b'{"outlay":"interaction/1"}\n')
    return b"".join(lines)


def group(trace: int, number: int) -> TracesData:
    """Half of a trace: its root, or the child that a second file may hold."""
    start = trace * 1000 + 1 + 10 * number
    span = {
        "trace_id": trace.to_bytes(16, "big"),
        "span_id": bytes([number + 1]),
        "parent_span_id": b"\1" if number else b"",
        "name": f"span {number}",
        "start_time_unix_nano": start,
        "end_time_unix_nano": start + 100 - 50 * number + trace % 13,
    }
    return TracesData(resource_spans=[{"scope_spans": [{"spans": [span]}]}])


def as_line(traces: TracesData) -> bytes:
    (span,) = traces.resource_spans[0].scope_spans[0].spans
    fields = {
        "traceId": span.trace_id.hex(),
        "spanId": span.span_id.hex(),
        "parentSpanId": span.parent_span_id.hex(),
        "name": span.name,
        "startTimeUnixNano": str(span.start_time_unix_nano),
        "endTimeUnixNano": str(span.end_time_unix_nano),
    }
    return json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [fields]}]}]}).encode() + b"\n"


INPUTS: dict[str, Callable[[], dict[str, bytes]]] = {
    "log": lambda: {"in.jsonl": many_lines(2 * BLOCK // 300)},
    "protobuf": lambda: {"in.pb": b"".join(group(trace, 0).SerializeToString() for trace in range(1, 400))},
    "lines": lambda: {"in.jsonl": b"{\n".join(as_line(group(trace, 0)) for trace in range(1, 400))},
    # Both halves of a trace must meet in one worker, whichever encoding each has.
    "both": lambda: {
        "in.pb": b"".join(group(trace, 0).SerializeToString() for trace in range(1, 200)),
        "in.jsonl": b"".join(as_line(group(trace, 1)) for trace in range(1, 200)),
    },
    "damaged": lambda: {"in.pb": b"".join(group(trace, 0).SerializeToString() for trace in range(1, 400))[:-7]},
}


@pytest.mark.parametrize("kind", INPUTS)
def test_any_number_of_workers_gives_the_same_bytes(tmp_path: Path, kind: str) -> None:
    for name, content in INPUTS[kind]().items():
        (tmp_path / name).write_bytes(content)
    paths = sorted(str(path) for path in tmp_path.iterdir())
    outcomes = [explain(*paths, "--by", "site", "--slowest", "20", "--json", "--jobs", str(jobs)) for jobs in (1, 3)]
    assert [outcome.exit_code for outcome in outcomes] == [OK, OK]
    assert outcomes[0].stdout_bytes == outcomes[1].stdout_bytes
    assert json.loads(outcomes[0].stdout)["moments"][0]["n"] > 100


# Outputs that fail. These need a real process with a real standard output.

OUTLAY = (sys.executable, "-m", "outlay")
FULL = Path("/dev/full")
needs_full = pytest.mark.skipif(not FULL.is_char_device(), reason="needs /dev/full")


def run(*arguments: str, **more: Any) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([*OUTLAY, *arguments], stderr=subprocess.PIPE, timeout=60, check=False, **more)


def small_disk() -> None:
    """As a disk with no room: no file may grow beyond 1000 bytes, and trying says so instead of killing."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))


@needs_full
@pytest.mark.parametrize(
    "arguments", [("explain", SKEW), ("explain", SKEW, "--json"), ("explain", SKEW, "--markdown"), ("budget", "schema")]
)
def test_standard_output_on_a_full_disk_is_one_line(arguments: Sequence[str]) -> None:
    with FULL.open("wb") as full:
        outcome = run(*arguments, stdout=full)
    assert (outcome.returncode, outcome.stderr) == (USAGE, b"outlay: standard output: No space left on device\n")


def test_a_page_or_log_that_does_not_fit_keeps_the_one_that_was_there(tmp_path: Path) -> None:
    page, log = tmp_path / "report.html", tmp_path / "out.jsonl"
    for option, target in (("--html", page), ("--log", log)):
        target.write_text("earlier")
        outcome = run("explain", LOG, option, str(target), stdout=subprocess.DEVNULL, preexec_fn=small_disk)
        assert outcome.returncode == USAGE
        assert outcome.stderr.decode() == f"outlay: {target}: File too large\n"
        assert target.read_text() == "earlier"
    assert sorted(tmp_path.iterdir()) == [log, page]


@needs_full
@pytest.mark.parametrize("option", ["--html", "--log"])
def test_a_device_as_target_is_written_and_stays_a_device(option: str) -> None:
    line = one_line(explain(SKEW, option, str(FULL)), USAGE)
    assert line == "/dev/full: No space left on device"
    assert FULL.is_char_device()


def test_a_link_as_target_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    link = tmp_path / "report.html"
    link.symlink_to(tmp_path / "site" / "index.html")
    assert explain(SKEW, "--html", str(link)).exit_code == OK
    assert link.is_symlink()
    assert link.read_bytes().startswith(b"<!doctype html>")


@pytest.mark.parametrize("option", ["--html", "--log"])
def test_a_target_in_no_folder_is_a_usage_error(tmp_path: Path, option: str) -> None:
    outcome = explain(SKEW, option, str(tmp_path / "nowhere" / "out"))
    assert outcome.exit_code == USAGE
    assert outcome.stderr.endswith(": No such file or directory\n")


def test_a_log_may_be_written_over_the_one_that_is_read(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    shutil.copy(LOG, log)
    assert explain(str(log), "--log", str(log)).exit_code == OK
    assert list(parse_lines(log.read_bytes().splitlines())) == list(parse_lines(Path(LOG).read_bytes().splitlines()))


@pytest.mark.parametrize("options", [(), ("--json", "--html")])
def test_a_reader_that_has_had_enough_is_no_error(tmp_path: Path, options: Sequence[str]) -> None:
    page = tmp_path / "report.html"
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as closed:
        outcome = run("explain", LOG, *options, *([str(page)] if options else ()), stdout=closed)
    assert (outcome.returncode, outcome.stderr) == (OK, b"")
    assert page.exists() == bool(options)


def test_output_in_another_encoding_loses_no_line() -> None:
    ascii_only = {**os.environ, "PYTHONIOENCODING": "ascii"}
    outcome = run("explain", LOG, "--by", "site", stdout=subprocess.PIPE, env=ascii_only)
    assert (outcome.returncode, outcome.stderr) == (OK, b"")
    assert b"s?o-paulo" in outcome.stdout


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere names are text")
def test_a_name_that_is_no_text_is_shown_with_its_bytes(tmp_path: Path) -> None:
    file = os.fsdecode(bytes(tmp_path) + b"/caf\xe9.json")
    shutil.copy(SKEW, file)
    for options in ((), ("--markdown",), ("--json", "--by", "source")):
        outcome = explain(file, *options)
        assert outcome.exit_code == OK
        assert "caf\\xe9.json" in unescape(outcome.stdout).replace("\\\\", "\\")


# Interruption


def children(pid: int) -> list[int]:
    """The processes below one, from the kernel's own list."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            # The command's name, in brackets, may hold blanks; the parent is the second field after it.
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == pid and fields[0] != "Z":
            found.append(int(stat.parent.name))
    return found


def wait_for(condition: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        assert process.poll() is None


linux_only = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs the kernel's list of processes")


@linux_only
@pytest.mark.parametrize("to_all", [False, True], ids=["the parent", "all of them, as a terminal does"])
def test_an_interruption_ends_all_processes_quietly(tmp_path: Path, to_all: bool) -> None:
    log = tmp_path / "large.jsonl.gz"
    log.write_bytes(gzip.compress(Path(LOG).read_bytes() * 300) * 100)  # 960 MB to read: much longer than it takes here
    command = [*OUTLAY, "explain", str(log), "--jobs", "2"]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, start_new_session=True, **pipes) as process:
        wait_for(lambda: len(children(process.pid)) == 2, process)
        workers = children(process.pid)
        (os.killpg if to_all else os.kill)(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=30)
    assert (process.returncode, out) == (INTERRUPTED, b"")
    assert b"Traceback" not in err
    assert not [pid for pid in workers if Path(f"/proc/{pid}").exists()]


# Nothing phones home

OFFLINE = """
import sys
from outlay.cli import main
def refuse(event, arguments):
    if event in ("socket.connect", "socket.getaddrinfo", "socket.gethostbyname", "socket.sendto", "urllib.Request"):
        raise SystemExit(f"{event} {arguments}")
sys.addaudithook(refuse)
main()
"""


def test_explain_opens_no_connection(tmp_path: Path) -> None:
    arguments = ["explain", SKEW, LOG, "--jobs", "2", "--json", "--html", str(tmp_path / "report.html")]
    outcome = subprocess.run([sys.executable, "-c", OFFLINE, *arguments], capture_output=True, timeout=60, check=False)
    assert outcome.returncode == OK, outcome.stderr
    assert json.loads(outcome.stdout)["moments"]


def can_unshare() -> bool:
    unshare = shutil.which("unshare")
    return (
        unshare is not None
        and subprocess.run([unshare, "-rn", "true"], capture_output=True, check=False).returncode == 0
    )


@pytest.mark.skipif(not can_unshare(), reason="needs a network namespace of its own")
def test_explain_works_without_any_network() -> None:
    outcome = subprocess.run(
        ["unshare", "-rn", *OUTLAY, "explain", SKEW, "--json"], capture_output=True, timeout=60, check=False
    )
    assert (outcome.returncode, outcome.stderr) == (OK, b"")
    assert json.loads(outcome.stdout)["moments"]


# Help

VERBS = ("explain", "budget", "budget validate", "budget show", "budget presets", "budget schema")


def command_of(verb: str) -> Any:
    command: Any = typer.main.get_command(app)
    for name in verb.split():
        command = command.commands[name]
    return command


@pytest.mark.parametrize("verb", VERBS)
def test_every_help_has_lines_to_paste_with_options_that_exist_and_exit_codes(verb: str) -> None:
    outcome = CliRunner(env={"COLUMNS": "80"}).invoke(app, [*verb.split(), "--help"])
    assert outcome.exit_code == OK
    assert max(map(len, outcome.stdout.splitlines())) <= 80
    lines = re.findall(rf"^ +(outlay {verb}\b.*)$", outcome.stdout, re.MULTILINE)
    assert lines
    for line in lines:
        words = shlex.split(re.split(r"[|>]", line)[0])[1:]
        names = [word for word in words if not word.startswith("-")]
        target = command_of(" ".join(names[:2] if names[0] == "budget" else names[:1]))
        known = {option for parameter in target.params for option in parameter.opts}
        assert {word for word in words if word.startswith("--")} <= known
    assert "Exit codes: 0 " in " ".join(outcome.stdout.split())


def test_the_program_s_help_lists_the_verbs_and_the_exit_codes() -> None:
    outcome = CliRunner(env={"COLUMNS": "80"}).invoke(app, ["--help"])
    text = " ".join(outcome.stdout.split())
    assert all(re.search(rf"\b{verb}\b", text) for verb in ("explain", "budget"))
    assert "Exit codes: 0 done or PASS, 1 FAIL, 2 usage, 3 UNDECIDED, 4 the data was refused, 130 interrupted." in text


# Loads

LOADS = str(DATA / "outlay-log" / "load-1.jsonl")
STAGE = str(DATA / "inference-perf-kubecon25" / "vllm+v0_engine" / "stage_4_lifecycle_metrics.json")


def test_a_published_summary_is_a_report_and_no_error() -> None:
    outcome = explain(STAGE)
    assert (outcome.exit_code, outcome.stderr) == (OK, "")
    # The reasons come before any percentile.
    assert outcome.stdout.index("INVALID") < outcome.stdout.index("58.8 s") < outcome.stdout.index("p50")
    assert printed(STAGE)["sources"] == [{"name": STAGE, "format": "inference-perf", "records": 1, "unit": "loads"}]


def test_a_load_travels_through_a_log(tmp_path: Path) -> None:
    log = tmp_path / "out.jsonl"
    direct = printed(LOADS, STAGE, "--log", str(log))
    assert printed(str(log))["loads"] == direct["loads"]
    assert [load["name"] for load in direct["loads"]] == [STAGE, "whole run"]
    assert {source["unit"] for source in direct["sources"]} == {"interactions", "loads"}


def test_several_processes_and_several_logs_give_the_same_loads() -> None:
    one, three = (printed(LOADS, STAGE, "--jobs", str(jobs)) for jobs in (1, 3))
    assert one["loads"] == three["loads"]
    assert one["moments"] == three["moments"]


def test_a_load_that_nobody_asked_for_does_not_stand_in_the_report() -> None:
    assert "none of 6 interactions matches --moment nobody" in one_line(explain(LOADS, "--moment", "nobody"), REFUSED)
    assert printed(LOADS, "--where", "source=load-1.jsonl")["loads"][0]["dimensions"]["source"] == "load-1.jsonl"
