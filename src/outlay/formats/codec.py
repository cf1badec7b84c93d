"""What every codec offers, and what it yields."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from outlay.interaction import Interaction, Note
from outlay.trace import TraceSpan

# A codec yields whole interactions, or spans to be assembled into them, and notes on what it could not read.
Item = Interaction | TraceSpan | Note


class FormatError(ValueError):
    """The bytes are not what this codec reads; the text says what was found and what would be expected."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonCodec:
    """One JSON format. `recognises` looks at the first decoded value of the input, whatever it is, and never raises.

    `parse` takes the bytes of one JSON value (a line, or a whole file) and the attribute keys worth keeping. It yields
    what it can read; a record it cannot read becomes a `dropped-record` note and the rest goes on. It raises
    FormatError, and nothing else, when the value as a whole is not this format.
    """

    name: str
    title: str
    recognises: Callable[[object], bool]
    parse: Callable[[bytes, frozenset[str]], Iterator[Item]]
