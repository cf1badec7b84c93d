"""Zipkin v2 JSON: a list of spans, or the API's list of traces, times in microseconds.

Zipkin may give both ends of a call one id. Here the server's half becomes a span of its own, a child of the client's.
"""

from collections.abc import Container, Iterator, Sequence
from dataclasses import replace
from functools import partial

import msgspec

from outlay import units
from outlay.formats import records
from outlay.formats.attributes import keep
from outlay.formats.codec import FormatError, Item, JsonCodec
from outlay.interaction import Note
from outlay.trace import Event, TraceSpan

_EXPECTED = "Zipkin v2 JSON: a list of spans {traceId, id, timestamp, duration, localEndpoint}"
_V1 = "these are Zipkin v1 spans (binaryAnnotations); export them as v2: GET /api/v2/trace/{traceId}"

# Beside `traceId` and `id`, a Zipkin span has some of the first and, unlike the spans of other formats, none of the
# second.
_OWN_KEYS = frozenset({"localEndpoint", "duration", "annotations", "binaryAnnotations", "kind", "tags"})
_FOREIGN_KEYS = frozenset({"attributes", "spanContext", "startTime", "start_time"})


class _Endpoint(msgspec.Struct, rename={"service": "serviceName"}):
    service: str | None = None
    ipv4: str | None = None
    ipv6: str | None = None


class _Annotation(msgspec.Struct):
    timestamp: records.Number
    value: str
    endpoint: object = None  # v1 alone has it


class _Span(
    msgspec.Struct,
    rename={
        "trace": "traceId",
        "parent": "parentId",
        "start": "timestamp",
        "local": "localEndpoint",
        "binary_annotations": "binaryAnnotations",
    },
):
    trace: str
    id: str
    parent: str | None = None
    kind: str | None = None
    name: str | None = None
    start: records.Number | None = None
    duration: records.Number | None = None
    shared: bool | None = None
    local: _Endpoint | None = None
    tags: dict[str, msgspec.Raw] | None = None
    annotations: list[_Annotation] | None = None
    binary_annotations: object = None  # as has this


_LIST = msgspec.json.Decoder(list[msgspec.Raw])
_SPAN = msgspec.json.Decoder(_Span)


def recognises(value: object) -> bool:
    """Whether a decoded JSON value is a list of Zipkin spans, of either version, or a list of such lists."""
    if not isinstance(value, list):
        return False
    return any(map(_is_span, value)) or any(isinstance(item, list) and any(map(_is_span, item)) for item in value)


def parse(raw: bytes, wanted: frozenset[str]) -> Iterator[Item]:
    """A note for each span that cannot be read, then the others, both halves of every shared span told apart."""
    raws = records.whole(_flat, raw, expected=_EXPECTED)
    items = list(records.each(raws, partial(_span, wanted=wanted), place="span"))
    yield from (item for item in items if isinstance(item, Note))
    yield from _halves_apart([item for item in items if isinstance(item, TraceSpan)])


CODEC = JsonCodec(name="zipkin", title="Zipkin v2 JSON", recognises=recognises, parse=parse)


def _is_span(value: object) -> bool:
    return (
        isinstance(value, dict)
        and {"traceId", "id"} <= value.keys()
        and not value.keys().isdisjoint(_OWN_KEYS)
        and value.keys().isdisjoint(_FOREIGN_KEYS)
    )


def _flat(raw: bytes) -> list[msgspec.Raw]:
    """The spans of a list of spans, or of a list of traces."""
    spans: list[msgspec.Raw] = []
    for item in _LIST.decode(raw):
        if bytes(item).startswith(b"["):
            spans += _LIST.decode(item)
        else:
            spans.append(item)
    return spans


def _span(raw: bytes, wanted: frozenset[str]) -> TraceSpan:
    span = _SPAN.decode(raw)
    annotations = span.annotations or ()
    if span.binary_annotations is not None or any(annotation.endpoint is not None for annotation in annotations):
        raise FormatError(_V1)
    # Zipkin's own model reads 0 as absent.
    if span.start is None or (start_ns := units.from_us(span.start)) == 0:
        raise records.Unreadable("it has no timestamp")
    local = span.local or _Endpoint()
    tags = span.tags or {}
    return TraceSpan(
        trace=records.required(span.trace, "trace id"),
        id=records.required(span.id, "span id"),
        parent=records.identifier(span.parent),
        name=span.name or "",
        start_ns=start_ns,
        end_ns=records.end_ns(start_ns, span.duration),
        service=local.service or None,
        # Only a server shares a span that somebody else began.
        kind=records.kind(span.kind or ("server" if span.shared else None)),
        clock=local.ipv4 or local.ipv6 or local.service or "",
        failed="error" in tags,
        attributes=keep(tags.items(), wanted),
        events=tuple(_event(annotation) for annotation in annotations),
    )


def _event(annotation: _Annotation) -> Event:
    # OpenTelemetry writes an event with attributes as `"name": {...}`; what follows the name may be content.
    value = annotation.value
    name = value[1:].partition('"')[0] if value.startswith('"') else value
    return Event(name=name, at_ns=units.from_us(annotation.timestamp))


def _halves_apart(spans: Sequence[TraceSpan]) -> Iterator[TraceSpan]:
    """The spans with the server's half of each shared one as a child of the client's, and what ran in it below it.

    A server span whose client's half is not here keeps its id and its parent.
    """
    called = {(span.trace, span.id) for span in spans if span.kind == "client"}
    halves = [span for span in spans if _is_half(span, called)]
    served = {(half.trace, half.id, half.service) for half in halves if half.service is not None}
    for span in spans:
        if _is_half(span, called):
            yield replace(span, id=_half_id(span.id), parent=span.id)
        elif span.parent is not None and (span.trace, span.parent, span.service) in served:
            yield replace(span, parent=_half_id(span.parent))
        else:
            yield span


def _is_half(span: TraceSpan, called: Container[tuple[str, str]]) -> bool:
    return span.kind == "server" and (span.trace, span.id) in called


def _half_id(shared_id: str) -> str:
    return f"{shared_id}.server"
