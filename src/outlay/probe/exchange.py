"""What a sender saw of one request: instants and raw bytes, nothing of it understood yet."""

from typing import Literal

import msgspec

# Why there is no whole answer. "cut": the connection ended in the middle of one; "wire": what came is not HTTP;
# "stopped": the run was ended meanwhile, which says nothing of the server.
Failure = Literal["", "dns", "connect", "tls", "upgrade", "reset", "cut", "wire", "timeout", "too large", "stopped"]


class Exchange(msgspec.Struct, array_like=True, kw_only=True, tag="exchange", gc=False):
    """One request and its answer, as its sender saw them.

    Instants are ns of CLOCK_MONOTONIC, one clock for all processes of a machine, in causal order; None did not happen.
    The look-up, the connection, TLS and a WebSocket's upgrade have instants only where this request had to wait for
    them: `reused` is the kept connection of an earlier one. `body` holds what was read, transfer coding removed, as
    (instant, bytes); of a WebSocket, a message each. Header names are in lower case.
    """

    number: int  # its place in the schedule
    intended_ns: int
    enqueued_ns: int | None = None  # the sender's loop took it up
    begun_ns: int | None = None  # a connection was at hand, or its set-up began
    dns_ns: int | None = None
    connected_ns: int | None = None
    tls_ns: int | None = None
    upgraded_ns: int | None = None
    written_ns: int | None = None  # just before the first byte was written
    sent_ns: int | None = None  # the kernel had taken the last byte
    first_byte_ns: int | None = None
    headers_ns: int | None = None
    body: list[tuple[int, bytes]] = msgspec.field(default_factory=list)
    ended_ns: int | None = None  # the answer was complete, or the request was given up
    status: int | None = None
    headers: list[tuple[str, str]] = msgspec.field(default_factory=list)
    failure: Failure = ""
    why: str = ""  # what the system said of the failure; never content
    reused: bool = False
    retried: bool = False  # a kept connection had been closed meanwhile, so it was sent again
    sender: int = 0
    connection: int = -1  # which one of the sender's
    min_rtt_us: int | None = None  # the kernel's smallest round trip of this connection
    retransmitted: int = 0  # segments, since the request before
