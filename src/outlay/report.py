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
    `coverage_ns` bounds the percentile of everything that was started, where some of it was not measured: low None
    means that too much is missing for a lower bound, high None the same for an upper one.
    """

    level: float
    value_ns: float | None
    interval_ns: tuple[float, float | None] | None = None
    why: str | None = None
    coverage_ns: tuple[float | None, float | None] | None = None


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

    The `typical_ns` of all rows sum to `MomentReport.typical_ns`, the `tail_ns` to `MomentReport.tail_ns`, the
    `sets_ns` to `Sets.total_ns`. `budget_ns` is the entry's share of the limit, `owner` who answers for it. Intervals
    are 95 % ones; None where the sample is too small for any.
    """

    entry: str
    term: str
    typical_ns: int
    tail_ns: int
    budget_ns: int | None = None
    owner: str | None = None
    tail_interval_ns: tuple[float, float] | None = None
    excess_interval_ns: tuple[float, float] | None = None
    sets_ns: int | None = None
    sets_interval_ns: tuple[float, float] | None = None

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
class Sets:
    """What sets the percentile itself: the account of the interactions around its rank, scaled to sum to it.

    `n` interactions lie in that band; `scale` should be 0.98 to 1.02. `total_ns` None: refused, and `why` says it.
    """

    level: float
    total_ns: int | None
    n: int = 0
    scale: float | None = None
    why: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """By how much a change would lower a percentile, with a 95 % interval; negative: it would raise it."""

    level: float
    before_ns: float
    after_ns: float
    saved_ns: float
    interval_ns: tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIf:
    """Interactions replayed with changes. `replayed` of `of` interactions were; fewer than all are a weighted sample.

    `changes` are in the words of `--what-if`. `serial` counts the replayed ones of which only the account is known, so
    that what ran beside what is not: for those a saving is an upper bound. `notes` say what was assumed.
    """

    changes: tuple[str, ...]
    replayed: int
    of: int
    serial: int
    recovers: tuple[Recovery, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The avoidable part of one term: what shows it, what to do, who does it, and what it gives back.

    `entry` is the term's largest row in the tail. `change` is what was replayed, in the words of `--what-if`.
    """

    term: str
    entry: str
    typical_ns: int
    tail_ns: int
    fix: str
    evidence: tuple[str, ...]
    what_if: WhatIf
    owner: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fine:
    """A term so small that work on it gives nothing back: do not start here."""

    term: str
    typical_ns: int
    tail_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Together:
    """Several findings' changes at once: savings do not add.

    `pair` is the best two and what they recover; `all` what all do, and `shares_ns` its fair split (Shapley), which
    sums to it. All at one percentile.
    """

    pair: tuple[str, str] | None
    pair_recovers: Recovery | None
    all_recovers: Recovery
    shares_ns: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Driver:
    """How a number that was there on arrival goes with the time that followed.

    `rank_correlation` is Spearman's, with its 95 % interval. `effect_ns` is by how much the percentile at `level` rises
    from the tenth with the least of it to the tenth with the most, the other drivers held; None where the sample is too
    small. `counted` says that it was counted from the interactions themselves. `explains`: it goes with the time
    strongly, and still does with the others held.
    """

    name: str
    n: int
    rank_correlation: float
    correlation_interval: tuple[float, float]
    level: float | None
    effect_ns: float | None
    effect_interval_ns: tuple[float, float] | None
    counted: bool
    explains: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """Interactions of one value of a dimension, against all others.

    They are `share` of all and `tail_share` of the slow ones (the slowest 1 % and the failed); `lift` is the ratio,
    `p_value` Fisher's, adjusted for the number of slices (Benjamini-Hochberg). `effect_ns` is by how much their
    percentile at `level` lies above that of the others with the same mix of shapes; `compared` is the share of them
    whose shape the others have too. `effect_ns` None: refused, and `why` says it; infinite where so many of them failed
    that the percentile never comes. Shares are of the rows that state the dimension. One that is slow only for its
    shapes may have no lift, and a p-value near 1.
    """

    dimension: str
    value: str
    n: int
    share: float
    tail_share: float
    lift: float
    p_value: float
    level: float | None = None
    effect_ns: float | None = None
    effect_interval_ns: tuple[float, float] | None = None
    compared: float | None = None
    why: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Shift:
    """The change of a percentile from one version to the next: `version_ns` + `shape_ns` = `new_ns` - `old_ns`.

    `shape_ns` is what another mix of shapes would have done to the old version, `version_ns` the rest. Both are of the
    shapes that both versions saw, `compared` of the new one's interactions.
    """

    dimension: str
    old: str
    new: str
    n_old: int
    n_new: int
    level: float
    old_ns: float
    new_ns: float
    version_ns: float
    version_interval_ns: tuple[float, float]
    shape_ns: float
    shape_interval_ns: tuple[float, float]
    compared: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FailingPart:
    """One value of a dimension of which far more fail: `failed_share` of its `n`, and `of_failures` of all failures."""

    dimension: str
    value: str
    n: int
    failed_share: float
    of_failures: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Failing:
    """Interactions that never gave a result: their share, by outcome, and the parts in which they stand out.

    `from_level` is the first percentile shown that they turn into never; None where they are too few for any.
    """

    share: float
    outcomes: Mapping[str, int]
    from_level: float | None
    parts: tuple[FailingPart, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Blame:
    """One owner's part of all that went over the limit: `over_ns` of all owners sum to the overrun.

    `owner` None: nobody answers for those entries. `entries` are the owner's, largest part first.
    """

    owner: str | None
    over_ns: int
    share: float
    entries: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Burn:
    """How fast an owner's mistakes use up what the budget allows: 1 uses exactly all of it.

    `owner` None stands for everybody. `alert` is "page", "ticket", or None; `rates` by window, None where it holds
    fewer than 299 interactions.
    """

    owner: str | None
    rates: Mapping[str, float | None]
    alert: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Duty:
    """The worst interaction of each duty period: for safety a percentile is not enough.

    Of `periods` whole ones, `over` held one over the limit (or a failure); `worst_ns` is the longest of all. `misses`
    says how often the budget's percentile may be missed at this rate; None where no rate is known.
    """

    period_ns: int
    periods: int
    over: int
    worst_ns: float
    misses: str | None = None


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
    sets: Sets | None = None
    findings: tuple[Finding, ...] = ()
    fine: tuple[Fine, ...] = ()
    together: Together | None = None
    what_ifs: tuple[WhatIf, ...] = ()
    drivers: tuple[Driver, ...] = ()
    slices: tuple[Slice, ...] = ()
    shifts: tuple[Shift, ...] = ()
    blame: tuple[Blame, ...] = ()
    burn: tuple[Burn, ...] = ()
    duty: Duty | None = None
    failing: Failing | None = None

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
