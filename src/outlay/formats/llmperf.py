"""LLMPerf's raw results: a JSON list with the durations of each request, in seconds, and the code of its error.

The file holds no instants. Every request is put at 0, so nothing here says which came first or how they crowded.
"""

from collections.abc import Iterator

import msgspec

from outlay.formats import records
from outlay.formats.codec import FormatError, Item, JsonCodec
from outlay.formats.streamed import CLOCK, MOMENT, Seen, failure, marks, sizes
from outlay.interaction import Interaction, Note
from outlay.units import from_s

_EXPECTED = "LLMPerf results: a list of {error_code, ttft_s, end_to_end_latency_s}"

_FIELDS = frozenset({"error_code", "ttft_s", "end_to_end_latency_s"})


class _Request(msgspec.Struct, frozen=True):
    error_code: int | float | str | None = None
    ttft_s: float | None = None
    end_to_end_latency_s: float | None = None
    number_input_tokens: int | None = None
    number_output_tokens: int | None = None


_REQUEST = msgspec.json.Decoder(_Request)
_LIST = msgspec.json.Decoder(list[msgspec.Raw])


def recognises(value: object) -> bool:
    """Whether a decoded JSON value is a list that holds such a result."""
    return isinstance(value, list) and any(isinstance(member, dict) and member.keys() >= _FIELDS for member in value)


def parse(raw: bytes, _wanted: frozenset[str]) -> Iterator[Item]:
    """One interaction per request, failed ones too, named by its place in the file."""
    if not recognises(records.whole(msgspec.json.decode, raw, expected=_EXPECTED)):
        raise FormatError(f"expected {_EXPECTED}; found no result of that kind")
    return _items(_LIST.decode(raw))


CODEC = JsonCodec(name="llmperf", title="LLMPerf results", recognises=recognises, parse=parse)


def _items(raws: list[msgspec.Raw]) -> Iterator[Item]:
    # Of one length, so that ids sort as the file does.
    width = len(str(len(raws)))
    for place, item in enumerate(records.each(raws, _read, place="request")):
        yield item if isinstance(item, Note) else _interaction(f"{place:0{width}}", *item)


def _read(raw: bytes) -> tuple[_Request, Seen]:
    request = _REQUEST.decode(raw)
    first_ns, whole_ns = (_duration_ns(value) for value in (request.ttft_s, request.end_to_end_latency_s))
    return request, Seen(sent_ns=0, first_token_ns=first_ns, last_token_ns=whole_ns)


def _duration_ns(value_s: float | None) -> int | None:
    # No request takes no time: 0 is what LLMPerf leaves where an error came first.
    return from_s(value_s) if value_s is not None and value_s > 0 else None


def _interaction(name: str, request: _Request, seen: Seen) -> Interaction:
    # LLMPerf writes one output token also where an error came before any.
    output_tokens = None if seen.first_token_ns is None else request.number_output_tokens
    return Interaction(
        id=name,
        moment=MOMENT,
        start_ns=seen.begun_ns,
        end_ns=seen.over_ns,
        clock=CLOCK,
        outcome="ok" if request.error_code is None else failure(request.error_code),
        sizes=sizes(request.number_input_tokens, output_tokens),
        marks=tuple(marks(seen)),
        notes=tuple(_notes(name, seen)),
    )


def _notes(name: str, seen: Seen) -> Iterator[Note]:
    text = f"request {name}: when it was due and when it was sent is not in the data; bursts cannot be seen"
    yield Note(kind="outside-window", text=text)
    if seen.over_ns is None:
        yield Note(kind="missing-value", text=f"request {name}: its end-to-end time is 0 or absent")
