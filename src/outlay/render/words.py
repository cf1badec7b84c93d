"""What the numbers of a Report say in words: the same sentence in every output.

Escaping, and how a name from the data is set apart, is the business of each renderer: what is said here is text without
names, or a `Sentence` in which each is a `Name`.
"""

from collections.abc import Mapping, Sequence
from math import isfinite, isinf

from outlay.budget import Budget
from outlay.interaction import NOTE_KINDS, OUTCOMES
from outlay.render.rollup import Lead
from outlay.report import ModelGap, MomentReport, OnTime, Percentile, Report, Segment, Source, Verdict
from outlay.units import NS_PER_S, format_duration

VERDICTS: Mapping[str, str] = {"PASS": "in budget", "FAIL": "over budget", "UNDECIDED": "not decided"}
# Of many inputs so many are named; the rest is counted.
SOURCES = 2
# Below this part of their number, the interactions depend on each other enough to tell a reader.
BURSTY = 0.9
NO_BUDGET = "no budget"
NO_VERDICT = "No budget was given, so there is no verdict."
NO_LEAD = "No row stands out: the tail has the shape of a typical interaction."


def count(number: int) -> str:
    """A whole number with thousands apart: `1,240`."""
    return f"{number:,}"


def many(number: int, noun: str) -> str:
    """`1 row`, `1,240 rows`."""
    return f"{count(number)} {noun}" if number == 1 else f"{count(number)} {noun}s"


def percent(share: float) -> str:
    """`93.2 %`, with more decimals where fewer would read as all or as none: `99.97 %`."""
    if share in (0, 1):
        return f"{share * 100:.0f} %"
    for digits in (1, 2, 3):
        text = f"{share * 100:.{digits}f}"
        if 0 < float(text) < 100:
            return f"{text} %"
    return "> 99.999 %" if share > 0.5 else "< 0.001 %"


def part_of(value_ns: int, total_ns: int) -> str:
    """A duration's part of another in percent; empty when there is nothing to be a part of."""
    return percent(value_ns / total_ns) if total_ns else ""


def signed(value_ns: float) -> str:
    """A difference: `+412 ms`, `-3.10 ms`, `0`."""
    return f"+{format_duration(value_ns)}" if value_ns > 0 else format_duration(value_ns)


def percentile_name(level: float) -> str:
    """`p99`, `p99.9`."""
    return f"p{level:g}"


def percentile_value(percentile: Percentile) -> str:
    """The value, `never` when failures reach so far, `refused` when the sample cannot carry it."""
    return "refused" if percentile.value_ns is None else format_duration(percentile.value_ns)


def percentile_detail(percentile: Percentile) -> str:
    """The interval, or why the percentile was refused; empty when the report says neither."""
    # The percentile's name stands beside it already.
    parts = [percentile.why.removeprefix(f"{percentile_name(percentile.level)} ")] if percentile.why else []
    # An interval from never to never adds nothing to a value that reads "never".
    if percentile.interval_ns is not None and not isinf(percentile.interval_ns[0]):
        parts.append(interval(*percentile.interval_ns))
    return "; ".join(parts)


def interval(low_ns: float, high_ns: float | None) -> str:
    """`1.31 s to 1.80 s`; `1.31 s or more` when nothing bounds it from above."""
    low = format_duration(low_ns)
    return f"{low} or more" if high_ns is None else f"{low} to {format_duration(high_ns)}"


def verdict_title(moment: MomentReport) -> str:
    """`over budget`, `in budget`, `not decided` or `no budget`."""
    return VERDICTS[moment.verdict.state] if moment.verdict else NO_BUDGET


def verdict_state(moment: MomentReport) -> str:
    """`PASS`, `FAIL`, `UNDECIDED`, or `no budget`."""
    return moment.verdict.state if moment.verdict else NO_BUDGET


def verdict_reason(verdict: Verdict) -> str:
    """Why, and how many more interactions could decide."""
    if verdict.more is None:
        return verdict.why
    return f"{verdict.why}; {many(verdict.more, 'more interaction')} could decide"


def validity(moment: MomentReport) -> str:
    """`Small sample: why`; empty when the report states no reservation."""
    if not moment.validity_why:
        return ""
    if moment.validity == "small":
        return f"Small sample: {moment.validity_why}"
    return moment.validity_why[0].upper() + moment.validity_why[1:]


def budget(value: Budget) -> str:
    """`p99 within 800 ms`."""
    return f"{percentile_name(value.percentile)} within {format_duration(value.limit_ns)}"


def thresholds(value: Budget) -> str:
    """`noticeable above 500 ms, disruptive above 1.20 s`; empty when none are declared."""
    return ", ".join(f"{name} above {format_duration(limit_ns)}" for name, limit_ns in value.thresholds.items())


