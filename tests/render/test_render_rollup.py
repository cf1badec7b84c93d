from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sample import ALERT, DOCUMENT, EMPTY, FAILING, RICH, UNBUDGETED, VOICE, path, rows, slow

from outlay.budget import Budget, Share
from outlay.render import rollup
from outlay.report import Row

MS = 10**6
ENTRIES = ("client/uplink.floor", "llm/queue.wait", "llm/infer", "gateway/auth", "x/unattributed.a->b", "app/hold")

accounts = st.lists(
    st.tuples(st.sampled_from(ENTRIES), st.integers(0, 10**10), st.integers(0, 10**10)), unique_by=lambda cell: cell[0]
).map(lambda cells: rows(*((*cell, None) for cell in cells)))


def totals(account: tuple[Row, ...]) -> tuple[int, int]:
    return sum(row.typical_ns for row in account), sum(row.tail_ns for row in account)


@given(accounts, st.integers(0, 7))
@settings(max_examples=100)
def test_folding_keeps_every_row_once_and_so_the_sums(account: tuple[Row, ...], most: int) -> None:
    shown, rest = rollup.fold(account, most)
    folded = rest.rows if rest else ()
    assert sorted(row.entry for row in (*shown, *folded)) == sorted(row.entry for row in account)
    assert len(shown) <= most
    assert rest is None or totals(rest.rows) == (rest.typical_ns, rest.tail_ns)
    assert [row.excess_ns for row in shown] == sorted((row.excess_ns for row in shown), reverse=True)


@given(accounts)
@settings(max_examples=100)
def test_terms_sum_to_the_account(account: tuple[Row, ...]) -> None:
    sums = rollup.by_term(account)
    assert (sum(each.typical_ns for each in sums), sum(each.tail_ns for each in sums)) == totals(account)


def test_what_sets_the_percentile_is_summed_too() -> None:
    assert RICH.sets is not None
    assert sum(each.sets_ns or 0 for each in rollup.by_term(RICH.account)) == RICH.sets.total_ns
    shown, rest = rollup.fold(RICH.account, 5)
    assert rest is not None
    assert rest.sets_ns == RICH.sets.total_ns - sum(row.sets_ns or 0 for row in shown)
    assert {each.sets_ns for each in rollup.by_term(VOICE.account)} == {None}


def test_a_row_of_half_a_percent_of_either_total_stays() -> None:
    # 1/200 of 200 ms is 1 ms: the second row reaches it in the typical column, the third in neither.
    account = rows(
        ("llm/infer", 198 * MS, 199 * MS, None),
        ("gateway/auth", 1 * MS, 0, None),
        ("gateway/route", MS - 1, MS - 1, None),
    )
    account = (*account, *rows(("gateway/admit", 1, 1, None)))
    shown, rest = rollup.fold(account, 10)
    assert {row.entry for row in shown} == {"llm/infer", "gateway/auth"}
    assert rest is not None
    assert rest.typical_ns == MS


def test_a_single_small_row_is_shown_rather_than_counted() -> None:
    account = rows(("llm/infer", 900 * MS, 900 * MS, None), ("gateway/auth", 1, 1, None))
    assert rollup.fold(account, 2) == (rollup.by_excess(account), None)
    # There is no room for it: two rows were asked to fit one line.
    assert rollup.fold(account, 1)[1] is not None


def test_a_large_row_that_shrank_is_kept_before_a_small_one_that_grew() -> None:
    account = rows(("llm/infer", 900 * MS, 100 * MS, None), ("gateway/auth", 0, 50 * MS, None))
    shown, _ = rollup.fold(account, 1)
    assert [row.entry for row in shown] == ["llm/infer"]


def test_shares_gather_their_rows_and_what_is_left_takes_the_rest() -> None:
    sums = {each.entry: each for each in rollup.by_share(VOICE)}
    queue, rest = sums["llm/queue*"], sums[None]
    # 486 + 148 ms against 50 ms.
    assert (queue.typical_ns, queue.tail_ns, queue.over_ns) == (12 * MS, 634 * MS, 584 * MS)
    # 800 ms less 90 + 60 + 200 + 120 + 50 + 200 ms.
    assert rest.limit_ns == 80 * MS
    assert sums["*/unattributed*"].over_ns is None
    assert sum(each.tail_ns for each in sums.values()) == VOICE.tail_ns
    assert sum(each.typical_ns for each in sums.values()) == VOICE.typical_ns


