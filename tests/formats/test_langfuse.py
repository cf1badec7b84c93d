import json
from pathlib import Path
from typing import Any

import pytest

from outlay.formats import langfuse
from outlay.formats.codec import FormatError
from outlay.interaction import Note
from outlay.trace import Event, TraceSpan

FOLDER = Path(__file__).parents[1] / "data" / "traces-langfuse"
FILES = sorted(FOLDER.glob("*.json"))
NOTHING: frozenset[str] = frozenset()
TOKENS = frozenset({"gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens"})
START_NS = 1_772_013_600_000_000_000  # 2026-02-25T10:00:00Z


def read(raw: bytes, wanted: frozenset[str] = NOTHING) -> list[TraceSpan]:
    items = list(langfuse.parse(raw, wanted))
    assert not [item for item in items if isinstance(item, Note)]
    return [item for item in items if isinstance(item, TraceSpan)]


def seen(**changes: Any) -> dict[str, Any]:
    """An observation `o` of trace `t`, one second long, changed as the keywords say."""
    times = {"startTime": "2026-02-25T10:00:00.000Z", "endTime": "2026-02-25T10:00:01.000Z"}
    return (
        {"id": "o", "traceId": "t", "parentObservationId": None, "type": "SPAN", "level": "DEFAULT"} | times | changes
    )


def one(wanted: frozenset[str] = NOTHING, **changes: Any) -> TraceSpan:
    return read(json.dumps([seen(**changes)]).encode(), wanted)[0]


