"""Connections to targets: kept warm, the last used first, and answers re-read before they are handed on.

An answer is never passed through as bytes: it is parsed, and framed anew towards the client, so that a broken one
cannot become a wrong one.
"""

import asyncio
import socket
import ssl
import time
from typing import Protocol, cast

import httptools

from outlay.deployment import Endpoint
from outlay.gateway.minrtt import min_rtt_ns
from outlay.units import NS_PER_S

_RESOLVED_NS = 30 * NS_PER_S
_MOST_IDLE = 256
_STALE_NS = 60 * NS_PER_S


class Listener(Protocol):
    """Who hears of the answer to what was sent."""

    def heard_head(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        """The head of the final answer; interim ones are passed over."""

    def heard_body(self, data: bytes) -> None:
        """A part of the body, out of its framing."""

    def heard_end(self) -> None:
        """The answer is whole."""

    def broke(self, reason: str, *, untouched: bool) -> None:
        """It ended before it was whole. `untouched`: a reused connection that died before it said anything."""


class Upstream(asyncio.Protocol):
    """One connection to a target, with at most one request on it."""

    __slots__ = (
        "_any", "_chunked", "_listener", "_no_body", "_parser", "_paused", "_sized",
        "headers", "idle_ns", "pool", "transport", "used",
    )  # fmt: skip

    def __init__(self, pool: "Pool") -> None:
        self.pool = pool
        self._listener: Listener | None = None
        self._parser = httptools.HttpResponseParser(self)
        self.headers: list[tuple[bytes, bytes]] = []
        self._any = self._chunked = self._sized = self._no_body = self._paused = False
        self.used = 0
        self.idle_ns = 0
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.pool.open.add(self)

    def send(self, listener: Listener, data: bytes, *, no_body: bool) -> None:
        """Ask; `no_body` for HEAD, whose answer has none whatever its head says."""
        self._listener, self._no_body = listener, no_body
        self._any = False
        self.used += 1
        if self._paused:
            self.pause(False)  # the answer before this one ended while its client did not read
        self.transport.write(data)

    def cancel(self) -> None:
        """Nobody wants the answer: the server learns of it by the end of the connection."""
        self._listener = None
        self.transport.abort()

    def pause(self, paused: bool) -> None:
        """Read no more until the client does."""
        if paused != self._paused and not self.transport.is_closing():
            self._paused = paused
            (self.transport.pause_reading if paused else self.transport.resume_reading)()

    def data_received(self, data: bytes) -> None:
        listener = self._listener
        if listener is None:
            self.transport.abort()  # an answer to nothing
            return
        self._any = True
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserUpgrade, httptools.HttpParserError):
            self._break("malformed")

    def connection_lost(self, _error: Exception | None) -> None:
        self.pool.open.discard(self)
        self.pool.forget(self)
        if self._listener is None:
            return
        if self._any and self.headers and not self._sized and not self._chunked and _error is None:
            self._end()  # the end of the connection is the end of such an answer
        else:
            self._break("reset" if _error is not None else "closed")

    def _break(self, reason: str) -> None:
        listener, self._listener = self._listener, None
        self.transport.abort()
        if listener is not None:
            listener.broke(reason, untouched=self.used > 1 and not self._any)

    # What the parser tells

    def on_message_begin(self) -> None:
        self.headers = []
        self._chunked = self._sized = False

    def on_header(self, name: bytes, value: bytes) -> None:
        lower = name.lower()
        self.headers.append((lower, value))
        if lower == b"transfer-encoding":
            self._chunked = True
        elif lower == b"content-length":
            self._sized = True

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if status < 200 or self._listener is None:
            return
        self._sized |= status in (204, 304)
        self._listener.heard_head(status, self.headers)
        if self._no_body and self._listener is not None:
            self._end()

    def on_body(self, body: bytes) -> None:
        if self._listener is not None:
            self._listener.heard_body(body)

    def on_message_complete(self) -> None:
        if self._parser.get_status_code() >= 200 and self._listener is not None:
            self._end()

    def _end(self) -> None:
        listener, self._listener = self._listener, None
        if self._no_body or self.transport.is_closing() or not self._parser.should_keep_alive():
            self.transport.abort()
        else:
            self.pool.put_back(self)
        if listener is not None:
            listener.heard_end()


class Pool:
    """The connections to one target."""

    def __init__(self, endpoint: Endpoint, *, tls: ssl.SSLContext | None, connect_ns: int) -> None:
        self.endpoint = endpoint
        self._tls, self._connect_ns = tls, connect_ns
        self._idle: list[Upstream] = []
        self.open: set[Upstream] = set()
        self._addresses: list[str] = []
        self._resolved_ns = -_RESOLVED_NS
        self.replayed = 0

    def take(self) -> Upstream | None:
        """A warm connection, the last used first; None when a new one must be made."""
        while self._idle:
            upstream = self._idle.pop()
            if not upstream.transport.is_closing():
                return upstream
        return None

    def put_back(self, upstream: Upstream) -> None:
        """Its answer is whole: it may be used again."""
        upstream.idle_ns = time.monotonic_ns()
        self._idle.append(upstream)
        if len(self._idle) > _MOST_IDLE:
            self._idle.pop(0).transport.close()

    def forget(self, upstream: Upstream) -> None:
        """It has ended."""
        if upstream in self._idle:
            self._idle.remove(upstream)

    def trim(self, now_ns: int) -> None:
        """End what was idle for long; one stays warm."""
        while len(self._idle) > 1 and now_ns - self._idle[0].idle_ns > _STALE_NS:
            self._idle.pop(0).transport.close()

    async def connect(self) -> Upstream:
        """A new connection. Raises OSError, of which TimeoutError and the errors of TLS and of names are kinds."""
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(self._connect_ns / NS_PER_S):
            addresses = await self._resolve(loop)
            for place, address in enumerate(addresses):
                try:
                    _, upstream = await loop.create_connection(
                        lambda: Upstream(self),
                        address,
                        self.endpoint.port,
                        ssl=self._tls,
                        server_hostname=self.endpoint.host if self._tls else None,
                    )
                except OSError:
                    if place == len(addresses) - 1:
                        self._resolved_ns = -_RESOLVED_NS  # they may have moved
                        raise
                    continue
                sock = upstream.transport.get_extra_info("socket")
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                return upstream
        raise OSError(f"{self.endpoint.host} has no address")

    async def warm(self) -> int:
        """See that one connection is there; the round trip to its target in ns, 0 where it is unknown."""
        upstream = self.take() or await self.connect()
        rtt_ns = min_rtt_ns(upstream.transport.get_extra_info("socket"))
        self.put_back(upstream)
        return rtt_ns

    async def _resolve(self, loop: asyncio.AbstractEventLoop) -> list[str]:
        now_ns = time.monotonic_ns()
        if now_ns - self._resolved_ns >= _RESOLVED_NS:
            try:
                found = await loop.getaddrinfo(self.endpoint.host, self.endpoint.port, type=socket.SOCK_STREAM)
                self._addresses = [str(address[0]) for *_, address in found]
                self._resolved_ns = now_ns
            except OSError:
                if not self._addresses:
                    raise
                # What was known keeps working while names cannot be looked up.
                self._resolved_ns = now_ns
        return self._addresses

    def close(self) -> None:
        """End every connection."""
        for upstream in tuple(self.open):
            upstream.cancel()
