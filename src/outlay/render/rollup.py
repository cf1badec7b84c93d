"""Order, folding and sums of an account's rows for reading. Whatever is folded, the sums stay true."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite

from outlay.report import MomentReport, Row, Slow
from outlay.stages import TERMS

# A row below 1/200 of both totals is folded: together such rows rarely change what a reader does next.
SMALL = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Rest:
    """Rows too small for a line of their own, and what they sum to."""

    rows: tuple[Row, ...]

    @property
    def sets_ns(self) -> int | None:
        """Their part of what sets the percentile; None where that is not known."""
        return sets_ns(self.rows)

    @property
    def typical_ns(self) -> int:
        """Their part of a typical interaction."""
        return sum(row.typical_ns for row in self.rows)

    @property
    def tail_ns(self) -> int:
        """Their part of the tail."""
        return sum(row.tail_ns for row in self.rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class TermSum:
    """All rows of one term; `sets_ns` None: what sets the percentile is not known."""

    term: str
    typical_ns: int
    tail_ns: int
    sets_ns: int | None = None

    @property
    def excess_ns(self) -> int:
        """What the tail adds over a typical interaction."""
        return self.tail_ns - self.typical_ns


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareSum:
    """All rows that one share of the budget answers for; `entry` None: the rows that no share names.

    `limit_ns` None: the share names an owner and no limit.
    """

    entry: str | None
    owner: str | None
    limit_ns: int | None
    typical_ns: int
    tail_ns: int

    @property
    def over_ns(self) -> int | None:
        """By how much the tail exceeds the limit; None when it does not, or when there is no limit."""
        return _over(self.tail_ns, self.limit_ns)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lead:
    """A row to look at first: `part` is its share of all that the tail adds; `alone`, of a single interaction."""

    row: Row
    part: float
    fix: str
    alone: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class EntrySum:
    """All segments of one entry in one interaction."""

    entry: str
    duration_ns: int


def by_excess(rows: Sequence[Row]) -> tuple[Row, ...]:
    """Rows with the largest excess first."""
    return tuple(sorted(rows, key=lambda row: (-row.excess_ns, -row.tail_ns, row.entry)))


def fold(rows: Sequence[Row], most: int) -> tuple[tuple[Row, ...], Rest | None]:
    """Rows worth a line each by excess, at most `most`, and the rest as one; no rest when all are drawn.

    The largest are kept whichever way they changed: a big row that shrank in the tail is still news.
    """
    typical_ns, tail_ns = sum(row.typical_ns for row in rows), sum(row.tail_ns for row in rows)
    large = sorted(rows, key=lambda row: (-max(row.typical_ns, row.tail_ns), row.entry))
    worth = [row for row in large if row.typical_ns * SMALL >= typical_ns or row.tail_ns * SMALL >= tail_ns][:most]
    # A line that said "1 smaller row" would take the place of the row itself.
    if len(rows) - len(worth) == 1 and len(worth) < most:
        worth = large
    entries = {row.entry for row in worth}
    rest = [row for row in large if row.entry not in entries]
    return by_excess(worth), Rest(rows=tuple(rest)) if rest else None


def is_owned(moment: MomentReport) -> bool:
    """Whether any row has a share of the budget or an owner."""
    return any(row.budget_ns is not None or row.owner for row in moment.account)


def is_shared(moment: MomentReport, row: Row) -> bool:
    """Whether other rows draw on the same share of the budget."""
    if moment.budget is None or row.budget_ns is None:
        return False
    share = moment.budget.share_of(row.entry)
    return any(other is not row and moment.budget.share_of(other.entry) is share for other in moment.account)


def any_shared(moment: MomentReport) -> bool:
    """Whether two rows draw on one share of the budget."""
    return any(is_shared(moment, row) for row in moment.account)


def over_ns(row: Row) -> int | None:
    """By how much a row's tail exceeds its share; None when it does not, or has no share."""
    return _over(row.tail_ns, row.budget_ns)


def _over(tail_ns: int, limit_ns: int | None) -> int | None:
    return tail_ns - limit_ns if limit_ns is not None and tail_ns > limit_ns else None


def by_term(rows: Sequence[Row]) -> tuple[TermSum, ...]:
    """One sum a term, in the order of the vocabulary, without terms that took no time."""
    sums = (
        TermSum(
            term=term.name,
            typical_ns=sum(row.typical_ns for row in rows if row.term == term.name),
            tail_ns=sum(row.tail_ns for row in rows if row.term == term.name),
            sets_ns=sets_ns([row for row in rows if row.term == term.name]),
        )
        for term in TERMS
    )
    return tuple(total for total in sums if total.typical_ns or total.tail_ns or total.sets_ns)


