"""What makes forecasts: the token-work model by hand, and learning against the truth it should find."""

import numpy as np
import pytest
from scipy.stats import norm

from outlay.forecaster import MEASURES, Forecaster, Learning
from outlay.signals import Signals
from outlay.units import NS_PER_MS, NS_PER_S
from outlay.work import ColdStart, Fleet, Request, Service, Target

MS, S = NS_PER_MS, NS_PER_S
SERVICE = Service(
    prefill_tokens_per_s=10_000,
    step_ns=30 * MS,
    step_slope_ns=MS,
    overhead_ns=10 * MS,
    max_batch=4,
    kv_penalty_ns=100 * MS,
)
COLD = ColdStart(start_ns=(2 * S, 4 * S), keep_ns=60 * S)
FLEET = Fleet(
    [
        Target(name="a", site="lon", variant="large", service=SERVICE),
        Target(name="b", site="ams", variant="large", service=SERVICE),
        Target(name="cold", site="lon", variant="large", service=SERVICE, cold=COLD),
    ]
)
REQUEST = Request(id="r", moment="voice", path="uk", input_tokens=1000, output_tokens=50, useful_tokens=6)
USABLE = np.ones(3, dtype=np.bool_)
PRIOR = {("uk", "lon"): 20 * MS, ("uk", "ams"): 40 * MS}


def made(learning: Learning | None = None) -> tuple[Signals, Forecaster]:
    signals = Signals(FLEET)
    for target in range(3):
        signals.reported(target, {"waiting": 0, "running": 0, "cache": 0}, 0, "scrape")
    return signals, Forecaster(
        signals, prior_rtt_ns=PRIOR, learning=learning or Learning(), typical_tokens=(500.0, 100.0)
    )


def test_an_idle_server_takes_the_prompt_and_a_step_for_each_further_token() -> None:
    _, forecaster = made()
    found = forecaster.forecasts(REQUEST, 0, USABLE)
    # 10 ms + 1,000 tokens at 10,000 a second + 5 steps of 30 ms.
    assert found.service_ns[0] == pytest.approx(260 * MS)
    assert (found.wait_ns[0], found.load[0]) == (0.0, 0)


def test_own_work_is_waited_for_without_any_report() -> None:
    signals, forecaster = made()
    signals.sent("x", 0, 2000.0, 100.0, 0)
    found = forecaster.forecasts(REQUEST, 0, USABLE)
    # 10 ms and 2,000 tokens ahead; the batch of two steps in 31 ms.
    assert found.wait_ns[0] == pytest.approx(210 * MS)
    assert found.service_ns[0] == pytest.approx((210 + 110 + 5 * 31) * MS)
    assert found.wait_ns[1] == 0.0


def test_missing_slots_cost_what_a_slot_takes_and_the_longer_wait_counts() -> None:
    signals, forecaster = made()
    for number in range(6):
        signals.sent(f"x{number}", 0, 0.0, 100.0, 0)
        signals.answering(f"x{number}", 0)
    # Six run and one comes where four fit: three slots short, of 100 tokens x 33 ms / 4 each.
    assert forecaster.forecasts(REQUEST, 0, USABLE).wait_ns[0] == pytest.approx(3 * 100 * 33 * MS / 4)


def test_a_full_cache_costs_its_penalty() -> None:
    signals, forecaster = made()
    signals.reported(0, {"waiting": 0, "running": 0, "cache": 0.5}, 1, "scrape")
    # 100 ms x 0.5 / (1 - 0.5).
    assert forecaster.forecasts(REQUEST, 1, USABLE).wait_ns[0] == pytest.approx(100 * MS)


def test_only_others_work_grows_uncertain_with_age_and_never_reported_is_wider() -> None:
    signals, forecaster = made()
    signals.sent("x", 0, 4000.0, 100.0, 0)
    signals.reported(1, {"waiting": 8, "running": 0, "cache": 0}, 1, "scrape")
    found = forecaster.forecasts(REQUEST, 100 * MS, USABLE)
    assert found.spread[0] == pytest.approx(1.0)
    assert found.spread[1] > 1.05
    unknown = Forecaster(Signals(FLEET), prior_rtt_ns=PRIOR).forecasts(REQUEST, 0, USABLE)
    assert unknown.spread[0] > 2


