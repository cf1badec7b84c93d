"""One HTTP/1.1 connection of a sender: it writes a request, stamps what comes back, and understands no content."""

import asyncio
import socket
from collections.abc import Callable
from time import monotonic_ns
from typing import Protocol, cast

import httptools

from outlay.probe.exchange import Exchange, Failure
from outlay.probe.orders import Shot
from outlay.probe.tcpinfo import facts

MAX_BODY_BYTES = 64 * 1024 * 1024

_BROKEN = (ConnectionResetError, BrokenPipeError)


class Connection(Protocol):
    """What a sender needs of a connection, of whatever protocol; it holds one exchange at a time."""

    exchange: Exchange | None

    def send(self, shot: Shot, exchange: Exchange) -> None:
        """Write a request now; its answer goes to `exchange`, and `done` is called once."""

    def give_up(self, failure: Failure) -> None:
        """End the exchange under way as failed, and the connection with it."""

    def close(self) -> None:
        """Close the connection; nothing is under way."""


class HttpConnection(asyncio.Protocol):
    """`done` takes the connection, its finished exchange, and whether the connection can be used again.

    `lost` is called when it closes with nothing under way.
    """

    def __init__(
        self,
        number: int,
        done: Callable[["HttpConnection", Exchange, bool], None],
        lost: Callable[["HttpConnection"], None],
    ) -> None:
        self.exchange: Exchange | None = None
        self.number = number
        self._done = done
        self._lost = lost
        self._parser = httptools.HttpResponseParser(self)
        self._transport: asyncio.Transport
        self._now_ns = 0
        self._size = 0
        self._bounded = True
        self._retransmitted = 0

    def send(self, shot: Shot, exchange: Exchange) -> None:
        exchange.connection = self.number
        self.exchange = exchange
        self._size = 0
        self._bounded = False
        exchange.written_ns = monotonic_ns()
        self._transport.write(shot.parts[0])
        if self._transport.get_write_buffer_size() == 0:
            exchange.sent_ns = monotonic_ns()

    def give_up(self, failure: Failure) -> None:
        self._transport.abort()
        self._finish(failure, "", again=False)

    def close(self) -> None:
        self._transport.close()

    # What the loop tells

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # asyncio promises it of a TCP connection
        # Without room to buffer the loop writes at once; what the kernel does not take it writes later, and says when.
        self._transport.set_write_buffer_limits(high=0)

    def resume_writing(self) -> None:
        if self.exchange is not None:
            self.exchange.sent_ns = monotonic_ns()

    def data_received(self, data: bytes) -> None:
        self._now_ns = monotonic_ns()
        exchange = self.exchange
        if exchange is None:
            self._transport.close()  # nobody asked
            return
        if exchange.first_byte_ns is None:
            exchange.first_byte_ns = self._now_ns
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            if self.exchange is not None:
                self._transport.abort()
                self._finish("wire", type(error).__name__, again=False)
            else:
                self._transport.close()

    def connection_lost(self, error: Exception | None) -> None:
        exchange = self.exchange
        if exchange is None:
            self._lost(self)
            return
        self._now_ns = monotonic_ns()
        if exchange.headers_ns is not None and not self._bounded and error is None:
            self._finish("", "", again=False)  # a body without a length ends where the connection does
        elif exchange.first_byte_ns is None:
            self._finish("reset", lost_because(error), again=False)
        else:
            self._finish("cut", lost_because(error), again=False)

    # What the parser tells

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.exchange is not None and self.exchange.headers_ns is None:
            key = name.decode("latin-1").lower()
            self.exchange.headers.append((key, value.decode("latin-1")))
            self._bounded |= key in ("content-length", "transfer-encoding")

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        exchange = self.exchange
        if exchange is None:
            return
        if status < 200:
            exchange.headers.clear()
            self._bounded = False
            return
        exchange.status = status
        exchange.headers_ns = self._now_ns

    def on_body(self, body: bytes) -> None:
        exchange = self.exchange
        if exchange is None:
            return
        exchange.body.append((self._now_ns, body))
        self._size += len(body)
        if self._size > MAX_BODY_BYTES:
            self._transport.abort()
            self._finish("too large", "", again=False)

    def on_message_complete(self) -> None:
        if self.exchange is not None and self.exchange.headers_ns is not None:
            self._finish("", "", again=self._parser.should_keep_alive())

    def _finish(self, failure: Failure, why: str, *, again: bool) -> None:
        exchange = self.exchange
        if exchange is None:
            return
        self.exchange = None
        exchange.ended_ns = self._now_ns if failure == "" else monotonic_ns()
        exchange.failure, exchange.why = failure, why
        sock = self._transport.get_extra_info("socket")
        if sock is not None:
            exchange.min_rtt_us, retransmitted = facts(sock)
            exchange.retransmitted = retransmitted - self._retransmitted
            self._retransmitted = retransmitted
        self._done(self, exchange, again)


def lost_because(error: Exception | None) -> str:
    """Why a connection is gone, in words; nothing that a peer wrote. None is an orderly close."""
    if error is None:
        return "the server closed the connection"
    return "the server broke the connection off" if isinstance(error, _BROKEN) else type(error).__name__


def plain_socket(family: int, kind: int, protocol: int) -> socket.socket:
    """A socket that waits for nobody and sends at once."""
    sock = socket.socket(family, kind, protocol)
    sock.setblocking(False)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock
