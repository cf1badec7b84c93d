"""inference-perf's lifecycle reports: the summary of a load stage, and the list of its requests.

Times are seconds as floats on the tool's monotonic clock. Latency counts from the send there; how late the sends were
stands beside it, in the summary only. The list holds prompts and outputs too, which are not read.
"""

from collections.abc import Iterator, Mapping

import msgspec

from outlay.formats import records
from outlay.formats.codec import FormatError, Item, JsonCodec
from outlay.formats.streamed import CLOCK, MOMENT, Seen, failure, marks, sent_of, sizes
from outlay.generator import Levels, Spread, verdict_of_summary
from outlay.interaction import Interaction, Note, Outcome
from outlay.load import Load, bounds_of_summary, recorded_load
from outlay.units import from_s

TOOL = "inference-perf"

_EXPECTED = "an inference-perf summary {load_summary, successes, failures}, or its list of {start_time, end_time, info}"

# How the summaries spell a level; of the rest each is `p` and a number.
_NAMED_LEVELS: Mapping[str, float] = {"min": 0.0, "median": 50.0, "max": 100.0}

# What is called a percentile of the whole answer, and of its first token.
_CLAIMS: Mapping[str, str] = {"request_latency": "", "time_to_first_token": "ttft "}
_CLAIMED = ("median", "p50", "p95", "p99")


class _Planned(msgspec.Struct, frozen=True):
    count: int
    schedule_delay: dict[str, float] | None = None
    requested_rate: float | None = None
    achieved_rate: float | None = None


class _Answered(msgspec.Struct, frozen=True):
    count: int
    latency: dict[str, dict[str, float] | None] = {}


class _Summary(msgspec.Struct, frozen=True):
    load_summary: _Planned
    successes: _Answered


class _Usage(msgspec.Struct, frozen=True):
    output_tokens: int | None = None
    output_token_times: list[float] = []


class _Text(msgspec.Struct, frozen=True):
    input_tokens: int | None = None


class _Asked(msgspec.Struct, frozen=True):
    text: _Text | None = None


class _Info(msgspec.Struct, frozen=True):
    input_tokens: int | None = None
    output_tokens: int | None = None
    output_token_times: list[float] = []
    request_metrics: _Asked | None = None
    response_metrics: _Usage | None = None


class _Error(msgspec.Struct, frozen=True):
    error_type: str = ""


class _Request(msgspec.Struct, frozen=True):
    start_time: float
    end_time: float | None = None
    scheduled_time: float | None = None
    info: _Info | None = None
    error: _Error | None = None


_SUMMARY = msgspec.json.Decoder(_Summary)
_REQUEST = msgspec.json.Decoder(_Request)
_LIST = msgspec.json.Decoder(list[msgspec.Raw])


def recognises(value: object) -> bool:
    """Whether a decoded JSON value is such a summary, or a list that holds such a request."""
    if isinstance(value, list):
        return any(map(_is_request, value))
    return isinstance(value, dict) and isinstance(value.get("load_summary"), dict) and "successes" in value


def parse(raw: bytes, _wanted: frozenset[str]) -> Iterator[Item]:
    """Of a summary its load; of a list one interaction per request, and their load where their schedule was kept."""
    value = records.whole(msgspec.json.decode, raw, expected=_EXPECTED)
    if not recognises(value):
        raise FormatError(f"expected {_EXPECTED}; found neither")
    if isinstance(value, list):
        return _requests(_LIST.decode(raw))
    return iter((records.whole(lambda whole: _load(_SUMMARY.decode(whole)), raw, expected=_EXPECTED),))


CODEC = JsonCodec(name="inference-perf", title="inference-perf reports", recognises=recognises, parse=parse)


def _is_request(value: object) -> bool:
    return isinstance(value, dict) and {"start_time", "end_time", "error"} <= value.keys() and "request_id" not in value


