"""A server whose every byte a test decides, and a run against it."""

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from outlay.arrivals import Arrival, Schedule
from outlay.probe.crew import Crew, launch
from outlay.probe.exchange import Exchange
from outlay.probe.orders import Health, Setup, Target, Tls, Word
from outlay.probe.run import Run
from outlay.units import NS_PER_MS, NS_PER_S

Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter, int], Awaitable[None]]

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"


def at_once(count: int) -> Schedule:
    return tuple(Arrival(at_ns=0) for _ in range(count))


def every(gap_ms: float, count: int) -> Schedule:
    return tuple(Arrival(at_ns=round(place * gap_ms * NS_PER_MS)) for place in range(count))


@dataclass
class World:
    """`answer(reader, writer, n)` answers the n-th request of a connection; the connection stays until it closes it."""

    answer: Answer
    tls: ssl.SSLContext | None = None
    heads: list[bytes] = field(default_factory=list)
    connections: int = 0

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            for place in range(1_000_000):
                self.heads.append(await reader.readuntil(b"\r\n\r\n"))
                await self.answer(reader, writer, place)
                if writer.is_closing():
                    return
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    def measure(self, schedule: Schedule, *, stop_after: int | None = None, **options: object) -> "Seen":
        """What a run of one sender saw; options are those of a Setup, and host, port and TLS of the target."""
        listener = socket.create_server(("127.0.0.1", 0))
        target = Target(
            host=str(options.pop("host", "127.0.0.1")),
            port=int(options.pop("port", listener.getsockname()[1])),  # type: ignore[call-overload] # a test's own
            tls=options.pop("client_tls", None),  # type: ignore[arg-type] # a Tls
        )
        setup = Setup(**{"sender": 0, "targets": (target,), "timeout_ns": 20 * NS_PER_S, **options})  # type: ignore[arg-type]
        crew = launch([setup])
        try:
            return asyncio.run(self._measured(crew, listener, schedule, setup.lanes, stop_after))
        finally:
            crew.end()

    async def _measured(
        self, crew: Crew, listener: socket.socket, schedule: Schedule, lanes: int | None, stop_after: int | None
    ) -> "Seen":
        server = await asyncio.start_server(self._serve, sock=listener, ssl=self.tls)
        seen, stop = Seen(), asyncio.Event()

        def hear(word: Word) -> None:
            seen.take(word)
            if stop_after is not None and len(seen.exchanges) >= stop_after:
                stop.set()

        def make(number: int, _arrival: Arrival) -> tuple[int, tuple[bytes, ...]]:
            return 0, (b"GET /%d HTTP/1.1\r\nhost: test\r\n\r\n" % number,)

        await crew.ready()
        run = Run(crew, make, hear, stop)
        seen.begun_ns = run.begin()
        try:
            if lanes is not None:
                await run.keep_busy(lanes, len(schedule), None)
            else:
                await run.follow(schedule)
            await run.finish()
        finally:
            await crew.hang_up()
            server.close()
            await server.wait_closed()
        return seen


@dataclass
class Seen:
    exchanges: list[Exchange] = field(default_factory=list)
    health: list[Health] = field(default_factory=list)
    begun_ns: int = 0

    def take(self, word: Word) -> None:
        if isinstance(word, Exchange):
            self.exchanges.append(word)
        elif isinstance(word, Health):
            self.health.append(word)

    @property
    def in_order(self) -> Sequence[Exchange]:
        return sorted(self.exchanges, key=lambda exchange: exchange.number)

    @property
    def only(self) -> Exchange:
        (exchange,) = self.exchanges
        return exchange


def writes(*pieces: bytes, pause_s: float = 0.002, end: str = "") -> Answer:
    """Write pieces, each on its own; then stay, `close` or `reset`."""

    async def answer(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _place: int) -> None:
        for place, piece in enumerate(pieces):
            if place:
                await asyncio.sleep(pause_s)  # so that the client reads them one by one
            writer.write(piece)
            await writer.drain()
        if end == "close":
            writer.close()
        elif end == "reset":
            writer.transport.abort()

    return answer


__all__ = ["OK", "Answer", "Seen", "Tls", "World", "at_once", "every", "writes"]
