"""Where things go in the HTML report's pictures: positions and widths in percent, heights in pixels.

Percent lets one drawing fit every page width without stretching its text.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import floor, isfinite, log10

from outlay.render import rollup, words
from outlay.report import Bin, ModelGap, MomentReport, Row, Segment, Slow
from outlay.stages import TERMS, UNATTRIBUTED, term_of
from outlay.units import format_duration

# Beyond this range a linear axis would press the body of a distribution against its edge.
LOG_ABOVE = 20
PLOT_PX = 120
LABEL_PX = 17
LANES = 60
# The narrowest thing that is still seen.
HAIR_PERCENT = 0.3
# What a label inside a bar needs of the width of a wide screen: for its margins, and for each letter.
LABEL_PERCENT, LETTER_PERCENT = 2.6, 1.15
# The same for labels beside a mark or under an axis, which a narrow page shows too: 7 px a letter of some 280 px.
NARROW_PERCENT, NARROW_LETTER_PERCENT = 2.5, 2.4

_CLASS = {term.name: "t-" + term.name.replace(" ", "-") for term in TERMS}


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """From nanoseconds to percent of the width. Values outside are drawn at the edge."""

    low_ns: float
    high_ns: float
    log: bool = False

    def at(self, value_ns: float) -> float:
        """0 to 100."""
        if self.high_ns <= self.low_ns:
            return 0.0
        if self.log:
            part = log10(max(value_ns, self.low_ns) / self.low_ns) / log10(self.high_ns / self.low_ns)
        else:
            part = (value_ns - self.low_ns) / (self.high_ns - self.low_ns)
        return round(100 * min(max(part, 0.0), 1.0), 3)


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """A bar or a piece of one. `style` is its class, `label` what is written on it from `label_x` on."""

    x: float
    width: float
    style: str = ""
    label: str = ""
    label_x: float = 0.0

    @property
    def end(self) -> float:
        """Where it ends."""
        return round(self.x + self.width, 3)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """A position, labelled where there is room; `anchor` keeps the label inside the picture, `y` off other marks."""

    x: float
    label: str
    anchor: str = "middle"
    style: str = ""
    y: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """Typical and tail as bars of their terms, on one scale, with the budget's limit where there is one.

    `sets` is what sets the percentile; empty where that is not known.
    """

    typical: tuple[Box, ...]
    tail: tuple[Box, ...]
    sets: tuple[Box, ...]
    limit: Tick | None
    ticks: tuple[Tick, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Excess:
    """One row of the account: what is typical, what the tail adds, what it saves, and the row's share."""

    typical: Box
    added: Box | None
    saved: Box | None
    share: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """Model time inside end-to-end time: `sure` is the model, `maybe` could be, `all` is the whole interaction."""

    all: Box
    sure: Box
    maybe: Box | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One bin; `height` and `y` in pixels of a plot `PLOT_PX` high."""

    x: float
    width: float
    y: float
    height: float
    title: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Distribution:
    """Columns, the marked values above them, the axis below."""

    columns: tuple[Column, ...]
    marks: tuple[Tick, ...]
    ticks: tuple[Tick, ...]
    log: bool
    head_px: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """One segment of a waterfall. `whiskers` span what the clocks leave open at either end."""

    segment: Segment
    term: str
    box: Box
    whiskers: tuple[Box, ...]
    unbounded: bool
    unattributed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Waterfall:
    """The segments of one interaction in time; `left` pieces beyond what is drawn take `left_ns` together."""

    lanes: tuple[Lane, ...]
    ticks: tuple[Tick, ...]
    left: int
    left_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubts:
    """What some timelines show that needs a key."""

    parallel: bool
    unattributed: bool
    whiskers: bool
    unbounded: bool


def doubts(slowest: Sequence[Slow]) -> Doubts:
    """What the timelines of these interactions show."""
    segments = [segment for slow in slowest for segment in slow.segments]
    return Doubts(
        parallel=any(segment.ambiguous for segment in segments),
        unattributed=any(is_unattributed(segment.entry) for segment in segments),
        whiskers=any(segment.error_ns for segment in segments),
        unbounded=any(segment.error_ns is None for segment in segments),
    )


def term_class(term: str) -> str:
    """The class that colours a term."""
    return _CLASS[term]


def entry_class(entry: str) -> str:
    """The class that colours an entry's term."""
    return _CLASS[term_of(entry)]


def stack(moment: MomentReport) -> Stack:
    """The account by term."""
    limit_ns = moment.budget.limit_ns if moment.budget else None
    sums = rollup.by_term(moment.account)
    sets = [(each.term, each.sets_ns) for each in sums if each.sets_ns is not None]
    tops = (
        sum(each.typical_ns for each in sums),
        sum(each.tail_ns for each in sums),
        sum(sets_ns for _, sets_ns in sets),
        limit_ns or 1,
    )
    scale = Scale(low_ns=0, high_ns=max(tops) * 1.02)
    limits = [] if limit_ns is None else _flags(scale, [("budget", limit_ns)])
    line_x = limits[0].x if limits else None
    return Stack(
        typical=_pieces([(each.term, each.typical_ns) for each in sums], scale, line_x),
        tail=_pieces([(each.term, each.tail_ns) for each in sums], scale, line_x),
        sets=_pieces(sets, scale, line_x),
        limit=limits[0] if limits else None,
        ticks=axis(scale),
    )


