"""May an interaction go on? The time ahead is one joint sample, and the sum of percentiles asks for too much."""

from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outlay.accounts import Accounts
from outlay.budget import Budget
from outlay.interaction import Outcome
from outlay.quantiles import FAIL, PASS, UNDECIDED
from outlay.remaining import chance, may_continue, quantile, residuals, summed_quantiles
from outlay.tabulator import Tabulator
from outlay.units import NS_PER_MS
from worlds import accounted, simple

QUEUE, PREFILL, SPEECH = "llm/queue.wait", "llm/infer.prefill", "tts/infer"


def accounts_of(
    rows: Sequence[Mapping[str, int]], failed: Sequence[Outcome] = (), weights: Sequence[int] | None = None
) -> Accounts:
    table = Tabulator()
    for number, entries in enumerate(rows):
        weight = weights[number] if weights else 1
        table.add(accounted(f"i{number}", sum(entries.values()), start_ns=number, shares=dict(entries), weight=weight))
    for number, outcome in enumerate(failed):
        table.add_failed(simple(f"f{number}", 0, start_ns=number, outcome=outcome))
    return table.accounts()


def tail_of(*values: int) -> Accounts:
    """One interaction for each value, which is how long it still took after its queue."""
    return accounts_of([{QUEUE: 5, PREFILL: value} for value in values])


def test_what_is_ahead_is_what_stands_behind_the_last_entry_that_matches() -> None:
    accounts = accounts_of(
        [
            {"client/uplink": 1, QUEUE: 2, PREFILL: 30, SPEECH: 400},
            {QUEUE: 2, "llm/queue.batch": 9, SPEECH: 60},
            {"client/uplink": 1, SPEECH: 7},  # never was in the queue
            {"client/uplink": 5, QUEUE: 3},  # nothing is ahead of it
        ]
    )
    ahead = residuals(accounts, "llm/queue*")
    assert ahead.times_ns.tolist() == [0, 60, 430]
    assert ahead.reached.tolist() == [1 / 3, 2 / 3, 1]


def test_a_row_that_stands_for_several_counts_as_often() -> None:
    accounts = accounts_of([{QUEUE: 5, PREFILL: 10}, {QUEUE: 5, PREFILL: 20}], weights=[3, 1])
    assert chance(residuals(accounts, QUEUE), 10)[0] == 0.75


def test_an_entry_that_nothing_has_is_refused() -> None:
    with pytest.raises(ValueError, match="no interaction has an entry that matches asr/"):
        residuals(tail_of(1, 2), "asr/*")


def test_failures_are_never_in_time_but_for_those_that_never_began() -> None:
    accounts = accounts_of([{QUEUE: 5, PREFILL: 10}] * 6, ["error", "timeout", "refused", "unsent"])
    ahead = residuals(accounts, QUEUE)
    # 6 of 8: neither the refused nor the unsent one ever had something ahead of a queue
    assert chance(ahead, 10**18)[0] == 0.75
    assert ahead.times_ns.tolist() == [10.0] * 6 + [np.inf] * 2


def test_the_chance_counts_those_that_end_at_the_very_instant() -> None:
    ahead = residuals(tail_of(10, 20, 30, 40), QUEUE)
    assert [chance(ahead, remaining_ns)[0] for remaining_ns in (-1, 9, 10, 39, 40)] == [0, 0, 0.25, 0.75, 1]


def test_the_interval_of_a_chance_is_that_of_a_share() -> None:
    # No value of 200 is missed: the two-sided Clopper-Pearson interval begins at 0.025 ** (1 / 200).
    _, (low, high) = chance(residuals(tail_of(*range(200)), QUEUE), 1000)
    assert (low, high) == (pytest.approx(0.025 ** (1 / 200)), 1)


def test_bursts_of_slow_ones_widen_the_interval() -> None:
    apart = tail_of(*[1000 if number % 100 == 0 else 10 for number in range(2000)])
    together = tail_of(*[1000 if number < 20 else 10 for number in range(2000)])
    low_apart, low_together = (chance(residuals(each, QUEUE), 10)[1][0] for each in (apart, together))
    assert low_together < low_apart


def test_a_percentile_below_299_is_refused() -> None:
    assert quantile(residuals(tail_of(*range(298)), QUEUE), 0.99) is None
    # The 297th of 299 is the first at or above 99 %: 296 / 299 is 98.997 %.
    assert quantile(residuals(tail_of(*range(1, 300)), QUEUE), 0.99) == 297


