"""A decision that stands for alike requests, for a few milliseconds.

Forecasts and a decision cost more than everything else that a gateway does to a small request. What they rest on
changes slowly: within HELD_NS, with work on the way that does not reach what the rules call a tie, the same candidate
would be chosen again for a request of the same kind. So the choice stands until one of these ends it: its time, work
sent on it, another remaining budget, or anything that was learned of a target's fitness.
"""

from collections.abc import Hashable
from dataclasses import dataclass

from outlay.decision import Decision
from outlay.policy import Rules
from outlay.units import NS_PER_MS
from outlay.work import Request

HELD_NS = 5 * NS_PER_MS
# Budgets are alike within 1 %.
_ALIKE = 0.01
_MOST_KINDS = 512


def kind_of(request: Request, model: str) -> Hashable:
    """Requests of one kind are decided on alike, given the same remaining budget."""
    return (
        request.moment,
        model,
        request.path,
        _size(request.input_tokens),
        _size(request.output_tokens),
        request.useful_tokens,
        _size(request.payload_bytes),
    )


def _size(count: int) -> int:
    """Small counts as they are; larger ones with three leading bits after the first."""
    shift = max(count.bit_length() - 4, 0)
    return count >> shift << shift


@dataclass(slots=True)
class _Held:
    decision: Decision
    until_ns: int
    left_ns: float
    cost_ns: float


class Held:
    """Decisions that stand, by kind of request."""

    def __init__(self) -> None:
        self._of: dict[Hashable, _Held] = {}

    def find(self, kind: Hashable, remaining_ns: int, now_ns: int) -> Decision | None:
        """The decision that stands for one more request of this kind; None when it must be made anew."""
        held = self._of.get(kind)
        if held is None:
            return None
        if now_ns >= held.until_ns or held.left_ns < held.cost_ns:
            del self._of[kind]
            return None
        if abs(remaining_ns - held.decision.remaining_ns) > _ALIKE * held.decision.remaining_ns:
            return None
        held.left_ns -= held.cost_ns
        return held.decision

    def keep(self, kind: Hashable, decision: Decision, rules: Rules, now_ns: int) -> None:
        """Let a decision stand. Only one to serve that was likely enough does, and not one that was made to explore."""
        target = decision.target
        if target is None or decision.explored or decision.reason != "on time":
            return
        if len(self._of) >= _MOST_KINDS:
            self._of.clear()
        view = decision.forecasts
        tie_ns = max(rules.tie_ns, rules.tie_share * float(view.ahead_ns[target]))
        # What one more request of the kind makes the next one wait is at most its whole service.
        cost_ns = float(view.service_ns[target])
        if cost_ns <= tie_ns:
            self._of[kind] = _Held(decision, now_ns + HELD_NS, tie_ns, cost_ns)

    def changed(self) -> None:
        """Something was learned that may change any choice: a failure, an ejection, a recovery."""
        self._of.clear()
