"""`outlay explain`: read traces and logs, account for every nanosecond, show where the time goes."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from outlay.cli import OK, REFUSED, USAGE

if TYPE_CHECKING:  # what these import would slow `outlay --help`
    from outlay.cli.run import Found
    from outlay.explain import Question
    from outlay.formats.spec import Spec
    from outlay.report import Report

HELP = """Read traces and logs, account for every nanosecond of every interaction, and show where the time goes.

PATH is a file, a folder, or - for standard input. The format is found by the content, gzip and zstd are unpacked.

\b
outlay explain traces.json
outlay explain logs/ --budget outlay.yaml --html report.html
outlay explain run.jsonl --where site=lon --by version,shape
outlay explain spans.pb.zst --json | jq '.moments[].verdict'

Without --budget, ./outlay.yaml is used if it is there; a preset's name works too (see outlay budget presets).
"""


def explain(  # noqa: PLR0913, PLR0917 - one parameter an option is what Typer reads
    paths: Annotated[list[str], typer.Argument(metavar="PATH...", help="Files or folders to read; - reads stdin.")],
    budget: Annotated[
        str | None, typer.Option("--budget", "-b", metavar="FILE|PRESET", help="Moments, budgets and mapping rules.")
    ] = None,
    moment: Annotated[str | None, typer.Option("--moment", "-m", metavar="NAME", help="Only this moment.")] = None,
    by: Annotated[
        str, typer.Option("--by", metavar="DIM,...", help="Split by site, version, hardware, shape, source, ...")
    ] = "",
    where: Annotated[
        list[str] | None,
        typer.Option("--where", "-w", metavar="DIM=VALUE", help="Only interactions like this; * and ? allowed."),
    ] = None,
    slowest: Annotated[int, typer.Option("--slowest", "-n", min=0, max=1000, help="Interactions to show whole.")] = 5,
    html: Annotated[Path | None, typer.Option("--html", metavar="FILE", help="Also write a page.")] = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print Markdown, for a pull request.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the report as JSON (docs/formats.md).")] = False,
    log: Annotated[
        Path | None, typer.Option("--log", metavar="FILE", help="Also write the interactions as an Outlay log.")
    ] = None,
    jobs: Annotated[
        int | None, typer.Option("--jobs", "-j", min=1, help="Processes to use; by default all cores for large inputs.")
    ] = None,
) -> None:  # fmt: skip
    from outlay.cli.run import gather_paths
    from outlay.explain import Question, build_report

    if json and markdown:
        _stop("--json and --markdown both print to standard output: choose one", USAGE)
    spec = _spec(budget)
    question = Question(
        moments=spec.moments,
        only=moment,
        by=tuple(name.strip() for name in by.split(",") if name.strip()),
        where=_conditions(where or []),
        slowest=slowest,
    )
    try:
        found = gather_paths(paths, question, spec.rules, jobs=jobs, log=log)
    except OSError as error:
        _stop(f"{error.filename or 'output'}: {error.strerror}", USAGE)
    for refusal in found.refusals:
        print(f"outlay: {refusal}", file=sys.stderr)
    if found.skipped:
        print(f"outlay: skipped {len(found.skipped)} files of no known format: {found.skipped[0]}", file=sys.stderr)
    if not found.gathering.moments:
        _stop(_nothing(found, question, paths, spec), REFUSED)
    report = build_report(found.gathering, found.sources)
    _print(report, json=json, markdown=markdown)
    if html is not None:
        from outlay.render.html import to_html

        _write(html, to_html(report).encode())
        print(f"Report: {html.resolve().as_uri()}", file=sys.stderr)
    raise typer.Exit(REFUSED if found.refusals else OK)


def _stop(message: str, code: int) -> NoReturn:
    print(f"outlay: {message}", file=sys.stderr)
    raise typer.Exit(code)


def _spec(budget: str | None) -> "Spec":
    from outlay.formats.spec import Spec, SpecError, load_preset, load_spec, preset_names

    if budget is None and not Path("outlay.yaml").is_file():
        return Spec(moments=(), rules=())
    name = budget or "outlay.yaml"
    if name in preset_names() and not Path(name).exists():
        return load_preset(name)
    try:
        return load_spec(Path(name).read_bytes(), name)
    except OSError as error:
        known = ", ".join(preset_names())
        _stop(f"{name}: {error.strerror}; --budget takes a file, or one of the presets {known}", USAGE)
    except SpecError as error:
        print(error, file=sys.stderr)
        raise typer.Exit(USAGE) from None


def _conditions(where: list[str]) -> dict[str, str]:
    conditions = {}
    for condition in where:
        name, equals, value = condition.partition("=")
        if not (name and equals):
            _stop(f"--where {condition}: expected DIM=VALUE, for example --where site=lon", USAGE)
        conditions[name.strip()] = value.strip()
    return conditions


def _nothing(found: "Found", question: "Question", paths: list[str], spec: "Spec") -> str:
    """Why there is nothing to report; where a filter left nothing, what it could have asked for."""
    if not found.gathering.offered:
        return "nothing could be read" if found.refusals else "the input holds no interactions"
    asked = [f"--where {name}={value}" for name, value in question.where.items()]
    asked += [f"--moment {question.only}"] if question.only else []
    return f"none of {found.gathering.offered} interactions matches {' '.join(asked)}; {_seen(question, paths, spec)}"


def _seen(question: "Question", paths: list[str], spec: "Spec") -> str:
    if "-" in paths:
        return "the input is gone, so what it holds cannot be listed"
    from outlay.cli.run import gather_paths

    open_question = replace(question, only=None, where={}, by=tuple(question.where))
    moments = gather_paths(paths, open_question, spec.rules).gathering.moments
    seen = [f"moments: {', '.join(sorted(moments))}"]
    for place, name in enumerate(question.where):
        values = sorted({key[place] or "" for cohorts in moments.values() for key in cohorts.by} - {""})
        seen.append(f"{name}: {', '.join(values[:10]) or 'in no interaction'}")
    return "the data has " + "; ".join(seen)


def _print(report: "Report", *, json: bool, markdown: bool) -> None:
    if json:
        from outlay.render.machine import to_json

        sys.stdout.buffer.write(to_json(report) + b"\n")
    elif markdown:
        from outlay.render.markdown import to_markdown

        print(to_markdown(report), end="")
    else:
        from rich.console import Console

        from outlay.render.text import render

        render(report, Console())
    sys.stdout.flush()


def _write(path: Path, content: bytes) -> None:
    """Write a file whole or not at all: a full disk must not cost the report that was there before."""
    beside = path.with_name(path.name + ".part")
    try:
        beside.write_bytes(content)
        beside.replace(path)
    except OSError as error:
        beside.unlink(missing_ok=True)
        _stop(f"{path}: {error.strerror}", USAGE)
