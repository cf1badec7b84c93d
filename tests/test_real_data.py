"""Every real file, through the command as a user would call it: sums are exact, or the refusal names the trap."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from outlay.cli import OK, REFUSED
from outlay.cli.app import app
from outlay.units import NS_PER_US

DATA = Path(__file__).parent / "data"
FILES = sorted(str(path.relative_to(DATA)) for path in DATA.rglob("*") if path.is_file())

# What stands beside the data, and what is said of it.
BESIDE = {
    ".md": "the input is text, neither JSON nor OTLP protobuf",
    ".txt": "the input is text, neither JSON nor OTLP protobuf",
    ".csv": "the input is text, neither JSON nor OTLP protobuf",
    "meta.json": "the JSON is of no known format: an object with schema_version, model, vllm_version",
    # Summaries hold percentiles, which cannot be taken apart.
    "profile_export_aiperf.json": "the JSON is of no known format: an object with request_throughput, request_latency",
    # Recorded arrivals are something to replay, not a measurement.
    "conversation_first500.jsonl": "the JSON is of no known format: an object with timestamp, input_length",
    "faas_coldstart_aws_scatter.json": "the JSON is of no known format: an object with points",
    "guidellm_report_v2.json": "this GuideLLM report was saved without its requests",
    **{
        f"summary/{model}.json": "the JSON is of no known format: an object with version, name, model"
        for model in ("anyscale_13b", "bedrock_13b", "lepton_13b", "replicate_70b")
    },
}


def explain(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["explain", *arguments])


def report(name: str) -> dict[str, Any]:
    outcome = explain(str(DATA / name), "--json", "--slowest", "1000")
    assert outcome.exit_code == OK, outcome.stderr
    whole: dict[str, Any] = json.loads(outcome.stdout)
    return whole


def is_beside(name: str) -> bool:
    return name.endswith(tuple(BESIDE))


def is_summary(name: str) -> bool:
    """Whether the file holds the load of a run, and none of its requests."""
    return name.endswith("_lifecycle_metrics.json")


@pytest.mark.parametrize("name", [name for name in FILES if not is_beside(name) and not is_summary(name)])
def test_every_list_of_a_report_sums_to_the_nanosecond(name: str) -> None:
    moments = report(name)["moments"]
    assert moments
    for moment in moments:
        assert all(row[key] >= 0 for row in moment["account"] for key in ("typical_ns", "tail_ns"))
        for key in ("typical_ns", "tail_ns"):
            # Where nobody got a result there is no account, and no 0 stands for it.
            assert sum(row[key] for row in moment["account"]) == moment.get(key, 0)
            assert (key in moment) == ("ok" in moment["outcomes"])
        for slow in moment["slowest"]:
            assert sum(entry["duration_ns"] for entry in slow["entries"]) == slow["total_ns"]
            check_timeline(slow["entries"])
            assert 0 <= slow["ambiguous_ns"] <= slow["total_ns"]
        assert sum(moment["outcomes"].values()) == moment["n"] <= moment["started"]


@pytest.mark.parametrize(
    ("config", "invalid"),
    [
        # From this stage on more was asked for than was sent: 123 and 106, 149 and 117, 87 and 73, 119 and 79/s.
        ("vllm", 4),
        ("vllm+batch_size", 4),
        ("vllm+eagle", 5),
        ("vllm+v0_engine", 3),
    ],
)
def test_a_published_load_that_was_not_delivered_is_invalid(config: str, invalid: int) -> None:
    for stage in range(7):
        whole = report(f"inference-perf-kubecon25/{config}/stage_{stage}_lifecycle_metrics.json")
        (load,) = whole["loads"]
        assert whole["moments"] == []
        assert load["verdict"] == ("INVALID" if stage >= invalid else "VALID")
        assert load["name"].endswith(f"stage_{stage}_lifecycle_metrics.json")
        by_level = {bound["level"]: bound["interval_ns"] for bound in load["bounds"]}
        assert sorted(by_level) == [50, 95, 99]
        assert all(low <= high for low, high in by_level.values())
        low, high = by_level[99]
        # While the sender keeps its schedule, what the tool prints lies within a few percent of the truth.
        claimed = load["claimed_ns"]["p99"]
        assert claimed < low if stage >= invalid else 0.97 * low <= claimed <= high


def test_the_overloaded_stages_claim_five_seconds_where_a_person_waits_a_minute() -> None:
    """Stage 6 of v0: 236/s asked for, 78/s sent, 57.7 s late in the median; the tool prints a median of 5.16 s."""
    (load,) = report("inference-perf-kubecon25/vllm+v0_engine/stage_6_lifecycle_metrics.json")["loads"]
    assert load["claimed_ns"]["p50"] == pytest.approx(5.16e9, rel=0.001)
    low, high = load["bounds"][0]["interval_ns"]
    assert 57.7e9 < low < 63e9 < high < 67e9
    assert (load["requested_rate"], round(load["achieved_rate"])) == (236.12, 78)


def check_timeline(entries: list[dict[str, Any]]) -> None:
    """One after the other from 0 on, without gaps, overlaps or negative lengths."""
    cursor = 0
    for entry in entries:
        assert entry["start_ns"] == cursor
        assert entry["duration_ns"] > 0
        cursor += entry["duration_ns"]


@pytest.mark.parametrize("name", [name for name in FILES if is_beside(name)])
def test_what_is_no_data_is_refused_with_the_reason(name: str) -> None:
    outcome = explain(str(DATA / name), "--json")
    why = next(why for ending, why in BESIDE.items() if name.endswith(ending))
    first, last = outcome.stderr.splitlines()
    assert (outcome.exit_code, outcome.stdout) == (REFUSED, "")
    assert first.startswith(f"outlay: {DATA / name}: {why}")
    assert last == "outlay: nothing could be read"


# The traps of this data, each told in the report: file, kind of note, how often.
TRAPS = [
    # arrival_time is on another clock than the stamps: one note a request
    ("vllm-requests/RTX4090__Llama-3.1-8B__requests.jsonl", "outside-window", 300),
    ("vllm-requests/RTXPRO6000__Llama-3.1-8B__requests.jsonl", "outside-window", 300),
    # `time` is null in an entry of Firefox
    ("har/firefox_www.nghttp2.org.har", "missing-value", 1),
    ("har/capture-har_redirect-loop.har", "overlapping-attempts", 1),
    # streamed answers with all of their time in `wait`: no first token can be claimed
    ("har/llm_bedrock_3264752613.har", "no-first-output", 1),
    ("har/llm_bedrock_3453170410.har", "no-first-output", 1),
    # a parent that is not in the file makes a partial trace, not an error
    ("traces-otlp/otlp_proto_example_trace.json", "missing-parent", 1),
    ("traces-langfuse/csharp-agent-with-gemini-2026-03-09.json", "missing-parent", 1),
    # clocks that a call proves wrong
    ("traces-zipkin/skew.json", "clock-skew", 1),
    ("traces-zipkin/ascend.json", "clock-skew", 1),
    ("traces-jaeger/spanLongerAsParent.json", "clock-step", 1),
    # the same span twice
    ("traces-otlp/otlp2jaeger-in.json", "duplicate-span", 1),
    # spans that begin after the answer; hops that no call ties together
    ("traces-zipkin/messaging.json", "async-after-end", 1),
    ("traces-jaeger/testTrace.json", "async-after-end", 1),
    ("traces-zipkin/messaging-kafka.json", "clock-unbounded", 1),
]


@pytest.mark.parametrize(("name", "kind", "count"), TRAPS)
def test_a_known_trap_is_told(name: str, kind: str, count: int) -> None:
    (moment,) = report(name)["moments"]
    assert {line["kind"]: line["count"] for line in moment["health"]}[kind] == count


def test_the_network_of_a_skewed_call_is_exact_and_its_halves_are_bounded() -> None:
    """The server's clock is 65.922 ms behind, within 66.403 and 65.441: 962 us both ways, and no negative stage."""
    (moment,) = report("traces-zipkin/skew.json")["moments"]
    (slow,) = moment["slowest"]
    up, down = (entry for entry in slow["entries"] if entry["entry"].endswith("link"))
    assert (up["entry"], down["entry"]) == ("serviceb/uplink", "serviceb/downlink")
    assert up["duration_ns"] + down["duration_ns"] == 962 * NS_PER_US
    # Half of the 962 us is as far as either end may be off, and some us for what the clocks may drift meanwhile.
    assert all(481 * NS_PER_US <= entry["error_ns"] < 490 * NS_PER_US for entry in (up, down))
    (skew,) = (line for line in moment["health"] if line["kind"] == "clock-skew")
    assert "65.9 ms" in skew["example"]
    assert "behind" in skew["example"]


