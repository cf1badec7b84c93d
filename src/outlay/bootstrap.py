"""Intervals for whatever can be computed from interactions in order of arrival: the moving-block bootstrap.

Slow interactions come in bursts, so single ones must not be drawn: blocks of neighbours are, with replacement, until
there are as many as there were, and the number is computed anew from them. (Kunsch 1989; circular, Politis & Romano
1992.) A replicate is not a sample but a weight for each interaction, so nothing is copied. Equal data gives equal
draws.
"""

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from outlay.quantiles import effective_n

Floats = NDArray[np.float64]

REPLICATES = 500

# A block is drawn at one of so many places along its own length.
_CELLS = 4
# More blocks than this cost time and say nothing more.
_MOST_BLOCKS = 1000
_SEED = 20_240_229


def block_length(exceeded: NDArray[np.bool_]) -> int:
    """How many rows blocks must hold; `exceeded` says, in order of arrival, which lie above a quantile.

    The cube root of n where they are independent, longer where they come in bursts: blocks that are not long against
    a burst make intervals too narrow. At most a twentieth of n, so that there is something to draw from.
    """
    n = exceeded.size
    burst = n / effective_n(exceeded) if n else 1.0
    return max(1, min(math.ceil(max(math.pow(n, 1 / 3), 12 * burst)), n // 20))


class Blocks:
    """Blocks of so many interactions, of rows in order of arrival that stand for `weights` interactions each.

    A block is never shorter than a row or than a thousandth of all. Every replicate stands for as many interactions as
    there were.
    """

    __slots__ = ("_cells_of_rows", "_drawn", "replicates")

    def __init__(self, weights: Floats, length: float, replicates: int = REPLICATES) -> None:
        self.replicates = replicates
        total = float(weights.sum())
        length = max(length, total / _MOST_BLOCKS)
        cell = max(length / _CELLS, total / max(weights.size, 1))
        self._cells_of_rows = _cells(weights, cell)
        in_cells = np.bincount(self._cells_of_rows, weights=weights, minlength=1)
        # A cell may hold a row more or less than another, so blocks of as many cells differ a little in weight.
        drawn = _draws(len(in_cells), max(1, round(length / cell)), replicates)
        self._drawn: Floats = drawn * (total / (drawn @ in_cells))[:, np.newaxis] if total else drawn

    def factors(self, rows: NDArray[np.intp] | slice = slice(None)) -> Iterator[Floats]:
        """For each replicate, how often it drew each of these rows; about 1 in the mean over replicates."""
        cells = self._cells_of_rows[rows]
        for drawn in self._drawn:
            yield drawn[cells]

    def drawn(self, rows: NDArray[np.intp], replicates: NDArray[np.intp] | slice = slice(None)) -> Floats:
        """The factors of a few rows (columns) in some of the replicates (rows), as a matrix."""
        factors: Floats = self._drawn[replicates][:, self._cells_of_rows[rows]]
        return factors

    def totals(self, rows: NDArray[np.intp], columns: NDArray[np.int32], values: Floats, width: int) -> Floats:
        """For each replicate, the sums of `values` by column, each as often as its row was drawn.

        The three arrays are as long as each other: a table of `width` columns, of which most fields may be empty. The
        answer has a row for each replicate. Costs one matrix product, whatever the number of rows.
        """
        cells = self._drawn.shape[1]
        places = self._cells_of_rows[rows] * width + columns
        table = np.bincount(places, weights=values, minlength=cells * width).reshape(cells, width)
        totals: Floats = self._drawn @ table
        return totals


def _cells(weights: Floats, cell: float) -> NDArray[np.int64]:
    """The cell in which each row lies, each `cell` interactions long, without those that no row lies in."""
    if not weights.size:
        return np.zeros(0, dtype=np.int64)
    # In the middle of what a row stands for, so that rows of equal weights fill all cells alike.
    places = ((np.cumsum(weights) - weights / 2) / cell).astype(np.int64)
    return np.concatenate(([0], np.cumsum(np.diff(places) > 0))).astype(np.int64)


def _draws(cells: int, width: int, replicates: int) -> Floats:
    """How often each replicate (row) draws each cell (column), in blocks of `width` cells around the end."""
    width = min(width, cells)
    begins = np.random.default_rng(_SEED).integers(0, cells, (replicates, max(1, round(cells / width))))
    places = begins + cells * np.arange(replicates)[:, np.newaxis]
    begun = np.bincount(places.ravel(), minlength=replicates * cells).reshape(replicates, cells)
    # A cell is in every block that begins at it or up to `width` before it.
    summed = np.cumsum(np.concatenate((begun[:, -width:], begun), axis=1), axis=1)
    return (summed[:, width:] - summed[:, :-width]).astype(np.float64)


def interval(replicates: NDArray[np.float64], confidence: float = 0.95) -> tuple[float, float]:
    """Between which values the middle `confidence` of the replicates lie; infinite ones are values like any other."""
    ordered = np.sort(replicates)
    out = math.floor((1 - confidence) / 2 * len(ordered))
    return float(ordered[out]), float(ordered[-1 - out])


def expanded(n: float, confidence: float = 0.95) -> float:
    """The confidence to ask `interval` for, so that a mean of about n independent values is inside with `confidence`.

    The spread of the replicates of few values is too small by the root of (n - 1) / n, and uncertain itself as
    Student's t of n - 1 degrees says. (The expanded percentile interval: Hesterberg, The American Statistician 69,
    2015.) Fewer than 3 values count as 3.
    """
    from scipy.special import ndtr, stdtrit

    n = max(n, 3.0)
    reach = float(stdtrit(n - 1, (1 + confidence) / 2)) * math.sqrt(n / (n - 1))
    return 1 - 2 * float(ndtr(-reach))
