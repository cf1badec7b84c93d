"""A Report for a terminal: about one screen a moment, aligned in any width from 60 columns up.

Colour only repeats what the words say, so a pipe, a log and a colour-blind reader lose nothing.
"""

from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from outlay.load import Load
from outlay.render import loads, rollup, words
from outlay.render.rollup import ShareSum
from outlay.render.sheet import INDENT, Cell, Lines, Sheet
from outlay.report import Bin, CohortRow, Health, MomentReport, OnTime, Percentile, Report, Row, Segment, Slow
from outlay.stages import UNATTRIBUTED, term_of
from outlay.units import format_duration

ROWS = 8
COHORTS = 6
SHARES = 4
SLOWEST = 3
LANES = 4
KINDS = 2
# Of fewer interactions a distribution says no more than their list.
DISTRIBUTED = 20
NAME = 16

_VERDICT_STYLE = {"PASS": "bold green", "FAIL": "bold red", "UNDECIDED": "bold yellow", words.NO_BUDGET: "bold"}
_LOAD_STYLE = {"VALID": "bold green", "DEGRADED": "bold yellow", "INVALID": "bold red"}
_LEVELS = "▁▂▃▄▅▆▇█"


def render(report: Report, console: Console) -> None:
    """Print the report to the console, in its width and encoding."""
    sheet = Sheet(console=console)
    under = [line for load in report.loads for line in load_lines(load, sheet)]
    moments = [line for moment in report.moments for line in _moment(moment, sheet)]
    for line in [*_front(report, sheet), *under, *moments]:
        line.rstrip()
        console.print(line, soft_wrap=True)


def _front(report: Report, sheet: Sheet) -> Lines:
    alike = words.one_format(report)
    names = [source.name if alike else f"{source.name} ({source.format})" for source in words.listed(report)]
    names += [f"and {words.count(words.unlisted(report))} more"] if words.unlisted(report) else []
    inputs = ": ".join(part for part in (words.inputs(report), ", ".join(names)) if part)
    lines = sheet.paragraph(inputs, "dim", indent=0)
    if report.filters:
        lines += sheet.paragraph(f"where {', '.join(words.pairs(report.filters))}", "dim", indent=0)
    nothing = not report.moments and not report.loads
    return [*lines, *sheet.paragraph("No moment was found in this data.", indent=0)] if nothing else lines


def load_lines(load: Load, sheet: Sheet) -> Lines:
    """How the load was delivered: whether its numbers count stands before any of them."""
    state = loads.verdict(load)
    name = sheet.shorten(load.name or "load", max(sheet.width - len(state) - 4, 4))
    title = _title(name, state, _LOAD_STYLE[state], sheet)
    reasons = [line for reason in loads.reasons(load) for line in sheet.paragraph(f"{reason}.")]
    who = f"{load.tool} ({load.moment})" if load.moment else load.tool
    stops = [line for text in loads.stops(load) for line in sheet.paragraph(text, "yellow")]
    return [Text(""), title, *reasons, *sheet.paragraph(f"{who}: {loads.facts(load)}"), *stops, *_levels(load, sheet)]


def _levels(load: Load, sheet: Sheet) -> Lines:
    found = loads.levels(load)
    if not found:
        return []
    rows: list[list[Cell]] = [[("response", "dim"), ("lies in", "dim"), (loads.claims(load), "dim")]]
    rows += [[(level.name, ""), (level.between, "bold"), (level.claimed, "dim")] for level in found]
    return sheet.table(rows, "<<<", flex=1)


def _title(name: str, state: str, style: str, sheet: Sheet) -> Text:
    title = Text(name, "bold").append("  ").append(state, style).append("  ")
    return title.append(sheet.ink("─") * (sheet.width - title.cell_len), "dim")


def account_lines(moment: MomentReport, sheet: Sheet) -> Lines:
    """Where the time of one moment went, its slowest interactions, and what is wrong with the data."""
    return [line for section in (_account, _shares, _slowest, _health) for line in section(moment, sheet)]


def _moment(moment: MomentReport, sheet: Sheet) -> Lines:
    sections = (_headline, _account, _shares, _distribution, _slowest, _cohorts, _health)
    return [line for section in sections for line in section(moment, sheet)]


