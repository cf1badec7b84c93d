"""Public failures of routers and gateways, each as a small world in which Outlay's router must not fail that way."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from small import FAR, LITTLE, MS, NEAR, VOICE, S, fault, on_time, tried, world

from outlay.account import account
from outlay.forecaster import MEASURES, Forecaster
from outlay.health import Health
from outlay.policy import Hedge, Policy, Rules, Rung
from outlay.signals import Signals
from outlay.sim.ablation import whole
from outlay.sim.case import Case
from outlay.sim.drive import _Drive
from outlay.sim.outlay_router import OutlayRouter
from outlay.work import Fleet, Request, Target
from outlay.world import Access, Arrivals, Reports, Tokens, Users, World


def driven(given: World, seed: int = 1) -> tuple[_Drive, OutlayRouter]:
    """A run whose router can be looked at afterwards."""
    drive = _Drive(given, "outlay", None, seed, whole, None, False)
    drive.run()
    router = drive._routers[0]
    assert isinstance(router, OutlayRouter)
    return drive, router


def cases(drive: _Drive) -> Iterator[Case]:
    return iter(drive._cases)


def test_traffic_goes_on_when_reports_stop_and_an_alarm_is_raised() -> None:
    """llm-d/llm-d-router#2100, #2165: the scrape stops, the engines are healthy."""
    quiet = tried(world(faults=tuple(fault("no-reports", target, 4, 20) for target in ("near", "far"))))
    assert all(result.outcome == "ok" for result in quiet.results)
    assert on_time(quiet) >= on_time(tried(world())) - 0.02
    assert quiet.alarms.get("stale", 0) > 0


def test_a_single_server_is_used_whatever_the_age_of_its_reports() -> None:
    """llm-d/llm-d-router#2547: one endpoint, reports 250 ms late."""
    run = tried(world(targets=(NEAR,), reports=Reports(every_ns=S, delay_ns=250 * MS)))
    assert {result.outcome for result in run.results} == {"ok"}
    assert {result.target for result in run.results} == {"large-near"}


def test_observations_of_another_event_are_refused_and_a_wrong_unit_is_noticed() -> None:
    """llm-d/llm-d#2078: a predictor trained on end-to-end times behind a gate for the first token."""
    fleet = Fleet([NEAR, FAR])
    forecaster = Forecaster(Signals(fleet), prior_rtt_ns={("uk", "near"): 10 * MS})
    request = Request(id="r", moment="voice", path="uk", input_tokens=500, output_tokens=60, useful_tokens=10)
    expected = forecaster.forecasts(request, 0, np.ones(2, dtype=np.bool_)).expectation(0)
    with pytest.raises(ValueError, match="cannot be learned from"):
        forecaster.learn(expected, 3e9, 0, measures="end to end")
    for second in range(60):
        forecaster.learn(expected, 8 * expected.service_ns, second * S, measures=MEASURES)
    assert [alarm.target for alarm in forecaster.alarms(60 * S) if alarm.kind == "units"] == ["large-near"]


@pytest.mark.parametrize("kind", ["down", "silent", "cut", "malformed", "client-errors"])
def test_work_under_way_is_counted_exactly_through_every_kind_of_failure(kind: str) -> None:
    """kubernetes-sigs/gateway-api-inference-extension#2848; ray-project/ray#61755; skypilot-org/skypilot#10444."""
    drive, router = driven(world(faults=(fault(kind, "large-near", share=0.5),)))  # type: ignore[arg-type] - a kind
    for case in cases(drive):
        router.gone(case)  # whoever still waits leaves
    signals = router.signals
    assert signals.under_way() == 0
    for counted in (signals.own_waiting, signals.own_answering, signals.own_prefill, signals.own_decode):
        assert counted.tolist() == [0.0, 0.0, 0.0]


def test_errors_of_clients_leave_the_breaker_alone() -> None:
    """sgl-project/sglang#25811: requests that provoke 4xx take the fleet out."""
    drive, router = driven(world(faults=(fault("client-errors", "near", 3, 20, share=1.0),)))
    errors = [case for case in cases(drive) if case.outcome == "error"]
    assert len(errors) > 20
    assert router.health.states(20 * S) == ("closed", "closed", "closed")


def test_a_server_that_was_down_is_used_again_after_a_few_good_probes() -> None:
    """sgl-project/sglang#31206: half-open never closes."""
    given = world(faults=(fault("down", "near", 5, 9),), until_ns=110 * S)
    _, router = driven(given)
    assert router.health.states(110 * S)[0] == "closed"
    late = [result.site for result in tried(given).results if result.at_ns > 75 * S]
    assert late.count("near") > 0.8 * len(late)


