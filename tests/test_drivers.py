"""Drivers: counts of who was there, and worlds in which it is known what drives the time and what only goes with it."""

import heapq
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlay.account import account
from outlay.accounts import OUTCOME_NAMES, Accounts, Floats, Ints, Labels, of_columns
from outlay.drivers import counted, drivers, queue_depth
from outlay.formats.reading import read
from outlay.interaction import Interaction
from outlay.report import Driver
from outlay.tabulator import Tabulator
from outlay.units import NS_PER_MS, NS_PER_S

DATA = Path(__file__).parent / "data"


def ns(times_ms: Floats) -> Ints:
    return np.rint(times_ms * NS_PER_MS).astype(np.int64)


def labels_of(values: Sequence[str]) -> Labels:
    distinct, codes = np.unique(values, return_inverse=True)
    return Labels(tuple(distinct.tolist()), codes.astype(np.int32))


def timed(times_ms: Floats, **conditions: Floats) -> Accounts:
    """One entry each, a minute apart, so that nobody meets another."""
    apart_ns = 60 * NS_PER_S * np.arange(len(times_ms))
    return of_columns({"llm/infer": ns(times_ms)}, start_ns=apart_ns, conditions=conditions)


def by_name(found: Sequence[Driver]) -> dict[str, Driver]:
    return {driver.name: driver for driver in found}


def explaining(found: Sequence[Driver]) -> list[str]:
    return [driver.name for driver in found if driver.explains]


def persistent(random: np.random.Generator, n: int, lag: float) -> Floats:
    """Standard normal, with this correlation from one to the next."""
    steps = random.standard_normal(n) * np.sqrt(1 - lag * lag)
    steps[0] /= np.sqrt(1 - lag * lag)
    for place in range(1, n):
        steps[place] += lag * steps[place - 1]
    return steps


def tenths_apart(values: Floats) -> float:
    """Exact where a tenth is a whole number of rows."""
    ordered, tenth = np.sort(values), len(values) // 10
    return float(ordered[-tenth:].mean() - ordered[:tenth].mean())


def holds(driver: Driver, truth_ns: float) -> bool:
    assert driver.effect_interval_ns is not None
    low, high = driver.effect_interval_ns
    return low <= truth_ns <= high


# Counting


@st.composite
def visits(draw: st.DrawFn) -> list[tuple[int, int, int, int, str]]:
    """Start, way to the queue, wait, service and site; so short that many instants coincide."""
    short = st.integers(0, 6)
    visit = st.tuples(st.integers(0, 20), short, short, short, st.sampled_from("ab"))
    return sorted(draw(st.lists(visit, min_size=1, max_size=30)), key=lambda row: row[0])


@given(visits())
def test_counts_are_of_the_others_at_the_same_place(rows: list[tuple[int, int, int, int, str]]) -> None:
    start, way, wait, service, site = (np.array(column) for column in zip(*rows, strict=True))
    stages = {"client/uplink": way, "llm/queue.wait": wait, "llm/infer": service}
    found = counted(of_columns(stages, start_ns=start, dimensions={"site": labels_of(site)}))
    # A wait of 0 is no entry: who has none is taken to be served from the start.
    came = np.where(wait > 0, start + way, start)
    left, ended = came + wait, start + way + wait + service

    def there(begun: Ints, over: Ints) -> list[int]:
        return [int(((begun < at) & (at < over) & (site == own)).sum()) for at, own in zip(came, site, strict=True)]

    waiting, running = there(came, left), there(left, ended)
    assert found["in_flight"].tolist() == [sum(both) for both in zip(waiting, running, strict=True)]
    assert found["queue_depth"].tolist() == waiting
    assert found["running"].tolist() == running


def test_the_service_is_busy_for_as_long_as_its_columns_say() -> None:
    made = of_columns({"llm/infer": np.array([10, 10])}, start_ns=np.array([0, 20]))
    assert counted(made)["in_flight"].tolist() == [0, 0]
    assert counted(replace(made, busy_ns=np.array([21, 10])))["in_flight"].tolist() == [0, 1]


def test_nothing_is_counted_where_some_have_no_row() -> None:
    made = of_columns({"llm/infer": np.array([10, 10])}, start_ns=np.array([0, 5]))
    assert counted(made)["in_flight"].tolist() == [0, 1]
    assert counted(replace(made, complete=False)) == {}
    assert counted(replace(made, weights=np.array([1.0, 2.0]))) == {}


# Worlds


def station(random: np.random.Generator, n: int, servers: int, load: float) -> Accounts:
    """M/G/k, first come first served: Poisson arrivals, lognormal service of 100 ms on average.

    `utilisation` is stated: the share of the servers that was busy at each arrival.
    """
    service = random.lognormal(-0.5 * 0.8**2, 0.8, n) * 100
    arrivals = np.cumsum(random.exponential(100 / servers / load, n))
    free = [0.0] * servers
    waits, busy = np.empty(n), np.empty(n)
    for place, (at, work) in enumerate(zip(arrivals, service, strict=True)):
        busy[place] = sum(until > at for until in free) / servers
        begun = max(at, heapq.heappop(free))
        heapq.heappush(free, begun + work)
        waits[place] = begun - at
    stages = {"llm/queue.wait": ns(waits), "llm/infer": ns(service)}
    return of_columns(stages, start_ns=ns(arrivals), conditions={"utilisation": busy})


