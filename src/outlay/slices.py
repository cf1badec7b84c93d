"""For whom is it slow: values of dimensions whose interactions are slow more often than chance explains.

A value is tested twice. Is its share of the slow interactions larger than its share of all (Fisher's exact test)? And
of those that are slow for their shape, does it have more than the mix of its shapes explains? The second finds a slow
site that mostly gets short prompts. All tests are corrected for their number (Benjamini & Hochberg 1995).
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from outlay.accounts import Accounts, Floats, Labels
from outlay.bootstrap import interval
from outlay.interaction import SHAPE
from outlay.quantiles import smallest_n
from outlay.report import Slice
from outlay.shapes import (
    FEWEST_COMPARED,
    Cells,
    Codes,
    Drawn,
    Flags,
    Rows,
    Side,
    cells_of,
    draw,
    level_for,
    longer_ns,
    shapes_of,
    side,
    sums,
)

MOST_SLICES = 12

_FEWEST = smallest_n(0.95)
_SIGNIFICANT = 0.05
# The variance of fewer batch means is too uncertain itself to correct anything.
_FEWEST_BATCHES = 10
# Beyond so many terms of a hypergeometric tail nothing is left to add.
_MOST_TERMS = 4000


def slices(accounts: Accounts, level: float) -> tuple[Slice, ...]:
    """The values that stand out among the slow: from the percentile `level` (in percent) on, and the failed.

    Tested are values with at least 59 rows, of dimensions with more than one; rows that do not say a dimension are left
    out of it. Returned are those with an adjusted p-value below 5 %, and those slow for their shapes with an effect
    whose interval lies above 0: most significant first, at most 12. Of values that mean the same rows the first is
    told. Empty where nothing stands out.
    """
    if len(accounts) < _FEWEST:
        return ()
    world = _world(accounts, level)
    found: list[Slice] = []
    told: list[Flags] = []
    for tested in _tested(world):
        if len(found) == MOST_SLICES:
            break
        if any(np.array_equal(tested.inside, other) for other in told):
            continue
        told.append(tested.inside)
        made = _slice(world, tested)
        if made.p_value < _SIGNIFICANT or _clear(made):
            found.append(made)
    return tuple(found)


def _clear(made: Slice) -> bool:
    return made.effect_interval_ns is not None and made.effect_interval_ns[0] > 0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _World:
    """All rows, and which of them are slow, and slow for their shape; `slowest` are the rows, the slowest first."""

    accounts: Accounts
    level: float
    times_ns: Floats
    slowest: Rows
    cells: Cells
    shapes: Labels
    slow: Flags
    slow_for_shape: Flags
    drawn: Drawn


def _world(accounts: Accounts, level: float) -> _World:
    times_ns, fine = accounts.times_ns, cells_of(accounts)
    cells = fine.coarsened()
    slowest = np.argsort(-times_ns)
    ordered_ns, weights, shapes = times_ns[slowest], accounts.weights[slowest], cells.codes[slowest]
    slow = slow_for_shape = times_ns >= _percentiles(ordered_ns, weights, np.zeros_like(shapes), level)[0]
    if len(cells) > 1:
        slow_for_shape = times_ns >= _percentiles(ordered_ns, weights, shapes, level)[cells.codes]
    return _World(
        accounts=accounts,
        level=level,
        times_ns=times_ns,
        slowest=slowest,
        cells=cells,
        shapes=shapes_of(accounts, fine),
        slow=slow,
        slow_for_shape=slow_for_shape,
        drawn=draw(accounts.weights, slow),
    )


def _percentiles(times_ns: Floats, weights: Floats, cells: Codes, level: float) -> Floats:
    """The percentile of each cell, of rows with the slowest first; every cell has a row."""
    # The stable sort of small numbers counts them, which takes no time beside the sort of the times.
    order = np.argsort(cells.astype(np.min_scalar_type(cells.max())), kind="stable")
    own, weights, counts = cells[order], weights[order], np.bincount(cells)
    reached, begins = np.cumsum(weights), np.cumsum(counts) - counts
    totals = np.bincount(own, weights=weights)
    above = reached <= (reached[begins] - weights[begins] + (100 - level) / 100 * (1 + 1e-9) * totals)[own]
    passed = np.minimum(np.bincount(own, weights=above).astype(np.int64), counts - 1)
    percentiles: Floats = times_ns[order[begins + passed]]
    return percentiles


# Tests


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Table:
    """One dimension, by value: how many there are, how many of them are slow, how many slow ones its shapes explain.

    All in interactions. `slow_worth` and `other_worth` are what a weighted slow or other interaction is worth.
    """

    dimension: str
    labels: Labels
    rows: NDArray[np.int64]
    flags: Flags
    counts: Floats
    slow: Floats
    expected: Floats | None
    slow_worth: float
    other_worth: float

    def p_value(self, code: int, burst: float = 1.0) -> float:
        """How likely so many slow ones, or more, are by chance, in bursts of this size."""
        k, n, slow, total = self.slow[code], self.counts[code], self.slow.sum(), self.counts.sum()
        if k == 0:
            return 1.0
        worth, other_worth = self.slow_worth / burst, self.other_worth / burst
        if self.expected is not None:
            return _binomial_tail(k * worth, slow * worth, self.expected[code] / slow)
        others, size = (n - k) * other_worth, slow * worth
        return _fisher(k * worth, k * worth + others, size, size + (total - slow) * other_worth)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Tested:
    """One value, the table of its Fisher test, and that test's `p_value`; the least one is of both tests. Adjusted."""

    table: _Table
    code: int
    p_value: float
    least_p_value: float

    @property
    def share(self) -> float:
        return float(self.table.counts[self.code] / self.table.counts.sum())

    @property
    def tail_share(self) -> float:
        return float(self.table.slow[self.code] / self.table.slow.sum())

    @property
    def lift(self) -> float:
        return self.tail_share / self.share

    @property
    def inside(self) -> Flags:
        """Which rows say this value."""
        inside: Flags = self.table.labels.codes == self.code
        return inside


