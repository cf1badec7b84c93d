"""vLLM's serving benchmark: columns and summaries as its source writes them, the cap that hides waiting, and noise."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outlay.account import account
from outlay.formats.codec import FormatError, Item
from outlay.formats.vllm_bench import CODEC
from outlay.generator import DEGRADED, INVALID
from outlay.interaction import Interaction
from outlay.load import Load
from outlay.units import NS_PER_MS

MS = NS_PER_MS
SECRET = "what the person said"
N = 8

# vllm#54101: 8 requests at 10/s, one at a time, 0.5 s each. Request k leaves at 0.5 k s, having waited 0.4 k s.
TRAFFIC: dict[str, Any] = {
    "date": "20260102-030405",
    "endpoint_type": "openai",
    "backend": "openai",
    "label": None,
    "model_id": "m",
    "num_prompts": N,
    "request_rate": 10.0,
    "burstiness": 1.0,
    "max_concurrency": 1,
    "duration": 4.0,
    "completed": N,
    "failed": 0,
    "request_throughput": 2.0,
    "request_goodput": None,
    "mean_e2el_ms": 500.0,
    "median_e2el_ms": 500.0,
    "std_e2el_ms": 0.0,
    "p99_e2el_ms": 500.0,
    "median_ttft_ms": 400.0,
    "p99_ttft_ms": 400.0,
}
DETAILED: dict[str, Any] = {
    **TRAFFIC,
    "input_lens": [5] * N,
    "output_lens": [2] * N,
    "ttfts": [0.4] * N,
    "itls": [[0.1]] * N,
    "latencies": [0.5] * N,
    "start_times": [100 + 0.5 * k for k in range(N)],
    "queue_times": [0.4 * k for k in range(N)],
    "generated_texts": [SECRET] * N,
    "errors": [""] * N,
}


def parse(value: object) -> list[Item]:
    return list(CODEC.parse(json.dumps(value).encode(), frozenset()))


def without(*names: str, **more: Any) -> dict[str, Any]:
    return {name: value for name, value in {**DETAILED, **more}.items() if name not in names}


def read(value: object) -> tuple[list[Interaction], list[Load]]:
    items = parse(value)
    interactions = [item for item in items if isinstance(item, Interaction)]
    loads = [item for item in items if isinstance(item, Load)]
    assert len(items) == len(interactions) + len(loads)
    return interactions, loads


def totals_ms(interactions: list[Interaction]) -> list[float]:
    return [account(each).total_ns / MS for each in interactions]


def test_the_wait_for_a_free_place_counts() -> None:
    interactions, (load,) = read(DETAILED)
    # 0.5 + 0.4 k s: mean 1.9, largest 3.3. From the send all take 0.5 s.
    assert totals_ms(interactions) == [500 + 400 * k for k in range(N)]
    assert sum(totals_ms(interactions)) / N == 1_900
    assert account(interactions[7]).entries == {
        "client/queue.wait": 2_800 * MS,
        "llm/uplink..infer.prefill": 400 * MS,
        "llm/infer.decode..downlink": 100 * MS,
    }
    assert (load.verdict.state, load.requested_rate) == (INVALID, 10.0)
    assert {reason.rule for reason in load.verdict.reasons if reason.state == INVALID} == {"lateness", "trend", "rate"}
    assert (load.verdict.lateness_max_ns, load.claimed_ns["p99"]) == (2_800 * MS, 500 * MS)
    # How late the tool's own loop was is not kept, so nothing bounds the wait from above.
    assert {(bound.low_ns, bound.high_ns) for bound in load.bounds} == {(500 * MS, None)}


def test_a_run_without_a_cap_is_degraded_at_best() -> None:
    _, (load,) = read({**DETAILED, "start_times": [0.1 * k for k in range(N)], "queue_times": [0.0] * N})
    assert load.verdict.state == DEGRADED


def test_older_releases_kept_no_waits() -> None:
    """Then the send is all that is known, and a rate that was asked for cannot be shown to have been kept."""
    interactions, (load,) = read(without("queue_times", "latencies"))
    assert totals_ms(interactions) == [500] * N
    assert (load.verdict.state, load.verdict.lateness_p99_ns) == (INVALID, None)
    assert {(bound.low_ns, bound.high_ns) for bound in load.bounds} == {(500 * MS, None)}
    assert {note.kind for each in interactions for note in each.notes} == {"outside-window"}


def test_all_at_once_has_no_schedule_and_no_load() -> None:
    """A cap without a rate is a closed loop: the wait before a place is free is nobody's lateness."""
    interactions, loads = read({**DETAILED, "request_rate": "inf"})
    assert (totals_ms(interactions), loads) == ([500] * N, [])