BUDGET = Budget(limit_ns=1000, percentile=90)


@pytest.mark.parametrize(
    ("elapsed_ns", "error_ns", "go_on", "state", "probability"),
    [
        (50, 0, True, PASS, 0.95),
        (100, 0, True, UNDECIDED, 0.9),
        (101, 0, False, UNDECIDED, 0.899),
        (50, 50, True, UNDECIDED, 0.9),  # the clock at its worse end
        (50, 51, False, UNDECIDED, 0.899),
        (200, 0, False, FAIL, 0.8),
        (1001, 0, False, FAIL, 0),  # nothing is left
    ],
)
def test_it_goes_on_where_the_chance_is_what_the_budget_asks(
    elapsed_ns: int, error_ns: int, go_on: bool, state: str, probability: float
) -> None:
    """What is ahead takes 1, 2, ... 1000 ns, each equally likely, so with R left the chance is R / 1000."""
    shuffled = np.random.default_rng(1).permutation(1000) + 1
    asked = may_continue(residuals(tail_of(*shuffled.tolist()), QUEUE), BUDGET, elapsed_ns, error_ns)
    assert (asked.go_on, asked.state) == (go_on, state)
    assert asked.probability == pytest.approx(probability)
    assert asked.remaining_ns == 1000 - elapsed_ns - error_ns
    assert asked.needed_ns == 900


def test_without_a_bound_of_the_clock_nothing_is_decided() -> None:
    asked = may_continue(residuals(tail_of(*range(300)), QUEUE), BUDGET, 10, None)
    assert (asked.go_on, asked.state, asked.remaining_ns, asked.probability) == (False, UNDECIDED, None, None)


def test_adding_percentiles_turns_interactions_away_that_would_have_been_in_time() -> None:
    """Three stages ahead that vary on their own: their p99s add up to more than the p99 of their sum."""
    random = np.random.default_rng(11)
    n = 8000
    ms = np.column_stack(
        [
            random.lognormal(np.log(110), 0.4, n),
            random.lognormal(np.log(60), 0.3, n),
            random.lognormal(np.log(45), 0.4, n),
        ]
    )
    names = (PREFILL, SPEECH, "client/downlink")
    rows = [
        {QUEUE: NS_PER_MS, **{name: round(value * NS_PER_MS) for name, value in zip(names, row, strict=True)}}
        for row in ms.tolist()
    ]
    accounts = accounts_of(rows)
    ahead = residuals(accounts, QUEUE)
    joint_ns, summed_ns = quantile(ahead, 0.99), summed_quantiles(accounts, QUEUE, 0.99)
    assert joint_ns == pytest.approx(np.quantile(ms.sum(axis=1), 0.99, method="inverted_cdf") * NS_PER_MS, abs=2)
    each = [np.quantile(column, 0.99, method="inverted_cdf") for column in ms.T]
    assert summed_ns == pytest.approx(sum(each) * NS_PER_MS, abs=2)
    # Requests come to the end of the queue with 800 ms less a skewed wait. Some have more left than the joint p99, so
    # that 99 in 100 of them would be in time, and less than the sum of the p99s, which turns them away.
    budget = Budget(limit_ns=800 * NS_PER_MS, percentile=99)
    elapsed = (random.exponential(95, 2000) * NS_PER_MS).astype(np.int64)
    joint = np.array([may_continue(ahead, budget, int(spent)).go_on for spent in elapsed])
    summed = budget.limit_ns - elapsed >= summed_ns
    assert not (summed & ~joint).any()
    assert 0.01 < (joint & ~summed).mean() < 0.04


@settings(max_examples=50, deadline=None)
@given(
    values=st.lists(st.integers(0, 10**9), min_size=1, max_size=60),
    remaining=st.tuples(st.integers(-10, 10**9), st.integers(-10, 10**9)),
)
def test_more_time_is_never_a_smaller_chance(values: list[int], remaining: tuple[int, int]) -> None:
    ahead = residuals(tail_of(*values), QUEUE)
    less, more = (chance(ahead, each) for each in sorted(remaining))
    assert less[0] <= more[0]
    for (low, high), probability in ((less[1], less[0]), (more[1], more[0])):
        assert low <= probability <= high
