"""What policies are worth: calibration and standings of runs whose shares are known."""

import math

import numpy as np
import pytest

from outlay.calibration import Promise, reliability
from outlay.contest import rank, standings
from outlay.trial import Result, Run

MS = 1_000_000


def result(number: int, total_ms: float | None, **changes: object) -> Result:
    plain: dict[str, object] = {
        "id": str(number), "moment": "voice", "path": "uk", "at_ns": number * 1000 * MS, "limit_ns": 100 * MS,
        "outcome": "refused" if total_ms is None else "ok",
        "total_ns": None if total_ms is None else int(total_ms * MS),
        "target": "t", "site": "s", "variant": "v", "quality": 1.0, "rung": 0, "p_on_time": None, "attempts": 1,
    }  # fmt: skip
    return Result(**{**plain, **changes})  # type: ignore[arg-type] - by the names of fields


def run(policy: str, seed: int, totals: list[float | None], **changes: object) -> Run:
    results = tuple(result(number, total, **changes) for number, total in enumerate(totals))
    return Run(world="w", policy=policy, seed=seed, results=results, spent_s={"t": 2.0})


def test_promises_that_are_kept_as_often_as_they_say_hold() -> None:
    random = np.random.default_rng(1)
    p = random.uniform(0, 1, 20_000)
    found = reliability(Promise(p=float(each), came_true=bool(random.random() < each)) for each in p)
    assert found is not None
    assert found.error < 0.015
    assert sum(each.holds for each in found.deciles) >= 9
    # The mean of p (1 - p) over 0 to 1 is 1/6.
    assert found.brier == pytest.approx(1 / 6, abs=0.01)


def test_promises_that_are_too_good_are_found_out() -> None:
    random = np.random.default_rng(2)
    found = reliability(Promise(p=0.95, came_true=bool(random.random() < 0.8)) for _ in range(2000))
    assert found is not None
    (only,) = found.deciles
    assert not only.holds
    assert found.error == pytest.approx(0.15, abs=0.03)


def test_what_stands_or_falls_together_is_worth_less() -> None:
    random = np.random.default_rng(3)
    fates = random.random(50) < 0.9
    alone = reliability(Promise(p=0.9, came_true=bool(fates[place % 50])) for place in range(5000))
    together = reliability(
        Promise(p=0.9, came_true=bool(fates[place % 50]), cluster=place % 50) for place in range(5000)
    )
    assert alone is not None
    assert together is not None

    def width(found: object) -> float:
        low, high = found.deciles[0].interval  # type: ignore[attr-defined] - a Reliability
        return float(high - low)

    # 100 outcomes share a fate: intervals are about sqrt(100) times as wide.
    assert width(together) == pytest.approx(10 * width(alone), rel=0.35)


def test_no_promises_are_no_reliability_and_impossible_ones_are_refused() -> None:
    assert reliability([]) is None
    with pytest.raises(ValueError, match="between 0 and 1"):
        reliability([Promise(p=1.2, came_true=True)])


def test_a_standing_counts_everything_that_did_not_come_in_time() -> None:
    # 50 on time, 30 late, 20 refused.
    totals: list[float | None] = [50.0] * 50 + [200.0] * 30 + [None] * 20
    (standing,) = standings([run("p", 1, totals)], {"t": 0.5})
    assert (standing.n, standing.on_time, standing.refused) == (100, 0.5, 0.2)
    assert standing.interval is None
    assert standing.cost == pytest.approx(1000 * 2.0 * 0.5 / 100)
    (voice,) = standing.moments
    assert voice.all_ns == (50 * MS, math.inf, math.inf, math.inf)
    assert voice.served_ns is not None
    assert voice.served_ns[0] == 50 * MS


def test_attempts_beyond_the_first_are_extra_and_quality_is_of_the_served() -> None:
    runs = [run("a", 1, [10.0] * 10, attempts=2, quality=0.5), run("b", 1, [10.0] * 10)]
    first, second = standings(runs, {})
    assert (first.extra, first.quality, first.lower, first.worth) == (1.0, 0.5, 1.0, 0.5)
    assert (second.extra, second.lower) == (0.0, 0.0)


def test_differences_within_seeds_decide_where_the_seeds_themselves_vary() -> None:
    """Seeds lie 40 points apart, policies two points within each."""
    runs = []
    for seed, good in enumerate((30, 50, 70, 40, 60)):
        runs.append(run("better", seed, [10.0] * (good + 2) + [None] * (98 - good)))
        runs.append(run("worse", seed, [10.0] * good + [None] * (100 - good)))
    found = standings(runs, {})
    ranking = rank(found)
    assert ranking is not None
    assert (ranking.best, ranking.tied, ranking.decided) == ("better", ("better",), True)
    assert found[0].interval is not None
    assert found[0].interval[1] - found[0].interval[0] > 0.2


def test_a_single_seed_decides_nothing_and_the_oracle_is_no_rival() -> None:
    runs = [run("a", 1, [10.0] * 9 + [None]), run("b", 1, [10.0] * 8 + [None] * 2), run("oracle", 1, [10.0] * 10)]
    found = standings(runs, {})
    ranking = rank(found)
    assert ranking is not None
    assert (ranking.best, ranking.tied, ranking.decided) == ("a", ("a", "b"), False)
    assert [each.regret for each in found] == [pytest.approx(0.1), pytest.approx(0.2), None]


def test_a_seed_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="a seed twice"):
        standings([run("a", 1, [10.0]), run("a", 1, [10.0])], {})
