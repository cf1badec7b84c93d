"""What a report says of causes, in sentences: where to start, what a change would give back, for whom it is slow, whose
part it is. Every output tells the same; names from the data are `Name`s, which each renderer sets apart.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite, isinf

from outlay.change import Change, parse_change
from outlay.render import words
from outlay.render.words import Name, Sentence
from outlay.report import (
    Blame,
    Burn,
    Driver,
    Duty,
    Failing,
    FailingPart,
    Finding,
    MomentReport,
    Recovery,
    Shift,
    Slice,
    Together,
    WhatIf,
)
from outlay.stages import TERMS
from outlay.units import format_duration

FINE = 4
ENTRIES = 3
EVERYBODY, NOBODY = "everybody", "nobody"
ALONE = "each change by itself; savings do not add"
SAME_SHAPES = "against others with the same shapes"

_TERMS = frozenset(term.name for term in TERMS)
_MEDIAN = 50
# What each kind of change says of the entry before it; a start has none.
_SAYS: Mapping[str, Callable[[Change], Sentence]] = {
    "limit": lambda change: (f"took at most {format_duration(change.amount)}" if change.amount else "took no time",),
    "percentile": lambda change: (f"never took longer than the {_percentile(change.amount)}",),
    "factor": lambda change: (f"took {change.amount:g} times as long",),
    "like": lambda change: ("took as long as at ", Name(f"{change.dimension}={change.value}")),
    "rtt": lambda change: (f"had a round trip of {format_duration(change.amount)}",),
    "warm": lambda _: ("all starts were warm",),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """One section of a report: a table, then sentences.

    `align` holds `<` or `>` a column; column `flex` may be shortened where there is little room.
    """

    title: str
    note: Sentence = ()
    heads: tuple[str, ...] = ()
    align: str = ""
    flex: int = 0
    rows: tuple[tuple[Sentence, ...], ...] = ()
    lines: tuple[Sentence, ...] = ()


def start(moment: MomentReport) -> Sentence:
    """The answer in a few words: where to start, what that gives back, who does it, and what is fine already.

    Empty without findings.
    """
    if not moment.findings:
        return ()
    first = moment.findings[0]
    owner: Sentence = (" (owner: ", Name(first.owner), ")") if first.owner else ()
    said = [*_gives(first), *owner, f". To do: {first.fix}."]
    if not is_proven(best(first.what_if)):
        said.append(" It may give back nothing: the interval holds 0.")
    return (*said, *fine(moment))


def _gives(finding: Finding) -> Sentence:
    recovery = best(finding.what_if)
    name = words.percentile_name(recovery.level)
    if not is_known(recovery):
        gives = f"{name} {_from_never(recovery)}"
    else:
        before = format_duration(recovery.before_ns)
        gives = f"{back(recovery)} of your {name} of {before} would come back"
    return (f"Start with {finding.term}: {gives} if ", *condition(finding.what_if.changes))


def fine(moment: MomentReport) -> Sentence:
    """` Already fine, do not start here: routing (2.00 ms).`; empty when no term is."""
    if not moment.fine:
        return ()
    named = [f"{each.term} ({format_duration(each.tail_ns)})" for each in moment.fine[:FINE]]
    return (f" Already fine, do not start here: {', '.join(named)}.",)


def best(what_if: WhatIf) -> Recovery:
    """What it recovers at the highest percentile that says something."""
    known = [each for each in what_if.recovers if is_known(each)]
    return max(known or what_if.recovers, key=lambda each: each.level)


def at(what_if: WhatIf, level: float) -> Recovery | None:
    """What it recovers at this percentile; None where the sample did not show it."""
    return next((each for each in what_if.recovers if each.level == level), None)


def levels(moment: MomentReport) -> tuple[float, ...]:
    """The percentiles at which findings recover something, the highest first."""
    found = {each.level for finding in moment.findings for each in finding.what_if.recovers}
    return tuple(sorted(found, reverse=True))


def is_proven(recovery: Recovery) -> bool:
    """Whether the interval of what comes back is off 0."""
    low_ns, high_ns = recovery.interval_ns
    return not low_ns <= 0 <= high_ns


def is_known(recovery: Recovery) -> bool:
    """Whether what comes back is a number: of a percentile that was never it is not."""
    return isfinite(recovery.before_ns)


def back(recovery: Recovery | None) -> str:
    """`480 ms [410, 560]`: what comes back; of a percentile that was never, where it goes; empty for none."""
    if recovery is None:
        return ""
    if is_known(recovery):
        return words.estimate(recovery.saved_ns, recovery.interval_ns)
    return _from_never(recovery)


def _from_never(recovery: Recovery) -> str:
    return "stays never" if isinf(recovery.after_ns) else f"from never to {format_duration(recovery.after_ns)}"


def condition(changes: Sequence[str]) -> Sentence:
    """What would have to be, of changes in the words of `--what-if`: `llm/queue.wait took no time`."""
    grouped: dict[Sentence, list[Sentence]] = {}
    for text in changes:
        try:
            change = parse_change(text)
        except ValueError:
            # Round trips to a place are known only where the change was given: its own words say it.
            grouped[(Name(text),)] = []
            continue
        entry: Sentence = (change.entry,) if change.entry in _TERMS else (Name(change.entry),)
        grouped.setdefault(_SAYS[change.kind](change), []).extend([] if change.kind == "warm" else [entry])
    parts = [(*words.listing(entries), *((" ",) if entries else ()), *says) for says, entries in grouped.items()]
    return tuple(piece for place, part in enumerate(parts) for piece in (*((" and ",) if place else ()), *part))


def _percentile(level: float) -> str:
    return "median" if level == _MEDIAN else words.percentile_name(level)


def replayed(what_if: WhatIf) -> Iterator[Sentence]:
    """How many interactions a replay stands on, and what was assumed."""
    if what_if.replayed == what_if.of:
        yield (f"Replayed: all {words.many(what_if.of, 'interaction')}.",)
    else:
        yield (f"Replayed: {words.count(what_if.replayed)} of {words.many(what_if.of, 'interaction')}, weighted.",)
    for note in what_if.notes:
        # One on a change begins with its words, which are no sentence's.
        yield (f"{note if '=' in note.split(':')[0] else note[:1].upper() + note[1:]}.",)


def assumptions(moment: MomentReport) -> tuple[Sentence, ...]:
    """What the findings' replays stand on: all were of the same interactions, and each assumption is said once."""
    said = [tuple(replayed(finding.what_if)) for finding in moment.findings]
    return tuple(dict.fromkeys((*said[0][:1], *(note for told in said for note in told[1:])))) if said else ()


