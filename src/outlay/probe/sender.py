"""One sender process: it sends each request at its instant, stamps the answer's bytes, and does nothing else.

It takes orders from the run and tells it what it saw (`orders`). JSON, tokens, statistics and files are the run's
business, in another process.
"""

import asyncio
import gc
import os
import resource
import signal
import socket
import sys
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from time import monotonic_ns, process_time_ns
from typing import cast

import uvloop

from outlay.probe.connection import Connection, lost_because
from outlay.probe.dial import Dialled, dial, prepare
from outlay.probe.exchange import Exchange, Failure
from outlay.probe.orders import ORDER, Bye, Finish, Frames, Health, Order, Ready, Setup, Shot, Shots, Word, frame
from outlay.probe.timer import Timer
from outlay.units import NS_PER_MS, NS_PER_S

# How often the loop looks at itself; a stall is what it is late by.
_BEAT_NS = 10 * NS_PER_MS
_REPORT_NS = NS_PER_S // 2

# Where there is no real-time priority to ask for.
_PRIORITY = -10


class Sender:
    """The state of one sender, once it knows its setup."""

    def __init__(self, loop: asyncio.AbstractEventLoop, setup: Setup, out: asyncio.WriteTransport) -> None:
        self._loop = loop
        self._setup = setup
        self._out = out
        self._timer = Timer(loop, self._shoot)
        self._coming: deque[Shot] = deque()
        self._waiting: tuple[deque[tuple[Shot, Exchange]], ...] = tuple(deque() for _ in setup.targets)
        self._idle: tuple[list[Connection], ...] = tuple([] for _ in setup.targets)
        self._count = [0] * len(setup.targets)
        self._connections = 0
        self._running: dict[int, tuple[Shot, Exchange, Connection | asyncio.Task[None] | None]] = {}
        self._lanes_free_ns: deque[int] = deque([monotonic_ns()] * (setup.lanes or 0))
        self._finishing = False
        self._over = False
        self._beat_ns = self._reported_ns = monotonic_ns()
        self._cpu_ns = process_time_ns()
        self._stalled_ns = 0
        self._stalls: list[tuple[int, int]] = []

    # Orders

    def begin(self) -> None:
        """Say so, and keep an eye on the loop from now on."""
        self._say(Ready(self._setup.sender))
        self._beat_ns = monotonic_ns()
        self._loop.call_later(_BEAT_NS / NS_PER_S, self._beat)

    def add(self, shots: Shots) -> None:
        """More to send."""
        self._coming.extend(shots.shots)
        self._next()

    def finish(self, order: Finish) -> None:
        """End when all that was taken up is done, or now."""
        self._finishing = True
        self._coming.clear()
        if order.give_up:
            for waiting in self._waiting:
                waiting.clear()
            for number in list(self._running):
                self._give_up(number, "stopped")
        self._maybe_end()

    # Sending

    def _next(self) -> None:
        if self._setup.lanes is not None:
            while self._coming and self._lanes_free_ns:
                self._launch(self._coming.popleft(), self._lanes_free_ns.popleft())
        elif self._coming:
            self._timer.set(self._coming[0].at_ns)

    def _shoot(self) -> None:
        """Send all that is due."""
        coming = self._coming
        while coming and coming[0].at_ns <= monotonic_ns():
            shot = coming.popleft()
            self._launch(shot, shot.at_ns)
        if coming:
            self._timer.set(coming[0].at_ns)

    def _launch(self, shot: Shot, intended_ns: int) -> None:
        exchange = Exchange(
            number=shot.number, intended_ns=intended_ns, enqueued_ns=monotonic_ns(), sender=self._setup.sender
        )
        self._running[shot.number] = (shot, exchange, None)
        self._place(shot, exchange)

    def _place(self, shot: Shot, exchange: Exchange) -> None:
        """On a kept connection, on a new one, or behind those that wait for one."""
        idle = self._idle[shot.target]
        if idle:
            exchange.reused = True
            self._use(idle.pop(), shot, exchange)
        elif self._count[shot.target] < self._setup.connections:
            self._dial(shot, exchange)
        else:
            self._waiting[shot.target].append((shot, exchange))

    def _use(self, connection: Connection, shot: Shot, exchange: Exchange) -> None:
        if exchange.begun_ns is None:
            exchange.begun_ns = monotonic_ns()
        self._running[shot.number] = (shot, exchange, connection)
        connection.send(shot, exchange)

    def _dial(self, shot: Shot, exchange: Exchange) -> None:
        self._count[shot.target] += 1
        task = self._loop.create_task(self._connect(shot, exchange))
        self._running[shot.number] = (shot, exchange, task)

    async def _connect(self, shot: Shot, exchange: Exchange) -> None:
        self._connections += 1
        exchange.begun_ns = monotonic_ns()
        dialled = Dialled(number=self._connections, target=shot.target, done=self._done, lost=self._lost)
        try:
            connection = await dial(self._loop, self._setup.targets[shot.target], exchange, dialled)
        except OSError as error:
            self._count[shot.target] -= 1
            exchange.why = _said(error)
            exchange.ended_ns = monotonic_ns()
            self._settle(exchange)
            return
        if shot.number in self._running:
            self._use(connection, shot, exchange)

    # Ends

    def _done(self, connection: Connection, target: int, exchange: Exchange, again: bool) -> None:
        shot = self._running[exchange.number][0]
        if again and not self._setup.fresh:
            waiting = self._waiting[target]
            if waiting:
                next_shot, next_exchange = waiting.popleft()
                next_exchange.reused = True
                self._use(connection, next_shot, next_exchange)
            else:
                self._idle[target].append(connection)
        else:
            connection.close()
            self._left(target)
        if exchange.failure == "reset" and exchange.reused:
            # The server had closed a kept connection as the request went out: every client sends it again. The next
            # one may be closed as well; a new one that breaks off is no longer that.
            self._place(shot, _again(exchange))
            return
        self._settle(exchange)

    def _lost(self, connection: Connection, target: int) -> None:
        if connection in self._idle[target]:
            self._idle[target].remove(connection)
            self._left(target)

    def _left(self, target: int) -> None:
        """A connection is gone: one that waits may dial."""
        self._count[target] -= 1
        if self._waiting[target]:
            self._dial(*self._waiting[target].popleft())

    def _settle(self, exchange: Exchange) -> None:
        if self._running.pop(exchange.number, None) is None:
            return
        if self._setup.lanes is not None:
            self._lanes_free_ns.append(monotonic_ns())
        self._say(exchange)
        self._next()
        self._maybe_end()

    def _give_up(self, number: int, failure: Failure) -> None:
        _, exchange, holder = self._running[number]
        if isinstance(holder, asyncio.Task):
            holder.cancel()
            self._left(self._running[number][0].target)
        elif holder is not None:
            holder.give_up(failure)
            return
        else:
            self._forget_waiting(exchange)
        exchange.failure = failure
        exchange.ended_ns = monotonic_ns()
        self._settle(exchange)

    def _forget_waiting(self, exchange: Exchange) -> None:
        for waiting in self._waiting:
            for held in waiting:
                if held[1] is exchange:
                    waiting.remove(held)
                    return

    # The loop itself

    def _beat(self) -> None:
        now_ns = monotonic_ns()
        stalled_ns = now_ns - self._beat_ns - _BEAT_NS
        self._stalled_ns = max(self._stalled_ns, stalled_ns)
        if stalled_ns >= _BEAT_NS:
            self._stalls.append((self._beat_ns, now_ns))
        self._beat_ns = now_ns
        self._time_out(now_ns)
        if now_ns - self._reported_ns >= _REPORT_NS:
            self._report(now_ns)
        if not self._over:
            self._loop.call_later(_BEAT_NS / NS_PER_S, self._beat)

    def _time_out(self, now_ns: int) -> None:
        """All have the same patience from their intended start, so the first that has some left ends the search."""
        late = []
        for number, (_, exchange, _) in self._running.items():
            if now_ns - exchange.intended_ns < self._setup.timeout_ns:
                break
            late.append(number)
        for number in late:
            self._give_up(number, "timeout")

    def _report(self, now_ns: int) -> None:
        cpu_ns = process_time_ns()
        self._say(
            Health(
                sender=self._setup.sender,
                at_ns=now_ns,
                passed_ns=now_ns - self._reported_ns,
                cpu_ns=cpu_ns - self._cpu_ns,
                stalled_ns=self._stalled_ns,
                stalls=tuple(self._stalls),
                in_flight=len(self._running),
                waiting=sum(map(len, self._waiting)),
            )
        )
        self._reported_ns, self._cpu_ns, self._stalled_ns = now_ns, cpu_ns, 0
        self._stalls.clear()

    def _maybe_end(self) -> None:
        if not self._finishing or self._running or self._coming or self._over:
            return
        self._over = True
        self._report(monotonic_ns())
        self._say(Bye(self._setup.sender))
        for idle in self._idle:
            for connection in idle:
                connection.close()
        self._timer.close()
        self._out.close()

    def _say(self, word: Word) -> None:
        self._out.write(frame(word))


