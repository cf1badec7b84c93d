"""What a policy is worth over several runs, and which of them is best.

Every policy meets the same users at the same times, seed by seed, so policies are compared by their differences within
a seed: the spread of those is small, that of the seeds themselves is not. Intervals are 95 % ones of Student's t over
seeds; of a single seed there is none, and nothing is called better. Failures, refusals and deferrals count as never.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import t as student_t

from outlay.calibration import Promise, Reliability, reliability
from outlay.sketch import nearest_rank
from outlay.trial import Result, Run
from outlay.units import NS_PER_S

LEVELS = (50.0, 95.0, 99.0, 99.9)
ORACLE = "oracle"
# Promises that came due this close together depend on each other.
_CLUSTER_NS = 10 * NS_PER_S

Interval = tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class MomentStanding:
    """One moment under one policy. `all_ns` are the percentiles of LEVELS over all interactions, infinity where they
    never come; `served_ns` those of the served ones alone, None when none was.
    """

    moment: str
    n: int
    on_time: float
    interval: Interval | None
    all_ns: tuple[float, ...]
    served_ns: tuple[float, ...] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """One policy over all its seeds. Shares are of all interactions, unless said otherwise.

    lower: served by less than the best quality there was. quality: mean of the served ones, None when none was.
    worth: mean of the quality of those on time, others counting 0. extra: attempts beyond one for each that was
    served at all, per interaction. cost: what the servers' working time costs, per 1000 interactions. regret: how much
    larger the oracle's on-time share is, by seed, None where no oracle ran. reliability: of promises, None without.
    """

    policy: str
    seeds: tuple[int, ...]
    n: int
    on_time: float
    interval: Interval | None
    by_seed: tuple[float, ...]
    moments: tuple[MomentStanding, ...]
    refused: float
    deferred: float
    failed: float
    lower: float
    shortened: float
    quality: float | None
    worth: float
    extra: float
    cost: float
    alarms: Mapping[str, int]
    regret: float | None
    regret_interval: Interval | None
    reliability: Reliability | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranking:
    """`best` has the largest on-time share among rivals; `tied` are those that no difference was shown from, the best
    one included. `decided` is False when a single seed shows nothing.
    """

    best: str
    tied: tuple[str, ...]
    decided: bool


def standings(runs: Sequence[Run], price_per_s: Mapping[str, float]) -> tuple[Standing, ...]:
    """One for each policy, in the order in which they come. Raises ValueError for a policy with a seed twice."""
    by_policy: dict[str, list[Run]] = {}
    for run in runs:
        by_policy.setdefault(run.policy, []).append(run)
    oracle = {run.seed: _share(run.results) for run in by_policy.get(ORACLE, ())}
    best_quality = max((result.quality for run in runs for result in run.results), default=0.0)
    return tuple(_standing(name, mine, oracle, best_quality, price_per_s) for name, mine in by_policy.items())


def rank(found: Sequence[Standing], rivals: Sequence[str] | None = None) -> Ranking | None:
    """Who is best of `rivals` (all but the oracle, when None is given), over the seeds that all of them ran.

    None when there are fewer than two.
    """
    field = [each for each in found if (each.policy != ORACLE if rivals is None else each.policy in rivals)]
    if len(field) < 2:
        return None
    seeds = sorted(set.intersection(*(set(each.seeds) for each in field)))
    shares = {each.policy: [dict(zip(each.seeds, each.by_seed, strict=True))[seed] for seed in seeds] for each in field}
    best = max(shares, key=lambda name: (np.mean(shares[name]), name == field[0].policy))
    tied = [name for name, own in shares.items() if name == best or _no_difference(shares[best], own)]
    return Ranking(best=best, tied=tuple(tied), decided=len(seeds) > 1)


def _no_difference(best: Sequence[float], other: Sequence[float]) -> bool:
    within = _interval([one - two for one, two in zip(best, other, strict=True)])
    return within is None or within[0] <= 0.0


def _standing(
    policy: str, runs: Sequence[Run], oracle: Mapping[int, float], best_quality: float, price_per_s: Mapping[str, float]
) -> Standing:
    seeds = tuple(run.seed for run in runs)
    if len(set(seeds)) < len(seeds):
        raise ValueError(f"{policy} ran a seed twice")
    results = [result for run in runs for result in run.results]
    by_seed = tuple(_share(run.results) for run in runs)
    served = [result for result in results if result.outcome == "ok"]
    regrets = [oracle[seed] - share for seed, share in zip(seeds, by_seed, strict=True) if seed in oracle]
    alarms: Counter[str] = Counter()
    for run in runs:
        alarms.update(run.alarms)
    count = max(len(results), 1)
    spent = sum(seconds * price_per_s.get(target, 0.0) for run in runs for target, seconds in run.spent_s.items())
    started = sum(result.attempts > 0 for result in results)
    return Standing(
        policy=policy,
        seeds=seeds,
        n=len(results),
        on_time=_share(results),
        interval=_interval(by_seed),
        by_seed=by_seed,
        moments=_moments(runs),
        refused=sum(result.outcome == "refused" and not result.deferred for result in results) / count,
        deferred=sum(result.deferred for result in results) / count,
        failed=sum(result.outcome not in ("ok", "refused") for result in results) / count,
        lower=sum(result.quality < best_quality for result in served) / count,
        shortened=sum(result.shortened for result in served) / count,
        quality=float(np.mean([result.quality for result in served])) if served else None,
        worth=sum(result.quality for result in results if result.on_time) / count,
        extra=(sum(result.attempts for result in results) - started) / count,
        cost=1000.0 * spent / count,
        alarms=dict(alarms),
        regret=float(np.mean(regrets)) if regrets and policy != ORACLE else None,
        regret_interval=_interval(regrets) if policy != ORACLE else None,
        reliability=reliability(_promises(runs)),
    )


def _promises(runs: Sequence[Run]) -> list[Promise]:
    return [
        Promise(p=result.p_on_time, came_true=result.on_time, cluster=(run.seed, result.at_ns // _CLUSTER_NS))
        for run in runs
        for result in run.results
        if result.p_on_time is not None
    ]


def _moments(runs: Sequence[Run]) -> tuple[MomentStanding, ...]:
    names = dict.fromkeys(result.moment for run in runs for result in run.results)
    return tuple(
        _moment(name, [[each for each in run.results if each.moment == name] for run in runs]) for name in names
    )


def _moment(name: str, by_run: Sequence[Sequence[Result]]) -> MomentStanding:
    results = [result for own in by_run for result in own]
    served = sorted(result.total_ns for result in results if result.total_ns is not None)
    whole = [*served, *[math.inf] * (len(results) - len(served))]
    return MomentStanding(
        moment=name,
        n=len(results),
        on_time=_share(results),
        interval=_interval([_share(own) for own in by_run if own]),
        all_ns=_percentiles(whole),
        served_ns=_percentiles(served) if served else None,
    )


def _percentiles(ordered: Sequence[float]) -> tuple[float, ...]:
    ranks = (nearest_rank(level / 100, len(ordered)) for level in LEVELS)
    return tuple(math.inf if place is None else float(ordered[place - 1]) for place in ranks)


def _share(results: Sequence[Result]) -> float:
    return sum(result.on_time for result in results) / len(results) if results else 0.0


def _interval(values: Sequence[float]) -> Interval | None:
    """Student's t over seeds; None of fewer than two."""
    if len(values) < 2:
        return None
    half = float(student_t.ppf(0.975, len(values) - 1)) * float(np.std(values, ddof=1)) / math.sqrt(len(values))
    middle = float(np.mean(values))
    return middle - half, middle + half
