"""A Report as JSON: the contract of `--json`, version `report/1`.

- Every `_ns` is a whole number of nanoseconds, or the text `"inf"`: never, or no upper bound.
- An absent key means unknown, refused or not declared; nothing is null, and 0 is a measured 0.
- The `account`'s `typical_ns` and `tail_ns` sum to the moment's; a slowest's `entries` sum to its `total_ns`.
- Keys may be added within a version; none is renamed or changes its meaning.
"""

import math
from collections.abc import Mapping, Sequence

import msgspec

from outlay.budget import Budget
from outlay.generator import Reason, Slope, Stall
from outlay.load import Bound, Load
from outlay.render.words import percentile_name
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
)

VERSION = "report/1"

Json = dict[str, object]


def to_json(report: Report) -> bytes:
    """UTF-8 JSON without a final newline; equal reports give equal bytes."""
    return msgspec.json.encode(to_dict(report))


def to_dict(report: Report) -> Json:
    """The same as plain dicts and lists."""
    return {
        "outlay": VERSION,
        "sources": [_source(source) for source in report.sources],
        "filters": ordered(report.filters),
        "by": list(report.by),
        "loads": [_load(load) for load in report.loads],
        "moments": [_moment(moment) for moment in report.moments],
    }


def _moment(moment: MomentReport) -> Json:
    verdict = moment.verdict
    return known(
        moment=moment.moment,
        n=moment.n,
        started=moment.started,
        coverage=moment.coverage,
        effective_n=moment.effective_n,
        outcomes=ordered(moment.outcomes),
        validity=moment.validity,
        validity_why=moment.validity_why,
        total=percentiles(moment.total),
        served=percentiles(moment.served) or None,
        bounds=[one_bound(bound) for bound in moment.bounds] or None,
        budget=moment.budget and _budget(moment.budget),
        on_time=moment.on_time and share_on_time(moment.on_time),
        verdict=verdict and verdict.state,
        verdict_why=verdict and verdict.why,
        verdict_more=verdict and verdict.more,
        typical_ns=moment.typical_ns,
        typical_label=moment.typical_label,
        tail_ns=moment.tail_ns,
        tail_label=moment.tail_label,
        account=[_row(row) for row in moment.account],
        model_time=_model_time(moment),
        distribution=[_bin(each) for each in moment.bins],
        cohorts=[_cohort(cohort) for cohort in moment.cohorts],
        findings=[],
        slowest=[_slow(slow) for slow in moment.slowest],
        health=[_health(health) for health in moment.health],
    )


def _load(load: Load) -> Json:
    judged = load.verdict
    return known(
        name=load.name,
        tool=load.tool,
        moment=load.moment,
        dimensions=ordered(load.dimensions),
        verdict=judged.state,
        reasons=[_reason(reason) for reason in judged.reasons],
        requests=load.requests,
        unsent=judged.unsent,
        requested_rate=load.requested_rate,
        achieved_rate=load.achieved_rate,
        achieved=judged.achieved,
        lateness=known(p50_ns=judged.lateness_p50_ns, p99_ns=judged.lateness_p99_ns, max_ns=judged.lateness_max_ns),
        slope=judged.slope and _slope(judged.slope),
        bounds=[one_bound(bound) for bound in load.bounds],
        claimed_ns=ordered(load.claimed_ns),
        clock=load.clock,
        begin_ns=load.begin_ns,
        sender_stalls=[_stall(stall) for stall in load.sender_stalls],
        silences=[_stall(stall) for stall in load.silences],
    )


def _reason(reason: Reason) -> Json:
    return known(rule=reason.rule, state=reason.state, measured=reason.measured, limit=reason.limit, text=reason.text)


def _slope(slope: Slope) -> Json:
    return {"value": slope.value, "interval": [slope.low, slope.high]}


def one_bound(bound: Bound) -> Json:
    return {"level": bound.level, "interval_ns": limits(bound.low_ns, bound.high_ns)}


def _stall(stall: Stall) -> Json:
    return known(from_ns=stall.from_ns, to_ns=stall.to_ns, due=stall.due)


def known(**fields: object) -> Json:
    return {name: value for name, value in fields.items() if value is not None}


def ordered(mapping: Mapping[str, object]) -> Json:
    return {name: value for name, value in sorted(mapping.items()) if value is not None}


def ns(value: float | None) -> int | str | None:
    if value is None:
        return None
    return "inf" if math.isinf(value) else round(value)


def percentiles(percentiles: Sequence[Percentile]) -> Json:
    fields: Json = {}
    for percentile in percentiles:
        name = percentile_name(percentile.level)
        told = {
            f"{name}_ns": ns(percentile.value_ns),
            f"{name}_interval_ns": percentile.interval_ns and limits(*percentile.interval_ns),
            f"{name}_why": percentile.why,
        }
        fields |= known(**told)
    return fields


def limits(low_ns: float, high_ns: float | None) -> list[int | str | None]:
    return [ns(low_ns), ns(math.inf if high_ns is None else high_ns)]


def _source(source: Source) -> Json:
    return {"name": source.name, "format": source.format, "records": source.records, "unit": source.unit}


def _budget(budget: Budget) -> Json:
    return {
        "limit_ns": budget.limit_ns,
        "percentile": budget.percentile,
        "thresholds": {f"{name}_ns": limit_ns for name, limit_ns in sorted(budget.thresholds.items())},
        "shares": [known(entry=share.entry, limit_ns=share.limit_ns, owner=share.owner) for share in budget.shares],
    }


def share_on_time(on_time: OnTime) -> Json:
    return {"share": on_time.share, "interval": list(on_time.interval), "over": on_time.over}


def _row(row: Row) -> Json:
    return known(
        entry=row.entry,
        term=row.term,
        typical_ns=row.typical_ns,
        tail_ns=row.tail_ns,
        excess_ns=row.excess_ns,
        budget_ns=row.budget_ns,
        owner=row.owner,
    )


def _model_time(moment: MomentReport) -> Json | None:
    gaps = {"typical": moment.typical_gap, "tail": moment.tail_gap}
    return {name: _gap(gap) for name, gap in gaps.items() if gap is not None} or None


def _gap(gap: ModelGap) -> Json:
    return {"total_ns": gap.total_ns, "low_ns": gap.low_ns, "high_ns": gap.high_ns}


def _bin(each: Bin) -> Json:
    return {"low_ns": ns(each.low_ns), "high_ns": ns(each.high_ns), "count": each.count}


def _cohort(cohort: CohortRow) -> Json:
    return known(
        key=ordered(cohort.key),
        n=cohort.n,
        total=percentiles((cohort.p50, cohort.p99)),
        on_time=cohort.on_time and share_on_time(cohort.on_time),
        leading=cohort.leading,
    )


def _slow(slow: Slow) -> Json:
    return {
        "id": slow.id,
        "total_ns": slow.total_ns,
        "outcome": slow.outcome,
        "dimensions": ordered(slow.dimensions),
        "ambiguous_ns": slow.ambiguous_ns,
        "entries": [_segment(segment) for segment in slow.segments],
    }


def _segment(segment: Segment) -> Json:
    return known(
        entry=segment.entry,
        start_ns=segment.start_ns,
        duration_ns=segment.duration_ns,
        error_ns=segment.error_ns,
        ambiguous=segment.ambiguous,
    )


def _health(health: Health) -> Json:
    return {"kind": health.kind, "count": health.count, "example": health.example}
