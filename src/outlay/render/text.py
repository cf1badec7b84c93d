"""A Report for a terminal: about one screen a moment, aligned in any width from 60 columns up.

Colour only repeats what the words say, so a pipe, a log and a colour-blind reader lose nothing.
"""

from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from outlay.load import Load
from outlay.render import causes, loads, rollup, text_account, text_causes, words
from outlay.render.sheet import INDENT, Cell, Lines, Sheet
from outlay.report import Bin, CohortRow, Health, MomentReport, OnTime, Percentile, Report, Segment, Slow
from outlay.stages import UNATTRIBUTED, term_of
from outlay.units import format_duration

COHORTS = 6
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
    sections = (text_causes.start, text_causes.findings, text_account.account, text_account.shares, _slowest, _health)
    return [line for section in sections for line in section(moment, sheet)]


def _moment(moment: MomentReport, sheet: Sheet) -> Lines:
    return [
        *_headline(moment, sheet),
        *text_causes.findings(moment, sheet),
        *text_causes.sections(causes.changed(moment), sheet),
        *text_account.account(moment, sheet),
        *text_causes.sections(causes.for_whom(moment), sheet),
        *text_account.shares(moment, sheet),
        *text_causes.sections(causes.whose(moment), sheet),
        *_distribution(moment, sheet),
        *_slowest(moment, sheet),
        *_cohorts(moment, sheet),
        *_health(moment, sheet),
    ]


def _headline(moment: MomentReport, sheet: Sheet) -> Lines:
    state = words.verdict_state(moment)
    name = sheet.shorten(moment.moment, max(sheet.width - len(state) - 4, 4))
    title = _title(name, state, _VERDICT_STYLE[state], sheet)
    lines = [Text(""), title, *sheet.paragraph(_verdict(moment)), *text_causes.start(moment, sheet)]
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
        lines += sheet.paragraph(words.covered(moment))
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
