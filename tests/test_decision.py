"""One decision at a time: small forecasts whose right choice can be read off."""

from collections import Counter
from dataclasses import replace
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outlay.decaying import LEVELS
from outlay.decision import Decision, decide
from outlay.forecast import EDGES, Forecasts
from outlay.policy import Hedge, Policy, Rules, Rung
from outlay.underway import Attempt, Situation, after_failure, after_silence
from outlay.units import NS_PER_MS, NS_PER_S
from outlay.work import Fleet, Request, Service, Target

MS, S = NS_PER_MS, NS_PER_S
SERVICE = Service(prefill_tokens_per_s=10_000, step_ns=30 * MS)
LADDER = (Rung(name="large", variants=("large",)), Rung(name="small", variants=("small",)))
FLEET = Fleet(
    [
        Target(name="home", site="lon", variant="large", service=SERVICE),
        Target(name="away", site="ams", variant="large", service=SERVICE),
        Target(name="little", site="lon", variant="small", service=SERVICE, quality=0.8),
    ]
)
REQUEST = Request(id="r", moment="voice", path="uk", input_tokens=500, output_tokens=100, useful_tokens=10, local="lon")
RULES = Rules(rungs=LADDER, explore=0.0)


def forecasts(
    *ms: float, network_ms: tuple[float, ...] = (10, 30, 10), wait_ms: tuple[float, ...] = (0, 0, 0), **changes: object
) -> Forecasts:
    """Service times by candidate, known to 5 %, behind networks without any spread."""
    from scipy.stats import norm

    row = norm.cdf(EDGES, 0, 0.07)
    made = Forecasts(
        fleet=FLEET,
        moment="voice",
        network_ns=np.repeat(np.array(network_ms)[:, None] * MS, len(LEVELS), axis=1),
        service_ns=np.array(ms) * MS,
        step_ns=np.full(3, 30.0 * MS),
        useful_tokens=10,
        wait_ns=np.array(wait_ms) * MS,
        cdf=row[None],
        middle=np.zeros(1),
        row=np.zeros(3, dtype=np.intp),
        load=np.zeros(3, dtype=np.intp),
        spread=np.ones(3),
        cold=np.zeros(3),
        cold_ns={},
        failure=np.zeros(3),
        usable=np.ones(3, dtype=np.bool_),
        calibrated=np.ones(3, dtype=np.bool_),
    )
    return replace(made, **changes)  # type: ignore[arg-type] - by the names of fields


def chosen(view: Forecasts, remaining_ms: float = 900, rules: Rules = RULES, **changes: object) -> Decision:
    request = replace(REQUEST, **changes)  # type: ignore[arg-type] - by the names of fields
    return decide(request, int(remaining_ms * MS), Policy(default=rules), view, 0, Random(1).random)


def name(decision: Decision) -> str | None:
    return None if decision.target is None else FLEET.targets[decision.target].name


def test_the_users_own_site_keeps_the_request() -> None:
    assert name(chosen(forecasts(300, 290, 50))) == "home"


def test_another_site_gets_it_when_that_saves_more_than_a_tenth_of_what_remains() -> None:
    # Home takes 410 ms, away 30 + 291 = 321: 89 ms of 900 are no tenth, 101 ms are.
    assert name(chosen(forecasts(400, 291, 50))) == "home"
    assert name(chosen(forecasts(400, 279, 50))) == "away"


def test_each_rung_is_taken_when_the_ones_above_cannot_be_on_time() -> None:
    rungs = (*LADDER, Rung(name="shorter", variants=("small",), output_share=0.05))
    for decision, expected in (
        (chosen(forecasts(300, 300, 50)), ("home", 0, "on time")),
        (chosen(forecasts(2000, 300, 50)), ("away", 0, "on time")),
        (chosen(forecasts(2000, 2000, 50)), ("little", 1, "on time")),
        # 950 ms for ten useful tokens; five fewer save 150 ms.
        (chosen(forecasts(2000, 2000, 950), rules=replace(RULES, rungs=rungs)), ("little", 2, "on time")),
    ):
        assert (name(decision), decision.rung, decision.reason) == expected
    shorter = chosen(forecasts(2000, 2000, 950), rules=replace(RULES, rungs=rungs))
    assert shorter.output_tokens == 5


def test_quality_is_never_given_away_while_the_better_is_on_time() -> None:
    anything = replace(RULES, rungs=(Rung(name="any"),))
    assert name(chosen(forecasts(800, 700, 20), rules=anything)) in ("home", "away")


def test_the_ladder_ends_at_once_by_the_moment_s_rule() -> None:
    hopeless = forecasts(2000, 2000, 2000, wait_ms=(900, 900, 900))
    refused, deferred = chosen(hopeless), chosen(hopeless, rules=replace(RULES, last="defer"))
    assert (refused.action, refused.target, refused.reason) == ("refuse", None, "nobody is likely enough on time")
    assert deferred.action == "defer"


def test_no_time_left_is_said_as_that() -> None:
    assert chosen(forecasts(10, 10, 10), 0).reason == "no time is left"


