"""Spans as OpenTelemetry SDKs print them: the JavaScript and Python consoles, and files that follow either.

Not OTLP: here ids may begin with `0x`, times are `[seconds, nanoseconds]` or ISO 8601, and kinds count from 0.
"""

from collections.abc import Iterator, Mapping
from functools import partial

import msgspec

from outlay import units
from outlay.formats import records
from outlay.formats.attributes import first_of, keep
from outlay.formats.codec import Item, JsonCodec
from outlay.formats.isotime import parse_iso_ns
from outlay.interaction import Kind
from outlay.trace import Event, TraceSpan

_EXPECTED = "spans as an OpenTelemetry SDK prints them: one, a list, or {spans: [...]}"

# OTLP counts the same kinds from 1.
_KINDS: tuple[Kind, ...] = ("internal", "server", "client", "producer", "consumer")

_HOST_KEYS = ("host.id", "host.name")
_SERVICE = "service.name"
_RESOURCE_KEYS = frozenset({*_HOST_KEYS, _SERVICE})

_ALIASES: Mapping[str, str] = {
    "spanContext": "context",
    "trace_id": "traceId",
    "span_id": "spanId",
    "id": "spanId",
    "parent_span_id": "parentSpanId",
    "parent_id": "parentSpanId",
    "parentId": "parentSpanId",
    "start_time": "startTime",
    "end_time": "endTime",
    "resource_attributes": "resource",
    "instrumentationScope": "scope",
    "instrumentationLibrary": "scope",
    "instrumentation_scope": "scope",
    "status_code": "status",
}

_Pair = tuple[records.Number, records.Number]  # [seconds, nanoseconds]
_Time = _Pair | str  # or ISO 8601; a bare number here has no unit that one could know
_NEVER = (0, 0)


class _Context(msgspec.Struct, rename="camel"):
    span_id: str | None = None


class _Scope(msgspec.Struct):
    name: str | None = None


class _Event(msgspec.Struct):
    name: str
    time: _Time | None = None
    timestamp: _Time | None = None
    attributes: dict[str, object] | None = None


class _Span(msgspec.Struct, rename="camel"):
    """A span under the names that `_ALIASES` lead to."""

    trace_id: str
    span_id: str
    name: str | None = None
    parent_span_id: str | None = None
    parent_span_context: _Context | None = None
    kind: int | str | None = None
    start_time: _Time | None = None
    end_time: _Time | None = None
    timestamp: int | float | None = None  # these two only from the JavaScript console, in microseconds
    duration: _Pair | int | float | None = None
    status: dict[str, object] | int | str | None = None
    attributes: dict[str, object] | None = None
    resource: dict[str, object] | None = None
    scope: _Scope | None = None
    events: list[_Event] | None = None


class _Whole(msgspec.Struct):
    spans: list[msgspec.Raw] | None = None


_WHOLE: msgspec.json.Decoder[list[msgspec.Raw] | _Whole] = msgspec.json.Decoder(list[msgspec.Raw] | _Whole)
_FIELDS = msgspec.json.Decoder(dict[str, object])


def recognises(value: object) -> bool:
    """Whether a decoded JSON value is a span of an SDK, a list of them, or an object that lists them as `spans`."""
    if isinstance(value, dict) and isinstance(value.get("spans"), list):
        value = value["spans"]
    return any(map(_is_span, value)) if isinstance(value, list) else _is_span(value)


def parse(raw: bytes, wanted: frozenset[str]) -> Iterator[Item]:
    """One span per record, and a note for each that cannot be read."""
    value = records.whole(_WHOLE.decode, raw, expected=_EXPECTED)
    read = partial(_span, wanted=wanted)
    spans = value if isinstance(value, list) else value.spans
    if spans is None:
        yield records.whole(read, raw, expected=_EXPECTED)
    else:
        yield from records.each(spans, read, place="span")


CODEC = JsonCodec(name="sdk-spans", title="OpenTelemetry SDK spans", recognises=recognises, parse=parse)


def _is_span(value: object) -> bool:
    if not isinstance(value, dict):
        return False
    names = _named(value).keys()
    return {"traceId", "spanId", "name", "attributes"} <= names and (
        "startTime" in names or {"timestamp", "duration"} <= names
    )


def _named(record: Mapping[str, object]) -> dict[str, object]:
    """The record under one set of names, its ids at the top, without what is null."""
    fields = _renamed(record)
    context = fields.pop("context", None)
    return {**_renamed(context), **fields} if isinstance(context, dict) else fields


def _renamed(record: Mapping[str, object]) -> dict[str, object]:
    return {_ALIASES.get(key, key): value for key, value in record.items() if value is not None}


def _span(raw: bytes, wanted: frozenset[str]) -> TraceSpan:
    span = msgspec.convert(_named(_FIELDS.decode(raw)), _Span)
    resource = _resource(span.resource or {})
    known = keep(resource.items(), _RESOURCE_KEYS)
    service = first_of(known, (_SERVICE,))
    parent = span.parent_span_context or _Context()
    start_ns = _start_ns(span)
    return TraceSpan(
        trace=records.required(span.trace_id, "trace id"),
        id=records.required(span.span_id, "span id"),
        parent=records.identifier(span.parent_span_id or parent.span_id),
        name=span.name or "",
        start_ns=start_ns,
        end_ns=_end_ns(span, start_ns),
        service=service,
        kind=_kind(span.kind),
        clock=first_of(known, _HOST_KEYS) or service or "",
        failed=_failed(span.status),
        scope=(span.scope and span.scope.name) or "",
        attributes=keep((span.attributes or {}).items(), wanted),
        resource=keep(resource.items(), wanted),
        events=tuple(_events(span.events or [], wanted)),
    )


def _start_ns(span: _Span) -> int:
    if span.start_time is not None:
        return _time_ns(span.start_time)
    if span.timestamp is not None:
        return units.from_us(span.timestamp)
    raise records.Unreadable("it has no start time")


def _end_ns(span: _Span, start_ns: int) -> int | None:
    if span.end_time is not None:
        # A JavaScript span that was never ended says [0, 0].
        return None if span.end_time == _NEVER else _time_ns(span.end_time)
    if isinstance(span.duration, tuple):
        return units.scaled(start_ns + _pair_ns(span.duration), 1)
    return records.end_ns(start_ns, span.duration)


def _time_ns(time: _Time) -> int:
    return parse_iso_ns(time) if isinstance(time, str) else _pair_ns(time)


def _pair_ns(pair: _Pair) -> int:
    seconds, nanoseconds = pair
    return units.scaled(units.from_s(seconds) + units.scaled(nanoseconds, 1), 1)


def _kind(kind: int | str | None) -> Kind:
    if isinstance(kind, int):
        return _KINDS[kind] if 0 <= kind < len(_KINDS) else "internal"
    return records.kind(kind)


def _failed(status: dict[str, object] | int | str | None) -> bool:
    code = status.get("code", status.get("status_code")) if isinstance(status, dict) else status
    return code == 2 or str(code).upper().endswith("ERROR")


def _resource(resource: Mapping[str, object]) -> dict[str, object]:
    """The resource's attributes, which SDKs nest under two names, list as pairs, or print flat."""
    items = resource.get("attributes") or resource.get("_rawAttributes") or resource
    return dict(msgspec.convert(items, dict[str, object] | list[tuple[str, object]]))


def _events(events: list[_Event], wanted: frozenset[str]) -> Iterator[Event]:
    for event in events:
        at = event.timestamp if event.time is None else event.time
        if at is not None:
            yield Event(name=event.name, at_ns=_time_ns(at), attributes=keep((event.attributes or {}).items(), wanted))
