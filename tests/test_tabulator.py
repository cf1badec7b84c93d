"""Accounts as columns: every one while they fit, else the slowest and a fair sample; any split gives the same."""

from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outlay.account import Account
from outlay.accounts import Accounts, Labels, of_columns, sampled, without_edges
from outlay.interaction import Interaction
from outlay.quantiles import weighted_quantiles
from outlay.tabulator import MOST_VALUES, Keep, Tabulator
from worlds import accounted, simple

Item = Account | Interaction


def tabulated(items: list[Item], keep: Keep | None = None) -> Tabulator:
    made = Tabulator(keep)
    for item in items:
        if isinstance(item, Account):
            made.add(item)
        else:
            made.add_failed(item)
    return made


def everything(accounts: Accounts) -> dict[str, Any]:
    """All columns as plain values, NaN as text."""
    rows = np.arange(len(accounts))
    return {
        "start_ns": accounts.start_ns.tolist(),
        "total_ns": accounts.total_ns.tolist(),
        "busy_ns": accounts.busy_ns.tolist(),
        "weights": accounts.weights.tolist(),
        "outcomes": accounts.outcomes.tolist(),
        "entries": accounts.entries,
        "dense": accounts.dense(rows).tolist(),
        "dimensions": {
            name: [labels.values[code] if code >= 0 else None for code in labels.codes]
            for name, labels in accounts.dimensions.items()
        },
        "sizes": {name: list(map(str, values)) for name, values in accounts.sizes.items()},
        "conditions": {name: list(map(str, values)) for name, values in accounts.conditions.items()},
        "complete": accounts.complete,
    }


SHARES = st.dictionaries(
    st.sampled_from(["llm/queue.wait", "llm/infer", "app/unattributed.a->b"]), st.integers(1, 50), min_size=1
)
MORE = st.fixed_dictionaries(
    {
        "dimensions": st.dictionaries(st.sampled_from(["site", "version"]), st.sampled_from(["x", "y", "z"])),
        "sizes": st.dictionaries(st.sampled_from(["input_tokens", "output_tokens"]), st.integers(0, 9)),
        "conditions": st.dictionaries(st.just("queue_depth"), st.floats(0, 9)),
        "weight": st.integers(1, 3),
    }
)


@st.composite
def items(draw: st.DrawFn) -> list[Item]:
    made: list[Item] = []
    for number in range(draw(st.integers(0, 25))):
        shares, more = draw(SHARES), draw(MORE)
        start = draw(st.integers(0, 100))
        if draw(st.booleans()):
            made.append(accounted(f"i{number}", sum(shares.values()), start_ns=start, shares=shares, **more))
        else:
            made.append(simple(f"i{number}", 5, start_ns=start, outcome="error", **more))
    return made


KEEPS = st.builds(Keep, slowest=st.integers(0, 6), sample=st.integers(1, 6), failed=st.integers(1, 6))


@settings(max_examples=150)
@given(items(), KEEPS | st.none(), st.integers(0, 25), st.randoms(use_true_random=False))
def test_any_split_gives_the_same_columns(offered: list[Item], keep: Keep | None, cut: int, random: Random) -> None:
    whole = everything(tabulated(offered, keep).accounts())
    random.shuffle(offered)
    merged = Tabulator(keep)
    for part in (offered[cut:], offered[:cut]):
        merged.merge(tabulated(part, keep))
    found = everything(merged.accounts())
    assert found.pop("weights") == pytest.approx(whole.pop("weights"))
    assert found == whole


@given(items())
def test_every_row_sums_and_stands_for_itself(offered: list[Item]) -> None:
    accounts = tabulated(offered).accounts()
    assert accounts.complete
    assert accounts.dense(np.arange(len(accounts))).sum(axis=1).tolist() == accounts.total_ns.tolist()
    assert sorted(accounts.total_ns[accounts.served].tolist()) == sorted(
        item.total_ns for item in offered if isinstance(item, Account)
    )
    assert accounts.start_ns.tolist() == sorted(accounts.start_ns.tolist())
    for name in accounts.entries:
        column = accounts.dense(np.arange(len(accounts)))[:, accounts.entries.index(name)]
        assert accounts.entry_ns(name).tolist() == column.tolist()


