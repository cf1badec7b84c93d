"""The round trip of a connection, as the kernel measured it."""

import socket
import struct
import sys

# struct tcp_info of <linux/tcp.h>: min_rtt, in us, after 148 bytes. The smoothed round trip is not read: an
# acknowledgement that rides on an answer carries the server's time.
_MIN_RTT = struct.Struct("<148xI")
_SIZE = 152
_UNKNOWN_US = 2**32 - 1


def min_rtt_ns(sock: socket.socket) -> int:
    """The shortest round trip of a connected TCP socket; 0 where it is unknown."""
    if sys.platform != "linux":
        return 0
    try:
        raw = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _SIZE)
    except OSError:
        return 0
    if len(raw) < _SIZE:
        return 0
    min_rtt_us: int = _MIN_RTT.unpack(raw)[0]
    return 0 if min_rtt_us == _UNKNOWN_US else min_rtt_us * 1000
