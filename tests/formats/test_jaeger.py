import json
from pathlib import Path
from typing import Any

import pytest

from outlay.formats import jaeger
from outlay.formats.codec import FormatError
from outlay.interaction import Note
from outlay.trace import Event, TraceSpan

DATA = Path(__file__).parents[1] / "data"
FILES = [*sorted((DATA / "traces-jaeger").rglob("*.json")), DATA / "traces-otlp" / "otlp2jaeger-out.json"]
NOTHING: frozenset[str] = frozenset()


def spans(raw: bytes, wanted: frozenset[str] = NOTHING) -> dict[str, TraceSpan]:
    items = list(jaeger.parse(raw, wanted))
    assert not [item for item in items if isinstance(item, Note)]
    return {item.id: item for item in items if isinstance(item, TraceSpan)}


def trace(*, process: dict[str, Any] | None = None, **span: Any) -> bytes:
    """A trace `t` with one span `s`, 5 to 8 microseconds, changed as the keywords say."""
    base = {"traceID": "t", "spanID": "s", "operationName": "op", "startTime": 5, "duration": 3, "processID": "p"}
    processes = {"p": {"serviceName": "shop"} if process is None else process}
    return json.dumps({"traceID": "t", "spans": [base | span], "processes": processes}).encode()


def one(**changes: Any) -> TraceSpan:
    return spans(trace(**changes))["s"]


def refs(*named: tuple[str, str, str]) -> list[dict[str, str]]:
    return [{"refType": kind, "traceID": where, "spanID": span} for kind, where, span in named]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_span_of_every_file(path: Path) -> None:
    document = json.loads(path.read_bytes())
    assert jaeger.recognises(document)
    written = [
        (span["traceID"].lower(), span["spanID"].lower(), span["startTime"] * 1000, span["duration"] * 1000)
        for found in document.get("data", [document])
        for span in found["spans"]
    ]
    items = list(jaeger.parse(path.read_bytes(), NOTHING))
    read = [(s.trace, s.id, s.start_ns, s.end_ns - s.start_ns) for s in items if isinstance(s, TraceSpan) and s.end_ns]
    assert read == written
    assert len(items) == len(written) > 0


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_first_reference_names_the_parent(path: Path) -> None:
    document = json.loads(path.read_bytes())
    for found in document.get("data", [document]):
        read = spans(json.dumps(found).encode())
        for span in found["spans"]:
            first = (span.get("references") or [{"spanID": None, "refType": None}])[0]
            assert read[span["spanID"].lower()].parent == (first["spanID"] and first["spanID"].lower())
            assert read[span["spanID"].lower()].follows == (first["refType"] == "FOLLOWS_FROM")


def test_a_hand_drawn_case() -> None:
    read = spans((DATA / "traces-jaeger" / "crisp" / "15.json").read_bytes())
    assert (read["a"].parent, read["a"].start_ns, read["a"].end_ns, read["a"].service) == (None, 0, 100_000, "S1")
    assert (read["b"].parent, read["b"].start_ns, read["b"].end_ns, read["b"].failed) == ("a", 10_000, 20_000, True)
    assert read["b"].clock == "S2"  # the process names no host


def test_a_consumer_that_follows_its_producer() -> None:
    read = spans((DATA / "traces-jaeger" / "testTrace.json").read_bytes())
    assert (read["span-7"].parent, read["span-7"].follows, read["span-7"].kind) == ("span-6", True, "consumer")
    assert read["span-6"].kind == "producer"
    assert [span.id for span in read.values() if span.failed] == ["span-2"]  # written as the text "true"
    assert {span.service for span in read.values()} == {"service1", "service2"}
    assert {span.clock for span in read.values()} == {"foobar.org"}  # two services on one host share a clock


def test_what_jaeger_made_of_otlp_says_what_the_otlp_said() -> None:
    document = json.loads((DATA / "traces-otlp" / "otlp2jaeger-in.json").read_bytes())
    scope = document["resourceSpans"][0]["scopeSpans"][0]
    wanted = frozenset({"net.peer.ip", "peer.service"})
    raw = (DATA / "traces-otlp" / "otlp2jaeger-out.json").read_bytes()
    expected = [
        TraceSpan(
            trace=span["traceId"],
            id=span["spanId"],
            parent=span["parentSpanId"],
            name=span["name"],
            start_ns=int(span["startTimeUnixNano"]),
            end_ns=int(span["endTimeUnixNano"]),
            service=document["resourceSpans"][0]["resource"]["attributes"][0]["value"]["stringValue"],
            kind="server" if span["kind"] == 2 else "internal",
            clock="telemetrygen",
            scope=scope["scope"]["name"],
            attributes={pair["key"]: pair["value"]["stringValue"] for pair in span["attributes"]},
        )
        for span in scope["spans"]
    ]
    assert list(jaeger.parse(raw, wanted)) == expected  # its two spans are one, delivered twice


