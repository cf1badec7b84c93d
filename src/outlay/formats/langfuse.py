"""Langfuse: an exported trace with its observations, or the lists that its API answers, times in ISO 8601."""

from collections.abc import Iterator
from functools import partial

import msgspec

from outlay.formats import records
from outlay.formats.attributes import keep
from outlay.formats.codec import FormatError, Item, JsonCodec
from outlay.formats.isotime import parse_iso_ns
from outlay.trace import Event, TraceSpan

_EXPECTED = "a Langfuse export: {trace, observations: [{id, traceId, startTime, endTime}]}, or such a list"

# Any of these beside `traceId` and `startTime` tells an observation from a span of an SDK.
_OBSERVATION_KEYS = frozenset({"parentObservationId", "completionStartTime", "usageDetails"})

FIRST_TOKEN = "first_token"


class _Observation(msgspec.Struct, rename="camel"):
    id: str
    start_time: str
    trace_id: str | None = None
    end_time: str | None = None
    completion_start_time: str | None = None
    parent_observation_id: str | None = None
    type: str | None = None
    name: str | None = None
    level: str | None = None
    model: str | None = None
    version: str | None = None
    environment: str | None = None
    usage_details: dict[str, object] | None = None


class _Trace(msgspec.Struct):
    id: str | None = None
    version: str | None = None
    environment: str | None = None


class _Whole(_Trace):
    """An export, an answer that lists observations (`data`), or the API's trace with its observations inside."""

    trace: _Trace | None = None
    observations: list[msgspec.Raw] | None = None
    data: list[msgspec.Raw] | None = None


_WHOLE: msgspec.json.Decoder[list[msgspec.Raw] | _Whole] = msgspec.json.Decoder(list[msgspec.Raw] | _Whole)
_OBSERVATION = msgspec.json.Decoder(_Observation)


def recognises(value: object) -> bool:
    """Whether a decoded JSON value is an export, a list of observations, or an answer of the API with such a list."""
    if not isinstance(value, dict):
        return isinstance(value, list) and any(map(_is_observation, value))
    observations = value.get("observations")
    if isinstance(observations, list):
        return any(map(_is_observation, observations)) or (not observations and isinstance(value.get("trace"), dict))
    data = value.get("data")
    return isinstance(data, list) and any(map(_is_observation, data))


def parse(raw: bytes, wanted: frozenset[str]) -> Iterator[Item]:
    """One span per observation, and a note for each that cannot be read. The trace itself is not a span."""
    trace, observations = _parts(raw)
    yield from records.each(observations, partial(_span, trace=trace, wanted=wanted), place="observation")


CODEC = JsonCodec(name="langfuse", title="Langfuse export", recognises=recognises, parse=parse)


def _is_observation(value: object) -> bool:
    return (
        isinstance(value, dict)
        and {"traceId", "startTime"} <= value.keys()
        and not value.keys().isdisjoint(_OBSERVATION_KEYS)
    )


def _parts(raw: bytes) -> tuple[_Trace, list[msgspec.Raw]]:
    value = records.whole(_WHOLE.decode, raw, expected=_EXPECTED)
    if isinstance(value, list):
        return _Trace(), value
    if value.observations is not None:
        return value.trace or value, value.observations
    if value.data is not None:
        return _Trace(), value.data
    raise FormatError(f"expected {_EXPECTED}; found neither observations nor data")


def _span(raw: bytes, trace: _Trace, wanted: frozenset[str]) -> TraceSpan:
    seen = _OBSERVATION.decode(raw)
    resource = {
        "service.version": seen.version or trace.version,
        "deployment.environment.name": seen.environment or trace.environment,
    }
    first = seen.completion_start_time
    return TraceSpan(
        trace=records.required(seen.trace_id or trace.id, "trace id"),
        id=records.required(seen.id, "id"),
        parent=records.identifier(seen.parent_observation_id),
        name=seen.name or "",
        start_ns=parse_iso_ns(seen.start_time),
        end_ns=None if seen.end_time is None else parse_iso_ns(seen.end_time),
        failed=seen.level == "ERROR",
        attributes=keep(_attributes(seen), wanted),
        resource=keep(resource.items(), wanted),
        events=() if first is None else (Event(name=FIRST_TOKEN, at_ns=parse_iso_ns(first)),),
    )


def _attributes(seen: _Observation) -> Iterator[tuple[str, object]]:
    yield "langfuse.observation.type", seen.type
    yield "gen_ai.request.model", seen.model
    usage = seen.usage_details or {}
    for name in ("input", "output"):
        tokens = usage.get(name)
        # Langfuse writes 0 where it was told no usage.
        if isinstance(tokens, int) and tokens > 0:
            yield f"gen_ai.usage.{name}_tokens", tokens
