import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import bdtr, ndtri

from outlay.quantiles import (
    FAIL,
    MOST_MORE,
    PASS,
    UNDECIDED,
    coverage_bounds,
    effective_n,
    rank_interval,
    share_interval,
    share_lower,
    share_upper,
    smallest_n,
    verdict,
)
from outlay.sketch import nearest_rank

LEVELS = (0.5, 0.9, 0.95, 0.99, 0.999)

levels = st.sampled_from(LEVELS)
property_test = settings(max_examples=80, deadline=None)


# Sample sizes


@pytest.mark.parametrize(
    ("q", "confidence", "two_sided", "n"),
    [
        # One-sided: the first n with q^n <= 1 - confidence.
        (0.5, 0.95, False, 5),  # 0.5^5 = 0.031
        (0.9, 0.95, False, 29),
        (0.95, 0.95, False, 59),
        (0.99, 0.95, False, 299),  # 0.99^299 = 0.0495, 0.99^298 = 0.0500
        (0.999, 0.95, False, 2995),
        (0.9, 0.99, False, 44),
        (0.95, 0.99, False, 90),
        (0.99, 0.99, False, 459),
        (0.999, 0.99, False, 4603),
        # Two-sided: half the doubt for each end.
        (0.5, 0.95, True, 6),  # 0.5^6 = 0.016
        (0.9, 0.95, True, 36),
        (0.95, 0.95, True, 72),
        (0.99, 0.95, True, 368),
        (0.999, 0.95, True, 3688),
        (0.1, 0.95, True, 36),  # here the lower end is the one that is hard to have
    ],
)
def test_smallest_n(q: float, confidence: float, two_sided: bool, n: int) -> None:
    assert smallest_n(q, confidence, two_sided=two_sided) == n


def test_a_percentile_is_refused_by_the_one_sided_rule_at_95_percent() -> None:
    assert (smallest_n(0.5), smallest_n(0.95), smallest_n(0.99)) == (5, 59, 299)


def test_a_tail_that_meets_the_doubt_exactly_counts() -> None:
    assert rank_interval(2, 0.5, 0.5) == (1, 2)  # P(B <= 0) = 0.25 and P(B <= 1) = 0.75, in binary too


@pytest.mark.parametrize("q", LEVELS)
def test_an_interval_has_both_ends_from_the_smallest_n_on(q: float) -> None:
    n = smallest_n(q, two_sided=True)
    at, below = rank_interval(n, q), rank_interval(n - 1, q)
    assert at is not None
    assert at[1] == n
    assert below is None or below[1] is None


@pytest.mark.parametrize(("q", "confidence"), [(0.0, 0.95), (1.0, 0.95), (0.5, 0.0), (0.5, 1.0), (99, 0.95)])
def test_levels_and_confidences_lie_inside_0_to_1(q: float, confidence: float) -> None:
    with pytest.raises(ValueError, match="must lie between 0 and 1"):
        smallest_n(q, confidence)
    with pytest.raises(ValueError, match="must lie between 0 and 1"):
        rank_interval(100, q, confidence)


# Rank intervals


@pytest.mark.parametrize(
    ("n", "q", "ranks"),
    [
        (1_000, 0.99, (983, 997)),  # p98.3 to p99.7
        (5_000, 0.99, (4_936, 4_964)),  # p98.7 to p99.3
        (20_000, 0.99, (19_772, 19_828)),  # p98.86 to p99.14
        (367, 0.99, (359, None)),
        (368, 0.99, (360, 368)),
        (6, 0.5, (1, 6)),
        (5, 0.5, None),  # 0.5^5 = 0.031 > 0.025: not even a lower end
        (1, 0.99, (1, None)),  # the one value lies below the p99 with 99 %
        (0, 0.5, None),
    ],
)
def test_rank_interval(n: int, q: float, ranks: tuple[int, int | None] | None) -> None:
    assert rank_interval(n, q) == ranks