def measured(moment: MomentReport) -> str:
    """`1,200 measured of 1,240 started (96.8 %)`; `600 measured` when that is all."""
    return " ".join(part for part in (f"{count(moment.n)} measured", measured_note(moment)) if part)


def measured_note(moment: MomentReport) -> str:
    """The same without the number itself."""
    if moment.coverage == 1:
        return ""
    text = f"of {count(moment.started)} started"
    return text if moment.coverage is None else f"{text} ({percent(moment.coverage)})"


def worth(moment: MomentReport) -> str:
    """What those that were served say when they depend on each other; empty when they hardly do, or it is unknown."""
    served = sum(each.count for each in moment.bins)
    if moment.effective_n is None or moment.effective_n >= BURSTY * served:
        return ""
    return f"worth about {count(round(moment.effective_n))} independent ones: slow ones come in bursts"


def outcomes(moment: MomentReport) -> tuple[tuple[str, int], ...]:
    """Outcomes that occurred, in the order of the vocabulary, others after them."""
    order: dict[str, int] = {name: place for place, name in enumerate(OUTCOMES)}
    known = sorted(moment.outcomes.items(), key=lambda item: (order.get(item[0], len(order)), item[0]))
    return tuple((name, number) for name, number in known if number)


def on_time(value: OnTime) -> str:
    """`93.2 % (91.6 % to 94.5 %), 82 late`."""
    low, high = value.interval
    return f"{percent(value.share)} ({percent(low)} to {percent(high)}), {count(value.over)} late"


def model_gap(gap: ModelGap) -> str:
    """`model 12.0 ms to 340 ms of 1.20 s (1.0 % to 28.3 %)`."""
    took, share = format_duration(gap.low_ns), part_of(gap.low_ns, gap.total_ns)
    if gap.high_ns != gap.low_ns:
        took += f" to {format_duration(gap.high_ns)}"
        share += f" to {part_of(gap.high_ns, gap.total_ns)}"
    return f"model {took} of {format_duration(gap.total_ns)}" + (f" ({share})" if gap.total_ns else "")


def gap_is_open(moment: MomentReport) -> bool:
    """Whether some row could be the model or something else, so that model time is only known as an interval."""
    return any(gap is not None and gap.low_ns != gap.high_ns for gap in (moment.typical_gap, moment.tail_gap))


def has_model(moment: MomentReport) -> bool:
    """Whether any row is the model, or could be."""
    return any(gap is not None and gap.high_ns for gap in (moment.typical_gap, moment.tail_gap))


NO_MODEL = "no row of this data is known to be a model"
OPEN_GAP = "An interval, because some rows cannot tell the model from the network and the queue around it."


def lead(value: Lead) -> str:
    """What a row adds, and the usual fix of its term; the row's name goes before."""
    return f"{lead_adds(value)}. {lead_fix(value)}."


def lead_adds(value: Lead) -> str:
    """`adds 474 ms, 45.5 % of what the tail adds`; of a single interaction `takes 65.0 ms, 65.4 % of it`."""
    if value.alone:
        return f"takes {format_duration(value.row.tail_ns)}, {percent(value.part)} of it"
    return f"adds {format_duration(value.row.excess_ns)}, {percent(value.part)} of what the tail adds"


def lead_fix(value: Lead) -> str:
    """`Usual fix for queueing: ...`."""
    return f"Usual fix for {value.row.term}: {value.fix}"


def clock_error(segment: Segment) -> str:
    """`±12.0 ms` where two clocks meet, `± unknown` without a bound, empty on one clock."""
    if segment.error_ns is None:
        return "± unknown"
    return f"±{format_duration(segment.error_ns)}" if segment.error_ns else ""


def doubt(segment: Segment) -> str:
    """What a reader must not take for certain about a segment; empty when all of it is."""
    parallel = "maybe parallel" if segment.ambiguous else ""
    return ", ".join(part for part in (clock_error(segment), parallel) if part)


def health_meaning(kind: str) -> str:
    """What a kind of note means; empty for a kind that a newer version wrote."""
    return NOTE_KINDS.get(kind, "")


def inputs(report: Report) -> str:
    """`2 inputs, 49,360 spans, 818 interactions`; with the format behind the inputs where they share one."""
    records: dict[str, int] = {}
    for each in report.sources:
        records[each.unit] = records.setdefault(each.unit, 0) + each.records
    held = [many(number, unit.removesuffix("s")) for unit, number in sorted(records.items())]
    form = f" ({report.sources[0].format})" if one_format(report) else ""
    return ", ".join([many(len(report.sources), "input") + form, *reversed(held)])


def one_format(report: Report) -> bool:
    """Whether all inputs have the same format, so that it need not stand beside each."""
    return len({each.format for each in report.sources}) == 1


def listed(report: Report) -> Sequence[Source]:
    """The inputs that are named one by one: a few, and one more rather than `and 1 more`."""
    return report.sources if len(report.sources) <= SOURCES + 1 else report.sources[:SOURCES]


def unlisted(report: Report) -> int:
    """How many inputs are not named one by one."""
    return len(report.sources) - len(listed(report))


def pairs(mapping: Mapping[str, str]) -> Sequence[str]:
    """`name=value` for each item, in the order of the names."""
    return [f"{name}={value}" for name, value in sorted(mapping.items())]


class Name(str):
    """A name from the data inside a sentence; each renderer sets it apart in its own way."""

    __slots__ = ()


# What a renderer joins: its own words as they are, a `Name` set apart.
Sentence = tuple[str, ...]


def plain(sentence: Sentence) -> str:
    """The sentence as one text, its names not set apart."""
    return "".join(sentence)


def listing(parts: Sequence[Sentence]) -> Sentence:
    """The parts with a comma between each two."""
    return tuple(piece for place, part in enumerate(parts) for piece in (*((", ",) if place else ()), *part))


def estimate(value_ns: float, interval_ns: tuple[float, float] | None, *, sign: bool = False) -> str:
    """`480 ms [410, 560]`: the interval in the value's unit, or with units of its own; without one, the value."""
    value = signed(value_ns) if sign else format_duration(value_ns)
    bracket = bounds(value_ns, interval_ns)
    return f"{value} {bracket}" if bracket else value


def bounds(value_ns: float, interval_ns: tuple[float, float] | None) -> str:
    """`[410, 560]` beside a value of 480 ms; empty where there is no interval, or it has no end."""
    if interval_ns is None or not all(isfinite(bound_ns) for bound_ns in interval_ns):
        return ""
    # What is always 0 needs no interval.
    if not any((value_ns, *interval_ns)):
        return ""
    unit = _unit(value_ns)
    # A value of 0 has no unit that its interval could share.
    alike = unit != "" and all(_unit(bound_ns) in ("", unit) for bound_ns in interval_ns)
    ends = [format_duration(bound_ns) for bound_ns in interval_ns]
    return f"[{', '.join(end.removesuffix(f' {unit}') if alike else end for end in ends)}]"


def _unit(value_ns: float) -> str:
    return format_duration(value_ns).partition(" ")[2]


def correlation(value: float, interval: tuple[float, float]) -> str:
    """`0.99 [0.97, 1.00]`."""
    return f"{value:.2f} [{interval[0]:.2f}, {interval[1]:.2f}]"


def period(period_ns: int) -> str:
    """`1 h`, `5 min`, else as any duration."""
    minutes, rest = divmod(period_ns, 60 * NS_PER_S)
    if rest or not minutes:
        return format_duration(period_ns)
    return f"{minutes} min" if minutes % 60 else f"{minutes // 60} h"


def coverage(percentile: Percentile) -> str:
    """`all that was started: 812 ms to no bound`; empty where everything was measured."""
    if percentile.coverage_ns is None:
        return ""
    low, high = ("no bound" if bound_ns is None else format_duration(bound_ns) for bound_ns in percentile.coverage_ns)
    return f"all that was started: {low} to {high}"


def covered(moment: MomentReport) -> str:
    """`p99 of all that was started: 812 ms to no bound`, of the highest percentile; empty where all was measured."""
    known = [percentile for percentile in moment.total if percentile.coverage_ns is not None]
    if not known:
        return ""
    highest = max(known, key=lambda percentile: percentile.level)
    return f"{percentile_name(highest.level)} of {coverage(highest)}"


def level(moment: MomentReport) -> float | None:
    """The percentile whose two attributions stand side by side; None where there is only one."""
    return moment.sets.level if moment.sets is not None and moment.sets.total_ns is not None else None


def fills(moment: MomentReport) -> str:
    """What the tail's column is called: `slowest 1 %` beside another attribution, else `tail`."""
    at = level(moment)
    return "tail" if at is None else f"slowest {100 - at:g} %"


def sets(moment: MomentReport) -> str:
    """What the column of what sets the percentile is called: `sets the p99`; empty without one."""
    at = level(moment)
    return "" if at is None else f"sets the {percentile_name(at)}"


def attributions(moment: MomentReport) -> str:
    """How to read the two tail columns; one sentence why there is only one; empty where nobody asked."""
    value = moment.sets
    if value is None:
        return ""
    name = percentile_name(value.level)
    if value.total_ns is None:
        why = (value.why or "unknown").removeprefix(f"what sets {name} ")
        return f"What sets the {name} is not told: {why}."
    slowest = f"the slowest {100 - value.level:g} %"
    return (
        f"Read both: a rare long wait fills {slowest} without setting the {name}. What sets the {name} is the mean of"
        f" {count(value.n)} around its rank."
    )
