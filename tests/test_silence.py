"""Silences of a server in worlds whose stalls are known."""

from collections.abc import Iterator
from itertools import accumulate

import numpy as np
import pytest

from outlay.lab.script import Script, after_stall
from outlay.silence import Waited, silences
from outlay.units import NS_PER_MS, NS_PER_S

FIRST_NS, GAP_NS, FRAMES = 20 * NS_PER_MS, 5 * NS_PER_MS, 32


def streams(script: Script, starts_ns: list[int]) -> list[Waited]:
    """What a server without limits does: every frame is due from the begin of its request, and waits for a stall."""
    found = []
    for start_ns in starts_ns:
        due = [start_ns + FIRST_NS + place * GAP_NS for place in range(FRAMES)]
        arrived = list(accumulate((after_stall(script, at_ns) for at_ns in due), max))
        found.append(Waited(start_ns, arrived, arrived[-1]))
    return found


def poisson(rate: float, seconds: float, seed: int) -> list[int]:
    gaps = np.random.default_rng(seed).exponential(NS_PER_S / rate, round(rate * seconds))
    return np.cumsum(gaps).astype(int).tolist()


STALLS = Script(stall_ns=NS_PER_S, stall_every_ns=10 * NS_PER_S)


@pytest.mark.parametrize("seed", range(5))
def test_the_stalls_of_a_server_are_found_and_nothing_else(seed: int):
    # Nothing of these lies in the third stall.
    requests = streams(STALLS, [start_ns for start_ns in poisson(40, 40, seed) if start_ns < 28 * NS_PER_S])
    found = silences(requests)
    # The server stands still for the last second of every ten.
    assert len(found) == 2
    for stall, begin_s in zip(found, (9, 19), strict=True):
        # Seven streams a second apart by less than a gap: something came within 20 ms before the stall.
        assert begin_s * NS_PER_S - 20 * NS_PER_MS <= stall.from_ns <= begin_s * NS_PER_S
        assert stall.to_ns == (begin_s + 1) * NS_PER_S
        # Outstanding when it ends: those under way at its begin (about 40 x 0.175) and those that came in it (40).
        assert stall.due == sum(each.written_ns < stall.to_ns <= each.ended_ns for each in requests)


def test_a_run_that_begins_in_a_stall():
    """The first request is written 0.6 s before its end, and nothing had come before."""
    requests = streams(STALLS, [9_400 * NS_PER_MS + start_ns for start_ns in poisson(40, 5, 1)])
    (stall,) = silences(requests)
    assert (stall.from_ns, stall.to_ns) == (requests[0].written_ns, 10 * NS_PER_S)


@pytest.mark.parametrize("seed", range(5))
def test_without_a_stall_nothing_is_found(seed: int):
    assert silences(streams(Script(), poisson(40, 29, seed))) == ()


def test_one_slow_request_at_a_time_is_no_silence():
    rng = np.random.default_rng(3)
    now_ns, found = 0, []
    for took_ns in rng.lognormal(18, 1.5, 500).astype(int).tolist():
        found.append(Waited(now_ns, [now_ns + took_ns], now_ns + took_ns))
        now_ns += took_ns
    assert silences(found) == ()


@pytest.mark.parametrize("seed", range(10))
def test_a_busy_single_server_is_no_silence(seed: int):
    """M/M/1 at 80 %: requests wait for each other, and whole answers come one by one."""
    rng = np.random.default_rng(seed)
    starts = np.cumsum(rng.exponential(100 * NS_PER_MS, 2000)).astype(int).tolist()
    free_ns, found = 0, []
    for start_ns, took_ns in zip(starts, rng.exponential(80 * NS_PER_MS, 2000).astype(int).tolist(), strict=True):
        free_ns = max(free_ns, start_ns) + took_ns
        found.append(Waited(start_ns, [free_ns], free_ns))
    assert silences(found) == ()


def test_lanes_in_step_with_long_first_tokens_are_no_silence():
    def lane() -> Iterator[Waited]:
        for start_ns in range(0, 60 * NS_PER_S, 3 * NS_PER_S):
            arrived = [start_ns + 2 * NS_PER_S + place * 20 * NS_PER_MS for place in range(50)]
            yield Waited(start_ns, arrived, arrived[-1])

    assert silences([each for _ in range(4) for each in lane()]) == ()


def test_a_server_that_dies_is_silent_to_the_end():
    dead_ns = 5 * NS_PER_S
    requests = []
    for each in streams(Script(), poisson(40, 10, 1)):
        arrived = [at_ns for at_ns in each.arrived_ns if at_ns <= dead_ns]
        whole = len(arrived) == FRAMES
        requests.append(Waited(each.written_ns, arrived, arrived[-1] if whole else each.written_ns + 20 * NS_PER_S))
    *_, last = silences(requests)
    assert last.to_ns is None
    assert dead_ns - 20 * NS_PER_MS <= last.from_ns <= dead_ns


@pytest.mark.parametrize("requests", [[], [Waited(0, [], 5)], [Waited(0, [], 5)] * 10, [Waited(0, [1], 1)] * 2])
def test_of_too_little_nothing_is_said(requests: list[Waited]):
    assert silences(requests) == ()


@pytest.mark.parametrize("spread", [1, 2])
@pytest.mark.parametrize("seed", range(5))
def test_the_slow_ones_that_are_left_when_a_run_ends_are_no_silence(seed: int, spread: int):
    """Nobody waits for anybody else; whole answers of heavy tails, and after the last request only slow ones remain."""
    rng = np.random.default_rng(seed)
    took = (rng.lognormal(0, spread, 1000) * 200 * NS_PER_MS).astype(int).tolist()
    found = [
        Waited(at_ns, [at_ns + took_ns], at_ns + took_ns)
        for at_ns, took_ns in zip(poisson(100, 10, seed), took, strict=True)
    ]
    assert silences(found) == ()


@pytest.mark.parametrize("seed", range(5))
def test_stalls_show_where_requests_are_few_and_short(seed: int):
    """10 a second of 20 ms each: hardly ever do two wait at once, but in each stall about ten do."""
    starts = [at_ns for at_ns in poisson(10, 30, seed) if at_ns < 28 * NS_PER_S]
    ends = [after_stall(STALLS, at_ns + 20 * NS_PER_MS) for at_ns in starts]
    found = silences([Waited(at_ns, [end_ns], end_ns) for at_ns, end_ns in zip(starts, ends, strict=True)])
    assert [stall.to_ns for stall in found] == [10 * NS_PER_S, 20 * NS_PER_S]


@pytest.mark.parametrize("lanes", [3, 8])
def test_stalls_show_where_lanes_wait_and_send_nothing_new(lanes: int):
    rng = np.random.default_rng(lanes)
    requests = []
    for _ in range(lanes):
        now_ns = int(rng.integers(0, 100 * NS_PER_MS))
        while now_ns < 25 * NS_PER_S:
            end_ns = after_stall(STALLS, now_ns + int(rng.uniform(80, 120) * NS_PER_MS))
            requests.append(Waited(now_ns, [end_ns], end_ns))
            now_ns = end_ns + 100_000
    assert [stall.to_ns for stall in silences(requests)] == [10 * NS_PER_S, 20 * NS_PER_S]
