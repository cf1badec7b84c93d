"""From interactions to a report: percentiles, verdicts, the account of the typical and of the tail, what was wrong."""

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from decimal import Decimal
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outlay import tabulator
from outlay.account import account
from outlay.assembly import windowed
from outlay.budget import Budget, ChainStep, Match, Moment, Share
from outlay.cohort import Cohort, Keep
from outlay.explain import Gathering, Question, build_report
from outlay.explain.gather import gather, retarget
from outlay.formats.reading import read
from outlay.generator import verdict_of_summary
from outlay.interaction import Interaction, Mark, Note
from outlay.load import Bound, Load, Sent, recorded_load
from outlay.quantiles import effective_n, rank_interval
from outlay.report import MomentReport, Report, Row
from outlay.stages import MODEL_STAGES
from outlay.tabulator import Tabulator
from outlay.trace import Event
from outlay.units import MAX_NS
from worlds import DATA, interaction, interactions_of, json_lines, only, simple, span, traced

S, MS, US = 1_000_000_000, 1_000_000, 1_000

Item = Interaction | Load | Note


def reported(items: Iterable[Item], **question: Any) -> Report:
    return build_report(gather(items, Question(**question)), ())


def the(items: Iterable[Item], **question: Any) -> MomentReport:
    """The report's only moment."""
    (moment,) = reported(items, **question).moments
    return moment