def test_the_best_chance_is_served_only_where_it_makes_nobody_wait() -> None:
    # About even: service 890 ms behind 10 ms of network.
    idle = chosen(forecasts(890, 2000, 2000))
    assert (idle.action, idle.reason, name(idle)) == ("serve", "best chance", "home")
    queueing = chosen(forecasts(890, 2000, 2000, wait_ms=(500, 0, 0)))
    assert queueing.action == "refuse"


def test_what_may_be_shed_is_turned_away_first_when_others_are() -> None:
    sheddable = replace(RULES, sheddable=True)
    pressed = forecasts(100, 100, 100, pressure=0.09)
    assert chosen(pressed).action == "serve"
    assert (chosen(pressed, rules=sheddable).action, chosen(pressed, rules=sheddable).reason) == ("refuse", "shed")
    assert chosen(forecasts(100, 100, 100, pressure=0.01), rules=sheddable).action == "serve"


def test_the_ejected_and_the_unknown_are_never_chosen() -> None:
    out = np.array([False, True, True])
    assert name(chosen(forecasts(100, 100, 100, usable=out))) == "away"
    network = forecasts(100, 100, 100).network_ns.astype(np.float64)
    network[:2] = np.nan
    assert name(chosen(forecasts(100, 100, 100, network_ns=network))) == "little"


def test_a_single_candidate_is_used() -> None:
    only = np.array([False, True, False])
    assert name(chosen(forecasts(100, 700, 100, usable=only, spread=np.full(3, 4.0)))) == "away"


def test_equals_share_by_chance() -> None:
    random, counts = Random(2), Counter()
    view = forecasts(300, 280, 900)
    for _ in range(4000):
        counts[name(decide(replace(REQUEST, local=None), 900 * MS, Policy(default=RULES), view, 0, random.random))] += 1
    # 310 ms both; each with one half, within four standard deviations of 0.8 %.
    assert counts["home"] / 4000 == pytest.approx(0.5, abs=0.032)
    assert counts["little"] == 0


def test_one_in_a_hundred_is_sent_to_learn_and_only_where_it_is_likely_on_time() -> None:
    random, explored = Random(3), Counter()
    view = forecasts(300, 500, 200)
    rules = replace(RULES, explore=0.01)
    for _ in range(20_000):
        decision = decide(REQUEST, 900 * MS, Policy(default=rules), view, 0, random.random)
        explored[name(decision)] += decision.explored
    total = explored.total()
    assert total / 20_000 == pytest.approx(0.01, abs=0.003)
    assert explored["away"] / total == pytest.approx(0.5, abs=0.15)
    assert explored["little"] == 0


def test_a_first_attempt_leaves_room_for_the_fallback() -> None:
    decision = chosen(forecasts(300, 400, 100))
    assert decision.fallback is not None
    (curve,) = decision.forecasts.curves([decision.fallback])
    # Never later than the P95 of the fallback and a margin before the end; by the bound a little earlier.
    latest_ns = 900 * MS - curve.quantile_ns(0.95) - 10 * MS
    assert latest_ns - 0.1 * curve.quantile_ns(0.95) <= decision.deadline_ns <= latest_ns
    alone = chosen(forecasts(300, 400, 100), rules=replace(RULES, attempts=1))
    assert (alone.fallback, alone.deadline_ns) == (None, 900 * MS)


def test_a_fallback_is_looked_for_where_retries_are_left() -> None:
    # Little would be the quickest; its site has used its retries up.
    spare = np.array([False, True, False])
    assert chosen(forecasts(300, 400, 100)).fallback == 2
    assert chosen(forecasts(300, 400, 100, spare=spare)).fallback == 1


def test_an_attempt_that_would_more_often_be_given_up_keeps_all_the_time_there_is() -> None:
    # Home needs 610 ms; a fallback of 430 ms or more leaves it less than that.
    decision = chosen(forecasts(600, 2000, 420), rules=replace(RULES, p_min=0.9, p_floor=0.9))
    assert (decision.fallback, decision.deadline_ns) == (None, 900 * MS)


def test_what_the_device_needs_is_kept_back() -> None:
    assert chosen(forecasts(880, 2000, 2000), 1000).reason == "on time"
    rendered = chosen(forecasts(880, 2000, 2000), 1000, rules=replace(RULES, render_ns=150 * MS))
    assert rendered.p_on_time < 0.3


def test_every_candidate_is_accounted_for_with_its_reason() -> None:
    decision = chosen(forecasts(300, 400, 100, usable=np.array([True, True, False])))
    assert [(verdict.target, verdict.why) for verdict in decision.verdicts()] == [
        ("home", None),
        ("away", "slower than the chosen one"),
        ("little", "ejected"),
    ]
    faster = chosen(forecasts(400, 350, 100))
    assert faster.verdicts()[1].why == "not enough faster to leave the user's site"


times = st.tuples(*[st.floats(1, 3000)] * 3)


