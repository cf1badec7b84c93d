"""From reports to a gate: which moments hold their budget, which became slower, and which entry is to blame.

Nothing here is decided on a number alone: a budget's verdict comes from the report, a comparison's from `compare`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from outlay.accounts import Accounts
from outlay.baseline import Baseline, MomentBaseline, kept
from outlay.budget import Budget
from outlay.compare import Comparison, Tolerance, compare
from outlay.explain.gather import Gathering, MomentCohorts
from outlay.generator import DEGRADED, INVALID
from outlay.quantiles import FAIL, PASS, UNDECIDED
from outlay.report import MomentReport, Percentile, Report, Row, Source

REFUSED = "REFUSED"

# Worst first. A refused one comes before a failed one: nobody knows what it would have been.
STATES = (REFUSED, FAIL, UNDECIDED, PASS)

# Without a budget, the percentile that runs are held against each other by.
LEVEL = 99.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Offender:
    """The entry to blame for a tail: what it takes there, what of that the tail adds, by how much it is over its share.

    `over_ns` None: it has no share of the budget, or keeps to it.
    """

    entry: str
    tail_ns: int
    excess_ns: int
    over_ns: int | None = None
    owner: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """One moment at the gate. `state` is one of STATES, the worse of budget and baseline; None: nothing was asked.

    `why` says so in words, `more` how many further interactions could decide. `offender` is there where some that were
    served are over the limit. `percentile` is the budget's own where
    the report has it, else the p99. `against` compares with the baseline; None without one. `degraded` says why the
    load was not wholly VALID; None where it was, or is not known.
    """

    moment: str
    state: str | None
    why: str
    more: int | None = None
    n: int | None = None
    budget: Budget | None = None
    budget_state: str | None = None
    percentile: Percentile | None = None
    offender: Offender | None = None
    against: Comparison | None = None
    degraded: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """The answer of `outlay check`, worst moment first."""

    sources: tuple[Source, ...]
    moments: tuple[Checked, ...]

    @property
    def state(self) -> str:
        """The worst state; PASS when nothing was asked of any moment."""
        found = {moment.state for moment in self.moments}
        return next((state for state in STATES if state in found), PASS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """One moment of two runs. `comparison` None: there is none, and `why` says it; `refused`: a load did not count."""

    moment: str
    comparison: Comparison | None = None
    why: str | None = None
    refused: bool = False


# At the gate


def check(
    gathering: Gathering, report: Report, baseline: Baseline | None = None, tolerance: Tolerance | None = None
) -> Gate:
    """Every moment that the data, the budget or the baseline names; `report` is that of `gathering`."""
    asked, before = gathering.question, baseline or {}
    budgets = {moment.name: moment.budget for moment in asked.moments if moment.budget is not None}
    reports = {moment.moment: moment for moment in report.moments if moment.moment in gathering.moments}
    names = [name for name in sorted({*budgets, *reports, *before}) if asked.only in (None, name)]
    checked = [
        _checked(gathering.moments[name], reports[name], before.get(name), tolerance)
        if name in reports
        else _absent(name, budgets.get(name))
        for name in names
    ]
    checked = [replace(moment, degraded=_degraded(moment.moment, report)) for moment in checked]
    return Gate(sources=report.sources, moments=tuple(sorted(checked, key=_severity)))


def _degraded(moment: str, report: Report) -> str | None:
    reasons = [
        reason.text
        for load in report.loads
        if load.moment == moment and load.verdict.state == DEGRADED
        for reason in load.verdict.reasons
    ]
    return reasons[0] if reasons else None


def _severity(moment: Checked) -> tuple[int, str]:
    return STATES.index(moment.state) if moment.state else len(STATES), moment.moment


def _absent(name: str, budget: Budget | None) -> Checked:
    why = "the data holds no interaction of it"
    return Checked(moment=name, state=UNDECIDED, why=why, budget=budget, budget_state=UNDECIDED if budget else None)


def _checked(
    cohorts: MomentCohorts, found: MomentReport, before: MomentBaseline | None, tolerance: Tolerance | None
) -> Checked:
    budget, verdict = found.budget, found.verdict
    if found.validity == "invalid":
        why = found.validity_why or "its load was INVALID"
        return Checked(moment=found.moment, state=REFUSED, why=why, n=found.n, budget=budget)
    against = None if before is None else _against(cohorts, before, budget, tolerance)
    budget_state, why = _budget_state(found)
    # Of those that failed there is no account: nothing in it can be to blame for them.
    failed = sum(count for outcome, count in found.outcomes.items() if outcome != "ok")
    late = found.on_time.over - failed if found.on_time else 0
    states = {budget_state, against.state if against else None}
    return Checked(
        moment=found.moment,
        state=next((state for state in STATES if state in states), None),
        why=f"{why}; {failed:,} failed" if failed and budget else why,
        more=verdict.more if verdict and budget_state == UNDECIDED else None,
        n=found.n,
        budget=budget,
        budget_state=budget_state,
        percentile=_percentile(found, _level(budget)),
        offender=offender(found) if late else None,
        against=against,
    )


def _budget_state(found: MomentReport) -> tuple[str | None, str]:
    """The verdict on the budget and why: where there are duty periods, one interaction over the limit fails them."""
    verdict, duty = found.verdict, found.duty
    if verdict is None:
        return None, "no budget"
    if duty is None or not duty.over:
        return verdict.state, verdict.why
    return FAIL, f"{duty.over:,} of {duty.periods:,} duty periods held one over the limit; {verdict.why}"


def _level(budget: Budget | None) -> float:
    return budget.percentile if budget else LEVEL


def _percentile(found: MomentReport, level: float) -> Percentile | None:
    by_level = {percentile.level: percentile for percentile in found.total}
    return by_level.get(level, by_level.get(LEVEL))


def _against(
    cohorts: MomentCohorts, before: MomentBaseline, budget: Budget | None, tolerance: Tolerance | None
) -> Comparison:
    return compare(
        before.rows,
        cohorts.rows.accounts(),
        level=_level(budget),
        limit_ns=budget.limit_ns if budget else None,
        tolerance=tolerance,
        a_is_stored=True,
    )


def offender(found: MomentReport) -> Offender | None:
    """The entry to look at first: of the share that is exceeded most its largest, else what the tail adds most of.

    Where even a typical interaction is over the limit, the tail adds nothing worth naming, and it is the entry that
    takes most. None without an account.
    """
    if not found.account or not found.tail_ns:
        return None
    budget = found.budget
    over_ns, rows = _most_over(found.account, budget) if budget and budget.shares else (0, ())
    if over_ns > 0:
        return _offender(max(rows, key=lambda row: row.tail_ns), over_ns)
    late = budget is not None and found.typical_ns is not None and found.typical_ns > budget.limit_ns
    largest = max(found.account, key=lambda row: (row.tail_ns if late else row.excess_ns, row.tail_ns))
    return _offender(largest, None)


def _offender(row: Row, over_ns: int | None) -> Offender:
    return Offender(entry=row.entry, tail_ns=row.tail_ns, excess_ns=row.excess_ns, over_ns=over_ns, owner=row.owner)


def _most_over(rows: Sequence[Row], budget: Budget) -> tuple[int, Sequence[Row]]:
    """By how much the share that is exceeded most is, and its rows; what no share names draws on what is left over."""
    limits_ns = [*(share.limit_ns for share in budget.shares), budget.unassigned_ns]
    drawn: list[list[Row]] = [[] for _ in limits_ns]
    for row in rows:
        share = budget.share_of(row.entry)
        drawn[-1 if share is None else budget.shares.index(share)].append(row)
    over = [
        (sum(row.tail_ns for row in some) - limit_ns, place)
        for place, (some, limit_ns) in enumerate(zip(drawn, limits_ns, strict=True))
        if some and limit_ns is not None
    ]
    over_ns, place = max(over, default=(0, 0))
    return over_ns, drawn[place]


# Baselines and two runs


def baseline_of(gathering: Gathering) -> dict[str, MomentBaseline]:
    """What to store of everything gathered: of each moment of which something was measured."""
    made = {}
    for name, cohorts in gathering.moments.items():
        whole = cohorts.everything
        if whole.measured:
            made[name] = MomentBaseline(
                moment=name,
                started=whole.started,
                outcomes=dict(whole.outcomes),
                sketch=whole.sketch,
                rows=kept(cohorts.rows.accounts()),
            )
    return made


def invalid_moments(gathering: Gathering) -> tuple[str, ...]:
    """The moments under a load that was INVALID: nothing may be said of them, or kept."""
    found = {load.moment for load in gathering.loads if load.verdict.state == INVALID}
    return tuple(sorted(name for name in gathering.moments if name in found))


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One side of a comparison: the rows of each moment, and the moments that may not be compared.

    `stored`: a baseline, which no further interactions will join.
    """

    rows: Mapping[str, Accounts]
    invalid: tuple[str, ...] = ()
    stored: bool = False


