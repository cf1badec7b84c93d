"""A run: shots handed to the senders ahead of their time, answers heard, an end that keeps what was measured."""

import asyncio
from collections.abc import Callable, Sequence
from time import monotonic_ns
from typing import Any

from outlay.arrivals import Arrival, Schedule
from outlay.probe.crew import Crew
from outlay.probe.exchange import Exchange
from outlay.probe.orders import Shot, Word
from outlay.units import NS_PER_MS, NS_PER_S

# What is rendered and handed over before it is due: more than this process should ever stand still for.
_AHEAD_NS = 2 * NS_PER_S
_FEED_S = 0.05

# So many are rendered in one go: in less time than passes until the first of them is due.
_AT_ONCE = 20

# The same for a closed loop, in requests behind each lane.
_BEHIND = 50

# Between the last preparation and the first intended start: longer than a pipe and a wake-up take.
_LEAD_NS = 20 * NS_PER_MS

# The target of a shot, and its parts (`orders.Shot`); made of its number and the arrival that it serves.
Make = Callable[[int, Arrival], tuple[int, tuple[bytes, ...]]]


class Run:
    """One run of a crew of senders.

    `hear` is called with each exchange and each word of a sender's health. `stop` is set to end early: requests under
    way are given up with the failure "stopped", those not yet due are not sent, and both are the run's own doing.
    """

    def __init__(self, crew: Crew, make: Make, hear: Callable[[Word], None], stop: asyncio.Event) -> None:
        self.begun_ns = 0
        self.given = 0  # requests handed over; a closed loop may leave the last of them
        self._make = make
        self._told = hear
        self._stop = stop
        self._crew = crew
        self._back = 0
        # Set when the senders have so much that this process may turn to something else for a while.
        self.ahead = asyncio.Event()
        self._returned = asyncio.Event()
        self._more: Callable[[int], None] | None = None
        crew.listen(self._hear)

    def begin(self) -> int:
        """The instant from which the run counts, a little from now."""
        self.begun_ns = monotonic_ns() + _LEAD_NS
        return self.begun_ns

    async def follow(self, schedule: Schedule) -> None:
        """Open loop: each request at its instant from the begin on, whatever the answers; return when all are back."""
        place = 0
        while place < len(schedule) and not self._stop.is_set():
            until_ns = monotonic_ns() + _AHEAD_NS - self.begun_ns
            due = place
            while due < min(place + _AT_ONCE, len(schedule)) and schedule[due].at_ns <= until_ns:
                due += 1
            self._hand_over(schedule[place:due])
            # A full batch means that more is due to be handed over: only what came in meanwhile goes before it.
            full = due == place + _AT_ONCE
            place = due
            if not full:
                self.ahead.set()
            await self._pause(0 if full else _FEED_S)
        self.ahead.set()
        await self._all_back()

    async def keep_busy(self, lanes: int, requests: int | None, for_ns: int | None) -> None:
        """Closed loop: so many at once, until so many were sent or the time is over; return when all are back."""
        deadline_ns = None if for_ns is None else self.begun_ns + for_ns

        def more(sender: int) -> None:
            over = self._stop.is_set() or (deadline_ns is not None and monotonic_ns() >= deadline_ns)
            if not over and (requests is None or self.given < requests):
                self._give(sender, Arrival(at_ns=monotonic_ns() - self.begun_ns))

        # Many wait behind each lane, so that none is idle while this process has other things to do.
        self._more = more
        for place in range(_BEHIND * lanes):
            more(place % len(self._crew))
        self.ahead.set()
        if deadline_ns is not None:
            await self._pause((deadline_ns - monotonic_ns()) / NS_PER_S)
        else:
            await self._all_back()
        self._more = None

    async def after_idle(self, gap_ns: int) -> None:
        """One request after so long without any; return when it is back."""
        at_ns = monotonic_ns() + gap_ns - self.begun_ns
        await self._pause(gap_ns / NS_PER_S)
        if not self._stop.is_set():
            self._give(0, Arrival(at_ns=at_ns))
            await self._all_back()

    async def finish(self) -> None:
        """Await what was taken up, unless the run was stopped. Raises SenderDied."""
        await self._crew.finish(give_up=self._stop.is_set())

    def _hand_over(self, arrivals: Sequence[Arrival]) -> None:
        shots: list[list[Shot]] = [[] for _ in range(len(self._crew))]
        for arrival in arrivals:
            shots[self.given % len(shots)].append(self._shot(arrival))
        for sender, some in enumerate(shots):
            if some:
                self._crew.give(sender, some)

    def _give(self, sender: int, arrival: Arrival) -> None:
        self._crew.give(sender, [self._shot(arrival)])

    def _shot(self, arrival: Arrival) -> Shot:
        number = self.given
        self.given += 1
        self._returned.clear()
        target, parts = self._make(number, arrival)
        return Shot(number=number, at_ns=self.begun_ns + arrival.at_ns, target=target, parts=parts)

    def _hear(self, word: Word) -> None:
        if isinstance(word, Exchange):
            self._back += 1
            if self._more is not None:
                self._more(word.sender)
            if self._back == self.given:
                self._returned.set()
        self._told(word)

    async def _all_back(self) -> None:
        if self._back < self.given:
            await self._until(self._returned)

    async def _pause(self, seconds: float) -> None:
        if seconds > 0:
            await self._until(self._stop, seconds)
        else:
            await asyncio.sleep(0)

    async def _until(self, event: asyncio.Event, seconds: float | None = None) -> None:
        """Wait for the event, for the run to be stopped, or so long. Raises SenderDied when a sender ends meanwhile."""
        waits = [asyncio.ensure_future(either.wait()) for either in {event, self._stop}]
        died = self._crew.died
        awaited: list[asyncio.Future[Any]] = [*waits, died]
        await asyncio.wait(awaited, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()
        if died.done():
            died.result()
