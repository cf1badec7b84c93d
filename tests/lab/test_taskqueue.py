"""A request comes through the queue and its answer comes back as it was, in pieces, and nothing stays in Redis."""

import json
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from http.client import HTTPConnection, IncompleteRead
from pathlib import Path

import pytest
from lab_process import port_of, started
from redis import Redis

from outlay.units import NS_PER_MS

pytestmark = pytest.mark.skipif(
    shutil.which("redis-server") is None, reason="redis-server: apt-get install redis-server"
)

CHAT = "/v1/chat/completions"
MODULE = "outlay.lab.taskqueue"


@pytest.fixture(scope="module")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a Redis of this module's own, which keeps nothing on disk."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    command = ["redis-server", "--bind", "127.0.0.1", "--port", str(port), "--save", "", "--appendonly", "no"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=tmp_path_factory.mktemp("redis")) as process:
        assert process.stdout is not None
        try:
            assert any("Ready to accept connections" in line for line in process.stdout)
            yield f"redis://127.0.0.1:{port}/0"
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=10)
        finally:
            process.kill()


@pytest.fixture(scope="module")
def upstream() -> Iterator[str]:
    with started("outlay.lab.mockllm") as address:
        yield address


@pytest.fixture(scope="module")
def front(redis: str, upstream: str) -> Iterator[str]:
    with started(MODULE, "--redis", redis, "--upstream", upstream) as address:
        yield address


def ask(address: str, path: str, **body: object) -> tuple[int, dict[str, str], bytes]:
    """Status, the headers that end up beside each other joined, and the body."""
    connection = HTTPConnection("127.0.0.1", port_of(address), timeout=10)
    try:
        connection.request("POST" if body else "GET", path, json.dumps(body) if body else None)
        answer = connection.getresponse()
        headers = {key.lower(): ", ".join(answer.headers.get_all(key, [])) for key in answer.headers}
        return answer.status, headers, answer.read()
    finally:
        connection.close()


def keys(redis: str) -> list[bytes]:
    with Redis.from_url(redis) as client:
        return list(client.scan_iter())


@pytest.mark.parametrize("stream", [True, False])
def test_an_answer_comes_through_as_it_was(front: str, upstream: str, redis: str, stream: bool) -> None:
    body = {"model": "mock-t2-i1-n20", "stream": stream}
    direct, through = ask(upstream, CHAT, **body), ask(front, CHAT, **body)
    number = re.compile(rb'"id":"mock-\d+"')  # the upstream counts its answers
    assert number.sub(b"", through[2]) == number.sub(b"", direct[2])
    assert through[0] == direct[0] == 200
    assert through[1]["content-type"] == direct[1]["content-type"]
    # Its own stage, and those of the upstream behind it.
    assert re.match(r"broker;dur=\d+\.\d+, queue;dur=", through[1]["server-timing"])
    assert keys(redis) == []


def test_pieces_come_before_the_answer_is_over(front: str, redis: str) -> None:
    """The first of two tokens is read while the second is a minute away; then the client leaves."""
    connection = HTTPConnection("127.0.0.1", port_of(front), timeout=10)
    connection.request("POST", CHAT, b'{"model":"mock-i60000-n2","stream":true}')
    assert connection.getresponse().readline().startswith(b'data: {"id"')
    connection.close()
    assert ask(front, "/healthz")[2] == b"ok\n"
    assert keys(redis) == []  # also of an answer that is still being given


def test_a_poll_is_a_wait_that_can_be_seen(redis: str, upstream: str) -> None:
    """Each of three requests needs a look of its own, and from look to look it is 20 ms: 40 ms at least."""
    with started(MODULE, "--redis", redis, "--upstream", upstream, "--poll", "20ms") as address:
        begun_ns = time.monotonic_ns()
        timings = [ask(address, CHAT, model="mock-n1")[1]["server-timing"] for _ in range(3)]
        took_ns = time.monotonic_ns() - begun_ns
    waits = [float(match) for timing in timings for match in re.findall(r"broker;dur=([\d.]+)", timing)]
    assert took_ns >= 40 * NS_PER_MS
    assert len(waits) == 3
    assert sum(waits) * NS_PER_MS <= took_ns


