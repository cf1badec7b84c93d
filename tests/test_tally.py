"""Percentiles, bounds and loads of runs whose truth is known."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlay.conclude import RunFacts, measurement_of
from outlay.generator import INVALID, VALID
from outlay.lab.script import Script, after_stall
from outlay.measurement import Measurement, Series
from outlay.observed import UNTIL, Observed
from outlay.tally import END_TO_END, RESPONSES, Clock, Part, SenderHealth, Tally, bounds, load_of, percentiles
from outlay.units import NS_PER_MS, NS_PER_S

CLOCK = Clock(name="here", shift_ns=1_000)
HEALTH = SenderHealth(cpu_share=0.1, longest_stall_ns=NS_PER_MS)


def request(intended_ns: int, left_ns: int, took_ns: int, **more: object) -> Observed:
    """Due, left when a connection was at hand, and answered whole `took_ns` later."""
    over_ns = left_ns + took_ns
    known = {
        "written_ns": left_ns,
        "first_byte_ns": over_ns,
        "last_ns": over_ns,
        "done_ns": over_ns,
        "ended_ns": over_ns,
    }
    known |= more  # type: ignore[arg-type] # a test's own
    return Observed(
        id=f"r{intended_ns}",
        intended_ns=intended_ns,
        enqueued_ns=intended_ns,
        begun_ns=left_ns,
        streamed=False,
        **known,  # type: ignore[arg-type] # a test's own
    )


def failed(intended_ns: int) -> Observed:
    return request(intended_ns, intended_ns, 7, outcome="error", why="status 500")


def concluded(requests: list[Observed], **facts: object) -> Measurement:
    tally = Tally()
    for each in requests:
        tally.take(each)
    known: dict[str, object] = {
        "plan": "a test",
        "moment": "m",
        "begun_ns": 0,
        "rate": None,
        "health": HEALTH,
        "clock": CLOCK,
        "until": UNTIL["end"],
    }
    made = measurement_of({"p": ("http://p/", tally)}, RunFacts(**known | facts), np.random.default_rng(1))  # type: ignore[arg-type]
    assert made is not None
    return made


def series(measured: Measurement, name: str) -> Series:
    return next(each for each in measured.points[0].series if each.name == name)


def values(some: Series) -> list[float | None]:
    return [each.value_ns for each in some.percentiles]


# Percentiles


@given(st.integers(299, 1500), st.integers(0, 30), st.randoms(use_true_random=False))
def test_percentiles_are_exact_ranks_with_failures_as_never(n: int, failures: int, rng: object):
    order = list(range(1, n + 1))
    rng.shuffle(order)  # type: ignore[attr-defined]
    times = [math.inf if place > n - failures else float(place) for place in order]
    found = percentiles(np.array(times))
    for each in found:
        rank = math.ceil(round(each.level * n / 100, 6))
        assert each.value_ns == (math.inf if rank > n - failures else rank)
        low, high = each.interval_ns or (None, None)
        assert low is not None
        assert low <= each.value_ns
        assert high is None or each.value_ns <= high


@pytest.mark.parametrize(("n", "known"), [(58, 1), (59, 2), (298, 2), (299, 3)])
def test_percentiles_below_their_smallest_sample_are_refused(n: int, known: int):
    found = percentiles(np.arange(n, dtype=np.float64))
    assert [each.value_ns is not None for each in found] == [True] * known + [False] * (3 - known)
    assert all(each.why for each in found if each.value_ns is None)


# The arithmetic of lateness


def test_one_connection_for_eight_requests():
    """vllm#54101: 8 requests, 10 a second, at most 1 at once, 0.5 s each. Request k is due at 0.1 k s and is answered
    at 0.5 (k + 1) s, so its response is 0.5 + 0.4 k s: 1.9 s on average and 3.3 s for the last."""
    requests = [request(place * NS_PER_S // 10, place * NS_PER_S // 2, NS_PER_S // 2) for place in range(8)]
    responded = [seen.over_ns - seen.intended_ns for seen in requests]
    assert responded == [NS_PER_S // 2 + place * 4 * NS_PER_S // 10 for place in range(8)]
    assert sum(responded) / 8 == 1.9 * NS_PER_S
    measured = concluded(requests, rate=10.0)
    assert measured.loads[0].verdict.state == INVALID
    # Nothing but bounds: no sooner than 0.5 s, and no later than the median of the responses, the fourth: 1.7 s.
    assert values(series(measured, END_TO_END)) == [None, None, None]
    first, *_ = series(measured, END_TO_END).bounds
    assert (first.level, first.low_ns, first.high_ns) == (50.0, NS_PER_S // 2, 17 * NS_PER_S // 10)
    assert measured.on_time is None
    assert measured.hops == measured.cold == ()


def test_a_stall_of_a_second_in_every_ten_raises_the_p99_by_what_the_arithmetic_says():
    """Answers take 100 ms. Of requests spread evenly over a period of 10 s, those due in its last 1.1 s end in or after
    the stall: the first 0.1 s of them would end within it, the others begin in it. What is due at u s before the end of
    the stall, u from 1.1 to 0, is answered at its end if that is later than 100 ms: it takes max(u, 0.1) s.
    The share above x is (1.1 - x) / 10 for x from 0.1 s; the p99 is where that is 1 %: 1.0 s instead of 0.1 s."""
    script = Script(stall_ns=NS_PER_S, stall_every_ns=10 * NS_PER_S)
    took_ns = 100 * NS_PER_MS
    dues = range(0, 40 * NS_PER_S, 5 * NS_PER_MS)
    requests = [request(at_ns, at_ns, after_stall(script, at_ns + took_ns) - at_ns) for at_ns in dues]
    measured = concluded(requests, rate=200.0)
    assert measured.loads[0].verdict.state == VALID
    p50_ns, _, p99_ns = values(series(measured, END_TO_END))
    assert p50_ns == took_ns
    assert p99_ns is not None
    assert abs(p99_ns - NS_PER_S) <= 5 * NS_PER_MS  # one gap between requests


@given(st.lists(st.integers(1, 10**9), min_size=1, max_size=60), st.data())
def test_bounds_hold_the_percentiles_of_a_sender_on_time(took: list[int], data: st.DataObject):
    """A late sender that changes nothing else: what it measured from the send is what a person would have waited."""
    late = data.draw(st.lists(st.integers(0, 10**9), min_size=len(took), max_size=len(took)))
    requests = [
        request(place * 1000, place * 1000 + lateness_ns, took_ns)
        for place, (took_ns, lateness_ns) in enumerate(zip(took, late, strict=True))
    ]
    true = sorted(took)
    for bound in bounds(requests, RESPONSES[END_TO_END]):
        on_time_ns = true[max(1, math.ceil(round(bound.level * len(true) / 100, 6))) - 1]
        assert bound.low_ns <= on_time_ns <= (bound.high_ns or math.inf)


def test_what_was_never_sent_has_no_lower_and_no_upper_bound():
    unsent = [Observed(id=f"u{at}", intended_ns=at, ended_ns=at + 9, outcome="unsent") for at in range(30)]
    found = {
        each.level: each for each in bounds([*unsent, *(request(at, at, 5) for at in range(70))], RESPONSES[END_TO_END])
    }
    # 30 of 100 were never sent: the median is at least that of 30 zeros and 70 fives, and the p95 has no upper bound.
    assert (found[50.0].low_ns, found[50.0].high_ns) == (5, 5)
    assert (found[95.0].low_ns, found[95.0].high_ns) == (5, None)


# What counts


def test_failures_are_never_and_stand_with_their_reasons():
    measured = concluded([request(at, at, 10) for at in range(400)] + [failed(at) for at in range(400, 420)])
    point = measured.points[0]
    assert (point.planned, point.outcomes, point.reasons) == (420, {"error": 20, "ok": 400}, {"status 500": 20})
    # 400 of 420 are 95.2 %: the p95 is the last that was answered.
    assert values(series(measured, END_TO_END)) == [10, 10, math.inf]
    # From the send only those that were answered count.
    assert values(series(measured, "end_to_end_from_send")) == [10, 10, 10]


def test_the_warm_up_is_counted_and_is_in_no_other_number():
    tally = Tally()
    for at in range(3):
        tally.take(request(at, at, 1_000_000), warm_up=True)
    for at in range(100):
        tally.take(request(at, at, 10))
    facts = RunFacts(
        plan="", moment="m", begun_ns=0, rate=None, health=HEALTH, clock=CLOCK, until=UNTIL["end"], within_ns=10
    )
    measured = measurement_of({"p": ("", tally)}, facts, np.random.default_rng(1))
    assert measured is not None
    assert (measured.warm_up, measured.warm_up_p50_ns) == (3, 1_000_000)
    assert measured.points[0].planned == 100
    assert measured.on_time is not None
    assert (measured.on_time.share, measured.on_time.over) == (1.0, 0)


def test_what_was_stopped_with_the_run_says_nothing_of_the_server():
    tally = Tally()
    tally.take(request(0, 0, 5))
    tally.take(request(1, 1, 5, outcome="aborted"))
    assert (tally.unfinished, dict(tally.outcomes)) == (1, {"ok": 1})


def test_without_any_request_there_is_nothing_to_conclude():
    facts = RunFacts(plan="", moment="m", begun_ns=0, rate=None, health=HEALTH, clock=CLOCK, until=UNTIL["end"])
    assert measurement_of({"p": ("", Tally())}, facts, np.random.default_rng(1)) is None


def stream(first: int, tokens: int, output: int | None = None) -> Observed:
    """A stream whose frames come every 5; `output` is the place of the first that is shown."""
    at = tuple(first + 5 * place for place in range(tokens))
    return request(
        0,
        0,
        at[-1],
        first_token_ns=at[0],
        first_output_ns=None if output is None else at[output],
        tokens_ns=at,
        output_tokens=tokens * 2,
    )


def test_two_first_tokens_and_two_kinds_of_gaps():
    measured = concluded([stream(20, 11, output=4) for _ in range(100)])
    assert values(series(measured, "ttft"))[0] == 20
    assert values(series(measured, "first_output"))[0] == 40
    assert values(series(measured, "between_tokens"))[0] == pytest.approx(5, rel=0.01)
    # 22 tokens in 11 frames over 50: 50 / 21, rounded.
    assert values(series(measured, "per_token"))[0] == 2


# Loads


def test_each_stage_has_a_load_of_its_own():
    on_time = [request(at * NS_PER_MS, at * NS_PER_MS, 10) for at in range(1000)]
    late = [request((1000 + at) * NS_PER_MS, (3000 + at) * NS_PER_MS, 10) for at in range(1000)]
    parts = (
        Part(name="slow", rate=1000.0, from_ns=0, to_ns=NS_PER_S),
        Part(name="fast", rate=1000.0, from_ns=NS_PER_S, to_ns=2 * NS_PER_S),
    )
    whole, slow, fast = concluded(on_time + late, parts=parts, dimensions={"site": "lon"}).loads
    assert [load.verdict.state for load in (whole, slow, fast)] == [INVALID, VALID, INVALID]
    assert [dict(load.dimensions) for load in (whole, slow, fast)] == [
        {"site": "lon"},
        {"site": "lon", "stage": "slow"},
        {"site": "lon", "stage": "fast"},
    ]
    assert (slow.requests, slow.requested_rate, slow.begin_ns) == (1000, 1000.0, CLOCK.shift_ns)
    # Between 999 ms, the last that left on time, and 3 s nothing was sent though the second stage was due from 1 s on.
    (stall,) = whole.sender_stalls
    assert (stall.from_ns - 1000, stall.to_ns - 1000, stall.due) == (NS_PER_S, 3 * NS_PER_S, 1000)


def test_a_busy_sender_or_one_whose_loop_stood_still_is_not_valid():
    requests = [request(at * NS_PER_MS, at * NS_PER_MS, 10) for at in range(400)]
    states = [
        load_of("", requests, health, moment="m", rate=None, clock=CLOCK).verdict.state
        for health in (
            HEALTH,
            SenderHealth(cpu_share=0.8, longest_stall_ns=0),
            SenderHealth(cpu_share=0.1, longest_stall_ns=NS_PER_S),
        )
    ]
    assert states == ["VALID", "DEGRADED", "INVALID"]


def test_a_set_up_is_the_networks_and_no_lateness():
    """A connection from far away takes 225 ms before the request is written. The sender was on time all the same."""
    requests = [
        request(at * NS_PER_MS, at * NS_PER_MS, 10 * NS_PER_MS, written_ns=at * NS_PER_MS + 225 * NS_PER_MS)
        for at in range(0, 4000, 10)
    ]
    assert load_of("", requests, HEALTH, moment="m", rate=100.0, clock=CLOCK).verdict.state == VALID


def test_a_silence_while_a_sender_stood_still_is_not_the_servers():
    starts = [at * 5 * NS_PER_MS for at in range(400)]
    script = Script(stall_ns=300 * NS_PER_MS, stall_every_ns=NS_PER_S)
    requests = [
        request(
            at,
            at,
            after_stall(script, at + 20 * NS_PER_MS) - at,
            first_byte_ns=after_stall(script, at + 20 * NS_PER_MS),
        )
        for at in starts
    ]
    assert len(concluded(requests).loads[0].silences) == 2
    stalled = SenderHealth(cpu_share=0.1, longest_stall_ns=0, stalls=((700 * NS_PER_MS, NS_PER_S),))
    (left,) = concluded(requests, health=stalled).loads[0].silences
    assert left.to_ns == 2 * NS_PER_S + CLOCK.shift_ns


# Several points


def test_points_have_their_own_series_and_one_verdict_and_their_hops():
    outer, inner = Tally(), Tally()
    rounds = []
    for place in range(400):
        for tally, offset, took in ((outer, 0, 13), (inner, 5, 10)):
            at_ns = (20 * place + offset) * NS_PER_MS
            tally.take(request(at_ns, at_ns, took * NS_PER_MS))
        rounds.append({"gateway": 13 * NS_PER_MS, "server": 10 * NS_PER_MS})
    outer.take(request(0, 0, 99 * NS_PER_MS), warm_up=True)
    facts = RunFacts(
        plan="",
        moment="m",
        begun_ns=0,
        rate=100.0,
        health=HEALTH,
        clock=CLOCK,
        until=UNTIL["end"],
        rounds=rounds,
        stopped=True,
        notes={"told": 2},
    )
    points = {"gateway": ("http://g/", outer), "server": ("http://s/", inner)}
    measured = measurement_of(points, facts, np.random.default_rng(1))
    assert measured is not None
    assert [(point.name, point.address, point.planned) for point in measured.points] == [
        ("gateway", "http://g/", 400),
        ("server", "http://s/", 400),
    ]
    medians = [
        next(each for each in point.series if each.name == END_TO_END).percentiles[0] for point in measured.points
    ]
    assert [each.value_ns for each in medians] == [13 * NS_PER_MS, 10 * NS_PER_MS]
    (hop,) = measured.hops
    assert (hop.outer, hop.inner, hop.typical.value_ns) == ("gateway", "server", 3 * NS_PER_MS)
    (load,) = measured.loads
    assert (load.requests, load.verdict.state) == (800, VALID)
    assert (measured.warm_up, measured.stopped, measured.notes) == (1, True, {"told": 2})


def test_the_most_frequent_reasons_are_told():
    many = [
        request(at, at, 5, outcome="error", why=f"status {500 + kind}")
        for kind in range(8)
        for at in range(10 * kind, 11 * kind + 1)
    ]
    reasons = concluded(many).points[0].reasons
    # Kind k failed k + 1 times; the five most frequent are those of 8, 7, 6, 5 and 4.
    assert reasons == {f"status {500 + kind}": kind + 1 for kind in (7, 6, 5, 4, 3)}
