"""One worker: listens, knows its clients and targets, asks targets how they are, and stops in good order."""

import asyncio
import os
import ssl
import time
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from random import random
from typing import Any, TypeVar

import msgspec

from outlay.decision import Decision
from outlay.deployment import AUTO, Client, Deployment, MomentRules, hashed
from outlay.gateway.exchange import Exchange
from outlay.gateway.inbound import Asked, Connection
from outlay.gateway.outbound import Listener, Pool
from outlay.gateway.router import LiveRouter
from outlay.gateway.surface import understand
from outlay.gateway.telemetry import Telemetry
from outlay.gauges import load_report, quantities, samples
from outlay.units import NS_PER_MS, NS_PER_S
from outlay.wire import read_budget
from outlay.work import Request

Result = TypeVar("Result")
_LOOK_S = 0.25
_LAG_S = 0.1
_MOST_PAGE = 4 * 1024 * 1024
_KEPT = 50
_MOST_LINES = 100
_TEXT = b"text/plain; charset=utf-8"
_METRICS = b"text/plain; version=0.0.4; charset=utf-8"
_JSON = b"application/json"


class Worker:
    """Serves a deployment on one event loop.

    `secrets` are the environment; `log` gets a line for each request, some at a time.
    """

    def __init__(
        self, deployment: Deployment, secrets: Mapping[str, str], log: Callable[[bytes], None] | None = None
    ) -> None:
        self.deployment = deployment
        self.loop = asyncio.get_running_loop()
        self.router = LiveRouter(deployment, random)
        targets = deployment.fleet.targets
        self.names = tuple(target.name for target in targets)
        self.telemetry = Telemetry(self.names)
        tls = ssl.create_default_context(cafile=deployment.authorities) if _any_tls(deployment) else None
        self.pools = [
            Pool(endpoint, tls=tls if endpoint.tls else None, connect_ns=deployment.limits.connect_ns)
            for endpoint in deployment.endpoints
        ]
        self.upstream_names = [(each.prefix.encode(), each.authority.encode()) for each in deployment.endpoints]
        self.credentials = [
            None if each.key_variable is None else secrets[each.key_variable].encode("latin-1")
            for each in deployment.endpoints
        ]
        self.connections: set[Connection] = set()
        self.exchanges: set[Exchange] = set()
        self.draining = False
        self._log = log
        self._lines: list[bytes] = []
        self._tasks: set[asyncio.Task[Any]] = set()
        self._clients = {client.key_sha256: Known(client) for client in deployment.clients}
        self._recent: deque[Exchange] = deque(maxlen=_KEPT)
        self._headroom: tuple[Decision | None, float] = (None, 0.0)
        self._begun = f"{os.getpid():x}{time.monotonic_ns() & 0xFFFFFF:06x}"
        self._sequence = 0

    def spawn(self, work: Coroutine[Any, Any, Result]) -> asyncio.Task[Result]:
        """Work of this worker, which is held until it is done."""
        task = self.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    # Life

    async def serve(self, stop: asyncio.Event, ready: Callable[[str], None]) -> None:
        """Answer until `stop`, then let what is under way end. Raises OSError when the address cannot be had."""
        deployment = self.deployment
        tls = _server_tls(deployment)
        listener = await self.loop.create_server(
            lambda: Connection(self.answer, self.connections, deployment.limits),
            deployment.host, deployment.port, backlog=4096, ssl=tls,
        )  # fmt: skip
        for target in range(len(self.pools)):
            self.spawn(self._keep_in_touch(target))
            if deployment.endpoints[target].metrics is not None:
                self.spawn(self._scrape(target))
        self.spawn(self._look_around())
        self.spawn(self._watch_lag())
        host, port = listener.sockets[0].getsockname()[:2]
        ready(f"{'https' if tls else 'http'}://{f'[{host}]' if ':' in host else host}:{port}")
        await stop.wait()
        listener.close()
        await self._drain()
        for task in tuple(self._tasks):
            task.cancel()
        self._write_log()
        for pool in self.pools:
            pool.close()
        for connection in tuple(self.connections):
            connection.transport.abort()

    async def _drain(self) -> None:
        self.draining = True
        for connection in tuple(self.connections):
            connection.close_when_idle()
        until_ns = time.monotonic_ns() + self.deployment.limits.drain_ns
        while self.exchanges and time.monotonic_ns() < until_ns:
            await asyncio.sleep(0.02)

    # Requests

    def answer(self, connection: Connection, asked: Asked) -> Exchange | None:
        """Answer a page at once; everything else becomes an exchange."""
        page = _PAGES.get(asked.path) if asked.method in (b"GET", b"HEAD") else None
        try:
            if page is not None:
                if asked.path not in _OPEN:
                    self._who(asked)
                connection.write_page(asked, *page(self))
                return None
            exchange = self._admit(connection, asked)
        except _TurnedAwayError as error:
            self.telemetry.request("none", "client-error", error.status, 0)
            connection.write_error(asked, error.status, str(error), error.extra)
            return None
        self.exchanges.add(exchange)
        connection.answering = exchange
        exchange.begin()
        return exchange if connection.answering is exchange else None

    def _admit(self, connection: Connection, asked: Asked) -> Exchange:
        """Whose request it is and what it asks for. Raises _TurnedAwayError."""
        known = self._who(asked)
        try:
            ask = understand(asked.path, asked.named.get(b"content-type", b""), asked.body)
        except ValueError as error:
            raise _TurnedAwayError(400, str(error)) from None
        told = read_budget(asked.named)
        self.telemetry.notes += len(told.notes)
        moment = self._moment(told.moment, None if known is None else known.client)
        policy = self.router.ladders.policy(moment.name, ask.model or AUTO)
        if policy is None:
            shown = ", ".join(self.deployment.models()[:12])
            raise _TurnedAwayError(404, f"no target serves the model {str(ask.model)[:100]}; there are {shown}")
        if known is not None:
            known.ask(time.monotonic_ns())
        self._sequence += 1
        output = moment.output_tokens if ask.most_tokens is None else min(ask.most_tokens, moment.output_tokens)
        useful = output if moment.useful_tokens is None or not ask.stream else min(moment.useful_tokens, output)
        request = Request(
            id=_request_id(asked) or f"{self._begun}-{self._sequence}",
            moment=moment.name,
            path=self.router.path(told.region, connection.rtt_ns),
            input_tokens=ask.input_tokens,
            output_tokens=output,
            useful_tokens=useful,
        )
        return Exchange(self, connection, asked, ask, told, moment, policy, request, known)

    def _moment(self, told: str | None, client: Client | None) -> MomentRules:
        """The moment that a request names if it is declared, else its key's, else the gateway's."""
        named = told if told in self.deployment.moments else None
        name = named or (client.moment if client is not None else None) or self.deployment.moment
        if client is not None and client.moments and name not in client.moments:
            raise _TurnedAwayError(403, f"this key may not ask for the moment {name}")
        return self.deployment.moment_of(name)

    def _who(self, asked: Asked) -> "Known | None":
        if not self._clients:
            return None
        scheme, _, key = asked.named.get(b"authorization", b"").partition(b" ")
        key = key if scheme.lower() == b"bearer" else asked.named.get(b"x-api-key", b"")
        known = self._clients.get(hashed(key.strip().decode("latin-1")))
        if known is None:
            raise _TurnedAwayError(401, "no key that is known here came in the authorization header")
        return known

    def done(self, exchange: Exchange, now_ns: int) -> None:
        """An exchange is over."""
        self.exchanges.discard(exchange)
        if exchange.known is not None:
            exchange.known.under_way -= 1
        self.telemetry.request(exchange.moment.name, exchange.outcome, exchange.status, exchange.route_ns)
        exchange.ended_ns = now_ns
        exchange.asked.body = b""  # what was said is not kept
        self._recent.append(exchange)
        if self._log is not None:
            self._lines.append(msgspec.json.encode(self._entry(exchange)))
            if len(self._lines) >= _MOST_LINES:
                self._write_log()

    def _write_log(self) -> None:
        if self._log is not None and self._lines:
            lines, self._lines = self._lines, []
            self._log(b"\n".join(lines) + b"\n")

    def _entry(self, exchange: Exchange) -> dict[str, object]:
        """What the log says of one request: sizes, times and names, none of what was said."""
        asked, decision, known = exchange.asked, exchange.decision, exchange.known
        begun_ns, first_ns = asked.received_ns, exchange.first_ns
        target = None if decision is None else decision.target
        return {
            "id": exchange.request.id,
            "moment": exchange.moment.name,
            "path": asked.path.decode("latin-1")[:200],
            "model": exchange.ask.model,
            "client": None if known is None else known.client.name,
            "stream": exchange.ask.stream,
            "outcome": exchange.outcome,
            "status": exchange.status,
            "target": None if target is None else self.names[target],
            "reason": None if decision is None else decision.reason,
            "rung": None if decision is None else decision.rung,
            "p": None if decision is None else decision.p_on_time,
            "tries": exchange.tries,
            "bytes_in": exchange.bytes_in,
            "bytes_out": exchange.bytes_out,
            "remaining_ns": exchange.remaining_ns,
            "route_ns": exchange.route_ns,
            "first_ns": None if first_ns is None else first_ns - begun_ns,
            "total_ns": exchange.ended_ns - begun_ns,
        }

    def headroom_ns(self, decision: Decision) -> float:
        """Of a decision that may stand for several requests, worked out once."""
        if self._headroom[0] is not decision:
            self._headroom = (decision, decision.headroom_ns)
        return self._headroom[1]

    def load_report(self, target: int, header: bytes) -> None:
        """A target's answer said how it is."""
        found = load_report(header.decode("latin-1"))
        if found:
            self.router.reported(target, found, "load report", time.monotonic_ns())

    # Targets

    async def _keep_in_touch(self, target: int) -> None:
        """Keep a connection warm, and measure the way."""
        pool = self.pools[target]
        # Not all at the same instant.
        await asyncio.sleep(self.deployment.probe_ns / NS_PER_S * target / len(self.pools))
        while True:
            try:
                rtt_ns = await pool.warm()
            except OSError:
                rtt_ns = 0
            if rtt_ns:
                self.router.measured(target, rtt_ns, time.monotonic_ns())
            await asyncio.sleep(self.deployment.probe_ns / NS_PER_S)

    async def _scrape(self, target: int) -> None:
        """Read the metrics page; one that has none is asked less and less often."""
        endpoint, every_s = self.deployment.endpoints[target], self.deployment.scrape_ns / NS_PER_S
        path = endpoint.metrics or "/metrics"
        ask = f"GET {path} HTTP/1.1\r\nhost: {endpoint.authority}\r\naccept: text/plain\r\n\r\n".encode()
        wait_s = every_s
        while True:
            page = await self._fetch(self.pools[target], ask)
            found = quantities(samples(page)) if page is not None else {}
            if found:
                self.router.reported(target, found, "scrape", time.monotonic_ns())
            wait_s = every_s if found else min(wait_s * 2, 10.0)
            await asyncio.sleep(wait_s)

    async def _fetch(self, pool: Pool, ask: bytes) -> str | None:
        page = _Page(self.loop)
        upstream = None
        try:
            async with asyncio.timeout(1.0):
                upstream = pool.take() or await pool.connect()
                upstream.send(page, ask, no_body=False)
                return await page.whole
        except (OSError, ValueError):
            if upstream is not None and not page.whole.done():
                upstream.cancel()
            return None
        finally:
            page.whole.cancel()

    async def _look_around(self) -> None:
        while True:
            now_ns = time.monotonic_ns()
            for connection in tuple(self.connections):
                connection.look(now_ns)
            for pool in self.pools:
                pool.trim(now_ns)
            self._write_log()
            await asyncio.sleep(_LOOK_S)

    async def _watch_lag(self) -> None:
        while True:
            due_ns = time.monotonic_ns() + round(_LAG_S * NS_PER_S)
            await asyncio.sleep(_LAG_S)
            self.telemetry.lag.add(max(time.monotonic_ns() - due_ns, 0))

    # Pages

    def ready(self) -> tuple[int, bytes, bytes]:
        """Ready while somebody can be chosen and it is not stopping."""
        usable = bool(self.router.health.usable(time.monotonic_ns()).any())
        if self.draining or not usable:
            return 503, _TEXT, b"stopping\n" if self.draining else b"no target is fit to be used\n"
        return 200, _TEXT, b"ready\n"

    def models(self) -> tuple[int, bytes, bytes]:
        """The names that clients may ask for."""
        names = self.deployment.models()
        listed = [{"id": name, "object": "model", "created": 0, "owned_by": "outlay"} for name in names]
        return 200, _JSON, msgspec.json.encode({"object": "list", "data": listed})

    def metrics(self) -> tuple[int, bytes, bytes]:
        """The Prometheus page."""
        router = self.router
        values: dict[str, float] = {
            "outlay_gateway_connections": len(self.connections),
            "outlay_gateway_in_flight": len(self.exchanges),
            "outlay_gateway_attempts_in_flight": router.signals.under_way(),
            "outlay_gateway_upstream_connections": sum(len(pool.open) for pool in self.pools),
            "outlay_gateway_replayed_total": sum(pool.replayed for pool in self.pools),
            "outlay_gateway_decisions_total": router.decisions,
            "outlay_gateway_decisions_that_stood_total": router.stood,
            "outlay_gateway_notes_total": self.telemetry.notes,
        }
        return 200, _METRICS, self.telemetry.page(values)

    def status(self) -> tuple[int, bytes, bytes]:
        """Targets, their signals with ages, alarms, and the last decisions with their reasons."""
        now_ns = time.monotonic_ns()
        router = self.router
        states = router.health.states(now_ns)
        targets = [
            {
                "target": target.name,
                "site": target.site,
                "variant": target.variant,
                "state": states[place],
                "rtt_ms": round(router.site_rtt_ns(place) / NS_PER_MS, 3),
                "limit": router.limits[place].limit,
                "signals": {
                    name: {"value": signal.value, "sigma": signal.sigma, "age_ms": signal.age_ns / NS_PER_MS,
                           "source": signal.source}
                    for name, signal in router.forecaster.of(place, now_ns).items()
                },
            }
            for place, target in enumerate(self.deployment.fleet.targets)
        ]  # fmt: skip
        found = router.forecaster.alarms(now_ns)
        alarms = [{"kind": alarm.kind, "target": alarm.target, "text": alarm.text} for alarm in found]
        recent = [self._entry(exchange) for exchange in reversed(self._recent)]
        return 200, _JSON, msgspec.json.encode({"targets": targets, "alarms": alarms, "recent": recent})