def test_a_role_chunk_is_no_first_token() -> None:
    """sgl-project/sglang#29251; api7/aisix#467: a role at 50 ms, content at 900 ms."""
    drive, _ = driven(world(faults=(fault("role-chunk", "near", 0, 30),), targets=(NEAR,)))
    for case in cases(drive):
        if case.winner is not None and case.winner.heard_first_ns is not None:
            assert case.winner.heard_first_ns - case.winner.sent_ns > 60 * MS  # its prefill alone is 60 ms


@pytest.mark.parametrize("kind", ["silent", "malformed"])
def test_what_delivered_nothing_falls_back_in_time(kind: str) -> None:
    """BerriAI/litellm#40404, #26998: 200 and then silence, or a frame that cannot be read."""
    run = tried(world(faults=(fault(kind, "large-near"),)))  # type: ignore[arg-type] - a kind
    hit = [result for result in run.results if result.attempts > 1]
    assert hit
    assert sum(result.on_time for result in hit) >= 0.7 * len(hit)
    assert on_time(run) >= 0.9


def test_an_answer_that_breaks_off_ends_as_an_error_and_never_as_whole() -> None:
    """Portkey-AI/gateway#1797; mnfst/llm-gateway#1656: cut in the middle, reported as a clean end."""
    drive, _ = driven(world(faults=(fault("cut", "near", 3, 20),)))
    broken = [case for case in cases(drive) if case.outcome == "error"]
    assert broken
    for case in broken:
        assert case.total_ns is None
        assert len(case.tries) == 1, "a part was handed on, so nothing was tried again"


def test_the_deadline_of_an_attempt_fires_before_the_reserve_of_the_fallback_is_eaten() -> None:
    """maximhq/bifrost#7034: accepted, and the headers never come for 35 s."""
    drive, _ = driven(world(faults=(fault("silent", "large-near"),)))
    moved = [case for case in cases(drive) if len(case.tries) > 1]
    assert moved
    for case in moved:
        first, second = case.tries[0], case.tries[1]
        assert second.sent_ns - first.sent_ns <= case.remaining_base_ns - 20 * MS
        assert first.tried is not None
        assert second.sent_ns - first.sent_ns == pytest.approx(int(first.tried.decision.deadline_ns), abs=1)


def test_a_fallback_that_begins_inside_the_budget_ends_inside_it() -> None:
    """ReflexioAI/reflexio#176; BerriAI/litellm#7303: time-outs whose sum is beyond the caller's patience."""
    served: list[Case] = []
    for seed in range(1, 9):
        drive, _ = driven(world(faults=(fault("silent", "large-near"),)), seed)
        served += [case for case in cases(drive) if len(case.tries) > 1 and case.total_ns is not None]
    assert len(served) > 8
    late = [case for case in served if (case.total_ns or 0) > case.ask.traffic.budget.limit_ns]
    # The reserve holds with 95 %.
    assert len(late) <= 0.15 * len(served)


def test_a_step_on_the_device_has_a_deadline_and_the_cloud_is_still_in_time() -> None:
    """trevornk/ramblr#83: a hard cap that is only looked at between steps of an on-device model."""
    device = Target(name="on-device", site="device", variant="large", service=NEAR.service)
    users = replace(world().users[0], rtt_ns={"device": 1000, "near": 10 * MS}, local="device")
    run = tried(world(targets=(device, NEAR, LITTLE), users=(users,), faults=(fault("silent", "on-device", 5, 20),)))
    hit = [result for result in run.results if result.at_ns > 5 * S and result.attempts > 1]
    assert hit
    assert sum(result.on_time for result in hit) >= 0.7 * len(hit)


def test_a_second_attempt_is_counted_and_only_made_where_the_rules_allow_it() -> None:
    """Gitlawb/openclaude#1940: an accepted POST is replayed and charged twice."""
    stalls = (fault("slow", "large-near", factor=10.0),)
    hedged = Policy(default=Rules(rungs=(Rung(name="any"),), render_ns=20 * MS, hedge=Hedge(after=0.8, gain=0.01)))
    alone = Policy(default=Rules(rungs=(Rung(name="any"),), render_ns=20 * MS, attempts=1))
    # The first token is due in 500 ms and takes 10 x 60 ms where it stalls.
    first = replace(VOICE, useful_tokens=1, budget=replace(VOICE.budget, limit_ns=500 * MS))
    with_second = tried(world(faults=stalls, policy=hedged, targets=(NEAR, FAR), traffic=(first,)))
    without = tried(world(faults=stalls, policy=alone, targets=(NEAR, FAR), traffic=(first,)))
    assert max(result.attempts for result in without.results) == 1
    assert max(result.attempts for result in with_second.results) == 2


