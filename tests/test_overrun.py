"""Who answers for what went over the limit: parts that add up, and worlds in which they are known."""

from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outlay.accounts import Accounts
from outlay.budget import Budget, Share
from outlay.overrun import blame
from outlay.tabulator import Tabulator
from outlay.units import NS_PER_MS
from worlds import accounted, simple

ENTRIES = ("llm/queue.wait", "llm/infer.prefill", "net/uplink", "tts/infer", "vad/hold")
OWNERS = ("platform", "model", None, "voice", "product")


def accounts_of(rows: Sequence[Mapping[str, int]], failed: int = 0, weights: Sequence[int] | None = None) -> Accounts:
    table = Tabulator()
    for number, entries in enumerate(rows):
        weight = weights[number] if weights else 1
        table.add(accounted(f"i{number}", sum(entries.values()), start_ns=number, shares=dict(entries), weight=weight))
    for number in range(failed):
        table.add_failed(simple(f"f{number}", 0, start_ns=number, outcome="error"))
    return table.accounts()


def budget(limit_ns: int, limits_ns: Sequence[int | None], owners: Sequence[str | None] = OWNERS) -> Budget:
    shares = [
        Share(entry=entry, limit_ns=limit, owner=owner)
        for entry, limit, owner in zip(ENTRIES, limits_ns, owners, strict=False)
    ]
    return Budget(limit_ns=limit_ns, percentile=99, shares=tuple(shares))


def over_of(accounts: Accounts, limit_ns: int) -> int:
    late = accounts.total_ns > limit_ns
    return sum(
        round(weight) * (total - limit_ns)
        for total, weight in zip(accounts.total_ns[late].tolist(), accounts.weights[late].tolist(), strict=True)
    )


def test_blame_goes_by_what_each_overspent() -> None:
    # 130 against 100 is 30 over. The queue overspent 60 - 40 = 20, the model 70 - 60 = 10: 20 and 10.
    accounts = accounts_of([{"llm/queue.wait": 60, "llm/infer.prefill": 70}])
    found = blame(accounts, budget(100, [40, 60]), {})
    assert [(each.owner, each.over_ns, each.share) for each in found] == [
        ("platform", 20, 20 / 30),
        ("model", 10, 1 / 3),
    ]


def test_who_keeps_to_his_share_pays_for_nobody() -> None:
    # 150 against 100: all 50 are the queue's, which overspent by 70; the model had 20 to spare.
    accounts = accounts_of([{"llm/queue.wait": 110, "llm/infer.prefill": 40}])
    (found,) = blame(accounts, budget(100, [40, 60]), {})
    assert (found.owner, found.over_ns, dict(found.entries)) == ("platform", 50, {"llm/queue.wait": 50})


def test_the_nanosecond_left_over_goes_to_the_largest_remainder() -> None:
    # 2 over of 102; the three overspent 1, 2 and 2 of 5, which is 0.4, 0.8 and 0.8.
    accounts = accounts_of([{"llm/queue.wait": 31, "llm/infer.prefill": 36, "net/uplink": 35}])
    found = blame(accounts, budget(100, [30, 34, 33]), {})
    assert {each.owner: each.over_ns for each in found} == {"model": 1, None: 1}


def test_a_share_for_several_entries_is_one_and_they_answer_by_their_time() -> None:
    # llm/* spent 90 of 50: 40 over its share, of 40 over the limit. Two thirds of its time was the queue's.
    accounts = accounts_of([{"llm/queue.wait": 60, "llm/infer.prefill": 30, "net/uplink": 50}])
    wanted = Budget(limit_ns=100, percentile=99, shares=(Share(entry="llm/*", limit_ns=50, owner="model"),))
    (found,) = blame(accounts, wanted, {"net/uplink": 50})
    # 26.67 and 13.33
    assert (found.owner, dict(found.entries)) == ("model", {"llm/queue.wait": 27, "llm/infer.prefill": 13})


def test_a_share_without_a_limit_takes_the_one_passed_in() -> None:
    accounts = accounts_of([{"llm/queue.wait": 60, "llm/infer.prefill": 60}])
    wanted = budget(100, [None, 60])
    assert [each.owner for each in blame(accounts, wanted, {"llm/queue.wait": 40})] == ["platform"]


def test_what_nobody_granted_nobody_may_spend() -> None:
    accounts = accounts_of([{"llm/queue.wait": 60, "app/route": 50}])
    (found,) = blame(accounts, budget(100, [90]), {})
    assert (found.owner, found.over_ns) == (None, 10)


def test_edges_that_nobody_named_share_what_is_granted_to_their_component() -> None:
    # 30 over. The edges spent 100 of 70, in the proportion of 1 to 4: 6 and 24.
    accounts = accounts_of([{"app/unattributed.a->b": 20, "app/unattributed.c->d": 80, "llm/infer": 30}])
    wanted = Budget(limit_ns=100, percentile=99)
    (found,) = blame(accounts, wanted, {"app/unattributed*": 70, "llm/infer": 30})
    assert dict(found.entries) == {"app/unattributed.c->d": 24, "app/unattributed.a->b": 6}


