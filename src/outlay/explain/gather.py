"""Interactions in, cohorts out: align the clocks, account, fold, and count what is wrong with the data."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import TypeVar

from outlay.account import Account, account
from outlay.assembly import GENERIC_MOMENTS, only_open, windowed
from outlay.budget import Moment
from outlay.clocks import Call, Clocks, Offsets, calls_of, clocks_of
from outlay.cohort import Cohort, Keep, Largest
from outlay.interaction import Interaction, Note, dimension
from outlay.load import Load
from outlay.sampling import priority
from outlay.stages import UNATTRIBUTED
from outlay.tabulator import Tabulator
from outlay.units import MAX_NS, NS_PER_MS, format_duration

# Interactions whose clocks are aligned together: bounds from all of them, before any is accounted. The first batch is
# large, so that small inputs are aligned with all they hold. Later ones build on what is known, and are small because
# an interaction is accounted fastest while it is still in the processor's cache.
FIRST_BATCH, LATER_BATCH = 4096, 64

# After the first batch, calls between the same clocks are learned from so often; more would hardly tighten the bounds.
LEARN_EVERY_NS = 100 * NS_PER_MS
_MOST_PATTERNS = 10_000

# Time that nobody names is worth saying from these on: in real traces, less is the rounding between spans.
UNNAMED_SHARE, UNNAMED_NS = 0.05, 50 * NS_PER_MS
_UNNAMED = f"/{UNATTRIBUTED}"

# Cohorts keep few accounts whole: there may be hundreds of `--by`, and of all there are the columns.
_SMALL = Keep(slowest=64)

# How many interactions are kept whole, spans and all, to be replayed. Slow ones are kept more often: by the square of
# their time, so that of the slowest 1 % of a million there are still hundreds.
REPLAYED = 8192


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is asked of the data.

    `moments` are those declared; `only` limits the answer to one by name. `by` are the dimensions to split by, `where`
    the shell patterns that dimensions must match, `slowest` how many interactions to show whole.
    """

    moments: tuple[Moment, ...] = ()
    only: str | None = None
    by: tuple[str, ...] = ()
    where: Mapping[str, str] = field(default_factory=dict)
    slowest: int = 5


# The start and id of an interaction: what ranks examples, so that the same one is shown whatever the input's order.
Order = tuple[int, str]
FIRST: Order = (-MAX_NS, "")


@dataclass(slots=True)
class Trouble:
    """How often one kind of note was met, and the example that comes first by `Order`, then by text."""

    count: int
    first: Order
    text: str


Key = tuple[str | None, ...]


@dataclass(frozen=True, slots=True)
class Kept:
    """An interaction kept whole, with what brings its clocks together. It was `key` that kept it; see `_sample_key`."""

    key: int
    account: Account
    offsets: Offsets | None


class MomentCohorts:
    """One moment: all its interactions as a cohort and as columns, a cohort for each value of `--by`, the troubles.

    `slowest` are kept to be shown, `structures` a sample to be replayed.
    """

    __slots__ = ("by", "everything", "limits_ns", "moment", "rows", "slowest", "structures", "troubles", "whole")

    def __init__(self, moment: Moment, slowest: int) -> None:
        self.moment = moment
        # Whether interactions count from their first to their last instant.
        self.whole = moment.start is None and moment.end is None
        budget = moment.budget
        self.limits_ns = (budget.limit_ns, *budget.thresholds.values()) if budget else ()
        self.everything = Cohort(self.limits_ns)
        self.rows = Tabulator()
        self.by: dict[Key, Cohort] = {}
        self.slowest: Largest[tuple[Account, Offsets | None]] = Largest(slowest)
        # One more than are used: the first that does not count says how likely the others were to be kept.
        self.structures: Largest[Kept] = Largest(REPLAYED + 1)
        self.troubles: dict[str, Trouble] = {}

    def cohort(self, key: Key) -> Cohort:
        cohort = self.by.get(key)
        if cohort is None:
            cohort = self.by[key] = Cohort(self.limits_ns, _SMALL)
        return cohort

    def note(self, kind: str, text: str, order: Order = FIRST, count: int = 1) -> None:
        """Count a trouble; `order` ranks its text as the example to show."""
        self.note_lazily(kind, order, lambda: text, count=count)

    def note_lazily(self, kind: str, order: Order, text: Callable[..., str], *facts: object, count: int = 1) -> None:
        """The same, with a text that is only made from the facts when it may be the example."""
        known = self.troubles.get(kind)
        if known is None:
            self.troubles[kind] = Trouble(count, order, text(*facts))
            return
        known.count += count
        if order <= known.first:
            known.first, known.text = min((known.first, known.text), (order, text(*facts)))

    def merge(self, other: "MomentCohorts") -> None:
        self.everything.merge(other.everything)
        self.rows.merge(other.rows)
        self.structures.merge(other.structures)
        for key, cohort in other.by.items():
            self.cohort(key).merge(cohort)
        self.slowest.merge(other.slowest)
        for kind, trouble in other.troubles.items():
            self.note(kind, trouble.text, trouble.first, trouble.count)


