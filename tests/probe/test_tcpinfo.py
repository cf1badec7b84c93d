"""What the kernel says of a connection."""

import socket
import sys

import pytest

from outlay.probe.tcpinfo import facts

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells it in this form")


def test_the_smallest_round_trip_is_known_after_some_and_is_that_of_loopback():
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_connection(listener.getsockname()) as here:
        there, _ = listener.accept()
        with there:
            for _ in range(10):
                here.sendall(b"x")
                there.recv(1)
                there.sendall(b"y")
                here.recv(1)
            known = facts(here)
    assert known.min_rtt_us is not None
    assert 0 < known.min_rtt_us < 5000
    assert known.retransmitted == 0


def test_of_no_tcp_socket_nothing_is_known():
    left, right = socket.socketpair()
    with left, right:
        assert facts(left) == (None, 0)
