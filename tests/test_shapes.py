"""Shapes: their names, which of them may be compared, and percentiles at another's mix against plain recomputation."""

from collections.abc import Sequence
from itertools import islice

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outlay.accounts import Accounts, Floats, Labels, of_columns
from outlay.interaction import shape
from outlay.shapes import FEWEST_IN_CELL, Cells, cells_of, draw, level_for, longer_ns, shapes_of, side

Sizes = Sequence[dict[str, int]]


def accounts_of(sizes: Sizes) -> Accounts:
    names = {name for each in sizes for name in each}
    columns = {name: np.array([float(each.get(name, np.nan)) for each in sizes]) for name in names}
    n = len(sizes)
    return of_columns({"llm/infer": np.ones(n, dtype=np.int64)}, start_ns=np.arange(n), sizes=columns)


def named(labels: Labels) -> list[str | None]:
    return [labels.values[code] if code >= 0 else None for code in labels.codes.tolist()]


def sized(*buckets: tuple[int, ...], names: tuple[str, ...] = ("output_tokens", "input_tokens")) -> Cells:
    """A cell for each tuple of buckets, without rows."""
    return Cells(names[: len(buckets[0])], np.zeros(0, dtype=np.int32), np.array(buckets))


# Names

some_sizes = st.dictionaries(
    st.sampled_from(["input_tokens", "output_tokens", "images"]),
    st.one_of(st.integers(0, 9), st.integers(2**40 - 1, 2**40 + 1)),
)


@given(st.lists(some_sizes, min_size=1, max_size=20))
def test_shapes_are_named_as_those_of_single_interactions(sizes: Sizes) -> None:
    accounts = accounts_of(sizes)
    assert named(shapes_of(accounts, cells_of(accounts))) == [shape(each) for each in sizes]


def test_a_stated_shape_stands_before_a_derived_one() -> None:
    accounts = accounts_of([{"input_tokens": 5}, {"input_tokens": 5}])
    accounts.dimensions["shape"] = Labels(("chat",), np.array([0, -1], dtype=np.int32))  # type: ignore[index]
    assert named(shapes_of(accounts, cells_of(accounts))) == ["chat", "input_tokens 4+"]


@given(st.lists(some_sizes, min_size=1, max_size=20))
def test_cells_are_equal_where_shapes_are(sizes: Sizes) -> None:
    cells = cells_of(accounts_of(sizes))
    names = [shape(each) for each in sizes]
    assert len(cells) == len(set(names))
    assert all(
        (a == b) == (x == y)
        for a, x in zip(cells.codes, names, strict=True)
        for b, y in zip(cells.codes, names, strict=True)
    )


def test_too_many_cells_are_joined_in_pairs_of_output_buckets_first() -> None:
    """24 x 24 buckets of both sizes: 576 cells; with outputs in pairs 12 x 24 = 288, with inputs too 12 x 12."""
    sizes = [{"input_tokens": 1 << a, "output_tokens": 1 << b} for a in range(24) for b in range(24)]
    cells = cells_of(accounts_of(sizes))
    assert (len(cells), len(cells.coarsened())) == (576, 144)
    # of three sizes 24^3 = 13,824, in pairs 1,728, in fours 6^3 = 216
    more = [each | {"images": 1 << c} for each in sizes for c in range(24)]
    assert len(cells_of(accounts_of(more)).coarsened()) == 216
    few = cells_of(accounts_of(sizes[:240]))
    assert few.coarsened() is few


# Which are compared


@pytest.mark.parametrize(
    ("buckets", "one", "other", "matched"),
    [
        # enough on both sides: as they are
        ([(3,), (4,)], [5, 9], [9, 5], [0, 1]),
        # 3 and 4 are a pair, 4 has too few on one side
        ([(3,), (4,)], [5, 4], [9, 9], [0, 0]),
        # 4 and 5 are none
        ([(4,), (5,)], [9, 4], [9, 9], [0, -1]),
        # what one side lacks is not compared, not even with its neighbour
        ([(3,), (4,)], [9, 0], [9, 9], [0, -1]),
        # unknown, 0 and 1 are no neighbours
        ([(-1,), (0,), (1,)], [4, 4, 4], [9, 9, 9], [-1, -1, -1]),
        # outputs are paired before inputs
        ([(3, 1), (4, 1), (3, 2), (4, 2)], [3, 3, 9, 9], [9, 9, 9, 9], [0, 0, 1, 2]),
        # ... and inputs too where that is not enough
        ([(3, 1), (4, 1), (3, 2), (4, 2)], [2, 2, 9, 9], [9, 9, 9, 9], [0, 0, 0, 0]),
    ],
)
def test_matched_cells(buckets, one, other, matched) -> None:
    """Numbers of cells mean nothing but which are equal: they are compared in order of their first use."""
    found = sized(*buckets).matched(np.array(one), np.array(other)).tolist()
    order = list(dict.fromkeys(cell for cell in found if cell >= 0))
    assert [order.index(cell) if cell >= 0 else -1 for cell in found] == matched


counted = st.lists(
    st.tuples(st.integers(-1, 6), st.integers(-1, 6), st.integers(0, 12), st.integers(0, 12)),
    min_size=1,
    max_size=30,
    unique_by=lambda row: row[:2],
)


