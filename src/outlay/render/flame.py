"""The tail against a typical interaction as a flame: component over stage over part, as wide as what each adds.

What takes less in the tail than typically has a flame of its own, so that added less saved is the excess of all rows.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.cells import cell_len, set_cell_size

from outlay.render import picture, words
from outlay.render.picture import Box, Scale, Tick
from outlay.render.untrusted import visible
from outlay.report import Row
from outlay.stages import JOINT, TERMS, UNATTRIBUTED, split_entry
from outlay.units import format_duration

ROW_PX = 24
# What a label needs of the width of a wide and of a narrow page: for its margins, and for each letter.
WIDE = (1.4, 0.78)
NARROW = (3.2, 2.4)
# A label, and a name in it, of fewer letters says nothing.
FEWEST, SHORTEST = 7, 3
DEPTHS = 3
# From this share of all that is added, one leaf is the whole picture.
ALONE = 0.9


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """One component, stage or part from `start_ns` on; `term` None: what stands below it has several."""

    path: tuple[str, ...]
    term: str | None
    start_ns: int
    width_ns: int

    @property
    def name(self) -> str:
        """Its own name, without those above it."""
        return self.path[-1]

    @property
    def depth(self) -> int:
        """0 for a component, 1 for a stage, 2 for a part."""
        return len(self.path) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Flame:
    """`added` and `saved` frames; the components of each sum to `added_ns` and `saved_ns`."""

    added: tuple[Frame, ...]
    saved: tuple[Frame, ...]

    @property
    def added_ns(self) -> int:
        """What the tail adds in all."""
        return _sum(self.added)

    @property
    def saved_ns(self) -> int:
        """What the tail takes less, in all."""
        return _sum(self.saved)


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """One frame in the picture: its label as a wide page shows it and as a narrow one does; empty without room."""

    frame: Frame
    box: Box
    y: int
    wide: str
    narrow: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawing:
    """The pieces of one flame, with the axis that it shares with the other."""

    pieces: tuple[Piece, ...]
    height: int
    ticks: tuple[Tick, ...]


_Leaf = tuple[tuple[str, ...], str, int]


def flame(rows: Sequence[Row]) -> Flame:
    """The rows that add and those that save, each as frames, the widest first."""
    return Flame(
        added=tuple(_frames([(_path(row.entry), row.term, row.excess_ns) for row in rows if row.excess_ns > 0], 0, 0)),
        saved=tuple(_frames([(_path(row.entry), row.term, -row.excess_ns) for row in rows if row.excess_ns < 0], 0, 0)),
    )


def is_worth_drawing(value: Flame) -> bool:
    """Whether there is more than one thing to see: no single leaf is nearly all that is added."""
    followers = (*value.added[1:], None)
    leaves = [
        frame
        for frame, after in zip(value.added, followers, strict=False)
        if after is None or after.depth <= frame.depth
    ]
    return bool(leaves) and all(frame.width_ns < ALONE * value.added_ns for frame in leaves)


def _path(entry: str) -> tuple[str, ...]:
    """Component, stage, part. A joint name of stages is a stage of its own."""
    component, stage = split_entry(entry)
    if JOINT in stage and not stage.startswith(UNATTRIBUTED):
        return component, stage
    stage, _, part = stage.partition(".")
    return (component, stage, part) if part else (component, stage)


def _frames(leaves: Sequence[_Leaf], depth: int, start_ns: int) -> Iterator[Frame]:
    groups: dict[str, list[_Leaf]] = {}
    for leaf in leaves:
        if len(leaf[0]) > depth:
            groups.setdefault(leaf[0][depth], []).append(leaf)
    for _, group in sorted(groups.items(), key=lambda item: (-_width(item[1]), item[0])):
        terms = {term for _, term, _ in group}
        yield Frame(
            path=group[0][0][: depth + 1],
            term=terms.pop() if len(terms) == 1 else None,
            start_ns=start_ns,
            width_ns=_width(group),
        )
        yield from _frames(group, depth + 1, start_ns)
        start_ns += _width(group)


def _width(leaves: Sequence[_Leaf]) -> int:
    return sum(width_ns for _, _, width_ns in leaves)


def _sum(frames: Sequence[Frame]) -> int:
    return sum(frame.width_ns for frame in frames if frame.depth == 0)


def terms(value: Flame) -> tuple[str, ...]:
    """The terms that are drawn, in the order of the vocabulary."""
    drawn = {frame.term for frame in (*value.added, *value.saved)}
    return tuple(term.name for term in TERMS if term.name in drawn)


def summed(value: Flame) -> str:
    """`1.06 s more, 4.00 ms less: +1.04 s in all`."""
    less = f", {format_duration(value.saved_ns)} less" if value.saved_ns else ""
    return f"{format_duration(value.added_ns)} more{less}: {words.signed(value.added_ns - value.saved_ns)} in all"


def scale(value: Flame) -> Scale:
    """One scale for both flames, so that their widths compare."""
    return Scale(low_ns=0, high_ns=max(value.added_ns, value.saved_ns, 1))


def drawing(frames: Sequence[Frame], on: Scale) -> Drawing:
    """Where each frame goes; components on top."""
    deepest = max((frame.depth for frame in frames), default=-1)
    return Drawing(
        pieces=tuple(_piece(frame, on) for frame in frames),
        height=(deepest + 1) * ROW_PX,
        ticks=picture.axis(on),
    )


def _piece(frame: Frame, on: Scale) -> Piece:
    x = on.at(frame.start_ns)
    width = round(on.at(frame.start_ns + frame.width_ns) - x, 3)
    style = "t-several" if frame.term is None else picture.term_class(frame.term)
    return Piece(
        frame=frame,
        box=Box(x=x, width=width, style=style),
        y=frame.depth * ROW_PX,
        wide=label(frame, int((width - WIDE[0]) / WIDE[1])),
        narrow=label(frame, int((width - NARROW[0]) / NARROW[1])),
    )


def label(frame: Frame, letters: int) -> str:
    """Name and time in so many letters, the name shortened; whether there is one depends on the room alone."""
    took = format_duration(frame.width_ns)
    if letters < max(FEWEST, len(took)):
        return ""
    name, room = visible(frame.name), letters - len(took) - 1
    if cell_len(name) > room:
        name = set_cell_size(name, room - 1).rstrip() + "…" if room >= SHORTEST else ""
    return f"{name} {took}" if name else took


def told(frame: Frame, *, sign: int = 1) -> str:
    """`+474 ms`, or `-4.00 ms` of what the tail saves."""
    return words.signed(sign * frame.width_ns)


def entry(frame: Frame) -> str:
    """`llm/queue.wait`: its full name."""
    component, *rest = frame.path
    return f"{component}/{'.'.join(rest)}" if rest else component
