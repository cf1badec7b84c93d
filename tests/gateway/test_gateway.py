"""Every request through the gateway ends on time and honestly, whatever its targets and its clients do."""

import asyncio
import contextlib
import re
import socket
import ssl
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest
import trustme
from gateway_world import CHAT, Serving, World, parsed, request, world

from outlay.deployment import Client, Deployment, Limits, MomentRules, hashed
from outlay.policy import Hedge
from outlay.units import NS_PER_MS, NS_PER_S

FAST = "mock-t1-i1-n4"


def run(work: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(work(), 60))  # type: ignore[arg-type]


def moment_of(limit_ms: int) -> MomentRules:
    return MomentRules(name="m", limit_ns=limit_ms * NS_PER_MS, output_tokens=4)


async def read_request(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    found = re.search(rb"content-length: (\d+)", head)
    return head + await reader.readexactly(int(found[1]) if found else 0)


def origin(*pieces: bytes, abort: bool = False, heard: list[bytes] | None = None) -> Serving:
    """A server that answers with these pieces, each on its own, and then hangs up."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            asked = await read_request(reader)
            if heard is not None:
                heard.append(asked)
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(0)
            if abort:
                writer.transport.abort()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    return serve


async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        await reader.read()
    finally:
        writer.close()


def dead_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


SSE_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
ROLE = b'data: {"choices":[{"delta":{"role":"assistant","content":""}}]}\n\n'
WORD = b'data: {"choices":[{"delta":{"content":"word"}}]}\n\n'
STOP = b'data: {"choices":[{"delta":{},"finish_reason":"stop"}]}\n\n'
DONE = b"data: [DONE]\n\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


LAST = b"0\r\n\r\n"


# What goes well


def test_a_whole_answer_says_who_gave_it() -> None:
    async def work() -> None:
        async with world(FAST) as here:
            reply = await here.ask(messages=[], headers={"x-request-id": "mine"})
            assert reply.status == 200
            assert reply.is_whole
            assert reply.json()["object"] == "chat.completion"
            assert reply.headers["x-request-id"] == "mine"
            assert re.fullmatch(r"target=t0;p=0\.\d+;headroom=\d+;rung=0", reply.headers["x-outlay-decision"])
            assert re.fullmatch(r"route;dur=[\d.]+, upstream;dur=[\d.]+", reply.headers["server-timing"])

    run(work)


def test_a_stream_comes_as_it_was_sent_and_ends_with_the_account() -> None:
    async def work() -> None:
        async with world(origin(SSE_HEAD, chunk(ROLE), chunk(WORD + WORD), chunk(STOP + DONE), LAST)) as here:
            reply = await here.ask(stream=True)
            assert reply.is_whole
            sent = ROLE + WORD + WORD + STOP + DONE
            assert reply.body.startswith(sent)
            assert re.fullmatch(rb": server-timing route;dur=[\d.]+, upstream;dur=[\d.]+\n\n", reply.body[len(sent) :])

    run(work)


def test_frames_that_come_byte_by_byte_are_handed_on_whole() -> None:
    async def work() -> None:
        whole = SSE_HEAD + chunk(WORD) + chunk(STOP) + chunk(DONE) + LAST
        async with world(origin(*(whole[place : place + 1] for place in range(len(whole))))) as here:
            reply = await here.ask(stream=True)
            assert reply.is_whole
            assert reply.body.startswith(WORD + STOP + DONE)

    run(work)


def test_the_target_is_asked_in_its_own_terms_and_for_what_is_left() -> None:
    async def work() -> None:
        heard: list[bytes] = []
        async with world(origin(b"HTTP/1.1 500 No\r\ncontent-length: 0\r\n\r\n", heard=heard),
                         origin(SSE_HEAD, chunk(WORD + STOP), LAST, heard=heard)) as here:  # fmt: skip
            told = {"x-outlay-budget": "moment=m;rem=1000;spent=20", "authorization": "Bearer theirs", "te": "x"}
            reply = await here.ask(stream=True, headers=told | {"grpc-timeout": "9S"}, seed=7)
            assert reply.status == 200
            remaining = []
            for place, asked in enumerate(heard):
                assert asked.count(b"content-length:") == 1
                assert b"\r\nte:" not in asked
                assert f'"model":"v{place}"'.encode() in asked
                assert b'"seed":7' in asked
                budgets = re.findall(rb"x-outlay-budget: moment=m;rem=([\d.]+);spent=([\d.]+)", asked)
                assert len(budgets) == 1
                assert float(budgets[0][1]) >= 20
                assert re.findall(rb"grpc-timeout: (\d+)u", asked) == [str(round(float(budgets[0][0]) * 1000)).encode()]
                remaining.append(float(budgets[0][0]))
            assert 1000 > remaining[0] > 0
            assert 1000 > remaining[1] > 0

    run(work)


def test_requests_on_one_connection_are_answered_in_order() -> None:
    async def work() -> None:
        async with world(FAST) as here:
            asked = [request({"model": "auto", "stream": place % 2 == 0}, {"x-request-id": f"r{place}"}, CHAT,
                             "close" if place == 5 else "keep-alive") for place in range(6)]  # fmt: skip
            answers = await here.raw(b"".join(asked))
            assert re.findall(rb"x-request-id: (\w+)", answers) == [f"r{place}".encode() for place in range(6)]
            assert len(here.worker.pools[0].open) <= 3

    run(work)


def test_a_path_that_nothing_is_known_of_is_handed_on() -> None:
    async def work() -> None:
        heard: list[bytes] = []
        answer = b"HTTP/1.1 201 Made\r\ncontent-length: 2\r\nx-own: 1\r\n\r\nhi"
        async with world(origin(answer, heard=heard)) as here:
            reply = parsed(await here.raw(b"PUT /any/thing?q=1 HTTP/1.1\r\nhost: a\r\nconnection: close\r\n"
                                          b"content-length: 3\r\n\r\nabc"))  # fmt: skip
            assert (reply.status, reply.body, reply.headers["x-own"]) == (201, b"hi", "1")
            assert heard[0].startswith(b"PUT /any/thing?q=1 HTTP/1.1\r\n")
            assert heard[0].endswith(b"\r\n\r\nabc")

    run(work)


# Fallback before anything was handed on

BROKEN = {
    "refuses": dead_port,
    "hangs up": origin,
    "resets": lambda: origin(abort=True),
    "status 500": lambda: "mock-e500",
    "too busy": lambda: "mock-e429",
    "no HTTP": lambda: origin(b"SSH-2.0-x\r\n"),
    "cut after the role": lambda: origin(SSE_HEAD, chunk(ROLE)),
    "error inside 200": lambda: "mock-role-err0",
    "malformed frame": lambda: origin(SSE_HEAD, chunk(b"data: {nothing\n\n")),
    "clean end without an end": lambda: origin(SSE_HEAD, chunk(ROLE), LAST),
    "bad chunk": lambda: origin(SSE_HEAD, b"zz\r\n"),
}


@pytest.mark.parametrize("how", BROKEN)
def test_another_target_answers_when_the_first_one_breaks(how: str) -> None:
    async def work() -> None:
        async with world(BROKEN[how](), FAST) as here:  # type: ignore[operator]
            reply = await here.ask(stream=True)
            assert (reply.status, reply.is_whole) == (200, True), reply
            assert b"data: [DONE]" in reply.body
            assert b"error" not in reply.body
            assert "target=t1" in reply.headers["x-outlay-decision"]
            assert [exchange.tries for exchange in here.worker._recent] == [2]

    run(work)


@pytest.mark.parametrize("first", [silent, "mock-t60000", "mock-role-t60000"])
def test_one_that_says_nothing_is_left_while_another_can_be_on_time(first: str | Serving) -> None:
    async def work() -> None:
        async with world(first, FAST, moment=moment_of(1000)) as here:
            begun = time.monotonic()
            reply = await here.ask(stream=True)
            assert reply.status == 200
            assert "target=t1" in reply.headers["x-outlay-decision"]
            assert time.monotonic() - begun < 1.0 + SLACK_S

    run(work)


@pytest.mark.parametrize("stream", [True, False])
def test_when_nobody_answers_the_request_ends_with_its_budget(stream: bool) -> None:
    async def work() -> None:
        async with world(silent, moment=moment_of(200)) as here:
            begun = time.monotonic()
            reply = await here.ask(stream=stream)
            assert reply.status == 504
            assert reply.is_whole
            assert 0.19 < time.monotonic() - begun < 0.2 + SLACK_S
            assert "budget was spent" in str(reply.json()["error"]["message"])

    run(work)


# A machine with other work may be late by this much; what it bounds is many times as long.
SLACK_S = 2.0


def test_a_spent_budget_is_refused_at_once_and_says_why() -> None:
    async def work() -> None:
        async with world(FAST) as here:
            reply = await here.ask(headers={"x-outlay-budget": "moment=m;rem=0;spent=900"})
            error = reply.json()["error"]
            assert (reply.status, error["reason"], error["moment"]) == (504, "no time is left", "m")
            assert here.worker.telemetry.attempts.total() == 0

    run(work)


def test_a_budget_that_cannot_be_read_is_named_and_fails_nothing() -> None:
    async def work() -> None:
        async with world(FAST) as here:
            reply = await here.ask(headers={"x-outlay-budget": "rem=soon"})
            assert reply.status == 200
            assert reply.headers["x-outlay-note"].startswith("x-outlay-budget cannot be read")

    run(work)


def test_the_clients_own_error_is_its_answer_and_says_nothing_of_the_target() -> None:
    async def work() -> None:
        async with world("mock-e422", FAST) as here:
            for _ in range(8):
                reply = await here.ask()
                assert reply.status == 422
                assert "target=t0" in reply.headers["x-outlay-decision"]
            assert here.worker.router.health.states(time.monotonic_ns()) == ("closed", "closed")

    run(work)


# After something was handed on

BREAKS = {
    "cut": lambda: "mock-n8-cut3",
    "error inside": lambda: "mock-n8-err3",
    "malformed": lambda: origin(SSE_HEAD, chunk(WORD), chunk(b"data: {no\n\n"), b"zz\r\n"),
    "reset": lambda: origin(SSE_HEAD, chunk(WORD), abort=True),
    "clean end without an end": lambda: origin(SSE_HEAD, chunk(WORD), LAST),
    "half a frame": lambda: origin(SSE_HEAD, chunk(WORD), chunk(STOP + b'data: {"ch'), LAST),
}


@pytest.mark.parametrize("how", BREAKS)
def test_an_answer_that_breaks_off_never_ends_as_if_it_was_whole(how: str) -> None:
    async def work() -> None:
        async with world(BREAKS[how](), FAST) as here:  # type: ignore[arg-type]
            reply = await here.ask(stream=True)
            assert reply.status == 200
            assert not reply.is_whole
            assert b'"error"' in reply.events[-1]
            assert b"[DONE]" not in reply.body
            assert all(event.endswith(b"}") for event in reply.events)
            assert [(each.outcome, each.tries) for each in here.worker._recent] == [("cut", 1)]

    run(work)


def test_a_stream_that_stalls_is_ended_with_an_error() -> None:
    async def stalls(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(SSE_HEAD + chunk(WORD))
        await reader.read()
        writer.close()

    async def work() -> None:
        async with world(stalls, limits=Limits(silence_ns=50 * NS_PER_MS)) as here:
            reply = await here.ask(stream=True)
            assert b"stalled" in reply.events[-1]
            assert not reply.is_whole

    run(work)


# Clients


def test_a_client_that_goes_frees_its_slot_and_the_target_learns_of_it() -> None:
    async def work() -> None:
        gone = asyncio.Event()

        async def endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await read_request(reader)
            writer.write(SSE_HEAD + chunk(WORD))
            with contextlib.suppress(ConnectionError):
                await reader.read()
            gone.set()
            writer.close()

        async with world(endless) as here:
            reader, writer = await asyncio.open_connection("127.0.0.1", here.port)
            writer.write(request({"model": "auto", "stream": True}, {}))
            await reader.readuntil(b"word")
            assert here.worker.router.signals.under_way() == 1
            writer.transport.abort()
            await asyncio.wait_for(gone.wait(), 10)
            assert [each.outcome for each in here.worker._recent] == ["gone"]
            assert here.worker.router.health.states(time.monotonic_ns()) == ("closed",)

    run(work)


def test_a_client_that_reads_nothing_holds_back_its_target_and_is_cut_off() -> None:
    async def floods(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(SSE_HEAD)
        try:
            while True:
                writer.write(chunk(WORD * 2000))
                await writer.drain()
        except ConnectionError:
            writer.close()

    async def work() -> None:
        limits = Limits(slow_ns=300 * NS_PER_MS, silence_ns=60 * NS_PER_S)
        async with world(floods, limits=limits) as here:
            sock = socket.socket()
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            sock.connect(("127.0.0.1", here.port))
            sock.sendall(request({"model": "auto", "stream": True}, {}))
            while not here.worker._recent:
                for connection in here.worker.connections:
                    assert connection.transport.get_write_buffer_size() < 4 * 1024 * 1024
                await asyncio.sleep(0.01)
            sock.close()
            assert here.worker._recent[0].outcome == "gone"

    run(work)


REFUSED = {
    b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 3\r\ncontent-length: 4\r\n\r\nabcd": 400,
    b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 3\r\ncontent-length: 3\r\n\r\nabc": 400,
    b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 3\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n": 400,
    b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n": 400,
    b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: identity\r\n\r\nabc": 400,
    b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n": 400,
    b"POST / HTTP/1.0\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n": 400,
    b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\nzz\r\nabc\r\n0\r\n\r\n": 400,
    b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n3\nabc\n0\n\n": 400,
    b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: -3\r\n\r\n": 400,
    b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 3x\r\n\r\nabc": 400,
    b"GET / HTTP/1.1\r\nhost: a\r\nx: 1\r\n folded\r\n\r\n": 400,
    b"GET / HTTP/1.1\nhost: a\n\n": 400,
    b"GET / HTTP/1.1\r\nhost : a\r\n\r\n": 400,
    b"GET / HTTP/1.1\r\n\r\n": 400,
    b"GET / HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n": 400,
    b"GET /\r\n\r\n": 400,
    b"GET http://elsewhere/ HTTP/1.1\r\nhost: a\r\n\r\n": 400,
    b"OPTIONS * HTTP/1.1\r\nhost: a\r\n\r\n": 400,
    b"GET / HTTP/2.0\r\nhost: a\r\n\r\n": 400,
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n": 400,
    b"CONNECT a:443 HTTP/1.1\r\nhost: a\r\n\r\n": 405,
    b"GET /v1/realtime HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n": 501,
    b"GET /" + b"a" * 40_000 + b" HTTP/1.1\r\nhost: a\r\n\r\n": 414,
    b"GET / HTTP/1.1\r\nhost: a\r\nx: " + b"a" * 40_000 + b"\r\n\r\n": 431,
    b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 5000000\r\n\r\n": 413,
}


@pytest.mark.parametrize("data", REFUSED, ids=range(len(REFUSED)))
def test_what_could_be_read_in_two_ways_is_refused_and_the_connection_ends(data: bytes) -> None:
    async def work() -> None:
        heard: list[bytes] = []
        async with world(origin(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", heard=heard)) as here:
            answers = await here.raw(data + b"GET /smuggled HTTP/1.1\r\nhost: a\r\n\r\n")
            reply = parsed(answers)
            assert len(re.findall(rb"HTTP/1\.1 \d\d\d ", answers)) == 1, answers
            assert reply.status == REFUSED[data] or (reply.status, REFUSED[data]) == (505, 400)
            assert reply.headers["connection"] == "close"
            assert "message" in reply.json()["error"]
            assert heard == []

    run(work)


def test_a_request_that_does_not_arrive_is_ended() -> None:
    async def work() -> None:
        async with world(FAST, limits=Limits(patience_ns=10 * NS_PER_MS, idle_ns=10 * NS_PER_MS)) as here:
            assert parsed(await here.raw(b"POST / HTTP/1.1\r\nhost: a\r\n")).status == 408
            assert await here.raw(b"") == b""

    run(work)


def test_keys_are_known_by_their_digest_and_bound_to_moments_and_rates() -> None:
    async def work() -> None:
        clients = (
            Client(name="app", key_sha256=hashed("sesame"), per_s=2.0),
            Client(name="other", key_sha256=hashed("open"), moments=("elsewhere",)),
        )
        async with world(FAST, clients=clients) as here:
            assert (await here.ask()).status == 401
            assert (await here.ask(headers={"authorization": "Bearer wrong"})).status == 401
            assert (await here.ask(headers={"authorization": "Bearer open"})).status == 403
            replies = [await here.ask(headers={"authorization": "Bearer sesame"}) for _ in range(3)]
            assert [reply.status for reply in replies[:2]] == [200, 200]
            assert replies[2].status == 200 or "retry-after" in replies[2].headers

    run(work)


@pytest.mark.parametrize(
    ("body", "status", "why"),
    [
        (b"{", 400, "no JSON"),
        (b'{"model": 3}', 400, "does not fit"),
        (b'{"model": "none"}', 404, "there are auto, v0"),
        (b'{"model": "auto", "max_tokens": 0}', 400, "at least 1"),
    ],
)
def test_a_body_that_cannot_be_served_is_answered_in_words(body: bytes, status: int, why: str) -> None:
    async def work() -> None:
        async with world(FAST) as here:
            head = b"POST %b HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-length: %d\r\n\r\n"
            reply = parsed(await here.raw(head % (CHAT.encode(), len(body)) + body))
            assert reply.status == status
            assert why in str(reply.json()["error"]["message"])

    run(work)


# From outside


def test_pages_tell_of_targets_decisions_and_counts() -> None:
    async def work() -> None:
        async with world("mock-e500", FAST) as here:
            await here.ask(stream=True, messages=[{"role": "user", "content": "a secret"}])
            assert (await here.get("/healthz")).body == b"ok\n"
            assert (await here.get("/readyz")).status == 200
            models = (await here.get("/v1/models")).json()["data"]
            assert [model["id"] for model in models] == ["auto", "v0", "v1"]  # type: ignore[attr-defined]
            metrics = (await here.get("/metrics")).body.decode()
            assert 'outlay_gateway_requests_total{moment="m",outcome="ok",status="200"} 1' in metrics
            assert 'outlay_gateway_attempts_total{target="t0",outcome="status-500"} 1' in metrics
            status = (await here.get("/outlay/status")).body
            assert b"a secret" not in status
            assert b'"target":"t1"' in status
            assert b'"state":"closed"' in status

    run(work)


def test_a_stop_lets_streams_end_and_takes_no_more() -> None:
    async def work() -> None:
        async with world("mock-t1-i20-n10") as here:
            reader, writer = await asyncio.open_connection("127.0.0.1", here.port)
            writer.write(request({"model": "auto", "stream": True}, {}, CHAT, "keep-alive"))
            first = await reader.readuntil(b"\n\n")
            here.stop.set()
            rest = await reader.read()
            reply = parsed(first + rest)
            assert reply.is_whole
            assert b"data: [DONE]" in reply.body
            writer.close()
            await here.serving
            with pytest.raises(ConnectionRefusedError):
                await asyncio.open_connection("127.0.0.1", here.port)

    run(work)


async def _many(here: World, count: int) -> list[int]:
    replies = await asyncio.gather(*(here.ask(stream=place % 2 == 0) for place in range(count)))
    return [reply.status for reply in replies]


def test_many_at_once_leave_nothing_behind() -> None:
    async def work() -> None:
        async with world(FAST, "mock-t2-n3") as here:
            assert set(await _many(here, 60)) == {200}

    run(work)


def test_a_slow_attempt_gets_a_second_one_beside_it_and_the_first_that_answers_wins() -> None:
    async def work() -> None:
        def hedging(deployment: Deployment) -> Deployment:
            moment = deployment.moments["m"]
            rules = replace(moment.rules, hedge=Hedge(after=0.95, gain=0.01))
            return replace(deployment, moments={"m": replace(moment, rules=rules)})

        async with world(silent, FAST, moment=moment_of(20_000), change=hedging) as here:
            begun = time.monotonic()
            reply = await here.ask(stream=True)
            assert (reply.status, reply.is_whole) == (200, True)
            assert "target=t1" in reply.headers["x-outlay-decision"]
            # Without the second attempt it would be given up only when its fallback must begin, after 19 s.
            assert time.monotonic() - begun < 10
            assert here.worker.telemetry.attempts["t0", "timeout"] == 0

    run(work)


def test_keys_of_the_gateway_and_headers_of_one_hop_stay_behind() -> None:
    async def work() -> None:
        heard: list[bytes] = []
        clients = (Client(name="app", key_sha256=hashed("sesame")),)
        answer = b"HTTP/1.1 200 OK\r\nconnection: x-hop\r\nx-hop: 1\r\nx-own: 1\r\ncontent-length: 2\r\n\r\n{}"
        async with world(origin(answer, heard=heard), clients=clients) as here:
            for key in ({"x-api-key": "sesame"}, {"authorization": "Bearer sesame"}):
                raw = request({"model": "auto"}, key | {"x-mine": "1", "x-own": "1"}, CHAT, "close, X-Mine")
                reply = parsed(await here.raw(raw))
                assert (reply.status, reply.headers.get("x-hop"), reply.headers["x-own"]) == (200, None, "1")
            assert len(heard) == 2
            assert all(b"sesame" not in asked and b"x-mine" not in asked for asked in heard)
            assert all(b"x-own: 1" in asked for asked in heard)

    run(work)


def test_with_clients_only_pages_for_monitors_are_open() -> None:
    async def work() -> None:
        async with world(FAST, clients=(Client(name="app", key_sha256=hashed("sesame")),)) as here:
            paths = ("/healthz", "/readyz", "/metrics", "/v1/models", "/outlay/status")
            assert [(await here.get(path)).status for path in paths] == [200, 200, 200, 401, 401]

    run(work)


def test_a_connection_whose_client_had_stopped_reading_reads_on_for_the_next_one() -> None:
    async def work() -> None:
        async with world(FAST) as here:
            await here.ask()
            upstream = here.worker.pools[0].take()
            assert upstream is not None
            upstream.pause(True)
            here.worker.pools[0].put_back(upstream)
            before = upstream.used
            assert (await here.ask()).status == 200
            assert upstream.used == before + 1

    run(work)


def test_tls_on_both_sides(tmp_path: Path) -> None:
    authority = trustme.CA()
    chain, key, ca = (str(tmp_path / name) for name in ("chain.pem", "key.pem", "ca.pem"))
    certificate = authority.issue_cert("127.0.0.1")
    certificate.private_key_pem.write_to_path(key)
    for place, blob in enumerate(certificate.cert_chain_pems):
        blob.write_to_path(chain, append=place > 0)
    authority.cert_pem.write_to_path(ca)

    async def work() -> None:
        server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        server.load_cert_chain(chain, key)
        answers = origin(SSE_HEAD, chunk(WORD + STOP), LAST)
        listening = await asyncio.start_server(answers, "127.0.0.1", 0, ssl=server)
        port = listening.sockets[0].getsockname()[1]

        def secured(deployment: Deployment) -> Deployment:
            endpoints = (replace(deployment.endpoints[0], tls=True),)
            return replace(deployment, endpoints=endpoints, authorities=ca, certificate=chain, private_key=key)

        async with world(port, change=secured) as here:
            client = ssl.create_default_context(cafile=ca)
            reader, writer = await asyncio.open_connection("127.0.0.1", here.port, ssl=client)
            writer.write(request({"model": "auto", "stream": True}, {}))
            reply = parsed(await reader.read())
            writer.close()
            assert (reply.status, reply.is_whole, reply.body.startswith(WORD + STOP)) == (200, True, True)
        listening.close()

    run(work)


def test_a_target_whose_certificate_nobody_vouches_for_is_not_asked(tmp_path: Path) -> None:
    stranger, known = trustme.CA(), trustme.CA()
    known.cert_pem.write_to_path(str(tmp_path / "ca.pem"))

    async def work() -> None:
        heard: list[bytes] = []
        server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        stranger.issue_cert("127.0.0.1").configure_cert(server)
        listening = await asyncio.start_server(origin(heard=heard), "127.0.0.1", 0, ssl=server)

        def secured(deployment: Deployment) -> Deployment:
            endpoints = (replace(deployment.endpoints[0], tls=True),)
            return replace(deployment, endpoints=endpoints, authorities=str(tmp_path / "ca.pem"))

        async with world(listening.sockets[0].getsockname()[1], change=secured) as here:
            reply = await here.ask()
            assert (reply.status, heard) == (502, [])
        listening.close()

    run(work)