def _said(error: OSError) -> str:
    """The system's own words, without the address that loops add to them."""
    own = isinstance(error, ConnectionError) and error.errno is not None
    return os.strerror(error.errno) if own and error.errno else error.strerror or str(error) or lost_because(error)


def _again(exchange: Exchange) -> Exchange:
    """The same exchange, for its second try: what it waited until now stays in it."""
    exchange.retried, exchange.reused = True, False
    exchange.failure, exchange.why = "", ""
    exchange.written_ns = exchange.sent_ns = exchange.ended_ns = exchange.begun_ns = None
    return exchange


class _Orders(asyncio.Protocol):
    """The line to the run. Its end is the end of this process, so no sender outlives its run."""

    def __init__(self, setup: Setup, ended: asyncio.Event) -> None:
        self._setup = setup
        self._ended = ended
        self._sender: Sender
        self._frames: Frames = Frames(ORDER.decode, self._take)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        out = cast(asyncio.Transport, transport)
        self._sender = Sender(asyncio.get_running_loop(), self._setup, out)
        self._sender.begin()

    def data_received(self, data: bytes) -> None:
        self._frames.feed(data)

    def connection_lost(self, _error: Exception | None) -> None:
        self._ended.set()

    def _take(self, order: Order) -> None:
        match order:
            case Shots():
                self._sender.add(order)
            case Finish():
                self._sender.finish(order)


async def _serve(setup: Setup, line: socket.socket) -> None:
    # What a forked process inherited need never be looked at again, and nothing here makes garbage in circles.
    gc.freeze()
    gc.set_threshold(100_000, 50, 1000)
    ended = asyncio.Event()
    await asyncio.get_running_loop().create_unix_connection(lambda: _Orders(setup, ended), sock=line)
    await ended.wait()


def serve(setup: Setup, line: socket.socket, not_ours: Sequence[socket.socket]) -> None:
    """Serve one run over `line`, in a process of its own; of a forked one `not_ours` are the run's ends of the lines.

    A terminal interrupts all processes, and so do timeout(1) and service managers when they end one; what to do about
    it the run decides, and a sender ends with its line.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    for sock in not_ours:
        sock.close()
    _hurry()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    for target in setup.targets:
        prepare(target)
    uvloop.run(_serve(setup, line))


def _hurry() -> None:
    """A sender works in short bursts and must not wait for its turn behind what understands, draws or is measured."""
    with suppress(PermissionError):
        if sys.platform == "linux":
            os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
        else:
            os.setpriority(os.PRIO_PROCESS, 0, _PRIORITY)
