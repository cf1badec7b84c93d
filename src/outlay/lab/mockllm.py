"""A reference LLM server: answers as its model names say, to the fraction of a millisecond, and keeps the truth of it.

    python -m outlay.lab.mockllm --port 0

It binds to loopback only and prints its address as one line. It stores ids, sizes and instants, never what was asked.
"""

import argparse
import asyncio
import ssl
from collections.abc import Callable
from pathlib import Path

import msgspec

from outlay.lab.asked import asked
from outlay.lab.beats import Api
from outlay.lab.inbound import PATIENCE_NS, Answer, Connection, Page, Request, listen, on_signal, refusal
from outlay.lab.loop import new_loop
from outlay.lab.play import Answering, HttpWire, Part, Server
from outlay.lab.realtime import Realtime
from outlay.units import from_s

_APIS: dict[bytes, Api] = {
    b"/v1/chat/completions": "chat",
    b"/v1/completions": "completions",
    b"/v1/responses": "responses",
    b"/v1/embeddings": "embeddings",
    b"/v1/audio/speech": "speech",
    b"/v1/audio/transcriptions": "transcriptions",
}
_REALTIME = b"/v1/realtime"


def answer(server: Server, connection: Connection, request: Request) -> Page | Answer:
    """What is answered to one request: a page, a script being played, or a session."""
    path = request.path
    if path in _PAGES:
        return _PAGES[path](server) if request.method == b"GET" else refusal(405, "only GET here")
    if path == _REALTIME:
        return _session(server, connection, request)
    if path not in _APIS:
        return refusal(404, "there is no such path")
    if request.method != b"POST":
        return refusal(405, "only POST here")
    return _play(server, connection, request, _APIS[path])


def _play(server: Server, connection: Connection, request: Request, api: Api) -> Page | Answer:
    try:
        script, call = asked(request, api, server.new_id)
    except (ValueError, RecursionError) as error:  # msgspec's errors are ValueErrors
        return refusal(400, str(error))
    if api == "realtime" and script.status is None:
        return Realtime(server, connection, request, script, call)
    part = Part(script, call, request.received_ns, request.ready_ns)
    return Answering(server, connection.transport, part, HttpWire(connection, request, script, call))


def _session(server: Server, connection: Connection, request: Request) -> Page | Answer:
    if request.rest is None or request.method != b"GET":
        return refusal(426, "only a WebSocket here")
    return _play(server, connection, request, "realtime")


def _models(_server: Server) -> Page:
    listed = [{"id": "mock", "object": "model", "created": 0, "owned_by": "outlay"}]
    return Page(200, "application/json", msgspec.json.encode({"object": "list", "data": listed}))


_PAGES: dict[bytes, Callable[[Server], Page]] = {
    b"/v1/models": _models,
    b"/metrics": lambda server: Page(200, "text/plain; version=0.0.4; charset=utf-8", server.metrics.text().encode()),
    b"/truth": lambda server: Page(200, "application/x-ndjson", b"".join(server.truth.lines())),
    b"/healthz": lambda _: Page(200, "text/plain; charset=utf-8", b"ok\n"),
}


async def serve(
    port: int,
    *,
    stop: asyncio.Event,
    ready: Callable[[str], None],
    patience_ns: int = PATIENCE_NS,
    tls: ssl.SSLContext | None = None,
) -> None:
    """Answer on loopback until `stop`; `ready` is given the address. Raises OSError when the port is taken."""
    server = Server(asyncio.get_running_loop())
    await listen(
        lambda connection, request: answer(server, connection, request),
        port,
        stop=stop,
        ready=ready,
        patience_ns=patience_ns,
        tls=tls,
    )


async def _until_signalled(port: int, patience_ns: int, tls: ssl.SSLContext | None) -> None:
    await serve(
        port, stop=on_signal(), ready=lambda address: print(address, flush=True), patience_ns=patience_ns, tls=tls
    )


def _tls(cert: Path | None, key: Path | None) -> ssl.SSLContext | None:
    """What TLS needs; None without a certificate. Raises OSError for files that cannot be read as such."""
    if cert is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    context.set_alpn_protocols(["http/1.1"])
    return context


def main() -> None:
    """The command line; `--help` tells it."""
    parser = argparse.ArgumentParser(prog="python -m outlay.lab.mockllm", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--port", type=int, default=0, help="0, the default, takes a free one")
    parser.add_argument("--patience", type=float, default=10, metavar="S", help="seconds for a request to arrive")
    parser.add_argument("--cert", type=Path, metavar="FILE", help="a certificate in PEM: https and wss")
    parser.add_argument("--key", type=Path, metavar="FILE", help="its key, where the certificate's file lacks it")
    options = parser.parse_args()
    if options.key is not None and options.cert is None:
        parser.error("--key needs --cert")
    try:
        tls = _tls(options.cert, options.key)
    except OSError as error:  # of which the errors of ssl are
        parser.error(f"--cert {options.cert}: {error}")
    try:
        with asyncio.Runner(loop_factory=new_loop) as runner:
            runner.run(_until_signalled(options.port, from_s(options.patience), tls))
    except (OSError, OverflowError) as error:
        parser.error(f"port {options.port}: {error}")


if __name__ == "__main__":
    main()