def _tested(world: _World) -> list[_Tested]:
    """What stands out, most significant first."""
    tests = [(table, code) for table in _tables(world) for code in np.flatnonzero(table.rows >= _FEWEST).tolist()]
    p_values = np.array([table.p_value(code) for table, code in tests])
    # Bursts only raise a value, so they are looked for only where it could still be small enough.
    for place in np.flatnonzero(_adjusted(p_values) < _SIGNIFICANT).tolist():
        table, code = tests[place]
        p_values[place] = max(p_values[place], table.p_value(code, _burst(table, code)))
    adjusted = _adjusted(p_values).tolist()
    by_value: dict[tuple[str, int], list[tuple[_Table, float]]] = {}
    for (table, code), p_value in zip(tests, adjusted, strict=True):
        by_value.setdefault((table.dimension, code), []).append((table, p_value))
    found = [
        _Tested(table=both[0][0], code=code, p_value=both[0][1], least_p_value=min(p_value for _, p_value in both))
        for (_, code), both in by_value.items()
    ]
    outstanding = (each for each in found if each.least_p_value < _SIGNIFICANT)
    return sorted(outstanding, key=lambda each: (each.least_p_value, -each.lift, each.table.dimension))


def _tables(world: _World) -> Iterator[_Table]:
    """The tests of each dimension that has more than one value: of the slow, then of those slow for their shapes."""
    dimensions = {**world.accounts.dimensions, SHAPE: world.shapes}
    for dimension, labels in dimensions.items():
        rows = np.bincount(labels.codes + 1, minlength=len(labels.values) + 1)[1:]
        if (rows > 0).sum() < 2:
            continue
        yield _table(world, dimension, labels, rows, by_shape=False)
        if dimension != SHAPE and len(world.cells) > 1:
            yield _table(world, dimension, labels, rows, by_shape=True)


def _table(world: _World, dimension: str, labels: Labels, rows: NDArray[np.int64], *, by_shape: bool) -> _Table:
    weights, flags = world.accounts.weights, world.slow_for_shape if by_shape else world.slow
    width = len(labels.values) + 1
    # The rows that do not say come first, and are left out.
    places = labels.codes + 1
    known = labels.codes >= 0
    slow_rows = np.flatnonzero(flags & known)
    slow = sums(places[slow_rows], weights[slow_rows], width)[1:]
    return _Table(
        dimension=dimension,
        labels=labels,
        rows=rows,
        flags=flags,
        counts=sums(places, weights, width)[1:],
        slow=slow,
        expected=_expected(world, places, slow_rows, width) if by_shape else None,
        slow_worth=_worth(weights[slow_rows]),
        other_worth=_worth(weights[known & ~flags]),
    )


def _expected(world: _World, places: Codes, slow_rows: Rows, width: int) -> Floats:
    """How many of those slow for their shapes each value would have if it were slow as often as others of the shape."""
    weights, cells, shapes = world.accounts.weights, world.cells.codes, len(world.cells)
    table = sums(places * shapes + cells, weights, width * shapes).reshape(width, shapes)[1:]
    slow = sums(cells[slow_rows], weights[slow_rows], shapes)
    totals = table.sum(axis=0)
    expected: Floats = table @ np.divide(slow, totals, out=np.zeros(shapes), where=totals > 0)
    return expected


def _worth(weights: Floats) -> float:
    """What each interaction is worth of one of equal weight: (sum w)^2 / sum w^2, of the sum; 1 at the most."""
    return min(1.0, float(weights.sum() / np.square(weights).sum())) if weights.size else 1.0