# Troubles of an input that belong to no interaction are shown under this name if nothing else was found.
NO_MOMENT = ""


class Gathering:
    """Takes interactions, loads and notes one by one, in any order; several gatherings of one question merge."""

    __slots__ = (
        "_batch",
        "_clocks",
        "_declared",
        "_enough",
        "_learned",
        "_patterns",
        "_steps_told",
        "general",
        "loads",
        "moments",
        "offered",
        "question",
    )

    def __init__(self, question: Question) -> None:
        self.question = question
        self.moments: dict[str, MomentCohorts] = {}
        self.loads: list[Load] = []
        self.general = MomentCohorts(Moment(name=NO_MOMENT), 0)
        self.offered = 0
        self._declared = {moment.name: moment for moment in question.moments}
        self._batch: list[Interaction] = []
        self._enough = FIRST_BATCH
        self._clocks = Clocks()
        # Traces of one system show the same clocks in the same order again and again.
        self._patterns: dict[tuple[str, ...], tuple[str, ...]] = {}
        self._learned: dict[tuple[str, ...], int] = {}
        self._steps_told = (0, 0)

    def take(self, item: Interaction | Load | Note) -> None:
        """One interaction, the load of some, or a note about the input itself."""
        if isinstance(item, Note):
            self.general.note(item.kind, item.text)
            return
        if isinstance(item, Load):
            if self._concerned(item):
                self.loads.append(item)
            return
        self.offered += 1
        if not self._wanted(item):
            return
        self._batch.append(item)
        if len(self._batch) >= self._enough:
            self.flush()
            self._enough = LATER_BATCH

    def _wanted(self, interaction: Interaction) -> bool:
        question = self.question
        if question.only is not None and question.only != interaction.moment:
            return False
        where = question.where
        return not where or all(_fits(dimension(interaction, name), pattern) for name, pattern in where.items())

    def _concerned(self, load: Load) -> bool:
        """Whether the load may be that of interactions that are wanted: what it does not say excludes nothing."""
        question, told = self.question, load.dimensions
        if question.only is not None and question.only != load.moment:
            return False
        return all(_fits(told[name], pattern) for name, pattern in question.where.items() if name in told)

    def flush(self) -> None:
        """Account for everything taken so far. Call it once after the last one."""
        batch, self._batch = self._batch, []
        foreign = [self._foreign_clocks(interaction) for interaction in batch]
        self._clocks.observe(self._calls(batch, foreign))
        for interaction, clocks in zip(batch, foreign, strict=True):
            self._fold(interaction, clocks)
        self._tell_of_clocks()

    def _foreign_clocks(self, interaction: Interaction) -> tuple[str, ...]:
        """The clocks in the interaction, each once, or none when all are its own: then there is nothing to align."""
        clocks = clocks_of(interaction)
        if clocks.count(interaction.clock) == len(clocks):
            return ()
        pattern = self._patterns.get(clocks)
        if pattern is None:
            if len(self._patterns) >= _MOST_PATTERNS:
                self._patterns.clear()
            pattern = self._patterns[clocks] = tuple(sorted(set(clocks)))
        return pattern

    def _calls(self, batch: Sequence[Interaction], foreign: Sequence[tuple[str, ...]]) -> list[Call]:
        """The calls that the clocks learn from: all of the first batch, then some of each pattern of clocks."""
        calls: list[Call] = []
        learned, pause = self._learned, LEARN_EVERY_NS if self._enough == LATER_BATCH else 0
        if len(learned) > _MOST_PATTERNS:
            learned.clear()
        for interaction, clocks in zip(batch, foreign, strict=True):
            if clocks:
                start = interaction.start_ns or 0  # one without a start is learned from as it comes
                if not pause or abs(start - learned.get(clocks, -pause)) >= pause:
                    learned[clocks] = start
                    calls += calls_of(interaction)
        return calls

    def _tell_of_clocks(self) -> None:
        contradictions, steps = self._clocks.contradictions, self._clocks.steps
        before = self._steps_told
        self._steps_told = (contradictions, steps)
        if contradictions > before[0]:
            text = "a call whose server side outlasts its client side: it bounds no clock"
            self.general.note("contradiction", text, count=contradictions - before[0])
        if steps > before[1]:
            text = "the bounds of successive calls stopped overlapping; each side of the step is aligned on its own"
            self.general.note("clock-step", text, count=steps - before[1])

    def _cohorts(self, name: str) -> MomentCohorts:
        cohorts = self.moments.get(name)
        if cohorts is None:
            moment = self._declared.get(name) or Moment(name=name)
            cohorts = self.moments[name] = MomentCohorts(moment, self.question.slowest)
        return cohorts

    def _fold(self, interaction: Interaction, clocks: tuple[str, ...]) -> None:
        moment = self._cohorts(interaction.moment)
        cohorts: tuple[Cohort, ...] = (moment.everything,)
        if self.question.by:
            cohorts += (moment.cohort(tuple([dimension(interaction, name) for name in self.question.by])),)
        for note in interaction.notes:
            moment.note(note.kind, note.text, _order(interaction))
        made = self._account(interaction, clocks, moment)
        if interaction.outcome != "ok":
            for cohort in cohorts:
                cohort.add_failed(interaction.outcome, interaction.weight)
            moment.rows.add_failed(interaction)
        elif made is None:
            for cohort in cohorts:
                cohort.add_unmeasured(interaction.weight)
        else:
            for cohort in cohorts:
                cohort.add(made)
            moment.rows.add(made, _busy_ns(interaction))
            self._keep(made, clocks, moment)

    def _account(self, interaction: Interaction, clocks: tuple[str, ...], moment: MomentCohorts) -> Account | None:
        offsets = None
        if clocks:
            offsets = self._clocks.offsets(interaction.clock, clocks, _anchor_ns(interaction))
            _note_clocks(offsets, interaction, moment)
        if interaction.marks or not moment.whole:
            interaction = windowed(interaction, moment.moment, offsets)
        start, end = interaction.start_ns, interaction.end_ns
        if start is None or end is None:
            # What failed has no result, and counts as never whatever its marks.
            if interaction.outcome == "ok":
                what = "start" if start is None else "end"
                moment.note("incomplete", f"{interaction.id} has no {what}", _order(interaction))
            return None
        if end < start:
            moment.note("incomplete", f"{interaction.id} ends before it starts", _order(interaction))
            return None
        if abs(start) > MAX_NS or end - start > MAX_NS:
            moment.note("incomplete", f"{interaction.id} lies beyond 63 bits of nanoseconds", _order(interaction))
            return None
        made = account(interaction, offsets)
        unnamed = sum([duration for name, duration in made.entries.items() if _UNNAMED in name])
        if unnamed > UNNAMED_NS and unnamed > UNNAMED_SHARE * made.total_ns:
            moment.note_lazily("unnamed-time", _order(interaction), _unnamed_text, interaction.id, unnamed)
        for note in made.notes:
            moment.note(note.kind, note.text, _order(interaction))
        if moment.slowest.admits(made.total_ns):
            moment.slowest.add((made.total_ns, -start), interaction.id, (made, offsets))
        return made

    def _keep(self, made: Account, clocks: tuple[str, ...], moment: MomentCohorts) -> None:
        """Keep the whole structure of some, to be replayed."""
        key = _sample_key(made)
        if moment.structures.admits(key):
            interaction = made.interaction
            offsets = self._clocks.offsets(interaction.clock, clocks, _anchor_ns(interaction)) if clocks else None
            moment.structures.add((key,), interaction.id, Kept(key, made, offsets))

    def merge(self, other: "Gathering") -> None:
        """Everything that `other` gathered, too. Both must be flushed and have been asked the same."""
        for name, cohorts in other.moments.items():
            self._cohorts(name).merge(cohorts)
        self.general.merge(other.general)
        self.loads += other.loads
        self.offered += other.offered


