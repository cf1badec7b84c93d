"""Outlay's own log: one JSON object a line, its first key `outlay: "interaction/1"` or `outlay: "load/1"`.

The rest of a line are the fields of `interaction.Interaction`, `Mark` and `Span`, or of `load.Load` and what is in it,
under their own names, so that reading is one typed decode. Old versions stay readable; a newer one is refused by name.
"""

from collections.abc import Iterable, Iterator

import msgspec

from outlay.formats.codec import FormatError, Item
from outlay.interaction import Interaction, Note
from outlay.load import Load
from outlay.stages import check_stage, stage_names
from outlay.units import MAX_NS

NAME = "outlay-log"
TITLE = "Outlay interaction log"
VERSION = "interaction/1"
LOAD_VERSION = "load/1"
_HEAD = f'{{"outlay":"{VERSION}",'.encode()
_LOAD_HEAD = f'{{"outlay":"{LOAD_VERSION}",'.encode()

_decode = msgspec.json.Decoder(Interaction).decode
_decode_load = msgspec.json.Decoder(Load).decode
_KNOWN_STAGES = frozenset({None, *stage_names()})


class _Head(msgspec.Struct):
    outlay: str


_head = msgspec.json.Decoder(_Head).decode


def recognises(value: object) -> bool:
    """Whether the first value of an input is a line of this log, of any version."""
    return isinstance(value, dict) and str(value.get("outlay", "")).startswith(("interaction/", "load/"))


def parse_lines(lines: Iterable[bytes], first: int = 1) -> Iterator[Item]:
    """An interaction or a load a line; a line that is neither becomes a `dropped-record` note. Empty lines are skipped.

    `first` is the number of the first line. Raises FormatError for a line that says it is of a version this program
    does not know.
    """
    for number, line in enumerate(lines, start=first):
        if not line or line.isspace():
            continue
        try:
            yield _checked(_decode(line)) if line.startswith(_HEAD) else _by_version(line, number)
        except FormatError:
            raise
        except (ValueError, RecursionError) as error:
            yield Note(kind="dropped-record", text=f"line {number}: {error}")


def _by_version(line: bytes, number: int) -> Item:
    version = _head(line).outlay
    if version == VERSION:
        return _checked(_decode(line))
    if version == LOAD_VERSION:
        return _decode_load(line)
    known = f"{VERSION!r} and {LOAD_VERSION!r}"
    raise FormatError(f"line {number} is of version {version!r}; this program reads {known}: update it")


def _checked(interaction: Interaction) -> Interaction:
    """The interaction itself. Raises ValueError for an unknown stage, and where the whole does not fit 63 bits of ns.

    The times of spans and marks may be anything: what is computed of them is clipped to the whole.
    """
    start, end = interaction.start_ns, interaction.end_ns
    for instant in (start, end, end - start if start is not None and end is not None else None):
        if instant is not None and not -MAX_NS <= instant <= MAX_NS:
            raise ValueError("a time does not fit 63 bits of nanoseconds")
    stages = {span.stage for span in interaction.spans}
    if interaction.marks:
        stages.update([mark.stage for mark in interaction.marks])
    if not stages <= _KNOWN_STAGES:
        for stage in stages - _KNOWN_STAGES:
            check_stage(stage or "")
    return interaction


def write_line(interaction: Interaction) -> bytes:
    """One line of the log, with its newline. Reading it back gives an equal interaction."""
    return _HEAD + msgspec.json.encode(interaction)[1:] + b"\n"


def write_load(load: Load) -> bytes:
    """One line of the log, with its newline. Reading it back gives an equal load."""
    return _LOAD_HEAD + msgspec.json.encode(load)[1:] + b"\n"
