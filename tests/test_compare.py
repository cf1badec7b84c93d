"""Two runs side by side: worlds whose true difference is known, and laws that hold for any."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from outlay.accounts import OUTCOME_NAMES, Accounts, of_columns
from outlay.compare import (
    FASTER,
    NO_DIFFERENCE,
    SLOWER,
    Comparison,
    Tolerance,
    compare,
    in_turns,
    newcombe,
    quantile_difference,
    share_difference,
    tail_difference,
)
from outlay.quantiles import FAIL, PASS, UNDECIDED

MS = 1_000_000
Ints = NDArray[np.int64]


def run(times_ns: Ints | list[int], *, failed: int = 0) -> Accounts:
    """One interaction a millisecond, each all model; `failed` of them, evenly spread, never gave a result."""
    totals = np.array(times_ns, dtype=np.int64)
    lost = np.linspace(0, len(totals) - 1, failed, dtype=np.int64)
    totals[lost] = 0
    made = of_columns({"llm/infer": totals}, start_ns=np.arange(len(totals)) * MS)
    outcomes = made.outcomes.copy()
    outcomes[lost] = OUTCOME_NAMES.index("error")
    return replace(made, outcomes=outcomes)


def spread(n: int, seed: int, scale: float = 1.0) -> Ints:
    """Independent log-normal times around 100 ms."""
    drawn: Ints = (np.random.default_rng(seed).lognormal(0.0, 0.5, n) * 100 * MS * scale).astype(np.int64) + 1
    return drawn


# Shares


@pytest.mark.parametrize(
    ("k1", "n1", "k2", "n2", "low", "high"),
    [
        # Newcombe 1998, table II, method 10.
        (56, 70, 48, 80, 0.0524, 0.3339),
        (9, 10, 3, 10, 0.1705, 0.8090),
        (6, 7, 2, 7, 0.0582, 0.8062),
        (5, 56, 0, 29, -0.0381, 0.1926),
        (0, 10, 0, 20, -0.1611, 0.2775),
        (0, 10, 0, 10, -0.2775, 0.2775),
        (10, 10, 0, 20, 0.6791, 1.0000),
        (10, 10, 0, 10, 0.6075, 1.0000),
    ],
)
def test_newcombe_gives_the_published_intervals(k1: int, n1: int, k2: int, n2: int, low: float, high: float) -> None:
    assert newcombe(k1, n1, k2, n2) == pytest.approx((low, high), abs=5e-5)


counts = st.integers(1, 500).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n)))


@given(first=counts, second=counts)
def test_newcombe_turns_around_with_its_arguments_and_holds_the_difference(
    first: tuple[int, int], second: tuple[int, int]
) -> None:
    low, high = newcombe(*first, *second)
    assert newcombe(*second, *first) == pytest.approx((-high, -low))
    assert -1 - 1e-9 <= low <= first[0] / first[1] - second[0] / second[1] <= high <= 1 + 1e-9


@pytest.mark.parametrize(("k1", "n1"), [(-1, 5), (6, 5), (0, 0)])
def test_newcombe_refuses_what_is_no_share(k1: int, n1: int) -> None:
    with pytest.raises(ValueError, match="has no interval"):
        newcombe(k1, n1, 1, 2)


def test_the_share_over_a_limit_counts_failures_and_nothing_at_the_limit() -> None:
    # A: 4 of 10 above 5 ms (the one at 5 ms is in time). B: the second and third above, the first, fifth, last failed.
    a = run([1 * MS] * 5 + [5 * MS] + [6 * MS] * 4)
    b = run([1 * MS] + [6 * MS] * 2 + [1 * MS] * 7, failed=3)
    found = share_difference(a, b, 5 * MS)
    assert (found.a_share, found.b_share) == pytest.approx((0.4, 0.5))
    assert found.interval == pytest.approx(newcombe(5, 10, 4, 10))
    assert share_difference(a, b, None).b_share == pytest.approx(0.3)


def test_shares_in_bursts_say_less_than_the_same_shares_one_by_one() -> None:
    # 20 % over the limit, in one burst or every fifth.
    burst, even = np.full(1000, MS), np.full(1000, MS)
    burst[:200], even[::5] = 9 * MS, 9 * MS
    fine = run([MS] * 1000)
    in_bursts, one_by_one = (share_difference(fine, run(each), 5 * MS).interval for each in (burst, even))
    assert in_bursts[1] - in_bursts[0] > 3 * (one_by_one[1] - one_by_one[0])


def test_of_an_empty_run_no_share_is_known() -> None:
    assert share_difference(run([]), run([1, 2]), 1).interval == (-1.0, 1.0)


# Percentiles


def test_runs_without_spread_differ_by_exactly_what_was_added() -> None:
    found = quantile_difference(run([100 * MS] * 300), run([150 * MS] * 400), 99)
    assert (found.a_ns, found.b_ns) == (100 * MS, 150 * MS)
    assert (found.difference_ns, found.interval_ns) == (50 * MS, (50 * MS, 50 * MS))


@pytest.mark.parametrize(("level", "enough"), [(99.0, 299), (95.0, 59), (50.0, 5)])
def test_a_percentile_is_refused_below_its_smallest_sample(level: float, enough: int) -> None:
    told = run([MS] * enough)
    few = run([MS] * (enough - 1))
    assert quantile_difference(told, told, level).why is None
    for pair in ((told, few), (few, told)):
        refused = quantile_difference(*pair, level)
        assert refused.difference_ns is refused.interval_ns is refused.a_ns is None
        assert refused.why == f"p{level:g} needs {enough} interactions in each run, there are " + " and ".join(
            str(len(each)) for each in pair
        )


def test_failures_are_never_in_a_percentile() -> None:
    # The p99 of 300 is the 297th: 3 failures leave it alone, 4 take it.
    fine = run(spread(300, 1))
    assert quantile_difference(fine, run(spread(300, 2), failed=3), 99).b_ns != math.inf
    lost = quantile_difference(fine, run(spread(300, 2), failed=40), 99)
    assert (lost.b_ns, lost.difference_ns) == (math.inf, math.inf)
    assert lost.interval_ns == (math.inf, math.inf)
    back = quantile_difference(run(spread(300, 2), failed=40), fine, 99)
    assert back.interval_ns == (-math.inf, -math.inf)


def test_where_neither_percentile_comes_there_is_no_difference_in_it() -> None:
    lost = run(spread(300, 2), failed=40)
    found = quantile_difference(lost, lost, 99)
    assert found.never
    assert (found.difference_ns, found.interval_ns) == (0.0, (0.0, 0.0))


@settings(max_examples=15)
@given(st.lists(st.integers(1, 10**9), min_size=5, max_size=40), st.integers(1, 5), st.sampled_from([50.0, 30.0]))
def test_a_row_that_stands_for_several_is_as_good_as_several(times: list[int], each: int, level: float) -> None:
    one_by_one = run([time for time in times for _ in range(each)])
    weighed = replace(run(times), weights=np.full(len(times), float(each)))
    found = quantile_difference(weighed, one_by_one, level)
    assert (found.a_ns, found.difference_ns) == (found.b_ns, 0.0)


@pytest.mark.parametrize(("correlation", "at_least"), [(0.0, 33), (0.8, 31)])
def test_intervals_hold_the_true_difference_also_in_bursts(correlation: float, at_least: int) -> None:
    """B is A's world times 1.2. A binomial of 40 and 0.95 falls below 33 once in 1,000; bursts cost a little."""
    random = np.random.default_rng(7)
    n, trials, level = 600, 40, 95.0
    normal = random.standard_normal((2, trials, n))
    for place in range(1, n):
        normal[..., place] = correlation * normal[..., place - 1] + math.sqrt(1 - correlation**2) * normal[..., place]
    times = (np.exp(0.5 * normal) * np.array([100, 120])[:, np.newaxis, np.newaxis] * MS).astype(np.int64)
    # The p95 of a log-normal: exp(0.5 * 1.644854) times its median.
    truth = 20 * MS * math.exp(0.5 * 1.644854)
    held = 0
    for trial in range(trials):
        found = quantile_difference(run(times[0, trial]), run(times[1, trial]), level)
        assert found.interval_ns is not None
        held += found.interval_ns[0] <= truth <= found.interval_ns[1]
    assert at_least <= held


