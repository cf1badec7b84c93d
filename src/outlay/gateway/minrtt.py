"""The round trip of a connection, as the kernel measured it."""

import socket
import sys

from outlay.tcpinfo import SIZE, parse


def min_rtt_ns(sock: socket.socket) -> int:
    """The shortest round trip of a connected TCP socket; 0 where it is unknown."""
    if sys.platform != "linux":
        return 0
    try:
        facts = parse(sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, SIZE))
    except OSError:
        return 0
    return (facts.min_rtt_us or 0) * 1000
