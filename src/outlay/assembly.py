"""Spans of one trace to interactions: who is whose child, where it begins and ends, what each span stands for."""

from collections import OrderedDict, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from outlay.budget import ChainStep, Moment
from outlay.clocks import Offsets
from outlay.engines import ENGINE_KEYS, engine_stages, told_duration
from outlay.interaction import CONDITIONS, FIRST_TOKEN, HARDWARE, SITE, SOURCE, VERSION, Interaction, Mark, Note, Span
from outlay.mapping import MARK_KEY, MOMENT_KEY, UNSPLIT_CALL, Rules, matches
from outlay.sampling import KEYS as SAMPLER_KEYS
from outlay.sampling import stands_for, whole
from outlay.stages import UNATTRIBUTED, entry, joint, split_entry
from outlay.trace import Scalar, TraceSpan

# A trace that names no moment, and that no `match` claims.
ANY_TRACE = "trace"
# What codecs call interactions of producers that know no moments.
GENERIC_MOMENTS = frozenset({ANY_TRACE, "llm-request", "http-request"})

# Where each dimension stands in a span's attributes or its process's: the first key that is there wins, and the span
# nearest to the root wins over those below it.
DIMENSION_KEYS: Mapping[str, tuple[str, ...]] = {
    SITE: ("outlay.site", "cloud.region", "cloud.availability_zone", "region"),
    VERSION: ("outlay.version", "service.version"),
    HARDWARE: ("outlay.hardware", "host.type"),
    "model": ("gen_ai.request.model", "gen_ai.response.model"),
    "environment": ("deployment.environment.name", "deployment.environment"),
    "user_region": ("outlay.user_region",),
}
SIZE_KEYS: Mapping[str, tuple[str, ...]] = {
    "input_tokens": ("gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens"),
    "output_tokens": ("gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens"),
}
CONDITION_KEYS: Mapping[str, str] = {f"outlay.{name}": name for name in CONDITIONS}
_DIMENSION_OF = {key: name for name, keys in DIMENSION_KEYS.items() for key in keys}
_SIZE_OF = {key: name for name, keys in SIZE_KEYS.items() for key in keys}

COLD_KEY = "faas.coldstart"
FIRST_CHUNK_KEY = "gen_ai.response.time_to_first_chunk"

_HANDING_OVER = ("producer", "consumer")

# The last instant of a trace on one of several clocks.
TRACE_END = "outlay.trace_end"
MARK_EVENT = "outlay.mark"
# How producers name the event at which a streamed answer begins.
FIRST_TOKEN_EVENTS = frozenset(
    {"first_token", "First Token Stream Event", "ai.stream.firstChunk", "gen_ai.first_token"}
)


