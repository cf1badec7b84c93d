"""When the server, or the path to it, stood still: nothing came for anybody although several requests waited.

A percentile cannot tell a stall from requests that are slow by themselves. But slow requests do not fall silent
together: while one waits, others are answered. So a silence is an interval in which nothing came from the server for
anybody, far longer than the gaps of this run usually are, and of which chance is no explanation: that all who waited
in it were slow ones, each as slow as requests of this run are. When it is over, at least DUE of them go on together;
those that hold each other up go on one by one. The last requests of a run, when no new ones come, are the slow ones;
they alone are no silence.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from outlay.generator import STALL_NS, Stall
from outlay.units import NS_PER_MS

# Of fewer requests too little is known to call a silence theirs.
DUE = 3

# Of a hundred runs in which each request is slow for itself, at most one is said to have had a silence.
CHANCE = 0.01

# What comes within so short a time was sent together.
_TOGETHER_NS = NS_PER_MS

# A silence is so many times longer than nine of ten gaps: of gaps by chance (exponential), one in 10^10 is.
FAR = 10


@dataclass(frozen=True, slots=True)
class Waited:
    """One request: written, and the instants at which something of its answer came, in order.

    `ended_ns` is when its client stopped to wait: with the last of the answer, or giving up.
    """

    written_ns: int
    arrived_ns: Sequence[int]
    ended_ns: int


def silences(requests: Sequence[Waited]) -> tuple[Stall, ...]:
    """Every silence, in order of time; `due` is how many requests were outstanding at its end.

    It begins when something last came, so a stall began at most one usual gap later. `to_ns` None: nothing came any
    more. Empty when too little is known: fewer than DUE requests, or no answers at all.
    """
    arrived = np.sort(_flat(requests))
    if len(requests) < DUE or not len(arrived):
        return ()
    ordered = sorted(requests, key=lambda each: each.written_ns)
    written = np.array([each.written_ns for each in ordered], dtype=np.int64)
    ends = np.array([each.ended_ns for each in ordered], dtype=np.int64)
    ended, last_ended = np.sort(ends), np.maximum.accumulate(ends)
    waits = _waits(requests)
    found = []
    for begin_ns, end_ns in _long(arrived, written, ended):
        some = ordered[np.searchsorted(last_ended, begin_ns, "right") : np.searchsorted(written, end_ns, "left")]
        last = end_ns > arrived[-1]
        together = last or _resumed(some, begin_ns, end_ns, waits) >= DUE
        if together and _chance(some, begin_ns, end_ns, waits) < CHANCE / len(arrived):
            over = np.searchsorted(ended, begin_ns, "right") if last else np.searchsorted(ended, end_ns, "left")
            due = int(np.searchsorted(written, end_ns, "left") - over)
            found.append(Stall(from_ns=begin_ns, to_ns=None if last else end_ns, due=due))
    return tuple(found)


def _flat(requests: Sequence[Waited]) -> NDArray[np.int64]:
    pieces = [np.asarray(each.arrived_ns, dtype=np.int64) for each in requests if len(each.arrived_ns)]
    return np.concatenate(pieces) if pieces else np.empty(0, dtype=np.int64)


def _long(
    arrived: NDArray[np.int64], written: NDArray[np.int64], ended: NDArray[np.int64]
) -> Sequence[tuple[int, int]]:
    """Gaps between arrivals, far longer than is usual while somebody waits, in which DUE requests waited."""
    begins = np.concatenate([written[:1], arrived])
    ends = np.concatenate([arrived, [max(ended[-1], arrived[-1])]])
    gaps = ends - begins
    # Nothing is over within a gap, except what was given up in it.
    over, left = np.searchsorted(ended, begins, "right"), np.searchsorted(written, ends, "left")
    # With nobody waiting at its begin, the wait begins with the next that is written.
    next_ns = np.append(written, ends[-1])[np.searchsorted(written, begins, "right")]
    idle = np.searchsorted(written, begins, "right") <= over
    waited = (ends - np.where(idle, next_ns, begins))[left > over]
    if not len(waited):
        return ()
    threshold = max(STALL_NS, FAR * float(np.quantile(waited, 0.9)))
    places = np.flatnonzero((left - over >= DUE) & (gaps >= threshold))
    return [(int(begins[place]), int(ends[place])) for place in places]


def _waits(requests: Sequence[Waited]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The waits for the first sign of an answer, and from each on; of those that were given up, as far as they went."""
    first = [(each.arrived_ns[0] if len(each.arrived_ns) else each.ended_ns) - each.written_ns for each in requests]
    later = [np.diff(np.append(each.arrived_ns, each.ended_ns)) for each in requests if len(each.arrived_ns)]
    return np.sort(np.array(first, dtype=np.int64)), np.sort(np.concatenate(later).astype(np.int64))


def _chance(
    requests: Sequence[Waited], begin_ns: int, end_ns: int, waits: tuple[NDArray[np.int64], NDArray[np.int64]]
) -> float:
    """The probability that nothing comes for any of them from begin to end, if each waits for itself.

    That of one which had waited a at the begin and b at the end is the share of waits from b among the waits from a.
    """
    chance = 1.0
    for each in requests:
        if each.written_ns < end_ns and each.ended_ns > begin_ns:
            place = bisect_right(each.arrived_ns, begin_ns)
            since_ns = each.arrived_ns[place - 1] if place else each.written_ns
            own = waits[min(place, 1)]
            chance *= _longer(own, min(end_ns, each.ended_ns) - since_ns) / _longer(own, begin_ns - since_ns)
    return chance


def _resumed(requests: Sequence[Waited], begin_ns: int, end_ns: int, waits: tuple[NDArray[np.int64], ...]) -> int:
    """How many that had waited from before the end went on within twice the usual time between signs of an answer.

    Where one request holds up those behind it, they go on one after the other.
    """
    soon_ns = end_ns + max(2 * int(np.median(waits[1])), _TOGETHER_NS)
    count = 0
    for each in requests:
        place = bisect_right(each.arrived_ns, begin_ns)
        if each.written_ns < end_ns and place < len(each.arrived_ns):
            count += each.arrived_ns[place] <= soon_ns
    return count


def _longer(ordered: NDArray[np.int64], wait_ns: int) -> int:
    return len(ordered) - int(np.searchsorted(ordered, wait_ns, "left"))
