"""The structure of one interaction: its spans and marks as events, and edges between them that say whose time passed.

Inside a span, a child begins after its parent's start and after every sibling that had ended by then; after a sibling
still running only where that one's first token had come: the token began it. What lies between is the parent's own
time, and keeps its length. The parent ends after its last child and its own time from there on.

That one child had ended before another began may be chance. If anywhere the other began beside it, it does not wait
for it. (One counterexample refutes, as in Chow et al., The Mystery Machine, OSDI 2014.)
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from outlay.account import NOBODY, Forest, window_of
from outlay.clocks import Offsets
from outlay.graph import Draft
from outlay.interaction import FIRST_TOKEN, Interaction
from outlay.stages import entry, may_hold_model_time

# A span that outlasts its parent by less of its own length was waited for: the rest is rounding.
_ROUNDING = 0.01
# More first tokens of one interaction than this begin nothing.
_MOST_TOKENS = 32

# Children of one span beyond so many are not compared with each other.
_MOST_COMPARED = 200
# In one span, so many different sets of siblings not waited for are told apart; the children of any other wait for all.
_MOST_LANES = 15

# What happens to the children of a span at one instant, in the order in which it counts.
_END, _OWN_TOKEN, _TOKEN, _START = range(4)
# (when, one of the above, rank among equals, child, number of the token)
_Item = tuple[int, int, int, int, int]


# Who a child of a span is, in any interaction: component and name; and whether it is that one's first token.
_Who = tuple[str, str, bool]
# Of the children of spans by component and name: beside whom each was seen to begin.
Apart = Mapping[tuple[str, str], Mapping[_Who, frozenset[_Who]]]


def seen_apart(drawings: Iterable["Drawing | None"]) -> "Apart":
    apart: defaultdict[tuple[str, str], defaultdict[_Who, set[_Who]]] = defaultdict(lambda: defaultdict(set))
    for drawing in drawings:
        if drawing is not None:
            drawing.see(apart)
    return {owner: {who: frozenset(others) for who, others in kids.items() if others} for owner, kids in apart.items()}


@dataclass(slots=True)
class _Lane:
    """What has to have happened before the parent goes on: `joined`, and all of `pending`, which had by `joined_ns`.

    `covered`: one of those comes after `joined` anyway. `before` is the child that came last.
    """

    joined: int
    joined_ns: int
    pending: list[int] = field(default_factory=list)
    before: int = NOBODY
    covered: bool = False

    def wait_for(self, event: int, at_ns: int, child: int, base: int) -> None:
        """Also for this event of a child that began after `base`."""
        self.pending.append(event)
        self.joined_ns, self.before = at_ns, child
        self.covered |= base == self.joined


@dataclass(slots=True)
class _Open:
    """A span whose children are being drawn, with a lane for each set of siblings that some child does not wait for.

    `not_for` says so of each child that does not wait for all.
    """

    owner: int
    high: int
    items: Iterator[_Item]
    lanes: dict[frozenset[_Who], _Lane]
    not_for: Mapping[int, frozenset[_Who]]

    def lane_of(self, child: int) -> _Lane:
        return self.lanes[self.not_for.get(child, _WAITS_FOR_ALL)]


_WAITS_FOR_ALL: frozenset[_Who] = frozenset()


class Drawing:
    """The events and edges of one interaction's spans."""

    __slots__ = ("_apart", "_base", "_draft", "_ends", "_forest", "_handed", "_high", "_low", "_tokens", "_tokens_in")

    def __init__(self, interaction: Interaction, offsets: Offsets | None) -> None:
        self._forest = Forest(interaction, offsets)
        self._low, self._high = window_of(interaction)
        # Of each child that was drawn: when it ends, and what its parent had waited for when it began.
        self._ends: dict[int, int] = {}
        self._base: dict[int, int] = {}
        # First tokens by the innermost span in which they came, and by each span around it with the child they are of.
        self._tokens_in: defaultdict[int, list[_Item]] = defaultdict(list)
        self._handed: defaultdict[int, list[_Item]] = defaultdict(list)
        self._tokens: dict[int, int] = {}
        shift = offsets.shift_ns if offsets else lambda _: 0
        marks = [mark for mark in interaction.marks if mark.name == FIRST_TOKEN]
        tokens = sorted((mark.at_ns - shift(mark.clock), mark.clock) for mark in marks)
        for number, (at, clock) in enumerate(tokens[:_MOST_TOKENS]):
            self._place(number, at, clock)

    def _place(self, number: int, at: int, clock: str) -> None:
        """Note whose token it was, in that span and in all around it."""
        around = self._running(at)
        if not around:
            return
        kid = max(around, key=lambda kid: self._may_stream(kid, clock))
        self._tokens_in[kid].append((at, _OWN_TOKEN, 0, kid, number))
        while kid != NOBODY:
            owner = around[kid]
            self._handed[owner].append((at, _TOKEN, 0, kid, number))
            kid = owner

    def _running(self, at: int) -> dict[int, int]:
        """The spans that had begun and not ended, each with the one around it, inner ones later."""
        starts, ends = self._forest.starts, self._forest.ends
        around: dict[int, int] = {}
        looking = [(NOBODY, self._low, self._high)]
        for owner, low, high in looking:
            for kid in self._siblings(owner):
                begin, end = max(starts[kid], low), min(ends[kid], high)
                if begin < at < end:
                    around[kid] = owner
                    looking.append((kid, begin, end))
        return around

    def _may_stream(self, kid: int, clock: str) -> tuple[bool, bool, int, bool]:
        """How likely a first token is this span's: on its clock, of a model, begun last, and nothing inside it."""
        span = self._forest.spans[kid]
        model = span.stage is not None and may_hold_model_time(entry(span.component, span.stage))
        return span.clock == clock, model, self._forest.starts[kid], kid not in self._forest.children

    def _siblings(self, owner: int) -> Sequence[int]:
        return self._forest.tops if owner == NOBODY else self._forest.children.get(owner, ())

    def _who(self, child: int, *, token: bool = False) -> _Who:
        span = self._forest.spans[child]
        return span.component, span.name, token

    def _kind(self, owner: int) -> tuple[str, str]:
        return ("", "") if owner == NOBODY else self._who(owner)[:2]

    def see(self, apart: defaultdict[tuple[str, str], defaultdict[_Who, set[_Who]]]) -> None:
        """Note which children began beside which others, on one clock and by more than rounding."""
        forest = self._forest
        for owner, kids in [(NOBODY, forest.tops), *forest.children.items()]:
            if not 1 < len(kids) <= _MOST_COMPARED:
                continue
            runs = [(forest.starts[kid], forest.ends[kid], self._who(kid), kid) for kid in kids]
            runs += [
                (forest.starts[kid], at, self._who(kid, token=True), kid)
                for at, _, _, kid, _ in self._handed.get(owner, ())
            ]
            runs.sort()
            running: list[tuple[int, _Who, int]] = []
            for start, end, who, kid in runs:
                running = [other for other in running if other[0] > start]
                if not who[2]:
                    apart[self._kind(owner)][who].update(self._beside(kid, start, end, running))
                running.append((end, who, kid))

    def _beside(self, kid: int, start: int, end: int, running: Iterable[tuple[int, _Who, int]]) -> Iterator[_Who]:
        for until, other, its in running:
            rounding = _ROUNDING * min(until - self._forest.starts[its], end - start)
            if other[:2] != self._who(kid)[:2] and until - start > rounding and self._same_clock(its, kid):
                yield other

    def _same_clock(self, one: int, two: int) -> bool:
        return self._forest.spans[one].clock == self._forest.spans[two].clock

    def draw(self, draft: Draft, apart: Apart) -> None:
        self._draft, self._apart = draft, apart
        forest = self._forest
        open_, stack = self._open(NOBODY, self._low, self._high, 0), []
        while True:
            for at, kind, _, child, number in open_.items:
                if kind == _START:
                    lane = open_.lane_of(child)
                    event, high = self._reach(lane, open_.owner, at, child), min(forest.ends[child], open_.high)
                    self._base[child] = lane.joined
                    if child in forest.children or child in self._tokens_in:
                        stack.append(open_)
                        open_ = self._open(child, at, high, event)
                        break
                    whose = forest.entry((child, NOBODY, NOBODY, at, high))
                    self._ends[child] = draft.after(event, whose, high - at)
                elif kind == _OWN_TOKEN:
                    event = self._reach(open_.lane_of(NOBODY), open_.owner, at, NOBODY)
                    self._tokens[number] = event
                    open_.lanes = {key: _Lane(event, at, before=lane.before) for key, lane in open_.lanes.items()}
                else:
                    event = self._ends[child] if kind == _END else self._tokens[number]
                    who = self._who(child, token=kind == _TOKEN)
                    for key, lane in open_.lanes.items():
                        if who not in key:
                            lane.wait_for(event, at, child, self._base[child])
            else:
                ended = self._reach(open_.lane_of(NOBODY), open_.owner, open_.high, NOBODY)
                if not stack:
                    draft.close(ended)
                    return
                self._ends[open_.owner] = ended
                open_ = stack.pop()

    def _not_for(self, owner: int, siblings: Sequence[int]) -> dict[int, frozenset[_Who]]:
        """Whom each child does not wait for, where that is not nobody."""
        apart = self._apart.get(self._kind(owner))
        if not apart:
            return {}
        names = [self._who(kid) for kid in siblings]
        alone = {who for who, times in Counter(names).items() if times == 1}
        # With itself, as long as it has no namesake: then all that run side by side have the same set.
        found = {
            kid: apart[who] | {who} if who in alone else apart[who]
            for kid, who in zip(siblings, names, strict=True)
            if who in apart
        }
        most = {key for key, _ in Counter(sorted(found.values(), key=sorted)).most_common(_MOST_LANES)}
        return {kid: key for kid, key in found.items() if key in most}

    def _reach(self, lane: _Lane, owner: int, at: int, child: int) -> int:
        """The event at which the owner's own time up to an instant has passed, before a child or none."""
        if lane.pending:
            events = lane.pending if lane.covered else [*lane.pending, lane.joined]
            lane.joined = self._draft.latest(list(dict.fromkeys(events)))
            lane.pending, lane.covered = [], False
        if at == lane.joined_ns:
            return lane.joined
        whose = self._forest.entry((owner, lane.before, child, lane.joined_ns, at))
        return self._draft.after(lane.joined, whose, at - lane.joined_ns)

    def _open(self, owner: int, low: int, high: int, event: int) -> _Open:
        starts, ends = self._forest.starts, self._forest.ends
        siblings = [kid for kid in self._siblings(owner) if max(starts[kid], low) < min(ends[kid], high)]
        items = [*self._tokens_in.get(owner, ()), *self._children(owner, siblings, low, high)]
        items.sort()
        not_for = self._not_for(owner, siblings)
        lanes = {key: _Lane(event, low) for key in (_WAITS_FOR_ALL, *not_for.values())}
        return _Open(owner, high, iter(items), lanes, not_for)

    def _children(self, owner: int, siblings: Sequence[int], low: int, high: int) -> Iterable[_Item]:
        """What happens to the children of a span, in any order."""
        starts, ends = self._forest.starts, self._forest.ends
        waited = self._cut_short(owner, siblings, high)
        handed = self._handed.get(owner, ())
        for rank, kid in enumerate(siblings):
            tokens = [item for item in handed if item[3] == kid]
            ended = ends[kid] <= high or kid in waited
            if ended or tokens:
                yield max(starts[kid], low), _START, -rank, kid, 0
            if ended:
                yield min(ends[kid], high), _END, -rank, kid, 0
            yield from tokens

    def _cut_short(self, owner: int, siblings: Sequence[int], high: int) -> set[int]:
        """Of those still running at the end of their parent's time, the ones that it waited for.

        Where the window ends inside the parent, that is the one that the account follows. A parent does not wait for
        what outlasts it; but across clocks, and within rounding, that it does is not known.
        """
        forest = self._forest
        running = [kid for kid in siblings if forest.ends[kid] > high]
        if not running:
            return set()
        if owner == NOBODY or forest.ends[owner] > high:
            inside = [kid for kid in running if owner == NOBODY or forest.ends[kid] <= forest.ends[owner]]
            return {(inside or running)[0]}
        return {
            kid
            for kid in running
            if not self._same_clock(kid, owner)
            or forest.ends[kid] - high <= _ROUNDING * (forest.ends[kid] - forest.starts[kid])
        }
