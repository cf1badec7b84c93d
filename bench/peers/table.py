"""The runs as Markdown tables: medians over the rounds, errors against the server's own log of the same run."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from statistics import median
from typing import Literal

from outlay.units import NS_PER_S, to_ms
from peers.figures import Record, Span, Spread

What = Literal["ttft", "e2e", "gap", "mean_gap"]


def tables(records: Sequence[Record]) -> str:
    """One table a scenario that was run, apart for each kind of server; then what failed."""
    kept = [record for record in records if record.error is None]
    parts = [
        draw([record for record in kept if record.server == server])
        for server in dict.fromkeys(record.server for record in kept)
        for draw in (_accuracy, _rates, _of_itself, _stalls, _circumstances)
    ]
    failed = [f"- {_title(record)}: {record.error}" for record in records if record.error is not None]
    return "\n".join(part for part in (*parts, "\n".join(failed)) if part)


def _accuracy(records: Sequence[Record]) -> str:
    heads = ("tool", "runs", "TTFT", "end to end", "each gap", "mean gap of a request", "start s", "CPU s")
    return _table(
        "acc: error p50 / p99 in ms against the server's log; one stream",
        heads,
        (
            (
                tool,
                str(len(runs)),
                *(_error(runs, what) for what in ("ttft", "e2e", "gap", "mean_gap")),
                _seconds(runs, lambda run: run.start_ns),
                _seconds(runs, lambda run: run.cpu_ns),
            )
            for tool, runs in _by_tool(records, "acc")
        ),
    )


def _rates(records: Sequence[Record]) -> str:
    return _by_rate(
        records,
        "rate: TTFT error p50 / p99 in ms against the server's log",
        lambda runs: _error(runs, "ttft") + _shortfall(runs),
    )


def _of_itself(records: Sequence[Record]) -> str:
    return _by_rate(
        records,
        "rate: what the tool says of itself, in the last round; its CPU seconds",
        lambda runs: f"{runs[-1].said.of_itself or '-'}; {_seconds(runs, lambda run: run.cpu_ns)} s",
    )


def _stalls(records: Sequence[Record]) -> str:
    heads = ("tool", "runs", "arithmetic", "server's log", "the tool", "error", "stalls named")
    return _table(
        "stall: end to end p90 / p99 in ms; the server stands still for 1 s in every 10 s",
        heads,
        (
            (
                tool,
                str(len(runs)),
                _tail(run.expected for run in runs),
                _tail(run.truth.figures.e2e for run in runs),
                _tail(run.said.figures.e2e for run in runs),
                _pair((_difference(run, "e2e") for run in runs), "p90_ns", "+.0f"),
                "; ".join(_named(run) for run in runs),
            )
            for tool, runs in _by_tool(records, "stall")
        ),
    )


def _circumstances(records: Sequence[Record]) -> str:
    versions = sorted({f"{record.tool} {record.version}" for record in records})
    lowly = "" if all(record.realtime for record in records) else ", without real-time priority"
    others = [record.others_cores for record in records if record.others_cores is not None]
    busy = f" Cores that anything else kept busy: {median(others):.2f} (up to {max(others):.2f})." if others else ""
    return f"\n{', '.join(versions)}. Server: {records[0].server}{lowly}.{busy}\n"


def _by_rate(records: Sequence[Record], title: str, cell: Callable[[Sequence[Record]], str]) -> str:
    rates = sorted({record.rate for record in records if record.scenario == "rate" and record.rate})
    rows = []
    for tool, runs in _by_tool(records, "rate"):
        at = [[run for run in runs if run.rate == rate] for rate in rates]
        rows.append((tool, *(cell(some) if some else "-" for some in at)))
    return _table(title, ("tool", *(f"{rate} rps" for rate in rates)), rows)


def _by_tool(records: Sequence[Record], scenario: str) -> Iterator[tuple[str, list[Record]]]:
    chosen = [record for record in records if record.scenario == scenario]
    for tool in dict.fromkeys(record.tool for record in chosen):
        yield tool, [record for record in chosen if record.tool == tool]


def _table(title: str, heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(row)} |" for row in rows]
    if not lines:
        return ""
    return "\n".join((f"\n**{title}**\n", f"| {' | '.join(heads)} |", "|---" * len(heads) + "|", *lines, ""))


def _difference(run: Record, what: What) -> Spread:
    """What the tool says minus what the server knows. None where either is missing."""
    said, truth = (getattr(figures, what) for figures in (run.said.figures, run.truth.figures))

    def at(name: str) -> int | None:
        ours, theirs = getattr(said, name), getattr(truth, name)
        return None if ours is None or theirs is None else ours - theirs

    return Spread(p50_ns=at("p50_ns"), p90_ns=at("p90_ns"), p99_ns=at("p99_ns"))


def _error(runs: Sequence[Record], what: What) -> str:
    return _pair((_difference(run, what) for run in runs), "p50_ns", "+.2f")


def _tail(spreads: Iterable[Spread | None]) -> str:
    return _pair((each for each in spreads if each is not None), "p90_ns", ".0f")


def _pair(spreads: Iterable[Spread], low: str, form: str) -> str:
    """Medians of a percentile and of the p99; one dash where nobody told either."""
    found = list(spreads)
    cells = [_middle((getattr(each, name) for each in found), form) for name in (low, "p99_ns")]
    return "-" if cells == ["-", "-"] else " / ".join(cells)


def _middle(values_ns: Iterable[int | None], form: str) -> str:
    known = [value for value in values_ns if value is not None]
    return f"{to_ms(median(known)):{form}}" if known else "-"


def _seconds(runs: Sequence[Record], of: Callable[[Record], int | None]) -> str:
    known = [value for value in map(of, runs) if value is not None]
    return f"{median(known) / NS_PER_S:.2f}" if known else "-"


def _shortfall(runs: Sequence[Record]) -> str:
    """How much was sent, where it was more than 3 % less than asked for."""
    rates = []
    for run in runs:
        if run.truth.first_ns is None or not run.rate or not run.duration_s:
            return " (nothing sent)"
        rates.append(run.truth.requests / run.duration_s)
    sent, asked = median(rates), runs[0].rate
    return f" (sent {sent:.0f}/s)" if asked and sent < 0.97 * asked else ""


def _named(run: Record) -> str:
    """How many of the stalls the tool names: a silence that covers at least half of the stall."""
    if run.said.silences is None:
        return "no such figure"
    hit = sum(
        any(_overlap_ns(silence, stall) * 2 >= _length_ns(stall) for silence in run.said.silences)
        for stall in run.stalls
    )
    return f"{hit} of {len(run.stalls)}, {len(run.said.silences)} in all"


def _overlap_ns(one: Span, other: Span) -> int:
    return max(0, min(one.to_ns, other.to_ns) - max(one.from_ns, other.from_ns))


def _length_ns(span: Span) -> int:
    return span.to_ns - span.from_ns


def _title(record: Record) -> str:
    rate = "" if record.rate is None else f" at {record.rate} rps"
    return f"{record.scenario} {record.tool}{rate}"
