"""Round-trip times between places: a row a pair (`src,dst,min_ms,avg_ms,...`), or a square with a column a place.

The first is what `ping` sums up to, the second what cloud providers publish. A blank cell is a pair nobody measured.
"""

import csv
from collections.abc import Iterator, Mapping, Sequence

from outlay.formats.codec import FormatError
from outlay.units import from_ms

# From one place to another, in ns. Where only one way was measured, it holds for both.
Matrix = Mapping[tuple[str, str], int]

_PAIRS = ("src", "dst")
# What stands for a path: typical, not the best it ever was.
_VALUES = ("avg_ms", "rtt_ms", "median_ms", "min_ms")


def parse(text: str) -> Matrix:
    """The matrix of a CSV text. Raises FormatError that says what was expected, with the line of what is wrong."""
    rows = [row for row in csv.reader(text.splitlines()) if any(cell.strip() for cell in row)]
    if len(rows) < 2:
        raise FormatError("expected a CSV of round-trip times with a header and at least one row")
    head = [cell.strip() for cell in rows[0]]
    found = dict(_pairs(head, rows[1:]) if set(_PAIRS) <= set(head) else _square(head, rows[1:]))
    if not found:
        raise FormatError("the matrix holds no round-trip time")
    return found | {(there, here): rtt for (here, there), rtt in found.items() if (there, here) not in found}


def _pairs(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[tuple[tuple[str, str], int]]:
    column = next((name for name in _VALUES if name in head), None)
    if column is None:
        raise FormatError(f"expected a column {' or '.join(_VALUES)} beside src and dst")
    here, there, value = (head.index(name) for name in (*_PAIRS, column))
    for number, row in enumerate(rows, start=2):
        if len(row) < len(head):
            raise FormatError(f"line {number}: {len(row)} cells where the header has {len(head)}")
        yield (row[here].strip(), row[there].strip()), _rtt_ns(row[value], number)


def _square(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[tuple[tuple[str, str], int]]:
    for number, row in enumerate(rows, start=2):
        if len(row) > len(head):
            raise FormatError(f"line {number}: {len(row)} cells where the header has {len(head)}")
        for place, cell in zip(head[1:], row[1:], strict=False):
            if cell.strip():
                yield (row[0].strip(), place), _rtt_ns(cell, number)


def _rtt_ns(cell: str, number: int) -> int:
    try:
        rtt_ns = from_ms(cell.strip())
    except ValueError as error:
        raise FormatError(f"line {number}: {error}") from None
    if rtt_ns < 0:
        raise FormatError(f"line {number}: {cell} ms is no round-trip time")
    return rtt_ns
