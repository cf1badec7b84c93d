"""Frames of a server-sent stream: cut where they end, and looked at for the first content, an error, and the end.

An OpenAI stream succeeds at its first visible content or tool call, not at a role or a comment; it may hold an error
inside a 200; and it is whole only after a finish reason, `[DONE]`, or the last event of the Responses API.
"""

from typing import Any

import msgspec

_LAST_EVENTS = ("response.completed", "response.incomplete")
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
        for line in frames.splitlines():
            if line.startswith(b"data:"):
                self._event(line[5:].strip())

    def _event(self, data: bytes) -> None:
        if data == b"[DONE]":
            self.ended = True
            return
        try:
            event = msgspec.json.decode(data)
        except msgspec.DecodeError:
            self.malformed |= bool(data)
            return
        if not isinstance(event, dict):
            self.malformed = True
            return
        kind, error = event.get("type"), event.get("error")
        if error or kind in ("response.failed", "error"):
            self.failed = self.failed or _words(error or event)
            return
        choices = event.get("choices")
        choices = [each for each in choices if isinstance(each, dict)] if isinstance(choices, list) else []
        self.ended |= kind in _LAST_EVENTS or any(choice.get("finish_reason") for choice in choices)
        if not self.content:
            self.content = _is_delta(kind) or any(_is_visible(choice) for choice in choices)


def _words(error: Any) -> str:
    message = error.get("message") if isinstance(error, dict) else error
    return str(message)[:200]


def _is_delta(kind: object) -> bool:
    return isinstance(kind, str) and kind.endswith(".delta") and "reasoning" not in kind


def _is_visible(choice: dict[str, Any]) -> bool:
    delta = choice.get("delta")
    return bool(choice.get("text")) or (isinstance(delta, dict) and any(delta.get(key) for key in _VISIBLE))
