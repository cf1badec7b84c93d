"""How fast a budget is used up, by windows counted by hand; and the worst of each duty period."""

from collections.abc import Iterable, Mapping

import pytest

from outlay.accounts import Accounts
from outlay.budget import Budget, Share
from outlay.burn import FEWEST, burn, duty, misses
from outlay.report import Burn
from outlay.tabulator import Tabulator
from outlay.units import NS_PER_MS, NS_PER_S, parse_duration
from worlds import accounted, simple

QUEUE, MODEL = "llm/queue.wait", "llm/infer"
SECOND, MINUTE, HOUR = NS_PER_S, 60 * NS_PER_S, 3600 * NS_PER_S

# 100 ns, of which the queue may take 40 and the model 60.
BUDGET = Budget(
    limit_ns=100,
    percentile=99,
    shares=(Share(entry=QUEUE, limit_ns=40, owner="platform"), Share(entry=MODEL, limit_ns=60, owner="model")),
)
FINE = {QUEUE: 30, MODEL: 50}
JUST = {QUEUE: 50, MODEL: 50}  # on the limit is within it
LATE = {QUEUE: 80, MODEL: 60}  # all of it is the queue's
# 30 over: the queue overspent 60 of 90 and the model 30, so two thirds are the queue's.
BOTH = {QUEUE: 100, MODEL: 90}


def accounts_of(rows: Iterable[tuple[int, Mapping[str, int] | None]], weight: int = 1) -> Accounts:
    """Rows of a start and the entries, None for a failure."""
    table = Tabulator()
    for number, (start_ns, entries) in enumerate(rows):
        if entries is None:
            table.add_failed(simple(f"i{number}", 0, start_ns=start_ns, outcome="timeout", weight=weight))
        else:
            total_ns = sum(entries.values())
            table.add(accounted(f"i{number}", total_ns, start_ns=start_ns, shares=dict(entries), weight=weight))
    return table.accounts()


def by_owner(lines: Iterable[Burn]) -> dict[str | None, Burn]:
    return {line.owner: line for line in lines}


def test_windows_end_at_the_last_interaction_and_hold_what_began_in_them() -> None:
    # One a second for an hour, 3600 in all; every tenth of the last 300 is late, so also the last: 30.
    rows = [(second * SECOND, LATE if second >= 3300 and second % 10 == 9 else FINE) for second in range(3600)]
    (everybody, platform) = burn(accounts_of(rows), BUDGET, {})
    # 30 of 300 is 10 %, ten times what is allowed; 30 of the last 1800 is 1.67 %; 30 of 3600 is 0.83 %.
    rates = {"5m": 10, "30m": 30 / 18, "1h": 30 / 36, "6h": 30 / 36, "3d": 30 / 36}
    assert everybody.rates == pytest.approx(rates)
    assert (platform.owner, platform.rates) == ("platform", everybody.rates)


def test_a_window_leaves_out_what_began_at_its_very_begin() -> None:
    rows = [(0, LATE), *[(5 * MINUTE, FINE)] * 300]
    (everybody, *_) = burn(accounts_of(rows), BUDGET, {})
    # 1 of 301 in half an hour, against 1 %
    assert (everybody.rates["5m"], everybody.rates["30m"]) == (0, pytest.approx(100 / 301))


def test_windows_may_end_at_an_instant_given_and_see_nothing_after_it() -> None:
    rows = [(second * SECOND, FINE if second < 600 else LATE) for second in range(1200)]
    (everybody, *_) = burn(accounts_of(rows), BUDGET, {}, now_ns=599 * SECOND)
    assert everybody.rates["30m"] == 0
    (later, *_) = burn(accounts_of(rows), BUDGET, {}, now_ns=10 * HOUR)
    assert {name: rate for name, rate in later.rates.items() if rate is not None} == {"3d": pytest.approx(50)}


def test_each_owner_burns_by_his_part_of_the_blame_and_failures_are_everybody_s() -> None:
    rows = [*[(1, FINE)] * 390, *[(1, LATE)] * 2, *[(1, BOTH)] * 3, *[(1, None)] * 5]
    lines = by_owner(burn(accounts_of(rows), BUDGET, {}))
    # Of 400: 10 late or failed; the platform 2 and two thirds of 3, the model one third of 3.
    assert {owner: line.rates["1h"] for owner, line in lines.items()} == pytest.approx(
        {None: 10 / 4, "platform": 4 / 4, "model": 1 / 4}
    )


def test_owners_come_after_everybody_fastest_first_and_those_without_blame_not_at_all() -> None:
    rows = [*[(1, FINE)] * 299, (1, JUST), (1, {QUEUE: 40, MODEL: 70}), *[(1, LATE)] * 2]
    assert [line.owner for line in burn(accounts_of(rows), BUDGET, {})] == [None, "platform", "model"]
    assert [line.owner for line in burn(accounts_of(rows[:300]), BUDGET, {})] == [None]


def test_what_nobody_answers_for_is_everybody_s_alone() -> None:
    rows = [*[(1, FINE)] * 300, (1, {QUEUE: 40, "app/route": 100})]
    assert [line.owner for line in burn(accounts_of(rows), BUDGET, {})] == [None]


def test_a_share_passed_in_counts_where_none_is_declared() -> None:
    shares = (Share(entry=QUEUE, limit_ns=None, owner="platform"), Share(entry=MODEL, limit_ns=None, owner="model"))
    budget = Budget(limit_ns=100, percentile=99, shares=shares)
    rows = [*[(1, FINE)] * 300, (1, LATE)]
    assert [line.owner for line in burn(accounts_of(rows), budget, {QUEUE: 40, MODEL: 60})] == [None, "platform"]


