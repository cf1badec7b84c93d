"""What a run and its sender processes say to each other, as frames of MessagePack."""

import struct
from collections.abc import Callable
from typing import TypeVar

import msgspec

from outlay.probe.exchange import Exchange

T = TypeVar("T")

_LENGTH = struct.Struct("<I")


class Tls(msgspec.Struct, frozen=True, kw_only=True):
    """How to trust and whom to be. Empty texts mean the system's authorities and no client certificate."""

    server_name: str
    ca_file: str = ""
    certificate_file: str = ""
    key_file: str = ""
    verify: bool = True


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """Where requests go. `upgrade` is the address of a WebSocket and its extra headers; empty for plain HTTP.

    A turn on a WebSocket ends with the first message that holds one of `until`.
    """

    host: str
    port: int
    tls: Tls | None = None
    upgrade: str = ""
    upgrade_headers: tuple[tuple[str, str], ...] = ()
    until: tuple[bytes, ...] = ()


class Setup(msgspec.Struct, frozen=True, kw_only=True):
    """How one sender works.

    `lanes` None: each shot leaves at its instant (open loop); else so many at once, each as the one before it is done
    (closed loop). `connections` is the most to one target, `fresh` a new one for every request.
    """

    sender: int
    targets: tuple[Target, ...]
    lanes: int | None = None
    connections: int = 10_000
    fresh: bool = False
    timeout_ns: int


class Shot(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    """One request to send: `parts` are the whole bytes of an HTTP request, or the messages of a WebSocket turn.

    `at_ns` is its intended start on CLOCK_MONOTONIC; in a closed loop it is not read.
    """

    number: int
    at_ns: int
    target: int
    parts: tuple[bytes, ...]


class Shots(msgspec.Struct, array_like=True, frozen=True, tag="shots"):
    """More to send, in order of time."""

    shots: tuple[Shot, ...]


class Finish(msgspec.Struct, array_like=True, frozen=True, tag="finish"):
    """No more shots come. What was taken up is awaited, or with `give_up` ended now; what was not is not sent."""

    give_up: bool


class Ready(msgspec.Struct, array_like=True, frozen=True, tag="ready"):
    """The sender can take shots."""

    sender: int


class Health(msgspec.Struct, array_like=True, frozen=True, kw_only=True, tag="health"):
    """How the sender itself fared since its last word: processor time, and the longest that its loop stood still.

    `stalls` are from when to when it did, where that was long enough to be taken for silence of the server.
    """

    sender: int
    at_ns: int
    passed_ns: int
    cpu_ns: int
    stalled_ns: int
    stalls: tuple[tuple[int, int], ...] = ()
    in_flight: int
    waiting: int


class Bye(msgspec.Struct, array_like=True, frozen=True, tag="bye"):
    """All is done."""

    sender: int


Order = Shots | Finish
Word = Ready | Exchange | Health | Bye

ORDER: msgspec.msgpack.Decoder[Order] = msgspec.msgpack.Decoder(Order)
WORD: msgspec.msgpack.Decoder[Word] = msgspec.msgpack.Decoder(Word)
_encode = msgspec.msgpack.Encoder().encode


def frame(message: Order | Word) -> bytes:
    """A message with its length before it."""
    packed = _encode(message)
    return _LENGTH.pack(len(packed)) + packed


class Frames:
    """Messages from a stream of bytes that may be cut anywhere."""

    def __init__(self, decode: Callable[[bytes | memoryview], T], take: Callable[[T], None]) -> None:
        self._decode: Callable[[bytes | memoryview], object] = decode
        self._take: Callable[[object], None] = take  # type: ignore[assignment] # it takes what its decoder gives
        self._rest = bytearray()

    def feed(self, data: bytes) -> None:
        """Take each message that is now complete."""
        rest = self._rest
        rest += data
        begin = 0
        while len(rest) - begin >= _LENGTH.size:
            end = begin + _LENGTH.size + _LENGTH.unpack_from(rest, begin)[0]
            if end > len(rest):
                break
            self._take(self._decode(bytes(rest[begin + _LENGTH.size : end])))
            begin = end
        del rest[:begin]