@settings(max_examples=150, deadline=None)
@given(times, times, st.tuples(*[st.floats(0, 1000)] * 3), st.floats(-100, 3000), st.integers(0, 9), st.booleans())
def test_whatever_is_decided_keeps_the_rules(
    ms: tuple[float, ...], network: tuple[float, ...], wait: tuple[float, ...], remaining: float, seed: int, hedge: bool
) -> None:
    view = forecasts(*ms, network_ms=network, wait_ms=wait)
    rules = replace(RULES, explore=0.1, hedge=Hedge() if hedge else None)
    both = [decide(REQUEST, int(remaining * MS), Policy(default=rules), view, 0, Random(seed).random) for _ in range(2)]
    one, other = both
    assert (one.action, one.target, one.deadline_ns, one.p_on_time) == (
        other.action, other.target, other.deadline_ns, other.p_on_time,
    )  # fmt: skip
    assert 0 <= one.p_on_time <= 1
    assert not np.isnan(one.p).any()
    if one.target is not None:
        assert one.deadline_ns <= max(one.remaining_ns, 0)
        assert one.fallback != one.target
        if one.reason != "best chance":
            assert one.p[one.target] >= rules.p_min
        if one.rung > 0 and one.reason == "on time":
            assert not (view.p_within(float(one.remaining_ns))[:2] >= rules.p_min).any()


# Under way


def attempt(decision: Decision, tries: int = 1, *, relayed: bool = False) -> Attempt:
    return Attempt(decision=decision, started_ns=0, tries=tries, relayed=relayed)


def situation(view: Forecasts, now_ms: float, rules: Rules, *, may_retry: bool = True) -> Situation:
    return Situation(
        request=REQUEST,
        remaining_ns=int((900 - now_ms) * MS),
        policy=Policy(default=rules),
        forecasts=view,
        now_ns=int(now_ms * MS),
        random=Random(1).random,
        may_retry=may_retry,
    )


HEDGED = replace(RULES, hedge=Hedge(after=0.95, gain=0.2))


def test_silence_is_waited_out_until_the_deadline_and_then_the_fallback_is_tried() -> None:
    view = forecasts(300, 300, 100)
    first = attempt(chosen(view))
    waiting = after_silence(first, situation(view, 100, RULES))
    assert (waiting.step, waiting.look_again_ns) == ("wait", int(first.decision.deadline_ns))
    moved = after_silence(first, situation(view, first.decision.deadline_ns / MS + 1, RULES))
    assert moved.step == "move"
    assert moved.decision is not None
    assert moved.decision.target not in (None, first.decision.target)


def test_a_second_attempt_runs_beside_a_slow_first_one_only_when_it_gains_enough() -> None:
    view = forecasts(300, 300, 100)
    first = attempt(chosen(view, rules=HEDGED))
    assert after_silence(first, situation(view, 200, HEDGED)).step == "wait"
    # At 450 ms the first should have come: it has next to no chance left, and the second has.
    slow = after_silence(first, situation(view, 450, HEDGED))
    assert (slow.step, slow.decision is not None) == ("hedge", True)
    assert after_silence(first, situation(view, 450, HEDGED, may_retry=False)).step == "wait"
    late = forecasts(300, 3000, 3000)
    assert after_silence(attempt(chosen(late, rules=HEDGED)), situation(late, 450, HEDGED)).step == "wait"


def test_nothing_is_started_again_once_a_byte_was_handed_on() -> None:
    view = forecasts(300, 300, 100)
    relayed = attempt(chosen(view, rules=HEDGED), relayed=True)
    assert after_silence(relayed, situation(view, 800, HEDGED)).step == "wait"
    broken = after_failure(relayed, situation(view, 500, HEDGED))
    assert (broken.step, broken.decision) == ("end", None)


def test_a_failure_moves_on_while_there_are_tries_tokens_and_time() -> None:
    view = forecasts(300, 300, 100)
    first = attempt(chosen(view))
    assert after_failure(first, situation(view, 100, RULES)).step == "move"
    assert after_failure(attempt(first.decision, tries=2), situation(view, 100, RULES)).step == "stop"
    assert after_failure(first, situation(view, 100, RULES, may_retry=False)).step == "stop"
    assert after_failure(first, situation(view, 901, RULES)).step == "stop"


def test_what_is_left_shrinks_from_attempt_to_attempt() -> None:
    view = forecasts(300, 300, 100)
    first = attempt(chosen(view))
    moved = after_failure(first, situation(view, 250, RULES))
    assert moved.decision is not None
    assert moved.decision.remaining_ns == 650 * MS
    assert moved.decision.deadline_ns <= 650 * MS


@pytest.mark.parametrize("wrong", [{"rungs": ()}, {"p_min": 1.0}, {"p_floor": 0.99}, {"explore": 1.0}, {"attempts": 0}])
def test_rules_that_make_no_sense_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"must|lies|needs"):
        replace(RULES, **wrong)  # type: ignore[arg-type] - wrong on purpose


def test_a_rung_asks_for_some_output() -> None:
    with pytest.raises(ValueError, match="output share"):
        Rung(name="none", output_share=0.0)
