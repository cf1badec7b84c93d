"""Requests as they come in: read off a connection within bounds, handed over one at a time, answered in order."""

import asyncio
import signal
import socket
import ssl
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Protocol, cast

import httptools

from outlay.lab.bodies import error_body
from outlay.units import NS_PER_S

MAX_HEAD_BYTES = 32 * 1024
MAX_BODY_BYTES = 4 * 1024 * 1024
MAX_PIPELINED = 16
PATIENCE_NS = 10 * NS_PER_S  # for a request to arrive once it has begun
_LINGER_S = 1.0  # for a client to read the last of an answer, before what else it sends resets the connection

_REASONS = {reason.value: reason.phrase for reason in HTTPStatus}


@dataclass(slots=True)
class Request:
    """One request as it was read off a connection, and when it could be answered: after the one before it.

    Header names are in lower case. `rest` is what followed a request to switch protocols, None for any other.
    """

    received_ns: int
    ready_ns: int = 0
    method: bytes = b""
    target: bytes = b""
    headers: list[tuple[bytes, bytes]] = field(default_factory=list)
    body: bytearray = field(default_factory=bytearray)
    head_bytes: int = 0
    http_1_1: bool = True
    keep_alive: bool = True
    rest: bytes | None = None
    refusal: tuple[int, str] | None = None

    @property
    def path(self) -> bytes:
        """The target without its query."""
        return self.target.partition(b"?")[0]

    def header(self, name: bytes) -> str:
        """The value of the first header of this name; empty where there is none."""
        return next((value.decode("latin-1") for key, value in self.headers if key == name), "")


@dataclass(frozen=True, slots=True)
class Page:
    """An answer that is there at once."""

    status: int
    media: str
    body: bytes


class Answer(Protocol):
    """An answer that takes time. It tells `Connection.answered` when it is over, be it within `begin`."""

    def begin(self) -> None:
        """Write what is due, and the rest later."""

    def abandon(self) -> None:
        """The client is gone."""


