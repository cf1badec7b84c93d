"""A Measurement for a terminal: the verdict on the load before any number, then what it allows to be said."""

from collections.abc import Sequence

from rich.console import Console

from outlay.cold import WARM
from outlay.generator import INVALID
from outlay.hops import Cost
from outlay.measurement import EngineSeen, Measurement, Point, Series
from outlay.render import text, words
from outlay.render.sheet import Cell, Lines, Sheet
from outlay.units import format_duration

# What each series is called, in the order of a table.
NAMES = {
    "ttft": "first token",
    "first_output": "first output",
    "end_to_end": "end to end",
    "ttft_from_send": "first token, from the send",
    "end_to_end_from_send": "end to end, from the send",
    "between_tokens": "between tokens",
    "per_token": "per token",
}

# Classes that are told even where they are no part of the tail: somebody asked, or the server said so.
_TOLD = ("declared", "idle")

QUANTITIES = {"waiting": "waiting", "running": "running", "cache": "of the cache in use"}


def render(measured: Measurement, console: Console) -> None:
    """Print it to the console, in its width and encoding."""
    sheet = Sheet(console=console)
    for line in _all(measured, sheet):
        line.rstrip()
        console.print(line, soft_wrap=True)


def _all(measured: Measurement, sheet: Sheet) -> Lines:
    lines = [line for point in measured.points for line in sheet.paragraph(_where(point, measured), "dim", indent=0)]
    lines += sheet.paragraph(measured.plan, "dim", indent=0)
    lines += [line for load in measured.loads for line in text.load_lines(load, sheet)]
    lines += [line for point in measured.points for line in _point(point, measured, sheet)]
    lines += [*_hops(measured, sheet), *_cold(measured, sheet), *_aside(measured, sheet)]
    if measured.report is not None and measured.loads[0].verdict.state != INVALID:
        lines += [line for moment in measured.report.moments for line in text.account_lines(moment, sheet)]
    return lines


def _network(point: Point, sheet: Sheet) -> Lines:
    """Distance, rounds and the server, each by itself."""
    network = point.network
    if network is None:
        return []
    lines = sheet.heading("Network", "rounds and distance apart: keep it warm, or move it")
    floor_ns = network.floor_ns
    floor = "not known" if floor_ns is None else f"{format_duration(floor_ns)}, the smallest of handshakes and kernel"
    rows: list[list[Cell]] = [[("round trip", ""), (floor, "bold")]]
    for each in network.setup:
        rounds = "" if each.rounds is None else f", {words.many(each.rounds, 'round')}"
        tail = "" if each.p99_ns is None else f", {format_duration(each.p99_ns)} at p99"
        rows.append([(each.name, ""), (f"{format_duration(each.p50_ns)} at p50{tail}{rounds}", "")])
    if network.fresh:
        share = words.percent(network.fresh / network.sent)
        known = [each.rounds for each in network.setup if each.rounds is not None]
        rounds = (
            "" if floor_ns is None else f": {words.many(sum(known), 'round')} x {format_duration(floor_ns)} and work"
        )
        rows.append([("set-up", ""), (f"{format_duration(network.setup_ns)}{rounds}, in {share} of requests", "bold")])
    if network.retransmitted:
        rows.append([("sent again", ""), (words.many(network.retransmitted, "segment"), "yellow")])
    if network.server_p50_ns is not None:
        of = "" if network.reported == network.sent else f", of {words.many(network.reported, 'request')}"
        rows.append([("server", ""), (f"{format_duration(network.server_p50_ns)} at p50, as it says itself{of}", "")])
    return [*lines, *sheet.table(rows, "<<", flex=1)]


def _hops(measured: Measurement, sheet: Sheet) -> Lines:
    if not measured.hops:
        return []
    lines = sheet.heading("What each hop costs", "differences within rounds, with 95 % intervals")
    head: list[Cell] = [("from", "dim"), ("to", "dim"), ("typical", "dim"), ("interval", "dim"), ("at p99", "dim")]
    rows = [
        [
            (hop.outer, ""),
            (hop.inner, ""),
            (_cost(hop.typical), "bold"),
            (_between(hop.typical), ""),
            (f"{_cost(hop.tail[99.0])}  {_between(hop.tail[99.0])}", ""),
        ]
        for hop in measured.hops
    ]
    lines += sheet.table([head, *rows], "<<><<", flex=4)
    for hop in measured.hops:
        failed = ((hop.outer, hop.outer_failed), (hop.inner, hop.inner_failed))
        told = [f"{words.count(number)} failed at {name}" for name, number in failed if number]
        told += [] if hop.typical.resolved or hop.typical.value_ns is None else [f"{hop.outer}: no difference is shown"]
        lines += sheet.paragraph("; ".join(told), "yellow")
    return lines


def _cost(cost: Cost) -> str:
    return "refused" if cost.value_ns is None else words.signed(cost.value_ns)


def _between(cost: Cost) -> str:
    if cost.interval_ns is None:
        return cost.why or ""
    low_ns, high_ns = cost.interval_ns
    return f"{words.signed(low_ns)} to {words.signed(high_ns)}"