@property_test
@given(n=st.integers(6, 3000), q=levels, confidence=st.sampled_from([0.5, 0.9, 0.95, 0.99]))
def test_ranks_are_the_tightest_that_binomial_tails_allow(n: int, q: float, confidence: float) -> None:
    half = (1 - confidence) / 2
    ranks = rank_interval(n, q, confidence)
    if ranks is None:
        assert bdtr(0, n, q) > half
        return
    low, high = ranks
    assert bdtr(low - 1, n, q) <= half < bdtr(low, n, q)
    if high is None:
        assert bdtr(n - 1, n, q) < 1 - half
    else:
        assert bdtr(high - 2, n, q) < 1 - half <= bdtr(high - 1, n, q)


@property_test
@given(n=st.integers(1, 5000), q=levels, worth=st.floats(0.01, 1))
def test_the_quantile_lies_between_its_ranks(n: int, q: float, worth: float) -> None:
    for effective in (None, worth * n):
        ranks = rank_interval(n, q, effective_n=effective)
        if ranks is not None:
            rank = nearest_rank(q, n)
            assert rank is not None
            assert 1 <= ranks[0] <= rank <= (ranks[1] or n) <= n


@property_test
@given(q=levels, sizes=st.lists(st.integers(1, 20_000), min_size=2, max_size=6).map(sorted))
def test_ranks_never_fall_as_the_sample_grows(q: float, sizes: list[int]) -> None:
    known = [ranks for n in sizes if (ranks := rank_interval(n, q)) is not None]
    assert all(few[0] <= many[0] for few, many in pairwise(known))
    highs = [high for _, high in known]
    assert None not in highs[highs.count(None) :]  # an upper end, once there, stays
    bounded = [high for high in highs if high is not None]
    assert bounded == sorted(bounded)


@pytest.mark.parametrize(
    ("n", "worth", "ranks"),
    [
        (1_000, 1_000.0, (983, 997)),
        (2_000, 1_000.9, (1_965, 1_994)),  # 982 * 2 + 1 and 997 * 2
        (2_500, 1_000.0, (2_456, 2_493)),  # floor(982 * 2.5) + 1 and ceil(997 * 2.5) = ceil(2492.5)
        (2_000, 367.9, (1_951, None)),  # floor(358 * 2000 / 367) + 1; 367 give no upper end
        (2_000, 1.0, (1, None)),  # one value bounds nothing, however often it was seen
        (2_000, 0.9, None),
    ],
)
def test_correlated_values_widen_the_interval(n: int, worth: float, ranks: tuple[int, int | None] | None) -> None:
    assert rank_interval(n, 0.99, effective_n=worth) == ranks


@pytest.mark.parametrize(("n", "worth"), [(10, 10.1), (10, -0.1), (10, math.nan), (-1, None)])
def test_an_effective_n_is_part_of_n(n: int, worth: float | None) -> None:
    with pytest.raises(ValueError, match=f"{n} values cannot be worth"):
        rank_interval(n, 0.5, effective_n=worth)


# Effective sample size


@pytest.mark.parametrize(
    ("exceeded", "worth"),
    [
        ([], 0),
        ([True] * 400, 400),
        ([False] * 400, 400),
        ([True] * 5 + [False] * 94, 99),  # 9 batches cannot tell
        # 10 batches of 10, one all true: means 1, 0 x 9; variance 0.1; 10 * 0.1 / (0.1 * 0.9) = 11.11
        ([True] * 10 + [False] * 90, 100 / (1 / 0.09)),
        # the same spread evenly, one in each batch: the variance is 0, and 100 are worth 100 and no more
        (([True] + [False] * 9) * 10, 100),
        # 105 values: batches of 10 leave 5 over, which count only in the share, 10 / 105
        ([True] * 10 + [False] * 95, 105 / (10 * 0.1 / (10 / 105 * 95 / 105))),
    ],
)
def test_effective_n_of_known_batches(exceeded: list[bool], worth: float) -> None:
    assert effective_n(np.array(exceeded, dtype=bool)) == pytest.approx(worth, rel=1e-12)


