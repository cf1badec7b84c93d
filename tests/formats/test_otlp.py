"""OTLP: its two encodings mean the same, every shape in which it is written is read, and content is never kept."""

import json
from collections.abc import Callable, Iterator, Mapping
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span, Status, TracesData

from outlay.formats import otlp
from outlay.formats.codec import FormatError, Item, Shard
from outlay.formats.reading import read
from outlay.interaction import Note
from outlay.trace import Event, TraceSpan
from outlay.units import MAX_NS

DATA = Path(__file__).parents[1] / "data" / "traces-otlp"
FILES = sorted(path.name for path in DATA.glob("otlp*.json") if b'"resourceSpans"' in path.read_bytes())

WANTED = frozenset({"gen_ai.request.model", "gen_ai.usage.input_tokens", "ratio", "faas.coldstart", "service.version"})
SECRET = "what the person said"

TRACE, OTHER_TRACE = "5b8efff798038103d269b633813fc60c", "0" * 31 + "7"
SPAN, PARENT = "eee19b7ec3c1b174", "00f067aa0ba902b7"


def items_of(raw: bytes, shard: Shard | None = None) -> list[Item]:
    return list(read(BytesIO(raw), WANTED, shard).items)


def spans_of(raw: bytes) -> list[TraceSpan]:
    items = items_of(raw)
    assert [item for item in items if not isinstance(item, TraceSpan)] == []
    return [item for item in items if isinstance(item, TraceSpan)]


def document(*spans: object, resource: object = None, **group: object) -> dict[str, object]:
    return {
        "resourceSpans": [{"resource": resource, "scopeSpans": [{"scope": {"name": "lib"}, "spans": spans}], **group}]
    }


def wire(**fields: object) -> dict[str, object]:
    """A span of the least that one needs; a field given as `...` is left out."""
    span = {"traceId": TRACE, "spanId": SPAN, "name": "s", "startTimeUnixNano": "5", "endTimeUnixNano": "9", **fields}
    return {key: value for key, value in span.items() if value is not ...}


def one(**fields: object) -> TraceSpan:
    (span,) = spans_of(json.dumps(document(wire(**fields))).encode())
    return span


def dropped(raw: bytes) -> str:
    """The text of the only item, a note."""
    (note,) = items_of(raw)
    assert isinstance(note, Note)
    assert note.kind == "dropped-record"
    return note.text


def attribute(key: str, **value: object) -> dict[str, object]:
    return {"key": key, "value": value}


# From messages to OTLP JSON by the rules of the protocol: hex ids, text for 64-bit integers, nothing for what is unset.


def to_json(data: TracesData) -> bytes:
    return json.dumps({"resourceSpans": [_group(group) for group in data.resource_spans]}).encode()


def _group(group: ResourceSpans) -> dict[str, object]:
    scopes = [
        {"scope": {"name": scope.scope.name}, "spans": [_span(span) for span in scope.spans]}
        for scope in group.scope_spans
    ]
    return {"resource": {"attributes": _attributes(group.resource.attributes)}, "scopeSpans": scopes}


def _span(span: Span) -> dict[str, object]:
    fields: dict[str, object] = {
        "traceId": span.trace_id.hex(),
        "spanId": span.span_id.hex(),
        "parentSpanId": span.parent_span_id.hex(),
        "name": span.name,
        "kind": span.kind,
        "startTimeUnixNano": str(span.start_time_unix_nano),
        "endTimeUnixNano": str(span.end_time_unix_nano),
        "attributes": _attributes(span.attributes),
        "events": [
            {"name": event.name, "timeUnixNano": str(event.time_unix_nano), "attributes": _attributes(event.attributes)}
            for event in span.events
        ],
        "links": [{"traceId": link.trace_id.hex(), "spanId": link.span_id.hex()} for link in span.links],
        "status": {"code": span.status.code, "message": span.status.message},
    }
    return {key: value for key, value in fields.items() if value not in ("", 0, [])}


def _attributes(attributes: Any) -> list[dict[str, object]]:
    return [{"key": item.key, "value": _value(item.value)} for item in attributes]


