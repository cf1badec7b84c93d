"""Whether a load generator kept its own schedule: without that, its latencies are about itself.

Lateness is the instant a request was written minus the instant it was meant to start. Whatever holds a request back
on the sending side (a concurrency cap, a pool, a busy event loop) is lateness, and none of it is in a latency that
starts at the send. The verdict has three states: VALID; DEGRADED, up to ten times past a limit; and INVALID, where
no tail may be printed. What nobody measured is named as such, and never counts as good.
"""

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from outlay.sketch import nearest_rank
from outlay.units import NS_PER_MS, format_duration

State = Literal["VALID", "DEGRADED", "INVALID"]

VALID: State = "VALID"
DEGRADED: State = "DEGRADED"
INVALID: State = "INVALID"
_SEVERITY: dict[State | None, int] = {state: place for place, state in enumerate((None, VALID, DEGRADED, INVALID))}

# Lateness that no reader of a percentile would notice: 1 ms, or this share of the median response if that is more.
_LATE_NS = NS_PER_MS
_LATE_SHARE = 0.02

# A gap shorter than what the event loop itself may stall is not worth a name.
STALL_NS = 20 * NS_PER_MS

# All pairs of so many points make 180 000 slopes, found in about 0.1 s, whatever the length of the run.
TREND_POINTS = 600


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """What keeps a verdict from being VALID, or from being sure.

    `text` says it for people. `measured` and `limit` are ns for lateness, trend and stall, shares of 1 for rate,
    unsent and cpu. `measured` None: nobody measured it. Then `state` is None, not judged, except for lateness itself:
    without that nothing is known about the run, which is INVALID, and when only a part of it was measured, DEGRADED.
    """

    rule: str
    state: State | None
    measured: float | None
    limit: float
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Slope:
    """Lateness gained per time passed, in ns per ns, with its 95 % interval: 0.1 is 100 ms later every second."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Stall:
    """From `from_ns` to `to_ns` nothing was sent although something was due; `due` requests fell due meanwhile.

    `to_ns` None: nothing was sent any more.
    """

    from_ns: int
    to_ns: int | None
    due: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneratorVerdict:
    """The judgement of a run's load, and what it rests on. None is unknown.

    `reasons` hold the broken rules, worst first, then those that could not be judged. `achieved` is the share of the
    planned rate that was reached.
    """

    state: State
    reasons: tuple[Reason, ...]
    lateness_p50_ns: int | None
    lateness_p99_ns: int | None
    lateness_max_ns: int | None
    achieved: float | None
    unsent: int | None = None
    slope: Slope | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Order statistics of a published summary, all in ns."""

    min_ns: int
    p50_ns: int
    p99_ns: int
    max_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rule:
    """One limit. A measured value holds while `within(measured, limit)`; `tolerable` is the same for DEGRADED.

    Both limits None stand for the allowed lateness and ten times that. With `essential`, not knowing is INVALID.
    """

    name: str
    subject: str
    text: str
    show: Callable[[float], str]
    limit: float | None = None
    tolerable: float | None = None
    within: Callable[[float, float], bool] = operator.le
    essential: bool = False


_PARTLY = "how late the requests were before the first instant that was kept of them: not measured"

# Published percentiles, in percent, as ns: 0 is the smallest value and 100 the largest.
Levels = Mapping[float, int]
# 99.9 + 0.1 is not quite 100 in binary.
_LEVEL_ERROR = 1e-9


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"


