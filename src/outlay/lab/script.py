"""How a reference model behaves, written in its name: `mock-t20-i5-n32` answers its first token after 20 ms.

A name is `mock` and parts joined by `-`, in any order, each at most once. Durations are milliseconds, decimals allowed.
"""

import re
from dataclasses import dataclass
from decimal import Decimal

from outlay.units import NS_PER_MS, from_ms

MAX_TOKENS = 10_000

_MS = r"(\d{1,7}(?:\.\d{1,6})?)"
_COUNT = r"(\d{1,5})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """One behaviour. Times count from the instant a request is taken up; None and False mean that it does not happen.

    The first token is due after `first_ns` and each further frame `gap_ns` later, with `chunk` tokens in a frame.
    """

    first_ns: int = 0
    gap_ns: int = 0
    tokens: int = 16
    reasoning: int = 0
    chunk: int = 1
    quiet_ns: int = 0
    stall_ns: int = 0
    stall_every_ns: int | None = None
    cut_after: int | None = None
    error_after: int | None = None
    status: int | None = None
    slots: int | None = None
    role: bool = False
    empty: bool = False
    comment: bool = False
    usage: bool = False
    tool: bool = False
    tgi: bool = False

    def __post_init__(self) -> None:
        """Raises ValueError for a behaviour that cannot be played."""
        if not 1 <= self.tokens <= MAX_TOKENS or not 0 <= self.reasoning <= MAX_TOKENS:
            raise ValueError(f"an answer has 1 to {MAX_TOKENS} tokens, and as many of reasoning at the most")
        if self.chunk < 1 or self.slots == 0:
            raise ValueError("a frame holds at least one token, and a server at least one slot")
        if self.status is not None and not 400 <= self.status <= 599:
            raise ValueError("an error status lies from 400 to 599")
        if self.stall_every_ns is not None and self.stall_ns >= self.stall_every_ns:
            raise ValueError("a stall must be shorter than the time from one to the next")
        if self.cut_after is not None and self.error_after is not None:
            raise ValueError("an answer is cut or fails, not both")


@dataclass(frozen=True, slots=True)
class Part:
    """One kind of part: its spelling (`{}` for a number), the fields it fills, and what it does, for people."""

    spelling: str
    fields: tuple[str, ...]
    meaning: str

    def pattern(self) -> re.Pattern[str]:
        numbers = iter(_MS if field.endswith("_ns") else _COUNT for field in self.fields)
        return re.compile("".join(next(numbers) if piece == "{}" else piece for piece in self._pieces()), re.ASCII)

    def _pieces(self) -> list[str]:
        return re.split(r"(\{\})", self.spelling)


PARTS = (
    Part("t{}", ("first_ns",), "the first token after so many ms; 0 when not given"),
    Part("i{}", ("gap_ns",), "then a frame every so many ms; 0 when not given"),
    Part("n{}", ("tokens",), "so many tokens; 16 when not given"),
    Part("r{}", ("reasoning",), "so many reasoning tokens before them, on the same beat"),
    Part("k{}", ("chunk",), "so many tokens in a frame; 1 when not given"),
    Part("q{}", ("quiet_ns",), "speech begins with so many ms of silence"),
    Part("s{}@{}", ("stall_ns", "stall_every_ns"), "the server stands still for the last A ms of every B ms"),
    Part("cut{}", ("cut_after",), "the connection is cut after so many tokens"),
    Part("err{}", ("error_after",), "an error frame instead of the next token, after so many"),
    Part("e{}", ("status",), "no answer but this error status, with `retry-after: 1` where it is 429 or 503"),
    Part("slots{}", ("slots",), "only so many requests at once; the others wait in order of arrival"),
    Part("role", ("role",), "a frame with the role alone, at once"),
    Part("empty", ("empty",), "a frame with empty content, at once"),
    Part("comment", ("comment",), "a comment line at once, and another half-way to the first token"),
    Part("usage", ("usage",), "a last frame with the usage alone, as `stream_options.include_usage` asks for"),
    Part("tool", ("tool",), "the tokens are the arguments of a tool call"),
    Part("tgi", ("tgi",), "a whole answer tells its times in the headers of Text Generation Inference as well"),
)
_READERS = tuple((part, part.pattern()) for part in PARTS)


def parse(name: str) -> Script:
    """The behaviour that a model name spells. Raises ValueError, for people, when it spells none."""
    head, *parts = name.split("-")
    if head != "mock" or len(name) > 256:
        raise ValueError("the model is not of the form mock-t20-i5-n32")
    given: dict[str, int | bool] = {}
    for text in parts:
        found = _fields(text)
        if found.keys() & given.keys():
            raise ValueError(f"part {text!r} says again what an earlier part said")
        given |= found
    return Script(**given)  # type: ignore[arg-type] # PARTS pairs each field with the reader of its type


def spell(script: Script) -> str:
    """The shortest name that `parse` reads as this behaviour."""
    return "-".join(["mock", *(_spelt(part, script) for part in PARTS if _differs(part, script))])


def after_stall(script: Script, at_ns: int) -> int:
    """When what is due at `at_ns`, counted from the server's start, can be done: then, or at the end of a stall."""
    if script.stall_every_ns is None:
        return at_ns
    left_ns = script.stall_every_ns - at_ns % script.stall_every_ns
    return at_ns + left_ns if left_ns <= script.stall_ns else at_ns


def _fields(text: str) -> dict[str, int | bool]:
    for part, pattern in _READERS:
        match = pattern.fullmatch(text)
        if match:
            values = match.groups() or (None,)
            return {field: _value(field, value) for field, value in zip(part.fields, values, strict=True)}
    known = ", ".join(part.spelling.replace("{}", "N") for part in PARTS)
    raise ValueError(f"part {text[:40]!r} is unknown; parts are {known}")


def _value(field: str, text: str | None) -> int | bool:
    if text is None:
        return True
    return from_ms(text) if field.endswith("_ns") else int(text)


def _differs(part: Part, script: Script) -> bool:
    return any(getattr(script, field) != getattr(_PLAIN, field) for field in part.fields)


def _spelt(part: Part, script: Script) -> str:
    values = (getattr(script, field) for field in part.fields)
    return part.spelling.format(
        *(_ms(value) if field.endswith("_ns") else value for field, value in zip(part.fields, values, strict=True))
    )


def _ms(value_ns: int) -> str:
    return f"{Decimal(value_ns) / NS_PER_MS:f}"


_PLAIN = Script()
