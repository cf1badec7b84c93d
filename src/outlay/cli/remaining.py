"""`outlay budget remaining`: may an interaction that has come so far still go on?"""

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from outlay.cli import FAIL, OK, REFUSED, UNDECIDED, USAGE
from outlay.cli.of_moment import budget_wanted, found_of, only_moment
from outlay.cli.saying import spec_of, stop
from outlay.units import format_duration, parse_duration

if TYPE_CHECKING:  # what these import would slow `outlay --help`
    from outlay.remaining import Ahead

HELP = """Say whether an interaction that has come so far may still be in time.

\b
outlay budget remaining logs/ --limit 800ms --after 'asr/*' --elapsed 350ms
outlay budget remaining logs/ --budget outlay.yaml --after 'llm/queue*' \\
    --elapsed 500ms --clock-error 5ms

The time ahead of it is that of recorded interactions after the same stage, as one distribution: the percentiles of the
stages would ask for more. What the clock may be off is taken at its worse end.

Exit codes: 0 go on, 1 too late, 2 usage, 3 undecided, 4 the data was refused.
"""

_CODES = {"PASS": OK, "FAIL": FAIL, "UNDECIDED": UNDECIDED}


def remaining(  # noqa: PLR0913, PLR0917 - one parameter an option is what Typer reads
    paths: Annotated[list[str], typer.Argument(metavar="DATA...", help="Files or folders to read; - reads stdin.")],
    after: Annotated[str, typer.Option("--after", metavar="ENTRY", help="The entry that is over, as in llm/queue*.")],
    elapsed: Annotated[str, typer.Option("--elapsed", metavar="DURATION", help="How long it has taken so far.")],
    budget: Annotated[
        str | None, typer.Option("--budget", "-b", metavar="FILE|PRESET", help="Moments, budgets and mapping rules.")
    ] = None,
    moment: Annotated[str | None, typer.Option("--moment", "-m", metavar="NAME", help="Only this moment.")] = None,
    limit: Annotated[str | None, typer.Option("--limit", metavar="DURATION", help="The limit, such as 800ms.")] = None,
    percentile: Annotated[
        float | None, typer.Option("--percentile", metavar="P", help="The percentile that must keep to the limit.")
    ] = None,
    clock_error: Annotated[
        str, typer.Option("--clock-error", metavar="DURATION", help="How far the time so far may be off.")
    ] = "0ms",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:  # fmt: skip
    from outlay.remaining import may_continue, residuals

    try:
        elapsed_ns, error_ns = parse_duration(elapsed), parse_duration(clock_error)
    except ValueError as error:
        stop(str(error), USAGE)
    spec = spec_of(budget)
    found = found_of(paths, spec, moment)
    name = only_moment(found.gathering, moment)
    cohorts = found.gathering.moments[name]
    wanted = budget_wanted(cohorts.moment, limit, percentile)
    try:
        ahead = may_continue(residuals(cohorts.rows.accounts(), after), wanted, elapsed_ns, error_ns)
    except ValueError as error:
        stop(f"{name}: {error}", REFUSED)
    if as_json:
        typer.echo(json.dumps({"outlay": "remaining/1", "moment": name, "after": after} | _known(ahead), indent=2))
    else:
        typer.echo(f"{name}  {_says(ahead, wanted.percentile)}")
    raise typer.Exit(REFUSED if found.refusals else _CODES[ahead.state])


def _known(ahead: "Ahead") -> dict[str, object]:
    return {name: value for name, value in asdict(ahead).items() if value is not None}


def _says(ahead: "Ahead", percentile: float) -> str:
    if ahead.remaining_ns is None or ahead.probability is None or ahead.interval is None:
        return "UNDECIDED: nobody knows how much time is left"
    what = {"PASS": "go on", "FAIL": "too late", "UNDECIDED": "undecided"}[ahead.state]
    low, high = ahead.interval
    left = format_duration(ahead.remaining_ns) if ahead.remaining_ns > 0 else "nothing"
    asked = f"{percentile:g} % are asked"
    needed = "" if ahead.needed_ns is None else f"; {format_duration(ahead.needed_ns)} would do"
    return (
        f"{what}: {left} left, enough with a probability of {100 * ahead.probability:.3g} % "
        f"({100 * low:.3g} % to {100 * high:.3g} %), {asked}{needed}"
    )