@pytest.mark.parametrize(("n", "decided"), [(FEWEST - 1, False), (FEWEST, True)])
def test_fewer_than_299_in_a_window_decide_nothing(n: int, decided: bool) -> None:
    (everybody, *_) = burn(accounts_of([(1, LATE)] * n), BUDGET, {})
    assert FEWEST == 299
    # All late is a hundred times what is allowed.
    assert everybody.rates == {
        name: pytest.approx(100) if decided else None for name in ("5m", "30m", "1h", "6h", "3d")
    }
    assert everybody.alert == ("page" if decided else None)


def test_weights_count_in_the_rate_and_not_in_how_many_were_seen() -> None:
    rows = [*[(1, FINE)] * 297, (1, LATE), (1, LATE)]
    (everybody, *_) = burn(accounts_of(rows, weight=10), BUDGET, {})
    assert everybody.rates["1h"] == pytest.approx(200 / 299)
    (few, *_) = burn(accounts_of(rows[1:], weight=10), BUDGET, {})
    assert few.rates["1h"] is None


# Late ones of 1000 in each stretch: the last 5 minutes, from there to half an hour, to 1 hour, to 6 hours, to 3 days.
AGES = (0, 10 * MINUTE, 45 * MINUTE, 3 * HOUR, 50 * HOUR)


@pytest.mark.parametrize(
    ("late", "alert"),
    [
        ((0, 0, 0, 0, 0), None),
        # 5 minutes at 50, an hour at 16.7: above 14.4 both
        ((500, 0, 0, 0, 0), "page"),
        # 5 minutes at 40, an hour at 13.3: too slow for that; half an hour at 20, but 6 hours at 10: above 6 both
        ((400, 0, 0, 0, 0), "page"),
        # an hour at 16.7 that is over: 5 minutes at 0; half an hour at 25, 6 hours at 12.5
        ((0, 500, 0, 0, 0), "page"),
        # the same but earlier: half an hour at 0; 6 hours at 12.5 and 3 days at 10, above 1
        ((0, 0, 500, 0, 0), "ticket"),
        # 6 hours at 0: it is over
        ((0, 0, 0, 0, 500), None),
        # exactly what is allowed: 10 of 1000 everywhere
        ((10, 10, 10, 10, 10), None),
        # a bit more, everywhere
        ((11, 11, 11, 11, 11), "ticket"),
    ],
)
def test_an_alert_needs_both_of_its_windows(late: tuple[int, ...], alert: str | None) -> None:
    rows = [
        (100 * HOUR - age_ns, LATE if number < slow else FINE)
        for age_ns, slow in zip(AGES, late, strict=True)
        for number in range(1000)
    ]
    (everybody, *_) = burn(accounts_of(rows), BUDGET, {})
    assert everybody.alert == alert


def test_nothing_burns_nothing() -> None:
    assert burn(Tabulator().accounts(), BUDGET, {}) == ()


# Duty periods

PERIOD = 10 * SECOND


def test_a_period_is_judged_by_its_slowest() -> None:
    # Periods begin with the first interaction: [1, 11), [11, 21), [21, 31), and one that has not ended.
    rows = [(1, FINE), (10, LATE), (10, LATE), (11, FINE), (20, JUST), (30, BOTH), (31, FINE)]
    found = duty(accounts_of([(start * SECOND, entries) for start, entries in rows]), BUDGET, PERIOD)
    assert found is not None
    assert (found.period_ns, found.periods, found.over, found.worst_ns) == (PERIOD, 3, 2, 190)


def test_of_a_period_that_nobody_saw_nothing_is_said() -> None:
    rows = [(0, FINE), (45 * SECOND, FINE), (50 * SECOND, LATE)]
    found = duty(accounts_of(rows), BUDGET, PERIOD)
    assert found is not None
    # [0, 10) and [40, 50) were seen whole; the late one is in a period that goes on, and is the worst all the same.
    assert (found.periods, found.over, found.worst_ns) == (2, 0, 140)


def test_a_failure_took_for_ever() -> None:
    found = duty(accounts_of([(0, FINE), (5 * SECOND, None), (12 * SECOND, FINE)]), BUDGET, PERIOD)
    assert found is not None
    assert (found.periods, found.over, found.worst_ns) == (1, 1, float("inf"))


def test_data_shorter_than_a_period_holds_no_whole_one() -> None:
    found = duty(accounts_of([(0, FINE), (9 * SECOND, LATE)]), BUDGET, PERIOD)
    assert found is not None
    assert (found.periods, found.over) == (0, 0)


def test_no_interactions_have_no_worst_and_a_period_takes_time() -> None:
    assert duty(Tabulator().accounts(), BUDGET, PERIOD) is None
    with pytest.raises(ValueError, match="duty period must be above 0"):
        duty(accounts_of([(0, FINE)]), BUDGET, 0)
    with pytest.raises(ValueError, match="duty period must be above 0"):
        Budget(limit_ns=1, percentile=99, duty_period_ns=0)


def test_a_percentile_says_how_often_it_may_be_missed() -> None:
    # A frame every 66.667 ms: 15 a second, and one in a hundred of those is one every 6.67 s, as in the preset.
    frames = accounts_of([(round(number * 200 * NS_PER_MS / 3), FINE) for number in range(301)])
    assert misses(frames, 99) == "at 15 a second, a p99 miss comes every 6.67 s"
    assert misses(frames, 99.9) == "at 15 a second, a p99.9 miss comes every 66.7 s"


@pytest.mark.parametrize("rows", [[], [(1, FINE)], [(1, FINE), (1, FINE)], [(1, None), (parse_duration("1s"), None)]])
def test_without_a_rate_it_says_nothing(rows: list[tuple[int, Mapping[str, int] | None]]) -> None:
    assert misses(accounts_of(rows), 99) is None
