"""OTLP traces: JSON (a document, or one object a line) and protobuf (one message, or the Collector's framed file).

Both encodings go through the same span builder, so equal data gives equal spans. Ids are hex whatever their case;
times are nanoseconds as text or number; keys that nobody asked for are never copied.
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from math import isfinite
from typing import TYPE_CHECKING, BinaryIO

import msgspec

from outlay.formats import records
from outlay.formats.codec import FormatError, Item, JsonCodec, Shard
from outlay.interaction import Kind, Note
from outlay.sampling import TRACE_STATE
from outlay.trace import Event, Scalar, TraceSpan
from outlay.units import MAX_NS

if TYPE_CHECKING:
    from opentelemetry.proto.common.v1.common_pb2 import KeyValue
    from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, Span

PROTOBUF_NAME = "otlp-protobuf"
PROTOBUF_TITLE = "OTLP traces, protobuf"

# SpanKind of the protocol, 0 being unspecified.
_KINDS: tuple[Kind, ...] = ("internal", "internal", "server", "client", "producer", "consumer")
_KIND_NAMES: Mapping[str, Kind] = {f"SPAN_KIND_{kind.upper()}": kind for kind in _KINDS}
_ERROR = 2

_RESOURCE_KEYS = ("service.name", "service.instance.id", "host.id", "host.name")

_EXPECTED = "an OTLP traces object: {resourceSpans: [{resource, scopeSpans: [{scope, spans}]}]}"
_NO_ID = "an id is empty"
# A trace state without OpenTelemetry's own part says nothing of sampling.
_SAMPLED = "ot="
_BEYOND = "a time does not fit 63 bits of nanoseconds"

# A message larger than this is not telemetry but a length read from the wrong bytes.
MAX_MESSAGE = 256 * 1024 * 1024


def _clock(resource: Mapping[str, Scalar]) -> str:
    """The host whose clock stamped the spans; without a host, the service instance stands for it."""
    host = resource.get("host.id", resource.get("host.name"))
    if host is not None:
        return str(host)
    parts = [str(resource[key]) for key in ("service.name", "service.instance.id") if key in resource]
    return "/".join(parts)


def _service(resource: Mapping[str, Scalar]) -> str | None:
    name = resource.get("service.name")
    return None if name is None else str(name)


def _times(start: int | float | str, end: int | float | str) -> tuple[int, int | None]:
    """Start and end of a span, which writes an absent time as 0. Raises Unreadable where there is no start."""
    start_ns, end_ns = int(start), int(end)
    if not 0 < start_ns <= MAX_NS or not 0 <= end_ns <= MAX_NS:
        raise records.Unreadable("it has no start" if start_ns == 0 else _BEYOND)
    return start_ns, end_ns or None


def _instant(value: int | float | str) -> int:
    instant_ns = int(value)
    if not 0 <= instant_ns <= MAX_NS:
        raise records.Unreadable(_BEYOND)
    return instant_ns


# JSON. Its mapping of the protocol's fields allows null for each that is not set.


class _Value(msgspec.Struct, rename="camel"):
    string_value: str | None = None
    int_value: int | str | None = None
    double_value: float | str | None = None
    bool_value: bool | None = None


class _KeyValue(msgspec.Struct):
    key: str | None = None
    value: msgspec.Raw = msgspec.Raw(b"null")


class _Resource(msgspec.Struct):
    attributes: list[_KeyValue] | None = None


class _Scope(msgspec.Struct):
    name: str | None = None


class _Status(msgspec.Struct):
    code: int | str | None = None


class _Event(msgspec.Struct, rename="camel"):
    name: str | None = None
    time_unix_nano: int | float | str | None = None
    attributes: list[_KeyValue] | None = None


class _Link(msgspec.Struct, rename="camel"):
    trace_id: str | None = None
    span_id: str | None = None


class _Span(msgspec.Struct, rename="camel"):
    trace_id: str | None = None
    span_id: str | None = None
    start_time_unix_nano: int | float | str | None = None
    end_time_unix_nano: int | float | str | None = None
    parent_span_id: str | None = None
    name: str | None = None
    kind: int | str | None = None
    attributes: list[_KeyValue] | None = None
    events: list[_Event] | None = None
    links: list[_Link] | None = None
    status: _Status | None = None
    trace_state: str | None = None


class _ScopeSpans(msgspec.Struct):
    scope: _Scope | None = None
    spans: list[msgspec.Raw] | None = None


class _ResourceSpans(msgspec.Struct, rename="camel"):
    resource: _Resource | None = None
    scope_spans: list[_ScopeSpans] | None = None
    # What the field was called before 0.15 of the protocol; old exporters still write it.
    instrumentation_library_spans: list[_ScopeSpans] | None = None


class _Document(msgspec.Struct, rename="camel"):
    resource_spans: list[msgspec.Raw] | None


_decode_document = msgspec.json.Decoder(_Document).decode
_decode_resource_spans = msgspec.json.Decoder(_ResourceSpans).decode
_decode_span = msgspec.json.Decoder(_Span).decode
_decode_value = msgspec.json.Decoder(_Value | None).decode


def recognises(value: object) -> bool:
    """Whether a decoded JSON value is an OTLP traces object."""
    return isinstance(value, dict) and "resourceSpans" in value


def parse_json(raw: bytes, wanted: frozenset[str]) -> Iterator[Item]:
    """The spans of one OTLP JSON object; see `codec.JsonCodec`."""
    document = records.whole(_decode_document, raw, expected=_EXPECTED)
    read_group = partial(_json_group, keep=wanted | frozenset(_RESOURCE_KEYS))
    for group in records.each(document.resource_spans or (), read_group, place="resourceSpans"):
        if isinstance(group, Note):
            yield group
            continue
        resource, scopes = group
        read_span = partial(_json_span, resource=resource, service=_service(resource), clock=_clock(resource))
        for scope_spans in scopes:
            scope = (scope_spans.scope and scope_spans.scope.name) or ""
            read = partial(read_span, scope=scope, wanted=wanted)
            yield from records.each(scope_spans.spans or (), read, place=f"scope {scope!r}, span")


def _json_group(raw: bytes, keep: frozenset[str]) -> tuple[Mapping[str, Scalar], list[_ScopeSpans]]:
    group = _decode_resource_spans(raw)
    resource = _json_scalars(group.resource.attributes, keep) if group.resource else {}
    return resource, [*(group.scope_spans or ()), *(group.instrumentation_library_spans or ())]


def _json_span(
    raw: bytes,
    resource: Mapping[str, Scalar],
    service: str | None,
    clock: str,
    scope: str,
    wanted: frozenset[str],
) -> TraceSpan:
    span = _decode_span(raw)
    trace, span_id, parent = _hex(span.trace_id), _hex(span.span_id), _hex(span.parent_span_id)
    if not (trace and span_id):
        raise records.Unreadable(_NO_ID)
    start_ns, end_ns = _times(span.start_time_unix_nano or 0, span.end_time_unix_nano or 0)
    links = () if parent else span.links or ()
    linked = next((_hex(link.span_id) for link in links if _hex(link.trace_id) == trace), "")
    return TraceSpan(
        trace=trace,
        id=span_id,
        parent=parent or linked or None,
        name=span.name or "",
        start_ns=start_ns,
        end_ns=end_ns,
        service=service,
        kind=_kind(span.kind),
        clock=clock,
        follows=bool(linked),
        failed=span.status is not None and span.status.code in (_ERROR, "STATUS_CODE_ERROR"),
        scope=scope,
        attributes=_with_state(_json_scalars(span.attributes, wanted), span.trace_state),
        resource=resource,
        events=tuple(
            Event(
                name=event.name or "",
                at_ns=_instant(event.time_unix_nano or 0),
                attributes=_json_scalars(event.attributes, wanted),
            )
            for event in span.events or ()
        ),
    )


def _json_scalars(attributes: Iterable[_KeyValue] | None, wanted: frozenset[str]) -> dict[str, Scalar]:
    found: dict[str, Scalar] = {}
    for item in attributes or ():
        if item.key in wanted and (scalar := _json_scalar(_decode_value(item.value))) is not None:
            found[item.key] = scalar
    return found


def _json_scalar(value: _Value | None) -> Scalar | None:
    """Text, a whole number, a finite number or a bool; None for any other value."""
    if value is None:
        return None
    if value.string_value is not None:
        return value.string_value
    if value.int_value is not None:
        return int(value.int_value)
    if value.double_value is not None:
        number = float(value.double_value)
        return number if isfinite(number) else None
    return value.bool_value


def _with_state(attributes: dict[str, Scalar], state: str | None) -> dict[str, Scalar]:
    """The trace's state stands beside the attributes, because its sampler may have written there."""
    if state and _SAMPLED in state:
        attributes[TRACE_STATE] = state
    return attributes


