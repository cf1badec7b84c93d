"""Accounts folded by the thousand into what a report needs, in memory that does not grow with their number.

A cohort keeps: the sketch of all end-to-end times, the slowest accounts, a uniform sample of all, and a histogram of
arrivals. Each part merges exactly, so any split of the work gives the same cohort. The sample is a bottom-k sketch:
an account's rank in it is a hash of its id, which needs no random number and does not depend on order.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from heapq import heappush, heappushpop
from sys import intern
from typing import Any, Generic, TypeVar

import numpy as np

from outlay.account import Account
from outlay.sketch import Sketch

# How many totals wait before numpy counts them together.
_FOLD = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Keep:
    """How many accounts a cohort keeps whole: the slowest, and a uniform sample of the others and these.

    More of them make the account of the tail and of the typical interaction more exact; each takes about 1 KB.
    """

    slowest: int = 2048
    sample: int = 2048


@dataclass(frozen=True, slots=True)
class Record:
    """What is kept of one account that ended well. `entries` sum to `total_ns`."""

    id: str
    start_ns: int
    total_ns: int
    entries: tuple[tuple[str, int], ...]
    ambiguous_ns: int


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

    __slots__ = ("_starts", "_totals", "arrivals", "outcomes", "sample", "sketch", "slowest", "started")

    def __init__(self, limits_ns: Iterable[int] = (), keep: Keep | None = None) -> None:
        keep = keep or Keep()
        self.sketch = Sketch(limits_ns)
        self.arrivals = Arrivals()
        self.slowest: Largest[Record] = Largest(keep.slowest)
        self.sample: Largest[Record] = Largest(keep.sample)
        self.outcomes: Counter[str] = Counter()
        self.started = 0
        self._totals: list[int] = []
        self._starts: list[int] = []

    @property
    def measured(self) -> int:
        """Interactions with a start and an end, and those that failed: the ones that percentiles count."""
        self.fold()
        return self.sketch.count

    def add_unmeasured(self) -> None:
        """Count an interaction whose start or end nobody saw."""
        self.started += 1

    def add_failed(self, outcome: str) -> None:
        """Count an interaction that never gave the person a result; for every percentile it took for ever."""
        self.started += 1
        self.outcomes[outcome] += 1
        self.sketch.add_failed()

    def add(self, account: Account) -> None:
        """Fold in the account of an interaction that ended well."""
        interaction, total = account.interaction, account.total_ns
        start = interaction.start_ns or 0  # an account always has one
        self.started += 1
        self._totals.append(total)
        self._starts.append(start)
        if len(self._totals) >= _FOLD:
            self.fold()
        priority = int.from_bytes(blake2b(interaction.id.encode(), digest_size=7).digest(), "big")
        slow, sampled = self.slowest.admits(total), self.sample.admits(priority)
        if slow or sampled:
            # One string for each name, however many records hold it: they fill memory, and travel between processes.
            entries = tuple([(intern(name), duration) for name, duration in account.entries.items()])
            record = Record(interaction.id, start, total, entries, account.ambiguous_ns)
            if slow:
                self.slowest.add((total, priority, start), interaction.id, record)
            if sampled:
                self.sample.add((priority, total, start), interaction.id, record)

    def fold(self) -> None:
        """Count what waits. Reading `sketch` or `arrivals` directly needs it first."""
        if self._totals:
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
        self.sample.merge(other.sample)
        self.outcomes.update(other.outcomes)
        self.started += other.started

    @property
    def complete(self) -> bool:
        """Whether every account that ended well is kept whole, so that nothing needs estimating."""
        self.fold()
        return len(self.slowest) == self.sketch.served

    def value_at_rank(self, rank: int, *, served_only: bool = False) -> float:
        """The end-to-end time at a rank; exact while every account is kept or the rank is among the slowest."""
        self.fold()
        from_end = self.sketch.served - rank
        if 0 <= from_end < len(self.slowest):
            return float(self.slowest.items()[from_end].total_ns)
        return self.sketch.value_at_rank(rank, served_only=served_only)
