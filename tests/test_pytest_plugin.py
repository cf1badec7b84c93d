"""A latency budget as a test: runs of pytest in a folder of their own, with known measurements."""

import subprocess
import sys
from pathlib import Path

import pytest
import scipy.special  # noqa: F401 - a run inside this process must not load it for a second time

from outlay.formats.log import write_line
from outlay.interaction import Interaction
from outlay.render.gate import reason  # noqa: F401 - as above
from outlay.units import NS_PER_MS

pytest_plugins = ["pytester"]

YAML = """
moments:
  voice-turn: {within: 800ms, percentile: 99, stages: {"llm/queue*": {share: 300ms, owner: platform}}}
  reply: {from: asked, to: answered, within: 800ms, percentile: 50}
  free: {}
"""

RECORDS = """
import pytest
MS = 1_000_000

@pytest.mark.latency_budget("voice-turn")
def test_it(latency):
    for place in range({n}):
        late = place % {every} == 0 if {every} else False
        queue = (900 if late else 100) * MS
        latency.record(queue + 400 * MS, {{"llm/queue.wait": queue, "llm/infer": 300 * MS}}, start_ns=place * 1000 * MS)
"""


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A folder with an outlay.yaml. The plugin is named to each run, whether or not it is installed."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    pytester.makefile(".yaml", outlay=YAML)
    return pytester


def outcome(run: pytest.Pytester, source: str, *options: str) -> pytest.RunResult:
    run.makepyfile(source)
    return run.runpytest_inprocess("-p", "outlay.pytest_plugin", "-p", "no:cacheprovider", *options)


def test_a_test_within_its_budget_passes(run: pytest.Pytester) -> None:
    result = outcome(run, RECORDS.format(n=300, every=0), "-W", "error")
    result.assert_outcomes(passed=1)


def test_a_test_over_its_budget_fails_with_the_entry_to_blame(run: pytest.Pytester) -> None:
    # 12 of 300 wait 900 ms, whose share is 300 ms.
    result = outcome(run, RECORDS.format(n=300, every=25))
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "latency budget of voice-turn: FAIL: p99 1.30 s*12 of 300 over the limit*"
            "; llm/queue.wait (platform) takes 900 ms, its share is exceeded by 600 ms"
        ]
    )


def test_too_few_are_a_warning(run: pytest.Pytester) -> None:
    result = outcome(run, RECORDS.format(n=99, every=0), "-W", "default")
    result.assert_outcomes(passed=1, warnings=1)
    # 0 of n is decided from 299 on.
    result.stdout.fnmatch_lines(["*LatencyUndecided: latency budget of voice-turn: UNDECIDED*200 more interactions*"])


def test_too_few_are_a_failure_where_that_is_asked_for(run: pytest.Pytester) -> None:
    result = outcome(run, RECORDS.format(n=99, every=0), "--latency-undecided=fail")
    result.assert_outcomes(failed=1)


def test_a_test_that_fails_by_itself_is_not_judged(run: pytest.Pytester) -> None:
    result = outcome(run, RECORDS.format(n=300, every=2) + "    assert False\n")
    result.assert_outcomes(failed=1)
    result.stdout.no_fnmatch_line("*latency budget*")


def test_failures_are_recorded_as_never(run: pytest.Pytester) -> None:
    # 2 of 3 must come within 800 ms on the median; of 9, 8 failed.
    result = outcome(
        run,
        """
import pytest
@pytest.mark.latency_budget("reply")
def test_it(latency):
    for place in range(9):
        latency.record(1000, outcome="timeout" if place else "ok", start_ns=place)
""",
    )
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*p50 never*8 of 9 over the limit*; 8 failed"])


def log(path: Path, n: int, took_ms: int) -> None:
    moments = [
        Interaction(id=f"i-{place}", moment="voice-turn", start_ns=place, end_ns=place + took_ms * NS_PER_MS)
        for place in range(n)
    ]
    path.write_bytes(b"".join(write_line(each) for each in moments))


