"""When the server, or the path to it, stood still: nothing came although several requests were overdue.

A percentile cannot tell a stall from requests that are slow by themselves. But slow requests do not fall silent
together: while one waits, others are answered. So a silence is an interval in which nothing came from the server for
anybody, far longer than the gaps of this run usually are, with at least DUE requests that had waited a multiple of
what requests of this run usually wait.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from outlay.generator import STALL_NS, Stall

# Below so many overdue requests, a silence may be a few slow ones.
DUE = 3

# How many times the usual wait makes a request overdue.
OVERDUE = 3

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
    written = np.sort(np.array([each.written_ns for each in requests], dtype=np.int64))
    ended = np.sort(np.array([each.ended_ns for each in requests], dtype=np.int64))
    usual = _usual_ns(requests)
    found = []
    for begin_ns, end_ns in _long(arrived, written, ended):
        if _overdue(requests, begin_ns, end_ns, usual) >= DUE:
            last = end_ns > arrived[-1]
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
    """Gaps between arrivals far longer than usual. Only gaps in which DUE requests waited say what is usual."""
    begins = np.concatenate([written[:1], arrived])
    ends = np.concatenate([arrived, [max(ended[-1], arrived[-1])]])
    gaps = ends - begins
    # Nothing is over within a gap, except what was given up in it.
    busy = np.searchsorted(written, ends, "left") - np.searchsorted(ended, begins, "right") >= DUE
    if not busy.any():
        return ()
    threshold = max(STALL_NS, FAR * float(np.quantile(gaps[busy], 0.9)))
    places = np.flatnonzero(busy & (gaps >= threshold))
    return [(int(begins[place]), int(ends[place])) for place in places]


def _usual_ns(requests: Sequence[Waited]) -> tuple[float, float]:
    """The median wait for the first sign of an answer, and between one and the next; infinite where there is none."""
    first = [each.arrived_ns[0] - each.written_ns for each in requests if len(each.arrived_ns)]
    gaps = [np.diff(np.asarray(each.arrived_ns, dtype=np.int64)) for each in requests if len(each.arrived_ns) > 1]
    return float(np.median(first)), float(np.median(np.concatenate(gaps))) if gaps else np.inf


def _overdue(requests: Sequence[Waited], begin_ns: int, end_ns: int, usual_ns: tuple[float, float]) -> int:
    """How many requests had by the end, or when they were given up before it, waited far longer than is usual."""
    first_ns, gap_ns = usual_ns
    count = 0
    for each in requests:
        if each.written_ns < end_ns and each.ended_ns > begin_ns:
            place = bisect_right(each.arrived_ns, begin_ns)
            since_ns, allowed_ns = (each.arrived_ns[place - 1], gap_ns) if place else (each.written_ns, first_ns)
            count += min(end_ns, each.ended_ns) - since_ns > OVERDUE * allowed_ns
    return count
