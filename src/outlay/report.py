"""What an explanation says, as values only: `render/` draws them, `--json` writes them.

None means unknown or refused everywhere; a float infinity is a real answer (so many interactions failed that the
percentile never comes). All times are nanoseconds.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from outlay.budget import Budget
from outlay.load import Bound, Load


@dataclass(frozen=True, slots=True, kw_only=True)
class Percentile:
    """One percentile of end-to-end time. `value_ns` None: refused, and `why` says what it would take.

    `interval_ns` is a 95 % interval (low, high); high None means that the sample gives no upper bound.
    """

    level: float
    value_ns: float | None
    interval_ns: tuple[float, float | None] | None = None
    why: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OnTime:
    """The share of interactions within the budget's limit, of all that were measured, failures counting as late."""

    share: float
    interval: tuple[float, float]
    over: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """PASS, FAIL or UNDECIDED on the budget; `more` is how many further interactions could decide, None if unknown."""

    state: str
    why: str
    more: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One entry of the account of a typical interaction and of the tail, side by side.

    The `typical_ns` of all rows sum to `MomentReport.typical_ns`, the `tail_ns` to `MomentReport.tail_ns`.
    `budget_ns` is the entry's share of the limit, `owner` who answers for it.
    """

    entry: str
    term: str
    typical_ns: int
    tail_ns: int
    budget_ns: int | None = None
    owner: str | None = None

    @property
    def excess_ns(self) -> int:
        """What the tail adds over a typical interaction."""
        return self.tail_ns - self.typical_ns


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelGap:
    """End-to-end time against model time. The model took between `low_ns` and `high_ns`: they differ by the rows
    in which the data cannot tell the model from the network and the queue around it."""

    total_ns: int
    low_ns: int
    high_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Bin:
    """`count` interactions took more than `low_ns` and at most `high_ns`."""

    low_ns: float
    high_ns: float
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """A piece of one interaction's path, from `start_ns` after its start.

    `error_ns` is how far each end may be off because two clocks meet here: 0 on one clock, None when no bound is
    known. `ambiguous` says that something else ran at the same time and may have been what the person waited for.
    """

    entry: str
    start_ns: int
    duration_ns: int
    error_ns: int | None = 0
    ambiguous: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Slow:
    """One of the slowest interactions; the segments sum to `total_ns`."""

    id: str
    total_ns: int
    outcome: str
    dimensions: Mapping[str, str]
    segments: tuple[Segment, ...]
    ambiguous_ns: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CohortRow:
    """One cohort of `--by`: `key` holds the value of each dimension, None where the data does not say.

    `leading` is the entry with the largest tail time in this cohort.
    """

    key: Mapping[str, str | None]
    n: int
    p50: Percentile
    p99: Percentile
    on_time: OnTime | None
    leading: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """One kind of trouble with the data: `kind` is a key of interaction.NOTE_KINDS."""

    kind: str
    count: int
    example: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MomentReport:
    """Everything about one moment.

    `n` counts the interactions with a start and an end (of `started`), `outcomes` how they ended. `total` counts
    failures as never; `served` looks at the successful ones alone and is empty when nothing failed. `validity` is
    "valid", "small" where the sample refuses a tail, or "invalid" where a load was: then every percentile, account and
    verdict is refused, and `bounds` say between what times the percentiles lie. `validity_why` says so in words.
    `tail_label` says which interactions the tail rows average. `bins` is the distribution of the successful ones.
    """

    moment: str
    n: int
    started: int
    outcomes: Mapping[str, int]
    validity: str
    validity_why: str | None
    total: tuple[Percentile, ...]
    served: tuple[Percentile, ...]
    budget: Budget | None
    on_time: OnTime | None
    verdict: Verdict | None
    typical_ns: int | None
    typical_label: str
    tail_ns: int | None
    tail_label: str
    account: tuple[Row, ...]
    typical_gap: ModelGap | None
    tail_gap: ModelGap | None
    bins: tuple[Bin, ...]
    cohorts: tuple[CohortRow, ...]
    slowest: tuple[Slow, ...]
    health: tuple[Health, ...]
    effective_n: float | None = None
    bounds: tuple[Bound, ...] = ()

    @property
    def coverage(self) -> float | None:
        """The measured share of what was started; None when nothing was."""
        return self.n / self.started if self.started else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One input: its name as the user gave it, the format its content showed, and how many records it held.

    `unit` says what a record is: "spans", "interactions", or "loads" where the input holds no other.
    """

    name: str
    format: str
    records: int
    unit: str

    def plus(self, records: int) -> "Source":
        """The same source, with the records that another worker read of it."""
        return replace(self, records=self.records + records)


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The answer of `outlay explain`. `filters` are the `--where` conditions that were applied.

    `loads` are those that the interactions came under, and those of which the data holds no interactions.
    """

    sources: tuple[Source, ...]
    moments: tuple[MomentReport, ...]
    by: tuple[str, ...] = ()
    filters: Mapping[str, str] = field(default_factory=dict)
    loads: tuple[Load, ...] = ()
