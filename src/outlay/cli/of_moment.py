"""One moment of some data, and its budget: what verbs that ask about a single moment have in common."""

from dataclasses import replace
from typing import TYPE_CHECKING

from outlay.cli import REFUSED, USAGE
from outlay.cli.saying import say, stop
from outlay.units import parse_duration

if TYPE_CHECKING:  # what these import would slow `outlay --help`
    from outlay.budget import Budget, Moment
    from outlay.cli.run import Found
    from outlay.explain import Gathering
    from outlay.formats.spec import Spec


def found_of(paths: list[str], spec: "Spec", moment: str | None) -> "Found":
    from outlay.cli.run import gather_paths
    from outlay.explain import Question

    try:
        found = gather_paths(paths, Question(moments=spec.moments, only=moment), spec.rules)
    except OSError as error:
        stop(f"{error.filename}: {error.strerror}", USAGE)
    for refusal in found.refusals:
        say(refusal)
    return found


def only_moment(gathering: "Gathering", asked: str | None) -> str:
    """The moment that is meant: the only one that the data has, or of several the only one with a budget."""
    from outlay.generator import INVALID

    names = sorted(gathering.moments)
    if not names:
        stop(f"the data holds no interactions{f' of the moment {asked}' if asked else ''}", REFUSED)
    budgeted = [name for name in names if gathering.moments[name].moment.budget is not None]
    if len(names) > 1 and len(budgeted) != 1:
        stop(f"the data has several moments, choose one by --moment: {', '.join(names)}", USAGE)
    name = names[0] if len(names) == 1 else budgeted[0]
    if any(load.verdict.state == INVALID for load in gathering.loads if load.moment == name):
        stop(f"{name}: its load was INVALID: what it took says nothing", REFUSED)
    return name


def budget_wanted(moment: "Moment", limit: str | None, percentile: float | None) -> "Budget":
    """The moment's budget, with the limit and the percentile that were asked for instead."""
    from outlay.budget import Budget
    from outlay.formats.spec import DEFAULT_PERCENTILE

    known = moment.budget
    try:
        if limit is not None:
            known = replace(known or Budget(limit_ns=1, percentile=DEFAULT_PERCENTILE), limit_ns=parse_duration(limit))
        if known is None:
            stop(f"{moment.name} has no budget: give --limit, or a --budget in which it has `within`", USAGE)
        return known if percentile is None else replace(known, percentile=percentile)
    except ValueError as error:
        stop(str(error), USAGE)
