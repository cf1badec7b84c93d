"""Playing an answer: slots for those that may run, and each frame written at its own due instant."""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http import HTTPStatus

from outlay.lab.answer import Call, Frame, frames, is_cut, is_whole, media_type, refused, whole_length
from outlay.lab.script import Script, after_stall
from outlay.lab.tally import Ended, Metrics, Played, Record, Truth
from outlay.units import NS_PER_S, to_ms

PATIENCE_NS = 10 * NS_PER_S  # for a request to arrive once it has begun

_REASONS = {reason.value: reason.phrase for reason in HTTPStatus}


@dataclass(slots=True)
class Request:
    """One request as it was read off a connection, and when it could be answered: after the one before it."""

    received_ns: int
    ready_ns: int = 0
    method: bytes = b""
    path: bytes = b""
    id: str | None = None
    body: bytearray = field(default_factory=bytearray)
    head_bytes: int = 0
    http_1_1: bool = True
    keep_alive: bool = True
    refusal: tuple[int, str] | None = None


class Slots:
    """Who may run: at most so many requests of a model at once, the others in order of arrival."""

    def __init__(self, metrics: Metrics) -> None:
        self._running: dict[str, int] = {}
        self._waiting: dict[str, deque[Callable[[], None]]] = {}
        self._metrics = metrics

    def enter(self, model: str, slots: int | None, start: Callable[[], None]) -> None:
        """Call `start` now, or when one that runs has left."""
        running = self._running.setdefault(model, 0)
        if slots is not None and running >= slots:
            self._waiting.setdefault(model, deque()).append(start)
            self._metrics.waiting += 1
            return
        self._running[model] += 1
        self._metrics.running += 1
        start()

    def leave(self, model: str) -> None:
        """One that ran is done: the first that waits runs in its place."""
        waiting = self._waiting.get(model)
        if waiting:
            start = waiting.popleft()
            self._metrics.waiting -= 1
            start()
            return
        self._waiting.pop(model, None)
        self._metrics.running -= 1
        self._running[model] -= 1
        if not self._running[model]:
            del self._running[model]

    def forget(self, model: str, start: Callable[[], None]) -> None:
        """One that waits does so no longer."""
        self._waiting[model].remove(start)
        self._metrics.waiting -= 1


@dataclass(slots=True)
class Server:
    """What all connections share."""

    loop: asyncio.AbstractEventLoop
    patience_ns: int = PATIENCE_NS
    started_ns: int = field(default_factory=time.monotonic_ns)
    truth: Truth = field(default_factory=Truth)
    metrics: Metrics = field(default_factory=Metrics)
    slots: Slots = field(init=False)
    count: int = 0
    connections: set[asyncio.Transport] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.slots = Slots(self.metrics)

    def new_id(self) -> str:
        self.count += 1
        return f"mock-{self.count}"

    def due_ns(self, at_ns: int, script: Script) -> int:
        """When what the script wants at `at_ns` can be done, with stalls; both on CLOCK_MONOTONIC."""
        return self.started_ns + after_stall(script, at_ns - self.started_ns)


