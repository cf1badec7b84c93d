import json
from pathlib import Path
from typing import Any

import pytest

from outlay.formats import sdk_spans
from outlay.formats.codec import FormatError
from outlay.interaction import Note
from outlay.trace import Event, TraceSpan

FOLDER = Path(__file__).parents[1] / "data" / "traces-otlp"
VERCEL = FOLDER / "vercel_ai_sdk_spans.json"
FLAT = sorted(FOLDER.glob("genai_*.json"))
NOTHING: frozenset[str] = frozenset()
START_NS = 1_772_013_600_000_000_000  # 2026-02-25T10:00:00Z
SECONDS = START_NS // 10**9


def read(raw: bytes, wanted: frozenset[str] = NOTHING) -> list[TraceSpan]:
    items = list(sdk_spans.parse(raw, wanted))
    assert not [item for item in items if isinstance(item, Note)]
    return [item for item in items if isinstance(item, TraceSpan)]


def js(**changes: Any) -> dict[str, Any]:
    """A span as JavaScript holds it, 2.5 s long."""
    times = {"startTime": [SECONDS, 0], "endTime": [SECONDS + 2, 500_000_000]}
    return {"name": "chat", "spanContext": {"traceId": "0T", "spanId": "0s"}, "attributes": {}} | times | changes


def one(wanted: frozenset[str] = NOTHING, **changes: Any) -> TraceSpan:
    return read(json.dumps([js(**changes)]).encode(), wanted)[0]


PYTHON_CONSOLE = {
    "name": "llm_request",
    "context": {
        "trace_id": "0x0bbd2f2ee1a1d3e1f0a2b3c4d5e6f708",
        "span_id": "0x00AB000000000001",
        "trace_state": "[]",
    },
    "kind": "SpanKind.SERVER",
    "parent_id": "0x00ab000000000002",
    "start_time": "2026-02-25T10:00:00.000001Z",
    "end_time": "2026-02-25T10:00:01.000000Z",
    "status": {"status_code": "ERROR", "description": "busy"},
    "attributes": {"gen_ai.request.model": "m", "gen_ai.prompt": "secret"},
    "events": [{"name": "first", "timestamp": "2026-02-25T10:00:00.500000Z", "attributes": {"n": 1}}],
    "links": [],
    "resource": {"attributes": {"service.name": "engine", "host.name": "gpu-1"}, "schema_url": ""},
}

JS_CONSOLE = {
    "resource": {"attributes": {"service.name": "web"}},
    "instrumentationScope": {"name": "http", "version": "1"},
    "traceId": "0bbd2f2ee1a1d3e1f0a2b3c4d5e6f708",
    "parentSpanContext": {"traceId": "0bbd2f2ee1a1d3e1f0a2b3c4d5e6f708", "spanId": "00ab000000000002"},
    "name": "GET",
    "id": "00ab000000000003",
    "kind": 2,
    "timestamp": 1_772_013_600_000_000,
    "duration": 1_500.25,
    "attributes": {},
    "status": {"code": 0},
    "events": [],
    "links": [],
}


def test_every_span_of_a_javascript_file() -> None:
    document = json.loads(VERCEL.read_bytes())
    assert sdk_spans.recognises(document)
    written = [
        (
            s["spanContext"]["traceId"],
            s["spanContext"]["spanId"],
            s["name"],
            *map(nanoseconds, (s["startTime"], s["endTime"])),
        )
        for s in document
    ]
    spans = read(VERCEL.read_bytes())
    assert [(s.trace, s.id, s.name, s.start_ns, s.end_ns) for s in spans] == written
    assert len(spans) == 10
    assert {(s.kind, s.failed, s.service, s.clock, s.parent) for s in spans} == {("internal", False, None, "", None)}


def nanoseconds(pair: list[int]) -> int:
    return int(f"{pair[0]}{pair[1]:09d}")


def test_the_first_chunk_of_a_streamed_answer() -> None:
    [streamed] = [span for span in read(VERCEL.read_bytes()) if span.events]
    first, last = streamed.events
    assert (streamed.name, first.name, last.name) == (
        "ai.streamText.doStream",
        "ai.stream.firstChunk",
        "ai.stream.finish",
    )
    assert first.at_ns - streamed.start_ns == 427_056_459  # 2001.025 056 459 - 2000.598
    assert streamed.end_ns is not None
    assert streamed.end_ns - streamed.start_ns == 5_386_307_375  # 2005.984 307 375 - 2000.598