@pytest.mark.parametrize("seed", range(2))
def test_the_queue_explains_the_time_and_the_utilisation_beside_it_does_not(seed: int) -> None:
    found = drivers(station(np.random.default_rng(seed), 3000, servers=4, load=0.9), 99)
    # The number served is the utilisation by another name, the number in flight the sum of both.
    assert [driver.name for driver in found] == ["queue_depth", "utilisation"]
    assert explaining(found) == ["queue_depth"]
    assert [driver.counted for driver in found] == [True, False]
    assert found[1].correlation_interval[0] > 0.3


def test_an_unsteady_path_explains_the_time_and_its_length_does_not() -> None:
    random = np.random.default_rng(2)
    spread, rtt = random.gamma(1, 20, 3000), random.normal(40, 5, 3000)
    # Twice the spread on the average: the median of the excess is 1.39 spreads, above it lies the tail.
    times = 100 + rtt + spread * random.exponential(2, 3000)
    found = drivers(timed(times, rtt_ns=rtt * NS_PER_MS, rtt_spread_ns=spread * NS_PER_MS), 99)
    assert explaining(found) == ["rtt_spread_ns"]
    # The p95 of the excess is 2 ln 20 spreads.
    assert found[0].level == 95
    assert holds(found[0], 2 * np.log(20) * tenths_apart(spread) * NS_PER_MS)


def test_of_two_that_go_together_only_the_one_that_acts_explains() -> None:
    random = np.random.default_rng(3)
    acts = random.standard_normal(3000)
    beside = 0.9 * acts + np.sqrt(1 - 0.9**2) * random.standard_normal(3000)
    found = by_name(drivers(timed(200 + 20 * acts + random.normal(0, 5, 3000), acts=acts, beside=beside), 99))
    # Spearman's is 6 / pi asin(r / 2) of normal values: 0.86 for r = 0.9 / sqrt(1 + 5^2 / 20^2) = 0.873.
    assert found["beside"].rank_correlation == pytest.approx(0.86, abs=0.02)
    assert explaining(tuple(found.values())) == ["acts"]
    assert holds(found["acts"], 20 * tenths_apart(acts) * NS_PER_MS)
    assert holds(found["beside"], 0)


@pytest.mark.parametrize("lag", [0, 0.8])
def test_where_nothing_drives_the_time_nothing_explains_it(lag: float) -> None:
    for seed in range(4):
        random = np.random.default_rng(seed)
        times, one, other = (np.exp(persistent(random, 500, lag)) for _ in range(3))
        assert explaining(drivers(timed(100 + times, one=one, other=other), 99)) == []


@pytest.mark.parametrize("lag", [0, 0.8])
def test_intervals_of_effects_hold_the_truth(lag: float) -> None:
    held = 0
    for seed in range(15):
        random = np.random.default_rng(seed)
        load = np.exp(persistent(random, 400, lag) / 2)
        (found,) = drivers(timed(100 + 3 * load + np.exp(persistent(random, 400, lag)), load=load), 90)
        held += holds(found, 3 * tenths_apart(load) * NS_PER_MS)
    # Of 15 intervals that hold it 95 % of the time, fewer than 12 would with a probability of 0.5 %.
    assert held >= 12


@pytest.mark.parametrize(
    ("gpu", "depth", "running", "prompt"),
    [("RTX4090", 0.994, 0.20, 0.05), ("RTXPRO6000", 0.960, 0.77, 0.14)],
)
def test_the_queue_explains_first_tokens_of_two_real_servers(
    gpu: str, depth: float, running: float, prompt: float
) -> None:
    table = Tabulator()
    with (DATA / "vllm-requests" / f"{gpu}__Llama-3.1-8B__requests.jsonl").open("rb") as stream:
        for made in read(stream, frozenset()).items:
            assert isinstance(made, Interaction)
            (first_ns,) = (mark.at_ns for mark in made.marks if mark.name == "first_token")
            assert made.start_ns is not None
            assert made.end_ns is not None
            table.add(account(replace(made, end_ns=first_ns)), busy_ns=made.end_ns - made.start_ns)
    found = by_name(drivers(table.accounts(), 99))
    assert explaining(tuple(found.values())) == ["queue_depth"]
    correlations = [found[name].rank_correlation for name in ("queue_depth", "running", "input_tokens")]
    assert correlations == pytest.approx([depth, running, prompt], abs=0.005)
    # One ramp of 300: no tail can be answered, but the median can.
    assert {driver.level for driver in found.values()} == {50}


# What counts, and how much


