"""Plans small enough to be solved by hand or by trying everything, and what must hold of any."""

import itertools
import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outlay.placement import (
    KEEP,
    REVERT,
    WAIT,
    Demand,
    Offer,
    Plan,
    Shares,
    Trial,
    make_plan,
    nines,
    predicted_ns,
    said,
    seconds_of,
    sessions_curve,
    site_gain,
    verify,
    warm_pool,
)  # fmt: skip
from outlay.units import NS_PER_MS, NS_PER_S
from outlay.work import Service

MS, S = NS_PER_MS, NS_PER_S
# One at a time, no overhead: 1,000 prompt tokens are 100 ms, ten further tokens 100 ms.
PLAIN = Service(prefill_tokens_per_s=10_000, step_ns=10 * MS, max_batch=1)
DEMAND = Demand(
    region="uk", moment="voice", rate_per_s=6.0, input_tokens=1000, output_tokens=10, useful_tokens=1,
    limit_ns=2 * S, percentile=95, network_ns={"lon": 10 * MS, "us": 80 * MS},
)  # fmt: skip
LON = Offer(site="lon", variant="v", hardware="h", service=PLAIN, price_per_s=2.0)
US = replace(LON, site="us", price_per_s=1.0)


def test_a_request_takes_its_prompt_and_its_share_of_the_steps() -> None:
    assert seconds_of(DEMAND, PLAIN, 0.7) == pytest.approx(0.2)
    # A batch of 14 at level 0.7 of 20, stepping in 10 + 13 ms: 100 ms + 10 x 23 / 14 ms.
    batching = replace(PLAIN, max_batch=20, step_slope_ns=MS)
    assert seconds_of(DEMAND, batching, 0.7) == pytest.approx(0.1 + 10 * 0.023 / 14)


def test_the_wait_has_an_exponential_tail() -> None:
    # Prompts fill 0.7 x 100 / 200 = 0.35 of the time: E[W] = 0.35 x 100 / 0.65 ms, P(W > t) = 0.35 exp(-0.35 t / E[W]).
    mean_ms = 0.35 * 100 / 0.65
    wait_ms = mean_ms / 0.35 * math.log(0.35 / 0.05)
    assert predicted_ns(DEMAND, PLAIN, 0.7) / MS == pytest.approx(wait_ms + 10 + 100)


def test_the_cheaper_site_is_taken_while_the_budget_lasts_and_the_nearer_one_when_it_does_not() -> None:
    # 6 a second take 1.2 servers; at most 0.85 busy, two servers.
    cheap = make_plan([DEMAND], [LON, US])
    assert {each.offer.site for each in cheap.servers} == {"us"}
    assert sum(each.count for each in cheap.servers) == 2
    assert cheap.price_per_s == 2.0
    tight = replace(DEMAND, limit_ns=int(predicted_ns(DEMAND, PLAIN, 0.3)) + 20 * MS)
    near = make_plan([tight], [LON, US])
    assert {each.offer.site for each in near.servers} == {"lon"}
    assert all(flow.predicted_ns <= tight.limit_ns for flow in near.flows)


def test_what_cannot_be_served_is_said_with_how_much_is_missing() -> None:
    hopeless = replace(DEMAND, limit_ns=50 * MS)
    (shortfall,) = make_plan([hopeless], [LON]).shortfalls
    assert shortfall.missing_ns == pytest.approx(10 * MS + predicted_ns(DEMAND, PLAIN, 0.3) - 50 * MS)
    assert "too slow" in said(shortfall)


def test_a_pair_without_a_path_is_unknown_and_not_free() -> None:
    lost = replace(DEMAND, network_ns={})
    plan = make_plan([lost], [LON])
    assert plan.unknown == (("uk", "lon"),)
    assert math.isinf(plan.shortfalls[0].missing_ns)
    assert "no path" in said(plan.shortfalls[0])


def test_quality_that_is_asked_for_is_kept_and_sites_have_their_most() -> None:
    poor = replace(US, quality=0.5)
    assert {each.offer.site for each in make_plan([replace(DEMAND, least_quality=0.9)], [LON, poor]).servers} == {"lon"}
    limited = make_plan([DEMAND], [LON, replace(US, most=1)])
    assert {each.offer.site: each.count for each in limited.servers} == {"us": 1, "lon": 1}


def cost_by_trying_everything(demand: Demand, offers: list[Offer], levels: tuple[float, ...]) -> float:
    """The least price of any counts up to four of each offer and level that bear the demand."""
    pools = [
        (offer, level)
        for offer in offers
        for level in levels
        if demand.network_ns[offer.site] + predicted_ns(demand, offer.service, level) <= demand.limit_ns
    ]
    costs = [
        sum(count * offer.price_per_s for count, (offer, _) in zip(counts, pools, strict=True))
        for counts in itertools.product(range(5), repeat=len(pools))
        if sum(
            count * level / seconds_of(demand, offer.service, level)
            for count, (offer, level) in zip(counts, pools, strict=True)
        )
        >= demand.rate_per_s - 1e-9
    ]
    return min(costs, default=math.inf)


