"""What a sample allows to be said of a percentile or of a share: intervals, the sample size they take, verdicts.

Everything counts ranks or values over a limit, so nothing assumes a shape of the distribution, and infinite values
(failed interactions) are values like any other. `q` is a quantile level between 0 and 1, 0.99 for the p99.
"""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

PASS, FAIL, UNDECIDED = "PASS", "FAIL", "UNDECIDED"

# Beyond this many further interactions, a share is as good as equal to what the budget allows.
MOST_MORE = 10_000_000

# The variance of fewer batch means is too uncertain itself to correct anything.
_FEWEST_BATCHES = 10


def smallest_n(q: float, confidence: float = 0.95, *, two_sided: bool = False) -> int:
    """The smallest sample that bounds the q-quantile from above at all, by its largest value.

    This is the rule of refusal: below it, 59 for the p95 and 299 for the p99, a sample's q-quantile is not reported.
    With `two_sided`, the smallest sample whose `rank_interval` has both ends, for which the two share the doubt.
    Raises ValueError for a level or a confidence outside (0, 1).
    """
    doubt = 1 - _inside("confidence", confidence)
    _inside("q", q)
    # All n values miss the upper side of the quantile with probability q^n, the lower side with (1 - q)^n.
    if two_sided:
        return math.ceil(math.log(doubt / 2) / math.log(max(q, 1 - q)))
    return math.ceil(math.log(doubt) / math.log(q))


def rank_interval(
    n: int, q: float, confidence: float = 0.95, effective_n: float | None = None
) -> tuple[int, int | None] | None:
    """The ranks, from 1 to n, of the values between which the q-quantile lies with at least this confidence.

    The upper rank is None when the sample gives no upper bound, the whole None when it gives no lower one. With B the
    number of values at or below the quantile, binomial of n and q: the lower rank l is the largest with
    `P(B <= l - 1) <= (1 - confidence) / 2`, the upper rank u the smallest with `P(B <= u - 1) >= (1 + confidence) / 2`.

    `effective_n`, of the function of that name, is what correlated values are worth: ranks are those of a sample of
    that size, widened to whole ranks of this one.
    Raises ValueError for a level or a confidence outside (0, 1), and for an effective n outside [0, n].
    """
    from scipy.special import bdtr

    worth = math.floor(_worth(n, effective_n))
    doubt = (1 - _inside("confidence", confidence)) / 2
    _inside("q", q)
    ranks = range(1, worth + 1)

    def reaches(rank: int) -> float:
        return float(bdtr(rank - 1, worth, q))

    low = bisect_right(ranks, doubt, key=reaches)
    high = bisect_left(ranks, 1 - doubt, key=reaches) + 1
    if low == 0:
        return None
    # The r-th of `worth` values stands for the ranks above (r - 1) n / worth, up to r n / worth.
    return (low - 1) * n // worth + 1, -(-high * n // worth) if high <= worth else None


def effective_n(exceeded: NDArray[np.bool_]) -> float:
    """How many independent values these are worth; `exceeded` says, in order of arrival, which lie above a quantile.

    Slow interactions come in bursts, and then n of them say less than n. The variance of the means of batches of
    about sqrt(n) is compared with what independence would give; its ratio, never below 1, divides n. n itself where
    that cannot be seen: none or all exceeded, or fewer than 100 values. At a lag-1 correlation of 0.95, intervals
    that use it still cover 91 % instead of 95 %.
    """
    n = exceeded.size
    size = math.isqrt(n)
    share = float(exceeded.mean()) if n else 0.0
    if size < _FEWEST_BATCHES or share in (0.0, 1.0):
        return float(n)
    means = exceeded[: n // size * size].reshape(-1, size).mean(axis=1)
    inflation = size * float(means.var(ddof=1)) / (share * (1 - share))
    return n / max(1.0, inflation)


def share_upper(k: float, n: float, confidence: float = 0.95) -> float:
    """One-sided Clopper-Pearson bound: a larger share would show `k` or fewer of `n` with at most 1 - confidence.

    1 when k = n, so also for an empty sample. Fractions are allowed, for effective counts.
    Raises ValueError unless 0 <= k <= n and the confidence lies in (0, 1).
    """
    from scipy.special import betaincinv

    _counts(k, n)
    _inside("confidence", confidence)
    return 1.0 if k == n else float(betaincinv(k + 1, n - k, confidence))


def share_lower(k: float, n: float, confidence: float = 0.95) -> float:
    """One-sided Clopper-Pearson bound: a smaller share would show `k` or more of `n` with at most 1 - confidence.

    0 when k = 0. Otherwise as `share_upper`.
    """
    from scipy.special import betaincinv

    _counts(k, n)
    _inside("confidence", confidence)
    return 0.0 if k == 0 else float(betaincinv(k, n - k + 1, 1 - confidence))


def share_interval(k: float, n: float, confidence: float = 0.95) -> tuple[float, float]:
    """The two-sided Clopper-Pearson interval of the share behind `k` of `n`; (0, 1) when n is 0."""
    one_sided = (1 + _inside("confidence", confidence)) / 2
    return share_lower(k, n, one_sided), share_upper(k, n, one_sided)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareTest:
    """Whether the share over a limit is below what a percentile allows.

    `state` is PASS, FAIL or UNDECIDED; `lower` and `upper` are one-sided 95 % bounds of the share. `more`, given only
    when undecided, is how many further interactions would decide if the share observed so far kept up; None when
    nothing was observed, or the share is so near the allowed one that 10 million would not do.
    """

    state: str
    lower: float
    upper: float
    more: int | None = None


def verdict(over: int, n: int, percentile: float, effective_n: float | None = None) -> ShareTest:
    """Judge "`percentile` percent are within the limit" by `over` of `n` interactions above it, failed ones included.

    PASS when the upper bound of their share is below the allowed 1 - percentile / 100, FAIL when the lower bound is
    above it, else UNDECIDED. `effective_n` shrinks both counts to what correlated interactions are worth.
    Raises ValueError unless 0 <= over <= n, the percentile lies in (0, 100), and an effective n in [0, n].
    """
    _counts(over, n)
    _inside("percentile / 100", percentile / 100)
    allowed = (100 - percentile) / 100
    worth = _worth(n, effective_n)
    if n == 0:
        return ShareTest(state=UNDECIDED, lower=0.0, upper=1.0)

    def judged(total: int) -> ShareTest:
        factor = total / n * (worth / n)
        return _judge(over * factor, n * factor, allowed)

    def decided(total: int) -> bool:
        return judged(total).state != UNDECIDED

    now = judged(n)
    if now.state != UNDECIDED or not decided(n + MOST_MORE):
        return now
    more = bisect_left(range(1, MOST_MORE), True, key=lambda further: decided(n + further)) + 1
    return replace(now, more=more)


_EQUAL = 1e-9


def _judge(over: float, n: float, allowed: float) -> ShareTest:
    lower, upper = share_lower(over, n), share_upper(over, n)
    # A bound that equals what is allowed decides nothing, and rounding must not make it decide: one late of one has a
    # lower bound of exactly 5 %.
    state = PASS if upper < allowed * (1 - _EQUAL) else FAIL if lower > allowed * (1 + _EQUAL) else UNDECIDED
    return ShareTest(state=state, lower=lower, upper=upper)


def reached(weights: NDArray[np.float64], levels: Sequence[float]) -> NDArray[np.intp]:
    """The places, in values in ascending order with these weights, at least one, at which each level is reached.

    Levels are in percent. The nearest rank: the first place with at least that part of the weight up to it.
    """
    summed = np.cumsum(weights)
    places: NDArray[np.intp] = np.searchsorted(summed, np.array(levels) / 100 * summed[-1] * (1 - 1e-12))
    return places


def weighted_quantiles(
    values: NDArray[np.float64], weights: NDArray[np.float64], levels: Sequence[float]
) -> NDArray[np.float64]:
    """The nearest-rank quantile of values, at least one, each for as many as its weight says; levels in percent."""
    order = np.argsort(values, kind="stable")
    quantiles: NDArray[np.float64] = values[order[reached(weights[order], levels)]]
    return quantiles


def coverage_bounds(q: float, observed_share: float) -> tuple[float | None, float | None]:
    """The levels of the observed values' quantiles between which the q-quantile of everything started must lie.

    With c the observed share, at least `1 - (1 - q) / c`, when all that is missing was faster, and at most `q / c`,
    when it was slower. The first is None when it is not above 0: too much is missing for any lower bound. The second
    is None when it is above 1: there is no upper bound, as for the p99 when more than 1 % is missing.
    Raises ValueError for q outside (0, 1) or a share outside [0, 1].
    """
    _inside("q", q)
    if not 0 <= observed_share <= 1:
        raise ValueError(f"an observed share of {observed_share!r} is outside 0 to 1")
    if observed_share == 0:
        return None, None
    low, high = 1 - (1 - q) / observed_share, q / observed_share
    return low if low > 0 else None, high if high <= 1 else None


def _inside(name: str, value: float) -> float:
    if not 0 < value < 1:
        raise ValueError(f"{name} must lie between 0 and 1, not at {value!r}")
    return value


def _counts(k: float, n: float) -> None:
    if not 0 <= k <= n:
        raise ValueError(f"{k!r} of {n!r} is not a share")


def _worth(n: int, effective_n: float | None) -> float:
    worth = n if effective_n is None else effective_n
    if not 0 <= worth <= n:
        raise ValueError(f"{n} values cannot be worth {worth!r}")
    return worth