def _headline(moment: MomentReport, sheet: Sheet) -> Lines:
    state = words.verdict_state(moment)
    name = sheet.shorten(moment.moment, max(sheet.width - len(state) - 4, 4))
    title = _title(name, state, _VERDICT_STYLE[state], sheet)
    lines = [Text(""), title, *sheet.paragraph(_verdict(moment))]
    # A refused percentile with a line of its own gives the reason there.
    told = not (moment.served or rollup.is_single(moment)) and any(
        percentile.why == moment.validity_why for percentile in moment.total
    )
    if moment.validity_why and not told:
        lines += sheet.paragraph(f"{words.validity(moment)}.", "yellow")
    return [*lines, *_facts(moment, sheet)]


def _verdict(moment: MomentReport) -> str:
    if moment.budget is None or moment.verdict is None:
        return words.NO_VERDICT
    title = words.verdict_title(moment).capitalize()
    return f"{title} ({words.budget(moment.budget)}): {words.verdict_reason(moment.verdict)}."


def _facts(moment: MomentReport, sheet: Sheet) -> Lines:
    lines = [line for text in _measured(moment) for line in sheet.paragraph(text)]
    if not rollup.is_single(moment):
        lines += _percentiles(moment, sheet)
    if moment.on_time is not None:
        lines += sheet.paragraph(f"on time {words.on_time(moment.on_time)}")
    return lines


def _measured(moment: MomentReport) -> Sequence[str]:
    """How many were measured, how they ended where not all went well, and what they say together."""
    measured, worth = words.measured(moment), words.worth(moment)
    if rollup.is_single(moment) and moment.tail_ns is not None:
        worth = format_duration(moment.tail_ns)
    if set(moment.outcomes) <= {"ok"}:
        return (", ".join(part for part in (measured, worth) if part),)
    ended = ", ".join(f"{name} {words.count(number)}" for name, number in words.outcomes(moment))
    return (f"{measured}: {ended}", worth)


def _percentiles(moment: MomentReport, sheet: Sheet) -> Lines:
    if not moment.served:
        known = any(percentile.value_ns is not None for percentile in moment.total)
        head: list[list[Cell]] = [[("", ""), ("", ""), ("95 % interval", "dim")]] if known else []
        return sheet.table([*head, *(_percentile(each, reason=True) for each in moment.total)], "<><", flex=2)
    heads = ("", "over all", "95 % interval", "of those served", "95 % interval")
    served = {each.level: each for each in moment.served}
    rows = [
        # Side by side there is no room for the reasons; they follow.
        [*_percentile(each, reason=False), *_served(served.get(each.level))]
        for each in moment.total
    ]
    reasons = [each.why for each in moment.total if each.why and each.why != moment.validity_why]
    table = sheet.table([[(head, "dim") for head in heads], *rows], "<><><", flex=2)
    return [*table, *sheet.paragraph("; ".join(reasons))]


def _percentile(percentile: Percentile, *, reason: bool) -> list[Cell]:
    """Name, value, interval; of a refused one the reason, if it is wanted."""
    detail = words.percentile_detail(percentile) if reason or percentile.value_ns is not None else ""
    value = words.percentile_value(percentile)
    style = "yellow" if percentile.value_ns is None else ""
    return [(words.percentile_name(percentile.level), ""), (value, "bold"), (detail, style)]


def _served(percentile: Percentile | None) -> list[Cell]:
    return [("", ""), ("", "")] if percentile is None else _percentile(percentile, reason=False)[1:]


def _account(moment: MomentReport, sheet: Sheet) -> Lines:
    if moment.typical_ns is None or moment.tail_ns is None:
        return []
    if rollup.is_single(moment):
        return [*sheet.heading("Where the time goes"), *_single(moment, sheet), *_leads(moment, sheet)]
    shown, rest = rollup.fold(moment.account, ROWS)
    longest_ns = max((max(row.typical_ns, row.tail_ns) for row in shown), default=0)
    wide = sheet.width >= 100
    shared = any(row.budget_ns is not None for row in shown)
    owned = wide and any(row.owner for row in shown)
    heads = ("entry", "", "typical", "tail", "excess", "  share" if shared else "", "owner" if owned else "")
    table = [[(head, "dim") for head in heads]]
    table += [_account_row(row, longest_ns, sheet) for row in shown]
    if rest is not None:
        table.append(_sum_row(words.many(len(rest.rows), "smaller row"), rest.typical_ns, rest.tail_ns, "dim"))
    table.append(_sum_row("total", moment.typical_ns, moment.tail_ns, "bold"))
    table += _model_rows(moment)
    key = "▒ typical  █ added in the tail"
    return [
        *sheet.heading("Where the time goes", f"{key}  > over its share" if shared else key),
        *sheet.paragraph(f"typical: {moment.typical_label}; tail: {moment.tail_label}", "dim"),
        *sheet.table(table, "<<>>><<"),
        *_no_model(moment, sheet),
        *_leads(moment, sheet),
    ]