_RULES = (
    _Rule(
        name="lateness",
        subject="how late requests were sent",
        text="1 % of the requests were sent {measured} or more after their intended start; at most {limit} is allowed",
        show=format_duration,
        essential=True,
    ),
    # Growth over the whole run, and the limit of lateness itself: a trend that adds less than the lateness which is
    # allowed anyway cannot spoil a run, however sure its direction is.
    _Rule(
        name="trend",
        subject="whether lateness grew",
        text="lateness grew by {measured} over the run: the sender falls ever further behind; {limit} is allowed",
        show=format_duration,
    ),
    # The shortfall, so that ten times the allowed 1 % is 10 %.
    _Rule(
        name="rate",
        subject="the share of the planned rate that was reached",
        text="the sender fell {measured} short of the planned rate; at most {limit} is allowed",
        show=_percent,
        limit=0.01,
        tolerable=0.10,
    ),
    # Ten times none is none. But an unsent request counts as infinite, so its effect on a percentile is known: one in
    # a thousand takes a tenth of the p99's tail.
    _Rule(
        name="unsent",
        subject="how many requests were never sent",
        text="{measured} of the planned requests were never sent; {limit} is allowed",
        show=_percent,
        limit=0.0,
        tolerable=0.001,
    ),
    # Of the 30 % of a core that must stay free, a tenth.
    _Rule(
        name="cpu",
        subject="the CPU share of the sender processes",
        text="the busiest sender process used {measured} of a core; it must stay below {limit}",
        show=_percent,
        limit=0.70,
        tolerable=0.97,
        within=operator.lt,
    ),
    _Rule(
        name="stall",
        subject="how long a sender's loop stood still",
        text="a sender's loop stood still for {measured}; it must stay below {limit}",
        show=format_duration,
        limit=float(STALL_NS),
        tolerable=10.0 * STALL_NS,
        within=operator.lt,
    ),
)


def verdict(
    intended_ns: Sequence[int],
    written_ns: Sequence[int | None],
    *,
    response_p50_ns: int | None = None,
    cpu_share: float | None = None,
    longest_stall_ns: int | None = None,
    partly: bool = False,
) -> GeneratorVerdict:
    """Judge the load of one run from each request's intended and written instant, on one clock.

    `written_ns` None: never sent. A failed request that was sent counts like any other: how it ended is the server's
    business. `response_p50_ns` is the median from the intended start; while unknown, the allowed lateness is 1 ms.
    `cpu_share` is that of the busiest sender process, 1 for a whole core; `longest_stall_ns` that of any sender's loop.
    `partly` says that a request may have been due before its `intended_ns`: then all lateness here is a lower bound,
    and the verdict DEGRADED at best.
    Achieved is the share of the requests that were sent, times the planned span over the span from the first intended
    start to the last send; None when all are planned for one instant.
    Raises ValueError for an empty schedule, and when the two differ in length.
    """
    intended, sent, written = _arrays(intended_ns, written_ns)
    lateness = written - intended[sent]
    ordered = np.sort(lateness)
    slope = trend(intended[sent], lateness)
    achieved = _achieved(intended, written)
    planned_ns = int(np.ptp(intended))
    unsent = len(intended_ns) - len(written)
    measured = {
        "lateness": _at(ordered, 0.99),
        "trend": None if slope is None else slope.value * planned_ns if slope.low > 0 else 0.0,
        "rate": _shortfall(achieved),
        "unsent": unsent / len(intended_ns),
        "cpu": cpu_share,
        "stall": longest_stall_ns,
    }
    reasons = _judge(measured, response_p50_ns, partly=partly)
    return GeneratorVerdict(
        state=_worst(reasons),
        reasons=reasons,
        lateness_p50_ns=_at(ordered, 0.5),
        lateness_p99_ns=_at(ordered, 0.99),
        lateness_max_ns=_at(ordered, 1.0),
        achieved=achieved,
        unsent=unsent,
        slope=slope,
    )


def verdict_of_summary(
    lateness: Spread | None,
    service: Spread | None,
    *,
    requested_rate: float | None,
    achieved_rate: float | None,
    cpu_share: float | None = None,
    longest_stall_ns: int | None = None,
) -> GeneratorVerdict:
    """Judge a run of which only a summary was published: delays of the sends, latencies from the send, rates per s.

    2 % of the median response is taken of the least that it can have been, see `response_bounds`. Whether
    lateness grew and what was never sent do not show in a summary; they are named as not measured.
    Raises ValueError for a rate that is not above 0.
    """
    if any(rate is not None and not rate > 0 for rate in (requested_rate, achieved_rate)):
        raise ValueError("rates must be above 0; an unknown one is None")
    achieved = None if requested_rate is None or achieved_rate is None else achieved_rate / requested_rate
    measured = {
        "lateness": None if lateness is None else lateness.p99_ns,
        "rate": _shortfall(achieved),
        "cpu": cpu_share,
        "stall": longest_stall_ns,
    }
    known = lateness and service and response_bounds(_levels(lateness), _levels(service), 50.0)
    reasons = _judge(measured, known[0] if known else None)
    return GeneratorVerdict(
        state=_worst(reasons),
        reasons=reasons,
        lateness_p50_ns=None if lateness is None else lateness.p50_ns,
        lateness_p99_ns=None if lateness is None else lateness.p99_ns,
        lateness_max_ns=None if lateness is None else lateness.max_ns,
        achieved=achieved,
    )


