"""`outlay plan`: which servers, where, at least cost, so that every moment's budget holds for every region."""

import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from outlay.cli import FAIL, OK, USAGE
from outlay.cli.saying import say, spec_of, stop
from outlay.cli.simulate import world_of
from outlay.units import parse_duration

if TYPE_CHECKING:  # what these import would slow `outlay --help`
    from collections.abc import Callable, Sequence

    from rich.console import Console

    from outlay.placement import Demand, NinePoint, Offer, Plan, PoolPoint, SessionPoint, Shares, SiteGain, Verified
    from outlay.trial import Run
    from outlay.world import World

Answer = TypeVar("Answer")

HELP = """Plan servers for a world: at least cost, so that every moment's percentile holds for each class of users.

What may be had is every kind of server in WORLD, at every site that it names. The plan is solved (HiGHS), tried in the
simulator, and made again with more where it fell short.

\b
outlay plan examples/worlds/steady.yaml
outlay plan examples/worlds/steady.yaml --budget outlay.yaml --json
outlay plan examples/worlds/steady.yaml --site london
outlay plan examples/worlds/steady.yaml --sessions voice-turn --every 8s
outlay plan examples/worlds/cold-fleet.yaml --pool 0.05
outlay plan examples/worlds/steady.yaml --nines

Exit codes: 0 planned, and the simulator agrees; 1 some demand cannot be served or fell short; 2 usage or a world that
is not valid; 130 interrupted.
"""


def plan(  # noqa: PLR0913, PLR0917 - one parameter an option is what Typer reads
    world: Annotated[str, typer.Argument(metavar="WORLD", help="The world, a YAML file.")],
    budget: Annotated[
        str | None, typer.Option("--budget", "-b", metavar="FILE|PRESET", help="Budgets in place of the world's.")
    ] = None,
    seeds: Annotated[int, typer.Option("--seeds", metavar="N", min=0, help="Runs that try the plan; 0: none.")] = 3,
    site: Annotated[
        str | None, typer.Option("--site", metavar="SITE", help="What does this site give?")
    ] = None,
    sessions: Annotated[
        str | None, typer.Option("--sessions", metavar="MOMENT", help="How many sessions does one server bear?")
    ] = None,
    every: Annotated[
        str, typer.Option("--every", metavar="DURATION", help="How often a session asks, for --sessions.")
    ] = "10s",
    pool: Annotated[
        float | None, typer.Option("--pool", metavar="RATE", help="Warm servers for so many starts a second.")
    ] = None,
    nines: Annotated[bool, typer.Option("--nines", help="What does each further nine cost?")] = False,
    quality: Annotated[
        float | None, typer.Option("--quality", metavar="Q", min=0, max=1, help="Least quality; the first rung's.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON (docs/plan.md).")] = False,
) -> None:  # fmt: skip
    from outlay.render import plans
    from outlay.worldplan import demands_of, offers_of

    given = _with_budgets(world_of(world), budget)
    demands, offers = demands_of(given, least_quality=quality), offers_of(given)
    if site is not None:
        _print(plans.site_document, plans.draw_site, _site(demands, offers, site), json=json)
    elif sessions is not None:
        _print(plans.sessions_document, plans.draw_sessions, _sessions(demands, offers, sessions, every), json=json)
    elif pool is not None:
        _print(plans.pool_document, plans.draw_pool, _pool(given, pool), json=json)
    elif nines:
        _print(plans.nines_document, plans.draw_nines, _nines(given, offers, quality), json=json)
    else:
        verified = _verified(given, demands, offers, seeds)
        _print(plans.document, plans.draw, (given.name, demands, verified), json=json)
        raise typer.Exit(FAIL if verified.plan.shortfalls or verified.open else OK)


def _print(
    document: "Callable[[Answer], bytes]", draw: "Callable[[Console, Answer], None]", answer: "Answer", *, json: bool
) -> None:
    from rich.console import Console

    if json:
        sys.stdout.buffer.write(document(answer) + b"\n")
    else:
        draw(Console(highlight=False), answer)


def _with_budgets(world: "World", budget: str | None) -> "World":
    if budget is None:
        return world
    budgets = {moment.name: moment.budget for moment in spec_of(budget).moments if moment.budget is not None}
    if not budgets.keys() & {traffic.moment for traffic in world.traffic}:
        stop(f"{budget} has no budget for a moment of {world.name}", USAGE)
    return replace(
        world,
        traffic=tuple(
            replace(traffic, budget=budgets.get(traffic.moment, traffic.budget)) for traffic in world.traffic
        ),
    )


def _verified(world: "World", demands: "Sequence[Demand]", offers: "Sequence[Offer]", seeds: int) -> "Verified":
    from outlay.placement import verify

    def measure(made: "Plan") -> "Shares":
        from outlay.worldplan import shares_of

        say(f"trying {sum(each.count for each in made.servers)} servers at {made.price_per_s * 3600:.2f} an hour")
        return shares_of(_tried(world, made, seeds)) if seeds else {}

    try:
        return verify(demands, offers, measure)
    except ValueError as error:
        stop(str(error), FAIL)


def _tried(world: "World", made: "Plan", seeds: int) -> "list[Run]":
    import os

    from outlay.cli.pool import on_all_cores
    from outlay.sim.policies import OWN, try_policy
    from outlay.worldplan import with_plan

    planned = with_plan(world, made)
    calls = [(planned, OWN, seed) for seed in range(seeds)]
    return on_all_cores(try_policy, calls, jobs=os.cpu_count() or 1, label="trying the plan")


def _site(demands: "Sequence[Demand]", offers: "Sequence[Offer]", site: str) -> "SiteGain":
    from outlay.formats.spec_wire import nearest
    from outlay.placement import site_gain

    known = sorted({offer.site for offer in offers})
    if site not in known:
        stop(f"unknown site {site}; {nearest(site, known)}", USAGE)
    return site_gain(demands, offers, site)


def _sessions(
    demands: "Sequence[Demand]", offers: "Sequence[Offer]", moment: str, every: str
) -> "list[tuple[Demand, Offer, tuple[SessionPoint, ...]]]":
    from outlay.placement import sessions_curve

    try:
        gap_ns = parse_duration(every)
    except ValueError as error:
        stop(f"--every {error}", USAGE)
    asked = [demand for demand in demands if demand.moment == moment]
    if not asked or not gap_ns:
        known = ", ".join(dict.fromkeys(demand.moment for demand in demands))
        stop(f"--sessions {moment}: the world has the moments {known}; --every must be above 0", USAGE)
    return [
        (demand, offer, sessions_curve(demand, offer, gap_ns))
        for demand in asked
        for offer in offers
        if offer.site == min(demand.network_ns, key=lambda site: demand.network_ns[site])
    ]


def _pool(world: "World", rate: float) -> "list[tuple[str, tuple[PoolPoint, ...]]]":
    from outlay.placement import warm_pool

    cold = {target.variant: target.cold.start_ns for target in world.targets if target.cold is not None}
    if not cold or not rate > 0:
        stop(f"{world.name} has no targets with a cold start, or the rate is not above 0", USAGE)
    return [(variant, warm_pool(rate, start_ns, 99.0)) for variant, start_ns in cold.items()]


def _nines(world: "World", offers: "Sequence[Offer]", quality: float | None) -> "tuple[NinePoint, ...]":
    from outlay.placement import nines
    from outlay.worldplan import demands_of

    return nines(lambda percentile: demands_of(world, percentile, quality), offers)