@given(items(), KEEPS)
def test_what_was_not_kept_is_still_counted(offered: list[Item], keep: Keep) -> None:
    accounts = tabulated(offered, keep).accounts()
    weights = [item.interaction.weight if isinstance(item, Account) else item.weight for item in offered]
    assert accounts.count == pytest.approx(sum(weights))


def test_a_sample_is_fair() -> None:
    """Of 1000, the 100 slowest are all there, and 200 others stand for 900: their weighted mean is 450 ± 3 * 17."""
    offered: list[Item] = [accounted(f"i{number}", number, start_ns=number) for number in range(1000)]
    accounts = tabulated(offered, Keep(slowest=100, sample=220)).accounts()
    slow = accounts.total_ns >= 900
    assert slow.sum() == 100
    assert accounts.weights[slow].tolist() == [1.0] * 100
    assert accounts.weights[~slow].sum() == pytest.approx(900)
    mean = np.average(accounts.total_ns[~slow], weights=accounts.weights[~slow])
    assert abs(mean - 450) < 51


@given(items(), items())
def test_a_table_taken_whole_is_as_its_rows(some: list[Item], others: list[Item]) -> None:
    by_rows, at_once = tabulated(some), tabulated(some)
    by_rows.merge(tabulated(others))
    at_once.add_many(tabulated(others).accounts())
    assert everything(at_once.accounts()) == everything(by_rows.accounts())


def test_columns_sum_and_stand_in_order_of_arrival() -> None:
    columns = {"a/infer": np.array([3, 0, 5]), "b/queue": np.array([1, 2, 0])}
    sites = Labels(("x", "y"), np.array([0, 1, -1], dtype=np.int32))
    made = of_columns(columns, start_ns=np.array([30, 10, 20]), dimensions={"site": sites})
    assert (made.start_ns.tolist(), made.total_ns.tolist()) == ([10, 20, 30], [2, 5, 4])
    assert made.dense(np.arange(3)).tolist() == [[0, 2], [5, 0], [3, 1]]
    assert made.dimensions["site"].codes.tolist() == [1, -1, 0]
    assert len(set(made.priorities.tolist())) == 3


def test_a_dimension_of_single_interactions_is_left_out() -> None:
    offered: list[Item] = [
        accounted(f"i{number}", 1, dimensions={"user": f"u{number}", "site": "x"}) for number in range(MOST_VALUES + 1)
    ]
    assert set(tabulated(offered).accounts().dimensions) == {"site"}


def test_edges_fold_by_component() -> None:
    shares = {"app/unattributed.a->b": 3, "app/unattributed.b->c": 4, "llm/infer": 5}
    folded = without_edges(tabulated([accounted("i", 12, shares=shares)]).accounts())
    assert dict(zip(folded.entries, folded.dense(np.array([0]))[0].tolist(), strict=True)) == {
        "app/unattributed": 7,
        "llm/infer": 5,
    }


def test_rows_chosen_keep_their_own() -> None:
    offered: list[Item] = [
        accounted(f"i{n}", n + 3, start_ns=n, shares={"a/infer": n + 1, "b/queue": 2}, dimensions={"site": str(n % 2)})
        for n in range(6)
    ]
    chosen = tabulated(offered).accounts().select(np.array([5, 0]))
    assert chosen.total_ns.tolist() == [8, 3]
    assert chosen.dense(np.arange(2)).tolist() == [[6, 2], [1, 2]]
    assert [chosen.dimensions["site"].values[code] for code in chosen.dimensions["site"].codes] == ["1", "0"]


def test_a_sample_of_what_was_sampled_is_fair_too() -> None:
    """Rows that a hash chose are chosen among again: by the same hash, the p50 and p99 would move."""
    random = np.random.default_rng(1)
    total = random.lognormal(4, 0.5, 40_000)
    columns = {"llm/infer": np.rint(total * 1e6).astype(np.int64)}
    every = of_columns(
        columns, start_ns=np.arange(40_000) * 1000, ids=random.integers(0, 2**63, 40_000).astype(np.uint64)
    )
    table = Tabulator(Keep(slowest=2000, sample=8000))
    table.add_many(every)
    kept = sampled(table.accounts(), 4000)
    assert len(kept) == 4000
    assert kept.count == pytest.approx(40_000)
    found = weighted_quantiles(kept.times_ns, kept.weights, (50, 99))
    assert found.tolist() == pytest.approx(np.quantile(columns["llm/infer"], (0.5, 0.99)).tolist(), rel=0.06)
