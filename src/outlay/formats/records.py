"""Other people's JSON as typed records: the one place where what cannot be read becomes a FormatError or a note."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Annotated, TypeVar, get_args

import msgspec

from outlay import units
from outlay.formats.codec import FormatError
from outlay.interaction import Kind, Note

T = TypeVar("T")

# Producers write times as integers, floats and digits in quotes. Exponents in quotes are refused: nobody needs them,
# and `1e900000` would take seconds to become an integer.
Number = int | float | Annotated[str, msgspec.Meta(pattern=r"^-?[0-9]{1,20}(\.[0-9]{1,20})?$")]

# Everything that msgspec, the units and the integers raise on hostile input.
_READ_ERRORS = (msgspec.MsgspecError, ValueError, ArithmeticError, RecursionError)

# W3C trace context calls this id invalid; several exporters write it where a root has no parent.
_INVALID_ID = "0" * 16

_KINDS: Mapping[str, Kind] = {name: name for name in get_args(Kind)}


class Unreadable(ValueError):  # noqa: N818 -- read beside `raise`, it says of the record what is the matter with it
    """A record that cannot be used. The text says why and quotes nothing from the record."""


def whole(read: Callable[[bytes], T], raw: bytes, *, expected: str) -> T:
    """What `read` makes of a whole JSON value. Raises FormatError, and nothing else, when it cannot."""
    try:
        return read(raw)
    except _READ_ERRORS as error:
        raise FormatError(f"expected {expected}; {_reason(error)}") from None


def each(raws: Iterable[bytes], read: Callable[[bytes], T], *, place: str) -> Iterator[T | Note]:
    """One item per record, in order: what `read` makes of it, or a note that names its place and the reason.

    Raises FormatError when `read` does: the record showed that the whole value is of another format.
    """
    for index, raw in enumerate(raws):
        try:
            item: T | Note = read(raw)
        except FormatError:
            raise
        except _READ_ERRORS as error:
            item = Note(kind="dropped-record", text=f"{place} {index}: {_reason(error)}")
        yield item


def identifier(text: str | None) -> str | None:
    """An id in lower case without `0x`, leading zeros kept. None when there is none."""
    plain = (text or "").strip().lower().removeprefix("0x")
    return None if plain in ("", _INVALID_ID) else plain


def required(text: str | None, what: str) -> str:
    """As `identifier`, for the ids without which a span is nobody's. Raises Unreadable when there is none."""
    found = identifier(text)
    if found is None:
        raise Unreadable(f"it has no {what}")
    return found


def end_ns(start_ns: int, duration_us: Number | None) -> int | None:
    """When a span ended that took so many microseconds; None when its producer did not say."""
    return None if duration_us is None else units.scaled(start_ns + units.from_us(duration_us), 1)


def rate(value: float | None) -> float | None:
    """Requests per second; None when it is none, such as the 0 that several tools write for an unknown one."""
    return value if value is not None and 1 / units.NS_PER_S <= value <= units.NS_PER_S else None


def kind(text: object) -> Kind:
    """The kind that `SERVER`, `SPAN_KIND_SERVER` or `SpanKind.SERVER` names; `internal` when it names none."""
    return _KINDS.get(str(text).lower().rpartition(".")[2].removeprefix("span_kind_"), "internal")


def _reason(error: Exception) -> str:
    # msgspec names types, paths and byte positions, never values; other texts may quote what they could not read.
    if isinstance(error, Unreadable | msgspec.MsgspecError):
        return str(error)
    return "it is nested too deep" if isinstance(error, RecursionError) else "a time in it cannot be read"
