"""Read any input of a known format, found by its content; gzip and zstd are unpacked on the way."""

import gzip
import io
import re
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import msgspec
import zstandard

from outlay.formats import (
    aiperf,
    chrome,
    guidellm,
    har,
    inference_perf,
    jaeger,
    langfuse,
    llmperf,
    log,
    otlp,
    sdk_spans,
    vllm_bench,
    vllm_requests,
    zipkin,
)
from outlay.formats.codec import FormatError, Item, JsonCodec, Shard
from outlay.interaction import Interaction, Note
from outlay.load import Load
from outlay.trace import TraceSpan

if TYPE_CHECKING:
    _Buffered = io.BufferedReader["_Raw"]

# The order only matters where two would recognise one value; the more particular stand first.
JSON_CODECS: tuple[JsonCodec, ...] = (
    otlp.JSON,
    vllm_requests.CODEC,
    vllm_bench.CODEC,
    aiperf.CODEC,
    guidellm.CODEC,
    inference_perf.CODEC,
    llmperf.CODEC,
    har.CODEC,
    jaeger.CODEC,
    langfuse.CODEC,
    chrome.CODEC,
    sdk_spans.CODEC,
    zipkin.CODEC,
)

# Read and compared in pieces of this size; a line or document may be longer.
BLOCK = 64 * 1024

# How much of an input decides on its format; blank lines may come first.
_HEAD = 4096
# A zstd stream may begin with a frame that is to be skipped.
_GZIP, _ZSTD = re.compile(rb"\x1f\x8b"), re.compile(rb"\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18")
_NOTHING = b" \t\r\n\xef\xbb\xbf"
_CONTROL = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f]")

# Packed bytes unpacked at once. At most a few thousandfold comes of them, so this bounds what a bomb can take.
_PIECE = 4096
_DAMAGE = (gzip.BadGzipFile, zlib.error, zstandard.ZstdError, EOFError)


class Fills(Protocol):
    """What every binary stream can do: fill a buffer, and say how far; 0 at the end."""

    def readinto(self, buffer: "bytearray | memoryview", /) -> int: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """An input being read: the name of its format, and what it holds.

    Iterating raises FormatError where the input turns out not to be that format after all.
    """

    format: str
    items: Iterator[Item]


def known_formats() -> tuple[tuple[str, str], ...]:
    """Name and title of every format that `read` finds, for help and documentation."""
    json = tuple((codec.name, codec.title) for codec in JSON_CODECS)
    return ((log.NAME, log.TITLE), (otlp.PROTOBUF_NAME, otlp.PROTOBUF_TITLE), *json)


def read(stream: Fills, wanted: frozenset[str], shard: Shard | None = None) -> Reading:
    """What is in `stream`, read from where it stands. `wanted` are the attribute keys to keep.

    Of several workers that read the same input each passes its own `shard` and gets its part. Raises FormatError for
    an empty input and for one of no known format.
    """
    shard = shard or Shard()
    plain = _unpacked(_buffered(stream))
    head = plain.peek(_HEAD)[:_HEAD]
    if not head.strip(_NOTHING):
        raise FormatError("the input is empty")
    if _looks_like_json(head):
        return _read_json(plain, wanted, shard)
    if otlp.looks_like_protobuf(head):
        return Reading(format=otlp.PROTOBUF_NAME, items=otlp.parse_protobuf(plain, wanted, shard))
    # Of text nothing is quoted: it may be what somebody said.
    found = f"binary data that begins with {head[:4]!r}" if _CONTROL.search(head) else "text"
    raise FormatError(f"the input is {found}, neither JSON nor OTLP protobuf")


def splits(stream: Fills) -> bool:
    """Whether several workers gain by reading this input together: a document that only parses whole does not split."""
    try:
        plain = _unpacked(_buffered(stream))
        head = plain.peek(_HEAD)[:_HEAD]
        if not _looks_like_json(head):
            return otlp.looks_like_protobuf(head)
        _, first = _first_line(plain)
        return bool(plain.peek(1)) and _decoded(first) is not _NOT_JSON
    except FormatError:
        return False


def _looks_like_json(head: bytes) -> bool:
    """Whether a bracket stands behind the blanks.

    In protobuf a tag is a line feed and a length may be a bracket; but there control characters follow, and JSON holds
    none.
    """
    bracket = head.lstrip(_NOTHING)[:1] in (b"{", b"[")
    return bracket and not (otlp.looks_like_protobuf(head) and _CONTROL.search(head))


class _Raw(io.RawIOBase):
    """Any readable binary stream as a raw one, so that it can be buffered and peeked.

    It gives as much as is asked for, so that a peek shows the head also of a pipe. Damage met on the way is a
    FormatError.
    """

    def __init__(self, stream: Fills) -> None:
        self._stream = stream

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "bytearray | memoryview") -> int:  # type: ignore[override]
        room = memoryview(buffer)
        try:
            while room and (size := self._stream.readinto(room)):
                room = room[size:]
        except _DAMAGE as error:
            raise FormatError(f"the compressed input is damaged: {error}") from None
        return len(buffer) - len(room)


