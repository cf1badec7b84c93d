"""OTLP traces: JSON (a document, or one object a line) and protobuf (one message, or the Collector's framed file).

Both encodings go through the same span builder, so equal data gives equal spans. Ids are hex whatever their case;
times are nanoseconds as text or number; keys that nobody asked for are never copied.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, BinaryIO
from zlib import crc32

import msgspec

from outlay.formats.codec import FormatError, Item, JsonCodec, Shard
from outlay.interaction import Kind, Note
from outlay.trace import Event, Scalar, TraceSpan

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


# JSON


class _Value(msgspec.Struct, rename="camel"):
    string_value: str | None = None
    int_value: int | str | None = None
    double_value: float | str | None = None
    bool_value: bool | None = None


class _KeyValue(msgspec.Struct):
    key: str
    value: _Value | None = None


class _Resource(msgspec.Struct):
    attributes: list[_KeyValue] = []


class _Scope(msgspec.Struct):
    name: str = ""


class _Status(msgspec.Struct):
    code: int | str = 0


class _Event(msgspec.Struct, rename="camel"):
    name: str = ""
    time_unix_nano: int | str = 0
    attributes: list[_KeyValue] = []


class _Link(msgspec.Struct, rename="camel"):
    trace_id: str = ""
    span_id: str = ""


class _Span(msgspec.Struct, rename="camel"):
    trace_id: str
    span_id: str
    start_time_unix_nano: int | str
    end_time_unix_nano: int | str | None = None
    parent_span_id: str | None = None
    name: str = ""
    kind: int | str = 0
    attributes: list[_KeyValue] = []
    events: list[_Event] = []
    links: list[_Link] = []
    status: _Status | None = None


class _ScopeSpans(msgspec.Struct):
    scope: _Scope | None = None
    spans: list[msgspec.Raw] = []


class _ResourceSpans(msgspec.Struct, rename="camel"):
    resource: _Resource | None = None
    scope_spans: list[_ScopeSpans] = []
    # What the field was called before 0.15 of the protocol; old exporters still write it.
    instrumentation_library_spans: list[_ScopeSpans] = []


class _Document(msgspec.Struct, rename="camel"):
    resource_spans: list[msgspec.Raw]


_decode_document = msgspec.json.Decoder(_Document).decode
_decode_resource_spans = msgspec.json.Decoder(_ResourceSpans).decode
_decode_span = msgspec.json.Decoder(_Span).decode


def recognises(value: object) -> bool:
    """Whether a decoded JSON value is an OTLP traces object."""
    return isinstance(value, dict) and "resourceSpans" in value


def parse_json(raw: bytes, wanted: frozenset[str]) -> Iterator[Item]:
    """The spans of one OTLP JSON object; see `codec.JsonCodec`."""
    try:
        document = _decode_document(raw)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"not an OTLP traces object: {error}") from None
    keep = wanted | frozenset(_RESOURCE_KEYS)
    for place, part in enumerate(document.resource_spans):
        try:
            group = _decode_resource_spans(part)
        except (ValueError, RecursionError) as error:
            yield Note(kind="dropped-record", text=f"resourceSpans[{place}]: {error}")
            continue
        resource = _json_scalars(group.resource.attributes, keep) if group.resource else {}
        for scope_spans in (*group.scope_spans, *group.instrumentation_library_spans):
            scope = scope_spans.scope.name if scope_spans.scope else ""
            for raw_span in scope_spans.spans:
                yield _json_span(raw_span, resource, scope, wanted)


def _json_span(
    raw: msgspec.Raw, resource: Mapping[str, Scalar], scope: str, wanted: frozenset[str]
) -> TraceSpan | Note:
    try:
        span = _decode_span(raw)
        trace = _hex(span.trace_id)
        parent = _hex(span.parent_span_id) if span.parent_span_id else ""
        linked = "" if parent else next((_hex(link.span_id) for link in span.links if _hex(link.trace_id) == trace), "")
        return TraceSpan(
            trace=trace,
            id=_hex(span.span_id),
            parent=parent or linked or None,
            name=span.name,
            start_ns=int(span.start_time_unix_nano),
            end_ns=_end(int(span.end_time_unix_nano)) if span.end_time_unix_nano is not None else None,
            service=_service(resource),
            kind=_kind(span.kind),
            clock=_clock(resource),
            follows=bool(linked),
            failed=span.status is not None and span.status.code in (_ERROR, "STATUS_CODE_ERROR"),
            scope=scope,
            attributes=_json_scalars(span.attributes, wanted),
            resource=resource,
            events=tuple(
                Event(
                    name=event.name,
                    at_ns=int(event.time_unix_nano),
                    attributes=_json_scalars(event.attributes, wanted),
                )
                for event in span.events
            ),
        )
    except (ValueError, RecursionError) as error:
        return Note(kind="dropped-record", text=f"a span in scope {scope!r}: {error}")


def _json_scalars(attributes: Iterable[_KeyValue], wanted: frozenset[str]) -> dict[str, Scalar]:
    found: dict[str, Scalar] = {}
    for item in attributes:
        if item.key in wanted and item.value is not None:
            value = item.value
            if value.string_value is not None:
                found[item.key] = value.string_value
            elif value.int_value is not None:
                found[item.key] = int(value.int_value)
            elif value.double_value is not None:
                found[item.key] = float(value.double_value)
            elif value.bool_value is not None:
                found[item.key] = value.bool_value
    return found


def _hex(text: str) -> str:
    """An id as lower-case hex; raises ValueError for an empty one or another alphabet."""
    if not text:
        raise ValueError("an id is empty")
    return bytes.fromhex(text).hex()


def _kind(kind: int | str) -> Kind:
    if isinstance(kind, str):
        return _KIND_NAMES.get(kind, "internal")
    return _KINDS[kind] if 0 <= kind < len(_KINDS) else "internal"


def _end(instant: int) -> int | None:
    """The protocol writes an absent time as 0."""
    return instant or None


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
            trace_id = span.trace_id
            if shard.of > 1 and crc32(trace_id) % shard.of != shard.index:
                continue
            if trace_id and span.span_id:
                yield _protobuf_span(span, trace_id, resource, service, clock, scope, wanted)
            elif shard.index == 0:
                yield Note(kind="dropped-record", text=f"a span in scope {scope!r}: an id is empty")


def _protobuf_span(
    span: "Span",
    trace_id: bytes,
    resource: Mapping[str, Scalar],
    service: str | None,
    clock: str,
    scope: str,
    wanted: frozenset[str],
) -> TraceSpan:
    parent = span.parent_span_id
    linked = b"" if parent else next((link.span_id for link in span.links if link.trace_id == trace_id), b"")
    kind = span.kind
    return TraceSpan(
        trace=trace_id.hex(),
        id=span.span_id.hex(),
        parent=(parent or linked).hex() or None,
        name=span.name,
        start_ns=span.start_time_unix_nano,
        end_ns=_end(span.end_time_unix_nano),
        service=service,
        kind=_KINDS[kind] if 0 <= kind < len(_KINDS) else "internal",
        clock=clock,
        follows=bool(linked),
        failed=span.status.code == _ERROR,
        scope=scope,
        attributes=_protobuf_scalars(span.attributes, wanted),
        resource=resource,
        events=tuple(
            [
                Event(
                    name=event.name,
                    at_ns=event.time_unix_nano,
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
                found[key] = getattr(value, field)
    return found


_SCALAR_FIELDS = frozenset({"string_value", "int_value", "double_value", "bool_value"})
