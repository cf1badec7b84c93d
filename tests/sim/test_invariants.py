"""What holds in every world, however it is made and whatever goes wrong in it."""

from collections import Counter
from dataclasses import replace

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from small import FAR, LITTLE, MS, NEAR, VOICE, S, fault, tried, world

from outlay.account import account
from outlay.decision import Decision
from outlay.forecast import Forecasts
from outlay.policy import Hedge, Policy, Rules, Rung
from outlay.sim.demand import draw
from outlay.sim.drive import _Drive
from outlay.sim.outlay_router import OutlayRouter
from outlay.work import ColdStart, Request
from outlay.world import FAULTS, Arrivals, Reports, Tokens, World

kinds = st.sampled_from(sorted(FAULTS))
places = st.sampled_from(["near", "far", "large-near", "small-near"])
faults = st.lists(
    st.builds(
        lambda kind, where, start, factor: fault(kind, where, start, start + 3, factor=factor, share=0.5),
        kinds, places, st.floats(0, 6), st.floats(1, 8),
    ),
    max_size=3,
)  # fmt: skip
policies = st.builds(
    lambda hedge, attempts, shorter, last, explore: Policy(
        default=Rules(
            rungs=(
                Rung(name="large", variants=("large",)),
                Rung(name="small", variants=("small",)),
                *((Rung(name="shorter", variants=("small",), output_share=0.5),) if shorter else ()),
            ),
            hedge=Hedge(after=0.8, gain=0.05) if hedge else None,
            attempts=attempts,
            last=last,
            explore=explore,
            render_ns=20 * MS,
        )
    ),
    st.booleans(), st.integers(1, 3), st.booleans(), st.sampled_from(["refuse", "defer"]), st.sampled_from([0.0, 0.1]),
)  # fmt: skip


@st.composite
def worlds(draw_: st.DrawFn) -> World:
    """A few seconds of a small world."""
    cold = draw_(st.booleans())
    rate, useful = draw_(st.sampled_from([1.0, 5.0, 25.0])), draw_(st.sampled_from([1, 10, None]))
    return world(
        until_ns=8 * S,
        warm_up_ns=0,
        targets=(NEAR, replace(FAR, cold=ColdStart(start_ns=(S,), keep_ns=2 * S) if cold else None), LITTLE),
        traffic=(replace(VOICE, arrivals=Arrivals(rates=((0, rate),)), useful_tokens=useful),),
        faults=tuple(draw_(faults)),
        policy=draw_(policies),
        reports=Reports(every_ns=draw_(st.sampled_from([S // 5, 2 * S])), delay_ns=draw_(st.sampled_from([0, S // 2]))),
        routers=draw_(st.sampled_from([1, 2])),
    )


few = settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@few
@given(worlds())
def test_a_run_keeps_its_books(given_world: World) -> None:
    """Asked is answered, work under way is conserved, what remains shrinks, deadlines nest, and no number is NaN."""
    seen: list[tuple[Decision, Request, Forecasts]] = []
    drive = _Drive(
        given_world, "outlay", None, 3, lambda forecasts: forecasts,
        lambda decision, request, forecasts, draws: seen.append((decision, request, forecasts)), True,
    )  # fmt: skip
    run = drive.run()
    drive._kernel.run()
    assert len(run.results) == len(draw(given_world, 3))
    assert Counter(result.outcome for result in run.results).keys() <= {"ok", "error", "timeout", "refused"}
    for decision, _, _ in seen:
        assert not np.isnan(decision.p).any()
        assert ((decision.p >= 0) & (decision.p <= 1)).all()
        assert decision.headroom_ns == decision.headroom_ns
        assert decision.deadline_ns <= max(decision.remaining_ns, 0)
        assert len(decision.verdicts()) == len(given_world.targets)
    for case in drive._cases:
        sent = [each.sent_ns for each in case.tries]
        left = [each.tried.decision.remaining_ns for each in case.tries if each.tried is not None]
        assert sent == sorted(sent)
        assert left == sorted(left, reverse=True)
    for router in drive._routers:
        assert isinstance(router, OutlayRouter)
        signals = router.signals
        # What was put off may still be running; everybody else's work is done or was given up.
        counts = np.array([signals.own_waiting, signals.own_answering, signals.own_prefill, signals.own_decode])
        assert (counts >= 0).all()
        assert signals.under_way() == int(signals.own_waiting.sum() + signals.own_answering.sum())
    for server in drive._field.servers:
        if not server.waiting and not server.running:
            assert server.cache_tokens == 0
    for interaction in run.interactions:
        if interaction.start_ns is not None and interaction.end_ns is not None:
            made = account(interaction)
            assert sum(made.entries.values()) == interaction.end_ns - interaction.start_ns


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(worlds(), st.integers(0, 5))
def test_the_same_world_and_seed_give_the_same_run(given_world: World, seed: int) -> None:
    assert tried(given_world, seed=seed) == tried(given_world, seed=seed)


def test_what_was_never_reported_is_not_taken_for_nothing() -> None:
    silent = world(faults=tuple(fault("no-reports", site, 0, 60) for site in ("near", "far")))
    seen: list[Forecasts] = []
    tried(silent, decided=lambda decision, request, forecasts, draws: seen.append(forecasts))
    assert all((forecasts.spread > 1.5).all() for forecasts in seen), "unknown is wider than known"
    known: list[Forecasts] = []
    tried(world(), decided=lambda decision, request, forecasts, draws: known.append(forecasts))
    assert all((forecasts.spread < 1.5).all() for forecasts in known[20:])


def test_requests_come_at_the_rate_that_is_asked_for_and_recorded_pairs_stay_pairs() -> None:
    sizes = replace(
        VOICE,
        arrivals=Arrivals(rates=((0, 50.0),)),
        input_tokens=Tokens(values=(100, 200, 300)),
        output_tokens=Tokens(values=(1, 2, 3)),
    )
    asks = draw(world(traffic=(sizes,), until_ns=100 * S), 1)
    # 5,000 expected; four standard deviations of a Poisson count are 283.
    assert abs(len(asks) - 5000) < 283
    assert all(ask.input_tokens == 100 * ask.output_tokens for ask in asks)
    assert [ask.at_ns for ask in asks] == sorted(ask.at_ns for ask in asks)


def test_bursty_gaps_vary_as_much_as_their_shape_says() -> None:
    bursty = replace(VOICE, arrivals=Arrivals(rates=((0, 50.0),), shape=0.25))
    gaps = np.diff([ask.at_ns for ask in draw(world(traffic=(bursty,), until_ns=400 * S), 1)])
    # A gamma shape of 0.25 has a coefficient of variation of 2.
    assert abs(gaps.std() / gaps.mean() - 2.0) < 0.15


def test_a_recording_is_replayed_over_and_over() -> None:
    recorded = replace(VOICE, arrivals=Arrivals(at_ns=(5 * S, 6 * S, 8 * S)))
    asks = draw(world(traffic=(recorded,), until_ns=10 * S), 1)
    # The round lasts 3 s and a mean gap of 1.5 s.
    assert [ask.at_ns for ask in asks] == [int(at * S) for at in (0, 1, 3, 4.5, 5.5, 7.5, 9.0)]
