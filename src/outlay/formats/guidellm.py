"""GuideLLM's JSON report, as of 0.8: for each benchmark the requests that succeeded, failed and were cut off.

`info.timings` holds Unix seconds as floats, so instants are good to a quarter of a microsecond. Prompts and outputs
stand beside them and are not read.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial

import msgspec

from outlay.formats import records
from outlay.formats.codec import FormatError, Item, JsonCodec
from outlay.formats.streamed import CLOCK, MOMENT, Seen, marks, sent_of, sizes
from outlay.interaction import Interaction, Note, Outcome
from outlay.load import Load, recorded_load
from outlay.units import from_s

_EXPECTED = "a GuideLLM report: {benchmarks: [{requests: {successful, errored, incomplete}}]}"

_OUTCOMES: Mapping[str, Outcome] = {"successful": "ok", "errored": "error", "incomplete": "aborted"}

# What GuideLLM sends at planned instants. The other strategies wait for answers, and have no schedule to keep.
_SCHEDULED = frozenset({"constant", "poisson"})


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


class _Strategy(msgspec.Struct, frozen=True):
    type_: str = ""
    rate: float | None = None


class _Config(msgspec.Struct, frozen=True):
    strategy: _Strategy = _Strategy()


class _Benchmark(msgspec.Struct, frozen=True):
    requests: _Requests
    config: _Config = _Config()


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

    The load of each benchmark with a schedule follows. Raises FormatError also for a report that was saved without its
    requests: percentiles cannot be taken apart.
    """
    report = records.whole(_REPORT.decode, raw, expected=_EXPECTED)
    if not any(raws for benchmark in report.benchmarks for _, raws in _groups(benchmark)):
        raise FormatError("this GuideLLM report was saved without its requests; percentiles cannot be taken apart")
    return (item for place, benchmark in enumerate(report.benchmarks) for item in _items(place, benchmark))


CODEC = JsonCodec(name="guidellm", title="GuideLLM report", recognises=recognises, parse=parse)


def _is_benchmark(value: object) -> bool:
    requests = value.get("requests") if isinstance(value, dict) else None
    return isinstance(requests, dict) and not _OUTCOMES.keys().isdisjoint(requests)


def _groups(benchmark: _Benchmark) -> Iterator[tuple[Outcome, list[msgspec.Raw]]]:
    return ((outcome, getattr(benchmark.requests, name) or []) for name, outcome in _OUTCOMES.items())


def _items(place: int, benchmark: _Benchmark) -> Iterator[Item]:
    made: list[Interaction] = []
    for outcome, raws in _groups(benchmark):
        where = f"benchmark {place}, {outcome} request"
        for item in records.each(raws, partial(_read, place, outcome), place=where):
            made += [item] if isinstance(item, Interaction) else []
            yield item
    if benchmark.config.strategy.type_ in _SCHEDULED:
        yield from _loads(place, benchmark.config.strategy.rate, made)


def _loads(place: int, rate: float | None, made: list[Interaction]) -> Iterator[Load]:
    """The load of one benchmark; none when nothing in it shows a schedule.

    What was queued when it ended was due later, as far as anybody knows: only what was due by then is missing.
    """
    sent = [found for found in map(sent_of, made) if found]
    last_ns = max((each.written_ns for each in sent if each.written_ns is not None), default=None)
    due = [each for each in sent if each.written_ns is not None or last_ns is None or each.intended_ns <= last_ns]
    if due:
        load = recorded_load(due, tool="GuideLLM", moment=MOMENT, clock=CLOCK)
        dimensions = {"benchmark": str(place)}
        yield replace(
            load,
            name=f"benchmark {place}",
            requested_rate=records.rate(rate) or load.requested_rate,
            dimensions=dimensions,
        )


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
