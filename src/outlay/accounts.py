"""Many accounts of one moment side by side, as columns: what tails, slices and what-ifs are computed from.

Row i of every column is one interaction, in order of arrival. The entries of a row stand in `codes` and `durations_ns`
from `offsets[i]` up to `offsets[i + 1]`, in the order of time, and sum to `total_ns[i]`. A row may stand for several
interactions, because its producer sampled or because not all were kept: `weights` says for how many.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from outlay.interaction import OUTCOMES
from outlay.stages import UNATTRIBUTED, entry, split_entry

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

OUTCOME_NAMES = tuple(OUTCOMES)
OK = OUTCOME_NAMES.index("ok")

_TOGETHER = 1 << 13

# Multiples of it, modulo 2^64, lie evenly spread (Knuth's multiplicative hashing).
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True, slots=True, eq=False)
class Labels:
    """One dimension of many rows: row i says `values[codes[i]]`; -1 where the data does not say."""

    values: tuple[str, ...]
    codes: NDArray[np.int32]

    def is_(self, value: str) -> NDArray[np.bool_]:
        """Which rows say this; none where no row does."""
        place = self.values.index(value) if value in self.values else len(self.values)
        says: NDArray[np.bool_] = self.codes == place
        return says


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Accounts:
    """The columns; see the module. A row that failed has a `total_ns` of 0 and no entries.

    `busy_ns` is how long the service was busy with it from its start on, which may be longer than a person waited.
    `outcomes` are places in OUTCOME_NAMES. `sizes` and `conditions` (what the service looked like on arrival) are
    numbers, NaN where unknown. `complete` says that every interaction has a row of its own.
    """

    start_ns: Ints
    total_ns: Ints
    busy_ns: Ints
    weights: Floats
    outcomes: NDArray[np.int8]
    entries: tuple[str, ...]
    offsets: Ints
    codes: NDArray[np.int32]
    durations_ns: Ints
    priorities: NDArray[np.uint64]
    dimensions: Mapping[str, Labels] = field(default_factory=dict)
    sizes: Mapping[str, Floats] = field(default_factory=dict)
    conditions: Mapping[str, Floats] = field(default_factory=dict)
    complete: bool = True

    def __len__(self) -> int:
        return len(self.total_ns)

    @property
    def served(self) -> NDArray[np.bool_]:
        """Which rows gave the person a result."""
        served: NDArray[np.bool_] = self.outcomes == OK
        return served

    @property
    def times_ns(self) -> Floats:
        """End-to-end times; infinite where the person never got a result."""
        return np.where(self.served, self.total_ns.astype(np.float64), np.inf)

    @property
    def count(self) -> float:
        """How many interactions the rows stand for."""
        return float(self.weights.sum())

    def select(self, rows: NDArray[np.intp]) -> "Accounts":
        """These rows alone, in the order given."""
        places, offsets = self._places(rows)
        return Accounts(
            start_ns=self.start_ns[rows],
            total_ns=self.total_ns[rows],
            busy_ns=self.busy_ns[rows],
            weights=self.weights[rows],
            outcomes=self.outcomes[rows],
            entries=self.entries,
            offsets=offsets,
            codes=self.codes[places],
            durations_ns=self.durations_ns[places],
            priorities=self.priorities[rows],
            dimensions={name: Labels(labels.values, labels.codes[rows]) for name, labels in self.dimensions.items()},
            sizes={name: values[rows] for name, values in self.sizes.items()},
            conditions={name: values[rows] for name, values in self.conditions.items()},
            complete=False,
        )

    def weighing(self, weights: Floats, count: float) -> "Accounts":
        """The same rows with these weights, scaled so that together they stand for `count` interactions."""
        total = float(weights.sum())
        return replace(self, weights=weights * (count / total) if total else weights, complete=False)

    def dense(self, rows: NDArray[np.intp]) -> Ints:
        """The durations of these rows as a matrix, a column for each of `entries`; 0 where a row has no such entry."""
        places, offsets = self._places(rows)
        matrix = np.zeros((len(rows), len(self.entries)), dtype=np.int64)
        lengths = np.diff(offsets)
        np.add.at(matrix, (np.repeat(np.arange(len(rows)), lengths), self.codes[places]), self.durations_ns[places])
        return matrix

    def entry_ns(self, name: str) -> Ints:
        """How long one entry took in each row; 0 where a row has no such entry."""
        if name not in self.entries:
            return np.zeros(len(self), dtype=np.int64)
        hits = np.flatnonzero(self.codes == self.entries.index(name))
        rows = np.searchsorted(self.offsets, hits, side="right") - 1
        return np.bincount(rows, weights=self.durations_ns[hits], minlength=len(self)).astype(np.int64)

    def _places(self, rows: NDArray[np.intp]) -> tuple[NDArray[np.intp], Ints]:
        """Where the entries of these rows stand, and the offsets that they have among themselves."""
        begins, lengths = self.offsets[rows], self.offsets[rows + 1] - self.offsets[rows]
        offsets = np.concatenate(([0], np.cumsum(lengths)))
        places = np.arange(offsets[-1]) + np.repeat(begins - offsets[:-1], lengths)
        return places, offsets.astype(np.int64)


def of_columns(
    entries_ns: Mapping[str, Ints],
    *,
    start_ns: Ints,
    ids: NDArray[np.uint64] | None = None,
    weights: Floats | None = None,
    dimensions: Mapping[str, Labels] | None = None,
    sizes: Mapping[str, Floats] | None = None,
    conditions: Mapping[str, Floats] | None = None,
) -> Accounts:
    """Accounts that all ended well, of a column for each entry, at least one; zeros are entries that a row lacks.

    Totals are the sums; rows are put in order of arrival. `ids` are numbers that are uniform over 64 bits, by default
    made from the rows' places.
    """
    n = len(start_ns)
    is_ordered = bool((start_ns[1:] >= start_ns[:-1]).all())
    order = slice(None) if is_ordered else np.argsort(start_ns, kind="stable")
    blocks = list(_blocks([values[order] for values in entries_ns.values()], n))
    lengths, total_ns = (np.concatenate([block[part] for block in blocks]) for part in (0, 1))
    made = np.arange(n, dtype=np.uint64) * _GOLDEN if ids is None else ids
    return Accounts(
        start_ns=start_ns[order],
        total_ns=total_ns,
        busy_ns=total_ns,
        weights=np.ones(n) if weights is None else weights[order],
        outcomes=np.full(n, OK, dtype=np.int8),
        entries=tuple(entries_ns),
        offsets=np.concatenate(([0], np.cumsum(lengths))).astype(np.int64),
        codes=np.concatenate([codes for _, _, codes, _ in blocks]),
        durations_ns=np.concatenate([durations_ns for _, _, _, durations_ns in blocks]),
        priorities=made[order],
        dimensions={name: Labels(each.values, each.codes[order]) for name, each in (dimensions or {}).items()},
        sizes={name: values[order] for name, values in (sizes or {}).items()},
        conditions={name: values[order] for name, values in (conditions or {}).items()},
    )


def _blocks(columns: Sequence[Ints], n: int) -> Iterator[tuple[Ints, Ints, NDArray[np.int32], Ints]]:
    """The rows of columns, some at a time: how many entries each has, its total, and then the entries of all of them.

    So many at a time that what is a column becomes a row inside the processor's cache.
    """
    places = np.arange(len(columns), dtype=np.int32)
    for begin in range(0, max(n, 1), _TOGETHER):
        matrix = np.stack([values[begin : begin + _TOGETHER] for values in columns], axis=1)
        there = matrix > 0
        yield there.sum(axis=1), matrix.sum(axis=1), np.broadcast_to(places, there.shape)[there], matrix[there]


def sampled(accounts: Accounts, most: int) -> Accounts:
    """All rows where they are at most so many; else a sample in which each is as likely as the square of its time.

    So of the slow ones enough are left. Priority sampling (Duffield, Lund & Thorup 2007): rows are ranked by that over
    a uniform number from their ids, and what comes after the last that counts says how likely the others were. Failures
    are drawn as if of median time.
    """
    if len(accounts) <= most:
        return accounts
    times = accounts.total_ns.astype(np.float64)
    times[~accounts.served] = np.median(times[accounts.served]) if accounts.served.any() else 1.0
    sizes = np.maximum(times, 1.0) ** 2 * accounts.weights
    keys = sizes / uniform(accounts.priorities)
    kept = np.argpartition(-keys, most)[: most + 1]
    kept = kept[np.argsort(-keys[kept], kind="stable")]
    threshold, chosen = keys[kept[-1]], np.sort(kept[:-1])
    weights = accounts.weights[chosen] * np.maximum(1.0, threshold / sizes[chosen])
    return accounts.select(chosen).weighing(weights, accounts.count)


def uniform(priorities: NDArray[np.uint64]) -> Floats:
    """A number in (0, 1) for each, independent of the priorities themselves: by those, rows were chosen before.

    The finaliser of SplitMix64 (Steele, Lea & Flood 2014).
    """
    mixed = priorities + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return ((mixed ^ (mixed >> np.uint64(31))) >> np.uint64(11)).astype(np.float64) * 2.0**-53 + 2.0**-54


def whole_ns(exact: Floats) -> Ints:
    """Whole nanoseconds that sum to the rounded sum: all rounded down, then the largest remainders up.

    Equal remainders go to the larger value first. Beyond 2^53 ns, a hundred days, floats are whole already and their
    sum is not exact: then nothing is added.
    """
    whole = np.floor(exact).astype(np.int64)
    missing = max(round(math.fsum(exact)) - int(whole.sum()), 0)
    whole[np.lexsort((-exact, whole - exact))[:missing]] += 1
    return whole


def without_edges(accounts: Accounts) -> Accounts:
    """The same, with the edges that nobody named summed by component: span names with ids in them make one each."""
    folded = [_folded(name) for name in accounts.entries]
    names = tuple(dict.fromkeys(folded))
    if names == accounts.entries:
        return accounts
    place = {name: code for code, name in enumerate(names)}
    recode = np.array([place[name] for name in folded], dtype=np.int32)
    return replace(accounts, entries=names, codes=recode[accounts.codes])


def _folded(name: str) -> str:
    component, stage = split_entry(name)
    return entry(component, UNATTRIBUTED) if stage.startswith(UNATTRIBUTED) else name
