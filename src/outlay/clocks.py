"""Bring marks of several clocks onto one, with a bound on the error. Stored times are never changed.

A call from clock a to clock b gives four instants: t0 (a sends), t1 (b receives), t2 (b answers), t3 (a receives). As
neither way takes negative time, the offset theta = clock_b - clock_a satisfies t2 - t3 <= theta <= t1 - t0. Bounds of
many calls intersect; a bound from a call at another time widens by the drift. (Marzullo & Owicki 1983; the drift
figure is the worst seen by Huygens, Geng et al., NSDI 2018.)
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from operator import attrgetter
from typing import NamedTuple

from outlay.interaction import Interaction, Span
from outlay.units import NS_PER_S


@dataclass(frozen=True, slots=True, kw_only=True)
class Alignment:
    """How clocks are compared.

    `drift_ppm`: how fast two clocks may part, 0 and up; wider bounds, slower ageing. `window_ns`: how far around an
    instant calls are used; larger windows find tighter bounds as long as drift is small.
    """

    drift_ppm: int = 30
    window_ns: int = 60 * NS_PER_S


class Call(NamedTuple):
    """One request and its answer between two clocks; the fields are named as in the module's text."""

    caller: str
    callee: str
    t0_ns: int
    t1_ns: int
    t2_ns: int
    t3_ns: int

    @property
    def low_ns(self) -> int:
        return self.t2_ns - self.t3_ns

    @property
    def high_ns(self) -> int:
        return self.t1_ns - self.t0_ns

    @property
    def network_ns(self) -> int:
        """Both ways together: exact without any synchronisation, negative when the two sides contradict each other."""
        return self.high_ns - self.low_ns


_IN_TIME = attrgetter("t0_ns", "t1_ns", "t2_ns", "t3_ns")


@dataclass(frozen=True, slots=True, kw_only=True)
class Offset:
    """Subtract `theta_ns` from a clock's times to read them on the reference clock.

    The truth lies within `low_ns` and `high_ns`; None on a side that no call bounds. `theta_ns` is 0 as long as the
    bounds allow it: producers' times are believed until a call disproves them, and then moved to the middle.
    """

    theta_ns: int
    low_ns: int | None
    high_ns: int | None

    @property
    def error_ns(self) -> int | None:
        """How far `theta_ns` may be off; None when a side is unbounded."""
        if self.low_ns is None or self.high_ns is None:
            return None
        return max(self.high_ns - self.theta_ns, self.theta_ns - self.low_ns)


@dataclass(frozen=True, slots=True)
class Offsets:
    """The offset of each of some clocks against `reference`.

    `shifts` holds the corrections that are not 0, by clock, and so is empty where all clocks are believed;
    `unbounded` the clocks that are believed only because no call bounds them.
    """

    reference: str
    by_clock: Mapping[str, Offset]
    shifts: Mapping[str, int]
    unbounded: tuple[str, ...]

    @classmethod
    def of(cls, reference: str, by_clock: Mapping[str, Offset]) -> "Offsets":
        """Offsets with the shifts that follow from them."""
        shifts = {clock: offset.theta_ns for clock, offset in by_clock.items() if offset.theta_ns}
        unbounded = [clock for clock, offset in by_clock.items() if offset.error_ns is None and not offset.theta_ns]
        return cls(reference, by_clock, shifts, tuple(unbounded))

    def shift_ns(self, clock: str) -> int:
        """What to subtract from a clock's times; 0 where it is believed, and where nothing is known of it."""
        return self.shifts.get(clock, 0)

    def error_ns(self, clock: str) -> int | None:
        """How far a clock's corrected times may be off; None for one that nothing bounds, or that is not here."""
        if clock == self.reference:
            return 0
        offset = self.by_clock.get(clock)
        return None if offset is None else offset.error_ns


# Interactions within one slice share an answer: at 30 ppm it costs 3 µs of bound.
_REMEMBER_NS = NS_PER_S // 5
_REMEMBER = 4096

# A clock that steps more often than this within memory's reach is no clock; two hosts behind one name look like that.
_MOST_SLICES, _MOST_EPOCHS = 64, 16

_MILLION = 1_000_000

REFERENCE = Offset(theta_ns=0, low_ns=0, high_ns=0)
UNBOUNDED = Offset(theta_ns=0, low_ns=None, high_ns=None)


