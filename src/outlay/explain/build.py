"""Cohorts to a report: percentiles with intervals, verdicts, and the account of the typical and of the tail."""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from outlay.account import path_of
from outlay.budget import Budget
from outlay.cohort import Cohort, Record
from outlay.explain.gather import Gathering, MomentCohorts
from outlay.quantiles import effective_n, rank_interval, share_interval, smallest_n, verdict
from outlay.report import (
    Bin,
    CohortRow,
    Health,
    ModelGap,
    MomentReport,
    OnTime,
    Percentile,
    Report,
    Row,
    Segment,
    Slow,
    Source,
    Verdict,
)
from outlay.stages import is_model_time, may_hold_model_time, term_of

LEVELS = (50.0, 95.0, 99.0)

# The typical interaction is the mean of those around the median: single ones are too noisy to show.
TYPICAL_BAND = (0.45, 0.55)

# Time that nobody names is worth a warning from these on (measurement of real traces: below, it is rounding).
UNNAMED_SHARE, UNNAMED_NS = 0.05, 50_000_000

BINS = 60


def build_report(gathering: Gathering, sources: Sequence[Source]) -> Report:
    """Everything gathered, as values to draw. Moments come in order of name."""
    moments = [_moment(cohorts, gathering) for _, cohorts in sorted(gathering.moments.items())]
    if gathering.general.troubles:
        # Troubles of the input as a whole stand with the first moment, or alone when nothing was measured.
        general = _health(gathering.general)
        first = moments[0] if moments else _moment(MomentCohorts(gathering.general.moment, 0), gathering)
        moments[:1] = [_with_health(first, general)]
    question = gathering.question
    return Report(sources=tuple(sources), moments=tuple(moments), by=question.by, filters=dict(question.where))


def _with_health(moment: MomentReport, more: Iterable[Health]) -> MomentReport:
    merged = {line.kind: line for line in moment.health}
    for line in more:
        known = merged.get(line.kind)
        merged[line.kind] = line if known is None else replace(known, count=known.count + line.count)
    return replace(moment, health=tuple(merged[kind] for kind in sorted(merged)))


def _moment(cohorts: MomentCohorts, gathering: Gathering) -> MomentReport:
    whole, budget = cohorts.everything, cohorts.moment.budget
    whole.fold()
    worth = _worth(whole)
    total = tuple(_percentile(whole, level, worth, served_only=False) for level in LEVELS)
    refused = [percentile.why for percentile in total if percentile.why is not None]
    served: tuple[Percentile, ...] = ()
    if whole.sketch.failed:
        served = tuple(_percentile(whole, level, worth, served_only=True) for level in LEVELS)
    typical, tail = _typical(whole), _tail(whole, budget)
    return MomentReport(
        moment=cohorts.moment.name or "(no interactions)",
        n=whole.measured,
        started=whole.started,
        outcomes=dict(sorted(whole.outcomes.items())),
        validity="small" if refused else "valid",
        validity_why=refused[-1] if refused else None,
        total=total,
        served=served,
        budget=budget,
        on_time=_on_time(whole, budget),
        verdict=_verdict(whole, budget, worth),
        typical_ns=typical.total_ns,
        typical_label=typical.label,
        tail_ns=tail.total_ns,
        tail_label=tail.label,
        account=_rows(typical, tail, budget),
        typical_gap=_gap(typical),
        tail_gap=_gap(tail),
        bins=tuple(Bin(low_ns=low, high_ns=high, count=count) for low, high, count in whole.sketch.bins(BINS)),
        cohorts=_cohort_rows(cohorts, gathering.question.by),
        slowest=tuple(_slow(cohorts)),
        health=_health(cohorts),
        effective_n=worth,
    )


# Percentiles and verdicts


