"""What a moment may cost: limit, percentile, thresholds, and shares with an owner each."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from outlay.stages import UNATTRIBUTED, entry, split_entry
from outlay.units import format_duration

if TYPE_CHECKING:  # applications import this module, and should not wait for numpy
    import numpy as np
    from numpy.typing import NDArray

# Order of severity; each is a limit on one interaction, beside the budget's limit on a percentile.
THRESHOLDS = ("noticeable", "disruptive", "unsafe")


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """Part of the limit given to the entries that match `entry`, a shell pattern such as `llm/queue*`."""

    entry: str
    limit_ns: int | None
    owner: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """`percentile` percent of interactions take at most `limit_ns`.

    `shares` are matched in order, first match wins; those with a limit never sum to more than `limit_ns`. Where a
    percentile is not enough, each `duty_period_ns` is also judged by its slowest interaction.
    Raises ValueError for a limit or a duty period below 1 ns, a percentile outside (0, 100), or shares that exceed the
    limit.
    """

    limit_ns: int
    percentile: float
    thresholds: Mapping[str, int] = field(default_factory=dict)
    shares: tuple[Share, ...] = ()
    duty_period_ns: int | None = None

    def __post_init__(self) -> None:
        if self.limit_ns < 1:
            raise ValueError("a budget's limit must be above 0")
        if not 0 < self.percentile < 100:
            raise ValueError("a budget's percentile must lie between 0 and 100, for example 99")
        if self.duty_period_ns is not None and self.duty_period_ns < 1:
            raise ValueError("a duty period must be above 0")
        if self.unassigned_ns < 0:
            limits = ((share.entry, share.limit_ns) for share in self.shares if share.limit_ns is not None)
            given = ", ".join(f"{entry} {format_duration(limit_ns)}" for entry, limit_ns in limits)
            limit, over = format_duration(self.limit_ns), format_duration(-self.unassigned_ns)
            raise ValueError(f"the shares ({given}) exceed the limit of {limit} by {over}")

    @property
    def unassigned_ns(self) -> int:
        """What is left of the limit after all shares: nobody answers for it yet."""
        return self.limit_ns - sum(share.limit_ns for share in self.shares if share.limit_ns is not None)

    def share_of(self, entry: str) -> Share | None:
        """The share that answers for an entry; None when no share names it."""
        return next((share for share in self.shares if fnmatchcase(entry, share.entry)), None)

    def group_of(self, entry: str) -> str:
        """What the entry spends together with: the pattern of its share, or without one a pattern for it alone.

        Edges that nobody named, and that no share names, go together by component. A pattern made for an entry matches
        it, so a budget that takes it up as a share groups as before.
        """
        share = self.share_of(entry)
        return _alone(entry) if share is None else share.entry

    def owner_of(self, entry: str) -> str | None:
        """Who answers for an entry; None when nobody does."""
        share = self.share_of(entry)
        return None if share is None else share.owner

    def granted_ns(self, group: str, shares_ns: Mapping[str, int]) -> int:
        """What a group may spend: its declared share, else the one in `shares_ns`, else nothing at all."""
        declared = next((share.limit_ns for share in self.shares if share.entry == group), None)
        if declared is not None:
            return declared
        # Nothing is no unknown here: what nobody granted, nobody may spend.
        return shares_ns.get(group, 0)


_GLOB = re.compile(r"([*?[])")


def _alone(name: str) -> str:
    component, stage = split_entry(name)
    literal = _GLOB.sub(r"[\1]", component)
    return entry(literal, f"{UNATTRIBUTED}*" if stage.startswith(UNATTRIBUTED) else stage)


def parts_over(
    budget: Budget, entries: Sequence[str], durations_ns: "NDArray[np.int64]", shares_ns: Mapping[str, int]
) -> "NDArray[np.float64]":
    """Which part of an interaction's overrun each entry answers for, for interactions over the limit.

    `durations_ns` has a row for each of them and a column for each of `entries`; so has the answer, whose rows sum
    to 1. What a group spent above what it was granted, `o`, answers for `o` over the sum of all `o`; inside a group,
    entries answer by how long they took. `shares_ns` grants by group what the budget does not.
    Raises ValueError when the groups are granted more than the limit: then one can be over it and nobody over a share.
    """
    import numpy as np

    groups = [budget.group_of(name) for name in entries]
    names = list(dict.fromkeys(groups))
    of = np.array([names.index(group) for group in groups], dtype=np.intp)
    granted = [budget.granted_ns(name, shares_ns) for name in names]
    if sum(granted) > budget.limit_ns:
        raise ValueError(f"the shares exceed the limit by {format_duration(sum(granted) - budget.limit_ns)}")
    spent = durations_ns @ (of[:, None] == np.arange(len(names))).astype(np.float64)
    over = np.maximum(spent - granted, 0)
    weight = np.divide(over, spent * over.sum(axis=1, keepdims=True), out=np.zeros_like(over), where=over > 0)
    parts: NDArray[np.float64] = durations_ns * weight[:, of]
    return parts


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainStep:
    """One mark of a moment chain and the row that the time before it belongs to.

    `entry` None is for the first mark, which ends nothing.
    """

    mark: str
    entry: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """Which spans are meant: shell patterns on service, name and attributes, and the kind; None matches all."""

    service: str | None = None
    name: str | None = None
    kind: str | None = None
    attributes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """A kind of interaction. `start` and `end` name the marks between which it is measured; None means the
    trace's own first and last instant. `match` says which root spans begin one; None matches none, so that only
    data which names its moment counts. `chain` orders the marks of the path of the first perceptible result.
    """

    name: str
    budget: Budget | None = None
    start: str | None = None
    end: str | None = None
    match: Match | None = None
    chain: tuple[ChainStep, ...] = ()
