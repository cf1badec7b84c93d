"""How long a decision takes, alone and with the forecasts that it is made from.

    ./dev bench decide
    ./dev bench decide --decisions 50000

Twenty sites, two variants, one target in ten of which may be cold. After every tenth decision the signals and what was
learned change, outside of what is timed; the first decision after that finds the processor's caches full of other
things, and stands in a column of its own. Beside them a floor: one numpy pass over as many candidates that computes a
mean plus z standard deviations and takes the smallest.
"""

import argparse
import gc
import resource
import sys
import time
from random import Random

import numpy as np

from outlay.decision import decide
from outlay.forecaster import Forecaster
from outlay.policy import Policy, Rules, Rung
from outlay.signals import Signals
from outlay.work import ColdStart, Fleet, Request, Service, Target

MS = 1_000_000
_EVERY = 10
SITES = 20
LADDER = (Rung(name="large", variants=("large",)), Rung(name="small", variants=("small",)))
POLICY = Policy(default=Rules(rungs=LADDER, render_ns=20 * MS))


class Scene:
    """A router's state with so many candidates, moved on by what traffic does."""

    def __init__(self, candidates: int) -> None:
        fast = {"large": 1.0, "small": 5.0}
        self.fleet = Fleet(
            Target(
                name=f"t{place}",
                site=f"s{place % SITES}",
                variant=variant,
                quality=1.0 if variant == "large" else 0.8,
                service=Service(prefill_tokens_per_s=12_000 * fast[variant], step_ns=int(30 * MS / fast[variant])),
                cold=ColdStart(start_ns=(2000 * MS, 3000 * MS), keep_ns=60_000 * MS) if place % 10 == 9 else None,
            )
            for place, variant in enumerate(("large", "small") * (candidates // 2))
        )
        self.random = Random(1)
        self.signals = Signals(self.fleet)
        prior = {("uk", f"s{site}"): (10 + 8 * site) * MS for site in range(SITES)}
        self.forecaster = Forecaster(self.signals, prior_rtt_ns=prior)
        self.usable = np.ones(candidates, dtype=np.bool_)
        self.request = Request(
            id="r", moment="voice", path="uk", input_tokens=700, output_tokens=120, useful_tokens=10, local="s1"
        )
        self.open: list[str] = []
        for number in range(2000):
            self.move(number * MS)

    def move(self, now_ns: int) -> None:
        """A request sent, one answered, one ended, a report, a round trip, an observation."""
        random, target = self.random, int(self.random.random() * len(self.fleet.targets))
        name = f"a{now_ns}"
        self.signals.sent(name, target, 700.0, 120.0, now_ns)
        self.signals.answering(name, now_ns)
        self.open.append(name)
        if len(self.open) > 2 * len(self.fleet.targets):
            self.signals.ended(self.open.pop(0), now_ns)
        self.signals.reported(
            target, {"waiting": int(3 * random.random()), "running": 4, "cache": 0.3}, now_ns, "scrape"
        )
        self.forecaster.network(
            "uk", f"s{target % SITES}", (10 + 8 * (target % SITES)) * MS * (1 + random.random()), now_ns
        )
        expected = self.forecaster.forecasts(self.request, now_ns, self.usable).expectation(target)
        self.forecaster.kept(expected, 0.5 + random.random() / 2, random.random() < 0.9, now_ns)
        self.forecaster.learn(expected, expected.service_ns * random.lognormvariate(0, 0.3), now_ns)


def measure(candidates: int, decisions: int) -> None:
    """One row: percentiles in microseconds of the decision, of the forecasts, and of the floor."""
    scene = Scene(candidates)
    collected: list[int] = []
    gc.callbacks.append(lambda phase, info: collected.append(time.perf_counter_ns()))
    mean, sigma = np.random.default_rng(1).random((2, candidates))
    took: dict[str, list[int]] = {"decide": [], "first": [], "forecasts": [], "floor": []}
    slow_in_collection = slow = 0
    for number in range(decisions):
        now_ns = (2000 + number) * MS
        if number % _EVERY == 0:
            scene.move(now_ns)
        begun = time.perf_counter_ns()
        forecasts = scene.forecaster.forecasts(scene.request, now_ns, scene.usable)
        between = time.perf_counter_ns()
        start = time.perf_counter_ns()
        decide(scene.request, 900 * MS, POLICY, forecasts, now_ns, scene.random.random)
        ended = time.perf_counter_ns()
        (mean + 1.645 * sigma).argmin()
        floor = time.perf_counter_ns()
        took["forecasts"].append(between - begun)
        took["decide" if number % _EVERY else "first"].append(ended - start)
        took["floor"].append(floor - ended)
        if ended - start > 1_000_000:
            slow += 1
            slow_in_collection += any(start <= at <= ended for at in collected[-4:])
    gc.callbacks.clear()
    # Counting blocks walks the whole heap and empties the processor's caches, so what is timed does without.
    before = sys.getallocatedblocks()
    for _ in range(_EVERY):
        decide(scene.request, 900 * MS, POLICY, forecasts, now_ns, scene.random.random)
    blocks = sys.getallocatedblocks() - before
    cells = [str(candidates)]
    for name in ("decide", "first", "forecasts", "floor"):
        p50, p99, p999 = np.percentile(took[name], [50, 99, 99.9]) / 1000
        cells.append(f"{p50:.0f} / {p99:.0f} / {p999:.0f}")
    cells.append(f"{1e9 / float(np.mean(took['decide'])):,.0f}")
    cells.append(f"{slow} ({slow_in_collection} in a collection)")
    cells.append(f"{blocks / _EVERY:.1f}")
    print("| " + " | ".join(cells) + " |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--decisions", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    heads = (
        "candidates",
        "decide p50 / p99 / p99.9, us",
        "after other work",
        "forecasts",
        "floor",
        "decisions a second",
    )
    print("| " + " | ".join((*heads, "over 1 ms", "blocks kept each")) + " |\n" + "|---" * 8 + "|")
    for _ in range(options.rounds):
        for candidates in (8, 32, 128, 256):
            measure(candidates, options.decisions // options.rounds)
    print(f"\nPeak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB", file=sys.stderr)


if __name__ == "__main__":
    main()