def response_bounds(
    lateness: Levels, service: Levels, level: float, served: tuple[int, int] = (1, 1)
) -> tuple[int, int | None]:
    """Between what two times a percentile of the response lies, when only percentiles of its two parts are known.

    Percentiles do not add, but whatever the parts have to do with each other, with Q for the value at a level:

        max over a + b <= level of Ql(a) + Qs(b)  <=  Q(level)  <=  min over a + b >= level + 100 of Ql(a) + Qs(b)

    (Makarov 1981), here over the published levels; it holds for the order statistics of one sample too, by nearest
    rank or interpolated between neighbours, when all three are taken by one rule. Both parts need levels 0 and 100,
    the smallest and the largest. `served` is how many of how many requests the service is known of: the others failed
    and count as never, which may leave no upper bound. Raises KeyError without a level 0.
    """
    known, planned = served
    # Among all requests, those served are the first. The two roundings are for either rule of taking a percentile.
    below = [(at * known / planned, value_ns) for at, value_ns in service.items()]
    above = [
        (at * (known - 1) / (planned - 1) if known < planned else at, value_ns) for at, value_ns in service.items()
    ]
    lows = [late + value for a, late in lateness.items() for b, value in below if a + b <= level + _LEVEL_ERROR]
    highs = [late + value for a, late in lateness.items() for b, value in above if a + b >= level + 100 - _LEVEL_ERROR]
    return max(lows, default=lateness[0.0] + service[0.0]), min(highs, default=None)


def _levels(spread: Spread) -> Levels:
    return {0.0: spread.min_ns, 50.0: spread.p50_ns, 99.0: spread.p99_ns, 100.0: spread.max_ns}


def trend(at_ns: NDArray[np.int64], value_ns: NDArray[np.int64]) -> Slope | None:
    """The Theil-Sen slope of values over time: the median of the slopes between all pairs of points.

    Its 95 % interval is Sen's (1968): the slopes at ranks (N -+ 1.96 s) / 2 of N, with s^2 = n (n - 1) (2n + 5) / 18.
    Of more than TREND_POINTS points it takes that many, evenly by index, first and last included. Without a
    correction for ties the interval is a little wide; values that hang together, as in a stall, make it too narrow.
    None when so few points allow no interval, or all are at one instant.
    """
    order = np.argsort(at_ns, kind="stable")
    if len(order) > TREND_POINTS:
        order = order[np.linspace(0, len(order) - 1, TREND_POINTS).round().astype(np.int64)]
    first, second = np.triu_indices(len(order), k=1)
    passed = (at_ns[order][second] - at_ns[order][first]).astype(np.float64)
    gained = (value_ns[order][second] - value_ns[order][first]).astype(np.float64)
    slopes = np.sort(gained[passed > 0] / passed[passed > 0])
    n, pairs = len(order), len(slopes)
    spread = NormalDist().inv_cdf(0.975) * (n * (n - 1) * (2 * n + 5) / 18) ** 0.5
    if pairs <= spread:
        return None
    low, high = int((pairs - spread) / 2), min(int((pairs + spread) / 2) + 1, pairs - 1)
    return Slope(value=float(np.median(slopes)), low=float(slopes[low]), high=float(slopes[high]))


