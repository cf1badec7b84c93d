"""Partition one interaction into entries that sum exactly, as integers, to its end-to-end time.

Two ways to the same law. A *moment chain* (marks that each end a stage) is ordered and its neighbours subtracted. A
tree of spans is walked backwards from the end: in each span the child that ends last and starts before the cursor is
what was waited for; what no child covers is the span's own. Every nanosecond is emitted once, so the sum holds by
construction.

Where children overlap, the walk is done twice: *cover* clips a child at the cursor, *causal* takes only children that
ended by then. Time that the two give to different owners is ambiguous: something else ran at the same time, and the
data cannot say which was waited for. The account follows *cover* and reports how much is ambiguous.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from outlay.clocks import Offsets
from outlay.interaction import Interaction, Mark, Note, Span
from outlay.mapping import NO_SERVICE
from outlay.stages import UNATTRIBUTED, USER_COMPONENT

BROKER = "queue.broker"

_MOST_HANDOVERS = 100

# Owner of what happens outside every span, and neighbour of what happens at a span's edge.
NOBODY = -1


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of the path, `[start_ns, end_ns)` on the interaction's clock. Errors as in `report.Segment`."""

    entry: str
    start_ns: int
    end_ns: int
    error_ns: int | None = 0
    ambiguous: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """One interaction, partitioned: `entries` sum to `total_ns`.

    `ambiguous_ns` is how much of it ran beside something else that may have been waited for instead.
    """

    interaction: Interaction
    total_ns: int
    entries: Mapping[str, int]
    ambiguous_ns: int = 0
    notes: tuple[Note, ...] = ()


def account(interaction: Interaction, offsets: Offsets | None = None) -> Account:
    """The account of an interaction that has a start and an end in that order.

    `offsets` bring each clock onto the interaction's own (`Clocks.offsets`); a clock they do not hold is read as it is
    and its edges carry an unknown error. Raises ValueError when start or end is missing or reversed.
    """
    start, end = window_of(interaction)
    ambiguous_ns = 0
    entries: defaultdict[str, int] = defaultdict(int)
    notes: list[Note] = []
    if has_chain(interaction):
        for piece in _chain(interaction, start, end, offsets, notes):
            entries[piece.entry] += piece.end_ns - piece.start_ns
    else:
        forest = Forest(interaction, offsets)
        path, clipped = _walk(forest, start, end, causal=False)
        spans, gap_entry = forest.spans, forest.gap_entry
        for owner, before, after, low, high in reversed(path):
            if owner != NOBODY and (stage := spans[owner].stage) is not None:
                entries[f"{spans[owner].component}/{stage}"] += high - low
            else:
                entries[gap_entry(owner, before, after)] += high - low
        if clipped:
            pieces = _compare(forest, path, start, end)
            ambiguous_ns = sum(high - low for (_, _, _, low, high), ambiguous in pieces if ambiguous)
    if sum(entries.values()) != end - start:
        raise AssertionError(f"the account of {interaction.id!r} does not sum: {dict(entries)} against {end - start}")
    return Account(
        interaction=interaction,
        total_ns=end - start,
        entries=dict(entries),
        ambiguous_ns=ambiguous_ns,
        notes=tuple(notes),
    )


def path_of(interaction: Interaction, offsets: Offsets | None = None) -> tuple[Piece, ...]:
    """The same partition as pieces in time order, each with the clock error of its edges, as a waterfall shows it.

    Pieces of one entry sum to the account's. Raises ValueError as `account` does.
    """
    start, end = window_of(interaction)
    if has_chain(interaction):
        return tuple(_chain(interaction, start, end, offsets, []))
    forest = Forest(interaction, offsets)
    path, _ = _walk(forest, start, end, causal=False)
    return tuple(
        Piece(forest.entry(stretch), stretch[3], stretch[4], forest.error_ns(stretch), ambiguous)
        for stretch, ambiguous in _compare(forest, path, start, end)
    )


def window_of(interaction: Interaction) -> tuple[int, int]:
    start, end = interaction.start_ns, interaction.end_ns
    if start is None or end is None or end < start:
        raise ValueError(f"interaction {interaction.id!r} has no end after its start")
    return start, end


def has_chain(interaction: Interaction) -> bool:
    return bool(interaction.marks) and any(mark.stage is not None for mark in interaction.marks)


# Moment chains


def _chain(interaction: Interaction, start: int, end: int, offsets: Offsets | None, notes: list[Note]) -> list[Piece]:
    """Neighbouring marks subtracted. A mark before its predecessor is moved onto it, and reported."""
    pieces: list[Piece] = []
    cursor, here = start, interaction.clock
    last: Mark | None = None
    for mark in interaction.marks:
        if mark.stage is None:
            continue
        at = mark.at_ns - (offsets.shift_ns(mark.clock) if offsets else 0)
        if at < cursor:
            text = f"mark {mark.name!r} lies before the one ahead of it or before the start"
            notes.append(Note(kind="out-of-order-mark", text=text))
        at = min(max(at, cursor), end)
        if at > cursor:
            entry = f"{mark.component or USER_COMPONENT}/{mark.stage}"
            pieces.append(Piece(entry, cursor, at, _edge_error(here, mark.clock, offsets)))
        cursor, here, last = at, mark.clock, mark
    if cursor < end:
        name = last.name if last else "start"
        component = (last and last.component) or USER_COMPONENT
        error = _edge_error(here, interaction.clock, offsets)
        pieces.append(Piece(f"{component}/{UNATTRIBUTED}.{name}->end", cursor, end, error))
    return pieces


