"""Setting up a connection, each round of it stamped: look-up, TCP, TLS, a WebSocket's upgrade."""

import asyncio
import ipaddress
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache, partial
from time import monotonic_ns
from typing import TYPE_CHECKING, Any, cast

from outlay.probe.connection import Connection, HttpConnection, plain_socket
from outlay.probe.exchange import Exchange
from outlay.probe.orders import Target, Tls

if TYPE_CHECKING:  # most runs need none, and its import would delay their first request
    from outlay.probe.websocket import WebSocketConnection


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialled:
    """Who hears of the new connection: of each exchange's end, and of its own while idle."""

    number: int
    target: int
    done: Callable[[Any, int, Exchange, bool], None]
    lost: Callable[[Any, int], None]


def prepare(target: Target) -> None:
    """Load what connections to the target will need, before there is anything to be late for."""
    if target.upgrade:
        import outlay.probe.websocket  # noqa: F401 - loaded only where it is needed
    if target.tls is not None:
        with suppress(OSError):  # each connection will say so
            tls_context(target.tls)


async def dial(loop: asyncio.AbstractEventLoop, target: Target, exchange: Exchange, dialled: Dialled) -> Connection:
    """A connection to the target; the instants of its rounds are stamped into `exchange`.

    Addresses are tried in the order of the resolver. Raises OSError, with the round that failed in
    `exchange.failure`.
    """
    exchange.failure = "dns"
    addresses = await _addresses(loop, target, exchange)
    exchange.failure = "connect"
    sock = await _connected(loop, addresses)
    exchange.connected_ns = monotonic_ns()
    made = partial(_make, target, dialled)
    connection: Connection
    if target.tls is None:
        _, connection = await loop.create_connection(made, sock=sock)
    else:
        exchange.failure = "tls"
        context = tls_context(target.tls)
        _, connection = await loop.create_connection(made, sock=sock, ssl=context, server_hostname=_name(target.tls))
        exchange.tls_ns = monotonic_ns()
    if target.upgrade:
        exchange.failure = "upgrade"
        await cast("WebSocketConnection", connection).upgraded
        exchange.upgraded_ns = monotonic_ns()
    exchange.failure = ""
    return connection


def _make(target: Target, dialled: Dialled) -> Any:
    def done(connection: Connection, exchange: Exchange, again: bool) -> None:
        dialled.done(connection, dialled.target, exchange, again)

    def lost(connection: Connection) -> None:
        dialled.lost(connection, dialled.target)

    if target.upgrade:
        from outlay.probe.websocket import WebSocketConnection

        return WebSocketConnection(dialled.number, target, done, lost)
    return HttpConnection(dialled.number, done, lost)


_Address = tuple[int, int, int, Any]


async def _addresses(loop: asyncio.AbstractEventLoop, target: Target, exchange: Exchange) -> list[_Address]:
    if (literal := _literal(target.host)) is not None:
        family = socket.AF_INET if literal.version == 4 else socket.AF_INET6
        return [(family, socket.SOCK_STREAM, socket.IPPROTO_TCP, (target.host, target.port))]
    try:
        found = await loop.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)
    except UnicodeError:
        raise OSError("no name of a host can be written so") from None
    exchange.dns_ns = monotonic_ns()
    return [(family, kind, protocol, address) for family, kind, protocol, _, address in found]


@lru_cache(maxsize=1000)
def _literal(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


async def _connected(loop: asyncio.AbstractEventLoop, addresses: list[_Address]) -> socket.socket:
    trouble: OSError = OSError("the name has no address")
    for family, kind, protocol, address in addresses:
        sock = plain_socket(family, kind, protocol)
        try:
            await loop.sock_connect(sock, address)
        except OSError as error:
            sock.close()
            trouble = error
        except BaseException:
            sock.close()
            raise
        else:
            return sock
    raise trouble


@lru_cache(maxsize=16)
def tls_context(tls: Tls) -> ssl.SSLContext:
    """The context for a target. Raises OSError for files that cannot be read or do not fit together."""
    context = ssl.create_default_context(cafile=tls.ca_file or None)
    if tls.certificate_file:
        context.load_cert_chain(tls.certificate_file, tls.key_file or None)
    if not tls.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["http/1.1"])
    return context


def _name(tls: Tls) -> str:
    return tls.server_name
