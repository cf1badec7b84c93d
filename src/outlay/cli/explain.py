"""`outlay explain`: read traces and logs, account for every nanosecond, show where the time goes."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from outlay.cli import OK, REFUSED, USAGE
from outlay.cli.saying import conditions, say, spec_of, stop, write_whole

if TYPE_CHECKING:  # what these import would slow `outlay --help`
    from outlay.change import Change
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
outlay explain run.jsonl --what-if uplink=site:lon --what-if queue.broker=0
outlay explain spans.pb.zst --json | jq '.moments[].verdict'

Without --budget, ./outlay.yaml is used if it is there; a preset's name works too (see outlay budget presets).

Exit codes: 0 done, 2 usage, 4 an input or all of the data was refused, 130 interrupted.
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
    what_if: Annotated[
        list[str] | None,
        typer.Option("--what-if", "-i", metavar="ENTRY=VALUE", help="Replay with this changed, as in queue.broker=0."),
    ] = None,
    rtt: Annotated[
        Path | None,
        typer.Option("--rtt", metavar="CSV", help="Round-trip times between places, for --what-if uplink=rtt:PLACE."),
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
        stop("--json and --markdown both print to standard output: choose one", USAGE)
    spec = spec_of(budget)
    asked = _changes(what_if or [], rtt)
    question = Question(
        moments=spec.moments,
        only=moment,
        by=tuple(name.strip() for name in by.split(",") if name.strip()),
        where=conditions(where or []),
        slowest=slowest,
    )
    try:
        found = gather_paths(paths, question, spec.rules, jobs=jobs, log=log)
    except OSError as error:
        stop(f"{error.filename or log or 'output'}: {error.strerror}", USAGE)
    for refusal in found.refusals:
        say(refusal)
    if found.skipped:
        from outlay.render.words import many

        say(f"skipped {many(len(found.skipped), 'file')} of no known format: {found.skipped[0]}")
    if not found.gathering.moments and not found.gathering.loads:
        stop(_nothing(found, question, paths, spec), REFUSED)
    try:
        report = build_report(found.gathering, found.sources, asked)
    except ValueError as error:
        stop(f"--what-if: {error}", USAGE)
    if html is not None:
        from outlay.render.html import to_html

        write_whole(html, to_html(report).encode())
    sys.stdout.buffer.write(_drawn(report, json=json, markdown=markdown))
    sys.stdout.flush()
    if html is not None:
        print(f"Report: {html.resolve().as_uri()}", file=sys.stderr)
    raise typer.Exit(REFUSED if found.refusals else OK)


def _changes(texts: list[str], rtt: Path | None) -> "list[tuple[Change, ...]]":
    """What is to be replayed: each change alone and, where there are several, all of them together."""
    if not texts:
        return []
    from outlay.change import parse_change
    from outlay.formats.codec import FormatError
    from outlay.formats.rtt_matrix import parse

    try:
        matrix = None if rtt is None else parse(rtt.read_text())
        changes = [parse_change(text, matrix) for text in texts]
    except OSError as error:
        stop(f"{rtt}: {error.strerror}", USAGE)
    except (FormatError, UnicodeDecodeError) as error:
        stop(f"{rtt}: {error}", USAGE)
    except ValueError as error:
        stop(f"--what-if: {error}", USAGE)
    return [(change,) for change in changes] + ([tuple(changes)] if len(changes) > 1 else [])


def _nothing(found: "Found", question: "Question", paths: list[str], spec: "Spec") -> str:
    """Why there is nothing to report; where a filter left nothing, what it could have asked for."""
    if not found.gathering.offered:
        troubles = found.gathering.general.troubles.items()
        told = [f"{trouble.count} {kind}, such as {trouble.text}" for kind, trouble in sorted(troubles)]
        return "nothing could be read" if found.refusals else "; ".join(["the input holds no interactions", *told])
    asked = [f"--where {name}={value}" for name, value in question.where.items()]
    asked += [f"--moment {question.only}"] if question.only else []
    return f"none of {found.gathering.offered} interactions matches {' '.join(asked)}; {_seen(question, paths, spec)}"


def _seen(question: "Question", paths: list[str], spec: "Spec") -> str:
    if not all(Path(path).is_file() or Path(path).is_dir() for path in paths):
        return "the input is gone, so what it holds cannot be listed"
    from outlay.cli.run import gather_paths

    open_question = replace(question, only=None, where={}, by=tuple(question.where))
    moments = gather_paths(paths, open_question, spec.rules).gathering.moments
    seen = [f"moments: {', '.join(sorted(moments))}"]
    for place, name in enumerate(question.where):
        values = sorted({key[place] or "" for cohorts in moments.values() for key in cohorts.by} - {""})
        seen.append(f"{name}: {', '.join(values[:10]) or 'in no interaction'}")
    return "the data has " + "; ".join(seen)


def _drawn(report: "Report", *, json: bool, markdown: bool) -> bytes:
    if json:
        from outlay.render.machine import to_json

        return to_json(report) + b"\n"
    if markdown:
        from outlay.render.markdown import to_markdown

        return to_markdown(report).encode()
    from rich.console import Console

    from outlay.render.text import render

    console = Console()
    with console.capture() as drawn:
        render(report, console)
    return drawn.get().encode(console.encoding, "backslashreplace")