def test_a_row_that_stands_for_several_counts_as_often() -> None:
    rows = [{"llm/queue.wait": 110}, {"llm/infer.prefill": 107}]
    found = blame(accounts_of(rows, weights=[3, 1]), budget(100, [50, 50]), {})
    assert [(each.owner, each.over_ns) for each in found] == [("platform", 30), ("model", 7)]


def test_a_sample_s_overrun_is_raised_to_all_that_it_stands_for() -> None:
    accounts = accounts_of([{"llm/queue.wait": 111}, {"llm/infer.prefill": 107}])
    accounts.weights[:] = 2.5
    # 27.5 and 17.5, which sum to 45: one of them is rounded up
    found = blame(accounts, budget(100, [50, 50]), {})
    assert sorted((each.owner or "", each.over_ns) for each in found) in (
        [("model", 17), ("platform", 28)],
        [("model", 18), ("platform", 27)],
    )


def test_failures_and_those_in_time_are_no_overrun() -> None:
    assert blame(accounts_of([{"llm/queue.wait": 100}], failed=3), budget(100, [50]), {}) == ()


def test_nothing_at_all_is_no_overrun() -> None:
    assert blame(Tabulator().accounts(), budget(100, [50]), {}) == ()


def test_shares_above_the_limit_are_refused() -> None:
    accounts = accounts_of([{"llm/queue.wait": 60, "app/route": 50}])
    with pytest.raises(ValueError, match=r"the shares exceed the limit by 20\.0 ns"):
        blame(accounts, budget(100, [90]), {"app/route": 30})


def test_years_sum_exactly_too() -> None:
    """A trace that lacks a start counts from the epoch; 54 years are beyond what a float holds to the nanosecond."""
    years = 1_700_000_000_123_456_789
    accounts = accounts_of([{"llm/queue.wait": years, "llm/infer.prefill": 7}] * 7)
    found = blame(accounts, budget(10, [3, 4]), {})
    # Seven of them are beyond 63 bits.
    assert sum(each.over_ns for each in found) == 7 * (years + 7 - 10)


DURATIONS = st.lists(st.integers(0, 10**10), min_size=len(ENTRIES), max_size=len(ENTRIES))


@settings(max_examples=60, deadline=None)
@given(
    rows=st.lists(st.tuples(DURATIONS, st.integers(1, 50)), min_size=1, max_size=12),
    parts=st.lists(st.integers(0, 100), min_size=len(ENTRIES), max_size=len(ENTRIES)),
    limit_ns=st.integers(1, 10**10),
)
def test_blame_sums_to_the_overrun_and_nobody_answers_for_more_than_he_overspent(
    rows: list[tuple[list[int], int]], parts: list[int], limit_ns: int
) -> None:
    limits = [limit_ns * part // (sum(parts) or 1) for part in parts]
    wanted = budget(limit_ns, limits)
    accounts = accounts_of(
        [dict(zip(ENTRIES, durations, strict=True)) for durations, _ in rows], weights=[weight for _, weight in rows]
    )
    found = blame(accounts, wanted, {})
    assert sum(each.over_ns for each in found) == over_of(accounts, limit_ns)
    assert [each.over_ns for each in found] == [sum(each.entries.values()) for each in found]
    matrix = accounts.dense(np.arange(len(accounts)))
    for each in found:
        for entry, over_ns in each.entries.items():
            column = accounts.entries.index(entry)
            limit = limits[ENTRIES.index(entry)]
            overspent = np.maximum(matrix[:, column] - limit, 0) * accounts.weights
            # Rounding adds less than one nanosecond to each interaction.
            assert over_ns <= overspent.sum() + accounts.weights.sum()


def test_a_queue_that_makes_the_tail_gets_most_of_the_blame() -> None:
    """An exponential wait of 100 ms beside stages that vary little, and shares near what each takes in the tail."""
    random = np.random.default_rng(7)
    n = 10_000
    times_ms = {
        "llm/queue.wait": random.exponential(100, n),
        "llm/infer.prefill": random.lognormal(np.log(120), 0.35, n),
        "net/uplink": random.lognormal(np.log(60), 0.4, n),
        "tts/infer": random.lognormal(np.log(150), 0.15, n),
    }
    matrix = (np.column_stack(list(times_ms.values())) * NS_PER_MS).astype(np.int64)
    limit_ns, limits_ns = 715 * NS_PER_MS, [share * NS_PER_MS for share in (286, 179, 86, 164)]
    accounts = accounts_of([dict(zip(times_ms, row, strict=True)) for row in matrix.tolist()])
    found = blame(accounts, budget(limit_ns, limits_ns), {})
    shares = {each.owner: each.share for each in found}
    # Measured once with 400,000 interactions: queue 83.6 %, prefill 8.5 %, network 4.4 %, speech 3.5 %.
    assert shares == pytest.approx({"platform": 0.836, "model": 0.085, None: 0.044, "voice": 0.035}, abs=0.03)
    # By hand, in floats and without rounding.
    late = matrix[matrix.sum(axis=1) > limit_ns]
    overspent = np.maximum(late - limits_ns, 0)
    parts = ((late.sum(axis=1) - limit_ns) / overspent.sum(axis=1)) @ overspent
    assert shares == pytest.approx(dict(zip(OWNERS, (parts / parts.sum()).tolist(), strict=False)), abs=1e-6)