_SCALARS: Mapping[str, Callable[[Any], dict[str, object]]] = {
    "string_value": lambda text: {"stringValue": text},
    "int_value": lambda number: {"intValue": str(number)},
    "double_value": lambda number: {"doubleValue": _NOT_FINITE.get(str(number), number)},
    "bool_value": lambda flag: {"boolValue": flag},
    "bytes_value": lambda _: {"bytesValue": "AAEC"},
    "array_value": lambda _: {"arrayValue": {"values": [{"stringValue": SECRET}]}},
}
_NOT_FINITE = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


def _value(value: AnyValue) -> dict[str, object]:
    field = value.WhichOneof("value")
    return {} if field is None else _SCALARS[field](getattr(value, field))


def message(*spans: Span, resource: Mapping[str, str] | None = None) -> TracesData:
    keys = [KeyValue(key=key, value=AnyValue(string_value=value)) for key, value in (resource or {}).items()]
    scope = ScopeSpans(spans=spans)
    scope.scope.name = "lib"
    return TracesData(resource_spans=[ResourceSpans(resource=Resource(attributes=keys), scope_spans=[scope])])


def proto(number: int = 1, *, trace: str = TRACE, **fields: object) -> Span:
    ids = {"trace_id": bytes.fromhex(trace), "span_id": number.to_bytes(8, "big")}
    return Span(**{**ids, "start_time_unix_nano": 5, "end_time_unix_nano": 9, **fields})  # type: ignore[arg-type]


# Equal data gives equal spans

instants = st.integers(0, MAX_NS)
texts = st.text(max_size=8)
some_ids = st.sampled_from([b"", b"\0" * 7 + b"\1", bytes.fromhex(SPAN), b"\xff" * 8])
any_values = (
    st.builds(AnyValue, string_value=texts)
    | st.builds(AnyValue, int_value=st.integers(-(2**63), 2**63 - 1))
    | st.builds(AnyValue, double_value=st.floats())
    | st.builds(AnyValue, bool_value=st.booleans())
    | st.builds(AnyValue, bytes_value=st.just(SECRET.encode()))
    | st.just(AnyValue(array_value={"values": [AnyValue(string_value=SECRET)]}))
    | st.just(AnyValue())
)
keys = st.sampled_from([*sorted(WANTED), "service.name", "host.name", "gen_ai.prompt", ""])
key_values = st.lists(st.builds(KeyValue, key=keys, value=any_values), max_size=4)
trace_ids = st.sampled_from([bytes.fromhex(TRACE), bytes.fromhex(OTHER_TRACE)])
messages = st.builds(
    Span,
    trace_id=trace_ids,
    span_id=some_ids,
    parent_span_id=some_ids,
    name=texts,
    kind=st.sampled_from(range(6)),
    start_time_unix_nano=instants,
    end_time_unix_nano=instants,
    attributes=key_values,
    events=st.lists(st.builds(Span.Event, name=texts, time_unix_nano=instants, attributes=key_values), max_size=2),
    links=st.lists(st.builds(Span.Link, trace_id=trace_ids | st.just(b""), span_id=some_ids), max_size=3),
    status=st.builds(Status, code=st.sampled_from(range(3)), message=st.just(SECRET)),
)
groups = st.builds(
    ResourceSpans,
    resource=st.builds(Resource, attributes=key_values),
    scope_spans=st.lists(st.builds(ScopeSpans, spans=st.lists(messages, max_size=3)), max_size=2),
)
data = st.builds(TracesData, resource_spans=st.lists(groups, min_size=1, max_size=3))


@settings(max_examples=100, deadline=None)
@given(data)
def test_json_and_protobuf_of_the_same_data_give_the_same_spans(traces: TracesData) -> None:
    from_json, from_protobuf = items_of(to_json(traces)), items_of(traces.SerializeToString())
    spans = [item for item in from_protobuf if isinstance(item, TraceSpan)]
    assert [item for item in from_json if isinstance(item, TraceSpan)] == spans
    assert len(from_json) == len(from_protobuf)
    # Only a span without an id or a start may be missing.
    scopes = [scope for group in traces.resource_spans for scope in group.scope_spans]
    readable = [span for scope in scopes for span in scope.spans if span.span_id and span.start_time_unix_nano]
    assert len(spans) == len(readable)
    assert SECRET not in repr(from_json + from_protobuf)
    for span in spans:
        assert span.attributes.keys() <= WANTED
        assert span.resource.keys() <= WANTED | {"service.name", "host.name"}


