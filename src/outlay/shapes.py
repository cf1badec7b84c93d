"""Interactions compared with others as if those had the same mix of shapes.

A shape is the log2 bucket of each known size; an unknown size is a bucket of its own. Two sides are compared over the
shapes that both have. One side's percentile "like" the other is that of its own times, each weighted so that every
shape counts as much as it does on the other side (post-stratification). Within a bucket sizes count as equal: where
they are not, as for much longer prompts that crowd at a bucket's upper end, that part is taken for a difference.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from outlay.accounts import Accounts, Floats, Labels
from outlay.bootstrap import Blocks, block_length
from outlay.interaction import SHAPE
from outlay.quantiles import effective_n, smallest_n

Rows = NDArray[np.intp]
Flags = NDArray[np.bool_]
Codes = NDArray[np.int32]

# A shape of which one side has fewer rows is compared together with its neighbours.
FEWEST_IN_CELL = 5
# A comparison that covers less than this share is none.
FEWEST_COMPARED = 0.5
# Levels to fall back to, where a sample is too small for the one that was asked for.
_LEVELS = (99.0, 95.0)

# More cells than these are too thin to compare, and every replicate counts all of them.
_MOST_CELLS = 256
# So often can the bits of a size be halved.
_MOST_ROUNDS = 6
# Replicates look for a percentile within so many standard errors, and so many rows at least: few rows are not normal.
_REACH = 4
_LEAST_NEAR = 64
# Of more rows than these around a percentile, every second or fourth stands for its neighbours: bursts that make
# replicates differ by thousands of ranks leave room for that.
_MOST_NEAR = 8192
_UNKNOWN = -1


@dataclass(frozen=True, slots=True, eq=False)
class Cells:
    """The shape of each row, as a number, and the buckets that it stands for.

    `buckets` has a row for each cell and a column for each of `sizes`, those of outputs first: 0 for a size of 0, b for
    one from 2^(b - 1) up to 2^b, -1 for an unknown one. `codes` are places in it.
    """

    sizes: tuple[str, ...]
    codes: Codes
    buckets: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.buckets)

    def counts(self, rows: Rows | Flags) -> NDArray[np.int64]:
        """How many of these rows lie in each cell."""
        return np.bincount(self.codes[rows], minlength=len(self)).astype(np.int64)

    def matched(self, one: NDArray[np.int64], other: NDArray[np.int64]) -> Codes:
        """For each cell the cell to compare it in, of two sides' counts of rows; -1: not at all.

        A cell that one side lacks is not compared: another shape is no stand-in. One that is thin on either side is
        joined with its neighbours: buckets in pairs, of outputs first, then of each other size too. What is thin even
        then is not compared.
        """
        both = (one > 0) & (other > 0)
        one, other, cells = one * both, other * both, np.arange(len(self))
        buckets = self.buckets
        for column in range(len(self.sizes)):
            thin = both & _thin(cells, one, other)
            buckets = _paired(buckets, column)
            joint = _numbered(buckets)[1]
            cells = _numbered(np.where(np.isin(joint, joint[thin]), len(self) + joint, cells))[1]
        kept = both & ~_thin(cells, one, other)
        matched = np.full(len(self), _UNKNOWN, dtype=np.int32)
        matched[kept] = _numbered(cells[kept])[1]
        return matched

    def coarsened(self) -> "Cells":
        """As many cells as can be compared: where there are more, buckets are joined in pairs, of outputs first.

        In pairs of pairs where that is not enough, and so on.
        """
        cells = self
        for column in (*range(len(self.sizes)),) * _MOST_ROUNDS:
            if len(cells) <= _MOST_CELLS:
                break
            first, codes = _numbered(buckets := _paired(cells.buckets, column))
            cells = Cells(self.sizes, codes.astype(np.int32)[cells.codes], buckets[first])
        return cells

    def labels(self) -> Labels:
        """The cells' names, as `interaction.shape` gives them; for cells that were not coarsened."""
        names = [_name(self.sizes, buckets) for buckets in self.buckets.tolist()]
        values = tuple(sorted({name for name in names if name is not None}))
        places = {name: place for place, name in enumerate(values)}
        codes = np.array([_UNKNOWN if name is None else places[name] for name in names], dtype=np.int32)
        return Labels(values, codes[self.codes])