def _single(moment: MomentReport, sheet: Sheet) -> Lines:
    """The account of one interaction: what is typical and what the tail adds cannot be told apart."""
    shown, rest = rollup.fold(moment.account, ROWS)
    total_ns, width = sum(row.tail_ns for row in moment.account), 20 if sheet.width >= 100 else 10
    table: list[list[Cell]] = [[(head, "dim") for head in ("entry", "", "takes", "of it")]]
    table += [
        [
            (row.entry, ""),
            (_excess_bar(0, row.tail_ns, total_ns, width), "cyan"),
            (format_duration(row.tail_ns), ""),
            (words.part_of(row.tail_ns, total_ns), ""),
        ]
        for row in shown
    ]
    if rest is not None:
        part = words.part_of(rest.tail_ns, total_ns)
        name = words.many(len(rest.rows), "smaller row")
        table.append([(name, "dim"), ("", ""), (format_duration(rest.tail_ns), "dim"), (part, "dim")])
    table.append([("total", "bold"), ("", ""), (format_duration(total_ns), "bold"), ("", "")])
    table += [[row[0], row[1], row[2], ("", "")] for row in _model_rows(moment)]
    return [*sheet.table(table, "<<>>"), *_no_model(moment, sheet)]


def _account_row(row: Row, longest_ns: int, sheet: Sheet) -> list[Cell]:
    """The owner only where there is room for it: the shares below name it again."""
    wide, over = sheet.width >= 100, rollup.over_ns(row) is not None
    share = "" if row.budget_ns is None else f"{'> ' if over else '  '}{format_duration(row.budget_ns)}"
    alarm = "bold red" if over else ""
    return [
        (row.entry, "bold" if row.excess_ns > 0 else ""),
        (_excess_bar(row.typical_ns, row.tail_ns, longest_ns, 20 if wide else 10), "cyan"),
        (format_duration(row.typical_ns), ""),
        (format_duration(row.tail_ns), ""),
        (words.signed(row.excess_ns), alarm),
        (share, alarm),
        (sheet.shorten(row.owner, NAME) if wide and row.owner else "", ""),
    ]


def _sum_row(name: str, typical_ns: int, tail_ns: int, style: str) -> list[Cell]:
    excess = words.signed(tail_ns - typical_ns)
    numbers = [(format_duration(typical_ns), style), (format_duration(tail_ns), style), (excess, style)]
    return [(name, style), ("", ""), *numbers, ("", ""), ("", "")]


def _model_rows(moment: MomentReport) -> list[list[Cell]]:
    """How much of the total is the model: one row where it is known, its bounds where it is not."""
    typical, tail = moment.typical_gap, moment.tail_gap
    if typical is None or tail is None or not words.has_model(moment):
        return []
    rows = [("of it the model", typical.low_ns, tail.low_ns)]
    if words.gap_is_open(moment):
        low = [("of it the model, at least", typical.low_ns, tail.low_ns)] if typical.low_ns or tail.low_ns else []
        rows = [*low, ("of it the model, at most", typical.high_ns, tail.high_ns)]
    return [
        [(name, ""), ("", ""), (format_duration(typical_ns), ""), (format_duration(tail_ns), ""), *[("", "")] * 3]
        for name, typical_ns, tail_ns in rows
    ]


def _no_model(moment: MomentReport, sheet: Sheet) -> Lines:
    return [] if words.has_model(moment) else sheet.paragraph(words.NO_MODEL, "dim")


def _excess_bar(typical_ns: int, tail_ns: int, longest_ns: int, width: int) -> str:
    """The typical part light, what the tail adds solid."""
    if not longest_ns:
        return ""
    base, end = (round(width * value_ns / longest_ns) for value_ns in (min(typical_ns, tail_ns), tail_ns))
    return "▒" * base + "█" * (end - base)


