"""Server-sent events out of reads that may be cut anywhere, each with the instant of the read that completed it.

Framing as the HTML standard has it ("Interpreting an event stream"): lines end in LF, CR or CRLF, a blank line ends an
event, a line that begins with a colon is a comment, and an event without data, or without its blank line, is none.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

_BOM = b"\xef\xbb\xbf"


class Event(NamedTuple):
    """One event. `name` is None where the stream gave none; `data` holds its lines, joined by LF."""

    at_ns: int
    name: str | None
    data: bytes


def events(reads: Iterable[tuple[int, bytes]]) -> Iterator[Event]:
    """The complete events of a stream, in order. Any bytes are taken; what is no field of an event is passed over."""
    name: str | None = None
    data: list[bytes] = []
    for at_ns, line in _lines(reads):
        if not line:
            if data:
                yield Event(at_ns, name, data[0] if len(data) == 1 else b"\n".join(data))
                data = []
            name = None
        elif line.startswith(b"data"):
            value = _value(line, b"data")
            if value is not None:
                data.append(value)
        elif line.startswith(b"event"):
            value = _value(line, b"event")
            name = name if value is None else value.decode("utf-8", "replace")


def _value(line: bytes, field: bytes) -> bytes | None:
    """What the field says; None where the line is of a field whose name only begins like it."""
    rest = line[len(field) :]
    if not rest:
        return b""
    if not rest.startswith(b":"):
        return None
    return rest[2:] if rest.startswith(b": ") else rest[1:]


def _lines(reads: Iterable[tuple[int, bytes]]) -> Iterator[tuple[int, bytes]]:
    """Complete lines without their ends; the instant is that of the read with the first byte of the end."""
    begun: list[bytes] = []  # a line in pieces: joined once, so that its length does not count squared
    after_cr, first = False, True
    for at_ns, read in reads:
        # A CR ends its line at once, and a LF that comes with the next read is still part of that end.
        piece = read[1:] if after_cr and read.startswith(b"\n") else read
        after_cr = read.endswith(b"\r") if read else after_cr
        lines = piece.splitlines()
        rest = lines.pop() if lines and not piece.endswith((b"\n", b"\r")) else b""
        if lines:
            lines[0] = b"".join((*begun, lines[0]))
            begun.clear()
            if first:
                lines[0] = lines[0].removeprefix(_BOM)
                first = False
        if rest:
            begun.append(rest)
        for line in lines:
            yield at_ns, line
