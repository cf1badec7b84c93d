"""What an inference engine says of its own stages in attributes of one span, by engine.

vLLM and SGLang emit the same keys with different meanings: vLLM's prefill begins when the request is scheduled,
SGLang's when it was dispatched, so SGLang's holds the queue too. A value that is negative or -1 is unknown. Spans of
the stages win over attributes, because they say when and not only how long.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from outlay.interaction import Note, Span
from outlay.stages import joint
from outlay.trace import TraceSpan
from outlay.units import format_duration, from_s

QUEUE = "gen_ai.latency.time_in_queue"
PREFILL = "gen_ai.latency.time_in_model_prefill"
DECODE = "gen_ai.latency.time_in_model_decode"
FIRST_TOKEN_AFTER = "gen_ai.latency.time_to_first_token"
END_TO_END = "gen_ai.latency.e2e"
ENGINE_KEYS = frozenset({QUEUE, PREFILL, DECODE, FIRST_TOKEN_AFTER, END_TO_END})

COMPONENT = "llm"
# Two statements of one time may differ by the work between taking the two stamps.
TOLERANCE_NS = 5_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """`span_name` is how the engine's own span begins; `prefill_covers` the stages that its prefill time holds."""

    name: str
    span_name: str
    prefill_covers: tuple[str, ...]


VLLM = Engine(name="vLLM", span_name="llm_request", prefill_covers=("infer.prefill",))
SGLANG = Engine(name="SGLang", span_name="Req ", prefill_covers=("queue.wait", "infer.prefill"))


def engine_of(span: TraceSpan) -> Engine:
    """The engine whose meaning the span's attributes have; vLLM's where nothing says otherwise, as it coined them."""
    is_sglang = span.name.startswith(SGLANG.span_name) or "sglang" in span.scope.lower()
    return SGLANG if is_sglang else VLLM


def engine_stages(span: TraceSpan, stage_times: Mapping[str, int], notes: list[Note]) -> list[Span]:
    """Spans for the stages that the attributes of an engine's request span tell of; none where they tell of none.

    `stage_times` is what spans below it say each stage took: where they say anything about the engine's stages, the
    attributes are only compared with them. What nothing names stays the request span's own, unattributed.
    Contradictions and unknown values go to `notes`.
    """
    if not span.attributes.keys() & ENGINE_KEYS:
        return []
    told = _durations(span, notes)
    total = None if span.end_ns is None else span.end_ns - span.start_ns
    if total is not None and END_TO_END in told:
        _compare(span, END_TO_END, told[END_TO_END], total, notes)
    engine = engine_of(span)
    covers = {QUEUE: ("queue.wait",), PREFILL: engine.prefill_covers, DECODE: ("infer.decode",)}
    if any(stage in stage_times for stages in covers.values() for stage in stages):
        for key, stages in covers.items():
            if key in told and all(stage in stage_times for stage in stages):
                _compare(span, key, told[key], sum(stage_times[stage] for stage in stages), notes)
        return []
    return [] if total is None else _placed(span, engine, told, total, notes)


def _compare(span: TraceSpan, key: str, says: int, spans_say: int, notes: list[Note]) -> None:
    if abs(says - spans_say) > TOLERANCE_NS + spans_say // 10:
        notes.append(_contradiction(span, key, says, spans_say))


def _durations(span: TraceSpan, notes: list[Note]) -> dict[str, int]:
    """The attributes as durations, without those that say -1 or less, which is how engines write unknown."""
    told = {}
    for key in sorted(span.attributes.keys() & ENGINE_KEYS):
        duration = told_duration(span, key, notes)
        if duration is not None:
            told[key] = duration
    return told


def told_duration(span: TraceSpan, key: str, notes: list[Note]) -> int | None:
    """An attribute that tells a number of seconds; None, and a note, where it is none or negative."""
    value = span.attributes[key]
    try:
        duration = from_s(value)
    except ValueError:
        duration = -1
    if duration < 0:
        notes.append(Note(kind="missing-value", text=f"{key} is {value!r} on span {span.name}"))
        return None
    return duration


def _placed(span: TraceSpan, engine: Engine, told: Mapping[str, int], total: int, notes: list[Note]) -> list[Span]:
    """Queue and prefill end at the first token, decode begins there."""
    queue, prefill, decode = told.get(QUEUE), told.get(PREFILL), told.get(DECODE)
    first = told.get(FIRST_TOKEN_AFTER)
    if first is None and prefill is not None:
        # Without it the stages are taken to follow each other from the start.
        first = prefill if queue is None else prefill + queue
    if first is None or first > total:
        if first is not None:
            notes.append(_contradiction(span, FIRST_TOKEN_AFTER, first, total))
        return []
    out: list[Span] = []
    cursor = first
    prefill_stage = joint(engine.prefill_covers[0], engine.prefill_covers[-1])
    for key, stage, duration in ((PREFILL, prefill_stage, prefill), (QUEUE, "queue.wait", queue)):
        if duration is None:
            continue
        if duration > cursor:
            notes.append(_contradiction(span, key, duration, cursor))
            break
        out.append(_stage_span(span, stage, cursor - duration, cursor))
        cursor -= duration
    if decode is not None:
        if first + decode > total + TOLERANCE_NS:
            notes.append(_contradiction(span, DECODE, decode, total - first))
        else:
            out.append(_stage_span(span, "infer.decode", first, min(total, first + decode)))
    return out


def _stage_span(span: TraceSpan, stage: str, start: int, end: int) -> Span:
    return Span(
        id=f"{span.id}#{stage}",
        parent=span.id,
        name=stage,
        component=COMPONENT,
        stage=stage,
        clock=span.clock,
        start_ns=span.start_ns + start,
        end_ns=span.start_ns + end,
    )


def _contradiction(span: TraceSpan, key: str, says: int, room: int) -> Note:
    text = f"{key} says {format_duration(says)} where span {span.name!r} shows {format_duration(room)}"
    return Note(kind="contradiction", text=text)