def changed(moment: MomentReport) -> tuple[Section, ...]:
    """What several changes give back together, and what was asked for by `--what-if`."""
    together = () if moment.together is None else (_together(moment.together),)
    return (*together, *(_what_if(each) for each in moment.what_ifs))


def _together(value: Together) -> Section:
    name = words.percentile_name(value.all_recovers.level)
    lines: list[Sentence] = []
    # Of two the best two are both.
    if value.pair is not None and value.pair_recovers is not None and len(value.shares_ns) > 2:
        one, other = value.pair
        lines.append((f"The best two, {one} and {other}: {back(value.pair_recovers)} of the {name}.",))
    shares = sorted(value.shares_ns.items(), key=lambda item: (-item[1], item[0]))
    split = ", ".join(f"{term} {format_duration(share_ns)}" for term, share_ns in shares)
    number = "Both" if len(shares) == 2 else f"All {len(shares)}"
    lines.append((f"{number}: {back(value.all_recovers)} of the {name}; split fairly: {split}.",))
    return Section(title="Several at once", note=("savings do not add",), lines=tuple(lines))


def _what_if(value: WhatIf) -> Section:
    rows = tuple(
        tuple((cell,) for cell in (words.percentile_name(each.level), *_before_after(each), back(each)))
        for each in value.recovers
    )
    return Section(
        title="What if",
        note=condition(value.changes),
        heads=("", "before", "after", "comes back"),
        align="<>><",
        rows=rows,
        lines=tuple(replayed(value)),
    )


def _before_after(recovery: Recovery) -> tuple[str, str]:
    return format_duration(recovery.before_ns), format_duration(recovery.after_ns)


def for_whom(moment: MomentReport) -> tuple[Section, ...]:
    """What goes with the time, for whom it is slow, and what a new version changed; nothing for what is not known."""
    sections = (
        Section(title="What never came", lines=() if moment.failing is None else tuple(_failing(moment.failing))),
        Section(title="For whom it is slow", lines=tuple(_slice(each) for each in moment.slices)),
        Section(title="What changed", lines=tuple(_shift(each) for each in moment.shifts)),
    )
    drivers = (_drivers(moment.drivers),) if moment.drivers else ()
    return (*drivers, *(section for section in sections if section.lines))


def _failing(value: Failing) -> Iterator[Sentence]:
    how = ", ".join(f"{name} {words.count(n)}" for name, n in sorted(value.outcomes.items(), key=lambda each: -each[1]))
    never = "" if value.from_level is None else f": the {words.percentile_name(value.from_level)} never comes"
    yield (f"{words.percent(value.share)} got no result ({how}){never}.",)
    yield from map(_failing_part, value.parts)


def _failing_part(value: FailingPart) -> Sentence:
    of = f"{words.percent(value.failed_share)} of {words.count(value.n)}"
    name = Name(f"{value.dimension}={value.value}")
    return (name, f": {of} got none, {words.percent(value.of_failures)} of all that did not.")


def _drivers(drivers: Sequence[Driver]) -> Section:
    levels = sorted({driver.level for driver in drivers if driver.level is not None})
    counted = [(Name(driver.name),) for driver in drivers if driver.counted]
    lines: tuple[Sentence, ...] = ()
    if counted:
        lines = (("Counted from the interactions themselves: ", *words.listing(counted), "."),)
    return Section(
        title="What goes with the time",
        note=("effect: from the tenth with the least of it to the tenth with the most, the others held",),
        heads=("on arrival", "explains it", "rank correlation", _effect_head(levels)),
        align="<<<<",
        rows=tuple(_driver(driver, named=len(levels) > 1) for driver in drivers),
        lines=lines,
    )


