"""Which candidate serves a request, by what is left of its budget; and what happens when none can.

`decide` is a pure function of values: the gateway and the simulator call this one, and a logged decision can be made
again. It takes the first rung of the moment's ladder on which somebody is likely enough on time, stays with the
user's own site unless moving pays, and lets chance pick among equals. When nobody is likely enough, it serves the best
chance only as long as that makes nobody else wait; the ladder ends in a deferral or a refusal that comes at once.

A first attempt leaves a reserve: it is given up while the fallback can still be on time.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from outlay.decaying import Floats
from outlay.forecast import Expectation, Forecasts
from outlay.policy import Policy, Rules
from outlay.work import Mask, Request

Action = Literal["serve", "refuse", "defer"]

# The fallback must fit into what is left with this probability (routing practice: P95).
RESERVE = 0.95
# An attempt that is given up more often than not is no first attempt but a detour.
_WORTH_TRYING = 0.5
# What a reserve may cost: it is for failures that no forecast foresees.
_FREE = 0.005
# Queueing this share of what remains puts the full price on a request that may come late anyway.
_PRICED_WAIT = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What was thought of one candidate: how likely on time, and why it was not chosen; None for the chosen one."""

    target: str
    p_on_time: float
    why: str | None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Decision:
    """What to do with one request, and all that spoke for and against it.

    `target` is the candidate's place in the fleet, None unless the action is to serve. `p_on_time` is the best that
    could be had when nothing is served; `p_plain` is the same before what came of earlier promises was counted in.
    `rung` counts from 0. `deadline_ns` is the time from now at which the attempt is given up, `fallback` who is tried
    then.
    """

    request: str
    at_ns: int
    action: Action
    reason: str
    remaining_ns: int
    target: int | None
    p_on_time: float
    p_plain: float
    render_ns: int
    p_min: float
    rung: int
    output_tokens: int
    deadline_ns: float
    fallback: int | None
    explored: bool
    p: Floats
    fit: Mask
    forecasts: Forecasts

    @property
    def headroom_ns(self) -> float:
        """What remains less the time within which the choice comes with probability p_min, the device's part kept back.

        Negative when it is served as the best chance, minus infinity when nothing is. It is worked out from the
        forecasts when it is asked for, and those hold until more is learned.
        """
        if self.target is None:
            return -math.inf
        (curve,) = self.forecasts.curves([self.target])
        return self.remaining_ns - self.render_ns - curve.quantile_ns(self.p_min)

    def expectation(self) -> Expectation:
        """What was predicted of the choice, to be kept until it is known what came of it. Only what is served has one.

        Raises ValueError otherwise.
        """
        if self.target is None:
            raise ValueError("nothing was predicted of what is not served")
        return self.forecasts.expectation(self.target)

    @property
    def pressed(self) -> bool:
        """Nobody is likely on time, and waiting is why: a sign of too little capacity, not of a bad network."""
        best = int(self.p.argmax())
        return not self.fit.any() and bool(self.forecasts.wait_ns[best] > _PRICED_WAIT * max(self.remaining_ns, 0))

    def verdicts(self) -> tuple[Verdict, ...]:
        """One for every candidate, in the order of the fleet."""
        return tuple(
            Verdict(target=target.name, p_on_time=float(self.p[place]), why=self._why(place))
            for place, target in enumerate(self.forecasts.fleet.targets)
        )

    def _why(self, place: int) -> str | None:
        if place == self.target:
            return None
        view, chosen = self.forecasts, self.target
        whys = (
            (not view.usable[place], "ejected"),
            (np.isnan(view.network_ns[place, 0]), "nothing is known of the path"),
            (not self.fit[place], "not likely enough on time"),
            (chosen is None, self.reason),
            (view.fleet.quality[place] < view.fleet.quality[chosen or 0], "a better variant is on time too"),
            (view.ahead_ns[place] < view.ahead_ns[chosen or 0], "not enough faster to leave the user's site"),
        )
        return next((why for holds, why in whys if holds), "slower than the chosen one")


def decide(
    request: Request,
    remaining_ns: int,
    policy: Policy,
    forecasts: Forecasts,
    now_ns: int,
    random: Callable[[], float],
) -> Decision:
    """Choose for one request of which `remaining_ns` of the budget is left. `random` gives numbers in [0, 1).

    Deterministic given its inputs. A single candidate is used whatever its signals' age, as long as it is usable.
    """
    rules = policy.of(request.moment)
    within_ns = float(remaining_ns - rules.render_ns)
    best: _Chance | None = None
    if _is_shed(rules, forecasts.pressure, random):
        nothing = np.zeros(len(forecasts.fleet.targets))
        unasked = _Chance(0, 0, forecasts, nothing, nothing, nothing > 0, 0)
        return _turned_away(unasked, "shed", request, remaining_ns, rules, now_ns)
    share = 0.0
    for depth, rung in enumerate(rules.rungs):
        if rung.output_share != share:  # rungs that differ in variants alone share their probabilities
            share = rung.output_share
            tokens = max(1, round(request.output_tokens * share))
            view = forecasts if share == 1 else forecasts.shorter(min(request.useful_tokens, tokens))
            plain = view.p_within(within_ns)
            likely = view.judged(plain) * view.usable
        p = likely * view.fleet.of(rung.variants)
        fit = p >= rules.p_min
        if fit.any():
            chosen, explored = _pick(request, within_ns, rules, rung.variants, view, fit, random)
            return _serve(
                _Chance(depth, tokens, view, p, plain, fit, chosen), request, remaining_ns, rules, now_ns, explored
            )
        place = int(p.argmax())
        # A lower rung must be clearly better: it costs quality.
        if best is None or p[place] > best.p[best.chosen] + 0.05:
            best = _Chance(depth, tokens, view, p, plain, fit, place)
    assert best is not None, "rules have at least one rung"
    return _last_resort(best, request, remaining_ns, rules, now_ns)


def _is_shed(rules: Rules, pressure: float, random: Callable[[], float]) -> bool:
    """From nobody to everybody while the pressure doubles twice."""
    return (
        rules.sheddable
        and pressure > rules.shed_from
        and random() < (pressure - rules.shed_from) / (3 * rules.shed_from)
    )


class _Chance(NamedTuple):
    depth: int
    tokens: int
    view: Forecasts
    p: Floats
    plain: Floats
    fit: Mask
    chosen: int


def _pick(
    request: Request,
    within_ns: float,
    rules: Rules,
    variants: tuple[str, ...],
    view: Forecasts,
    fit: Mask,
    random: Callable[[], float],
) -> tuple[int, bool]:
    """One of those that fit, which all serve one of `variants`, and whether it was picked to learn of it."""
    fleet = view.fleet
    if fleet.is_mixed(variants):
        quality = np.where(fit, fleet.quality, -1.0)
        fit = quality >= quality.max()
    if rules.explore and random() < rules.explore:
        options = fit.nonzero()[0]
        return int(options[int(random() * len(options))]), True
    ahead = np.where(fit, view.ahead_ns, np.inf)
    best = int(ahead.argmin())
    if request.local is not None:
        near = np.where(fleet.at(request.local), ahead, np.inf)
        home = int(near.argmin())
        gain_ns = near.item(home) - ahead.item(best)
        if gain_ns <= rules.local_share * within_ns or gain_ns <= 2 * _sigma_ns(view, home, best):
            ahead, best = near, home
    shortest_ns = ahead.item(best)
    close = ahead <= shortest_ns + max(rules.tie_ns, rules.tie_share * shortest_ns)
    options = close.nonzero()[0]
    if len(options) > 1:
        price = fleet.price[options]
        options = options[price <= price.min()]
        best = int(options[int(random() * len(options))])
    return best, False