@pytest.mark.parametrize("path", FLAT, ids=lambda path: path.stem)
def test_every_span_of_every_flat_file(path: Path) -> None:
    document = json.loads(path.read_bytes())
    assert sdk_spans.recognises(document)
    spans = read(path.read_bytes(), frozenset({"gen_ai.request.model"}))
    assert len(spans) == document["span_count"]
    for span, written in zip(spans, document["spans"], strict=True):
        assert (span.trace, span.id, span.parent) == (
            written["trace_id"],
            written["span_id"],
            written["parent_span_id"],
        )
        assert span.service == span.clock == written["resource_attributes"]["service.name"]
        assert span.attributes == {"gen_ai.request.model": written["attributes"]["gen_ai.request.model"]}
        assert not span.failed  # code 1 is OK


def test_flat_times() -> None:
    spans = read((FOLDER / "genai_fan_in_dependencies.json").read_bytes())
    began = [(s.start_ns - START_NS, s.end_ns and s.end_ns - s.start_ns) for s in spans]
    # 10:00:00.0 +2 s, :02.5 +2 s, :03.0 +2 s, :06.0 +3 s
    assert began == [
        (0, 2_000_000_000),
        (2_500_000_000, 2_000_000_000),
        (3_000_000_000, 2_000_000_000),
        (6_000_000_000, 3_000_000_000),
    ]


def test_the_python_console() -> None:
    assert sdk_spans.recognises(PYTHON_CONSOLE)
    wanted = frozenset({"gen_ai.request.model", "host.name", "n"})
    assert read(json.dumps(PYTHON_CONSOLE).encode(), wanted) == [
        TraceSpan(
            trace="0bbd2f2ee1a1d3e1f0a2b3c4d5e6f708",
            id="00ab000000000001",
            parent="00ab000000000002",
            name="llm_request",
            start_ns=START_NS + 1_000,
            end_ns=START_NS + 1_000_000_000,
            service="engine",
            kind="server",
            clock="gpu-1",
            failed=True,
            attributes={"gen_ai.request.model": "m"},
            resource={"host.name": "gpu-1"},
            events=(Event(name="first", at_ns=START_NS + 500_000_000, attributes={"n": 1}),),
        )
    ]


def test_the_javascript_console() -> None:
    assert sdk_spans.recognises([JS_CONSOLE])
    assert read(json.dumps([JS_CONSOLE]).encode()) == [
        TraceSpan(
            trace="0bbd2f2ee1a1d3e1f0a2b3c4d5e6f708",
            id="00ab000000000003",
            parent="00ab000000000002",
            name="GET",
            start_ns=START_NS,
            end_ns=START_NS + 1_500_250,  # microseconds
            service="web",
            kind="client",
            clock="web",
            scope="http",
        )
    ]


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (0, "internal"),  # OTLP would call this unspecified, and 1 internal
        (1, "server"),
        (2, "client"),
        (3, "producer"),
        (4, "consumer"),
        (5, "internal"),
        (-1, "internal"),
        ("SPAN_KIND_CLIENT", "client"),
        ("SpanKind.SERVER", "server"),
        ("Producer", "producer"),
        (None, "internal"),
    ],
)
def test_kinds_count_from_zero(kind: int | str | None, expected: str) -> None:
    assert one(kind=kind).kind == expected


@pytest.mark.parametrize(
    "change",
    [
        {"parentSpanId": "00AB"},
        {"parentSpanContext": {"traceId": "0t", "spanId": "00ab"}},
        {"parent_id": "0x00ab"},
        {"parent_span_id": "00ab"},
        {"parentId": "00ab"},
    ],
)
def test_every_name_of_the_parent(change: dict[str, Any]) -> None:
    assert one(**change).parent == "00ab"


@pytest.mark.parametrize("change", [{}, {"parentSpanId": ""}, {"parent_id": None}, {"parentSpanId": "0" * 16}])
def test_a_root_has_no_parent(change: dict[str, Any]) -> None:
    assert one(**change).parent is None


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ({"code": 0}, False),
        ({"code": 1}, False),
        ({"code": 2}, True),
        ({"code": "ERROR"}, True),
        ({"code": "STATUS_CODE_ERROR", "message": "x"}, True),
        ({"status_code": "StatusCode.ERROR"}, True),
        ({"status_code": "UNSET", "description": "ERROR"}, False),
        ("ERROR", True),
        (2, True),
        ({}, False),
        (None, False),
    ],
)
def test_failed(status: object, expected: bool) -> None:
    assert one(status=status).failed is expected