def test_an_effect_is_from_the_lowest_tenth_to_the_highest() -> None:
    # Ranks 0 to 599 in disorder (7 and 600 share no factor): 2 ms each, and 540 ranks between the tenths' means.
    load = np.arange(600) * 7.0 % 600
    (found,) = drivers(timed(1000 + 2 * load, load=load), 99)
    assert found.effect_ns == pytest.approx(2 * 540 * NS_PER_MS, rel=1e-6)
    assert found.rank_correlation == pytest.approx(1)


def test_a_row_counts_as_often_as_it_stands_for() -> None:
    random = np.random.default_rng(4)
    load, often = random.standard_normal(300), random.integers(1, 4, 300)
    made = timed(100 + 10 * load + random.exponential(20, 300), load=load)
    (weighted,) = drivers(replace(made, weights=often.astype(float)), 50)
    (repeated,) = drivers(made.select(np.repeat(np.arange(300), often)), 50)
    assert weighted.rank_correlation == pytest.approx(repeated.rank_correlation)
    assert weighted.effect_ns == pytest.approx(repeated.effect_ns, rel=1e-4)
    assert (weighted.n, repeated.n) == (300, int(often.sum()))


def test_a_failure_is_slower_than_whatever_was_served() -> None:
    load = np.arange(100.0)
    made = timed(200 - load, load=load)
    outcomes = np.where(load >= 50, OUTCOME_NAMES.index("timeout"), OUTCOME_NAMES.index("ok")).astype(np.int8)
    failed = replace(made, outcomes=outcomes, total_ns=np.where(load >= 50, 0, made.total_ns))
    (alone,), (with_failures,) = drivers(made, 50), drivers(failed, 50)
    assert alone.rank_correlation == pytest.approx(-1)
    # The first 50 fall from rank 49 to 0, the last share the middle rank 74.5.
    ranks = np.concatenate((np.arange(49, -1, -1), np.full(50, 74.5)))
    assert with_failures.rank_correlation == pytest.approx(np.corrcoef(load, ranks)[0, 1])
    # No served row lies above the median.
    assert with_failures.effect_ns is None


def test_many_rows_are_answered_from_a_few_that_keep_the_tail() -> None:
    random = np.random.default_rng(6)
    load, cold = random.exponential(1, 60_000), (random.random(60_000) < 0.2).astype(float)
    made = timed(100 + 10 * cold + load * random.exponential(10, 60_000), load=load, cold=cold)
    found = by_name(drivers(made, 99))
    assert {(driver.n, driver.level) for driver in found.values()} == {(60_000, 99)}
    # The p99 of the exponential is 10 ln 100.
    truth_ns = 10 * np.log(100) * tenths_apart(load) * NS_PER_MS
    assert holds(found["load"], truth_ns)
    # 600 rows lie above the p99; a plain sample would hold 50 of them and tell the slope half as well.
    low, high = found["load"].effect_interval_ns or (0, np.inf)
    assert high - low < 0.12 * truth_ns
    # From a tenth in which none is cold to one in which all are.
    assert holds(found["cold"], 10 * NS_PER_MS)
    assert explaining(tuple(found.values())) == ["load"]


def test_the_most_direct_of_the_same_thing_stands_for_all() -> None:
    random = np.random.default_rng(7)
    depth, running = random.integers(0, 50, 400).astype(float), random.integers(0, 9, 400).astype(float)
    stated = {"zz": depth**3, "queue_depth": depth, "running": running, "in_flight": depth + running}
    assert set(by_name(drivers(timed(100 + depth, **stated), 99))) == {"queue_depth", "running"}


def test_what_the_producer_states_wins_over_what_is_counted() -> None:
    made = station(np.random.default_rng(8), 500, servers=2, load=0.9)
    depth = counted(made)["queue_depth"]
    assert by_name(drivers(made, 99))["queue_depth"].counted
    assert np.array_equal(queue_depth(made), depth)
    told = replace(made, conditions={"queue_depth": depth + 1})
    stated = by_name(drivers(told, 99))
    assert (stated["queue_depth"].counted, stated["running"].counted) == (False, True)
    assert np.array_equal(queue_depth(told), depth + 1)


def test_constant_and_mostly_unknown_numbers_are_no_drivers() -> None:
    load = np.arange(400) * 7.0 % 400
    most, half = (np.where(load < known, load, np.nan) for known in (199, 200))
    assert drivers(timed(100 + load, constant=np.ones(400), seldom=(load < 29).astype(float), most=most), 99) == ()
    (found,) = drivers(timed(100 + load, half=half), 99)
    assert (found.name, found.n) == ("half", 200)


def test_too_few_rows_have_a_correlation_and_no_effect() -> None:
    load = np.arange(59.0)
    (found,) = drivers(timed(100 + load, load=load), 99)
    assert (found.level, found.effect_ns, found.effect_interval_ns, found.explains) == (None, None, None, False)
    assert found.rank_correlation == pytest.approx(1)


def test_no_rows_have_no_drivers() -> None:
    assert drivers(Tabulator().accounts(), 99) == ()
