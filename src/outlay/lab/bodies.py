"""The JSON of answers: whole bodies, and the objects that streams hold as well. Pure."""

from collections.abc import Callable, Mapping

import msgspec

from outlay.lab.beats import Api, Call
from outlay.lab.script import Script

WORD = " tok"
CREATED_S = 1_700_000_000  # fixed, so that equal requests get equal bytes
PROMPT_TOKENS = 8

encode = msgspec.json.encode


def error_body(status: int, message: str) -> bytes:
    """An error as OpenAI words it."""
    return encode({"error": {"message": message, "type": "mock_error", "code": status}})


def _chat(script: Script, call: Call) -> dict[str, object]:
    text = WORD * script.tokens
    function = {"name": "lookup", "arguments": text}
    message: dict[str, object] = {"role": "assistant", "content": None if script.tool else text}
    if script.tool:
        message["tool_calls"] = [{"id": f"call-{call.id}", "type": "function", "function": function}]
    if script.reasoning:
        message["reasoning_content"] = WORD * script.reasoning
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if script.tool else "stop"}
    return completion(call, "chat.completion") | {"choices": [choice], "usage": usage(script)}


def _completions(script: Script, call: Call) -> dict[str, object]:
    choice = {"index": 0, "text": WORD * (script.reasoning + script.tokens), "finish_reason": "stop"}
    return completion(call, "text_completion") | {"choices": [choice], "usage": usage(script)}


def _responses(script: Script, call: Call) -> dict[str, object]:
    output = [item(script, call, WORD * script.tokens)]
    return response(call, "completed") | {"output": output, "usage": response_usage(script)}


def _embeddings(_script: Script, call: Call) -> dict[str, object]:
    data = [{"object": "embedding", "index": index, "embedding": [0.5, -0.5]} for index in range(call.inputs)]
    counts = {"prompt_tokens": PROMPT_TOKENS, "total_tokens": PROMPT_TOKENS}
    return {"object": "list", "model": call.model, "data": data, "usage": counts}


def _transcriptions(script: Script, _call: Call) -> dict[str, object]:
    return {"text": WORD * script.tokens, "usage": transcript_usage(script)}


BODIES: Mapping[Api, Callable[[Script, Call], dict[str, object]]] = {
    "chat": _chat,
    "completions": _completions,
    "responses": _responses,
    "embeddings": _embeddings,
    "transcriptions": _transcriptions,
}


# Objects that streams hold as well


def completion(call: Call, kind: str) -> dict[str, object]:
    """The head of an answer of the two older APIs."""
    return {"id": call.id, "object": kind, "created": CREATED_S, "model": call.model}


def response(call: Call, status: str) -> dict[str, object]:
    """A response without its output."""
    return {"id": call.id, "object": "response", "created_at": CREATED_S, "model": call.model, "status": status}


def item(script: Script, call: Call, text: str, part: str = "output_text") -> dict[str, object]:
    """What a response puts out: a message with one part, or the call of a tool; without text it has only begun."""
    status = "completed" if text else "in_progress"
    if script.tool:
        call_id = f"call-{call.id}"
        kind: dict[str, object] = {"type": "function_call", "call_id": call_id, "name": "lookup", "arguments": text}
    else:
        key = "transcript" if part == "output_audio" else "text"
        content = [{"type": part, key: text, "annotations": []}] if text else []
        kind = {"type": "message", "role": "assistant", "content": content}
    return {"id": f"item-{call.id}", "status": status} | kind


def usage(script: Script) -> dict[str, int]:
    """The tokens of an answer, as the two older APIs count them."""
    said = script.reasoning + script.tokens
    return {"prompt_tokens": PROMPT_TOKENS, "completion_tokens": said, "total_tokens": PROMPT_TOKENS + said}


def response_usage(script: Script) -> dict[str, int]:
    """The tokens of a response."""
    said = script.reasoning + script.tokens
    return {"input_tokens": PROMPT_TOKENS, "output_tokens": said, "total_tokens": PROMPT_TOKENS + said}


def transcript_usage(script: Script) -> dict[str, object]:
    """The tokens of a transcript, in which nothing is reasoned."""
    total = PROMPT_TOKENS + script.tokens
    return {"type": "tokens", "input_tokens": PROMPT_TOKENS, "output_tokens": script.tokens, "total_tokens": total}