@pytest.mark.parametrize(
    ("change", "service", "clock"),
    [
        ({"resource": {"attributes": {"service.name": "a", "host.name": "n", "host.id": "h"}}}, "a", "h"),
        ({"resource": {"attributes": {"service.name": "a", "host.name": "n"}}}, "a", "n"),
        ({"resource": {"_rawAttributes": [["service.name", "a"], ["host.id", {}]]}}, "a", "a"),  # {} was a promise
        ({"resource": {"service.name": "a"}}, "a", "a"),  # as older Python SDKs print it
        ({"resource_attributes": {"service.name": "a"}}, "a", "a"),
        ({"resource": {"attributes": {}, "_rawAttributes": []}}, None, ""),
        ({"resource": None}, None, ""),
    ],
)
def test_every_shape_of_the_resource(change: dict[str, Any], service: str | None, clock: str) -> None:
    span = one(frozenset({"service.name"}), **change)
    assert (span.service, span.clock) == (service, clock)
    assert span.resource == ({} if service is None else {"service.name": service})


@pytest.mark.parametrize(
    ("change", "took_ns"),
    [
        ({"endTime": [SECONDS, 1]}, 1),
        ({"endTime": [SECONDS + 1, 0], "duration": [9, 9]}, 1_000_000_000),  # the end itself is the better witness
        ({"endTime": None, "duration": [1, 500]}, 1_000_000_500),
        ({"endTime": None, "duration": 1.5}, 1_500),
        ({"endTime": None}, None),
        ({"endTime": [0, 0]}, None),  # never ended
        ({"endTime": "2026-02-25T10:00:00.000000003Z"}, 3),
    ],
)
def test_ends(change: dict[str, Any], took_ns: int | None) -> None:
    end_ns = one(**change).end_ns
    assert end_ns == (None if took_ns is None else START_NS + took_ns)


@pytest.mark.parametrize("name", ["scope", "instrumentationScope", "instrumentationLibrary", "instrumentation_scope"])
def test_scope(name: str) -> None:
    named, unnamed = read(json.dumps([js() | {name: {"name": "vllm"}}, js() | {name: {"name": None}}]).encode())
    assert (named.scope, unnamed.scope) == ("vllm", "")


def test_an_event_without_a_time_is_no_mark() -> None:
    assert one(events=[{"name": "a"}, {"name": "b", "time": [SECONDS, 7]}]).events == (
        Event(name="b", at_ns=START_NS + 7),
    )


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"startTime": None}, "it has no start time"),
        (
            {"startTime": 1_772_013_600_000},
            "Expected `str | array | null`, got `int` - at `$.startTime`",
        ),  # ms? us? ns?
        ({"startTime": [SECONDS]}, "Expected `array` of length 2, got 1 - at `$.startTime`"),
        ({"startTime": [10**12, 0]}, "a time in it cannot be read"),
        ({"startTime": "secret"}, "a time in it cannot be read"),
        ({"spanContext": {"traceId": "t"}}, "Object missing required field `spanId`"),
        ({"spanContext": {"traceId": "", "spanId": "s"}}, "it has no trace id"),
        ({"resource": {"attributes": 7}}, "Expected `object | array`, got `int`"),
        ({"attributes": []}, "Expected `object | null`, got `array` - at `$.attributes`"),
    ],
)
def test_a_bad_span_becomes_a_note_and_the_others_survive(change: dict[str, Any], reason: str) -> None:
    note, good = sdk_spans.parse(json.dumps({"spans": [js(**change), js()]}).encode(), NOTHING)
    assert note == Note(kind="dropped-record", text=f"span 0: {reason}")
    assert isinstance(good, TraceSpan)


@pytest.mark.parametrize("raw", [b"{}", b'{"spans": {}}', b"3", b"", b'{"name": "x"}'])
def test_what_is_no_span_is_refused(raw: bytes) -> None:
    with pytest.raises(FormatError, match=r"^expected spans as an OpenTelemetry SDK prints them"):
        list(sdk_spans.parse(raw, NOTHING))


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (js(), True),
        ([3, js()], True),
        ({"spans": [js()]}, True),
        ({"spans": []}, False),
        ({"traceID": "t", "spans": [{"traceID": "t", "spanID": "s"}]}, False),  # Jaeger
        ({"traceId": "t", "spanId": "s", "name": "n", "startTimeUnixNano": "1", "attributes": []}, False),  # OTLP
        ({"level": "info", "timestamp": 5, "context": {"trace_id": "t", "span_id": "s"}}, False),  # a log line
        ({"context": 3, "spans": 4}, False),
        ([], False),
        (None, False),
    ],
)
def test_recognises(value: object, expected: bool) -> None:
    assert sdk_spans.recognises(value) is expected