def from_json(file: str) -> TracesData:
    """A file of OTLP JSON as messages: the other way round, and as independent of the codec."""
    groups = []
    for group in json.loads((DATA / file).read_bytes())["resourceSpans"]:
        scopes = [
            ScopeSpans(scope={"name": scope.get("scope", {}).get("name", "")}, spans=map(_message, scope["spans"]))
            for scope in group["scopeSpans"]
        ]
        resource = Resource(attributes=_key_values(group.get("resource", {})))
        groups.append(ResourceSpans(resource=resource, scope_spans=scopes))
    return TracesData(resource_spans=groups)


def _message(span: dict[str, Any]) -> Span:
    return Span(
        trace_id=bytes.fromhex(span["traceId"]),
        span_id=bytes.fromhex(span["spanId"]),
        parent_span_id=bytes.fromhex(span.get("parentSpanId", "")),
        name=span["name"],
        kind=span["kind"],
        start_time_unix_nano=int(span["startTimeUnixNano"]),
        end_time_unix_nano=int(span["endTimeUnixNano"]),
        attributes=_key_values(span),
        events=[
            Span.Event(name=event["name"], time_unix_nano=int(event["timeUnixNano"]), attributes=_key_values(event))
            for event in span.get("events", ())
        ],
        status=Status(code=span.get("status", {}).get("code", 0)),
    )


def _key_values(holder: dict[str, Any]) -> Iterator[KeyValue]:
    for item in holder.get("attributes", ()):
        text = item["value"].get("stringValue")
        yield KeyValue(key=item["key"], value=AnyValue() if text is None else AnyValue(string_value=text))


# file, spans, spans with a parent, events
REAL = [
    ("otlp2jaeger-in-error.json", 1, 1, 0),
    ("otlp2jaeger-in.json", 2, 2, 0),
    ("otlp2jaeger-multi-in-combined.json", 4, 3, 0),
    ("otlp_proto_example_trace.json", 1, 1, 0),
]


@pytest.mark.parametrize(("file", "count", "children", "events"), REAL)
def test_real_files_read_alike_in_both_encodings(file: str, count: int, children: int, events: int) -> None:
    spans = spans_of((DATA / file).read_bytes())
    assert len(spans) == count
    assert sum(span.parent is not None for span in spans) == children
    assert sum(len(span.events) for span in spans) == events
    assert spans_of(from_json(file).SerializeToString()) == spans


def test_those_are_all_the_real_files() -> None:
    assert sorted(row[0] for row in REAL) == FILES


def test_the_protocol_s_own_example() -> None:
    (span,) = spans_of((DATA / "otlp_proto_example_trace.json").read_bytes())
    assert span == TraceSpan(
        trace="5b8efff798038103d269b633813fc60c",  # upper case in the file
        id="eee19b7ec3c1b174",
        parent="eee19b7ec3c1b173",
        name="I'm a server span",
        start_ns=1544712660000000000,
        end_ns=1544712661000000000,
        service="my.service",
        kind="server",
        clock="my.service",
        scope="my.library",
        resource={"service.name": "my.service"},
    )


# Spellings of one field


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        *[(0, "internal"), (1, "internal"), (2, "server"), (3, "client"), (4, "producer"), (5, "consumer")],
        *[(6, "internal"), (-1, "internal"), (None, "internal"), (..., "internal")],
        *[("SPAN_KIND_SERVER", "server"), ("SPAN_KIND_CONSUMER", "consumer"), ("SPAN_KIND_UNSPECIFIED", "internal")],
        *[("server", "internal"), ("", "internal")],
    ],
)
def test_kinds_are_numbers_or_names(kind: object, expected: str) -> None:
    assert one(kind=kind).kind == expected


@pytest.mark.parametrize(
    ("start", "expected_ns"),
    [
        *[("5", 5), (5, 5), (5.0, 5), (1.5e18, 1_500_000_000_000_000_000)],
        *[("1544712660000000001", 1544712660000000001), (1544712660000000001, 1544712660000000001)],
        *[(2**63 - 1, MAX_NS), (str(2**63 - 1), MAX_NS)],
    ],
)
def test_times_are_text_or_numbers(start: object, expected_ns: int) -> None:
    assert one(startTimeUnixNano=start, endTimeUnixNano=start).start_ns == expected_ns


@pytest.mark.parametrize("end", [0, "0", None, ..., ""])
def test_an_unset_end_is_unknown(end: object) -> None:
    assert one(endTimeUnixNano=end).end_ns is None


