"""The tail of one moment, explained: who fills it and who sets it, what to change, what goes with it, who answers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from outlay.accounts import Accounts, sampled, without_edges
from outlay.allocation import allocate
from outlay.attribution import TYPICAL_BAND, Attribution, Group, attribute
from outlay.budget import Budget, Moment
from outlay.burn import burn, duty
from outlay.change import Change
from outlay.drivers import drivers, queue_depth
from outlay.explain.evidence import Scene
from outlay.explain.failing import failing
from outlay.explain.findings import findings, levels_for
from outlay.overrun import blame
from outlay.quantiles import smallest_n
from outlay.replay import Replay
from outlay.report import (
    Blame,
    Burn,
    Driver,
    Duty,
    Failing,
    Finding,
    Fine,
    Row,
    Sets,
    Shift,
    Slice,
    Together,
    WhatIf,
)
from outlay.shifts import shifts
from outlay.sketch import nearest_rank
from outlay.slices import slices
from outlay.stages import term_of
from outlay.whatif import what_if

# Span names with ids in them make an edge each; beyond so many rows, edges nobody named are told by component only.
MOST_ROWS = 200

# What is replayed of columns alone: so many rows, the slow ones more often than the others.
REPLAYED = 16_384


@dataclass(frozen=True, slots=True, kw_only=True)
class Tail:
    """The parts of a `MomentReport` that need the interactions side by side.

    `refused` says why what-ifs that were asked for cannot be replayed here; `crowded` counts rows where too many.
    """

    typical: Group
    fills: Group
    rows: tuple[Row, ...]
    sets: Sets | None
    findings: tuple[Finding, ...]
    fine: tuple[Fine, ...]
    together: Together | None
    what_ifs: tuple[WhatIf, ...]
    drivers: tuple[Driver, ...]
    slices: tuple[Slice, ...]
    shifts: tuple[Shift, ...]
    blame: tuple[Blame, ...]
    burn: tuple[Burn, ...]
    duty: Duty | None
    failing: Failing | None
    refused: tuple[str, ...] = ()
    crowded: int = 0


def explain_table(
    accounts: Accounts, moment: Moment, replay: Replay | None = None, asked: Sequence[tuple[Change, ...]] = ()
) -> Tail:
    """Everything that the columns of a moment's accounts say of its tail.

    `replay` holds the structure of the interactions, or of a sample of them; without it they are taken as one entry
    after the other. `asked` are what-ifs beside those of the findings.
    """
    budget = moment.budget
    level = budget.percentile if budget else 99.0
    crowded = len(accounts.entries) if len(accounts.entries) > MOST_ROWS else 0
    accounts = without_edges(accounts) if crowded else accounts
    found = attribute(accounts, level)
    rows = _rows(found, budget)
    replay = replay if replay is not None else Replay.serial(sampled(accounts, REPLAYED))
    scene = _scene(accounts, level)
    answer, fine, together = findings(rows, scene, replay)
    levels = levels_for(accounts)
    what_ifs, refused = _asked(replay, asked, levels)
    shares_ns = _shares(accounts, budget)
    enough = len(accounts) >= smallest_n(0.95)
    return Tail(
        typical=found.typical,
        fills=found.fills,
        rows=rows,
        sets=_sets(found),
        findings=answer,
        fine=fine,
        together=together,
        what_ifs=what_ifs,
        refused=refused,
        drivers=drivers(accounts, level) if enough else (),
        slices=slices(accounts, level) if enough else (),
        shifts=shifts(accounts, level) if enough else (),
        blame=blame(accounts, budget, shares_ns) if budget else (),
        burn=burn(accounts, budget, shares_ns) if budget else (),
        duty=duty(accounts, budget, budget.duty_period_ns) if budget and budget.duty_period_ns else None,
        failing=failing(accounts),
        crowded=crowded,
    )


def _asked(
    replay: Replay, asked: Sequence[tuple[Change, ...]], levels: Sequence[float]
) -> tuple[tuple[WhatIf, ...], tuple[str, ...]]:
    """What each would recover, and why others cannot be replayed: one moment need not have what another has."""
    found, refused = [], []
    for changes in asked:
        try:
            found.append(what_if(replay, changes, levels))
        except ValueError as error:
            refused.append(str(error))
    return tuple(found), tuple(refused)


def _rows(found: Attribution, budget: Budget | None) -> tuple[Row, ...]:
    rows = []
    for name in {**found.typical.entries, **found.fills.entries, **found.sets.entries}:
        share = budget.share_of(name) if budget else None
        rows.append(
            Row(
                entry=name,
                term=term_of(name),
                # A group without the entry spent no time there: a true zero, as the group's rows sum to its total.
                typical_ns=found.typical.entries.get(name, 0),
                tail_ns=found.fills.entries.get(name, 0),
                budget_ns=share.limit_ns if share else None,
                owner=share.owner if share else None,
                tail_interval_ns=_whole(found.fills.intervals_ns.get(name)),
                excess_interval_ns=_whole(found.excess.intervals_ns.get(name)),
                sets_ns=None if found.sets.total_ns is None else found.sets.entries.get(name, 0),
                sets_interval_ns=_whole(found.sets.intervals_ns.get(name)),
            )
        )
    return tuple(sorted(rows, key=lambda row: (-row.excess_ns, -row.tail_ns, row.entry)))


def _whole(interval_ns: tuple[float, float] | None) -> tuple[float, float] | None:
    """To the nanosecond: what never varies should not show the rounding of floats."""
    return None if interval_ns is None else (float(round(interval_ns[0])), float(round(interval_ns[1])))


def _sets(found: Attribution) -> Sets | None:
    sets = found.sets
    if found.fills.total_ns is None:
        return None
    return Sets(level=found.level, total_ns=sets.total_ns, n=sets.n, scale=sets.scale, why=sets.why)


def _scene(accounts: Accounts, level: float) -> Scene:
    """Which rows are slow, and which are typical: by rank among the served."""
    served = np.flatnonzero(accounts.served)
    ordered = served[np.argsort(accounts.total_ns[served], kind="stable")]
    n = len(ordered)
    nothing: NDArray[np.intp] = np.zeros(0, dtype=np.intp)
    rank = nearest_rank(level / 100, n)
    if rank is None:
        return Scene(accounts=accounts, slow=nothing, typical=nothing)
    low, high = (int(share * (n - 1)) for share in TYPICAL_BAND)
    return Scene(
        accounts=accounts, slow=ordered[rank - 1 :], typical=ordered[low : high + 1], depth=queue_depth(accounts)
    )


def _shares(accounts: Accounts, budget: Budget | None) -> Mapping[str, int]:
    """What each group may spend: its declared share, or its part of what those leave; that is 0 where none can tell."""
    if budget is None:
        return {}
    try:
        return allocate(accounts, budget).shares_ns
    except ValueError:  # too few for the budget's percentile
        return {}
