"""Linear quantile regression: how a quantile moves with numbers that were known beforehand.

The q-quantile of y given x is taken as `b[0] + x @ b[1:]`, and b minimises the sum of `weight * (q - (r < 0)) * r` over
the residuals r (Koenker & Bassett 1978). Only which rows lie above matters, not how far, so a few extreme times move
nothing. It is a linear program; its bounded dual is solved by a primal-dual interior point method with predictor and
corrector (Portnoy & Koenker 1997; Mehrotra 1992), for many sets of weights at a time.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

# How far the sum may be above the least possible one, as a part of the sum of distances from the median.
_GAP = 1e-9
_MOST_STEPS = 80
# Beyond this many scales a coefficient is no answer any more.
_ENDLESS = 1e7
# Of the way to the nearest bound.
_STEP = 0.9995
# Numbers in one array of the sets that are solved together: those in use should stay in the processor's cache.
_TOGETHER = 1 << 16
# Of a matrix's own size, so that one in which hardly any row counts any more can still be solved.
_RIDGE = 1e-13
# Rows near the quantile: this part of all, and no fewer than so many.
_NEAR, _FEWEST_NEAR = 5, 300


def quantile_regression(x: Floats, y: Floats, weights: Floats, q: float) -> Floats:
    """The coefficients of the q-quantile of y: the intercept, then one for each column of x.

    `weights` are 0 or more, one for each row, or a matrix of many such sets: then the answer has a row for each set.
    The sum that is minimised comes within 1e-8, relatively, of the least possible; where several answers are equally
    good, one between them is given. A constant column gets 0; no column of x may be a sum of others.
    Raises ValueError for q outside (0, 1).
    """
    if not 0 < q < 1:
        raise ValueError(f"q must lie between 0 and 1, not at {q!r}")
    middle, spread = x.mean(axis=0), x.std(axis=0)
    spread[spread == 0] = 1.0
    design = np.column_stack((np.ones(len(y)), (x - middle) / spread))
    center = float(np.median(y))
    scale = float(np.abs(y - center).mean()) or 1.0
    sets = np.atleast_2d(weights) / np.mean(weights, axis=-1, keepdims=True)
    solved = _solutions(design, (y - center) / scale, sets, q) * scale
    solved[:, 1:] /= spread
    solved[:, 0] += center - solved[:, 1:] @ middle
    answer: Floats = solved if weights.ndim > 1 else solved[0]
    return answer


def _solutions(design: Floats, y: Floats, sets: Floats, q: float) -> Floats:
    """Rows far from the quantile lie on the same side of it in every set: only those near it are looked at again.

    Where that proves wrong, more are. (Portnoy & Koenker 1997, section 5.)
    """
    mean = sets.mean(axis=0, keepdims=True)
    middle = _solve(design, y, mean, (1 - q) * (mean @ design))[0]
    if len(sets) == 1:
        return middle
    residuals = y - design @ middle[0]
    distances = _distances(design, residuals)
    order, place = np.argsort(distances), int((residuals < 0).sum())
    solved, pending = np.empty((len(sets), design.shape[1])), np.arange(len(sets))
    width = max(_FEWEST_NEAR, len(y) // _NEAR)
    near = np.zeros(len(y), dtype=bool)
    while pending.size:
        begin = max(0, min(place - width // 2, len(y) - width))
        near[order[begin : begin + width]] = True
        above = ~near & (residuals > 0)
        some = sets[pending]
        targets = (1 - q) * (some @ design) - some[:, above] @ design[above]
        solved[pending], failed = _solve(design[near], y[near], some[:, near], targets)
        if near.all():
            break
        crossed = ((y > solved[pending] @ design.T) != above) & ~near & (some > 0)
        near |= crossed[~failed].any(axis=0)
        width *= 2
        pending = pending[failed | crossed.any(axis=1)]
    return solved


def _distances(design: Floats, residuals: Floats) -> Floats:
    """Residuals in units of how uncertain the quantile is at each row."""
    inverse = np.linalg.pinv(design.T @ design)
    distances: Floats = residuals / np.sqrt(np.einsum("ij,jk,ik->i", design, inverse, design))
    return distances


@dataclass(slots=True)
class _Point:
    """Arrays of (sets, rows), all above 0 where the method stands, and the coefficients of (sets, columns).

    `a` is each row's dual value and `room` what it lacks to 1; `above` - `below` is its residual. At the end `a` is 1
    where a row lies above, 0 where it lies below.
    """

    a: Floats
    room: Floats
    above: Floats
    below: Floats
    b: Floats

    def gap(self) -> Floats:
        """How far each set's sum is above the least possible one at most."""
        gap: Floats = (self.room * self.above + self.a * self.below).sum(axis=1)
        return gap

    def moved(self, move: "_Point", dual: Floats, primal: Floats) -> "_Point":
        return _Point(
            self.a + dual * move.a,
            self.room + dual * move.room,
            self.above + primal * move.above,
            self.below + primal * move.below,
            self.b + primal * move.b,
        )


