"""A run of `outlay measure`, from its job to what it found."""

import asyncio
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import uvloop

from outlay.cli.log import Log
from outlay.cli.measure_options import Job, Judged, LoadPlan, Numbers, describe, judged_of
from outlay.probe.crew import Crew, launch
from outlay.probe.orders import Setup, Word

if TYPE_CHECKING:  # imported while the senders start
    from outlay.arrivals import Arrival, Schedule
    from outlay.cli.live import View
    from outlay.cli.recorder import Recorder
    from outlay.gauges import Samples
    from outlay.measurement import EngineSeen, Measurement
    from outlay.probe.run import Run

# How much this process gives way to its senders, in steps of nice(1).
_PATIENCE = 10

# How often an engine's own page is read.
_SCRAPE_S = 5.0
_SCRAPE_PATIENCE_S = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What a run gave. `measurement` None: nothing came back before it was stopped."""

    measurement: "Measurement | None"
    job: Job
    log_trouble: OSError | None
    stopped: bool


def run(job: Job) -> Found:
    """Run it. Raises Mistake for a schedule or a budget that cannot be read, OSError for a log that cannot be made,
    and SenderDied."""
    crew = launch(_setups(job))
    # What understands the answers can wait; what sends the requests cannot.
    os.nice(_PATIENCE)
    try:
        return uvloop.run(_hung_up(job, crew))
    finally:
        crew.end()


def _setups(job: Job) -> list[Setup]:
    lanes = job.load.lanes
    return [
        Setup(
            sender=sender,
            targets=tuple(point.target for point in job.points),
            lanes=None if lanes is None else lanes // job.senders + (sender < lanes % job.senders),
            connections=max(1, job.connections // job.senders),
            fresh=job.fresh,
            timeout_ns=job.timeout_ns,
        )
        for sender in range(job.senders)
    ]


async def _hung_up(job: Job, crew: Crew) -> Found:
    try:
        return await _run(job, crew)
    finally:
        await crew.hang_up()


async def _run(job: Job, crew: Crew) -> Found:
    from outlay.cli.schedules import draw

    judged, schedule = judged_of(job), draw(job.load, len(job.points))
    log = Log(job.log)
    try:
        measurement, stopped = await _logged(job, crew, judged, schedule, log)
    finally:
        log.close()
    return Found(measurement=measurement, job=job, log_trouble=log.trouble, stopped=stopped)


async def _logged(
    job: Job, crew: Crew, judged: Judged, schedule: "Schedule | None", log: Log
) -> "tuple[Measurement | None, bool]":
    """Send first, and import what understands the answers while they are on their way."""
    from outlay.probe.run import Run

    numbers, stop, heard = Numbers(len(job.points)), asyncio.Event(), Inbox()
    await crew.ready()
    run = Run(crew, _maker(job, numbers), heard.hear, stop)
    begun_ns = run.begin()
    with _interrupts(stop):
        sending = asyncio.ensure_future(_send(job.load, schedule, run))
        await asyncio.wait({sending, asyncio.ensure_future(run.ahead.wait())}, return_when=asyncio.FIRST_COMPLETED)
        from outlay.cli.recorder import Recorder

        recorder = Recorder(job, judged, numbers, log, begun_ns)
        heard.tell(recorder.hear)
        counted = None if schedule is None else sum(not arrival.warm_up for arrival in schedule)
        total = job.load.requests if counted is None else counted + len(job.load.idle_ns)
        engine = await _accompany(sending, job, recorder, total)
    return _measurement(job, recorder, schedule, engine, stopped=stop.is_set()), stop.is_set()


async def _accompany(
    sending: "asyncio.Future[None]", job: Job, recorder: "Recorder", total: int | None
) -> "EngineSeen | None":
    """Show the run and read the engine's page until all is back."""
    from outlay.cli.live import View

    view = View(
        recorder.live,
        job.load,
        begun_ns=recorder.begun_ns,
        total=total,
        judged=recorder.judged.within_ns is not None,
        shown=not job.quiet,
    )
    scraper = _Scraper(job)
    beside = [asyncio.ensure_future(work) for work in (_drawing(view), scraper.watch())]
    try:
        await sending
        await scraper.read()
    finally:
        sending.cancel()
        for task in beside:
            task.cancel()
        view.close()
    return scraper.seen()


class Inbox:
    """Keeps what is heard until somebody understands it."""

    def __init__(self) -> None:
        self._kept: list[Word] = []
        self._told: Callable[[Word], None] = self._kept.append

    def hear(self, word: Word) -> None:
        """Pass it on, or keep it."""
        self._told(word)

    def tell(self, told: Callable[[Word], None]) -> None:
        """Tell what was kept, and from now on everything."""
        self._told = told
        for word in self._kept:
            told(word)
        self._kept.clear()


