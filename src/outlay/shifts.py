"""From one version to the next: what did the version do, and what did another mix of shapes?

With Q(x | m) the percentile of x's times at the mix of shapes m, the shapes did Q(old | new) - Q(old | old) and the
version Q(new | new) - Q(old | new). The two sum to the change.
"""

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from outlay.accounts import Accounts, Floats, Labels
from outlay.bootstrap import interval
from outlay.interaction import HARDWARE, VERSION
from outlay.quantiles import smallest_n
from outlay.report import Shift
from outlay.shapes import FEWEST_COMPARED, Cells, Codes, Drawn, Rows, Side, cells_of, draw, level_for, longer_ns, side

_FEWEST = smallest_n(0.95)


def shifts(accounts: Accounts, level: float) -> tuple[Shift, ...]:
    """The change of the percentile `level` (in percent) between values of `version` and `hardware` that follow.

    They follow in order of their first arrival; those that arrive first at the same instant have no order, and values
    with fewer than 59 rows are passed over. Where a side is too small for `level`, it is the p99 or else the p95. A
    pair is left out where the old value lacks the shapes of more than half of the new interactions, or where failures
    make percentiles infinite so that the two effects have no sum. Intervals are 95 % ones, of a moving-block bootstrap
    within each value.
    """
    cells, times_ns = cells_of(accounts).coarsened(), accounts.times_ns
    found = []
    for dimension in (VERSION, HARDWARE):
        if (labels := accounts.dimensions.get(dimension)) is not None:
            values = (_value(accounts, times_ns, labels, code, level) for code in _in_order(labels))
            found += [_shift(dimension, cells, old, new, level) for old, new in pairwise(values)]
    return tuple(shift for shift in found if shift is not None)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Value:
    """All rows of one value in order of arrival; `slowest` are places among them, the slowest first."""

    name: str
    first_ns: int
    rows: Rows
    times_ns: Floats
    slowest: Rows
    weights: Floats
    drawn: Drawn

    @property
    def n(self) -> int:
        return round(float(self.weights.sum()))

    def side(self, matched: Codes) -> Side:
        """The rows whose shapes are compared, in the cells given by row."""
        cells = matched[self.rows[self.slowest]]
        kept = cells >= 0
        places = self.slowest[kept]
        return side(self.drawn, places, self.times_ns[places], cells[kept])


def _in_order(labels: Labels) -> list[int]:
    """The values with enough rows, in order of their first one."""
    counts = np.bincount(labels.codes + 1, minlength=len(labels.values) + 1)[1:]
    first = np.full(len(counts) + 1, len(labels.codes))
    np.minimum.at(first, labels.codes, np.arange(len(labels.codes)))
    enough = np.flatnonzero(counts >= _FEWEST)
    in_order: list[int] = enough[np.argsort(first[enough])].tolist()
    return in_order


def _value(accounts: Accounts, times_ns: Floats, labels: Labels, code: int, level: float) -> _Value:
    rows = np.flatnonzero(labels.codes == code)
    own_ns, weights = times_ns[rows], accounts.weights[rows]
    slow = own_ns > np.quantile(own_ns, level / 100, method="inverted_cdf")
    return _Value(
        name=labels.values[code],
        first_ns=int(accounts.start_ns[rows[0]]),
        rows=rows,
        times_ns=own_ns,
        slowest=np.argsort(-own_ns),
        weights=weights,
        drawn=draw(weights, slow),
    )


def _shift(dimension: str, cells: Cells, old: _Value, new: _Value, level: float) -> Shift | None:
    matched = cells.matched(cells.counts(old.rows), cells.counts(new.rows))[cells.codes]
    compared = float(new.weights[matched[new.rows] >= 0].sum() / new.weights.sum())
    if old.first_ns == new.first_ns or compared < FEWEST_COMPARED:
        return None
    before, after = old.side(matched), new.side(matched)
    at = level_for(min(len(before.rows), len(after.rows), before.worth(after)), level)
    if at is None:
        return None
    # Equal data gives equal draws, so each is set against the next one of the other, which is independent of it.
    drawn_next = replace(after, drawn_mix=np.roll(after.drawn_mix, 1, axis=0))
    old_ns, old_drawn = before.percentile(at, before)
    mixed_ns, mixed_drawn = before.percentile(at, drawn_next)
    new_ns, new_drawn = after.percentile(at, after)
    version_ns, shape_ns = float(longer_ns(new_ns, mixed_ns)), float(longer_ns(mixed_ns, old_ns))
    # Where failures make percentiles infinite there may be no sum, and then there is no split.
    if version_ns + shape_ns != new_ns - old_ns:
        return None
    return Shift(
        dimension=dimension,
        old=old.name,
        new=new.name,
        n_old=old.n,
        n_new=new.n,
        level=at,
        old_ns=old_ns,
        new_ns=new_ns,
        version_ns=version_ns,
        version_interval_ns=interval(longer_ns(np.roll(new_drawn, 1), mixed_drawn)),
        shape_ns=shape_ns,
        shape_interval_ns=interval(longer_ns(mixed_drawn, old_drawn)),
        compared=compared,
    )