@given(counted)
def test_matched_cells_have_enough_on_both_sides(rows: list[tuple[int, int, int, int]]) -> None:
    cells = sized(*(row[:2] for row in rows))
    one, other = (np.array([row[place] for row in rows]) for place in (2, 3))
    matched = cells.matched(one, other)
    kept = matched >= 0
    assert set(matched[kept].tolist()) == set(range(len(set(matched[kept].tolist()))))
    for counts in (one, other):
        assert (counts[kept] > 0).all()
        assert all(counts[matched == cell].sum() >= FEWEST_IN_CELL for cell in set(matched[kept].tolist()))
    # what has enough by itself is always compared
    assert kept[np.minimum(one, other) >= FEWEST_IN_CELL].all()


# Percentiles


def plain(times_ns: Floats, weights: Floats, level: float) -> float:
    """The smallest time with at least so much of the weight at or below it."""
    order = np.argsort(times_ns)
    reached = np.cumsum(weights[order])
    return float(times_ns[order][np.searchsorted(reached, level / 100 * reached[-1] - 1e-6 * weights.mean())])


def like(cells: np.ndarray, weights: Floats, others: np.ndarray, other_weights: Floats) -> Floats:
    """The weights that give each cell as much as it has among others."""
    mine, theirs = (np.bincount(c, weights=w, minlength=3) for c, w in ((cells, weights), (others, other_weights)))
    return weights * np.divide(theirs, mine, out=np.zeros(3), where=mine > 0)[cells]


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from([50.0, 95.0, 99.0]), st.sampled_from([300, 3000]), st.booleans())
def test_percentiles_and_replicates_are_those_of_plain_recomputation(
    seed: int, level: float, n: int, weighted: bool
) -> None:
    random = np.random.default_rng(seed)
    times_ns, cells = np.rint(random.lognormal(10, 1, n)), random.integers(0, 3, n).astype(np.int32)
    weights = random.integers(1, 5, n).astype(np.float64) if weighted else np.ones(n)
    inside = random.random(n) < 0.4
    drawn = draw(weights, times_ns > np.quantile(times_ns, level / 100))
    sides = []
    for flags in (inside, ~inside):
        rows = np.flatnonzero(flags)
        rows = rows[np.argsort(-times_ns[rows])]
        sides.append(side(drawn, rows, times_ns[rows], cells[rows]))
    one, other = sides
    found, replicates = other.percentile(level, one)
    a, b = one.rows, other.rows
    assert found == plain(times_ns[b], like(cells[b], weights[b], cells[a], weights[a]), level)
    for place, factors in islice(enumerate(drawn.blocks.factors()), 0, None, 10):
        each = factors * weights
        again = plain(times_ns[b], like(cells[b], each[b], cells[a], each[a]), level)
        assert replicates[place] == again


def test_replicates_leave_out_rows_only_where_that_does_not_show() -> None:
    """In bursts of 300 the median of 60,000 is ranks apart by the thousand; beside that, every eighth row is enough."""
    random = np.random.default_rng(1)
    burst = np.repeat(random.standard_normal(200), 300)
    times_ns = np.argsort(np.argsort(burst + 0.1 * random.standard_normal(60_000))).astype(np.float64)
    drawn = draw(np.ones(60_000), times_ns > 30_000)
    rows = np.argsort(-times_ns)
    whole = side(drawn, rows, times_ns[rows], np.zeros(60_000, dtype=np.int32))
    found, replicates = whole.percentile(50, whole)
    exact = [plain(times_ns, factors, 50) for factors in islice(drawn.blocks.factors(), 50)]
    assert found == 29_999
    assert np.std(replicates) > 1000
    # sums of about 9,000 ranks by eights: +- sqrt(9,000 x 8) = 270 at most
    assert np.std(replicates[:50] - exact) < 270


def test_a_side_is_worth_all_its_rows_at_its_own_mix_and_fewer_at_another() -> None:
    """90 and 10 rows of two shapes as if they were 50 and 50: (50 + 50)^2 / (90 (5/9)^2 + 10 5^2) = 36."""
    drawn = draw(np.ones(200), np.arange(200) < 2)
    cells = np.repeat([0, 1, 0, 1], [90, 10, 50, 50]).astype(np.int32)
    rows = np.arange(200)
    one, other = (side(drawn, each, -each.astype(float), cells[each]) for each in (rows[:100], rows[100:]))
    assert one.worth(one) == pytest.approx(100)
    assert one.worth(other) == pytest.approx(36)


@pytest.mark.parametrize(
    ("n", "highest", "level"),
    [(58, 99.0, None), (59, 99.0, 95.0), (298, 99.0, 95.0), (299, 99.0, 99.0), (299, 99.9, 99.0), (299, 95.0, 95.0)],
)
def test_the_highest_level_that_a_sample_allows(n: int, highest: float, level: float | None) -> None:
    assert level_for(n, highest) == level


def test_never_is_as_long_as_never() -> None:
    one, other = np.array([np.inf, np.inf, 5.0, 5.0]), np.array([np.inf, 1.0, np.inf, 1.0])
    assert longer_ns(one, other).tolist() == [0.0, np.inf, -np.inf, 4.0]
