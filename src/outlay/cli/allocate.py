"""`outlay budget allocate`: split a limit among all that spend it, from how they spend it now."""

import difflib
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from outlay.cli import FAIL, OK, REFUSED, USAGE
from outlay.cli.of_moment import budget_wanted, found_of, only_moment
from outlay.cli.saying import say, spec_of, stop
from outlay.render.untrusted import visible
from outlay.units import format_duration

if TYPE_CHECKING:  # what these import would slow `outlay --help`
    from rich.table import Table

    from outlay.allocation import Allocated, Allocation
    from outlay.budget import Budget

HELP = """Split a limit among all that spend it, from how they spend it now.

\b
outlay budget allocate traces.json --limit 800ms --percentile 95
outlay budget allocate logs/ --budget outlay.yaml --moment voice-turn
outlay budget allocate logs/ --limit 700ms --write outlay.yaml | patch

What the budget grants stays. Without --budget, ./outlay.yaml is used if it is there; --limit and --percentile stand in
for what it says. --write makes a new file; for one that exists it prints a patch, and leaves the file alone.

Exit codes: 0 split, 1 the limit is too short, 2 usage, 4 the data was refused.
"""


def allocate(
    paths: Annotated[list[str], typer.Argument(metavar="DATA...", help="Files or folders to read; - reads stdin.")],
    budget: Annotated[
        str | None, typer.Option("--budget", "-b", metavar="FILE|PRESET", help="Moments, budgets and mapping rules.")
    ] = None,
    moment: Annotated[str | None, typer.Option("--moment", "-m", metavar="NAME", help="Only this moment.")] = None,
    limit: Annotated[
        str | None, typer.Option("--limit", metavar="DURATION", help="The limit to split, such as 800ms.")
    ] = None,
    percentile: Annotated[
        float | None, typer.Option("--percentile", metavar="P", help="The percentile that must keep to the limit.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
    write: Annotated[
        Path | None, typer.Option("--write", metavar="FILE", help="Write the shares to a new file, or print a patch.")
    ] = None,
) -> None:  # fmt: skip
    from outlay.allocation import allocate as split

    if as_json and write is not None and write.exists():
        stop(f"{write} exists, and its patch and --json would both go to standard output: choose one", USAGE)
    spec = spec_of(budget)
    found = found_of(paths, spec, moment)
    name = only_moment(found.gathering, moment)
    cohorts = found.gathering.moments[name]
    wanted = budget_wanted(cohorts.moment, limit, percentile)
    try:
        made = split(cohorts.rows.accounts(), wanted)
    except ValueError as error:
        stop(f"{name}: {error}", REFUSED)
    if as_json:
        typer.echo(json.dumps(_document(name, made), indent=2, ensure_ascii=False))
    else:
        _draw(name, made)
    if write is not None and not made.short_ns:
        declared = any(each.name == name for each in spec.moments)
        _write(write, _text(budget) if declared else None, name, replace(wanted, shares=made.shares))
    raise typer.Exit(FAIL if made.short_ns else REFUSED if found.refusals else OK)


# The shares in a file


def _text(budget: str | None) -> str:
    """The text that the spec was read from; see `spec_of`."""
    from outlay.formats.spec import preset_names, preset_text

    name = budget or "outlay.yaml"
    return preset_text(name) if name in preset_names() and not Path(name).exists() else _read(Path(name))


def _read(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        stop(f"{path}: {error.strerror}", USAGE)
    except UnicodeDecodeError:
        stop(f"{path}: not UTF-8", USAGE)


def _write(target: Path, source: str | None, moment: str, budget: "Budget") -> None:
    """The budget in a new file, made from `source` where it has the moment; a file that exists only gets a patch."""
    from outlay.formats.spec_edit import new_spec, with_budget

    before = _read(target) if target.exists() else None
    text = source if before is None else before
    try:
        after = new_spec(moment, budget) if text is None else with_budget(text, str(target), moment, budget)
    except ValueError as error:
        stop(str(error), USAGE)
    if before is not None:
        old, new = before.splitlines(keepends=True), after.splitlines(keepends=True)
        sys.stdout.writelines(difflib.unified_diff(old, new, fromfile=str(target), tofile=str(target)))
        return
    try:
        with target.open("x", encoding="utf-8", newline="") as out:
            out.write(after)
    except OSError as error:
        stop(f"{target}: {error.strerror}", USAGE)
    say(f"wrote {target}")


# The answer


def _draw(name: str, made: "Allocation") -> None:
    from rich.console import Console
    from rich.text import Text

    from outlay.render.words import many

    console = Console(highlight=False)
    head = f"  {made.percentile:g} percent within {format_duration(made.limit_ns)}"
    console.print(Text.assemble((visible(name), "bold"), head))
    sample = f"{many(made.n, 'interaction')}, {made.near} near the p{made.percentile:g}"
    console.print(Text(f"  now {format_duration(made.tail_ns)}{_interval(made)}; {sample}"))
    console.print(_table(made))
    if made.why is not None:
        console.print(Text(f"  Too short: {visible(made.why)}.", "bold"))
    if any(each.fixed for each in made.entries):
        console.print(Text("  * granted by the budget"))


def _interval(made: "Allocation") -> str:
    if made.tail_interval_ns is None:
        return ""
    low, high = made.tail_interval_ns
    return f" ({format_duration(low)} to {'?' if high is None else format_duration(high)})"


def _table(made: "Allocation") -> "Table":
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("  entries", overflow="fold")
    for head in ("typical", f"p{made.percentile:g}", "floor", "share"):
        table.add_column(head, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    table.add_column("owner", overflow="fold")
    for each in made.entries:
        times = [format_duration(value) if value is not None else "-" for value in (each.typical_ns, each.tail_ns)]
        floor, share = format_duration(each.floor_ns), _share(each)
        table.add_row(
            Text(f"  {visible(each.entry)}"),
            *times,
            floor,
            share,
            "over" if each.exceeds else "",
            Text(each.owner or "-"),
        )
    if made.unassigned_ns and not made.short_ns:
        table.add_row("  unassigned", "", "", "", format_duration(made.unassigned_ns), "", "-", style="dim")
    whole = [format_duration(value) for value in (made.typical_ns, made.tail_ns, made.limit_ns)]
    table.add_row("  in all", *whole[:2], "", whole[2], style="dim")
    return table


def _share(each: "Allocated") -> str:
    share = "-" if each.share_ns is None else format_duration(each.share_ns)
    return f"{share}*" if each.fixed else share


def _document(name: str, made: "Allocation") -> dict[str, object]:
    from outlay.render.machine import known, limits, ns

    moment = known(
        moment=name,
        n=made.n,
        near=made.near,
        limit_ns=made.limit_ns,
        percentile=made.percentile,
        typical_ns=made.typical_ns,
        tail_ns=ns(made.tail_ns),
        tail_interval_ns=made.tail_interval_ns and limits(*made.tail_interval_ns),
        unassigned_ns=made.unassigned_ns,
        short_ns=made.short_ns,
        why=made.why,
        entries=[_entry(each) for each in made.entries],
    )
    return {"outlay": "allocation/1", "moments": [moment]}


def _entry(each: "Allocated") -> dict[str, object]:
    from outlay.render.machine import known

    return known(
        entry=each.entry,
        typical_ns=each.typical_ns,
        tail_ns=each.tail_ns,
        floor_ns=each.floor_ns,
        share_ns=each.share_ns,
        fixed=each.fixed,
        exceeds=each.exceeds,
        owner=each.owner,
    )
