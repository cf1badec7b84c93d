import json
from pathlib import Path
from typing import Any

import pytest

from outlay.formats import zipkin
from outlay.formats.codec import FormatError
from outlay.interaction import Note
from outlay.trace import Event, TraceSpan

FOLDER = Path(__file__).parents[1] / "data" / "traces-zipkin"
FILES = sorted(FOLDER.glob("*.json"))
NOTHING: frozenset[str] = frozenset()


def read(raw: bytes, wanted: frozenset[str] = NOTHING) -> list[TraceSpan]:
    items = list(zipkin.parse(raw, wanted))
    assert not [item for item in items if isinstance(item, Note)]
    return [item for item in items if isinstance(item, TraceSpan)]


def by_id(name: str, wanted: frozenset[str] = NOTHING) -> dict[str, TraceSpan]:
    return {span.id: span for span in read((FOLDER / name).read_bytes(), wanted)}


def span(name: str, **changes: Any) -> dict[str, Any]:
    """A span of trace `t`, 5 to 8 microseconds, changed as the keywords say."""
    return {"traceId": "t", "id": name, "timestamp": 5, "duration": 3} | changes


def at(service: str | None) -> dict[str, Any]:
    return {"serviceName": service}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_span_of_every_file(path: Path) -> None:
    document = json.loads(path.read_bytes())
    assert zipkin.recognises(document)
    written = [(s["traceId"], s["name"], s["timestamp"] * 1000, s["duration"] * 1000) for s in document]
    spans = read(path.read_bytes())
    assert [(s.trace, s.name, s.start_ns, s.end_ns and s.end_ns - s.start_ns) for s in spans] == written
    assert len({s.id for s in spans}) == len(spans)  # also where two halves shared one id


def test_the_halves_of_a_shared_span() -> None:
    found = by_id("skew.json")
    client, server = found["74280ae0c10d8062"], found["74280ae0c10d8062.server"]
    assert (client.kind, client.service, client.parent) == ("client", "servicea", "bf396325699c84bf")
    assert (server.kind, server.service, server.parent) == ("server", "serviceb", client.id)
    assert found["43210ae0c10d1234"].parent == server.id  # it ran at the server
    assert found["bf396325699c84bf"].parent is None
    assert server.start_ns - client.start_ns == -65_441_000  # the skew stays in the data: 008761 - 074202 us
    assert client.end_ns is not None
    assert server.end_ns is not None
    # 94 539 - 93 577 us on the network, both ways, whatever the clocks say
    assert (client.end_ns - client.start_ns) - (server.end_ns - server.start_ns) == 962_000
    assert (client.clock, server.clock) == ("127.0.0.0", "192.0.0.0")


def test_a_budget_handed_from_hop_to_hop() -> None:
    wanted = frozenset({"request_budget"})
    found = by_id("yelp.json", wanted)
    document = json.loads((FOLDER / "yelp.json").read_bytes())
    written = [(s["id"], s["tags"]["request_budget"]) for s in document if "request_budget" in s.get("tags", {})]
    left = {span.id: span.attributes["request_budget"] for span in found.values() if span.attributes}
    assert [(span_id.removesuffix(".server"), ms) for span_id, ms in left.items()] == written
    # milliseconds: the gateway was given 10 003; mobile_api, deeper, had 9 989 and then 9 980 left to give
    assert left["668ed78ad94b35a1.server"] == "10003"
    assert (left["7a778764a0d0b594"], left["15fc03927f0f68df"]) == ("9989", "9980")
    # mobile_api's own calls hang below its half; yelp-main's local work is not at yelp_main/api_proxy
    assert found["15fc03927f0f68df"].parent == "f5f268651b2a2b34.server"
    assert found["241cea1aa4cb2884"].parent == "668ed78ad94b35a1"


def test_a_server_half_without_its_client_keeps_its_place() -> None:
    found = by_id("messaging2.json")
    assert (found["dca1d27152851c1c"].parent, found["dca1d27152851c1c"].kind) == ("0d1a94ebc9256244", "server")
    assert found["26242947380ec944"].parent == "dca1d27152851c1c"
    assert found["3df9ceef91bbc777"].parent == "0153a596db406111"  # not in the file: said, not hidden


def test_an_endpoint_without_a_name() -> None:
    [only] = by_id("envoy.json").values()
    assert (only.service, only.clock, only.kind) == (None, "169.254.65.45", "server")


def test_an_error_tag_is_an_error_even_when_empty() -> None:
    failed = {s.id for s in by_id("messaging-kafka.json").values() if s.failed}
    assert failed == {"2f77d5b0b8e0de35", "4a64a63e4b58e665", "568b33e6af8a225a"}


CALL = span("c", kind="CLIENT", localEndpoint=at("a"))


