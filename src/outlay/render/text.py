"""A Report for a terminal: about one screen a moment, aligned in any width from 60 columns up.

Colour only repeats what the words say, so a pipe, a log and a colour-blind reader lose nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

from outlay.render import rollup, words
from outlay.render.untrusted import visible
from outlay.report import Bin, CohortRow, MomentReport, OnTime, Percentile, Report, Row, Segment, Slow
from outlay.stages import UNATTRIBUTED, term_of
from outlay.units import format_duration

ROWS = 10
COHORTS = 6
SLOWEST = 3
LANES = 6
NAME = 16
INDENT = 2

_VERDICT_STYLE = {"PASS": "bold green", "FAIL": "bold red", "UNDECIDED": "bold yellow", words.NO_BUDGET: "bold"}
_LEVELS = "▁▂▃▄▅▆▇█"

# What a console without UTF-8 gets; applied before anything is measured.
_PLAIN = str.maketrans("▁▂▃▄▅▆▇█▒░·─×µμ–−", "_.:-=+*#:?.-xuu--") | {ord("±"): "+-", ord("…"): ".."}

Lines = list[Text]
Cell = tuple[str, str]


def render(report: Report, console: Console) -> None:
    """Print the report to the console, in its width and encoding."""
    sheet = Sheet(console=console)
    for line in [*_front(report, sheet), *(line for moment in report.moments for line in _moment(moment, sheet))]:
        line.rstrip()
        console.print(line, soft_wrap=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sheet:
    """Where text lands: everything drawn passes through `ink`, so nothing from the data can steer the terminal."""

    console: Console

    @property
    def width(self) -> int:
        """Columns there are."""
        return self.console.width

    def ink(self, text: str) -> str:
        """`text` with harmless characters only, all of them within the console's encoding."""
        text = visible(text)
        if self.console.encoding.startswith("utf"):
            return text
        text = text.translate(_PLAIN)
        encoded = (char.encode(self.console.encoding, "replace") == b"?" and char != "?" for char in text)
        return "".join("?" * cell_len(char) if lost else char for char, lost in zip(text, encoded, strict=True))

    def paragraph(self, text: str, style: str = "", indent: int = INDENT) -> Lines:
        """Text wrapped into the width."""
        wrapped = Text(self.ink(text), style).wrap(self.console, max(self.width - indent, 1), overflow="fold")
        return [Text(" " * indent) + line for line in wrapped]

    def heading(self, title: str, note: str = "") -> Lines:
        """A section's title, with a note on how to read it where there is room."""
        line = Text(self.ink(title), "bold")
        if note and cell_len(title) + 2 + cell_len(note) <= self.width:
            line.append(self.ink("  " + note), "dim")
        return [Text(""), line]

    def table(self, rows: Sequence[Sequence[Cell]], align: str, flex: int = 0) -> Lines:
        """Rows as aligned columns; `align` holds `<` or `>` a column. Column `flex` is shortened until all fits."""
        if not rows:
            return []
        inked = [[(self.ink(text), style) for text, style in row] for row in rows]
        widths = [max(cell_len(row[place][0]) for row in inked) for place in range(len(align))]
        others = sum(width + 2 for place, width in enumerate(widths) if width and place != flex)
        widths[flex] = min(widths[flex], max(self.width - INDENT - others, 4))
        return [self._row(row, align, widths, flex) for row in inked]

    def _row(self, row: Sequence[Cell], align: str, widths: Sequence[int], flex: int) -> Text:
        line = Text(" " * INDENT)
        shown = [place for place, width in enumerate(widths) if width]
        for place in shown:
            text, style = row[place]
            if place == flex:
                text = self.shorten(text, widths[place])
            gap = " " * (widths[place] - cell_len(text))
            line.append(gap if align[place] == ">" else "").append(text, style)
            line.append("" if align[place] == ">" else gap).append("  " if place != shown[-1] else "")
        line.truncate(self.width)
        return line

    def shorten(self, text: str, room: int) -> str:
        """The start and the end of `text`, inked, in `room` columns: an entry's stage stands at its end."""
        text = self.ink(text)
        if cell_len(text) <= room:
            return text
        head = set_cell_size(text, room // 3) + self.ink("…")
        tail = text[-room:]
        while tail and cell_len(head + tail) > room:
            tail = tail[1:]
        return set_cell_size(head + tail, room).rstrip()


def _front(report: Report, sheet: Sheet) -> Lines:
    names = [f"{source.name} ({source.format})" for source in report.sources[: words.SOURCES]]
    names += [f"and {words.count(words.unlisted(report))} more"] if words.unlisted(report) else []
    inputs = ": ".join(part for part in (words.inputs(report), ", ".join(names)) if part)
    lines = sheet.paragraph(inputs, "dim", indent=0)
    if report.filters:
        lines += sheet.paragraph(f"where {', '.join(words.pairs(report.filters))}", "dim", indent=0)
    return lines if report.moments else [*lines, *sheet.paragraph("No moment was found in this data.", indent=0)]


def _moment(moment: MomentReport, sheet: Sheet) -> Lines:
    sections = (_headline, _account, _model, _shares, _distribution, _slowest, _cohorts, _health)
    return [line for section in sections for line in section(moment, sheet)]


def _headline(moment: MomentReport, sheet: Sheet) -> Lines:
    state = words.verdict_state(moment)
    name = sheet.shorten(moment.moment, max(sheet.width - len(state) - 4, 4))
    title = Text(name, "bold").append("  ").append(state, _VERDICT_STYLE[state]).append("  ")
    title.append(sheet.ink("─") * (sheet.width - title.cell_len), "dim")
    lines = [Text(""), title]
    says = words.verdict_title(moment).capitalize()
    if moment.budget is not None:
        says += f" ({words.budget(moment.budget)})"
    if moment.verdict is not None:
        says += f": {words.verdict_reason(moment.verdict)}"
        lines += sheet.paragraph(f"{says}.")
    if moment.validity_why:
        lines += sheet.paragraph(f"{words.validity(moment)}.", "yellow")
    return [*lines, *_facts(moment, sheet)]


def _facts(moment: MomentReport, sheet: Sheet) -> Lines:
    ended = ", ".join(f"{name} {words.count(number)}" for name, number in words.outcomes(moment))
    lines = [Text(""), *sheet.paragraph(words.measured(moment) + (f": {ended}" if ended else ""))]
    served = {percentile.level: percentile for percentile in moment.served}
    rows = [_percentile_row(percentile, served.get(percentile.level)) for percentile in moment.total]
    if any(percentile.value_ns is not None for percentile in moment.total):
        head = [("", ""), ("over all" if served else "", "dim"), ("95 % interval", "dim")]
        rows = [[*head, ("of those served" if served else "", "dim"), ("", "")], *rows]
    lines += sheet.table(rows, "<><><", flex=2)
    if moment.on_time is not None:
        lines += sheet.paragraph(f"on time {words.on_time(moment.on_time)}")
    return lines


def _percentile_row(percentile: Percentile, served: Percentile | None) -> list[Cell]:
    return [
        (words.percentile_name(percentile.level), ""),
        (words.percentile_value(percentile), "bold"),
        (words.percentile_detail(percentile), ""),
        (words.percentile_value(served) if served else "", "bold"),
        (words.percentile_detail(served) if served else "", ""),
    ]


def _account(moment: MomentReport, sheet: Sheet) -> Lines:
    if moment.typical_ns is None or moment.tail_ns is None:
        return []
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
    key = "▒ typical  █ added in the tail"
    return [
        *sheet.heading("Where the time goes", f"{key}  > over its share" if shared else key),
        *sheet.paragraph(f"typical: {moment.typical_label}; tail: {moment.tail_label}", "dim"),
        *sheet.table(table, "<<>>><<"),
        *_leads(moment, sheet),
    ]


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
    owner = f" ({lead.row.owner})" if lead.row.owner else ""
    return sheet.paragraph(f"Look first: {lead.row.entry}{owner} {words.lead(lead)}")


def _model(moment: MomentReport, sheet: Sheet) -> Lines:
    gaps = [("typical", moment.typical_gap), ("tail", moment.tail_gap)]
    rows = [[(name, "dim"), (words.model_gap(gap), "")] for name, gap in gaps if gap is not None]
    if not rows:
        return []
    note = sheet.paragraph(words.OPEN_GAP, "dim") if words.gap_is_open(moment) else []
    return [*sheet.heading("Model time against end to end"), *sheet.table(rows, "<<", flex=1), *note]


def _shares(moment: MomentReport, sheet: Sheet) -> Lines:
    sums = rollup.by_share(moment)
    if not sums:
        return []
    rows: list[list[Cell]] = [[(name, "dim") for name in ("share", "owner", "limit", "typical", "tail", "")]]
    for total in sums:
        over = f"over by {format_duration(total.over_ns)}" if total.over_ns is not None else ""
        rows.append(
            [
                (total.entry or "everything else", ""),
                (sheet.shorten(total.owner or "", NAME), ""),
                ("none" if total.limit_ns is None else format_duration(total.limit_ns), ""),
                (format_duration(total.typical_ns), ""),
                (format_duration(total.tail_ns), ""),
                (over, "bold red"),
            ]
        )
    return [*sheet.heading("Budget against actual"), *sheet.table(rows, "<<>>><")]


def _distribution(moment: MomentReport, sheet: Sheet) -> Lines:
    if not moment.bins:
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
    """The budget and the percentiles under the column that holds them, each on a line of its own."""
    lines: Lines = []
    for name, value_ns in rollup.landmarks(moment):
        place = next((index for index, each in enumerate(columns) if value_ns <= each.high_ns), len(columns))
        sign = "^" if place < len(columns) else ">"
        label = f"{name} {format_duration(value_ns)}"
        left = INDENT + place + 2 + len(label) > sheet.width
        text = f"{label} {sign}".rjust(place + 1) if left else f"{' ' * place}{sign} {label}"
        lines += [Text(" " * INDENT + sheet.ink(text), "bold" if name == "budget" else "")]
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
    more = len(moment.slowest) - len(shown)
    return [
        *sheet.heading("Slowest", "and the entry that took most of each"),
        *sheet.table(rows, "<><><", flex=4),
        *(sheet.paragraph(f"and {words.count(more)} more", "dim") if more else []),
        *_waterfall(shown[0], sheet),
    ]


def _most(slow: Slow) -> list[Cell]:
    """The entry that took most of one interaction; blank for one without segments."""
    largest = rollup.largest(slow, 1)
    return (
        [(format_duration(largest[0].duration_ns), "dim"), (largest[0].entry, "")] if largest else [("", ""), ("", "")]
    )


def _waterfall(slow: Slow, sheet: Sheet) -> Lines:
    """The longest pieces of one interaction, in time."""
    if slow.total_ns <= 0:
        return []
    longest = sorted(slow.segments, key=lambda segment: -segment.duration_ns)[:LANES]
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
    title = f"{sheet.shorten(slow.id, NAME)} over {format_duration(slow.total_ns)}:"
    return [*sheet.paragraph(title, "dim"), *sheet.table(rows, "<<><")]


def _lane(segment: Segment, total_ns: int, width: int) -> str:
    start = min(width - 1, width * segment.start_ns // total_ns)
    end = max(start + 1, round(width * (segment.start_ns + segment.duration_ns) / total_ns))
    solid = "░" if term_of(segment.entry) == UNATTRIBUTED else "█"
    return "·" * start + ("▒" if segment.ambiguous else solid) * (end - start) + "·" * (width - end)


def _cohorts(moment: MomentReport, sheet: Sheet) -> Lines:
    if not moment.cohorts:
        return []
    key = sheet.shorten(" × ".join(moment.cohorts[0].key), 2 * NAME)
    heads = (key, "n", "p50", "p99", "on time", "most of the tail")
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
    lines: Lines = sheet.heading("Health of the data") if moment.health else []
    for health in moment.health:
        meaning = words.health_meaning(health.kind)
        lines += sheet.paragraph(f"{words.count(health.count)} × {health.kind}: {meaning} (such as {health.example})")
    return lines
