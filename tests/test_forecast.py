"""Forecasts against the truth that made them: simulated sums, hand-made tables, and what must always hold."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outlay.decaying import LEVELS, WEIGHTS
from outlay.forecast import BUCKETS, CLAIMS, EDGES, PLAIN, Forecasts, promised
from outlay.units import NS_PER_MS, NS_PER_S
from outlay.work import Fleet, Service, Target

MS, S = NS_PER_MS, NS_PER_S
SERVICE = Service(prefill_tokens_per_s=10_000, step_ns=30 * MS)
FLEET = Fleet(Target(name=name, site=name, variant="large", service=SERVICE) for name in ("a", "b"))


def table(octaves: float) -> np.ndarray:
    """A row: the distribution of a log-normal factor of this spread, in doublings, with median 1."""
    from scipy.stats import norm

    row = norm.cdf(EDGES, 0, octaves)
    return (row - row[0]) / (row[-1] - row[0])


def forecasts(
    network_ns: np.ndarray | None = None,
    service_ms: float = 300,
    octaves: float = 0.5,
    *,
    spread: float = 1.0,
    failure: float = 0.0,
    cold: float = 0.0,
    starts_ns: tuple[float, ...] = (),
    late: np.ndarray | None = None,
) -> Forecasts:
    network = np.full(len(LEVELS), 50.0 * MS) if network_ns is None else network_ns
    return Forecasts(
        fleet=FLEET,
        moment="voice",
        network_ns=np.stack([network, np.full(len(LEVELS), np.nan)]),
        service_ns=np.array([service_ms * MS, service_ms * MS]),
        step_ns=np.array([30.0 * MS, 30.0 * MS]),
        useful_tokens=10,
        wait_ns=np.zeros(2),
        cdf=table(octaves)[None],
        middle=np.zeros(1),
        row=np.zeros(2, dtype=np.intp),
        load=np.zeros(2, dtype=np.intp),
        spread=np.array([spread, spread]),
        cold=np.array([cold, 0.0]),
        cold_ns={0: np.array(starts_ns)} if starts_ns else {},
        failure=np.array([failure, 0.0]),
        usable=np.ones(2, dtype=np.bool_),
        calibrated=np.ones(2, dtype=np.bool_),
        late=late,
    )


def lognormal_points(median_ns: float, sigma: float) -> np.ndarray:
    from scipy.stats import norm

    return median_ns * np.exp(sigma * norm.ppf(LEVELS))


@pytest.mark.parametrize("within_ms", [250, 350, 450, 600, 900])
def test_network_and_service_are_added_as_distributions(within_ms: float) -> None:
    made = forecasts(lognormal_points(80 * MS, 0.6))
    random = np.random.default_rng(1)
    drawn = 80 * np.exp(0.6 * random.normal(size=200_000)) + 300 * 2 ** (0.5 * random.normal(size=200_000))
    assert made.p_within(within_ms * MS)[0] == pytest.approx((drawn <= within_ms).mean(), abs=0.012)


def test_the_tail_of_a_sum_is_shorter_than_the_sum_of_two_tails() -> None:
    made = forecasts(lognormal_points(80 * MS, 0.6))
    random = np.random.default_rng(2)
    network = 80 * np.exp(0.6 * random.normal(size=200_000))
    service = 300 * 2 ** (0.5 * random.normal(size=200_000))
    (curve,) = made.curves([0])
    assert curve.quantile_ns(0.99) / MS == pytest.approx(np.quantile(network + service, 0.99), rel=0.04)
    assert curve.quantile_ns(0.99) / MS < 0.97 * (np.quantile(network, 0.99) + np.quantile(service, 0.99))


def test_a_curve_says_what_the_forecast_says_and_its_quantiles_lead_back() -> None:
    made = forecasts(lognormal_points(80 * MS, 0.6))
    (curve,) = made.curves([0])
    for within_ms in (250, 400, 700):
        assert curve.within(within_ms * MS) == pytest.approx(made.p_within(within_ms * MS)[0], abs=0.02)
    for level in (0.1, 0.5, 0.95):
        assert curve.within(curve.quantile_ns(level)) == pytest.approx(level, abs=1e-6)


def test_a_cold_start_is_a_mass_of_its_own() -> None:
    made = forecasts(cold=0.25, starts_ns=(2 * S, 3 * S))
    warm = forecasts()
    # Within 1.5 s only the warm ones come; within 2.6 s half of the cold ones too, at 2 s + 50 ms + about 300 ms.
    assert made.p_within(1.5 * S)[0] == pytest.approx(0.75 * warm.p_within(1.5 * S)[0], abs=1e-9)
    assert made.p_within(2.7 * S)[0] == pytest.approx(0.75 + 0.25 / 2, abs=0.02)


def test_failure_never_arrives_and_the_time_to_wait_for_an_answer_is_of_those_that_come() -> None:
    made = forecasts(failure=0.2)
    assert made.p_within(60 * S)[0] == pytest.approx(0.8, abs=1e-6)
    (failing,), (sound,) = made.curves([0]), forecasts().curves([0])
    assert failing.quantile_ns(0.95) == sound.quantile_ns(0.95)
    assert failing.within(60 * S) == pytest.approx(0.8, abs=1e-3)


def test_age_widens_about_the_median_and_leaves_it_where_it_is() -> None:
    narrow, wide = forecasts(spread=1.0), forecasts(spread=3.0)
    assert narrow.p_within(350 * MS)[0] == pytest.approx(0.5, abs=0.02)
    assert wide.p_within(350 * MS)[0] == pytest.approx(0.5, abs=0.02)
    assert wide.p_within(600 * MS)[0] < narrow.p_within(600 * MS)[0]
    assert wide.p_within(200 * MS)[0] > narrow.p_within(200 * MS)[0]


def test_nothing_known_of_a_path_is_no_chance_and_no_time() -> None:
    made = forecasts()
    assert made.p_within(60 * S)[1] == 0.0
    assert made.middle_ns[1] == np.inf


def test_a_shorter_answer_saves_its_steps_and_a_longer_one_changes_nothing() -> None:
    made = forecasts()
    assert (made.shorter(4).service_ns == made.service_ns - 6 * 30 * MS).all()
    assert (made.shorter(20).service_ns == made.service_ns).all()


def test_promises_are_moved_by_what_became_of_earlier_ones() -> None:
    # Twice the odds of being late, everywhere: 0.9 becomes 0.9 / (0.9 + 2 x 0.1).
    doubled = promised(np.full(len(CLAIMS), np.log(2.0)))
    made = forecasts(late=np.concatenate([doubled, PLAIN, PLAIN]))
    assert made.judged(np.array([0.9, 0.5])) == pytest.approx([0.9 / 1.1, 1 / 3], abs=1e-3)
    assert made.judged(np.array([0.0, 1.0])) == pytest.approx([0.0, 1.0], abs=1e-6)
    waiting = replace(made, load=np.array([1, 2]))
    assert waiting.judged(np.array([0.9, 0.5])) == pytest.approx([0.9, 0.5], abs=1e-3), "its own class is as it was"
    assert (forecasts().judged(np.array([0.9, 0.5])) == [0.9, 0.5]).all()


@settings(max_examples=60, deadline=None)
@given(
    st.floats(1, 2000), st.floats(0.05, 1.5), st.floats(1, 4), st.floats(0, 1), st.floats(0, 1),
    st.lists(st.floats(-100, 5000), min_size=2, max_size=12),
)  # fmt: skip
def test_probabilities_are_probabilities_and_grow_with_time(
    service_ms: float, octaves: float, spread: float, failure: float, cold: float, times_ms: list[float]
) -> None:
    made = forecasts(
        lognormal_points(40 * MS, 0.5),
        service_ms,
        octaves,
        spread=spread,
        failure=failure,
        cold=cold,
        starts_ns=(1.0 * S, 2.0 * S),
    )
    p = [made.p_within(time_ms * MS)[0] for time_ms in sorted(times_ms)]
    assert all(0 <= each <= 1 + 1e-12 for each in p)
    assert all(later >= earlier - 1e-9 for earlier, later in pairwise(p))
    assert WEIGHTS.sum() == pytest.approx(1.0)
    assert len(EDGES) == BUCKETS + 1


@settings(max_examples=40, deadline=None)
@given(st.floats(5, 2000), st.floats(0.05, 1.2), st.floats(1, 3), st.sampled_from([0.5, 0.9, 0.95, 0.98]))
def test_a_bound_is_never_less_than_the_quantile(
    service_ms: float, octaves: float, spread: float, level: float
) -> None:
    made = forecasts(lognormal_points(60 * MS, 0.5), service_ms, octaves, spread=spread)
    assert made.p_within(made.bound_ns(0, level))[0] >= level - 0.005
