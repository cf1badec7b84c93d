"""What is known right now of each target: own work under way, what it reports of itself, whether it is warm.

The order of trust is measured by others too: own in-flight work has no age; a report (a probe's answer, a scraped
gauge, a load header) is as old as it is. Missing is not zero: a quantity that was never reported, or that a report no
longer holds, is unknown and raises an alarm.

Own work is counted from the set of attempts that are open, so it cannot go negative, is never reset, and an attempt
leaves it exactly once, however often its end is told.
"""

import math
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from outlay.units import NS_PER_MS, NS_PER_S, format_duration
from outlay.work import Fleet

Floats = NDArray[np.float64]

# What a target may report: requests waiting and running, and the share of its KV cache in use.
QUANTITIES = ("waiting", "running", "cache")

# Reports older than this raise an alarm; each still counts, by its age.
STALE_NS = 5 * NS_PER_S
# Ages of 5 to 10 ms already cost: BLIS. What a report says of others' work is as uncertain again after this long.
REPORT_TAU_NS = 50 * NS_PER_MS

# After this long, half of what a report said beyond the usual is gone: queues move in tenths of a second, batches in
# seconds.
WAITING_HALF_NS = 200 * NS_PER_MS
RUNNING_HALF_NS = 2 * NS_PER_S
_USUAL_GAIN = 0.1
_PRESSURE_GAIN = 0.02
_PRESSURE_HALF_NS = 5 * NS_PER_S

NEVER = -(2**62)

# Changes of own work kept for each target, so that a report can be compared with what was under way at its instant.
_REMEMBERED = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Signal:
    """One live observation: `sigma` is its standard deviation in the same unit, grown by `age_ns`."""

    value: float
    sigma: float
    age_ns: int
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Alarm:
    """Something that should be known of a target and is not. `kind` is `stale`, `missing` or `units`."""

    kind: str
    target: str
    text: str


@dataclass(slots=True)
class _Attempt:
    target: int
    prefill: float
    decode: float
    answering: bool = False


