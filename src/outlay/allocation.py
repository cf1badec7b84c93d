"""One limit split among all that spend it, from how they spend it now: shares that sum to the limit.

1. What the budget grants already stays as it is.
2. Every other group of entries first gets its floor: what no work on it would take away. Distance, devices and settings
   have one: the 1st percentile of their time over the interactions that had any, rounded up to a step. It is 0 for all
   else, and for what most interactions do without, such as a handshake.
3. What is left goes to the groups in proportion to their mean time above their floors in the interactions around the
   budget's percentile: their Euler contributions to it (Tasche 2008).

A share is part of one joint limit, and no percentile of its stage.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from outlay.accounts import Accounts, Floats
from outlay.budget import Budget, Share
from outlay.quantiles import effective_n, rank_interval, smallest_n
from outlay.stages import term_of
from outlay.units import format_duration

Flags = NDArray[np.bool_]

# The terms whose time is distance, a device or a setting.
_FLOORED = frozenset({"geography", "api hop", "device", "setting"})
_FLOOR_LEVEL = 0.01
# What fewer of the interactions have, the others show how to do without.
_MOST_HAVE = 0.5

# On each side of the median, as a part of all: what lies between p45 and p55 is typical.
_TYPICAL = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocated:
    """What one group of entries may spend, under the pattern of its share or its own name; see `Budget.group_of`.

    `typical_ns` and `tail_ns` are what it spends now: the mean around the median, and around the budget's percentile;
    None where the data holds no such entry. `share_ns` None: it has none. `fixed` says that the budget grants it.
    """

    entry: str
    floor_ns: int
    share_ns: int | None
    fixed: bool
    owner: str | None
    typical_ns: int | None
    tail_ns: int | None

    @property
    def exceeds(self) -> bool:
        """Whether it now spends more than its share where the percentile is set."""
        return self.share_ns is not None and self.tail_ns is not None and self.tail_ns > self.share_ns


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """A limit split: the shares sum to `limit_ns`, less `unassigned_ns` where no group is left to take the rest.

    `typical_ns` is the median now, of those that gave a result. `tail_ns` is the budget's percentile now, with a 95 %
    interval; infinite where too many fail. The groups' own times sum to each, or to the slowest time where that is
    infinite. Of `n` interactions, `near` lie around the percentile. `short_ns` is by how much the limit is too short
    for floors and fixed shares: then nothing is split, and `why` says what takes it up.
    """

    limit_ns: int
    percentile: float
    n: int
    near: int
    typical_ns: int
    tail_ns: float
    tail_interval_ns: tuple[float, float | None] | None
    entries: tuple[Allocated, ...]
    unassigned_ns: int
    short_ns: int = 0
    why: str | None = None

    @property
    def shares(self) -> tuple[Share, ...]:
        """The shares as a budget takes them, in an order in which each still wins what it is for."""
        return tuple(Share(entry=each.entry, limit_ns=each.share_ns, owner=each.owner) for each in self.entries)

    @property
    def shares_ns(self) -> Mapping[str, int]:
        """The shares by group, for what needs one for every entry."""
        return {each.entry: each.share_ns for each in self.entries if each.share_ns is not None}


def allocate(accounts: Accounts, budget: Budget) -> Allocation:
    """The budget's limit split among its shares and all entries that no share names; see the module.

    Raises ValueError where the sample is too small for the budget's percentile, or nothing gave a result.
    """
    now = _Now(accounts, budget.percentile)
    groups = _groups(accounts, budget, now)
    free = [each for each in groups if each.share_ns is None and each.tail_ns is not None]
    spare_ns = budget.unassigned_ns - sum(each.floor_ns for each in free)
    shares_ns = _split(spare_ns, free, _step_ns(budget)) if free and spare_ns >= 0 else {}
    return Allocation(
        limit_ns=budget.limit_ns,
        percentile=budget.percentile,
        n=round(accounts.count),
        near=len(now.tail),
        typical_ns=now.median_ns,
        tail_ns=now.percentile_ns,
        tail_interval_ns=now.interval_ns(),
        entries=tuple(replace(each, share_ns=shares_ns.get(each.entry, each.share_ns)) for each in groups),
        unassigned_ns=0 if free else budget.unassigned_ns,
        short_ns=max(0, -spare_ns),
        why=_why(budget, free, -spare_ns) if spare_ns < 0 else None,
    )


def _step_ns(budget: Budget) -> int:
    """What shares are given in: the largest power of ten that is at most a thousandth of the limit, at least 1."""
    return int(10 ** max(0, len(str(budget.limit_ns)) - 4))


def _split(spare_ns: int, free: Sequence[Allocated], step_ns: int) -> dict[str, int]:
    """Each group's floor and its part of what the floors leave: whole steps, and a broken one to the largest."""
    above = [max(0, (each.tail_ns or 0) - each.floor_ns) for each in free]
    steps, rest_ns = divmod(spare_ns, step_ns)
    parts_ns = [part * step_ns for part in apportion(steps, above)]
    parts_ns[above.index(max(above))] += rest_ns
    return {each.entry: each.floor_ns + part for each, part in zip(free, parts_ns, strict=True)}