def test_prompts_stay_behind() -> None:
    raw = (DATA / "traces-jaeger" / "genaiTestTrace.json").read_bytes()
    assert b"gen_ai.input.messages" in raw
    wanted = frozenset({"gen_ai.usage.input_tokens", "gen_ai.request.model"})
    kept = [span.attributes for span in spans(raw, wanted).values()]
    assert {key for attributes in kept for key in attributes} == wanted
    assert all(type(a["gen_ai.usage.input_tokens"]) is int for a in kept if "gen_ai.usage.input_tokens" in a)


@pytest.mark.parametrize(
    ("references", "expected"),
    [
        ([], (None, False)),
        (None, (None, False)),
        (refs(("CHILD_OF", "t", "00AB")), ("00ab", False)),
        (refs(("FOLLOWS_FROM", "t", "a")), ("a", True)),
        (refs(("FOLLOWS_FROM", "t", "a"), ("CHILD_OF", "t", "b")), ("b", False)),  # inside b, merely after a
        (refs(("CHILD_OF", "t", "a"), ("CHILD_OF", "t", "b")), ("a", False)),
        (refs(("CHILD_OF", "other", "a")), (None, False)),  # a link into another trace
        (refs(("CHILD_OF", "other", "a"), ("FOLLOWS_FROM", "T", "b")), ("b", True)),
        (refs(("SEE_ALSO", "t", "a")), (None, False)),
    ],
)
def test_references(references: object, expected: tuple[str | None, bool]) -> None:
    span = one(references=references)
    assert (span.parent, span.follows) == expected


@pytest.mark.parametrize("key", ["parentSpanID", "parentSpanId"])
def test_the_older_way_to_name_a_parent(key: str) -> None:
    assert one(**{key: "0A"}).parent == "0a"
    assert one(**{key: "0a"}, references=refs(("CHILD_OF", "t", "b"))).parent == "b"


@pytest.mark.parametrize(
    ("tags", "expected"),
    [
        ([{"key": "error", "type": "bool", "value": True}], True),
        ([{"key": "error", "type": "bool", "value": "true"}], True),
        ([{"key": "error", "type": "string", "value": "True"}], True),
        ([{"key": "error", "value": False}], False),
        ([{"key": "error", "value": "false"}], False),
        ([{"key": "otel.status_code", "type": "string", "value": "ERROR"}], True),
        ([{"key": "otel.status_code", "type": "string", "value": "OK"}], False),
        ([], False),
        (None, False),
    ],
)
def test_failed(tags: object, expected: bool) -> None:
    assert one(tags=tags).failed is expected


@pytest.mark.parametrize(
    ("tag", "expected"),
    [
        ({"type": "int64", "value": 200}, 200),
        ({"type": "int64", "value": "200"}, 200),  # as storage back ends keep it
        ({"type": "float64", "value": "0.5"}, 0.5),
        ({"type": "bool", "value": "false"}, False),
        ({"type": "string", "value": "200"}, "200"),
        ({"value": 7}, 7),
        ({"type": "int64", "value": "many"}, "many"),  # not what it declares: as it stands
    ],
)
def test_typed_tags(tag: dict[str, object], expected: object) -> None:
    span = spans(trace(tags=[{"key": "k", **tag}]), frozenset({"k"}))["s"]
    assert span.attributes == {"k": expected}
    assert type(span.attributes["k"]) is type(expected)


@pytest.mark.parametrize(
    ("process", "clock", "service"),
    [
        ({"serviceName": "shop"}, "shop", "shop"),
        ({"serviceName": "shop", "tags": [{"key": "ip", "value": "10.0.0.1"}]}, "10.0.0.1", "shop"),
        (
            {"serviceName": "shop", "tags": [{"key": "ip", "value": "10.0.0.1"}, {"key": "host.name", "value": "n1"}]},
            "n1",
            "shop",
        ),
        ({"serviceName": "", "tags": [{"key": "hostname", "value": ""}]}, "", None),
        ({}, "", None),
    ],
)
def test_clock_and_service(process: dict[str, Any], clock: str, service: str | None) -> None:
    span = one(process=process)
    assert (span.clock, span.service) == (clock, service)


