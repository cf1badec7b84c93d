"""The schedule of a run, drawn whole before anything is sent."""

from functools import partial
from typing import TYPE_CHECKING

from outlay.arrivals import Process, Schedule, constant, gamma, mark_warm_up, parse_stages, poisson, replay, stages
from outlay.cli.measure_options import LoadPlan, Mistake
from outlay.units import NS_PER_S

if TYPE_CHECKING:
    from outlay.tally import Part

ALL_WARM_UP = "--warm-up: nothing starts after it, so nothing would be counted; send for longer"

# A schedule is kept whole, and so is what comes of it.
MOST_REQUESTS = 10_000_000


def draw(load: LoadPlan, points: int) -> Schedule | None:
    """When each request is due, the same for the same seed; None for a closed loop, which has no schedule.

    With several points it has a whole number of rounds. Raises Mistake for what cannot be read, and for an empty one.
    """
    if load.lanes is not None:
        return None
    try:
        schedule = _drawn(load)
    except ValueError as error:  # so are those of formats
        raise Mistake(str(error)) from None
    except OSError as error:
        raise Mistake(f"--replay {load.replay}: {error.strerror}") from None
    if load.for_ns is not None:
        schedule = tuple(arrival for arrival in schedule if arrival.at_ns < load.for_ns)
    schedule = schedule[: load.requests]
    schedule = schedule[: len(schedule) // points * points]
    if not schedule:
        raise Mistake("no request falls into that time: send for longer, or at a higher --rate")
    if schedule[-1].at_ns < load.warm_up_ns and not load.idle_ns:
        raise Mistake(ALL_WARM_UP)
    return mark_warm_up(schedule, load.warm_up_ns)


def parts_of(load: LoadPlan) -> "tuple[Part, ...]":
    """The stages of the load; empty where it has none."""
    from outlay.tally import Part

    if load.stages is None:
        return ()
    parts: list[Part] = []
    begin_ns = 0
    for rate, duration_ns in parse_stages(load.stages):
        if rate:
            name = f"stage {len(parts) + 1}, {rate:g} a second"
            parts.append(Part(name=name, rate=rate, from_ns=begin_ns, to_ns=begin_ns + duration_ns))
        begin_ns += duration_ns
    return tuple(parts)


def _drawn(load: LoadPlan) -> Schedule:
    if load.replay is not None:
        from outlay.formats.arrival_traces import read_schedule

        with load.replay.open("rb") as lines:
            recorded = read_schedule(lines)
        times_ns = [arrival.at_ns for arrival in recorded]
        lengths = [(arrival.input_tokens, arrival.output_tokens) for arrival in recorded]
        return replay(times_ns, lengths, load.speed)
    process = _process(load)
    if load.stages is not None:
        _check_size(sum(rate * duration_ns / NS_PER_S for rate, duration_ns in parse_stages(load.stages)))
        return stages(load.stages, process)
    rate = load.rate or 0.0  # an open loop without stages and recording always has one
    if load.for_ns is not None:
        _check_size(rate * load.for_ns / NS_PER_S)
        return process(rate, load.for_ns)
    return _enough(process, rate, load.requests or 0)


def _process(load: LoadPlan) -> Process:
    if load.arrivals == "constant":
        return constant
    import numpy as np

    rng = np.random.default_rng(load.seed)
    processes: dict[str, Process] = {
        "poisson": partial(poisson, rng=rng),
        "gamma": lambda rate, duration_ns: gamma(rate, duration_ns, load.shape, rng),
    }
    return processes[load.arrivals]


def _enough(process: Process, rate: float, requests: int) -> Schedule:
    """At least so many; a longer time is drawn until they are there."""
    _check_size(requests)
    for_ns = round((requests + 1) / rate * NS_PER_S)
    while len(schedule := process(rate, for_ns)) < requests:
        for_ns *= 2
    return schedule


def _check_size(requests: float) -> None:
    if requests > MOST_REQUESTS:
        raise ValueError(f"{requests:,.0f} requests are more than a run can keep; {MOST_REQUESTS:,} are the most")