def test_a_log_that_the_test_wrote_is_read_after_it(run: pytest.Pytester) -> None:
    log(run.path / "kept.jsonl", 300, took_ms=900)
    result = outcome(
        run,
        """
import pathlib
import pytest

@pytest.mark.latency_budget("voice-turn", data="run")
def test_marked():
    pathlib.Path("run").mkdir()
    pathlib.Path("run", "notes.txt").write_text("of no format")
    pathlib.Path("kept.jsonl").rename("run/log.jsonl")

@pytest.mark.latency_budget("voice-turn")
def test_named(latency):
    latency.from_log("run/log.jsonl")

@pytest.mark.latency_budget("voice-turn", data="run/notes.txt")
def test_refused():
    pass

@pytest.mark.latency_budget("voice-turn", data="gone.jsonl")
def test_gone():
    pass
""",
    )
    result.assert_outcomes(failed=4)
    lines = ["*FAIL*300 of 300 over the limit*"] * 2
    lines += ["the data of voice-turn was refused: the input is text*", "*gone.jsonl: No such file or directory"]
    result.stdout.fnmatch_lines(lines)


@pytest.mark.parametrize(
    ("marker", "says"),
    [
        ('"voice-turn", budget="other.yaml"', "*other.yaml: there is no such file, and no preset other.yaml"),
        ('"free"', "*outlay.yaml: no budget for the moment free"),
        ('"unknown"', "*outlay.yaml: no budget for the moment unknown"),
        ('"chat", budget="bad.yaml"', "*bad.yaml:1:*"),
        ("", "the marker reads latency_budget(moment, [*], budget=None, data=None)"),
        ('"voice-turn", limit="1s"', "the marker reads latency_budget(moment, [*], budget=None, data=None)"),
    ],
)
def test_a_marker_that_cannot_be_judged_fails_its_test(run: pytest.Pytester, marker: str, says: str) -> None:
    run.makefile(".yaml", bad="moment: {}")
    result = outcome(run, f"import pytest\n@pytest.mark.latency_budget({marker})\ndef test_it():\n    pass\n")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([says])


def test_a_preset_is_a_budget_too(run: pytest.Pytester) -> None:
    # 95 percent of chats within 1 s; 59 of 59 decide. The preset's marks do not matter to what is recorded.
    result = outcome(
        run,
        """
import pytest
@pytest.mark.latency_budget("chat", budget="chat")
def test_it(latency):
    for place in range(60):
        latency.record(1000, start_ns=place)
""",
    )
    result.assert_outcomes(passed=1)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        ("-1", "do not fit into a total of -1 ns"),
        ("5, {'llm/infer': 6}", "entries of 6 ns do not fit into a total of 5 ns"),
        ("5, {'llm/infer': -6}", "do not fit"),
        ("5, {'llm/nothing': 1}", "'llm/nothing' is not an entry"),
        ("5, outcome='fine'", "'fine' is no outcome; there are ok, error"),
    ],
)
def test_what_cannot_be_is_not_recorded(run: pytest.Pytester, call: str, says: str) -> None:
    source = "import pytest\n@pytest.mark.latency_budget('voice-turn')\ndef test_it(latency):\n"
    result = outcome(run, f"{source}    latency.record({call})\n")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([f"*ValueError: *{says}*"])


def test_the_fixture_without_its_marker_says_what_is_missing(run: pytest.Pytester) -> None:
    result = outcome(run, "def test_it(latency):\n    pass\n")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*mark the test with @pytest.mark.latency_budget(moment)*"])


def test_a_run_that_asks_for_nothing_imports_nothing_of_it(run: pytest.Pytester) -> None:
    run.makepyfile(
        """
import sys
def test_it():
    assert {name for name in sys.modules if name.startswith("outlay.")} == {"outlay.pytest_plugin"}
    assert "numpy" not in sys.modules
"""
    )
    command = [sys.executable, "-m", "pytest", "-p", "outlay.pytest_plugin", "-p", "no:cacheprovider", "-q"]
    done = subprocess.run(command, cwd=run.path, capture_output=True, text=True, timeout=60, check=False)
    assert "1 passed" in done.stdout, done.stdout
