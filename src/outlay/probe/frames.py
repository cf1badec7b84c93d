"""What one frame of a streamed answer says: progress, an end, an error or nothing. Texts are looked at, never kept.

A frame shows itself which API it is of: `choices` (chat and completions), or a typed event (responses, transcriptions,
speech, and the Realtime API of a WebSocket). Only the wanted fields are decoded, and texts not even those: that they
are not empty is seen from their length.
"""

import binascii
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Literal, NamedTuple

import msgspec

from outlay.probe.failures import Failed, by_body, by_cause

Raw = msgspec.Raw

_NONE = Raw(b"")
_NULL = Raw(b"null")
_ERROR = Raw(b'"error"')
_DONE = b"[DONE]"
_BRACKET = ord("[")

# Everything that msgspec raises on hostile input.
_READ_ERRORS = (msgspec.MsgspecError, ValueError, RecursionError)


class Said(NamedTuple):
    """What a frame says.

    `token`: it carries something the model made, reasoning too; `output`: something that a person sees or hears, or a
    part of a tool call. `finished`: the model has said that it stopped; `done`: nothing more comes. `readable` False:
    it is not JSON; `known` False: it is of none of the APIs. `usage` is the JSON of token counts, empty when absent.
    """

    token: bool = False
    output: bool = False
    finished: bool = False
    done: bool = False
    failed: Failed | None = None
    usage: Raw = _NONE
    known: bool = True
    readable: bool = True


class Tokens(NamedTuple):
    """Token counts; None is unknown. `output` counts reasoning too."""

    input: int | None = None
    output: int | None = None
    reasoning: int | None = None


NOTHING = Said()
THOUGHT = Said(token=True)
SHOWN = Said(token=True, output=True)
DONE = Said(finished=True, done=True)
UNKNOWN = Said(known=False)
UNREADABLE = Said(known=False, readable=False)


_CANCELLED = Failed("aborted", "the response was cancelled")


class _Audio(msgspec.Struct, gc=False):
    data: Raw = _NONE
    transcript: Raw = _NONE


class _Delta(msgspec.Struct, gc=False):
    content: Raw = _NONE
    refusal: Raw = _NONE
    tool_calls: Raw = _NONE
    function_call: Raw = _NONE
    audio: _Audio | None = None
    # One thing, as DeepSeek and vLLM, vLLM since 0.11 and OpenRouter, and others spell it.
    reasoning_content: Raw = _NONE
    reasoning: Raw = _NONE
    reasoning_text: Raw = _NONE
    reasoning_details: Raw = _NONE
    thinking: Raw = _NONE
    thinking_blocks: Raw = _NONE


class _Choice(msgspec.Struct, gc=False):
    delta: _Delta | None = None
    text: Raw = _NONE
    finish_reason: Raw = _NONE


class _Frame(msgspec.Struct, gc=False):
    type: str | None = None
    choices: list[_Choice] | None = None
    delta: Raw = _NONE
    audio: Raw = _NONE
    text: Raw = _NONE
    response: Raw = _NONE
    usage: Raw = _NONE
    error: Raw = _NONE
    object: Raw = _NONE


class _Part(msgspec.Struct, gc=False):
    text: Raw = _NONE
    thinking: Raw = _NONE


class _StatusDetails(msgspec.Struct, gc=False):
    error: Raw = _NONE


class _Response(msgspec.Struct, gc=False):
    status: str | None = None
    error: Raw = _NONE
    usage: Raw = _NONE
    status_details: _StatusDetails | None = None


class _Details(msgspec.Struct, gc=False):
    reasoning_tokens: int | None = None


class _Usage(msgspec.Struct, gc=False):
    prompt_tokens: int | None = None
    input_tokens: int | None = None
    completion_tokens: int | None = None
    output_tokens: int | None = None
    total_tokens: int | None = None
    reasoning_tokens: int | None = None
    completion_tokens_details: _Details | None = None
    output_tokens_details: _Details | None = None


class _Sound(msgspec.Struct, gc=False):
    type: str = ""
    audio: str = ""


_FRAME = msgspec.json.Decoder(_Frame)
_PARTS = msgspec.json.Decoder(list[_Part])
_RESPONSE = msgspec.json.Decoder(_Response)
_USAGE = msgspec.json.Decoder(_Usage)
_SOUND = msgspec.json.Decoder(_Sound)

Kind = Literal["shown", "thought", "over", "aside", "unknown"]

_KINDS: Mapping[str, Kind] = {
    "response.completed": "over",
    "response.incomplete": "over",  # a limit was reached: the result was delivered
    "response.failed": "over",
    "response.cancelled": "over",
    "response.done": "over",
    "transcript.text.segment": "shown",
    "transcript.text.done": "over",
    "speech.audio.done": "over",
}
_FAILED_EVENTS: Mapping[str | None, Failed] = {
    "response.failed": Failed("error", ""),
    "response.cancelled": _CANCELLED,
}
_ANSWERS = ("response.", "transcript.", "speech.")
_ASIDES = ("session.", "conversation.", "input_audio_buffer.", "output_audio_buffer.", "transcription_session.")


def said(data: bytes) -> Said:
    """What a frame of a stream says. Never raises."""
    if data.startswith(_DONE):
        return DONE
    frame = _decoded(data)
    if isinstance(frame, Said):
        return frame
    if _is_error(frame):
        return NOTHING._replace(failed=by_body(data))
    if frame.choices is not None:
        return _of_choices(frame.choices, frame.usage)
    if frame.type:
        return _of_event(frame, frame.type)
    return NOTHING._replace(usage=frame.usage) if _full(frame.usage) else UNKNOWN