@pytest.mark.parametrize(
    ("name", "outcomes"),
    [
        ("har/chrome_h2_www.nghttp2.org.har", {"ok": 10, "unsent": 1}),
        ("har/capture-har_redirect-loop.har", {"error": 1, "ok": 10}),
        ("traces-jaeger/crisp/err_pattern1/err1.json", {"error": 1}),
        ("traces-jaeger/crisp/17.json", {"error": 1}),
    ],
)
def test_failures_are_results(name: str, outcomes: dict[str, int]) -> None:
    (moment,) = report(name)["moments"]
    assert moment["outcomes"] == outcomes
    assert moment["n"] == sum(outcomes.values())
    assert len(moment["slowest"]) == moment["n"]


def test_the_whole_folder_at_once() -> None:
    """Nothing in it takes the rest down, and every file is accounted for: read, or skipped and said."""
    outcome = explain(str(DATA), "--json", "--slowest", "0")
    whole = json.loads(outcome.stdout)
    skipped = sum(map(is_beside, FILES))
    assert outcome.exit_code == OK
    assert len(whole["sources"]) == len(FILES) - skipped
    assert outcome.stderr.startswith(f"outlay: skipped {skipped} files of no known format: {DATA}")
    assert outcome.stderr.count("\n") == 1
    assert {moment["moment"] for moment in whole["moments"]} == {
        "chat",
        "http-request",
        "llm-request",
        "trace",
        "voice-turn",
    }