@pytest.mark.parametrize("kind", [str.upper, str.lower])
def test_ids_are_hex_whatever_their_case(kind: Callable[[str], str]) -> None:
    span = one(traceId=kind(TRACE), spanId=kind(SPAN), parentSpanId=kind(PARENT))
    assert (span.trace, span.id, span.parent) == (TRACE, SPAN, PARENT)  # leading zeros kept


@pytest.mark.parametrize("parent", ["", "0000000000000000", None])
def test_a_parent_of_zeros_is_none(parent: str | None) -> None:
    assert one(parentSpanId=parent).parent is None


@pytest.mark.parametrize("code", [2, "STATUS_CODE_ERROR"])
def test_an_error_status_is_a_failure(code: object) -> None:
    assert one(status={"code": code}).failed
    assert not one(status={"code": 1}).failed
    assert not one(status={}).failed
    assert not one(status=None).failed


NULLABLE = (
    *("parentSpanId", "name", "kind", "endTimeUnixNano", "attributes", "events", "links", "status"),
    *("traceState", "flags", "droppedAttributesCount"),
)


@pytest.mark.parametrize("field", NULLABLE)
def test_null_means_unset(field: str) -> None:
    assert one(**{field: None}) == one(**{field: ...})


@pytest.mark.parametrize(
    "value",
    [
        {"resourceSpans": None},
        {"resourceSpans": [{}]},
        {"resourceSpans": [{"resource": None, "scopeSpans": None, "instrumentationLibrarySpans": None}]},
        {"resourceSpans": [{"resource": {"attributes": None}, "scopeSpans": [{"scope": None, "spans": None}]}]},
    ],
)
def test_a_document_without_spans_is_an_empty_one(value: object) -> None:
    assert items_of(json.dumps(value).encode()) == []


def test_the_old_name_of_scopes_is_read_too() -> None:
    old = {
        "resourceSpans": [
            {"instrumentationLibrarySpans": [{"instrumentationLibrary": {"name": "x"}, "spans": [wire()]}]}
        ]
    }
    (span,) = spans_of(json.dumps(old).encode())
    assert (span.id, span.scope) == (SPAN, "")


# Links


def link(trace: str = TRACE, span: str = PARENT) -> dict[str, object]:
    return {"traceId": trace, "spanId": span}


@pytest.mark.parametrize(
    ("parent", "links", "expected"),
    [
        # A producer may stand in another trace: only a link within the trace names whom this one follows.
        ("", [link()], (PARENT, True)),
        ("", [link(trace=TRACE.upper())], (PARENT, True)),
        ("", [link(trace=OTHER_TRACE), link()], (PARENT, True)),
        ("", [link(trace=OTHER_TRACE)], (None, False)),
        ("", [link(), link(span="01")], (PARENT, True)),
        # A parent wins over any link.
        ("02", [link()], ("02", False)),
        ("", [], (None, False)),
        ("", [{}], (None, False)),
        ("", [link(span="")], (None, False)),
        ("", [{"traceId": TRACE}], (None, False)),
    ],
)
def test_a_link_adopts_a_parent_only_within_the_trace(
    parent: str, links: list[object], expected: tuple[str | None, bool]
) -> None:
    span = one(parentSpanId=parent, links=links)
    assert (span.parent, span.follows) == expected


# What is kept


def test_of_attributes_only_wanted_scalars_are_kept() -> None:
    span = one(
        attributes=[
            attribute("gen_ai.request.model", stringValue="small"),
            attribute("gen_ai.usage.input_tokens", intValue="-12"),
            attribute("ratio", doubleValue=0.5),
            attribute("faas.coldstart", boolValue=False),
            attribute("gen_ai.prompt", stringValue=SECRET),
            attribute("service.version", bytesValue="AAEC"),
        ]
    )
    assert span.attributes == {
        "gen_ai.request.model": "small",
        "gen_ai.usage.input_tokens": -12,
        "ratio": 0.5,
        "faas.coldstart": False,
    }


@pytest.mark.parametrize(
    "value",
    [
        *[{}, None, {"bytesValue": "AAEC"}, {"arrayValue": {"values": [{"stringValue": "x"}]}}],
        *[{"kvlistValue": {"values": []}}, {"stringValue": None}],
        *[{"doubleValue": "NaN"}, {"doubleValue": "Infinity"}, {"doubleValue": "-Infinity"}],
    ],
)
def test_a_value_that_is_no_finite_scalar_is_left_out(value: object) -> None:
    assert one(attributes=[{"key": "ratio", "value": value}]).attributes == {}


