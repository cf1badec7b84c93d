"""Read any input of a known format, found by its content; gzip and zstd are unpacked on the way."""

import gzip
import io
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO

import msgspec
import zstandard

from outlay.formats import chrome, har, jaeger, langfuse, log, otlp, sdk_spans, vllm_requests, zipkin
from outlay.formats.codec import FormatError, Item, JsonCodec, Shard
from outlay.interaction import Interaction, Note
from outlay.trace import TraceSpan

if TYPE_CHECKING:
    _Buffered = io.BufferedReader["_Raw"]

# The order only matters where two would recognise one value; the more particular stand first.
JSON_CODECS: tuple[JsonCodec, ...] = (
    otlp.JSON,
    vllm_requests.CODEC,
    har.CODEC,
    jaeger.CODEC,
    langfuse.CODEC,
    chrome.CODEC,
    sdk_spans.CODEC,
    zipkin.CODEC,
)

# Read and compared in pieces of this size; a line or document may be longer.
BLOCK = 4 * 1024 * 1024

_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
_NOTHING = b" \t\r\n\xef\xbb\xbf"


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


def read(stream: BinaryIO, wanted: frozenset[str], shard: Shard | None = None) -> Reading:
    """What is in `stream`, read from where it stands. `wanted` are the attribute keys to keep.

    Of several workers that read the same input each passes its own `shard` and gets its part. Raises FormatError for
    an empty input and for one of no known format.
    """
    shard = shard or Shard()
    packed = _buffered(stream)
    plain = _unpacked(packed)
    head = plain.peek(5)[:5]
    if not head:
        raise FormatError("the input is empty")
    if head.lstrip(_NOTHING)[:1] in (b"{", b"["):
        return _read_json(plain, wanted, shard)
    if otlp.looks_like_protobuf(head):
        items = _guarded(otlp.parse_protobuf(plain, wanted, shard))
        return Reading(format=otlp.PROTOBUF_NAME, items=items)
    raise FormatError(f"the input begins with {head!r}, which is neither JSON nor OTLP protobuf")


def splits(stream: BinaryIO) -> bool:
    """Whether several workers gain by reading this input together: a document that only parses whole does not split."""
    plain = _unpacked(_buffered(stream))
    head = plain.peek(5)[:5]
    return otlp.looks_like_protobuf(head) or _decoded(plain.readline()) is not _NOT_JSON


class _Raw(io.RawIOBase):
    """Any readable binary stream as a raw one, so that it can be buffered and peeked."""

    def __init__(self, stream: "BinaryIO | gzip.GzipFile | zstandard.ZstdDecompressionReader") -> None:
        self._stream = stream

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "bytearray | memoryview") -> int:  # type: ignore[override]
        data = self._stream.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)


def _buffered(stream: "BinaryIO | gzip.GzipFile | zstandard.ZstdDecompressionReader") -> "_Buffered":
    return io.BufferedReader(_Raw(stream), BLOCK)


def _unpacked(packed: "_Buffered") -> "_Buffered":
    head = packed.peek(4)
    if head.startswith(_GZIP):
        return _buffered(gzip.GzipFile(fileobj=packed))
    if head.startswith(_ZSTD):
        return _buffered(zstandard.ZstdDecompressor().stream_reader(packed, read_across_frames=True))
    return packed


def _guarded(items: Iterator[Item]) -> Iterator[Item]:
    """Errors of the packing, met anywhere in the input, in this module's words."""
    try:
        yield from items
    except (gzip.BadGzipFile, zstandard.ZstdError, EOFError, OSError) as error:
        raise FormatError(f"the compressed input is damaged: {error}") from None


def _read_json(stream: "_Buffered", wanted: frozenset[str], shard: Shard) -> Reading:
    first = stream.readline()
    value = _decoded(first)
    if value is _NOT_JSON:
        # Not one value a line: a whole document, which JSON offers no way to read in pieces.
        whole = first + stream.read()
        codec = _recognised(_decoded(whole))
        return Reading(format=codec.name, items=_guarded(_mine(codec.parse(whole, wanted), shard)))
    if log.recognises(value):
        return Reading(format=log.NAME, items=_guarded(log.parse_lines(_lines(first, stream, shard))))
    codec = _recognised(value)
    return Reading(format=codec.name, items=_guarded(_mine(_by_line(codec, first, stream, wanted), shard)))


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


def _by_line(codec: JsonCodec, first: bytes, stream: "_Buffered", wanted: frozenset[str]) -> Iterator[Item]:
    """One value a line. A line that is not the format is dropped with a note; if the first is not, the input is not."""
    yield from codec.parse(first.strip(_NOTHING), wanted)
    for number, line in enumerate(stream, start=2):
        if line.isspace():
            continue
        try:
            yield from codec.parse(line, wanted)
        except FormatError as error:
            yield Note(kind="dropped-record", text=f"line {number}: {error}")


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
            case Note():
                mine = shard.index == 0
        if mine:
            yield item


def _lines(first: bytes, stream: "_Buffered", shard: Shard) -> Iterator[bytes]:
    """This worker's lines: the blocks of the input, cut at line ends, are dealt out in turn."""
    rest = first
    number = 0
    while True:
        block = stream.read(BLOCK)
        cut = block.rfind(b"\n") + 1
        if block and not cut:
            rest += block
            continue
        whole, rest = rest + block[:cut], block[cut:]
        if number % shard.of == shard.index:
            yield from whole.split(b"\n")
        number += 1
        if not block:
            return