class Connection(asyncio.Protocol):
    """One client: reads requests, also ahead, and lets `answer` deal with one at a time.

    What it reads goes to `on_data` instead once that is set: the client and an answer have switched protocols.
    """

    def __init__(
        self,
        answer: Callable[["Connection", Request], Page | Answer],
        clients: set[asyncio.Transport],
        patience_ns: int,
    ) -> None:
        self._answer, self._clients, self._patience_ns = answer, clients, patience_ns
        self.on_data: Callable[[bytes], None] | None = None
        self._parser = httptools.HttpRequestParser(self)
        self._pending: deque[Request] = deque()
        self._request: Request | None = None
        self._playing: Answer | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._unread = 0
        self._received_ns = 0
        self._free_ns = 0
        self._reading_over = False
        self._writable = asyncio.Event()
        self._writable.set()
        self._busy = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # asyncio promises it of a TCP connection
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._clients.add(self.transport)

    def connection_lost(self, _error: Exception | None) -> None:
        self._clients.discard(self.transport)
        self._pending.clear()
        self._be_patient(None)
        self._writable.set()
        if self._playing is not None:
            self._playing.abandon()

    def pause_writing(self) -> None:
        self._writable.clear()
        if self.on_data is not None:  # whose answers to a client that reads none would pile up
            self.transport.pause_reading()

    def resume_writing(self) -> None:
        self._writable.set()
        self._next()

    def data_received(self, data: bytes) -> None:
        if self.on_data is not None:
            self.on_data(data)
        elif not self._reading_over:
            self._read(data)

    def answered(self, *, keep_alive: bool) -> None:
        """The answer is over: the next request has its turn, or the connection ends."""
        self._playing = None
        self._free_ns = time.monotonic_ns()
        if keep_alive:
            self._next()
        else:
            self.transport.close()

    async def drain(self) -> None:
        """Wait until the client has read enough of what was written, or is gone."""
        await self._writable.wait()

    def hang_up(self) -> None:
        """End the connection in a way that lets the client read the last of what was written."""
        if self.transport.can_write_eof():
            self.transport.write_eof()
        asyncio.get_running_loop().call_later(_LINGER_S, self.transport.close)

    def _read(self, data: bytes) -> None:
        self._received_ns = time.monotonic_ns()
        try:
            self._parser.feed_data(data)
            self._unread = self._unread + len(data) if self._request is not None else 0
            if self._unread > MAX_HEAD_BYTES + MAX_BODY_BYTES:
                self._reject(413, "the request is too large")
        except httptools.HttpParserUpgrade as upgrade:
            self._take_upgrade(data[upgrade.args[0] :])
        except httptools.HttpParserError:
            self._reject(400, "this is no HTTP/1.1 request that can be read")
        if self._request is None:
            self._be_patient(None)
        elif self._timer is None:
            self._be_patient(self._patience_ns)
        self._next()

    def _take_upgrade(self, rest: bytes) -> None:
        """The request may switch protocols. One that does not is answered as any other, but HTTP ends with it."""
        self._reading_over = True
        request = self._pending[-1]
        request.rest, request.keep_alive = rest, False
        if request.method != b"GET":
            request.refusal = (400, "only a GET can switch protocols")  # the parser leaves its body unread

    # What the parser tells

    def on_message_begin(self) -> None:
        self._request = Request(self._received_ns)

    def on_url(self, url: bytes) -> None:
        self._reading().target += url
        self._head(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        self._head(len(name) + len(value))
        self._reading().headers.append((name.lower(), value))

    def on_body(self, body: bytes) -> None:
        request = self._reading()
        if len(request.body) + len(body) > MAX_BODY_BYTES:
            self._reject(413, f"a body has at most {MAX_BODY_BYTES} bytes")
            raise ValueError("too large")
        request.body += body

    def on_message_complete(self) -> None:
        request = self._reading()
        request.method = self._parser.get_method()
        request.http_1_1 = self._parser.get_http_version() == "1.1"
        request.keep_alive = self._parser.should_keep_alive()
        self._pending.append(request)
        self._request = None
        if len(self._pending) >= MAX_PIPELINED:
            self.transport.pause_reading()

    def _reading(self) -> Request:
        assert self._request is not None
        return self._request

    def _head(self, size: int) -> None:
        request = self._reading()
        request.head_bytes += size
        if request.head_bytes > MAX_HEAD_BYTES:
            self._reject(431, f"a head has at most {MAX_HEAD_BYTES} bytes")
            raise ValueError("too large")

    def _reject(self, status: int, why: str) -> None:
        """Answer so once the requests before are answered, and read no more. The first reason holds."""
        if not self._reading_over:
            self._reading_over = True
            self._request = None
            self._pending.append(Request(self._received_ns, keep_alive=False, refusal=(status, why)))

    def _be_patient(self, patience_ns: int | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        loop = asyncio.get_running_loop()
        self._timer = None if patience_ns is None else loop.call_later(patience_ns / NS_PER_S, self._late)

    def _late(self) -> None:
        self._timer = None
        self._reject(408, "the request did not arrive in time")
        self._next()

    # Answers

    def _next(self) -> None:
        """Answer requests in order of arrival until one takes time."""
        if self._busy:
            return
        self._busy = True
        while self._pending and self._playing is None and self._writable.is_set() and not self.transport.is_closing():
            request = self._pending.popleft()
            request.ready_ns = max(request.received_ns, self._free_ns)
            self._begin(request)
        self._busy = False
        if len(self._pending) < MAX_PIPELINED and not self.transport.is_closing():
            self.transport.resume_reading()

    def _begin(self, request: Request) -> None:
        answer = refusal(*request.refusal) if request.refusal is not None else self._answer(self, request)
        if isinstance(answer, Page):
            self.write_page(request, answer)
        else:
            self._playing = answer
            answer.begin()

    def write_page(self, request: Request, page: Page) -> None:
        """Answer with this at once, and end the connection where nothing can follow."""
        lines = [
            f"content-type: {page.media}",
            f"content-length: {len(page.body)}",
            *([] if request.keep_alive else ["connection: close"]),
        ]
        self.transport.write(head(page.status, lines) + page.body)
        if request.refusal is not None:
            self.hang_up()
        elif not request.keep_alive:
            self.transport.close()


def refusal(status: int, why: str) -> Page:
    """An error as OpenAI words it."""
    return Page(status, "application/json", error_body(status, why))


def head(status: int, lines: list[str]) -> bytes:
    """The head of an answer: the status line and these."""
    first = f"HTTP/1.1 {status} {_REASONS.get(status, 'Error')}"
    return "\r\n".join([first, *lines, "", ""]).encode("latin-1")


async def listen(
    answer: Callable[[Connection, Request], Page | Answer],
    port: int,
    *,
    stop: asyncio.Event,
    ready: Callable[[str], None],
    patience_ns: int = PATIENCE_NS,
    tls: ssl.SSLContext | None = None,
) -> None:
    """Answer on loopback until `stop`; `ready` is given the address. Raises OSError when the port is taken."""
    clients: set[asyncio.Transport] = set()
    loop = asyncio.get_running_loop()
    listener = await loop.create_server(
        lambda: Connection(answer, clients, patience_ns), "127.0.0.1", port, backlog=1024, ssl=tls
    )
    ready(f"{'http' if tls is None else 'https'}://127.0.0.1:{listener.sockets[0].getsockname()[1]}")
    await stop.wait()
    listener.close()
    for transport in tuple(clients):
        transport.abort()
    await listener.wait_closed()


def on_signal() -> asyncio.Event:
    """An event that SIGINT and SIGTERM set."""
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    return stop
