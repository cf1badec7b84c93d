"""GuideLLM's JSON report, as of 0.8: for each benchmark the requests that succeeded, failed and were cut off.

`info.timings` holds Unix seconds as floats, so instants are good to a quarter of a microsecond. Prompts and outputs
stand beside them and are not read.
"""

from collections.abc import Iterator, Mapping
from functools import partial

import msgspec

from outlay.formats import records
from outlay.formats.codec import FormatError, Item, JsonCodec
from outlay.formats.streamed import CLOCK, MOMENT, Seen, marks, sizes
from outlay.interaction import Interaction, Note, Outcome
from outlay.units import from_s

_EXPECTED = "a GuideLLM report: {benchmarks: [{requests: {successful, errored, incomplete}}]}"

_OUTCOMES: Mapping[str, Outcome] = {"successful": "ok", "errored": "error", "incomplete": "aborted"}


class _Timings(msgspec.Struct, frozen=True):
    targeted_start: float | None = None
    request_start: float | None = None
    first_token_iteration: float | None = None
    first_output_token_iteration: float | None = None
    last_token_iteration: float | None = None
    request_end: float | None = None


class _Info(msgspec.Struct, frozen=True):
    timings: _Timings


class _Request(msgspec.Struct, frozen=True):
    request_id: str
    info: _Info
    prompt_tokens: int | None = None
    output_tokens: int | None = None


class _Requests(msgspec.Struct, frozen=True):
    successful: list[msgspec.Raw] | None = None
    errored: list[msgspec.Raw] | None = None
    incomplete: list[msgspec.Raw] | None = None


class _Benchmark(msgspec.Struct, frozen=True):
    requests: _Requests


class _Report(msgspec.Struct, frozen=True):
    benchmarks: list[_Benchmark]


_REPORT = msgspec.json.Decoder(_Report)
_REQUEST = msgspec.json.Decoder(_Request)


def recognises(value: object) -> bool:
    """Whether a decoded JSON value is such a report."""
    benchmarks = value.get("benchmarks") if isinstance(value, dict) else None
    return isinstance(benchmarks, list) and any(map(_is_benchmark, benchmarks))


def parse(raw: bytes, _wanted: frozenset[str]) -> Iterator[Item]:
    """One interaction per request, from the targeted start where the report keeps it, else from the send.

    Raises FormatError also for a report that was saved without its requests: percentiles cannot be taken apart.
    """
    report = records.whole(_REPORT.decode, raw, expected=_EXPECTED)
    groups = [
        (place, outcome, getattr(benchmark.requests, name) or [])
        for place, benchmark in enumerate(report.benchmarks)
        for name, outcome in _OUTCOMES.items()
    ]
    if not any(requests for _, _, requests in groups):
        raise FormatError("this GuideLLM report was saved without its requests; percentiles cannot be taken apart")
    return _items(groups)


CODEC = JsonCodec(name="guidellm", title="GuideLLM report", recognises=recognises, parse=parse)


def _is_benchmark(value: object) -> bool:
    requests = value.get("requests") if isinstance(value, dict) else None
    return isinstance(requests, dict) and not _OUTCOMES.keys().isdisjoint(requests)


def _items(groups: list[tuple[int, Outcome, list[msgspec.Raw]]]) -> Iterator[Item]:
    for place, outcome, requests in groups:
        where = f"benchmark {place}, {outcome} request"
        yield from records.each(requests, partial(_read, place, outcome), place=where)


def _read(place: int, outcome: Outcome, raw: bytes) -> Interaction:
    return _interaction(place, outcome, _REQUEST.decode(raw))


def _interaction(place: int, outcome: Outcome, request: _Request) -> Interaction:
    seen = _seen(request.info.timings)
    return Interaction(
        id=request.request_id,
        moment=MOMENT,
        start_ns=seen.begun_ns,
        end_ns=seen.over_ns,
        clock=CLOCK,
        outcome="unsent" if outcome == "aborted" and seen.sent_ns is None else outcome,
        dimensions={"benchmark": str(place)},
        sizes=sizes(request.prompt_tokens, request.output_tokens),
        marks=tuple(marks(seen)),
        notes=tuple(_notes(request, seen)),
    )


def _seen(timings: _Timings) -> Seen:
    return Seen(
        intended_ns=_stamp_ns(timings.targeted_start),
        sent_ns=_stamp_ns(timings.request_start),
        first_token_ns=_stamp_ns(timings.first_token_iteration),
        first_output_token_ns=_stamp_ns(timings.first_output_token_iteration),
        last_token_ns=_stamp_ns(timings.last_token_iteration),
        end_ns=_stamp_ns(timings.request_end),
    )


def _stamp_ns(value_s: float | None) -> int | None:
    return from_s(value_s) if value_s is not None and value_s > 0 else None


def _notes(request: _Request, seen: Seen) -> Iterator[Note]:
    if seen.intended_ns is None:
        text = f"request {request.request_id}: lateness before the send is not in the data"
        yield Note(kind="outside-window", text=text)
