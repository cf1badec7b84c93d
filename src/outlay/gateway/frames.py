"""Frames of a server-sent stream: cut where they end, and looked at for the first content, an error, and the end.

An OpenAI stream succeeds at its first visible content or tool call, not at a role or a comment; it may hold an error
inside a 200; and it is whole only after a finish reason, `[DONE]`, or the last event of the Responses API.
"""

from typing import Any

import msgspec

# None of these can stand inside the text of an answer, where quotes and line ends are escaped.
_ENDS = (
    b'"finish_reason":"',
    b'"finish_reason": "',
    b'"type":"response.completed"',
    b'"type": "response.completed"',
    b'"type":"response.incomplete"',
    b'"type": "response.incomplete"',
)
_LATER_DONE = b"\n\ndata: [DONE]"
_DONE = (b"data: [DONE]", b"data:[DONE]")
_VISIBLE = ("content", "tool_calls", "function_call", "refusal", "audio")


class Frames:
    """The complete frames of one stream, as bytes, in the order they came."""

    __slots__ = ("_tail", "content", "ended", "failed", "malformed")

    def __init__(self) -> None:
        self._tail = b""
        self.content = self.ended = self.malformed = False
        self.failed: str | None = None

    def feed(self, data: bytes) -> bytes:
        """What is complete by now, up to and with the last blank line; the rest waits."""
        whole = self._tail + data if self._tail else data
        if whole.endswith((b"\n\n", b"\r\n\r\n")):
            self._tail = b""
        else:
            short, long = whole.rfind(b"\n\n"), whole.rfind(b"\r\n\r\n")
            end = max(short + 2 if short >= 0 else 0, long + 4 if long >= 0 else 0)
            whole, self._tail = whole[:end], whole[end:]
        if whole:
            self._look(whole)
        return whole

    @property
    def unfinished(self) -> int:
        """Bytes of a frame that has not ended."""
        return len(self._tail)

    def _look(self, frames: bytes) -> None:
        if not self.ended:
            self.ended = (
                any(end in frames for end in _ENDS) or frames.startswith(_DONE) or b"\n\ndata: [DONE]" in frames
            )
        if self.content and b'"error"' not in frames and b"response.failed" not in frames:
            return
        for line in frames.splitlines():
            if line.startswith(b"data:"):
                self._event(line[5:].strip())

    def _event(self, data: bytes) -> None:
        if data == b"[DONE]" or not data:
            self.ended |= bool(data)
            return
        try:
            event = msgspec.json.decode(data)
        except msgspec.DecodeError:
            self.malformed = True
            return
        if not isinstance(event, dict):
            self.malformed = True
            return
        error = event.get("error")
        if error or event.get("type") in ("response.failed", "error"):
            self.failed = self.failed or _words(error or event)
        elif not self.content:
            self.content = _is_content(event)


def _words(error: Any) -> str:
    message = error.get("message") if isinstance(error, dict) else error
    return str(message)[:200]


def _is_content(event: dict[str, Any]) -> bool:
    kind = event.get("type")
    if isinstance(kind, str):
        return kind.endswith(".delta") and "reasoning" not in kind
    choices = event.get("choices")
    for choice in choices if isinstance(choices, list) else ():
        if not isinstance(choice, dict):
            continue
        delta = choice.get("delta")
        if choice.get("text") or (isinstance(delta, dict) and any(delta.get(key) for key in _VISIBLE)):
            return True
    return False
