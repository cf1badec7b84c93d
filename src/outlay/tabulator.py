"""Accounts one by one into columns, in memory that does not grow with their number.

Kept are the slowest, the failed as a sample, and a uniform sample of the rest, by a hash of their ids: so any split of
the work, merged, keeps the same rows. Until there are more than fit, every one is kept.
"""

from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from outlay.account import Account
from outlay.accounts import OK, OUTCOME_NAMES, Accounts, Floats, Ints, Labels
from outlay.interaction import Interaction
from outlay.sampling import priority
from outlay.units import MAX_NS

# Rows in Python's own arrays before numpy takes them.
_FOLD = 1 << 16
# A dimension with more values than this tells single interactions apart, not groups of them.
MOST_VALUES = 1000
_UNKNOWN = -1
_Scalar = TypeVar("_Scalar", bound=np.generic)


@dataclass(frozen=True, slots=True, kw_only=True)
class Keep:
    """How many rows a tabulator keeps: the slowest, a uniform sample of the others, and one of those that failed."""

    slowest: int = 1 << 18
    sample: int = 1 << 16
    failed: int = 1 << 15

    @property
    def rows(self) -> int:
        return self.slowest + self.sample + self.failed


class _Names:
    """Texts by number, in order of their first use."""

    __slots__ = ("codes",)

    def __init__(self) -> None:
        self.codes: dict[str, int] = {}

    def code(self, name: str) -> int:
        return self.codes.setdefault(name, len(self.codes))


@dataclass(slots=True)
class _Rows:
    """Rows as arrays; labels and numbers by name are missing where no row has them."""

    start_ns: Ints
    total_ns: Ints
    busy_ns: Ints
    weights: Floats
    outcomes: NDArray[np.int8]
    priorities: NDArray[np.uint64]
    lengths: Ints
    codes: NDArray[np.int32]
    durations_ns: Ints
    labels: dict[str, NDArray[np.int32]]
    numbers: dict[tuple[str, str], Floats]

    def __len__(self) -> int:
        return len(self.total_ns)

    def take(self, rows: NDArray[np.intp]) -> "_Rows":
        ends = np.cumsum(self.lengths)
        lengths = self.lengths[rows]
        begins = (ends - self.lengths)[rows]
        into = np.cumsum(lengths) - lengths
        places = np.arange(lengths.sum()) + np.repeat(begins - into, lengths)
        return _Rows(
            self.start_ns[rows],
            self.total_ns[rows],
            self.busy_ns[rows],
            self.weights[rows],
            self.outcomes[rows],
            self.priorities[rows],
            lengths,
            self.codes[places],
            self.durations_ns[places],
            {name: codes[rows] for name, codes in self.labels.items()},
            {name: values[rows] for name, values in self.numbers.items()},
        )


class _Open:
    """Rows that are still being added."""

    __slots__ = (
        "busy",
        "codes",
        "durations",
        "labels",
        "lengths",
        "numbers",
        "outcomes",
        "priorities",
        "starts",
        "totals",
        "weights",
    )

    def __init__(self) -> None:
        self.starts, self.totals, self.busy, self.priorities = array("q"), array("q"), array("q"), array("Q")
        self.weights, self.outcomes = array("d"), array("b")
        self.lengths, self.codes, self.durations = array("q"), array("i"), array("q")
        self.labels: dict[str, array[int]] = {}
        self.numbers: dict[tuple[str, str], array[float]] = {}

    def label(self, place: int, name: str, code: int) -> None:
        column = self.labels.setdefault(name, array("i"))
        _filled(column, place, _UNKNOWN)
        column.append(code)

    def number(self, place: int, name: tuple[str, str], number: float) -> None:
        column = self.numbers.setdefault(name, array("d"))
        _filled(column, place, np.nan)
        column.append(number)

    def closed(self) -> _Rows:
        n = len(self.totals)
        return _Rows(
            np.array(self.starts, dtype=np.int64),
            np.array(self.totals, dtype=np.int64),
            np.array(self.busy, dtype=np.int64),
            np.array(self.weights, dtype=np.float64),
            np.array(self.outcomes, dtype=np.int8),
            np.array(self.priorities, dtype=np.uint64),
            np.array(self.lengths, dtype=np.int64),
            np.array(self.codes, dtype=np.int32),
            np.array(self.durations, dtype=np.int64),
            {name: _padded(np.array(codes, dtype=np.int32), n, _UNKNOWN) for name, codes in self.labels.items()},
            {name: _padded(np.array(values, dtype=np.float64), n, np.nan) for name, values in self.numbers.items()},
        )