@pytest.mark.parametrize(("shift", "octaves"), [(0.0, 0.15), (1.0, 0.3), (-0.7, 0.6)])
def test_what_predictions_were_worth_becomes_the_next_ones_distribution(shift: float, octaves: float) -> None:
    _, forecaster = made(Learning(half_life_ns=10_000 * S))
    expected = forecaster.forecasts(REQUEST, 0, USABLE).expectation(0)
    random = np.random.default_rng(3)
    for draw in random.normal(shift, octaves, 2000):
        forecaster.learn(expected, expected.service_ns * 2**draw, 0)
    found = forecaster.forecasts(REQUEST, 0, USABLE)
    for level in (0.1, 0.5, 0.9, 0.99):
        within_ns = 20 * MS + expected.service_ns * 2 ** norm.ppf(level, shift, octaves)
        assert found.p_within(within_ns)[0] == pytest.approx(level, abs=0.05)
    assert found.calibrated[0]


def test_what_nobody_saw_leans_on_its_siblings() -> None:
    _, forecaster = made()
    expected = forecaster.forecasts(REQUEST, 0, USABLE).expectation(0)
    before = forecaster.forecasts(REQUEST, 0, USABLE).middle_ns[1]
    for _ in range(300):
        forecaster.learn(expected, 2 * expected.service_ns, 0)
    after = forecaster.forecasts(REQUEST, 0, USABLE)
    assert after.middle_ns[1] > before + 0.5 * expected.service_ns
    assert not after.calibrated[1] or after.row[1] != after.row[0]


def test_a_bad_spell_of_an_avoided_target_is_forgotten() -> None:
    _, forecaster = made()
    expected = forecaster.forecasts(REQUEST, 0, USABLE).expectation(0)
    for number in range(200):
        forecaster.learn(expected, 6 * expected.service_ns, number * MS)
    bad = forecaster.forecasts(REQUEST, S, USABLE).p_within(500 * MS)[0]
    later = forecaster.forecasts(REQUEST, 1200 * S, USABLE).p_within(500 * MS)[0]
    assert bad < 0.1
    assert later > 0.4


def test_failures_weigh_at_once_and_fade_within_a_minute() -> None:
    _, forecaster = made()
    assert forecaster.forecasts(REQUEST, 0, USABLE).failure[0] == pytest.approx(0.001)
    forecaster.failed(0, 0)
    forecaster.failed(0, 0)
    found = forecaster.forecasts(REQUEST, 0, USABLE)
    assert found.failure[0] > 0.6
    assert found.failure[1] == pytest.approx(0.001)
    assert forecaster.forecasts(REQUEST, 60 * S, USABLE).failure[0] < 0.02


def test_observations_cut_short_say_only_that_the_truth_is_longer() -> None:
    """A third is given up at random: the distribution found is the one that made them."""
    _, forecaster = made(Learning(half_life_ns=10_000 * S))
    expected = forecaster.forecasts(REQUEST, 0, USABLE).expectation(0)
    random = np.random.default_rng(4)
    for truth, limit in zip(random.normal(0, 0.5, 3000), random.normal(0.4, 0.5, 3000), strict=True):
        if truth <= limit:
            forecaster.learn(expected, expected.service_ns * 2**truth, 0)
        else:
            forecaster.learn_cut(expected, expected.service_ns * 2**limit, 0)
    found = forecaster.forecasts(REQUEST, 0, USABLE)
    for level in (0.25, 0.5, 0.9):
        within_ns = 20 * MS + expected.service_ns * 2 ** norm.ppf(level, 0, 0.5)
        assert found.p_within(within_ns)[0] == pytest.approx(level, abs=0.06)


def test_another_event_is_refused() -> None:
    _, forecaster = made()
    expected = forecaster.forecasts(REQUEST, 0, USABLE).expectation(0)
    for learn in (forecaster.learn, forecaster.learn_cut):
        with pytest.raises(ValueError, match="cannot be learned from"):
            learn(expected, 1.0, 0, measures="end to end")
    assert "first useful output" in MEASURES


def test_how_likely_a_cold_start_is_follows_the_time_without_work() -> None:
    signals, forecaster = made()
    assert forecaster.forecasts(REQUEST, 0, USABLE).cold[2] == 0.5, "never used: unknown"
    signals.sent("x", 2, 10.0, 10.0, 0)
    assert forecaster.forecasts(REQUEST, 0, USABLE).cold[2] == 0.0
    signals.ended("x", S)
    assert forecaster.forecasts(REQUEST, 30 * S, USABLE).cold[2] == 0.0
    assert forecaster.forecasts(REQUEST, 61 * S, USABLE).cold[2] == pytest.approx(0.5)
    assert forecaster.forecasts(REQUEST, 100 * S, USABLE).cold[2] == 1.0
    assert forecaster.forecasts(REQUEST, 0, USABLE).cold[0] == 0.0