async def _send(load: LoadPlan, schedule: "Schedule | None", run: "Run") -> None:
    if schedule is not None:
        await run.follow(schedule)
    elif load.lanes is not None:
        await run.keep_busy(load.lanes, load.requests, load.for_ns)
    for gap_ns in load.idle_ns:
        await run.after_idle(gap_ns)
    await run.finish()


def _maker(job: Job, numbers: Numbers) -> "Callable[[int, Arrival], tuple[int, tuple[bytes, ...]]]":
    """Renders the request with a number: its own words, the lengths that a recording asks for, the ids to join by."""
    from outlay.probe.address import request_bytes
    from outlay.probe.asking import request_of

    chosen = {name.lower() for name, _ in job.headers}

    def make(number: int, arrival: "Arrival") -> tuple[int, tuple[bytes, ...]]:
        ask = job.ask
        if arrival.input_tokens is not None or arrival.output_tokens is not None:
            words, tokens = arrival.input_tokens or ask.words, arrival.output_tokens or ask.output_tokens
            ask = replace(ask, words=max(words, 1), output_tokens=tokens)
        place = numbers.point_of(number)
        point = job.points[place]
        request = request_of(ask, number=number, seed=job.load.seed)
        if request.messages:
            return place, request.messages
        trace_id = numbers.trace_id(number)
        ids = (("traceparent", f"00-{trace_id}-{number + 1:016x}-01"), ("x-request-id", trace_id))
        usual = [each for each in (("accept", "*/*"), *request.headers) if each[0] not in chosen]
        headers = (*usual, *ids, *job.headers)
        return place, (request_bytes(request.method, point.address, point.path, headers, request.body),)

    return make


async def _drawing(view: "View") -> None:
    from outlay.cli.live import EVERY_S

    while True:
        view.draw()
        await asyncio.sleep(EVERY_S)


@contextmanager
def _interrupts(stop: asyncio.Event) -> Iterator[None]:
    """The first interrupt ends the run and keeps what it has; a second one ends this program."""
    loop = asyncio.get_running_loop()
    signals = (signal.SIGINT, signal.SIGTERM)

    def interrupted(number: int) -> None:
        loop.remove_signal_handler(number)
        # By the signal itself: an exception in the middle of the loop would only be complained of, and the run go on.
        signal.signal(number, signal.SIG_DFL)
        stop.set()

    for number in signals:
        loop.add_signal_handler(number, interrupted, number)
    try:
        yield
    finally:
        for number in signals:
            loop.remove_signal_handler(number)


class _Scraper:
    """An engine's own page, read at the begin, now and then, and at the end. Whoever has none is left alone."""

    def __init__(self, job: Job) -> None:
        self._address = job.metrics
        self._pages: list[Samples] = []

    async def watch(self) -> None:
        await self.read()
        while self._pages:
            await asyncio.sleep(_SCRAPE_S)
            await self.read()

    async def read(self) -> None:
        if self._address is not None and (page := await asyncio.to_thread(_page, self._address.url)) is not None:
            self._pages.append(page)

    def seen(self) -> "EngineSeen | None":
        from outlay.gauges import seen

        return seen(self._pages)


def _page(url: str) -> "Samples | None":
    """A page of metrics; None where there is none to be had."""
    from http.client import HTTPException
    from urllib.request import urlopen

    from outlay.gauges import engine_of, samples

    try:
        with urlopen(url, timeout=_SCRAPE_PATIENCE_S) as answer:
            page = samples(answer.read(4 * 1024 * 1024).decode("utf-8", "replace"))
    except (OSError, HTTPException, ValueError):
        return None
    return page if engine_of(page) is not None else None


def _measurement(
    job: Job, recorder: "Recorder", schedule: "Schedule | None", engine: "EngineSeen | None", *, stopped: bool
) -> "Measurement | None":
    """What was found, once everything is back; None when nothing came back."""
    import numpy as np

    from outlay.cli.schedules import parts_of
    from outlay.conclude import RunFacts, measurement_of
    from outlay.explain import build_report

    facts = RunFacts(
        plan=describe(job.load, None if schedule is None else len(schedule)),
        moment=recorder.judged.moment.name,
        begun_ns=recorder.begun_ns,
        parts=parts_of(job.load),
        rate=job.load.rate,
        health=recorder.health(),
        clock=recorder.clock,
        within_ns=recorder.judged.within_ns,
        until=recorder.judged.until,
        dimensions=job.dimensions,
        rounds=[recorder.rounds[place] for place in sorted(recorder.rounds)],
        stopped=stopped,
        notes=recorder.notes,
        engine=engine,
    )
    points = {point.name: (point.address.url, tally) for point, tally in zip(job.points, recorder.tallies, strict=True)}
    measured = measurement_of(points, facts, np.random.default_rng(job.load.seed))
    if measured is None:
        return None
    for load in measured.loads:
        recorder.keep(load)
    recorder.gathering.flush()
    return replace(measured, report=build_report(recorder.gathering, ()))
