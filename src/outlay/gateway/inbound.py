"""Clients' connections: requests are read within bounds, answered in order, and nothing ambiguous is let through.

llhttp refuses conflicting lengths, folded headers, bare line feeds and bad chunk sizes; what it leaves to its caller
is refused here: any transfer coding but `chunked`, none or two Host headers, other versions, CONNECT, upgrades with a
body. A request that two parsers could read differently is never handed on.
"""

import asyncio
import socket
import time
from collections import deque
from collections.abc import Callable
from http import HTTPStatus
from typing import Protocol, cast

import httptools
import msgspec

from outlay.deployment import Limits
from outlay.gateway.minrtt import min_rtt_ns

REASONS = {status.value: status.phrase.encode() for status in HTTPStatus} | {499: b"Client Closed Request"}
MOST_PIPELINED = 16
_VERSIONS = ("1.0", "1.1")
_LINGER_S = 1.0


class Asked:
    """One request as it was read. Names of headers are in lower case; `named` holds the last of each."""

    __slots__ = (
        "body", "head_bytes", "headers", "is_1_1", "keep_alive", "method", "named", "received_ns", "refusal", "target",
    )  # fmt: skip

    def __init__(self, received_ns: int) -> None:
        self.received_ns = received_ns
        self.method = b""
        self.target = b""
        self.headers: list[tuple[bytes, bytes]] = []
        self.named: dict[bytes, bytes] = {}
        self.body = b""
        self.head_bytes = 0
        self.keep_alive = self.is_1_1 = True
        self.refusal: tuple[int, str] | None = None

    @property
    def path(self) -> bytes:
        """The target without its query."""
        return self.target.partition(b"?")[0]


class Answering(Protocol):
    """Whoever answers a request that takes time."""

    def abandon(self) -> None:
        """The client is gone."""

    def writable(self, can: bool) -> None:
        """The client reads on, or has stopped to."""


# Answers a request on its connection: at once, or as somebody who is told when the client goes.
Serve = Callable[["Connection", Asked], Answering | None]


