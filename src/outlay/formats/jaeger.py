"""Jaeger's JSON: what its UI downloads and its query API answers, times in microseconds."""

from collections.abc import Iterable, Iterator, Mapping
from functools import partial

import msgspec

from outlay import units
from outlay.formats import records
from outlay.formats.attributes import first_of, keep
from outlay.formats.codec import FormatError, Item, JsonCodec
from outlay.interaction import Note
from outlay.trace import Event, Scalar, TraceSpan

_EXPECTED = "Jaeger JSON: {data: [{traceID, spans, processes}]}, or one such trace"

# Which machine stamped the times, the most telling first.
_HOST_KEYS = ("host.id", "host.name", "hostname", "ip", "host.ip")
_SPAN_KEYS = frozenset({"span.kind", "error", "otel.status_code", "otel.scope.name", "otel.library.name"})
_SCOPE_KEYS = ("otel.scope.name", "otel.library.name")
_EVENT_NAME = "event"

# Storage back ends keep every value as text and its type beside it.
_TYPES: Mapping[str, type] = {"bool": bool, "int64": int, "float64": float}

# CHILD_OF first: a span that names both runs inside the one and merely follows the other.
_REFERENCES = (("CHILD_OF", False), ("FOLLOWS_FROM", True))


class _Tag(msgspec.Struct):
    key: str
    type: str | None = None
    value: msgspec.Raw = msgspec.Raw(b"null")


class _Log(msgspec.Struct):
    timestamp: records.Number
    fields: list[_Tag] | None = None


class _Process(msgspec.Struct, rename={"service": "serviceName"}):
    service: str | None = None
    tags: list[_Tag] | None = None


class _Reference(msgspec.Struct, rename={"kind": "refType", "trace": "traceID", "span": "spanID"}):
    span: str
    kind: str = "CHILD_OF"
    trace: str | None = None


class _Span(
    msgspec.Struct,
    rename={
        "trace": "traceID",
        "id": "spanID",
        "name": "operationName",
        "start": "startTime",
        "process_id": "processID",
        "parent": "parentSpanID",
        "parent_otel": "parentSpanId",
    },
):
    id: str
    start: records.Number
    trace: str | None = None
    name: str | None = None
    duration: records.Number | None = None
    references: list[_Reference] | None = None
    parent: str | None = None
    parent_otel: str | None = None
    tags: list[_Tag] | None = None
    logs: list[_Log] | None = None
    process_id: str | None = None
    process: _Process | None = None


class _Trace(msgspec.Struct, rename={"id": "traceID"}):
    spans: list[msgspec.Raw]
    id: str | None = None
    processes: dict[str, _Process] | None = None


class _Whole(msgspec.Struct):
    data: list[msgspec.Raw] | None = None
    spans: list[msgspec.Raw] | None = None


_WHOLE: msgspec.json.Decoder[list[msgspec.Raw] | _Whole] = msgspec.json.Decoder(list[msgspec.Raw] | _Whole)
_TRACE = msgspec.json.Decoder(_Trace)
_SPAN = msgspec.json.Decoder(_Span)


def recognises(value: object) -> bool:
    """Whether a decoded JSON value is an answer of the API, one trace, or a list of traces."""
    if isinstance(value, list):
        return any(map(_is_trace, value))
    if not isinstance(value, dict):
        return False
    data = value.get("data")
    if isinstance(data, list):
        return any(map(_is_trace, data)) or (not data and "errors" in value)
    return _is_trace(value)


def parse(raw: bytes, wanted: frozenset[str]) -> Iterator[Item]:
    """The spans of every trace in the value, and a note for each trace or span that cannot be read."""
    for number, trace in enumerate(records.each(_traces(raw), _TRACE.decode, place="trace")):
        if isinstance(trace, Note):
            yield trace
        else:
            read = partial(_span, trace=trace, wanted=wanted)
            yield from records.each(trace.spans, read, place=f"trace {number}, span")


CODEC = JsonCodec(name="jaeger", title="Jaeger JSON", recognises=recognises, parse=parse)


def _is_trace(value: object) -> bool:
    return isinstance(value, dict) and "traceID" in value and isinstance(value.get("spans"), list)


def _traces(raw: bytes) -> list[msgspec.Raw] | list[bytes]:
    value = records.whole(_WHOLE.decode, raw, expected=_EXPECTED)
    if isinstance(value, list):
        return value
    if value.data is not None:
        return value.data
    if value.spans is None:
        raise FormatError(f"expected {_EXPECTED}; found neither data nor spans")
    return [raw]


def _span(raw: bytes, trace: _Trace, wanted: frozenset[str]) -> TraceSpan:
    span = _SPAN.decode(raw)
    process = span.process or (trace.processes or {}).get(span.process_id or "") or _Process()
    tags = _values(span.tags, _SPAN_KEYS)
    trace_id = records.required(span.trace or trace.id, "trace id")
    parent, follows = _parent(span, trace_id)
    start_ns = units.from_us(span.start)
    return TraceSpan(
        trace=trace_id,
        id=records.required(span.id, "span id"),
        parent=parent,
        name=span.name or "",
        start_ns=start_ns,
        end_ns=records.end_ns(start_ns, span.duration),
        service=process.service or None,
        kind=records.kind(tags.get("span.kind")),
        clock=first_of(_values(process.tags, frozenset(_HOST_KEYS)), _HOST_KEYS) or process.service or "",
        follows=follows,
        failed=str(tags.get("error")).lower() == "true" or tags.get("otel.status_code") == "ERROR",
        scope=first_of(tags, _SCOPE_KEYS) or "",
        attributes=_values(span.tags, wanted),
        resource=_values(process.tags, wanted),
        events=tuple(_events(span.logs or (), wanted)),
    )


def _parent(span: _Span, trace_id: str) -> tuple[str | None, bool]:
    """The parent's id and whether the span only follows it. References into other traces name no parent."""
    here = [ref for ref in span.references or () if records.identifier(ref.trace) in (None, trace_id)]
    for kind, follows in _REFERENCES:
        parent = next((ref for ref in here if ref.kind.upper() == kind), None)
        if parent is not None:
            return records.identifier(parent.span), follows
    return records.identifier(span.parent or span.parent_otel), False


def _events(logs: Iterable[_Log], wanted: frozenset[str]) -> Iterator[Event]:
    # Only `event` names what happened; the other fields of a log may hold anything the application said.
    for log in logs:
        name = first_of(_values(log.fields, frozenset({_EVENT_NAME})), (_EVENT_NAME,))
        if name is not None:
            yield Event(name=name, at_ns=units.from_us(log.timestamp), attributes=_values(log.fields, wanted))


def _values(tags: Iterable[_Tag] | None, keys: frozenset[str]) -> dict[str, Scalar]:
    return keep(((tag.key, _typed(tag)) for tag in tags or () if tag.key in keys), keys)


def _typed(tag: _Tag) -> object:
    """The tag's value as the type it declares; as it stands when it is not of that type."""
    try:
        return msgspec.json.decode(tag.value, type=_TYPES.get(tag.type or "", object), strict=False)
    except msgspec.ValidationError:
        return tag.value