class _Frames:
    """What is in zstd frames, one after the other. The library's reader takes one that breaks off for a whole one."""

    def __init__(self, packed: "_Buffered") -> None:
        self._packed = packed
        self._frame: zstandard.ZstdDecompressionObj | None = None
        self._left = b""
        self._plain = memoryview(b"")

    def readinto(self, buffer: "bytearray | memoryview", /) -> int:
        while not self._plain and (piece := self._left or self._packed.read(_PIECE)):
            self._unpack(piece)
        if not self._plain and self._frame is not None:
            raise EOFError("its last frame breaks off")
        size = min(len(buffer), len(self._plain))
        buffer[:size], self._plain = self._plain[:size], self._plain[size:]
        return size

    def _unpack(self, piece: bytes) -> None:
        frame = self._frame or zstandard.ZstdDecompressor().decompressobj()
        self._plain = memoryview(frame.decompress(piece))
        self._frame, self._left = (None, frame.unused_data) if frame.eof else (frame, b"")


def _buffered(stream: Fills) -> "_Buffered":
    return io.BufferedReader(_Raw(stream), BLOCK)


def _unpacked(packed: "_Buffered") -> "_Buffered":
    head = packed.peek(4)
    if _GZIP.match(head):
        return _buffered(gzip.GzipFile(fileobj=packed))
    return _buffered(_Frames(packed)) if _ZSTD.match(head) else packed


def _read_json(stream: "_Buffered", wanted: frozenset[str], shard: Shard) -> Reading:
    number, first = _first_line(stream)
    value = _decoded(first)
    if value is _NOT_JSON:
        # Not one value a line: a whole document, which JSON offers no way to read in pieces.
        whole = first + stream.read()
        codec = _recognised(_decoded(whole))
        return Reading(format=codec.name, items=_mine(codec.closing(codec.parse(whole, wanted)), shard))
    if log.recognises(value):
        return Reading(format=log.NAME, items=_log(_blocks(number, first, stream, shard)))
    codec = _recognised(value)
    items = codec.closing(_by_line(codec, number, first, stream, wanted))
    return Reading(format=codec.name, items=_mine(items, shard))


def _first_line(stream: "_Buffered") -> tuple[int, bytes]:
    """Number and text of the first line that is not blank, without what precedes its bracket."""
    number, line = 1, stream.readline()
    while line and not line.strip(_NOTHING):
        number, line = number + 1, stream.readline()
    return number, line.lstrip(_NOTHING)


_NOT_JSON = object()


def _decoded(raw: bytes) -> object:
    try:
        return msgspec.json.decode(raw.strip(_NOTHING))
    except (ValueError, RecursionError):
        return _NOT_JSON


def _recognised(value: object) -> JsonCodec:
    if value is _NOT_JSON:
        raise FormatError("the input looks like JSON but does not parse as a document, nor line by line")
    for codec in JSON_CODECS:
        if codec.recognises(value):
            return codec
    raise FormatError(f"the JSON is of no known format: {_outline(value)}; known are " + ", ".join(
        name for name, _ in known_formats()
    ))  # fmt: skip


def _outline(value: object) -> str:
    """What a value looks like from outside, without any of its content."""
    if isinstance(value, dict):
        keys = [str(key)[:40] for key in list(value)[:6]]
        return "an object with " + (", ".join(keys) or "no keys")
    if isinstance(value, list):
        return f"a list of {len(value)}, first " + _outline(value[0]) if value else "an empty list"
    return f"a bare {type(value).__name__}"


def _by_line(
    codec: JsonCodec, number: int, first: bytes, stream: "_Buffered", wanted: frozenset[str]
) -> Iterator[Item]:
    """One value a line. A line that is not the format is dropped with a note; if the first is not, the input is not."""
    yield from codec.parse(first, wanted)
    for place, line in enumerate(stream, start=number + 1):
        if line.isspace():
            continue
        try:
            yield from codec.parse(line, wanted)
        except FormatError as error:
            yield Note(kind="dropped-record", text=f"line {place}: {error}")


def _mine(items: Iterable[Item], shard: Shard) -> Iterator[Item]:
    if shard.of == 1:
        yield from items
        return
    for item in items:
        match item:
            case TraceSpan():
                mine = shard.holds(item.trace)
            case Interaction():
                mine = shard.holds(item.id)
            case Load() | Note():
                mine = shard.index == 0
        if mine:
            yield item


def _log(blocks: Iterable[tuple[int, list[bytes]]]) -> Iterator[Item]:
    for number, lines in blocks:
        yield from log.parse_lines(lines, number)


def _blocks(number: int, first: bytes, stream: "_Buffered", shard: Shard) -> Iterator[tuple[int, list[bytes]]]:
    """This worker's lines and the number of the first: blocks of the input, cut at line ends, are dealt out in turn."""
    rest = first
    turn = 0
    while True:
        block = stream.read(BLOCK)
        cut = block.rfind(b"\n") + 1
        if block and not cut:
            rest += block
            continue
        if turn % shard.of == shard.index:
            yield number, (rest + block[:cut]).split(b"\n")
        number += rest.count(b"\n") + block.count(b"\n", 0, cut)
        rest = block[cut:]
        turn += 1
        if not block:
            return
