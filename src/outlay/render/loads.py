"""What a load says in words: the same sentences in every output, the verdict and its reasons before any number.

Names from the data are left to each renderer, as in `words`; `reasons` may hold text from a log.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from outlay.generator import INVALID, Stall
from outlay.load import Load
from outlay.render.words import count, interval, many, percentile_name
from outlay.units import format_duration

# So many stalls are told one by one; the rest is counted.
STALLS = 3

_UNJUDGED = ": not measured"


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """One percentile of a load: between what times it lies, and what the tool printed for it; empty when unknown."""

    name: str
    between: str
    claimed: str


def verdict(load: Load) -> str:
    """`VALID`, `DEGRADED` or `INVALID`."""
    return load.verdict.state


def reasons(load: Load) -> Sequence[str]:
    """Why it is no better, worst first; what nobody measured and does not count is one sentence at the end."""
    judged = [reason.text[:1].upper() + reason.text[1:] for reason in load.verdict.reasons if reason.state is not None]
    unjudged = [reason.text.removesuffix(_UNJUDGED) for reason in load.verdict.reasons if reason.state is None]
    return [*judged, *([f"Not measured: {', '.join(unjudged)}"] if unjudged else [])]


def facts(load: Load) -> str:
    """`9,464 requests, 158/s asked for, 79.2/s sent; late by 27.5 s at p50, 58.8 s at p99, 59.6 s at most`."""
    told = [many(load.requests, "request")]
    told += [f"{_rate(load.requested_rate)} asked for"] if load.requested_rate is not None else []
    told += [f"{_rate(load.achieved_rate)} sent"] if load.achieved_rate is not None else []
    late = load.verdict
    spread = ((late.lateness_p50_ns, "at p50"), (late.lateness_p99_ns, "at p99"), (late.lateness_max_ns, "at most"))
    lateness = [f"{format_duration(value_ns)} {name}" for value_ns, name in spread if value_ns is not None]
    return ", ".join(told) + (f"; late by {', '.join(lateness)}" if lateness else "")


def _rate(per_s: float) -> str:
    return f"{per_s:,.0f}/s" if per_s >= 1000 else f"{per_s:.3g}/s"


def levels(load: Load) -> Sequence[Level]:
    """The percentiles with a bound; without any, those that only the tool speaks of."""
    bounds = {percentile_name(bound.level): interval(bound.low_ns, bound.high_ns) for bound in load.bounds}
    names = bounds or load.claimed_ns
    return [Level(name=name, between=bounds.get(name, "not known"), claimed=_claimed(load, name)) for name in names]


def claims(load: Load) -> str:
    """What heads the column of what the tool printed; empty when it printed nothing."""
    if not load.claimed_ns:
        return ""
    return "what the tool claims" if verdict(load) == INVALID else "what the tool says"


def stops(load: Load) -> Iterator[str]:
    """When the senders stood still, and when the server did."""
    for what, stalls in (("The sender stood still", load.sender_stalls), ("The server was silent", load.silences)):
        if stalls:
            told = [_stall(stall, load.begin_ns) for stall in stalls[:STALLS]]
            told += [f"and {count(len(stalls) - STALLS)} more"] if len(stalls) > STALLS else []
            times = "once" if len(stalls) == 1 else f"{count(len(stalls))} times"
            yield f"{what} {times}{'' if load.begin_ns is None else ', counted from the start'}: {', '.join(told)}"


def _claimed(load: Load, name: str) -> str:
    claimed_ns = load.claimed_ns.get(name)
    return "" if claimed_ns is None else format_duration(claimed_ns)


def _stall(stall: Stall, begin_ns: int | None) -> str:
    since_ns = begin_ns or 0  # without a begin they are told as they stand
    begun = format_duration(stall.from_ns - since_ns)
    until = "the end" if stall.to_ns is None else format_duration(stall.to_ns - since_ns)
    return f"{begun} to {until} ({count(stall.due)} due)"
