"""Where the time of one moment went, for a terminal: the account, what the tail adds as a strip, the shares."""

from collections.abc import Mapping, Sequence

from rich.cells import cell_len

from outlay.render import flame, rollup, words
from outlay.render.flame import Flame
from outlay.render.rollup import ShareSum
from outlay.render.sheet import INDENT, Cell, Lines, Sheet
from outlay.report import MomentReport, Row
from outlay.units import format_duration

ROWS = 8
SHARES = 4
NAME = 16

# From these widths on a table has room for more columns.
WIDE, WIDEST, NARROW = 100, 120, 76

_ALIGN = {"entry": "<", "bar": "<", "interval": "<", "share": "<", "owner": "<"}
_NOTHING: Cell = ("", "")


def account(moment: MomentReport, sheet: Sheet) -> Lines:
    """The rows of the account and what to look at first; nothing without an account."""
    if moment.typical_ns is None or moment.tail_ns is None:
        return []
    if rollup.is_single(moment):
        return [*sheet.heading("Where the time goes"), *_single(moment, sheet), *_leads(moment, sheet)]
    shown, rest = rollup.fold(moment.account, ROWS)
    columns = _columns(moment, shown, sheet)
    longest_ns = max((max(row.typical_ns, row.tail_ns) for row in shown), default=0)
    table = [_heads(moment), *(_account_row(row, longest_ns, sheet) for row in shown)]
    if rest is not None:
        name = words.many(len(rest.rows), "smaller row")
        table.append(_sum_row(name, rest.typical_ns, rest.tail_ns, rest.sets_ns, "dim"))
    table.append(_sum_row("total", moment.typical_ns, moment.tail_ns, rollup.sets_ns(moment.account), "bold"))
    has_room = "bar" in columns
    table += _model_rows(moment) if has_room else []
    rows = [[row.get(column, _NOTHING) for column in columns] for row in table]
    return [
        *sheet.heading("Where the time goes", _key(columns)),
        *sheet.paragraph(_labels(moment), "dim"),
        *sheet.paragraph(words.attributions(moment), "dim"),
        *sheet.table(rows, "".join(_ALIGN.get(column, ">") for column in columns)),
        *([] if has_room else _model(moment, sheet)),
        *_no_model(moment, sheet),
        *([] if moment.findings else _leads(moment, sheet)),
        *_flame(moment, sheet),
    ]


def _columns(moment: MomentReport, rows: Sequence[Row], sheet: Sheet) -> Sequence[str]:
    """What there is room for: intervals before bars and shares, which other sections tell too."""
    owner = any(row.owner for row in rows)
    share = ("share",) if any(row.budget_ns is not None for row in rows) else ()
    if not any(row.excess_interval_ns or row.sets_ns is not None for row in rows):
        owned = owner and sheet.width >= WIDE
        return ("entry", "bar", "typical", "tail", "excess", *share, *(("owner",) if owned else ()))
    if sheet.width >= WIDE:
        owned = owner and sheet.width >= WIDEST
        columns = ("entry", "bar", "typical", "tail", "sets", "excess", "interval", *share)
        return (*columns, *(("owner",) if owned else ()))
    amounts = (
        ("typical", "tail", "sets", "excess", "interval") if sheet.width >= NARROW else ("excess", "interval", "sets")
    )
    return ("entry", *amounts)


def _heads(moment: MomentReport) -> Mapping[str, Cell]:
    interval = any(row.excess_interval_ns for row in moment.account)
    heads = {
        "entry": "entry",
        "typical": "typical",
        "tail": words.fills(moment).partition(" ")[0],
        "sets": words.sets(moment).replace(" the", ""),
        "excess": "excess",
        "interval": "95 %" if interval else "",
        "share": "  share",
        "owner": "owner",
    }
    return {column: (head, "dim") for column, head in heads.items()}


def _key(columns: Sequence[str]) -> str:
    bar, share = "▒ typical  █ added in the tail", "> over its share"
    return "  ".join(text for text, column in ((bar, "bar"), (share, "share")) if column in columns)


def _labels(moment: MomentReport) -> str:
    return f"typical: {moment.typical_label}; {words.fills(moment)}: {moment.tail_label}"


def _single(moment: MomentReport, sheet: Sheet) -> Lines:
    """The account of one interaction: what is typical and what the tail adds cannot be told apart."""
    shown, rest = rollup.fold(moment.account, ROWS)
    total_ns, width = sum(row.tail_ns for row in moment.account), 20 if sheet.width >= WIDE else 10
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
    table += [[row["entry"], _NOTHING, row["tail"], _NOTHING] for row in _model_rows(moment)]
    return [*sheet.table(table, "<<>>"), *_no_model(moment, sheet)]


