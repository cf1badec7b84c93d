"""A Report as JSON: the contract of `--json`, version `report/1`.

- Every `_ns` is a whole number of nanoseconds, or the text `"inf"`: never, or no upper bound.
- An absent key means unknown, refused or not declared; nothing is null, and 0 is a measured 0.
- The `account`'s `typical_ns` and `tail_ns` sum to the moment's, its `sets_ns` to the `total_ns` of `sets`; a slowest's
  `entries` sum to its `total_ns`.
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
    Blame,
    Burn,
    CohortRow,
    Driver,
    Duty,
    Failing,
    Finding,
    Fine,
    Health,
    ModelGap,
    MomentReport,
    OnTime,
    Percentile,
    Recovery,
    Report,
    Row,
    Segment,
    Sets,
    Shift,
    Slice,
    Slow,
    Source,
    Together,
    WhatIf,
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
        **_causes(moment),
        slowest=[_slow(slow) for slow in moment.slowest],
        health=[_health(health) for health in moment.health],
    )


def _causes(moment: MomentReport) -> Json:
    return known(
        sets=moment.sets and _sets(moment.sets),
        findings=[_finding(finding) for finding in moment.findings],
        fine=[_fine(each) for each in moment.fine] or None,
        together=moment.together and _together(moment.together),
        what_ifs=[_what_if(each) for each in moment.what_ifs] or None,
        drivers=[_driver(driver) for driver in moment.drivers] or None,
        slices=[_slice(each) for each in moment.slices] or None,
        shifts=[_shift(shift) for shift in moment.shifts] or None,
        blame=[_blame(each) for each in moment.blame] or None,
        burn=[_burn(each) for each in moment.burn] or None,
        duty=moment.duty and _duty(moment.duty),
        failing=moment.failing and _failing(moment.failing),
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
    # A difference of two percentiles that never come is no number.
    if value is None or math.isnan(value):
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
            f"{name}_started": percentile.coverage_ns and _started(*percentile.coverage_ns),
        }
        fields |= known(**told)
    return fields


def _started(low_ns: float | None, high_ns: float | None) -> Json:
    return known(low_ns=ns(low_ns), high_ns=ns(high_ns))


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
        **known(duty_period_ns=budget.duty_period_ns),
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
        tail_interval_ns=row.tail_interval_ns and limits(*row.tail_interval_ns),
        excess_interval_ns=row.excess_interval_ns and limits(*row.excess_interval_ns),
        sets_ns=row.sets_ns,
        sets_interval_ns=row.sets_interval_ns and limits(*row.sets_interval_ns),
    )


def _sets(value: Sets) -> Json:
    return known(level=value.level, total_ns=value.total_ns, n=value.n, scale=value.scale, why=value.why)


def _finding(finding: Finding) -> Json:
    about = known(
        term=finding.term,
        entry=finding.entry,
        owner=finding.owner,
        fix=finding.fix,
        evidence=list(finding.evidence),
        typical_ns=finding.typical_ns,
        tail_ns=finding.tail_ns,
    )
    return about | _what_if(finding.what_if)


def _what_if(value: WhatIf) -> Json:
    return {
        "change": list(value.changes),
        "recovers": _recovers(value.recovers),
        "replayed": value.replayed,
        "of": value.of,
        "serial": value.serial,
        "notes": list(value.notes),
    }


def _recovers(recovers: Sequence[Recovery]) -> Json:
    """By percentile; `interval_ns` without a name is the highest one's."""
    fields: Json = {}
    for each in recovers:
        name = percentile_name(each.level)
        told = {f"{name}_ns": ns(each.saved_ns), f"{name}_interval_ns": _ends(each.interval_ns)}
        fields |= known(**told, **{f"{name}_before_ns": ns(each.before_ns), f"{name}_after_ns": ns(each.after_ns)})
    highest = max(recovers, key=lambda each: each.level, default=None)
    return fields | known(interval_ns=highest and _ends(highest.interval_ns))


def _recovery(value: Recovery) -> Json:
    return known(
        before_ns=ns(value.before_ns),
        after_ns=ns(value.after_ns),
        saved_ns=ns(value.saved_ns),
        interval_ns=_ends(value.interval_ns),
    )


def _ends(interval_ns: tuple[float, float] | None) -> list[int | str | None] | None:
    """Both ends; absent where one of them is no number."""
    return None if interval_ns is None or any(map(math.isnan, interval_ns)) else limits(*interval_ns)


def _fine(value: Fine) -> Json:
    return {"term": value.term, "typical_ns": value.typical_ns, "tail_ns": value.tail_ns}


def _together(value: Together) -> Json:
    return known(
        level=value.all_recovers.level,
        pair=value.pair and list(value.pair),
        pair_recovers=value.pair_recovers and _recovery(value.pair_recovers),
        all_recovers=_recovery(value.all_recovers),
        shares_ns={term: ns(share_ns) for term, share_ns in sorted(value.shares_ns.items())},
    )


def _driver(value: Driver) -> Json:
    return known(
        name=value.name,
        n=value.n,
        rank_correlation=value.rank_correlation,
        correlation_interval=list(value.correlation_interval),
        level=value.level,
        effect_ns=ns(value.effect_ns),
        effect_interval_ns=_ends(value.effect_interval_ns),
        counted=value.counted,
        explains=value.explains,
    )


def _slice(value: Slice) -> Json:
    return known(
        dimension=value.dimension,
        value=value.value,
        n=value.n,
        share=value.share,
        tail_share=value.tail_share,
        lift=value.lift,
        p_value=value.p_value,
        level=value.level,
        effect_ns=ns(value.effect_ns),
        effect_interval_ns=_ends(value.effect_interval_ns),
        compared=value.compared,
        why=value.why,
    )


def _shift(value: Shift) -> Json:
    return known(
        dimension=value.dimension,
        old=value.old,
        new=value.new,
        n_old=value.n_old,
        n_new=value.n_new,
        level=value.level,
        old_ns=ns(value.old_ns),
        new_ns=ns(value.new_ns),
        version_ns=ns(value.version_ns),
        version_interval_ns=_ends(value.version_interval_ns),
        shape_ns=ns(value.shape_ns),
        shape_interval_ns=_ends(value.shape_interval_ns),
        compared=value.compared,
    )


def _blame(value: Blame) -> Json:
    return known(owner=value.owner, over_ns=value.over_ns, share=value.share, entries=ordered(value.entries))


def _burn(value: Burn) -> Json:
    return known(owner=value.owner, rates=ordered(value.rates), alert=value.alert)


def _duty(value: Duty) -> Json:
    return known(
        period_ns=value.period_ns,
        periods=value.periods,
        over=value.over,
        worst_ns=ns(value.worst_ns),
        misses=value.misses,
    )


def _failing(value: Failing) -> Json:
    return known(
        share=value.share,
        outcomes=ordered(value.outcomes),
        from_level=value.from_level,
        parts=[
            {
                "dimension": part.dimension,
                "value": part.value,
                "n": part.n,
                "failed_share": part.failed_share,
                "of_failures": part.of_failures,
            }
            for part in value.parts
        ],
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
