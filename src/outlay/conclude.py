"""What the tallies of a run come to: the verdict on its load first, then what that verdict allows to be said."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from outlay.cold import COLD, WARM, ClassEffect, with_and_without
from outlay.generator import INVALID
from outlay.hops import hop_costs
from outlay.load import Load
from outlay.measurement import EngineSeen, Measurement, Point
from outlay.network import summarise
from outlay.observed import Instant, Observed
from outlay.tally import (
    END_TO_END,
    RESPONSES,
    Clock,
    Part,
    SenderHealth,
    Tally,
    bounds,
    load_of,
    on_time,
    refused,
    responses,
)

# Of many reasons for failure so many are told.
REASONS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    """What is known of a run beside its requests.

    Instants are of the run's own clock, `clock` says which it is shown on. `rate` is what was asked for, per second;
    `within_ns` the limit that `until` counts to; `rounds` are, for several points, what each round took at each.
    """

    plan: str
    moment: str
    begun_ns: int
    rate: float | None
    health: SenderHealth
    clock: Clock
    until: Instant
    parts: tuple[Part, ...] = ()
    within_ns: int | None = None
    dimensions: Mapping[str, str] = field(default_factory=dict)
    rounds: Sequence[Mapping[str, int | None]] = ()
    stopped: bool = False
    notes: Mapping[str, int] = field(default_factory=dict)
    engine: EngineSeen | None = None


def measurement_of(
    points: Mapping[str, tuple[str, Tally]], facts: RunFacts, rng: np.random.Generator
) -> Measurement | None:
    """The measurement of all points, each by name with its address; None when no request came back.

    `rng` draws what the intervals of the hops rest on.
    """
    tallies = [tally for _, tally in points.values()]
    requests = sorted((seen for tally in tallies for seen in tally.requests), key=lambda seen: seen.intended_ns)
    if not requests:
        return None
    loads = _loads(requests, tallies, facts)
    invalid = loads[0].verdict.state == INVALID
    warm_up = sorted(took_ns for tally in tallies for took_ns in tally.warm_up)
    return Measurement(
        plan=facts.plan,
        loads=loads,
        points=tuple(_point(name, address, tally, invalid=invalid) for name, (address, tally) in points.items()),
        hops=() if invalid or len(points) < 2 else hop_costs(facts.rounds, tuple(points), rng),
        cold=() if invalid else _cold(requests),
        engine=facts.engine,
        on_time=None if invalid or facts.within_ns is None else on_time(requests, facts.until, facts.within_ns),
        within_ns=facts.within_ns,
        warm_up=len(warm_up),
        warm_up_p50_ns=warm_up[(len(warm_up) - 1) // 2] if warm_up else None,
        stopped=facts.stopped,
        notes=facts.notes,
    )


def _loads(requests: Sequence[Observed], tallies: Sequence[Tally], facts: RunFacts) -> tuple[Load, ...]:
    """The load of the whole run, with the server's silences, then of each of its stages."""
    whole = load_of("", requests, facts.health, moment=facts.moment, rate=facts.rate, clock=facts.clock)
    found = sorted((stall for tally in tallies for stall in tally.silences()), key=lambda stall: stall.from_ns)
    begin_ns = facts.begun_ns + facts.clock.shift_ns
    silent = [stall for stall in found if not facts.health.stood_still(stall)]
    loads = [replace(whole, silences=facts.clock.stalls(silent))]
    for part in facts.parts:
        some = [seen for seen in requests if part.from_ns <= seen.intended_ns - facts.begun_ns < part.to_ns]
        if some:
            load = load_of(part.name, some, facts.health, moment=facts.moment, rate=part.rate, clock=facts.clock)
            loads.append(replace(load, dimensions={"stage": part.name}))
    return tuple(replace(load, begin_ns=begin_ns, dimensions={**facts.dimensions, **load.dimensions}) for load in loads)


def _cold(requests: Sequence[Observed]) -> tuple[ClassEffect, ...]:
    """What each class of cold start did to the end-to-end times."""
    whole = RESPONSES[END_TO_END]
    told = [seen for seen in requests if seen.outcome != "ok" or whole(seen) is not None]
    labels = [seen.dimensions.get(COLD, WARM) for seen in told]
    passed_ns = told[-1].intended_ns - told[0].intended_ns if told else 0
    return with_and_without(responses(told, whole).tolist(), labels, passed_ns)


def _point(name: str, address: str, tally: Tally, *, invalid: bool) -> Point:
    requests = tally.requests
    series = tally.series()
    if invalid:
        why = "the load was INVALID"
        series = tuple(
            refused(each, bounds(requests, RESPONSES[each.name]), why) for each in series if each.name in RESPONSES
        )
    return Point(
        name=name,
        address=address,
        planned=len(requests) + tally.unfinished,
        unfinished=tally.unfinished,
        outcomes=dict(sorted(tally.outcomes.items())),
        reasons=dict(tally.reasons.most_common(REASONS)),
        series=series,
        network=summarise(requests),
    )
