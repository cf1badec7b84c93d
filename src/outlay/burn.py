"""How fast a budget is used up, and by whom; and for safety, the worst of each duty period.

A burn rate is the share over the limit, over the share that the percentile allows: at 1 all of the allowance is used.
An alert wants it above its threshold in a long window, so that it matters, and in a short one, so that it still goes
on. (Beyer et al., The Site Reliability Workbook, 2018, chapter 5: with a month's allowance, 14.4 uses 2 % of it in an
hour, 6 uses 5 % in 6 hours, 1 uses 10 % in 3 days.)
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from outlay.accounts import Accounts, Floats
from outlay.budget import Budget, parts_over
from outlay.quantiles import smallest_n
from outlay.report import Burn, Duty
from outlay.units import NS_PER_S, format_duration, parse_duration

# Fewer interactions than bound a p99 decide nothing.
FEWEST = smallest_n(0.99)

PAGE, TICKET = "page", "ticket"

WINDOWS_NS = {
    "5m": parse_duration("5m"),
    "30m": parse_duration("30m"),
    "1h": parse_duration("1h"),
    "6h": parse_duration("6h"),
    "3d": parse_duration("72h"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """An alert that goes off when both windows burn faster than `rate`."""

    alert: str
    rate: float
    long: str
    short: str


# The most urgent first: the first that goes off is the alert.
RULES = (
    Rule(alert=PAGE, rate=14.4, long="1h", short="5m"),
    Rule(alert=PAGE, rate=6.0, long="6h", short="30m"),
    Rule(alert=TICKET, rate=1.0, long="3d", short="6h"),
)

# So many rows are a matrix at a time: few enough to stay in the processor's cache.
_TOGETHER = 1 << 14


def burn(
    accounts: Accounts, budget: Budget, shares_ns: Mapping[str, int], now_ns: int | None = None
) -> tuple[Burn, ...]:
    """The burn rates of everybody, then of each owner to blame, fastest first; empty without interactions.

    A window ends at `now_ns`, by default when the last interaction began, and holds those that began since. A late
    interaction counts for its owners by their parts of the blame (`shares_ns` as for the blame); of a failed one nobody
    can say whose it is, so it counts for everybody alone. A window with fewer than 299 interactions decides nothing.
    Raises ValueError when the shares exceed the limit.
    """
    if not len(accounts):
        return ()
    now = int(accounts.start_ns.max()) if now_ns is None else now_ns
    began = accounts.start_ns
    recent = np.flatnonzero((began > now - WINDOWS_NS["3d"]) & (began <= now))
    late = recent[accounts.times_ns[recent] > budget.limit_ns]
    owners, parts = _parts(accounts, budget, shares_ns, late)
    rates: dict[str, Floats | None] = {}
    for name, width_ns in WINDOWS_NS.items():
        inside = began[late] > now - width_ns
        whole = _whole(accounts.weights[recent[began[recent] > now - width_ns]])
        burnt = accounts.weights[late[inside]] @ parts[inside]
        rates[name] = None if whole is None else burnt / whole / ((100 - budget.percentile) / 100)
    everybody, *named = (
        _burn(owner, {name: None if rate is None else float(rate[place]) for name, rate in rates.items()})
        for place, owner in enumerate(owners)
    )
    return everybody, *sorted(named, key=_fastest, reverse=True)


def _parts(
    accounts: Accounts, budget: Budget, shares_ns: Mapping[str, int], late: NDArray[np.intp]
) -> tuple[list[str | None], Floats]:
    """Everybody and the owners to blame, and which part of each late interaction is theirs: a column each."""
    answers = [budget.owner_of(name) for name in accounts.entries]
    owners = sorted({owner for owner in answers if owner is not None})
    belongs = np.array([[owner == name for name in owners] for owner in answers], dtype=np.float64)
    parts = np.zeros((len(late), 1 + len(owners)))
    parts[:, 0] = 1
    served = np.flatnonzero(accounts.served[late])
    for begin in range(0, len(served), _TOGETHER):
        some = served[begin : begin + _TOGETHER]
        blamed = parts_over(budget, accounts.entries, accounts.dense(late[some]), shares_ns)
        parts[some, 1:] = blamed @ belongs
    kept = [place for place in range(1 + len(owners)) if place == 0 or parts[:, place].any()]
    return [None, *(owners[place - 1] for place in kept[1:])], parts[:, kept]


def _whole(weights: Floats) -> float | None:
    """How many interactions there are; None where too few were seen."""
    if not len(weights):
        return None
    # As many of equal weight say as much as these do (Kish 1965).
    seen = weights.sum() ** 2 / (weights**2).sum()
    return float(weights.sum()) if seen >= FEWEST else None


def _fastest(burn: Burn) -> float:
    return max((rate for rate in burn.rates.values() if rate is not None), default=0.0)


def _burn(owner: str | None, rates: Mapping[str, float | None]) -> Burn:
    alert = next((rule.alert for rule in RULES if _goes_off(rule, rates)), None)
    return Burn(owner=owner, rates=rates, alert=alert)


def _goes_off(rule: Rule, rates: Mapping[str, float | None]) -> bool:
    both = rates[rule.long], rates[rule.short]
    return all(rate is not None and rate > rule.rate for rate in both)


def duty(accounts: Accounts, budget: Budget, period_ns: int) -> Duty | None:
    """The worst interaction of each duty period, counted from the first interaction on; None without interactions.

    A period counts when the data goes on beyond its end and something began in it: of one without interactions nobody
    knows whether it would have been kept. Failures took for ever. `worst_ns` is of all interactions, also of those in
    the period that had not ended.
    Raises ValueError for a period below 1 ns.
    """
    if period_ns < 1:
        raise ValueError("a duty period must be above 0")
    if not len(accounts):
        return None
    times_ns = accounts.times_ns
    period = (accounts.start_ns - accounts.start_ns.min()) // period_ns
    ended = period < period.max()
    late = times_ns > budget.limit_ns
    return Duty(
        period_ns=period_ns,
        periods=len(np.unique(period[ended])),
        over=len(np.unique(period[ended & late])),
        worst_ns=float(times_ns.max()),
        misses=misses(accounts, budget.percentile),
    )


def misses(accounts: Accounts, percentile: float) -> str | None:
    """What a percentile means at the rate of these interactions: how often one may miss it. None without a rate."""
    # Of what failed, the data need not say when it began.
    starts_ns = accounts.start_ns[accounts.served]
    span_ns = int(np.ptp(starts_ns)) if len(starts_ns) else 0
    if span_ns == 0:
        return None
    per_second = (accounts.count - 1) / span_ns * NS_PER_S
    every_ns = NS_PER_S / per_second / ((100 - percentile) / 100)
    return f"at {per_second:.3g} a second, a p{percentile:g} miss comes every {format_duration(every_ns)}"