def cells_of(accounts: Accounts) -> Cells:
    """The shape of every row, by powers of two."""
    sizes = tuple(sorted(accounts.sizes, key=lambda name: ("output" not in name, name)))
    codes = np.zeros(len(accounts), dtype=np.int64)
    buckets = np.zeros((1, 0), dtype=np.int64)
    for column in (_buckets(accounts.sizes[name]) for name in sizes):
        width = int(column.max(initial=_UNKNOWN)) + 2
        codes = codes * width + column - _UNKNOWN
        seen = np.flatnonzero(np.bincount(codes, minlength=1))
        places = np.zeros(int(seen.max(initial=0)) + 1, dtype=np.int64)
        places[seen] = np.arange(len(seen))
        codes = places[codes]
        buckets = np.column_stack((buckets[seen // width], seen % width + _UNKNOWN))
    return Cells(sizes, codes.astype(np.int32), buckets)


def shapes_of(accounts: Accounts, cells: Cells) -> Labels:
    """The dimension `shape`: what the producer stated, else the name of the cell."""
    derived, stated = cells.labels(), accounts.dimensions.get(SHAPE)
    if stated is None:
        return derived
    values = tuple(dict.fromkeys((*stated.values, *derived.values)))
    recode = np.array([*(values.index(value) for value in derived.values), _UNKNOWN], dtype=np.int32)
    return Labels(values, np.where(stated.codes >= 0, stated.codes, recode[derived.codes]))


def _buckets(sizes: Floats) -> NDArray[np.int64]:
    known = ~np.isnan(sizes)
    # The exponent of a whole number is its bit length; rounding of a logarithm would show at powers of two.
    exponents = np.frexp(np.floor(np.where(known, sizes, 0)))[1]
    return np.where(known, exponents, _UNKNOWN).astype(np.int64)


def _paired(buckets: NDArray[np.int64], column: int) -> NDArray[np.int64]:
    """The same with one size's buckets joined in pairs; unknown sizes and those of 0 stay by themselves."""
    joint = buckets.copy()
    joint[:, column] = np.where(joint[:, column] > 0, (joint[:, column] + 1) // 2, joint[:, column])
    return joint


def _numbered(items: NDArray[np.int64]) -> tuple[Rows, NDArray[np.int64]]:
    """Distinct items (rows of a matrix) numbered from 0: where each stands first, and the number of every item."""
    _, first, numbers = np.unique(items, axis=0, return_index=True, return_inverse=True)
    return first, numbers.reshape(-1).astype(np.int64)


def _thin(cells: NDArray[np.int64], one: NDArray[np.int64], other: NDArray[np.int64]) -> Flags:
    fewer = np.minimum(np.bincount(cells, weights=one), np.bincount(cells, weights=other))
    thin: Flags = fewer[cells] < FEWEST_IN_CELL
    return thin


def _name(sizes: tuple[str, ...], buckets: Sequence[int]) -> str | None:
    known = sorted((name, bucket) for name, bucket in zip(sizes, buckets, strict=True) if bucket != _UNKNOWN)
    if not known:
        return None
    return " ".join(f"{name} {f'{1 << (bucket - 1)}+' if bucket > 0 else 0}" for name, bucket in known)


# Percentiles


@dataclass(frozen=True, slots=True, eq=False)
class Drawn:
    """The bootstrap's blocks over some rows; `weights` have a mean of 1, and a burst of slow rows is worth one."""

    weights: Floats
    blocks: Blocks
    burst: float


def draw(weights: Floats, slow: Flags) -> Drawn:
    """Blocks long enough for the bursts of slow rows; both arrays in order of arrival, at least one row."""
    each = weights / weights.mean()
    return Drawn(each, Blocks(each, block_length(slow)), len(slow) / effective_n(slow))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Side:
    """Some of the rows that were drawn, slowest first: `rows` are their places there, `cells` their matched shapes.

    `mix` is how many there are of each shape, `drawn_mix` the same in each replicate (a row for each).
    """

    drawn: Drawn
    rows: Rows
    times_ns: Floats
    cells: Codes
    mix: Floats
    drawn_mix: Floats

    def worth(self, like: "Side") -> float:
        """How many rows of equal weight this side is worth as if it had the mix of another: (sum w)^2 / sum w^2."""
        each = self.drawn.weights[self.rows] * (like.mix / self.mix)[self.cells]
        return float(each.sum() ** 2 / np.square(each).sum())

    def percentile(self, level: float, like: "Side") -> tuple[float, Floats]:
        """The smallest time with at least `level` percent at or below it, as if with the mix of another side.

        With it that of each replicate, in which both mixes are drawn anew.
        """
        share = (100 - level) / 100 * (1 + 1e-9)
        weights = self.drawn.weights[self.rows]
        each = weights * (like.mix / self.mix)[self.cells]
        reached = np.cumsum(each)
        wanted = share * float(like.mix.sum())
        place = min(int(np.searchsorted(reached, wanted, side="right")), len(each) - 1)
        # Replicates only differ near the percentile: of all that is clearly slower, the number drawn is enough.
        spread = float(np.square(each[: place + 1]).sum()) + wanted * like.drawn.weights[like.rows].mean()
        reach = _REACH * math.sqrt(self.drawn.burst * spread)
        begin, end = np.searchsorted(reached, (wanted - reach, wanted + reach)).tolist()
        begin, end = max(0, min(begin, place - _LEAST_NEAR)), max(end, place + _LEAST_NEAR)
        return float(self.times_ns[place]), self._replicates(begin, min(end, len(each)), share, like)

    def _replicates(self, begin: int, end: int, share: float, like: "Side") -> Floats:
        """Of each replicate the percentile, which lies between two places."""
        blocks, weights = self.drawn.blocks, self.drawn.weights
        # Powers of two, from a multiple on: so two percentiles of one side leave out the same rows.
        step = 1 << max(0, math.ceil(math.log2((end - begin) / _MOST_NEAR)))
        begin -= begin % step
        ratios = np.divide(like.drawn_mix, self.drawn_mix, out=np.zeros_like(like.drawn_mix), where=self.drawn_mix > 0)
        counts = blocks.totals(self.rows[:begin], self.cells[:begin], weights[self.rows[:begin]], len(self.mix))
        left = (ratios * (share * self.drawn_mix - counts)).sum(axis=1)
        near = slice(begin + step // 2, end, step)
        rows, times_ns = self.rows[near], self.times_ns[near]
        reached = np.cumsum(blocks.drawn(rows) * ratios[:, self.cells[near]] * (weights[rows] * step), axis=1)
        found = (reached <= left[:, np.newaxis]).sum(axis=1)
        replicates: Floats = times_ns[np.minimum(found, len(rows) - 1)]
        return replicates


def side(drawn: Drawn, rows: Rows, times_ns: Floats, cells: Codes) -> Side:
    """The side of these rows, slowest first; each array has an element for each of them."""
    width = int(cells.max()) + 1
    weights = drawn.weights[rows]
    return Side(
        drawn=drawn,
        rows=rows,
        times_ns=times_ns,
        cells=cells,
        mix=sums(cells, weights, width),
        drawn_mix=drawn.blocks.totals(rows, cells, weights, width),
    )


def sums(codes: Codes, weights: Floats, width: int) -> Floats:
    """The sum of the weights by code, from 0 up to the width."""
    by_code: Floats = np.bincount(codes, weights=weights, minlength=width).astype(np.float64)
    return by_code


def level_for(n: float, highest: float) -> float | None:
    """The highest percentile, at most this one, that so many interactions allow; None where there is none."""
    levels = (highest, *(level for level in _LEVELS if level < highest))
    return next((level for level in levels if n >= smallest_n(level / 100)), None)


def longer_ns(one_ns: Floats | float, other_ns: Floats | float) -> Floats:
    """By how much each one exceeds the other; 0 where neither ever comes."""
    with np.errstate(invalid="ignore"):
        return np.where(one_ns == other_ns, 0.0, one_ns - other_ns)
