"""What the kernel knows of a connected socket."""

import socket
import sys

from outlay.tcpinfo import NOTHING, SIZE, Facts, parse


def facts(sock: socket.socket) -> Facts:
    """The facts of a connected socket. Elsewhere than on Linux, and of no TCP socket, nothing is known."""
    if sys.platform != "linux":
        return NOTHING
    try:
        return parse(sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, SIZE))
    except OSError:
        return NOTHING