# Trees of spans


class Forest:
    """The spans of one interaction on one clock, as parallel lists, with each parent's children latest end first."""

    __slots__ = ("_component", "_offsets", "_reference", "children", "ends", "spans", "starts", "tops")

    def __init__(self, interaction: Interaction, offsets: Offsets | None) -> None:
        spans = interaction.spans
        index = {span.id: place for place, span in enumerate(spans)}
        if len(index) < len(spans):
            spans = _distinct(spans)
            index = {span.id: place for place, span in enumerate(spans)}
        self._reference, self._offsets = interaction.clock, offsets
        self.spans = spans
        self.starts, self.ends = _aligned(spans, offsets)
        parents = [index.get(span.parent) for span in spans]  # type: ignore[arg-type] # None is nobody's id
        if True in [span.follows for span in spans]:
            parents = [
                self._holder(place, parents) if spans[place].follows else parents[place] for place in index.values()
            ]
        self._component: str | None = None
        self.tops: list[int] = []
        self.children: defaultdict[int, list[int]] = defaultdict(list)
        for place, parent in enumerate(parents):
            if parent is None:
                self.tops.append(place)
            else:
                self.children[parent].append(place)
        self._order()

    def _holder(self, place: int, parents: Sequence[int | None]) -> int | None:
        """The nearest ancestor still running when a span that only *follows* its parent began; None if none was.

        The search ends after so many hand-overs, so that neither a ring of parents nor a long chain makes it endless.
        """
        start, parent = self.starts[place], parents[place]
        for _ in range(_MOST_HANDOVERS):
            if parent is None:
                break
            if self.starts[parent] <= start < self.ends[parent] and not _hands_over(self.spans[parent]):
                return parent
            parent = parents[parent]
        return None

    def _order(self) -> None:
        """Latest end first; then latest start, then id, so that the input's order never shows."""
        starts, ends, spans = self.starts, self.ends, self.spans
        by_end: Callable[[int], Any] = ends.__getitem__
        if len(set(ends)) < len(ends):
            by_end = lambda place: (ends[place], starts[place], spans[place].id)  # noqa: E731 - only where ends tie
        for siblings in (self.tops, *self.children.values()):
            if len(siblings) > 1:
                siblings.sort(key=by_end, reverse=True)

    def entry(self, stretch: "_Stretch") -> str:
        """The entry that a stretch of the path belongs to."""
        owner, before, after, _, _ = stretch
        span = None if owner == NOBODY else self.spans[owner]
        if span is not None and span.stage is not None:
            return f"{span.component}/{span.stage}"
        return self.gap_entry(owner, before, after)

    def gap_entry(self, owner: int, before: int, after: int) -> str:
        """The entry of time that no span claims: broker, network around a call, or nobody's yet."""
        spans = self.spans
        if after != NOBODY and spans[after].follows and self._through_broker(before, spans[after]):
            return f"{spans[after].component}/{BROKER}"
        left = "start" if before == NOBODY else spans[before].name
        right = "end" if after == NOBODY else spans[after].name
        if owner == NOBODY:
            return _edge_entry(self._first_component(), left, right)
        span = spans[owner]
        if span.kind == "client" and (network := self._network(span, owner, before, after)):
            return network
        if before == after == NOBODY:
            # Without children on the path, the span's own name says what the time was.
            return f"{span.component}/{UNATTRIBUTED}.{span.name}"
        return _edge_entry(span.component, left, right)

    def _through_broker(self, before: int, consumer: Span) -> bool:
        """Whether the gap before a consumer is its message's time in the broker."""
        if consumer.kind != "consumer":
            return False
        return before != NOBODY and (self.spans[before].kind == "producer" or self.spans[before].id == consumer.parent)

    def _network(self, caller: Span, owner: int, before: int, after: int) -> str | None:
        """Around the server side of a call: the way there or the way back."""
        if NOBODY not in (before, after):
            return None
        neighbour = after if before == NOBODY else before
        if neighbour == NOBODY or self.spans[neighbour].kind != "server":
            return None
        callee = self.spans[neighbour]
        if callee.clock == caller.clock and callee.component == caller.component:
            return None
        # The call that nobody called is the user's own. A caller that is only absent from the data may be anybody.
        component = USER_COMPONENT if caller.parent is None else callee.component
        return f"{component}/{'uplink' if neighbour == after else 'downlink'}"

    def _first_component(self) -> str:
        """What lies outside every span belongs to whoever began the interaction."""
        if self._component is None:
            first = min(self.tops, key=lambda place: (self.starts[place], self.spans[place].id), default=None)
            self._component = NO_SERVICE if first is None else self.spans[first].component
        return self._component

    def error_ns(self, stretch: "_Stretch") -> int | None:
        """The clock error of a stretch's length; see `report.Segment`."""
        owner, before, after, _, _ = stretch
        own = self._reference if owner == NOBODY else self.spans[owner].clock
        left = own if before == NOBODY else self.spans[before].clock
        right = own if after == NOBODY else self.spans[after].clock
        return _edge_error(left, right, self._offsets)