def _sample_key(made: Account) -> int:
    """What ranks an interaction for the sample: its time squared over a uniform number from its id.

    Those with the largest are a sample in which each is as likely as its weight. (Duffield, Lund & Thorup 2007.)
    """
    return sample_weight(made) * 2**64 // (priority(made.interaction.id) + 1)


def sample_weight(made: Account) -> int:
    return max(made.total_ns, 1) ** 2 * made.interaction.weight


def _busy_ns(interaction: Interaction) -> int:
    """How long the service was busy with it from its start on: longer than a person waits, where an answer goes on."""
    start = interaction.start_ns or 0
    here = interaction.clock
    ends = [span.end_ns for span in interaction.spans if span.clock == here]
    ends += [mark.at_ns for mark in interaction.marks if mark.clock == here]
    return max([*ends, interaction.end_ns or start]) - start


def _fits(value: str | None, pattern: str) -> bool:
    return value is not None and fnmatchcase(value, pattern)


def _anchor_ns(interaction: Interaction) -> int:
    """An instant in or near the interaction, around which its clocks are compared."""
    if interaction.start_ns is not None:
        return interaction.start_ns
    known = (interaction.end_ns, *[mark.at_ns for mark in interaction.marks])
    return next((at for at in known if at is not None), 0)


def _unnamed_text(interaction_id: str, unnamed_ns: int) -> str:
    return f"{format_duration(unnamed_ns)} of {interaction_id}"