def _load(summary: _Summary) -> Load:
    planned, answered = summary.load_summary, summary.successes
    lateness = _levels(planned.schedule_delay)
    service = _levels(answered.latency.get("request_latency"))
    requested, achieved = records.rate(planned.requested_rate), records.rate(planned.achieved_rate)
    return Load(
        name="",
        tool=TOOL,
        moment=None,
        requests=planned.count,
        verdict=verdict_of_summary(
            _spread(lateness), _spread(service), requested_rate=requested, achieved_rate=achieved
        ),
        requested_rate=requested,
        achieved_rate=achieved,
        bounds=bounds_of_summary(lateness, service, (answered.count, planned.count)) if lateness and service else (),
        claimed_ns=_claimed(answered.latency),
    )


def _levels(published: Mapping[str, float] | None) -> Levels | None:
    """Percentiles by level; None where the summary does not hold the smallest and the largest."""
    found = {
        level: from_s(value_s) for name, value_s in (published or {}).items() if (level := _level(name)) is not None
    }
    return found if found.keys() >= {0.0, 100.0} else None


def _level(name: str) -> float | None:
    if name in _NAMED_LEVELS:
        return _NAMED_LEVELS[name]
    number = name.removeprefix("p")
    plain = number != name and number.replace(".", "", 1).isdecimal() and number.isascii()
    return float(number) if plain and float(number) <= 100 else None


def _spread(levels: Levels | None) -> Spread | None:
    if levels is None or not levels.keys() >= {50.0, 99.0}:
        return None
    return Spread(min_ns=levels[0.0], p50_ns=levels[50.0], p99_ns=levels[99.0], max_ns=levels[100.0])


def _claimed(latency: Mapping[str, Mapping[str, float] | None]) -> dict[str, int]:
    return {
        f"{prefix}{'p50' if name == 'median' else name}": from_s(published[name])
        for key, prefix in _CLAIMS.items()
        if (published := latency.get(key)) is not None
        for name in _CLAIMED
        if name in published
    }


# The requests


def _requests(raws: list[msgspec.Raw]) -> Iterator[Item]:
    # Of one length, so that ids sort as the file does.
    width = len(str(len(raws)))
    sent = []
    for place, item in enumerate(records.each(raws, _read, place="request")):
        if isinstance(item, Note):
            yield item
            continue
        request, seen = item
        made = _interaction(f"{place:0{width}}", request, seen)
        yield made
        sent += [found for found in (sent_of(made),) if found]
    if sent:
        yield recorded_load(sent, tool=TOOL, moment=MOMENT, clock=CLOCK)


def _read(raw: bytes) -> tuple[_Request, Seen]:
    request = _REQUEST.decode(raw)
    times = _token_times(request)
    return request, Seen(
        intended_ns=None if request.scheduled_time is None else from_s(request.scheduled_time),
        sent_ns=from_s(request.start_time),
        first_token_ns=from_s(times[0]) if times else None,
        last_token_ns=from_s(times[-1]) if times else None,
        end_ns=None if request.end_time is None else from_s(request.end_time),
    )


def _token_times(request: _Request) -> list[float]:
    info = request.info
    if info is None:
        return []
    return info.response_metrics.output_token_times if info.response_metrics else info.output_token_times


def _interaction(name: str, request: _Request, seen: Seen) -> Interaction:
    return Interaction(
        id=name,
        moment=MOMENT,
        start_ns=seen.begun_ns,
        end_ns=seen.over_ns,
        clock=CLOCK,
        outcome=_outcome(request.error),
        sizes=_sizes(request.info),
        marks=tuple(marks(seen)),
        notes=() if seen.intended_ns is not None else (_unscheduled(name),),
    )


def _outcome(error: _Error | None) -> Outcome:
    if error is None:
        return "ok"
    # "HTTP Error 429"; anything else is the name of an exception.
    code = error.error_type.rpartition(" ")[2]
    if code.isascii() and code.isdecimal():
        return failure(int(code[:4]))
    return "timeout" if "timeout" in error.error_type.lower() else "error"


def _sizes(info: _Info | None) -> dict[str, int]:
    if info is None:
        return {}
    asked, answered = info.request_metrics, info.response_metrics
    input_tokens = asked.text.input_tokens if asked and asked.text else info.input_tokens
    return sizes(input_tokens, answered.output_tokens if answered else info.output_tokens)


def _unscheduled(name: str) -> Note:
    return Note(kind="outside-window", text=f"request {name}: when it was due is not in the data")