def _solve(design: Floats, y: Floats, sets: Floats, targets: Floats) -> tuple[Floats, NDArray[np.bool_]]:
    """The coefficients of each set, and whether none were found: the rows cannot meet its target."""
    together = max(1, _TOGETHER // len(y))
    program = _Program(design, y)
    parts = [
        program.solve(sets[at : at + together], targets[at : at + together]) for at in range(0, len(sets), together)
    ]
    return np.concatenate([b for b, _ in parts]), np.concatenate([failed for _, failed in parts])


class _Program:
    """The dual for one design, rows multiplied by their weights: `design.T @ (weights * a) = target`, a in [0, 1]."""

    __slots__ = ("_design", "_outer", "_y")

    def __init__(self, design: Floats, y: Floats) -> None:
        self._design, self._y = design, y
        self._outer = (design[:, :, None] * design[:, None, :]).reshape(len(y), -1)

    def solve(self, weights: Floats, targets: Floats) -> tuple[Floats, NDArray[np.bool_]]:
        point = self._start(weights, targets)
        for _ in range(_MOST_STEPS):
            gap = point.gap()
            missing = targets - (weights * point.a) @ self._design
            unfinished = np.maximum(gap, np.abs(missing).max(axis=1)) > _GAP * len(self._y)
            # A target that rows near the quantile cannot meet drives the coefficients to infinity.
            moving = unfinished & (np.abs(point.b).max(axis=1) < _ENDLESS)
            if not moving.any():
                break
            point = self._step(point, weights, gap, missing, moving)
        return point.b, unfinished

    def _start(self, weights: Floats, targets: Floats) -> _Point:
        fitted = np.linalg.lstsq(self._design, self._y, rcond=None)[0].astype(np.float64)
        b = np.repeat(fitted[None, :], len(weights), axis=0)
        residuals = weights * (self._y - b @ self._design.T)
        mu = np.abs(residuals).mean() + 1e-3
        root = np.hypot(residuals / mu, 2)
        a, room = 2 / (root + 2 - residuals / mu), 2 / (root + 2 + residuals / mu)
        return _Point(a, room, mu / room, mu / a, b)

    def _step(self, point: _Point, weights: Floats, gap: Floats, missing: Floats, moving: NDArray[np.bool_]) -> _Point:
        """See how far a step straight to the end would lead, then step with what it left out corrected."""
        q = 1 / (point.above / point.room + point.below / point.a)
        columns = self._design.shape[1]
        matrix = ((q * weights * weights) @ self._outer).reshape(-1, columns, columns)
        matrix += _RIDGE * np.trace(matrix, axis1=1, axis2=2)[:, None, None] * np.eye(columns)

        def move(to_above: Floats, to_below: Floats) -> _Point:
            """The Newton step towards `room * above = room * to_above` and `a * below = a * to_below`."""
            wanted = to_above - to_below - point.above + point.below
            right = (q * wanted * weights) @ self._design + missing
            b = np.linalg.solve(matrix, -right[:, :, None])[:, :, 0].astype(np.float64)
            a = -q * (weights * (b @ self._design.T) + wanted)
            above = to_above - point.above + point.above / point.room * a
            below = to_below - point.below - point.below / point.a * a
            return _Point(a, -a, above, below, b)

        zero = np.zeros(1)
        first = move(zero, zero)
        dual, primal = _lengths(point, first)
        left = point.moved(first, dual, primal).gap()
        mu = ((left / gap) ** 3 * gap / (2 * len(self._y)))[:, None]
        far = dual * primal
        second = move((mu - far * first.room * first.above) / point.room, (mu - far * first.a * first.below) / point.a)
        dual, primal = _lengths(point, second)
        return point.moved(second, dual * moving[:, None], primal * moving[:, None])


def _lengths(point: _Point, move: _Point) -> tuple[Floats, Floats]:
    """How much of a move keeps everything above 0, of the dual values and of the residuals, in each set."""
    dual = _length(move.a / point.a, move.room / point.room)
    return dual, _length(move.above / point.above, move.below / point.below)


def _length(one: Floats, other: Floats) -> Floats:
    steepest = np.minimum(one, other).min(axis=1)
    length: Floats = np.where(steepest < -_STEP, -_STEP / np.minimum(steepest, -_STEP), 1.0)[:, None]
    return length