def _order(interaction: Interaction) -> Order:
    return (interaction.start_ns or 0, interaction.id)  # one without a start ranks with the epoch


def _note_clocks(offsets: Offsets, interaction: Interaction, moment: MomentCohorts) -> None:
    if not (offsets.shifts or offsets.unbounded):
        return
    order = _order(interaction)
    for clock in offsets.shifts:
        moment.note_lazily("clock-skew", order, _skew_text, clock, offsets)
    for clock in offsets.unbounded:
        moment.note_lazily("clock-unbounded", order, _unbounded_text, clock, offsets)


def _unbounded_text(clock: str, offsets: Offsets) -> str:
    return f"{clock or 'unnamed'} against {offsets.reference or 'unnamed'}"


def _skew_text(clock: str, offsets: Offsets) -> str:
    offset = offsets.by_clock[clock]
    way = "ahead of" if offset.theta_ns > 0 else "behind"
    error = offset.error_ns
    bound = "" if error is None else f" ± {format_duration(error)}"
    return f"{clock} is {format_duration(abs(offset.theta_ns))}{bound} {way} {offsets.reference}"


_OfMoment = TypeVar("_OfMoment", Interaction, Load)


def retarget(item: _OfMoment, moments: Sequence[Moment]) -> _OfMoment:
    """An item whose producer named no moment belongs to the only moment without a `match`, if there is one."""
    if item.moment not in GENERIC_MOMENTS or any(moment.name == item.moment for moment in moments):
        return item
    moment = only_open(moments)
    return item if moment is None else replace(item, moment=moment.name)


def gather(items: Iterable[Interaction | Load | Note], question: Question) -> Gathering:
    """All of `items`, gathered."""
    gathering = Gathering(question)
    for item in items:
        gathering.take(item)
    gathering.flush()
    return gathering
