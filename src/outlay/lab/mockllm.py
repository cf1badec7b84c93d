"""A reference LLM server: answers as its model names say, to the fraction of a millisecond, and keeps the truth of it.

    python -m outlay.lab.mockllm --port 0

It binds to loopback only and prints its address as one line. It stores ids, sizes and instants, never what was asked.
"""

import argparse
import asyncio
import re
import signal
import socket
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import httptools
import msgspec

from outlay.lab.answer import Api, Call, error_body
from outlay.lab.loop import new_loop
from outlay.lab.play import PATIENCE_NS, Answering, Request, Server, head
from outlay.lab.script import Script, parse
from outlay.lab.tally import Ended
from outlay.units import NS_PER_S, from_s

MAX_HEAD_BYTES = 32 * 1024
MAX_BODY_BYTES = 4 * 1024 * 1024
MAX_PIPELINED = 16
_LINGER_S = 1.0  # for a refused client to read why, before the rest of what it sends resets the connection

_APIS: dict[bytes, Api] = {
    b"/v1/chat/completions": "chat",
    b"/v1/completions": "completions",
    b"/v1/responses": "responses",
    b"/v1/embeddings": "embeddings",
    b"/v1/audio/speech": "speech",
}
_ID = re.compile(r"[\w.:-]{1,128}", re.ASCII)


class _StreamOptions(msgspec.Struct):
    include_usage: bool = False


class _Asked(msgspec.Struct):
    model: str
    stream: bool = False
    stream_options: _StreamOptions | None = None
    input: msgspec.Raw = msgspec.Raw(b"null")


_ASKED = msgspec.json.Decoder(_Asked)
_INPUTS = msgspec.json.Decoder(list[msgspec.Raw])


@dataclass(frozen=True, slots=True)
class Page:
    """An answer without a script, given at once."""

    status: int
    media: str
    body: bytes