def _sigma_ns(view: Forecasts, one: int, other: int) -> float:
    """The standard deviation of the difference of two candidates' times, from the spread of their networks.

    Their servers' times are not in it: a queue that is longer is longer, however uncertain both are.
    """
    return math.hypot(view.network_sigma_ns.item(one), view.network_sigma_ns.item(other))


def _serve(chance: _Chance, request: Request, remaining_ns: int, rules: Rules, now_ns: int, explored: bool) -> Decision:
    view, chosen = chance.view, chance.chosen
    within_ns = float(remaining_ns - rules.render_ns)
    p_plain, deadline_ns, fallback = float(chance.plain[chosen]), within_ns, None
    other = _fallback(view, chosen, rules) if rules.attempts > 1 else None
    if other is not None:
        early_ns = within_ns - view.bound_ns(other, RESERVE) - rules.margin_ns
        # Giving up an attempt that would have come is worse than waiting for it. When the first has come by then with
        # probability f, both together come with f + (1 - f) RESERVE, which must not be less than what waiting gives.
        needed = max(_WORTH_TRYING, (p_plain - _FREE - RESERVE) / (1 - RESERVE))
        if early_ns > 0 and view.bound_ns(chosen, min(needed, 1.0)) <= early_ns:
            deadline_ns, fallback = early_ns, other
    return Decision(
        request=request.id,
        at_ns=now_ns,
        action="serve",
        reason="explored" if explored else "on time" if chance.fit[chosen] else "best chance",
        remaining_ns=remaining_ns,
        target=chosen,
        p_on_time=float(chance.p[chosen]),
        p_plain=p_plain,
        render_ns=rules.render_ns,
        p_min=rules.p_min,
        rung=chance.depth,
        output_tokens=chance.tokens,
        deadline_ns=deadline_ns,
        fallback=fallback,
        explored=explored,
        p=chance.p,
        fit=chance.fit,
        forecasts=view,
    )


def _fallback(view: Forecasts, chosen: int, rules: Rules) -> int | None:
    """The quickest other candidate that the ladder allows; one at the same site, which may fail with it, counts half
    as much longer.
    """
    fleet = view.fleet
    allowed = fleet.of(rules.variants)
    if view.spare is not None:
        allowed = allowed & view.spare
    ahead = view.ahead_ns * fleet.beside(fleet.targets[chosen].site)
    ahead[chosen] = np.inf
    other = int(ahead.argmin())
    if not (view.usable[other] and allowed[other]):
        ahead = np.where(view.usable & allowed, ahead, np.inf)
        other = int(ahead.argmin())
    return other if ahead[other] < np.inf else None


def _last_resort(best: _Chance, request: Request, remaining_ns: int, rules: Rules, now_ns: int) -> Decision:
    """Nobody is likely enough on time: serve the best chance if that costs nobody else theirs, else end the ladder."""
    p = float(best.p[best.chosen])
    within_ns = remaining_ns - rules.render_ns
    queues = min(best.view.wait_ns[best.chosen] / max(_PRICED_WAIT * within_ns, 1.0), 1.0)
    if p > 0 and p >= rules.p_floor * queues:
        return _serve(best, request, remaining_ns, rules, now_ns, explored=False)
    reason = "no time is left" if within_ns <= 0 else "nobody is likely enough on time"
    return _turned_away(best, reason, request, remaining_ns, rules, now_ns)


def _turned_away(
    best: _Chance, reason: str, request: Request, remaining_ns: int, rules: Rules, now_ns: int
) -> Decision:
    return Decision(
        request=request.id,
        at_ns=now_ns,
        action=rules.last,
        reason=reason,
        remaining_ns=remaining_ns,
        target=None,
        p_on_time=float(best.p[best.chosen]),
        p_plain=float(best.plain[best.chosen]),
        render_ns=rules.render_ns,
        p_min=rules.p_min,
        rung=len(rules.rungs),
        output_tokens=0,
        deadline_ns=0.0,
        fallback=None,
        explored=False,
        p=best.p,
        fit=best.fit,
        forecasts=best.view,
    )
