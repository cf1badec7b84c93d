"""Which targets are fit to be used: ejected on errors and on slowness, let back one probe at a time.

A client's own errors and cancelled attempts say nothing of a target, and touch nothing. Never more than half of a
fleet is out at once, so a fleet of one is always used: when all look broken, it is rarely the servers.
"""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from outlay.units import NS_PER_S
from outlay.work import Fleet, Mask

State = Literal["closed", "open", "half-open"]


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthRules:
    """When a target is taken out and let back.

    failures: in a row that eject; first_ns, most_ns: how long, doubling each time (Prequal's sinkhole guard: 5, 1 s to
    30 s). probes: good ones in a row that close it. most_out: the largest share of a fleet that may be out.
    slow_factor: ejected when it takes this much longer than predicted, compared with its fleet's median, over at least
    `slow_count` answers that still count (half of them after `slow_half_life_ns`).
    """

    failures: int = 5
    first_ns: int = NS_PER_S
    most_ns: int = 30 * NS_PER_S
    probes: int = 3
    most_out: float = 0.5
    slow_factor: float = 4.0
    slow_count: float = 10.0
    slow_half_life_ns: int = 10 * NS_PER_S


DEFAULT_RULES = HealthRules()


@dataclass(slots=True)
class _Target:
    failures: int = 0
    good: int = 0
    until_ns: int | None = None
    out_ns: int = 0
    probing: bool = False
    octaves: float = 0.0
    count: float = 0.0
    at_ns: int = 0


class Health:
    """The state of every target of a fleet, in its order."""

    def __init__(self, fleet: Fleet, rules: HealthRules = DEFAULT_RULES) -> None:
        self._rules = rules
        self._targets = [_Target() for _ in fleet.targets]
        self._usable: Mask = np.ones(len(self._targets), dtype=np.bool_)
        # Nothing changes before this instant unless something is told.
        self._changes_ns: float = math.inf

    def usable(self, now_ns: int) -> Mask:
        """Which targets may be chosen now. A half-open one is, until a probe is on its way."""
        if now_ns >= self._changes_ns:
            self._refresh(now_ns)
        return self._usable

    def took(self, target: int, now_ns: int) -> None:
        """An attempt goes to a target: when that is half-open, the attempt is its probe."""
        state = self._targets[target]
        if self._state(state, now_ns) == "half-open" and not state.probing:
            state.probing = True
            self._refresh(now_ns)

    def failed(self, target: int, now_ns: int) -> None:
        """An attempt failed for a reason that is the target's own."""
        state = self._targets[target]
        state.failures += 1
        state.good = 0
        if state.until_ns is not None:
            if now_ns >= state.until_ns:
                self._eject(state, now_ns)
        elif state.failures >= self._rules.failures and self._may_eject():
            self._eject(state, now_ns)
        self._refresh(now_ns)

    def answered(self, target: int, now_ns: int, ratio: float | None) -> None:
        """An attempt was answered; `ratio` is its time over the predicted one, None when nothing was predicted."""
        state = self._targets[target]
        state.failures = 0
        if state.until_ns is not None and now_ns >= state.until_ns:
            state.probing = False
            state.good += 1
            if state.good >= self._rules.probes:
                state.until_ns, state.good, state.out_ns = None, 0, 0
                state.count = state.octaves = 0.0
            self._refresh(now_ns)
        if ratio is not None and ratio > 0:
            self._timed(state, math.log2(ratio), now_ns)

    def client_error(self, target: int) -> None:
        """The client's own fault: nothing is learned of the target, but that a probe came back."""
        self._targets[target].probing = False

    def cancelled(self, target: int) -> None:
        """We gave up, for a reason that is not the target's: a probe that ends so proves nothing."""
        self._targets[target].probing = False

    def states(self, now_ns: int) -> tuple[State, ...]:
        """For people: each target's state."""
        return tuple(self._state(state, now_ns) for state in self._targets)

    def _state(self, state: _Target, now_ns: int) -> State:
        if state.until_ns is None:
            return "closed"
        return "open" if now_ns < state.until_ns else "half-open"

    def _timed(self, state: _Target, octaves: float, now_ns: int) -> None:
        kept = math.exp2(-max(now_ns - state.at_ns, 0) / self._rules.slow_half_life_ns)
        state.octaves = state.octaves * kept + octaves
        state.count = state.count * kept + 1.0
        state.at_ns = now_ns
        if state.count < self._rules.slow_count or state.until_ns is not None:
            return
        means = sorted(each.octaves / each.count for each in self._targets if each.count >= 1.0)
        usual = means[(len(means) - 1) // 2]
        if state.octaves / state.count - usual > math.log2(self._rules.slow_factor) and self._may_eject():
            self._eject(state, now_ns)
            self._refresh(now_ns)

    def _may_eject(self) -> bool:
        out = sum(state.until_ns is not None for state in self._targets)
        return out + 1 <= self._rules.most_out * len(self._targets)

    def _eject(self, state: _Target, now_ns: int) -> None:
        state.out_ns = min(max(2 * state.out_ns, self._rules.first_ns), self._rules.most_ns)
        state.until_ns = now_ns + state.out_ns
        state.probing = False

    def _refresh(self, now_ns: int) -> None:
        usable = [state.until_ns is None or (now_ns >= state.until_ns and not state.probing) for state in self._targets]
        self._usable = np.array(usable, dtype=np.bool_)
        coming = [state.until_ns for state in self._targets if state.until_ns is not None and state.until_ns > now_ns]
        self._changes_ns = min(coming, default=math.inf)
