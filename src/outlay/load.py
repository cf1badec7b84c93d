"""One run of a load generator: how it kept its schedule, and what that allows to be said of its latencies."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf, isfinite

from outlay.generator import GeneratorVerdict, Levels, Stall, response_bounds, verdict
from outlay.sketch import nearest_rank
from outlay.units import NS_PER_S

# The percentiles that are bounded.
LEVELS = (50.0, 95.0, 99.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """Between what times a percentile of the response, counted from the intended start, must lie, in ns.

    `high_ns` None: there is no upper bound. `level` is in percent.
    """

    level: float
    low_ns: int
    high_ns: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """The load of one run, or of one stage of it.

    `name` tells it from other loads; empty, it is called as the input it was read from. `moment` is the moment of its
    interactions; None where the tool published a summary and no requests. `dimensions` are those that its interactions
    have and others of the moment may not. `requests` is how many were planned. `requested_rate` and `achieved_rate` are
    per second, None unknown. `claimed_ns` is what the tool itself printed for percentiles (`p99` of the whole answer,
    `ttft p99` of another latency, to ns), `bounds` what can be said of the response instead; of an INVALID load nothing
    else may be. `sender_stalls` is when a sender stood still, `silences` when the server did, on the clock `clock`, on
    which the run began at `begin_ns`; None: then they are told as they stand.
    """

    name: str
    tool: str
    moment: str | None
    requests: int
    verdict: GeneratorVerdict
    requested_rate: float | None = None
    achieved_rate: float | None = None
    bounds: tuple[Bound, ...] = ()
    claimed_ns: Mapping[str, int] = field(default_factory=dict)
    clock: str = ""
    sender_stalls: tuple[Stall, ...] = ()
    silences: tuple[Stall, ...] = ()
    begin_ns: int | None = None
    dimensions: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """One planned request, on one clock: due, written (None: never sent), answered in full (None: it failed)."""

    intended_ns: int
    written_ns: int | None
    answered_ns: int | None


def recorded_load(requests: Sequence[Sent], *, tool: str, moment: str | None, clock: str, partly: bool = False) -> Load:
    """The load of planned requests of which each is known; its name is empty.

    `partly` says that a request may have been due before its `intended_ns`: then the verdict is DEGRADED at best, and
    no percentile has an upper bound. The rates are those from the first intended start to the last, and to the last
    send. Raises ValueError without requests.
    """
    # One that was never sent may have been answered at once.
    soonest_ns = [0.0 if each.written_ns is None else _took_ns(each, each.written_ns) for each in requests]
    latest_ns = [_took_ns(each, each.intended_ns) for each in requests]
    response_p50_ns = _at(latest_ns, 50.0)
    judged = verdict(
        [each.intended_ns for each in requests],
        [each.written_ns for each in requests],
        response_p50_ns=int(response_p50_ns) if isfinite(response_p50_ns) else None,
        partly=partly,
    )
    begin_ns = min(each.intended_ns for each in requests)
    planned_ns = max(each.intended_ns for each in requests) - begin_ns
    rate = (len(requests) - 1) * NS_PER_S / planned_ns if planned_ns else None
    return Load(
        name="",
        tool=tool,
        moment=moment,
        requests=len(requests),
        verdict=judged,
        requested_rate=rate,
        achieved_rate=None if rate is None or judged.achieved is None else rate * judged.achieved,
        bounds=bounds_between(soonest_ns, [inf] if partly else latest_ns),
        clock=clock,
        begin_ns=begin_ns,
    )


def bounds_between(soonest_ns: Sequence[float], latest_ns: Sequence[float]) -> tuple[Bound, ...]:
    """For each of LEVELS between which two percentiles the wait lies that a sender on time would have measured.

    `soonest_ns` are the latencies from the send, as if lateness were the sender's own affair, `latest_ns` those from
    the intended start, as if a person had waited through all of it. Infinity is a request that failed. Where a level
    lies among those it is left out: it never comes. No requests, no bounds.
    """
    found = ((level, _at(soonest_ns, level), _at(latest_ns, level)) for level in LEVELS)
    return tuple(
        Bound(level=level, low_ns=int(low), high_ns=int(high) if isfinite(high) else None)
        for level, low, high in found
        if isfinite(low)
    )


def bounds_of_summary(lateness: Levels, service: Levels, served: tuple[int, int]) -> tuple[Bound, ...]:
    """The same where only percentiles of the two parts were published; see `generator.response_bounds`.

    `served` is how many of how many requests got an answer; a level beyond that never comes and is left out.
    """
    answered, planned = served
    return tuple(
        Bound(level=level, low_ns=low, high_ns=high)
        for level in LEVELS
        if level * planned <= 100 * answered
        for low, high in (response_bounds(lateness, service, level, served),)
    )


def _took_ns(sent: Sent, since_ns: int) -> float:
    return inf if sent.answered_ns is None else sent.answered_ns - since_ns


def _at(values: Sequence[float], level: float) -> float:
    """The value at the nearest rank; infinity without any."""
    rank = nearest_rank(level / 100, len(values))
    return inf if rank is None else sorted(values)[rank - 1]
