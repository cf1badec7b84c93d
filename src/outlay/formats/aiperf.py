"""AIPerf's `profile_export.jsonl`: one request a line, instants in Unix nanoseconds, durations with their unit.

The aggregate beside it (`profile_export_aiperf.json`) may cover other requests than the lines do; it is not read.
"""

from collections.abc import Iterator, Mapping

import msgspec

from outlay.formats import records
from outlay.formats.codec import FormatError, Item, JsonCodec
from outlay.formats.streamed import CLOCK, MOMENT, Seen, closing_with_loads, failure, marks, sizes
from outlay.interaction import Interaction, Note, Outcome
from outlay.units import NS_PER_MS, NS_PER_S, NS_PER_US, format_duration, scaled

_EXPECTED = "AIPerf records: {metadata: {request_start_ns, request_end_ns}, metrics}"

_UNITS: Mapping[str, int] = {"ns": 1, "us": NS_PER_US, "ms": NS_PER_MS, "s": NS_PER_S, "sec": NS_PER_S}

# AIPerf counts whole nanoseconds and writes them as floats of milliseconds.
_ROUNDING_NS = NS_PER_US


class _Time(msgspec.Struct, frozen=True):
    value: float
    unit: str


class _Times(msgspec.Struct, frozen=True):
    value: list[float]
    unit: str


class _Count(msgspec.Struct, frozen=True):
    value: float


class _Metrics(msgspec.Struct, frozen=True):
    time_to_first_token: _Time | None = None
    time_to_first_output_token: _Time | None = None
    request_latency: _Time | None = None
    inter_chunk_latency: _Times | None = None
    input_sequence_length: _Count | None = None
    output_sequence_length: _Count | None = None


class _Metadata(msgspec.Struct, frozen=True):
    request_start_ns: int
    request_end_ns: int | None = None
    credit_issued_ns: int | None = None
    x_request_id: str | None = None
    session_num: int | None = None
    turn_index: int | None = None
    benchmark_phase: str | None = None
    was_cancelled: bool = False


class _Error(msgspec.Struct, frozen=True):
    code: int | None = None


class _Record(msgspec.Struct, frozen=True):
    metadata: _Metadata
    metrics: _Metrics = _Metrics()
    error: _Error | None = None

    @property
    def name(self) -> str:
        """Its request id, else its place in the run."""
        stated = self.metadata
        return stated.x_request_id or f"session {stated.session_num} turn {stated.turn_index}"


_RECORD = msgspec.json.Decoder(_Record)
_LIST = msgspec.json.Decoder(list[msgspec.Raw])


def recognises(value: object) -> bool:
    """Whether a decoded JSON value is one such record, or a list that holds one."""
    return any(map(_is_record, value)) if isinstance(value, list) else _is_record(value)


def parse(raw: bytes, _wanted: frozenset[str]) -> Iterator[Item]:
    """One interaction per request, from the credit where the record keeps it, else from the send."""
    value = records.whole(msgspec.json.decode, raw, expected=_EXPECTED)
    if not recognises(value):
        raise FormatError(f"expected {_EXPECTED}; found no record of that kind")
    raws = _LIST.decode(raw) if isinstance(value, list) else [raw]
    return records.each(raws, lambda record: _interaction(_RECORD.decode(record)), place="record")


CODEC = JsonCodec(
    name="aiperf",
    title="AIPerf records",
    recognises=recognises,
    parse=parse,
    # A credit may be late itself, and after a backlog AIPerf plans anew from that moment on.
    closing=closing_with_loads("AIPerf", "phase"),
)


def _is_record(value: object) -> bool:
    metadata = value.get("metadata") if isinstance(value, dict) and "metrics" in value else None
    return isinstance(metadata, dict) and "request_start_ns" in metadata


def _interaction(record: _Record) -> Interaction:
    seen, metadata, metrics = _seen(record), record.metadata, record.metrics
    phase = metadata.benchmark_phase
    return Interaction(
        id=record.name,
        moment=MOMENT,
        start_ns=seen.begun_ns,
        end_ns=seen.over_ns,
        clock=CLOCK,
        outcome=_outcome(record),
        dimensions={"phase": phase} if phase else {},
        sizes=sizes(_count(metrics.input_sequence_length), _count(metrics.output_sequence_length)),
        marks=tuple(marks(seen)),
        notes=tuple(_notes(record)),
    )


def _seen(record: _Record) -> Seen:
    """The durations of AIPerf all begin at the send; its latency ends at the last token, `request_end_ns` after it."""
    metadata, metrics = record.metadata, record.metrics
    sent_ns = scaled(metadata.request_start_ns, 1)
    last_ns = _after(sent_ns, metrics.request_latency)
    return Seen(
        intended_ns=_stamp_ns(metadata.credit_issued_ns),
        sent_ns=sent_ns,
        first_token_ns=_after(sent_ns, metrics.time_to_first_token),
        first_output_token_ns=_after(sent_ns, metrics.time_to_first_output_token),
        last_token_ns=last_ns,
        end_ns=_stamp_ns(metadata.request_end_ns) if last_ns is None else None,
    )


def _stamp_ns(value_ns: int | None) -> int | None:
    return None if value_ns is None else scaled(value_ns, 1)


def _after(sent_ns: int, time: _Time | None) -> int | None:
    return None if time is None or time.value < 0 else scaled(sent_ns + scaled(time.value, _unit_ns(time.unit)), 1)


def _unit_ns(unit: str) -> int:
    if unit not in _UNITS:
        raise records.Unreadable("a time in it has a unit that is not known")
    return _UNITS[unit]


def _count(count: _Count | None) -> int | None:
    return None if count is None else int(count.value)


def _outcome(record: _Record) -> Outcome:
    if record.metadata.was_cancelled:
        return "aborted"
    return "ok" if record.error is None else failure(record.error.code)


def _notes(record: _Record) -> Iterator[Note]:
    late = "the send was" if record.metadata.credit_issued_ns is None else "the credit was issued"
    yield Note(kind="outside-window", text=f"request {record.name}: how late {late} is not in the data")
    latency, chunks = record.metrics.request_latency, record.metrics.inter_chunk_latency
    first = record.metrics.time_to_first_token
    if latency is None or chunks is None or first is None:
        return
    parts_ns = sum(scaled(value, _unit_ns(chunks.unit)) for value in chunks.value)
    parts_ns += scaled(first.value, _unit_ns(first.unit))
    whole_ns = scaled(latency.value, _unit_ns(latency.unit))
    if abs(whole_ns - parts_ns) > _ROUNDING_NS:
        said = f"latency is {format_duration(whole_ns)}, first token and chunks sum to {format_duration(parts_ns)}"
        yield Note(kind="contradiction", text=f"request {record.name}: {said}")
