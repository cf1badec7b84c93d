"""Cold starts: which requests met something that was not warm, and what that did to the percentiles.

A client sees no instances, only what it did itself: that a request was among its first, came after a pause, was the
first of its size, or had to open a connection. What the server declares is believed before that. None of them is ever
left out of a total; what a class costs is shown by the p99 with and without it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from outlay.quantiles import smallest_n
from outlay.sketch import nearest_rank
from outlay.units import NS_PER_S, format_duration

WARM = "warm"

# The dimension that holds the class of an interaction.
COLD = "cold"

# In order of trust. A request has the first of these that fits.
CLASSES: Mapping[str, str] = {
    "declared": "the server says that it had to start something",
    "start": "among the first, which were far slower than the rest",
    "first": "one of the first three of the run: caches, pools and compilers may be cold",
    "idle": "after a pause",
    "shape": "the first of its input size: engines compile for each",
    "connection": "on a new connection",
    WARM: "none of these",
}

FIRST = 3

SLOWER = 1.5

_Values = NDArray[np.float64]
_SECONDS_PER_HOUR = 3600


class Labels:
    """Labels the requests to one place, in the order in which they ended. `pauses_ns` are how long pauses may be."""

    __slots__ = ("_count", "_last_ns", "_pauses_ns", "_shapes")

    def __init__(self, pauses_ns: Sequence[int] = ()) -> None:
        self._pauses_ns = pauses_ns
        self._count = 0
        self._last_ns: int | None = None
        self._shapes: set[int] = set()

    def label(
        self, sent_ns: int, over_ns: int, *, reused: bool, input_size: int | None = None, declared: bool = False
    ) -> str:
        """The class of a request, from when it was sent to when it was over; a kept connection is `reused`.

        A pause is the time in which nothing was under way. A request after one is called by the longest of them that
        it was, such as `idle 30.0 s`.
        """
        passed_ns = 0 if self._last_ns is None else sent_ns - self._last_ns
        pause_ns = max((each for each in self._pauses_ns if each <= passed_ns), default=None)
        shape = None if input_size is None else input_size.bit_length()
        new_shape = shape is not None and shape not in self._shapes
        fits = {
            "declared": declared,
            "first": self._count < FIRST,
            "idle": pause_ns is not None,
            "shape": new_shape,
            "connection": not reused,
        }
        self._count += 1
        self._last_ns = over_ns if self._last_ns is None else max(over_ns, self._last_ns)
        if shape is not None:
            self._shapes.add(shape)
        name = next((name for name in CLASSES if fits.get(name)), WARM)
        return f"{name} {format_duration(pause_ns)}" if name == "idle" and pause_ns is not None else name


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassEffect:
    """One class: how many of the requests, their median, and the p99 of all with and without them.

    A p99 is None below 299 requests, infinite when failures reach so far. `tail_share` is the class's part of the time
    that the slowest 1 % of the answered took, None when none was; `per_hour` is None for a run of no length.
    """

    name: str
    n: int
    share: float
    p50_ns: float
    p99_ns: float | None
    p99_without_ns: float | None
    tail_share: float | None
    per_hour: float | None


def with_and_without(totals_ns: Sequence[float], labels: Sequence[str], passed_ns: int) -> tuple[ClassEffect, ...]:
    """What each class did, in the order of CLASSES; empty when there is only one.

    `totals_ns` are in order of the sends, infinite for those that failed. The leading ones that `leading_slow` finds
    are of class "start", whatever their label. Raises ValueError when the two differ in length.
    """
    if len(totals_ns) != len(labels):
        raise ValueError(f"{len(totals_ns)} requests and {len(labels)} labels are not one run")
    slow = leading_slow(totals_ns)
    named = ["start" if place < slow and label != "declared" else label for place, label in enumerate(labels)]
    order = list(CLASSES)
    found = sorted(set(named), key=lambda name: (order.index(name.split(" ")[0]), name))
    if len(found) < 2:
        return ()
    values, classes = np.array(totals_ns, dtype=np.float64), np.array(named)
    return tuple(_effect(name, values, classes == name, passed_ns) for name in found)


def leading_slow(totals_ns: Sequence[float]) -> int:
    """How many requests at the begin were far slower than the second half: a cold start that nobody declares.

    Far slower is above its Q3 + 3 IQR, and above SLOWER times its Q3: where all are alike, any microsecond stands out.
    0 below 20 requests, and when all of the first half are: then it is the later ones that changed.
    """
    values = np.array(totals_ns, dtype=np.float64)
    early, late = values[: len(values) // 2], values[len(values) // 2 :]
    answered = late[np.isfinite(late)]
    if len(values) < 20 or not len(answered):
        return 0
    low, high = np.quantile(answered, (0.25, 0.75))
    rest = np.flatnonzero(early <= max(high + 3 * (high - low), SLOWER * high))
    return int(rest[0]) if len(rest) else 0


def _effect(
    name: str,
    values: _Values,
    chosen: NDArray[np.bool_],
    passed_ns: int,
) -> ClassEffect:
    own, others = np.sort(values[chosen]), np.sort(values[~chosen])
    return ClassEffect(
        name=name,
        n=len(own),
        share=len(own) / len(values),
        p50_ns=float(own[(len(own) - 1) // 2]),
        p99_ns=_p99(np.sort(values)),
        p99_without_ns=_p99(others),
        tail_share=_tail_share(values, chosen),
        per_hour=None if passed_ns <= 0 else len(own) * _SECONDS_PER_HOUR * NS_PER_S / passed_ns,
    )


def _p99(ordered: _Values) -> float | None:
    rank = nearest_rank(0.99, len(ordered))
    return None if rank is None or len(ordered) < smallest_n(0.99) else float(ordered[rank - 1])


def _tail_share(values: _Values, chosen: NDArray[np.bool_]) -> float | None:
    answered = np.isfinite(values)
    rank = nearest_rank(0.99, int(answered.sum()))
    if rank is None:
        return None
    tail = answered & (values >= np.sort(values[answered])[rank - 1])
    return float(values[tail & chosen].sum() / values[tail].sum()) if values[tail].sum() else None
