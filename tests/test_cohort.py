"""Accounts folded: any split of the work gives the same cohort, and what was kept is what should be."""

import math
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outlay.account import Account
from outlay.cohort import Arrivals, Cohort, Keep, Largest, Record
from worlds import accounted

S = 1_000_000_000

# What a cohort is given: an account, an outcome that counts as never, or an interaction that nobody saw the end of.
Item = Account | str | None


def fold(cohort: Cohort, items: list[Item]) -> Cohort:
    for item in items:
        match item:
            case Account():
                cohort.add(item)
            case str():
                cohort.add_failed(item)
            case None:
                cohort.add_unmeasured()
    return cohort


def everything(cohort: Cohort) -> dict[str, Any]:
    """All that a cohort can be asked."""
    measured = cohort.measured
    served = cohort.sketch.served
    return {
        "sketch": cohort.sketch,
        "slowest": cohort.slowest.items(),
        "arrivals": cohort.arrivals.ranks(record.start_ns for record in cohort.slowest.items()),
        "outcomes": dict(cohort.outcomes),
        "started": cohort.started,
        "measured": measured,
        "complete": cohort.complete,
        "observed": cohort.observed,
        "ranks": [cohort.value_at_rank(rank) for rank in range(1, measured + 1)],
        "served": [cohort.value_at_rank(rank, served_only=True) for rank in range(1, served + 1)],
    }


ACCOUNTS = st.builds(
    accounted,
    st.integers(0, 10**6).map("i{}".format),
    st.integers(0, 40),
    start_ns=st.integers(-(10**12), 10**12),
    weight=st.sampled_from([1, 1, 3]),
)
ITEMS: st.SearchStrategy[list[Item]] = st.lists(
    ACCOUNTS | st.sampled_from(["error", "timeout"]) | st.none(),
    max_size=25,
    unique_by=lambda item: item.interaction.id if isinstance(item, Account) else object(),
)
KEEPS = st.builds(Keep, slowest=st.integers(0, 6))
LIMITS = (7, 20)


@settings(max_examples=150)
@given(ITEMS, KEEPS, st.integers(0, 25), st.integers(0, 25), st.randoms(use_true_random=False))
def test_any_split_gives_the_same_cohort(items: list[Item], keep: Keep, one: int, two: int, random: Random) -> None:
    whole = everything(fold(Cohort(LIMITS, keep), items))
    random.shuffle(items)
    first, second = sorted((one, two))
    parts = [fold(Cohort(LIMITS, keep), part) for part in (items[:first], items[first:second], items[second:])]
    random.shuffle(parts)
    merged = Cohort(LIMITS, keep)
    for part in parts:
        merged.merge(part)
    assert everything(merged) == whole


@given(ITEMS)
def test_what_a_cohort_counts(items: list[Item]) -> None:
    cohort = fold(Cohort(LIMITS), items)
    # one that stands for three counts as three
    totals = sorted(
        total for item in items if isinstance(item, Account) for total in [item.total_ns] * item.interaction.weight
    )
    failed = [item for item in items if isinstance(item, str)]
    assert cohort.started == len(totals) + len(failed) + items.count(None)
    assert cohort.measured == len(totals) + len(failed)
    assert cohort.complete
    assert cohort.outcomes == {
        name: count for name in ("error", "timeout") if (count := failed.count(name))
    } | ({"ok": len(totals)} if totals else {})  # fmt: skip
    # every rank is exact while all are kept, and failures come last
    expected = [float(total) for total in totals] + [math.inf] * len(failed)
    assert [cohort.value_at_rank(rank) for rank in range(1, len(expected) + 1)] == expected
    assert [cohort.sketch.over(limit) for limit in LIMITS] == [
        sum(value > limit for value in expected) for limit in LIMITS
    ]


def test_the_slowest_are_kept_whole() -> None:
    cohort = fold(Cohort(keep=Keep(slowest=3)), [accounted(f"i{number}", number) for number in range(1, 1001)])
    assert [record.total_ns for record in cohort.slowest.items()] == [1000, 999, 998]
    assert cohort.slowest.items()[0] == Record("i1000", 0, 1000, (("llm/infer", 1000),))
    assert not cohort.complete
    # ranks among the slowest are exact, those below within the sketch's 0.54 %
    assert [cohort.value_at_rank(rank) for rank in (1000, 999, 998)] == [1000.0, 999.0, 998.0]
    assert cohort.value_at_rank(500) == pytest.approx(500, rel=0.0055)


