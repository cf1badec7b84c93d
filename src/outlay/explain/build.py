"""Cohorts to a report: percentiles with intervals, verdicts, and the account of the typical and of the tail."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from outlay.account import path_of
from outlay.accounts import Accounts
from outlay.attribution import Group
from outlay.budget import Budget
from outlay.change import Change
from outlay.cohort import Cohort
from outlay.explain.gather import REPLAYED, Gathering, MomentCohorts, sample_weight
from outlay.explain.tail import explain_table
from outlay.generator import INVALID
from outlay.load import Bound, Load
from outlay.quantiles import coverage_bounds, effective_n, rank_interval, share_interval, smallest_n, verdict
from outlay.replay import Replay, compile_replay
from outlay.report import (
    Bin,
    CohortRow,
    Health,
    ModelGap,
    MomentReport,
    OnTime,
    Percentile,
    Report,
    Segment,
    Slow,
    Source,
    Verdict,
)
from outlay.sketch import nearest_rank
from outlay.stages import is_model_time, may_hold_model_time
from outlay.units import format_duration

LEVELS = (50.0, 95.0, 99.0)

BINS = 60


def build_report(gathering: Gathering, sources: Sequence[Source], asked: Sequence[tuple[Change, ...]] = ()) -> Report:
    """Everything gathered, as values to draw. Moments come in order of name, and so do loads.

    `asked` are what-ifs beside those of the findings. Raises ValueError for what-ifs that no moment can be asked.
    """
    loads = sorted(gathering.loads, key=lambda load: (load.moment or "", _natural(load.name), load.tool))
    moments: list[MomentReport] = []
    refused: list[str] = []
    for name, cohorts in sorted(gathering.moments.items()):
        moment, why = _moment(cohorts, gathering, asked)
        under = [load for load in loads if load.moment == name]
        moments.append(_allowed(moment, under, gathering.question.where))
        refused += why
    if refused and not any(moment.what_ifs for moment in moments):
        raise ValueError(refused[0])
    if gathering.general.troubles:
        # Troubles of the input as a whole stand with the first moment, or alone when nothing was measured.
        general = _health(gathering.general)
        first = moments[0] if moments else _moment(MomentCohorts(gathering.general.moment, 0), gathering, ())[0]
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


def _moment(
    cohorts: MomentCohorts, gathering: Gathering, asked: Sequence[tuple[Change, ...]]
) -> tuple[MomentReport, tuple[str, ...]]:
    """The moment, and why what-ifs cannot be replayed in it."""
    whole, budget = cohorts.everything, cohorts.moment.budget
    whole.fold()
    worth = _worth(whole)
    accounts = cohorts.rows.accounts()
    if accounts.complete and not whole.sampled:
        whole.know(accounts.total_ns[accounts.served])
    total = tuple(_percentile(whole, level, worth, served_only=False) for level in LEVELS)
    refused = [percentile.why for percentile in total if percentile.why is not None]
    served: tuple[Percentile, ...] = ()
    if whole.sketch.failed:
        served = tuple(_percentile(whole, level, worth, served_only=True) for level in LEVELS)
    tail = explain_table(accounts, cohorts.moment, _replay(cohorts, accounts), asked)
    crowded: tuple[Health, ...] = ()
    if tail.crowded:
        text = f"{tail.crowded} rows; unattributed edges are summed by component"
        crowded = (Health(kind="too-many-rows", count=tail.crowded, example=text),)
    made = MomentReport(
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
        typical_ns=tail.typical.total_ns,
        typical_label=tail.typical.label,
        tail_ns=tail.fills.total_ns,
        tail_label=tail.fills.label,
        account=tail.rows,
        typical_gap=_gap(tail.typical),
        tail_gap=_gap(tail.fills),
        bins=tuple(Bin(low_ns=low, high_ns=high, count=count) for low, high, count in whole.sketch.bins(BINS)),
        cohorts=_cohort_rows(cohorts, gathering.question.by),
        slowest=tuple(_slow(cohorts)),
        health=_merged(_health(cohorts), crowded),
        effective_n=worth,
        sets=tail.sets,
        findings=tail.findings,
        fine=tail.fine,
        together=tail.together,
        what_ifs=tail.what_ifs,
        drivers=tail.drivers,
        slices=tail.slices,
        shifts=tail.shifts,
        blame=tail.blame,
        burn=tail.burn,
        duty=tail.duty,
        failing=tail.failing,
    )
    return made, tail.refused


def _replay(cohorts: MomentCohorts, accounts: Accounts) -> Replay | None:
    """The interactions that were kept whole, each for as many as its kind was drawn from; the failed ones beside them.

    None where none was kept.
    """
    kept = cohorts.structures.items()
    threshold = kept[REPLAYED].key if len(kept) > REPLAYED else 0
    kept = kept[:REPLAYED]
    if not kept:
        return None
    items = [(each.account.interaction, each.offsets) for each in kept]
    # One is kept with the probability that its weight is of the threshold.
    weights = np.array(
        [each.account.interaction.weight * max(1.0, threshold / sample_weight(each.account)) for each in kept]
    )
    served = float(accounts.weights[accounts.served].sum())
    failed = Replay.serial(accounts.select(np.flatnonzero(~accounts.served)))
    return compile_replay(items, weights * (served / weights.sum())).plus(failed)


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
        sets=None,
        findings=(),
        fine=(),
        together=None,
        what_ifs=(),
        drivers=(),
        slices=(),
        shifts=(),
        blame=(),
        burn=(),
        duty=None,
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
    """How many independent interactions the served ones are worth, from how the slow ones cluster in time.

    None without any, and where the data does not say when they began: then nothing can be seen of bursts.
    """
    n, kept = cohort.arrivals.count, cohort.slowest.items()
    if not n:
        return None
    slow = kept[: max(1, n - _rank(0.99, n))]
    if len(kept) == n:
        # Kept are the slowest first, so the first of them are `slow`.
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
    return effective_n(exceeded) * cohort.observed / cohort.rows


def _percentile(cohort: Cohort, level: float, worth: float | None, *, served_only: bool) -> Percentile:
    n = cohort.sketch.served if served_only else cohort.sketch.count
    q = level / 100
    needed, seen = smallest_n(q), _seen(cohort, n)
    if seen < needed:
        return Percentile(
            level=level, value_ns=None, why=f"p{level:g} needs {needed} interactions, there are {seen:.0f}"
        )
    ranks = rank_interval(n, q, effective_n=_served_worth(cohort, worth) if served_only else _all_worth(cohort, worth))
    if ranks is None:
        why = f"p{level:g} needs more than {seen:.0f} interactions for an interval"
        return Percentile(level=level, value_ns=None, why=why)
    low, high = ranks
    at_high = None if high is None else cohort.value_at_rank(high, served_only=served_only)
    return Percentile(
        level=level,
        value_ns=cohort.value_at_rank(_rank(q, n), served_only=served_only),
        interval_ns=(cohort.value_at_rank(low, served_only=served_only), at_high),
        coverage_ns=None if served_only else _coverage(cohort, q),
    )


def _seen(cohort: Cohort, n: int) -> float:
    """As how many interactions of equal weight those that stand for `n` count."""
    return n if not cohort.sampled else cohort.observed * n / cohort.measured


def _coverage(cohort: Cohort, q: float) -> tuple[float | None, float | None] | None:
    """Between what times the percentile of all that were started lies; None where all of them were measured."""
    n = cohort.sketch.count
    if n == cohort.started:
        return None
    low, high = coverage_bounds(q, n / cohort.started)
    return (
        None if low is None else cohort.value_at_rank(_rank(low, n)),
        None if high is None else cohort.value_at_rank(_rank(high, n)),
    )


def _rank(q: float, n: int) -> int:
    """The rank of a quantile among at least one value."""
    return nearest_rank(q, n) or 1


def _all_worth(cohort: Cohort, worth: float | None) -> float:
    """What all measured interactions are worth; failures are taken to cluster as the slow ones do."""
    n, served = cohort.sketch.count, cohort.sketch.served
    return _seen(cohort, n) if worth is None or not served else min(_seen(cohort, n), worth / served * n)


def _served_worth(cohort: Cohort, worth: float | None) -> float:
    return _seen(cohort, cohort.sketch.served) if worth is None else worth


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


def _gap(group: Group) -> ModelGap | None:
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
        rows.append(
            CohortRow(
                key=dict(zip(by, key, strict=True)),
                n=cohort.measured,
                p50=_percentile(cohort, 50.0, worth, served_only=False),
                p99=_percentile(cohort, 99.0, worth, served_only=False),
                on_time=_on_time(cohort, budget, worth),
                leading=_leading(cohort, budget),
            )
        )
    return tuple(sorted(rows, key=lambda row: (-row.n, [(value is None, value or "") for value in row.key.values()])))


def _leading(cohort: Cohort, budget: Budget | None) -> str | None:
    """The entry that took the most time of the slowest interactions; None without any."""
    n = cohort.sketch.served
    sums: Counter[str] = Counter()
    for record in cohort.slowest.items()[: n - _rank((budget.percentile if budget else 99.0) / 100, n) + 1]:
        for name, duration in record.entries:
            sums[name] += record.weight * duration
    return max(sums, key=lambda name: (sums[name], name), default=None)


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
