"""What every codec offers, and what it yields."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from zlib import crc32

from outlay.interaction import Interaction, Note
from outlay.load import Load
from outlay.trace import TraceSpan

# A codec yields whole interactions, or spans to be assembled into them, the load that they came under, and notes on
# what it could not read.
Item = Interaction | TraceSpan | Load | Note


@dataclass(frozen=True, slots=True)
class Shard:
    """One worker's part of an input that `of` workers read together: every trace and record belongs to exactly one."""

    index: int = 0
    of: int = 1

    def holds(self, key: str) -> bool:
        """Whether a trace or record with this id is this worker's."""
        return self.of == 1 or crc32(key.encode()) % self.of == self.index


class FormatError(ValueError):
    """The bytes are not what this codec reads; the text says what was found and what would be expected."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonCodec:
    """One JSON format. `recognises` looks at the first decoded value of the input, whatever it is, and never raises.

    `parse` takes the bytes of one JSON value (a line, or a whole file) and the attribute keys worth keeping. It yields
    what it can read; a record it cannot read becomes a `dropped-record` note and the rest goes on. It raises
    FormatError, and nothing else, when the value as a whole is not this format. `closing` hands on all that was parsed
    of one input, and adds what only the whole of it shows.
    """

    name: str
    title: str
    recognises: Callable[[object], bool]
    parse: Callable[[bytes, frozenset[str]], Iterator[Item]]
    closing: Callable[[Iterator[Item]], Iterator[Item]] = iter
