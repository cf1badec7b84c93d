"""One limit split among all that spend it: shares that add up, floors that are kept, and what cannot be."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outlay.accounts import Accounts
from outlay.allocation import Allocated, Allocation, allocate, apportion
from outlay.budget import Budget, Share
from outlay.tabulator import Keep, Tabulator
from outlay.units import NS_PER_MS
from worlds import accounted, simple

UPLINK, QUEUE, MODEL, HOLD = "client/uplink", "llm/queue.wait", "llm/infer", "vad/hold"


def accounts_of(rows: Sequence[Mapping[str, int]], failed: int = 0, keep: Keep | None = None) -> Accounts:
    """Accounts of so many milliseconds an entry."""
    table = Tabulator(keep)
    for number, entries in enumerate(rows):
        shares = {name: round(value * NS_PER_MS) for name, value in entries.items()}
        table.add(accounted(f"i{number}", sum(shares.values()), start_ns=number, shares=shares))
    for number in range(failed):
        table.add_failed(simple(f"f{number}", 0, start_ns=number, outcome="error"))
    return table.accounts()


def budget(limit_ms: int, *shares: Share, percentile: float = 99) -> Budget:
    return Budget(limit_ns=limit_ms * NS_PER_MS, percentile=percentile, shares=shares)


def ms(found: Allocation) -> dict[str, float | None]:
    return {each.entry: None if each.share_ns is None else each.share_ns / NS_PER_MS for each in found.entries}


def entry(found: Allocation, name: str) -> Allocated:
    (wanted,) = (each for each in found.entries if each.entry == name)
    return wanted


# Every interaction alike: 100 ms on the way of which nothing can be saved, 60 ms queue, 240 ms model.
ALIKE = [{UPLINK: 100, QUEUE: 60, MODEL: 240}] * 300


def test_floors_come_first_and_the_rest_goes_by_time_above_them() -> None:
    # 800 - 100 are left for the queue and the model, which spend 60 and 240: 140 and 560.
    found = allocate(accounts_of(ALIKE), budget(800))
    assert ms(found) == {UPLINK: 100, QUEUE: 140, MODEL: 560}
    assert [each.floor_ns for each in found.entries] == [100 * NS_PER_MS, 0, 0]
    assert (found.unassigned_ns, found.short_ns, found.why) == (0, 0, None)
    assert not any(each.exceeds for each in found.entries)


def test_what_the_budget_grants_stays_and_owners_do_too() -> None:
    shares = (
        Share(entry="llm/queue*", limit_ns=30 * NS_PER_MS, owner="platform"),
        Share(entry="llm/*", limit_ns=None, owner="model"),
    )
    found = allocate(accounts_of(ALIKE), budget(500, *shares))
    # The path keeps its floor of 100, and the model gets all that is left: 500 - 30 - 100.
    assert ms(found) == {"llm/queue*": 30, "llm/*": 370, UPLINK: 100}
    assert [(each.owner, each.fixed) for each in found.entries] == [("platform", True), ("model", False), (None, False)]
    # It spends 60 now, of the 30 that are granted.
    assert [each.entry for each in found.entries if each.exceeds] == ["llm/queue*"]


def test_where_all_is_granted_what_is_left_stays_unassigned() -> None:
    shares = (Share(entry="llm/*", limit_ns=300 * NS_PER_MS), Share(entry="client/*", limit_ns=120 * NS_PER_MS))
    found = allocate(accounts_of(ALIKE), budget(500, *shares))
    assert (ms(found), found.unassigned_ns) == ({"llm/*": 300, "client/*": 120}, 80 * NS_PER_MS)


def test_a_share_that_the_data_has_nothing_of_gets_nothing() -> None:
    found = allocate(accounts_of(ALIKE), budget(800, Share(entry="asr/*", limit_ns=None, owner="voice")))
    asr = entry(found, "asr/*")
    assert (asr.share_ns, asr.typical_ns, asr.tail_ns, asr.exceeds) == (None, None, None, False)
    assert sum(found.shares_ns.values()) == 800 * NS_PER_MS


@pytest.mark.parametrize(
    ("limit_ms", "shares", "short_ms", "said"),
    [
        # 100 for the path, and 90 is the limit
        (90, (), 10, "the floors (client/uplink 100 ms) exceed the limit of 90.0 ms by 10.0 ms"),
        # 100 for the path and 150 granted, of 200
        (
            200,
            (Share(entry="llm/*", limit_ns=150 * NS_PER_MS),),
            50,
            "the fixed shares (llm/* 150 ms) and the floors (client/uplink 100 ms) "
            "exceed the limit of 200 ms by 50.0 ms",
        ),
    ],
)
def test_a_limit_that_is_too_short_is_said_with_by_how_much(
    limit_ms: int, shares: tuple[Share, ...], short_ms: int, said: str
) -> None:
    found = allocate(accounts_of(ALIKE), budget(limit_ms, *shares))
    assert (found.short_ns, found.why) == (short_ms * NS_PER_MS, said)
    assert [each.share_ns for each in found.entries if not each.fixed] == [None] * (3 - 2 * len(shares))


def test_shares_beyond_the_limit_make_no_budget() -> None:
    shares = (Share(entry="llm/*", limit_ns=150 * NS_PER_MS), Share(entry="tts/*", limit_ns=70 * NS_PER_MS))
    with pytest.raises(ValueError, match=r"llm/\* 150 ms, tts/\* 70.0 ms\) exceed the limit of 200 ms by 20.0 ms"):
        budget(200, *shares)


def test_the_floor_is_the_first_percentile_of_those_that_have_it() -> None:
    # 400 have a path of 50, 51, ... 449 ms, and 100 have none: the 1st percentile of 400 is the fourth, 53.
    rows = [{UPLINK: 50 + number, MODEL: 1000} for number in range(400)] + [{MODEL: 1}] * 100
    assert entry(allocate(accounts_of(rows), budget(2000)), UPLINK).floor_ns == 53 * NS_PER_MS


@pytest.mark.parametrize(
    ("name", "floor_ms"),
    [
        ("client/uplink.floor", 40),
        ("llm/downlink", 40),
        ("client/render", 40),
        (HOLD, 40),
        ("client/uplink.excess", 0),
        ("llm/queue.wait", 0),
        ("app/unattributed.a->b", 0),
        ("client/capture..encode", 40),  # all of it is the device
        ("client/uplink..queue", 0),  # part of it is a queue
    ],
)
def test_distance_devices_and_settings_have_a_floor(name: str, floor_ms: int) -> None:
    found = allocate(accounts_of([{name: 40, MODEL: 100}] * 300), budget(500))
    assert entry(found, budget(500).group_of(name)).floor_ns == floor_ms * NS_PER_MS


def test_what_most_do_without_has_no_floor() -> None:
    # A handshake in 120 of 300: the others show that it can be saved.
    rows = [{"client/uplink.tls": 80, MODEL: 100}] * 120 + [{MODEL: 100}] * 180
    assert entry(allocate(accounts_of(rows), budget(500)), "client/uplink.tls").floor_ns == 0


def test_shares_follow_who_fills_the_percentile_and_not_who_is_slow_elsewhere() -> None:
    """The queue makes the p99 and a cold start what lies beyond: it gets none of the limit."""
    body = [{MODEL: 100 + number / 100, QUEUE: 1} for number in range(970)]
    near = [{MODEL: 110, QUEUE: 300 + number} for number in range(26)]
    beyond = [{MODEL: 110, "llm/queue.cold_start": 9000 + number} for number in range(4)]
    found = allocate(accounts_of([*body, *near, *beyond]), budget(450))
    # Of 1000 the p99 is the 990th, the 20th of the 26, and near it are 8 to each side: ranks 982 to 998. Ranks 971 to
    # 996 are queued ones, so that 15 of these are, and two are cold.
    assert found.near == 17
    assert found.tail_ns == (110 + 319) * NS_PER_MS
    spent = {each.entry: each.tail_ns for each in found.entries}
    # Their sums in milliseconds; the times now are scaled so that they sum to 429.
    queued, cold, model = sum(range(311, 326)), 9000 + 9001, 110 * 17
    whole = queued + cold + model
    assert spent[QUEUE] == pytest.approx(429 * NS_PER_MS * queued / whole, rel=1e-6)
    assert found.shares_ns["llm/queue.cold_start"] == pytest.approx(450 * NS_PER_MS * cold / whole, abs=NS_PER_MS)


def test_times_now_sum_to_the_median_and_to_the_percentile() -> None:
    random = np.random.default_rng(3)
    rows = [{UPLINK: 20 + a, QUEUE: b, MODEL: c} for a, b, c in random.exponential(50, (700, 3)).tolist()]
    found = allocate(accounts_of(rows), budget(800))
    totals = sorted(sum(round(value * NS_PER_MS) for value in row.values()) for row in rows)
    # The 350th and the 693rd of 700.
    assert (found.typical_ns, found.tail_ns) == (totals[349], totals[692])
    assert sum(each.typical_ns or 0 for each in found.entries) == found.typical_ns
    assert sum(each.tail_ns or 0 for each in found.entries) == found.tail_ns
    assert found.tail_interval_ns is not None
    assert found.tail_interval_ns[0] < found.tail_ns


def test_typical_is_what_lies_evenly_around_the_median() -> None:
    # Ranks 450 to 550 of 1000 took 449 to 549 ms in the model, 499 in the mean, and 999 in all, as the median did.
    found = allocate(accounts_of([{QUEUE: 500, MODEL: number} for number in range(1000)]), budget(2000))
    assert found.typical_ns == 999 * NS_PER_MS
    assert [each.typical_ns for each in found.entries] == [499 * NS_PER_MS, 500 * NS_PER_MS]


def test_bursts_of_slow_ones_widen_the_interval() -> None:
    times_ms = np.random.default_rng(2).permutation(2000).tolist()
    apart, together = (
        allocate(accounts_of([{MODEL: 1 + time_ms} for time_ms in each]), budget(3000)).tail_interval_ns
        for each in (times_ms, sorted(times_ms, reverse=True))
    )
    assert apart is not None
    assert together is not None
    assert together[0] < apart[0]


def test_failures_push_the_percentile_up_and_out_of_sight() -> None:
    # 5 % fail, so the p99 never comes; the shares go by the slowest there are.
    found = allocate(accounts_of(ALIKE * 2, failed=32), budget(800))
    assert found.tail_ns == float("inf")
    assert sum(each.tail_ns or 0 for each in found.entries) == 400 * NS_PER_MS
    assert sum(found.shares_ns.values()) == 800 * NS_PER_MS


@pytest.mark.parametrize(
    ("rows", "failed", "said"),
    [(ALIKE[:298], 0, "p99 needs 299 interactions, there are 298"), ([], 400, "p99 needs 299 interactions, none gave")],
)
def test_too_few_interactions_are_refused(rows: list[dict[str, int]], failed: int, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        allocate(accounts_of(rows, failed), budget(800))


def test_299_interactions_are_enough_for_a_p99() -> None:
    assert allocate(accounts_of(ALIKE[:299]), budget(800)).n == 299


def test_a_sample_gives_what_all_would() -> None:
    """Where only some are kept, each stands for so many as it must: 20,000 of which 600 are the slowest."""
    random = np.random.default_rng(5)
    rows = [{UPLINK: 30 + a, QUEUE: b} for a, b in random.exponential(40, (20_000, 2)).tolist()]
    whole = allocate(accounts_of(rows), budget(500))
    part = allocate(accounts_of(rows, keep=Keep(slowest=600, sample=2000, failed=10)), budget(500))
    assert (part.n, part.tail_ns) == (whole.n, whole.tail_ns)
    # The body comes from a tenth of them, and fewer rows are near the percentile: a few percent of sampling error.
    assert part.typical_ns == pytest.approx(whole.typical_ns, rel=0.05)
    for each, other in zip(whole.entries, part.entries, strict=True):
        assert other.floor_ns == pytest.approx(each.floor_ns, rel=0.05)
        assert other.share_ns == pytest.approx(each.share_ns, rel=0.1)


def test_edges_that_nobody_named_are_one_group_of_their_component() -> None:
    rows = [{f"app/unattributed.a->b{number}": 100, MODEL: 100} for number in range(300)]
    assert ms(allocate(accounts_of(rows), budget(300))) == {"app/unattributed*": 150, MODEL: 150}


DURATIONS = st.fixed_dictionaries(
    {},
    optional={
        name: st.integers(0, 400) for name in (UPLINK, QUEUE, MODEL, HOLD, "client/render", "a[*]/unattributed.x->y")
    },
)


@settings(max_examples=40, deadline=None)
@given(
    kinds=st.lists(DURATIONS.filter(bool), min_size=1, max_size=6),
    limit_ns=st.integers(1, 2_000_000_000),
    granted=st.lists(st.integers(0, 50), min_size=2, max_size=2),
    percentile=st.sampled_from([50.0, 90.0, 95.0]),
)
def test_shares_sum_to_the_limit_and_hold_their_floors(
    kinds: list[dict[str, int]], limit_ns: int, granted: list[int], percentile: float
) -> None:
    shares = (
        Share(entry="llm/queue*", limit_ns=limit_ns * granted[0] // 100, owner="platform"),
        Share(entry="client/*", limit_ns=limit_ns * granted[1] // 100),
        Share(entry="vad/*", limit_ns=None, owner="product"),
    )
    wanted = Budget(limit_ns=limit_ns, percentile=percentile, shares=shares)
    accounts = accounts_of((kinds * 60)[:60])
    found = allocate(accounts, wanted)
    free = [each for each in found.entries if not each.fixed and each.tail_ns is not None]
    fixed_ns = sum(share.limit_ns or 0 for share in shares)
    assert found.short_ns == max(0, fixed_ns + sum(each.floor_ns for each in free) - limit_ns)
    if found.short_ns:
        assert sum(found.shares_ns.values()) == fixed_ns
        return
    assert sum(found.shares_ns.values()) + found.unassigned_ns == limit_ns
    assert found.unassigned_ns == 0 or not free
    assert all(each.share_ns is not None and each.share_ns >= each.floor_ns for each in free)
    # A budget that takes the shares up groups the same entries, grants the same and leaves nothing to split.
    again = allocate(accounts, replace(wanted, shares=found.shares))
    assert again.shares_ns == found.shares_ns
    assert all(each.fixed for each in again.entries if each.tail_ns is not None)


@settings(deadline=None)
@given(total=st.integers(0, 10**18), weights=st.lists(st.integers(0, 10**18), min_size=1, max_size=20))
def test_parts_sum_and_are_nearest_to_their_proportion(total: int, weights: list[int]) -> None:
    parts = apportion(total, weights)
    assert sum(parts) == total
    if sum(weights):
        assert all(
            abs(part * sum(weights) - total * weight) < sum(weights)
            for part, weight in zip(parts, weights, strict=True)
        )
