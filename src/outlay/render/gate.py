"""Gates and comparisons as text for a log, as Markdown for a pull request, and as JSON (`check/1`, `compare/1`)."""

from collections.abc import Mapping, Sequence
from math import inf, isfinite, isinf

import msgspec

from outlay.compare import (
    FASTER,
    NO_DIFFERENCE,
    SLOWER,
    Comparison,
    EntryDifference,
    QuantileDifference,
    ShareDifference,
    TailDifference,
)
from outlay.explain.gate import Checked, Compared, Gate, Offender
from outlay.quantiles import PASS
from outlay.render import words
from outlay.render.machine import Json, known, limits, ns, percentiles
from outlay.render.markdown import name, prose, sentence
from outlay.render.untrusted import visible
from outlay.render.words import Name, Sentence
from outlay.report import Percentile, Source
from outlay.units import format_duration

CHECK, COMPARE = "check/1", "compare/1"

NOT_ASKED = "-"
NOT_COMPARED = "not compared"

# Entries that moved the tail, of which so many are told.
MOVED = 5

_BADGE = {"PASS": "✅ PASS", "FAIL": "❌ FAIL", "UNDECIDED": "❔ UNDECIDED", "REFUSED": "⛔ REFUSED"}
_COMPARED = {SLOWER: "🔺 slower", FASTER: "🔻 faster", NO_DIFFERENCE: "➖ no difference shown"}


# Sentences


def reason(moment: Checked) -> Sentence:
    """`p99 1.24 s (1.10 s to 1.40 s), p99 within 800 ms; 41 of 1,000 over the limit ...; llm/queue adds 430 ms`."""
    parts: list[Sentence] = [(_measured(moment),)] if moment.percentile or moment.budget else []
    more = f"; {words.many(moment.more, 'more interaction')} could decide" if moment.more is not None else ""
    parts.append((moment.why + more,))
    if moment.offender is not None and moment.state not in (None, PASS):
        parts.append(blame(moment.offender))
    if moment.degraded is not None:
        parts.append((f"the load was DEGRADED: {moment.degraded}",))
    return _joined(parts)


def _measured(moment: Checked) -> str:
    budget = "" if moment.budget is None else words.budget(moment.budget)
    return ", ".join(part for part in (_percentile(moment.percentile), budget) if part)


def _percentile(percentile: Percentile | None) -> str:
    if percentile is None or percentile.value_ns is None:
        return ""
    detail = words.percentile_detail(percentile)
    value = f"{words.percentile_name(percentile.level)} {words.percentile_value(percentile)}"
    return f"{value} ({detail})" if detail else value


def blame(offender: Offender) -> Sentence:
    """`llm/queue.wait (platform) is 430 ms over its share`, `... adds 430 ms in the tail` or `... takes 430 ms`."""
    owner: Sentence = (" (", Name(offender.owner), ")") if offender.owner else ()
    if offender.over_ns is not None:
        does = (
            f" takes {format_duration(offender.tail_ns)}, its share is exceeded by {format_duration(offender.over_ns)}"
        )
    elif offender.excess_ns > 0:
        does = f" adds {format_duration(offender.excess_ns)} in the tail"
    else:
        does = f" takes {format_duration(offender.tail_ns)}"
    return (Name(offender.entry), *owner, does)


def change(comparison: Comparison) -> Sentence:
    """`slower: p99 from 312 ms to 371 ms, by +59.0 ms (+31.2 ms to +92.0 ms); llm/queue moved the mean of the tail`."""
    if comparison.verdict is None:
        return (f"not compared: {comparison.why}",)
    parts: list[Sentence] = [(f"{comparison.verdict}: {_moved_from(comparison)}",)]
    if comparison.tolerance_ns:
        parts.append((f"{format_duration(comparison.tolerance_ns)} more is allowed",))
    if comparison.more is not None:
        parts.append((f"{words.many(comparison.more, 'more interaction')} could decide",))
    parts += _moved(comparison)
    return _joined(parts)


def _moved_from(comparison: Comparison) -> str:
    at = comparison.quantile
    if at.never:
        return f"{words.percentile_name(at.level)} never comes in both, and {share_moved(comparison.share)}"
    return f"{words.percentile_name(at.level)} {quantile_moved(at)}"


def quantile_moved(at: QuantileDifference) -> str:
    """`from 312 ms to 371 ms, by +59.0 ms (+31.2 ms to +92.0 ms)`; empty for one that was refused."""
    if at.a_ns is None or at.b_ns is None or at.difference_ns is None or at.interval_ns is None:
        return ""
    both = f"from {format_duration(at.a_ns)} to {format_duration(at.b_ns)}"
    by = f", by {_signed(at.difference_ns)}" if isfinite(at.difference_ns) else ""
    return f"{both}{by} ({_signed(at.interval_ns[0])} to {_signed(at.interval_ns[1])})"