def _pieces(parts: Sequence[tuple[str, int]], scale: Scale, line_x: float | None) -> tuple[Box, ...]:
    boxes, at_ns = [], 0
    for term, duration_ns in parts:
        box = _box(scale, at_ns, at_ns + duration_ns, _CLASS[term])
        if duration_ns:
            label_x = _label_x(box, term, line_x)
            boxes.append(box if label_x is None else replace(box, label=term, label_x=label_x))
        at_ns += duration_ns
    return tuple(boxes)


def _label_x(box: Box, term: str, line_x: float | None) -> float | None:
    """Where a term's name fits into its bar, clear of the limit's line; None when it does not."""
    # The pattern of unattributed time says its name; letters on it could not be read.
    if term == UNATTRIBUTED:
        return None
    needs = LABEL_PERCENT + LETTER_PERCENT * len(term)
    crossed = line_x is not None and box.x < line_x < box.x + needs
    start = line_x if crossed and line_x is not None else box.x
    return start if start + needs <= box.end else None


def excess_scale(rows: Sequence[Row]) -> Scale:
    """One scale for the bars of all rows and their shares."""
    values = [value for row in rows for value in (row.typical_ns, row.tail_ns, row.budget_ns) if value is not None]
    return Scale(low_ns=0, high_ns=max(values, default=1) or 1)


def excess(row: Row, scale: Scale) -> Excess:
    """The bar of one row."""
    style, both_ns = _CLASS[row.term], min(row.typical_ns, row.tail_ns)
    return Excess(
        typical=_box(scale, 0, both_ns, style),
        added=_box(scale, both_ns, row.tail_ns, style) if row.excess_ns > 0 else None,
        saved=_box(scale, both_ns, row.typical_ns, style) if row.excess_ns < 0 else None,
        share=None if row.budget_ns is None else scale.at(row.budget_ns),
    )


def gap(value: ModelGap, longest_ns: int) -> Gap:
    """Model time on a scale that ends at `longest_ns`."""
    scale = Scale(low_ns=0, high_ns=longest_ns)
    maybe = _box(scale, value.low_ns, value.high_ns) if value.high_ns > value.low_ns else None
    return Gap(all=_box(scale, 0, value.total_ns), sure=_box(scale, 0, value.low_ns), maybe=maybe)


def distribution(moment: MomentReport) -> Distribution | None:
    """The bins with p50, p99 and the limits; None when there are no bins."""
    if not moment.bins:
        return None
    marks = [*rollup.landmarks(moment)]
    scale = _distribution_scale(moment, [value_ns for _, value_ns in marks])
    boxes = [_box(scale, each.low_ns, each.high_ns) for each in moment.bins]
    return Distribution(
        columns=_columns(moment.bins, boxes),
        marks=_flags(scale, marks),
        ticks=axis(scale),
        log=scale.log,
        head_px=len(marks) * LABEL_PX,
    )


def _columns(bins: Sequence[Bin], boxes: Sequence[Box]) -> tuple[Column, ...]:
    """Columns whose area is their count: bins grow with the time they hold, an axis need not."""
    widths = [max(box.width, HAIR_PERCENT) for box in boxes]
    densities = [each.count / width for each, width in zip(bins, widths, strict=True)]
    highest = max(densities) or 1.0
    columns = []
    for each, box, width, density in zip(bins, boxes, widths, densities, strict=True):
        # One interaction in the tail must stay visible beside thousands in the body.
        height = max(round(PLOT_PX * density / highest, 2), 2.0) if each.count else 0.0
        span = f"{format_duration(each.low_ns)} to {format_duration(each.high_ns)}: {words.count(each.count)}"
        columns.append(Column(x=box.x, width=width, y=PLOT_PX - height, height=height, title=span))
    return tuple(columns)


def _flags(scale: Scale, marks: Sequence[tuple[str, float]]) -> tuple[Tick, ...]:
    """Marks from top to bottom, each with its label on a line of its own and clear of the lines of the others.

    A mark's line runs down from its label. So among labels to the right of their marks the leftmost stands highest,
    and below them, among those to the left of theirs, the rightmost.
    """
    ticks: list[Tick] = []
    free = 100.0
    for name, value_ns in reversed(marks):
        x, label = scale.at(value_ns), f"{name} {format_duration(value_ns)}"
        needs, style = _needs(label), "limit" if name == "budget" else "percentile"
        beside = x <= free and x + needs <= 100
        if not beside:
            free = min(free, x - needs)
        ticks.append(Tick(x=x, label=label, anchor="start" if beside or x < needs else "end", style=style))
    starts = [tick for tick in reversed(ticks) if tick.anchor == "start"]
    ends = [tick for tick in ticks if tick.anchor == "end"]
    return tuple(replace(tick, y=place * LABEL_PX) for place, tick in enumerate([*starts, *ends]))