def _effect_head(levels: Sequence[float]) -> str:
    return f"effect on {words.percentile_name(levels[0])}" if len(levels) == 1 else "effect"


def _driver(value: Driver, *, named: bool) -> tuple[Sentence, ...]:
    """`named`: the effects are on different percentiles, so each says on which."""
    effect = ""
    if value.effect_ns is not None and value.level is not None:
        on = f"{words.percentile_name(value.level)} " if named else ""
        effect = on + words.estimate(value.effect_ns, value.effect_interval_ns, sign=True)
    strength = words.correlation(value.rank_correlation, value.correlation_interval)
    return ((Name(value.name),), ("yes" if value.explains else "no",), (strength,), (effect,))


def _slice(value: Slice) -> Sentence:
    of = f": {words.percent(value.share)} of interactions, {words.percent(value.tail_share)} of the slow ones"
    name = Name(f"{value.dimension}={value.value}")
    if value.effect_ns is None or value.level is None:
        return (name, f"{of}; {value.why}." if value.why else f"{of}.")
    if isinf(value.effect_ns):
        return (name, f"{of}; so many fail that the {words.percentile_name(value.level)} never comes.")
    effect = words.estimate(value.effect_ns, value.effect_interval_ns, sign=True)
    partly = value.compared is not None and value.compared < 1
    compared = f", which {words.percent(value.compared)} of them have" if partly and value.compared is not None else ""
    return (name, f"{of}; {words.percentile_name(value.level)} {effect} {SAME_SHAPES}{compared}.")


def _shift(value: Shift) -> Sentence:
    change = words.signed(value.new_ns - value.old_ns)
    went = f"{format_duration(value.old_ns)} to {format_duration(value.new_ns)}, {change}"
    own = words.estimate(value.version_ns, value.version_interval_ns, sign=True)
    shapes = words.estimate(value.shape_ns, value.shape_interval_ns, sign=True)
    dimension = Name(value.dimension)
    compared = (
        "" if value.compared == 1 else f" Both saw the shapes of {words.percent(value.compared)} of the new ones."
    )
    name = words.percentile_name(value.level)
    says = (f": {name} {went} = ", dimension, f" {own} + shapes {shapes}.{compared}")
    return (dimension, " ", Name(value.new), " after ", Name(value.old), *says)


def whose(moment: MomentReport) -> tuple[Section, ...]:
    """Whose part the overrun is, how fast the budget's allowance is used up, and the worst of each duty period."""
    sections = []
    if moment.blame:
        sections.append(_blame(moment.blame))
    if moment.burn:
        sections.append(_burn(moment.burn))
    if moment.duty is not None:
        sections.append(Section(title="Duty periods", lines=((_duty(moment.duty),),)))
    return tuple(sections)


def _blame(blame: Sequence[Blame]) -> Section:
    rows: list[tuple[Sentence, ...]] = [
        (_who(each.owner, NOBODY), (format_duration(each.over_ns),), (words.percent(each.share),), _mostly(each))
        for each in blame
    ]
    whole_ns = sum(each.over_ns for each in blame)
    rows.append((("in all",), (format_duration(whole_ns),), ("",), ("",)))
    return Section(
        title="Whose overrun it is",
        note=("all time over the limit, by owner",),
        heads=("owner", "over", "part", "mostly"),
        align="<>><",
        flex=3,
        rows=tuple(rows),
    )


def _who(owner: str | None, otherwise: str) -> Sentence:
    return (otherwise,) if owner is None else (Name(owner),)


def _mostly(blame: Blame) -> Sentence:
    largest = sorted(blame.entries.items(), key=lambda item: (-item[1], item[0]))[:ENTRIES]
    return words.listing([(Name(entry), f" {format_duration(over_ns)}") for entry, over_ns in largest])


def _burn(burn: Sequence[Burn]) -> Section:
    windows = tuple(dict.fromkeys(window for each in burn for window in each.rates))
    rows = tuple(
        (_who(each.owner, EVERYBODY), *((_rate(each.rates.get(window)),) for window in windows), ((each.alert or ""),))
        for each in burn
    )
    return Section(
        title="How fast the allowance is used up",
        note=("1 uses exactly what the budget allows",),
        heads=("", *(f"last {window}" for window in windows), "alert"),
        align="<" + ">" * len(windows) + "<",
        rows=rows,
    )


def _rate(rate: float | None) -> str:
    return "too few" if rate is None else f"{rate:.3g}"


def _duty(duty: Duty) -> str:
    held = "none held" if not duty.over else f"{words.count(duty.over)} held"
    periods = words.many(duty.periods, "whole period")
    longest = "one never ended" if isinf(duty.worst_ns) else f"the longest of all took {format_duration(duty.worst_ns)}"
    misses = "" if duty.misses is None else f" And {duty.misses}."
    return f"Of {periods} of {words.period(duty.period_ns)}, {held} an interaction over the limit; {longest}.{misses}"
