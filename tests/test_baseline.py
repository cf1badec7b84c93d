"""What is kept of a run stands for all of it, and says the same of its tail."""

from dataclasses import replace

import numpy as np
import pytest

from outlay.accounts import OUTCOME_NAMES, Accounts, Labels, of_columns
from outlay.baseline import kept
from outlay.compare import quantile_difference, tail_difference
from outlay.tabulator import Keep

# Of 20,000: the slowest 2 %, and one in forty of the others.
FEW = Keep(slowest=400, sample=490, failed=5)


@pytest.fixture(scope="module")
def whole() -> Accounts:
    """20,000 interactions, of which every thousandth failed."""
    random = np.random.default_rng(3)
    n = 20_000
    entries = {"llm/queue.wait": random.integers(1, 10**8, n), "llm/infer": random.integers(1, 10**7, n)}
    failed = np.arange(n) % 1000 == 0
    for values in entries.values():
        values[failed] = 0
    made = of_columns(
        entries,
        start_ns=np.arange(n) * 10**6,
        dimensions={"site": Labels(("lon",), np.zeros(n, dtype=np.int32))},
        sizes={"input_tokens": np.ones(n)},
    )
    return replace(made, outcomes=np.where(failed, OUTCOME_NAMES.index("timeout"), made.outcomes).astype(np.int8))


def test_few_rows_stand_for_all_interactions(whole: Accounts) -> None:
    rows = kept(whole, FEW)
    assert len(rows) <= FEW.rows
    assert rows.count == pytest.approx(20_000)
    assert rows.weights[~rows.served].sum() == pytest.approx(20)


def test_the_tail_is_kept_one_by_one(whole: Accounts) -> None:
    rows = kept(whole, FEW)
    percentile, tail = quantile_difference(rows, whole, 99), tail_difference(rows, whole, 99)
    assert (percentile.difference_ns, tail and tail.difference_ns) == (0, 0)
    assert {each.difference_ns for each in (tail.entries if tail else ())} == {0}


def test_a_percentile_below_the_tail_is_that_of_a_sample_and_says_so(whole: Accounts) -> None:
    rows = kept(whole, FEW)
    found = quantile_difference(rows, whole, 50)
    assert found.a_interval_ns is not None
    assert found.b_interval_ns is not None
    width, exact = (high - low for low, high in (found.a_interval_ns, found.b_interval_ns))
    # 490 of 20,000: about the root of 40 as wide.
    assert 3 * exact < width < 13 * exact
    assert found.interval_ns is not None
    assert found.interval_ns[0] <= 0 <= found.interval_ns[1]


def test_a_small_run_is_kept_whole_but_for_who_and_what_it_was(whole: Accounts) -> None:
    rows = kept(whole.select(np.arange(500)))
    assert (len(rows), rows.complete) == (500, True)
    assert rows.total_ns.tolist() == whole.total_ns[:500].tolist()
    assert (rows.dimensions, rows.sizes, rows.conditions) == ({}, {}, {})


def test_nothing_is_kept_of_nothing(whole: Accounts) -> None:
    assert len(kept(whole.select(np.arange(0)))) == 0
