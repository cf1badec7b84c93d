"""Terms to findings: what to attack first, what shows it, who does it, and what p99 that gives back.

Each finding is one change that is replayed: what is avoidable of a term is what its percentiles lose. Terms are not
ranked by their size, because not all of it can be saved, and not all that is saved is waited for.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from outlay.accounts import Accounts
from outlay.change import parse_change
from outlay.explain.evidence import SETUP, SETUP_PARTS, Scene, evidence, rows_of
from outlay.interaction import SITE
from outlay.quantiles import smallest_n
from outlay.replay import Replay
from outlay.report import Finding, Fine, Row, Together, WhatIf
from outlay.stages import TERMS, USER_COMPONENT, split_entry
from outlay.units import NS_PER_MS
from outlay.whatif import together, what_if

LEVELS = (50.0, 95.0, 99.0)

# Fewer interactions than this show no tail.
FEWEST = 20
# A term below both, or below the second alone when it is far below, is no place to start.
_SMALL_NS, _SMALL_SHARE, _TINY_SHARE = 5 * NS_PER_MS, 0.05, 0.01
# What gives back less of the percentile is not worth a finding.
_WORTH = 0.005
# Savings of so many findings are split fairly; more would say little of each.
_SPLIT = 6

_KEEP_WARM = "keep connections warm: reuse them, resume TLS, prefetch names"


@dataclass(frozen=True, slots=True)
class _Option:
    """One way to avoid a term: what is replayed, the fix in words, and what there is to show for it."""

    changes: tuple[str, ...]
    fix: str
    about: str


# What can be avoided of a term. A queue, a hop, a broker and a set wait can go; of a model, a device and time that
# nobody named, only what lies above their own medians is taken to be avoidable.
_AVOIDABLE = {
    "api hop": "0",
    "broker": "0",
    "routing": "0",
    "queueing": "0",
    "variability": "0",
    "model": "p50",
    "device": "p50",
    "setting": "0",
    "unattributed": "p50",
}
COLD_START = "cold start"
_FIX = {term.name: term.fix for term in TERMS}


def levels_for(accounts: Accounts) -> tuple[float, ...]:
    """The percentiles that so many show, and that failures have not turned into never; the p50 whatever they show."""
    failed = float(accounts.weights[~accounts.served].sum()) / max(accounts.count, 1.0)
    n = len(accounts)
    return LEVELS[:1] + tuple(
        level for level in LEVELS[1:] if n >= smallest_n(level / 100) and failed < 1 - level / 100
    )


def findings(
    rows: Sequence[Row], scene: Scene, replay: Replay
) -> tuple[tuple[Finding, ...], tuple[Fine, ...], Together | None]:
    """The findings in order of what they recover, the terms that are fine, and what several changes do together.

    Empty below 20 interactions. What is recovered is told at p50, p95 and p99 as far as the sample shows them, and
    ordered by the highest.
    """
    total_ns = sum(row.tail_ns for row in rows)
    if len(scene.accounts) < FEWEST or not total_ns:
        return (), (), None
    levels = levels_for(scene.accounts)
    found, fine = [], []
    for term in TERMS:
        own = rows_of(term.name, rows) or _declared_cold(term.name, rows, scene)
        if not own:
            continue
        typical_ns, tail_ns = sum(row.typical_ns for row in own), sum(row.tail_ns for row in own)
        if is_small(tail_ns, total_ns):
            fine.append(Fine(term=term.name, typical_ns=typical_ns, tail_ns=tail_ns))
            continue
        for option in _options(term.name, own, scene):
            recovered = _recovered(replay, option, levels)
            if recovered is not None and _is_worth(recovered):
                found.append(_finding(term.name, own, option, recovered, scene))
    found.sort(key=lambda finding: (-finding.what_if.recovers[-1].saved_ns, finding.term))
    best = _one_a_term(found)[:_SPLIT]
    combined = None
    if len(best) > 1:
        named = {finding.term: tuple(map(parse_change, finding.what_if.changes)) for finding in best}
        combined = together(replay, named, levels[-1])
    return tuple(found), tuple(fine), combined


def _declared_cold(term: str, rows: Sequence[Row], scene: Scene) -> list[Row]:
    """Cold starts that only a label tells: what the cold ones took more than the median of the warm, in the tail.

    It stands for them under the largest row, whose time it is a part of. Empty where there are not both.
    """
    starts = scene.accounts.dimensions.get("start")
    if term != COLD_START or starts is None or not len(scene.slow):
        return []
    served, total_ns = scene.accounts.served, scene.accounts.total_ns
    warm, cold = served & starts.is_("warm"), starts.is_("cold")
    if not (warm.any() and cold[scene.slow].any()):
        return []
    more_ns = np.where(cold, np.maximum(total_ns - np.median(total_ns[warm]), 0), 0)
    largest = max(rows, key=lambda row: (row.tail_ns, row.entry))
    return [replace(largest, term=term, typical_ns=0, tail_ns=round(float(more_ns[scene.slow].mean())))]


def is_small(tail_ns: float, total_ns: float) -> bool:
    """Whether a term is so small in the tail that work on it gives nothing back."""
    share = tail_ns / total_ns
    return share < _TINY_SHARE or (tail_ns < _SMALL_NS and share < _SMALL_SHARE)


def _is_worth(recovered: WhatIf) -> bool:
    return any(each.saved_ns > _WORTH * each.before_ns for each in recovered.recovers if np.isfinite(each.before_ns))


def _recovered(replay: Replay, option: _Option, levels: Sequence[float]) -> WhatIf | None:
    """What the option gives back; None where none of the replayed interactions has what it changes."""
    try:
        return what_if(replay, tuple(map(parse_change, option.changes)), levels)
    except ValueError:
        return None


def _one_a_term(found: Sequence[Finding]) -> list[Finding]:
    """The best finding of each term: two ways to avoid the same time are not done together."""
    first: dict[str, Finding] = {}
    for finding in found:
        first.setdefault(finding.term, finding)
    return list(first.values())


def _finding(term: str, rows: Sequence[Row], option: _Option, recovered: WhatIf, scene: Scene) -> Finding:
    largest = max(rows, key=lambda row: (row.tail_ns, row.entry))
    return Finding(
        term=term,
        entry=largest.entry,
        typical_ns=sum(row.typical_ns for row in rows),
        tail_ns=sum(row.tail_ns for row in rows),
        fix=option.fix,
        evidence=evidence(option.about, rows, scene),
        what_if=recovered,
        owner=next((row.owner for row in sorted(rows, key=lambda row: -row.tail_ns) if row.owner), None),
    )


def _options(term: str, rows: Sequence[Row], scene: Scene) -> Iterator[_Option]:
    if term == "geography":
        yield from _nearer(rows, scene)
    elif term == COLD_START:
        yield _Option(("start=warm",), _FIX[term], term)
    else:
        yield _Option((f"{term}={_AVOIDABLE[term]}",), _FIX[term], term)


def _nearer(rows: Sequence[Row], scene: Scene) -> Iterator[_Option]:
    """Fewer round trips, or shorter ones: connections kept warm, or the nearest site that was measured."""
    setup = tuple(
        f"{USER_COMPONENT}/{part}=0"
        for part in SETUP_PARTS
        if any(row.entry == f"{USER_COMPONENT}/{part}" and row.tail_ns for row in rows)
    )
    if setup:
        yield _Option(setup, _KEEP_WARM, SETUP)
    nearest = _nearest(rows, scene.accounts, scene)
    if nearest is not None:
        stages = sorted({split_entry(row.entry)[1].partition(".")[0] for row in rows})
        changes = tuple(f"{USER_COMPONENT}/{stage}={SITE}:{nearest}" for stage in stages)
        yield _Option(changes, f"serve everybody as from {nearest}, the nearest site that was measured", "geography")


def _nearest(rows: Sequence[Row], accounts: Accounts, scene: Scene) -> str | None:
    """The site with the shortest network time; None where there are not two to compare."""
    sites = accounts.dimensions.get(SITE)
    if sites is None:
        return None
    took = scene.entry_ns(rows)
    medians = {
        name: float(np.median(took[accounts.served & (sites.codes == place)]))
        for place, name in enumerate(sites.values)
        if (accounts.served & (sites.codes == place)).sum() >= smallest_n(0.95)
    }
    return min(medians, key=lambda name: (medians[name], name)) if len(medians) > 1 else None
