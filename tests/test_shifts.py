"""Shifts: what a version did and what another mix of shapes did, in worlds where both are known."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.signal import lfilter

from outlay.accounts import OUTCOME_NAMES, Accounts, Floats, Labels, of_columns
from outlay.report import Shift
from outlay.shifts import shifts
from outlay.units import NS_PER_MS

Codes = NDArray[np.int64]
VERSIONS = ("1.4", "1.5", "1.6")
# What a long prompt takes more.
LONG_MS = 300.0


def timed(
    times_ms: Floats, dimensions: Mapping[str, Codes], long: NDArray[np.bool_] | None = None, step_ms: int = 1
) -> Accounts:
    """One entry each, a millisecond apart."""
    sizes = {} if long is None else {"input_tokens": np.where(long, 4000.0, 500.0)}
    return of_columns(
        {"llm/infer": np.rint(times_ms * NS_PER_MS).astype(np.int64)},
        start_ns=step_ms * NS_PER_MS * np.arange(len(times_ms)),
        dimensions={name: Labels(VERSIONS, codes.astype(np.int32)) for name, codes in dimensions.items()},
        sizes=sizes,
    )


def two(shares: tuple[float, float], slower_ms: float = 0.0, *, seed: int = 1, base: int = 400) -> Accounts:
    """Two versions, each 5 times so many; such shares of long prompts; the same times for each length everywhere."""
    random = np.random.default_rng(seed)
    times = random.lognormal(4, 0.5, base)
    columns = []
    for share in shares:
        copies = round(5 * share)
        long = np.repeat([True, False], [copies * base, (5 - copies) * base])
        order = random.permutation(5 * base)
        columns.append((np.tile(times, 5)[order] + LONG_MS * long[order], long[order]))
    version = np.repeat([0, 1], 5 * base)
    total = np.concatenate([column[0] for column in columns]) + slower_ms * version
    return timed(total, {"version": version}, np.concatenate([column[1] for column in columns]))


def only(found: Sequence[Shift]) -> Shift:
    (shift,) = found
    assert shift.version_ns + shift.shape_ns == shift.new_ns - shift.old_ns
    return shift


def holds(interval_ns: tuple[float, float], truth_ms: float) -> bool:
    return interval_ns[0] <= truth_ms * NS_PER_MS <= interval_ns[1]


def quantile_ms(accounts: Accounts, code: int, level: float) -> float:
    own = accounts.total_ns[accounts.dimensions["version"].codes == code]
    return float(np.quantile(own, level / 100, method="inverted_cdf")) / NS_PER_MS


# What is known


def test_a_version_that_only_got_longer_prompts() -> None:
    """Copies of the same times: at the new one's mix the old version has its percentile to the nanosecond."""
    accounts = two((0.2, 0.6))
    shift = only(shifts(accounts, 99))
    assert (shift.dimension, shift.old, shift.new, shift.n_old, shift.n_new) == ("version", "1.4", "1.5", 2000, 2000)
    assert (shift.level, shift.compared) == (99, 1)
    assert shift.version_ns == 0
    assert holds(shift.version_interval_ns, 0)
    assert shift.old_ns / NS_PER_MS == quantile_ms(accounts, 0, 99)
    assert shift.new_ns / NS_PER_MS == quantile_ms(accounts, 1, 99)
    assert shift.shape_interval_ns[0] > 0


def test_a_slower_version_that_got_longer_prompts_too() -> None:
    longer, both = (only(shifts(two((0.2, 0.6), slower_ms), 95)) for slower_ms in (0.0, 40.0))
    assert both.version_ns == 40 * NS_PER_MS
    assert holds(both.version_interval_ns, 40)
    assert both.version_interval_ns[0] > 0
    assert both.shape_ns == longer.shape_ns > 0


def test_a_faster_version() -> None:
    shift = only(shifts(two((0.6, 0.6), -30.0), 99))
    assert (shift.version_ns, shift.shape_ns) == (-30 * NS_PER_MS, 0)
    assert shift.version_interval_ns[1] < 0 <= shift.shape_interval_ns[1]


