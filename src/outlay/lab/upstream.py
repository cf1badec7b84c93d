"""A plain HTTP/1.1 client: one request, its answer in pieces as they come, over connections that are kept."""

import asyncio
import ssl
from collections import deque
from collections.abc import AsyncIterator
from urllib.parse import urlsplit

import httptools

from outlay.lab.tasks import KEEP_S, Data, End, Head, Piece, Task

_READ_BYTES = 64 * 1024
# RFC 9110 section 7.6.1: they speak of one connection, not of the message. The length is said anew, or stays right.
HOP_BY_HOP = frozenset(
    ("connection", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade", "expect")
)

_Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Upstream:
    """One server, by its address as in `http://host:port`; a path there comes before that of each request."""

    def __init__(self, url: str) -> None:
        """Raises ValueError for an address that is none."""
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.username is not None:
            raise ValueError("the address of the upstream is of the form http://host:port")
        self._tls = ssl.create_default_context() if parts.scheme == "https" else None
        self._host, self._port = parts.hostname, parts.port or (80 if self._tls is None else 443)
        self._authority = parts.netloc
        self._base = parts.path.rstrip("/")
        self._kept: deque[_Streams] = deque()

    async def exchange(self, task: Task, taken_ns: int) -> AsyncIterator[list[Piece]]:
        """The answer, up to its end, as much of it at a time as comes at once; where it fails the end says why."""
        try:
            async for pieces in self._exchange(task, taken_ns):
                yield pieces
        except httptools.HttpParserError:
            yield [End("the upstream does not speak HTTP/1.1")]
        except TimeoutError:
            yield [End("the upstream kept silent")]
        except OSError as error:
            yield [End(f"the upstream cannot be reached: {error.strerror or type(error).__name__}")]

    def close(self) -> None:
        """Let go of the connections that are kept."""
        for _, writer in self._kept:
            writer.close()
        self._kept.clear()

    async def _exchange(self, task: Task, taken_ns: int) -> AsyncIterator[list[Piece]]:
        (reader, writer), data = await self._send(self._raw(task))
        reply = _Reply(taken_ns)
        kept = False
        try:
            while data and not reply.complete:
                reply.parser.feed_data(data)
                if not reply.complete:
                    if reply.pieces:
                        yield reply.taken()
                    data = await _read(reader)
            kept = reply.complete and reply.parser.should_keep_alive()
            if kept:
                self._kept.append((reader, writer))
            whole = reply.complete or reply.until_closed
            yield [*reply.taken(), End("" if whole else "the upstream cut its answer")]
        finally:
            if not kept:
                writer.close()

    async def _send(self, raw: bytes) -> tuple[_Streams, bytes]:
        """Send a request; gives its connection, and the first that was read on it, empty where it was closed."""
        while self._kept:
            # One that was closed meanwhile answers nothing: then it is sent again, on another.
            reader, writer = self._kept.popleft()
            try:
                writer.write(raw)
                data = await _read(reader)
            except ConnectionError:
                data = b""
            if data:
                return (reader, writer), data
            writer.close()
        reader, writer = await asyncio.open_connection(self._host, self._port, ssl=self._tls)
        writer.write(raw)
        return (reader, writer), await _read(reader)

    def _raw(self, task: Task) -> bytes:
        dropped = HOP_BY_HOP | {"host", "content-length"}
        lines = [f"{name}: {value}" for name, value in task.headers if name not in dropped]
        first = f"{task.method} {self._base}{task.target} HTTP/1.1"
        length = [f"content-length: {len(task.body)}"] if task.body or task.method == "POST" else []
        return "\r\n".join([first, f"host: {self._authority}", *lines, *length, "", ""]).encode("latin-1") + task.body


class _Reply:
    """What the parser tells of an answer."""

    def __init__(self, taken_ns: int) -> None:
        self.parser = httptools.HttpResponseParser(self)
        self.complete = False
        self.until_closed = False
        self._taken_ns = taken_ns
        self._headers: list[tuple[str, str]] = []
        self.pieces: list[Piece] = []

    def taken(self) -> list[Piece]:
        """The pieces since the last time."""
        pieces, self.pieces = self.pieces, []
        return pieces

    def on_message_begin(self) -> None:
        self.complete, self._headers = False, []

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers.append((name.decode("latin-1").lower(), value.decode("latin-1")))

    def on_headers_complete(self) -> None:
        status = self.parser.get_status_code()
        if status >= 200:  # before the answer itself there may be hints
            names = {name for name, _ in self._headers}
            self.until_closed = not names & {"content-length", "transfer-encoding"}
            headers = [(name, value) for name, value in self._headers if name not in HOP_BY_HOP]
            self.pieces.append(Head(status, headers, self._taken_ns))

    def on_body(self, data: bytes) -> None:
        self.pieces.append(Data(data))

    def on_message_complete(self) -> None:
        self.complete = self.parser.get_status_code() >= 200


async def _read(reader: asyncio.StreamReader) -> bytes:
    async with asyncio.timeout(KEEP_S):
        return await reader.read(_READ_BYTES)
