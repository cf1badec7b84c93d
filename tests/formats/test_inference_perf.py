"""inference-perf: published summaries, per-request reports written out by hand, and hostile bytes."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outlay.account import account
from outlay.formats.codec import FormatError, Item
from outlay.formats.inference_perf import CODEC
from outlay.generator import INVALID, VALID
from outlay.interaction import Interaction, Note
from outlay.load import Load
from outlay.units import NS_PER_MS, NS_PER_S

DATA = Path(__file__).parents[1] / "data" / "inference-perf-kubecon25"
MS = NS_PER_MS
SECRET = "what the person said"


def parse(value: object) -> list[Item]:
    return list(CODEC.parse(json.dumps(value).encode(), frozenset()))


def spread(low: float, median: float, p99: float, high: float) -> dict[str, float]:
    return {"mean": median, "min": low, "median": median, "p99": p99, "max": high}


def summary(**planned: Any) -> dict[str, Any]:
    """100 requests that left on time and took 1 to 4 s."""
    return {
        "load_summary": {"count": 100, "schedule_delay": spread(0, 0.001, 0.002, 0.004), **planned},
        "successes": {"count": 100, "latency": {"request_latency": spread(1, 2, 3, 4), "time_to_first_token": None}},
        "failures": {"count": 0},
    }


def load_of(value: object) -> Load:
    (item,) = parse(value)
    assert isinstance(item, Load)
    return item


# Summaries


def test_a_summary_is_a_load_without_interactions() -> None:
    load = load_of(summary(requested_rate=10.0, achieved_rate=9.95))
    assert (load.name, load.tool, load.moment, load.requests) == ("", "inference-perf", None, 100)
    # 2 ms is less than 2 % of at least 2 s; 9.95 of 10 is within a percent.
    assert load.verdict.state == VALID
    assert load.verdict.lateness_p99_ns == 2 * MS
    assert load.claimed_ns == {"p50": 2 * NS_PER_S, "p99": 3 * NS_PER_S}
    # p50: 0 + 2 s at least. At most the least of 1 ms + 4 s, 4 ms + 2 s, 2 ms + 3 s (198 >= 150).
    bound = load.bounds[0]
    assert (bound.level, bound.low_ns, bound.high_ns) == (50.0, 2 * NS_PER_S, 2_004 * MS)


def test_without_delays_nothing_is_known() -> None:
    value = summary()
    del value["load_summary"]["schedule_delay"]
    load = load_of(value)
    assert (load.verdict.state, load.bounds, load.requested_rate) == (INVALID, (), None)


def test_a_rate_of_zero_is_not_known() -> None:
    assert load_of(summary(requested_rate=10.0, achieved_rate=0.0)).achieved_rate is None


def test_failures_count_against_the_bounds() -> None:
    value = summary()
    value["successes"]["count"] = 60
    # 40 of 100 never came: nothing is said of p95 and p99, and the p50 is one of the 60.
    assert [bound.level for bound in load_of(value).bounds] == [50.0]


def test_the_whole_run_has_no_rates() -> None:
    """It holds stages of seven rates; that most requests were late shows all the same."""
    load = load_of(json.loads((DATA / "vllm+v0_engine" / "summary_lifecycle_metrics.json").read_bytes()))
    assert (load.requested_rate, load.verdict.state) == (None, INVALID)


# Requests


def request(**more: Any) -> dict[str, Any]:
    """Due at 10 s, half a second late; first token at 10.75, last at 12, closed at 12.125."""
    return {
        "scheduled_time": 10.0,
        "start_time": 10.5,
        "end_time": 12.125,
        "request": SECRET,
        "response": SECRET,
        "info": {
            "request_metrics": {"text": {"input_tokens": 100}},
            "response_metrics": {"output_tokens": 3, "output_token_times": [10.75, 11.0, 12.0]},
        },
        "error": None,
        **more,
    }


def test_a_request_is_a_chain_from_when_it_was_due() -> None:
    made, load = parse([request()])
    assert isinstance(made, Interaction)
    assert account(made).entries == {
        "client/queue.wait": 500 * MS,
        "llm/uplink..infer.prefill": 250 * MS,
        "llm/infer.decode..downlink": 1_250 * MS,
        "llm/postprocess..downlink": 125 * MS,
    }
    assert made.sizes == {"input_tokens": 100, "output_tokens": 3}
    assert SECRET not in repr(made)
    assert isinstance(load, Load)
    assert (load.verdict.state, load.moment, load.verdict.lateness_max_ns) == (INVALID, "llm-request", 500 * MS)


def test_without_a_schedule_it_counts_from_the_send_and_says_so() -> None:
    """What the tool writes today."""
    (made,) = parse([request(scheduled_time=None)])
    assert isinstance(made, Interaction)
    assert "client/queue.wait" not in account(made).entries
    assert account(made).total_ns == 1_625 * MS
    assert [note.kind for note in made.notes] == ["outside-window"]


def test_older_releases_keep_the_tokens_beside_each_other() -> None:
    info = {"input_tokens": 7, "output_tokens": 2, "output_token_times": [11.0, 11.5]}
    made, _ = parse([request(info=info)])
    assert isinstance(made, Interaction)
    assert made.sizes == {"input_tokens": 7, "output_tokens": 2}
    assert account(made).entries["llm/uplink..infer.prefill"] == 500 * MS


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (None, "ok"),
        ({"error_type": "HTTP Error 429", "error_msg": SECRET}, "refused"),
        ({"error_type": "HTTP Error 504"}, "timeout"),
        ({"error_type": "HTTP Error 500"}, "error"),
        ({"error_type": "TimeoutError"}, "timeout"),
        ({"error_type": "ClientOSError"}, "error"),
        ({}, "error"),
    ],
)
def test_outcomes(error: object, outcome: str) -> None:
    made, *_ = parse([request(error=error)])
    assert isinstance(made, Interaction)
    assert made.outcome == outcome
    assert SECRET not in repr(made)


def test_a_bad_request_does_not_take_the_others_with_it() -> None:
    first, note, last, load = parse([request(), {"start_time": "noon", "end_time": 1, "error": None}, request()])
    assert isinstance(note, Note)
    assert (note.kind, note.text.partition(":")[0]) == ("dropped-record", "request 1")
    assert isinstance(load, Load)
    assert load.requests == 2
    assert isinstance(first, Interaction)
    assert isinstance(last, Interaction)
    assert (first.id, last.id) == ("0", "2")


# Other JSON


@pytest.mark.parametrize(
    "value", [None, 3, [], {}, {"load_summary": 1, "successes": {}}, {"load_summary": {}}, [{"start_time": 1}]]
)
def test_other_json_is_not_this_format(value: object) -> None:
    assert not CODEC.recognises(value)
    with pytest.raises(FormatError):
        parse(value)


@pytest.mark.parametrize(
    "value",
    [
        {"load_summary": {}, "successes": {}},
        {"load_summary": {"count": "7"}, "successes": {"count": 7}},
        summary(schedule_delay=spread(0, 1, 2, 1e30)),
        summary(count=0),
    ],
)
def test_a_summary_that_cannot_be_read_is_a_format_error(value: object) -> None:
    with pytest.raises(FormatError):
        parse(value)


NUMBERS = st.none() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=3)


@settings(max_examples=200, deadline=None)
@given(
    st.dictionaries(st.sampled_from(["count", "requested_rate", "achieved_rate"]), NUMBERS),
    st.dictionaries(st.sampled_from(["min", "p1", "median", "p95", "p99", "max", "p", "p1.2.3", "mean"]), NUMBERS),
    NUMBERS,
)
def test_any_numbers_give_a_load_or_a_format_error(planned: Any, delay: Any, served: Any) -> None:
    value = summary(**planned, schedule_delay=delay)
    value["successes"]["count"] = served
    try:
        load = load_of(value)
    except FormatError:
        return
    assert load.verdict.state in ("VALID", "DEGRADED", "INVALID")


WHOLE = json.dumps([request()]).encode()


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=40), st.integers(0, len(WHOLE)), st.integers(0, 8))
def test_any_bytes_raise_at_most_a_format_error(noise: bytes, place: int, cut: int) -> None:
    try:
        found = list(CODEC.parse(WHOLE[:place] + noise + WHOLE[place + cut :], frozenset()))
    except FormatError:
        return
    assert found
