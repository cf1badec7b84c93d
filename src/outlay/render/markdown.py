"""A Report as Markdown with GitHub's tables, for a pull request or a chat."""

import re
from collections.abc import Sequence

from outlay.load import Load
from outlay.render import causes, flame, loads, rollup, words
from outlay.render.causes import Section
from outlay.render.untrusted import visible
from outlay.render.words import Name, Sentence
from outlay.report import CohortRow, Finding, Health, MomentReport, Percentile, Report, Row, Slow
from outlay.stages import term_of
from outlay.units import format_duration

ROWS = 20
COHORTS = 30
SLOWEST = 5
SEGMENTS = 40

_LOAD_BADGE = {"VALID": "✅ VALID", "DEGRADED": "⚠️ DEGRADED", "INVALID": "❌ INVALID"}
_BADGE = {"PASS": "✅ PASS", "FAIL": "❌ FAIL", "UNDECIDED": "❔ UNDECIDED", words.NO_BUDGET: "no budget"}

# What may stand between backticks as it is; anything else is spelt in entities, which no renderer reads as markup.
_PLAIN = re.compile(r"[A-Za-z0-9_./:>*+=, -]*[A-Za-z0-9_./:>*+=,-]")
# A dot stays inside a number, and where it ends a word: elsewhere it could make a link out of a host's name, or a list.
_SPECIAL = re.compile(r"[^A-Za-z0-9 .,:;=%()'+±×–…-]|(?<!\d)\.(?! |$)|(?<=\d)\.(?!\d)")

Lines = list[str]


def to_markdown(report: Report) -> str:
    """The whole report; ends with a newline."""
    lines = ["# Latency report", "", _inputs(report)]
    if not report.moments and not report.loads:
        lines += ["", "No moment was found in this data."]
    for load in report.loads:
        lines += _load(load)
    for moment in report.moments:
        lines += _moment(moment)
    return "\n".join(lines) + "\n"


def name(text: str) -> str:
    """A name from the data as code: no markup, no table border, no mention or link comes out of it."""
    text = visible(text)
    if not text:
        return ""
    if _PLAIN.fullmatch(text) and not text.startswith(" "):
        return f"`{text}`"
    return f"<code>{prose(text)}</code>"


def prose(text: str) -> str:
    """A sentence in which nothing is markup."""
    return _SPECIAL.sub(lambda char: char[0] if char[0].isalnum() else f"&#{ord(char[0])};", visible(text))


def sentence(value: Sentence) -> str:
    """A sentence with its names as code."""
    return "".join(name(piece) if isinstance(piece, Name) else prose(piece) for piece in value)


def _inputs(report: Report) -> str:
    alike = words.one_format(report)
    names = [
        name(source.name) if alike else f"{name(source.name)} ({name(source.format)})"
        for source in words.listed(report)
    ]
    names += [f"and {words.count(words.unlisted(report))} more"] if words.unlisted(report) else []
    inputs = ": ".join(part for part in (prose(words.inputs(report)), ", ".join(names)) if part)
    where = ", ".join(name(pair) for pair in words.pairs(report.filters))
    return inputs + (f", where {where}" if where else "")


def _load(load: Load) -> Lines:
    """How the load was delivered: whether its numbers count stands before any of them."""
    who = f"{name(load.tool)} ({name(load.moment)})" if load.moment else name(load.tool)
    lines = ["", f"## Load {name(load.name)}: {_LOAD_BADGE[loads.verdict(load)]}"]
    lines += [line for reason in loads.reasons(load) for line in ("", f"{prose(reason)}.")]
    lines += ["", f"{who}: {loads.facts(load)}."]
    lines += [line for stop in loads.stops(load) for line in ("", f"> {stop}.")]
    rows = [[name(level.name), f"**{level.between}**", level.claimed] for level in loads.levels(load)]
    return lines + (_table(("response", "lies in", loads.claims(load)), "<<<", rows) if rows else [])


def _moment(moment: MomentReport) -> Lines:
    return [
        *_headline(moment),
        *_percentiles(moment),
        *_findings(moment),
        *_sections(causes.changed(moment)),
        *_account(moment),
        *_model(moment),
        *_sections(causes.for_whom(moment)),
        *_shares(moment),
        *_sections(causes.whose(moment)),
        *_slowest(moment),
        *_cohorts(moment),
        *_health(moment),
    ]


def _table(heads: Sequence[str], align: str, rows: Sequence[Sequence[str]]) -> Lines:
    """`align` holds `<` or `>` a column."""
    borders = ["---:" if side == ">" else "---" for side in align]
    return ["", *("| " + " | ".join(cells) + " |" for cells in (heads, borders, *rows))]


def _details(title: str, lines: Lines) -> Lines:
    return ["", f"<details><summary>{title}</summary>", *lines, "", "</details>"]


