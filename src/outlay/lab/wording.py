"""How each API that streams words the beats of an answer. Pure."""

from base64 import b64encode
from collections.abc import Callable, Mapping
from itertools import count

from outlay.lab.beats import Api, Call, What
from outlay.lab.bodies import (
    WORD,
    completion,
    encode,
    error_body,
    item,
    response,
    response_usage,
    transcript_usage,
    usage,
)
from outlay.lab.script import Script
from outlay.lab.sound import sound

Words = Mapping[What, Callable[[int], bytes]]


def _chat(script: Script, call: Call) -> Words:
    def said(finish: str | None = None, **delta: object) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return _data(completion(call, "chat.completion.chunk") | {"choices": [choice]})

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
        return _data(completion(call, "text_completion") | {"choices": [choice]})

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
        "usage": lambda _: _data(completion(call, kind) | {"choices": [], "usage": usage(script)}),
        "error": _error,
        "done": lambda _: b"data: [DONE]\n\n",
    }


def _responses(script: Script, call: Call) -> Words:
    numbers = count()

    def event(kind: str, **fields: object) -> bytes:
        body = {"type": kind, "sequence_number": next(numbers)} | fields
        return b"event: " + kind.encode() + b"\ndata: " + encode(body) + b"\n\n"

    def state(kind: str, status: str, **more: object) -> bytes:
        return event(f"response.{kind}", response=response(call, status) | more)

    def item_event(kind: str, **fields: object) -> bytes:
        return event(kind, item_id=f"item-{call.id}", output_index=0, **fields)

    whole = item(script, call, WORD * script.tokens)
    delta = "response.function_call_arguments.delta" if script.tool else "response.output_text.delta"
    return {
        "comment": _comment,
        "begin": lambda _: (
            state("created", "in_progress")
            + state("in_progress", "in_progress")
            + event("response.output_item.added", output_index=0, item=item(script, call, ""))
        ),
        "reasoning": lambda tokens: item_event("response.reasoning_text.delta", delta=WORD * tokens),
        "content": lambda tokens: item_event(delta, delta=WORD * tokens),
        "error": lambda _: state("failed", "failed", error={"code": "server_error", "message": "the script says so"}),
        "finish": lambda _: (
            event("response.output_item.done", output_index=0, item=whole)
            + state("completed", "completed", output=[whole], usage=response_usage(script))
        ),
    }


def _transcriptions(script: Script, _call: Call) -> Words:
    text = WORD * script.tokens
    return {
        "comment": _comment,
        "content": lambda tokens: _data({"type": "transcript.text.delta", "delta": WORD * tokens}),
        "error": _error,
        "finish": lambda _: _data({"type": "transcript.text.done", "text": text, "usage": transcript_usage(script)}),
    }


def _realtime(script: Script, call: Call) -> Words:
    """Events of a WebSocket, a line each."""
    numbers = count(1)
    part = "output_audio" if call.audio else "output_text"
    kind = "function_call_arguments" if script.tool else part

    def event(kind: str, **fields: object) -> bytes:
        return encode({"type": kind, "event_id": f"event-{call.id}-{next(numbers)}"} | fields) + b"\n"

    def place(**fields: object) -> dict[str, object]:
        index = {} if script.tool else {"content_index": 0}
        return {"response_id": call.id, "item_id": f"item-{call.id}", "output_index": 0} | index | fields

    def state(kind: str, status: str, **more: object) -> bytes:
        head = {"id": call.id, "object": "realtime.response", "status": status}
        return event(kind, response=head | {"output_modalities": ["audio" if call.audio else "text"]} | more)

    def item_event(kind: str, text: str) -> bytes:
        output = item(script, call, text, part)
        return event(f"response.output_item.{kind}", response_id=call.id, output_index=0, item=output)

    said = count()  # samples are numbered, since silence ends after so many

    def delta(tokens: int) -> bytes:
        if kind != "output_audio":
            return event(f"response.{kind}.delta", **place(delta=WORD * tokens))
        start = next(said) * script.chunk
        return event(f"response.{kind}.delta", **place(delta=b64encode(sound(script, start, tokens)).decode()))

    text = WORD * script.tokens
    last = {"output_audio": {}, "output_text": {"text": text}}.get(kind, {"arguments": text})
    return {
        "begin": lambda _: state("response.created", "in_progress", output=[]) + item_event("added", ""),
        "content": delta,
        "error": lambda _: state("response.done", "failed", status_details=_FAILED, output=[]),
        "finish": lambda _: (
            event(f"response.{kind}.done", **place(**last))
            + item_event("done", text)
            + state("response.done", "completed", output=[item(script, call, text, part)], usage=response_usage(script))
        ),
    }


WORDINGS: Mapping[Api, Callable[[Script, Call], Words]] = {
    "chat": _chat,
    "completions": _completions,
    "responses": _responses,
    "transcriptions": _transcriptions,
    "realtime": _realtime,
}

_FAILED = {"type": "failed", "error": {"type": "server_error", "code": None, "message": "the script says so"}}


def _error(_: int) -> bytes:
    return b"data: " + error_body(500, "the script says so") + b"\n\n"


def _comment(_: int) -> bytes:
    return b": keep-alive\n\n"


def _data(value: object) -> bytes:
    return b"data: " + encode(value) + b"\n\n"