def test_without_instants_all_begin_at_once() -> None:
    """What --save-result alone keeps of late: latencies and waits, no instants, no errors."""
    names = ("start_times", "ttfts", "itls", "input_lens", "output_lens", "generated_texts", "errors")
    interactions, (load,) = read(without(*names, latencies=[0.5] * 7 + [0.0]))
    assert totals_ms(interactions[:7]) == [500 + 400 * k for k in range(7)]
    assert {each.start_ns for each in interactions} == {0}
    # No latency is a failure.
    assert [each.outcome for each in interactions] == ["ok"] * 7 + ["error"]
    assert [reason.rule for reason in load.verdict.reasons if reason.state is None] == ["trend", "rate", "cpu", "stall"]
    assert load.verdict.lateness_max_ns == 2_800 * MS


def test_a_summary_is_what_the_tool_claims_and_nothing_more() -> None:
    interactions, (load,) = read(TRAFFIC)
    assert interactions == []
    assert (load.moment, load.requests, load.verdict.state, load.bounds) == (None, N, INVALID, ())
    assert load.claimed_ns == {"p50": 500 * MS, "p99": 500 * MS, "ttft p50": 400 * MS, "ttft p99": 400 * MS}


def test_failures_are_results_and_no_text_is_kept() -> None:
    errors, outputs = [""] * 7 + [SECRET], [2] * 7 + [0]
    interactions, (load,) = read({**DETAILED, "errors": errors, "output_lens": outputs, "failed": 1})
    last = interactions[-1]
    assert (last.outcome, last.end_ns, last.sizes) == ("error", None, {"input_tokens": 5})
    assert SECRET not in repr((interactions, load))
    # One of eight never came: the seventh of eight, the p87.5, is the last that did.
    assert [bound.level for bound in load.bounds] == [50.0]


def test_columns_of_different_lengths_are_refused() -> None:
    with pytest.raises(FormatError, match="columns of one length; found 8 ttfts"):
        parse({**DETAILED, "errors": [""]})


@pytest.mark.parametrize("value", [None, 3, [], {}, [TRAFFIC], {"request_rate": 1.0, "burstiness": 1.0}])
def test_other_json_is_not_this_format(value: object) -> None:
    assert not CODEC.recognises(value)
    with pytest.raises(FormatError):
        parse(value)


NUMBERS = st.floats(allow_nan=False) | st.integers() | st.just(0.0)


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from(["ttfts", "latencies", "start_times", "queue_times"]),
    st.lists(NUMBERS, min_size=N, max_size=N),
    NUMBERS,
)
def test_any_numbers_are_read_or_refused(column: str, values: list[float], rate: float) -> None:
    try:
        items = parse({**DETAILED, column: values, "request_rate": rate})
    except FormatError:
        return
    assert len([item for item in items if not isinstance(item, Load)]) == N


WHOLE = json.dumps(DETAILED).encode()


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=40), st.integers(0, len(WHOLE)), st.integers(0, 8))
def test_any_bytes_raise_at_most_a_format_error(noise: bytes, place: int, cut: int) -> None:
    try:
        found = list(CODEC.parse(WHOLE[:place] + noise + WHOLE[place + cut :], frozenset()))
    except FormatError:
        return
    assert found
