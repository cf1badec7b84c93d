"""A task queue on Redis: requests go to a worker through one list, each answer comes back through a list of its own.

Nothing stays: what is taken from a list is gone from Redis, and every list has a time to live.
"""

import time
from collections.abc import AsyncIterator, Iterable
from typing import cast

import msgspec
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from outlay.units import from_s

KEEP_S = 120  # how long a list lives after it was last written, and how long an answer may keep silent
_LOOK_S = 1  # how long one command blocks: less than the socket's time-out

_AT_ONCE = 100  # pieces that one command takes


class Task(msgspec.Struct, array_like=True, frozen=True):
    """A request on its way to a worker. Header names are in lower case."""

    id: str
    method: str
    target: str
    headers: list[tuple[str, str]]
    body: bytes


class Head(msgspec.Struct, tag="head", array_like=True, frozen=True):
    """How an answer begins, and when the worker took the task, on CLOCK_MONOTONIC."""

    status: int
    headers: list[tuple[str, str]]
    taken_ns: int


class Data(msgspec.Struct, tag="data", array_like=True, frozen=True):
    """A piece of an answer's body."""

    data: bytes


class End(msgspec.Struct, tag="end", array_like=True, frozen=True):
    """The end of an answer: whole, or why it is not."""

    why: str = ""


Piece = Head | Data | End
_TASK = msgspec.msgpack.Decoder(Task)
_PIECE: msgspec.msgpack.Decoder[Piece] = msgspec.msgpack.Decoder(Piece)


class SilenceError(TimeoutError):
    """No piece of an answer came for `KEEP_S`."""


class Queue:
    """The lists of one front and its workers, on Redis 7 or later. Every method raises RedisError when Redis fails."""

    def __init__(self, url: str, name: str) -> None:
        """`url` as in `redis://host:port/0`; raises ValueError for one that cannot be read."""
        # Without retries: a push that is sent again could arrive twice.
        self._redis: Redis = Redis.from_url(url, retry=Retry(NoBackoff(), 0))
        self._prefix = f"outlay:{name}"

    async def ping(self) -> None:
        """Raises RedisError when there is no Redis that answers."""
        await self._redis.ping()

    async def put(self, task: Task) -> None:
        """Hand a task to whichever worker takes it."""
        await self._push(f"{self._prefix}:tasks", msgspec.msgpack.encode(task))

    async def take(self, count: int, *, block: bool) -> list[Task]:
        """The tasks that wait, at most so many; blocking, one as soon as there is one, or none after a second."""
        key = f"{self._prefix}:tasks"
        if not block:
            waiting = cast("list[bytes] | None", await self._redis.lpop(key, count))
            return [_TASK.decode(data) for data in waiting or []]
        found = await self._redis.blpop([key], _LOOK_S)
        return [] if found is None else [_TASK.decode(cast(bytes, found[1]))]

    async def push(self, task_id: str, pieces: Iterable[Piece]) -> int:
        """Send back pieces of an answer, at least one; gives how many of them nobody has read."""
        return await self._push(self._answer(task_id), *map(msgspec.msgpack.encode, pieces))

    async def pieces(self, task_id: str) -> AsyncIterator[Piece]:
        """The pieces of an answer as they come, up to its end. Raises SilenceError."""
        since_ns, piece = time.monotonic_ns(), None
        while not isinstance(piece, End):
            key = self._answer(task_id)
            found = await self._redis.blmpop(_LOOK_S, 1, key, direction="LEFT", count=_AT_ONCE)
            if found is not None:
                since_ns = time.monotonic_ns()
                for data in cast("list[bytes]", found[1]):
                    piece = _PIECE.decode(data)
                    yield piece
            elif time.monotonic_ns() - since_ns > from_s(KEEP_S):
                raise SilenceError

    async def clear(self, task_ids: Iterable[str]) -> None:
        """Delete the tasks that nobody took, and the answers of these."""
        await self._redis.delete(f"{self._prefix}:tasks", *map(self._answer, task_ids))

    async def close(self) -> None:
        await self._redis.aclose()

    def _answer(self, task_id: str) -> str:
        return f"{self._prefix}:answer:{task_id}"

    async def _push(self, key: str, *data: bytes) -> int:
        async with self._redis.pipeline(transaction=True) as both:
            both.rpush(key, *data)
            both.expire(key, KEEP_S)
            length, _ = await both.execute()
        return int(length)
