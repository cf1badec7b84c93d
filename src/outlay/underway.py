"""What to do with a request that is already under way: wait, add a second attempt, move to the fallback, or stop.

Pure as `decision`: the caller says what happened and what is left, and acts on the answer. Generation is not
idempotent for whoever pays for it, so a second attempt is never started once a byte was handed on, and each one needs
a token of the site that it goes to.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from outlay.decision import Decision, decide
from outlay.forecast import Forecasts
from outlay.policy import Hedge, Policy, Rules
from outlay.work import Request

_ALL = 0.998

Step = Literal["wait", "hedge", "move", "stop", "end"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One attempt so far. `tries` counts the interaction's attempts, this one included; `relayed` says whether the
    user was handed any of its output.
    """

    decision: Decision
    started_ns: int
    tries: int
    relayed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Next:
    """What to do now. `wait`: until `look_again_ns`. `hedge`: start `decision` beside the first. `move`: cancel the
    first and start `decision`, which may also be to refuse or to defer. `stop`: cancel, nothing can be on time.
    `end`: something was handed on already, so tell the user that the answer broke off; never end it as if it was whole.
    """

    step: Step
    reason: str
    look_again_ns: int | None = None
    decision: Decision | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """What is true now, for the request and for what else could serve it.

    `forecasts` are of `now_ns`, of which only sites with retries left are usable; `may_retry` says whether any are.
    """

    request: Request
    remaining_ns: int
    policy: Policy
    forecasts: Forecasts
    now_ns: int
    random: Callable[[], float]
    may_retry: bool

    def decide_without(self, target: int | None) -> Decision:
        """Somebody else for what is left."""
        options = self.forecasts if target is None else without(self.forecasts, target)
        return decide(self.request, self.remaining_ns, self.policy, options, self.now_ns, self.random)


def first_look_ns(attempt: Attempt, rules: Rules) -> int:
    """When to look at an attempt first: at its deadline, or sooner, when it would be slow enough for a hedge."""
    decision = attempt.decision
    within_ns = decision.deadline_ns
    if rules.hedge is not None and attempt.tries < rules.attempts and decision.target is not None:
        (curve,) = decision.forecasts.curves([decision.target])
        within_ns = min(within_ns, curve.quantile_ns(rules.hedge.after))
    return attempt.started_ns + int(within_ns)


def after_silence(attempt: Attempt, situation: Situation) -> Next:
    """The attempt has not answered yet."""
    if attempt.relayed or attempt.decision.target is None:
        return Next(step="wait", reason="it is answering")
    deadline_ns = attempt.started_ns + int(attempt.decision.deadline_ns)
    if situation.now_ns >= deadline_ns:
        return _instead(attempt, situation, "its time is up")
    rules = situation.policy.of(situation.request.moment)
    if rules.hedge is None or attempt.tries >= rules.attempts:
        return Next(step="wait", reason="until its deadline", look_again_ns=deadline_ns)
    return _hedged(attempt, situation, rules.hedge, deadline_ns)


def _hedged(attempt: Attempt, situation: Situation, hedge: Hedge, deadline_ns: int) -> Next:
    """A second attempt beside the first, if that is slow, the second likelier on time, and a retry allowed."""
    target, elapsed_ns = attempt.decision.target, situation.now_ns - attempt.started_ns
    assert target is not None, "only what was sent is under way"
    (curve,) = situation.forecasts.curves([target])
    slow_ns = curve.quantile_ns(hedge.after)
    if elapsed_ns < slow_ns:
        look_again_ns = int(min(attempt.started_ns + slow_ns, deadline_ns))
        return Next(step="wait", reason="it is not slow yet", look_again_ns=look_again_ns)
    if not situation.may_retry:
        return Next(step="wait", reason="retries are used up", look_again_ns=deadline_ns)
    second = situation.decide_without(target)
    # Given that it has not come by now: P(T <= t | T > elapsed). Beyond all that its kind takes, nothing is known of it
    # but that it is late.
    gone = curve.within(elapsed_ns)
    first = (curve.within(elapsed_ns + situation.remaining_ns) - gone) / (1 - gone) if gone < _ALL else 0.0
    if second.target is None or second.p_on_time - first <= hedge.gain:
        return Next(step="wait", reason="a second attempt gains too little", look_again_ns=deadline_ns)
    return Next(step="hedge", reason=f"slower than {hedge.after:.0%} of its kind", decision=second)


def after_failure(attempt: Attempt, situation: Situation) -> Next:
    """The attempt broke: refused, cut, malformed. Somebody else is tried while that can still be on time."""
    return _instead(attempt, situation, "it failed")


def _instead(attempt: Attempt, situation: Situation, reason: str) -> Next:
    if attempt.relayed:
        return Next(step="end", reason=f"{reason}, and a part of the answer was handed on")
    if attempt.tries >= situation.policy.of(situation.request.moment).attempts:
        return Next(step="stop", reason=f"{reason}, and no attempt is left")
    if not situation.may_retry:
        return Next(step="stop", reason=f"{reason}, and retries are used up")
    if situation.remaining_ns <= 0:
        return Next(step="stop", reason=f"{reason}, and the budget is spent")
    return Next(step="move", reason=reason, decision=situation.decide_without(attempt.decision.target))


def without(forecasts: Forecasts, target: int) -> Forecasts:
    """The same forecasts with one candidate out of the choice, as if it were ejected."""
    usable = forecasts.usable.copy()
    usable[target] = False
    return replace(forecasts, usable=np.asarray(usable, dtype=np.bool_))
