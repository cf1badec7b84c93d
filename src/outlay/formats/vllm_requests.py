"""vLLM's record of each request, one JSON object a line: token counts, and when the engine did what.

`queued_ts`, `scheduled_ts`, `first_token_ts` and `last_token_ts` are seconds on the engine's monotonic clock.
`arrival_time` is Unix time: the distance between the two clocks wanders by tenths of a second, more than an idle
queue lasts, so what passed between arrival and the engine's queue is never computed here.
"""

from collections.abc import Iterator, Sequence

import msgspec

from outlay.formats import records
from outlay.formats.codec import FormatError, Item, JsonCodec
from outlay.interaction import Interaction, Mark, Note
from outlay.stages import joint
from outlay.units import from_s

CLOCK = "engine"
COMPONENT = "llm"

# In causal order: the field, the mark it becomes, and the stage that ends there.
_CHAIN: tuple[tuple[str, str, str | None], ...] = (
    ("queued_ts", "queued", None),
    ("scheduled_ts", "scheduled", "queue.wait"),
    ("first_token_ts", "first_token", "infer.prefill"),
    ("last_token_ts", "last_token", "infer.decode"),
)
_STAMPS = frozenset(field for field, _, _ in _CHAIN)

_EXPECTED = f"vLLM requests: {{request_id, {', '.join(field for field, _, _ in _CHAIN)}}}, at least two of the stamps"


class _Request(msgspec.Struct, frozen=True):
    request_id: str | int
    input_toks: int | None = None
    output_toks: int | None = None
    arrival_time: float | None = None
    queued_ts: float | None = None
    scheduled_ts: float | None = None
    first_token_ts: float | None = None
    last_token_ts: float | None = None


_REQUEST = msgspec.json.Decoder(_Request)
_LIST = msgspec.json.Decoder(list[msgspec.Raw])


def recognises(value: object) -> bool:
    """Whether a decoded JSON value is one such record, or a list that holds one."""
    return any(map(_is_record, value)) if isinstance(value, list) else _is_record(value)


def parse(raw: bytes, _wanted: frozenset[str]) -> Iterator[Item]:
    """One interaction per request. Each says that the time before the engine's queue is not in it."""
    return records.each(_requests(raw), lambda record: _interaction(_REQUEST.decode(record)), place="request")


CODEC = JsonCodec(name="vllm-requests", title="vLLM requests", recognises=recognises, parse=parse)


def _is_record(value: object) -> bool:
    # Two stamps, because other tools' records carry a request id and one of them.
    return isinstance(value, dict) and "request_id" in value and len(_STAMPS & value.keys()) >= 2


def _requests(raw: bytes) -> Sequence[bytes]:
    value = records.whole(msgspec.json.decode, raw, expected=_EXPECTED)
    if not recognises(value):
        raise FormatError(f"expected {_EXPECTED}; found no record of that kind")
    return _LIST.decode(raw) if isinstance(value, list) else [raw]


def _interaction(request: _Request) -> Interaction:
    stamps = [
        _stamp_ns(value)
        for value in (request.queued_ts, request.scheduled_ts, request.first_token_ts, request.last_token_ts)
    ]
    counts = {"input_tokens": request.input_toks, "output_tokens": request.output_toks}
    return Interaction(
        id=str(request.request_id),
        moment="llm-request",
        start_ns=stamps[0],
        end_ns=stamps[-1],
        clock=CLOCK,
        sizes={name: count for name, count in counts.items() if count is not None and count >= 0},
        marks=tuple(_marks(stamps)),
        notes=tuple(_notes(request, stamps)),
    )


def _stamp_ns(value_s: float | None) -> int | None:
    # The engine initialises its stamps with 0.0; -1 and below are other writers' "never".
    return from_s(value_s) if value_s is not None and value_s > 0 else None


def _marks(stamps: Sequence[int | None]) -> Iterator[Mark]:
    """A missing stamp leaves its stage to the next mark, under a joint name; the first mark present ends nothing."""
    before: Mark | None = None
    merged: str | None = None
    for (_, name, stage), at_ns in zip(_CHAIN, stamps, strict=True):
        if stage is not None:
            merged = joint(merged, stage) if merged else stage
        if at_ns is None:
            continue
        ended = merged if before else None
        before = Mark(name=name, at_ns=at_ns, clock=CLOCK, component=ended and COMPONENT, stage=ended)
        merged = None
        yield before


def _notes(request: _Request, stamps: Sequence[int | None]) -> Iterator[Note]:
    missing = [field for (field, _, _), at_ns in zip(_CHAIN, stamps, strict=True) if at_ns is None]
    if missing:
        yield Note(kind="missing-value", text=f"request {request.request_id}: no {', '.join(missing)}")
    why = "" if request.arrival_time is None else ": arrival_time is on another clock"
    yield Note(kind="outside-window", text=f"the time from arrival to the engine's queue is not in the data{why}")
