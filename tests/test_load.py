"""The load of recorded requests: verdict, rates and bounds, from small schedules whose truth is known."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlay.generator import DEGRADED, INVALID, VALID
from outlay.load import Bound, Load, Sent, bounds_between, bounds_of_summary, recorded_load
from outlay.units import NS_PER_MS, NS_PER_S

MS = NS_PER_MS
INF = float("inf")


def load(sent: list[Sent], *, partly: bool = False) -> Load:
    return recorded_load(sent, tool="t", moment="m", clock="c", partly=partly)


def capped() -> list[Sent]:
    """Eight requests at 10/s, one at a time, 0.5 s each: request k is due at 0.1 k s and leaves at 0.5 k s."""
    return [Sent(intended_ns=100 * k * MS, written_ns=500 * k * MS, answered_ns=500 * (k + 1) * MS) for k in range(8)]


def test_a_cap_is_lateness_and_leaves_bounds() -> None:
    found = load(capped())
    assert (found.verdict.state, found.requests, found.begin_ns) == (INVALID, 8, 0)
    # Seven gaps in 0.7 s; they took 3.5 s.
    assert (found.requested_rate, found.achieved_rate) == (10.0, 2.0)
    # From the send 0.5 s for all, from when it was due 0.5 + 0.4 k s: the fourth is 1.7 s, the last 3.3 s.
    assert found.bounds == (
        Bound(level=50.0, low_ns=500 * MS, high_ns=1_700 * MS),
        Bound(level=95.0, low_ns=500 * MS, high_ns=3_300 * MS),
        Bound(level=99.0, low_ns=500 * MS, high_ns=3_300 * MS),
    )


def test_a_sender_on_time_is_valid_and_its_bounds_meet() -> None:
    on_time = [Sent(intended_ns=k * MS, written_ns=k * MS, answered_ns=(k + 20) * MS) for k in range(50)]
    found = load(on_time)
    assert found.verdict.state == VALID
    assert {(bound.low_ns, bound.high_ns) for bound in found.bounds} == {(20 * MS, 20 * MS)}
    # The same when each may have been due before: late by nobody knows how much.
    partly = load(on_time, partly=True)
    assert partly.verdict.state == DEGRADED
    assert {(bound.low_ns, bound.high_ns) for bound in partly.bounds} == {(20 * MS, None)}


def test_what_failed_never_comes_and_what_was_not_sent_may_have_come_at_once() -> None:
    answered = [Sent(intended_ns=k, written_ns=k, answered_ns=k + 7) for k in range(97)]
    failed = [Sent(intended_ns=97, written_ns=97, answered_ns=None)] * 2
    unsent = [Sent(intended_ns=99, written_ns=None, answered_ns=None)]
    # Of 100: from the send one at 0, 97 at 7 and two never; from when due 97 at 7 and three never.
    found = load([*answered, *failed, *unsent])
    assert found.bounds == (Bound(level=50.0, low_ns=7, high_ns=7), Bound(level=95.0, low_ns=7, high_ns=7))
    assert found.verdict.unsent == 1


def test_all_at_one_instant_has_no_rate() -> None:
    found = load([Sent(intended_ns=5, written_ns=5, answered_ns=6)] * 3)
    assert (found.requested_rate, found.achieved_rate) == (None, None)


def test_an_empty_schedule_has_no_load() -> None:
    with pytest.raises(ValueError, match="an empty schedule"):
        load([])


def test_a_level_among_the_failures_is_left_out() -> None:
    assert [bound.level for bound in bounds_between([1.0] * 96 + [INF] * 4, [2.0] * 96 + [INF] * 4)] == [50.0, 95.0]
    assert bounds_between([], []) == ()
    whole = {0.0: 0, 100.0: NS_PER_S}
    assert [bound.level for bound in bounds_of_summary(whole, whole, (96, 100))] == [50.0, 95.0]
    assert bounds_of_summary(whole, whole, (0, 100)) == ()


@given(st.lists(st.tuples(st.integers(0, 99), st.integers(1, 99), st.booleans()), min_size=1, max_size=60))
def test_the_bounds_are_in_order_and_hold_the_response(parts: list[tuple[int, int, bool]]) -> None:
    sent = [
        Sent(intended_ns=10 * k, written_ns=10 * k + late, answered_ns=10 * k + late + took if served else None)
        for k, (late, took, served) in enumerate(parts)
    ]
    response = sorted(late + took if served else INF for late, took, served in parts)
    for bound in load(sent).bounds:
        truth = response[-(-len(parts) * int(bound.level) // 100) - 1]
        assert bound.low_ns <= truth
        assert truth == (INF if bound.high_ns is None else bound.high_ns)
