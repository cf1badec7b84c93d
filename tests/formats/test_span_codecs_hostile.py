"""What every codec of spans promises for any bytes at all: spans, notes or a FormatError, and no word of content."""

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlay.formats import jaeger, langfuse, sdk_spans, zipkin
from outlay.formats.codec import FormatError, Item, JsonCodec
from outlay.interaction import NOTE_KINDS, Kind, Note
from outlay.trace import TraceSpan
from outlay.units import MAX_NS

DATA = Path(__file__).parents[1] / "data"
CODECS = (jaeger.CODEC, zipkin.CODEC, langfuse.CODEC, sdk_spans.CODEC)
WANTED = frozenset({"gen_ai.request.model", "error", "service.version", "a"})
SECRET = "what the person said"


def load(name: str) -> Any:
    return json.loads((DATA / name).read_bytes())


SMALL = {
    "jaeger": load("traces-jaeger/crisp/err_pattern1/err1.json"),
    "zipkin": load("traces-zipkin/skew.json"),
    "langfuse": [{"id": "o", "traceId": "t", "parentObservationId": "p", "startTime": "2026-02-25T10:00:00.1Z"}],
    "sdk-spans": [load("traces-otlp/vercel_ai_sdk_spans.json")[8]],
}
LARGER = {
    "jaeger": load("traces-jaeger/testTrace.json"),
    "zipkin": load("traces-zipkin/yelp.json"),
    "langfuse": {
        "trace": {"id": "t"},
        "observations": load("traces-langfuse/google-adk-2025-08-28.json")["observations"],
    },
    "sdk-spans": load("traces-otlp/genai_parallel_requests.json"),
}

by_codec = pytest.mark.parametrize("codec", CODECS, ids=lambda codec: codec.name)
scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
# The names that the codecs look for, so that random values get past the first look.
# fmt: off
names = st.sampled_from(
    [
        "data", "spans", "observations", "trace", "traceID", "traceId", "trace_id", "spanID", "spanId", "id",
        "context", "spanContext", "startTime", "timestamp", "duration", "endTime", "processes", "tags", "logs",
        "references", "localEndpoint", "annotations", "shared", "kind", "name", "attributes", "resource", "events",
        "status", "time", "key", "value", "fields", "serviceName", "parentId", "usageDetails", "code", "start_time",
        "end_time",
    ]
)
# fmt: on
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=6), max_leaves=25
)
odd: st.SearchStrategy[object] = st.sampled_from(
    [None, True, -1, 0, 10**30, 1e300, 0.5, "", "0x", "1e900000", "9" * 30, [], {}, [[]], [0, 0], SECRET]
)


def check(codec: JsonCodec, raw: bytes) -> list[Item]:
    """Everything that holds for whatever a codec yields; an empty list where it refused the whole."""
    refusal, items = "", []
    try:
        items = list(codec.parse(raw, WANTED))
    except FormatError as error:
        refusal = str(error)
    assert SECRET not in refusal
    for item in items:
        if isinstance(item, Note):
            assert item.kind in NOTE_KINDS
            assert SECRET not in item.text
        else:
            check_span(item)
    return items


def check_span(span: object) -> None:
    assert isinstance(span, TraceSpan)
    assert all(
        name and name == name.lower() for name in (span.trace, span.id, "-" if span.parent is None else span.parent)
    )
    assert all(-MAX_NS <= at <= MAX_NS for at in (span.start_ns, span.end_ns or 0, *(e.at_ns for e in span.events)))
    assert span.kind in get_args(Kind)
    for kept in (span.attributes, span.resource, *(event.attributes for event in span.events)):
        assert kept.keys() <= WANTED
        assert all(isinstance(value, str | int | float) for value in kept.values())