def test_a_start_under_way_gets_shorter_as_it_goes_on() -> None:
    _, forecaster = made()
    forecaster.starting(2, 0)
    assert forecaster.forecasts(REQUEST, 0, USABLE).cold_ns[2].tolist() == [2 * S, 4 * S]
    assert forecaster.forecasts(REQUEST, 1 * S, USABLE).cold_ns[2].tolist() == [1 * S, 3 * S]
    # After 3 s it is not the one that takes 2 s.
    assert forecaster.forecasts(REQUEST, 3 * S, USABLE).cold_ns[2].tolist() == [1 * S]
    forecaster.warm(2)
    assert forecaster.forecasts(REQUEST, 3 * S, USABLE).cold[2] < 1.0


def test_a_path_is_what_was_declared_until_it_was_seen_and_then_what_was_seen() -> None:
    _, forecaster = made()
    assert forecaster.forecasts(REQUEST, 0, USABLE).network_ns[0].min() == pytest.approx(20 * MS, rel=0.01)
    for number in range(300):
        forecaster.network("uk", "lon", 70 * MS, number * MS)
    found = forecaster.forecasts(REQUEST, 300 * MS, USABLE)
    assert np.median(found.network_ns[0]) == pytest.approx(70 * MS, rel=0.05)
    aged = forecaster.forecasts(REQUEST, 100 * S, USABLE)
    assert np.ptp(aged.network_ns[0]) >= np.ptp(found.network_ns[0])


def test_a_path_that_nobody_named_or_saw_is_unknown() -> None:
    forecaster = Forecaster(Signals(FLEET), prior_rtt_ns={("uk", "lon"): 20 * MS})
    found = forecaster.forecasts(REQUEST, 0, USABLE)
    assert np.isnan(found.network_ns[1]).all()
    assert found.p_within(60 * S)[1] == 0.0


def test_a_payload_adds_its_bytes_and_the_round_trips_of_a_slow_start() -> None:
    _, forecaster = made()
    plain = forecaster.forecasts(REQUEST, 0, USABLE)
    forecaster.throughput("uk", 1_000_000.0)
    heavy = Request(
        id="r", moment="voice", path="uk", input_tokens=1000, output_tokens=50, useful_tokens=6, payload_bytes=100_352
    )
    found = forecaster.forecasts(heavy, 0, USABLE)
    middle_ns = plain.network_ns[0][len(plain.network_ns[0]) // 3]
    # 100,352 bytes at a megabyte a second, and log2(1 + 7) = 3 round trips.
    assert found.network_ns[0][0] - plain.network_ns[0][0] == pytest.approx(100.352 * MS + 3 * middle_ns, rel=1e-6)


def test_promises_that_are_broken_make_the_next_ones_smaller() -> None:
    _, forecaster = made()
    before = forecaster.forecasts(REQUEST, 0, USABLE)
    plain = np.array([0.5, 0.9, 0.97])
    assert (before.judged(plain) == plain).all()
    random = np.random.default_rng(5)
    for number in range(4000):
        # Claimed 0.97, kept 0.9.
        forecaster.kept(before.expectation(0), 0.97, bool(random.random() < 0.9), number * MS)
    judged = forecaster.forecasts(REQUEST, 4 * S, USABLE).judged(plain)
    assert judged[2] == pytest.approx(0.9, abs=0.03)
    assert (np.diff(judged) >= -1e-12).all(), "a better chance is never a worse promise"


def test_everything_known_of_a_target_and_of_a_path_can_be_looked_at_with_its_age_and_source() -> None:
    signals, forecaster = made()
    signals.sent("x", 0, 100.0, 10.0, 0)
    forecaster.failed(0, 0)
    found = forecaster.of(0, 2 * S)
    assert {"own_waiting", "waiting", "failure"} <= found.keys()
    assert found["failure"].value > 0.3
    assert (found["failure"].age_ns, found["waiting"].source) == (2 * S, "scrape")
    assert "cold" not in found
    assert forecaster.of(2, 0)["cold"].value == 0.5
    declared = forecaster.path_of("uk", "lon", 0)
    assert declared is not None
    assert declared.source == "declared"
    for number in range(200):
        forecaster.network("uk", "lon", (70 if number % 2 else 50) * MS, number)
    measured = forecaster.path_of("uk", "lon", 3 * S)
    assert measured is not None
    assert (measured.source, measured.age_ns) == ("measured", 3 * S - 199)
    assert measured.sigma == pytest.approx(10 * MS, rel=0.5)
    assert forecaster.path_of("uk", "atlantis", 0) is None
