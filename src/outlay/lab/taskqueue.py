"""A hop through a task queue: each request goes through a Redis list to a worker, and its answer comes back so.

    python -m outlay.lab.taskqueue --redis redis://127.0.0.1:6379/0 --upstream http://127.0.0.1:8000

It binds to loopback only and prints its address as one line. What is asked and answered passes through Redis and
does not stay there.
"""

import argparse
import asyncio
import secrets
import sys
import time
from contextlib import suppress

import msgspec
from redis.exceptions import RedisError

from outlay.lab.inbound import Answer, Connection, Page, Request, head, listen, on_signal, refusal
from outlay.lab.loop import new_loop
from outlay.lab.tasks import Data, End, Head, Piece, Queue, SilenceError, Task
from outlay.lab.taskworker import Settings
from outlay.lab.upstream import HOP_BY_HOP, Upstream
from outlay.units import parse_duration, to_ms

MAX_IN_FLIGHT = 256
_STOP_S = 5  # for the worker to end by itself
_RETRY_S = 1  # for a request to be given up


class Front:
    """The requests that are on their way."""

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        self.running: dict[str, asyncio.Task[None]] = {}
        self._count = 0

    def answer(self, connection: Connection, request: Request) -> Page | Answer:
        """Begin to relay a request, or say why not."""
        if request.method not in (b"GET", b"POST"):
            return refusal(405, "only GET and POST here")
        if len(self.running) >= MAX_IN_FLIGHT:
            return refusal(503, f"{MAX_IN_FLIGHT} requests are on their way")
        self._count += 1
        return Relayed(self, connection, request, str(self._count))

    async def end(self) -> None:
        """Give up what is on its way, and leave nothing in Redis."""
        ids, relaying = tuple(self.running), set(self.running.values())
        while relaying:
            for relay in relaying:
                relay.cancel()
            # One that meets a time-out of the library below may be lost, and is given again.
            _, relaying = await asyncio.wait(relaying, timeout=_RETRY_S)
        with suppress(RedisError):  # then the lists end with their time to live
            await self.queue.clear(ids)
        await self.queue.close()


class Relayed:
    """One request on its way. A client that leaves does not stop it: its answer is read and thrown away."""

    def __init__(self, front: Front, connection: Connection, request: Request, task_id: str) -> None:
        self._front, self._connection, self._request = front, connection, request
        self._id = task_id
        self._gone = False
        self._begun = False
        self._put_ns = 0
        self._chunked = False

    def begin(self) -> None:
        self._front.running[self._id] = asyncio.get_running_loop().create_task(self._relay())

    def abandon(self) -> None:
        self._gone = True

    async def _relay(self) -> None:
        try:
            why = await self._pass_on()
        except SilenceError:
            why = "no worker answered"
        except RedisError as error:
            why = f"redis: {error}"
        finally:
            del self._front.running[self._id]
        if not self._gone:
            self._finish(why)

    async def _pass_on(self) -> str:
        """Relay the answer as it comes; gives why it is not whole, empty where it is."""
        self._put_ns = time.monotonic_ns()
        await self._front.queue.put(_task(self._request, self._id))
        async for piece in self._front.queue.pieces(self._id):
            if isinstance(piece, End):
                return piece.why
            if not self._gone:
                self._write(piece)
                await self._connection.drain()
        return ""

    def _write(self, piece: Piece) -> None:
        if isinstance(piece, Head):
            self._begun = True
            self._connection.transport.write(self._head(piece))
        elif isinstance(piece, Data):
            data = b"%x\r\n%b\r\n" % (len(piece.data), piece.data) if self._chunked else piece.data
            self._connection.transport.write(data)

    def _head(self, piece: Head) -> bytes:
        names = {name for name, _ in piece.headers}
        self._chunked = "content-length" not in names and piece.status not in (204, 304) and self._request.http_1_1
        if "content-length" not in names and not self._request.http_1_1:
            self._request.keep_alive = False
        # Both instants are of this machine's CLOCK_MONOTONIC.
        lines = [f"server-timing: broker;dur={to_ms(piece.taken_ns - self._put_ns):.3f}"]
        lines += [f"{name}: {value}" for name, value in piece.headers]
        lines += ["transfer-encoding: chunked"] if self._chunked else []
        lines += [] if self._request.keep_alive else ["connection: close"]
        return head(piece.status, lines)

    def _finish(self, why: str) -> None:
        if not self._begun:
            self._connection.write_page(self._request, refusal(502, why or "the answer was empty"))
        elif self._chunked and not why:
            self._connection.transport.write(b"0\r\n\r\n")
        # An answer that is not whole ends with its connection, so that its client sees that.
        self._connection.answered(keep_alive=self._request.keep_alive and not (self._begun and why))