def _needs(label: str) -> float:
    return NARROW_PERCENT + NARROW_LETTER_PERCENT * len(label)


def _distribution_scale(moment: MomentReport, marks_ns: Sequence[float]) -> Scale:
    first = moment.bins[0]
    lowest = min([first.low_ns or first.high_ns / 2, *(value_ns for value_ns in marks_ns if value_ns > 0)])
    highest = max([moment.bins[-1].high_ns, *marks_ns])
    if isfinite(highest) and highest > LOG_ABOVE * lowest > 0:
        return Scale(low_ns=lowest, high_ns=highest, log=True)
    return Scale(low_ns=min(first.low_ns, lowest), high_ns=highest)


def waterfall(slow: Slow) -> Waterfall:
    """Every segment in its place; of more than LANES segments the longest."""
    scale = Scale(low_ns=0, high_ns=slow.total_ns)
    drawn = slow.segments
    if len(drawn) > LANES:
        longest = sorted(drawn, key=lambda segment: -segment.duration_ns)[:LANES]
        drawn = tuple(sorted(longest, key=lambda segment: segment.start_ns))
    return Waterfall(
        lanes=tuple(_lane(segment, scale) for segment in drawn),
        ticks=axis(scale),
        left=len(slow.segments) - len(drawn),
        left_ns=slow.total_ns - sum(segment.duration_ns for segment in drawn),
    )


def _lane(segment: Segment, scale: Scale) -> Lane:
    end_ns = segment.start_ns + segment.duration_ns
    box = _box(scale, segment.start_ns, end_ns, entry_class(segment.entry))
    error_ns = segment.error_ns or 0
    ends = (segment.start_ns, end_ns) if error_ns else ()
    return Lane(
        segment=segment,
        term=term_of(segment.entry),
        box=Box(x=box.x, width=max(box.width, HAIR_PERCENT), style=box.style),
        whiskers=tuple(_box(scale, at_ns - error_ns, at_ns + error_ns) for at_ns in ends),
        unbounded=segment.error_ns is None,
        unattributed=is_unattributed(segment.entry),
    )


def is_pattern(box: Box) -> bool:
    """Whether a bar takes the pattern of unattributed time."""
    return box.style == _CLASS[UNATTRIBUTED]


def strip(slow: Slow) -> tuple[Box, ...]:
    """All of one interaction as a single bar."""
    scale = Scale(low_ns=0, high_ns=slow.total_ns)
    return tuple(
        _box(scale, segment.start_ns, segment.start_ns + segment.duration_ns, entry_class(segment.entry))
        for segment in slow.segments
    )


def is_unattributed(entry: str) -> bool:
    """Whether this time is nobody's yet: not named, or not divided between different causes."""
    return term_of(entry) == UNATTRIBUTED


def axis(scale: Scale) -> tuple[Tick, ...]:
    """Round values along the scale; where a narrow page has no room for a label, the line stands alone."""
    if scale.high_ns <= scale.low_ns:
        return ()
    values = _decades(scale) if scale.log else _steps(scale)
    ticks, free = [], 0.0
    for value_ns in values:
        x, label = scale.at(value_ns), format_duration(value_ns)
        half = _needs(label) / 2
        anchor = "start" if x < half else "end" if x > 100 - half else "middle"
        start = {"start": x, "middle": x - half, "end": x - 2 * half}[anchor]
        if start < free:
            label = ""
        else:
            free = start + 2 * half
        ticks.append(Tick(x=x, label=label, anchor=anchor))
    return tuple(ticks)


def _steps(scale: Scale) -> list[float]:
    """Multiples of the smallest of 1, 2, 5 times a power of ten that gives at most five."""
    rough = (scale.high_ns - scale.low_ns) / 5
    power = 10.0 ** floor(log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * 0.999)
    first, last = -(-scale.low_ns // step), scale.high_ns // step
    return [step * place for place in range(int(first), int(last) + 1)]


def _decades(scale: Scale) -> list[float]:
    """1, 2, 5 times powers of ten; powers alone when those would be more than seven."""
    powers = range(floor(log10(scale.low_ns)), floor(log10(scale.high_ns)) + 1)
    for factors in ((1, 2, 5), (1,)):
        values = [factor * 10.0**power for power in powers for factor in factors]
        values = [value for value in values if scale.low_ns <= value <= scale.high_ns]
        if len(values) <= 7:
            return values
    return values[:: -(-len(values) // 7)]


def _box(scale: Scale, start_ns: float, end_ns: float, style: str = "") -> Box:
    x = scale.at(start_ns)
    return Box(x=x, width=round(scale.at(end_ns) - x, 3), style=style)