def _hex(text: str | None) -> str:
    """An id as lower-case hex, empty when there is none or only zeros; raises ValueError for another alphabet."""
    return _id(bytes.fromhex(text)) if text else ""


def _id(raw: bytes) -> str:
    # Only zeros is how W3C trace context writes that there is no id; some exporters fill the parent of a root with it.
    return raw.hex() if any(raw) else ""


def _kind(kind: int | str | None) -> Kind:
    if isinstance(kind, str):
        return _KIND_NAMES.get(kind, "internal")
    return _KINDS[kind] if kind is not None and 0 <= kind < len(_KINDS) else "internal"


JSON = JsonCodec(name="otlp-json", title="OTLP traces, JSON", recognises=recognises, parse=parse_json)


# Protobuf

_RESOURCE_SPANS_TAG = 0x0A  # field 1, length-delimited: the only field of a TracesData message


def looks_like_protobuf(head: bytes) -> bool:
    """Whether the first bytes of an input are a TracesData message, bare or with a 4-byte length before it."""
    return bool(head) and (head[0] == _RESOURCE_SPANS_TAG or _framed(head))


def _framed(head: bytes) -> bool:
    size = int.from_bytes(head[:4], "big")
    return len(head) > 4 and head[4] == _RESOURCE_SPANS_TAG and 0 < size <= MAX_MESSAGE


