"""A script as the bytes of an answer, each with the instant it is due. Pure: the server only plays it.

An answer is first a row of beats (what happens when), the same for every API; a dialect then words each beat.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Literal, NamedTuple

import msgspec

from outlay.lab.script import Script
from outlay.units import NS_PER_S

Api = Literal["chat", "completions", "responses", "embeddings", "speech"]
What = Literal["comment", "begin", "role", "empty", "reasoning", "content", "error", "finish", "usage", "done"]

WORD = " tok"
CREATED_S = 1_700_000_000  # fixed, so that equal requests get equal bytes
PROMPT_TOKENS = 8

SAMPLE_RATE = 24_000
SAMPLES_PER_TOKEN = SAMPLE_RATE // 50  # 20 ms, the usual packet of a voice call
_LOUD = b"\x00\x20\x00\xe0"  # two samples of a square wave

_encode = msgspec.json.encode


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """What was asked: which API, by which id, as a stream or whole, and with a usage frame or without."""

    api: Api
    id: str
    model: str
    stream: bool = False
    usage: bool = False
    inputs: int = 1


class Frame(NamedTuple):
    """Bytes due so many ns after the request was taken up, and how many tokens they carry."""

    due_ns: int
    data: bytes
    tokens: int = 0


class Beat(NamedTuple):
    """One thing that happens in a stream: what, when, and with how many tokens."""

    due_ns: int
    what: What
    tokens: int = 0


def frames(script: Script, call: Call) -> Iterator[Frame]:
    """The body of the answer in order of time, worded as it is asked for. At least one frame.

    Where the script cuts the connection, it is cut after the last of them.
    """
    if is_whole(script, call):
        return iter((_whole(script, call),))
    return _speech(script) if call.api == "speech" else _stream(script, call)


def refused(script: Script, call: Call) -> int | None:
    """The error status that is all of the answer; None where there is more. A whole answer cannot fail half-way."""
    if script.status is not None:
        return script.status
    whole = not call.stream or call.api not in _DIALECTS
    return 500 if script.error_after is not None and whole else None


def is_whole(script: Script, call: Call) -> bool:
    """Whether the answer is one frame of a length known beforehand."""
    streams = call.api == "speech" or (call.stream and call.api != "embeddings")
    return refused(script, call) is not None or not streams


def is_cut(script: Script, call: Call) -> bool:
    """Whether the connection ends after the last frame, before the answer does."""
    return script.cut_after is not None and refused(script, call) is None


def media_type(script: Script, call: Call) -> str:
    """The Content-Type of the answer."""
    if is_whole(script, call):
        return "application/json"
    return "audio/wav" if call.api == "speech" else "text/event-stream; charset=utf-8"


def error_body(status: int, message: str) -> bytes:
    """An error as OpenAI words it."""
    return _encode({"error": {"message": message, "type": "mock_error", "code": status}})


def beats(script: Script, *, usage: bool = False) -> Iterator[Beat]:
    """What happens in a stream, in order of time."""
    return chain(sorted(_before(script), key=lambda beat: beat.due_ns), _tokens(script), _after(script, usage=usage))


def _before(script: Script) -> Iterator[Beat]:
    yield Beat(0, "begin")
    if script.role:
        yield Beat(0, "role")
    if script.empty:
        yield Beat(0, "empty")
    if script.comment:
        yield Beat(0, "comment")
        yield Beat(script.first_ns // 2, "comment")


def _tokens(script: Script) -> Iterator[Beat]:
    kinds: tuple[tuple[What, int], ...] = (("reasoning", script.reasoning), ("content", script.tokens))
    left = _limit(script)
    due_ns = script.first_ns
    for what, count in kinds:
        count = min(count, left)  # noqa: PLW2901 -- what is beyond the limit never happens
        left -= count
        for sent in range(0, count, script.chunk):
            yield Beat(due_ns, what, min(script.chunk, count - sent))
            due_ns += script.gap_ns


def _after(script: Script, *, usage: bool) -> Iterator[Beat]:
    if script.cut_after is not None:
        return
    end_ns = _end_ns(script)
    if script.error_after is not None:
        yield Beat(end_ns, "error")
    else:
        yield Beat(end_ns, "finish")
        if usage or script.usage:
            yield Beat(end_ns, "usage")
    yield Beat(end_ns, "done")


def _limit(script: Script) -> int:
    """How many tokens are sent at the most."""
    limits = (script.reasoning + script.tokens, script.cut_after, script.error_after)
    return min(limit for limit in limits if limit is not None)


def _count(script: Script) -> int:
    """How many frames carry tokens: reasoning and content never share one."""
    reasoning = min(script.reasoning, _limit(script))
    return -(-reasoning // script.chunk) + -(-(_limit(script) - reasoning) // script.chunk)


def _end_ns(script: Script) -> int:
    """When the last token is sent; where the script fails, when the next one would be."""
    gaps = _count(script) if script.error_after is not None else max(_count(script) - 1, 0)
    return script.first_ns + script.gap_ns * gaps


# Streams of events


def _stream(script: Script, call: Call) -> Iterator[Frame]:
    """Beats that fall due together and carry no token of their own go out with the one before them."""
    words = _DIALECTS[call.api](script, call)
    worded = ((beat, words[beat.what](beat.tokens)) for beat in beats(script, usage=call.usage) if beat.what in words)
    held: Frame | None = None
    for beat, data in worded:
        if held is not None and held.due_ns == beat.due_ns and not beat.tokens:
            held = held._replace(data=held.data + data)
        else:
            if held is not None:
                yield held
            held = Frame(beat.due_ns, data, beat.tokens)
    yield held if held is not None else Frame(script.first_ns, b"")


Words = Mapping[What, Callable[[int], bytes]]


def _chat(script: Script, call: Call) -> Words:
    def said(finish: str | None = None, **delta: object) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return _data(_object(call, "chat.completion.chunk") | {"choices": [choice]})

    # Only the first fragment of a call says which function it is.
    names = iter(({"id": f"call-{call.id}", "type": "function"},))

    def tool(tokens: int) -> bytes:
        named = next(names, {})
        function = {"name": "lookup"} if named else {}
        fragment = {"index": 0} | named | {"function": function | {"arguments": WORD * tokens}}
        return said(tool_calls=[fragment])

    return _ends(script, call, "chat.completion.chunk") | {
        "role": lambda _: said(role="assistant"),
        "empty": lambda _: said(role="assistant", content=""),
        "reasoning": lambda tokens: said(reasoning_content=WORD * tokens),
        "content": tool if script.tool else lambda tokens: said(content=WORD * tokens),
        "finish": lambda _: said("tool_calls" if script.tool else "stop"),
    }


def _completions(script: Script, call: Call) -> Words:
    def said(text: str, finish: str | None = None) -> bytes:
        choice = {"index": 0, "text": text, "finish_reason": finish}
        return _data(_object(call, "text_completion") | {"choices": [choice]})

    return _ends(script, call, "text_completion") | {
        "empty": lambda _: said(""),
        "reasoning": lambda tokens: said(WORD * tokens),
        "content": lambda tokens: said(WORD * tokens),
        "finish": lambda _: said("", "stop"),
    }


def _ends(script: Script, call: Call, kind: str) -> dict[What, Callable[[int], bytes]]:
    """What both older APIs have in common: comments, the last frames, and an error inside the stream."""
    return {
        "comment": _comment,
        "usage": lambda _: _data(_object(call, kind) | {"choices": [], "usage": _usage(script)}),
        "error": lambda _: b"data: " + error_body(500, "the script says so") + b"\n\n",
        "done": lambda _: b"data: [DONE]\n\n",
    }


def _responses(script: Script, call: Call) -> Words:
    numbers = iter(range(2**31))

    def event(kind: str, **fields: object) -> bytes:
        body = {"type": kind, "sequence_number": next(numbers)} | fields
        return b"event: " + kind.encode() + b"\ndata: " + _encode(body) + b"\n\n"

    def state(status: str, **more: object) -> bytes:
        return event(f"response.{status}", response=_response(call, status) | more)

    def item_event(kind: str, **fields: object) -> bytes:
        return event(kind, item_id=f"item-{call.id}", output_index=0, **fields)

    item = _item(script, call, "")
    delta = "response.function_call_arguments.delta" if script.tool else "response.output_text.delta"
    return {
        "comment": _comment,
        "begin": lambda _: (
            event("response.created", response=_response(call, "in_progress"))
            + event("response.in_progress", response=_response(call, "in_progress"))
            + event("response.output_item.added", output_index=0, item=item)
        ),
        "reasoning": lambda tokens: item_event("response.reasoning_text.delta", delta=WORD * tokens),
        "content": lambda tokens: item_event(delta, delta=WORD * tokens),
        "error": lambda _: state("failed", error={"code": "server_error", "message": "the script says so"}),
        "finish": lambda _: (
            event("response.output_item.done", output_index=0, item=_item(script, call, WORD * script.tokens))
            + state("completed", output=[_item(script, call, WORD * script.tokens)], usage=_response_usage(script))
        ),
    }


_DIALECTS: Mapping[Api, Callable[[Script, Call], Words]] = {
    "chat": _chat,
    "completions": _completions,
    "responses": _responses,
}


def _comment(_: int) -> bytes:
    return b": keep-alive\n\n"


def _data(value: object) -> bytes:
    return b"data: " + _encode(value) + b"\n\n"


# Whole answers


def _whole(script: Script, call: Call) -> Frame:
    status = refused(script, call)
    if status is not None:
        due_ns = script.first_ns if script.status is not None else _end_ns(script)
        return Frame(due_ns, error_body(status, "the script says so"))
    if call.api == "embeddings":
        return Frame(script.first_ns, _encode(_embeddings(call)))
    body = _encode(_BODIES[call.api](script, call))
    # Cut after a number of tokens: a part of the body, so that the length that was promised is not kept.
    whole = script.reasoning + script.tokens
    kept = body[: len(body) * _limit(script) // (whole + 1)] if script.cut_after is not None else body
    return Frame(_end_ns(script), kept, _limit(script))


def whole_length(script: Script, call: Call) -> int | None:
    """The length that a whole answer promises where a cut does not keep it; None where the frame's own is right."""
    if not is_cut(script, call) or call.api not in _BODIES:
        return None
    return len(_encode(_BODIES[call.api](script, call)))


