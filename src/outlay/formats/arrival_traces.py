"""Recorded arrivals to replay: when each request began, and how large it and its answer were.

The format is found by the content of each line, so that a trace needs no name: a CSV with the columns of Azure's LLM
traces, JSON lines as Mooncake publishes them or plain ones, or Outlay's own log. Nothing is left out of a trace in
silence: a row that cannot be read ends the reading.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import msgspec

from outlay.arrivals import Schedule, from_rows
from outlay.formats import log
from outlay.formats.codec import FormatError
from outlay.formats.isotime import parse_iso_ns
from outlay.interaction import Interaction, Note
from outlay.units import from_ms, from_s

# When it began, input tokens, output tokens; None where the trace does not say.
Row = tuple[int, int | None, int | None]

_BLANKS = b" \t\r\n\xef\xbb\xbf"

_COLUMNS = ("timestamp", "contexttokens", "generatedtokens")

EXPECTED = (
    "a CSV with the columns TIMESTAMP, ContextTokens and GeneratedTokens, or a JSON object a line with at_ms, at_s or "
    "timestamp (in ms), or Outlay's own log"
)


def _timestamp_ns(value: float | str) -> int:
    return parse_iso_ns(value) if isinstance(value, str) else from_ms(value)


# The first of these keys that a row has is its instant; a size that it does not have is not known.
_INSTANTS: Mapping[str, Callable[[float | str], int]] = {"at_ms": from_ms, "at_s": from_s, "timestamp": _timestamp_ns}
_INPUTS, _OUTPUTS = ("input_tokens", "input_length"), ("output_tokens", "output_length")


def read_schedule(lines: Iterable[bytes]) -> Schedule:
    """The trace as a schedule whose first request is due at 0; rows may stand in any order.

    Raises FormatError for a trace without requests, one of no known format, and for the first row that cannot be read,
    by its line.
    """
    rows = list(_rows(lines))
    if not rows:
        raise FormatError(f"the trace holds no requests; expected {EXPECTED}")
    return from_rows(rows)


def _rows(lines: Iterable[bytes]) -> Iterator[Row]:
    columns: Sequence[int] | None = None
    for number, raw in enumerate(lines, start=1):
        line = raw.strip(_BLANKS)
        if not line:
            continue
        try:
            if line.startswith(b"{"):
                yield from _of_json(line, number)
            elif columns is None:
                columns = _header(line)
            else:
                yield _of_csv(line, columns)
        except FormatError:
            raise
        except (ValueError, RecursionError) as error:
            # Nothing of the row is quoted: a trace may hold what somebody said.
            found = str(error) if isinstance(error, msgspec.MsgspecError) else "a value in it cannot be read"
            raise FormatError(f"line {number}: {found}; expected {EXPECTED}") from None


def _header(line: bytes) -> Sequence[int]:
    """Where the columns stand. Raises ValueError when one is missing."""
    names = [name.strip().lower() for name in line.decode().split(",")]
    return [names.index(name) for name in _COLUMNS]


def _of_csv(line: bytes, columns: Sequence[int]) -> Row:
    cells = line.decode().split(",")
    if len(cells) <= max(columns):
        raise ValueError("fewer cells than columns")
    at, asked, answered = (cells[column].strip() for column in columns)
    return parse_iso_ns(at), _size(int(asked)), _size(int(answered))


def _of_json(line: bytes, number: int) -> Iterator[Row]:
    value = msgspec.json.decode(line, type=dict[str, object])
    if log.recognises(value):
        yield from _of_log(line, number)
        return
    key = next((key for key in _INSTANTS if key in value), None)
    at = value.get(key or "")
    if key is None or isinstance(at, bool) or not isinstance(at, int | float | str):
        raise ValueError("no instant")
    yield _INSTANTS[key](at), _first(value, _INPUTS), _first(value, _OUTPUTS)


def _of_log(line: bytes, number: int) -> Iterator[Row]:
    """A line of Outlay's own log; what is said of the load is no request."""
    for item in log.parse_lines([line], number):
        match item:
            case Note():
                raise FormatError(item.text)
            case Interaction(start_ns=None):
                raise FormatError(f"line {number}: the interaction has no start, so it cannot be replayed")
            case Interaction(start_ns=int(start_ns), sizes=sizes):
                yield start_ns, sizes.get("input_tokens"), sizes.get("output_tokens")


def _first(value: Mapping[str, object], keys: Sequence[str]) -> int | None:
    found = next((value[key] for key in keys if value.get(key) is not None), None)
    if found is not None and type(found) is not int:
        raise ValueError("a size that is no whole number")
    return None if found is None else _size(found)


def _size(tokens: int) -> int:
    if tokens < 0:
        raise ValueError("a negative size")
    return tokens
