"""A script as a row of beats: what happens in an answer and when, the same for every API. Pure: the server plays it."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Literal, NamedTuple

from outlay.lab.script import Script

Api = Literal["chat", "completions", "responses", "embeddings", "speech", "transcriptions", "realtime"]
What = Literal["comment", "begin", "role", "empty", "reasoning", "content", "error", "finish", "usage", "done"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """What was asked: which API, by which id, as a stream or whole, with a usage frame, and as sound."""

    api: Api
    id: str
    model: str
    stream: bool = False
    usage: bool = False
    audio: bool = False
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


def beats(script: Script, *, usage: bool = False) -> Iterator[Beat]:
    """What happens in a stream, in order of time."""
    return chain(
        sorted(_before(script), key=lambda beat: beat.due_ns), token_beats(script), _after(script, usage=usage)
    )


def token_beats(script: Script) -> Iterator[Beat]:
    """The beats that carry tokens, in order of time: reasoning, then content."""
    kinds: tuple[tuple[What, int], ...] = (("reasoning", script.reasoning), ("content", script.tokens))
    left = limit(script)
    due_ns = script.first_ns
    for what, count in kinds:
        count = min(count, left)  # noqa: PLW2901 -- what is beyond the limit never happens
        left -= count
        for sent in range(0, count, script.chunk):
            yield Beat(due_ns, what, min(script.chunk, count - sent))
            due_ns += script.gap_ns


def limit(script: Script) -> int:
    """How many tokens are sent at the most."""
    limits = (script.reasoning + script.tokens, script.cut_after, script.error_after)
    return min(limit for limit in limits if limit is not None)


def end_ns(script: Script) -> int:
    """When the last token is sent; where the script fails, when the next one would be."""
    gaps = _count(script) if script.error_after is not None else max(_count(script) - 1, 0)
    return script.first_ns + script.gap_ns * gaps


def _before(script: Script) -> Iterator[Beat]:
    yield Beat(0, "begin")
    if script.role:
        yield Beat(0, "role")
    if script.empty:
        yield Beat(0, "empty")
    if script.comment:
        yield Beat(0, "comment")
        yield Beat(script.first_ns // 2, "comment")


def _after(script: Script, *, usage: bool) -> Iterator[Beat]:
    if script.cut_after is not None:
        return
    last_ns = end_ns(script)
    if script.error_after is not None:
        yield Beat(last_ns, "error")
    else:
        yield Beat(last_ns, "finish")
        if usage or script.usage:
            yield Beat(last_ns, "usage")
    yield Beat(last_ns, "done")


def _count(script: Script) -> int:
    """How many frames carry tokens: reasoning and content never share one."""
    reasoning = min(script.reasoning, limit(script))
    return -(-reasoning // script.chunk) + -(-(limit(script) - reasoning) // script.chunk)