@pytest.mark.parametrize("value", [{"intValue": 1.5}, {"stringValue": 7}, "bare", 7, [SECRET]])
def test_an_odd_value_costs_the_span_only_where_it_is_wanted(value: object) -> None:
    assert one(attributes=[{"key": "nobody's", "value": value}]).attributes == {}
    text = dropped(json.dumps(document(wire(attributes=[{"key": "ratio", "value": value}]))).encode())
    assert text.startswith("scope 'lib', span 0: Expected ")


def test_the_last_of_a_repeated_key_counts_in_both_encodings() -> None:
    twice = [attribute("ratio", doubleValue=0.25), attribute("ratio", doubleValue=0.75)]
    span = proto(attributes=[KeyValue(key="ratio", value=AnyValue(double_value=value)) for value in (0.25, 0.75)])
    (from_protobuf,) = spans_of(message(span).SerializeToString())
    assert one(attributes=twice).attributes == from_protobuf.attributes == {"ratio": 0.75}


def test_events_are_kept_with_wanted_attributes_only() -> None:
    event = {
        "name": "first_token",
        "timeUnixNano": "7",
        "attributes": [attribute("ratio", doubleValue=1), attribute("gen_ai.completion", stringValue=SECRET)],
    }
    assert one(events=[event, {}]).events == (
        Event(name="first_token", at_ns=7, attributes={"ratio": 1.0}),
        Event(name="", at_ns=0),
    )


@pytest.mark.parametrize(
    ("resource", "service", "clock"),
    [
        ({"service.name": "api", "host.id": "i-1", "host.name": "h"}, "api", "i-1"),
        ({"service.name": "api", "host.name": "h"}, "api", "h"),
        ({"service.name": "api", "service.instance.id": "3"}, "api", "api/3"),
        ({"service.name": "api"}, "api", "api"),
        ({"service.instance.id": "3"}, None, "3"),
        ({}, None, ""),
    ],
)
def test_a_clock_is_the_host_else_the_instance(resource: dict[str, str], service: str | None, clock: str) -> None:
    attributes = [attribute(key, stringValue=value) for key, value in resource.items()]
    (span,) = spans_of(json.dumps(document(wire(), resource={"attributes": attributes})).encode())
    assert (span.service, span.clock) == (service, clock)
    assert spans_of(message(proto(), resource=resource).SerializeToString())[0].clock == clock


def test_all_spans_of_a_process_share_one_resource() -> None:
    """The rules remember what they decided for a resource by its identity."""
    first, second = spans_of(json.dumps(document(wire(), wire(spanId="02"))).encode())
    assert first.resource is second.resource


# Spans that cannot be read


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"traceId": ...}, "an id is empty"),
        ({"spanId": ""}, "an id is empty"),
        ({"spanId": None}, "an id is empty"),
        ({"traceId": SECRET}, "cannot be read"),
        ({"startTimeUnixNano": ...}, "it has no start"),
        ({"startTimeUnixNano": "0"}, "it has no start"),
        ({"startTimeUnixNano": SECRET}, "cannot be read"),
        ({"startTimeUnixNano": "-5"}, "63 bits"),
        ({"startTimeUnixNano": str(2**63)}, "63 bits"),
        ({"endTimeUnixNano": 2**63}, "63 bits"),
        ({"endTimeUnixNano": "9" * 5000}, "cannot be read"),
        ({"endTimeUnixNano": True}, "Expected `int | float | str | null`"),
        ({"events": [{"timeUnixNano": "1e9"}]}, "cannot be read"),
        ({"events": [{"timeUnixNano": 2**63}]}, "63 bits"),
        ({"events": {}}, "Expected `array | null`"),
        ({"attributes": [attribute("gen_ai.usage.input_tokens", intValue=SECRET)]}, "cannot be read"),
        ({"name": [SECRET]}, "Expected `str | null`"),
    ],
)
def test_a_bad_span_is_a_note_that_quotes_nothing_and_the_rest_survives(fields: dict[str, object], said: str) -> None:
    bad, good = wire(**fields), wire(spanId="02")
    first, second = items_of(json.dumps(document(bad, good)).encode())
    assert isinstance(first, Note)
    assert (first.kind, first.text.partition(": ")[0]) == ("dropped-record", "scope 'lib', span 0")
    assert said in first.text
    assert SECRET not in first.text
    assert isinstance(second, TraceSpan)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"trace_id": b""}, "an id is empty"),
        ({"span_id": b""}, "an id is empty"),
        ({"start_time_unix_nano": 0}, "it has no start"),
        ({"start_time_unix_nano": 2**63}, "63 bits"),
        ({"end_time_unix_nano": 2**64 - 1}, "63 bits"),
        ({"events": [Span.Event(time_unix_nano=2**63)]}, "63 bits"),
    ],
)
def test_a_bad_span_in_protobuf_is_a_note_in_one_shard(fields: dict[str, object], said: str) -> None:
    raw = message(proto(1, **fields), proto(2)).SerializeToString()
    note, span = items_of(raw)
    assert isinstance(note, Note)
    assert said in note.text
    assert isinstance(span, TraceSpan)
    sharded = [item for index in range(3) for item in items_of(raw, Shard(index, 3))]
    assert sorted(map(repr, sharded)) == sorted(map(repr, [note, span]))


