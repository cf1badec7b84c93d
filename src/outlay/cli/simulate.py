"""`outlay simulate`: try routing policies against one another in a world whose truth is known."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from outlay.cli import USAGE
from outlay.cli.saying import say, stop, write_whole

if TYPE_CHECKING:  # what these import would slow `outlay --help`
    from collections.abc import Sequence

    from outlay.trial import Run
    from outlay.world import World

HELP = """Try routing policies in a simulated world: who is on time, what it costs, and how well promises are kept.

WORLD is a YAML file such as those in examples/worlds: users, networks, sites, servers, load, and what goes wrong.

\b
outlay simulate examples/worlds/steady.yaml
outlay simulate examples/worlds/burst.yaml --policy outlay --policy p2c --seeds 20
outlay simulate examples/worlds/site-loss.yaml --policy outlay --seeds 1 --accounts run.jsonl
outlay explain run.jsonl
outlay simulate examples/worlds/steady.yaml --policy outlay --seeds 1 --decisions decisions.jsonl
outlay simulate --replay decisions.jsonl
outlay simulate examples/worlds/overload.yaml --replay decisions.jsonl
outlay simulate --list

Every policy meets the same users at the same times, seed by seed. Failures, refusals and deferrals count as never.

Exit codes: 0 done, 2 usage or a world that is not valid, 4 a log of decisions was refused, 130 interrupted.
"""

# What a first look compares: Outlay, three common routers and the bound.
FIRST_LOOK = ("outlay", "nearest", "p2c", "prequal", "oracle")


def simulate(  # noqa: PLR0913, PLR0917 - one parameter an option is what Typer reads
    world: Annotated[
        str | None, typer.Argument(metavar="WORLD", help="The world, a YAML file.", show_default=False)
    ] = None,
    policy: Annotated[
        list[str] | None, typer.Option("--policy", "-p", metavar="NAME", help="A policy, or all; may be repeated.")
    ] = None,
    seeds: Annotated[int, typer.Option("--seeds", metavar="N", min=1, help="Runs of each policy.")] = 5,
    jobs: Annotated[
        int | None, typer.Option("--jobs", "-j", metavar="N", min=1, help="Processes; all cores by default.")
    ] = None,
    accounts: Annotated[
        Path | None, typer.Option("--accounts", metavar="FILE", help="Write the interactions, for outlay explain.")
    ] = None,
    decisions: Annotated[
        Path | None, typer.Option("--decisions", metavar="FILE", help="Write every decision of Outlay's router.")
    ] = None,
    replay: Annotated[
        Path | None, typer.Option("--replay", metavar="FILE", help="Make logged decisions again, by WORLD's rules.")
    ] = None,
    html: Annotated[Path | None, typer.Option("--html", metavar="FILE", help="Write a page with plots.")] = None,
    listing: Annotated[bool, typer.Option("--list", help="List the policies.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON (docs/simulate.md).")] = False,
) -> None:  # fmt: skip
    if listing:
        _list()
        return
    if replay is not None:
        from outlay.cli.replaying import replay_log

        replay_log(replay, None if world is None else world_of(world), json=json)
        return
    if world is None:
        stop("which world? for example: outlay simulate examples/worlds/steady.yaml", USAGE)
    tried = world_of(world)
    names = _names(policy)
    if (accounts or decisions) and (len(names) > 1 or seeds > 1):
        stop("--accounts and --decisions are of one run: add --policy outlay --seeds 1", USAGE)
    runs = _one_run(tried, names[0], accounts, decisions) if accounts or decisions else _runs(tried, names, seeds, jobs)
    _report(tried, runs, html=html, json=json)


def world_of(name: str) -> "World":
    """The world of a file. Ends with what is wrong with it, or with a file that it names."""
    from outlay.formats.spec import MAX_BYTES, SpecError
    from outlay.formats.world import load_world

    folder = Path(name).parent
    try:
        with Path(name).open("rb") as stream:
            text = stream.read(MAX_BYTES + 1)
        return load_world(text, name, lambda path: (folder / path).read_bytes())
    except OSError as error:
        stop(f"{error.filename or name}: {error.strerror}", USAGE)
    except SpecError as error:
        print(error, file=sys.stderr)
        raise typer.Exit(USAGE) from None


def _list() -> None:
    from outlay.sim.policies import POLICIES

    width = max(map(len, POLICIES))
    for name, about in POLICIES.items():
        typer.echo(f"{name:{width}}  {about}")


def _names(asked: "list[str] | None") -> "Sequence[str]":
    from outlay.formats.spec_wire import nearest
    from outlay.sim.policies import POLICIES

    names = list(dict.fromkeys(asked or FIRST_LOOK))
    if "all" in names:
        return tuple(POLICIES)
    for name in names:
        if name not in POLICIES:
            stop(f"unknown policy {name}; {nearest(name, POLICIES)}", USAGE)
    return names


def _runs(world: "World", names: "Sequence[str]", seeds: int, jobs: int | None) -> "list[Run]":
    from outlay.cli.pool import on_all_cores
    from outlay.sim.policies import try_policy

    # Seed by seed, so that what is done of an interrupted run would compare like with like.
    calls = [(world, name, seed) for seed in range(seeds) for name in names]
    return on_all_cores(try_policy, calls, jobs=jobs or os.cpu_count() or 1, label="simulating")


def _one_run(world: "World", name: str, accounts: Path | None, decisions: Path | None) -> "list[Run]":
    from outlay.formats.log import write_line
    from outlay.sim.policies import try_policy

    if decisions is not None and not name.startswith("outlay"):
        stop(f"{name} makes no decisions that could be logged; try --policy outlay", USAGE)
    if decisions is None:
        runs = [try_policy(world, name, 0, accounts=True)]
    else:
        runs = [_logged_run(world, name, decisions, with_accounts=accounts is not None)]
    if accounts is not None:
        write_whole(accounts, b"".join(write_line(each) for each in runs[0].interactions))
        say(f"{accounts}: {len(runs[0].interactions):,} interactions; next: outlay explain {accounts}")
    return runs


def _logged_run(world: "World", name: str, path: Path, *, with_accounts: bool) -> "Run":
    from outlay.cli.run import replacing
    from outlay.formats.decisions import DecisionWriter
    from outlay.sim.policies import try_policy
    from outlay.work import Fleet

    try:
        with replacing(path) as out:
            writer = DecisionWriter(lambda line: _write(out, line), Fleet(world.targets), world.policy)
            run = try_policy(world, name, 0, accounts=with_accounts, decided=writer.add)
    except OSError as error:
        stop(f"{path}: {error.strerror}", USAGE)
    say(f"{path}: every decision; next: outlay simulate --replay {path}")
    return run


def _write(out: object, line: bytes) -> None:
    out.write(line + b"\n")  # type: ignore[attr-defined]


def _report(world: "World", runs: "Sequence[Run]", *, html: Path | None, json: bool) -> None:
    from rich.console import Console

    from outlay.contest import rank, standings
    from outlay.render import contest
    from outlay.sim.policies import RIVALS

    found = standings(runs, {target.name: target.price_per_s for target in world.targets})
    ranking = rank(found, RIVALS)
    if json:
        sys.stdout.buffer.write(contest.document(world.name, found, ranking) + b"\n")
        sys.stdout.flush()
    else:
        contest.draw(Console(highlight=False), world.name, world.about, found, ranking)
    # Last: a file that cannot be written should not cost what was computed.
    if html is not None:
        from outlay.render.contest_html import to_html

        write_whole(html, to_html(world.name, world.about, found, ranking).encode())
        say(f"{html}: written")