def _worth(cohort: Cohort) -> float | None:
    """How many independent interactions these are worth, from how the slow ones cluster in time; None without any."""
    n = cohort.sketch.served
    if not n:
        return None
    rank = math.ceil(0.99 * n)
    slow = cohort.slowest.items()[: max(1, n - rank)]
    if cohort.complete:
        in_order = sorted(cohort.slowest.items(), key=lambda record: (record.start_ns, record.id))
        place = {record.id: number for number, record in enumerate(in_order)}
        places = [place[record.id] for record in slow]
    else:
        places = cohort.arrivals.ranks(record.start_ns for record in slow)
    exceeded = np.zeros(n, dtype=bool)
    exceeded[places] = True
    return effective_n(exceeded)


def _percentile(cohort: Cohort, level: float, worth: float | None, *, served_only: bool) -> Percentile:
    n = cohort.sketch.served if served_only else cohort.sketch.count
    q = level / 100
    needed = smallest_n(q)
    if n < needed:
        return Percentile(level=level, value_ns=None, why=f"p{level:g} needs {needed} interactions, there are {n}")
    # Correlation was measured on the served ones; failures are taken to add no information beyond it.
    shrunk = None if worth is None or not cohort.sketch.served else worth / cohort.sketch.served * n
    ranks = rank_interval(n, q, effective_n=shrunk)
    interval = None
    if ranks is not None:
        low, high = ranks
        at_high = None if high is None else cohort.value_at_rank(high, served_only=served_only)
        interval = (cohort.value_at_rank(low, served_only=served_only), at_high)
    value = cohort.value_at_rank(math.ceil(q * n), served_only=served_only)
    return Percentile(level=level, value_ns=value, interval_ns=interval)


def _on_time(cohort: Cohort, budget: Budget | None) -> OnTime | None:
    n = cohort.measured
    if budget is None or not n:
        return None
    over = cohort.sketch.over(budget.limit_ns)
    low, high = share_interval(n - over, n)
    return OnTime(share=(n - over) / n, interval=(low, high), over=over)


def _verdict(cohort: Cohort, budget: Budget | None, worth: float | None) -> Verdict | None:
    n = cohort.measured
    if budget is None:
        return None
    if not n:
        return Verdict(state="UNDECIDED", why="nothing was measured")
    over = cohort.sketch.over(budget.limit_ns)
    served = cohort.sketch.served
    shrunk = min(float(n), worth / served * n) if worth is not None and served else None
    test = verdict(over, n, budget.percentile, shrunk)
    allowed = 100 - budget.percentile
    why = (
        f"{over} of {n} over the limit; the true share is {100 * test.lower:.3g} % to {100 * test.upper:.3g} %, "
        f"{allowed:g} % is allowed"
    )
    return Verdict(state=test.state, why=why, more=test.more)


# The account of a group of interactions


@dataclass(frozen=True, slots=True)
class _Group:
    """The mean account of some interactions, rounded to integers that still sum."""

    label: str
    total_ns: int | None
    entries: Mapping[str, int]


def _typical(cohort: Cohort) -> _Group:
    records = sorted(cohort.sample.items(), key=lambda record: (record.total_ns, record.id))
    if not records:
        return _Group("no interactions", None, {})
    low, high = (math.floor(share * (len(records) - 1)) for share in TYPICAL_BAND)
    band = records[low : max(high, low) + 1]
    if len(band) < 3:
        return _mean("the median interaction", [(record, 1.0) for record in band])
    return _mean(f"mean of {len(band)} around the median", [(record, 1.0) for record in band])


def _tail(cohort: Cohort, budget: Budget | None) -> _Group:
    """The mean of the slowest interactions: the share that the budget's percentile leaves over, else 1 %."""
    n = cohort.sketch.served
    if not n:
        return _Group("no interactions", None, {})
    share = 1 - (budget.percentile if budget else 99.0) / 100
    wanted = max(1, n - math.ceil((1 - share) * n) + 1)
    label = "the slowest interaction" if wanted == 1 else f"mean of the slowest {100 * share:.3g} % ({wanted})"
    slow = cohort.slowest.items()[:wanted]
    weighed = [(record, 1.0) for record in slow]
    if len(slow) < wanted:
        # More than were kept whole: those below the kept ones are estimated from the uniform sample.
        border_ns, floor_ns = slow[-1].total_ns, cohort.value_at_rank(n - wanted + 1, served_only=True)
        between = [record for record in cohort.sample.items() if floor_ns <= record.total_ns < border_ns]
        weighed += [(record, (wanted - len(slow)) / len(between)) for record in between]
    return _mean(label, weighed)