class Tabulator:
    """Takes accounts and failures in any order, merges with others, and gives their columns."""

    __slots__ = (
        "_chunks",
        "_entries",
        "_is_thin",
        "_keep",
        "_kept",
        "_open",
        "_values",
        "_weight_failed",
        "_weight_served",
    )

    def __init__(self, keep: Keep | None = None) -> None:
        self._keep = keep or Keep()
        self._open = _Open()
        self._chunks: list[_Rows] = []
        self._kept = 0
        # Whether what is kept would be kept again.
        self._is_thin = False
        self._entries = _Names()
        self._values: dict[str, _Names] = {}
        self._weight_served = 0.0
        self._weight_failed = 0.0

    def add(self, made: Account, busy_ns: int | None = None) -> None:
        """Take the account of an interaction that ended well; the service was busy with it for `busy_ns`."""
        self._weight_served += made.interaction.weight
        self._add(made.interaction, made.total_ns, made.entries, made.total_ns if busy_ns is None else busy_ns)

    def add_failed(self, interaction: Interaction) -> None:
        """Take an interaction that never gave the person a result."""
        self._weight_failed += interaction.weight
        self._add(interaction, 0, {}, 0)

    def add_many(self, accounts: Accounts) -> None:
        """Take what another table holds, each row for as many as it stands for there."""
        self._fold()
        served = accounts.served
        self._weight_served += float(accounts.weights[served].sum())
        self._weight_failed += float(accounts.weights[~served].sum())
        self._take(self._recoded(accounts))
        self._fold()

    def _recoded(self, accounts: Accounts) -> _Rows:
        entries = _coded(self._entries, accounts.entries)
        numbers = {("size", name): values for name, values in accounts.sizes.items()}
        numbers |= {("condition", name): values for name, values in accounts.conditions.items()}
        return _Rows(
            accounts.start_ns,
            accounts.total_ns,
            accounts.busy_ns,
            accounts.weights,
            accounts.outcomes,
            accounts.priorities,
            np.diff(accounts.offsets),
            entries[accounts.codes],
            accounts.durations_ns,
            {
                name: _coded(self._names_of(name), labels.values)[labels.codes]
                for name, labels in accounts.dimensions.items()
            },
            numbers,
        )

    def _add(self, interaction: Interaction, total_ns: int, entries: Mapping[str, int], busy_ns: int) -> None:
        rows = self._open
        place = len(rows.totals)
        rows.starts.append(interaction.start_ns or 0)
        rows.totals.append(total_ns)
        rows.busy.append(min(busy_ns, MAX_NS))
        rows.weights.append(interaction.weight)
        rows.outcomes.append(OUTCOME_NAMES.index(interaction.outcome))
        rows.priorities.append(priority(interaction.id))
        rows.lengths.append(len(entries))
        code = self._entries.code
        rows.codes.extend([code(name) for name in entries])
        rows.durations.extend(entries.values())
        for name, value in interaction.dimensions.items():
            rows.label(place, name, self._value(name, value))
        for name, number in interaction.sizes.items():
            rows.number(place, ("size", name), number)
        for name, seen in interaction.conditions.items():
            rows.number(place, ("condition", name), seen)
        if place + 1 >= _FOLD:
            self._fold()

    def _value(self, name: str, value: str) -> int:
        names = self._values.get(name)
        if names is None:
            names = self._values[name] = _Names()
        return names.code(value) if len(names.codes) <= MOST_VALUES else names.codes.get(value, _UNKNOWN)

    def _fold(self) -> None:
        if len(self._open.totals):
            self._take(self._open.closed())
            self._open = _Open()
        # Thinning costs a pass over all that is kept, so it waits until half as much again has come.
        if self._kept > self._keep.rows * 3 // 2:
            self._thin()

    def _take(self, rows: _Rows) -> None:
        self._chunks.append(rows)
        self._kept += len(rows)
        self._is_thin = False

    def _thin(self) -> None:
        if self._is_thin:
            return
        self._is_thin = True
        rows = _joined(self._chunks)
        kept = self._which(rows)
        self._chunks = [rows.take(np.flatnonzero(kept))]
        self._kept = int(kept.sum())

    def _which(self, rows: _Rows) -> NDArray[np.bool_]:
        """The rows to keep: by time, or by the hash of their ids."""
        keep, served = self._keep, rows.outcomes == OK
        by_time = np.lexsort((rows.priorities, rows.total_ns))
        kept = np.zeros(len(rows), dtype=bool)
        kept[by_time[served[by_time]][::-1][: keep.slowest]] = True
        by_hash = np.argsort(rows.priorities, kind="stable")
        kept[by_hash[served[by_hash]][: keep.sample]] = True
        kept[by_hash[~served[by_hash]][: keep.failed]] = True
        return kept

    def merge(self, other: "Tabulator") -> None:
        """Take everything that `other` took."""
        self._fold()
        other._fold()
        entries = _coded(self._entries, other._entries.codes)
        values = {name: _coded(self._names_of(name), names.codes) for name, names in other._values.items()}
        for chunk in other._chunks:
            chunk.codes = entries[chunk.codes]
            chunk.labels = {name: values[name][codes] for name, codes in chunk.labels.items()}
            self._take(chunk)
        self._weight_served += other._weight_served
        self._weight_failed += other._weight_failed
        self._fold()

    def _names_of(self, name: str) -> _Names:
        return self._values.setdefault(name, _Names())

    def accounts(self) -> Accounts:
        """What was kept, in order of arrival, each row with the number of interactions that it stands for."""
        self._fold()
        if self._kept > min(self._keep.slowest, self._keep.failed):
            self._thin()
        rows = _joined(self._chunks or [_Open().closed()])
        weights, complete = self._weights(rows)
        order, ordered = np.arange(len(rows)), rows
        if (rows.start_ns[1:] <= rows.start_ns[:-1]).any():
            order = np.lexsort((rows.total_ns, rows.priorities, rows.start_ns))
            ordered = rows.take(order)
        return Accounts(
            start_ns=ordered.start_ns,
            total_ns=ordered.total_ns,
            busy_ns=ordered.busy_ns,
            weights=weights[order],
            outcomes=ordered.outcomes,
            entries=tuple(sorted(self._entries.codes)),
            offsets=np.concatenate(([0], np.cumsum(ordered.lengths))).astype(np.int64),
            codes=_by_name(self._entries)[ordered.codes],
            durations_ns=ordered.durations_ns,
            priorities=ordered.priorities,
            dimensions={
                name: Labels(tuple(sorted(self._values[name].codes)), _by_name(self._values[name])[codes])
                for name, codes in sorted(ordered.labels.items())
                if len(self._values[name].codes) <= MOST_VALUES and (codes >= 0).any()
            },
            sizes=_named(ordered.numbers, "size"),
            conditions=_named(ordered.numbers, "condition"),
            complete=complete,
        )

    def _weights(self, rows: _Rows) -> tuple[Floats, bool]:
        """The rows' own weights, those of a sample raised to stand for what it was drawn from."""
        weights: Floats = rows.weights.copy()
        served = rows.outcomes == OK
        body = served.copy()
        if served.sum() > self._keep.slowest:
            by_time = np.lexsort((rows.priorities, rows.total_ns))
            body[by_time[served[by_time]][::-1][: self._keep.slowest]] = False
        outside = float(weights[served & ~body].sum())
        complete = True
        for group, stands_for in ((body, self._weight_served - outside), (~served, self._weight_failed)):
            own = float(weights[group].sum())
            if own and stands_for > own * (1 + 1e-9):
                complete = False
                weights[group] *= stands_for / own
        return weights, complete