def test_what_sampled_interactions_are_worth() -> None:
    """90 of weight 1 and 10 of weight 9: (90 + 90)^2 / (90 + 10 * 81) = 36 of equal weight say as much."""
    weights = [1] * 90 + [9] * 10
    cohort = fold(Cohort(), [accounted(f"i{place}", place, weight=weight) for place, weight in enumerate(weights)])
    assert (cohort.measured, cohort.rows, cohort.observed) == (180, 100, 36)
    assert cohort.sampled
    # the heavy ones are the slowest: ranks 172 to 180 are all the last of them
    assert [cohort.value_at_rank(rank) for rank in (91, 99, 100, 172, 180)] == [90, 90, 91, 99, 99]


def test_a_rank_outside_is_refused() -> None:
    cohort = fold(Cohort(), [accounted("a", 1), "error"])
    for rank in (0, 3):
        with pytest.raises(ValueError, match="outside 1 to 2"):
            cohort.value_at_rank(rank)
    with pytest.raises(ValueError, match="outside 1 to 1"):
        cohort.value_at_rank(2, served_only=True)


def test_cohorts_of_other_limits_do_not_merge() -> None:
    with pytest.raises(ValueError, match="different limits"):
        Cohort((1,)).merge(Cohort((2,)))


def test_what_waits_to_be_folded_is_folded_at_any_number() -> None:
    cohort = fold(Cohort((500,)), [accounted(f"i{number}", number % 1000, start_ns=number) for number in range(9_000)])
    assert cohort.measured == cohort.outcomes["ok"] == 9_000
    assert cohort.sketch.over(500) == 9 * 499


def test_one_interaction_told_twice_counts_twice() -> None:
    # the same id, start and length from two files, with different rows: neither may be lost
    twice = [accounted("a", 10, shares={entry: 10}) for entry in ("llm/infer", "llm/queue")]
    cohort = fold(Cohort(), list(twice))
    assert cohort.measured == 2
    assert sorted(record.entries for record in cohort.slowest.items()) == [(("llm/infer", 10),), (("llm/queue", 10),)]
    assert cohort.complete


# Largest


@given(st.lists(st.tuples(st.integers(0, 9), st.text("ab", max_size=2)), max_size=30), st.integers(0, 8))
def test_the_largest_are_those_of_a_sort(offered: list[tuple[int, str]], limit: int) -> None:
    kept: Largest[tuple[int, str]] = Largest(limit)
    for key, name in offered:
        before = len(kept)
        admitted = kept.admits(key)
        kept.add((key,), name, (key, name))
        # what is not admitted changes nothing
        assert admitted or (len(kept) == before and (key, name) not in kept.items()[: before - 1])
    assert kept.items() == sorted(offered, reverse=True)[:limit]
    assert len(kept) == min(limit, len(offered))


# Arrivals


def arrivals(*batches: list[int]) -> Arrivals:
    made = Arrivals()
    for batch in batches:
        made.add_many(np.array(batch, dtype=np.int64))
    return made


@pytest.mark.parametrize("span_s", [1, 60, 86_400, 30 * 86_400])
@pytest.mark.parametrize("origin_ns", [0, -7 * S, 1_700_000_000 * S])
def test_ranks_are_those_of_the_order_of_arrival(span_s: int, origin_ns: int) -> None:
    random = Random(1)
    starts = [origin_ns + random.randrange(span_s * S) for _ in range(20_000)]
    made = arrivals(starts[:7_000], starts[7_000:])
    place = {start: rank for rank, start in enumerate(sorted(starts))}
    chosen = random.sample(starts, 200)
    # 8192 slots at most, and half of them at least where there are so many: a slot holds about 5 of 20 000
    errors = [abs(rank - place[start]) for start, rank in zip(chosen, made.ranks(chosen), strict=True)]
    assert max(errors) <= 12


@pytest.mark.parametrize("starts", [[], [0], [0, 5 * S, 9 * S]])
def test_few_arrivals_are_exact_in_order(starts: list[int]) -> None:
    assert arrivals(starts).ranks(starts) == list(range(len(starts)))


@settings(max_examples=30)
@given(st.lists(st.integers(-(2**62), 2**62), min_size=1, max_size=60), st.integers(0, 60))
def test_arrivals_merge(starts: list[int], cut: int) -> None:
    whole, merged = arrivals(starts), arrivals(starts[:cut])
    merged.merge(arrivals(starts[cut:]))
    assert merged.ranks(starts) == whole.ranks(starts)


def test_arrivals_of_different_resolution_merge() -> None:
    random = Random(4)
    far = [random.randrange(10**6 * S) for _ in range(20_000)]
    near = [random.randrange(S) for _ in range(500)]
    whole = arrivals(far + near)
    one, two = arrivals(near), arrivals(far)
    one.merge(arrivals(far))
    two.merge(arrivals(near))
    chosen = far[:50] + near[:50]
    assert one.ranks(chosen) == two.ranks(chosen) == whole.ranks(chosen)
    assert all(0 <= rank < 20_500 for rank in whole.ranks(far + near))