class Answering:
    """One answer being played: each frame written at its own due instant, counted from the beginning."""

    def __init__(
        self,
        server: Server,
        transport: asyncio.Transport,
        request: Request,
        script: Script,
        call: Call,
        done: Callable[[Ended, bool], None],
    ) -> None:
        self._server, self._transport, self._request = server, transport, request
        self._script, self._call, self._done = script, call, done
        self._frames: Iterator[Frame] = frames(script, call)
        self._frame: Frame | None = next(self._frames)
        self._timer: asyncio.TimerHandle | None = None
        self._taken_up_ns: int | None = None
        self._waits = False
        self._tokens = 0
        self._whole = is_whole(script, call)
        self._cut = is_cut(script, call)
        self._chunked = request.http_1_1 and not self._whole
        self._record = Record(
            id=call.id,
            model=call.model,
            api=call.api,
            status=refused(script, call) or 200,
            received_ns=request.received_ns,
        )
        server.truth.add(self._record)

    def begin(self) -> None:
        """Play as soon as there is a slot."""
        slots = None if self._script.status is not None else self._script.slots
        self._server.slots.enter(self._call.model, slots, self._take_up)
        self._waits = self._taken_up_ns is None

    def abandon(self) -> None:
        """The client is gone."""
        if self._taken_up_ns is None:
            self._server.slots.forget(self._call.model, self._take_up)
            self._record.ended = "gone"
        else:
            self._end("gone")

    def _take_up(self) -> None:
        # One that waited for nobody is taken up when it could be, so that parsing it delays no frame.
        self._taken_up_ns = time.monotonic_ns() if self._waits else self._request.ready_ns
        self._record.taken_up_ns = self._taken_up_ns
        self._server.metrics.queue.add(self._taken_up_ns - self._request.received_ns)
        self._step()

    def _step(self) -> None:
        assert self._taken_up_ns is not None
        while self._frame is not None:
            due_ns = self._server.due_ns(self._taken_up_ns + self._frame.due_ns, self._script)
            if due_ns > time.monotonic_ns():
                self._timer = self._server.loop.call_at(due_ns / NS_PER_S, self._step)
                return
            self._write(self._frame, due_ns)
            self._frame = next(self._frames, None)
        if self._chunked and not self._cut:
            self._transport.write(b"0\r\n\r\n")
        self._end("cut" if self._cut else "done")

    def _write(self, frame: Frame, due_ns: int) -> None:
        start = b"" if self._record.frames else self._head(frame)
        data = b"%x\r\n%b\r\n" % (len(frame.data), frame.data) if self._chunked and frame.data else frame.data
        now_ns = time.monotonic_ns()
        self._transport.write(start + data)
        if frame.tokens and not self._tokens:
            self._server.metrics.first_token.add(now_ns - self._request.received_ns)
        self._tokens += frame.tokens
        self._server.truth.played(self._record, Played(due_ns, now_ns, frame.tokens))

    def _head(self, frame: Frame) -> bytes:
        assert self._taken_up_ns is not None
        lines = [f"x-request-id: {self._call.id}", self._timing()]
        if self._record.status in (429, 503):
            lines.append("retry-after: 1")
        if self._chunked:
            lines.append("transfer-encoding: chunked")
        elif self._whole:
            length = whole_length(self._script, self._call)
            lines.append(f"content-length: {len(frame.data) if length is None else length}")
        if not self._keep_alive():
            lines.append("connection: close")
        return head(self._record.status, media_type(self._script, self._call), lines)

    def _timing(self) -> str:
        """How long the request waited; for a whole answer, whose end is now, also how long it took."""
        assert self._taken_up_ns is not None
        queue_ms = to_ms(self._taken_up_ns - self._request.received_ns)
        total_ms = to_ms(time.monotonic_ns() - self._request.received_ns)
        return f"server-timing: queue;dur={queue_ms:.3f}" + (f", total;dur={total_ms:.3f}" if self._whole else "")

    def _keep_alive(self) -> bool:
        return self._request.keep_alive and (self._chunked or self._whole)

    def _end(self, ended: Ended) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._record.ended = ended
        metrics = self._server.metrics
        if ended == "done":
            metrics.total.add(time.monotonic_ns() - self._request.received_ns)
            metrics.succeeded += self._record.status == 200
        self._done(ended, self._keep_alive())
        self._server.slots.leave(self._call.model)


def head(status: int, media: str, lines: list[str]) -> bytes:
    """The head of an answer: status line, Content-Type and these lines."""
    first = f"HTTP/1.1 {status} {_REASONS.get(status, 'Error')}"
    return "\r\n".join([first, f"content-type: {media}", *lines, "", ""]).encode("latin-1")
