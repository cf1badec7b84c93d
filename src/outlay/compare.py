"""Two runs side by side: is the second slower, by how much, and which entry moved the tail?

A is the run before, B the one after; every difference is B - A. Failures count as never in a percentile and as over
every limit in a share. Intervals are 95 % ones: of a difference of shares Newcombe's, of everything else those of the
moving-block bootstrap, drawn within each run by itself, so that bursts of slow interactions widen them.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from outlay.accounts import Accounts, Floats, Ints, whole_ns, without_edges
from outlay.bootstrap import Blocks, block_length, expanded, interval
from outlay.quantiles import FAIL, MOST_MORE, PASS, UNDECIDED, effective_n, smallest_n
from outlay.sketch import nearest_rank

LEVELS = (50.0, 95.0, 99.0)

SLOWER, FASTER, NO_DIFFERENCE = "slower", "faster", "no difference shown"

# Bursts are looked for among so many; of more interactions, neighbours count as one.
_MOST = 1 << 22
# Beyond so many standard errors no replicate looks.
_REACH = 8
# Edges that nobody named may be thousands; beyond so many entries they are summed by component.
_MOST_ENTRIES = 200

_Rows = NDArray[np.intp]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareDifference:
    """How much larger the share over `limit_ns` is in B, with its 95 % interval; `limit_ns` None: the failed alone."""

    limit_ns: int | None
    a_share: float
    b_share: float
    difference: float
    interval: tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantileDifference:
    """By how much a percentile is longer in B. Infinite where one of them never comes; 0 where neither does.

    Refused, all but `level` and `why` None, where a run is too small for the percentile.
    """

    level: float
    a_ns: float | None = None
    b_ns: float | None = None
    difference_ns: float | None = None
    interval_ns: tuple[float, float] | None = None
    a_interval_ns: tuple[float, float] | None = None
    b_interval_ns: tuple[float, float] | None = None
    why: str | None = None

    @property
    def never(self) -> bool:
        """Whether the percentile never comes in either run, so that it tells nothing."""
        return self.a_ns == self.b_ns == math.inf


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryDifference:
    """One entry in the mean account of the tail, in both runs."""

    entry: str
    a_ns: int
    b_ns: int
    interval_ns: tuple[float, float]

    @property
    def difference_ns(self) -> int:
        """What B takes longer."""
        return self.b_ns - self.a_ns


@dataclass(frozen=True, slots=True, kw_only=True)
class TailDifference:
    """The mean accounts of both tails: the slowest served interactions, from the percentile `level` on.

    The `a_ns`, `b_ns` and differences of `entries` sum to those here; largest difference first, then by name.
    """

    level: float
    a_ns: int
    b_ns: int
    entries: tuple[EntryDifference, ...]

    @property
    def difference_ns(self) -> int:
        """What the mean of B's tail takes longer."""
        return self.b_ns - self.a_ns

    @property
    def moved(self) -> EntryDifference | None:
        """The entry that moved the tail most in the direction in which the whole of it went; None if none did."""
        way = -1 if self.difference_ns < 0 else 1
        found = max(self.entries, key=lambda each: way * each.difference_ns, default=None)
        return found if found is not None and way * found.difference_ns > 0 else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Tolerance:
    """By how much a percentile may rise: a share of what it was, and a time."""

    share: float = 0.0
    time_ns: int = 0

    def of_ns(self, before_ns: float) -> float:
        """What is allowed above a percentile of `before_ns`."""
        # Of a percentile that never came there is no share.
        return self.time_ns + (self.share * before_ns if math.isfinite(before_ns) else 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """All that two runs of one moment say of each other.

    `verdict` is SLOWER, FASTER or NO_DIFFERENCE, at `level`; None: refused, and `why` says it. `state` is FAIL where B
    is slower by more than `tolerance_ns`, PASS where it is not, and UNDECIDED where the data does not say; then `more`
    further interactions (of each run, or of B where A is a stored one) could, if the difference kept up. `in_turns`
    says that the runs took turns in time; None where their times do not tell.
    """

    n_a: int
    n_b: int
    level: float
    verdict: str | None
    state: str
    tolerance_ns: float | None
    share: ShareDifference
    quantiles: tuple[QuantileDifference, ...]
    tail: TailDifference | None
    in_turns: bool | None
    more: int | None = None
    why: str | None = None

    @property
    def quantile(self) -> QuantileDifference:
        """The difference that the verdict is about."""
        return next(each for each in self.quantiles if each.level == self.level)


def compare(
    a: Accounts,
    b: Accounts,
    *,
    level: float = 99.0,
    limit_ns: int | None = None,
    tolerance: Tolerance | None = None,
    a_is_stored: bool = False,
) -> Comparison:
    """Two runs of one moment. `level` is the percentile that decides, `limit_ns` what the share is counted over.

    Where the percentile never comes in both, the share of failures decides instead. `a_is_stored` says that A is a
    baseline that no further interactions will join.
    Raises ValueError for a level outside (0, 100).
    """
    sides = _Side(a), _Side(b)
    levels = tuple(sorted({*LEVELS, level}))
    quantiles = tuple(_quantile_difference(*sides, each) for each in levels)
    deciding = quantiles[levels.index(level)]
    share = share_difference(a, b, limit_ns)
    allowed_ns = None if deciding.a_ns is None else (tolerance or Tolerance()).of_ns(deciding.a_ns)
    verdict, state = _judged(deciding, share if limit_ns is None else share_difference(a, b, None), allowed_ns)
    more = None
    if state == UNDECIDED and allowed_ns is not None:
        more = _more(deciding, allowed_ns, sides, a_is_stored=a_is_stored)
    return Comparison(
        n_a=round(a.count),
        n_b=round(b.count),
        level=level,
        verdict=verdict,
        state=state,
        tolerance_ns=allowed_ns,
        share=share,
        quantiles=quantiles,
        tail=_tail_difference(*sides, level),
        in_turns=in_turns(a, b),
        more=more,
        why=deciding.why,
    )


def _judged(at: QuantileDifference, failed: ShareDifference, allowed_ns: float | None) -> tuple[str | None, str]:
    if at.interval_ns is None or allowed_ns is None:
        return None, UNDECIDED
    (low, high), allowed = (failed.interval, 0.0) if at.never else (at.interval_ns, allowed_ns)
    verdict = SLOWER if low > 0 else FASTER if high < 0 else NO_DIFFERENCE
    return verdict, FAIL if low > allowed else PASS if high <= allowed else UNDECIDED


def _more(at: QuantileDifference, allowed_ns: float, sides: "tuple[_Side, _Side]", *, a_is_stored: bool) -> int | None:
    """How many further interactions would decide, if intervals narrow with the root of their number."""
    if at.difference_ns is None or at.a_interval_ns is None or at.b_interval_ns is None:
        return None
    beyond_ns = at.difference_ns - allowed_ns
    # To be shown above what is allowed, it is the lower end of B and the upper end of A that must come nearer.
    near, far = (0, 1) if beyond_ns > 0 else (1, 0)
    a_ns, b_ns = _minus(at.a_interval_ns[far], at.a_ns), _minus(at.b_interval_ns[near], at.b_ns)
    spread, wanted = (b_ns**2, beyond_ns**2 - a_ns**2) if a_is_stored else (a_ns**2 + b_ns**2, beyond_ns**2)
    if not (math.isfinite(spread) and math.isfinite(wanted) and wanted > 0 and spread > wanted):
        return None
    n = sides[1].n if a_is_stored else max(side.n for side in sides)
    more = math.ceil((spread / wanted - 1) * n)
    return more if more <= MOST_MORE else None


# Shares


def newcombe(k1: float, n1: float, k2: float, n2: float, confidence: float = 0.95) -> tuple[float, float]:
    """The interval of `k1 / n1 - k2 / n2`: Wilson's intervals of both shares, put together by squares.

    Fractions are allowed, for effective counts. (-1, 1) at the widest. Newcombe, Statistics in Medicine 17 (1998)
    873-890, method 10. Raises ValueError unless 0 <= k <= n, n > 0 and the confidence lies in (0, 1).
    """
    (p1, low1, high1), (p2, low2, high2) = _wilson(k1, n1, confidence), _wilson(k2, n2, confidence)
    difference = p1 - p2
    return difference - math.hypot(p1 - low1, high2 - p2), difference + math.hypot(high1 - p1, p2 - low2)


def _wilson(k: float, n: float, confidence: float) -> tuple[float, float, float]:
    """A share with both ends of its score interval (Wilson 1927)."""
    from scipy.special import ndtri

    if not (0 <= k <= n and n > 0 and 0 < confidence < 1):
        raise ValueError(f"{k!r} of {n!r} at a confidence of {confidence!r} has no interval")
    z = float(ndtri((1 + confidence) / 2))
    share = k / n
    middle, half = share + z * z / (2 * n), z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    scale = 1 + z * z / n
    return share, max(0.0, (middle - half) / scale), min(1.0, (middle + half) / scale)


def share_difference(a: Accounts, b: Accounts, limit_ns: int | None) -> ShareDifference:
    """The difference of the shares over a limit, failures included; None counts failures alone.

    Both counts are shrunk to what correlated interactions are worth. Of a run without interactions nothing is known:
    its share counts as 0 with an interval from -1 to 1.
    """
    (a_over, a_n), (b_over, b_n) = _over(a, limit_ns), _over(b, limit_ns)
    a_share, b_share = (over / n if n else 0.0 for over, n in ((a_over, a_n), (b_over, b_n)))
    known = a_n > 0 and b_n > 0
    return ShareDifference(
        limit_ns=limit_ns,
        a_share=a_share,
        b_share=b_share,
        difference=b_share - a_share,
        interval=newcombe(b_over, b_n, a_over, a_n) if known else (-1.0, 1.0),
    )


def _over(accounts: Accounts, limit_ns: int | None) -> tuple[float, float]:
    """How many independent interactions these are worth, and as many of them over the limit."""
    above = accounts.times_ns > (np.finfo(np.float64).max if limit_ns is None else limit_ns)
    over, count = float(accounts.weights[above].sum()), accounts.count
    # Where none or all are over nothing shows bursts, and only as many as were seen bear witness.
    seen = len(accounts) if over in (0.0, count) else effective_n(_in_order(accounts, above))
    shrink = min(1.0, seen / count) if count else 1.0
    return over * shrink, count * shrink


# Percentiles


def quantile_difference(a: Accounts, b: Accounts, level: float) -> QuantileDifference:
    """The difference of one percentile over all interactions; refused below `smallest_n(level / 100)` in either run.

    Raises ValueError for a level outside (0, 100).
    """
    return _quantile_difference(_Side(a), _Side(b), level)


def _quantile_difference(a: "_Side", b: "_Side", level: float) -> QuantileDifference:
    needed = smallest_n(level / 100)
    if min(a.n, b.n) < needed:
        why = f"p{level:g} needs {needed} interactions in each run, there are {a.n} and {b.n}"
        return QuantileDifference(level=level, why=why)
    a_drawn, b_drawn = a.draws(level), b.draws(level)
    # Equal data gives equal draws, so each is set against the next one of the other run, which is independent of it.
    drawn = _minus_all(np.roll(b_drawn, 1), a_drawn)
    a_ns, b_ns = a.quantile(level), b.quantile(level)
    return QuantileDifference(
        level=level,
        a_ns=a_ns,
        b_ns=b_ns,
        difference_ns=_minus(b_ns, a_ns),
        interval_ns=interval(drawn),
        a_interval_ns=interval(a_drawn),
        b_interval_ns=interval(b_drawn),
    )


def _minus(b_ns: float | None, a_ns: float | None) -> float:
    """Never is as long as never."""
    return 0.0 if b_ns is None or a_ns is None or a_ns == b_ns else b_ns - a_ns


def _minus_all(b_ns: Floats, a_ns: Floats) -> Floats:
    with np.errstate(invalid="ignore"):
        return np.where(a_ns == b_ns, 0.0, b_ns - a_ns)


class _Side:
    """One run, slowest first: `rows` in that order, their `times_ns`, and the interactions `reached` with each."""

    __slots__ = ("accounts", "reached", "rows", "times_ns", "weights")

    def __init__(self, accounts: Accounts) -> None:
        times_ns = accounts.times_ns
        self.accounts = accounts
        self.rows = np.argsort(-times_ns, kind="stable")
        self.times_ns = times_ns[self.rows]
        self.weights = accounts.weights[self.rows]
        self.reached = np.cumsum(self.weights)

    @property
    def n(self) -> int:
        """How many interactions were seen, whatever they stand for."""
        return len(self.rows)

    def quantile(self, level: float) -> float:
        return float(self.times_ns[self._place(_from_top(self.accounts.count, level))])

    def _place(self, reached: float) -> int:
        """The row with which so many are reached; the last where there are fewer."""
        return min(_first(self.reached, reached), self.n - 1)

    def draws(self, level: float) -> Floats:
        """The percentile of each replicate."""
        wanted = _from_top(self.accounts.count, level)
        above = np.zeros(self.n, dtype=bool)
        above[self.rows[: self._place(wanted)]] = True
        order = _in_order(self.accounts, above)
        blocks = _blocks(self.accounts, order)
        # Replicates only differ near the percentile: of all that is clearly slower, the number drawn is enough.
        reach = _reach(self.accounts, wanted, order)
        begin, end = self._place(wanted - reach), self._place(wanted + reach) + 1
        columns = np.zeros(begin, dtype=np.int32)
        slower = blocks.totals(self.rows[:begin], columns, self.weights[:begin], 1)[:, 0]
        weights, times_ns = self.weights[begin:end], self.times_ns[begin:end]
        drawn = np.empty(blocks.replicates)
        for place, factors in enumerate(blocks.factors(self.rows[begin:end])):
            found = _first(slower[place] + np.cumsum(weights * factors), wanted)
            drawn[place] = times_ns[min(found, len(times_ns) - 1)]
        return drawn


def _from_top(count: float, level: float) -> int:
    """How many interactions there are from the slowest down to the percentile, both included."""
    n = round(count)
    return n - (nearest_rank(level / 100, n) or 1) + 1


def _first(reached: Floats, wanted: float) -> int:
    """The place of the first row with which so many interactions are reached, whatever rounding did to their sum."""
    return int(np.searchsorted(reached, wanted * (1 - 1e-9)))


def _reach(accounts: Accounts, wanted: int, order: NDArray[np.bool_]) -> float:
    """How far from the slowest `wanted` the last of them may lie in a replicate, in interactions."""
    bursts = accounts.count / effective_n(order)
    return _REACH * (math.sqrt(wanted * bursts) + float(accounts.weights.max()))


def _in_order(accounts: Accounts, above: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Which interactions are above, in order of arrival: one for each that a row stands for."""
    scale = min(1.0, _MOST / accounts.count) if accounts.count else 1.0
    ends = np.floor(np.cumsum(accounts.weights) * scale + 1e-6).astype(np.int64)
    return np.repeat(above, np.diff(ends, prepend=0))


def _blocks(accounts: Accounts, order: NDArray[np.bool_]) -> Blocks:
    return Blocks(accounts.weights, block_length(order) * max(1.0, accounts.count / len(order)))


# The tail


def tail_difference(a: Accounts, b: Accounts, level: float) -> TailDifference | None:
    """The mean accounts of both tails and their difference by entry; None where nothing was served in a run.

    The intervals are those of the differences: one that leaves out 0 says that the entry's move is more than chance.
    """
    return _tail_difference(_Side(a), _Side(b), level)


def _tail_difference(a: "_Side", b: "_Side", level: float) -> TailDifference | None:
    tails = [_Tail.of(side, level) for side in (a, b) if side.accounts.served.any()]
    if len(tails) < 2:
        return None
    names = tuple(sorted({name for tail in tails for name in tail.entries}))
    before, after = (whole_ns(tail.mean(tail.weights, names)).tolist() for tail in tails)
    a_drawn, b_drawn = (tail.draws(names) for tail in tails)
    drawn = np.roll(b_drawn, 1, axis=0) - a_drawn
    confidence = expanded(min(tail.wanted for tail in tails))
    rows = [
        EntryDifference(entry=name, a_ns=a_ns, b_ns=b_ns, interval_ns=interval(drawn[:, place], confidence))
        for place, (name, a_ns, b_ns) in enumerate(zip(names, before, after, strict=True))
        if a_ns or b_ns
    ]
    rows.sort(key=lambda row: (-abs(row.difference_ns), row.entry))
    return TailDifference(level=level, a_ns=sum(before), b_ns=sum(after), entries=tuple(rows))


@dataclass(frozen=True, slots=True, eq=False)
class _Tail:
    """The slowest served rows, a column for each entry: more than are `wanted`, so that each replicate finds enough."""

    wanted: int
    entries: tuple[str, ...]
    entries_ns: Ints
    weights: Floats
    rows: _Rows
    blocks: Blocks

    @staticmethod
    def of(side: "_Side", level: float) -> "_Tail":
        """The tail of a run in which something was served, from the percentile `level` of that on."""
        accounts = side.accounts
        by_time = side.rows[accounts.served[side.rows]]
        reached = np.cumsum(accounts.weights[by_time])
        wanted = _from_top(float(reached[-1]), level)
        above = np.zeros(len(accounts), dtype=bool)
        above[by_time[: _first(reached, wanted) + 1]] = True
        order = _in_order(accounts, above)
        rows = by_time[: _first(reached, wanted + _reach(accounts, wanted, order)) + 1]
        few = without_edges(accounts) if len(accounts.entries) > _MOST_ENTRIES else accounts
        return _Tail(wanted, few.entries, few.dense(rows), accounts.weights[rows], rows, _blocks(accounts, order))

    def mean(self, weights: Floats, names: Sequence[str]) -> Floats:
        """The mean account of the slowest `wanted` with these weights; 0 for a name that no row has."""
        # The last row counts as far as it is needed.
        counted = np.clip(self.wanted - (np.cumsum(weights) - weights), 0.0, weights)
        mean = np.zeros(len(names))
        mean[[names.index(name) for name in self.entries]] = counted @ self.entries_ns / max(counted.sum(), 1e-9)
        return mean

    def draws(self, names: Sequence[str]) -> Floats:
        """The mean account of each replicate, a row each."""
        return np.array([self.mean(self.weights * factors, names) for factors in self.blocks.factors(self.rows)])


# The order of the runs


def in_turns(a: Accounts, b: Accounts) -> bool | None:
    """Whether the runs took turns, at least twice each, so that a drift of the surroundings meets both alike.

    None where their times do not tell. A difference between runs one after the other may be one of the hours.
    """
    if not len(a) or not len(b) or min(a.start_ns[0], b.start_ns[0]) == max(a.start_ns[-1], b.start_ns[-1]):
        return None
    # How many of A had begun before each of B.
    before = np.searchsorted(a.start_ns, b.start_ns)
    turns_of_b = 1 + int(np.count_nonzero(np.diff(before)))
    turns_of_a = turns_of_b + 1 - int(before[0] == 0) - int(before[-1] == len(a))
    # How likely one of B comes after one of A: 1 for A before B, 3/4 for A, B, A, B, 1/2 at best.
    after = float(before.mean()) / len(a)
    return min(turns_of_a, turns_of_b) >= 2 and abs(after - 0.5) <= 0.26
