"""What the kernel knows of a connection: its smallest round trip and how often it had to send again.

The smoothed round trip beside them (`tcpi_rtt`) is not read: an acknowledgement rides on an answer that comes within
the delayed-ACK time, about 40 ms, and then the smoothed value is the server's time, not the network's.
"""

import socket
import struct
import sys
from typing import NamedTuple

# struct tcp_info of <linux/tcp.h>: 8 bytes, 24 u32 of which total_retrans is the last, 4 u64, then segs_out, segs_in,
# notsent_bytes and min_rtt.
_RETRANSMITTED = struct.Struct("<100xI")
_MIN_RTT = struct.Struct("<148xI")
_SIZE = 152
_UNKNOWN_US = 2**32 - 1


class Facts(NamedTuple):
    """`min_rtt_us` None: not measured yet, or this system does not say."""

    min_rtt_us: int | None
    retransmitted: int


def facts(sock: socket.socket) -> Facts:
    """The facts of a connected socket. Elsewhere than on Linux, and of no TCP socket, nothing is known."""
    if sys.platform != "linux":
        return Facts(None, 0)
    try:
        raw = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _SIZE)
    except OSError:
        return Facts(None, 0)
    if len(raw) < _SIZE:
        return Facts(None, 0)
    min_rtt_us = _MIN_RTT.unpack(raw)[0]
    return Facts(None if min_rtt_us in (0, _UNKNOWN_US) else min_rtt_us, _RETRANSMITTED.unpack_from(raw)[0])
