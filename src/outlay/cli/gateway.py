"""`outlay gateway`: stand before inference servers, and keep interactions within their budget."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO

import typer

from outlay.cli import USAGE
from outlay.cli.saying import say, stop

if TYPE_CHECKING:
    import asyncio

    from outlay.deployment import Deployment

HELP = """Serve OpenAI-compatible requests within their budget, by the targets of an outlay.yaml.

\b
outlay gateway outlay.yaml
outlay gateway outlay.yaml --listen 127.0.0.1:9000
outlay gateway outlay.yaml --check
outlay gateway --new-key
curl http://127.0.0.1:8080/outlay/status

A request says its budget with `x-outlay-budget: moment=voice-turn;rem=412`; without it the moment's own holds. The
answer says who served it and why in `x-outlay-decision`. Pages: /healthz, /readyz, /metrics, /outlay/status.

SIGTERM and Ctrl-C stop it when what is under way has ended; a second one stops it at once.

Exit codes: 0 stopped in good order, 2 usage or a file that is not valid.
"""


def gateway(
    file: Annotated[Path | None, typer.Argument(metavar="FILE", help="The outlay.yaml.", show_default=False)] = None,
    listen: Annotated[
        str | None, typer.Option("--listen", metavar="HOST:PORT", help="Instead of the address in FILE.")
    ] = None,
    check: Annotated[bool, typer.Option("--check", help="Only see whether FILE can be served.")] = False,
    new_key: Annotated[bool, typer.Option("--new-key", help="Make a key for a client, and its digest.")] = False,
) -> None:
    """See HELP."""
    if new_key:
        _new_key()
        return
    if file is None:
        stop("which file? try: outlay gateway outlay.yaml", USAGE)
    deployment = _deployment(file, listen)
    missing = [
        each.key_variable
        for each in deployment.endpoints
        if each.key_variable is not None and each.key_variable not in os.environ
    ]
    if missing:
        stop(f"{file}: the environment has no {', '.join(dict.fromkeys(missing))}", USAGE)
    if check:
        count = len(deployment.fleet.targets)
        say(f"{file}: {count} target{'s' if count != 1 else ''} at {len(deployment.fleet.sites)} sites; can be served")
        return
    _serve(deployment)


def _new_key() -> None:
    import secrets

    from outlay.deployment import hashed

    key = f"ok-{secrets.token_urlsafe(32)}"
    print(f"key         {key}\nkey_sha256  {hashed(key)}")


def _deployment(file: Path, listen: str | None) -> "Deployment":
    from dataclasses import replace

    from outlay.formats.deployment_keys import address
    from outlay.formats.spec import SpecError, load_spec

    try:
        deployment = load_spec(file.read_bytes(), str(file)).deployment
    except OSError as error:
        stop(f"{file}: {error.strerror}", USAGE)
    except SpecError as error:
        stop(str(error), USAGE)
    if deployment is None:
        stop(f"{file}: needs `sites` and `targets`, which say who serves requests", USAGE)
    if listen is not None:
        try:
            host, port = address(listen)
        except ValueError as error:
            stop(f"--listen: {error}", USAGE)
        deployment = replace(deployment, host=host, port=port)
    return deployment


def _serve(deployment: "Deployment") -> None:
    import asyncio
    import gc

    import uvloop

    from outlay.gateway.worker import Worker

    async def run() -> None:
        asked_to_stop = _on_signals()
        log = _log(deployment.access_log)
        worker = Worker(deployment, os.environ, log)
        # What is there by now stays: the collector need not walk through it while requests wait.
        gc.collect()
        gc.freeze()
        await worker.serve(asked_to_stop, lambda address: print(address, flush=True))

    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(run())
    except OSError as error:
        stop(f"{deployment.host}:{deployment.port}: {error.strerror or error}", USAGE)


def _on_signals() -> "asyncio.Event":
    import asyncio
    import signal

    event = asyncio.Event()

    def again() -> None:
        if event.is_set():
            os._exit(130)
        event.set()
        print("outlay: stopping when what is under way has ended", file=sys.stderr)

    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, again)
    return event


def _log(name: str | None) -> Callable[[bytes], None] | None:
    if name is None:
        return None
    # Open for as long as the gateway runs.
    file: BinaryIO = sys.stdout.buffer if name == "-" else Path(name).open("ab", buffering=0)  # noqa: SIM115

    def write(line: bytes) -> None:
        try:
            file.write(line)
            file.flush()
        except OSError:
            return  # a full disk must not stop requests

    return write