def test_two_equal_versions_differ_by_as_much_as_others_may() -> None:
    """The same rows in the same order are no proof: the interval is as wide as that of the same rows in another."""
    random = np.random.default_rng(8)
    times, long = random.lognormal(4, 0.5, 1000), random.random(1000) < 0.5
    version, order = np.repeat([0, 1], 1000), random.permutation(1000)
    widths = []
    for second in (np.arange(1000), order):
        rows = np.concatenate((np.arange(1000), second))
        shift = only(shifts(timed(times[rows], {"version": version}, long[rows]), 95))
        assert (shift.version_ns, shift.shape_ns) == (0, 0)
        widths.append(np.ptp(shift.version_interval_ns))
    assert widths[0] == pytest.approx(widths[1], rel=0.3)


def test_without_sizes_all_of_it_is_the_version() -> None:
    accounts = replace(two((0.2, 0.6), 40.0), sizes={})
    shift = only(shifts(accounts, 99))
    assert shift.shape_ns == 0
    assert shift.shape_interval_ns == (0, 0)
    assert shift.compared == 1


def test_only_shapes_that_both_saw_are_compared() -> None:
    """40 % of the new ones are longer than any before, and slow: they are told apart, and in neither effect."""
    random = np.random.default_rng(2)
    base = random.lognormal(4, 0.5, 600)
    unseen = random.lognormal(6, 0.5, 400)
    version = np.repeat([0, 1], [600, 1000])
    times = np.concatenate((random.permutation(base), random.permutation(np.concatenate((base + 40, unseen)))))
    shift = only(shifts(timed(times, {"version": version}, np.isin(times, unseen)), 99))
    assert shift.compared == pytest.approx(0.6)
    assert (shift.n_old, shift.n_new) == (600, 1000)
    assert (shift.version_ns, shift.shape_ns) == pytest.approx((40 * NS_PER_MS, 0), abs=1)


def test_mostly_unseen_shapes_are_no_shift() -> None:
    version = np.repeat([0, 1], 1000)
    long = (version == 1) & (np.arange(2000) % 10 < 6)
    times = np.random.default_rng(3).lognormal(4, 0.5, 2000) + 40 * version
    assert shifts(timed(times, {"version": version}, long), 99) == ()


@pytest.mark.parametrize(
    ("failing", "version_ns"),
    [((False, True), np.inf), ((True, False), -np.inf), ((True, True), None)],
    ids=["the new one", "the old one", "both"],
)
def test_failures(failing: tuple[bool, bool], version_ns: float | None) -> None:
    """Every 20th fails, so that its p99 never comes: the version's doing; of never after never nothing can be told."""
    accounts = two((0.2, 0.6))
    bad = (np.arange(4000) % 20 == 0) & np.repeat(failing, 2000)
    outcomes = np.where(bad, OUTCOME_NAMES.index("error"), 0).astype(np.int8)
    found = shifts(replace(accounts, outcomes=outcomes), 99)
    assert [shift.version_ns for shift in found] == ([] if version_ns is None else [version_ns])
    assert all(np.isfinite(shift.shape_ns) for shift in found)
    assert all(shift.version_interval_ns[0] == shift.version_interval_ns[1] == version_ns for shift in found)


# Which follow which


def named(found: Sequence[Shift]) -> list[tuple[str, str, str]]:
    return [(each.dimension, each.old, each.new) for each in found]


@pytest.mark.parametrize(
    ("counts", "told"),
    [
        ((300, 300, 300), [("1.4", "1.5", 99), ("1.5", "1.6", 99)]),
        ((299, 299, 0), [("1.4", "1.5", 99)]),
        ((298, 600, 0), [("1.4", "1.5", 95)]),
        ((59, 300, 300), [("1.4", "1.5", 95), ("1.5", "1.6", 99)]),
        # too few of 1.5: 1.6 follows 1.4
        ((300, 58, 300), [("1.4", "1.6", 99)]),
        ((300, 58, 0), []),
        ((300, 0, 0), []),
    ],
)
def test_levels_and_neighbours(counts: tuple[int, ...], told: list[tuple[str, str, int]]) -> None:
    version = np.repeat([0, 1, 2], counts)
    times = np.random.default_rng(4).lognormal(4, 0.5, len(version))
    found = shifts(timed(times, {"version": version}), 99)
    assert [(each.old, each.new, each.level) for each in found] == told