def _chat_body(script: Script, call: Call) -> dict[str, object]:
    text = WORD * script.tokens
    function = {"name": "lookup", "arguments": text}
    message: dict[str, object] = {"role": "assistant", "content": None if script.tool else text}
    if script.tool:
        message["tool_calls"] = [{"id": f"call-{call.id}", "type": "function", "function": function}]
    if script.reasoning:
        message["reasoning_content"] = WORD * script.reasoning
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if script.tool else "stop"}
    return _object(call, "chat.completion") | {"choices": [choice], "usage": _usage(script)}


def _completions_body(script: Script, call: Call) -> dict[str, object]:
    choice = {"index": 0, "text": WORD * (script.reasoning + script.tokens), "finish_reason": "stop"}
    return _object(call, "text_completion") | {"choices": [choice], "usage": _usage(script)}


def _responses_body(script: Script, call: Call) -> dict[str, object]:
    item = _item(script, call, WORD * script.tokens)
    return _response(call, "completed") | {"output": [item], "usage": _response_usage(script)}


_BODIES: Mapping[Api, Callable[[Script, Call], dict[str, object]]] = {
    "chat": _chat_body,
    "completions": _completions_body,
    "responses": _responses_body,
}


def _embeddings(call: Call) -> dict[str, object]:
    data = [{"object": "embedding", "index": index, "embedding": [0.5, -0.5]} for index in range(call.inputs)]
    usage = {"prompt_tokens": PROMPT_TOKENS, "total_tokens": PROMPT_TOKENS}
    return {"object": "list", "model": call.model, "data": data, "usage": usage}


