"""The requests of a run, counted one by one as they end, into the values of a `Measurement`.

Percentiles here come from all values, not from sketches: a run has as many as one machine can send. Only the gaps
between tokens, of which there are many more, are sketched.
"""

from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from outlay.generator import INVALID, GeneratorVerdict, Stall, stalls, verdict
from outlay.load import Bound, Load, bounds_between
from outlay.measurement import Series
from outlay.observed import Instant, Observed, gaps_ns, per_token_ns
from outlay.quantiles import effective_n, rank_interval, share_interval, smallest_n
from outlay.report import OnTime, Percentile
from outlay.silence import Waited, silences
from outlay.sketch import Sketch, nearest_rank

LEVELS = (50.0, 95.0, 99.0)

NEVER = float("inf")

END_TO_END = "end_to_end"

# What is measured from the intended start; a request that failed never got there.
RESPONSES: Mapping[str, Instant] = {
    "ttft": lambda seen: seen.first_token_ns,
    "first_output": lambda seen: seen.first_output_ns,
    END_TO_END: lambda seen: seen.over_ns,
}

# The same instants from the send on: what remains when lateness and connections are taken away.
SERVICES: Mapping[str, Instant] = {
    "ttft_from_send": lambda seen: seen.first_token_ns,
    "end_to_end_from_send": lambda seen: seen.over_ns,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A stage of the schedule, from and to ns after its begin, at so many requests a second."""

    name: str
    rate: float
    from_ns: int
    to_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SenderHealth:
    """What the senders said of themselves: the busiest one's share of a core, and the longest stall of any loop.

    `stalls` are from when to when a loop stood still; what came in meanwhile was only seen afterwards.
    """

    cpu_share: float | None
    longest_stall_ns: int | None
    stalls: tuple[tuple[int, int], ...] = ()

    def stood_still(self, found: Stall) -> bool:
        """Whether a loop stood still during some of it, so that a silence of the server may be a sender's own."""
        return any(begin < (found.to_ns or end) and end > found.from_ns for begin, end in self.stalls)


class Tally:
    """What was measured at one point. Warm-up requests are counted and kept out of everything else."""

    __slots__ = ("_gaps", "_taken", "_waited", "outcomes", "reasons", "unfinished", "warm_up")

    def __init__(self) -> None:
        self.outcomes: Counter[str] = Counter()
        self.reasons: Counter[str] = Counter()
        self.unfinished = 0
        self.warm_up: list[int] = []
        self._taken: list[Observed] = []
        self._gaps = Sketch()
        self._waited: list[Waited] = []

    def take(self, seen: Observed, *, warm_up: bool = False) -> None:
        """Count one request that ended, however it did; what was stopped with the run is only counted as such."""
        if warm_up:
            self.warm_up += [seen.over_ns - seen.intended_ns] if seen.over_ns is not None else []
        elif seen.outcome == "aborted":
            self.unfinished += 1
        else:
            self.outcomes[seen.outcome] += 1
            if seen.why is not None:
                self.reasons[seen.why] += 1
            for gap_ns in gaps_ns(seen):
                self._gaps.add(gap_ns)
            self._wait(seen)
            self._taken.append(seen if not seen.tokens_ns else replace(seen, tokens_ns=()))

    def _wait(self, seen: Observed) -> None:
        if seen.written_ns is not None and seen.ended_ns is not None:
            ends = (seen.over_ns,) if seen.outcome == "ok" and seen.over_ns is not None else ()
            signs = () if seen.first_byte_ns is None else (seen.first_byte_ns, *seen.tokens_ns, *ends)
            self._waited.append(Waited(seen.written_ns, array("q", sorted(signs)), seen.ended_ns))

    def silences(self) -> tuple[Stall, ...]:
        """When the server stood still; see `silence`."""
        return silences(self._waited)

    @property
    def requests(self) -> Sequence[Observed]:
        """All but the warm-up, in order of their intended starts; their tokens' instants are left out."""
        self._taken.sort(key=lambda seen: seen.intended_ns)
        return self._taken

    def series(self) -> tuple[Series, ...]:
        """Every latency that any request shows, those from the intended start first."""
        requests = self.requests
        named = [(name, responses(requests, instant), True) for name, instant in RESPONSES.items()]
        named += [(name, services(requests, instant), False) for name, instant in SERVICES.items()]
        named.append(("per_token", _known(map(per_token_ns, requests)), False))
        found = [
            Series(name=name, n=len(values), failures_count=counted, percentiles=percentiles(values))
            for name, values, counted in named
            if name == END_TO_END or np.isfinite(values).any()
        ]
        if self._gaps.served:
            found.append(_of_sketch("between_tokens", self._gaps))
        return tuple(found)


def responses(requests: Sequence[Observed], instant: Instant) -> NDArray[np.float64]:
    """From the intended start to an instant, in the order given; what failed never got there.

    Requests that were answered without it, such as whole answers without a first token, are left out.
    """
    return _known(
        NEVER if seen.outcome != "ok" else None if (at_ns := instant(seen)) is None else at_ns - seen.intended_ns
        for seen in requests
    )


def services(requests: Sequence[Observed], instant: Instant) -> NDArray[np.float64]:
    """From the send to an instant, of those that were answered, in the order given."""
    return _known(
        None
        if seen.outcome != "ok" or seen.written_ns is None or (at_ns := instant(seen)) is None
        else at_ns - seen.written_ns
        for seen in requests
    )


def _known(values: Iterable[float | None]) -> NDArray[np.float64]:
    return np.array([value for value in values if value is not None], dtype=np.float64)


def percentiles(values_ns: NDArray[np.float64], levels: Sequence[float] = LEVELS) -> tuple[Percentile, ...]:
    """Each percentile of values in order of arrival, infinite ones among them, with its interval or why there is none.

    Slow requests come in bursts: intervals are those of as many independent values as these are worth.
    """
    ordered = np.sort(values_ns)
    slowest = nearest_rank(0.99, len(ordered))
    worth = None if slowest is None else effective_n(values_ns > ordered[slowest - 1])
    return tuple(_percentile(level, len(ordered), worth, lambda rank: float(ordered[rank - 1])) for level in levels)


def _of_sketch(name: str, sketch: Sketch) -> Series:
    """Gaps within one answer hang together in ways that nobody has counted, so they get no interval."""
    found = (_percentile(level, sketch.served, None, sketch.value_at_rank) for level in LEVELS)
    shown = tuple(replace(percentile, interval_ns=None) for percentile in found)
    return Series(name=name, n=sketch.served, failures_count=False, percentiles=shown)


def _percentile(level: float, n: int, worth: float | None, at_rank: Callable[[int], float]) -> Percentile:
    q = level / 100
    needed = smallest_n(q)
    rank = nearest_rank(q, n)
    if n < needed or rank is None:
        return Percentile(level=level, value_ns=None, why=f"p{level:g} needs {needed} requests, there are {n}")
    ranks = rank_interval(n, q, effective_n=worth)
    if ranks is None:
        return Percentile(level=level, value_ns=None, why=f"p{level:g} needs more than {n} requests for an interval")
    low, high = ranks
    interval = at_rank(low), None if high is None else at_rank(high)
    return Percentile(level=level, value_ns=at_rank(rank), interval_ns=interval)


def refused(series: Series, bounds: Sequence[Bound], why: str) -> Series:
    """The series without its percentiles: between what times they lie, where that is known, and why no more."""
    none = tuple(Percentile(level=each.level, value_ns=None, why=why) for each in series.percentiles)
    return replace(series, percentiles=none, bounds=tuple(bounds))


def bounds(requests: Sequence[Observed], instant: Instant) -> tuple[Bound, ...]:
    """Between what times a person would have got there, had each request left when it was due.

    Not later than they did here, lateness and all; and not sooner than they did from the send on, where a request
    that was never sent counts as none.
    """
    soonest = _known(0.0 if seen.outcome == "unsent" else _service(seen, instant) for seen in requests)
    return bounds_between(soonest.tolist(), responses(requests, instant).tolist())


def _service(seen: Observed, instant: Instant) -> float | None:
    at_ns = instant(seen)
    if seen.outcome != "ok":
        return NEVER
    return None if at_ns is None or seen.written_ns is None else at_ns - seen.written_ns


def on_time(requests: Sequence[Observed], instant: Instant, within_ns: int) -> OnTime | None:
    """The share that got there within a limit, from the intended start; None without any request."""
    values = responses(requests, instant)
    if not len(values):
        return None
    over = int((values > within_ns).sum())
    worth = effective_n(values > within_ns) / len(values)
    share = (len(values) - over) / len(values)
    return OnTime(share=share, interval=share_interval(share * len(values) * worth, len(values) * worth), over=over)


@dataclass(frozen=True, slots=True, kw_only=True)
class Clock:
    """The clock that instants are shown on, and what brings those of the run's own clock onto it."""

    name: str
    shift_ns: int

    def stalls(self, found: Iterable[Stall]) -> tuple[Stall, ...]:
        """The same stalls on this clock."""
        return tuple(
            Stall(
                from_ns=stall.from_ns + self.shift_ns,
                to_ns=None if stall.to_ns is None else stall.to_ns + self.shift_ns,
                due=stall.due,
            )
            for stall in found
        )


def load_of(
    name: str, requests: Sequence[Observed], health: SenderHealth, *, moment: str, rate: float | None, clock: Clock
) -> Load:
    """How the load of these requests was delivered, and what bounds that leaves. `rate` is what was asked for, per s.

    A request has left when a connection was at hand for it or began to be set up: what it waited before is the
    sender's lateness, what it waits after is the network's. Raises ValueError without any request.
    """
    judged = _judged(requests, health)
    sent = [seen for seen in requests if seen.begun_ns is not None]
    return Load(
        name=name,
        tool="outlay",
        moment=moment,
        requests=len(requests),
        verdict=judged,
        requested_rate=rate,
        achieved_rate=None if rate is None or judged.achieved is None else rate * judged.achieved,
        bounds=bounds(requests, RESPONSES[END_TO_END]) if judged.state == INVALID else (),
        clock=clock.name,
        sender_stalls=clock.stalls(_sender_stalls(requests)) if sent else (),
    )


def _judged(requests: Sequence[Observed], health: SenderHealth) -> GeneratorVerdict:
    """Lateness may be so much of the shortest latency that is told: what spoils no total may spoil a first token."""
    medians = [_median_ns(responses(requests, instant)) for instant in RESPONSES.values()]
    return verdict(
        [seen.intended_ns for seen in requests],
        [seen.begun_ns for seen in requests],
        response_p50_ns=min((each for each in medians if each is not None), default=None),
        cpu_share=health.cpu_share,
        longest_stall_ns=health.longest_stall_ns,
    )


def _median_ns(values_ns: NDArray[np.float64]) -> int | None:
    rank = nearest_rank(0.5, len(values_ns))
    middle = NEVER if rank is None else float(np.sort(values_ns)[rank - 1])
    return int(middle) if np.isfinite(middle) else None


def _sender_stalls(requests: Sequence[Observed]) -> tuple[Stall, ...]:
    """When one of the senders stood still although something was due."""
    by_sender: dict[int, list[Observed]] = {}
    for seen in requests:
        by_sender.setdefault(seen.sender, []).append(seen)
    found = [
        stall
        for some in by_sender.values()
        for stall in stalls([seen.intended_ns for seen in some], [seen.begun_ns for seen in some])
    ]
    return tuple(sorted(found, key=lambda stall: stall.from_ns))
