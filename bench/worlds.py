"""Every policy in every shipped world: who is on time, how right promises are, what each signal buys.

    ./dev bench worlds                          # 20 seeds, about half an hour on two cores
    ./dev bench worlds --seeds 5 --worlds steady burst

Prints the tables of bench/README.md. A policy is best in a world when no other has a larger mean on-time share; it is
strictly best when the 95 % interval of its difference from every other, seed by seed, lies above 0.
"""

import argparse
import os
import sys
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from outlay.calibration import Promise, Reliability, reliability
from outlay.contest import Standing, rank, standings
from outlay.formats.world import load_world
from outlay.sim.ablation import ABLATIONS
from outlay.sim.policies import ORACLE, POLICIES, RIVALS, try_policy
from outlay.trial import Run
from outlay.world import World

WORLDS = Path(__file__).resolve().parents[1] / "examples" / "worlds"
CLUSTER_NS = 10_000_000_000


def world_of(name: str) -> World:
    """A shipped world by its name."""
    path = WORLDS / f"{name}.yaml"
    return load_world(path.read_bytes(), str(path), lambda data: (WORLDS / data).read_bytes())


def one(world: str, policy: str, seed: int) -> Run:
    """One run, in a process of its own."""
    return try_policy(world_of(world), policy, seed)


def runs(worlds: Sequence[str], policies: Sequence[str], seeds: int) -> dict[str, list[Run]]:
    """All of them, by world."""
    calls = [(world, policy, seed) for world in worlds for policy in policies for seed in range(seeds)]
    found: dict[str, list[Run]] = {world: [] for world in worlds}
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        for done, (call, run) in enumerate(zip(calls, pool.map(one, *zip(*calls, strict=True)), strict=True), start=1):
            found[call[0]].append(run)
            if done % 50 == 0:
                print(f"{done} of {len(calls)} runs", file=sys.stderr, flush=True)
    return found


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """A Markdown table."""
    print("| " + " | ".join(head) + " |")
    print("|" + "---|" * len(head))
    for row in rows:
        print("| " + " | ".join(row) + " |")
    print()


def share(standing: Standing) -> str:
    """`98.9 ±0.3`, in percent."""
    if standing.interval is None:
        return f"{100 * standing.on_time:.1f}"
    return f"{100 * standing.on_time:.1f} ±{50 * (standing.interval[1] - standing.interval[0]):.1f}"


def on_time(found: dict[str, list[Standing]]) -> None:
    """On-time shares: a row a policy, a column a world; bold what no difference from the best was shown from."""
    rows = []
    tied = {world: ranking.tied for world, each in found.items() if (ranking := rank(each, RIVALS)) is not None}
    for policy in [*RIVALS, ORACLE]:
        cells = []
        for world, each in found.items():
            own = next((standing for standing in each if standing.policy == policy), None)
            text = "" if own is None else share(own)
            cells.append(f"**{text}**" if policy in tied.get(world, ()) else text)
        rows.append([policy, *cells])
    table(["on time, %", *found], rows)
    best = [world for world, names in tied.items() if "outlay" in names]
    alone = [world for world, names in tied.items() if names == ("outlay",)]
    print(f"Outlay is best, or no difference was shown, in {len(best)} of {len(tied)}; alone in {len(alone)}.\n")


def beside(found: dict[str, list[Standing]]) -> None:
    """What Outlay's share costs: quality, refusals, extra attempts, and how far the oracle is ahead."""
    rows = []
    for world, each in found.items():
        own = next(standing for standing in each if standing.policy == "outlay")
        regret = "" if own.regret is None else f"{100 * own.regret:+.1f}"
        quality = "" if own.quality is None else f"{own.quality:.3f}"
        shares = (own.lower, own.refused + own.deferred, own.extra)
        rows.append([world, quality, *(f"{100 * value:.1f}" for value in shares), regret])
    table(["Outlay", "quality", "lower, %", "refused or deferred, %", "extra attempts, %", "regret, points"], rows)


def promises(by_world: dict[str, list[Run]]) -> None:
    """Calibration of each world, and of all of them together, decile by decile."""
    rows, everything = [], []
    for world, each in by_world.items():
        own = [promise for run in each if run.policy == "outlay" for promise in _promises(world, run)]
        everything += own
        found = reliability(own)
        if found is not None:
            rows.append([world, f"{found.n:,}", f"{100 * found.error:.2f}", _outside(found)])
    table(["promises", "n", "expected calibration error, points", "deciles outside their interval"], rows)
    together = reliability(everything)
    if together is not None:
        rows = [
            [
                f"{100 * each.low:g} to {100 * each.high:g} %",
                f"{each.n:,}",
                f"{100 * each.promised:.1f}",
                f"{100 * each.kept:.1f}",
                f"{100 * each.interval[0]:.1f} to {100 * each.interval[1]:.1f}",
            ]
            for each in together.deciles
        ]
        table(["all worlds", "n", "promised, %", "came true, %", "95 % interval"], rows)
        print(f"Expected calibration error over all worlds: {100 * together.error:.2f} points.\n")


def _promises(world: str, run: Run) -> list[Promise]:
    return [
        Promise(p=each.p_on_time, came_true=each.on_time, cluster=(world, run.seed, each.at_ns // CLUSTER_NS))
        for each in run.results
        if each.p_on_time is not None
    ]


def _outside(found: Reliability) -> str:
    outside = [f"{100 * each.low:g} to {100 * each.high:g} %" for each in found.deciles if not each.holds]
    return f"{len(outside)} of {len(found.deciles)}" + (f" ({', '.join(outside)})" if outside else "")


def ablations(found: dict[str, list[Standing]]) -> None:
    """What each signal buys."""
    rows = [
        [policy, *(share(next(one for one in each if one.policy == policy)) for each in found.values())]
        for policy in ABLATIONS
    ]
    table(["on time, %", *found], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    known = sorted(path.stem for path in WORLDS.glob("*.yaml"))
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--worlds", nargs="+", default=known, choices=known)
    parser.add_argument("--only", choices=("rivals", "ablations"))
    options = parser.parse_args()
    policies = {
        None: list(POLICIES),
        "rivals": [*RIVALS, ORACLE],
        "ablations": list(ABLATIONS),
    }[options.only]
    by_world = runs(options.worlds, policies, options.seeds)
    found = {
        world: list(standings(each, {target.name: target.price_per_s for target in world_of(world).targets}))
        for world, each in by_world.items()
    }
    if options.only != "ablations":
        on_time(found)
        beside(found)
    promises(by_world)
    if options.only != "rivals":
        ablations(found)


if __name__ == "__main__":
    main()