def share_moved(share: ShareDifference) -> str:
    """`3.1 % failed against 0.4 %, by +2.7 % (+1.0 % to +4.4 %)`."""
    what = "failed" if share.limit_ns is None else f"over {format_duration(share.limit_ns)}"
    low, high = (_points(each) for each in share.interval)
    before, after = words.percent(share.a_share), words.percent(share.b_share)
    return f"{what}: from {before} to {after}, by {_points(share.difference)} points ({low} to {high})"


def _moved(comparison: Comparison) -> list[Sentence]:
    """The entry that moved the tail, where the verdict says that something moved."""
    moved = comparison.tail.moved if comparison.tail else None
    if moved is None or comparison.verdict == NO_DIFFERENCE or comparison.tail is None:
        return []
    whole = _signed(comparison.tail.difference_ns)
    return [(Name(moved.entry), f" moved the mean of the tail by {_signed(moved.difference_ns)} of {whole}")]


def _joined(parts: Sequence[Sentence]) -> Sentence:
    return tuple(piece for place, part in enumerate(parts) for piece in (*(("; ",) if place else ()), *part))


def _signed(value_ns: float) -> str:
    """A difference; infinite ones have no size."""
    if isinf(value_ns):
        return "never to a value" if value_ns < 0 else "a value to never"
    return f"+{format_duration(value_ns)}" if value_ns > 0 else format_duration(value_ns)


def _points(share: float) -> str:
    return f"{100 * share:+.3g}"


def order(comparison: Comparison) -> str:
    """What to know of how the runs lay in time; empty where they took turns."""
    if comparison.in_turns:
        return ""
    if comparison.in_turns is None:
        return "the data does not say when the runs were"
    return "the runs came one after the other: let them take turns (A, B, A, B), so that a drift meets both"


# Text


def check_text(gate: Gate) -> str:
    """A line a moment, worst first, and one more against its baseline; safe to print, ends with a newline."""
    lines = []
    for moment in gate.moments:
        against = moment.against
        state = moment.budget_state or (moment.state if against is None else None)
        lines.append(f"{state or NOT_ASKED:9}  {moment.moment}  {words.plain(reason(moment))}")
        if against is not None:
            lines.append(f"{against.state:9}  {moment.moment}  against the baseline {words.plain(change(against))}")
    return "".join(f"{visible(line)}\n" for line in lines)


def compare_text(moments: Sequence[Compared]) -> str:
    """Verdict, percentiles, share and entries of each moment; safe to print, ends with a newline."""
    lines = [line for moment in moments for line in _compared_lines(moment)]
    return "".join(f"{visible(line)}\n" for line in lines)


def _compared_lines(moment: Compared) -> list[str]:
    made = moment.comparison
    if made is None:
        return [f"{moment.moment}  {NOT_COMPARED}: {moment.why}"]
    lines = [f"{moment.moment}  {words.plain(change(made))}", f"  {_sizes(made)}"]
    lines += [f"  {words.percentile_name(at.level):5} {quantile_moved(at)}" for at in made.quantiles if at.why is None]
    lines.append(f"  {share_moved(made.share)}")
    if made.tail is not None:
        lines.append(f"  mean of the tail {_signed(made.tail.difference_ns)}, of it")
        lines += [f"    {each.entry}  {_entry_moved(each)}" for each in made.tail.entries[:MOVED]]
    return [*lines, *([f"  {order(made)}"] if order(made) else [])]


def _sizes(made: Comparison) -> str:
    return f"A {words.many(made.n_a, 'interaction')}, B {words.count(made.n_b)}"


def _entry_moved(each: EntryDifference) -> str:
    low, high = each.interval_ns
    took = f"{format_duration(each.a_ns)} to {format_duration(each.b_ns)}"
    return f"{_signed(each.difference_ns)} ({_signed(low)} to {_signed(high)}), from {took}"


# Markdown


def check_markdown(gate: Gate) -> str:
    """A table for a pull request, worst moment first; ends with a newline."""
    compared = any(moment.against is not None for moment in gate.moments)
    heads = ["", "moment", "percentile", "budget", "why", "look at", *(["against the baseline"] if compared else [])]
    lines = [f"### Latency: {_BADGE[gate.state]}", "", _row(heads), _row(["---"] * len(heads))]
    for moment in gate.moments:
        cells = _cells(moment)
        if compared:
            cells.append("" if moment.against is None else sentence(change(moment.against)))
        lines.append(_row(cells))
    return "\n".join(lines) + "\n"


def _cells(moment: Checked) -> list[str]:
    blamed = moment.offender if moment.state not in (None, PASS) else None
    return [
        _BADGE[moment.state] if moment.state else NOT_ASKED,
        name(moment.moment),
        prose(_percentile(moment.percentile)),
        "" if moment.budget is None else prose(words.budget(moment.budget)),
        prose(moment.why + (f"; {words.many(moment.more, 'more')} could decide" if moment.more is not None else "")),
        "" if blamed is None else sentence(blame(blamed)),
    ]


