"""How long planning takes: 50 regions, 20 sites, 5 variants, three moments, to a gap of 1 %.

    ./dev bench plan
    ./dev bench plan --regions 10 --rounds 5

Each round draws another instance: regions and sites at random places on a sphere, rates over two orders of magnitude.
"""

import argparse
import resource
import sys
import time

import numpy as np

from outlay.placement import Demand, Offer, Plan, make_plan
from outlay.work import Service

MS = 1_000_000
# Milliseconds a round trip takes from one side of the earth to the other, in fibre that takes no detour: 200 km a ms,
# both ways, and half as much again for detours.
_ROUND_TRIP_MS = 20_000 / 200 * 2 * 1.5
# Sizes and limits of three moments, and how much faster each variant is than the first.
MOMENTS = (("voice-turn", 700, 120, 10, 900), ("alert", 300, 40, 4, 500), ("document", 3000, 220, 220, 20_000))
VARIANTS = ((1.0, 1.0, 9e-3), (1.6, 0.95, 5e-3), (3.0, 0.85, 2e-3), (6.0, 0.75, 8e-4), (0.7, 1.0, 5e-3))


def instance(regions: int, sites: int, variants: int, seed: int) -> tuple[list[Demand], list[Offer]]:
    """Demands and offers; one pair of region and site in fifty is unknown."""
    random = np.random.default_rng(seed)
    places = random.normal(size=(regions + sites, 3))
    places /= np.linalg.norm(places, axis=1, keepdims=True)
    angles = np.arccos(np.clip(places[:regions] @ places[regions:].T, -1, 1)) / np.pi
    rtt_ms = 5 + angles * _ROUND_TRIP_MS
    known = random.random((regions, sites)) > 0.02
    demands = [
        Demand(
            region=f"region-{region}",
            moment=moment,
            rate_per_s=float(random.lognormal(1.0, 1.0)),
            input_tokens=asked,
            output_tokens=answered,
            useful_tokens=useful,
            limit_ns=limit_ms * MS,
            percentile=95,
            network_ns={f"site-{site}": rtt_ms[region, site] * MS for site in range(sites) if known[region, site]},
            fixed_ns=40 * MS,
        )
        for region in range(regions)
        for moment, asked, answered, useful, limit_ms in MOMENTS
    ]
    offers = [
        Offer(
            site=f"site-{site}",
            variant=f"variant-{variant}",
            hardware="h100",
            service=Service(
                prefill_tokens_per_s=12_000 * faster,
                step_ns=int(30 * MS / faster),
                step_slope_ns=int(0.3 * MS / faster),
                overhead_ns=10 * MS,
                max_batch=32,
            ),
            quality=quality,
            price_per_s=price * float(random.uniform(0.8, 1.3)),
        )
        for site in range(sites)
        for variant, (faster, quality, price) in enumerate(VARIANTS[:variants])
    ]
    return demands, offers


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("regions", 50), ("sites", 20), ("variants", 5), ("rounds", 3)):
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()
    print("| instance | demands | offers | seconds | gap, % | servers | price a second |")
    print("|---|---|---|---|---|---|---|")
    for seed in range(options.rounds):
        demands, offers = instance(options.regions, options.sites, options.variants, seed)
        begun = time.perf_counter()
        plan: Plan = make_plan(demands, offers, time_limit_s=300)
        seconds = time.perf_counter() - begun
        servers = sum(each.count for each in plan.servers)
        print(
            f"| {seed} | {len(demands)} | {len(offers)} | {seconds:.1f} | {100 * plan.gap:.2f} | {servers} "
            f"| {plan.price_per_s:.4f} |{'' if not plan.shortfalls else f' {len(plan.shortfalls)} shortfalls'}",
            flush=True,
        )
    print(f"\nPeak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB", file=sys.stderr)


if __name__ == "__main__":
    main()
