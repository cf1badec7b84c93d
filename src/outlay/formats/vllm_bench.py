"""What `vllm bench serve --save-result` writes: one JSON object a run, with `--save-detailed` its requests as columns.

Times are seconds, instants on the tool's monotonic clock. Latency counts from the send there: a request that waits for
a free place under `--max-concurrency` has not begun. Since the release that keeps `queue_times`, that wait stands
beside it. The texts and the error messages that stand in the columns are not kept.
"""

from collections.abc import Iterator, Mapping, Sized
from dataclasses import replace
from math import inf

import msgspec

from outlay.formats import records
from outlay.formats.codec import FormatError, Item, JsonCodec
from outlay.formats.streamed import CLOCK, MOMENT, Seen, marks, sent_of, sizes
from outlay.generator import verdict_of_summary
from outlay.interaction import Interaction, Note
from outlay.load import Load, bounds_between, recorded_load
from outlay.units import from_ms, from_s

TOOL = "vllm bench serve"

_EXPECTED = "a result of vllm bench serve: {backend, request_rate, completed, duration, request_throughput}"

_FIELDS = frozenset({"request_rate", "burstiness", "completed", "duration", "request_throughput"})

# What its percentiles are called in a load: the whole answer has no prefix.
_CLAIMS: Mapping[str, str] = {"e2el": "", "e2el_including_client_queue": "with queue ", "ttft": "ttft "}
_CLAIMED: Mapping[str, str] = {"median": "p50", "p95": "p95", "p99": "p99"}


class _Run(msgspec.Struct, frozen=True):
    completed: int
    request_throughput: float
    duration: float
    num_prompts: int | None = None
    failed: int | None = None
    request_rate: float | str | None = None
    max_concurrency: int | None = None
    ttfts: list[float] = []
    itls: list[list[float]] = []
    latencies: list[float] = []
    start_times: list[float] = []
    queue_times: list[float] = []
    input_lens: list[int] = []
    output_lens: list[int] = []
    errors: list[str] = []

    @property
    def rate(self) -> float | None:
        """The rate that was asked for, per s; None when all were sent at once."""
        return records.rate(self.request_rate) if isinstance(self.request_rate, float) else None

    def failed_at(self, place: int) -> bool:
        """Whether this request failed: it says so, or it has no latency where errors were not kept."""
        return bool(self.errors[place]) if self.errors else bool(self.latencies) and self.latencies[place] <= 0


_RUN = msgspec.json.Decoder(_Run)
_NUMBERS = msgspec.json.Decoder(dict[str, object])


def recognises(value: object) -> bool:
    """Whether a decoded JSON value is such a result."""
    return isinstance(value, dict) and value.keys() >= _FIELDS


def parse(raw: bytes, _wanted: frozenset[str]) -> Iterator[Item]:
    """One interaction per request, failed ones too, named by its place, and their load; of a summary the load alone."""
    if not recognises(records.whole(msgspec.json.decode, raw, expected=_EXPECTED)):
        raise FormatError(f"expected {_EXPECTED}; found no such result")
    run = records.whole(_RUN.decode, raw, expected=_EXPECTED)
    claimed = records.whole(lambda whole: _claimed(_NUMBERS.decode(whole)), raw, expected=_EXPECTED)
    lengths = {name: len(column) for name, column in _columns(run).items() if column}
    if len(set(lengths.values())) > 1:
        raise FormatError(
            f"expected columns of one length; found {', '.join(f'{n} {name}' for name, n in lengths.items())}"
        )
    return _items(run, claimed) if run.latencies or run.ttfts else iter((_summary(run, claimed),))


CODEC = JsonCodec(name="vllm-bench", title="vLLM bench results", recognises=recognises, parse=parse)


def _columns(run: _Run) -> Mapping[str, Sized]:
    names = ("ttfts", "itls", "latencies", "start_times", "queue_times", "input_lens", "output_lens", "errors")
    return {name: getattr(run, name) for name in names}


def _claimed(values: Mapping[str, object]) -> dict[str, int]:
    return {
        f"{prefix}{level}": from_ms(value_ms)
        for metric, prefix in _CLAIMS.items()
        for key, level in _CLAIMED.items()
        if isinstance(value_ms := values.get(f"{key}_{metric}_ms"), int | float)
    }


