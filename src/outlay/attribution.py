"""Two accounts of the tail that add up: what fills the slowest interactions, and what sets the percentile itself.

They are different questions and may name different entries: a cold start of two seconds in 0.6 % of the interactions
is most of the slowest 1 %, and yet the p99 lies among interactions without one. Both are Euler allocations: of the
expected shortfall, C_j = E[s_j | T >= Q], and of the quantile, V_j = E[s_j | T = Q], with s_j the time of entry j, T
the sum of all and Q its quantile. (Tasche, Capital allocation to business units and sub-portfolios, 2008.)

Ranks run from 0 to the number of rows, the fastest row filling the first: a row that weighs twice the mean fills two.
Rows of equal time are ranked by the hash of their ids, so the order of arrival decides nothing.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from outlay.accounts import Accounts, Floats, Ints, whole_ns
from outlay.bootstrap import Blocks, block_length, expanded, interval
from outlay.quantiles import effective_n
from outlay.sketch import nearest_rank

# The typical interaction is the mean of those around the median: single ones are too noisy to show.
TYPICAL_BAND = (0.45, 0.55)

# A tail of fewer interactions, or of bursts worth fewer independent ones, carries no interval: of 500 repetitions each,
# 95 % intervals held in 93 to 98 % from 30 on, in 92 to 99 % of tails of 20.
FEWEST_IN_TAIL = 30
FEWEST_EFFECTIVE = 5
# The band around a percentile is a part of its tail; of fewer interactions it is too noisy to show.
FEWEST_FOR_SETS = 5000

# So many rows are enough to see how unevenly a group's time is spread over it.
_ENOUGH = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """The mean account of some interactions.

    `entries` are whole nanoseconds and sum to `total_ns`; all groups of an attribution name the same ones, 0 where a
    group spent no time there. `n` rows were averaged. The intervals are 95 % ones, of the values and of their shares
    in the total; empty where the sample is too small for any, and `why` says so. `scale`, only of `sets`: see there.
    `total_ns` None: there is nothing, or it is refused, and `why` says it.
    """

    label: str
    n: int = 0
    total_ns: int | None = None
    entries: Mapping[str, int] = field(default_factory=dict)
    intervals_ns: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    share_intervals: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    scale: float | None = None
    why: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Attribution:
    """The accounts of the typical interaction and of the tail from the percentile `level` on.

    `fills` is the mean of the interactions from the percentile's rank on, `excess` what that is more than `typical`.
    `sets` is the account at the percentile itself, by a straight line through those around the rank; it was multiplied
    by `scale` to sum to the percentile, which differs from 1 only where the line ends below 0 for some entry.
    """

    level: float
    typical: Group
    fills: Group
    sets: Group
    excess: Group


def attribute(accounts: Accounts, level: float) -> Attribution:
    """What fills the tail from the percentile `level` (in percent, 99.0 for the p99) on, and what sets it.

    Over the served rows alone; every group is empty where there are none. The intervals are those of a moving-block
    bootstrap, expanded for how few interactions carry a value. Raises ValueError for a level outside 0 to 100.
    """
    ranked = _ranked(accounts)
    n = len(ranked.rows)
    rank = nearest_rank(level / 100, n)
    if rank is None:
        nothing = Group(label="no interactions")
        return Attribution(level=level, typical=nothing, fills=nothing, sets=nothing, excess=nothing)
    exceeded = ranked.exceeded(rank)
    burst = n / effective_n(exceeded)
    few = _too_few(n - ranked.at(rank - 1), burst)
    draws = None if few else _Draws(ranked, Blocks(ranked.in_arrival, block_length(exceeded)), burst)

    typical = _estimate(ranked, draws, _typical_band(n))
    # The nearest rank averages up to one row more than the level leaves over; the replicates must not.
    fills = _estimate(ranked, draws, _Band(rank - 1, n), drawn=_Band(level / 100 * n, n), usual=typical)
    unset = _unset(n, level, few)
    sets = None if draws is None or unset else _sets(ranked, draws, rank, typical)

    seen = np.flatnonzero(np.any([group.mean_ns > 0 for group in (typical, fills, sets) if group], axis=0))
    table = _Table(tuple(accounts.entries[column] for column in seen), seen, few)
    return Attribution(
        level=level,
        typical=table.group(_typical_label(typical.n), typical),
        fills=table.group(_tail_label(fills.n, level), fills),
        sets=table.group(_sets_label(sets.n, level), sets) if sets else Group(label="", why=unset),
        excess=table.group("what the tail adds", fills, typical),
    )


@dataclass(frozen=True, slots=True)
class _Band:
    """The interactions between two ranks."""

    low: float
    high: float


def _typical_band(n: int) -> _Band:
    low, high = (math.floor(share * (n - 1)) for share in TYPICAL_BAND)
    if high - low < 2:
        low = high = (n - 1) // 2
    return _Band(low, high + 1)


def _sets_band(n: int, rank: int) -> _Band:
    """As many ranks on either side: enough to average over, few enough to be about the percentile."""
    aside = min(max(5, round(0.25 * math.sqrt(n))), n // 200, rank - 1, n - rank)
    return _Band(rank - 1 - aside, rank + aside)


def _typical_label(n: int) -> str:
    return "the median interaction" if n == 1 else f"mean of {n} around the median"


def _tail_label(n: int, level: float) -> str:
    return "the slowest interaction" if n == 1 else f"mean of the slowest {100 - level:.3g} % ({n})"


def _sets_label(n: int, level: float) -> str:
    return f"the {n} around the p{level:g}"


def _too_few(in_tail: int, burst: float) -> str | None:
    if in_tail < FEWEST_IN_TAIL:
        return f"an interval needs {FEWEST_IN_TAIL} interactions in the tail, there are {in_tail}"
    if in_tail < FEWEST_EFFECTIVE * burst:
        return (
            f"an interval needs a tail worth {FEWEST_EFFECTIVE} independent interactions; "
            f"the {in_tail} here come in bursts and are worth {in_tail / burst:.1f}"
        )
    return None


def _unset(n: int, level: float, few: str | None) -> str | None:
    if n < FEWEST_FOR_SETS:
        return f"what sets p{level:g} needs {FEWEST_FOR_SETS:,} interactions, there are {n:,}"
    return few and f"what sets p{level:g} is told only with its interval: {few}"


@dataclass(frozen=True, slots=True, eq=False)
class _Ranked:
    """The served rows: `in_arrival` are their weights in order of arrival, with a mean of 1.

    `order` says which of these is the fastest, the next and so on, `rows` which rows of `accounts` those are, `upto`
    the ranks at which they end.
    """

    accounts: Accounts
    in_arrival: Floats
    order: NDArray[np.intp]
    rows: NDArray[np.intp]
    upto: Floats

    def at(self, rank: float) -> int:
        """The place, from the fastest on, of the row that fills what follows this rank."""
        # Half a millionth of a row is rounding, not a rank.
        return int(np.searchsorted(self.upto, rank + 5e-7, side="right"))

    def total_ns(self, rank: int) -> int:
        """The end-to-end time at a rank from 1 on."""
        return int(self.accounts.total_ns[self.rows[self.at(rank - 1)]])

    def exceeded(self, rank: int) -> NDArray[np.bool_]:
        """Which rows took longer than that, in order of arrival."""
        longer: NDArray[np.bool_] = self.accounts.total_ns[self.accounts.served] > self.total_ns(rank)
        return longer

    def inside(self, band: _Band) -> tuple[slice, Floats]:
        """The places of the rows in a band, and how many ranks of it each fills."""
        places = slice(self.at(band.low), self.at(band.high - 1e-6) + 1)
        ends, weights = self.upto[places], self.in_arrival[self.order[places]]
        return places, np.minimum(ends, band.high) - np.maximum(ends - weights, band.low)


def _ranked(accounts: Accounts) -> _Ranked:
    served = np.flatnonzero(accounts.served)
    weights = accounts.weights[served]
    if served.size:
        # By the largest first, so that equal weights become exactly 1.
        weights = weights / weights.max()
        weights = weights * (served.size / weights.sum())
    order = _by_time(accounts.total_ns[served], accounts.priorities[served])
    return _Ranked(accounts, weights, order, served[order], np.cumsum(weights[order]))


def _by_time(total_ns: Ints, priorities: NDArray[np.uint64]) -> NDArray[np.intp]:
    order = np.argsort(total_ns, kind="stable")
    equal = np.diff(total_ns[order]) == 0
    # A second key for all would take as long again as everything else.
    tied = np.flatnonzero(np.concatenate((equal, [False])) | np.concatenate(([False], equal)))
    places = order[tied]
    order[tied] = places[np.lexsort((priorities[places], total_ns[places]))]
    return order


class _Draws:
    """The bootstrap's replicates, in which an interaction is drawn several times or never.

    So a rank lies a few rows off in each. What lies between the ends of a band is summed over all rows at once; one by
    one go only the rows that an end passes in some replicate.
    """

    def __init__(self, ranked: _Ranked, blocks: Blocks, burst: float) -> None:
        self._ranked = ranked
        self._blocks = blocks
        self._burst = burst
        self._width = len(ranked.accounts.entries)

    def means_ns(self, band: _Band) -> Floats:
        """The mean account of a band in each replicate: a row for each, a column for each entry."""
        first, last = self._ranked.at(band.low), self._ranked.at(band.high)
        sums_ns = self._between(first, last) + self._passed(band.high, last) - self._passed(band.low, first)
        return sums_ns / (band.high - band.low)

    def quantiles_ns(self, rank: int) -> Ints:
        """The end-to-end time at a rank in each replicate."""
        middle = rank - 0.5
        place = self._ranked.at(middle)
        found = np.full(self._blocks.replicates, place)
        ahead = middle - self._begins(place)
        for step in (1, -1):
            needy, places, taken = self._walk(step * ahead, place, step)
            found[needy] = places[len(places) - 1 - np.argmax(taken[:, ::-1] > 0, axis=1)]
        quantiles_ns: Ints = self._ranked.accounts.total_ns[self._ranked.rows[found]]
        return quantiles_ns

    def parts(self, places: slice, parts: Floats) -> Floats:
        """What each replicate makes of the parts of these rows; the parts themselves where it drew none of them."""
        drawn = self._blocks.drawn(self._ranked.order[places]) * parts
        drawn[~drawn.any(axis=1)] = parts
        return drawn

    def carriers(self, band: _Band, usual_ns: Floats) -> Floats:
        """How many independent interactions carry what a band is above or below the usual, by entry.

        One for all of them would be 1, equal parts their number: (sum of x)^2 / sum of x^2 (Kish), over the burst. And
        over it once more, because bursts are of unequal size: without, intervals of bursty tails hold too seldom.
        """
        places, parts = self._ranked.inside(band)
        step = math.ceil(len(parts) / _ENOUGH)
        rows = self._ranked.rows[places][::step]
        apart_ns = np.abs(self._ranked.accounts.dense(rows) - usual_ns) * parts[::step, np.newaxis]
        squares = np.square(apart_ns).sum(axis=0)
        carriers = np.full(self._width, float(len(rows)))
        np.divide(np.square(apart_ns.sum(axis=0)), squares, out=carriers, where=squares > 0)
        return carriers * step / self._burst**2

    def _between(self, first: int, last: int) -> Floats:
        """The summed accounts of the rows between two places."""
        accounts = self._ranked.accounts.select(self._ranked.rows[first:last])
        each = np.repeat(self._ranked.order[first:last], np.diff(accounts.offsets))
        values = accounts.durations_ns * self._ranked.in_arrival[each]
        return self._blocks.totals(each, accounts.codes, values, self._width)

    def _passed(self, rank: float, place: int) -> Floats:
        """The summed accounts of the rows between a place and where the rank lies; negative where it lies below."""
        sums_ns = np.zeros((self._blocks.replicates, self._width))
        ahead = rank - self._begins(place)
        for step in (1, -1):
            needy, places, taken = self._walk(step * ahead, place, step)
            sums_ns[needy] += step * taken @ self._ranked.accounts.dense(self._ranked.rows[places])
        return sums_ns

    def _begins(self, place: int) -> Floats:
        """The rank at which the row at a place begins, in each replicate."""
        above = self._ranked.order[place:]
        drawn = self._blocks.totals(above, np.zeros(len(above), np.int32), self._ranked.in_arrival[above], 1)[:, 0]
        return len(self._ranked.rows) - drawn

    def _walk(self, wanted: Floats, place: int, step: int) -> tuple[NDArray[np.intp], NDArray[np.intp], Floats]:
        """How much each replicate takes of the rows from a place on, upwards or downwards, until it has its ranks.

        The replicates that want any, the places gone through, and a matrix of the first by the second.
        """
        needy = np.flatnonzero(wanted > 0)
        if not needy.size:
            return needy, np.zeros(0, dtype=np.intp), np.zeros((0, 0))
        wanted = wanted[needy, np.newaxis]
        most = len(self._ranked.rows) - place if step > 0 else place
        count = 8 + math.ceil(1.25 * wanted.max())
        while True:
            count = min(count, most)
            places = place + np.arange(count) if step > 0 else place - 1 - np.arange(count)
            rows = self._ranked.order[places]
            drawn = self._blocks.drawn(rows, needy) * self._ranked.in_arrival[rows]
            upto = np.cumsum(drawn, axis=1)
            if count == most or np.all(upto[:, -1:] >= wanted):
                return needy, places, np.clip(wanted - (upto - drawn), 0, drawn)
            count *= 2


@dataclass(frozen=True, slots=True, eq=False)
class _Estimate:
    """The mean account of a band of `n` rows, a column for each entry.

    `replicates_ns` has a row for each replicate, none where intervals are refused; `carriers` says how many independent
    interactions carry each value.
    """

    n: int
    mean_ns: Floats
    replicates_ns: Floats
    carriers: Floats
    scale: float | None = None


def _estimate(
    ranked: _Ranked, draws: _Draws | None, band: _Band, *, drawn: _Band | None = None, usual: _Estimate | None = None
) -> _Estimate:
    """`drawn` is the band in the replicates where it differs; `usual` the typical estimate, where this is not it."""
    places, parts = ranked.inside(band)
    accounts = ranked.accounts.select(ranked.rows[places])
    values = accounts.durations_ns * np.repeat(parts, np.diff(accounts.offsets))
    mean_ns = np.bincount(accounts.codes, weights=values, minlength=len(accounts.entries)) / parts.sum()
    if draws is None:
        return _Estimate(len(parts), mean_ns, np.zeros((0, len(mean_ns))), np.zeros_like(mean_ns))
    carriers = draws.carriers(band, mean_ns if usual is None else usual.mean_ns)
    return _Estimate(len(parts), mean_ns, draws.means_ns(drawn or band), carriers)


def _sets(ranked: _Ranked, draws: _Draws, rank: int, usual: _Estimate) -> _Estimate:
    """The account at a rank, by the rows around it.

    The replicates draw from the same rows: a band that moved with the percentile would trade rows for others like
    them, and count that as doubt. When the percentile moves, each entry moves by its part of what the percentile is
    above a usual interaction.
    """
    band, at_ns = _sets_band(len(ranked.rows), rank), ranked.total_ns(rank)
    places, parts = ranked.inside(band)
    accounts_ns = ranked.accounts.dense(ranked.rows[places])
    (sets_ns,), (scale,) = _on_line(parts[np.newaxis], accounts_ns, at_ns)
    drawn_ns, _ = _on_line(draws.parts(places, parts), accounts_ns, at_ns)
    more_ns = sets_ns - usual.mean_ns
    moves = more_ns / more_ns.sum() if more_ns.sum() > 0 else np.zeros_like(more_ns)
    drawn_ns += np.outer(draws.quantiles_ns(rank) - at_ns, moves)
    return _Estimate(len(parts), sets_ns, drawn_ns, draws.carriers(band, usual.mean_ns), float(scale))


def _on_line(parts: Floats, accounts_ns: Ints, at_ns: int) -> tuple[Floats, Floats]:
    """The accounts at an end-to-end time, by straight lines through accounts around it, and their scales.

    One for each row of `parts`, which are weights of the accounts. Tails grow thinner, so the mean of those around a
    percentile is slower than it, by what the slowest have more of; a line of least squares through each entry corrects
    for that, and scaling all entries alike would not. (Local linear regression: Fan & Gijbels, Local Polynomial
    Modelling, 1996.) The lines sum to the time; where one ends below 0 it counts as 0, and the others are scaled.
    """
    parts = parts / parts.sum(axis=1, keepdims=True)
    mean_ns = parts @ accounts_ns
    apart_ns = accounts_ns.sum(axis=1) - accounts_ns.sum(axis=1).mean()
    shared = parts @ (apart_ns[:, np.newaxis] * accounts_ns) - (parts @ apart_ns)[:, np.newaxis] * mean_ns
    spread = shared.sum(axis=1, keepdims=True)
    slopes = np.divide(shared, spread, out=np.zeros_like(shared), where=spread > 0)
    line_ns = np.maximum(mean_ns + slopes * (at_ns - mean_ns.sum(axis=1))[:, np.newaxis], 0)
    sums_ns = line_ns.sum(axis=1)
    scale = np.divide(at_ns, sums_ns, out=np.ones(len(parts)), where=sums_ns > 0)
    return line_ns * scale[:, np.newaxis], scale


@dataclass(frozen=True, slots=True, eq=False)
class _Table:
    """What all groups have in common: the entries that they tell, and why they carry no intervals."""

    names: tuple[str, ...]
    columns: NDArray[np.intp]
    why: str | None

    def group(self, label: str, estimate: _Estimate, less: _Estimate | None = None) -> Group:
        """The account of one estimate, or of what it is above another."""
        values_ns = whole_ns(estimate.mean_ns[self.columns])
        replicates_ns = estimate.replicates_ns[:, self.columns]
        if less is not None:
            values_ns = values_ns - whole_ns(less.mean_ns[self.columns])
            replicates_ns = replicates_ns - less.replicates_ns[:, self.columns]
        sums_ns = replicates_ns.sum(axis=1, keepdims=True)
        shares = replicates_ns / sums_ns if np.all(sums_ns > 0) else replicates_ns[:0]
        carriers = estimate.carriers[self.columns]
        return Group(
            label=label,
            n=estimate.n,
            total_ns=int(values_ns.sum()),
            entries=dict(zip(self.names, values_ns.tolist(), strict=True)),
            intervals_ns=self._intervals(replicates_ns, carriers),
            share_intervals=self._intervals(shares, carriers),
            scale=estimate.scale,
            why=self.why,
        )

    def _intervals(self, replicates: Floats, carriers: Floats) -> dict[str, tuple[float, float]]:
        if not len(replicates):
            return {}
        columns = zip(self.names, replicates.T, carriers, strict=True)
        return {name: interval(column, expanded(carried)) for name, column, carried in columns}
