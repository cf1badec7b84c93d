"""Outlay's own router in a simulated world: it calls the same `decide` as the gateway.

It sees its own attempts, reports that are late, round trips that it measures, and what clients tell it.
"""

from collections.abc import Callable
from dataclasses import replace
from random import Random

import numpy as np

from outlay.admission import Throttles
from outlay.decision import Decision, decide
from outlay.forecast import Forecasts
from outlay.forecaster import Forecaster
from outlay.health import Health
from outlay.policy import Policy
from outlay.signals import Signals
from outlay.sim.ablation import Ablation
from outlay.sim.case import Case, Close, Try
from outlay.sim.field import Field
from outlay.sim.kernel import Kernel
from outlay.underway import Attempt, Next, Situation, after_failure, after_silence, first_look_ns
from outlay.units import NS_PER_MS
from outlay.work import Mask, Request

# Told of every first decision: what it was made from, and the chances it drew.
Decided = Callable[[Decision, Request, Forecasts, list[float]], None]

# How often the work that was put off is looked at again.
_LATER_NS = 500 * NS_PER_MS


class _Draws:
    """Chances, remembered so that a decision can be made again."""

    def __init__(self, random: Callable[[], float]) -> None:
        self._random = random
        self.drawn: list[float] = []

    def __call__(self) -> float:
        self.drawn.append(self._random())
        return self.drawn[-1]


