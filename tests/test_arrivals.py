import math
from collections.abc import Callable
from functools import partial
from heapq import merge
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outlay.arrivals import (
    Arrival,
    Schedule,
    constant,
    from_rows,
    gamma,
    mark_warm_up,
    parse_stages,
    poisson,
    replay,
    split,
    stages,
)
from outlay.units import NS_PER_MS, NS_PER_S

property_test = settings(max_examples=40, deadline=None)
seeds = st.integers(0, 2**32)
instants = st.lists(st.integers(0, 10**12), max_size=50)


def starts(schedule: Schedule) -> list[int]:
    return [arrival.at_ns for arrival in schedule]


# Constant


@pytest.mark.parametrize(
    ("rate", "duration_ns", "expected"),
    [
        (10, 3 * 10**8, [0, 10**8, 2 * 10**8]),  # every 100 ms; the one at 300 ms is outside
        (10, 3 * 10**8 + 1, [0, 10**8, 2 * 10**8, 3 * 10**8]),
        (3, NS_PER_S, [0, 333_333_333, 666_666_667]),  # 666 666 666.67 rounds up; adding 333 333 333 twice would not
        (0.5, 4 * NS_PER_S, [0, 2 * NS_PER_S]),
        (7, 0, []),
    ],
)
def test_constant(rate: float, duration_ns: int, expected: list[int]) -> None:
    assert starts(constant(rate, duration_ns)) == expected


def test_constant_does_not_drift() -> None:
    # 30 000 requests at 3/s: adding up a gap of 333 333 333 ns would be 10 000 ns early by the end.
    drawn = starts(constant(3, 10_000 * NS_PER_S))
    assert len(drawn) == 30_000
    assert drawn[-3] == 9_999 * NS_PER_S


# Random processes

PROCESSES: list[Callable[[np.random.Generator], Schedule]] = [
    partial(poisson, 200.0, 50 * NS_PER_S),
    partial(gamma, 200.0, 50 * NS_PER_S, 0.25),
    partial(gamma, 200.0, 50 * NS_PER_S, 4.0),
]


@pytest.mark.parametrize("process", PROCESSES)
def test_the_same_generator_state_gives_the_same_schedule(process: Callable[[np.random.Generator], Schedule]) -> None:
    assert process(np.random.default_rng(7)) == process(np.random.default_rng(7))
    assert process(np.random.default_rng(7)) != process(np.random.default_rng(8))


@pytest.mark.parametrize(
    ("shape", "variation"),
    [
        (0.25, 2.0),  # 1 / sqrt(shape)
        (1.0, 1.0),
        (4.0, 0.5),
        (100.0, 0.1),
    ],
)
@settings(max_examples=10, deadline=None)
@given(seed=seeds)
def test_gaps_have_the_mean_and_the_variation_of_their_shape(shape: float, variation: float, seed: int) -> None:
    gaps = np.diff(starts(gamma(1000.0, 20 * NS_PER_S, shape, np.random.default_rng(seed))))
    # 20 000 gaps: the mean is uncertain by variation / sqrt(20 000) = 0.7 % of it for each unit of variation.
    assert np.mean(gaps) == pytest.approx(NS_PER_MS, rel=0.04 * variation)
    assert np.std(gaps) / np.mean(gaps) == pytest.approx(variation, rel=0.15)


@property_test
@given(seed=seeds, rate=st.floats(0.1, 500), seconds=st.integers(0, 20))
def test_poisson_keeps_its_mean_rate(seed: int, rate: float, seconds: int) -> None:
    drawn = starts(poisson(rate, seconds * NS_PER_S, np.random.default_rng(seed)))
    mean = rate * seconds
    assert abs(len(drawn) - mean) <= 7 * math.sqrt(mean) + 7
    assert all(0 <= earlier <= later < seconds * NS_PER_S for earlier, later in pairwise(drawn))


