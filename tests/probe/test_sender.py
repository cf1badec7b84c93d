"""A real sender process against a server whose every byte is known."""

import asyncio
import socket
import ssl
from itertools import pairwise
from pathlib import Path

import pytest
import trustme
from world import OK, World, at_once, every, writes

from outlay.probe.exchange import Exchange
from outlay.probe.orders import Tls
from outlay.units import NS_PER_MS

MARKS = (
    "intended",
    "enqueued",
    "begun",
    "dns",
    "connected",
    "tls",
    "written",
    "sent",
    "first_byte",
    "headers",
    "ended",
)


def instants(exchange: Exchange) -> list[int]:
    known = [getattr(exchange, f"{name}_ns") for name in MARKS]
    return [at_ns for at_ns in known if at_ns is not None]


def body(exchange: Exchange) -> bytes:
    return b"".join(piece for _, piece in exchange.body)


def test_a_request_on_a_new_connection_has_its_marks_in_causal_order():
    exchange = World(writes(OK)).measure(at_once(1)).only
    assert (exchange.status, body(exchange), exchange.failure, exchange.reused) == (200, b"ok", "", False)
    assert exchange.connected_ns is not None
    assert exchange.sent_ns is not None
    assert exchange.dns_ns is None  # an address needs no look-up
    assert exchange.tls_ns is None
    assert instants(exchange) == sorted(instants(exchange))


def test_a_name_is_looked_up():
    exchange = World(writes(OK)).measure(at_once(1), host="localhost").only
    assert exchange.status == 200
    assert exchange.begun_ns <= exchange.dns_ns <= exchange.connected_ns


def test_connections_are_kept_and_kept_ones_have_no_set_up():
    world = World(writes(OK))
    seen = world.measure(at_once(5), lanes=1)
    assert world.connections == 1
    assert [exchange.reused for exchange in seen.in_order] == [False, True, True, True, True]
    assert all(exchange.connected_ns is None for exchange in seen.in_order[1:])
    assert all(instants(exchange) == sorted(instants(exchange)) for exchange in seen.exchanges)


def test_fresh_connections_are_made_on_demand():
    world = World(writes(OK))
    seen = world.measure(every(5, 4), fresh=True)
    assert world.connections == 4
    assert all(exchange.connected_ns is not None for exchange in seen.exchanges)


def test_open_loop_does_not_wait_for_answers():
    async def after_all(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _place: int) -> None:
        while len(world.heads) < 20:
            await asyncio.sleep(0.001)
        writer.write(OK)

    world = World(after_all)
    seen = world.measure(every(1, 20))
    assert world.connections == 20
    assert {exchange.status for exchange in seen.exchanges} == {200}


def test_intended_starts_are_those_of_the_schedule_to_the_nanosecond():
    seen = World(writes(OK)).measure(every(3, 10))
    assert [exchange.intended_ns - seen.begun_ns for exchange in seen.in_order] == [
        k * 3 * NS_PER_MS for k in range(10)
    ]
    assert all(exchange.written_ns >= exchange.intended_ns for exchange in seen.exchanges)


def test_a_capped_pool_makes_requests_late_and_not_their_schedule():
    """One connection, six requests due at once: each begins when the one before it has ended."""
    world = World(writes(OK, pause_s=0))
    seen = world.measure(at_once(6), connections=1)
    assert world.connections == 1
    order = sorted(seen.exchanges, key=lambda exchange: exchange.begun_ns)
    assert all(later.begun_ns >= earlier.ended_ns for earlier, later in pairwise(order))
    assert len({exchange.intended_ns for exchange in seen.exchanges}) == 1


def test_a_closed_loop_sends_the_next_when_one_is_done():
    world = World(writes(OK))
    seen = world.measure(at_once(30), lanes=3)
    assert len(seen.exchanges) == 30
    assert world.connections == 3
    for lane in range(1, 4):
        order = [exchange for exchange in seen.in_order if exchange.connection == lane]
        assert all(later.intended_ns >= earlier.ended_ns for earlier, later in pairwise(order))


CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"