class OutlayRouter:
    """Collects signals, forecasts, decides, and looks again while a request is under way."""

    def __init__(
        self, field_: Field, policy: Policy, close: Close, *, seed: str, ablation: Ablation, decided: Decided | None
    ) -> None:
        self._field, self._kernel, self._policy, self._close = field_, field_.kernel, policy, close
        fleet = field_.fleet
        self.signals = Signals(fleet)
        self.health = Health(fleet)
        self.throttles = Throttles(fleet.sites)
        priors = {(users.path, site): rtt_ns for users in field_.world.users for site, rtt_ns in users.rtt_ns.items()}
        self.forecaster = Forecaster(self.signals, prior_rtt_ns=priors)
        for users in field_.world.users:
            self.forecaster.throughput(users.path, field_.world.access[users.access].bytes_per_s)
        self._random = Random(seed)
        self._ablation = ablation
        self._decided = decided
        self._later: list[Case] = []

    # What it is told

    def measured(self, path: str, site: str, rtt_ns: float) -> None:
        """Its own measurement of a round trip."""
        self.forecaster.network(path, site, rtt_ns, self._kernel.now_ns)

    def reported(self, target: int, quantities: dict[str, float], at_ns: int) -> None:
        """A scraped report, as old as it is."""
        self.signals.reported(target, quantities, at_ns, "scrape")

    def perceived(self, case: Case, network_ns: float) -> None:
        """The client told how long the ways took, once it had its result."""
        if case.winner is not None:
            site = self.signals.fleet.targets[case.winner.target].site
            self.forecaster.network(case.request.path, site, network_ns, self._kernel.now_ns)

    def known(self, case: Case, on_time: bool) -> None:
        """What came of a case, once that is known."""
        if case.expected is not None:
            self.forecaster.kept(case.expected, case.p_plain, on_time, self._kernel.now_ns)

    # Deciding

    def arrive(self, case: Case) -> None:
        """A request comes in."""
        now_ns = self._kernel.now_ns
        remaining_ns = case.remaining_ns(now_ns)
        forecasts, draws = self._forecasts(case), _Draws(self._random.random)
        decision = decide(case.request, remaining_ns, self._policy, forecasts, now_ns, draws)
        if self._decided is not None:
            self._decided(decision, case.request, forecasts, draws.drawn)
        if not self._policy.of(case.request.moment).sheddable:
            self.signals.decided(decision.pressed, now_ns)
        case.rung, case.explored = decision.rung, decision.explored
        if decision.action == "serve":
            case.p_on_time, case.p_plain = decision.p_on_time, decision.p_plain
            case.expected = decision.expectation()
            self._send(case, decision)
        elif decision.action == "defer":
            case.deferred = True
            self._put_off(case)
        else:
            self._close(case, "refused", None)

    def _forecasts(self, case: Case) -> Forecasts:
        now_ns = self._kernel.now_ns
        found = self.forecaster.forecasts(case.request, now_ns, self.health.usable(now_ns), spare=self._spare())
        return self._ablation(found)

    def _spare(self) -> Mask:
        """A retry needs a token of the site that it goes to: one that fails a lot is not sent more of them."""
        fleet = self._field.fleet
        return np.array([self.throttles.allows(site) for site in fleet.sites])[fleet.site_of]

    def _send(self, case: Case, decision: Decision) -> None:
        target, now_ns = decision.target, self._kernel.now_ns
        assert target is not None
        case.shortened |= decision.output_tokens < case.request.output_tokens
        share = decision.output_tokens / max(case.request.output_tokens, 1)
        useful = case.ask.traffic.useful_tokens
        output = max(round(case.ask.output_tokens * share), 1)
        attempt = self._field.start(case, target, output, output if useful is None else useful, self._heard)
        if attempt is None:
            self._fail(case, None)
            return
        attempt.tried = Attempt(decision=decision, started_ns=now_ns, tries=len(case.tries))
        self.signals.sent(attempt.id, target, case.request.input_tokens, decision.output_tokens, now_ns)
        self.health.took(target, now_ns)
        if decision.forecasts.cold[target] > 0.5:
            self.forecaster.starting(target, now_ns)
        self._look_later(attempt, attempt.tried)

    def _look_later(self, attempt: Try, tried: Attempt) -> None:
        at_ns = first_look_ns(tried, self._policy.of(attempt.case.request.moment))
        attempt.timer = self._kernel.at(at_ns, self._look, attempt)

    def _look(self, attempt: Try) -> None:
        if not attempt.over and attempt.tried is not None:
            self._do(attempt, after_silence(attempt.tried, self._situation(attempt)))

    def _situation(self, attempt: Try) -> Situation:
        case, now_ns, spare = attempt.case, self._kernel.now_ns, self._spare()
        forecasts = self._forecasts(case)
        return Situation(
            request=case.request,
            remaining_ns=case.remaining_ns(now_ns),
            policy=self._policy,
            forecasts=replace(forecasts, usable=forecasts.usable & spare),
            now_ns=now_ns,
            random=self._random.random,
            may_retry=bool(spare.any()),
        )

    def _do(self, attempt: Try, what: Next) -> None:
        case = attempt.case
        if what.step == "wait":
            if what.look_again_ns is not None and what.look_again_ns > self._kernel.now_ns:
                attempt.timer = self._kernel.at(what.look_again_ns, self._look, attempt)
            return
        if what.step == "hedge" and what.decision is not None:
            self._send(case, what.decision)
            return
        self._give_up(attempt)
        if what.step == "move" and what.decision is not None and what.decision.target is not None:
            self._send(case, what.decision)
        elif all(each.over for each in case.tries):
            self._close(case, "error" if what.step == "end" else "timeout", None)

    def _give_up(self, attempt: Try) -> None:
        """Cancel; what was seen so far is that it takes longer than this."""
        now_ns = self._kernel.now_ns
        if attempt.over:
            return
        if attempt.tried is not None and attempt.heard_first_ns is None:
            waited_ns = now_ns - attempt.sent_ns - attempt.up_ns * 2 - attempt.payload_ns
            expected = attempt.tried.decision.forecasts.expectation(attempt.target)
            if waited_ns > 0:
                self.forecaster.learn_cut(expected, waited_ns, now_ns)
            # One that answers nobody is told by several in a row; far beyond what its kind takes, one is enough.
            self.health.failed(attempt.target, now_ns)
            if waited_ns > _HOPELESS * expected.service_ns:
                self.forecaster.failed(attempt.target, now_ns)
        self.throttles.failed(self._field.fleet.targets[attempt.target].site)
        self._end(attempt)

    def _end(self, attempt: Try) -> None:
        self._field.stop(attempt)
        self.signals.ended(attempt.id, self._kernel.now_ns)

    # What comes of attempts

    def _heard(self, attempt: Try, what: str) -> None:
        _HEARD[what](self, attempt)

    def _chunk(self, attempt: Try) -> None:
        """A role or a keep-alive is no output."""

    def _first(self, attempt: Try) -> None:
        now_ns = self._kernel.now_ns
        attempt.heard_first_ns = now_ns
        self.signals.answering(attempt.id, now_ns)
        self.forecaster.warm(attempt.target)
        if attempt.tried is not None:
            attempt.tried = Attempt(
                decision=attempt.tried.decision,
                started_ns=attempt.tried.started_ns,
                tries=attempt.tried.tries,
                relayed=True,
            )
        for other in attempt.case.tries:
            # The first that answers wins; what the others would have said is not needed.
            if other is not attempt and not other.over:
                self._end(other)

    def _useful(self, attempt: Try) -> None:
        now_ns, job = self._kernel.now_ns, attempt.job
        Kernel.cancel(attempt.timer)
        service_ns = (job.useful_ns or now_ns) - job.arrived_ns
        if attempt.tried is not None:
            expected = attempt.tried.decision.forecasts.expectation(attempt.target)
            self.forecaster.learn(expected, service_ns, now_ns)
            self.health.answered(attempt.target, now_ns, service_ns / expected.service_ns)
        self.throttles.succeeded(self._field.fleet.targets[attempt.target].site)
        self._close(attempt.case, "ok", attempt)

    def _finished(self, attempt: Try) -> None:
        attempt.over = True
        self.signals.ended(attempt.id, self._kernel.now_ns)
        self.forecaster.sizes(attempt.job.prompt, attempt.job.output)

    def _failed(self, attempt: Try) -> None:
        now_ns = self._kernel.now_ns
        self.forecaster.failed(attempt.target, now_ns)
        self.health.failed(attempt.target, now_ns)
        self.throttles.failed(self._field.fleet.targets[attempt.target].site)
        self._fail(attempt.case, attempt)

    def _client_error(self, attempt: Try) -> None:
        self.health.client_error(attempt.target)
        self._end(attempt)
        self._close(attempt.case, "error", attempt)

    def _fail(self, case: Case, attempt: Try | None) -> None:
        if attempt is None or attempt.tried is None:
            self._close(case, "error", None)
            return
        situation = self._situation(attempt)
        self._end(attempt)
        what = after_failure(attempt.tried, situation)
        if what.decision is not None and what.decision.target is not None:
            self._send(case, what.decision)
        elif all(each.over for each in case.tries):
            self._close(case, "error", None)

    def gone(self, case: Case) -> None:
        """The client left: everything of it is cancelled, and its slots are free."""
        for attempt in case.tries:
            if not attempt.over:
                self._end(attempt)
        if case in self._later:
            self._later.remove(case)

    # Later

    def _put_off(self, case: Case) -> None:
        if not self._later:
            self._kernel.after(_LATER_NS, self._look_at_later)
        self._later.append(case)
        self._close(case, "refused", None)

    def _look_at_later(self) -> None:
        """Work that can wait is sent where nothing waits, one a look."""
        idle = (self.signals.own_waiting == 0) & (np.nan_to_num(self.signals.others_waiting) == 0)
        idle &= self.health.usable(self._kernel.now_ns)
        if idle.any():
            case = self._later.pop(0)
            self._background(case, int(idle.argmax()))
        if self._later:
            self._kernel.after(_LATER_NS, self._look_at_later)

    def _background(self, case: Case, target: int) -> None:
        attempt = self._field.start(case, target, case.ask.output_tokens, 1, self._heard_later)
        if attempt is not None:
            self.signals.sent(
                attempt.id, target, case.request.input_tokens, case.request.output_tokens, self._kernel.now_ns
            )

    def _heard_later(self, attempt: Try, what: str) -> None:
        if what == "first":
            self.signals.answering(attempt.id, self._kernel.now_ns)
        elif what in ("end", "failed", "client-error"):
            self._end(attempt)


_HOPELESS = 4.0

_HEARD: dict[str, Callable[[OutlayRouter, Try], None]] = {
    "chunk": OutlayRouter._chunk,
    "first": OutlayRouter._first,
    "useful": OutlayRouter._useful,
    "end": OutlayRouter._finished,
    "failed": OutlayRouter._failed,
    "client-error": OutlayRouter._client_error,
}