class Connection(asyncio.Protocol):
    """One client. `serve` has one request at a time, and tells `finished` when its answer is written."""

    __slots__ = (
        "_asked", "_body", "_body_bytes", "_busy", "_closing", "_hung_up", "_over", "_parser", "_pending", "_serve",
        "answering", "clients", "limits", "received_ns", "rtt_ns", "since_ns", "stuck_ns", "transport",
    )  # fmt: skip

    def __init__(self, serve: Serve, clients: "set[Connection]", limits: Limits) -> None:
        self._serve, self.clients, self.limits = serve, clients, limits
        self._parser = httptools.HttpRequestParser(self)
        self._pending: deque[Asked] = deque()
        self._asked: Asked | None = None
        self._body: list[bytes] = []
        self._body_bytes = 0
        self._busy = False
        self._over = False
        self._closing = self._hung_up = False
        self.answering: Answering | None = None
        self.received_ns = self.since_ns = time.monotonic_ns()
        self.stuck_ns: int | None = None
        self.rtt_ns = 0
        self.transport: asyncio.Transport

    # What asyncio tells

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        sock = transport.get_extra_info("socket")
        if sock is not None and sock.family != getattr(socket, "AF_UNIX", None):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.rtt_ns = min_rtt_ns(sock)
        self.clients.add(self)
        if len(self.clients) > self.limits.connections:
            self._refuse(503, "too many connections")
            self._next()

    def connection_lost(self, _error: Exception | None) -> None:
        self.clients.discard(self)
        self._over = True
        self._pending.clear()
        answering, self.answering = self.answering, None
        if answering is not None:
            answering.abandon()

    def pause_writing(self) -> None:
        self.stuck_ns = time.monotonic_ns()
        if self.answering is not None:
            self.answering.writable(False)

    def resume_writing(self) -> None:
        self.stuck_ns = None
        if self.answering is not None:
            self.answering.writable(True)

    def data_received(self, data: bytes) -> None:
        if self._over:
            return
        self.received_ns = time.monotonic_ns()
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._upgrade()
        except httptools.HttpParserError:
            self._refuse(400, "this is no HTTP/1.1 request that can be read in one way only")
        self._next()

    # What the parser tells

    def on_message_begin(self) -> None:
        self._asked = Asked(self.received_ns)
        self._body = []
        self._body_bytes = 0
        self.since_ns = self.received_ns

    def on_url(self, url: bytes) -> None:
        asked = cast(Asked, self._asked)
        asked.target += url
        asked.head_bytes += len(url)
        if asked.head_bytes > self.limits.head_bytes:
            self._stop(414, f"a request's head has at most {self.limits.head_bytes} bytes")

    def on_header(self, name: bytes, value: bytes) -> None:
        asked = cast(Asked, self._asked)
        asked.head_bytes += len(name) + len(value) + 4
        if asked.head_bytes > self.limits.head_bytes:
            self._stop(431, f"a request's head has at most {self.limits.head_bytes} bytes")
        asked.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        asked, parser = cast(Asked, self._asked), self._parser
        asked.named = named = dict(asked.headers)
        if len(named) < len(asked.headers):
            self._check_single(asked.headers)
        asked.method = parser.get_method()
        asked.keep_alive = parser.should_keep_alive()
        version = parser.get_http_version()
        asked.is_1_1 = version == "1.1"
        if version not in _VERSIONS:
            self._stop(505, "only HTTP/1.1 and HTTP/1.0 are spoken here")
        if asked.method == b"CONNECT":
            self._stop(405, "this is no proxy that tunnels")
        if not asked.target.startswith(b"/"):
            self._stop(400, "the target of a request is a path")
        if asked.is_1_1 and not named.get(b"host"):
            self._stop(400, "the header host is missing")
        coding = asked.named.get(b"transfer-encoding")
        if coding is not None:
            if version == "1.0" or coding.strip().lower() != b"chunked" or b"content-length" in asked.named:
                self._stop(400, "the only transfer coding that is understood is chunked")
        else:
            length = asked.named.get(b"content-length", b"0")
            if length.isdigit() and int(length) > self.limits.body_bytes:
                self._stop(413, f"a body has at most {self.limits.body_bytes} bytes")
        is_next = self.answering is None and not self._pending
        if is_next and asked.named.get(b"expect", b"").lower() == b"100-continue":
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def _check_single(self, headers: list[tuple[bytes, bytes]]) -> None:
        names = [name for name, _ in headers]
        for name in _SINGLE:
            if names.count(name) > 1:
                self._stop(400, f"the header {name.decode()} stands twice")

    def on_body(self, body: bytes) -> None:
        self._body.append(body)
        self._body_bytes += len(body)
        if self._body_bytes > self.limits.body_bytes:
            self._stop(413, f"a body has at most {self.limits.body_bytes} bytes")

    def on_message_complete(self) -> None:
        asked = self._asked
        if asked is None:
            return
        asked.body = self._body[0] if len(self._body) == 1 else b"".join(self._body)
        asked.received_ns = self.received_ns
        self._asked = None
        self._pending.append(asked)
        if len(self._pending) >= MOST_PIPELINED:
            self.transport.pause_reading()

    def _upgrade(self) -> None:
        """Switching protocols is not offered; the request is refused, and nothing after it is read as HTTP."""
        if self._pending:
            self._pending[-1].refusal = (501, "switching protocols is not supported")
            self._pending[-1].keep_alive = False
            self._over = True
        else:
            self._refuse(501, "switching protocols is not supported")

    def _stop(self, status: int, why: str) -> None:
        self._refuse(status, why)
        raise ValueError(why)

    def _refuse(self, status: int, why: str) -> None:
        """Answer so after the requests before it, and read no more. The first reason holds."""
        if not self._over:
            self._over = True
            asked = self._asked or Asked(self.received_ns)
            asked.refusal, asked.keep_alive = (status, why), False
            self._asked = None
            self._pending.append(asked)

    # Answers

    def _next(self) -> None:
        if self._busy:
            return
        self._busy = True
        while self._pending and self.answering is None and not self.transport.is_closing():
            asked = self._pending.popleft()
            if len(self._pending) == MOST_PIPELINED - 1:
                self.transport.resume_reading()
            if asked.refusal is not None:
                status, why = asked.refusal
                self.write_error(asked, status, why)
            else:
                self.answering = self._serve(self, asked)
        self._busy = False

    def finished(self, *, keep_alive: bool) -> None:
        """The answer was written whole: the next request has its turn, or the connection ends."""
        self.answering = None
        self.since_ns = time.monotonic_ns()
        if self._closing or not keep_alive:
            self.hang_up()
        else:
            self._next()

    def write_page(self, asked: Asked, status: int, media: bytes, body: bytes, extra: bytes = b"") -> None:
        """Answer with this at once."""
        keep_alive = asked.keep_alive and not self._closing
        self.transport.write(
            b"HTTP/1.1 %d %b\r\ncontent-type: %b\r\ncontent-length: %d\r\n%b%b\r\n%b"
            % (
                status,
                REASONS.get(status, b"Error"),
                media,
                len(body),
                extra,
                b"" if keep_alive else b"connection: close\r\n",
                b"" if asked.method == b"HEAD" else body,
            )
        )
        self.since_ns = time.monotonic_ns()
        if not keep_alive:
            self.hang_up()

    def write_error(self, asked: Asked, status: int, why: str, extra: bytes = b"") -> None:
        """Answer with an error as OpenAI words it."""
        self.write_page(asked, status, b"application/json", error_body(status, why), extra)

    def hang_up(self) -> None:
        """End in a way that lets the client read the last of what was written, before what it sends resets it."""
        if self._hung_up:
            return
        self._over = self._hung_up = True
        if self.transport.can_write_eof() and not self.transport.is_closing():
            self.transport.write_eof()
            asyncio.get_running_loop().call_later(_LINGER_S, self.transport.abort)
        else:
            self.transport.close()

    def close_when_idle(self) -> None:
        """No request after those that have begun."""
        self._closing = True
        if self.answering is None and not self._pending and self._asked is None:
            self.transport.close()

    def look(self, now_ns: int) -> None:
        """Within its time? Called every now and then for each connection."""
        limits = self.limits
        if self.stuck_ns is not None and now_ns - self.stuck_ns > limits.slow_ns:
            self.transport.abort()
        elif self.answering is None and not self.transport.is_closing():
            waited_ns = now_ns - self.since_ns
            if self._asked is not None and waited_ns > limits.patience_ns:
                self._refuse(408, "the request did not arrive in time")
                self._next()
            elif self._asked is None and waited_ns > limits.idle_ns:
                self.transport.close()


_SINGLE = (b"host", b"content-length", b"transfer-encoding")

_TYPES = {400: "invalid_request_error", 401: "authentication_error", 403: "permission_error", 404: "not_found_error",
          429: "rate_limit_error"}  # fmt: skip


def error_body(status: int, why: str, **more: object) -> bytes:
    """An error as OpenAI words it; `more` says why in machines' terms."""
    kind = _TYPES.get(status, "invalid_request_error" if status < 500 else "server_error")
    return msgspec.json.encode({"error": {"message": why, "type": kind, "code": status, **more}})
