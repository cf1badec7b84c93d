import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outlay.arrivals import constant, poisson
from outlay.generator import (
    DEGRADED,
    INVALID,
    TREND_POINTS,
    VALID,
    GeneratorVerdict,
    Levels,
    Spread,
    Stall,
    response_bounds,
    stalls,
    trend,
    verdict,
    verdict_of_summary,
)
from outlay.sketch import nearest_rank
from outlay.units import NS_PER_MS, NS_PER_S, from_s

DATA = Path(__file__).parent / "data" / "inference-perf-kubecon25"
SEVERITY = (VALID, DEGRADED, INVALID)
# A run of 100 requests at 100/s.
STEADY = [arrival.at_ns for arrival in constant(100, NS_PER_S)]
GOOD = {"response_p50_ns": 200 * NS_PER_MS, "cpu_share": 0.3, "longest_stall_ns": 5 * NS_PER_MS}

property_test = settings(max_examples=40, deadline=None)


def late(by_ns: int) -> list[int | None]:
    return [at_ns + by_ns for at_ns in STEADY]


def broken(judged: GeneratorVerdict) -> dict[str, str]:
    return {reason.rule: reason.state for reason in judged.reasons if reason.state is not None}


def unjudged(judged: GeneratorVerdict) -> list[str]:
    return [reason.rule for reason in judged.reasons if reason.measured is None]


# The rules, one by one


def test_a_sender_on_time_is_valid_and_has_no_reasons() -> None:
    judged = verdict(STEADY, late(0), **GOOD)
    assert (judged.state, judged.reasons, judged.achieved, judged.unsent) == (VALID, (), 1.0, 0)


@pytest.mark.parametrize(
    ("by_ns", "response_p50_ns", "state"),
    [
        # 2 % of 200 ms is 4 ms; ten times that is 40 ms. The rate suffers by 40 / 1030 = 3.9 % at most.
        (4_000_000, 200 * NS_PER_MS, VALID),
        (4_000_001, 200 * NS_PER_MS, DEGRADED),
        (40_000_000, 200 * NS_PER_MS, DEGRADED),
        (40_000_001, 200 * NS_PER_MS, INVALID),
        # 2 % of 10 ms is less than 1 ms, which holds at least; also where nobody knows the response.
        (1_000_000, 10 * NS_PER_MS, VALID),
        (1_000_001, 10 * NS_PER_MS, DEGRADED),
        (1_000_001, None, DEGRADED),
        (10_000_001, None, INVALID),
        # Early is not late.
        (-1_000_000, None, VALID),
    ],
)
def test_lateness(by_ns: int, response_p50_ns: int | None, state: str) -> None:
    judged = verdict(STEADY, late(by_ns), response_p50_ns=response_p50_ns, cpu_share=0.1, longest_stall_ns=0)
    assert judged.state == state
    assert ("lateness" in broken(judged)) == (state != VALID)
    assert judged.lateness_p50_ns == judged.lateness_p99_ns == judged.lateness_max_ns == by_ns


@pytest.mark.parametrize(
    ("rule", "given_", "state"),
    [
        ("cpu", {"cpu_share": 0.69}, VALID),
        ("cpu", {"cpu_share": 0.70}, DEGRADED),
        ("cpu", {"cpu_share": 0.96}, DEGRADED),  # 4 % of the core is free; 3 %, a tenth of the 30 %, must be
        ("cpu", {"cpu_share": 0.97}, INVALID),
        ("stall", {"longest_stall_ns": 19_999_999}, VALID),
        ("stall", {"longest_stall_ns": 20_000_000}, DEGRADED),
        ("stall", {"longest_stall_ns": 200_000_000}, INVALID),
    ],
)
def test_the_sender_itself(rule: str, given_: Mapping[str, Any], state: str) -> None:
    judged = verdict(STEADY, late(0), **{**GOOD, **given_})
    assert judged.state == state
    assert broken(judged) == ({} if state == VALID else {rule: state})