def _coded(names: _Names, others: Iterable[str]) -> NDArray[np.int32]:
    """The number here of each name there; the last, which -1 finds, is -1."""
    return np.array([*(names.code(name) for name in others), _UNKNOWN], dtype=np.int32)


def _by_name(names: _Names) -> NDArray[np.int32]:
    """The place of each number's name among all in alphabetical order, so that no order of arrival shows; -1 stays."""
    places = {name: place for place, name in enumerate(sorted(names.codes))}
    return np.array([*(places[name] for name in names.codes), _UNKNOWN], dtype=np.int32)


def _filled(column: "array[int] | array[float]", place: int, absent: float) -> None:
    """Fill a column up to `place`, for the rows that had no such value."""
    if (missing := place - len(column)) > 0:
        column.extend(array(column.typecode, [absent]) * missing)  # type: ignore[arg-type]


def _padded(column: NDArray[_Scalar], n: int, absent: float) -> NDArray[_Scalar]:
    return np.concatenate((column, np.full(n - len(column), absent, dtype=column.dtype)))


def _joined(chunks: Sequence[_Rows]) -> _Rows:
    if len(chunks) == 1:
        return chunks[0]
    labels = dict.fromkeys(name for chunk in chunks for name in chunk.labels)
    numbers = dict.fromkeys(name for chunk in chunks for name in chunk.numbers)
    return _Rows(
        np.concatenate([chunk.start_ns for chunk in chunks]),
        np.concatenate([chunk.total_ns for chunk in chunks]),
        np.concatenate([chunk.busy_ns for chunk in chunks]),
        np.concatenate([chunk.weights for chunk in chunks]),
        np.concatenate([chunk.outcomes for chunk in chunks]),
        np.concatenate([chunk.priorities for chunk in chunks]),
        np.concatenate([chunk.lengths for chunk in chunks]),
        np.concatenate([chunk.codes for chunk in chunks]),
        np.concatenate([chunk.durations_ns for chunk in chunks]),
        {name: np.concatenate([_label(chunk, name) for chunk in chunks]) for name in labels},
        {name: np.concatenate([_number(chunk, name) for chunk in chunks]) for name in numbers},
    )


def _label(chunk: _Rows, name: str) -> NDArray[np.int32]:
    found = chunk.labels.get(name)
    return np.full(len(chunk), _UNKNOWN, dtype=np.int32) if found is None else found


def _number(chunk: _Rows, name: tuple[str, str]) -> Floats:
    found = chunk.numbers.get(name)
    return np.full(len(chunk), np.nan) if found is None else found


def _named(numbers: Mapping[tuple[str, str], Floats], kind: str) -> dict[str, Floats]:
    return {name: values for (of, name), values in sorted(numbers.items()) if of == kind and np.isfinite(values).any()}