def _headline(moment: MomentReport) -> Lines:
    lines = ["", f"## {name(moment.moment)}: {_BADGE[words.verdict_state(moment)]}", ""]
    says = words.NO_VERDICT
    if moment.budget is not None and moment.verdict is not None:
        title, limit = words.verdict_title(moment).capitalize(), prose(words.budget(moment.budget))
        says = f"**{title}** ({limit}): {prose(words.verdict_reason(moment.verdict))}."
    ended = ", ".join(f"{name(outcome)} {words.count(number)}" for outcome, number in words.outcomes(moment))
    lines += [says]
    if start := causes.start(moment):
        lines += ["", sentence(start)]
    lines += ["", words.measured(moment) + (f": {ended}" if ended else "") + "."]
    if worth := words.worth(moment):
        lines += ["", f"{worth.capitalize()}."]
    if moment.on_time is not None:
        lines += ["", f"On time: {words.on_time(moment.on_time)}."]
    if moment.validity_why:
        lines += ["", f"> {prose(words.validity(moment))}."]
    return lines


def _percentiles(moment: MomentReport) -> Lines:
    covered = words.covered(moment)
    return [*_percentile_table(moment), *(["", f"{prose(covered)}."] if covered else [])]


def _percentile_table(moment: MomentReport) -> Lines:
    served = {percentile.level: percentile for percentile in moment.served}
    if not served:
        return _table(
            ("", "over all", "95 % interval"), "<><", [_percentile_row(percentile) for percentile in moment.total]
        )
    rows = [
        [*_percentile_row(percentile), *_percentile_row(served[percentile.level])[1:]]
        for percentile in moment.total
        if percentile.level in served
    ]
    return _table(("", "over all", "95 % interval", "of those served", "95 % interval"), "<><><", rows)


def _percentile_row(percentile: Percentile) -> Lines:
    value, detail = words.percentile_value(percentile), words.percentile_detail(percentile)
    return [words.percentile_name(percentile.level), f"**{value}**", prose(detail)]


def _findings(moment: MomentReport) -> Lines:
    """What can be avoided, in order; below it what shows each."""
    if not moment.findings:
        return []
    levels = causes.levels(moment)
    heads = (
        "",
        "term",
        "in the tail",
        *(f"back at {words.percentile_name(level)}" for level in levels),
        "owner",
        "fix",
    )
    rows = [_finding(place, finding, levels) for place, finding in enumerate(moment.findings, start=1)]
    seen = [f"- {finding.term}: {prose(text)}" for finding in moment.findings for text in finding.evidence]
    notes = [line for told in causes.assumptions(moment) for line in ("", sentence(told))]
    title = ["", "### What to do", "", f"{causes.ALONE.capitalize()}."]
    align = "<<>" + "<" * len(levels) + "<<"
    return [*title, *_table(heads, align, rows), *(["", "Seen:", "", *seen] if seen else []), *notes]


def _finding(place: int, finding: Finding, levels: Sequence[float]) -> Lines:
    back = [causes.back(causes.at(finding.what_if, level)) for level in levels]
    back[0] = f"**{back[0]}**" if back[0] else ""
    tail = format_duration(finding.tail_ns)
    return [f"{place}.", finding.term, tail, *back, name(finding.owner or ""), prose(finding.fix)]


def _sections(sections: Sequence[Section]) -> Lines:
    return [line for section in sections for line in _section(section)]


def _section(section: Section) -> Lines:
    note = sentence(section.note)
    rows = [[sentence(cell) for cell in row] for row in section.rows]
    return [
        "",
        f"### {section.title}",
        *(["", f"{note[:1].upper()}{note[1:]}."] if note else []),
        *(_table(section.heads, section.align, rows) if rows else []),
        *(["", *(f"- {sentence(line)}" for line in section.lines)] if section.lines else []),
    ]


def _account(moment: MomentReport) -> Lines:
    if moment.typical_ns is None or moment.tail_ns is None:
        return []
    shown, rest = rollup.fold(moment.account, ROWS)
    sets = words.sets(moment)
    rows = [_account_row(row, sets=bool(sets)) for row in shown]
    if rest is not None:
        folded = f"_{words.many(len(rest.rows), 'smaller row')}_"
        rows.append([folded, "", *_numbers(rest.typical_ns, rest.tail_ns, rest.sets_ns), "", ""])
    totals = _numbers(moment.typical_ns, moment.tail_ns, rollup.sets_ns(moment.account))
    rows.append(["**total**", "", *(f"**{number}**" for number in totals), "", ""])
    tail, read = words.fills(moment), words.attributions(moment)
    heads = ("entry", "term", "typical", tail, *((sets,) if sets else ()), "excess", "share", "owner")
    return [
        "",
        "### Where the time goes",
        "",
        f"Typical: {prose(moment.typical_label)}. {tail.capitalize()}: {prose(moment.tail_label)}.",
        *(["", prose(read)] if read else []),
        *_table(heads, "<<>>>><<" if sets else "<<>>><<", rows),
        *([] if moment.findings else _leads(moment)),
        *_flame(moment),
    ]


def _account_row(row: Row, *, sets: bool) -> Lines:
    over_ns, share = rollup.over_ns(row), "" if row.budget_ns is None else format_duration(row.budget_ns)
    if over_ns is not None:
        share += f", **over by {format_duration(over_ns)}**"
    numbers = _numbers(row.typical_ns, row.tail_ns, row.sets_ns if sets else None)
    bracket = words.bounds(row.excess_ns, row.excess_interval_ns)
    numbers[-1] += f" {prose(bracket)}" if bracket else ""
    return [name(row.entry), row.term, *numbers, share, name(row.owner or "")]