def sets_ns(rows: Sequence[Row]) -> int | None:
    """Their part of what sets the percentile; None where that is not known of any."""
    known = [row.sets_ns for row in rows if row.sets_ns is not None]
    return sum(known) if known else None


def by_share(moment: MomentReport) -> tuple[ShareSum, ...]:
    """The budget against what was spent, one sum a share, then what no share names against what is left.

    Empty without a budget, without shares, or without an account.
    """
    budget = moment.budget
    if budget is None or not budget.shares or not moment.account:
        return ()
    # By position: two shares may be equal in value, and only the first of them answers.
    owned: list[list[Row]] = [[] for _ in budget.shares]
    unowned: list[Row] = []
    for row in moment.account:
        share = budget.share_of(row.entry)
        (unowned if share is None else owned[budget.shares.index(share)]).append(row)
    sums = [
        _share_sum(share.entry, share.owner, share.limit_ns, rows)
        for share, rows in zip(budget.shares, owned, strict=True)
    ]
    left_ns = budget.limit_ns - sum(share.limit_ns for share in budget.shares if share.limit_ns is not None)
    return (*sums, _share_sum(None, None, left_ns, unowned))


def _share_sum(entry: str | None, owner: str | None, limit_ns: int | None, rows: Sequence[Row]) -> ShareSum:
    return ShareSum(
        entry=entry,
        owner=owner,
        limit_ns=limit_ns,
        typical_ns=sum(row.typical_ns for row in rows),
        tail_ns=sum(row.tail_ns for row in rows),
    )


def is_dominated(slow: Slow) -> bool:
    """Whether one entry took nearly all of an interaction, so that its timeline would show a single bar."""
    return any(each.duration_ns * 20 >= slow.total_ns * 19 for each in largest(slow, 1))


def stands_out(moment: MomentReport, excess_ns: int) -> bool:
    """Whether an excess is a twentieth of the tail or more."""
    return excess_ns > 0 and moment.tail_ns is not None and excess_ns * 20 >= moment.tail_ns


def is_single(moment: MomentReport) -> bool:
    """Whether one interaction is all there is: it is typical and tail at once, and no percentile says more of it."""
    return moment.n == 1 and all(row.excess_ns == 0 for row in moment.account)


def leads(moment: MomentReport, most: int = 3) -> tuple[Lead, ...]:
    """The rows that add most to the tail, or that take most of a single interaction; empty when none stands out."""
    tail_ns, alone = sum(row.tail_ns for row in moment.account), is_single(moment)
    weights = [(row.tail_ns if alone else row.excess_ns, row) for row in by_excess(moment.account)]
    weights = [(weight_ns, row) for weight_ns, row in weights if weight_ns > 0]
    all_ns = sum(weight_ns for weight_ns, _ in weights)
    fixes = {term.name: term.fix for term in TERMS}
    return tuple(
        Lead(row=row, part=weight_ns / all_ns, fix=fixes[row.term], alone=alone)
        for weight_ns, row in weights[:most]
        if weight_ns * SMALL >= tail_ns
    )


def largest(slow: Slow, most: int) -> tuple[EntrySum, ...]:
    """The entries that took most of one interaction."""
    sums: dict[str, int] = {}
    for segment in slow.segments:
        sums[segment.entry] = sums.setdefault(segment.entry, 0) + segment.duration_ns
    ranked = sorted(sums.items(), key=lambda item: (-item[1], item[0]))
    return tuple(EntrySum(entry=entry, duration_ns=duration_ns) for entry, duration_ns in ranked[:most])


def landmarks(moment: MomentReport) -> tuple[tuple[str, float], ...]:
    """What to mark in a distribution of the served: their p50 and p99, and the budget; the earliest first."""
    marks = [
        (f"p{percentile.level:g}", percentile.value_ns)
        for percentile in moment.served or moment.total
        if percentile.value_ns is not None and isfinite(percentile.value_ns) and percentile.level in (50, 99)
    ]
    if moment.budget is not None:
        marks.append(("budget", moment.budget.limit_ns))
    return tuple(sorted(marks, key=lambda mark: (mark[1], mark[0])))