def test_equal_runs_are_not_exactly_alike_by_construction() -> None:
    same = run(spread(1000, 3))
    low, high = quantile_difference(same, same, 99).interval_ns or (0, 0)
    assert low < 0 < high


# The tail


@st.composite
def runs_of_two_entries(draw: st.DrawFn) -> Accounts:
    n = draw(st.integers(1, 60))
    seed = draw(st.integers(0, 2**32 - 1))
    random = np.random.default_rng(seed)
    names = draw(st.sampled_from([("llm/queue", "llm/infer"), ("llm/infer", "tts/infer")]))
    return of_columns({name: random.integers(1, 10**9, n) for name in names}, start_ns=np.arange(n) * MS)


@settings(max_examples=25)
@given(runs_of_two_entries(), runs_of_two_entries(), st.sampled_from([50.0, 95.0, 99.0]))
def test_differences_of_entries_sum_to_that_of_the_tails(a: Accounts, b: Accounts, level: float) -> None:
    found = tail_difference(a, b, level)
    assert found is not None
    assert sum(each.difference_ns for each in found.entries) == found.difference_ns
    assert sum(each.a_ns for each in found.entries) == found.a_ns
    # The mean of the slowest, from the rank of the percentile on.
    slowest = np.sort(b.total_ns)[math.ceil(level * len(b) / 100 - 1e-9) - 1 :]
    assert abs(found.b_ns - slowest.mean()) <= 1


