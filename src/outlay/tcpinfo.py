"""What the kernel says of a connection in the bytes of `TCP_INFO`: its shortest round trip, and what was sent again.

The smoothed round trip beside them (`tcpi_rtt`) is not read: an acknowledgement rides on an answer that comes within
the delayed-ACK time, about 40 ms, and then the smoothed value is the server's time, not the network's.
"""

import struct
from typing import NamedTuple

# struct tcp_info of <linux/tcp.h>: 8 bytes, 24 u32 of which total_retrans is the last, 4 u64, then segs_out, segs_in,
# notsent_bytes and min_rtt.
_RETRANSMITTED = struct.Struct("<100xI")
_MIN_RTT = struct.Struct("<148xI")
SIZE = 152
_UNKNOWN_US = 2**32 - 1


class Facts(NamedTuple):
    """`min_rtt_us` None: not measured yet, or this system does not say."""

    min_rtt_us: int | None
    retransmitted: int


NOTHING = Facts(None, 0)


def parse(raw: bytes) -> Facts:
    """The facts in the first SIZE bytes of the structure; nothing is known of fewer."""
    if len(raw) < SIZE:
        return NOTHING
    min_rtt_us = _MIN_RTT.unpack_from(raw)[0]
    return Facts(None if min_rtt_us in (0, _UNKNOWN_US) else min_rtt_us, _RETRANSMITTED.unpack_from(raw)[0])