def spread(totals: Sequence[int], **more: Any) -> list[Interaction]:
    """Interactions of these lengths, in milliseconds, that come in an order in which neighbours in length lie apart."""
    n = len(totals)
    # Multiples of the golden section, which of all steps leave the most room between them.
    step = next(step for step in range(618 * n // 1000 + 1, 2 * n + 2) if math.gcd(step, n) == 1)
    return [simple(f"i{i:05}", total * MS, start_ns=i * step % n * S, **more) for i, total in enumerate(totals)]


def budgeted(limit_ms: int, percentile: float = 99.0, **more: Any) -> tuple[Moment, ...]:
    return (Moment(name="m", budget=Budget(limit_ns=limit_ms * MS, percentile=percentile, **more)),)


# Percentiles


@pytest.mark.parametrize(
    ("n", "ranks"),
    [
        # ceil(q n), of lengths 1 to n ms
        (299, (150, 285, 297)),
        (300, (150, 285, 297)),
        (1000, (500, 950, 990)),
        (1001, (501, 951, 991)),
    ],
)
def test_percentiles_are_order_statistics(n: int, ranks: tuple[int, int, int]) -> None:
    report = the(spread(range(1, n + 1)))
    assert [percentile.value_ns for percentile in report.total] == [rank * MS for rank in ranks]
    assert [percentile.level for percentile in report.total] == [50.0, 95.0, 99.0]
    assert report.effective_n == report.n == report.started == n
    for percentile in report.total:
        low, high = rank_interval(n, percentile.level / 100) or (None, None)
        assert low is not None
        assert percentile.interval_ns == (low * MS, None if high is None else high * MS)
    assert (report.validity, report.validity_why, report.served) == ("valid", None, ())


@pytest.mark.parametrize(
    ("n", "why"),
    [
        (4, ["p50 needs 5 interactions, there are 4", "p95 needs 59 interactions, there are 4"]),
        # five are enough for a median's place, but its two-sided interval needs a sixth
        (5, ["p50 needs more than 5 interactions for an interval", "p95 needs 59 interactions, there are 5"]),
        (6, [None, "p95 needs 59 interactions, there are 6"]),
        (58, [None, "p95 needs 59 interactions, there are 58"]),
        (59, [None, None]),
        (298, [None, None]),
    ],
)
def test_a_small_sample_has_no_tail(n: int, why: list[str | None]) -> None:
    report = the(spread(range(1, n + 1)))
    p99 = f"p99 needs 299 interactions, there are {n}"
    assert [percentile.why for percentile in report.total] == [*why, p99]
    assert all((percentile.value_ns is None) == (percentile.why is not None) for percentile in report.total)
    assert (report.validity, report.validity_why) == ("small", p99)


def test_failures_take_for_ever() -> None:
    items = [*spread(range(1, 1001)), *[simple(f"x{i}", MS, start_ns=i * S, outcome="error") for i in range(11)]]
    report = the(items)
    # rank ceil(0.99 * 1011) is 1001, and 1000 were served
    assert [percentile.value_ns for percentile in report.total] == [506 * MS, 961 * MS, math.inf]
    assert [percentile.value_ns for percentile in report.served] == [500 * MS, 950 * MS, 990 * MS]
    assert report.outcomes == {"error": 11, "ok": 1000}
    assert report.n == 1011
    # one failure fewer, and the slowest of all is the p99
    assert the(items[:-1]).total[2].value_ns == 1000 * MS


def test_nothing_but_failures() -> None:
    report = the([simple(f"x{i}", MS, outcome="timeout") for i in range(300)], moments=budgeted(100))
    assert [percentile.value_ns for percentile in report.total] == [math.inf] * 3
    assert {percentile.value_ns for percentile in report.served} == {None}
    assert (report.typical_ns, report.tail_ns, report.account, report.typical_gap) == (None, None, (), None)
    assert report.verdict is not None
    assert report.verdict.state == "FAIL"


def test_bursts_are_worth_less_than_their_number() -> None:
    # every 100th group of twenty is slow together
    items = [
        simple(f"i{i:05}", (1000 + i) * MS if i // 20 % 100 == 0 else i * US, start_ns=i * S) for i in range(4_000)
    ]
    report = the(items)
    assert report.effective_n is not None
    assert report.effective_n < 4_000 / 10
    apart = the([replace(item, start_ns=place * S, end_ns=place * S + item.end_ns - item.start_ns)  # type: ignore[operator] # both are there
                 for place, item in enumerate(Random(1).sample(items, len(items)))])  # fmt: skip
    assert apart.effective_n is not None
    assert apart.effective_n > 4_000 / 2
    assert apart.total[2].value_ns == report.total[2].value_ns
    assert report.total[2].interval_ns is not None
    assert apart.total[2].interval_ns is not None
    assert report.total[2].interval_ns[0] < apart.total[2].interval_ns[0]


def test_what_they_are_worth_is_told_by_when_the_slow_ones_came() -> None:
    items = mixed(1_500, 9)
    totals = sorted(item.end_ns - item.start_ns for item in items)  # type: ignore[operator] # both are there
    in_order = sorted(items, key=lambda item: (item.start_ns, item.id))
    # above the value of rank ceil(0.99 * 1500)
    slow = [item.end_ns - item.start_ns > totals[1_484] for item in in_order]  # type: ignore[operator] # both are there
    assert sum(slow) == 15
    assert the(items).effective_n == effective_n(np.array(slow))


def test_no_interactions_at_all() -> None:
    assert reported([]).moments == ()
    (moment,) = reported([Note(kind="dropped-record", text="line 3")]).moments
    assert (moment.moment, moment.n, moment.coverage) == ("(no interactions)", 0, None)
    assert [(line.kind, line.count, line.example) for line in moment.health] == [("dropped-record", 1, "line 3")]
    assert {percentile.value_ns for percentile in moment.total} == {None}


# Verdicts


@pytest.mark.parametrize(
    ("n", "over", "percentile", "state"),
    [
        # no overrun in 299 proves less than 1 % with 95 % confidence, in 298 not
        (299, 0, 99, "PASS"),
        (298, 0, 99, "UNDECIDED"),
        (299, 1, 99, "UNDECIDED"),
        (473, 1, 99, "PASS"),
        (472, 1, 99, "UNDECIDED"),
        (59, 0, 95, "PASS"),
        (58, 0, 95, "UNDECIDED"),
        # 8 of 299 is 2.7 %, at least 1.3 %
        (299, 8, 99, "FAIL"),
        (299, 4, 99, "UNDECIDED"),
    ],
)
def test_verdict(n: int, over: int, percentile: float, state: str) -> None:
    report = the(spread([*range(1, n - over + 1), *range(1001, 1001 + over)]), moments=budgeted(1000, percentile))
    assert report.effective_n == n
    assert report.verdict is not None
    assert report.verdict.state == state
    assert (report.verdict.more is not None) == (state == "UNDECIDED")
    assert report.on_time is not None
    assert (report.on_time.over, report.on_time.share) == (over, (n - over) / n)
    assert f"{over} of {n} over the limit" in report.verdict.why


def test_exactly_the_limit_is_on_time() -> None:
    report = the(spread([1000] * 100), moments=budgeted(1000))
    assert report.on_time is not None
    assert report.on_time.over == 0


def test_how_many_more_would_decide() -> None:
    verdict = the(spread(range(1, 299)), moments=budgeted(1000)).verdict
    assert verdict is not None
    assert verdict.more == 1


def test_no_budget_no_verdict_and_nothing_measured_no_decision() -> None:
    assert (the(spread([1, 2])).verdict, the(spread([1, 2])).on_time) == (None, None)
    report = the([simple("a", 1, end_ns=None)], moments=budgeted(1))
    assert report.verdict is not None
    assert (report.verdict.state, report.on_time) == ("UNDECIDED", None)


# Coverage


def test_what_nobody_saw_end_counts_against_coverage() -> None:
    items = [*spread(range(1, 91)), *[simple(f"x{i}", 1, start_ns=i, end_ns=None) for i in range(8)]]
    items += [replace(simple("y", 1), start_ns=None), simple("z", 1, start_ns=5, end_ns=4)]
    report = the(items)
    assert (report.n, report.started, report.coverage) == (90, 100, 0.9)
    assert report.outcomes == {"ok": 90}
    assert [(line.kind, line.count, line.example) for line in report.health] == [("incomplete", 10, "x0 has no end")]


def test_a_failure_is_a_result_even_without_an_end() -> None:
    report = the([simple("x", 1, end_ns=None, outcome="aborted")])
    assert (report.n, report.started, report.outcomes) == (1, 1, {"aborted": 1})


# The account of the typical and of the tail


@pytest.mark.parametrize(
    ("totals", "typical", "label"),
    [
        ([10], 10, "the median interaction"),
        ([10, 20], 10, "the median interaction"),
        ([10, 20, 90], 20, "the median interaction"),
        ([10, 20, 30, 90], 20, "the median interaction"),
        ([10, 20, 30, 40, 90], 30, "the median interaction"),
        # of 0 to 20 those from 9 to 11
        (list(range(1, 22)), 11, "mean of 3 around the median"),
        # of 0 to 100 those from 45 to 55
        (list(range(101)), 50, "mean of 11 around the median"),
    ],
)
def test_the_typical_interaction(totals: list[int], typical: int, label: str) -> None:
    report = the(spread(totals))
    assert (report.typical_ns, report.typical_label) == (typical * MS, label)


@pytest.mark.parametrize(
    ("n", "percentile", "expected", "label"),
    [
        # from rank ceil(q n) on
        (100, None, (99 + 100) / 2, "mean of the slowest 1 % (2)"),
        (50, None, 50, "the slowest interaction"),
        (1000, None, (990 + 1000) / 2, "mean of the slowest 1 % (11)"),
        (100, 95.0, (95 + 100) / 2, "mean of the slowest 5 % (6)"),
        (1000, 99.9, (999 + 1000) / 2, "mean of the slowest 0.1 % (2)"),
    ],
)
def test_the_tail(n: int, percentile: float | None, expected: float, label: str) -> None:
    moments = budgeted(1, percentile) if percentile else ()
    report = the(spread(range(1, n + 1)), moments=moments)
    assert (report.tail_ns, report.tail_label) == (expected * MS, label)


def rows(report: MomentReport) -> dict[str, tuple[int, int]]:
    return {row.entry: (row.typical_ns, row.tail_ns) for row in report.account}


def test_rows_side_by_side() -> None:
    usual = [simple(f"i{i:03}", 100, start_ns=i, shares={"llm/queue": 10, "llm/infer": 90}) for i in range(98)]
    slow = [simple(f"x{i}", 500 + i, shares={"llm/queue.cold_start": 400 + i, "llm/infer": 100}) for i in range(2)]
    moments = budgeted(1, shares=(Share(entry="llm/queue*", limit_ns=10, owner="platform"),))
    report = the([*usual, *slow], moments=moments)
    # what the tail adds comes first; a row that one side does not have is a true zero there
    assert report.account == (
        Row(
            entry="llm/queue.cold_start",
            term="cold start",
            typical_ns=0,
            tail_ns=400,
            budget_ns=10,
            owner="platform",
        ),
        Row(entry="llm/infer", term="model", typical_ns=90, tail_ns=100),
        Row(entry="llm/queue", term="queueing", typical_ns=10, tail_ns=0, budget_ns=10, owner="platform"),
    )
    assert (report.typical_ns, report.tail_ns) == (100, 500)
    assert [row.excess_ns for row in report.account] == [400, 10, -10]


ENTRIES = ["llm/infer", "llm/queue.wait", "client/uplink", "app/unattributed.a->b", "llm/uplink..downlink"]


@settings(max_examples=60)
@given(
    st.lists(
        st.dictionaries(st.sampled_from(ENTRIES), st.integers(1, 10**10), min_size=1, max_size=4),
        min_size=1,
        max_size=40,
    ),
    st.sampled_from([50.0, 90.0, 99.0]),
)
def test_rows_sum_to_the_nanosecond(accounts: list[dict[str, int]], percentile: float) -> None:
    items = [simple(f"i{i}", sum(shares.values()), shares=shares) for i, shares in enumerate(accounts)]
    report = the(items, moments=budgeted(1, percentile))
    assert sum(row.typical_ns for row in report.account) == report.typical_ns
    assert sum(row.tail_ns for row in report.account) == report.tail_ns
    for gap in (report.typical_gap, report.tail_gap):
        assert gap is not None
        assert 0 <= gap.low_ns <= gap.high_ns <= gap.total_ns
    assert all(sum(segment.duration_ns for segment in slow.segments) == slow.total_ns for slow in report.slowest)


def test_the_longest_durations_there_can_be_sum_too() -> None:
    shares = {"llm/infer": MAX_NS // 3, "llm/queue": MAX_NS // 3 - 7, "llm/route": MAX_NS // 3 - 1}
    report = the([simple(f"i{i}", sum(shares.values()), start_ns=-5, shares=shares) for i in range(3)])
    assert sum(row.tail_ns for row in report.account) == report.tail_ns


def test_the_gap_to_the_model() -> None:
    shares = {
        "llm/infer": 50,
        "llm/preprocess": 7,
        "llm/queue.wait..infer.prefill": 20,
        "llm/queue": 9,
        "app/unattributed": 3,
    }
    report = the([simple("a", 89, shares=shares)])
    gap = report.typical_gap
    assert gap is not None
    # the model took 57 for sure, and some of the 20 that it shares with the queue
    assert (gap.total_ns, gap.low_ns, gap.high_ns) == (89, 57, 77)
    assert {"preprocess", "infer", "postprocess"} == MODEL_STAGES


def mixed(n: int, seed: int) -> list[Interaction]:
    """Lengths of up to a second, to which the slow ones add queueing in proportion."""
    random = Random(seed)
    items = []
    for i in range(n):
        infer, queue = random.randrange(1, 400 * MS), round(random.paretovariate(1.5) * 10 * MS)
        shares = {"llm/infer": infer, "llm/queue": queue}
        items.append(simple(f"i{i:05}", infer + queue, start_ns=random.randrange(10**6) * S, shares=shares))
    return items


def test_a_tail_of_more_than_is_kept_is_estimated() -> None:
    moments = budgeted(1, 80.0)
    items = mixed(3_000, 1)
    exact = the(items, moments=moments)
    gathering = Gathering(Question(moments=moments))
    gathering.take(items[0])
    gathering.flush()
    kept = gathering.moments["m"]
    kept.everything, kept.rows = Cohort((MS,), Keep(slowest=100)), Tabulator(tabulator.Keep(slowest=100, sample=600))
    for item in items:
        kept.everything.add(account(item))
        kept.rows.add(account(item))
    (estimated,) = build_report(gathering, ()).moments
    assert exact.tail_label == "mean of the slowest 20 % (601)"
    assert sum(row.tail_ns for row in estimated.account) == estimated.tail_ns
    # 500 of the 601 by about a hundred of the sample: within a few per cent
    assert estimated.tail_ns == pytest.approx(exact.tail_ns, rel=0.05)
    for entry, (_, tail_ns) in rows(exact).items():
        assert rows(estimated)[entry][1] == pytest.approx(tail_ns, rel=0.1)
    assert [percentile.value_ns for percentile in estimated.total] == pytest.approx(
        [percentile.value_ns for percentile in exact.total], rel=0.006
    )


def test_the_slowest_are_shown_whole() -> None:
    report = the(spread(range(1, 50)), slowest=3)
    assert [slow.total_ns for slow in report.slowest] == [49 * MS, 48 * MS, 47 * MS]
    assert the(spread(range(1, 50)), slowest=0).slowest == ()
    made = interaction(
        span("root", None, 10, 110, clock="a"),
        span("call", "root", 20, 100, kind="client", clock="a"),
        span("serve", "call", 40, 90, kind="server", clock="b", component="llm", stage="infer"),
        dimensions={"site": "lon"},
    )
    (slow,) = the([made]).slowest
    assert (slow.id, slow.outcome, slow.dimensions) == ("i", "ok", {"site": "lon"})
    assert [(segment.entry, segment.start_ns, segment.duration_ns) for segment in slow.segments] == [
        ("app/unattributed.start->call", 0, 10),
        ("llm/uplink", 10, 20),
        ("llm/infer", 30, 50),
        ("llm/downlink", 80, 10),
        ("app/unattributed.call->end", 90, 10),
    ]
    # 20 before and 10 after: the clocks are at most 20 apart, a little more as they drift
    errors = {segment.entry: segment.error_ns for segment in slow.segments}
    assert errors["llm/infer"] == 0
    assert errors["llm/uplink"] == errors["llm/downlink"] is not None


def test_of_equally_slow_ones_the_earliest_are_shown() -> None:
    items = [simple(name, 9, start_ns=start) for name, start in (("b", 7), ("a", 5), ("c", 6))]
    assert [slow.id for slow in the(items, slowest=2).slowest] == ["a", "c"]


def test_no_time_at_all_is_measured() -> None:
    report = the([simple("i", 0, start_ns=5)])
    assert (report.n, report.typical_ns, report.account) == (1, 0, ())


def test_a_failure_among_the_slowest_says_so() -> None:
    report = the([simple("bad", 9, outcome="timeout"), simple("good", 5)])
    assert [(slow.id, slow.outcome, slow.total_ns) for slow in report.slowest] == [
        ("bad", "timeout", 9),
        ("good", "ok", 5),
    ]


# What is asked


def sited(n: int = 12) -> list[Interaction]:
    return [
        simple(
            f"i{i:02}",
            i + 1,
            start_ns=i,
            moment="chat" if i % 4 else "voice",
            dimensions={"site": "lon" if i % 3 else "par"} if i % 5 else {},
            shares={"llm/infer" if i % 2 else "llm/queue": i + 1},
        )
        for i in range(n)
    ]


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ({}, {"chat": 9, "voice": 3}),
        ({"only": "voice"}, {"voice": 3}),
        ({"only": "none"}, {}),
        # 1, 2, 7, 11 and 4, 8: no multiples of 5, nor of 3
        ({"where": {"site": "lon"}}, {"chat": 4, "voice": 2}),
        ({"where": {"site": "l*"}}, {"chat": 4, "voice": 2}),
        # and 3, 6, 9
        ({"where": {"site": "*"}}, {"chat": 7, "voice": 2}),
        ({"where": {"site": "lon", "version": "*"}}, {}),
        ({"where": {"site": "L*"}}, {}),
        ({"only": "voice", "where": {"site": "lon"}}, {"voice": 2}),
    ],
)
def test_filters(question: dict[str, Any], expected: dict[str, int]) -> None:
    report = reported(sited(), **question)
    assert {moment.moment: moment.started for moment in report.moments} == expected
    assert report.filters == question.get("where", {})


def test_what_was_offered_is_counted_before_it_is_filtered() -> None:
    assert gather(sited(), Question(only="none")).offered == 12


def test_cohorts_by_dimension() -> None:
    report = reported(sited(), by=("site",), only="chat")
    (moment,) = report.moments
    assert report.by == ("site",)
    # the largest first; the data does not say where two of them were
    assert [(dict(row.key), row.n, row.leading) for row in moment.cohorts] == [
        ({"site": "lon"}, 4, "llm/infer"),
        ({"site": "par"}, 3, "llm/infer"),
        ({"site": None}, 2, "llm/queue"),
    ]
    assert moment.cohorts[2].p50.why == "p50 needs 5 interactions, there are 2"
    assert sum(row.n for row in moment.cohorts) == moment.n


def test_cohorts_by_two_dimensions_and_by_shape() -> None:
    items = [
        simple(f"i{i}", 1, dimensions={"site": "ab"[i % 2]}, sizes={"input_tokens": 100 + 200 * (i // 2)})
        for i in range(4)
    ]
    found = [dict(row.key) for row in the(items, by=("site", "shape")).cohorts]
    assert found == [
        {"site": site, "shape": f"input_tokens {size}+"} for site in "ab" for size in (256, 64)
    ]  # fmt: skip


@pytest.mark.parametrize("reverse", [False, True])
def test_an_unknown_value_is_not_the_word_for_it(reverse: bool) -> None:
    items = [simple("a", 1), simple("b", 1, dimensions={"site": "None"}), simple("c", 1, dimensions={"site": ""})]
    found = [row.key["site"] for row in the(items[::-1] if reverse else items, by=("site",)).cohorts]
    assert found == ["", "None", None]


def test_a_cohort_has_its_own_verdict() -> None:
    items = [simple(f"i{i}", 5 if i % 2 else 15, start_ns=i, dimensions={"site": "ab"[i % 2]}) for i in range(10)]
    moments = (Moment(name="m", budget=Budget(limit_ns=10, percentile=90)),)
    late = {
        row.key["site"]: row.on_time and row.on_time.over for row in the(items, by=("site",), moments=moments).cohorts
    }
    assert late == {"a": 5, "b": 0}


# Any split of the work


def anything(seed: int, n: int = 600) -> list[Item]:
    random = Random(seed)
    items: list[Item] = []
    for i, item in enumerate(mixed(n, seed)):
        changed = replace(
            item,
            moment=random.choice(["chat", "chat", "voice"]),
            outcome=random.choice(["ok"] * 20 + ["error", "timeout"]),  # type: ignore[arg-type] # outcomes
            dimensions={"site": site} if (site := random.choice(["lon", "par", None])) else {},
            end_ns=random.choice([item.end_ns] * 9 + [None]),
            notes=(Note(kind=random.choice(["missing-parent", "late-span"]), text=f"of {i}"),) * random.randrange(3),
        )
        items.append(changed)
        if not random.randrange(50):
            items.append(Note(kind="dropped-record", text=f"line {i}"))
    return items


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("by", [(), ("site",)])
def test_three_gatherings_merged_report_what_one_does(seed: int, by: tuple[str, ...]) -> None:
    budget = Budget(limit_ns=300 * MS, percentile=95, thresholds={"unsafe": 900 * MS})
    question = Question(moments=(Moment(name="chat", budget=budget),), by=by, slowest=7)
    items, random = anything(seed), Random(seed)
    whole = build_report(gather(items, question), ())
    random.shuffle(items)
    parts = [gather(items[first::3], question) for first in range(3)]
    random.shuffle(parts)
    merged = Gathering(question)
    for part in parts:
        merged.merge(part)
    assert build_report(merged, ()) == whole
    assert merged.offered == sum(isinstance(item, Interaction) for item in items)


def test_batches_are_taken_as_they_fill() -> None:
    gathering = Gathering(Question())
    for i in range(10_000):
        gathering.take(simple(f"i{i}", 1))
    # most are folded before the end, and none twice
    assert 5_000 < gathering.moments["m"].everything.measured < 10_000
    for _ in range(2):
        gathering.flush()
        assert gathering.moments["m"].everything.measured == gathering.offered == 10_000


# Health


def health(items: Iterable[Item], **question: Any) -> dict[str, tuple[int, str]]:
    return {line.kind: (line.count, line.example) for line in the(items, **question).health}


def test_notes_are_counted_and_the_first_by_time_is_shown() -> None:
    notes = [Note(kind="missing-parent", text=text) for text in ("b", "a")]
    items: list[Item] = [
        simple("late", 1, start_ns=9, notes=(replace(notes[0], text="later"),)),
        simple("early", 1, start_ns=5, notes=tuple(notes)),
        Note(kind="missing-parent", text="of the input"),
    ]
    assert health(items) == {"missing-parent": (4, "a")}
    assert health(items[::-1]) == {"missing-parent": (4, "a")}


def test_notes_of_the_input_stand_with_the_first_moment() -> None:
    report = reported(
        [*sited(), Note(kind="dropped-record", text="line 3"), Note(kind="dropped-record", text="line 2")]
    )
    assert [(line.kind, line.count, line.example) for line in report.moments[0].health] == [
        ("dropped-record", 2, "line 2")
    ]
    assert report.moments[1].health == ()


@pytest.mark.parametrize(
    ("unnamed_ms", "total_ms", "noted"),
    [
        (51, 1000, True),
        (50, 1000, False),  # no more than 50 ms
        (51, 1020, False),  # no more than 5 %
        (52, 1020, True),
        (40, 40, False),
    ],
)
def test_time_that_nobody_names_is_told(unnamed_ms: int, total_ms: int, noted: bool) -> None:
    shares = {"app/unattributed.a->b": unnamed_ms * MS, "llm/infer": (total_ms - unnamed_ms) * MS or 1}
    found = health([simple("i", sum(shares.values()), shares=shares)])
    assert found == ({"unnamed-time": (1, f"{unnamed_ms}.0 ms of i")} if noted else {})


def test_too_many_rows_are_told_by_component() -> None:
    def edges(n: int) -> Interaction:
        return simple("i", 5 * n + 7, shares={f"c{i % 2}/unattributed.a->{i}": 5 for i in range(n)} | {"llm/infer": 7})

    assert len(the([edges(199)]).account) == 200
    gathering = gather([edges(200)], Question())
    (report,) = build_report(gathering, ()).moments
    assert rows(report) == {
        "c0/unattributed": (500, 500),
        "c1/unattributed": (500, 500),
        "llm/infer": (7, 7),
    }
    assert [(line.kind, line.count) for line in report.health] == [("too-many-rows", 201)]
    # a report only reads what was gathered
    assert build_report(gathering, ()).moments == (report,)


def test_a_span_may_be_called_anything() -> None:
    made = interaction(span("GET /a..b/infer", None, 0, 10), span("1..10", "GET /a..b/infer", 2, 5))
    assert set(rows(the([made]))) == {
        "app/unattributed.start->1..10",
        "app/unattributed.1..10",
        "app/unattributed.1..10->end",
    }


# Clocks


def called(name: str, at_ns: int, offset_ns: int, network_ns: int = 10 * MS) -> Interaction:
    """A call of 100 ms whose server's clock is ahead by `offset_ns`, and in whose middle the server works."""
    first, last = at_ns + network_ns + offset_ns, at_ns + 100 * MS - network_ns + offset_ns
    return interaction(
        span("call", None, at_ns, at_ns + 100 * MS, kind="client", clock="web", component="web"),
        span("serve", "call", first, last, kind="server", clock="api", component="api", stage="infer"),
        id=name,
    )


def test_skew_is_corrected_and_told() -> None:
    report = the([called(f"i{i}", i * S, -1890 * MS) for i in range(3)])
    assert rows(report)["api/infer"] == (80 * MS, 80 * MS)
    assert [(line.kind, line.count) for line in report.health] == [("clock-skew", 3)]
    assert report.health[0].example == "api is 1.89 s ± 10.0 ms behind web"
    assert "ahead of" in the([called("i", 0, 1890 * MS)]).health[0].example


def test_calls_of_the_whole_batch_bound_the_clocks_of_each() -> None:
    # the second alone would leave ± 40 ms, and its middle 40 ms beside the truth; the first leaves ± 1
    items = [called("near", 0, 500 * MS, MS), replace(called("far", S, 500 * MS, 40 * MS), id="far")]
    error = {slow.id: slow.segments[0].error_ns for slow in the(items).slowest}
    assert error["far"] == pytest.approx(MS, abs=100 * US)
    assert error["far"] is not None


def test_a_clock_that_nothing_bounds_is_told() -> None:
    made = interaction(span("a", None, 0, 10, clock="x"), span("b", "a", 2, 5, clock="y"))
    assert health([made]) == {"clock-unbounded": (1, "y against x")}
    assert [segment.error_ns for segment in the([made]).slowest[0].segments] == [None, 0, None]


def test_calls_that_contradict_and_clocks_that_step_are_told() -> None:
    items = [called(f"i{i:02}", i * S, 0) for i in range(10)] + [
        called(f"j{i:02}", i * S, 5 * S) for i in range(10, 20)
    ]
    assert health(items)["clock-step"][0] == 1
    # the server outlasts its client
    assert health([called("i", 0, 0, -10 * MS)])["contradiction"][0] == 1


def test_a_moment_that_ends_on_another_clock_ends_when_that_is_aligned() -> None:
    token = Event(name="first_token", at_ns=1050 * MS)
    moments = (Moment(name="m", end="first_token"),)
    made = only(
        traced("call", None, 0, 100 * MS, kind="client", clock="a"),
        traced("serve", "call", 1010 * MS, 1090 * MS, kind="server", clock="b", events=(token,)),
        moments=moments,
    )
    # b is 990 to 1010 ms ahead: the token came 50 ms after the call, and not 1050
    assert the([made], moments=moments).typical_ns == pytest.approx(50 * MS, rel=0.001)


def test_the_last_root_is_the_last_once_clocks_are_aligned() -> None:
    # b is 1000 ms ahead within 10: its root ends at 1150, which is about 150, and a's at 200
    made = only(
        traced("call", None, 0, 100 * MS, kind="client", clock="a"),
        traced("serve", "call", 1010 * MS, 1090 * MS, kind="server", clock="b"),
        traced("later", None, 120 * MS, 200 * MS, clock="a"),
        traced("elsewhere", None, 1130 * MS, 1150 * MS, clock="b"),
    )
    assert the([made]).typical_ns == 200 * MS


# Moments that codecs' interactions belong to


def chat(moment: str = "trace") -> Interaction:
    marks = (Mark(name="asked", at_ns=10), Mark(name="token", at_ns=60))
    return simple("i", 100, moment=moment, marks=marks)


STEPS = (ChainStep(mark="asked"), ChainStep(mark="token", entry="llm/infer"))


@pytest.mark.parametrize(
    ("made", "moments", "expected"),
    [
        (chat(), (), ("trace", 0, 100)),
        # no moment is named: the only one that takes anything
        (chat(), (Moment(name="m", end="token"),), ("m", 0, 60)),
        (chat("llm-request"), (Moment(name="m", start="asked"),), ("m", 10, 100)),
        (chat("http-request"), (Moment(name="m"),), ("m", 0, 100)),
        (chat(), (Moment(name="m"), Moment(name="n")), ("trace", 0, 100)),
        (chat(), (Moment(name="m", match=Match(name="x")),), ("trace", 0, 100)),
        # one is named
        (chat("voice"), (Moment(name="m"), Moment(name="voice", start="asked", end="token")), ("voice", 10, 60)),
        (chat("voice"), (Moment(name="m", end="token"),), ("voice", 0, 100)),
        (chat("llm-request"), (Moment(name="llm-request", end="token"), Moment(name="m")), ("llm-request", 0, 60)),
    ],
)
def test_retarget(made: Interaction, moments: tuple[Moment, ...], expected: tuple[str, int, int]) -> None:
    found = as_measured(made, moments)
    assert (found.moment, found.start_ns, found.end_ns) == expected


def as_measured(made: Interaction, moments: Sequence[Moment]) -> Interaction:
    found = retarget(made, moments)
    return windowed(found, next((m for m in moments if m.name == found.moment), Moment(name=found.moment)))


def test_the_chain_of_the_moment_is_followed() -> None:
    found = as_measured(chat(), (Moment(name="m", start="asked", end="token", chain=STEPS),))
    assert account(found).entries == {"llm/infer": 50}


# Real records: how long until the first token, on two GPUs

FIRST_TOKEN = Moment(name="llm-request", end="first_token", budget=Budget(limit_ns=20 * S, percentile=99))


def stamps_ns(record: dict[str, Any]) -> tuple[int, int, int]:
    """Queued, scheduled, first token, in whole nanoseconds of the decimals in the file."""
    keys = ("queued_ts", "scheduled_ts", "first_token_ts")
    return tuple(int((Decimal(str(record[key])) * S).to_integral_value()) for key in keys)  # type: ignore[return-value] # three of them


@pytest.mark.parametrize(("gpu", "queue_percent"), [("RTX4090", 99.6), ("RTXPRO6000", 98.3)])
def test_time_to_first_token_of_real_requests(gpu: str, queue_percent: float) -> None:
    file = f"vllm-requests/{gpu}__Llama-3.1-8B__requests.jsonl"
    stamps = [stamps_ns(record) for record in json_lines(file)]
    waits = sorted(first - queued for queued, _, first in stamps)
    with (DATA / file).open("rb") as stream:
        items = [
            retarget(item, [FIRST_TOKEN]) for item in read(stream, frozenset()).items if isinstance(item, Interaction)
        ]
    report = the(items, moments=(FIRST_TOKEN,))
    assert report.n == report.started == len(stamps) == 300
    # ranks ceil(0.5 * 300), ceil(0.95 * 300) and ceil(0.99 * 300)
    assert [percentile.value_ns for percentile in report.total] == [waits[149], waits[284], waits[296]]

    told = [account(windowed(item, FIRST_TOKEN)).entries for item in items]
    queued = sum(entries.get("llm/queue.wait", 0) for entries in told)
    assert queued == sum(scheduled - queued for queued, scheduled, _ in stamps)
    assert sum(sum(entries.values()) for entries in told) == sum(waits)
    assert round(100 * queued / sum(waits), 1) == queue_percent
    assert set().union(*told) == {"llm/queue.wait", "llm/infer.prefill"}
    assert report.tail_ns == round(sum(waits[296:]) / 4)


@pytest.mark.parametrize("n", [2, 300, 3000])
def test_without_arrivals_nothing_is_said_of_bursts(n: int) -> None:
    # 3000 are more than are kept whole, so there the slots of time have to say it
    report = the([simple(f"i{i}", (i + 1) * MS, start_ns=0) for i in range(n)])
    assert report.effective_n is None


def test_a_report_is_only_values() -> None:
    (made,) = interactions_of("traces-zipkin/skew.json")
    first, again = (reported([made]) for _ in range(2))
    assert first == again
    assert json.dumps([slow.id for slow in first.moments[0].slowest])


# Loads


def load(name: str = "run", moment: str | None = "m", late_ms: int = 0, **more: Any) -> Load:
    """Ten requests, a second apart, sent so late, and answered 100 ms later."""
    sent = [
        Sent(intended_ns=k * S, written_ns=k * S + late_ms * MS, answered_ns=k * S + (late_ms + 100) * MS)
        for k in range(10)
    ]
    return replace(recorded_load(sent, tool="t", moment=moment, clock=""), name=name, **more)


def test_a_valid_load_changes_nothing() -> None:
    items = spread(range(1, 1001))
    report = reported([*items, load()])
    assert report.moments == reported(items).moments
    assert report.loads == (load(),)


def test_an_invalid_load_leaves_only_bounds() -> None:
    report = the([*spread(range(1, 11)), load(late_ms=900)], moments=budgeted(100), by=("site",))
    why = (
        "its load was INVALID: 1 % of the requests were sent 900 ms or more after their intended start; "
        "at most 20.0 ms is allowed"
    )
    assert (report.validity, report.validity_why) == ("invalid", why)
    assert report.verdict is not None
    assert (report.verdict.state, report.verdict.why) == ("UNDECIDED", "its load was INVALID")
    assert report.on_time is None
    # From the send 100 ms for all, from when due a second.
    assert report.bounds == tuple(Bound(level=level, low_ns=100 * MS, high_ns=S) for level in (50.0, 95.0, 99.0))
    assert {(each.value_ns, each.why) for each in report.total} == {
        (None, "its load was INVALID; it is 100 ms to 1.00 s")
    }
    assert (report.served, report.account, report.bins, report.slowest) == ((), (), (), ())
    assert (report.typical_ns, report.tail_ns, report.typical_gap, report.tail_gap) == (None, None, None, None)
    (row,) = report.cohorts
    assert (row.n, row.p50.value_ns, row.p99.value_ns, row.on_time, row.leading) == (10, None, None, None, None)
    # What was counted stays.
    assert (report.n, report.started, report.outcomes) == (10, 10, {"ok": 10})


def test_bounds_of_several_loads_hold_both() -> None:
    """Neither holds all 20, so that a percentile of them lies somewhere between the lowest and the highest."""
    late, on_time = load("late", late_ms=900), load("on time")
    assert [bound.high_ns for bound in the([*spread(range(1, 21)), late, on_time]).bounds] == [S] * 3
    open_ended = replace(late, bounds=(Bound(level=50.0, low_ns=300 * MS, high_ns=None),))
    (bound,) = the([*spread(range(1, 21)), open_ended, on_time]).bounds
    assert bound == Bound(level=50.0, low_ns=100 * MS, high_ns=None)
    # One that is known of all of them says it alone.
    whole = replace(late, name="whole", requests=20)
    assert the([*spread(range(1, 21)), open_ended, on_time, whole]).bounds == whole.bounds


def test_bounds_of_a_load_say_nothing_of_a_part_of_it() -> None:
    items = [*spread(range(1, 11), dimensions={"site": "lon"}), load(late_ms=900)]
    assert the(items).bounds != ()
    part = the(items, where={"site": "lon"})
    assert (part.validity, part.bounds) == ("invalid", ())
    assert {percentile.why for percentile in part.total} == {"its load was INVALID"}
    # Unless the load is of that part.
    assert the([*items[:-1], load(late_ms=900, dimensions={"site": "lon"})], where={"site": "lon"}).bounds != ()


def test_a_load_concerns_its_own_moment_and_what_is_asked_for() -> None:
    items = [
        *spread(range(1, 1001)),
        load("other", moment="x", late_ms=900),
        load(late_ms=900, dimensions={"phase": "a"}),
    ]
    assert the(items).validity == "invalid"
    assert [each.name for each in reported(items, where={"phase": "b"}).loads] == ["other"]
    assert the(items[:-1]).validity == "valid"
    assert [each.name for each in reported(items, only="x").loads] == ["other"]
    # What a load does not say of itself excludes it from nothing.
    assert len(reported(items, where={"site": "*"}).loads) == 2


def test_a_summary_alone_is_a_report_and_loads_come_in_order() -> None:
    unknown = verdict_of_summary(None, None, requested_rate=None, achieved_rate=None)
    stages = [replace(load(f"stage {k}", moment=None), verdict=unknown) for k in (10, 2, 1)]
    report = reported(stages)
    assert report.moments == ()
    assert [each.name for each in report.loads] == ["stage 1", "stage 2", "stage 10"]
    # An INVALID summary of nobody's requests takes nothing from those that are here.
    assert the([*stages, *spread(range(1, 1001))]).validity == "valid"


def test_gatherings_merge_their_loads() -> None:
    first, second = (gather([load(name), *spread(range(1, 4))], Question()) for name in ("b", "a"))
    first.merge(second)
    assert [each.name for each in build_report(first, ()).loads] == ["a", "b"]


def test_a_load_goes_with_its_requests_to_the_only_open_moment() -> None:
    moments = (Moment(name="chat"), Moment(name="trace", match=Match(name="x")))
    assert retarget(load(moment="llm-request"), moments).moment == "chat"
    assert retarget(load(moment=None), moments).moment is None