def whole(body: bytes) -> Said:
    """What the JSON of an answer without a stream says: its usage, and whether it is an error. Never raises."""
    frame = _decoded(body)
    if isinstance(frame, Said):
        return frame
    if _is_error(frame):
        return DONE._replace(failed=by_body(body))
    # Of the responses API, the body is what events nest under `response`.
    return DONE._replace(usage=frame.usage, failed=_outcome(_response(body)))


def tokens(usage: Raw) -> Tokens:
    """The counts of a `usage`; what cannot be a count is unknown."""
    try:
        counts = _USAGE.decode(usage)
    except _READ_ERRORS:
        return Tokens()
    details = counts.completion_tokens_details or counts.output_tokens_details
    read = _count(counts.prompt_tokens, counts.input_tokens)
    written = _count(counts.completion_tokens, counts.output_tokens)
    reasoning = _count(counts.reasoning_tokens, details.reasoning_tokens if details else None)
    # Some servers leave reasoning out of the output; only the total then shows it.
    if read is not None and written is not None and reasoning and counts.total_tokens == read + written + reasoning:
        written += reasoning
    return Tokens(read, written, reasoning)


def sound(data: bytes) -> bytes:
    """The sound in a frame of speech sent as events; empty when it holds none."""
    try:
        frame = _SOUND.decode(data)
        return binascii.a2b_base64(frame.audio) if frame.type == "speech.audio.delta" else b""
    except _READ_ERRORS:
        return b""


def _decoded(data: bytes) -> _Frame | Said:
    try:
        return _FRAME.decode(data)
    except msgspec.ValidationError:
        return UNKNOWN
    except _READ_ERRORS:
        return UNREADABLE


def _is_error(frame: _Frame) -> bool:
    """Whether it is an error whatever the API: an object or a text under `error`, or an error not nested at all."""
    if frame.object == _ERROR or frame.type == "error":
        return True
    return _full(frame.error) and bytes(memoryview(frame.error)[:1]) in (b"{", b'"')


def _full(value: Raw) -> bool:
    """Whether a JSON value says something: it is not absent, null, nor an empty text, list or object."""
    size = len(value)
    return size > 2 and (size != 4 or value != _NULL)


def _of_choices(choices: Iterable[_Choice], usage: Raw) -> Said:
    token = output = finished = False
    for choice in choices:
        delta = choice.delta
        if delta is not None:
            thought, shown = _of_delta(delta)
            token, output = token or thought, output or shown
        output = output or _full(choice.text)
        if _full(choice.finish_reason):
            if choice.finish_reason == _ERROR:
                return NOTHING._replace(failed=Failed("error", "finish_reason error"))
            finished = True
    counted = _full(usage)
    if finished or counted:
        return Said(token=token or output, output=output, finished=finished, usage=usage if counted else _NONE)
    return SHOWN if output else THOUGHT if token else NOTHING


def _of_delta(delta: _Delta) -> tuple[bool, bool]:
    """Whether it holds reasoning, and whether it holds output."""
    if _full(delta.content):
        # Mistral sends a list of parts, of which some are reasoning.
        return _of_parts(delta.content) if memoryview(delta.content)[0] == _BRACKET else (False, True)
    called = _full(delta.tool_calls) or _full(delta.function_call) or _full(delta.refusal)
    if called or (delta.audio is not None and (_full(delta.audio.data) or _full(delta.audio.transcript))):
        return False, True
    return _reasons(delta), False


def _reasons(delta: _Delta) -> bool:
    return (
        _full(delta.reasoning_content)
        or _full(delta.reasoning)
        or _full(delta.reasoning_text)
        or _full(delta.reasoning_details)
        or _full(delta.thinking)
        or _full(delta.thinking_blocks)
    )


def _of_parts(content: Raw) -> tuple[bool, bool]:
    try:
        parts = _PARTS.decode(content)
    except _READ_ERRORS:
        return False, True
    return any(_full(part.thinking) for part in parts), any(_full(part.text) for part in parts)


def _of_event(frame: _Frame, event: str) -> Said:
    kind = _kind(event)
    if kind in ("shown", "thought"):
        if not (_full(frame.delta) or _full(frame.audio) or _full(frame.text)):
            return NOTHING
        return SHOWN if kind == "shown" else THOUGHT
    if kind == "over":
        return _over(frame)
    return NOTHING if kind == "aside" else UNKNOWN


@lru_cache(maxsize=512)
def _kind(event: str) -> Kind:
    """What an event of this type is. Of new types that end in `.delta`, the names say whether they are reasoning."""
    known = _KINDS.get(event)
    if known is not None:
        return known
    if event.startswith(_ANSWERS) and event.endswith(".delta"):
        return "thought" if "reasoning" in event else "shown"
    return "aside" if event.startswith(_ANSWERS + _ASIDES) else "unknown"


def _over(frame: _Frame) -> Said:
    response = _response(frame.response)
    failed = _outcome(response) or _FAILED_EVENTS.get(frame.type)
    return DONE._replace(failed=failed, usage=frame.usage if _full(frame.usage) else response.usage)


def _response(raw: bytes | Raw) -> _Response:
    try:
        return _RESPONSE.decode(raw)
    except _READ_ERRORS:
        return _Response()


def _outcome(response: _Response) -> Failed | None:
    """How a response failed by its own status; None when it did not."""
    if response.status == "cancelled":
        return _CANCELLED
    if response.status != "failed":
        return None
    details = response.status_details
    return by_cause(details.error if details is not None and not _full(response.error) else response.error)


def _count(*counts: int | None) -> int | None:
    return next((count for count in counts if count is not None and count >= 0), None)
