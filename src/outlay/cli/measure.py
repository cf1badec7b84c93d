"""`outlay measure`: send requests to a real endpoint on a schedule that waits for nobody, and tell the truth of it."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from outlay.cli import INTERRUPTED, OK, REFUSED, USAGE
from outlay.cli.saying import say, stop, write_whole

if TYPE_CHECKING:  # what these import would slow `outlay --help`, and the first request
    from outlay.cli.measuring import Found
    from outlay.measurement import Measurement

HELP = """Send requests to a real endpoint, on a schedule that waits for nobody, and tell the truth of what came back.

URL is the endpoint, such as http://localhost:8000/v1/chat/completions; of an address without a path, the chat API of
OpenAI is taken. Latency counts from when a request was due, a failed request counts as never answered, and before any
number stands whether the load itself was VALID, DEGRADED or INVALID.

\b
outlay measure http://localhost:8000 --model llama --rate 5 --duration 60s
outlay measure https://host/v1/responses --model m --key-env OPENAI_API_KEY --within 800ms
outlay measure http://localhost:8000 --model m --stages 10rps:30s,50rps:30s --warm-up 5s
outlay measure http://localhost:8000 --model m --replay azure.csv --speed 2
outlay measure http://localhost:8000 --model m --concurrency 8 --requests 400
outlay measure --path gateway=http://gw:80 --path server=http://10.0.0.5:8000 --model m --rate 4
outlay measure https://host/analyse --api http --body request.json --site lon

The interactions are written to a log as they end (--log), which `outlay explain` reads; an interrupt keeps them. An
older log under that name is replaced, any other file is not.

