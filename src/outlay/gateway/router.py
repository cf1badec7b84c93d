"""Outlay's router on live traffic: it collects signals, forecasts, and calls the same `decide` as the simulator.

Learning costs more than routing does, so of many requests a few are learned from, chosen before what becomes of them
is known; failures are always learned from.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from outlay.admission import GradientLimit, Throttles
from outlay.decision import Decision, decide
from outlay.deployment import Deployment, Ladders
from outlay.forecast import Forecasts
from outlay.forecaster import Forecaster
from outlay.health import Health
from outlay.held import Held, kind_of
from outlay.policy import Policy
from outlay.signals import Signals
from outlay.underway import Attempt, Next, Situation, after_failure, after_silence, first_look_ns
from outlay.units import NS_PER_MS
from outlay.work import Mask, Request

# At most one request in this time is learned from.
_LEARN_NS = 5 * NS_PER_MS
_MOST_PATHS = 64
DEFAULT_PATH, OTHER_PATH = "default", "other"


@dataclass(slots=True)
class Sent:
    """One attempt as the router knows it."""

    id: str
    target: int
    decision: Decision
    started_ns: int
    tries: int
    is_learned: bool
    heard_ns: int | None = None


class LiveRouter:
    """The state of one worker. All times are monotonic, in ns, and given by the caller."""

    def __init__(self, deployment: Deployment, random: Callable[[], float]) -> None:
        self.deployment = deployment
        self.fleet = deployment.fleet
        self.ladders = Ladders(deployment)
        self.signals = Signals(self.fleet)
        self.health = Health(self.fleet)
        self.throttles = Throttles(self.fleet.sites)
        self.limits = [GradientLimit(first=64.0) for _ in self.fleet.targets]
        self.held = Held()
        self._random = random
        self._user_rtt_ns: dict[str, float] = {}
        self._prior_ns: dict[tuple[str, str], int] = {}
        self._know(DEFAULT_PATH, 0)
        self.forecaster = Forecaster(self.signals, prior_rtt_ns=self._prior_ns)
        self._learned_ns = 0
        self._rtt_ns: dict[int, int] = {}
        self._sequence = 0
        self.decisions = 0
        self.stood = 0

    def path(self, region: str | None, user_rtt_ns: int) -> str:
        """The class of a user's network, whose round trip was just seen; so many are told apart, the rest are one."""
        path = region or DEFAULT_PATH
        known_ns = self._user_rtt_ns.get(path)
        if known_ns is None:
            path = path if len(self._user_rtt_ns) < _MOST_PATHS else OTHER_PATH
            self._know(path, user_rtt_ns)
        elif user_rtt_ns:
            self._user_rtt_ns[path] = known_ns + 0.05 * (user_rtt_ns - known_ns)
        return path

    def _know(self, path: str, user_rtt_ns: int) -> None:
        self._user_rtt_ns.setdefault(path, float(user_rtt_ns))
        for site in self.fleet.sites:
            self._prior_ns.setdefault((path, site), self.deployment.rtt_ns.get(site, NS_PER_MS) + user_rtt_ns)

    # Deciding

    def choose(self, request: Request, model: str, policy: Policy, remaining_ns: int, now_ns: int) -> Decision:
        """Who serves a request; a decision that was just made for one of its kind stands."""
        kind = kind_of(request, model)
        self.decisions += 1
        decision = self.held.find(kind, remaining_ns, now_ns)
        if decision is not None:
            self.stood += 1
            return decision
        decision = decide(request, remaining_ns, policy, self._forecasts(request, now_ns), now_ns, self._random)
        rules = policy.of(request.moment)
        if not rules.sheddable:
            self.signals.decided(decision.pressed, now_ns)
        self.held.keep(kind, decision, rules, now_ns)
        return decision

    def _forecasts(self, request: Request, now_ns: int) -> Forecasts:
        usable = self.health.usable(now_ns) & self._has_room()
        return self.forecaster.forecasts(request, now_ns, usable, spare=self._spare())

    def _has_room(self) -> Mask:
        """Targets below their limit, which falls when answers take longer than predicted; all when none is."""
        under_way = self.signals.own_waiting + self.signals.own_answering
        room = np.array([under_way[place] < limit.limit for place, limit in enumerate(self.limits)], dtype=np.bool_)
        return room if room.any() else np.ones_like(room)

    def _spare(self) -> Mask:
        return np.array([self.throttles.allows(site) for site in self.fleet.sites])[self.fleet.site_of]

    # Attempts

    def sent(self, request: Request, decision: Decision, tries: int, now_ns: int) -> Sent:
        """An attempt goes to the target of its decision."""
        target = decision.target
        assert target is not None, "only what is served is sent"
        self._sequence += 1
        name = f"{self._sequence}"
        self.signals.sent(name, target, request.input_tokens, decision.output_tokens, now_ns)
        self.health.took(target, now_ns)
        if decision.forecasts.cold[target] > 0.5:
            self.forecaster.starting(target, now_ns)
        is_learned = now_ns - self._learned_ns >= _LEARN_NS
        if is_learned:
            self._learned_ns = now_ns
        return Sent(name, target, decision, now_ns, tries, is_learned)

    def answering(self, sent: Sent, now_ns: int) -> None:
        """The first content came, and it is handed on."""
        sent.heard_ns = now_ns
        self.signals.answering(sent.id, now_ns)
        self.forecaster.warm(sent.target)

    def useful(self, sent: Sent, network_ns: int, on_time: bool, now_ns: int) -> None:
        """Enough of the answer to be of use is there."""
        site = self.fleet.targets[sent.target].site
        self.throttles.succeeded(site)
        if not sent.is_learned:
            self.health.answered(sent.target, now_ns, None)
            return
        expected = sent.decision.forecasts.expectation(sent.target)
        service_ns = max(now_ns - sent.started_ns - network_ns, 1)
        ratio = service_ns / expected.service_ns
        self.forecaster.learn(expected, service_ns, now_ns)
        self.forecaster.kept(expected, sent.decision.p_plain, on_time, now_ns)
        self.forecaster.settle(now_ns)
        self.limits[sent.target].answered(ratio, self.signals.own_requests(sent.target))
        before = self.health.usable(now_ns)
        self.health.answered(sent.target, now_ns, ratio)
        if self.health.usable(now_ns) is not before:
            self.held.changed()

    def ended(self, sent: Sent, now_ns: int) -> None:
        """The attempt is over, however it ended; more than once does no harm."""
        self.signals.ended(sent.id, now_ns)

    def failed(self, sent: Sent, now_ns: int) -> None:
        """The target failed it, for a reason that is the target's own."""
        self.ended(sent, now_ns)
        self.forecaster.failed(sent.target, now_ns)
        self.health.failed(sent.target, now_ns)
        self.throttles.failed(self.fleet.targets[sent.target].site)
        self.held.changed()

    def client_error(self, sent: Sent, now_ns: int) -> None:
        """The request itself was wrong: nothing is learned of the target."""
        self.ended(sent, now_ns)
        self.health.client_error(sent.target)

    def cancelled(self, sent: Sent, now_ns: int) -> None:
        """The client went, or another attempt won."""
        self.ended(sent, now_ns)
        self.health.cancelled(sent.target)

    def gave_up(self, sent: Sent, network_ns: int, now_ns: int) -> None:
        """Its time was up: all that is known is that it takes longer than this."""
        expected = sent.decision.forecasts.expectation(sent.target)
        self.ended(sent, now_ns)
        waited_ns = now_ns - sent.started_ns - network_ns
        if waited_ns > 0:
            self.forecaster.learn_cut(expected, waited_ns, now_ns)
        self.health.failed(sent.target, now_ns)
        if waited_ns > _HOPELESS * expected.service_ns:
            self.forecaster.failed(sent.target, now_ns)
        self.throttles.failed(self.fleet.targets[sent.target].site)
        self.held.changed()

    # What to do with one under way

    def after_silence(
        self, sent: Sent, request: Request, policy: Policy, remaining_ns: int, *, relayed: bool, now_ns: int
    ) -> Next:
        """It has not answered yet."""
        return after_silence(_attempt(sent, relayed), self._situation(request, policy, remaining_ns, now_ns))

    def first_look_ns(self, sent: Sent, policy: Policy, moment: str) -> int:
        """When to look at an attempt first."""
        return first_look_ns(_attempt(sent, relayed=False), policy.of(moment))

    def after_failure(
        self, sent: Sent, request: Request, policy: Policy, remaining_ns: int, *, relayed: bool, now_ns: int
    ) -> Next:
        """It broke."""
        return after_failure(_attempt(sent, relayed), self._situation(request, policy, remaining_ns, now_ns))

    def _situation(self, request: Request, policy: Policy, remaining_ns: int, now_ns: int) -> Situation:
        spare, forecasts = self._spare(), self._forecasts(request, now_ns)
        return Situation(
            request=request,
            remaining_ns=remaining_ns,
            policy=policy,
            forecasts=replace(forecasts, usable=forecasts.usable & spare),
            now_ns=now_ns,
            random=self._random,
            may_retry=bool(spare.any()),
        )

    def site_rtt_ns(self, target: int) -> int:
        """The round trip to a target's site as last measured, else as declared."""
        return self._rtt_ns.get(target) or self.deployment.rtt_ns.get(self.fleet.targets[target].site, NS_PER_MS)

    def measured(self, target: int, rtt_ns: int, now_ns: int) -> None:
        """A round trip to a target was measured; the ways of all classes of users lead over it."""
        self._rtt_ns[target] = rtt_ns
        site = self.fleet.targets[target].site
        for path, user_rtt_ns in self._user_rtt_ns.items():
            self.forecaster.network(path, site, rtt_ns + user_rtt_ns, now_ns)
        self.forecaster.settle(now_ns)

    def reported(self, target: int, quantities: dict[str, float], source: str, now_ns: int) -> None:
        """A target said what it looks like."""
        self.signals.reported(target, quantities, now_ns, source)


_HOPELESS = 4.0


def _attempt(sent: Sent, relayed: bool) -> Attempt:
    return Attempt(decision=sent.decision, started_ns=sent.started_ns, tries=sent.tries, relayed=relayed)