def test_the_entry_that_moved_the_tail_is_named_with_an_interval() -> None:
    # The queue of the slowest 2 % grows by 40 ms, all else is drawn from the same.
    def world(seed: int, longer: int) -> Accounts:
        random = np.random.default_rng(seed)
        queue = random.integers(1, 10 * MS, 3000)
        queue[random.choice(3000, 60, replace=False)] += 100 * MS + longer
        return of_columns(
            {"llm/queue.wait": queue, "llm/infer": random.integers(20 * MS, 30 * MS, 3000)},
            start_ns=np.arange(3000) * MS,
        )

    found = tail_difference(world(1, 0), world(2, 40 * MS), 99)
    assert found is not None
    assert found.moved is not None
    assert found.moved.entry == "llm/queue.wait"
    assert found.moved.interval_ns[0] < 40 * MS < found.moved.interval_ns[1]
    (other,) = (each for each in found.entries if each.entry != "llm/queue.wait")
    assert other.interval_ns[0] < 0 < other.interval_ns[1]


def test_where_everything_failed_there_is_no_tail() -> None:
    assert tail_difference(run([1, 2, 3], failed=3), run([1, 2]), 99) is None


# The verdict


def judged(a: Accounts, b: Accounts, tolerance: Tolerance | None = None) -> tuple[str | None, str]:
    made = compare(a, b, tolerance=tolerance)
    return made.verdict, made.state


@pytest.mark.parametrize(
    ("b_ms", "tolerance", "verdict", "state"),
    [
        (100, Tolerance(), NO_DIFFERENCE, PASS),
        (101, Tolerance(), SLOWER, FAIL),
        (99, Tolerance(), FASTER, PASS),
        (110, Tolerance(share=0.10), SLOWER, PASS),  # 10 % of 100 ms are allowed
        (111, Tolerance(share=0.10), SLOWER, FAIL),
        (120, Tolerance(time_ns=20 * MS), SLOWER, PASS),
        (121, Tolerance(time_ns=20 * MS), SLOWER, FAIL),
    ],
)
def test_the_verdict_on_runs_without_spread(b_ms: int, tolerance: Tolerance, verdict: str, state: str) -> None:
    assert judged(run([100 * MS] * 300), run([b_ms * MS] * 300), tolerance) == (verdict, state)