def apportion(total: int, weights: Sequence[int]) -> list[int]:
    """`total` in whole parts proportional to the weights, what is left to the largest remainders; it sums exactly.

    Equal parts where all weights are 0; nothing without any weight.
    """
    whole = sum(weights)
    if not whole:
        weights, whole = [1] * len(weights), len(weights)
    parts = [total * weight // whole for weight in weights]
    by_remainder = sorted(range(len(parts)), key=lambda place: -(total * weights[place] % whole))
    for place in by_remainder[: total - sum(parts)]:
        parts[place] += 1
    return parts


def _why(budget: Budget, free: Iterable[Allocated], short_ns: int) -> str:
    floors = ", ".join(f"{each.entry} {format_duration(each.floor_ns)}" for each in free if each.floor_ns)
    fixed = ", ".join(f"{share.entry} {format_duration(share.limit_ns)}" for share in budget.shares if share.limit_ns)
    what = " and ".join(
        f"{kind} ({listed})" for kind, listed in (("the fixed shares", fixed), ("the floors", floors)) if listed
    )
    return f"{what} exceed the limit of {format_duration(budget.limit_ns)} by {format_duration(short_ns)}"


# What the groups spend now


def _groups(accounts: Accounts, budget: Budget, now: "_Now") -> tuple[Allocated, ...]:
    """All groups, those of the budget first and in its order, with the shares that the budget grants."""
    of = [budget.group_of(name) for name in accounts.entries]
    declared = {share.entry: share for share in budget.shares}
    names = [*declared, *sorted(set(of) - declared.keys())]
    shares = [declared.get(name, Share(entry=name, limit_ns=None)) for name in names]
    members = np.array([[group == name for name in names] for group in of], dtype=bool).reshape(len(of), len(names))
    typical_ns = apportion(now.median_ns, now.spent_ns(now.typical, members))
    tail_ns = apportion(now.reached_ns, now.spent_ns(now.tail, members))
    return tuple(
        Allocated(
            entry=share.entry,
            floor_ns=_floor_ns(accounts, members[:, place], _step_ns(budget)),
            share_ns=share.limit_ns,
            fixed=share.limit_ns is not None,
            owner=share.owner,
            typical_ns=typical_ns[place] if share.entry in of else None,
            tail_ns=tail_ns[place] if share.entry in of else None,
        )
        for place, share in enumerate(shares)
    )


def _floor_ns(accounts: Accounts, members: Flags, step_ns: int) -> int:
    """The floor of a group of entries; see the module."""
    floored: Flags = members & np.array([term_of(name) in _FLOORED for name in accounts.entries], dtype=bool)
    if not floored.any():
        return 0
    hits = np.flatnonzero(floored[accounts.codes])
    rows = np.searchsorted(accounts.offsets, hits, side="right") - 1
    have = np.flatnonzero(np.bincount(rows, minlength=len(accounts)))
    weights = accounts.weights[have]
    if weights.sum() < _MOST_HAVE * accounts.weights[accounts.served].sum():
        return 0
    times_ns = np.bincount(rows, accounts.durations_ns[hits], len(accounts))[have].astype(np.float64)
    return math.ceil(_lowest(times_ns, weights) / step_ns) * step_ns


def _lowest(times_ns: Floats, weights: Floats) -> float:
    """The 1st percentile. No row weighs less than the lightest, so it lies among so many of the shortest."""
    wanted = _FLOOR_LEVEL * float(weights.sum())
    enough = min(len(times_ns), math.ceil(wanted / float(weights.min())) + 1)
    shortest = np.argpartition(times_ns, enough - 1)[:enough]
    order = shortest[np.argsort(times_ns[shortest])]
    return float(times_ns[order[np.searchsorted(np.cumsum(weights[order]), wanted)]])


class _Now:
    """The interactions by time, and those around two of their quantiles.

    `percentile_ns` is infinite where more fail than it allows; `reached_ns` is then the slowest time there is.
    """

    def __init__(self, accounts: Accounts, percentile: float) -> None:
        self._accounts, self._q = accounts, percentile / 100
        served = np.flatnonzero(accounts.served)
        seen = _seen(accounts.weights)
        needed = smallest_n(self._q)
        if seen < needed or not len(served):
            why = f"there are {seen:.0f}" if len(served) else "none gave a result"
            raise ValueError(f"p{percentile:g} needs {needed} interactions, {why}")
        self._rows = served[np.argsort(accounts.total_ns[served], kind="stable")]
        self._counted = np.cumsum(accounts.weights[self._rows])
        rank, last = self._q * accounts.count, float(self._counted[-1])
        place, width = self._place(min(rank, last)), _half_width(len(self._rows))
        self.tail = self._rows[max(0, place - width) : place + width + 1]
        self.typical = self._rows[self._place((0.5 - _TYPICAL) * last) : self._place((0.5 + _TYPICAL) * last) + 1]
        self.percentile_ns = self._at_rank(rank)
        self.reached_ns = int(self._at_rank(min(rank, last)))
        self.median_ns = int(self._at_rank(last / 2))

    def _place(self, rank: float) -> int:
        """Where the first interaction at or after a rank stands; behind the last for a rank among the failures."""
        # A product of a level and a count may miss a whole number by the rounding of floats.
        return int(np.searchsorted(self._counted, rank * (1 - 1e-12)))

    def _at_rank(self, rank: float) -> float:
        place = self._place(rank)
        return float(self._accounts.total_ns[self._rows[place]]) if place < len(self._rows) else math.inf

    def spent_ns(self, rows: NDArray[np.intp], members: Flags) -> list[int]:
        """The mean time of each group in these rows, in whole nanoseconds."""
        weights = self._accounts.weights[rows]
        means = weights @ self._accounts.dense(rows) / weights.sum() @ members
        return [round(mean) for mean in means.tolist()]

    def interval_ns(self) -> tuple[float, float | None] | None:
        """The 95 % interval of the percentile; None where the sample gives no lower bound."""
        accounts = self._accounts
        worth = effective_n(accounts.times_ns > self.reached_ns) * _seen(accounts.weights) / len(accounts)
        n = round(accounts.count)
        ranks = rank_interval(n, self._q, effective_n=min(worth, n))
        if ranks is None:
            return None
        low, high = ranks
        return self._at_rank(low), None if high is None else self._at_rank(high)


def _seen(weights: Floats) -> float:
    """How many interactions of equal weight say as much as these (Kish 1965)."""
    return float(weights.sum() ** 2 / (weights**2).sum()) if len(weights) else 0.0


def _half_width(rows: int) -> int:
    """How many on each side of a percentile are near it: of rows, not of what they stand for, which differs."""
    wide = max(5, round(math.sqrt(rows) / 4))
    return min(wide, rows // 200) if rows >= 5000 else wide
