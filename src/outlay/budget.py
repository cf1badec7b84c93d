"""What a moment may cost: limit, percentile, thresholds, and shares with an owner each."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

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

    `shares` are matched in order, first match wins; those with a limit never sum to more than `limit_ns`.
    Raises ValueError for a limit below 1 ns, a percentile outside (0, 100), or shares that exceed the limit.
    """

    limit_ns: int
    percentile: float
    thresholds: Mapping[str, int] = field(default_factory=dict)
    shares: tuple[Share, ...] = ()

    def __post_init__(self) -> None:
        if self.limit_ns < 1:
            raise ValueError("a budget's limit must be above 0")
        if not 0 < self.percentile < 100:
            raise ValueError("a budget's percentile must lie between 0 and 100, for example 99")
        if self.unassigned_ns < 0:
            raise ValueError(f"the shares exceed the limit by {-self.unassigned_ns} ns")

    @property
    def unassigned_ns(self) -> int:
        """What is left of the limit after all shares: nobody answers for it yet."""
        return self.limit_ns - sum(share.limit_ns for share in self.shares if share.limit_ns is not None)

    def share_of(self, entry: str) -> Share | None:
        """The share that answers for an entry; None when no share names it."""
        return next((share for share in self.shares if fnmatchcase(entry, share.entry)), None)


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
