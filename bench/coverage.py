"""Do 95 % intervals hold the truth 95 times in 100? Every interval of the tail's explanation, 500 times each.

    ./dev bench coverage                   # 500 repetitions, about ten minutes on two cores
    ./dev bench coverage --repetitions 50

Each repetition draws a new world, independent or with a lag-1 correlation of 0.8 in the logarithm of its queueing, and
asks whether the interval holds what a million interactions of the same world show.
"""

import argparse
import os
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from numpy.typing import NDArray

from outlay.accounts import Accounts, Labels, of_columns
from outlay.attribution import attribute
from outlay.change import parse_change
from outlay.drivers import drivers
from outlay.replay import Replay
from outlay.shifts import shifts
from outlay.slices import slices
from outlay.whatif import what_if

MS = 1_000_000
N = 6000
CORRELATIONS = (0.0, 0.8)
TRUTH_FROM = 1_000_000
Floats = NDArray[np.float64]


def correlated(random: np.random.Generator, n: int, correlation: float) -> Floats:
    """Standard normal numbers of which neighbours correlate so much."""
    from scipy.signal import lfilter

    steps = random.normal(size=n)
    steps[1:] *= np.sqrt(1 - correlation**2)
    made: Floats = lfilter([1.0], [1.0, -correlation], steps)
    return made


def world(seed: int, n: int, correlation: float) -> Accounts:
    """Queueing in bursts, a model whose time follows the prompt, a far site, a slower and wordier new version."""
    random = np.random.default_rng(seed)
    bursts = correlated(random, n, correlation)
    far = random.random(n) < 0.3
    new = random.random(n) < 0.5
    tokens = np.where(random.random(n) < np.where(new, 0.3, 0.1), 1500.0, 400.0)
    waiting = np.exp(3.5 + 0.8 * bursts)
    ms = {
        "client/uplink": np.where(far, 60.0, 10.0) + random.exponential(5, n),
        "llm/queue.wait": waiting,
        "llm/infer": tokens / 20 * random.lognormal(0, 0.2, n) + 15.0 * new,
    }
    names = ("near", "far"), ("1.4", "1.5")
    return of_columns(
        {name: np.rint(values * MS).astype(np.int64) for name, values in ms.items()},
        start_ns=np.arange(n) * 20 * MS,
        ids=random.integers(0, 2**63, n).astype(np.uint64) * np.uint64(2),
        dimensions={
            "site": Labels(names[0], far.astype(np.int32)),
            "version": Labels(names[1], new.astype(np.int32)),
        },
        sizes={"input_tokens": tokens},
        conditions={"queue_depth": np.rint(waiting / 5 + random.exponential(1, n))},
    )


Interval = tuple[float, float]
Estimates = dict[str, tuple[float, Interval | None]]


def estimates(accounts: Accounts) -> Estimates:
    """Every number with an interval, by name."""
    found: Estimates = {}
    level = 99.0
    tail = attribute(accounts, level)
    for entry in ("llm/queue.wait", "llm/infer"):
        for name, group in (("fills", tail.fills), ("excess", tail.excess), ("sets", tail.sets)):
            found[f"{name} {entry}"] = (float(group.entries.get(entry, 0)), group.intervals_ns.get(entry))
    replay = Replay.serial(accounts)
    for text in ("queue=0", "infer=x0.5"):
        for recovery in what_if(replay, (parse_change(text),), (50.0, 95.0, 99.0)).recovers:
            found[f"what-if {text} p{recovery.level:g}"] = (recovery.saved_ns, recovery.interval_ns)
    for each in slices(accounts, 95.0):
        if (each.dimension, each.value) == ("site", "far") and each.effect_ns is not None:
            found["slice site=far p95"] = (each.effect_ns, each.effect_interval_ns)
    for shift in shifts(accounts, 95.0):
        if shift.dimension == "version" and shift.old == "1.4":
            found["shift version p95"] = (shift.version_ns, shift.version_interval_ns)
            found["shift shapes p95"] = (shift.shape_ns, shift.shape_interval_ns)
    for driver in drivers(accounts, 90.0):
        found[f"driver {driver.name}"] = (driver.effect_ns or 0.0, driver.effect_interval_ns)
        found[f"rank correlation {driver.name}"] = (driver.rank_correlation, driver.correlation_interval)
    return found


def repetition(arguments: tuple[int, float]) -> Estimates:
    seed, correlation = arguments
    return estimates(world(seed, N, correlation))


def truths(correlation: float) -> dict[str, float]:
    return {name: value for name, (value, _) in estimates(world(10**6, TRUTH_FROM, correlation)).items()}


# Of a million rows, drivers look at 5,000: there the mean of all repetitions is nearer to the truth.
_BY_MEAN = ("driver ", "rank correlation ")


def table(correlation: float, repetitions: int, run: Callable[..., Iterable[Estimates]]) -> None:
    truth = truths(correlation)
    held: Counter[str] = Counter()
    given: Counter[str] = Counter()
    found = list(run(repetition, [(seed, correlation) for seed in range(repetitions)]))
    for name in {name for each in found for name in each if name.startswith(_BY_MEAN)}:
        truth[name] = float(np.mean([each[name][0] for each in found if name in each]))
    for each in found:
        for name, (_, interval) in each.items():
            if interval is not None and name in truth:
                given[name] += 1
                held[name] += interval[0] <= truth[name] <= interval[1]
    print(f"\nlag-1 correlation {correlation:g}, n = {N:,}, {repetitions} repetitions\n")
    print("| interval of | given | holds the truth |\n| --- | --- | --- |")
    for name in sorted(given):
        print(f"| {name} | {given[name]} | {100 * held[name] / given[name]:.1f} % |")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--repetitions", type=int, default=500)
    options = parser.parse_args()
    with ProcessPoolExecutor() as pool:
        for correlation in CORRELATIONS:
            table(correlation, options.repetitions, pool.map)


if __name__ == "__main__":
    main()
