"""Cohorts to a report: percentiles with intervals, verdicts, and the account of the typical and of the tail."""

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from outlay.account import path_of
from outlay.budget import Budget
from outlay.cohort import Cohort, Record
from outlay.explain.gather import Gathering, MomentCohorts
from outlay.generator import INVALID
from outlay.load import Bound, Load
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
from outlay.sketch import nearest_rank
from outlay.stages import UNATTRIBUTED, entry, is_model_time, may_hold_model_time, split_entry, term_of
from outlay.units import format_duration

LEVELS = (50.0, 95.0, 99.0)

# The typical interaction is the mean of those around the median: single ones are too noisy to show.
TYPICAL_BAND = (0.45, 0.55)

BINS = 60

# Span names with ids in them make an edge each; beyond so many rows, edges nobody named are told by component only.
MOST_ROWS = 200


def build_report(gathering: Gathering, sources: Sequence[Source]) -> Report:
    """Everything gathered, as values to draw. Moments come in order of name, and so do loads."""
    loads = sorted(gathering.loads, key=lambda load: (load.moment or "", _natural(load.name), load.tool))
    moments = [
        _allowed(_moment(cohorts, gathering), [load for load in loads if load.moment == name], gathering.question.where)
        for name, cohorts in sorted(gathering.moments.items())
    ]
    if gathering.general.troubles:
        # Troubles of the input as a whole stand with the first moment, or alone when nothing was measured.
        general = _health(gathering.general)
        first = moments[0] if moments else _moment(MomentCohorts(gathering.general.moment, 0), gathering)
        moments[:1] = [replace(first, health=_merged(first.health, general))]
    question = gathering.question
    return Report(
        sources=tuple(sources),
        moments=tuple(moments),
        by=question.by,
        filters=dict(question.where),
        loads=tuple(loads),
    )


def _natural(name: str) -> list[tuple[int, str]]:
    """What sorts `stage 10` behind `stage 2`."""
    return [(len(part), part) if part.isdigit() else (0, part) for part in re.split(r"(\d+)", name)]


def _merged(lines: Iterable[Health], more: Iterable[Health]) -> tuple[Health, ...]:
    merged = {line.kind: line for line in lines}
    for line in more:
        known = merged.get(line.kind)
        merged[line.kind] = line if known is None else replace(known, count=known.count + line.count)
    return tuple(merged[kind] for kind in sorted(merged))


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
    rows = len(typical.entries.keys() | tail.entries.keys())
    crowded: tuple[Health, ...] = ()
    if rows > MOST_ROWS:
        typical, tail = _without_edges(typical), _without_edges(tail)
        text = f"{rows} rows; unattributed edges are summed by component"
        crowded = (Health(kind="too-many-rows", count=rows, example=text),)
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
        on_time=_on_time(whole, budget, worth),
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
        health=_merged(_health(cohorts), crowded),
        effective_n=worth,
    )


# What an INVALID load leaves


_INVALID_LOAD = "its load was INVALID"
_NOBODY = "no interactions under a load that counts"


def _allowed(moment: MomentReport, loads: Sequence[Load], where: Mapping[str, str]) -> MomentReport:
    """The moment, with nothing in it that its loads do not allow to be said."""
    invalid = next((load for load in loads if load.verdict.state == INVALID), None)
    if invalid is None:
        return moment
    why = ": ".join([_INVALID_LOAD, *(reason.text for reason in invalid.verdict.reasons[:1])])
    # Of a part of a load's interactions its bounds say nothing.
    bounds = _envelope(moment, loads) if all(where.keys() <= load.dimensions.keys() for load in loads) else ()
    return replace(
        moment,
        validity="invalid",
        validity_why=why,
        total=tuple(_refused(percentile, bounds) for percentile in moment.total),
        served=(),
        on_time=None,
        verdict=moment.verdict and Verdict(state="UNDECIDED", why=_INVALID_LOAD),
        typical_ns=None,
        typical_label=_NOBODY,
        tail_ns=None,
        tail_label=_NOBODY,
        account=(),
        typical_gap=None,
        tail_gap=None,
        bins=(),
        cohorts=tuple(_refused_row(row) for row in moment.cohorts),
        slowest=(),
        effective_n=None,
        bounds=bounds,
    )


