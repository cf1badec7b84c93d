"""`outlay budget`: check `outlay.yaml`, show what it grants to whom, split a limit, hand out presets and the schema."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from outlay.cli import USAGE, allocate, remaining
from outlay.units import format_duration

if TYPE_CHECKING:  # what these import would slow `outlay --help`
    from rich.console import Console
    from rich.table import Table

    from outlay.budget import Budget, Moment
    from outlay.formats.spec import Spec

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)


@app.callback()
def budget() -> None:
    """What each moment may cost, and who may spend it.

    \b
    outlay budget presets voice-turn > outlay.yaml
    outlay budget validate outlay.yaml
    outlay budget show outlay.yaml
    outlay budget allocate traces.json --budget outlay.yaml
    outlay budget remaining traces.json --after 'llm/queue*' --elapsed 500ms

    Exit codes: 0 done, 2 usage, or a file that is not valid.
    """


@app.command()
def validate(file: Annotated[Path, typer.Argument(help="The outlay.yaml to check.", show_default=False)]) -> None:
    """Check a file and report all that is wrong with it.

    \b
    outlay budget validate outlay.yaml

    Problems go to standard error, one a line: FILE:LINE: where: what.
    Exit codes: 0 valid, 2 not valid or not readable.
    """
    spec = _load(file)
    typer.echo(f"{file}: ok, {_count(len(spec.moments), 'moment')}, {_count(len(spec.rules), 'rule')}")


@app.command()
def show(
    source: Annotated[
        str, typer.Argument(metavar="FILE|PRESET", help="An outlay.yaml or a preset's name.", show_default=False)
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
) -> None:
    """Show each moment's limit, thresholds and shares.

    \b
    outlay budget show outlay.yaml
    outlay budget show voice-turn --json

    Each share stands with its owner, and below them what nobody was given.
    A file wins over a preset of the same name. Exit codes: 0 shown, 2 not valid or not found.
    """
    from rich.console import Console
    from rich.text import Text

    path = Path(source)
    spec = _load(path) if path.exists() else _load_preset(source)
    if as_json:
        typer.echo(json.dumps(_document(spec), indent=2, ensure_ascii=False))
    else:
        console = Console(highlight=False)
        for moment in spec.moments:
            _draw(moment, console)
        if spec.rules:
            console.print(Text(_count(len(spec.rules), "mapping rule")))


@app.command()
def presets(
    name: Annotated[str | None, typer.Argument(help="The preset to print.", show_default=False)] = None,
) -> None:
    """List the presets, or print one to start from.

    \b
    outlay budget presets
    outlay budget presets voice-turn > outlay.yaml

    Exit codes: 0 printed, 2 no such preset.
    """
    from outlay.formats.spec import preset_names, preset_text

    if name is None:
        width = max(map(len, preset_names()))
        for each in preset_names():
            typer.echo(f"{each:{width}}  {_title(preset_text(each))}")
        return
    try:
        typer.echo(preset_text(name), nl=False)
    except ValueError as error:
        raise _refuse(str(error)) from None


@app.command()
def schema() -> None:
    """Print the JSON Schema of outlay.yaml, for editors.

    \b
    outlay budget schema > outlay.schema.json

    Exit codes: 0 printed.
    """
    from outlay.formats.spec import spec_schema

    typer.echo(json.dumps(spec_schema(), indent=2, ensure_ascii=False))


app.command(help=allocate.HELP)(allocate.allocate)
app.command(help=remaining.HELP)(remaining.remaining)


def _load(file: Path) -> "Spec":
    from outlay.formats.spec import MAX_BYTES, SpecError, load_spec

    try:
        with file.open("rb") as stream:
            return load_spec(stream.read(MAX_BYTES + 1), str(file))
    except OSError as error:
        raise _refuse(f"{file}: {error.strerror or error}") from None
    except SpecError as error:
        raise _refuse(str(error)) from None


def _load_preset(name: str) -> "Spec":
    from outlay.formats.spec import load_preset

    try:
        return load_preset(name)
    except ValueError as error:
        raise _refuse(f"no such file, and {error}") from None


def _refuse(message: str) -> typer.Exit:
    typer.echo(message, err=True)
    return typer.Exit(USAGE)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _title(preset: str) -> str:
    """A preset's first line reads `# Name: what it measures`."""
    return preset.partition("\n")[0].partition(": ")[2]


def _draw(moment: "Moment", console: "Console") -> None:
    from rich.text import Text

    console.print(Text.assemble((moment.name, "bold"), f"  {_from_to(moment)}"))
    if moment.budget is None:
        console.print(Text("  no budget\n"))
        return
    for line in _facts(moment.budget):
        console.print(Text(f"  {line}"))
    console.print(_shares(moment.budget), "")


def _from_to(moment: "Moment") -> str:
    return f"from {moment.start or 'the first instant'} to {moment.end or 'the last instant'}"


def _facts(budget: "Budget") -> list[str]:
    thresholds = ", ".join(f"{name} {format_duration(limit)}" for name, limit in budget.thresholds.items())
    facts = [f"{budget.percentile:g} percent within {format_duration(budget.limit_ns)}"]
    if budget.duty_period_ns is not None:
        facts.append(f"none over it in a duty period of {format_duration(budget.duty_period_ns)}")
    return [*facts, f"thresholds: {thresholds}"] if thresholds else facts


def _shares(budget: "Budget") -> "Table":
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("  entries", overflow="fold")
    table.add_column("share", justify="right", no_wrap=True)
    table.add_column("owner", overflow="fold")
    for share in budget.shares:
        limit = "-" if share.limit_ns is None else format_duration(share.limit_ns)
        table.add_row(Text(f"  {share.entry}"), limit, Text(share.owner or "-"))
    table.add_row("  unassigned", format_duration(budget.unassigned_ns), "-", style="dim")
    return table


def _document(spec: "Spec") -> dict[str, object]:
    return {"outlay": "budget/1", "moments": [_moment(moment) for moment in spec.moments], "rules": len(spec.rules)}


def _moment(moment: "Moment") -> dict[str, object]:
    return _stated(
        {"moment": moment.name, "from": moment.start, "to": moment.end}
        | (_budget(moment.budget) if moment.budget else {})
        | {"chain": [_stated({"mark": step.mark, "as": step.entry}) for step in moment.chain] or None}
    )


def _budget(budget: "Budget") -> dict[str, object]:
    return {
        "limit_ns": budget.limit_ns,
        "percentile": budget.percentile,
        "duty_period_ns": budget.duty_period_ns,
        "thresholds_ns": dict(budget.thresholds),
        "shares": [
            _stated({"entry": share.entry, "limit_ns": share.limit_ns, "owner": share.owner}) for share in budget.shares
        ],
        "unassigned_ns": budget.unassigned_ns,
    }


def _stated(record: Mapping[str, object]) -> dict[str, object]:
    """Without what the file does not say: absent means unknown."""
    return {key: value for key, value in record.items() if value is not None}