@pytest.mark.parametrize(
    ("planned", "dropped", "states"),
    [
        (1000, 0, {}),
        (1000, 1, {"unsent": DEGRADED}),  # 0.1 %: a tenth of the p99's tail
        (1000, 2, {"unsent": INVALID}),
        (1000, 11, {"unsent": INVALID, "rate": DEGRADED}),  # 98.9 % of the rate
        (1000, 101, {"unsent": INVALID, "rate": INVALID}),  # 89.9 %
    ],
)
def test_requests_that_were_never_sent(planned: int, dropped: int, states: dict[str, str]) -> None:
    intended = [arrival.at_ns for arrival in constant(100, planned * NS_PER_S // 100)]
    judged = verdict(intended, [*intended[:-dropped], *[None] * dropped] if dropped else intended, **GOOD)
    assert judged.unsent == dropped
    assert broken(judged) == states


@pytest.mark.parametrize(
    ("achieved_rate", "states"),
    [
        (104.3, {}),
        (99.0, {}),  # exactly 0.99 of 100, in binary too
        (98.9, {"rate": DEGRADED}),
        (90.0, {"rate": DEGRADED}),
        (89.9, {"rate": INVALID}),
    ],
)
def test_the_rate(achieved_rate: float, states: dict[str, str]) -> None:
    spread = Spread(min_ns=0, p50_ns=0, p99_ns=0, max_ns=0)
    assert broken(verdict_of_summary(spread, spread, requested_rate=100.0, achieved_rate=achieved_rate)) == states


@pytest.mark.parametrize(
    ("gained_ns", "states"),
    [
        # Requests are 10 ms apart, 99 gaps. Limit and measure of growth: 2 % of 200 ms = 4 ms over the run.
        (40_000, {}),  # 99 x 40 us = 3.96 ms; sure, and negligible
        (41_000, {"lateness": DEGRADED, "trend": DEGRADED}),  # 4.06 ms
        (-41_000, {}),  # catching up
        (500_000, {"rate": DEGRADED, "lateness": INVALID, "trend": INVALID}),  # 49.5 ms; 990 / 1039.5 = 95.2 %
    ],
)
def test_lateness_that_grows(gained_ns: int, states: dict[str, str]) -> None:
    judged = verdict(STEADY, [at_ns + i * gained_ns for i, at_ns in enumerate(STEADY)], **GOOD)
    assert broken(judged) == states
    assert judged.slope is not None
    assert judged.slope.low == judged.slope.value == judged.slope.high == gained_ns / 1e7


def test_reasons_come_worst_first_and_say_what_was_measured_and_allowed() -> None:
    judged = verdict(STEADY, late(57 * NS_PER_MS), response_p50_ns=200 * NS_PER_MS, cpu_share=0.8)
    assert [(reason.rule, reason.text) for reason in judged.reasons] == [
        (
            "lateness",
            "1 % of the requests were sent 57.0 ms or more after their intended start; at most 4.00 ms is allowed",
        ),
        # 990 ms planned, 1047 taken: 94.6 %
        ("rate", "the sender fell 5.44 % short of the planned rate; at most 1 % is allowed"),
        ("cpu", "the busiest sender process used 80 % of a core; it must stay below 70 %"),
        ("stall", "how long a sender's loop stood still: not measured"),
    ]
    assert judged.state == INVALID


# What is unknown


def test_what_nobody_measured_is_named() -> None:
    judged = verdict(STEADY, late(0))
    assert (judged.state, unjudged(judged)) == (VALID, ["cpu", "stall"])


def test_a_run_that_sent_nothing_is_invalid_and_has_no_lateness() -> None:
    judged = verdict(STEADY, [None] * len(STEADY), **GOOD)
    assert broken(judged) == {"lateness": INVALID, "rate": INVALID, "unsent": INVALID}
    assert (judged.lateness_p50_ns, judged.lateness_max_ns, judged.slope) == (None, None, None)
    assert judged.achieved == 0


def test_one_instant_has_neither_a_rate_nor_a_trend() -> None:
    judged = verdict([5, 5, 5], [5, 6, 7], **GOOD)
    assert (judged.state, judged.achieved, unjudged(judged)) == (VALID, None, ["trend", "rate"])


def test_a_summary_without_delays_is_invalid() -> None:
    judged = verdict_of_summary(None, None, requested_rate=None, achieved_rate=None)
    assert judged.state == INVALID
    assert unjudged(judged) == ["lateness", "trend", "rate", "unsent", "cpu", "stall"]


@pytest.mark.parametrize(
    ("judge", "says"),
    [
        (lambda: verdict([], []), "an empty schedule"),
        (lambda: verdict([1], []), "1 intended and 0 written"),
        (lambda: stalls([], []), "an empty schedule"),
        (lambda: verdict_of_summary(None, None, requested_rate=0.0, achieved_rate=1.0), "rates must be above 0"),
    ],
)
def test_what_cannot_be_judged_is_refused(judge: Callable[[], object], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        judge()


# Properties


@property_test
@given(
    lateness=st.lists(st.integers(0, 10**7), min_size=20, max_size=60),
    factor=st.integers(1, 30),
    more_ns=st.integers(0, 10**8),
)
def test_more_lateness_never_makes_a_better_verdict(lateness: list[int], factor: int, more_ns: int) -> None:
    intended = STEADY[: len(lateness)]

    def state(by_ns: list[int]) -> int:
        written = [at_ns + late_ns for at_ns, late_ns in zip(intended, by_ns, strict=True)]
        return SEVERITY.index(verdict(intended, written, **GOOD).state)

    now = state(lateness)
    assert now <= state([late_ns * factor for late_ns in lateness])
    assert now <= state([late_ns + more_ns for late_ns in lateness])


@property_test
@given(seed=st.integers(0, 2**32), slope=st.sampled_from([-0.5, 0.0, 0.01, 1.0]))
def test_the_trend_is_found_in_noise(seed: int, slope: float) -> None:
    rng = np.random.default_rng(seed)
    at_ns = np.array([arrival.at_ns for arrival in poisson(100, 20 * NS_PER_S, rng)])
    found = trend(at_ns, (slope * at_ns + rng.exponential(NS_PER_MS, len(at_ns))).astype(np.int64))
    assert found is not None
    assert found.low <= found.value <= found.high
    # 1 ms of noise on 600 points over 20 s: 1e6 / 2e10 * sqrt(12 / 600) = 7e-6
    assert found.value == pytest.approx(slope, abs=5e-5)


def test_a_long_run_is_thinned_evenly_and_keeps_its_ends() -> None:
    # Of 599 000 + 1 points, every thousandth, in whatever order they come.
    at_ns = np.arange(599_001, dtype=np.int64) * NS_PER_MS
    value_ns = np.random.default_rng(1).integers(0, NS_PER_S, len(at_ns)) + at_ns // 100
    thinned = trend(at_ns[::1000], value_ns[::1000])
    assert len(at_ns[::1000]) == TREND_POINTS
    assert thinned is not None
    assert trend(at_ns, value_ns) == trend(at_ns[::-1], value_ns[::-1]) == thinned


@pytest.mark.parametrize(
    ("n", "known"),
    [
        (0, False),
        (1, False),
        (3, False),  # 3 slopes; 1.96 sqrt(3 x 2 x 11 / 18) = 3.75
        (4, True),  # 6 slopes; 1.96 sqrt(4 x 3 x 13 / 18) = 5.77
    ],
)
def test_too_few_points_have_no_trend(n: int, known: bool) -> None:
    points = np.arange(n, dtype=np.int64)
    assert (trend(points, points) is not None) == known


def test_sens_interval_takes_the_slopes_at_its_ranks() -> None:
    # Slopes of the pairs: (0,1) 1, (0,2) 3/2, (0,3) 1, (1,2) 2, (1,3) 1, (2,3) 0. Sorted: 0, 1, 1, 1, 3/2, 2. The ranks
    # (6 - 5.77) / 2 = 0.1 and (6 + 5.77) / 2 + 1 = 6.9 are the first and the last.
    found = trend(np.arange(4), np.array([0, 1, 3, 3]))
    assert found is not None
    assert (found.low, found.value, found.high) == (0.0, 1.0, 2.0)


# Stalls


def test_a_second_of_stall_in_every_ten_is_named() -> None:
    # 100/s for 30 s; nothing leaves in [9, 10), [19, 20), [29, 30) s; what fell due leaves when the second is over.
    intended = [arrival.at_ns for arrival in constant(100, 30 * NS_PER_S)]
    written = [(at_ns // NS_PER_S + 1) * NS_PER_S if at_ns // NS_PER_S % 10 == 9 else at_ns for at_ns in intended]
    assert stalls(intended, written) == tuple(
        Stall(from_ns=second * NS_PER_S, to_ns=(second + 1) * NS_PER_S, due=100) for second in (9, 19, 29)
    )
    # 3 000 requests, of which 3 each are late by 1 000, 990, 980, ... ms. The p99 is the one at rank 2 970: below the
    # 30 latest, which are late by 1 000 to 910 ms.
    judged = verdict(intended, written, **GOOD)
    assert judged.state == INVALID
    assert judged.lateness_p99_ns == 900 * NS_PER_MS


@pytest.mark.parametrize(
    ("intended", "written", "expected"),
    [
        ([0, 100, 200], [0, 100, 200], ()),  # gaps, but nothing was due in them
        ([0, 100, 200], [0, 150, 200], ((100, 150, 1),)),
        ([0, 100, 120], [0, 150, 150], ((100, 150, 2),)),
        ([0, 0, 0], [0, 50, 100], ((0, 50, 3), (50, 100, 0))),  # a cap: one by one, with a backlog all the time
        ([40, 100], [90, 100], ((40, 90, 1),)),  # before the first send, from when it was due
        ([0, 100, 200], [0, None, 200], ((100, 200, 1),)),  # dropped, and due until the next send
        ([0, 100, 200, 300], [0, None, 200, 300], ((100, 200, 1),)),  # and not after it
        ([0, 100, 200], [0, None, None], ((100, None, 2),)),
        ([7], [None], ((7, None, 1),)),
    ],
)
def test_stalls(
    intended: list[int], written: list[int | None], expected: tuple[tuple[int, int | None, int], ...]
) -> None:
    found = stalls(intended, written, shortest_ns=20)
    assert tuple((stall.from_ns, stall.to_ns, stall.due) for stall in found) == expected


def test_a_concurrency_cap_is_lateness() -> None:
    # vllm#54101: 8 requests at 10/s, one at a time, 0.5 s each. Request k starts at 0.1 k and leaves at 0.5 k.
    intended = [arrival.at_ns for arrival in constant(10, 800 * NS_PER_MS)]
    written: list[int] = []
    free_ns = 0
    for at_ns in intended:
        written.append(max(at_ns, free_ns))
        free_ns = written[-1] + 500 * NS_PER_MS
    response = [left + 500 * NS_PER_MS - at_ns for at_ns, left in zip(intended, written, strict=True)]
    assert response == [(500 + 400 * k) * NS_PER_MS for k in range(8)]
    assert sum(response) / 8 == 1_900 * NS_PER_MS
    assert max(response) == 3_300 * NS_PER_MS

    judged = verdict(intended, written, response_p50_ns=1_700 * NS_PER_MS)
    assert broken(judged) == {"lateness": INVALID, "trend": INVALID, "rate": INVALID}
    assert judged.slope is not None
    assert judged.slope.value == 4  # 0.4 s later every 0.1 s
    assert judged.achieved == 0.2  # 0.7 s planned, 3.5 s taken


# Published summaries


def spread(published: Mapping[str, float]) -> Spread:
    return Spread(
        min_ns=from_s(published["min"]),
        p50_ns=from_s(published["median"]),
        p99_ns=from_s(published["p99"]),
        max_ns=from_s(published["max"]),
    )


def stage(config: str, number: int) -> tuple[Spread, Spread, Mapping[str, float]]:
    read = json.loads((DATA / config / f"stage_{number}_lifecycle_metrics.json").read_text())
    load = read["load_summary"]
    return spread(load["schedule_delay"]), spread(read["successes"]["latency"]["request_latency"]), load


@pytest.mark.parametrize(
    ("config", "number", "state"),
    [
        *(("vllm+v0_engine", number, VALID) for number in (0, 1, 2)),  # p99 delay below 5 ms, 2 % of 0.5 s is 10 ms
        *(("vllm+v0_engine", number, INVALID) for number in (3, 4, 5, 6)),  # 119 to 236/s asked for, 79/s sent
        *(("vllm+eagle", number, VALID) for number in (0, 1, 2, 3, 4)),  # p99 delay up to 9 ms, 2 % of 0.8 s is 16 ms
        *(("vllm+eagle", number, INVALID) for number in (5, 6)),  # 87 and 104/s asked for, 73/s sent
    ],
)
def test_published_stages(config: str, number: int, state: str) -> None:
    delay, latency, load = stage(config, number)
    judged = verdict_of_summary(
        delay, latency, requested_rate=load["requested_rate"], achieved_rate=load["achieved_rate"]
    )
    assert judged.state == state
    assert broken(judged) == ({} if state == VALID else {"lateness": INVALID, "rate": INVALID})
    assert unjudged(judged) == ["trend", "unsent", "cpu", "stall"]


def test_the_median_that_users_waited_is_over_eleven_times_the_printed_one() -> None:
    delay, latency, _ = stage("vllm+v0_engine", 6)
    low, high = response_bounds(levels(delay), levels(latency), 50.0)
    assert latency.p50_ns == pytest.approx(5.16 * NS_PER_S, rel=0.001)
    # 57.73 s of delay and the latency's extremes around its median of 5.16 s: about 63 s
    assert high is not None
    assert low <= 62.9 * NS_PER_S <= high
    assert low > 11 * latency.p50_ns


def levels(spread: Spread) -> Levels:
    return {0.0: spread.min_ns, 50.0: spread.p50_ns, 99.0: spread.p99_ns, 100.0: spread.max_ns}


PUBLISHED = (0.0, 0.1, 1.0, 5.0, 10.0, 25.0, 50.0, 75.0, 90.0, 95.0, 99.0, 99.9, 100.0)
waits = st.integers(0, 1000)


def interpolated(values: Sequence[int], level: float) -> int:
    """As numpy's percentiles are, in thousandths so that whole numbers hold them all but for the last rounding."""
    return round(float(np.percentile(values, level)))


def at_nearest_rank(values: Sequence[int], level: float) -> int:
    return sorted(values)[(nearest_rank(level / 100, len(values)) or 1) - 1]


@property_test
@given(
    parts=st.lists(st.tuples(waits, waits), min_size=1, max_size=51),
    level=st.sampled_from(PUBLISHED[1:-1]),
    rule=st.sampled_from([interpolated, at_nearest_rank]),
    published=st.sets(st.sampled_from(PUBLISHED)),
)
def test_every_percentile_of_a_joint_sample_lies_within_its_bounds(
    parts: list[tuple[int, int]], level: float, rule: Callable[[Sequence[int], float], int], published: set[float]
) -> None:
    thousandths = [(1000 * late_by, 1000 * served_in) for late_by, served_in in parts]
    lateness, service = (
        {at: rule([part[place] for part in thousandths], at) for at in published | {0.0, 100.0}} for place in (0, 1)
    )
    low, high = response_bounds(lateness, service, level)
    assert high is not None
    # Three numbers are rounded to whole ones, each by half at most.
    assert low - 2 <= rule([sum(part) for part in thousandths], level) <= high + 2


@property_test
@given(
    parts=st.lists(st.tuples(waits, waits), min_size=2, max_size=51),
    failed=st.integers(1, 50),
    level=st.sampled_from(PUBLISHED[1:-1]),
)
def test_failures_count_as_never(parts: list[tuple[int, int]], failed: int, level: float) -> None:
    """The lateness is of all requests, the service only of those that were answered."""
    answered = parts[failed % len(parts) :]
    lateness = {at: at_nearest_rank([late_by for late_by, _ in parts], at) for at in PUBLISHED}
    service = {at: at_nearest_rank([served_in for _, served_in in answered], at) for at in PUBLISHED}
    low, high = response_bounds(lateness, service, level, (len(answered), len(parts)))
    response = [sum(part) for part in answered] + [10**9] * (len(parts) - len(answered))
    assert low <= at_nearest_rank(response, level) <= (10**9 if high is None else high)


@pytest.mark.parametrize(
    ("level", "low", "high"),
    [
        # Lateness 0, 10, 90, 100 and service 5, 20, 60, 70 ms at 0, 50, 99 and 100 %.
        # p50: 0 + 20, 10 + 5; and 10 + 70, 100 + 20, 90 + 60 at 198 >= 150
        (50.0, 20, 80),
        # p99: 10 + 5 + ..., 90 + 5, 0 + 60, 10 + 20 at 100 > 99; and 90 + 70 = 160 beats 100 + 60 and 100 + 70
        (99.0, 95, 160),
    ],
)
def test_bounds_by_hand(level: float, low: int, high: int) -> None:
    lateness, service = {0.0: 0, 50.0: 10, 99.0: 90, 100.0: 100}, {0.0: 5, 50.0: 20, 99.0: 60, 100.0: 70}
    assert response_bounds(lateness, service, level) == (low, high)


def test_half_failed_leaves_the_p99_without_an_upper_bound() -> None:
    whole = {0.0: 0, 100.0: 10}
    assert response_bounds(whole, whole, 99.0, (50, 100)) == (10, None)  # 0 % late + 100 % of half: 50 <= 99


def test_what_was_kept_only_in_part_is_degraded_at_best() -> None:
    judged = verdict(STEADY, late(0), **GOOD, partly=True)
    assert judged.state == DEGRADED
    assert [(reason.rule, reason.measured) for reason in judged.reasons] == [("lateness", None)]
    assert verdict(STEADY, late(NS_PER_S), **GOOD, partly=True).state == INVALID
