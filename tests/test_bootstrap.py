"""Replicates by blocks: what they keep, and that their spread is that of the data."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlay.bootstrap import REPLICATES, Blocks, block_length, expanded, interval


def correlated(n: int, rho: float, seed: int = 1) -> np.ndarray:
    """Normal values of mean 0 and spread 1, each leaning on the one before it."""
    values = np.random.default_rng(seed).standard_normal(n)
    for place in range(1, n):
        values[place] = rho * values[place - 1] + np.sqrt(1 - rho * rho) * values[place]
    return values


# Lengths


@pytest.mark.parametrize(
    ("exceeded", "length"),
    [
        (np.zeros(0, dtype=bool), 1),
        (np.array([True]), 1),
        (np.arange(19) > 17, 1),  # a twentieth of 19 is under one
        (np.arange(99) > 97, 4),  # 99^(1/3) = 4.6, a twentieth of 99 is 4
        (np.arange(8000) % 100 == 0, 20),  # 8000^(1/3) = 20, and the slow are as even as can be
    ],
)
def test_length_of_blocks(exceeded, length):
    assert block_length(exceeded) == length


def test_bursts_take_longer_blocks():
    """80 slow of 8000, in 2 bursts of 40: batches of 89 vary far more than independence would let them."""
    bursts = np.arange(8000) % 4000 < 40
    assert block_length(bursts) > 100


# Replicates


@given(st.lists(st.floats(0.5, 20), min_size=1, max_size=60), st.integers(1, 9))
def test_every_replicate_stands_for_as_many_as_there_were(weights, length):
    rows = np.array(weights)
    blocks = Blocks(rows, length, replicates=20)
    for factors in blocks.factors():
        assert factors @ rows == pytest.approx(rows.sum())
        assert factors.min() >= 0


def test_each_row_is_drawn_once_on_average():
    # 500 replicates of about 1 +- 1: their mean is within five times 0.045.
    factors = np.array(list(Blocks(np.ones(2000), 13).factors()))
    assert factors.shape == (REPLICATES, 2000)
    assert abs(factors.mean(axis=0) - 1).max() < 0.25


def test_neighbours_are_drawn_together():
    """Of blocks of 16 drawn at every fourth place, rows 4 apart share 3 in 4 draws, rows 40 apart none."""
    factors = np.array(list(Blocks(np.ones(1600), 16).factors()))
    near = np.mean([np.corrcoef(factors[:, row], factors[:, row + 4])[0, 1] for row in range(0, 1500, 100)])
    far = np.mean([np.corrcoef(factors[:, row], factors[:, row + 40])[0, 1] for row in range(0, 1500, 100)])
    assert near == pytest.approx(3 / 4, abs=0.05)
    assert far == pytest.approx(0, abs=0.05)


@pytest.mark.parametrize("rho", [0.0, 0.8])
def test_the_spread_of_a_mean_is_that_of_correlated_values(rho):
    """The variance of the mean of n such values is (1 + rho) / (1 - rho) / n; blocks of 60 see nearly all of it."""
    n = 6000
    values = correlated(n, rho)
    means = [factors @ values / n for factors in Blocks(np.ones(n), 60).factors()]
    assert np.std(means) == pytest.approx(np.sqrt((1 + rho) / (1 - rho) / n), rel=0.2)


def test_equal_data_draws_equally_and_the_scale_of_weights_does_not_matter():
    weights = np.array([1.0, 2.0, 4.0] * 50)
    once = np.array(list(Blocks(weights, 10).factors()))
    again = np.array(list(Blocks(weights, 10).factors()))
    scaled = np.array(list(Blocks(weights * 8, 80).factors()))
    assert np.array_equal(once, again)
    assert np.array_equal(once, scaled)


def test_blocks_are_not_shorter_than_a_thousandth_of_all():
    """Blocks of 5 of 100,000 become blocks of 100, drawn at places a quarter of that apart."""
    factors = Blocks(np.ones(100_000), 5, replicates=400).drawn(np.array([0, 23, 27]))
    assert np.array_equal(factors[:, 0], factors[:, 1])
    # Three of the four places at which a block with the one row may begin give the other as well.
    assert np.corrcoef(factors[:, 1], factors[:, 2])[0, 1] == pytest.approx(3 / 4, abs=0.1)


def test_sums_by_column_are_those_of_the_factors():
    random = np.random.default_rng(4)
    blocks = Blocks(random.uniform(0.5, 2, 300), 12, replicates=30)
    rows, columns, values = (
        random.integers(0, 300, 900),
        random.integers(0, 5, 900).astype(np.int32),
        random.random(900),
    )
    table = np.zeros((300, 5))
    np.add.at(table, (rows, columns), values)
    expected = np.array([factors @ table for factors in blocks.factors()])
    assert blocks.totals(rows, columns, values, 5) == pytest.approx(expected)


def test_a_few_factors_are_those_of_all():
    blocks = Blocks(np.ones(500), 10, replicates=9)
    everything = np.array(list(blocks.factors()))
    rows, replicates = np.array([7, 3, 499]), np.array([8, 0])
    assert np.array_equal(blocks.drawn(rows), everything[:, rows])
    assert np.array_equal(blocks.drawn(rows, replicates), everything[replicates][:, rows])
    assert np.array_equal(np.array(list(blocks.factors(rows))), everything[:, rows])


def test_no_rows_have_no_factors():
    assert [factors.size for factors in Blocks(np.zeros(0), 1, replicates=3).factors()] == [0, 0, 0]


# Intervals


def test_an_interval_is_the_middle_of_the_replicates():
    # 2.5 % of 1000 lie outside at either end: the 26th from below and from above.
    shuffled = np.random.default_rng(2).permutation(np.arange(1.0, 1001.0))
    assert interval(shuffled) == (26, 975)
    assert interval(np.array([1.0, np.inf, 2.0]), 0.95) == (1.0, np.inf)


@pytest.mark.parametrize(
    ("n", "confidence"),
    [
        # Student's t of 9 degrees is 2.262 at 97.5 %; times the root of 10 / 9 it is 2.384, beyond which the normal
        # distribution has 0.856 % on either side.
        (10, 1 - 2 * 0.00856),
        # 4.303 times the root of 3 / 2 is 5.270.
        (3, 1 - 1.37e-7),
        (0.5, 1 - 1.37e-7),
        (1e9, 0.95),
    ],
)
def test_few_values_ask_for_a_wider_interval(n, confidence):
    assert expanded(n) == pytest.approx(confidence, abs=2e-5)


def test_an_expanded_interval_of_a_mean_covers_it():
    """Of 400 samples of 10 normal values each, plain 95 % percentiles would miss the mean in 11 %."""
    random = np.random.default_rng(6)
    draws = random.multinomial(10, np.full(10, 0.1), size=500)
    hits = 0
    for sample in random.standard_normal((400, 10)):
        low, high = interval(draws @ sample / 10, expanded(10))
        hits += low <= 0 <= high
    # 380 are expected; 20 aside are 4.6 of their spread.
    assert 360 <= hits <= 396
