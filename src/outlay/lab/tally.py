"""What the reference server knows of its own requests: the truth of each, and metrics under vLLM's names."""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

import msgspec

from outlay.exposition import Histogram
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


def _histogram() -> Histogram:
    return Histogram(_BOUNDS_NS)


@dataclass(slots=True)
class Metrics:
    """Counts over all models, in the words of vLLM 0.10 and later."""

    running: int = 0
    waiting: int = 0
    succeeded: int = 0
    queue: Histogram = field(default_factory=_histogram)
    first_token: Histogram = field(default_factory=_histogram)
    total: Histogram = field(default_factory=_histogram)

    def text(self) -> str:
        """The Prometheus exposition."""
        label = 'model_name="mock"'
        lines = []
        for name, value in (("running", self.running), ("waiting", self.waiting)):
            lines += [f"# TYPE vllm:num_requests_{name} gauge", f"vllm:num_requests_{name}{{{label}}} {value}"]
        lines += ["# TYPE vllm:request_success_total counter"]
        lines += [f'vllm:request_success_total{{{label},finished_reason="stop"}} {self.succeeded}']
        for name, histogram in (
            ("vllm:request_queue_time_seconds", self.queue),
            ("vllm:time_to_first_token_seconds", self.first_token),
            ("vllm:e2e_request_latency_seconds", self.total),
        ):
            lines += (f"# TYPE {name} histogram", *histogram.text(name, label))
        return "\n".join(lines) + "\n"