def parse_protobuf(stream: BinaryIO, wanted: frozenset[str], shard: Shard) -> Iterator[Item]:
    """The spans of a protobuf file, one ResourceSpans at a time, so that memory does not grow with the file.

    `stream` is read from its beginning. Raises FormatError when the bytes are not OTLP from the first message on; what
    breaks later in the file is a `dropped-record` note, and reading ends there.
    """
    from google.protobuf.message import DecodeError
    from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans

    keep = wanted | frozenset(_RESOURCE_KEYS)
    count = 0
    try:
        for message in _messages(stream):
            yield from _protobuf_spans(ResourceSpans.FromString(message), wanted, keep, shard)
            count += 1
    except (DecodeError, EOFError, ValueError) as error:
        if count == 0:
            raise FormatError(f"not OTLP protobuf: {error}") from None
        if shard.index == 0:
            yield Note(kind="dropped-record", text=f"after {count} resource groups the file breaks off: {error}")


def _messages(stream: BinaryIO) -> Iterator[bytes]:
    """The bytes of each ResourceSpans. TracesData messages may stand bare, or each behind four bytes of length."""
    framed: bool | None = None
    while tag := stream.read(1):
        if framed is None:
            framed = tag[0] != _RESOURCE_SPANS_TAG
        if framed and tag[0] != _RESOURCE_SPANS_TAG:
            tag = _exactly(stream, 4)[3:]
        if tag[0] != _RESOURCE_SPANS_TAG:
            raise ValueError(f"field tag {tag[0]:#04x} where resource_spans was expected")
        yield _exactly(stream, _varint(stream))


def _varint(stream: BinaryIO) -> int:
    value = 0
    for place in range(5):
        byte = _exactly(stream, 1)[0]
        value |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            break
    else:
        raise ValueError("a length of more than five bytes")
    if value > MAX_MESSAGE:
        raise ValueError(f"a message of {value} bytes is beyond {MAX_MESSAGE}")
    return value


def _exactly(stream: BinaryIO, size: int) -> bytes:
    body = stream.read(size)
    if len(body) < size:
        raise EOFError(f"{size - len(body)} bytes are missing")
    return body


def _protobuf_spans(
    group: "ResourceSpans", wanted: frozenset[str], keep: frozenset[str], shard: Shard
) -> Iterator[TraceSpan | Note]:
    resource = _protobuf_scalars(group.resource.attributes, keep)
    service, clock = _service(resource), _clock(resource)
    for scope_spans in group.scope_spans:
        scope = scope_spans.scope.name
        for span in scope_spans.spans:
            trace = span.trace_id.hex()
            if shard.of > 1 and not shard.holds(trace):
                continue
            try:
                item: TraceSpan | Note = _protobuf_span(span, trace, resource, service, clock, scope, wanted)
            except records.Unreadable as error:
                item = Note(kind="dropped-record", text=f"a span in scope {scope!r}: {error}")
            yield item


def _protobuf_span(
    span: "Span",
    trace: str,
    resource: Mapping[str, Scalar],
    service: str | None,
    clock: str,
    scope: str,
    wanted: frozenset[str],
) -> TraceSpan:
    if not (trace and span.span_id):
        raise records.Unreadable(_NO_ID)
    start_ns, end_ns = _times(span.start_time_unix_nano, span.end_time_unix_nano)
    parent, trace_id = _id(span.parent_span_id), span.trace_id
    linked = "" if parent else next((_id(link.span_id) for link in span.links if link.trace_id == trace_id), "")
    kind = span.kind
    return TraceSpan(
        trace=trace,
        id=span.span_id.hex(),
        parent=parent or linked or None,
        name=span.name,
        start_ns=start_ns,
        end_ns=end_ns,
        service=service,
        kind=_KINDS[kind] if 0 <= kind < len(_KINDS) else "internal",
        clock=clock,
        follows=bool(linked),
        failed=span.status.code == _ERROR,
        scope=scope,
        attributes=_with_state(_protobuf_scalars(span.attributes, wanted), span.trace_state),
        resource=resource,
        events=tuple(
            [
                Event(
                    name=event.name,
                    at_ns=_instant(event.time_unix_nano),
                    attributes=_protobuf_scalars(event.attributes, wanted),
                )
                for event in span.events
            ]
        ),
    )


def _protobuf_scalars(attributes: "Iterable[KeyValue]", wanted: frozenset[str]) -> dict[str, Scalar]:
    found: dict[str, Scalar] = {}
    for item in attributes:
        key = item.key
        if key in wanted:
            value = item.value
            field = value.WhichOneof("value")
            if field in _SCALAR_FIELDS:
                scalar = getattr(value, field)
                if field != "double_value" or isfinite(scalar):
                    found[key] = scalar
    return found


_SCALAR_FIELDS = frozenset({"string_value", "int_value", "double_value", "bool_value"})
