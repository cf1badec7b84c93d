"""What the reference server knows of its own requests: the truth of each, and metrics under vLLM's names."""

from bisect import bisect_left
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Literal

import msgspec

from outlay.lab.beats import Api
from outlay.units import NS_PER_S

Ended = Literal["done", "cut", "gone"]

MAX_RECORDS = 10_000
MAX_FRAMES = 1_000_000

_BOUNDS_MS = (1, 5, 10, 20, 40, 60, 80, 100, 250, 500, 750, 1000, 2500, 5000, 7500, 10_000, 20_000, 40_000, 80_000)
_BOUNDS_NS = tuple(bound * NS_PER_S // 1000 for bound in _BOUNDS_MS)


class Played(msgspec.Struct, frozen=True):
    """One frame: when it was due, the instant just before it was written to the socket, and its tokens."""

    due_ns: int
    written_ns: int
    tokens: int


class Record(msgspec.Struct, omit_defaults=True, kw_only=True):
    """The truth of one request; instants on the server's CLOCK_MONOTONIC. What has not happened yet is absent."""

    id: str
    model: str
    api: Api
    status: int
    received_ns: int
    taken_up_ns: int | None = None
    ended: Ended | None = None
    frames: list[Played] = []


class Truth:
    """The latest records, at most `MAX_RECORDS` of them with at most `MAX_FRAMES` frames; older ones are forgotten."""

    def __init__(self) -> None:
        self._records: deque[Record] = deque()
        self._frames = 0

    def add(self, record: Record) -> None:
        """Keep a record, whose frames are `played` later."""
        self._records.append(record)
        self._forget()

    def played(self, record: Record, frame: Played) -> None:
        """One more frame of a record, kept or already forgotten."""
        record.frames.append(frame)
        self._frames += 1
        self._forget()

    def lines(self) -> Iterator[bytes]:
        """Every kept record as a line of JSON, in order of arrival."""
        return (msgspec.json.encode(record) + b"\n" for record in self._records)

    def _forget(self) -> None:
        while len(self._records) > MAX_RECORDS or (self._frames > MAX_FRAMES and len(self._records) > 1):
            self._frames -= len(self._records.popleft().frames)


@dataclass(slots=True)
class Histogram:
    """Durations counted in fixed bounds."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(_BOUNDS_NS) + 1))
    sum_ns: int = 0

    def add(self, duration_ns: int) -> None:
        self.counts[bisect_left(_BOUNDS_NS, duration_ns)] += 1
        self.sum_ns += duration_ns

    def text(self, name: str, label: str) -> Iterator[str]:
        yield f"# TYPE {name} histogram"
        bounds = [*(f"{bound / 1000:g}" for bound in _BOUNDS_MS), "+Inf"]
        for bound, count in zip(bounds, accumulate(self.counts), strict=True):
            yield f'{name}_bucket{{{label},le="{bound}"}} {count}'
        yield f"{name}_sum{{{label}}} {self.sum_ns / NS_PER_S:.9f}"
        yield f"{name}_count{{{label}}} {sum(self.counts)}"


@dataclass(slots=True)
class Metrics:
    """Counts over all models, in the words of vLLM 0.10 and later."""

    running: int = 0
    waiting: int = 0
    succeeded: int = 0
    queue: Histogram = field(default_factory=Histogram)
    first_token: Histogram = field(default_factory=Histogram)
    total: Histogram = field(default_factory=Histogram)

    def text(self) -> str:
        """The Prometheus exposition."""
        label = 'model_name="mock"'
        lines = []
        for name, value in (("running", self.running), ("waiting", self.waiting)):
            lines += [f"# TYPE vllm:num_requests_{name} gauge", f"vllm:num_requests_{name}{{{label}}} {value}"]
        lines += ["# TYPE vllm:request_success_total counter"]
        lines += [f'vllm:request_success_total{{{label},finished_reason="stop"}} {self.succeeded}']
        lines += self.queue.text("vllm:request_queue_time_seconds", label)
        lines += self.first_token.text("vllm:time_to_first_token_seconds", label)
        lines += self.total.text("vllm:e2e_request_latency_seconds", label)
        return "\n".join(lines) + "\n"
