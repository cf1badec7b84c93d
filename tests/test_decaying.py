"""A histogram that forgets, against exact weights."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outlay.decaying import LEVELS, WEIGHTS, DecayingHistogram

S = 1_000_000_000


def histogram() -> DecayingHistogram:
    return DecayingHistogram(low=0, high=20, half_life_ns=10 * S)


def test_what_was_seen_half_a_life_ago_counts_half() -> None:
    made = histogram()
    made.add(100.0, 0)
    made.add(100.0, 10 * S)
    assert made.count(10 * S) == pytest.approx(1.5)
    assert made.count(30 * S) == pytest.approx(1.5 / 4)


def test_instants_may_come_out_of_order() -> None:
    forth, back = histogram(), histogram()
    for at_ns in (0, 5 * S, 20 * S):
        forth.add(50.0, at_ns)
    for at_ns in (20 * S, 0, 5 * S):
        back.add(50.0, at_ns)
    assert forth.count(20 * S) == pytest.approx(back.count(20 * S))
    assert back.at_ns == 20 * S


def test_nothing_overflows_after_thousands_of_half_lives() -> None:
    made = histogram()
    made.add(10.0, 0)
    made.add(1000.0, 50_000 * S)
    assert made.count(50_000 * S) == pytest.approx(1.0)
    assert made.quantiles(np.array([0.5]))[0] == pytest.approx(1000, rel=0.05)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(2, 500_000), min_size=30, max_size=300))
def test_quantiles_are_within_a_bucket_of_the_true_ones(values: list[float]) -> None:
    made = histogram()
    for value in values:
        made.add(value, 0)
    for level in (0.1, 0.5, 0.9):
        found = made.quantiles(np.array([level]))[0]
        # Between the neighbours of the rank, half a percent of rounding and one bucket of 4.4 % aside.
        low, high = np.quantile(values, [max(level - 1 / len(values), 0), min(level + 1 / len(values), 1)])
        assert low / 1.05 <= found <= high * 1.05


def test_values_outside_go_to_the_ends() -> None:
    made = histogram()
    made.add(1e-6, 0)
    made.add(1e12, 0)
    low, high = made.quantiles(np.array([0.25, 0.75]))
    assert low < 2
    assert high > 2**19


@pytest.mark.parametrize("value", [0.0, -1.0, float("nan"), float("inf")])
def test_what_is_no_positive_value_is_refused(value: float) -> None:
    with pytest.raises(ValueError, match="not a positive"):
        histogram().add(value, 0)


def test_an_empty_one_counts_nothing_and_has_no_quantiles() -> None:
    assert histogram().count(0) == 0.0
    with pytest.raises(ValueError, match="empty"):
        histogram().quantiles(LEVELS)


def test_strata_cover_everything_once() -> None:
    assert WEIGHTS.sum() == pytest.approx(1.0)
    assert (np.diff(LEVELS) > 0).all()
    assert LEVELS[-1] > 0.999