def wanted_keys(rules: Rules, moments: Iterable[Moment]) -> frozenset[str]:
    """The attribute keys that assembling looks at: all that a codec needs to keep, and so all that is ever kept."""
    return frozenset(
        _DIMENSION_OF.keys()
        | _SIZE_OF.keys()
        | CONDITION_KEYS.keys()
        | SAMPLER_KEYS
        | {COLD_KEY, FIRST_CHUNK_KEY, MOMENT_KEY, MARK_KEY}
        | ENGINE_KEYS
        | rules.wanted_keys()
        | {key for moment in moments if moment.match for key in moment.match.attributes}
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tree:
    """One trace with every span once, and each parent either present or None."""

    spans: Mapping[str, TraceSpan]
    parents: Mapping[str, str | None]
    roots: tuple[TraceSpan, ...]
    children: Mapping[str, tuple[str, ...]]


def assemble(trace: Sequence[TraceSpan], rules: Rules, moments: Sequence[Moment] = ()) -> Iterator[Interaction]:
    """The interactions in the spans of one trace, in order of their start.

    Where moments have a `match`, each topmost span that matches one begins an interaction of its own with all that is
    below it. Otherwise the trace is one interaction.
    """
    notes: list[Note] = []
    tree = _tree(trace, notes)
    tops = _tops(tree, moments)
    if not tops:
        yield _interaction(tree, tree.roots, rules, _default_moment(tree, moments), notes)
    for top, moment in tops:
        yield _interaction(tree, (top,), rules, moment, notes)


def _tree(trace: Sequence[TraceSpan], notes: list[Note]) -> _Tree:
    spans: dict[str, TraceSpan] = {}
    for span in sorted(trace, key=_span_order):
        if span.id in spans:
            notes.append(Note(kind="duplicate-span", text=f"span {span.id} ({span.name}) appears more than once"))
        else:
            spans[span.id] = span
    parents: dict[str, str | None] = {}
    for span in spans.values():
        parents[span.id] = span.parent if span.parent in spans else None
        if span.parent is not None and span.parent not in spans:
            notes.append(
                Note(kind="missing-parent", text=f"span {span.id} ({span.name}): parent {span.parent} is absent")
            )
    _break_cycles(parents, notes)
    children: dict[str, list[str]] = {}
    for span_id, parent in parents.items():
        if parent is not None:
            children.setdefault(parent, []).append(span_id)
    return _Tree(
        spans=spans,
        parents=parents,
        roots=tuple(span for span in spans.values() if parents[span.id] is None),
        children={parent: tuple(ids) for parent, ids in children.items()},
    )


def _span_order(span: TraceSpan) -> tuple[int, int, str, str, str]:
    """A total order that does not depend on arrival: the earliest first, and of equal starts the longest."""
    return (span.start_ns, -(span.end_ns or span.start_ns), span.id, span.name, str(span.parent))


def _break_cycles(parents: dict[str, str | None], notes: list[Note]) -> None:
    """Cut each ring of parents at its first span, so that every span hangs below some root."""
    safe: set[str] = set()
    for start in parents:
        trail: dict[str, None] = {}
        here: str | None = start
        while here is not None and here not in safe and here not in trail:
            trail[here] = None
            here = parents[here]
        if here is not None and here in trail:
            parents[here] = None
            notes.append(Note(kind="contradiction", text=f"span {here} is its own ancestor"))
        safe.update(trail)


def _tops(tree: _Tree, moments: Sequence[Moment]) -> list[tuple[TraceSpan, Moment]]:
    """The topmost spans that a moment's `match` claims; the first moment that matches wins."""
    claims = [(moment, moment.match) for moment in moments if moment.match is not None]
    if not claims:
        return []
    found = []
    stack = list(reversed(tree.roots))
    while stack:
        span = stack.pop()
        moment = next((moment for moment, match in claims if matches(match, span)), None)
        if moment is not None:
            found.append((span, moment))
        else:
            stack += [tree.spans[child] for child in reversed(tree.children.get(span.id, ()))]
    return sorted(found, key=lambda pair: _span_order(pair[0]))


def _default_moment(tree: _Tree, moments: Sequence[Moment]) -> Moment:
    """The moment that the data names; else the only one that claims nothing in particular; else just a trace."""
    named = next(
        (str(span.attributes[MOMENT_KEY]) for span in tree.spans.values() if MOMENT_KEY in span.attributes), None
    )
    if named is not None:
        return next((moment for moment in moments if moment.name == named), Moment(name=named))
    return only_open(moments) or Moment(name=ANY_TRACE)


def only_open(moments: Sequence[Moment]) -> Moment | None:
    """The one moment without a `match`, which takes whatever names no moment; None if there are none or several."""
    open_ones = [moment for moment in moments if moment.match is None]
    return open_ones[0] if len(open_ones) == 1 else None


def _interaction(
    tree: _Tree, roots: Sequence[TraceSpan], rules: Rules, moment: Moment, trace_notes: Sequence[Note]
) -> Interaction:
    members = _below(tree, roots)
    notes = list(trace_notes)
    spans: list[Span] = []
    marks: list[Mark] = []
    for span in members:
        meaning = rules.meaning(span)
        stage = None if meaning.leaf_only and _holds_others(tree, span) else meaning.stage
        if not ENGINE_KEYS.isdisjoint(span.attributes):
            inner = engine_stages(span, _stage_times(tree, span, rules), notes)
            spans += inner
            stage = None if inner else stage
        spans.append(_span(span, tree, meaning.component, stage, notes))
        if span.events or FIRST_CHUNK_KEY in span.attributes:
            marks += _marks(span, notes)
        if stage == UNSPLIT_CALL:
            notes.append(Note(kind="unsplit-call", text=f"{entry(meaning.component, UNSPLIT_CALL)}: {span.name}"))
    start, end = _window(tree, roots, members, spans, marks, notes)
    first = roots[0]
    name = first.trace if tuple(roots) == tree.roots else f"{first.trace}/{first.id}"
    return Interaction(
        id=name,
        moment=moment.name,
        start_ns=start,
        end_ns=end,
        clock=first.clock,
        outcome="error" if any(root.failed for root in roots) else "ok",
        dimensions=_dimensions(members),
        sizes=_sizes(members),
        marks=tuple(sorted(marks, key=lambda mark: (mark.at_ns, mark.name))),
        spans=tuple(spans),
        notes=tuple(notes),
        conditions=_conditions(members),
        weight=_weight(tree, name),
    )


def _weight(tree: _Tree, name: str) -> int:
    """What the sampler says of it. Traces are sampled by what is told where they begin."""
    told = tree.roots[0].attributes
    return 1 if SAMPLER_KEYS.isdisjoint(told) else whole(stands_for(told), name)


def _stage_times(tree: _Tree, span: TraceSpan, rules: Rules) -> dict[str, int]:
    """How long the spans below say that each stage took. What lies below a stage or another request is part of it."""
    times: defaultdict[str, int] = defaultdict(int)
    below = list(tree.children.get(span.id, ()))
    for span_id in below:
        inner = tree.spans[span_id]
        stage = rules.meaning(inner).stage
        if stage is not None and inner.end_ns is not None:
            times[stage] += inner.end_ns - inner.start_ns
        elif ENGINE_KEYS.isdisjoint(inner.attributes):
            below += tree.children.get(span_id, ())
    return times


def _below(tree: _Tree, roots: Sequence[TraceSpan]) -> list[TraceSpan]:
    """The roots and all that hangs below them, parents before children."""
    members = list(roots)
    for span in members:
        members += [tree.spans[child] for child in tree.children.get(span.id, ())]
    return members


def _span(span: TraceSpan, tree: _Tree, component: str, stage: str | None, notes: list[Note]) -> Span:
    # A parent that is not in the data is still named: the span is nobody's first.
    parent = span.parent if span.parent not in tree.spans else tree.parents[span.id]
    end = span.end_ns
    if end is None:
        # Its children are the only witnesses of how long it lasted.
        ends = [tree.spans[child].end_ns for child in tree.children.get(span.id, ())]
        end = max([span.start_ns, *(known for known in ends if known is not None)])
        notes.append(Note(kind="missing-value", text=f"span {span.id} ({span.name}) has no end"))
    return Span(
        id=span.id,
        parent=parent,
        name=span.name,
        component=component,
        stage=stage,
        kind=span.kind,
        clock=span.clock,
        start_ns=span.start_ns,
        end_ns=end,
        follows=_follows(tree, span),
    )


def _holds_others(tree: _Tree, span: TraceSpan) -> bool:
    return not all(_follows(tree, tree.spans[child]) for child in tree.children.get(span.id, ()))


def _follows(tree: _Tree, span: TraceSpan) -> bool:
    """Whether a span was caused by its parent without running inside it."""
    parent = tree.parents[span.id]
    if parent is None:
        return False
    above = tree.spans[parent]
    return span.follows or span.kind == "consumer" or (above.kind in _HANDING_OVER and not _within(span, above))


def _within(span: TraceSpan, above: TraceSpan) -> bool:
    """Whether one clock saw a span run inside another; one that nobody saw end may hold anything."""
    end = span.start_ns if span.end_ns is None else span.end_ns
    open_end = above.end_ns is None or end <= above.end_ns
    return span.clock == above.clock and above.start_ns <= span.start_ns and open_end


def _window(
    tree: _Tree,
    roots: Sequence[TraceSpan],
    members: Sequence[TraceSpan],
    spans: Sequence[Span],
    marks: list[Mark],
    notes: list[Note],
) -> tuple[int | None, int | None]:
    """From the first root's start to the last root's end. Where ends stand on several clocks, marks tell them apart.

    A root that only hands work over (a producer, a consumer) has no answer of its own: what it caused is the result.
    """
    start = min(root.start_ns for root in roots)
    hands_over = any(root.kind in _HANDING_OVER for root in roots)
    root_ids = {root.id for root in roots}
    deciding = spans if hands_over else [span for span in spans if span.id in root_ids]
    if any(tree.spans[span.id].end_ns is None for span in deciding if span.id in tree.spans) and not hands_over:
        return start, None
    here = roots[0].clock
    ends = {
        clock: max(span.end_ns for span in deciding if span.clock == clock) for clock in {s.clock for s in deciding}
    }
    end = max(ends.values(), default=start)
    if ends.keys() - {here}:
        # Which of them is last shows only when the clocks are aligned.
        marks += [Mark(name=TRACE_END, at_ns=at, clock=clock) for clock, at in sorted(ends.items())]
    later = [span for span in members if span.clock == here and span.start_ns >= end and span.id not in root_ids]
    if later:
        notes.append(Note(kind="async-after-end", text=f"{later[0].name} begins after the answer"))
    return start, end


def _marks(span: TraceSpan, notes: list[Note]) -> Iterator[Mark]:
    for event in span.events:
        if event.name in FIRST_TOKEN_EVENTS:
            yield Mark(name=FIRST_TOKEN, at_ns=event.at_ns, clock=span.clock)
        elif event.name == MARK_EVENT and MARK_KEY in event.attributes:
            yield Mark(name=str(event.attributes[MARK_KEY]), at_ns=event.at_ns, clock=span.clock)
    if FIRST_CHUNK_KEY in span.attributes:
        after = told_duration(span, FIRST_CHUNK_KEY, notes)
        if after is not None:
            yield Mark(name=FIRST_TOKEN, at_ns=span.start_ns + after, clock=span.clock)


def _dimensions(members: Sequence[TraceSpan]) -> dict[str, str]:
    """What the spans and their processes say of each dimension: the first to say it, from the root down."""
    found: dict[str, str] = {}
    cold: set[bool] = set()
    resources: set[int] = set()
    for span in members:
        attributes, resource = span.attributes, span.resource
        if not _DIMENSION_OF.keys().isdisjoint(attributes):
            _take_dimensions(attributes, found)
        if COLD_KEY in attributes:
            cold.add(attributes[COLD_KEY] in (True, "true"))
        if id(resource) not in resources:
            resources.add(id(resource))
            _take_dimensions(resource, found)
    if cold:
        found["start"] = "cold" if True in cold else "warm"
    return found


def _take_dimensions(attributes: Mapping[str, Scalar], found: dict[str, str]) -> None:
    for key, name in _DIMENSION_OF.items():
        if key in attributes:
            found.setdefault(name, str(attributes[key]))


def _sizes(members: Sequence[TraceSpan]) -> dict[str, int]:
    """The largest of each size: an agent's sum and its parts may both be there, and would count twice if added."""
    sizes: dict[str, int] = {}
    for span in members:
        attributes = span.attributes
        if _SIZE_OF.keys().isdisjoint(attributes):
            continue
        for key, name in _SIZE_OF.items():
            value = attributes.get(key)
            if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
                sizes[name] = max(value, sizes.get(name, value))
    return sizes


def _conditions(members: Sequence[TraceSpan]) -> dict[str, float]:
    """What spans say of the service on arrival: the first to say it, from the root down."""
    found: dict[str, float] = {}
    for span in members:
        for key in CONDITION_KEYS.keys() & span.attributes.keys():
            value = span.attributes[key]
            if isinstance(value, int | float):
                found.setdefault(CONDITION_KEYS[key], float(value))
    return found


def windowed(interaction: Interaction, moment: Moment, offsets: Offsets | None = None) -> Interaction:
    """The interaction as the moment defines it: between its marks, with its chain. Without either, as it is.

    Marks of other clocks are read with `offsets`. A mark that is not there leaves that side unknown: the interaction
    then counts against coverage, and is not measured from some other instant instead.
    """
    asks_nothing = moment.start is None and moment.end is None and not moment.chain
    if asks_nothing and not any(mark.name == TRACE_END for mark in interaction.marks):
        return interaction
    at: dict[str, list[int]] = {}
    for mark in interaction.marks:
        at.setdefault(mark.name, []).append(mark.at_ns - (offsets.shift_ns(mark.clock) if offsets else 0))
    start, end = interaction.start_ns, interaction.end_ns
    if moment.start is not None:
        start = at[moment.start][0] if moment.start in at else None
    if moment.end is not None:
        end = at[moment.end][0] if moment.end in at else None
    elif TRACE_END in at:
        end = max(at[TRACE_END])
    marks = chained(interaction.marks, moment.chain) if moment.chain else interaction.marks
    return replace(interaction, start_ns=start, end_ns=end, marks=marks)


def chained(marks: Sequence[Mark], chain: Sequence[ChainStep]) -> tuple[Mark, ...]:
    """The marks of a chain in its order, each with the stage that ends there.

    A missing mark merges its stage with the next one's under a joint name. Marks outside the chain are left out.
    """
    there: dict[str, Mark] = {}
    for mark in marks:
        there.setdefault(mark.name, mark)
    out: list[Mark] = []
    waiting: list[str] = []
    for step in chain:
        if step.entry is not None:
            waiting.append(step.entry)
        if step.mark in there:
            found = there[step.mark]
            # What lies before the first mark, where the interaction begins earlier, is no step of the chain.
            component, stage = _joined(waiting) if waiting else (None, f"{UNATTRIBUTED}.start->{step.mark}")
            out.append(replace(found, component=component, stage=stage))
            waiting = []
    return tuple(out)


def _joined(entries: Sequence[str]) -> tuple[str, str]:
    pairs = [split_entry(name) for name in entries]
    stage = pairs[0][1]
    for _, other in pairs[1:]:
        stage = joint(stage, other)
    # The component that ends the stretch names it; the stages say what else is inside.
    return pairs[-1][0], stage


def from_source(interaction: Interaction, source: str) -> Interaction:
    """The interaction with the input it was read from as its dimension `source`."""
    return replace(interaction, dimensions={**interaction.dimensions, SOURCE: source})


@dataclass(slots=True)
class _OpenTrace:
    """A trace still being collected: how many spans had arrived in all when its last one did, and from which input."""

    arrived: int
    spans: list[TraceSpan]
    source: str | None


class Assembler:
    """Groups spans that arrive in any order by trace, and lets a trace go when it is complete enough.

    Complete is when `patience` other spans have arrived since its last one, or at the end of input. A span that comes
    for a trace already gone is counted in a note, not lost in silence. Memory is bounded by `patience`.
    """

    __slots__ = ("_arrived", "_gone", "_moments", "_open", "_patience", "_rules")

    def __init__(self, rules: Rules, moments: Sequence[Moment], *, patience: int = 100_000) -> None:
        self._rules = rules
        self._moments = moments
        self._patience = patience
        self._open: OrderedDict[str, _OpenTrace] = OrderedDict()
        self._gone: OrderedDict[str, None] = OrderedDict()
        self._arrived = 0

    def add(self, span: TraceSpan, source: str | None = None) -> Iterable[Interaction | Note]:
        """Take one span; what that completes. `source` names the input, for the dimension of that name."""
        self._arrived += 1
        trace = self._open.get(span.trace)
        if trace is not None:
            trace.arrived = self._arrived
            trace.spans.append(span)
            self._open.move_to_end(span.trace)
        elif span.trace in self._gone:
            return (Note(kind="late-span", text=f"span {span.id} ({span.name}) of trace {span.trace}"),)
        else:
            self._open[span.trace] = _OpenTrace(self._arrived, [span], source)
        return self._let_go() if self._oldest() <= self._arrived - self._patience else ()

    def _oldest(self) -> int:
        # Traces stand in the order of their last spans.
        return next(iter(self._open.values())).arrived

    def _let_go(self) -> Iterator[Interaction]:
        """The traces that have waited long enough; never the one that a span was just added to."""
        while self._oldest() <= self._arrived - self._patience:
            trace, complete = self._open.popitem(last=False)
            self._gone[trace] = None
            if len(self._gone) > self._patience:
                self._gone.popitem(last=False)
            yield from self._assembled(complete)

    def finish(self) -> Iterator[Interaction]:
        """Everything still open, in order of arrival."""
        while self._open:
            yield from self._assembled(self._open.popitem(last=False)[1])

    def _assembled(self, trace: _OpenTrace) -> Iterator[Interaction]:
        made = assemble(trace.spans, self._rules, self._moments)
        source = trace.source
        return made if source is None else (from_source(interaction, source) for interaction in made)
