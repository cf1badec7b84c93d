"""Playing an answer: slots for those that may run, and each frame written at its own due instant."""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from outlay.lab.answer import frames, is_cut, is_whole, media_type, refused, whole_length
from outlay.lab.beats import Call, Frame
from outlay.lab.bodies import PROMPT_TOKENS
from outlay.lab.inbound import Connection, Request, head
from outlay.lab.script import Script, after_stall
from outlay.lab.tally import Ended, Metrics, Played, Record, Truth
from outlay.units import NS_PER_MS, NS_PER_S, to_ms


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
    started_ns: int = field(default_factory=time.monotonic_ns)
    truth: Truth = field(default_factory=Truth)
    metrics: Metrics = field(default_factory=Metrics)
    slots: Slots = field(init=False)
    count: int = 0

    def __post_init__(self) -> None:
        self.slots = Slots(self.metrics)

    def new_id(self) -> str:
        self.count += 1
        return f"mock-{self.count}"

    def due_ns(self, at_ns: int, script: Script) -> int:
        """When what the script wants at `at_ns` can be done, with stalls; both on CLOCK_MONOTONIC."""
        return self.started_ns + after_stall(script, at_ns - self.started_ns)


class Part(NamedTuple):
    """What a script says to one call, when it was read, and from when it could be answered."""

    script: Script
    call: Call
    received_ns: int
    ready_ns: int


class Wire(Protocol):
    """How frames go over a connection."""

    def encode(self, frame: Frame, record: Record) -> bytes:
        """A frame as it is sent. The record does not hold it yet."""

    def last(self, record: Record) -> bytes:
        """What follows the last frame; empty for nothing."""

    def over(self, ended: Ended) -> None:
        """The answer is at its end."""


class Answering:
    """One answer being played: each frame written at its own due instant, counted from the beginning."""

    def __init__(self, server: Server, transport: asyncio.Transport, part: Part, wire: Wire) -> None:
        self._server, self._transport, self._part, self._wire = server, transport, part, wire
        self._frames: Iterator[Frame] = frames(part.script, part.call)
        self._frame: Frame | None = next(self._frames)
        self._timer: asyncio.TimerHandle | None = None
        self._taken_up_ns: int | None = None
        self._waits = False
        self._tokens = 0
        self._cut = is_cut(part.script, part.call)
        self._record = Record(
            id=part.call.id,
            model=part.call.model,
            api=part.call.api,
            status=refused(part.script, part.call) or 200,
            received_ns=part.received_ns,
        )
        server.truth.add(self._record)

    def begin(self) -> None:
        """Play as soon as there is a slot."""
        script = self._part.script
        slots = None if script.status is not None else script.slots
        self._server.slots.enter(self._part.call.model, slots, self._take_up)
        self._waits = self._taken_up_ns is None

    def abandon(self) -> None:
        """The client is gone."""
        if self._taken_up_ns is None:
            self._server.slots.forget(self._part.call.model, self._take_up)
            self._record.ended = "gone"
        else:
            self._end("gone")

    def _take_up(self) -> None:
        # One that waited for nobody is taken up when it could be, so that parsing it delays no frame.
        self._taken_up_ns = time.monotonic_ns() if self._waits else self._part.ready_ns
        self._record.taken_up_ns = self._taken_up_ns
        self._server.metrics.queue.add(self._taken_up_ns - self._part.received_ns)
        self._step()

    def _step(self) -> None:
        assert self._taken_up_ns is not None
        while self._frame is not None:
            due_ns = self._server.due_ns(self._taken_up_ns + self._frame.due_ns, self._part.script)
            if due_ns > time.monotonic_ns():
                self._timer = self._server.loop.call_at(due_ns / NS_PER_S, self._step)
                return
            self._write(self._frame, due_ns)
            self._frame = next(self._frames, None)
        if not self._cut:
            self._transport.write(self._wire.last(self._record))
        self._end("cut" if self._cut else "done")

    def _write(self, frame: Frame, due_ns: int) -> None:
        data = self._wire.encode(frame, self._record)
        now_ns = time.monotonic_ns()
        self._transport.write(data)
        if frame.tokens and not self._tokens:
            self._server.metrics.first_token.add(now_ns - self._part.received_ns)
        self._tokens += frame.tokens
        self._server.truth.played(self._record, Played(due_ns, now_ns, frame.tokens))

    def _end(self, ended: Ended) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._record.ended = ended
        metrics = self._server.metrics
        if ended == "done":
            metrics.total.add(time.monotonic_ns() - self._part.received_ns)
            metrics.succeeded += self._record.status == 200
        self._wire.over(ended)
        self._server.slots.leave(self._part.call.model)