@lru_cache(maxsize=10_000)
def _edge_entry(component: str, left: str, right: str) -> str:
    """The entry of a gap that nobody claims. Traces of one program have the same few, millions of times."""
    return f"{component}/{UNATTRIBUTED}.{left}->{right}"


def _aligned(spans: Sequence[Span], offsets: Offsets | None) -> tuple[list[int], list[int]]:
    """Starts and ends of the spans on the reference clock."""
    if offsets is None or not offsets.shifts:
        return [span.start_ns for span in spans], [span.end_ns for span in spans]
    shift = offsets.shifts.get
    return (
        [span.start_ns - shift(span.clock, 0) for span in spans],
        [span.end_ns - shift(span.clock, 0) for span in spans],
    )


def _hands_over(span: Span) -> bool:
    return span.kind in ("producer", "consumer")


def _distinct(spans: Sequence[Span]) -> tuple[Span, ...]:
    """One span an id: the earliest, then the longest, whatever the order of arrival."""
    kept: dict[str, Span] = {}
    for span in sorted(spans, key=lambda span: (span.start_ns, -span.end_ns, repr(span))):
        kept.setdefault(span.id, span)
    return tuple(kept.values())


# (owner, child before, child after, from, to): indices into the forest, NOBODY outside it.
_Stretch = tuple[int, int, int, int, int]


def _walk(forest: Forest, start: int, end: int, *, causal: bool) -> tuple[list[_Stretch], bool]:  # noqa: C901, PLR0912 - one algorithm, kept whole and free of calls: it is the innermost loop
    """The path through the forest, last stretch first, and whether the cursor had to clip a child.

    Iterative: a trace may nest deeper than Python's stack. Without clipping both modes take the same path.
    """
    starts, ends, children = forest.starts, forest.ends, forest.children
    out: list[_Stretch] = []
    stack = []
    clipped = False
    owner, low, high, cursor, after, kids = NOBODY, start, end, end, NOBODY, iter(forest.tops)
    while True:
        for kid in kids:
            kid_start, kid_end = starts[kid], ends[kid]
            if kid_end > cursor:
                if kid_start >= cursor:
                    continue
                if kid_end > cursor < high:
                    # It outlasts the sibling that was waited for, so it ran beside it.
                    clipped = True
                    if causal:
                        continue
                kid_end = cursor
            if kid_start < low:  # noqa: PLR1730 - max() would be a call
                kid_start = low
            if kid_start >= kid_end:
                continue
            if kid_end < cursor:
                out.append((owner, kid, after, kid_end, cursor))
            grandchildren = children.get(kid)
            if grandchildren is None:
                out.append((kid, NOBODY, NOBODY, kid_start, kid_end))
                cursor, after = kid_start, kid
                continue
            stack.append((owner, low, high, kid, kids))
            owner, low, high, cursor, after, kids = kid, kid_start, kid_end, kid_end, NOBODY, iter(grandchildren)
            break
        else:
            if cursor > low:
                out.append((owner, NOBODY, after, low, cursor))
            if not stack:
                return out, clipped
            cursor = low
            owner, low, high, after, kids = stack.pop()


def _compare(forest: Forest, path: list[_Stretch], start: int, end: int) -> list[tuple[_Stretch, bool]]:
    """The cover path in time order, cut wherever it begins or ceases to agree with the causal one on the owner."""
    other = _walk(forest, start, end, causal=True)[0]
    cut: list[tuple[_Stretch, bool]] = []
    place = len(other) - 1
    for owner, before, after, stretch_low, high in reversed(path):
        low, begun = stretch_low, stretch_low
        while low < high:
            while other[place][4] <= low:
                place -= 1
            upto, differs = min(high, other[place][4]), other[place][0] != owner
            begun = cut.pop()[0][3] if low > begun and cut[-1][1] == differs else low
            cut.append(((owner, before, after, begun, upto), differs))
            low = upto
    return cut


def _edge_error(left: str, right: str, offsets: Offsets | None) -> int | None:
    """How far off the distance between an instant on `left` and one on `right` may be; 0 on one clock."""
    if left == right:
        return 0
    if offsets is None:
        return None
    errors = offsets.error_ns(left), offsets.error_ns(right)
    return None if errors[0] is None or errors[1] is None else errors[0] + errors[1]
