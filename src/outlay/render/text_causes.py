"""Causes for a terminal: where to start, what each change would give back, for whom it is slow, whose part it is."""

from collections.abc import Sequence

from outlay.render import causes, words
from outlay.render.causes import Section
from outlay.render.sheet import INDENT, Cell, Lines, Sheet
from outlay.report import Finding, MomentReport
from outlay.units import format_duration

FINDINGS = 5
EVIDENCE = 3
LINES = 6
NAME = 16
DEEPER = INDENT + 4


def start(moment: MomentReport, sheet: Sheet) -> Lines:
    """Where to start, in a few words; nothing without findings."""
    return sheet.paragraph(words.plain(causes.start(moment)), "bold")


def findings(moment: MomentReport, sheet: Sheet) -> Lines:
    """What can be avoided, in order, each with what shows it; then what several changes do together."""
    if not moment.findings:
        return []
    level = causes.levels(moment)[0]
    name = words.percentile_name(level)
    head = [(text, "dim") for text in ("", "term", "in the tail", f"comes back at {name}", "owner")]
    shown = moment.findings[:FINDINGS]
    rows = [_finding(place, finding, level, sheet) for place, finding in enumerate(shown, start=1)]
    first, *lines = sheet.table([head, *rows], "<<><<", flex=4)
    told = [first]
    for finding, line in zip(shown, lines, strict=True):
        told += [line, *_below(finding, sheet)]
    more = len(moment.findings) - len(shown)
    told += sheet.paragraph(f"and {words.count(more)} more; --json holds all", "dim") if more else []
    for sentence in causes.assumptions(moment):
        told += sheet.paragraph(words.plain(sentence), "dim")
    return [*sheet.heading("What to do", causes.ALONE), *told]


def _finding(place: int, finding: Finding, level: float, sheet: Sheet) -> list[Cell]:
    return [
        (f"{place}.", ""),
        (finding.term, "bold"),
        (format_duration(finding.tail_ns), ""),
        (causes.back(causes.at(finding.what_if, level)), "bold"),
        (sheet.shorten(finding.owner or "", NAME), ""),
    ]


def _below(finding: Finding, sheet: Sheet) -> Lines:
    seen = [f"Seen: {text}." for text in finding.evidence[:EVIDENCE]]
    lines = sheet.paragraph(f"Fix: {finding.fix}.", indent=DEEPER)
    return [*lines, *(line for text in seen for line in sheet.paragraph(text, "dim", indent=DEEPER))]


def sections(several: Sequence[Section], sheet: Sheet) -> Lines:
    """Sections one after the other."""
    return [line for section in several for line in _section(section, sheet)]


def _section(section: Section, sheet: Sheet) -> Lines:
    rows: list[list[Cell]] = [[(head, "dim") for head in section.heads]] if section.rows else []
    rows += [[(words.plain(cell), "") for cell in row] for row in section.rows]
    more = len(section.lines) - LINES
    lines = [line for told in section.lines[:LINES] for line in sheet.paragraph(words.plain(told))]
    lines += sheet.paragraph(f"and {words.count(more)} more; --json holds all", "dim") if more > 0 else []
    return [
        *sheet.heading(section.title, words.plain(section.note)),
        *sheet.table(rows, section.align, section.flex),
        *lines,
    ]