def test_what_the_data_does_not_show_is_undecided_until_more_of_it_does() -> None:
    a, b = spread(1000, 8), spread(1000, 9, scale=1.1)
    made = compare(run(a), run(b))
    assert (made.verdict, made.state) == (NO_DIFFERENCE, UNDECIDED)
    assert made.more is not None
    # The same over and over keeps the difference, and the intervals narrow; not evenly at both ends, hence the factor.
    times = math.ceil(2 * (1 + made.more / 1000))
    assert judged(run(np.tile(a, times)), run(np.tile(b, times))) == (SLOWER, FAIL)


def test_more_of_b_alone_cannot_make_up_for_a_stored_run_that_is_too_small() -> None:
    a, b = run(spread(300, 4)), run(spread(5_000, 5, scale=1.02))
    both = compare(a, b)
    stored = compare(a, b, a_is_stored=True)
    assert both.state == stored.state == UNDECIDED
    assert both.more is not None
    assert stored.more is None


def test_where_no_percentile_comes_the_share_of_failures_decides() -> None:
    # 5 % fail before, 30 % after: the p99 never comes in either.
    before, after = run(spread(1000, 1), failed=50), run(spread(1000, 2), failed=300)
    assert judged(before, after, Tolerance(share=0.5)) == (SLOWER, FAIL)
    assert judged(after, before, Tolerance(share=0.5)) == (FASTER, PASS)


def test_too_small_a_run_is_not_compared() -> None:
    made = compare(run([MS] * 298), run([MS] * 5000), limit_ns=2 * MS)
    assert (made.verdict, made.state, made.more) == (None, UNDECIDED, None)
    assert made.why == "p99 needs 299 interactions in each run, there are 298 and 5000"
    assert made.share.difference == 0


def test_a_budget_s_own_percentile_decides_and_stands_among_the_others() -> None:
    made = compare(run(spread(300, 1)), run(spread(300, 2, scale=2)), level=90.0)
    assert (made.quantile.level, made.verdict) == (90.0, SLOWER)
    assert [each.level for each in made.quantiles] == [50.0, 90.0, 95.0, 99.0]


def test_chance_alone_seldom_makes_a_run_slower() -> None:
    """Both runs of one world: of 40, 1 may be called slower on the average, and 6 or more once in 2,000."""
    found = [quantile_difference(run(spread(400, seed)), run(spread(400, 1000 + seed)), 99) for seed in range(40)]
    lows, highs = zip(*(each.interval_ns or (0, 0) for each in found), strict=True)
    assert sum(low > 0 for low in lows) < 6
    assert sum(high < 0 for high in highs) < 6


# The order in time


@pytest.mark.parametrize(
    ("a_at", "b_at", "answer"),
    [
        ([1, 2, 3], [4, 5, 6], False),
        ([1, 2, 5, 6], [3, 4, 7, 8], True),  # A, B, A, B
        ([1, 2, 7, 8], [3, 4, 5, 6], False),  # A, B, A: B has no turn to take
        ([1, 3, 5, 7], [2, 4, 6, 8], True),
        ([1, 2, 3, 4, 5, 7], [6, 8, 9, 10, 11, 12], False),  # they only meet at the border
        ([0, 0], [0, 0], None),
        ([], [1, 2], None),
    ],
)
def test_whether_runs_took_turns(a_at: list[int], b_at: list[int], answer: bool | None) -> None:
    a, b = (
        of_columns({"llm/infer": np.ones(len(at), dtype=np.int64)}, start_ns=np.array(at, dtype=np.int64))
        for at in (a_at, b_at)
    )
    assert in_turns(a, b) is answer


def test_a_comparison_counts_what_rows_stand_for() -> None:
    weighed = replace(run(spread(300, 1)), weights=np.full(300, 10.0))
    made: Comparison = compare(weighed, run(spread(300, 2)))
    assert (made.n_a, made.n_b) == (3000, 300)