Exit codes: 0 done, 2 usage, 4 the load was INVALID or nothing was answered, 130 interrupted.
"""


def measure(  # noqa: PLR0913, PLR0917 - one parameter an option is what Typer reads
    context: typer.Context,
    url: Annotated[str | None, typer.Argument(metavar="[URL]", help="The endpoint; not needed with --path.")] = None,
    path: Annotated[
        list[str] | None,
        typer.Option("--path", metavar="NAME=URL", help="Measure several points, outermost first, and compare them."),
    ] = None,
    api: Annotated[
        str | None,
        typer.Option("--api", metavar="NAME", help="chat, completions, responses, embeddings, speech, transcriptions, "
                     "http, websocket; by default what the path shows."),
    ] = None,
    model: Annotated[str | None, typer.Option("--model", metavar="NAME", help="The model to ask for.")] = None,
    prompt: Annotated[
        str | None, typer.Option("--prompt", metavar="TEXT", help="What to ask; by default drawn words.")
    ] = None,
    input_tokens: Annotated[
        int,
        typer.Option("--input-tokens", min=1, max=1_000_000, help="How long drawn prompts are, about a token a word."),
    ] = 100,
    output_tokens: Annotated[
        int | None, typer.Option("--output-tokens", min=1, help="The most tokens to answer.")
    ] = None,
    whole: Annotated[bool, typer.Option("--whole", help="Ask for the answer at once instead of a stream.")] = False,
    body: Annotated[
        Path | None,
        typer.Option("--body", metavar="FILE", help="A body of your own, with {{prompt}}, {{model}}, {{input_tokens}}, "
                     "{{output_tokens}}, {{id}}; for a WebSocket, a message a line."),
    ] = None,
    file: Annotated[Path | None, typer.Option("--file", metavar="FILE", help="The recording to transcribe.")] = None,
    method: Annotated[str, typer.Option("--method", metavar="NAME", help="For --api http.")] = "POST",
    until: Annotated[
        list[str] | None,
        typer.Option("--until", metavar="TEXT", help="A WebSocket's turn ends with a message that holds this."),
    ] = None,
    rate: Annotated[float | None, typer.Option("--rate", metavar="RPS", help="Requests a second; else 2.")] = None,
    duration: Annotated[
        str | None, typer.Option("--duration", metavar="TIME", help="For how long to send; 30s by default.")
    ] = None,
    requests: Annotated[
        int | None, typer.Option("--requests", min=1, help="How many to send, instead of --duration.")
    ] = None,
    arrivals: Annotated[
        str, typer.Option("--arrivals", metavar="KIND", help="poisson, constant, or gamma:SHAPE.")
    ] = "poisson",
    stages: Annotated[
        str | None, typer.Option("--stages", metavar="RATErps:TIME,...", help="Stages of load, one after the other.")
    ] = None,
    replay: Annotated[
        Path | None,
        typer.Option("--replay", metavar="FILE", help="A recorded trace: Azure CSV, Mooncake or other JSON lines."),
    ] = None,
    speed: Annotated[float, typer.Option("--speed", metavar="N", help="Replay so many times as fast.")] = 1.0,
    concurrency: Annotated[
        int | None, typer.Option("--concurrency", min=1, max=10_000, help="Closed loop: so many at once.")
    ] = None,
    warm_up: Annotated[
        str | None, typer.Option("--warm-up", metavar="TIME", help="Keep what starts before this out of the numbers.")
    ] = None,
    idle: Annotated[
        str | None, typer.Option("--idle", metavar="TIME,...", help="Afterwards, a request after each such pause.")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="The same seed draws the same schedule and prompts.")] = 1,
    timeout: Annotated[
        str, typer.Option("--timeout", metavar="TIME", help="From when it is due until a request has failed.")
    ] = "60s",
    connections: Annotated[
        int | None, typer.Option("--connections", min=1, help="At most so many; then requests wait, and are late.")
    ] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="A new connection for each request.")] = False,
    senders: Annotated[
        int | None, typer.Option("--senders", min=1, max=64, help="Processes that send; by default as the rate asks.")
    ] = None,
    key_env: Annotated[
        str, typer.Option("--key-env", metavar="NAME", help="The environment variable with the key for Authorization.")
    ] = "OUTLAY_API_KEY",
    header: Annotated[
        list[str] | None, typer.Option("--header", metavar="NAME:VALUE", help="Also send this header; no secrets.")
    ] = None,
    header_env: Annotated[
        list[str] | None,
        typer.Option("--header-env", metavar="NAME:VARIABLE", help="A header whose value is an environment variable."),
    ] = None,
    ca_file: Annotated[Path | None, typer.Option("--ca-file", metavar="FILE", help="Trust these authorities.")] = None,
    cert: Annotated[Path | None, typer.Option("--cert", metavar="FILE", help="A client certificate.")] = None,
    cert_key: Annotated[Path | None, typer.Option("--cert-key", metavar="FILE", help="Its private key.")] = None,
    insecure: Annotated[bool, typer.Option("--insecure", help="Trust any certificate.")] = False,
    metrics: Annotated[
        str | None,
        typer.Option("--metrics", metavar="URL|off", help="The engine's metrics; by default /metrics beside URL."),
    ] = None,
    site: Annotated[str | None, typer.Option("--site", metavar="NAME", help="Where this is measured from.")] = None,
    dimension: Annotated[
        list[str] | None, typer.Option("--dim", metavar="NAME=VALUE", help="Another dimension of the interactions.")
    ] = None,
    moment: Annotated[
        str | None, typer.Option("--moment", metavar="NAME", help="What the interactions are called.")
    ] = None,
    within: Annotated[
        str | None, typer.Option("--within", metavar="TIME", help="The limit to be on time, from when it was due.")
    ] = None,
    percentile: Annotated[
        float, typer.Option("--percentile", min=1, max=99.99, help="How many percent must be within it.")
    ] = 99.0,
    to: Annotated[
        str | None,
        typer.Option("--to", metavar="MARK", help="What --within counts to: first_token, first_output_token or end."),
    ] = None,
    budget: Annotated[
        str | None, typer.Option("--budget", "-b", metavar="FILE|PRESET", help="Limit and shares from an outlay.yaml.")
    ] = None,
    log: Annotated[
        Path | None, typer.Option("--log", metavar="FILE", help="The log; measure-DATE-TIME.jsonl when not given.")
    ] = None,
    html: Annotated[Path | None, typer.Option("--html", metavar="FILE", help="Also write a page.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON (docs/formats.md).")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No live view.")] = False,
) -> None:  # fmt: skip
    try:
        found = _found(context.params)
    except KeyboardInterrupt:
        stop("interrupted", INTERRUPTED)
    if found.measurement is None:
        _stop_empty(found)
    sys.stdout.buffer.write(_drawn(found.measurement, json=json))
    sys.stdout.flush()
    if html is not None and found.measurement.report is not None:
        from outlay.render.html import to_html

        write_whole(html, to_html(found.measurement.report).encode())
        print(f"Report: {html.resolve().as_uri()}", file=sys.stderr)
    _say_log(found)
    raise typer.Exit(_code(found.measurement, stopped=found.stopped))


def _found(options: dict[str, Any]) -> "Found":
    """Run it. Ends with the reason where it cannot be run, or not to its end."""
    from outlay.cli.measure_options import Mistake, job_of
    from outlay.cli.measuring import run
    from outlay.probe.crew import SenderDied

    try:
        return run(job_of(options))
    except Mistake as mistake:
        stop(str(mistake), USAGE)
    except SenderDied as died:
        stop(f"{died}; what came back until then is in the log", REFUSED)
    except OSError as error:
        stop(f"{error.filename or 'the log'}: {error.strerror}", USAGE)


def _stop_empty(found: "Found") -> NoReturn:
    if found.stopped:
        stop("nothing came back before it was ended", INTERRUPTED)
    from outlay.cli.schedules import ALL_WARM_UP

    stop(ALL_WARM_UP, REFUSED)


def _drawn(measurement: "Measurement", *, json: bool) -> bytes:
    if json:
        from outlay.render.measured_machine import to_json

        return to_json(measurement) + b"\n"
    from rich.console import Console

    from outlay.render.measured import render

    console = Console()
    with console.capture() as drawn:
        render(measurement, console)
    return drawn.get().encode(console.encoding, "backslashreplace")


def _say_log(found: "Found") -> None:
    path = found.job.log
    if found.log_trouble is not None:
        say(f"{path}: {found.log_trouble.strerror}: the log ends there, the numbers above are of all requests")
        raise typer.Exit(USAGE)
    print(f"Log: {path} (outlay explain {path})", file=sys.stderr)


def _code(measurement: "Measurement", *, stopped: bool) -> int:
    """Interrupted; refused, when the load was INVALID or nobody answered; else done."""
    from outlay.generator import INVALID

    answered = any(point.outcomes.get("ok") for point in measurement.points)
    invalid = measurement.loads[0].verdict.state == INVALID
    return INTERRUPTED if stopped else OK if answered and not invalid else REFUSED