class Connection(asyncio.Protocol):
    """One client: reads requests, also ahead, and plays one answer at a time."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._parser = httptools.HttpRequestParser(self)
        self._pending: deque[Request] = deque()
        self._request: Request | None = None
        self._playing: Answering | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._unread = 0
        self._received_ns = 0
        self._free_ns = 0
        self._refusing = False
        self._writable = True
        self._busy = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # asyncio promises it of a TCP connection
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._server.connections.add(self._transport)

    def connection_lost(self, _error: Exception | None) -> None:
        self._server.connections.discard(self._transport)
        self._pending.clear()
        self._be_patient(None)
        if self._playing is not None:
            self._playing.abandon()

    def pause_writing(self) -> None:
        self._writable = False

    def resume_writing(self) -> None:
        self._writable = True
        self._next()

    def data_received(self, data: bytes) -> None:
        if self._refusing:
            return
        self._received_ns = time.monotonic_ns()
        try:
            self._parser.feed_data(data)
            self._unread = self._unread + len(data) if self._request is not None else 0
            if self._unread > MAX_HEAD_BYTES + MAX_BODY_BYTES:
                self._reject(413, "the request is too large")
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self._reject(400, "this is no HTTP/1.1 request that can be read")
        if self._request is None:
            self._be_patient(None)
        elif self._timer is None:
            self._be_patient(self._server.patience_ns)
        self._next()

    # What the parser tells

    def on_message_begin(self) -> None:
        self._request = Request(self._received_ns)

    def on_url(self, url: bytes) -> None:
        self._reading().path += url
        self._head(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        self._head(len(name) + len(value))
        text = value.decode("latin-1")
        if name.lower() == b"x-request-id" and _ID.fullmatch(text):
            self._reading().id = text

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
            self._transport.pause_reading()

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
        if not self._refusing:
            self._refusing = True
            self._request = None
            self._pending.append(Request(self._received_ns, keep_alive=False, refusal=(status, why)))

    def _be_patient(self, patience_ns: int | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if patience_ns is None else self._server.loop.call_later(patience_ns / NS_PER_S, self._late)

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
        while self._pending and self._playing is None and self._writable and not self._transport.is_closing():
            request = self._pending.popleft()
            request.ready_ns = max(request.received_ns, self._free_ns)
            self._answer(request)
        self._busy = False
        if len(self._pending) < MAX_PIPELINED and not self._transport.is_closing():
            self._transport.resume_reading()

    def _answer(self, request: Request) -> None:
        wanted = _wanted(request, self._server)
        if isinstance(wanted, Page):
            self._write_page(request, wanted)
            return
        asked, script, api = wanted
        call = Call(
            api=api,
            id=request.id or self._server.new_id(),
            model=asked.model,
            stream=asked.stream,
            usage=asked.stream_options is not None and asked.stream_options.include_usage,
            inputs=_inputs(asked) if api == "embeddings" else 1,
        )
        self._playing = Answering(self._server, self._transport, request, script, call, self._played)
        self._playing.begin()

    def _played(self, ended: Ended, keep_alive: bool) -> None:
        self._playing = None
        self._free_ns = time.monotonic_ns()
        if ended == "cut" or (ended == "done" and not keep_alive):
            self._transport.close()
        elif ended == "done":
            self._next()

    def _write_page(self, request: Request, page: Page) -> None:
        lines = [f"content-length: {len(page.body)}", *([] if request.keep_alive else ["connection: close"])]
        self._transport.write(head(page.status, page.media, lines) + page.body)
        if request.refusal is not None:
            if self._transport.can_write_eof():
                self._transport.write_eof()
            self._server.loop.call_later(_LINGER_S, self._transport.close)
        elif not request.keep_alive:
            self._transport.close()


def _wanted(request: Request, server: Server) -> Page | tuple[_Asked, Script, Api]:
    """A page, or what was asked of a model, how it behaves, and in which API it answers."""
    if request.refusal is not None:
        return _error(*request.refusal)
    path = request.path.partition(b"?")[0]
    if path in _PAGES:
        return _PAGES[path](server) if request.method == b"GET" else _error(405, "only GET here")
    if path not in _APIS:
        return _error(404, "there is no such path")
    if request.method != b"POST":
        return _error(405, "only POST here")
    try:
        asked = _ASKED.decode(request.body)
        return asked, parse(asked.model), _APIS[path]
    except (ValueError, RecursionError) as error:  # msgspec's errors are ValueErrors
        return _error(400, str(error))


def _error(status: int, why: str) -> Page:
    return Page(status, "application/json", error_body(status, why))


def _models(_server: Server) -> Page:
    listed = [{"id": "mock", "object": "model", "created": 0, "owned_by": "outlay"}]
    return Page(200, "application/json", msgspec.json.encode({"object": "list", "data": listed}))


_PAGES: dict[bytes, Callable[[Server], Page]] = {
    b"/v1/models": _models,
    b"/metrics": lambda server: Page(200, "text/plain; version=0.0.4; charset=utf-8", server.metrics.text().encode()),
    b"/truth": lambda server: Page(200, "application/x-ndjson", b"".join(server.truth.lines())),
    b"/healthz": lambda _: Page(200, "text/plain; charset=utf-8", b"ok\n"),
}


def _inputs(asked: _Asked) -> int:
    """How many embeddings are wanted: one for each text of a list; a list of token numbers is one text."""
    raw = bytes(asked.input)
    if not raw.startswith(b"["):
        return 1
    texts = [text for text in _INPUTS.decode(raw) if not bytes(text)[:1].isdigit()]
    return max(len(texts), 1)


async def serve(
    port: int, *, stop: asyncio.Event, ready: Callable[[str], None], patience_ns: int = PATIENCE_NS
) -> None:
    """Answer on loopback until `stop`; `ready` is given the address. Raises OSError when the port is taken."""
    loop = asyncio.get_running_loop()
    server = Server(loop, patience_ns)
    listener = await loop.create_server(lambda: Connection(server), "127.0.0.1", port, backlog=1024)
    ready(f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}")
    await stop.wait()
    listener.close()
    for transport in tuple(server.connections):
        transport.abort()
    await listener.wait_closed()


async def _until_signalled(port: int, patience_ns: int) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await serve(port, stop=stop, ready=lambda address: print(address, flush=True), patience_ns=patience_ns)


def main() -> None:
    """The command line; `--help` tells it."""
    parser = argparse.ArgumentParser(prog="python -m outlay.lab.mockllm", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--port", type=int, default=0, help="0, the default, takes a free one")
    parser.add_argument("--patience", type=float, default=10, metavar="S", help="seconds for a request to arrive")
    options = parser.parse_args()
    try:
        with asyncio.Runner(loop_factory=new_loop) as runner:
            runner.run(_until_signalled(options.port, from_s(options.patience)))
    except (OSError, OverflowError) as error:
        parser.error(f"port {options.port}: {error}")


if __name__ == "__main__":
    main()