def test_a_bad_group_is_a_note_and_the_rest_survives() -> None:
    value = {"resourceSpans": [{"scopeSpans": 7}, 8, *document(wire())["resourceSpans"]]}  # type: ignore[misc]
    first, second, third = items_of(json.dumps(value).encode())
    assert [isinstance(item, Note) and item.text.partition(":")[0] for item in (first, second)] == [
        "resourceSpans 0",
        "resourceSpans 1",
    ]
    assert isinstance(third, TraceSpan)


# Files


def test_one_object_a_line() -> None:
    lines = [json.dumps(document(wire(spanId=f"{number:02x}"))) for number in range(1, 5)]
    lines[2:2] = ['{"resourceLogs":[]}', "{", ""]
    items = items_of("\n".join(lines).encode())
    assert [
        item.id if isinstance(item, TraceSpan) else item.text[:6] for item in items if not isinstance(item, str)
    ] == [  # type: ignore[union-attr]
        *["01", "02", "line 3", "line 4", "03", "04"]
    ]


def framed(*messages: bytes) -> bytes:
    return b"".join(len(raw).to_bytes(4, "big") + raw for raw in messages)


MESSAGES = [message(proto(number), resource={"host.name": "h" * number}).SerializeToString() for number in range(1, 6)]


@pytest.mark.parametrize("join", [b"".join, lambda raws: framed(*raws)], ids=["bare", "framed"])
def test_several_messages_in_one_file(join: Callable[[list[bytes]], bytes]) -> None:
    assert [span.id for span in spans_of(join(MESSAGES))] == [f"{number:016x}" for number in range(1, 6)]


def test_a_frame_may_hold_many_groups_and_none() -> None:
    whole = b"".join(MESSAGES)
    assert [span.id[-1] for span in spans_of(framed(whole, MESSAGES[0]))] == list("123451")


@pytest.mark.parametrize("bracket", [b"[", b"{"])
def test_a_length_that_spells_a_bracket_does_not_make_it_json(bracket: bytes) -> None:
    """A message begins with a line feed and its length: of 91 bytes it begins like a list, of 123 like an object."""
    names = ("x" * length for length in range(128))
    raws = [message(proto(name=name)).SerializeToString() for name in names]
    (raw,) = (raw for raw in raws if raw.startswith(b"\n" + bracket))
    assert len(raw) == ord(bracket) + 2
    assert [span.id for span in spans_of(raw)] == [f"{1:016x}"]


def test_protobuf_cut_at_every_byte() -> None:
    for raw in (b"".join(MESSAGES[:2]), framed(*MESSAGES[:2])):
        whole = spans_of(raw)
        first = raw.index(MESSAGES[0]) + len(MESSAGES[0])
        for end in range(1, first):
            with pytest.raises(FormatError):
                items_of(raw[:end])
        for end in range(first, len(raw)):
            span, *rest = items_of(raw[:end])
            assert span == whole[0]
            texts = [note.text for note in rest if isinstance(note, Note)]
            assert len(texts) == len(rest) == (end not in (first, len(raw)))
            assert all("after 1 resource groups the file breaks off" in text for text in texts)