@pytest.mark.parametrize("moment", [DOCUMENT, UNBUDGETED, EMPTY], ids=lambda moment: moment.moment)
def test_without_shares_there_is_nothing_to_compare(moment: object) -> None:
    assert rollup.by_share(moment) == ()  # type: ignore[arg-type]


@pytest.mark.parametrize(("tail_ns", "over_ns"), [(50 * MS, None), (50 * MS + 1, 1), (0, None)])
def test_over_means_above_the_limit(tail_ns: int, over_ns: int | None) -> None:
    share = Share(entry="llm/*", limit_ns=50 * MS)
    assert rollup.over_ns(rows(("llm/infer", 0, tail_ns, share))[0]) == over_ns
    assert rollup.over_ns(rows(("llm/infer", 0, tail_ns, None))[0]) is None


def test_a_share_is_shared_when_another_row_draws_on_it() -> None:
    queue = next(row for row in VOICE.account if row.entry == "llm/queue.wait")
    hold = next(row for row in VOICE.account if row.entry == "vad/hold")
    assert (rollup.is_shared(VOICE, queue), rollup.is_shared(VOICE, hold)) == (True, False)


def test_leads_are_the_rows_that_add_most() -> None:
    leads = rollup.leads(FAILING)
    # The tail adds 2,060 + 30 ms; the uplink, 1 ms faster, adds nothing.
    assert [(lead.row.entry, round(lead.part, 4)) for lead in leads] == [
        ("llm/queue.wait", round(2060 / 2090, 4)),
        ("llm/infer", round(30 / 2090, 4)),
    ]


def test_leads_of_a_single_interaction_are_the_rows_that_take_most() -> None:
    # 138.30, 58.75 and 57.81 of 254.91 ms.
    assert rollup.is_single(UNBUDGETED)
    assert [(lead.row.entry, round(lead.part, 4), lead.alone) for lead in rollup.leads(UNBUDGETED)] == [
        ("engine/infer.decode", round(138.30 / 254.91, 4), True),
        ("engine/unattributed.tokenize->dispatch", round(58.75 / 254.91, 4), True),
        ("engine/infer.prefill", round(57.81 / 254.91, 4), True),
    ]


# One row of 45 ms that took 44 ms in the tail; and no row.
@pytest.mark.parametrize("moment", [replace(FAILING, account=FAILING.account[-1:]), EMPTY], ids=["shrunk", "empty"])
def test_a_tail_like_the_body_has_no_lead(moment: object) -> None:
    assert rollup.leads(moment) == ()  # type: ignore[arg-type]


def test_landmarks_leave_out_what_has_no_place() -> None:
    # p99 over all is never; of those served it is 2.70 s, after the budget of 2.00 s.
    assert [name for name, _ in rollup.landmarks(FAILING)] == ["p50", "budget", "p99"]
    assert rollup.landmarks(replace(FAILING, served=(), budget=None)) == (("p50", 460 * MS),)
    assert [name for name, _ in rollup.landmarks(DOCUMENT)] == ["p50", "budget"]


@pytest.mark.parametrize(
    ("longest_ms", "dominated"),
    # Of 100 ms in all: nineteen twentieths, and just less.
    [(95, True), (94, False)],
)
def test_one_entry_may_be_nearly_all_of_an_interaction(longest_ms: int, dominated: bool) -> None:
    cells = path(("llm/infer", longest_ms * MS), ("client/render", (100 - longest_ms) * MS))
    assert rollup.is_dominated(slow("x", cells)) is dominated


def test_the_largest_entries_of_one_interaction_are_summed_over_its_segments() -> None:
    twice = replace(ALERT.slowest[0], segments=ALERT.slowest[0].segments * 2)
    assert [(each.entry, each.duration_ns) for each in rollup.largest(twice, 1)] == [("vision/queue.batch", 142 * MS)]


def test_two_equal_shares_count_once() -> None:
    share = Share(entry="llm/*", limit_ns=10 * MS)
    budget = Budget(limit_ns=100 * MS, percentile=99, shares=(share, share))
    sums = rollup.by_share(replace(FAILING, budget=budget))
    assert [each.tail_ns for each in sums] == [2_480 * MS, 0, 44 * MS]