def _envelope(moment: MomentReport, loads: Sequence[Load]) -> tuple[Bound, ...]:
    """Bounds for the interactions of all loads together: a percentile of a mixture lies among those of its parts.

    One load that holds them all says it alone; else all must have a bound for a level.
    """
    whole = next((load for load in loads if load.bounds and load.requests == moment.started), None)
    parts = [whole] if whole else loads
    by_level: defaultdict[float, list[Bound]] = defaultdict(list)
    for load in parts:
        for bound in load.bounds:
            by_level[bound.level].append(bound)
    return tuple(_around(found) for _, found in sorted(by_level.items()) if len(found) == len(parts))


def _around(bounds: Sequence[Bound]) -> Bound:
    highs = [bound.high_ns for bound in bounds if bound.high_ns is not None]
    return Bound(
        level=bounds[0].level,
        low_ns=min(bound.low_ns for bound in bounds),
        high_ns=max(highs) if len(highs) == len(bounds) else None,
    )


def _refused(percentile: Percentile, bounds: Sequence[Bound] = ()) -> Percentile:
    why = _INVALID_LOAD
    for bound in bounds:
        if bound.level == percentile.level:
            low, high_ns = format_duration(bound.low_ns), bound.high_ns
            why += f"; it is {low} or more" if high_ns is None else f"; it is {low} to {format_duration(high_ns)}"
    return Percentile(level=percentile.level, value_ns=None, why=why)


def _refused_row(row: CohortRow) -> CohortRow:
    return replace(row, p50=_refused(row.p50), p99=_refused(row.p99), on_time=None, leading=None)


# Percentiles and verdicts


def _worth(cohort: Cohort) -> float | None:
    """How many independent interactions these are worth, from how the slow ones cluster in time.

    None without any, and where the data does not say when they began: then nothing can be seen of bursts.
    """
    n = cohort.sketch.served
    if not n:
        return None
    slow = cohort.slowest.items()[: max(1, n - _rank(0.99, n))]
    if cohort.complete:
        # Kept are the slowest first, so the first of them are `slow`.
        kept = cohort.slowest.items()
        if n > 1 and len({record.start_ns for record in kept}) == 1:
            return None
        in_order = sorted(range(n), key=lambda place: (kept[place].start_ns, kept[place].id))
        places = [arrival for arrival, place in enumerate(in_order) if place < len(slow)]
    else:
        if cohort.arrivals.at_once:
            return None
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
    ranks = rank_interval(n, q, effective_n=worth if served_only else _all_worth(cohort, worth))
    if ranks is None:
        why = f"p{level:g} needs more than {n} interactions for an interval"
        return Percentile(level=level, value_ns=None, why=why)
    low, high = ranks
    at_high = None if high is None else cohort.value_at_rank(high, served_only=served_only)
    return Percentile(
        level=level,
        value_ns=cohort.value_at_rank(_rank(q, n), served_only=served_only),
        interval_ns=(cohort.value_at_rank(low, served_only=served_only), at_high),
    )


def _rank(q: float, n: int) -> int:
    """The rank of a quantile among at least one value."""
    return nearest_rank(q, n) or 1


def _all_worth(cohort: Cohort, worth: float | None) -> float:
    """What all measured interactions are worth; failures are taken to cluster as the slow ones do."""
    n, served = cohort.sketch.count, cohort.sketch.served
    return n if worth is None or not served else min(float(n), worth / served * n)


def _on_time(cohort: Cohort, budget: Budget | None, worth: float | None) -> OnTime | None:
    n = cohort.measured
    if budget is None or not n:
        return None
    over = cohort.sketch.over(budget.limit_ns)
    shrink = _all_worth(cohort, worth) / n
    return OnTime(share=(n - over) / n, interval=share_interval((n - over) * shrink, n * shrink), over=over)