def test_json_cut_at_every_byte() -> None:
    raw = json.dumps(document(wire(attributes=[attribute("ratio", doubleValue=0.5)]))).encode()
    for end in range(len(raw)):
        with pytest.raises(FormatError):
            items_of(raw[:end])


def test_a_file_that_breaks_off_says_so_once_for_all_shards() -> None:
    raw = b"".join(MESSAGES)[:-3]
    sharded = [item for index in range(4) for item in items_of(raw, Shard(index, 4))]
    assert sorted(map(repr, sharded)) == sorted(map(repr, items_of(raw)))


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b"\x0a\xff\xff\xff\xff\x0f", "beyond 268435456"),
        (b"\x0a\x80\x80\x80\x80\x80\x01", "more than five bytes"),
        (b"\x0a\x05hello", "not OTLP protobuf"),
        (b"\n\n\nhello, world", "not OTLP protobuf"),
    ],
)
def test_what_only_begins_like_protobuf_is_refused(raw: bytes, said: str) -> None:
    with pytest.raises(FormatError, match=said):
        items_of(raw)


# Sharing the work


def test_both_encodings_give_a_trace_to_the_same_shard() -> None:
    """Spans of one trace may stand in several files of either encoding, and must meet in one worker."""
    for trace in (TRACE, OTHER_TRACE, *(f"{number:032x}" for number in range(1, 40))):
        traces = message(proto(trace=trace))
        for of in (2, 3, 5):
            json_in = [bool(items_of(to_json(traces), Shard(index, of))) for index in range(of)]
            protobuf_in = [bool(items_of(traces.SerializeToString(), Shard(index, of))) for index in range(of)]
            assert json_in == protobuf_in
            assert sum(json_in) == 1


@settings(max_examples=60, deadline=None)
@given(data, st.integers(1, 5))
def test_shards_are_disjoint_and_their_union_is_the_whole(traces: TracesData, of: int) -> None:
    lines = b"\n".join(to_json(TracesData(resource_spans=[group])) for group in traces.resource_spans)
    for raw in (traces.SerializeToString(), to_json(traces), lines):
        parts = [repr(item) for index in range(of) for item in items_of(raw, Shard(index, of))]
        assert sorted(parts) == sorted(map(repr, items_of(raw)))


# Any bytes


def survives(raw: bytes) -> None:
    try:
        items = items_of(raw)
    except FormatError:
        return
    assert all(isinstance(item, Note | TraceSpan) for item in items)


@settings(max_examples=100, deadline=None)
@given(data, st.data())
def test_bytes_overwritten_in_either_encoding(traces: TracesData, draws: st.DataObject) -> None:
    for whole in (traces.SerializeToString(), to_json(traces)):
        raw = bytearray(whole)
        for at in draws.draw(st.lists(st.integers(0, len(raw) - 1), min_size=1, max_size=4)):
            raw[at] = draws.draw(st.integers(0, 255))
        survives(bytes(raw))


FIELDS = [*sorted(wire()), "attributes", "events", "links", "status", "kind", "key", "value", "intValue"]
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(FIELDS),
            inner,
            max_size=6,
        )
    ),
    max_leaves=20,
)


@settings(max_examples=100, deadline=None)
@given(values)
def test_any_json_below_a_document(value: object) -> None:
    for raw in (document(value), {"resourceSpans": [{"scopeSpans": value}]}, {"resourceSpans": value}):
        survives(json.dumps(raw).encode())
        assert otlp.recognises(raw)


@pytest.mark.parametrize(
    "raw",
    [
        b'{"resourceSpans":' + b"[" * 200_000,
        b'{"resourceSpans":[' + b'{"scopeSpans":[' * 100_000,
        b'{"resourceSpans":[{"resource":{"attributes":[{"key":"service.name","value":'
        + b'{"arrayValue":{"values":[' * 50_000,
    ],
    ids=["lists", "groups", "values"],
)
def test_depth_is_a_format_error(raw: bytes) -> None:
    with pytest.raises(FormatError):
        items_of(raw)


def test_a_deep_value_that_nobody_wants_is_stepped_over() -> None:
    deep = '{"arrayValue":{"values":[' * 20 + "]}}" * 20
    raw = json.dumps(document(wire(attributes=["here"]))).replace('"here"', '{"key":"prompt","value":' + deep + "}")
    assert [span.id for span in spans_of(raw.encode())] == [SPAN]
