"""Accounts folded by the thousand into what a report needs, in memory that does not grow with their number.

A cohort keeps: the sketch of all end-to-end times, the slowest accounts, and a histogram of arrivals. Each part merges
exactly, so any split of the work gives the same cohort. An interaction that stands for several, because its producer
sampled, counts as so many.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from heapq import heappush, heappushpop
from itertools import accumulate
from sys import intern
from typing import Any, Generic, TypeVar

import numpy as np

from outlay.account import Account
from outlay.sketch import Sketch

# How many totals wait before numpy counts them together.
_FOLD = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Keep:
    """How many accounts a cohort keeps whole: the slowest. Each takes about 1 KB."""

    slowest: int = 2048


@dataclass(frozen=True, slots=True)
class Record:
    """What is kept of one account that ended well. `entries` sum to `total_ns`."""

    id: str
    start_ns: int
    total_ns: int
    entries: tuple[tuple[str, int], ...]
    weight: int = 1


T = TypeVar("T")


class Largest(Generic[T]):
    """The `limit` items with the largest keys, whatever order they come in; so merging is exact too."""

    __slots__ = ("_added", "_heap", "_items", "_limit")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        # The key, the name, a number that keeps items themselves from being compared where those are equal, the item.
        self._heap: list[tuple[Any, ...]] = []
        self._added = 0
        self._items: list[T] | None = None

    def admits(self, first: int) -> bool:
        """Whether an item whose key begins with `first` might be kept: a cheap test before building the item."""
        return len(self._heap) < self._limit or (self._limit > 0 and first >= self._heap[0][0])

    def add(self, key: tuple[int, ...], name: str, item: T) -> None:
        """Offer an item; `name` settles ties of the key."""
        self._added += 1
        self._items = None
        held = (*key, name, self._added, item)
        if len(self._heap) < self._limit:
            heappush(self._heap, held)
        elif self._limit:
            heappushpop(self._heap, held)

    def merge(self, other: "Largest[T]") -> None:
        for *key, name, _, item in other._heap:
            self.add(tuple(key), name, item)

    def items(self) -> Sequence[T]:
        """What was kept, largest key first."""
        if self._items is None:
            self._items = [held[-1] for held in sorted(self._heap, reverse=True)]
        return self._items

    def __len__(self) -> int:
        return len(self._heap)


class Arrivals:
    """When interactions began: a histogram over time whose slots double in width as the span of time grows."""

    __slots__ = ("_counts", "_shift")

    SLOTS = 8192

    def __init__(self) -> None:
        self._shift = 20  # slots of about a millisecond to begin with
        self._counts: Counter[int] = Counter()

    @property
    def at_once(self) -> bool:
        """Whether all began within one slot: then the slots tell nothing of their order."""
        return len(self._counts) <= 1

    @property
    def count(self) -> int:
        """How many there were."""
        return self._counts.total()

    def add_many(self, starts_ns: "np.ndarray[tuple[int], np.dtype[np.int64]]") -> None:
        slots, counts = np.unique(starts_ns >> self._shift, return_counts=True)
        for slot, count in zip(slots.tolist(), counts.tolist(), strict=True):
            self._counts[slot] += count
        self._fit()

    def merge(self, other: "Arrivals") -> None:
        self._widen(other._shift)
        for slot, count in other._counts.items():
            self._counts[slot >> (self._shift - other._shift)] += count
        self._fit()

    def _fit(self) -> None:
        while len(self._counts) > self.SLOTS:
            self._widen(self._shift + 1)

    def _widen(self, shift: int) -> None:
        if shift > self._shift:
            wider: Counter[int] = Counter()
            for slot, count in self._counts.items():
                wider[slot >> (shift - self._shift)] += count
            self._shift, self._counts = shift, wider

    def ranks(self, starts_ns: Iterable[int]) -> list[int]:
        """The place in order of arrival of interactions that began at these instants, as far as the slots tell."""
        slots = sorted(self._counts)
        before = dict(zip(slots, np.cumsum([0] + [self._counts[slot] for slot in slots])[:-1].tolist(), strict=True))
        width = 1 << self._shift
        return [
            before[start >> self._shift] + self._counts[start >> self._shift] * (start % width) // width
            for start in starts_ns
        ]


class Cohort:
    """The accounts of one group of interactions. `limits_ns` are those over which the count is exact."""

    __slots__ = (
        "_known",
        "_starts",
        "_totals",
        "arrivals",
        "outcomes",
        "rows",
        "sketch",
        "slowest",
        "squares",
        "started",
    )

    def __init__(self, limits_ns: Iterable[int] = (), keep: Keep | None = None) -> None:
        keep = keep or Keep()
        self.sketch = Sketch(limits_ns)
        self.arrivals = Arrivals()
        self.slowest: Largest[Record] = Largest(keep.slowest)
        self.outcomes: Counter[str] = Counter()
        self.started = 0
        # How many there were to see, whatever they stand for, and the sum of the squares of that.
        self.rows = 0
        self.squares = 0
        self._known: np.ndarray[tuple[int], np.dtype[np.int64]] | None = None
        self._totals: list[int] = []
        self._starts: list[int] = []

    @property
    def measured(self) -> int:
        """Interactions with a start and an end, and those that failed: the ones that percentiles count."""
        self.fold()
        return self.sketch.count

    @property
    def observed(self) -> float:
        """How many interactions of equal weight say as much as the measured ones (Kish 1965); their number, unsampled.

        0 without any.
        """
        return self.measured**2 / self.squares if self.squares else 0.0

    def add_unmeasured(self, weight: int = 1) -> None:
        """Count an interaction whose start or end nobody saw."""
        self.started += weight

    def add_failed(self, outcome: str, weight: int = 1) -> None:
        """Count an interaction that never gave the person a result; for every percentile it took for ever."""
        self._count(weight)
        self.outcomes[outcome] += weight
        self.sketch.add_failed(weight)

    def add(self, account: Account) -> None:
        """Fold in the account of an interaction that ended well."""
        interaction, total = account.interaction, account.total_ns
        start, weight = interaction.start_ns or 0, interaction.weight  # an account always has a start
        self._count(weight)
        if weight == 1:
            self._totals.append(total)
        else:
            self.sketch.add(total, weight)
            self.outcomes["ok"] += weight
        self._starts.append(start)
        if len(self._starts) >= _FOLD:
            self.fold()
        if self.slowest.admits(total):
            # One string for each name, however many records hold it: they fill memory, and travel between processes.
            entries = tuple([(intern(name), duration) for name, duration in account.entries.items()])
            record = Record(interaction.id, start, total, entries, weight)
            self.slowest.add((total, start), interaction.id, record)

    def _count(self, weight: int) -> None:
        self.started += weight
        self.rows += 1
        self.squares += weight * weight

    def fold(self) -> None:
        """Count what waits. Reading `sketch` or `arrivals` directly needs it first."""
        if self._starts:
            self.sketch.add_many(np.array(self._totals, dtype=np.int64))
            self.arrivals.add_many(np.array(self._starts, dtype=np.int64))
            self.outcomes["ok"] += len(self._totals)
            self._totals, self._starts = [], []

    def merge(self, other: "Cohort") -> None:
        """Count everything that `other` did too. Raises ValueError when their limits differ."""
        self.fold()
        other.fold()
        self.sketch.merge(other.sketch)
        self.arrivals.merge(other.arrivals)
        self.slowest.merge(other.slowest)
        self.outcomes.update(other.outcomes)
        self.started += other.started
        self.rows += other.rows
        self.squares += other.squares

    @property
    def complete(self) -> bool:
        """Whether every account that ended well is kept whole, so that nothing needs estimating."""
        self.fold()
        return sum(record.weight for record in self.slowest.items()) == self.sketch.served

    def value_at_rank(self, rank: int, *, served_only: bool = False) -> float:
        """The end-to-end time at a rank; exact while every account is kept or the rank is among the slowest."""
        self.fold()
        if self._known is not None and 1 <= rank <= len(self._known):
            return float(self._known[rank - 1])
        record = self._slowest_after(self.sketch.served - rank)
        return self.sketch.value_at_rank(rank, served_only=served_only) if record is None else float(record.total_ns)

    def know(self, totals_ns: "np.ndarray[tuple[int], np.dtype[np.int64]]") -> None:
        """All totals of those that ended well, where each of them is known: then every rank is exact."""
        self._known = np.sort(totals_ns) if len(totals_ns) == self.sketch.served else None

    def _slowest_after(self, above: int) -> Record | None:
        """The record that stands after `above` slower interactions; None where it is not kept or there is none."""
        kept = self.slowest.items()
        if above < 0 or not self.sampled:
            return kept[above] if 0 <= above < len(kept) else None
        ends = accumulate(record.weight for record in kept)
        return next((record for record, end in zip(kept, ends, strict=True) if end > above), None)

    @property
    def sampled(self) -> bool:
        """Whether some interaction stands for several."""
        return self.rows != self.squares