def _account_row(row: Row, longest_ns: int, sheet: Sheet) -> Mapping[str, Cell]:
    """The owner only where there is room for it: the shares below name it again."""
    over = rollup.over_ns(row) is not None
    share = "" if row.budget_ns is None else f"{'> ' if over else '  '}{format_duration(row.budget_ns)}"
    alarm = "bold red" if over else ""
    # Beside an interval there is less room.
    width = 20 if sheet.width >= WIDE and row.excess_interval_ns is None else 10
    return {
        "entry": (row.entry, "bold" if row.excess_ns > 0 else ""),
        "bar": (_excess_bar(row.typical_ns, row.tail_ns, longest_ns, width), "cyan"),
        "typical": (format_duration(row.typical_ns), ""),
        "tail": (format_duration(row.tail_ns), ""),
        "sets": ("" if row.sets_ns is None else format_duration(row.sets_ns), ""),
        "excess": (words.signed(row.excess_ns), alarm),
        "interval": (words.bounds(row.excess_ns, row.excess_interval_ns), "dim"),
        "share": (share, alarm),
        "owner": (sheet.shorten(row.owner, NAME) if row.owner else "", ""),
    }


def _sum_row(name: str, typical_ns: int, tail_ns: int, sets_ns: int | None, style: str) -> Mapping[str, Cell]:
    return {
        "entry": (name, style),
        "typical": (format_duration(typical_ns), style),
        "tail": (format_duration(tail_ns), style),
        "sets": ("" if sets_ns is None else format_duration(sets_ns), style),
        "excess": (words.signed(tail_ns - typical_ns), style),
    }


def _model_rows(moment: MomentReport) -> Sequence[Mapping[str, Cell]]:
    """How much of the total is the model: one row where it is known, its bounds where it is not."""
    typical, tail = moment.typical_gap, moment.tail_gap
    if typical is None or tail is None or not words.has_model(moment):
        return []
    rows = [("of it the model", typical.low_ns, tail.low_ns)]
    if words.gap_is_open(moment):
        low = [("of it the model, at least", typical.low_ns, tail.low_ns)] if typical.low_ns or tail.low_ns else []
        rows = [*low, ("of it the model, at most", typical.high_ns, tail.high_ns)]
    return [
        {"entry": (name, ""), "typical": (format_duration(typical_ns), ""), "tail": (format_duration(tail_ns), "")}
        for name, typical_ns, tail_ns in rows
    ]


def _model(moment: MomentReport, sheet: Sheet) -> Lines:
    """The same as sentences, where a table has no room for such names."""
    if not words.has_model(moment):
        return []
    gaps = (("typical", moment.typical_gap), (words.fills(moment), moment.tail_gap))
    told = [f"{label}: {words.model_gap(gap)}" for label, gap in gaps if gap is not None]
    return [line for text in told for line in sheet.paragraph(text)]


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


def shares(moment: MomentReport, sheet: Sheet) -> Lines:
    """The budget against what was spent. Of many shares only those exceeded have a line; the others are named."""
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


def _flame(moment: MomentReport, sheet: Sheet) -> Lines:
    """What the tail adds, component over stage over part, each as wide as its time.

    Nothing where the sample is too small for intervals: a screen is short, and the table above tells the same.
    """
    drawn = flame.flame(moment.account)
    if not flame.is_worth_drawing(drawn) or not any(row.excess_interval_ns for row in moment.account):
        return []
    lines = sheet.heading("What the tail adds", "each as wide as its time: component, stage, part")
    lines += [line for depth in range(flame.DEPTHS) for line in _strip(drawn, depth, sheet)]
    return [*lines, *sheet.paragraph(f"{flame.summed(drawn)}.", "dim")]


def _strip(drawn: Flame, depth: int, sheet: Sheet) -> Lines:
    """One line of the flame. A frame too narrow for its border is left to the line above it."""
    frames = [frame for frame in drawn.added if frame.depth == depth]
    if not frames:
        return []
    width, line = sheet.width - INDENT, ""
    for frame in frames:
        start, end = (
            round(width * at_ns / drawn.added_ns) for at_ns in (frame.start_ns, frame.start_ns + frame.width_ns)
        )
        if end > start:
            line += " " * (start - cell_len(line)) + "|" + flame.label(frame, end - start - 1)
    return sheet.paragraph(line, "cyan")