@pytest.mark.parametrize(
    ("draw", "says"),
    [
        (lambda rng: constant(0, 1), "a rate must be above 0"),
        (lambda rng: constant(math.nan, 1), "a rate must be above 0"),
        (lambda rng: poisson(math.inf, 1, rng), "a rate must be above 0 and finite"),
        (lambda rng: poisson(1, -1, rng), "a duration must be at least 0"),
        (lambda rng: gamma(1, 1, 0, rng), "a gamma shape must be above 0"),
        (lambda rng: replay([0], speed=0), "speed must be above 0"),
        (lambda rng: replay([1, 0]), "must be in order"),
        (lambda rng: replay([0, 1], [(1, 1)]), "2 times need as many lengths, not 1"),
        (lambda rng: split((), 0), "1 or more senders, not 0"),
    ],
)
def test_what_cannot_be_is_refused(draw: Callable[[np.random.Generator], object], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        draw(np.random.default_rng(0))


# Stages


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("10rps:30s", ((10.0, 30 * NS_PER_S),)),
        ("10rps:30s,50rps:1m", ((10.0, 30 * NS_PER_S), (50.0, 60 * NS_PER_S))),
        (" .5 rps : 1.5s , 0rps:250ms", ((0.5, 1_500_000_000), (0.0, 250_000_000))),
    ],
)
def test_parse_stages(text: str, expected: tuple[tuple[float, int], ...]) -> None:
    assert parse_stages(text) == expected


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "stage 1, '': expected RATErps:DURATION, such as 50rps:30s"),
        ("10rps:30s,", "stage 2, '': expected RATErps:DURATION"),
        ("10:30s", "stage 1, '10:30s': expected RATErps"),
        ("-1rps:30s", "stage 1, '-1rps:30s': expected RATErps"),
        ("1e3rps:30s", "stage 1, '1e3rps:30s': expected RATErps"),
        ("10rps:1s,50rps:30", "stage 2, '50rps:30': '30' is not a duration; write a number and a unit"),
        ("10rps:0s", "stage 1, '10rps:0s': expected a duration above 0"),
    ],
)
def test_a_stage_that_cannot_be_read_says_what_was_expected(text: str, says: str) -> None:
    with pytest.raises(ValueError) as raised:  # noqa: PT011 - the text is compared below
        parse_stages(text)
    assert says in str(raised.value)


def test_stages_follow_each_other() -> None:
    # 2/s for 1 s, a pause of 1 s, 4/s for 0.5 s.
    schedule = stages("2rps:1s,0rps:1s,4rps:500ms", constant)
    assert starts(schedule) == [0, 500_000_000, 2_000_000_000, 2_250_000_000]


def test_random_stages_stay_inside_their_stage() -> None:
    rng = np.random.default_rng(3)
    drawn = starts(stages("100rps:10s,0rps:10s,100rps:10s", lambda rate, duration: poisson(rate, duration, rng)))
    assert len(drawn) == pytest.approx(2000, abs=7 * math.sqrt(2000))
    assert not any(10 * NS_PER_S <= at_ns < 20 * NS_PER_S for at_ns in drawn)
    assert drawn == sorted(drawn)


# Replay


def test_replay_starts_at_0_and_divides_gaps_by_the_speed() -> None:
    lengths = [(100, 20), (None, 5), (7, None)]
    assert replay([1_000, 1_300, 2_001], lengths, speed=2) == (
        Arrival(at_ns=0, input_tokens=100, output_tokens=20),
        Arrival(at_ns=150, output_tokens=5),  # (1300 - 1000) / 2
        Arrival(at_ns=500, input_tokens=7),  # 1001 / 2 = 500.5, half to even
    )


def test_rows_come_in_any_order() -> None:
    assert from_rows([(50, 1, 2), (20, None, 3), (50, 4, 5)]) == (
        Arrival(at_ns=0, output_tokens=3),
        Arrival(at_ns=30, input_tokens=1, output_tokens=2),
        Arrival(at_ns=30, input_tokens=4, output_tokens=5),
    )


def test_nothing_recorded_is_an_empty_schedule() -> None:
    assert replay([]) == from_rows([]) == ()


@property_test
@given(times=instants)
def test_replay_keeps_every_gap(times: list[int]) -> None:
    drawn = starts(from_rows((at_ns, None, None) for at_ns in times))
    assert [b - a for a, b in pairwise(drawn)] == [b - a for a, b in pairwise(sorted(times))]


# Warm-up and senders


def test_warm_up_is_a_marked_prefix() -> None:
    schedule = mark_warm_up(constant(10, NS_PER_S // 2), 200 * NS_PER_MS)
    assert [arrival.warm_up for arrival in schedule] == [True, True, False, False, False]  # 0, 100 | 200, 300, 400 ms
    assert starts(schedule) == starts(constant(10, NS_PER_S // 2))


@property_test
@given(times=instants, senders=st.integers(1, 8))
def test_split_loses_nothing(times: list[int], senders: int) -> None:
    schedule = from_rows((at_ns, place, None) for place, at_ns in enumerate(times))
    parts = split(schedule, senders)
    assert len(parts) == senders
    assert max(map(len, parts)) - min(map(len, parts)) <= 1
    assert all(starts(part) == sorted(starts(part)) for part in parts)
    assert starts(tuple(merge(*parts, key=lambda arrival: arrival.at_ns))) == starts(schedule)
    assert sorted(str(arrival) for part in parts for arrival in part) == sorted(map(str, schedule))