def milliseconds(text: str) -> int:
    """The milliseconds within the day of a time such as 2025-08-01T13:56:55.682Z, read digit by digit."""
    return ((int(text[11:13]) * 60 + int(text[14:16])) * 60 + int(text[17:19])) * 1000 + int(text[20:23])


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_observation_of_every_file(path: Path) -> None:
    document = json.loads(path.read_bytes())
    assert langfuse.recognises(document)
    written = [
        (o["traceId"], o["id"], o["parentObservationId"], o["name"], milliseconds(o["startTime"]))
        for o in document["observations"]
    ]
    spans = read(path.read_bytes())
    day_ms = 86_400_000
    assert [(s.trace, s.id, s.parent, s.name, s.start_ns // 10**6 % day_ms) for s in spans] == written
    took = [milliseconds(o["endTime"]) - milliseconds(o["startTime"]) for o in document["observations"]]
    assert [s.end_ns and (s.end_ns - s.start_ns) // 10**6 for s in spans] == took


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_tokens_are_those_of_the_file_and_zero_is_unknown(path: Path) -> None:
    for observation, span in zip(
        json.loads(path.read_bytes())["observations"], read(path.read_bytes(), TOKENS), strict=True
    ):
        usage = observation["usageDetails"]
        tokens = {f"gen_ai.usage.{name}_tokens": usage[name] for name in ("input", "output") if usage.get(name)}
        assert span.attributes == tokens


def test_nobody_says_on_which_host_an_observation_was_made() -> None:
    spans = read(FILES[0].read_bytes())
    assert {(span.service, span.clock, span.kind) for span in spans} == {(None, "", "internal")}


def test_no_prompt_is_kept() -> None:
    raw = (FOLDER / "claude-agent-2025-12-22.json").read_bytes()
    wanted = frozenset({"input", "output", "metadata", "langfuse.observation.type", "gen_ai.request.model"})
    kept = [span.attributes for span in read(raw, wanted)]
    assert {key for attributes in kept for key in attributes} == {"langfuse.observation.type", "gen_ai.request.model"}
    assert kept[0] == {"langfuse.observation.type": "GENERATION", "gen_ai.request.model": "claude-sonnet-4-5-20250929"}


def test_version_and_environment_are_the_resource() -> None:
    raw = (FOLDER / "csharp-agent-with-gemini-2026-03-09.json").read_bytes()
    wanted = frozenset({"service.version", "deployment.environment.name"})
    resources = [span.resource for span in read(raw, wanted)]
    assert resources == [{"service.version": "105537", "deployment.environment.name": "preprod"}] * 8


def test_the_trace_answers_where_the_observation_is_silent() -> None:
    trace = {"id": "T", "version": "2", "environment": "prod"}
    document = {"trace": trace, "observations": [seen(traceId=None), seen(version="3", environment="test")]}
    wanted = frozenset({"service.version", "deployment.environment.name"})
    first, second = read(json.dumps(document).encode(), wanted)
    assert (first.trace, first.resource) == ("t", {"service.version": "2", "deployment.environment.name": "prod"})
    assert second.resource == {"service.version": "3", "deployment.environment.name": "test"}


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        ({"input": 5, "output": 7}, {"gen_ai.usage.input_tokens": 5, "gen_ai.usage.output_tokens": 7}),
        ({"input": 5, "output": 0, "total": 5}, {"gen_ai.usage.input_tokens": 5}),
        ({"input": 0, "output": 0, "total": 0}, {}),
        ({"input": -1, "output": None}, {}),
        ({"input": [1]}, {}),
        ({}, {}),
        (None, {}),
    ],
)
def test_usage(usage: dict[str, Any] | None, expected: dict[str, int]) -> None:
    assert one(TOKENS, usageDetails=usage).attributes == expected


def test_the_first_token_is_an_event() -> None:
    span = one(completionStartTime="2026-02-25T10:00:00.250Z")
    assert span.events == (Event(name=langfuse.FIRST_TOKEN, at_ns=START_NS + 250_000_000),)
    assert one(completionStartTime=None).events == ()


def test_an_observation_that_goes_on_has_no_end() -> None:
    assert (one(endTime=None).start_ns, one(endTime=None).end_ns) == (START_NS, None)


@pytest.mark.parametrize(("level", "expected"), [("ERROR", True), ("WARNING", False), (None, False)])
def test_failed(level: str | None, expected: bool) -> None:
    assert one(level=level).failed is expected


@pytest.mark.parametrize(
    "document",
    [
        [seen()],
        {"data": [seen()], "meta": {"page": 1}},
        {"trace": {"id": "t"}, "observations": [seen()]},
        {"id": "t", "timestamp": "2026-02-25T10:00:00Z", "observations": [seen(traceId="t")]},
        {"trace": None, "observations": [seen()]},
    ],
)
def test_every_envelope(document: object) -> None:
    assert langfuse.recognises(document)
    assert [(span.trace, span.id) for span in read(json.dumps(document).encode())] == [("t", "o")]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"startTime": None}, "Expected `str`, got `null` - at `$.startTime`"),
        ({"startTime": "yesterday"}, "a time in it cannot be read"),
        ({"endTime": "9999-01-01T00:00:00Z"}, "a time in it cannot be read"),
        ({"id": ""}, "it has no id"),
        ({"traceId": None}, "it has no trace id"),
        ({"usageDetails": 3}, "Expected `object | null`, got `int` - at `$.usageDetails`"),
    ],
)
def test_a_bad_observation_becomes_a_note_and_the_others_survive(change: dict[str, Any], reason: str) -> None:
    good, note = langfuse.parse(json.dumps([seen(), seen(**change)]).encode(), NOTHING)
    assert isinstance(good, TraceSpan)
    assert note == Note(kind="dropped-record", text=f"observation 1: {reason}")


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b"{}", "found neither observations nor data"),
        (b'{"observations": {}}', r"Expected `array \| null`, got `object`"),
        (b"3", "got `int`"),
        (b"", "truncated"),
    ],
)
def test_what_is_not_langfuse_is_refused(raw: bytes, reason: str) -> None:
    with pytest.raises(FormatError, match=reason):
        list(langfuse.parse(raw, NOTHING))


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"trace": {"id": "t"}, "observations": []}, True),  # nothing was observed
        ({"observations": []}, False),
        ({"data": []}, False),
        ({"data": [{"id": "t", "observations": ["o"]}]}, False),  # a list of traces names observations, no times
        ([{"traceId": "t", "startTime": [1, 2], "attributes": {}}], False),  # a span of an SDK
        ([], False),
        ("text", False),
    ],
)
def test_recognises(value: object, expected: bool) -> None:
    assert langfuse.recognises(value) is expected