_PAGES: dict[bytes, Callable[[Worker], tuple[int, bytes, bytes]]] = {
    b"/healthz": lambda _: (200, _TEXT, b"ok\n"),
    b"/readyz": Worker.ready,
    b"/metrics": Worker.metrics,
    b"/v1/models": Worker.models,
    b"/outlay/status": Worker.status,
}


# What monitors ask without a key: whether it lives, and counts. The others name targets and what clients asked.
_OPEN = frozenset((b"/healthz", b"/readyz", b"/metrics"))


class _TurnedAwayError(Exception):
    """A request that is answered by the gateway itself, because of what it is or whose."""

    def __init__(self, status: int, why: str, extra: bytes = b"") -> None:
        super().__init__(why)
        self.status, self.extra = status, extra


class Known:
    """A client and how much it asks: a bucket that refills at its rate, of one second's worth."""

    __slots__ = ("_at_ns", "_tokens", "client", "under_way")

    def __init__(self, client: Client) -> None:
        self.client = client
        self.under_way = 0
        self._tokens = max(client.per_s or 0.0, 1.0)
        self._at_ns = time.monotonic_ns()

    def ask(self, now_ns: int) -> None:
        """One more request. Raises _TurnedAwayError when that is too much."""
        client = self.client
        wait_s = 1.0 if client.at_once is not None and self.under_way >= client.at_once else self._wait_s(now_ns)
        if wait_s > 0:
            again = b"retry-after: %d\r\n" % max(round(wait_s + 0.5), 1)
            raise _TurnedAwayError(429, "this key asks more than it may", again)
        self.under_way += 1

    def _wait_s(self, now_ns: int) -> float:
        per_s = self.client.per_s
        if per_s is None:
            return 0.0
        self._tokens = min(self._tokens + (now_ns - self._at_ns) / NS_PER_S * per_s, max(per_s, 1.0))
        self._at_ns = now_ns
        if self._tokens < 1:
            return (1 - self._tokens) / per_s if per_s else 3600.0
        self._tokens -= 1
        return 0.0


class _Page(Listener):
    """A small page, read whole."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.whole: asyncio.Future[str] = loop.create_future()
        self._status = 0
        self._body = bytearray()

    def heard_head(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        self._status = status

    def heard_body(self, data: bytes) -> None:
        if len(self._body) < _MOST_PAGE:
            self._body += data

    def heard_end(self) -> None:
        if not self.whole.done():
            self.whole.set_result(self._body.decode("utf-8", "replace") if self._status == 200 else "")

    def broke(self, reason: str, *, untouched: bool) -> None:
        if not self.whole.done():
            self.whole.set_exception(ConnectionError(reason))


def _request_id(asked: Asked) -> str | None:
    given = asked.named.get(b"x-request-id", b"")
    return given.decode("latin-1") if 0 < len(given) <= 128 and given.isascii() else None


def _any_tls(deployment: Deployment) -> bool:
    return any(endpoint.tls for endpoint in deployment.endpoints)


def _server_tls(deployment: Deployment) -> ssl.SSLContext | None:
    if deployment.certificate is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(deployment.certificate, deployment.private_key)
    context.set_alpn_protocols(["http/1.1"])
    return context
