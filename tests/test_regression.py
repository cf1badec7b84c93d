"""Quantile regression against a linear program solver, and the laws that any answer must keep."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from outlay.accounts import Floats
from outlay.regression import quantile_regression


def cost(coefficients: Floats, x: Floats, y: Floats, weights: Floats, q: float) -> float:
    residuals = y - coefficients[0] - x @ coefficients[1:]
    return float(weights @ np.where(residuals < 0, (q - 1) * residuals, q * residuals))


def solved(x: Floats, y: Floats, weights: Floats, q: float) -> tuple[Floats, float]:
    """By HiGHS: coefficients are free, each residual is the difference of two numbers above 0."""
    n, columns = x.shape
    each = np.eye(n)
    answer = linprog(
        np.concatenate((np.zeros(columns + 1), q * weights, (1 - q) * weights)),
        A_eq=np.hstack((np.ones((n, 1)), x, each, -each)),
        b_eq=y,
        bounds=[(None, None)] * (columns + 1) + [(0, None)] * (2 * n),
        method="highs",
    )
    return answer.x[: columns + 1], answer.fun


def scale_of(y: Floats) -> float:
    return float(np.abs(y - np.median(y)).mean())


@pytest.mark.parametrize("q", [0.5, 0.9, 0.95, 0.99])
@pytest.mark.parametrize("seed", range(6))
def test_coefficients_are_those_of_a_linear_program_solver(seed: int, q: float) -> None:
    random = np.random.default_rng(seed)
    n, columns = int(random.integers(20, 120)), int(random.integers(1, 5))
    x, weights = random.standard_normal((n, columns)), random.exponential(1, n)
    y = 1e9 * (x @ random.standard_normal(columns) + random.standard_t(2, n))
    expected, _ = solved(x, y, weights, q)
    # No two answers are equally good: the weights are no fractions of each other.
    assert quantile_regression(x, y, weights, q) == pytest.approx(expected, abs=1e-6 * scale_of(y))


@settings(max_examples=40)
@given(st.integers(0, 2**32), st.sampled_from([0.5, 0.9, 0.99]))
def test_no_answer_costs_less_where_many_are_equally_good(seed: int, q: float) -> None:
    random = np.random.default_rng(seed)
    n = int(random.integers(10, 80))
    x, y = random.integers(0, 4, (n, 2)).astype(float), random.integers(0, 5, n).astype(float)
    weights = random.integers(0, 3, n) + (np.arange(n) < 5)
    _, least = solved(x, y, weights.astype(float), q)
    found = quantile_regression(x, y, weights.astype(float), q)
    assert cost(found, x, y, weights, q) == pytest.approx(least, abs=1e-6 * n)


@pytest.mark.parametrize("q", [0.5, 0.99])
@pytest.mark.parametrize("bursts", [1, 100])
def test_many_sets_of_weights_are_answered_as_each_alone(q: float, bursts: int) -> None:
    random = np.random.default_rng(9)
    x = np.exp(random.standard_normal((2000, 3)))
    y = x @ [3.0, 0.0, 1.0] + random.standard_t(2, 2000)
    # Whole stretches that count twice or not at all move some answers far away from the others.
    sets = np.repeat(random.poisson(1, (40, 2000 // bursts)), bursts, axis=1).astype(float)
    together = quantile_regression(x, y, sets, q)
    alone = np.array([quantile_regression(x, y, weights, q) for weights in sets[:8]])
    assert together.shape == (40, 4)
    for several, one, weights in zip(together, alone, sets, strict=False):
        assert cost(several, x, y, weights, q) == pytest.approx(cost(one, x, y, weights, q), rel=1e-6)


def test_the_share_above_is_what_the_level_says() -> None:
    random = np.random.default_rng(10)
    x, y = random.standard_normal((3000, 2)), random.lognormal(0, 2, 3000)
    found = quantile_regression(x, y, np.ones(3000), 0.95)
    above = y > found[0] + x @ found[1:]
    # Of 3000 rows 150, but for the 3 that the plane goes through.
    assert abs(int(above.sum()) - 150) <= 3


@given(st.floats(-1e6, 1e6), st.floats(1e-3, 1e6), st.floats(-1e3, 1e3))
def test_answers_follow_shifts_and_scales(shift: float, factor: float, tilt: float) -> None:
    random = np.random.default_rng(11)
    x, y, weights = random.standard_normal((60, 2)), random.exponential(1, 60), random.exponential(1, 60)
    before = quantile_regression(x, y, weights, 0.9)
    after = quantile_regression(x, shift + factor * (y + tilt * x[:, 0]), weights, 0.9)
    expected = factor * (before + np.array([0, tilt, 0])) + np.array([shift, 0, 0])
    assert after == pytest.approx(expected, abs=1e-5 * factor * (1 + abs(tilt)) + 1e-9 * abs(shift))


def test_how_far_above_a_row_lies_does_not_matter() -> None:
    random = np.random.default_rng(12)
    x, y = random.standard_normal((200, 1)), random.standard_normal(200)
    found = quantile_regression(x, y, np.ones(200), 0.9)
    further = np.where(y > found[0] + x[:, 0] * found[1] + 1e-3, y + 1e4 * np.arange(200), y)
    assert quantile_regression(x, further, np.ones(200), 0.9) == pytest.approx(found, abs=1e-2)
    assert cost(quantile_regression(x, further, np.ones(200), 0.9), x, further, np.ones(200), 0.9) == pytest.approx(
        cost(found, x, further, np.ones(200), 0.9)
    )


def test_a_constant_column_has_no_part_in_the_answer() -> None:
    x = np.column_stack((np.arange(50.0), np.full(50, 7.0)))
    assert quantile_regression(x, 5 + 2 * x[:, 0], np.ones(50), 0.5) == pytest.approx([5, 2, 0], abs=1e-6)


@pytest.mark.parametrize("q", [0.0, 1.0, -0.1, float("nan")])
def test_a_level_outside_0_to_1_is_refused(q: float) -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        quantile_regression(np.zeros((3, 1)), np.zeros(3), np.ones(3), q)