@settings(max_examples=25, deadline=None)
@given(st.floats(0.5, 9), st.integers(200, 2500), st.floats(0.5, 5), st.floats(0.5, 5))
def test_no_other_plan_is_cheaper(rate: float, limit_ms: int, near: float, far: float) -> None:
    demand = replace(DEMAND, rate_per_s=rate, limit_ns=limit_ms * MS)
    offers = [replace(LON, price_per_s=near), replace(US, price_per_s=far)]
    plan = make_plan([demand], offers, levels=(0.5, 0.85), gap=1e-6)
    least = cost_by_trying_everything(demand, offers, (0.5, 0.85))
    if plan.shortfalls:
        assert least == math.inf
    else:
        assert plan.price_per_s == pytest.approx(least)
        assert sum(flow.rate_per_s for flow in plan.flows) == pytest.approx(rate)


@settings(max_examples=20, deadline=None)
@given(st.floats(0.5, 20), st.floats(0.1, 10), st.integers(0, 1500))
def test_more_demand_never_costs_less_and_a_longer_budget_never_more(rate: float, more: float, longer_ms: int) -> None:
    def price(demand: Demand) -> float:
        plan = make_plan([demand], [LON, US], gap=1e-6)
        return math.inf if plan.shortfalls else plan.price_per_s

    base = replace(DEMAND, rate_per_s=rate, limit_ns=500 * MS)
    assert price(replace(base, rate_per_s=rate + more)) >= price(base) - 1e-6
    assert price(replace(base, limit_ns=(500 + longer_ms) * MS)) <= price(base) + 1e-6


def test_what_falls_short_in_the_trial_is_bought_more_for_until_it_holds() -> None:
    def measure(plan: Plan) -> Shares:
        """Holds from four servers on."""
        enough = sum(each.count for each in plan.servers) >= 4
        return {("uk", "voice"): (0.96, 0.99) if enough else (0.80, 0.90)}

    found = verify([DEMAND], [LON, US], measure, rounds=8)
    assert found.open == ()
    assert found.rounds > 1
    never = verify([DEMAND], [US], lambda plan: {("uk", "voice"): (0.1, 0.2)}, rounds=2)
    assert (never.open, never.rounds) == ((("uk", "voice"),), 2)


def test_a_site_is_worth_what_is_paid_without_it() -> None:
    gain = site_gain([DEMAND], [LON, US], "us")
    assert gain.saves_per_s == pytest.approx(2.0)
    only = site_gain([DEMAND], [LON], "lon")
    assert only.saves_per_s is None


def test_sessions_fit_until_the_server_is_full_or_the_budget_spent() -> None:
    # Each asks every 10 s and takes 0.2 s: 50 sessions would fill it.
    points = sessions_curve(DEMAND, LON, 10 * S)
    assert [point.sessions for point in points] == list(range(1, len(points) + 1))
    assert not points[-1].fits
    assert all(point.fits for point in points[:-1])
    assert points[9].level == pytest.approx(10 * 0.1 * 0.2, rel=1e-6)
    assert len(points) <= 50
    assert sessions_curve(replace(DEMAND, network_ns={}), LON, 10 * S) == ()


def test_a_warm_pool_follows_erlang_s_formula() -> None:
    # Load 1: B(0) = 1, B(1) = 1/2, B(2) = 1/5, B(3) = 1/16.
    points = warm_pool(0.5, [2 * S], 99.0)
    assert [point.cold for point in points[:4]] == pytest.approx([1, 1 / 2, 1 / 5, 1 / 16])
    assert points[0].quantile_ns == 2 * S
    assert points[-1].quantile_ns == 0.0


def test_each_nine_is_planned_by_itself() -> None:
    def at(percentile: float) -> list[Demand]:
        return [replace(DEMAND, percentile=percentile, limit_ns=700 * MS)]

    prices = [point.plan.price_per_s for point in nines(at, [LON, US], (90.0, 99.0))]
    assert prices[1] >= prices[0] > 0


def test_a_placement_on_trial_is_kept_reverted_or_waits_for_evidence() -> None:
    trial = Trial(holdout=0.01)
    assert trial.judge((5, 100), (5, 100)) == WAIT
    assert trial.judge((0, 5000), (0, 5000)) == WAIT
    assert trial.judge((500, 5000), (5, 1000)) == REVERT
    assert trial.judge((5, 5000), (100, 1000)) == KEEP
    assert trial.judge((50, 5000), (10, 1000)) == WAIT


def test_one_in_a_hundred_is_held_out_and_always_the_same() -> None:
    trial = Trial(holdout=0.01)
    held = [f"id-{number}" for number in range(50_000) if trial.is_held_out(f"id-{number}")]
    assert len(held) == pytest.approx(500, abs=90)
    assert all(trial.is_held_out(each) for each in held)
