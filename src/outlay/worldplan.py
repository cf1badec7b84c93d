"""A world as a planning problem, and what trying a plan in it says."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from outlay.placement import Demand, Offer, Plan, Shares
from outlay.quantiles import share_interval
from outlay.trial import Run
from outlay.units import NS_PER_S
from outlay.world import Access, Arrivals, Traffic, Users, World


def demands_of(world: World, percentile: float | None = None, least_quality: float | None = None) -> tuple[Demand, ...]:
    """What every class of users asks of every moment that it uses, at its busiest; `percentile` in place of budgets'.

    The region of a demand is the path class of its users, because the last mile is a part of what must fit. It asks
    for `least_quality`; without one for that of the first rung of its ladder, since a plan should not rest on the rest.
    """
    found = []
    for traffic in world.traffic:
        groups = [users for users in world.users if not traffic.regions or users.region in traffic.regions]
        shares = sum(users.share for users in groups)
        for users in groups:
            level = traffic.budget.percentile if percentile is None else percentile
            rate = busiest_per_s(traffic.arrivals) * users.share / shares
            if rate > 0:
                quality = _asked_quality(world, traffic.moment) if least_quality is None else least_quality
                found.append(replace(_demand(world, traffic, users, rate, level), least_quality=quality))
    return tuple(found)


def _asked_quality(world: World, moment: str) -> float:
    variants = world.policy.of(moment).rungs[0].variants
    return min((target.quality for target in world.targets if target.variant in variants), default=0.0)


def _demand(world: World, traffic: Traffic, users: Users, rate: float, percentile: float) -> Demand:
    output = float(np.mean(traffic.output_tokens.values))
    # Where the whole answer is of use, those that must be in time are as long as the percentile of answers.
    whole = float(np.percentile(np.array(traffic.output_tokens.values), percentile))
    useful = whole if traffic.useful_tokens is None else float(min(traffic.useful_tokens, whole))
    return Demand(
        region=users.path,
        moment=traffic.moment,
        rate_per_s=rate,
        input_tokens=float(np.mean(traffic.input_tokens.values)),
        output_tokens=max(output, 1.0),
        useful_tokens=max(useful, 1.0),
        limit_ns=traffic.budget.limit_ns,
        percentile=percentile,
        network_ns={
            site: _network_ns(rtt_ns, world.access[users.access], traffic.payload_bytes, percentile)
            for site, rtt_ns in users.rtt_ns.items()
        },
        fixed_ns=traffic.client_ns + traffic.render_ns,
    )


def _network_ns(rtt_ns: int, access: Access, payload_bytes: int, percentile: float) -> float:
    last_ns = float(np.percentile(np.array(access.samples_ns), percentile))
    payload_ns = payload_bytes / access.bytes_per_s * NS_PER_S
    rounds = math.log2(1 + payload_bytes / 14_336)
    return rtt_ns + last_ns + payload_ns + rounds * (rtt_ns + last_ns)


def busiest_per_s(arrivals: Arrivals) -> float:
    """The largest rate that lasts: of the stated ones, or of a tenth of a recording."""
    if not arrivals.at_ns:
        return max((rate for _, rate in arrivals.rates), default=0.0)
    span_ns = arrivals.at_ns[-1] - arrivals.at_ns[0]
    if span_ns <= 0:
        return 0.0
    counts, _ = np.histogram(np.array(arrivals.at_ns), bins=10)
    return float(counts.max() * 10 * NS_PER_S / span_ns)


def offers_of(world: World) -> tuple[Offer, ...]:
    """Every kind of server that the world has, at every site that some user has a way to."""
    sites = sorted({site for users in world.users for site in users.rtt_ns})
    kinds = {(target.variant, target.hardware): target for target in world.targets}
    return tuple(
        Offer(
            site=site,
            variant=target.variant,
            hardware=target.hardware,
            service=target.service,
            price_per_s=target.price_per_s,
            quality=target.quality,
        )
        for site in sites
        for target in kinds.values()
    )


def with_plan(world: World, plan: Plan) -> World:
    """The same world with the plan's servers in place of its own; faults that named a server go with it."""
    targets = plan.targets()
    known = {target.site for target in targets}
    local = {users.path: _nearest(users, known) for users in world.users}
    return replace(
        world,
        targets=targets,
        users=tuple(replace(users, local=local[users.path]) for users in world.users),
        faults=tuple(fault for fault in world.faults if fault.where in known),
    )


def _nearest(users: Users, sites: "set[str]") -> str | None:
    ways = {site: rtt_ns for site, rtt_ns in users.rtt_ns.items() if site in sites}
    return min(ways, key=lambda site: ways[site], default=None)


def shares_of(runs: Sequence[Run]) -> Shares:
    """Of every class of users and moment: the 95 % interval of the share on time, over all runs."""
    counts: dict[tuple[str, str], list[int]] = {}
    for run in runs:
        for result in run.results:
            held = counts.setdefault((result.path, result.moment), [0, 0])
            held[0] += result.on_time
            held[1] += 1
    shares: Mapping[tuple[str, str], tuple[float, float]] = {
        key: share_interval(kept, n) for key, (kept, n) in counts.items()
    }
    return shares