def test_they_follow_in_order_of_their_first_arrival() -> None:
    """1.6 begins, 1.4 takes over little by little; hardware is told likewise, and other dimensions are not."""
    random = np.random.default_rng(5)
    version = np.where(np.arange(2000) < 500, 2, np.where(random.random(2000) < 0.5, 2, 0))
    times = random.lognormal(4, 0.5, 2000)
    accounts = timed(times, {"version": version, "hardware": 2 - version, "site": version})
    assert named(shifts(accounts, 99)) == [("version", "1.6", "1.4"), ("hardware", "1.4", "1.6")]


def test_what_began_at_the_same_instant_has_no_order() -> None:
    times = np.random.default_rng(6).lognormal(4, 0.5, 2000)
    assert shifts(timed(times, {"version": np.arange(2000) % 2}, step_ms=0), 99) == ()
    assert shifts(timed(times, {"version": np.arange(2000) % 2}), 99) != ()


@pytest.mark.parametrize("n", [0, 1, 58])
def test_nothing_of_too_few(n: int) -> None:
    assert shifts(timed(np.linspace(1, 9, n), {"version": np.arange(n) % 2}), 99) == ()


def test_those_who_do_not_say_are_left_out() -> None:
    """A slow row after each that says its version."""
    accounts = two((0.2, 0.6), 40.0)
    version = np.stack((accounts.dimensions["version"].codes, np.full(4000, -1)), axis=1).ravel()
    times = np.stack((accounts.total_ns / NS_PER_MS, np.full(4000, 5000.0)), axis=1).ravel()
    long = np.repeat(accounts.sizes["input_tokens"] > 1000, 2)
    shift = only(shifts(timed(times, {"version": version}, long), 99))
    assert (shift.n_old, shift.n_new) == (2000, 2000)
    assert shift.version_ns == 40 * NS_PER_MS


def test_a_row_counts_for_as_many_as_it_stands_for() -> None:
    """Weights of 3 change nothing but the counts."""
    accounts = two((0.2, 0.6), 40.0)
    single, threefold = only(shifts(accounts, 99)), only(shifts(replace(accounts, weights=np.full(4000, 3.0)), 99))
    assert threefold == replace(single, n_old=6000, n_new=6000)


# Laws


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from([90.0, 95.0, 99.0]), st.integers(60, 400))
def test_the_two_effects_sum_to_the_change(seed: int, level: float, n: int) -> None:
    random = np.random.default_rng(seed)
    version, long = np.repeat([0, 1], n), random.random(2 * n) < random.random()
    times = random.lognormal(4, 0.5, 2 * n) + random.normal(0, 30) * version + LONG_MS * long
    accounts = timed(np.abs(times), {"version": version}, long)
    weights = random.integers(1, 4, 2 * n).astype(np.float64)
    for shift in shifts(replace(accounts, weights=weights), level):
        assert shift.version_ns + shift.shape_ns == shift.new_ns - shift.old_ns
        assert 0.5 <= shift.compared <= 1
        assert shift.level <= level
        assert shift.version_interval_ns[0] <= shift.version_interval_ns[1]


@pytest.mark.parametrize("lag", [0.0, 0.8])
def test_intervals_hold_the_truth(lag: float) -> None:
    """40 ms by the version; by the shapes 300 ms at a p95 that short prompts set before and long ones set now.

    Of 40 worlds 95 % hold it; fewer than 35 would show that it is less (1.4 %). The truth of the shapes is that of a
    million.
    """
    z = np.random.default_rng(7).standard_normal(1_000_000)
    far = [np.quantile(np.exp(4 + 0.5 * z) + LONG_MS * (np.arange(len(z)) % 10 < long), 0.95) for long in (1, 5)]
    version_held, shape_held = 0, 0
    for seed in range(40):
        random = np.random.default_rng(seed)
        steps = random.standard_normal(2100) * np.sqrt(1 - lag * lag)
        version = np.repeat([0, 1], 1000)
        long = random.random(2000) < np.where(version == 1, 0.5, 0.1)
        times = np.exp(4 + 0.5 * lfilter([1.0], [1.0, -lag], steps)[100:]) + LONG_MS * long + 40 * version
        shift = only(shifts(timed(times, {"version": version}, long), 95))
        version_held += holds(shift.version_interval_ns, 40)
        shape_held += holds(shift.shape_interval_ns, far[1] - far[0])
    assert version_held >= 35
    assert shape_held >= 35