def _leads(moment: MomentReport, sheet: Sheet) -> Lines:
    leads = rollup.leads(moment, most=1)
    if not leads:
        return sheet.paragraph(words.NO_LEAD, "dim")
    lead = leads[0]
    owner = f" ({sheet.shorten(lead.row.owner, NAME)})" if lead.row.owner else ""
    entry = sheet.shorten(lead.row.entry, sheet.width // 2)
    return sheet.paragraph(f"Look first: {entry}{owner} {words.lead(lead)}")


def _shares(moment: MomentReport, sheet: Sheet) -> Lines:
    """Of many shares only those that were exceeded have a line; the others are named."""
    sums = rollup.by_share(moment)
    if not sums:
        return []
    shown = sums if len(sums) <= SHARES else [total for total in sums if total.over_ns is not None]
    rows: list[list[Cell]] = [[(name, "dim") for name in ("share", "owner", "limit", "typical", "tail", "")]]
    rows += [_share_row(total, sheet) for total in shown]
    within = [_share_name(total, sheet) for total in sums if total not in shown and total.limit_ns is not None]
    unlimited = [_share_name(total, sheet) for total in sums if total not in shown and total.limit_ns is None]
    return [
        *sheet.heading("Budget against actual", "of all rows that a share names"),
        *(sheet.table(rows, "<<>>><") if shown else []),
        *(sheet.paragraph(f"within: {', '.join(within)}", "dim") if within else []),
        *(sheet.paragraph(f"without a limit: {', '.join(unlimited)}", "dim") if unlimited else []),
    ]


def _share_row(total: ShareSum, sheet: Sheet) -> list[Cell]:
    over = f"over by {format_duration(total.over_ns)}" if total.over_ns is not None else ""
    return [
        (_share_name(total, sheet), ""),
        (sheet.shorten(total.owner or "", NAME), ""),
        ("none" if total.limit_ns is None else format_duration(total.limit_ns), ""),
        (format_duration(total.typical_ns), ""),
        (format_duration(total.tail_ns), ""),
        (over, "bold red"),
    ]


def _share_name(total: ShareSum, sheet: Sheet) -> str:
    return sheet.shorten(total.entry or "everything else", 2 * NAME)


def _distribution(moment: MomentReport, sheet: Sheet) -> Lines:
    if sum(each.count for each in moment.bins) < DISTRIBUTED:
        return []
    columns = _columns(moment.bins, sheet.width - INDENT)
    most = max(each.count for each in columns)
    spark = "".join(_LEVELS[-(-each.count * 8 // most) - 1] if each.count else " " for each in columns)
    low, high = format_duration(columns[0].low_ns), format_duration(columns[-1].high_ns)
    return [
        *sheet.heading("Distribution", f"of those served, {low} to {high}"),
        *sheet.table([[(spark, "cyan")]], "<"),
        *_markers(moment, columns, sheet),
    ]


def _columns(bins: Sequence[Bin], most: int) -> list[Bin]:
    """Neighbouring bins together until at most `most` are left."""
    step = -(-len(bins) // most)
    groups = (bins[start : start + step] for start in range(0, len(bins), step))
    return [Bin(low_ns=g[0].low_ns, high_ns=g[-1].high_ns, count=sum(each.count for each in g)) for g in groups]


def _markers(moment: MomentReport, columns: Sequence[Bin], sheet: Sheet) -> Lines:
    """The budget and the percentiles under the column that holds them, as many on a line as have room."""
    lines: Lines = []
    for name, value_ns in rollup.landmarks(moment):
        place = next((index for index, each in enumerate(columns) if value_ns <= each.high_ns), len(columns))
        sign = "^" if place < len(columns) else ">"
        label = f"{name} {format_duration(value_ns)}"
        left = INDENT + place + 2 + len(label) > sheet.width
        text = f"{label} {sign}" if left else f"{sign} {label}"
        start = INDENT + (place + 1 - len(text) if left else place)
        line = next((line for line in lines if line.cell_len + 2 <= start), None)
        if line is None:
            line = Text("")
            lines.append(line)
        line.pad_right(start - line.cell_len)
        line.append(sheet.ink(text), "bold" if name == "budget" else "")
    return lines


def _slowest(moment: MomentReport, sheet: Sheet) -> Lines:
    if not moment.slowest:
        return []
    shown = moment.slowest[:SLOWEST]
    rows: list[list[Cell]] = [
        [
            (sheet.shorten(slow.id, NAME), ""),
            (format_duration(slow.total_ns), "bold"),
            (slow.outcome, ""),
            *_most(slow),
        ]
        for slow in shown
    ]
    single = rollup.is_single(moment)
    timeline = [] if rollup.is_dominated(shown[0]) else _waterfall(shown[0], LANES * 2 if single else LANES, sheet)
    if single:
        return [*sheet.heading("In time", shown[0].id), *timeline] if timeline else []
    many = f"{len(shown)} of {words.count(len(moment.slowest))}, " if len(moment.slowest) > len(shown) else ""
    title = f"{sheet.shorten(shown[0].id, NAME)} over {format_duration(shown[0].total_ns)}:"
    return [
        *sheet.heading("Slowest", f"{many}and the entry that took most of each"),
        *sheet.table(rows, "<><><", flex=4),
        *(sheet.paragraph(title, "dim") if timeline else []),
        *timeline,
    ]


def _most(slow: Slow) -> list[Cell]:
    """The entry that took most of one interaction; blank for one without segments."""
    largest = rollup.largest(slow, 1)
    return (
        [(format_duration(largest[0].duration_ns), "dim"), (largest[0].entry, "")] if largest else [("", ""), ("", "")]
    )


def _waterfall(slow: Slow, most: int, sheet: Sheet) -> Lines:
    """The longest pieces of one interaction, in time."""
    if slow.total_ns <= 0:
        return []
    longest = sorted(slow.segments, key=lambda segment: -segment.duration_ns)[:most]
    lanes = sorted(longest, key=lambda segment: segment.start_ns)
    width = 30 if sheet.width >= 100 else 16
    rows: list[list[Cell]] = [
        [
            (segment.entry, ""),
            (_lane(segment, slow.total_ns, width), "cyan"),
            (format_duration(segment.duration_ns), ""),
            (words.doubt(segment), "yellow"),
        ]
        for segment in lanes
    ]
    left = len(slow.segments) - len(lanes)
    if left:
        left_ns = slow.total_ns - sum(segment.duration_ns for segment in lanes)
        rows.append([(words.many(left, "shorter piece"), "dim"), ("", ""), (format_duration(left_ns), "dim"), ("", "")])
    return sheet.table(rows, "<<><")


def _lane(segment: Segment, total_ns: int, width: int) -> str:
    start = min(width - 1, width * segment.start_ns // total_ns)
    end = max(start + 1, round(width * (segment.start_ns + segment.duration_ns) / total_ns))
    solid = "░" if term_of(segment.entry) == UNATTRIBUTED else "█"
    return "·" * start + ("▒" if segment.ambiguous else solid) * (end - start) + "·" * (width - end)


def _cohorts(moment: MomentReport, sheet: Sheet) -> Lines:
    if not moment.cohorts:
        return []
    key = sheet.shorten(" × ".join(moment.cohorts[0].key), 2 * NAME)
    heads = (key, "n", "p50", "p99", "on time", "tail is mostly")
    rows: list[list[Cell]] = [[(head, "dim") for head in heads]]
    rows += [_cohort_row(cohort, sheet) for cohort in moment.cohorts[:COHORTS]]
    more = len(moment.cohorts) - COHORTS
    return [
        *sheet.heading("Cohorts"),
        *sheet.table(rows, "<>>>><", flex=5),
        *(sheet.paragraph(f"and {words.count(more)} more; --json holds all", "dim") if more > 0 else []),
    ]


def _cohort_row(cohort: CohortRow, sheet: Sheet) -> list[Cell]:
    key = " × ".join("?" if value is None else value for value in cohort.key.values())
    return [
        (sheet.shorten(key, 2 * NAME), ""),
        (words.count(cohort.n), ""),
        (words.percentile_value(cohort.p50), ""),
        (words.percentile_value(cohort.p99), ""),
        (_share(cohort.on_time), ""),
        (cohort.leading or "", ""),
    ]


def _share(on_time: OnTime | None) -> str:
    return "" if on_time is None else words.percent(on_time.share)


def _health(moment: MomentReport, sheet: Sheet) -> Lines:
    """The kinds met most often in words, the others by name."""
    lines: Lines = sheet.heading("Health of the data") if moment.health else []
    kinds = sorted(moment.health, key=lambda health: -health.count)
    for health in kinds[:KINDS]:
        text = f"{_kind(health)}: {words.health_meaning(health.kind)} (such as {health.example})"
        lines += sheet.paragraph(text, most=2)
    if len(kinds) > KINDS:
        lines += sheet.paragraph(f"also {', '.join(_kind(health) for health in kinds[KINDS:])}")
    return lines


def _kind(health: Health) -> str:
    return f"{words.count(health.count)} × {health.kind}"
