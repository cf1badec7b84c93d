"""The sender processes of a run, from the side of the run."""

import asyncio
import multiprocessing
import signal
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.process import BaseProcess
from typing import cast

from outlay.probe import sender
from outlay.probe.orders import WORD, Bye, Finish, Frames, Order, Ready, Setup, Shot, Shots, Word, frame


class SenderDied(RuntimeError):  # noqa: N818 -- it reads as what happened
    """A sender process ended before it had said all."""


class Crew:
    """Sender processes. `launch` makes them; `ready` must be awaited before anything else."""

    def __init__(self, processes: Sequence[BaseProcess], sockets: Sequence[socket.socket]) -> None:
        self._processes = processes
        self._sockets = sockets
        self._lines: list[_Line] = []

    def __len__(self) -> int:
        return len(self._processes)

    async def ready(self) -> None:
        """Wait until all can send. Raises SenderDied."""
        loop = asyncio.get_running_loop()
        for sock in self._sockets:
            _, line = await loop.create_unix_connection(_Line, sock=sock)
            self._lines.append(line)
        # Raises SenderDied when one of them has ended before its time.
        self.died: asyncio.Future[list[None]] = asyncio.gather(*(line.left for line in self._lines))
        self.died.add_done_callback(_noticed)
        await asyncio.gather(*(line.ready for line in self._lines))

    def listen(self, hear: Callable[[Word], None]) -> None:
        """From now on call `hear` with each word of any of them."""
        for line in self._lines:
            line.hear = hear

    def give(self, place: int, shots: Sequence[Shot]) -> None:
        """More to send for one of them, in order of time."""
        self._lines[place].order(Shots(tuple(shots)))

    async def finish(self, *, give_up: bool) -> None:
        """Wait until each has ended what it had taken up, or given it up. Raises SenderDied."""
        for line in self._lines:
            line.order(Finish(give_up))
        await asyncio.gather(*(line.left for line in self._lines))

    async def hang_up(self) -> None:
        """Close the lines; a sender whose line is closed ends."""
        for line in self._lines:
            line.hang_up()
        await asyncio.gather(*(line.gone for line in self._lines))

    def end(self) -> None:
        """End the processes, whatever they do. It needs no loop."""
        for sock in self._sockets:
            sock.close()
        for process in self._processes:
            process.kill()
            process.join()
            process.close()


def launch(setups: Sequence[Setup]) -> Crew:
    """Start a sender for each setup. Call it before there are threads or a loop: where that is safe, it forks.

    A forked sender has nothing to import, and the first request leaves at once.
    """
    darwin = sys.platform == "darwin"
    context = multiprocessing.get_context("spawn") if darwin else multiprocessing.get_context("fork")
    pairs = [socket.socketpair() for _ in setups]
    ours = [here for here, _ in pairs]
    inherited = [] if darwin else ours
    processes = []
    with _uninterrupted():
        for setup, (_, there) in zip(setups, pairs, strict=True):
            process = context.Process(target=sender.serve, args=(setup, there, inherited), daemon=True)
            process.start()
            processes.append(process)
    for _, there in pairs:
        there.close()
    return Crew(processes, ours)


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Let Ctrl-C wait: a terminal sends it to all processes, and what to do about it is for the run to say."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class _Line(asyncio.Protocol):
    """The line to one sender."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.ready: asyncio.Future[None] = loop.create_future()
        self.left: asyncio.Future[None] = loop.create_future()
        self.gone: asyncio.Future[None] = loop.create_future()
        self.hear: Callable[[Word], None] = _deaf
        self._frames: Frames = Frames(WORD.decode, self._take)
        self._transport: asyncio.Transport

    def hang_up(self) -> None:
        self._transport.abort()

    def order(self, order: Order) -> None:
        if not self._transport.is_closing():
            self._transport.write(frame(order))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._frames.feed(data)

    def connection_lost(self, _error: Exception | None) -> None:
        self.gone.set_result(None)
        for awaited in (self.ready, self.left):
            if not awaited.done():
                awaited.set_exception(SenderDied("a sender process died"))
                awaited.exception()  # somebody may wait for it, or nobody

    def _take(self, word: Word) -> None:
        match word:
            case Ready():
                self.ready.set_result(None)
            case Bye():
                self.left.set_result(None)
        self.hear(word)


def _noticed(died: asyncio.Future[list[None]]) -> None:
    """Whoever waits for a line hears of it too; without a look at it asyncio would complain."""
    if not died.cancelled():
        died.exception()


def _deaf(_word: Word) -> None:
    """Nobody listens yet, and nothing was sent."""