def run_of(gathering: Gathering) -> Run:
    """Everything gathered, as a side of a comparison."""
    rows = {name: cohorts.rows.accounts() for name, cohorts in gathering.moments.items()}
    return Run(rows=rows, invalid=invalid_moments(gathering))


def stored_run(baseline: Baseline, only: str | None = None) -> Run:
    """A baseline, or one moment of it, as a side of a comparison."""
    rows = {name: moment.rows for name, moment in baseline.items() if only in (None, name)}
    return Run(rows=rows, stored=True)


def compare_runs(
    a: Run, b: Run, budgets: Mapping[str, Budget], tolerance: Tolerance | None = None
) -> tuple[Compared, ...]:
    """Every moment that either run holds, by name."""
    return tuple(_compared(name, a, b, budgets.get(name), tolerance) for name in sorted({*a.rows, *b.rows}))


def _compared(name: str, a: Run, b: Run, budget: Budget | None, tolerance: Tolerance | None) -> Compared:
    for which, run in (("A", a), ("B", b)):
        if name in run.invalid:
            return Compared(moment=name, why=f"the load of {which} was INVALID", refused=True)
        if name not in run.rows:
            return Compared(moment=name, why=f"{which} holds no interaction of it")
    made = compare(
        a.rows[name],
        b.rows[name],
        level=_level(budget),
        limit_ns=budget.limit_ns if budget else None,
        tolerance=tolerance,
        a_is_stored=a.stored and not b.stored,
    )
    return Compared(moment=name, comparison=made)