def test_pieces_carry_the_instant_of_their_own_read():
    exchange = World(writes(CHUNKED, b"3\r\nabc\r\n", b"2\r\nde\r\n", b"0\r\n\r\n")).measure(at_once(1)).only
    assert [piece for _, piece in exchange.body] == [b"abc", b"de"]
    stamps = [exchange.headers_ns, *(at_ns for at_ns, _ in exchange.body), exchange.ended_ns]
    # The server waits 2 ms before each piece; a client cannot see one before it was written.
    assert all(later - earlier > NS_PER_MS // 2 for earlier, later in pairwise(stamps))


def test_a_head_in_pieces_and_an_interim_answer_are_one_answer():
    pieces = (
        b"HTTP/1.1 100 Continue\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX-",
        b"Name: v\r\ncontent-length: 2\r\n\r\n",
        b"ok",
    )
    exchange = World(writes(*pieces)).measure(at_once(1)).only
    assert (exchange.status, exchange.failure, body(exchange)) == (200, "", b"ok")
    assert exchange.headers == [("x-name", "v"), ("content-length", "2")]


@pytest.mark.parametrize(
    ("pieces", "end", "failure"),
    [
        ((b"HTTP/1.1 200 OK\r\n\r\n", b"till the end"), "close", ""),  # no length: the end of the connection is its end
        ((b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nshort",), "close", "cut"),
        ((CHUNKED, b"3\r\nabc\r\n"), "close", "cut"),
        ((b"HTTP/1.1 200 O",), "close", "cut"),
        ((CHUNKED, b"3\r\nabc\r\n"), "reset", "cut"),
        ((), "close", "reset"),
        ((b"SSH-2.0-OpenSSH_9.2\r\n",), "", "wire"),
        ((CHUNKED, b"zz\r\n"), "", "wire"),
    ],
)
def test_an_end_is_named_for_what_it_is(pieces: tuple[bytes, ...], end: str, failure: str):
    exchange = World(writes(*pieces, end=end)).measure(at_once(1)).only
    assert exchange.failure == failure
    assert exchange.ended_ns is not None


def test_a_kept_connection_that_the_server_had_closed_is_no_failure_of_the_request():
    async def once(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter, place: int) -> None:
        # It answers the first request of each connection, and ends the connection as the second comes in.
        if place == 0:
            writer.write(OK)
        else:
            writer.transport.abort()

    seen = World(once).measure(at_once(4), lanes=1)
    assert [exchange.failure for exchange in seen.in_order] == [""] * 4
    assert [exchange.retried for exchange in seen.in_order] == [False, True, True, True]
    assert all(instants(exchange) == sorted(instants(exchange)) for exchange in seen.exchanges)


def test_whoever_waits_too_long_is_given_up_and_the_others_are_not():
    async def only_the_first(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _place: int) -> None:
        if world.heads[-1].startswith(b"GET /0 "):
            writer.write(OK)
        else:
            await asyncio.sleep(30)

    world = World(only_the_first)
    seen = world.measure(at_once(2), timeout_ns=150 * NS_PER_MS)
    answered, late = seen.in_order
    assert (answered.failure, late.failure) == ("", "timeout")
    assert late.ended_ns - late.intended_ns >= 150 * NS_PER_MS


def test_what_never_got_a_connection_was_never_written():
    async def never(_reader: asyncio.StreamReader, _writer: asyncio.StreamWriter, _place: int) -> None:
        await asyncio.sleep(30)

    seen = World(never).measure(at_once(3), connections=1, timeout_ns=100 * NS_PER_MS)
    assert [exchange.failure for exchange in seen.in_order] == ["timeout"] * 3
    assert sum(exchange.written_ns is None for exchange in seen.exchanges) >= 1


def test_nobody_listens():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    exchange = World(writes(OK)).measure(at_once(1), port=port).only
    assert (exchange.failure, exchange.why) == ("connect", "Connection refused")
    assert exchange.ended_ns is not None
    assert exchange.written_ns is None


def test_a_name_that_is_none():
    exchange = World(writes(OK)).measure(at_once(1), host="no-such-host.invalid").only
    assert exchange.failure == "dns"


def test_stopping_gives_up_what_runs_and_does_not_send_the_rest():
    async def first_only(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _place: int) -> None:
        if world.heads[-1].startswith(b"GET /0 "):
            writer.write(OK)
        else:
            await asyncio.sleep(30)

    world = World(first_only)
    seen = world.measure(every(1, 3) + every(3_600_000, 2)[1:], stop_after=1)
    assert {exchange.failure for exchange in seen.exchanges} == {"", "stopped"}
    assert len(seen.exchanges) <= 3


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> tuple[ssl.SSLContext, Path]:
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)
    file = tmp_path_factory.mktemp("tls") / "authority.pem"
    authority.cert_pem.write_to_path(file)
    return context, file


def test_tls_has_its_own_mark_and_kept_connections_have_none(authority: tuple[ssl.SSLContext, Path]):
    context, file = authority
    tls = Tls(server_name="localhost", ca_file=str(file))
    seen = World(writes(OK), tls=context).measure(at_once(3), lanes=1, client_tls=tls)
    first, *others = seen.in_order
    assert [exchange.status for exchange in seen.in_order] == [200, 200, 200]
    assert first.connected_ns < first.tls_ns <= first.written_ns
    assert all(exchange.tls_ns is None for exchange in others)


def test_an_unknown_authority_is_not_trusted_unless_told_so(authority: tuple[ssl.SSLContext, Path]):
    context, _ = authority
    refused = World(writes(OK), tls=context).measure(at_once(1), client_tls=Tls(server_name="localhost")).only
    assert refused.failure == "tls"
    assert refused.written_ns is None
    told = Tls(server_name="localhost", verify=False)
    assert World(writes(OK), tls=context).measure(at_once(1), client_tls=told).only.status == 200


def test_a_sender_tells_how_it_fared():
    seen = World(writes(OK)).measure(at_once(20), lanes=1)
    assert seen.health
    assert all(0 <= word.cpu_ns <= word.passed_ns * 1.1 and word.stalled_ns >= 0 for word in seen.health)
    assert seen.health[-1].in_flight == 0


def test_the_kernel_tells_the_smallest_round_trip():
    seen = World(writes(OK)).measure(at_once(20), lanes=1)
    known = [exchange.min_rtt_us for exchange in seen.in_order if exchange.min_rtt_us is not None]
    # On loopback it is microseconds; the server's own time is not in it.
    assert known
    assert all(rtt_us < 2000 for rtt_us in known)