def paths(value: Any, here: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """The way to every node below the top."""
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in children:
        yield (*here, key)
        yield from paths(child, (*here, key))


def put(document: Any, path: tuple[str | int, ...], value: object) -> Any:
    """A copy of the document with another value at the path; the document itself where there is no such path now."""
    changed = copy.deepcopy(document)
    node = changed
    try:
        for step in path[:-1]:
            node = node[step]
        node[path[-1]] = value
    except (LookupError, TypeError):
        return document
    return changed


@by_codec
def test_each_small_document_is_read_whole(codec: JsonCodec) -> None:
    """Otherwise the tests below would cut and bend what nobody reads."""
    items = check(codec, json.dumps(SMALL[codec.name]).encode())
    assert items
    assert not [item for item in items if isinstance(item, Note)]


@by_codec
def test_cut_at_every_byte(codec: JsonCodec) -> None:
    raw = json.dumps(SMALL[codec.name], ensure_ascii=False).encode()
    for end in range(len(raw)):
        with pytest.raises(FormatError):
            list(codec.parse(raw[:end], WANTED))


@by_codec
def test_any_node_may_be_anything(codec: JsonCodec) -> None:
    for path in paths(SMALL[codec.name]):
        for value in (None, 7, -1.5, True, SECRET, [SECRET], {"k": SECRET}):
            check(codec, json.dumps(put(SMALL[codec.name], path, value)).encode())


@by_codec
@given(data=st.data())
def test_several_nodes_at_once(codec: JsonCodec, data: st.DataObject) -> None:
    document = LARGER[codec.name]
    ways = list(paths(document))
    for path in data.draw(st.lists(st.sampled_from(ways), min_size=1, max_size=6)):
        document = put(document, path, data.draw(odd))
    check(codec, json.dumps(document).encode())
    codec.recognises(document)


@by_codec
@given(data=st.data())
def test_bytes_overwritten_in_a_real_file(codec: JsonCodec, data: st.DataObject) -> None:
    raw = bytearray(json.dumps(LARGER[codec.name], ensure_ascii=False).encode())
    for at in data.draw(st.lists(st.integers(0, len(raw) - 1), min_size=1, max_size=5)):
        raw[at] = data.draw(st.integers(0, 255))
    check(codec, bytes(raw))


@by_codec
@given(value=values)
def test_any_value(codec: JsonCodec, value: object) -> None:
    check(codec, json.dumps(value).encode())  # NaN and Infinity among it, which are no JSON
    assert codec.recognises(value) in (True, False)


@by_codec
@given(raw=st.binary(max_size=80))
def test_any_bytes(codec: JsonCodec, raw: bytes) -> None:
    check(codec, raw)


@by_codec
@pytest.mark.parametrize(
    "raw",
    [
        b"[" * 200_000,
        b'{"spans":' * 200_000,
        b'{"data":' + b"[" * 200_000 + b"]" * 200_000 + b"}",
        b'[{"traceId":"t","id":"i","startTime":"' + b"9" * 1_000_000 + b'"}]',
        b'[{"traceId":"t","id":"i","timestamp":' + b"9" * 1_000_000 + b"}]",
        b'[{"traceId":"t","id":"i","timestamp":1e308,"duration":1e308}]',
        b'[{"traceId":"\\ud800","id":"i"}]',
        b'[{"traceId":"\xff","id":"i"}]',
    ],
    ids=["lists", "objects", "data", "digits", "number", "floats", "surrogate", "utf-8"],
)
def test_bombs(codec: JsonCodec, raw: bytes) -> None:
    assert not [item for item in check(codec, raw) if isinstance(item, TraceSpan)]


def nested(depth: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(depth):
        value = {"context": value, "spans": [value], "data": [value], "observations": [value]}
    return value


@by_codec
def test_recognising_looks_no_deeper_than_it_must(codec: JsonCodec) -> None:
    assert not codec.recognises(nested(100_000))


@pytest.mark.parametrize("path", sorted(DATA.glob("traces-*/**/*.json")), ids=lambda path: path.stem)
def test_no_two_codecs_recognise_the_same_file(path: Path) -> None:
    document = json.loads(path.read_bytes())
    owners = [codec.name for codec in CODECS if codec.recognises(document)]
    assert owners == ([] if isinstance(document, dict) and "resourceSpans" in document else owners[:1])
    assert owners or "resourceSpans" in document