def latencies_in_bursts(correlation: float, n: int, runs: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """`runs` columns of n standard normal values whose lag-1 correlation is known."""
    noise = np.random.default_rng(20).standard_normal((n, runs))
    for place in range(1, n):
        noise[place] = correlation * noise[place - 1] + math.sqrt(1 - correlation**2) * noise[place]
    return noise


# 300 runs: the standard error of a coverage of 0.95 is 0.013, of 0.78 is 0.024.
@pytest.mark.parametrize(
    ("correlation", "naive", "corrected"),
    [(0.0, (0.92, 0.99), (0.93, 1.0)), (0.8, (0.68, 0.85), (0.91, 0.98)), (0.95, (0.35, 0.53), (0.87, 0.96))],
)
def test_the_effective_n_restores_the_coverage_of_the_p99_interval(
    correlation: float, naive: tuple[float, float], corrected: tuple[float, float]
) -> None:
    n, runs, truth = 2_000, 300, ndtri(0.99)
    hits = {"naive": 0, "corrected": 0}
    for values in latencies_in_bursts(correlation, n, runs).T:
        ordered = np.sort(values)
        worth = effective_n(values > ordered[1_980 - 1])
        for name, effective in (("naive", None), ("corrected", worth)):
            ranks = rank_interval(n, 0.99, effective_n=effective)
            assert ranks is not None
            low, high = ranks
            hits[name] += bool(ordered[low - 1] <= truth and (high is None or truth <= ordered[high - 1]))
    assert naive[0] <= hits["naive"] / runs <= naive[1]
    assert corrected[0] <= hits["corrected"] / runs <= corrected[1]


# Shares


@pytest.mark.parametrize(
    ("k", "n", "confidence", "lower", "upper"),
    [
        (0, 299, 0.95, 0.0, 1 - 0.05 ** (1 / 299)),  # none seen: (1 - f)^n = 0.05
        (299, 299, 0.95, 0.05 ** (1 / 299), 1.0),
        (1, 1, 0.9, 0.1, 1.0),  # f = 0.1
        (1, 2, 0.95, 1 - 0.95**0.5, 0.95**0.5),  # 1 - (1 - f)^2 = 0.05 and 1 - f^2 = 0.05
        (0, 0, 0.95, 0.0, 1.0),
    ],
)
def test_one_sided_bounds_of_a_share(k: int, n: int, confidence: float, lower: float, upper: float) -> None:
    assert share_lower(k, n, confidence) == pytest.approx(lower, rel=1e-9)
    assert share_upper(k, n, confidence) == pytest.approx(upper, rel=1e-9)


@property_test
@given(n=st.integers(1, 3000), data=st.data(), confidence=st.floats(0.6, 0.99))
def test_bounds_of_a_share_are_where_binomial_tails_meet_the_doubt(
    n: int, data: st.DataObject, confidence: float
) -> None:
    k = data.draw(st.integers(0, n))
    lower, upper = share_lower(k, n, confidence), share_upper(k, n, confidence)
    assert 0 <= lower <= k / n <= upper <= 1
    if k < n:
        assert bdtr(k, n, upper) == pytest.approx(1 - confidence, rel=1e-6)
    if k > 0:
        assert bdtr(k - 1, n, lower) == pytest.approx(confidence, rel=1e-6)


@pytest.mark.parametrize(
    ("k", "n", "interval"),
    [
        (0, 0, (0, 1)),
        (0, 10, (0, 1 - 0.025**0.1)),
        (10, 10, (0.025**0.1, 1)),
        (1, 2, (1 - 0.975**0.5, 0.975**0.5)),
    ],
)
def test_share_interval(k: int, n: int, interval: tuple[float, float]) -> None:
    assert share_interval(k, n) == pytest.approx(interval, rel=1e-9)


@pytest.mark.parametrize("bound", [share_lower, share_upper, share_interval])
@pytest.mark.parametrize(("k", "n", "confidence"), [(-1, 3, 0.95), (4, 3, 0.95), (1, 3, 1.0), (0, 3, 0.0)])
def test_no_share_of_impossible_counts(bound: object, k: int, n: int, confidence: float) -> None:
    assert callable(bound)
    with pytest.raises(ValueError, match=r"is not a share|must lie between"):
        bound(k, n, confidence)


# Verdicts


@pytest.mark.parametrize(
    ("over", "n", "percentile", "state", "more"),
    [
        (0, 299, 99, PASS, None),  # 1 - 0.05^(1/299) = 0.00997
        (0, 298, 99, UNDECIDED, 1),  # 1 - 0.05^(1/298) = 0.0100024
        (0, 100, 99, UNDECIDED, 199),
        (0, 59, 95, PASS, None),
        (0, 58, 95, UNDECIDED, 1),
        (0, 2995, 99.9, PASS, None),
        (0, 2994, 99.9, UNDECIDED, 1),
        (1, 5, 99, FAIL, None),  # 1 - 0.95^(1/5) = 0.0102
        (1, 6, 99, UNDECIDED, 1),  # 1 - 0.95^(1/6) = 0.0085; the same share of 7 is 1.17, bounded by 0.0117
        (1, 1, 99, FAIL, None),  # 0.05
        (1, 100, 99, UNDECIDED, None),  # exactly what is allowed decides never
        (10_001, 1_000_000, 99, UNDECIDED, None),  # 1.0001 %: beyond 10 million
        (0, 0, 99, UNDECIDED, None),
        # 1 of 1 late has a lower bound of exactly 5 %, which is what is allowed; a second late one has 22 %
        (1, 1, 95, "UNDECIDED", 1),
    ],
)
def test_verdict(over: int, n: int, percentile: float, state: str, more: int | None) -> None:
    judged = verdict(over, n, percentile)
    assert (judged.state, judged.more) == (state, more)


def test_a_verdict_carries_one_sided_bounds() -> None:
    judged = verdict(5, 1_000, 99)
    assert (judged.lower, judged.upper) == (share_lower(5, 1_000), share_upper(5, 1_000))
    empty = verdict(0, 0, 99)
    assert (empty.lower, empty.upper) == (0, 1)


def test_more_is_what_decides_at_the_same_share() -> None:
    judged = verdict(5, 1_000, 99)
    assert judged.more is not None
    total = 1_000 + judged.more
    assert share_upper(0.005 * total, total) < 0.01 <= share_upper(0.005 * (total - 1), total - 1)
    judged = verdict(2, 100, 99)
    assert judged.more is not None
    total = 100 + judged.more
    assert share_lower(0.02 * total, total) > 0.01 >= share_lower(0.02 * (total - 1), total - 1)


@property_test
@given(n=st.integers(1, 3000), percentile=st.sampled_from([50, 90, 95, 99, 99.9]), worth=st.floats(0.05, 1))
def test_verdicts_worsen_with_every_overrun(n: int, percentile: float, worth: float) -> None:
    severity = (PASS, UNDECIDED, FAIL)
    overs = sorted({0, n // 100, n // 50, n // 20, n // 10, n // 2, n})
    judged = [verdict(over, n, percentile, effective_n=worth * n) for over in overs]
    assert [severity.index(one.state) for one in judged] == sorted(severity.index(one.state) for one in judged)
    assert all(fewer.upper <= further.upper and fewer.lower <= further.lower for fewer, further in pairwise(judged))
    assert all(one.more is None or (one.state == UNDECIDED and 1 <= one.more <= MOST_MORE) for one in judged)


@pytest.mark.parametrize(
    ("over", "n", "worth", "state", "more"),
    [
        (0, 598, 299.0, PASS, None),
        (0, 596, 298.0, UNDECIDED, 1),  # it takes log 0.05 / log 0.99 = 298.07, and 597 are worth 298.5
        (0, 598, 149.5, UNDECIDED, 595),  # worth a quarter each: 4 * 298.07 = 1192.3
        (20, 1_000, None, FAIL, None),  # lower bound 0.0133
        (20, 1_000, 100.0, UNDECIDED, 3_007),  # 2 of 100 need a total of 401 (see 2 of 100 above): 4010 at a tenth
    ],
)
def test_correlation_makes_a_verdict_harder(over: int, n: int, worth: float | None, state: str, more: int) -> None:
    judged = verdict(over, n, 99, effective_n=worth)
    assert judged.state == state
    assert judged.more == (None if more is None else pytest.approx(more, abs=10 if over else 0))


@pytest.mark.parametrize(
    ("over", "n", "percentile", "worth"),
    [(-1, 10, 99, None), (11, 10, 99, None), (1, 10, 0, None), (1, 10, 100, None), (1, 10, 99, 11.0)],
)
def test_no_verdict_on_impossible_counts(over: int, n: int, percentile: float, worth: float | None) -> None:
    with pytest.raises(ValueError, match=r"is not a share|must lie between|cannot be worth"):
        verdict(over, n, percentile, effective_n=worth)


# Coverage


@pytest.mark.parametrize(
    ("q", "observed_share", "low", "high"),
    [
        (0.99, 1.0, 0.99, 0.99),
        (0.5, 0.8, 0.375, 0.625),  # (0.5 - 0.2) / 0.8 and 0.5 / 0.8
        (0.99, 0.995, (0.99 - 0.005) / 0.995, 0.99 / 0.995),
        (0.99, 0.99, 0.98 / 0.99, 1.0),  # what is missing begins right above the p99
        (0.99, 0.98, 0.97 / 0.98, None),  # 2 % missing, 1 % above the p99: no upper bound
        (0.5, 0.5, None, 1.0),  # the faster half may be what is missing
        (0.1, 0.9, None, 0.1 / 0.9),
        (0.1, 0.8, None, 0.125),
        (0.5, 0.4, None, None),
        (0.5, 0.0, None, None),
    ],
)
def test_coverage_bounds(q: float, observed_share: float, low: float | None, high: float | None) -> None:
    bounds = coverage_bounds(q, observed_share)
    expected = (low, high)
    assert [bound is None for bound in bounds] == [bound is None for bound in expected]
    known = [pair for pair in zip(bounds, expected, strict=True) if pair[1] is not None]
    assert [bound for bound, _ in known] == pytest.approx([bound for _, bound in known], rel=1e-12)


@property_test
@given(
    observed=st.lists(st.integers(1, 99), min_size=1, max_size=40),
    missing=st.lists(st.sampled_from([0, 50, 100]), max_size=10),
    q=st.sampled_from([0.5, 0.9, 0.95]),
)
def test_whatever_is_missing_the_quantile_stays_within_the_bounds(
    observed: list[int], missing: list[int], q: float
) -> None:
    def quantile(values: list[int], level: float) -> int:
        rank = nearest_rank(level, len(values))
        assert rank is not None
        return sorted(values)[rank - 1]

    low, high = coverage_bounds(q, len(observed) / (len(observed) + len(missing)))
    truth = quantile(observed + missing, q)
    assert low is None or quantile(observed, low) <= truth
    assert high is None or truth <= quantile(observed, high)


@pytest.mark.parametrize(("q", "observed_share"), [(0.99, -0.1), (0.99, 1.1), (0.0, 0.5), (1.0, 0.5)])
def test_no_bounds_for_impossible_shares(q: float, observed_share: float) -> None:
    with pytest.raises(ValueError, match=r"outside 0 to 1|must lie between"):
        coverage_bounds(q, observed_share)
