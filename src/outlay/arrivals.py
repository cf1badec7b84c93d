"""Open-loop schedules as data: when each request of a load test is meant to start.

A schedule is drawn whole before the first request leaves, and kept. A sender that falls behind sends late and its
requests are late; nothing here or later moves an intended start, because a schedule that waits for the server hides
exactly the waiting it should show (coordinated omission: Tene, "How NOT to Measure Latency"; wrk2).

Instants are integer nanoseconds from the start of the run, in order. Rates are requests per second. Randomness comes
from the caller's generator: the same state gives the same schedule.
"""

import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import count, pairwise, takewhile
from typing import TYPE_CHECKING

from outlay.units import NS_PER_S, parse_duration

if TYPE_CHECKING:  # a schedule without chance needs no numpy, whose import would delay the first request
    import numpy as np

# The fewest gaps to draw at once; more than one draw is needed only when the gaps came out short.
_FEWEST_GAPS = 64

_STAGE = re.compile(r"\s*(\d+(?:\.\d+)?|\.\d+)\s*rps\s*:(.*)", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """One intended start, `at_ns` after the start of the run.

    `input_tokens` and `output_tokens` are the sizes to ask for; None leaves them to whoever sends. A request marked
    `warm_up` is sent like any other, and kept out of the percentiles.
    """

    at_ns: int
    input_tokens: int | None = None
    output_tokens: int | None = None
    warm_up: bool = False


Schedule = tuple[Arrival, ...]
Process = Callable[[float, int], Schedule]
Lengths = tuple[int | None, int | None]


def constant(rate: float, duration_ns: int) -> Schedule:
    """Request i starts at `i * 1e9 / rate` ns, rounded by itself so that no error adds up; the first at 0.

    Every start lies below `duration_ns`; a duration of 0 gives an empty schedule.
    Raises ValueError for a rate that is not above 0 or not finite, or a negative duration.
    """
    _check(rate, duration_ns)
    starts = (round(i * NS_PER_S / rate) for i in count())
    return _at(takewhile(lambda at_ns: at_ns < duration_ns, starts))


def poisson(rate: float, duration_ns: int, rng: "np.random.Generator") -> Schedule:
    """Independent users: gaps are exponential with mean `1 / rate` s, the first one counted from 0.

    This is `gamma` with shape 1. Raises ValueError as `constant` does.
    """
    return gamma(rate, duration_ns, 1.0, rng)


def gamma(rate: float, duration_ns: int, shape: float, rng: "np.random.Generator") -> Schedule:
    """Gaps follow a gamma distribution of this shape with mean `1 / rate` s, the first one counted from 0.

    The coefficient of variation of the gaps is `1 / sqrt(shape)`: 1 is Poisson, 0.25 comes in bursts (2), 100 is
    nearly even (0.1). vLLM's serving benchmark calls the same number its burstiness. Over a duration T the expected
    number of requests tends to `rate * T + (1 / shape - 1) / 2` (renewal theory: Cox, "Renewal Theory", 1962).
    Raises ValueError as `constant` does, and for a shape that is not above 0 or not finite.
    """
    import numpy as np

    _check(rate, duration_ns)
    if not 0 < shape < math.inf:
        raise ValueError(f"a gamma shape must be above 0 and finite, not {shape!r}")
    scale_ns = NS_PER_S / rate / shape
    size = max(_FEWEST_GAPS, math.ceil(1.1 * rate * duration_ns / NS_PER_S))
    ends = np.zeros(1)
    while ends[-1] < duration_ns:
        ends = np.concatenate([ends, ends[-1] + np.cumsum(rng.gamma(shape, scale_ns, size))])
    starts = np.rint(ends[1:])
    return _at(starts[starts < duration_ns].astype(np.int64).tolist())


def parse_stages(text: str) -> tuple[tuple[float, int], ...]:
    """`"10rps:30s,50rps:1m"` as pairs of a rate and a duration in ns. A stage of `0rps` is a pause.

    Raises ValueError that names the stage, and says what was expected, unless every stage reads RATErps:DURATION with
    a duration above 0.
    """
    return tuple(_parse_stage(place, part) for place, part in enumerate(text.split(","), start=1))


def _parse_stage(place: int, text: str) -> tuple[float, int]:
    match = _STAGE.fullmatch(text)
    if match is None:
        raise ValueError(f"stage {place}, {text!r}: expected RATErps:DURATION, such as 50rps:30s")
    try:
        duration_ns = parse_duration(match[2])
    except ValueError as error:
        raise ValueError(f"stage {place}, {text!r}: {error}") from None
    if duration_ns == 0:
        raise ValueError(f"stage {place}, {text!r}: expected a duration above 0, such as 30s")
    return float(match[1]), duration_ns


def stages(text: str, process: Process) -> Schedule:
    """Stages of load one after the other; `process` draws each from its rate and duration.

    `stages("10rps:30s,50rps:30s", constant)`, or a lambda that adds the generator to `poisson` or `gamma`. Every
    stage begins where the text puts it, whether or not the one before is done. Raises ValueError as `parse_stages`.
    """
    schedule: list[Arrival] = []
    begin_ns = 0
    for rate, duration_ns in parse_stages(text):
        drawn = process(rate, duration_ns) if rate else ()
        schedule += [replace(arrival, at_ns=begin_ns + arrival.at_ns) for arrival in drawn]
        begin_ns += duration_ns
    return tuple(schedule)


def replay(times_ns: Sequence[int], lengths: Sequence[Lengths] | None = None, speed: float = 1.0) -> Schedule:
    """Recorded starts on any clock, moved so that the first is at 0, with all gaps divided by `speed`.

    `lengths` are input and output tokens of each, None where the recording does not say. No times, empty schedule.
    Raises ValueError for times out of order, lengths of another number, or a speed not above 0 or not finite.
    """
    if not 0 < speed < math.inf:
        raise ValueError(f"a replay's speed must be above 0 and finite, not {speed!r}")
    if any(later < earlier for earlier, later in pairwise(times_ns)):
        raise ValueError("recorded times must be in order; from_rows sorts them")
    if lengths is None:
        lengths = [(None, None)] * len(times_ns)
    if len(lengths) != len(times_ns):
        raise ValueError(f"{len(times_ns)} times need as many lengths, not {len(lengths)}")
    return tuple(
        Arrival(at_ns=round((time_ns - times_ns[0]) / speed), input_tokens=asked, output_tokens=answered)
        for time_ns, (asked, answered) in zip(times_ns, lengths, strict=True)
    )


def from_rows(rows: Iterable[tuple[int, int | None, int | None]]) -> Schedule:
    """Recorded `(at_ns, input_tokens, output_tokens)` in any order, as `replay`; equal instants keep their order."""
    ordered = sorted(rows, key=lambda row: row[0])
    return replay([at_ns for at_ns, _, _ in ordered], [(asked, answered) for _, asked, answered in ordered])


def mark_warm_up(schedule: Schedule, warm_up_ns: int) -> Schedule:
    """The same schedule; those that start before `warm_up_ns` are marked, all others are not."""
    return tuple(replace(arrival, warm_up=arrival.at_ns < warm_up_ns) for arrival in schedule)


def split(schedule: Schedule, senders: int) -> tuple[Schedule, ...]:
    """The schedule dealt out in turn, so that each sender has every n-th start and none has a burst to itself.

    Nothing is lost or doubled; with more senders than requests some get nothing. Raises ValueError below 1 sender.
    """
    if senders < 1:
        raise ValueError(f"a schedule is split between 1 or more senders, not {senders}")
    return tuple(schedule[first::senders] for first in range(senders))


def _at(starts_ns: Iterable[int]) -> Schedule:
    return tuple(Arrival(at_ns=at_ns) for at_ns in starts_ns)


def _check(rate: float, duration_ns: int) -> None:
    if not 0 < rate < math.inf:
        raise ValueError(f"a rate must be above 0 and finite, in requests per second, not {rate!r}")
    if duration_ns < 0:
        raise ValueError(f"a duration must be at least 0 ns, not {duration_ns}")
