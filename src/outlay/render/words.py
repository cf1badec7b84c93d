"""What the numbers of a Report say in words: the same sentence in every output.

Everything here is plain text without names from the data; escaping and names are the business of each renderer.
"""

from collections.abc import Mapping, Sequence
from math import isinf

from outlay.budget import Budget
from outlay.interaction import NOTE_KINDS, OUTCOMES
from outlay.render.rollup import Lead
from outlay.report import ModelGap, MomentReport, OnTime, Percentile, Report, Segment, Source, Verdict
from outlay.units import format_duration

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


def signed(value_ns: int) -> str:
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