def test_long_and_short_prompts_are_both_given_the_time_they_need() -> None:
    """anomalyco/opencode#29484: a fixed time-out for the first token, and very long prompts."""
    long = replace(
        VOICE, moment="long", input_tokens=Tokens(values=(60_000,)), arrivals=Arrivals(at_ns=(0, 12 * S, 24 * S)),
        budget=replace(VOICE.budget, limit_ns=20 * S),
    )  # fmt: skip
    run = tried(world(traffic=(VOICE, long), until_ns=40 * S, targets=(NEAR, FAR)))
    # 60,000 tokens at 10,000 a second are 6 s before the first token.
    longs = [result for result in run.results if result.moment == "long"]
    assert longs
    assert all(result.outcome == "ok" and (result.total_ns or 0) > 6 * S for result in longs)
    assert all(result.attempts == 1 for result in longs)


def test_a_far_region_is_chosen_when_its_total_is_shorter_and_only_then() -> None:
    """BerriAI/litellm#1393; envoyproxy/ai-gateway#812: by model time alone the far region looks faster."""
    slow = replace(NEAR, service=replace(NEAR.service, step_ns=60 * MS))
    far_wins = tried(world(targets=(slow, FAR), policy=Policy(default=Rules(render_ns=20 * MS, explore=0.0))))
    # Near: 9 x 60 = 540 ms of steps; far: 270 ms and 70 ms more of network.
    assert sum(result.site == "far" for result in far_wins.results) > 0.7 * len(far_wins.results)
    barely = replace(NEAR, service=replace(NEAR.service, step_ns=33 * MS))
    near_wins = tried(world(targets=(barely, FAR), policy=Policy(default=Rules(render_ns=20 * MS, explore=0.0))))
    # Near: 27 ms more of steps, against 70 ms more of network.
    assert sum(result.site == "near" for result in near_wins.results) > 0.9 * len(near_wins.results)


def test_the_newest_sample_changes_the_estimate_and_what_was_never_seen_is_not_free() -> None:
    """BerriAI/litellm#40202, #9350: frozen lists, and an optimistic zero for the unseen."""
    fleet = Fleet([NEAR, FAR])
    forecaster = Forecaster(Signals(fleet), prior_rtt_ns={("uk", "near"): 10 * MS, ("uk", "far"): 80 * MS})
    request = Request(id="r", moment="voice", path="uk", input_tokens=500, output_tokens=60, useful_tokens=10)
    usable = np.ones(2, dtype=np.bool_)
    before = forecaster.forecasts(request, 0, usable)
    assert before.middle_ns[1] > 300 * MS
    p = [float(before.p_within(600 * MS)[0])]
    for number in range(1, 40):
        forecaster.learn(before.expectation(0), 900 * MS, number * MS)
        p.append(float(forecaster.forecasts(request, number * MS, usable).p_within(600 * MS)[0]))
    assert p[1] < p[0]
    assert p[-1] < 0.5 < p[0]


def test_a_renamed_gauge_is_missing_and_not_zero() -> None:
    """vllm-project/production-stack after vllm-project/vllm#18354: KV use reads as 0 for ever."""
    run = tried(world(faults=(fault("renamed-gauge", "near", 0, 30),)))
    assert run.alarms.get("missing", 0) > 0
    assert all(result.outcome == "ok" for result in run.results)
    _, router = driven(world(faults=(fault("renamed-gauge", "near", 0, 30),)))
    assert np.isnan(router.signals.others_waiting[0])


def test_the_second_attempt_sees_what_is_left_and_no_more() -> None:
    """envoyproxy/envoy#13196: the expected time does not shrink over retries."""
    drive, _ = driven(world(faults=(fault("silent", "large-near"),)))
    moved = [case for case in cases(drive) if len(case.tries) > 1]
    assert moved
    for case in moved:
        first, second = (each.tried for each in case.tries[:2])
        assert first is not None
        assert second is not None
        spent_ns = case.tries[1].sent_ns - case.tries[0].sent_ns
        assert second.decision.remaining_ns == first.decision.remaining_ns - spent_ns
        assert second.decision.deadline_ns <= second.decision.remaining_ns