def calls_of(interaction: Interaction) -> list[Call]:
    """The calls inside one interaction that crossed clocks: a client span and the server span that is its child.

    Producers, consumers and FOLLOWS_FROM do not count: nothing bounds when a queue hands over.
    """
    clients: dict[str | None, Span] = {}
    servers: list[Span] = []
    for span in interaction.spans:
        kind = span.kind
        if kind == "client":
            clients[span.id] = span
        elif kind == "server" and not span.follows:
            servers.append(span)
    return [
        Call(caller.clock, span.clock, caller.start_ns, span.start_ns, span.end_ns, caller.end_ns)
        for span in servers
        if (caller := clients.get(span.parent)) is not None and caller.clock != span.clock
    ]


@dataclass(slots=True)
class _Bucket:
    """The tightest bounds seen within one slice of time, each with the instant at which it held.

    The request proves the upper one when it leaves, the answer the lower one when it arrives.
    """

    low: tuple[int, int]
    high: tuple[int, int]


class _Pair:
    """All that is known of one ordered pair of clocks: epochs between steps, each a run of buckets in time order.

    Times are the caller's.
    """

    __slots__ = ("_alignment", "_epochs", "_slice_ns", "_starts", "steps")

    def __init__(self, alignment: Alignment) -> None:
        self._alignment = alignment
        self._slice_ns = max(1, alignment.window_ns // 4)
        self._starts: list[int] = []
        self._epochs: list[dict[int, _Bucket]] = []
        self.steps = 0

    def observe(self, call: Call) -> bool:
        """Take in one call; whether it told anything new."""
        _, _, at, t1_ns, t2_ns, t3_ns = call
        low, high = t2_ns - t3_ns, t1_ns - at
        newest = self._epochs[-1].get(at // self._slice_ns) if self._epochs else None
        if newest is not None and low <= newest.low[0] and high >= newest.high[0] and at >= self._starts[-1]:
            # Looser than what is known: the usual case, and it can neither tighten nor contradict.
            return False
        known_low, known_high = self.bounds(at)
        if not self._epochs or max(known_low, low) > min(known_high, high):
            self.steps += bool(self._epochs)
            place = bisect_right(self._starts, at)
            self._starts.insert(place, at)
            self._epochs.insert(place, {})
        epoch = self._epochs[max(0, bisect_right(self._starts, at) - 1)]
        bucket = epoch.get(at // self._slice_ns)
        if bucket is None:
            epoch[at // self._slice_ns] = _Bucket((low, t3_ns), (high, at))
        else:
            bucket.low = max(bucket.low, (low, t3_ns))
            bucket.high = min(bucket.high, (high, at))
        self._forget(epoch, at)
        return True

    def bounds(self, at_ns: int) -> tuple[float, float]:
        """Lowest and highest offset possible at an instant; infinite where no call within the window says."""
        place = bisect_right(self._starts, at_ns) - 1
        if not self._epochs:
            return -inf, inf
        reach, drift = self._alignment.window_ns // self._slice_ns, self._alignment.drift_ppm
        here = at_ns // self._slice_ns
        epoch = self._epochs[max(0, place)]
        near = [bucket for number, bucket in epoch.items() if -reach <= number - here <= reach]
        if not near:
            return -inf, inf
        lows, highs = [bucket.low for bucket in near], [bucket.high for bucket in near]
        # The widening is written out: this is most of the work of finding an offset.
        return (
            max([low - abs(at_ns - then_ns) * drift // _MILLION for low, then_ns in lows]),
            min([high + abs(at_ns - then_ns) * drift // _MILLION for high, then_ns in highs]),
        )

    def _forget(self, epoch: dict[int, _Bucket], at_ns: int) -> None:
        """Drop what calls around this instant cannot use, so that a stream of any length takes the same memory."""
        if len(epoch) > _MOST_SLICES:
            here, reach = at_ns // self._slice_ns, 2 * self._alignment.window_ns // self._slice_ns
            for number in [number for number in epoch if abs(number - here) > reach]:
                del epoch[number]
        if len(self._epochs) > _MOST_EPOCHS:
            farthest = 0 if at_ns - self._starts[0] > self._starts[-1] - at_ns else -1
            del self._starts[farthest], self._epochs[farthest]


def _widening(then_ns: int, at_ns: int, drift_ppm: int) -> int:
    return abs(at_ns - then_ns) * drift_ppm // _MILLION


class Clocks:
    """What the calls seen so far say about every pair of clocks.

    Feed calls in time order where you can: a step is found where the bounds stop overlapping.
    """

    __slots__ = ("_alignment", "_pairs", "_remembered", "contradictions")

    def __init__(self, alignment: Alignment | None = None) -> None:
        self._alignment = alignment or Alignment()
        self._pairs: dict[str, dict[str, _Pair]] = {}
        self._remembered: dict[tuple[str, tuple[str, ...], int], Offsets] = {}
        self.contradictions = 0

    @property
    def steps(self) -> int:
        """How many times a clock jumped."""
        return sum(pair.steps for callees in self._pairs.values() for pair in callees.values())

    def observe(self, calls: Iterable[Call]) -> None:
        """Learn from calls. One whose server side outlasts its client side bounds nothing, and is counted."""
        learned = False
        for call in sorted(calls, key=_IN_TIME):
            if call.network_ns < 0:
                # Over a long call the clocks alone may drift apart by more than the network took.
                drifted = _widening(call.t0_ns, call.t3_ns, self._alignment.drift_ppm)
                self.contradictions += call.network_ns < -drifted
                continue
            callees = self._pairs.setdefault(call.caller, {})
            pair = callees.get(call.callee)
            if pair is None:
                pair = callees[call.callee] = _Pair(self._alignment)
            learned |= pair.observe(call)
        if learned:
            self._remembered.clear()

    def offsets(self, reference: str, clocks: Sequence[str], at_ns: int) -> Offsets:
        """The offset of each clock against `reference` around one instant.

        Bounds go along chains of calls, and where several paths join two clocks they intersect: both are the shortest
        paths in the graph of difference constraints. Answers for nearby instants and equal clocks are remembered, and
        widened by what the clocks may drift within that slice.
        """
        key = (reference, tuple(clocks), at_ns // _REMEMBER_NS)
        if len(self._remembered) > _REMEMBER:
            self._remembered.clear()
        known = self._remembered.get(key)
        if known is None:
            known = self._remembered[key] = self._offsets(reference, clocks, key[2] * _REMEMBER_NS + _REMEMBER_NS // 2)
        return known

    def _offsets(self, reference: str, clocks: Iterable[str], at_ns: int) -> Offsets:
        others = set(clocks) - {reference}
        slack = _widening(0, _REMEMBER_NS // 2, self._alignment.drift_ppm)
        edges = self._edges(others | {reference}, at_ns)
        high = _shortest(reference, edges)
        low = _shortest(reference, [(there, here, weight) for here, there, weight in edges])
        found = {name: _offset(-low.get(name, inf) - slack, high.get(name, inf) + slack) for name in sorted(others)}
        return Offsets.of(reference, {reference: REFERENCE, **found})

    def _edges(self, names: set[str], at_ns: int) -> list[tuple[str, str, float]]:
        """`(a, b, w)` for every known "clock_b - clock_a <= w"."""
        edges = []
        for caller in sorted(names):
            for callee, pair in self._pairs.get(caller, {}).items():
                if callee in names:
                    low, high = pair.bounds(at_ns)
                    edges += [(caller, callee, high), (callee, caller, -low)]
        return edges


def _shortest(source: str, edges: Sequence[tuple[str, str, float]]) -> dict[str, float]:
    """Bellman-Ford. Bounds that contradict each other make a negative cycle; the rounds are limited, so it ends."""
    distance: dict[str, float] = {source: 0}
    for _ in range(len({name for edge in edges for name in edge[:2]})):
        changed = False
        for here, there, weight in edges:
            reached = distance.get(here, inf) + weight
            if reached < distance.get(there, inf) and there != source:
                distance[there] = reached
                changed = True
        if not changed:
            break
    return distance


def _offset(low: float, high: float) -> Offset:
    if low > high:
        # Two paths disagree, as after a step: neither bound holds.
        return UNBOUNDED
    bounds = (None if low == -inf else int(low), None if high == inf else int(high))
    if low <= 0 <= high:
        return Offset(theta_ns=0, low_ns=bounds[0], high_ns=bounds[1])
    if bounds[0] is None or bounds[1] is None:
        # Proven wrong on one side only: move by the least that makes it possible.
        theta = bounds[0] if bounds[1] is None else bounds[1]
        return Offset(theta_ns=theta or 0, low_ns=bounds[0], high_ns=bounds[1])
    return Offset(theta_ns=(bounds[0] + bounds[1]) // 2, low_ns=bounds[0], high_ns=bounds[1])


def clocks_of(interaction: Interaction) -> tuple[str, ...]:
    """The clock of every span and mark, in their order."""
    spans = tuple([span.clock for span in interaction.spans])
    return spans + tuple([mark.clock for mark in interaction.marks]) if interaction.marks else spans