def test_slots_bound_what_is_done_at_once(redis: str, upstream: str) -> None:
    """One slot, two requests of 20 ms: the second is answered 40 ms after the first was sent, or later."""
    with started(MODULE, "--redis", redis, "--upstream", upstream, "--slots", "1") as address:
        connections = [HTTPConnection("127.0.0.1", port_of(address), timeout=10) for _ in range(2)]
        begun_ns = time.monotonic_ns()
        for connection in connections:
            connection.request("POST", CHAT, b'{"model":"mock-t20-n1"}')
        assert [connection.getresponse().status for connection in connections] == [200, 200]
        assert time.monotonic_ns() - begun_ns >= 40 * NS_PER_MS
        for connection in connections:
            connection.close()


def test_an_upstream_that_fails_is_told_apart(front: str, redis: str) -> None:
    assert ask(front, CHAT, model="mock-e429")[0] == 429
    with pytest.raises(IncompleteRead):
        ask(front, CHAT, model="mock-n9-cut3", stream=True)
    with pytest.raises(IncompleteRead):
        ask(front, CHAT, model="mock-n9-cut3")
    with started(MODULE, "--redis", redis, "--upstream", "http://127.0.0.1:1") as nowhere:
        status, _, body = ask(nowhere, CHAT, model="mock")
    assert status == 502
    assert "the upstream cannot be reached" in json.loads(body)["error"]["message"]


def test_a_connection_is_kept_and_other_methods_are_refused(front: str) -> None:
    connection = HTTPConnection("127.0.0.1", port_of(front), timeout=10)
    for method, status in (("GET", 200), ("DELETE", 405), ("GET", 200)):
        connection.request(method, "/healthz")
        answer = connection.getresponse()
        assert (answer.status, answer.headers["connection"]) == (status, None)
        answer.read()
    connection.close()


def test_a_worker_that_dies_takes_the_front_with_it_and_leaves_nothing(redis: str, upstream: str) -> None:
    command = [sys.executable, "-m", MODULE, "--redis", redis, "--upstream", upstream]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        address = process.stdout.readline().rstrip()
        client = HTTPConnection("127.0.0.1", port_of(address), timeout=10)
        client.request("POST", CHAT, b'{"model":"mock-t60000","stream":true}')
        [worker] = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        subprocess.run(["kill", "-KILL", worker], check=True)
        _, errors = process.communicate(timeout=10)
        client.close()
    assert (process.returncode, errors) == (1, "the worker has ended, with -9\n")
    assert keys(redis) == []


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--redis", "redis://:hush@127.0.0.1:1/0"], "--redis: Error 111 connecting to 127.0.0.1:1"),
        (["--redis", "redis://u:hush@host:hush/0"], "--redis is of the form"),
        (["--upstream", "http://"], "of the form http://host:port"),
        (["--upstream", "http://u:hush@host"], "of the form http://host:port"),
        (["--poll", "0ms"], "longer than 0"),
        (["--poll", "5"], "not a duration"),
        (["--slots", "0"], "at least 1"),
    ],
)
def test_what_cannot_be_begun_is_refused_without_telling_secrets(arguments: list[str], why: str) -> None:
    command = [sys.executable, "-m", MODULE, "--upstream", "http://127.0.0.1:1", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 2
    assert why in done.stderr.splitlines()[-1]
    assert "hush" not in done.stderr


def test_what_the_hop_costs_is_measured(front: str, upstream: str, tmp_path: Path) -> None:
    """The answer comes half a second after the request either way; the queue only adds to it."""
    points = ("--path", f"queue={front}", "--path", f"server={upstream}", "--model", "mock-t500-n2")
    load = (
        "--rate",
        "100",
        "--requests",
        "80",
        "--arrivals",
        "constant",
        "--log",
        str(tmp_path / "run.jsonl"),
        "--json",
    )
    command = [sys.executable, "-m", "outlay", "measure", *points, *load]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    (hop,) = json.loads(done.stdout)["hops"]
    assert (hop["outer"], hop["inner"], hop["n"]) == ("queue", "server", 40)
    low_ns, _ = hop["typical"]["interval_ns"]
    assert low_ns > 0
    assert hop["typical"]["resolved"]
