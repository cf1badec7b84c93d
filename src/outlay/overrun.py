"""Who answers for what went over the limit: milliseconds that add up.

Of an interaction of time T over the limit B, whatever spent more than its share by `o` answers for (T - B) o / sum(o).
Shares sum to no more than B, so the sum of `o` is at least T - B: nobody is blamed for more than he overspent.
"""

from collections.abc import Mapping, Sequence
from fractions import Fraction

import numpy as np

from outlay.accounts import Accounts, Floats, Ints
from outlay.budget import Budget, parts_over
from outlay.report import Blame

# So many rows are a matrix at a time: few enough to stay in the processor's cache.
_TOGETHER = 1 << 14
_LOW_BITS = 32


def blame(accounts: Accounts, budget: Budget, shares_ns: Mapping[str, int]) -> tuple[Blame, ...]:
    """Each owner's part of all that went over the limit, largest first; empty when nothing did.

    The budget's own shares count; `shares_ns` grants the rest by group (`Budget.group_of`), and what neither grants
    may spend nothing. The parts are whole nanoseconds that sum to the overrun of each interaction, and with weights to
    that of all. An interaction that failed has no time: it is in no part here, and counts where failures are counted.
    Raises ValueError when the shares exceed the limit.
    """
    late = np.flatnonzero(accounts.served & (accounts.total_ns > budget.limit_ns))
    sums = [Fraction(0)] * len(accounts.entries)
    for begin in range(0, len(late), _TOGETHER):
        rows = late[begin : begin + _TOGETHER]
        parts = parts_over(budget, accounts.entries, accounts.dense(rows), shares_ns)
        blamed = blamed_ns(parts, accounts.total_ns[rows] - budget.limit_ns)
        sums = [known + more for known, more in zip(sums, _weighted(accounts.weights[rows], blamed), strict=True)]
    return _by_owner(dict(zip(accounts.entries, _whole(sums), strict=True)), budget)


def blamed_ns(parts: Floats, over_ns: Ints) -> Ints:
    """`over_ns` of each row split by its `parts`, which sum to 1, into whole nanoseconds that sum to it.

    Rounded down first; the nanoseconds left over go to the largest remainders.
    """
    exact = parts * over_ns[:, None]
    split = np.floor(exact).astype(np.int64)
    left = over_ns - split.sum(axis=1)
    more = np.zeros_like(split)
    np.put_along_axis(more, np.argsort(split - exact, axis=1), np.arange(split.shape[1]) < left[:, None], axis=1)
    split += more
    # Beyond 2^53 ns, a hundred days, a float misses by more than there are entries.
    largest = parts.argmax(axis=1)
    split[np.arange(len(split)), largest] += over_ns - split.sum(axis=1)
    return split


def _weighted(weights: Floats, columns: Ints) -> list[Fraction]:
    """The weighted sum of each column. Halves of the numbers are summed apart, so that floats hold them exactly."""
    high, low = columns >> _LOW_BITS, columns & ((1 << _LOW_BITS) - 1)
    return [
        Fraction(above) * (1 << _LOW_BITS) + Fraction(below)
        for above, below in zip((weights @ high).tolist(), (weights @ low).tolist(), strict=True)
    ]


def _whole(parts: Sequence[Fraction]) -> list[int]:
    """Whole numbers nearest to these that sum to their rounded sum."""
    whole = [int(part) for part in parts]
    by_remainder = sorted(range(len(parts)), key=lambda place: whole[place] - parts[place])
    for place in by_remainder[: round(sum(parts)) - sum(whole)]:
        whole[place] += 1
    return whole


def _by_owner(entries_ns: Mapping[str, int], budget: Budget) -> tuple[Blame, ...]:
    total_ns = sum(entries_ns.values())
    by_owner: dict[str | None, dict[str, int]] = {}
    for entry, over_ns in sorted(entries_ns.items(), key=lambda item: (-item[1], item[0])):
        if over_ns:
            by_owner.setdefault(budget.owner_of(entry), {})[entry] = over_ns
    blames = [_blame(owner, entries, total_ns) for owner, entries in by_owner.items()]
    return tuple(sorted(blames, key=lambda each: -each.over_ns))


def _blame(owner: str | None, entries: Mapping[str, int], total_ns: int) -> Blame:
    over_ns = sum(entries.values())
    return Blame(owner=owner, over_ns=over_ns, share=over_ns / total_ns, entries=entries)