def stalls(
    intended_ns: Sequence[int], written_ns: Sequence[int | None], shortest_ns: int = STALL_NS
) -> tuple[Stall, ...]:
    """When one sender stood still, in order of time: gaps between sends, from when something was due, of this length.

    A gap begins at the send before it, or later when the next request to be sent fell due later. A request that was
    never sent is due until the next send, after which it counts as dropped. With several senders ask for each alone:
    the others' sends would fill the gap. A last gap that no send ended is named whatever its length.
    Raises ValueError for an empty schedule, and when the two differ in length.
    """
    intended, sent, written = _arrays(intended_ns, written_ns)
    order = np.argsort(written, kind="stable")
    ends = written[order]
    never = np.iinfo(np.int64).max
    # Gap k ends with the k-th send; one more, without an end, holds what fell due after the last.
    due = np.append(np.minimum.accumulate(intended[sent][order][::-1])[::-1], never)
    dropped = intended[~sent]
    np.minimum.at(due, np.searchsorted(ends, dropped), dropped)
    # Before the first send there is no other: its gap begins when the first request fell due.
    begins = np.maximum(due, np.append(due[:1], ends))
    found = np.flatnonzero(ends - begins[:-1] >= shortest_ns).tolist()
    fell_due = np.sort(intended)

    def named(begin_ns: int, end_ns: int | None) -> Stall:
        until = len(fell_due) if end_ns is None else np.searchsorted(fell_due, end_ns)
        return Stall(from_ns=begin_ns, to_ns=end_ns, due=int(until - np.searchsorted(fell_due, begin_ns)))

    ended = [named(int(begins[gap]), int(ends[gap])) for gap in found]
    return (*ended, named(int(due[-1]), None)) if due[-1] != never else tuple(ended)


def _arrays(
    intended_ns: Sequence[int], written_ns: Sequence[int | None]
) -> tuple[NDArray[np.int64], NDArray[np.bool_], NDArray[np.int64]]:
    """The intended instants, which of them were sent, and when those were."""
    if len(intended_ns) != len(written_ns):
        raise ValueError(f"{len(intended_ns)} intended and {len(written_ns)} written instants are not one run")
    if len(intended_ns) == 0:
        raise ValueError("an empty schedule has no verdict")
    sent = np.array([at_ns is not None for at_ns in written_ns])
    written = np.array([at_ns for at_ns in written_ns if at_ns is not None], dtype=np.int64)
    return np.asarray(intended_ns, dtype=np.int64), sent, written


def _achieved(intended: NDArray[np.int64], written: NDArray[np.int64]) -> float | None:
    planned_ns = int(np.ptp(intended))
    if planned_ns == 0:
        return None
    taken_ns = max(planned_ns, int(written.max() - intended.min())) if len(written) else planned_ns
    return len(written) / len(intended) * planned_ns / taken_ns


def _shortfall(achieved: float | None) -> float | None:
    # 1 - 0.99 is a hair above 0.01 in binary.
    return None if achieved is None else round(1 - achieved, 12)


def _at(ordered: NDArray[np.int64], q: float) -> int | None:
    rank = nearest_rank(q, len(ordered))
    return None if rank is None else int(ordered[rank - 1])


def _judge(
    measured: dict[str, float | int | None], response_p50_ns: int | None, *, partly: bool = False
) -> tuple[Reason, ...]:
    """A reason for each rule that was broken or could not be judged; `measured` need not hold the latter."""
    late_ns = _LATE_NS if response_p50_ns is None else max(_LATE_NS, _LATE_SHARE * response_p50_ns)
    reasons = [reason for rule in _RULES if (reason := _reason(rule, measured.get(rule.name), late_ns))]
    if partly:
        reasons.append(Reason(rule="lateness", state=DEGRADED, measured=None, limit=late_ns, text=_PARTLY))
    return tuple(sorted(reasons, key=lambda reason: -_SEVERITY[reason.state]))


def _reason(rule: _Rule, measured: float | None, late_ns: float) -> Reason | None:
    limit = late_ns if rule.limit is None else rule.limit
    tolerable = 10 * late_ns if rule.tolerable is None else rule.tolerable
    if measured is None:
        unknown = INVALID if rule.essential else None
        return Reason(rule=rule.name, state=unknown, measured=None, limit=limit, text=f"{rule.subject}: not measured")
    if rule.within(measured, limit):
        return None
    state = DEGRADED if rule.within(measured, tolerable) else INVALID
    text = rule.text.format(measured=rule.show(measured), limit=rule.show(limit))
    return Reason(rule=rule.name, state=state, measured=measured, limit=limit, text=text)


def _worst(reasons: tuple[Reason, ...]) -> State:
    return max((VALID, *(reason.state for reason in reasons if reason.state)), key=_SEVERITY.__getitem__)