def _burst(table: _Table, code: int) -> float:
    """By how much bursts widen what chance does to the slow ones of a value, beside those of the others; at least 1.

    As in `quantiles.effective_n`, by the means of batches of about sqrt(n) rows in order of arrival; but of the product
    of being slow and being of this value, each less its mean. What strikes all values alike says nothing of one.
    """
    known = table.labels.codes >= 0
    inside = (table.labels.codes[known] == code).astype(np.float64)
    slow = table.flags[known].astype(np.float64)
    size = math.isqrt(inside.size)
    if size < _FEWEST_BATCHES:
        return 1.0
    products = (inside - inside.mean()) * (slow - slow.mean())
    means = products[: inside.size // size * size].reshape(-1, size).mean(axis=1)
    alone = float(products.var())
    return max(1.0, size * float(means.var(ddof=1)) / alone) if alone else 1.0


def _fisher(k: float, n: float, slow: float, total: float) -> float:
    """The chance of `k` slow ones or more among `n` of `total`, of which `slow` are slow: hypergeometric.

    Effective counts are rounded, `k` downwards.
    """
    from scipy.special import gammaln

    if k / n <= slow / total:
        return 1.0
    count, size, whole = round(n), round(slow), round(total)
    least = max(int(k + 1e-9), 0, size + count - whole)
    terms = np.arange(least, min(count, size, least + _MOST_TERMS) + 1)

    def ways(of: int, chosen: NDArray[np.int64]) -> Floats:
        logarithms: Floats = gammaln(of + 1) - gammaln(chosen + 1) - gammaln(of - chosen + 1)
        return logarithms

    logarithms = ways(size, terms) + ways(whole - size, count - terms) - ways(whole, np.array(count))
    return min(1.0, float(np.exp(logarithms).sum()))


def _binomial_tail(k: float, n: float, share: float) -> float:
    """The chance of `k` or more of `n`, each with this chance; counts need not be whole."""
    from scipy.special import betainc

    return 1.0 if k <= n * share else float(betainc(k, max(n - k, 0.0) + 1, share))


def _adjusted(p_values: Floats) -> Floats:
    """Benjamini & Hochberg's: below 5 % for so many that 5 % of them are expected to be false."""
    order = np.argsort(p_values)[::-1]
    n = len(p_values)
    adjusted = np.empty(n)
    adjusted[order] = np.minimum.accumulate(p_values[order] * n / np.arange(n, 0, -1))
    return np.minimum(adjusted, 1.0)


# Effects


def _slice(world: _World, tested: _Tested) -> Slice:
    found = _effect(world, tested)
    return Slice(
        dimension=tested.table.dimension,
        value=tested.table.labels.values[tested.code],
        n=round(float(tested.table.counts[tested.code])),
        share=tested.share,
        tail_share=tested.tail_share,
        lift=tested.lift,
        p_value=tested.p_value,
        level=found.level,
        effect_ns=found.effect_ns,
        effect_interval_ns=found.interval_ns,
        compared=found.compared,
        why=found.why,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Effect:
    """The fields of a `Slice` that go by these names."""

    level: float | None = None
    effect_ns: float | None = None
    interval_ns: tuple[float, float] | None = None
    compared: float | None = None
    why: str | None = None


def _effect(world: _World, tested: _Tested) -> _Effect:
    """How much longer the value's percentile is than that of all others with the same mix of shapes."""
    if tested.table.dimension == SHAPE:
        return _Effect(why="another shape has nothing to be compared with")
    inside, cells = tested.inside, world.cells
    outside = ~inside & (tested.table.labels.codes >= 0)
    matched = cells.matched(cells.counts(inside), cells.counts(outside))[cells.codes]
    own, weights = matched[inside] >= 0, world.accounts.weights[inside]
    compared = float(weights[own].sum() / weights.sum())
    if compared < FEWEST_COMPARED:
        return _Effect(compared=compared, why=f"of their shapes the others have only {compared:.0%}")
    one, other = (_side(world, flags, matched) for flags in (inside, outside))
    n = min(len(one.rows), other.worth(one))
    level = level_for(n, world.level)
    if level is None:
        return _Effect(compared=compared, why=f"of equal shapes there are too few for a percentile: {n:.0f}")
    (one_ns, one_drawn), (other_ns, other_drawn) = one.percentile(level, one), other.percentile(level, one)
    if np.isinf((one_ns, other_ns)).all():
        return _Effect(compared=compared, why=f"so many failed, of these and of the others, that no p{level:g} comes")
    return _Effect(
        level=level,
        effect_ns=one_ns - other_ns,
        interval_ns=interval(longer_ns(one_drawn, other_drawn)),
        compared=compared,
    )


def _side(world: _World, flags: Flags, matched: Codes) -> Side:
    rows = world.slowest[(flags & (matched >= 0))[world.slowest]]
    return side(world.drawn, rows, world.times_ns[rows], matched[rows])