def _object(call: Call, kind: str) -> dict[str, object]:
    return {"id": call.id, "object": kind, "created": CREATED_S, "model": call.model}


def _response(call: Call, status: str) -> dict[str, object]:
    return {"id": call.id, "object": "response", "created_at": CREATED_S, "model": call.model, "status": status}


def _item(script: Script, call: Call, text: str) -> dict[str, object]:
    status = "completed" if text else "in_progress"
    if script.tool:
        call_id = f"call-{call.id}"
        kind: dict[str, object] = {"type": "function_call", "call_id": call_id, "name": "lookup", "arguments": text}
    else:
        content = [{"type": "output_text", "text": text, "annotations": []}] if text else []
        kind = {"type": "message", "role": "assistant", "content": content}
    return {"id": f"item-{call.id}", "status": status} | kind


def _usage(script: Script) -> dict[str, int]:
    said = script.reasoning + script.tokens
    return {"prompt_tokens": PROMPT_TOKENS, "completion_tokens": said, "total_tokens": PROMPT_TOKENS + said}


def _response_usage(script: Script) -> dict[str, int]:
    said = script.reasoning + script.tokens
    return {"input_tokens": PROMPT_TOKENS, "output_tokens": said, "total_tokens": PROMPT_TOKENS + said}


# Speech


def _speech(script: Script) -> Iterator[Frame]:
    """A WAV file; each token is 20 ms of sound, and reasoning is not heard. The header goes with the first."""
    quiet = script.quiet_ns * SAMPLE_RATE // NS_PER_S
    head = _wav_head(script.tokens * SAMPLES_PER_TOKEN)
    done = 0
    for beat in _tokens(script):
        if beat.what == "content":
            samples = beat.tokens * SAMPLES_PER_TOKEN
            yield Frame(beat.due_ns, head + _sound(done, samples, quiet), beat.tokens)
            head, done = b"", done + samples
    if not done:
        yield Frame(script.first_ns, head)


def _sound(start: int, samples: int, quiet: int) -> bytes:
    silent = min(max(quiet - start, 0), samples)
    loud = samples - silent
    return b"\0\0" * silent + (_LOUD * (loud // 2 + 1))[: 2 * loud]


def _wav_head(samples: int) -> bytes:
    size = 2 * samples
    numbers = ((16, 4), (1, 2), (1, 2), (SAMPLE_RATE, 4), (2 * SAMPLE_RATE, 4), (2, 2), (16, 2))
    layout = b"".join(value.to_bytes(width, "little") for value, width in numbers)
    return b"RIFF" + (36 + size).to_bytes(4, "little") + b"WAVEfmt " + layout + b"data" + size.to_bytes(4, "little")