def test_refusals_of_a_burst_count_and_a_smaller_model_is_tried_first() -> None:
    """sgl-project/sglang#13894: a burst above capacity."""
    burst = replace(VOICE, arrivals=Arrivals(rates=((0, 3.0), (8 * S, 60.0), (14 * S, 3.0))))
    run = tried(world(traffic=(burst,), targets=(NEAR, LITTLE)))
    refused = [result for result in run.results if result.outcome == "refused"]
    assert refused
    assert not any(result.on_time for result in refused)
    first_refusal = min(result.at_ns for result in refused)
    assert any(result.variant == "small" and result.at_ns < first_refusal for result in run.results)
    served = [result for result in run.results if result.outcome == "ok"]
    assert sum(result.on_time for result in served) > 0.85 * len(served)


def test_whoever_has_gone_frees_the_queue_and_the_slot() -> None:
    """openai/openai-python#3277; llm-d/llm-d-async#422: the client left while queued or running."""
    drive, router = driven(world(traffic=(replace(VOICE, arrivals=Arrivals(rates=((0, 40.0),))),), targets=(NEAR,)))
    assert any(case.outcome in ("timeout", "refused") for case in cases(drive))
    server = drive._field.servers[0]
    drive._kernel.run()
    assert (len(server.waiting), len(server.running), server.cache_tokens) == (0, 0, 0)
    assert router.signals.under_way() == 0


def test_there_is_an_account_of_every_outcome_and_it_sums_exactly() -> None:
    """BerriAI/litellm#30566, #38840: the overhead header is missing on some routes."""
    run = tried(world(faults=(fault("cut", "near", 5, 12), fault("silent", "far", 0, 20))), accounts=True)
    assert len(run.interactions) == len(run.results)
    assert {"ok", "error"} <= {each.outcome for each in run.interactions}
    for interaction in run.interactions:
        if interaction.end_ns is not None and interaction.start_ns is not None:
            made = account(interaction)
            assert sum(made.entries.values()) == made.total_ns == interaction.end_ns - interaction.start_ns


def test_an_old_report_is_outweighed_by_one_s_own_recent_work() -> None:
    """envoyproxy/envoy#37884: a load report that came with the headers of a 60 s stream."""
    fleet = Fleet([NEAR, FAR])
    signals = Signals(fleet)
    for second in range(20):
        signals.reported(0, {"waiting": 0, "running": 2, "cache": 0.1}, second * S, "header")
    signals.reported(0, {"waiting": 30, "running": 2, "cache": 0.1}, 20 * S, "header")
    fresh, old = signals.others(20 * S)[0][0], signals.others(80 * S)[0][0]
    assert fresh > 25
    assert old == pytest.approx(signals.usual_waiting[0], abs=0.01)
    for number in range(8):
        signals.sent(f"a{number}", 0, 500.0, 60.0, 80 * S)
    forecaster = Forecaster(signals, prior_rtt_ns={("uk", "near"): 10 * MS, ("uk", "far"): 10 * MS})
    request = Request(id="r", moment="voice", path="uk", input_tokens=500, output_tokens=60, useful_tokens=10)
    wait_ns = forecaster.forecasts(request, 80 * S, Health(fleet).usable(0)).wait_ns[0]
    # Eight prompts of 500 tokens at 10,000 a second, and 10 ms overhead each, are 480 ms.
    assert wait_ns >= 480 * MS


def test_a_dead_site_does_not_use_up_the_retries_of_another() -> None:
    """grpc A6, scoped by site: what failed there is not sent there, and goes elsewhere in time."""
    run = tried(world(faults=(fault("down", "near", 5, 15),), targets=(NEAR, FAR)))
    during = [result for result in run.results if 5 * S < result.at_ns < 14 * S]
    assert sum(result.on_time for result in during) >= 0.9 * len(during)


def test_users_on_a_weak_cell_are_served_by_what_can_still_reach_them() -> None:
    """uplink tails of one class of users do not spoil those of another."""
    weak = Access(name="weak", samples_ns=tuple(300 * MS for _ in range(5)), period_ns=S)
    users = (
        world().users[0],
        Users(region="uk", access="weak", share=1.0, rtt_ns={"near": 10 * MS, "far": 80 * MS}, local="near"),
    )
    run = tried(world(access={**world().access, "weak": weak}, users=users, until_ns=40 * S))
    by_path = {path: [each for each in run.results if each.path == path] for path in ("uk/fixed", "uk/weak")}
    assert sum(each.variant == "small" for each in by_path["uk/weak"]) > sum(
        each.variant == "small" for each in by_path["uk/fixed"]
    )
    assert all(sum(each.on_time for each in own) >= 0.9 * len(own) for own in by_path.values())