@pytest.mark.parametrize(
    ("others", "expected"),
    [
        # marked as shared, or only a server of the same id
        ([CALL, span("c", kind="SERVER", shared=True, localEndpoint=at("b"))], {"c": None, "c.server": "c"}),
        ([CALL, span("c", kind="SERVER", localEndpoint=at("b"))], {"c": None, "c.server": "c"}),
        ([CALL, span("c", shared=True, localEndpoint=at("b"))], {"c": None, "c.server": "c"}),
        # the server first: order does not matter
        ([span("c", kind="SERVER", localEndpoint=at("b")), CALL], {"c": None, "c.server": "c"}),
        # a server of the same id in another trace is another span
        ([CALL, span("c", traceId="u", kind="SERVER", localEndpoint=at("b"))], {"c": None}),
        # children go where they ran
        (
            [
                CALL,
                span("c", kind="SERVER", localEndpoint=at("b")),
                span("x", parentId="c", localEndpoint=at("b")),
                span("y", parentId="c", localEndpoint=at("a")),
                span("z", parentId="c"),  # nobody says where: with the client
            ],
            {"c": None, "c.server": "c", "x": "c.server", "y": "c", "z": "c"},
        ),
        # a half of no name attracts nobody, not even children of no name
        (
            [CALL, span("c", kind="SERVER"), span("z", parentId="c")],
            {"c": None, "c.server": "c", "z": "c"},
        ),
        # two calls in a row, both shared
        (
            [
                CALL,
                span("c", kind="SERVER", localEndpoint=at("b")),
                span("d", parentId="c", kind="CLIENT", localEndpoint=at("b")),
                span("d", parentId="c", kind="SERVER", shared=True, localEndpoint=at("e")),
            ],
            {"c": None, "c.server": "c", "d": "c.server", "d.server": "d"},
        ),
        # no client's half here
        (
            [span("c", parentId="p", kind="SERVER", shared=True, localEndpoint=at("b")), span("x", parentId="c")],
            {"c": "p", "x": "c"},
        ),
        # a client that cannot be read is not here either
        ([span("c", kind="SERVER"), span("c", kind="CLIENT", timestamp=None)], {"c": None}),
    ],
)
def test_shared_spans(others: list[dict[str, Any]], expected: dict[str, str | None]) -> None:
    items = zipkin.parse(json.dumps(others).encode(), NOTHING)
    assert {s.id: s.parent for s in items if isinstance(s, TraceSpan) and s.trace == "t"} == expected


@pytest.mark.parametrize(
    ("kind", "expected"),
    [("CLIENT", "client"), ("Producer", "producer"), (None, "internal"), ("LOCAL", "internal")],
)
def test_kinds(kind: str | None, expected: str) -> None:
    assert read(json.dumps([span("s", kind=kind)]).encode())[0].kind == expected


@pytest.mark.parametrize(
    ("endpoint", "expected"),
    [
        ({"serviceName": "a", "ipv4": "10.0.0.1", "ipv6": "::1"}, "10.0.0.1"),
        ({"serviceName": "a", "ipv6": "::1"}, "::1"),
        ({"serviceName": "a"}, "a"),
        ({}, ""),
        (None, ""),
    ],
)
def test_clocks(endpoint: dict[str, Any] | None, expected: str) -> None:
    assert read(json.dumps([span("s", localEndpoint=endpoint)]).encode())[0].clock == expected


def test_a_consumer_without_an_end() -> None:
    [only] = read(json.dumps([{"traceId": "t", "id": "s", "kind": "CONSUMER", "timestamp": 5}]).encode())
    assert (only.start_ns, only.end_ns) == (5000, None)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"timestamp": None}, "it has no timestamp"),
        ({"timestamp": 0}, "it has no timestamp"),
        ({"timestamp": "0"}, "it has no timestamp"),
        ({"timestamp": 10**18}, "a time in it cannot be read"),
        ({"id": None}, "Expected `str`, got `null` - at `$.id`"),
        ({"traceId": " "}, "it has no trace id"),
        ({"duration": "soon"}, "matching regex"),
    ],
)
def test_a_bad_span_becomes_a_note_and_the_others_survive(change: dict[str, Any], reason: str) -> None:
    note, good = zipkin.parse(json.dumps([span("good"), span("bad") | change]).encode(), NOTHING)
    assert isinstance(note, Note)
    assert note.text.startswith("span 1: ")
    assert reason in note.text
    assert isinstance(good, TraceSpan)


def test_traces_of_a_search_come_as_lists_in_a_list() -> None:
    spans = read(json.dumps([[span("a")], [], [span("b", traceId="u"), span("c", traceId="U")]]).encode())
    assert [(s.trace, s.id) for s in spans] == [("t", "a"), ("u", "b"), ("u", "c")]
    assert read(b"[]") == []


@pytest.mark.parametrize(
    ("value", "name"),
    [
        ("ws", "ws"),
        ('"gen_ai.choice": {"message":"what the model said"}', "gen_ai.choice"),  # as OpenTelemetry exports it
        ('"', ""),
    ],
)
def test_an_annotation_is_an_event_without_its_content(value: str, name: str) -> None:
    [only] = read(json.dumps([span("s", annotations=[{"timestamp": 6, "value": value}])]).encode())
    assert only.events == (Event(name=name, at_ns=6000),)


@pytest.mark.parametrize(
    "old",
    [
        {"binaryAnnotations": [{"key": "lc", "value": "x", "endpoint": {"serviceName": "a"}}]},
        {"binaryAnnotations": []},
        {"annotations": [{"timestamp": 6, "value": "sr", "endpoint": {"serviceName": "a"}}]},
    ],
)
def test_version_1_is_refused_with_the_way_out(old: dict[str, Any]) -> None:
    raw = json.dumps([span("s", timestamp=None), span("s", **old)]).encode()
    assert zipkin.recognises(json.loads(raw))
    with pytest.raises(FormatError, match=r"v1 .* export them as v2"):
        list(zipkin.parse(raw, NOTHING))


@pytest.mark.parametrize("raw", [b"{}", b"3", b"", b'[{"id": ]'])
def test_what_is_no_list_is_refused(raw: bytes) -> None:
    with pytest.raises(FormatError, match=r"^expected Zipkin v2 JSON"):
        list(zipkin.parse(raw, NOTHING))


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ([span("s")], True),
        ([[], [span("s")]], True),
        ([3, span("s")], True),
        ([], False),
        ([{"traceId": "t", "id": "s"}], False),
        ([span("s", attributes={})], False),  # the console of an SDK
        ([span("s", startTime="2026-02-25T10:00:00Z")], False),  # Langfuse
        (span("s"), False),
        (None, False),
    ],
)
def test_recognises(value: object, expected: bool) -> None:
    assert zipkin.recognises(value) is expected
