"""How fast virtual time goes: our kernel beside SimPy on the same model, and whole worlds.

    pip install --target simpy-only simpy
    ./dev bench simulator --simpy simpy-only

The model is a queue with several servers (M/M/c): the same gaps and service times in both, so the mean waits must be
the same number. Rounds are interleaved. Without --simpy only our side and the worlds are measured.
"""

import argparse
import sys
import time
from collections import deque
from collections.abc import Callable, Generator
from pathlib import Path
from random import Random
from typing import Any

from outlay.formats.world import load_world
from outlay.sim.kernel import Kernel
from outlay.sim.policies import try_policy

SERVERS, LOAD = 8, 0.8
WORLDS = Path(__file__).resolve().parents[1] / "examples" / "worlds"

Draws = list[tuple[int, int]]


def draws(jobs: int) -> Draws:
    """When each job comes, and how long it takes, in ns."""
    random, at, made = Random(1), 0.0, []
    for _ in range(jobs):
        at += random.expovariate(SERVERS * LOAD)
        made.append((int(at * 1e9), int(random.expovariate(1.0) * 1e9)))
    return made


def ours(work: Draws) -> float:
    """The mean wait in seconds, by our kernel."""
    kernel, waiting, free, waits = Kernel(), deque[tuple[int, int]](), [SERVERS], [0]

    def begin(arrived_ns: int, service_ns: int) -> None:
        waits[0] += kernel.now_ns - arrived_ns
        kernel.after(service_ns, done)

    def arrive(service_ns: int) -> None:
        if free[0]:
            free[0] -= 1
            begin(kernel.now_ns, service_ns)
        else:
            waiting.append((kernel.now_ns, service_ns))

    def done() -> None:
        if waiting:
            begin(*waiting.popleft())
        else:
            free[0] += 1

    for at_ns, service_ns in work:
        kernel.at(at_ns, arrive, service_ns)
    kernel.run()
    return waits[0] / len(work) / 1e9


def theirs(work: Draws, simpy: Any) -> float:
    """The same, as SimPy's documentation writes it: a process for each job, a resource for the servers."""
    environment = simpy.Environment()
    servers = simpy.Resource(environment, capacity=SERVERS)
    waits = [0]

    def job(service_ns: int) -> Generator[Any, Any, None]:
        arrived_ns = environment.now
        with servers.request() as turn:
            yield turn
            waits[0] += environment.now - arrived_ns
            yield environment.timeout(service_ns)

    def source() -> Generator[Any, Any, None]:
        now_ns = 0
        for at_ns, service_ns in work:
            yield environment.timeout(at_ns - now_ns)
            now_ns = at_ns
            environment.process(job(service_ns))

    environment.process(source())
    environment.run()
    return waits[0] / len(work) / 1e9


def timed(call: Callable[[], float]) -> tuple[float, float]:
    """Seconds, and the answer."""
    begun = time.perf_counter()
    answer = call()
    return time.perf_counter() - begun, answer


def span(values: list[float]) -> str:
    """The median, smallest and largest."""
    ordered = sorted(values)
    return f"{ordered[len(ordered) // 2]:,.2f} ({ordered[0]:,.2f}-{ordered[-1]:,.2f})"


def kernels(rounds: int, jobs: int, simpy: Any) -> None:
    """Jobs a second of both, and their ratio."""
    work = draws(jobs)
    mine, other, ratios = [], [], []
    for _ in range(rounds):
        seconds, wait = timed(lambda: ours(work))
        mine.append(jobs / seconds / 1e3)
        if simpy is not None:
            slower, other_wait = timed(lambda: theirs(work, simpy))
            assert other_wait == wait, f"two answers: {wait} and {other_wait}"
            other.append(jobs / slower / 1e3)
            ratios.append(slower / seconds)
    print(f"M/M/{SERVERS} at {LOAD}, {jobs:,} jobs, {rounds} rounds; mean wait {wait:.4f} s in both\n")
    print("| | thousand jobs a second |\n|---|---|")
    print(f"| our kernel | {span(mine)} |")
    if simpy is not None:
        print(f"| SimPy {simpy.__version__} | {span(other)} |")
        print(f"| ratio | {span(ratios)} |")
    print()


def worlds(rounds: int) -> None:
    """Events a second of a whole world."""
    path = WORLDS / "steady.yaml"
    world = load_world(path.read_bytes(), str(path), lambda data: (WORLDS / data).read_bytes())
    heads = ("steady world", "events", "interactions", "thousand events a second", "interactions a second")
    print("| " + " | ".join(heads) + " |\n" + "|---" * 5 + "|")
    for policy in ("round-robin", "p2c", "prequal", "outlay"):
        speeds, served = [], []
        for seed in range(rounds):
            begun = time.perf_counter()
            run = try_policy(world, policy, seed)
            seconds = time.perf_counter() - begun
            speeds.append(run.events / seconds / 1e3)
            served.append(len(run.results) / seconds)
        print(f"| {policy} | {run.events:,} | {len(run.results):,} | {span(speeds)} | {span(served)} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=100_000)
    parser.add_argument("--simpy", metavar="DIR", help="where SimPy was installed")
    options = parser.parse_args()
    simpy = None
    if options.simpy:
        sys.path.insert(0, options.simpy)
        import simpy  # type: ignore[no-redef, import-not-found, import-untyped, unused-ignore]
    kernels(options.rounds, options.jobs, simpy)
    worlds(options.rounds)


if __name__ == "__main__":
    main()
