"""One WebSocket of a sender: a turn writes some messages and stamps those that come until one that ends it."""

import asyncio
import socket
from collections.abc import Callable
from time import monotonic_ns
from typing import cast

from websockets.client import ClientProtocol
from websockets.frames import Frame, Opcode
from websockets.http11 import Response
from websockets.uri import parse_uri

from outlay.probe.connection import MAX_BODY_BYTES, lost_because
from outlay.probe.exchange import Exchange, Failure
from outlay.probe.orders import Shot, Target
from outlay.probe.tcpinfo import facts


class WebSocketConnection(asyncio.Protocol):
    """As `HttpConnection`. `upgraded` is done when the server agreed; it raises OSError when it did not."""

    def __init__(
        self,
        number: int,
        target: Target,
        done: Callable[["WebSocketConnection", Exchange, bool], None],
        lost: Callable[["WebSocketConnection"], None],
    ) -> None:
        self.exchange: Exchange | None = None
        self.number = number
        self.upgraded: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._done = done
        self._lost = lost
        self._target = target
        self._wire = ClientProtocol(parse_uri(target.upgrade), max_size=MAX_BODY_BYTES)
        self._transport: asyncio.Transport
        self._message = bytearray()
        self._now_ns = 0

    def send(self, shot: Shot, exchange: Exchange) -> None:
        exchange.connection = self.number
        self.exchange = exchange
        exchange.written_ns = monotonic_ns()
        if self._transport.is_closing():  # the server said goodbye, and the loop has not told of the end yet
            self._finish("reset", lost_because(None), again=False)
            return
        for part in shot.parts:
            self._wire.send_text(part)
        self._flush()
        if self._transport.get_write_buffer_size() == 0:
            exchange.sent_ns = monotonic_ns()

    def give_up(self, failure: Failure) -> None:
        self._transport.abort()
        self._finish(failure, "", again=False)

    def close(self) -> None:
        if not self._transport.is_closing():
            self._wire.send_close()
            self._flush()
            self._transport.close()

    # What the loop tells

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=0)
        request = self._wire.connect()
        for name, value in self._target.upgrade_headers:
            request.headers[name] = value
        self._wire.send_request(request)
        self._flush()

    def resume_writing(self) -> None:
        if self.exchange is not None:
            self.exchange.sent_ns = monotonic_ns()

    def data_received(self, data: bytes) -> None:
        self._now_ns = monotonic_ns()
        self._wire.receive_data(data)
        self._flush()  # answers to pings
        for event in self._wire.events_received():
            if isinstance(event, Frame):
                self._frame(event)
            elif isinstance(event, Response):
                self._response()
        if self._wire.handshake_exc is not None and not self.upgraded.done():
            self._refused()

    def connection_lost(self, error: Exception | None) -> None:
        self._refuse(ConnectionResetError("the connection closed during the upgrade"))
        exchange = self.exchange
        if exchange is None:
            self._lost(self)
            return
        self._finish("reset" if exchange.first_byte_ns is None else "cut", lost_because(error), again=False)

    # What the protocol tells

    def _response(self) -> None:
        if self._wire.handshake_exc is None:
            self.upgraded.set_result(None)
        else:
            self._refused()

    def _refused(self) -> None:
        error = self._wire.handshake_exc
        status = getattr(getattr(error, "response", None), "status_code", None)
        said = f"the server answered {status}" if status is not None else type(error).__name__
        self._refuse(ConnectionRefusedError(said))
        self._transport.close()

    def _refuse(self, error: OSError) -> None:
        if not self.upgraded.done():
            self.upgraded.set_exception(error)
            self.upgraded.exception()  # whoever waited for it may have given up

    def _frame(self, frame: Frame) -> None:
        if frame.opcode is Opcode.CLOSE:
            self._transport.close()
            return
        if frame.opcode not in (Opcode.TEXT, Opcode.BINARY, Opcode.CONT):
            return
        self._message += frame.data
        if frame.fin:
            message = bytes(self._message)
            self._message.clear()
            self._take(message)

    def _take(self, message: bytes) -> None:
        exchange = self.exchange
        if exchange is None:
            return  # between turns: session events
        if exchange.first_byte_ns is None:
            exchange.first_byte_ns = self._now_ns
        exchange.body.append((self._now_ns, message))
        if any(end in message for end in self._target.until):
            exchange.status = 101
            self._finish("", "", again=True)

    def _flush(self) -> None:
        for data in self._wire.data_to_send():
            if data:
                self._transport.write(data)

    def _finish(self, failure: Failure, why: str, *, again: bool) -> None:
        exchange = self.exchange
        if exchange is None:
            return
        self.exchange = None
        exchange.ended_ns = self._now_ns if failure == "" else monotonic_ns()
        exchange.failure, exchange.why = failure, why
        sock: socket.socket | None = self._transport.get_extra_info("socket")
        if sock is not None:
            exchange.min_rtt_us, _ = facts(sock)
        self._done(self, exchange, again)
