"""May an interaction go on? What is left of the limit, against the time that is still ahead of it.

The time ahead is one number of each interaction, so its distribution is the joint one of all stages still to come.
Adding up the percentiles of those stages would ask for more: they are seldom slow together.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase

import numpy as np
from numpy.typing import NDArray

from outlay.accounts import OUTCOME_NAMES, Accounts, Floats, Ints
from outlay.budget import Budget
from outlay.quantiles import FAIL, PASS, UNDECIDED, effective_n, share_interval, smallest_n

# These failed before any work began: they were never at a stage with others ahead.
_BEFORE = frozenset({"refused", "unsent"})


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Residuals:
    """How long interactions still took after a stage: shortest first, infinite where the person never got a result.

    `reached` says for each how many of all have ended by then. `worth` is how many independent interactions they are.
    """

    after: str
    times_ns: Floats
    reached: Floats
    worth: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Ahead:
    """Whether to go on with `remaining_ns` left: what the clock's error may have eaten is not counted.

    `probability` is that of being in time, with its 95 % interval. `state` is PASS or FAIL where the interval lies on
    one side of what the budget asks, else UNDECIDED. `needed_ns` is what would do for the budget's percentile, None
    where the sample is too small to say. `remaining_ns` None: nobody knows how far the clock is off.
    """

    state: str
    go_on: bool
    remaining_ns: int | None
    probability: float | None
    interval: tuple[float, float] | None
    needed_ns: float | None


def residuals(accounts: Accounts, after: str) -> Residuals:
    """The time still ahead once the last entry that matches the shell pattern `after` is over, of those that had one.

    An entry that came several times counts where it first stood. Failures count as never, but for those turned away
    before work began: of the others the data does not say how far they came.
    Raises ValueError when no interaction that gave a result has such an entry.
    """
    last = _last(accounts, after)
    passed = np.flatnonzero(last >= 0)
    summed = np.cumsum(accounts.durations_ns)
    times_ns = np.full(len(accounts), np.inf)
    times_ns[passed] = summed[accounts.offsets[passed + 1] - 1] - summed[last[passed]]
    known = np.flatnonzero((last >= 0) | (~accounts.served & ~_among(accounts, _BEFORE)))
    return _sorted(after, times_ns[known], accounts.weights[known])


def _last(accounts: Accounts, after: str) -> Ints:
    """Where in each row the last entry that matches stands; -1 where none does."""
    codes = [code for code, name in enumerate(accounts.entries) if fnmatchcase(name, after)]
    hits = np.flatnonzero(np.isin(accounts.codes, codes))
    if not len(hits):
        raise ValueError(f"no interaction has an entry that matches {after}")
    last = np.full(len(accounts), -1, dtype=np.int64)
    # Places rise, so the last of a row is what stays.
    last[np.searchsorted(accounts.offsets, hits, side="right") - 1] = hits
    return last


def _among(accounts: Accounts, outcomes: Iterable[str]) -> NDArray[np.bool_]:
    return np.isin(accounts.outcomes, [OUTCOME_NAMES.index(name) for name in outcomes])


def _sorted(after: str, times_ns: Floats, weights: Floats) -> Residuals:
    order = np.argsort(times_ns, kind="stable")
    slow = np.zeros(len(order), dtype=bool)
    slow[order[-max(1, len(order) // 100) :]] = True
    # Slow ones come in bursts, and rows of unequal weight say less (Kish 1965).
    worth = effective_n(slow) * weights.sum() ** 2 / (weights**2).sum() / len(order)
    ordered = np.cumsum(weights[order])
    return Residuals(after=after, times_ns=times_ns[order], reached=ordered / ordered[-1], worth=float(worth))


def chance(ahead: Residuals, remaining_ns: float) -> tuple[float, tuple[float, float]]:
    """How likely the rest takes no longer than `remaining_ns`, with a 95 % interval."""
    within = int(np.searchsorted(ahead.times_ns, remaining_ns, side="right"))
    probability = float(ahead.reached[within - 1]) if within else 0.0
    return probability, share_interval(probability * ahead.worth, ahead.worth)


def quantile(ahead: Residuals, q: float) -> float | None:
    """The time in which the rest is over with probability q; None where fewer interactions are known than that takes.

    Raises ValueError for q outside (0, 1).
    """
    if ahead.worth < smallest_n(q):
        return None
    return _at(ahead, q)


def _at(ahead: Residuals, q: float) -> float:
    return float(ahead.times_ns[np.searchsorted(ahead.reached, q)])


def may_continue(ahead: Residuals, budget: Budget, elapsed_ns: int, error_ns: int | None = 0) -> Ahead:
    """Whether an interaction that has taken `elapsed_ns`, give or take `error_ns`, should go on.

    It should when the rest ends in what is left with at least the probability that the budget's percentile asks, the
    clock taken at its worse end; where that has no bound, `error_ns` None, it should not.
    """
    q = budget.percentile / 100
    needed_ns = quantile(ahead, q)
    if error_ns is None:
        return Ahead(
            state=UNDECIDED, go_on=False, remaining_ns=None, probability=None, interval=None, needed_ns=needed_ns
        )
    remaining_ns = budget.limit_ns - elapsed_ns - error_ns
    probability, interval = chance(ahead, remaining_ns)
    state = PASS if interval[0] >= q else FAIL if interval[1] < q else UNDECIDED
    return Ahead(
        state=state,
        go_on=probability >= q,
        remaining_ns=remaining_ns,
        probability=probability,
        interval=interval,
        needed_ns=needed_ns,
    )


def summed_quantiles(accounts: Accounts, after: str, q: float) -> float:
    """The sum of the q-quantiles of all entries after `after`: what a test must not ask for, to be shown beside it.

    Of the interactions that `residuals` looks at and that gave a result; an entry that one of them lacks took 0 there.
    Raises ValueError when no interaction that gave a result has such an entry.
    """
    last = _last(accounts, after)
    passed = last >= 0
    rows = np.repeat(np.arange(len(accounts)), np.diff(accounts.offsets))
    ahead = np.flatnonzero(passed[rows] & (np.arange(len(rows)) > last[rows]))
    total = 0.0
    for code in np.unique(accounts.codes[ahead]):
        places = ahead[accounts.codes[ahead] == code]
        times_ns = np.bincount(rows[places], accounts.durations_ns[places], len(accounts)).astype(np.float64)
        total += _at(_sorted(after, times_ns[passed], accounts.weights[passed]), q)
    return total