def _task(request: Request, task_id: str) -> Task:
    texts = ((name.decode("latin-1"), value.decode("latin-1")) for name, value in request.headers)
    headers = [(name, value) for name, value in texts if name not in HOP_BY_HOP]
    return Task(task_id, request.method.decode("ascii"), request.target.decode("latin-1"), headers, bytes(request.body))


async def _worker(settings: Settings) -> asyncio.subprocess.Process:
    """Start a worker that is ready. Raises RuntimeError where it is not."""
    pipe = asyncio.subprocess.PIPE
    command = (sys.executable, "-m", "outlay.lab.taskworker")
    worker = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe)
    assert worker.stdin is not None
    assert worker.stdout is not None
    # Not on the command line, where a password of Redis could be read.
    worker.stdin.write(msgspec.json.encode(settings) + b"\n")
    if await worker.stdout.readline() != b"ready\n":
        await worker.wait()
        raise RuntimeError("the worker did not start")
    return worker


async def _end(worker: asyncio.subprocess.Process) -> None:
    assert worker.stdin is not None
    worker.stdin.close()
    try:
        async with asyncio.timeout(_STOP_S):
            await worker.wait()
    except TimeoutError:
        worker.kill()
        await worker.wait()


async def run(port: int, settings: Settings) -> None:
    """Relay until SIGINT or SIGTERM.

    Raises RedisError without a Redis, OSError when the port is taken, RuntimeError when the worker ends.
    """
    front = Front(Queue(settings.redis, settings.name))
    try:
        await front.queue.ping()
        stop = on_signal()
        worker = await _worker(settings)
        ended = asyncio.create_task(worker.wait())
        ended.add_done_callback(lambda _: stop.set())
        try:
            await listen(front.answer, port, stop=stop, ready=lambda address: print(address, flush=True))
            if ended.done():
                raise RuntimeError(f"the worker has ended, with {ended.result()}")
        finally:
            await _end(worker)
    finally:
        await front.end()


def main() -> None:
    """The command line; `--help` tells it. Exits 2 for what cannot be begun, 1 when the worker ends."""
    parser = argparse.ArgumentParser(prog="python -m outlay.lab.taskqueue", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--redis", default="redis://127.0.0.1:6379/0", metavar="URL", help="default: %(default)s")
    parser.add_argument("--upstream", required=True, metavar="URL", help="as in http://127.0.0.1:8000")
    parser.add_argument("--port", type=int, default=0, help="0, the default, takes a free one")
    parser.add_argument("--poll", metavar="TIME", help="look for tasks so often, as in 50ms; without, block for them")
    parser.add_argument("--slots", type=int, default=64, help="tasks at once; default: %(default)s")
    options = parser.parse_args()
    try:
        settings = _settings(options)
        with asyncio.Runner(loop_factory=new_loop) as runner:
            runner.run(run(options.port, settings))
    except RedisError as error:
        parser.error(f"--redis: {error}; start one with `redis-server --port 6379 --save ''`")
    except (OSError, OverflowError) as error:
        parser.error(f"port {options.port}: {error}")
    except ValueError as error:
        parser.error(str(error))
    except RuntimeError as error:
        sys.exit(str(error))


def _settings(options: argparse.Namespace) -> Settings:
    """Raises ValueError, for people."""
    Upstream(options.upstream)
    try:
        Queue(options.redis, "")
    except ValueError:
        # Its own words could hold a part of the password.
        raise ValueError("--redis is of the form redis://host:port/0") from None
    poll_ns = None if options.poll is None else parse_duration(options.poll)
    if poll_ns == 0 or options.slots < 1:
        raise ValueError("--poll is longer than 0, and --slots at least 1")
    return Settings(
        redis=options.redis,
        name=secrets.token_hex(8),
        upstream=options.upstream,
        poll_ns=poll_ns,
        slots=options.slots,
    )


if __name__ == "__main__":
    main()
