"""The cost of a hop, where it is known."""

import numpy as np
import pytest

from outlay.hops import hop_costs
from outlay.units import NS_PER_MS

Round = dict[str, int | None]


def rounds(n: int, cost_ms: float, seed: int = 0, noise_ms: float = 2.0) -> list[Round]:
    """A server with heavy noise of its own in each round, and a gateway that adds a cost and little noise."""
    rng = np.random.default_rng(seed)
    server = rng.lognormal(3, 0.5, n) * NS_PER_MS
    drift = np.repeat(rng.uniform(0, 30, n // 10 + 1), 10)[:n] * NS_PER_MS  # slow rounds come together
    hop = (cost_ms + rng.normal(0, noise_ms, n)) * NS_PER_MS
    return [
        {"gateway": round(base + shift + extra), "server": round(base + shift)}
        for base, shift, extra in zip(server, drift, hop, strict=True)
    ]


def costs(some: list[Round], order: tuple[str, ...] = ("gateway", "server"), seed: int = 1):
    return hop_costs(some, order, np.random.default_rng(seed))


def test_a_known_cost_is_found_within_its_interval():
    (hop,) = costs(rounds(400, 3.0))
    assert (hop.outer, hop.inner, hop.n) == ("gateway", "server", 400)
    low, high = hop.typical.interval_ns
    assert low <= 3 * NS_PER_MS <= high
    # The noise of a difference is 2 ms; its median over 400 rounds is known to about 2 x 1.25 / sqrt(400) = 0.125 ms.
    assert high - low < 0.8 * NS_PER_MS
    assert hop.typical.resolved


def test_an_exact_cost_is_exact():
    some: list[Round] = [{"gateway": 10 * place + 7, "server": 10 * place} for place in range(400)]
    (hop,) = costs(some)
    assert (hop.typical.value_ns, hop.typical.interval_ns) == (7, (7, 7))
    assert all((cost.value_ns, cost.interval_ns) == (7, (7, 7)) for cost in hop.tail.values())


def test_no_cost_is_rarely_taken_for_one():
    # A 95 % interval misses 0 in 5 % of the runs; of 60 runs more than 9 would be one in 800.
    missed = [costs(rounds(100, 0.0, seed))[0].typical.resolved for seed in range(60)]
    assert sum(missed) <= 9


def test_rounds_that_hang_together_are_worth_less():
    """A hop whose cost wanders slowly around 3 ms: the interval must hold 3 ms about as often as it says."""
    held = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        noise, wander = rng.normal(0, 1, 400), 0.0
        some: list[Round] = []
        for step in noise:
            wander = 0.8 * wander + 0.6 * step  # lag-1 correlation 0.8, variance 1
            some.append({"gateway": round((13 + wander) * NS_PER_MS), "server": 10 * NS_PER_MS})
        low, high = costs(some)[0].typical.interval_ns
        held += low <= 3 * NS_PER_MS <= high
    # Of 40, 95 % are 38. Taking the rounds for independent holds it in about 15.
    assert held >= 33


def test_tails_are_refused_below_their_smallest_sample_and_medians_below_theirs():
    (hop,) = costs(rounds(100, 3.0))
    assert hop.tail[95.0].value_ns is not None
    assert hop.tail[99.0].value_ns is None
    assert hop.tail[99.0].why == "p99 needs 299 rounds, there are 100"
    (few,) = costs(rounds(5, 3.0))
    assert few.typical.value_ns is None
    assert "there are 5" in (few.typical.why or "")


def test_failures_are_counted_where_they_were_and_their_rounds_left_out():
    some = [*rounds(50, 1.0), {"gateway": None, "server": 5}, {"gateway": 9, "server": None}, {"server": 4}]
    (hop,) = costs(some)
    assert (hop.n, hop.outer_failed, hop.inner_failed) == (50, 1, 1)


def test_points_are_compared_in_their_order_and_the_same_draws_give_the_same_interval():
    some: list[Round] = [{"a": 9 + place, "b": 5 + place, "c": place} for place in range(60)]
    first, second = costs(some, ("a", "b", "c"))
    assert [(hop.outer, hop.inner, hop.typical.value_ns) for hop in (first, second)] == [("a", "b", 4), ("b", "c", 5)]
    assert costs(rounds(400, 1.0)) == costs(rounds(400, 1.0))
    assert costs([], ("a", "b"))[0].n == 0
    assert costs(some, ("a",)) == ()


def test_a_cost_that_only_the_tail_pays():
    # Every 50th round waits 100 ms at the gateway: 2 % of the rounds, so the p99 has it and the median has not.
    some: list[Round] = [
        {"gateway": (10 + (100 if place % 50 == 0 else 0)) * NS_PER_MS, "server": 10 * NS_PER_MS}
        for place in range(1000)
    ]
    (hop,) = costs(some)
    assert hop.typical.value_ns == 0
    assert hop.tail[99.0].value_ns == 100 * NS_PER_MS
    assert hop.tail[95.0].value_ns == 0


@pytest.mark.parametrize("order", [(), ("a",)])
def test_without_two_points_there_is_no_hop(order: tuple[str, ...]):
    assert costs([{"a": 1}], order) == ()
