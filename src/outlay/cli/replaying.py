"""Making logged decisions again: by their own rules, as a check, or by others, as a counterfactual."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from outlay.cli import REFUSED, USAGE
from outlay.cli.saying import stop
from outlay.counterfactual import Choice, choice_of, compare_choices

if TYPE_CHECKING:
    from outlay.formats.decisions import Logged
    from outlay.policy import Policy
    from outlay.world import World


def replay_log(path: Path, world: "World | None", *, json: bool) -> None:
    """Print how the decisions of a log come out by the rules of `world`; by their own where that is None."""
    from outlay.formats.codec import FormatError
    from outlay.formats.decisions import read_decisions
    from outlay.render import counterfactual

    try:
        with path.open("rb") as lines:
            policy, logged = read_decisions(lines)
            by = policy if world is None else world.policy
            found = compare_choices(_pairs(logged, by))
    except OSError as error:
        stop(f"{path}: {error.strerror}", USAGE)
    except FormatError as error:
        stop(f"{path}: {error}", REFUSED)
    rules = None if world is None else world.name
    if json:
        sys.stdout.buffer.write(counterfactual.document(found, rules) + b"\n")
    else:
        typer.echo(counterfactual.text(found, rules))


def _pairs(logged: "Iterator[Logged]", by: "Policy") -> Iterator[tuple[Choice, Choice]]:
    for each in logged:
        targets = each.forecasts.fleet.targets
        before = Choice(
            request=each.request.id,
            moment=each.request.moment,
            action=each.action,
            target=None if each.target is None else targets[each.target].name,
            p_on_time=each.p_on_time,
        )
        yield before, choice_of(each.again(by), each.request.moment)