def _cold(measured: Measurement, sheet: Sheet) -> Lines:
    if not any(point.outcomes.get("ok") for point in measured.points):
        return []
    if not any(each.tail_share or each.name.startswith(_TOLD) for each in measured.cold if each.name != WARM):
        return []
    lines = sheet.heading("Cold starts", "p99 of all, with and without each class")
    head: list[Cell] = [(name, "dim") for name in ("", "requests", "p50", "p99 with", "p99 without", "of the tail")]
    rows = [
        [
            (each.name, ""),
            (words.count(each.n), ""),
            (format_duration(each.p50_ns), "bold"),
            (_known(each.p99_ns), ""),
            (_known(each.p99_without_ns), "bold"),
            ("-" if each.tail_share is None else words.percent(each.tail_share), ""),
        ]
        for each in measured.cold
    ]
    return [*lines, *sheet.table([head, *rows], "<>>>>>")]


def _known(value_ns: float | None) -> str:
    return "-" if value_ns is None else format_duration(value_ns)


def _where(point: Point, measured: Measurement) -> str:
    return point.address if len(measured.points) == 1 else f"{point.name}: {point.address}"


def _point(point: Point, measured: Measurement, sheet: Sheet) -> Lines:
    title = "Latency" if len(measured.points) == 1 else f"Latency at {point.name}"
    lines = sheet.heading(title, "from when a request was due; failed ones count as never")
    lines += sheet.paragraph(_ended(point))
    for why, number in point.reasons.items():
        lines += sheet.paragraph(f"{words.count(number)} x {why}", "yellow", indent=4)
    lines += _series(point.series, sheet)
    return [*lines, *_network(point, sheet)]


def _ended(point: Point) -> str:
    """`300 requests: ok 298, timeout 2`, and what nobody knows the end of."""
    ended = ", ".join(f"{name} {words.count(number)}" for name, number in point.outcomes.items())
    unfinished = f"; {words.count(point.unfinished)} were under way when it was ended" if point.unfinished else ""
    return f"{words.many(point.planned, 'request')}: {ended}{unfinished}" if ended else "no request came back"


def _series(series: Sequence[Series], sheet: Sheet) -> Lines:
    known = [each for name in NAMES for each in series if each.name == name and not _repeats(each, series)]
    if not known:
        return []
    levels = [words.percentile_name(each.level) for each in known[0].percentiles]
    if any(each.bounds for each in known):
        rows = [[(NAMES[each.name], ""), *_bounds(each)] for each in known]
        return sheet.table([[("lies in", "dim"), *((level, "dim") for level in levels)], *rows], "<<<<")
    head: list[Cell] = [("", ""), *((level, "dim") for level in levels), (f"95 % interval of {levels[-1]}", "dim")]
    return sheet.table([head, *([(NAMES[each.name], ""), *_values(each)] for each in known)], "<>>><", flex=4)


def _repeats(series: Series, others: Sequence[Series]) -> bool:
    """Whether it says again what the first token does: there was no reasoning before the output."""
    first = next((each for each in others if each.name == "ttft"), None)
    return series.name == "first_output" and first is not None and first.percentiles == series.percentiles


def _values(series: Series) -> list[Cell]:
    *_, last = series.percentiles
    refused = next((each for each in series.percentiles if each.value_ns is None), None)
    values = [("-" if each.value_ns is None else format_duration(each.value_ns), "bold") for each in series.percentiles]
    if refused is not None:
        # The number of requests stands above the table.
        return [*values, ((refused.why or "").partition(" requests")[0], "yellow")]
    return [*values, (words.percentile_detail(last), "")]


def _bounds(series: Series) -> list[Cell]:
    by_level = {bound.level: words.interval(bound.low_ns, bound.high_ns) for bound in series.bounds}
    return [(by_level.get(each.level, "not known"), "bold") for each in series.percentiles]


def _aside(measured: Measurement, sheet: Sheet) -> Lines:
    """What belongs to the run as a whole: the limit, the warm-up, the engine, what the answers lacked."""
    lines: Lines = []
    if measured.on_time is not None and measured.within_ns is not None:
        within = format_duration(measured.within_ns)
        lines += sheet.paragraph(f"on time, within {within}: {words.on_time(measured.on_time)}")
    if measured.warm_up:
        took = "" if measured.warm_up_p50_ns is None else f", p50 {format_duration(measured.warm_up_p50_ns)}"
        lines += sheet.paragraph(f"kept out as warm-up: {words.many(measured.warm_up, 'request')}{took}")
    if measured.engine is not None:
        lines += sheet.paragraph(_engine(measured.engine))
    for note, number in measured.notes.items():
        lines += sheet.paragraph(f"{words.count(number)} x {note}", "yellow")
    return [*sheet.heading("Beside it"), *lines] if lines else []


def _engine(engine: EngineSeen) -> str:
    """`vLLM says of all its clients: at most 3 waiting, 12 running; queue 12.0 ms, prefill 80.0 ms on average`."""
    largest = [
        f"{words.percent(value) if name == 'cache' else f'{value:g}'} {QUANTITIES[name]}"
        for name, value in engine.largest.items()
    ]
    means = [f"{name} {format_duration(value_ns)}" for name, value_ns in engine.mean_ns.items()]
    parts = [f"at most {', '.join(largest)}"] if largest else []
    parts += [f"on average {', '.join(means)}"] if means else []
    parts += [f"not on its page: {', '.join(engine.missing)}"] if engine.missing else []
    return f"{engine.engine} says of all its clients: {'; '.join(parts)}"