class Signals:
    """The live state of a fleet, one slot for each target in the fleet's order. The arrays are its own: read only."""

    def __init__(self, fleet: Fleet) -> None:
        size = len(fleet.targets)
        self.fleet = fleet
        # Own work: attempts without their first output yet, attempts that are answering, and their tokens.
        self.own_waiting: Floats = np.zeros(size)
        self.own_answering: Floats = np.zeros(size)
        self.own_prefill: Floats = np.zeros(size)
        self.own_decode: Floats = np.zeros(size)
        # Others' work: what the newest report holds beyond what was our own at its instant. NaN: unknown.
        self.others_waiting: Floats = np.full(size, np.nan)
        self.others_running: Floats = np.full(size, np.nan)
        # What they held on average, to which an old report says less and less to add.
        self.usual_waiting: Floats = np.full(size, np.nan)
        self.usual_running: Floats = np.full(size, np.nan)
        self.cache: Floats = np.full(size, np.nan)
        self.reported_at_ns: NDArray[np.int64] = np.full(size, NEVER)
        self.busy_at_ns: NDArray[np.int64] = np.full(size, NEVER)
        self.idle_since_ns: NDArray[np.int64] = np.full(size, NEVER)
        self._pressure = 0.0
        self._pressed_at_ns = 0
        self._open: dict[str, _Attempt] = {}
        self._past: list[deque[tuple[int, float, float]]] = [deque(maxlen=_REMEMBERED) for _ in range(size)]
        self._sources = [""] * size
        self._missing: list[frozenset[str]] = [frozenset()] * size

    # Own work

    def sent(self, attempt: str, target: int, prefill_tokens: float, decode_tokens: float, now_ns: int) -> None:
        """An attempt goes to a target. Raises ValueError when one of that name is under way already."""
        if attempt in self._open:
            raise ValueError(f"attempt {attempt!r} is already under way")
        self._open[attempt] = _Attempt(target, prefill_tokens, decode_tokens)
        self.own_waiting[target] += 1
        self.own_prefill[target] += prefill_tokens
        self.own_decode[target] += decode_tokens
        self._remember(target, now_ns)

    def answering(self, attempt: str, now_ns: int) -> bool:
        """The first output came: its prefill is done. False, and nothing else, when that was known or it has ended."""
        entry = self._open.get(attempt)
        if entry is None or entry.answering:
            return False
        entry.answering = True
        self._prefilled(entry)
        self.own_answering[entry.target] += 1
        self._remember(entry.target, now_ns)
        self.busy_at_ns[entry.target] = max(self.busy_at_ns[entry.target], now_ns)
        return True

    def ended(self, attempt: str, now_ns: int) -> bool:
        """The attempt is over, well or not: answered, failed, cancelled. False, and nothing else, when it was over."""
        entry = self._open.pop(attempt, None)
        if entry is None:
            return False
        target = entry.target
        if entry.answering:
            self.own_answering[target] -= 1
            self.busy_at_ns[target] = max(self.busy_at_ns[target], now_ns)
        else:
            self._prefilled(entry)
        self.own_decode[target] -= entry.decode
        self._remember(target, now_ns)
        if self.own_requests(target) == 0:
            # Exactly nothing is under way: rounding of added and taken fractions must not stay behind.
            self.own_prefill[target] = self.own_decode[target] = 0.0
            self.idle_since_ns[target] = max(self.idle_since_ns[target], now_ns)
        return True

    def _prefilled(self, entry: _Attempt) -> None:
        self.own_waiting[entry.target] -= 1
        self.own_prefill[entry.target] = max(self.own_prefill[entry.target] - entry.prefill, 0.0)

    def own_requests(self, target: int) -> int:
        """Attempts under way at a target."""
        return int(self.own_waiting[target] + self.own_answering[target])

    def under_way(self) -> int:
        """Attempts under way anywhere."""
        return len(self._open)

    def _remember(self, target: int, now_ns: int) -> None:
        self._past[target].append((now_ns, self.own_waiting[target], self.own_answering[target]))

    def _own_at(self, target: int, at_ns: int) -> tuple[float, float]:
        """What was under way at an instant, waiting and answering; the oldest that is remembered for one before it."""
        past = self._past[target]
        for when_ns, waiting, answering in reversed(past):
            if when_ns <= at_ns:
                return waiting, answering
        return past[0][1:] if len(past) == _REMEMBERED else (0.0, 0.0)

    # Reports

    def reported(self, target: int, quantities: Mapping[str, float], at_ns: int, source: str) -> None:
        """A target said what it looked like at `at_ns`. An older report than the newest one is ignored.

        Quantities that it does not hold are unknown from now on: a renamed gauge must not go on reading as its last
        value, or as 0.
        """
        if at_ns < self.reported_at_ns[target]:
            return
        self.reported_at_ns[target] = at_ns
        self._sources[target] = source
        self._missing[target] = frozenset(QUANTITIES).difference(quantities)
        waiting, running, cache = (quantities.get(name, np.nan) for name in QUANTITIES)
        own_waiting, own_answering = self._own_at(target, at_ns)
        # All of both, less all of ours: what we call waiting is still on its way, or has left the queue, at the server.
        others = max(waiting + running - own_waiting - own_answering, 0.0)
        self.others_waiting[target] = np.nan if np.isnan(others) else min(max(waiting - own_waiting, 0.0), others)
        self.others_running[target] = others - self.others_waiting[target]
        self.cache[target] = cache
        for usual, now in ((self.usual_waiting, self.others_waiting), (self.usual_running, self.others_running)):
            # NaN is replaced by the first report, and by a report it leaves what is usual as it was.
            if np.isnan(usual[target]):
                usual[target] = now[target]
            elif not np.isnan(now[target]):
                usual[target] += _USUAL_GAIN * (now[target] - usual[target])

    def others(self, now_ns: int) -> tuple[Floats, Floats]:
        """What others have waiting and running at each target now, as far as old reports can tell; NaN: unknown.

        A queue of a second ago is gone or another one: what a report says beyond the usual fades with its age.
        """
        age_ns = np.maximum(now_ns - self.reported_at_ns, 0)
        waiting = self.usual_waiting + (self.others_waiting - self.usual_waiting) * np.exp2(-age_ns / WAITING_HALF_NS)
        running = self.usual_running + (self.others_running - self.usual_running) * np.exp2(-age_ns / RUNNING_HALF_NS)
        return waiting, running

    def age_ns(self, target: int, now_ns: int) -> int | None:
        """How old the newest report is; None without one."""
        at_ns = int(self.reported_at_ns[target])
        return None if at_ns == NEVER else max(now_ns - at_ns, 0)

    # Pressure

    def decided(self, pressed: bool, now_ns: int) -> None:
        """A request that may not be shed was decided on: whether waiting left nobody likely to have it on time."""
        self._pressure = self.pressure(now_ns) + _PRESSURE_GAIN * (float(pressed) - self._pressure)
        self._pressed_at_ns = max(now_ns, self._pressed_at_ns)

    def pressure(self, now_ns: int) -> float:
        """The share of such requests that waiting would have made late, lately; it fades when none come."""
        return self._pressure * math.exp2(-max(now_ns - self._pressed_at_ns, 0) / _PRESSURE_HALF_NS)

    # For people

    def of(self, target: int, now_ns: int) -> dict[str, Signal]:
        """Everything known of one target, by name; what is unknown is absent."""
        own = {
            "own_waiting": self.own_waiting[target],
            "own_answering": self.own_answering[target],
            "own_prefill_tokens": self.own_prefill[target],
            "own_decode_tokens": self.own_decode[target],
        }
        found = {name: Signal(value=float(value), sigma=0.0, age_ns=0, source="own") for name, value in own.items()}
        age_ns = self.age_ns(target, now_ns)
        if age_ns is None:
            return found
        others = {
            "waiting": self.others_waiting[target] + self.own_waiting[target],
            "running": self.others_running[target] + self.own_answering[target],
        }
        for name, value in others.items():
            if not np.isnan(value):
                sigma = float(np.sqrt(max(value, 1.0)) * np.sqrt(age_ns / REPORT_TAU_NS))
                found[name] = Signal(value=float(value), sigma=sigma, age_ns=age_ns, source=self._sources[target])
        if not np.isnan(self.cache[target]):
            sigma = float(0.01 * np.sqrt(1 + age_ns / REPORT_TAU_NS))
            found["cache"] = Signal(
                value=float(self.cache[target]), sigma=sigma, age_ns=age_ns, source=self._sources[target]
            )
        return found

    def alarms(self, now_ns: int) -> Iterator[Alarm]:
        """What somebody should look at: reports that stopped, and quantities that a report no longer holds."""
        for target, missing in zip(range(len(self.fleet.targets)), self._missing, strict=True):
            name, age_ns = self.fleet.targets[target].name, self.age_ns(target, now_ns)
            if age_ns is not None and age_ns > STALE_NS:
                yield Alarm(kind="stale", target=name, text=f"last reported {format_duration(age_ns)} ago")
            for quantity in sorted(missing):
                yield Alarm(kind="missing", target=name, text=f"the report has no {quantity}; was the gauge renamed?")
