"""Retries, limits, queues and breakers, against cases worked out by hand and whatever order events come in."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outlay.admission import GradientLimit, RetryThrottle, SlackQueue, Throttles, Waiting
from outlay.health import Health, HealthRules
from outlay.units import NS_PER_MS, NS_PER_S
from outlay.work import Fleet, Service, Target

MS, S = NS_PER_MS, NS_PER_S


def fleet(size: int) -> Fleet:
    service = Service(prefill_tokens_per_s=1e4, step_ns=MS)
    return Fleet(Target(name=f"t{place}", site="lon", variant="v", service=service) for place in range(size))


def test_retries_stop_at_half_of_the_tokens_and_come_back_with_successes() -> None:
    throttle = RetryThrottle(10, 0.1)
    allowed = []
    for _ in range(6):
        allowed.append(throttle.allows)
        throttle.failed()
    # 10, 9, 8, 7, 6 tokens are more than 5; then 5 are not.
    assert allowed == [True, True, True, True, True, False]
    assert throttle.tokens == 4
    for _ in range(11):
        throttle.succeeded()
    assert throttle.tokens == pytest.approx(5.1)
    assert throttle.allows


def test_tokens_stay_between_nothing_and_full() -> None:
    throttle = RetryThrottle(2, 0.5)
    for _ in range(9):
        throttle.succeeded()
    assert throttle.tokens == 2
    for _ in range(9):
        throttle.failed()
    assert throttle.tokens == 0


def test_a_dead_site_cannot_drain_another_one_s_allowance() -> None:
    throttles = Throttles(["lon", "ams"])
    for _ in range(20):
        throttles.failed("lon")
    assert (throttles.allows("lon"), throttles.allows("ams")) == (False, True)


@pytest.mark.parametrize(("most", "ratio"), [(0, 0.1), (1001, 0.1), (10, 0)])
def test_a_throttle_that_makes_no_sense_is_refused(most: float, ratio: float) -> None:
    with pytest.raises(ValueError, match="throttle"):
        RetryThrottle(most, ratio)


def test_a_limit_grows_while_it_is_used_and_nothing_slows_down() -> None:
    limit = GradientLimit(first=20)
    for _ in range(50):
        limit.answered(1.0, limit.limit)
    assert limit.limit > 40


def test_a_limit_that_is_not_used_does_not_move() -> None:
    limit = GradientLimit(first=20)
    for _ in range(50):
        limit.answered(1.0, 5)
    assert limit.limit == 20


def test_a_limit_shrinks_when_answers_take_longer_than_they_used_to_and_not_for_long_prompts() -> None:
    limit = GradientLimit(first=100, most=100)
    for _ in range(600):
        limit.answered(1.0, 100)
    before = limit.limit
    for _ in range(30):
        limit.answered(3.0, 100)  # observed over predicted: a long prompt alone would be 1
    assert limit.limit < 0.7 * before
    for _ in range(2000):
        limit.answered(30.0, 100)
    assert limit.limit >= 4


def waiting(name: str, deadline: int, service: int = 10, *, sheddable: bool = False) -> Waiting[str]:
    return Waiting(id=name, item=name, deadline_ns=deadline, service_ns=service, tokens=1, sheddable=sheddable)


def test_the_one_that_can_wait_least_comes_first_and_the_hopeless_is_dropped() -> None:
    queue: SlackQueue[str] = SlackQueue()
    # Latest starts: 90, 60 and 20; at 30 the last can no longer be on time.
    for each in (waiting("long", 100), waiting("soon", 100, 40), waiting("late", 30)):
        queue.push(each)
    first, dropped = queue.pop(30)
    assert first is not None
    assert (first.id, [each.id for each in dropped]) == ("soon", ["late"])
    assert (len(queue), queue.tokens) == (1, 1)


def test_a_full_queue_turns_away_what_may_be_shed_and_has_most_slack() -> None:
    queue: SlackQueue[str] = SlackQueue(2)
    queue.push(waiting("a", 100, sheddable=True))
    queue.push(waiting("b", 50))
    gone = queue.push(waiting("c", 70))
    assert gone is not None
    assert gone.id == "a"
    own = queue.push(waiting("d", 500))
    assert own is not None
    assert own.id == "d"


def test_what_is_inside_cannot_be_put_in_again() -> None:
    queue: SlackQueue[str] = SlackQueue()
    queue.push(waiting("a", 100))
    with pytest.raises(ValueError, match="waiting already"):
        queue.push(waiting("a", 200))


operations = st.lists(
    st.one_of(
        st.tuples(st.just("push"), st.integers(0, 30), st.integers(0, 200)),
        st.tuples(st.just("pop"), st.integers(0, 200), st.just(0)),
        st.tuples(st.just("cancel"), st.integers(0, 30), st.just(0)),
    ),
    max_size=80,
)


@settings(max_examples=150, deadline=None)
@given(operations)
def test_what_was_put_in_is_taken_out_dropped_cancelled_or_inside(events: list[tuple[str, int, int]]) -> None:
    queue: SlackQueue[str] = SlackQueue(8)
    inside: dict[str, Waiting[str]] = {}
    for what, number, deadline in events:
        if what == "push" and str(number) not in inside:
            inside[str(number)] = waiting(str(number), deadline)
            gone = queue.push(inside[str(number)])
            if gone is not None:
                del inside[gone.id]
        elif what == "pop":
            first, dropped = queue.pop(number)
            for each in dropped:
                assert inside.pop(each.id).latest_ns < number
            if first is not None:
                assert inside.pop(first.id).latest_ns >= number
                assert all(first.latest_ns <= other.latest_ns for other in inside.values())
        elif what == "cancel":
            assert queue.cancel(str(number)) == (inside.pop(str(number), None) is not None)
        assert (len(queue), queue.tokens) == (len(inside), len(inside))


def test_failures_in_a_row_eject_for_a_second_and_then_one_probe_at_a_time_is_let_through() -> None:
    health = Health(fleet(4))
    for _ in range(5):
        assert health.usable(0).all()
        health.failed(0, 0)
    assert health.usable(S - 1).tolist() == [False, True, True, True]
    assert health.usable(S).all()
    health.took(0, S)
    assert not health.usable(S)[0]
    for _ in range(3):
        health.answered(0, S, None)
        assert health.usable(S)[0]
    assert health.states(S)[0] == "closed"


def test_each_ejection_lasts_twice_as_long_up_to_thirty_seconds() -> None:
    health, now_ns, lengths = Health(fleet(4)), 0, []
    for _ in range(5):
        health.failed(0, now_ns)
    for _ in range(7):
        begun_ns = now_ns
        while not health.usable(now_ns)[0]:
            now_ns += S // 2
        lengths.append((now_ns - begun_ns) // S)
        health.took(0, now_ns)
        health.failed(0, now_ns)
    assert lengths == [1, 2, 4, 8, 16, 30, 30]


def test_a_success_between_failures_keeps_it_in() -> None:
    health = Health(fleet(4))
    for _ in range(30):
        for _ in range(4):
            health.failed(0, 0)
        health.answered(0, 0, None)
    assert health.usable(0).all()


def test_never_more_than_half_are_out_and_a_single_one_never_is() -> None:
    health, alone = Health(fleet(4)), Health(fleet(1))
    for target in range(4):
        for _ in range(9):
            health.failed(target, 0)
    assert health.usable(1).sum() == 2
    for _ in range(99):
        alone.failed(0, 0)
    assert alone.usable(1).all()


def test_errors_of_clients_and_cancelled_attempts_touch_nothing() -> None:
    health = Health(fleet(2))
    for _ in range(99):
        health.client_error(0)
        health.cancelled(0)
    assert health.states(0) == ("closed", "closed")


def test_one_that_is_slower_than_its_fleet_is_ejected_and_a_slow_fleet_is_not() -> None:
    one, all_ = Health(fleet(4)), Health(fleet(4))
    for number in range(40):
        for target in range(4):
            one.answered(target, number * MS, 8.0 if target == 0 else 1.0)
            all_.answered(target, number * MS, 8.0)
    assert one.states(40 * MS)[0] == "open"
    assert all_.states(40 * MS) == ("closed",) * 4


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 4), st.booleans(), st.integers(0, 3 * S)), max_size=120))
def test_at_least_half_are_usable_or_being_probed_whatever_happens(events: list[tuple[int, bool, int]]) -> None:
    health, now_ns = Health(fleet(5), HealthRules()), 0
    for target, good, later_ns in events:
        now_ns += later_ns
        if good:
            health.answered(target, now_ns, 1.0)
        else:
            health.failed(target, now_ns)
        assert health.states(now_ns).count("open") <= 2
