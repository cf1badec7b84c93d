"""`outlay compare`: is the second run slower than the first, by how much, and which entry moved the tail?"""

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from outlay.cli import FAIL, OK, REFUSED, UNDECIDED, USAGE
from outlay.cli.saying import spec_of, stop
from outlay.cli.sides import baseline_in, found_in, is_baseline, tolerance_of

if TYPE_CHECKING:  # what these import would slow `outlay --help`
    from collections.abc import Mapping, Sequence

    from outlay.cli.run import Found
    from outlay.explain import Question
    from outlay.explain.gate import Compared, Run
    from outlay.formats.spec import Spec

HELP = """Compare two runs: the difference of their percentiles and of the shares over budget, with intervals.

A and B are files or folders with data, or baselines stored by outlay check. B is the new one.

\b
outlay compare before.jsonl after.jsonl --budget outlay.yaml
outlay compare main.json run/ --moment voice-turn --fail-if-slower --tolerance 5%

Let the runs take turns (A, B, A, B): of runs one after the other, a difference may be one of the hours.

Exit codes: 0 compared, 2 usage, 4 data was refused, 130 interrupted. With --fail-if-slower: 0 no slower than allowed,
1 slower, 3 the data does not say.
"""


def compare(  # noqa: PLR0913, PLR0917 - one parameter an option is what Typer reads
    a: Annotated[str, typer.Argument(metavar="A", help="The run before: data or a baseline.")],
    b: Annotated[str, typer.Argument(metavar="B", help="The run after: data or a baseline.")],
    budget: Annotated[
        str | None, typer.Option("--budget", "-b", metavar="FILE|PRESET", help="Moments, budgets and mapping rules.")
    ] = None,
    moment: Annotated[str | None, typer.Option("--moment", "-m", metavar="NAME", help="Only this moment.")] = None,
    tolerance: Annotated[
        str, typer.Option("--tolerance", metavar="5%|20ms", help="How much slower B may be; nothing by default.")
    ] = "0%",
    fail_if_slower: Annotated[
        bool, typer.Option("--fail-if-slower", help="Exit with 1 if B is slower, with 3 if that is open.")
    ] = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print Markdown, for a pull request.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON (docs/gate.md).")] = False,
) -> None:  # fmt: skip
    from outlay.explain import Question
    from outlay.explain.gate import compare_runs

    if json and markdown:
        stop("--json and --markdown both print to standard output: choose one", USAGE)
    spec = spec_of(budget)
    allowed = tolerance_of(tolerance)
    question = Question(moments=spec.moments, only=moment, slowest=0)
    sides = {name: _run(path, question, spec) for name, path in (("a", a), ("b", b))}
    budgets = {each.name: each.budget for each in spec.moments if each.budget is not None}
    made = compare_runs(sides["a"][0], sides["b"][0], budgets, allowed)
    if not made:
        stop("neither run holds an interaction of a moment that is asked for", REFUSED)
    read = {name: found for name, (_, found) in sides.items() if found is not None}
    sys.stdout.buffer.write(_drawn(made, read, json=json, markdown=markdown))
    sys.stdout.flush()
    if any(found.refusals for found in read.values()) or any(each.refused for each in made):
        raise typer.Exit(REFUSED)
    raise typer.Exit(_code(made) if fail_if_slower else OK)


def _run(path: str, question: "Question", spec: "Spec") -> "tuple[Run, Found | None]":
    """A side of the comparison; what was found in it where it is data, not a baseline."""
    from outlay.explain.gate import run_of, stored_run

    if is_baseline(path):
        return stored_run(baseline_in(path), question.only), None
    found = found_in([path], question, spec.rules)
    return run_of(found.gathering), found


def _code(made: "Sequence[Compared]") -> int:
    states = {"UNDECIDED" if each.comparison is None else each.comparison.state for each in made}
    return FAIL if "FAIL" in states else UNDECIDED if "UNDECIDED" in states else OK


def _drawn(made: "Sequence[Compared]", read: "Mapping[str, Found]", *, json: bool, markdown: bool) -> bytes:
    from outlay.render import gate

    if json:
        return gate.compare_json(made, {name: found.sources for name, found in read.items()}) + b"\n"
    text = gate.compare_markdown(made) if markdown else gate.compare_text(made)
    return text.encode(sys.stdout.encoding or "utf-8", "backslashreplace")