def compare_markdown(moments: Sequence[Compared]) -> str:
    """A table for a pull request, and the entries that moved each tail; ends with a newline."""
    heads = ["moment", "B against A", "percentile", "over", "moved the tail"]
    lines = ["### Latency: B against A", "", _row(heads), _row(["---"] * len(heads))]
    lines += [_row(_compared_cells(moment)) for moment in moments]
    notes = {order(moment.comparison) for moment in moments if moment.comparison} - {""}
    return "\n".join([*lines, *(line for note in sorted(notes) for line in ("", prose(note) + "."))]) + "\n"


def _compared_cells(moment: Compared) -> list[str]:
    made = moment.comparison
    if made is None:
        return [name(moment.moment), f"{NOT_COMPARED}: {prose(moment.why or '')}", "", "", ""]
    verdict = prose(f"{NOT_COMPARED}: {made.why}") if made.verdict is None else _COMPARED[made.verdict]
    moved = [f"{name(each.entry)} {prose(_entry_moved(each))}" for each in (made.tail.entries[:2] if made.tail else ())]
    more = f"; {words.many(made.more, 'more')} could decide" if made.more is not None else ""
    return [
        name(moment.moment),
        verdict + more,
        prose(_moved_from(made)) if made.verdict else "",
        prose(share_moved(made.share)),
        "<br>".join(moved),
    ]


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


# JSON


def check_json(gate: Gate) -> bytes:
    """UTF-8 JSON without a final newline; absent means unknown, not asked or not declared."""
    return msgspec.json.encode(
        {
            "outlay": CHECK,
            "sources": [_source(source) for source in gate.sources],
            "verdict": gate.state,
            "moments": [_checked(moment) for moment in gate.moments],
        }
    )


def compare_json(moments: Sequence[Compared], sources: Mapping[str, Sequence[Source]]) -> bytes:
    """The same of `outlay compare`; `sources` are those of A and B, none for a baseline."""
    sides = {side: [_source(source) for source in found] for side, found in sources.items()}
    told = [
        known(
            moment=moment.moment,
            why=moment.why,
            refused=moment.refused or None,
            **(_comparison(moment.comparison) if moment.comparison else {}),
        )
        for moment in moments
    ]
    return msgspec.json.encode({"outlay": COMPARE, "sources": sides, "moments": told})


def _source(source: Source) -> Json:
    return {"name": source.name, "format": source.format, "records": source.records, "unit": source.unit}


def _checked(moment: Checked) -> Json:
    budget, offender = moment.budget, moment.offender
    return known(
        moment=moment.moment,
        verdict=moment.state,
        why=moment.why,
        more=moment.more,
        n=moment.n,
        degraded=moment.degraded,
        budget=budget and {"limit_ns": budget.limit_ns, "percentile": budget.percentile},
        budget_verdict=moment.budget_state,
        total=percentiles((moment.percentile,)) if moment.percentile else None,
        offender=offender
        and known(
            entry=offender.entry,
            owner=offender.owner,
            tail_ns=offender.tail_ns,
            excess_ns=offender.excess_ns,
            over_ns=offender.over_ns,
        ),
        against=moment.against and _comparison(moment.against),
    )


def _comparison(made: Comparison) -> Json:
    return known(
        n_a=made.n_a,
        n_b=made.n_b,
        level=made.level,
        verdict=made.verdict,
        state=made.state,
        why=made.why,
        more=made.more,
        tolerance_ns=ns(made.tolerance_ns),
        in_turns=made.in_turns,
        share=known(
            limit_ns=made.share.limit_ns,
            a=made.share.a_share,
            b=made.share.b_share,
            difference=made.share.difference,
            interval=list(made.share.interval),
        ),
        percentiles=[_quantile(at) for at in made.quantiles],
        tail=made.tail and _tail(made.tail),
    )


def _quantile(at: QuantileDifference) -> Json:
    return known(
        level=at.level,
        a_ns=ns(at.a_ns),
        b_ns=ns(at.b_ns),
        difference_ns=_difference(at.difference_ns),
        interval_ns=at.interval_ns and [_difference(each) for each in at.interval_ns],
        why=at.why,
    )


def _difference(value_ns: float | None) -> int | str | None:
    return "-inf" if value_ns == -inf else ns(value_ns)


def _tail(tail: TailDifference) -> Json:
    return {
        "level": tail.level,
        "a_ns": tail.a_ns,
        "b_ns": tail.b_ns,
        "difference_ns": tail.difference_ns,
        "entries": [
            {
                "entry": each.entry,
                "a_ns": each.a_ns,
                "b_ns": each.b_ns,
                "difference_ns": each.difference_ns,
                "interval_ns": limits(*each.interval_ns),
            }
            for each in tail.entries
        ],
    }