def _mean(label: str, weighed: Sequence[tuple[Record, float]]) -> _Group:
    sums: defaultdict[str, float] = defaultdict(float)
    for record, weight in weighed:
        for entry, duration in record.entries:
            sums[entry] += weight * duration
    weight = sum(weight for _, weight in weighed)
    exact = {entry: value / weight for entry, value in sums.items()}
    total = round(sum(exact.values()))
    return _Group(label, total, _rounded(exact, total))


def _rounded(exact: Mapping[str, float], total: int) -> dict[str, int]:
    """Whole nanoseconds that sum to `total`: the largest remainders are rounded up."""
    whole = {entry: math.floor(value) for entry, value in exact.items()}
    missing = total - sum(whole.values())
    by_remainder = sorted(exact, key=lambda entry: (whole[entry] - exact[entry], entry))
    for place in range(missing):
        whole[by_remainder[place % len(by_remainder)]] += 1
    return whole


def _rows(typical: _Group, tail: _Group, budget: Budget | None) -> tuple[Row, ...]:
    rows = []
    for entry in {**typical.entries, **tail.entries}:
        share = budget.share_of(entry) if budget else None
        rows.append(
            Row(
                entry=entry,
                term=term_of(entry),
                # A group without the entry spent no time there: a true zero, as the group's rows sum to its total.
                typical_ns=typical.entries.get(entry, 0),
                tail_ns=tail.entries.get(entry, 0),
                budget_ns=share.limit_ns if share else None,
                owner=share.owner if share else None,
            )
        )
    return tuple(sorted(rows, key=lambda row: (-row.excess_ns, -row.tail_ns, row.entry)))


def _gap(group: _Group) -> ModelGap | None:
    if group.total_ns is None:
        return None
    low = sum(duration for entry, duration in group.entries.items() if is_model_time(entry))
    high = sum(duration for entry, duration in group.entries.items() if may_hold_model_time(entry))
    return ModelGap(total_ns=group.total_ns, low_ns=low, high_ns=high)


# Cohorts, slowest, health


def _cohort_rows(cohorts: MomentCohorts, by: Sequence[str]) -> tuple[CohortRow, ...]:
    budget = cohorts.moment.budget
    rows = []
    for key, cohort in cohorts.by.items():
        cohort.fold()
        worth = _worth(cohort)
        tail = _tail(cohort, budget).entries
        rows.append(
            CohortRow(
                key=dict(zip(by, key, strict=True)),
                n=cohort.measured,
                p50=_percentile(cohort, 50.0, worth, served_only=False),
                p99=_percentile(cohort, 99.0, worth, served_only=False),
                on_time=_on_time(cohort, budget),
                leading=max(tail, key=lambda entry: (tail[entry], entry), default=None),
            )
        )
    return tuple(sorted(rows, key=lambda row: (-row.n, [str(value) for value in row.key.values()])))


def _slow(cohorts: MomentCohorts) -> Iterable[Slow]:
    for made, offsets in cohorts.slowest.items():
        interaction = made.interaction
        start = interaction.start_ns or 0  # an account always has one
        yield Slow(
            id=interaction.id,
            total_ns=made.total_ns,
            outcome=interaction.outcome,
            dimensions=dict(interaction.dimensions),
            segments=tuple(
                Segment(
                    entry=piece.entry,
                    start_ns=piece.start_ns - start,
                    duration_ns=piece.end_ns - piece.start_ns,
                    error_ns=piece.error_ns,
                    ambiguous=piece.ambiguous,
                )
                for piece in path_of(interaction, offsets)
            ),
            ambiguous_ns=made.ambiguous_ns,
        )


def _health(cohorts: MomentCohorts) -> tuple[Health, ...]:
    return tuple(
        Health(kind=kind, count=trouble.count, example=trouble.text)
        for kind, trouble in sorted(cohorts.troubles.items())
    )