class HttpWire:
    """An answer over HTTP: whole with its length, or chunked, or until the connection ends."""

    def __init__(self, connection: Connection, request: Request, script: Script, call: Call) -> None:
        self._connection, self._script, self._call = connection, script, call
        self._whole = is_whole(script, call)
        self._chunked = request.http_1_1 and not self._whole
        self._keep_alive = request.keep_alive and (self._chunked or self._whole)
        self._trailers = self._chunked and "trailers" in request.header(b"te").lower()

    def encode(self, frame: Frame, record: Record) -> bytes:
        start = b"" if record.frames else self._head(frame, record)
        data = b"%x\r\n%b\r\n" % (len(frame.data), frame.data) if self._chunked and frame.data else frame.data
        return start + data

    def last(self, record: Record) -> bytes:
        if not self._chunked:
            return b""
        timing = f"server-timing: {_total(record)}\r\n" if self._trailers else ""
        return f"0\r\n{timing}\r\n".encode()

    def over(self, ended: Ended) -> None:
        if ended != "gone":
            self._connection.answered(keep_alive=ended == "done" and self._keep_alive)

    def _head(self, frame: Frame, record: Record) -> bytes:
        lines = [f"content-type: {media_type(self._script, self._call)}", f"x-request-id: {self._call.id}"]
        # A whole answer is at its end here; of a stream nobody knows when that will be.
        lines.append(f"server-timing: {_queue(record)}" + (f", {_total(record)}" if self._whole else ""))
        if self._script.tgi and self._whole and record.status == 200:
            lines += tgi_lines(record, frame.tokens, time.monotonic_ns())
        if record.status in (429, 503):
            lines.append("retry-after: 1")
        if self._trailers:
            lines.append("trailer: server-timing")
        if self._chunked:
            lines.append("transfer-encoding: chunked")
        elif self._whole:
            length = whole_length(self._script, self._call)
            lines.append(f"content-length: {len(frame.data) if length is None else length}")
        if not self._keep_alive:
            lines.append("connection: close")
        return head(record.status, lines)


def tgi_lines(record: Record, tokens: int, now_ns: int) -> list[str]:
    """The headers by which Text Generation Inference tells its times, whole milliseconds rounded down as it does.

    https://github.com/huggingface/text-generation-inference, router/src/server.rs.
    """
    assert record.taken_up_ns is not None
    total_ns, inference_ns = now_ns - record.received_ns, now_ns - record.taken_up_ns
    times_ns = {
        "total-time": total_ns,
        "validation-time": 0,
        "queue-time": record.taken_up_ns - record.received_ns,
        "inference-time": inference_ns,
        "time-per-token": inference_ns // max(tokens, 1),
    }
    counts = {"prompt-tokens": PROMPT_TOKENS, "generated-tokens": tokens}
    values = {name: value_ns // NS_PER_MS for name, value_ns in times_ns.items()} | counts
    return ["x-compute-type: mock", f"x-compute-time: {total_ns / NS_PER_S:.9f}"] + [
        f"x-{name}: {value}" for name, value in values.items()
    ]


def _queue(record: Record) -> str:
    assert record.taken_up_ns is not None
    return f"queue;dur={to_ms(record.taken_up_ns - record.received_ns):.3f}"


def _total(record: Record) -> str:
    return f"total;dur={to_ms(time.monotonic_ns() - record.received_ns):.3f}"