def _numbers(typical_ns: int, tail_ns: int, sets_ns: int | None) -> Lines:
    sets = [] if sets_ns is None else [format_duration(sets_ns)]
    return [format_duration(typical_ns), format_duration(tail_ns), *sets, words.signed(tail_ns - typical_ns)]


def _flame(moment: MomentReport) -> Lines:
    """The components and what each adds; the table above holds the stages and parts."""
    drawn = flame.flame(moment.account)
    if not flame.is_worth_drawing(drawn):
        return []
    added = [f"{name(frame.name)} {flame.told(frame)}" for frame in drawn.added if frame.depth == 0]
    return ["", f"By component: {', '.join(added)}. Together: {flame.summed(drawn)}."]


def _leads(moment: MomentReport) -> Lines:
    leads = rollup.leads(moment)
    if not leads:
        return ["", words.NO_LEAD]
    ranked = [
        f"{place}. {name(lead.row.entry)}{f' ({name(lead.row.owner)})' if lead.row.owner else ''} {words.lead(lead)}"
        for place, lead in enumerate(leads, start=1)
    ]
    return ["", "Look first at:", "", *ranked]


def _model(moment: MomentReport) -> Lines:
    gaps = [("typical", moment.typical_gap), (words.fills(moment), moment.tail_gap)]
    items = [f"- {label}: {words.model_gap(gap)}" for label, gap in gaps if gap is not None]
    if not items:
        return []
    if not words.has_model(moment):
        items = [f"{words.NO_MODEL.capitalize()}."]
    note = ["", words.OPEN_GAP] if words.gap_is_open(moment) else []
    return ["", "### Model time against end to end", "", *items, *note]


def _shares(moment: MomentReport) -> Lines:
    sums = rollup.by_share(moment)
    if not sums:
        return []
    rows = [
        [
            name(total.entry) if total.entry else "everything else",
            name(total.owner or ""),
            "none" if total.limit_ns is None else format_duration(total.limit_ns),
            format_duration(total.typical_ns),
            format_duration(total.tail_ns),
            "" if total.over_ns is None else f"**over by {format_duration(total.over_ns)}**",
        ]
        for total in sums
    ]
    heads = ("share", "owner", "limit", "typical", "tail", "")
    return ["", "### Budget against actual", *_table(heads, "<<>>><", rows)]


def _slowest(moment: MomentReport) -> Lines:
    if not moment.slowest:
        return []
    lines = ["", "### Slowest"]
    for slow in moment.slowest[:SLOWEST]:
        where = ", ".join(name(pair) for pair in words.pairs(slow.dimensions))
        title = f"{format_duration(slow.total_ns)} {prose(slow.outcome)} <code>{prose(slow.id)}</code>"
        lines += _details(title, [*(["", where] if where else []), *_segments(slow)])
    return lines


def _segments(slow: Slow) -> Lines:
    drawn = slow.segments[:SEGMENTS]
    rows = [
        [
            name(segment.entry),
            term_of(segment.entry),
            format_duration(segment.start_ns),
            format_duration(segment.duration_ns),
            words.doubt(segment),
        ]
        for segment in drawn
    ]
    left = len(slow.segments) - len(drawn)
    if left:
        left_ns = slow.total_ns - sum(segment.duration_ns for segment in drawn)
        rows.append([f"_{words.many(left, 'later piece')}_", "", "", format_duration(left_ns), ""])
    return _table(("entry", "term", "starts after", "takes", ""), "<<>><", rows)


def _cohorts(moment: MomentReport) -> Lines:
    if not moment.cohorts:
        return []
    keys = list(moment.cohorts[0].key)
    heads = [*(name(key) for key in keys), "n", "p50", "p99", "on time", "tail is mostly"]
    rows = [_cohort_row(cohort, keys) for cohort in moment.cohorts[:COHORTS]]
    more = len(moment.cohorts) - len(rows)
    note = ["", f"and {words.count(more)} more"] if more else []
    return ["", "### Cohorts", *_table(heads, "<" * len(keys) + ">>>><", rows), *note]


def _cohort_row(cohort: CohortRow, keys: Sequence[str]) -> Lines:
    values = [cohort.key[key] for key in keys]
    return [
        *("_unknown_" if value is None else name(value) for value in values),
        words.count(cohort.n),
        words.percentile_value(cohort.p50),
        words.percentile_value(cohort.p99),
        "" if cohort.on_time is None else words.percent(cohort.on_time.share),
        name(cohort.leading or ""),
    ]


def _health(moment: MomentReport) -> Lines:
    if not moment.health:
        return []
    return ["", "### Health of the data", "", *(_note(health) for health in moment.health)]


def _note(health: Health) -> str:
    meaning = words.health_meaning(health.kind)
    return f"- {words.count(health.count)} × {name(health.kind)}: {meaning}, such as {name(health.example)}"
