"""A gateway before servers whose behaviour is known, all on one event loop, and a client that reads the bare wire.

Servers are the reference server, whose model's name says how it behaves, and raw ones for what no HTTP server does.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

import msgspec

from outlay.deployment import Client, Deployment, Endpoint, Limits, MomentRules
from outlay.gateway.worker import Worker
from outlay.lab import mockllm
from outlay.policy import Rules, Rung
from outlay.units import NS_PER_MS
from outlay.work import Fleet, Service, Target

SPEED = Service(prefill_tokens_per_s=1e6, step_ns=100_000, overhead_ns=1_000_000)
CHAT = "/v1/chat/completions"
Serving = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@dataclass(slots=True)
class Reply:
    """An answer as it came over the wire. `is_whole`: as long as it said, or ended by its last chunk."""

    status: int
    headers: dict[str, str]
    body: bytes
    is_whole: bool

    def json(self) -> dict[str, dict[str, object]]:
        found: dict[str, dict[str, object]] = msgspec.json.decode(self.body)
        return found

    @property
    def events(self) -> list[bytes]:
        return [line[6:] for line in self.body.splitlines() if line.startswith(b"data: ")]


@dataclass(slots=True)
class World:
    """A gateway that runs, and what its client may do."""

    worker: Worker
    port: int
    stop: asyncio.Event
    serving: "asyncio.Task[None]"
    seen: list[bytes] = field(default_factory=list)

    async def raw(self, data: bytes) -> bytes:
        """Everything that comes back until the connection ends."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(data)
        try:
            return await asyncio.wait_for(reader.read(), 20)
        finally:
            writer.close()

    async def ask(
        self, *, stream: bool = False, model: str = "auto", headers: Mapping[str, str] | None = None, path: str = CHAT,
        **more: object,
    ) -> Reply:  # fmt: skip
        return parsed(await self.raw(request({"model": model, "stream": stream, **more}, headers or {}, path)))

    async def get(self, path: str) -> Reply:
        return parsed(await self.raw(f"GET {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n".encode()))

    def check_nothing_is_left(self) -> None:
        assert not self.worker.exchanges
        assert self.worker.router.signals.under_way() == 0
        assert self.worker.router.signals.own_waiting.sum() == self.worker.router.signals.own_answering.sum() == 0


def request(body: object, headers: Mapping[str, str], path: str = CHAT, connection: str = "close") -> bytes:
    content = msgspec.json.encode(body)
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    head = f"POST {path} HTTP/1.1\r\nhost: a\r\nconnection: {connection}\r\ncontent-type: application/json\r\n"
    return f"{head}{lines}content-length: {len(content)}\r\n\r\n".encode() + content


def parsed(data: bytes) -> Reply:
    head, _, rest = data.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    if headers.get("transfer-encoding") != "chunked":
        return Reply(int(first.split()[1]), headers, rest, is_whole=len(rest) == int(headers.get("content-length", -1)))
    body, is_whole = b"", False
    while rest:
        size, _, rest = rest.partition(b"\r\n")
        if int(size, 16) == 0:
            is_whole = True
            break
        body, rest = body + rest[: int(size, 16)], rest[int(size, 16) + 2 :]
    return Reply(int(first.split()[1]), headers, body, is_whole)


@asynccontextmanager
async def world(
    *targets: str | Serving | int,
    moment: MomentRules | None = None,
    limits: Limits | None = None,
    clients: tuple[Client, ...] = (),
    change: Callable[[Deployment], Deployment] = lambda deployment: deployment,
) -> AsyncIterator[World]:
    """Targets in the order in which they are preferred: a model of the reference server, a raw server, or a port.

    The first one is a variant of its own that every request is for; the others are what the ladder falls back to.
    """
    loop = asyncio.get_running_loop()
    stop, mock_stop = asyncio.Event(), asyncio.Event()
    mock_at: asyncio.Future[str] = loop.create_future()
    mock = loop.create_task(mockllm.serve(0, stop=mock_stop, ready=mock_at.set_result))
    mock_port = int((await mock_at).rpartition(":")[2])
    servers: list[asyncio.Server] = []
    endpoints = []
    for place, target in enumerate(targets):
        port, model = mock_port, None
        if isinstance(target, str):
            model = target
        elif isinstance(target, int):
            port = target
        else:
            servers.append(await asyncio.start_server(target, "127.0.0.1", 0))
            port = servers[-1].sockets[0].getsockname()[1]
        endpoints.append(Endpoint(target=f"t{place}", host="127.0.0.1", port=port, model=model, metrics=None))
    rungs = tuple(Rung(name=f"v{place}", variants=(f"v{place}",)) for place in range(len(targets)))
    rules = Rules(rungs=rungs, explore=0.0, attempts=len(targets), p_floor=1e-9, p_min=0.5)
    fleet = Fleet(
        Target(name=f"t{place}", site=f"s{place}", variant=f"v{place}", service=SPEED) for place in range(len(targets))
    )
    moment = replace(moment or MomentRules(name="m", limit_ns=5_000 * NS_PER_MS, output_tokens=16), rules=rules)
    deployment = Deployment(
        fleet=fleet, endpoints=tuple(endpoints), moments={"m": moment}, moment="m", port=0, clients=clients,
        limits=limits or Limits(), rtt_ns=dict.fromkeys(fleet.sites, 100000),
    )  # fmt: skip
    worker = Worker(change(deployment), {})
    at: asyncio.Future[str] = loop.create_future()
    serving = loop.create_task(worker.serve(stop, at.set_result))
    here = World(worker, int((await at).rpartition(":")[2]), stop, serving)
    try:
        yield here
        here.check_nothing_is_left()
    finally:
        stop.set()
        await serving
        mock_stop.set()
        await mock
        for server in servers:
            server.close()
