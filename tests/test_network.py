"""What connections cost, in rounds and in distance."""

from dataclasses import replace

from outlay.network import summarise
from outlay.observed import Observed, Reported
from outlay.units import NS_PER_MS

RTT_NS = 75 * NS_PER_MS


def fresh(tls_rounds: int = 1, work_ns: int = 2 * NS_PER_MS) -> Observed:
    """A request on a new connection from far away: a look-up of 30 ms, TCP, then TLS of some rounds and some work."""
    connected_ns = 30 * NS_PER_MS + RTT_NS
    tls_ns = connected_ns + tls_rounds * RTT_NS + work_ns
    return Observed(
        id="r",
        intended_ns=0,
        begun_ns=0,
        dns_ns=30 * NS_PER_MS,
        connected_ns=connected_ns,
        tls_ns=tls_ns,
        written_ns=tls_ns,
        floor_ns=RTT_NS,
    )


KEPT = Observed(id="k", intended_ns=0, begun_ns=0, written_ns=0, reused=True, floor_ns=RTT_NS)


def test_rounds_are_told_apart_from_distance():
    for rounds in (1, 2):  # TLS 1.3, TLS 1.2
        network = summarise([fresh(rounds)] * 10 + [KEPT] * 30)
        assert network is not None
        assert (network.floor_ns, network.sent, network.fresh) == (RTT_NS, 40, 10)
        assert {each.name: each.rounds for each in network.setup} == {"dns": None, "connect": 1, "tls": rounds}
        assert network.setup_ns == (30 + 75 + rounds * 75 + 2) * NS_PER_MS


def test_a_p99_takes_299_handshakes():
    for n, known in ((298, None), (299, 75 * NS_PER_MS)):
        network = summarise([fresh()] * n)
        assert network is not None
        assert {each.name: each.p99_ns for each in network.setup}["connect"] == known


def test_beside_a_floor_of_microseconds_tls_is_work_and_its_rounds_do_not_show():
    near = replace(fresh(), floor_ns=10_000)
    network = summarise([near])
    assert network is not None
    assert {each.name: each.rounds for each in network.setup}["tls"] is None


def test_kept_connections_have_no_rounds():
    network = summarise([KEPT])
    assert network is not None
    assert (network.setup, network.setup_ns, network.fresh) == ((), 0, 0)


def test_what_nobody_knows_is_none():
    network = summarise([replace(KEPT, floor_ns=None)])
    assert network is not None
    assert (network.floor_ns, network.server_p50_ns, network.reported) == (None, None, 0)
    assert summarise([]) is None
    assert summarise([replace(KEPT, written_ns=None)]) is None  # nothing left


def test_the_smallest_floor_what_was_sent_again_and_what_the_server_says():
    some = [
        replace(KEPT, floor_ns=80 * NS_PER_MS, retransmitted=2),
        replace(KEPT, retransmitted=1, reported=Reported(source="s", total_ns=5)),
        replace(KEPT, reported=Reported(source="s", total_ns=9)),
        replace(KEPT, reported=Reported(source="s", parts={"queue.wait": 4})),
    ]
    network = summarise(some)
    assert network is not None
    assert (network.floor_ns, network.retransmitted) == (RTT_NS, 3)
    assert (network.reported, network.server_p50_ns) == (2, 5)