def _verdict(cohort: Cohort, budget: Budget | None, worth: float | None) -> Verdict | None:
    n = cohort.measured
    if budget is None:
        return None
    if not n:
        return Verdict(state="UNDECIDED", why="nothing was measured")
    over = cohort.sketch.over(budget.limit_ns)
    test = verdict(over, n, budget.percentile, _all_worth(cohort, worth))
    why = (
        f"{over:,} of {n:,} over the limit; the true share is {_percent(test.lower)} to {_percent(test.upper)}, "
        f"{100 - budget.percentile:g} % is allowed"
    )
    return Verdict(state=test.state, why=why, more=test.more)


def _percent(share: float) -> str:
    return "0 %" if share == 0 else "under 0.01 %" if share < 0.0001 else f"{100 * share:.3g} %"


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
    band = records[low : high + 1]
    if len(band) < 3:
        return _mean("the median interaction", [(records[(len(records) - 1) // 2], 1.0)])
    return _mean(f"mean of {len(band)} around the median", [(record, 1.0) for record in band])


def _tail(cohort: Cohort, budget: Budget | None) -> _Group:
    """The mean of the slowest interactions: the share that the budget's percentile leaves over, else 1 %."""
    n = cohort.sketch.served
    if not n:
        return _Group("no interactions", None, {})
    share = 1 - (budget.percentile if budget else 99.0) / 100
    wanted = n - _rank(1 - share, n) + 1
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
        for name, duration in record.entries:
            sums[name] += weight * duration
    weight = sum(weight for _, weight in weighed)
    exact = {name: value / weight for name, value in sums.items()}
    entries = _rounded(exact)
    return _Group(label, sum(entries.values()), entries)


def _without_edges(group: _Group) -> _Group:
    entries: defaultdict[str, int] = defaultdict(int)
    for name, duration in group.entries.items():
        component, stage = split_entry(name)
        entries[entry(component, UNATTRIBUTED) if stage.startswith(UNATTRIBUTED) else name] += duration
    return _Group(group.label, group.total_ns, entries)


def _rounded(exact: Mapping[str, float]) -> dict[str, int]:
    """Whole nanoseconds, the largest remainders rounded up, so that they sum to the rounded sum.

    Beyond 2^53 ns, a hundred days, floats are whole already and their sum is not exact: then nothing is added.
    """
    whole = {name: math.floor(value) for name, value in exact.items()}
    missing = round(sum(exact.values())) - sum(whole.values())
    by_remainder = sorted(exact, key=lambda name: (whole[name] - exact[name], name))
    for name in by_remainder[: max(missing, 0)]:
        whole[name] += 1
    return whole


def _rows(typical: _Group, tail: _Group, budget: Budget | None) -> tuple[Row, ...]:
    rows = []
    for name in {**typical.entries, **tail.entries}:
        share = budget.share_of(name) if budget else None
        rows.append(
            Row(
                entry=name,
                term=term_of(name),
                # A group without the entry spent no time there: a true zero, as the group's rows sum to its total.
                typical_ns=typical.entries.get(name, 0),
                tail_ns=tail.entries.get(name, 0),
                budget_ns=share.limit_ns if share else None,
                owner=share.owner if share else None,
            )
        )
    return tuple(sorted(rows, key=lambda row: (-row.excess_ns, -row.tail_ns, row.entry)))


def _gap(group: _Group) -> ModelGap | None:
    if group.total_ns is None:
        return None
    low = sum(duration for name, duration in group.entries.items() if is_model_time(name))
    high = sum(duration for name, duration in group.entries.items() if may_hold_model_time(name))
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
                on_time=_on_time(cohort, budget, worth),
                leading=max(tail, key=lambda name: (tail[name], name), default=None),
            )
        )
    return tuple(sorted(rows, key=lambda row: (-row.n, [(value is None, value or "") for value in row.key.values()])))


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