def test_a_span_may_bring_its_process_or_none() -> None:
    assert one(process={}, processID=None).service is None
    inline = json.loads(trace())
    inline["processes"] = None
    inline["spans"][0]["process"] = {"serviceName": "own", "tags": None}
    assert spans(json.dumps(inline).encode())["s"].service == "own"


def test_resource_is_what_is_wanted_of_the_process() -> None:
    tags = [{"key": "service.version", "value": "2.1"}, {"key": "os.type", "value": "linux"}]
    span = spans(trace(process={"serviceName": "shop", "tags": tags}), frozenset({"service.version"}))["s"]
    assert span.resource == {"service.version": "2.1"}


def test_an_event_is_named_by_its_event_field_and_by_nothing_else() -> None:
    logs = [
        {"timestamp": 6, "fields": [{"key": "event", "value": "first_token"}, {"key": "n", "value": 1}]},
        {"timestamp": 7, "fields": [{"key": "message", "value": "what the person said"}]},
        {"timestamp": 7, "fields": None},
    ]
    span = spans(trace(logs=logs), frozenset({"n"}))["s"]
    assert span.events == (Event(name="first_token", at_ns=6000, attributes={"n": 1}),)


@pytest.mark.parametrize(
    ("start", "duration", "expected"),
    [
        (5, 3, (5000, 8000)),
        ("5", "3", (5000, 8000)),
        (5.5, 0.25, (5500, 5750)),
        (5, None, (5000, None)),  # unknown, not 0
        (5, 0, (5000, 5000)),
        (0, 1, (0, 1000)),  # hand-drawn cases begin at 0
    ],
)
def test_times(start: object, duration: object, expected: tuple[int, int | None]) -> None:
    span = one(startTime=start, duration=duration)
    assert (span.start_ns, span.end_ns) == expected


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"startTime": None}, "Expected `int | float | str`, got `null` - at `$.startTime`"),
        ({"startTime": "1e900000"}, "matching regex"),  # as an integer it would take seconds
        ({"startTime": 10**18}, "a time in it cannot be read"),  # 1e21 ns
        ({"startTime": 9 * 10**15, "duration": 9 * 10**15}, "a time in it cannot be read"),  # only the end is too late
        ({"spanID": ""}, "it has no span id"),
        ({"spanID": 7}, "Expected `str`, got `int` - at `$.spanID`"),
        ({"tags": {"k": "v"}}, "Expected `array | null`, got `object` - at `$.tags`"),
    ],
)
def test_a_bad_span_becomes_a_note_and_the_others_survive(change: dict[str, Any], reason: str) -> None:
    good, bad = json.loads(trace()), json.loads(trace(**change))
    good["spans"] = [*bad["spans"], *good["spans"]]
    note, span = jaeger.parse(json.dumps({"data": [good]}).encode(), NOTHING)
    assert isinstance(note, Note)
    assert note.kind == "dropped-record"
    assert note.text.startswith("trace 0, span 0: ")
    assert reason in note.text
    assert isinstance(span, TraceSpan)


def test_a_bad_trace_becomes_a_note_and_the_others_survive() -> None:
    note, span = jaeger.parse(b'[{"traceID": "u", "spans": 3}, ' + trace() + b"]", NOTHING)
    assert note == Note(kind="dropped-record", text="trace 0: Expected `array`, got `int` - at `$.spans`")
    assert isinstance(span, TraceSpan)


def test_the_trace_id_may_stand_on_the_trace_alone() -> None:
    assert one(traceID=None).trace == "t"


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b"{}", "found neither data nor spans"),
        (b'{"data": null, "errors": [{"code": 404, "msg": "trace not found"}]}', "found neither data nor spans"),
        (b'{"data": {}}', r"Expected `array \| null`, got `object`"),
        (b'"text"', "got `str`"),
        (b"", "truncated"),
    ],
)
def test_what_is_not_jaeger_is_refused(raw: bytes, reason: str) -> None:
    with pytest.raises(FormatError, match=reason):
        list(jaeger.parse(raw, NOTHING))


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"data": [], "total": 0, "errors": None}, True),  # a search without results
        ({"data": []}, False),
        ({"data": [3, {"traceID": "t", "spans": []}]}, True),
        ([{"traceID": "t", "spans": []}], True),
        ({"trace_id": "t", "spans": []}, False),
        ([], False),
        (None, False),
    ],
)
def test_recognises(value: object, expected: bool) -> None:
    assert jaeger.recognises(value) is expected
