"""The worker behind the task queue: takes tasks, calls the upstream, sends the answers back piece by piece.

`outlay.lab.taskqueue` starts it, tells it its settings in one line, and ends it by closing its standard input.
"""

import asyncio
import signal
import sys
import time
from contextlib import suppress

import msgspec
from redis.exceptions import RedisError

from outlay.lab.loop import new_loop
from outlay.lab.tasks import Queue, Task
from outlay.lab.upstream import Upstream
from outlay.units import NS_PER_S

MAX_UNREAD = 1000  # pieces of one answer; more means that nobody reads them


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker is told: where its queue and its upstream are, how it looks, and how many tasks it does at once.

    It looks for tasks every `poll_ns`; None blocks until there is one.
    """

    redis: str
    name: str
    upstream: str
    poll_ns: int | None
    slots: int


async def work(settings: Settings, queue: Queue, upstream: Upstream) -> None:
    """Do tasks until cancelled. Raises RedisError when Redis fails."""
    running: set[asyncio.Task[None]] = set()
    try:
        while True:
            if len(running) >= settings.slots:
                await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            free = settings.slots - len(running)
            for task in await queue.take(free, block=settings.poll_ns is None) if free else []:
                doing = asyncio.create_task(_answer(queue, upstream, task, time.monotonic_ns()))
                running.add(doing)
                doing.add_done_callback(running.discard)
            if settings.poll_ns is not None:
                await asyncio.sleep(settings.poll_ns / NS_PER_S)
    finally:
        for doing in running:
            doing.cancel()


async def _answer(queue: Queue, upstream: Upstream, task: Task, taken_ns: int) -> None:
    with suppress(RedisError):  # which the next look for a task meets as well, and reports
        async for pieces in upstream.exchange(task, taken_ns):
            if await queue.push(task.id, pieces) > MAX_UNREAD:
                return


async def _until_told(line: bytes, told: asyncio.StreamReader) -> None:
    settings = msgspec.json.decode(line, type=Settings)
    queue, upstream = Queue(settings.redis, settings.name), Upstream(settings.upstream)
    await queue.ping()
    print("ready", flush=True)
    working = asyncio.create_task(work(settings, queue, upstream))
    ending = asyncio.create_task(told.read())
    try:
        await asyncio.wait((working, ending), return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            working.result()  # raises what ended it
    finally:
        working.cancel()
        ending.cancel()
        await asyncio.gather(working, ending, return_exceptions=True)
        upstream.close()
        await queue.close()


async def _main() -> None:
    told = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(told), sys.stdin)
    line = await told.readline()
    if line:  # else whoever started it is gone
        await _until_told(line, told)


def main() -> None:
    """Exits 1 with the reason when Redis fails."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # it goes to the whole group; the front ends this process
    try:
        with asyncio.Runner(loop_factory=new_loop) as runner:
            runner.run(_main())
    except RedisError as error:
        sys.exit(f"the worker lost Redis: {error}")


if __name__ == "__main__":
    main()