def _summary(run: _Run, claimed: Mapping[str, int]) -> Load:
    """A load of which nobody kept how late the requests were: nothing can be said of what a person waited."""
    planned = run.completed + run.failed if run.failed is not None else run.num_prompts or run.completed
    return Load(
        name="",
        tool=TOOL,
        moment=None,
        requests=planned,
        verdict=verdict_of_summary(None, None, requested_rate=run.rate, achieved_rate=None),
        requested_rate=run.rate,
        claimed_ns=claimed,
    )


# The requests


def _items(run: _Run, claimed: Mapping[str, int]) -> Iterator[Item]:
    count = max(map(len, _columns(run).values()))
    # Of one length, so that ids sort as the file does.
    width = len(str(count))
    made: list[Interaction] = []
    for place in range(count):
        try:
            made.append(_interaction(f"{place:0{width}}", place, run))
        except ValueError:
            yield Note(kind="dropped-record", text=f"request {place}: a time in it cannot be read")
        else:
            yield made[-1]
    if run.rate is not None and made:
        yield replace(_load(run, made), requested_rate=run.rate, claimed_ns=claimed)


def _interaction(name: str, place: int, run: _Run) -> Interaction:
    seen = _seen(place, run)
    return Interaction(
        id=name,
        moment=MOMENT,
        start_ns=seen.begun_ns,
        end_ns=seen.over_ns,
        clock=CLOCK,
        outcome="error" if run.failed_at(place) else "ok",
        sizes=_sizes(place, run),
        marks=tuple(marks(seen)),
        notes=tuple(_notes(name, run)),
    )


def _seen(place: int, run: _Run) -> Seen:
    """Where no instant was kept, all begin at 0. Of a failed request nothing after the send is known."""
    waited_ns = from_s(run.queue_times[place]) if run.queue_times and run.rate is not None else None
    sent_ns = from_s(run.start_times[place]) if run.start_times else waited_ns or 0
    intended_ns = None if waited_ns is None else sent_ns - waited_ns
    if run.failed_at(place):
        return Seen(intended_ns=intended_ns, sent_ns=sent_ns)
    first_ns = from_s(run.ttfts[place]) if run.ttfts and run.ttfts[place] > 0 else None
    tokens_ns = first_ns + sum(map(from_s, run.itls[place])) if first_ns is not None and run.itls else first_ns
    took_ns = from_s(run.latencies[place]) if run.latencies else tokens_ns
    return Seen(
        intended_ns=intended_ns,
        sent_ns=sent_ns,
        first_token_ns=None if first_ns is None else sent_ns + first_ns,
        last_token_ns=None if took_ns is None else sent_ns + took_ns,
    )


def _sizes(place: int, run: _Run) -> dict[str, int]:
    # Of a failed request the output length is 0 whatever came.
    known = run.output_lens and not run.failed_at(place)
    return sizes(run.input_lens[place] if run.input_lens else None, run.output_lens[place] if known else None)


def _notes(name: str, run: _Run) -> Iterator[Note]:
    late = "how late it came to the tool's own queue" if run.queue_times else "how long it waited for its send"
    yield Note(kind="outside-window", text=f"request {name}: {late} is not in the data")
    if not run.start_times:
        text = f"request {name}: when it was sent is not in the data; bursts cannot be seen"
        yield Note(kind="outside-window", text=text)


def _load(run: _Run, made: list[Interaction]) -> Load:
    """The load of an arrival rate that was asked for. How late the tool's own loop was is in no column."""
    sent = [found for found in map(sent_of, made) if found]
    if sent:
        return recorded_load(sent, tool=TOOL, moment=MOMENT, clock=CLOCK, partly=True)
    return Load(
        name="",
        tool=TOOL,
        moment=MOMENT,
        requests=len(made),
        verdict=verdict_of_summary(None, None, requested_rate=run.rate, achieved_rate=None),
        bounds=bounds_between([_took_ns(each) for each in made], [inf]),
    )


def _took_ns(interaction: Interaction) -> float:
    start_ns, end_ns = interaction.start_ns, interaction.end_ns
    return inf if interaction.outcome != "ok" or start_ns is None or end_ns is None else end_ns - start_ns
