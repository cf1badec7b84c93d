"""The list of verbs."""

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from outlay import __version__
from outlay.cli import OK, budget, check, compare, discard_output, explain, gateway, measure, plan, simulate


class _Verbs(TyperGroup):
    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            # Whoever read the output has had enough. Typer would call it a failure.
            discard_output()
            raise typer.Exit(OK) from None


app = typer.Typer(
    cls=_Verbs,
    name="outlay",
    help="A latency budget for AI interactions: where the time goes, what to fix first, what it gives back.",
    epilog="Exit codes: 0 done or PASS, 1 FAIL, 2 usage, 3 UNDECIDED, 4 the data was refused, 130 interrupted.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
app.command("explain", short_help="Where did the time go?", help=explain.HELP)(explain.explain)
app.command("measure", short_help="Send requests to a real endpoint; tell the truth of it.", help=measure.HELP)(
    measure.measure
)
app.command("check", short_help="Does it hold its budget? For a pipeline to go by.", help=check.HELP)(check.check)
app.command("compare", short_help="Is the second run slower than the first?", help=compare.HELP)(compare.compare)
app.command("simulate", short_help="Try routing policies in a world whose truth is known.", help=simulate.HELP)(
    simulate.simulate
)
app.command("plan", short_help="Which servers, where, so that budgets hold at least cost.", help=plan.HELP)(plan.plan)
app.command("gateway", short_help="Serve requests within their budget.", help=gateway.HELP)(gateway.gateway)
app.add_typer(budget.app, name="budget", short_help="Check, show and start an outlay.yaml.")


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"outlay {__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass
