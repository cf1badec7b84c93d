"""Bounds on what two clocks differ by: they hold the truth, narrow with calls, widen with time, and admit a step."""

import pickle
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outlay.account import account, path_of
from outlay.clocks import REFERENCE, UNBOUNDED, Alignment, Call, Clocks, Offset, Offsets, calls_of, clocks_of
from outlay.interaction import Interaction
from worlds import Link, interaction, interactions_of, path, span

S, MS, US = 1_000_000_000, 1_000_000, 1_000

# What an answer for one instant may give away at 30 ppm, as it is shared with others of the same part of a second.
SHARED = 10 * US


def seen(*calls: Call, **alignment: int) -> Clocks:
    clocks = Clocks(Alignment(**alignment))
    clocks.observe(calls)
    return clocks


def b_against_a(clocks: Clocks, at_ns: int = 0) -> Offset:
    return clocks.offsets("a", ("b",), at_ns).by_clock["b"]


# One call

EXACT = Call("a", "b", 0, 30, 50, 100)


def test_the_bounds_of_a_call() -> None:
    # received 30 after it was sent; answered 50 before the answer came: b is ahead by -50 to 30
    assert (EXACT.low_ns, EXACT.high_ns) == (-50, 30)
    # both ways took (100 - 0) - (50 - 30)
    assert EXACT.network_ns == 80


@pytest.mark.parametrize(
    ("call", "offset", "error_ns"),
    [
        # 0 is possible, so nothing is moved; the error is the longer side
        (EXACT, Offset(theta_ns=0, low_ns=-50, high_ns=30), 50),
        # 70 to 130 ahead for sure: the middle
        (Call("a", "b", 0, 130, 150, 80), Offset(theta_ns=100, low_ns=70, high_ns=130), 30),
        # -130 to -71: half of an odd width goes down
        (Call("a", "b", 0, -71, -50, 80), Offset(theta_ns=-101, low_ns=-130, high_ns=-71), 30),
        # the edge itself is possible
        (Call("a", "b", 0, 30, 30, 30), Offset(theta_ns=0, low_ns=0, high_ns=30), 30),
        # no network at all: exact
        (Call("a", "b", 0, 7, 17, 10), Offset(theta_ns=7, low_ns=7, high_ns=7), 0),
    ],
)
def test_the_offset_of_a_call(call: Call, offset: Offset, error_ns: int) -> None:
    found = b_against_a(seen(call, drift_ppm=0))
    assert (found, found.error_ns) == (offset, error_ns)


def test_the_other_way_round_the_signs_turn() -> None:
    clocks = seen(Call("a", "b", 0, 130, 150, 80), drift_ppm=0)
    assert clocks.offsets("b", ("a",), 0).by_clock["a"] == Offset(theta_ns=-100, low_ns=-130, high_ns=-70)


def test_a_side_without_a_bound_has_no_error() -> None:
    assert Offset(theta_ns=3, low_ns=None, high_ns=5).error_ns is None
    assert Offset(theta_ns=3, low_ns=1, high_ns=None).error_ns is None
    assert UNBOUNDED.error_ns is None
    assert REFERENCE.error_ns == 0


def test_offsets_know_their_shifts_and_errors() -> None:
    offsets = seen(Call("a", "b", 0, 130, 150, 80), drift_ppm=0).offsets("a", ("b", "c", "a"), 0)
    assert offsets.by_clock == {"a": REFERENCE, "b": Offset(theta_ns=100, low_ns=70, high_ns=130), "c": UNBOUNDED}
    assert offsets.shifts == {"b": 100}
    assert [offsets.error_ns(clock) for clock in ("a", "b", "c", "elsewhere")] == [0, 30, None, None]
    assert Offsets.of("a", {}).error_ns("a") == 0


def test_what_contradicts_itself_is_counted_and_not_used() -> None:
    # b worked 60 of the 50 that a waited
    clocks = seen(Call("a", "b", 0, 0, 60, 50), Call("a", "b", 10, 10, 60, 60), drift_ppm=0)
    assert clocks.contradictions == 1
    assert b_against_a(clocks) == Offset(theta_ns=0, low_ns=0, high_ns=0)


# Many calls of a link whose truth is known


@settings(max_examples=60)
@given(
    theta_ns=st.integers(-3 * S, 3 * S),
    drift_ppm=st.floats(-30, 30),
    # more than the two clocks part while the call lasts, 30 ppm of 50 ms
    there_ns=st.integers(2 * US, 40 * MS),
    back_ns=st.integers(2 * US, 40 * MS),
    queueing_ns=st.integers(0, 20 * MS),
    work_ns=st.integers(0, 50 * MS),
    seed=st.integers(0, 2**32),
)
def test_the_truth_lies_within_the_bounds(
    theta_ns: int, drift_ppm: float, there_ns: int, back_ns: int, queueing_ns: int, work_ns: int, seed: int
) -> None:
    random = Random(seed)
    link = Link(
        theta_ns=theta_ns, drift_ppm=drift_ppm, there_ns=there_ns, back_ns=back_ns, queueing_ns=queueing_ns
    )  # fmt: skip
    instants = [random.randrange(200 * S) for _ in range(40)]
    calls = [link.call(at, random, work_ns=work_ns) for at in instants]
    clocks = seen(*calls)
    assert clocks.steps == clocks.contradictions == 0
    for at in instants + [random.randrange(200 * S) for _ in range(20)]:
        found = b_against_a(clocks, at)
        # stamps are whole nanoseconds, so two of them may be one off
        assert found.low_ns is None or found.low_ns - 2 <= link.truth_ns(at)
        assert found.high_ns is None or link.truth_ns(at) <= found.high_ns + 2
        error_ns = found.error_ns
        assert error_ns is None or abs(found.theta_ns - link.truth_ns(at)) <= error_ns + 2


def test_long_calls_bound_the_instants_at_which_they_were_made() -> None:
    # b gains 30 µs every second. After a minute of work it is 1.8 ms further ahead; its answer, which took 1 ms, proves
    # at least 0.8 ms by then, and not at the call
    link = Link(theta_ns=0, drift_ppm=30, there_ns=MS, back_ns=MS, queueing_ns=0)
    clocks = seen(*[link.call(at * S, Random(1), work_ns=60 * S) for at in range(0, 200, 10)])
    assert clocks.contradictions == 0
    for at in range(0, 200, 5):
        found = b_against_a(clocks, at * S)
        assert found.low_ns is not None
        assert found.low_ns <= link.truth_ns(at * S)
    assert clocks.steps == 0


def test_bounds_narrow_as_calls_come() -> None:
    link, random = Link(theta_ns=40 * MS), Random(7)
    clocks, widths = Clocks(Alignment(drift_ppm=0)), []
    for count in range(200):
        clocks.observe([link.call(count * 100 * MS, random)])
        found = b_against_a(clocks, count * 100 * MS)
        assert found.low_ns is not None
        assert found.high_ns is not None
        widths.append(found.high_ns - found.low_ns)
    assert widths == sorted(widths, reverse=True)
    # 15 ms there and 22 ms back are never undercut; the shortest queues of 200 calls are well below their mean, 5 ms
    assert 37 * MS <= widths[-1] <= 38 * MS
    # the middle is off by half of what the two ways differ by
    assert abs(b_against_a(clocks, 199 * 100 * MS).theta_ns - (40 * MS - 3_500_000)) < MS


@pytest.mark.parametrize("later_s", [0, 1, 7, 30, 59])
def test_bounds_widen_with_the_distance_in_time(later_s: int) -> None:
    clocks = seen(Call("a", "b", 0, 10 * MS, 20 * MS, 30 * MS))
    found = b_against_a(clocks, later_s * S)
    # 30 µs for each second, on both sides
    assert found.low_ns is not None
    assert found.high_ns is not None
    assert 0 <= found.high_ns - (10 * MS + 30 * US * later_s) <= SHARED
    assert 0 <= -found.low_ns - (10 * MS + 30 * US * later_s) <= SHARED


@pytest.mark.parametrize("at_ns", [-199 * MS, -101 * MS, -1, 1, 99 * MS, 101 * MS, 199 * MS])
def test_what_drift_does_within_a_shared_answer_is_in_it(at_ns: int) -> None:
    # no network at all, so the bounds are the truth, widened by no more than the drift since, and the slack
    link = Link(theta_ns=0, drift_ppm=30, there_ns=0, back_ns=0, queueing_ns=0)
    found = b_against_a(seen(link.call(0, Random(1), work_ns=0)), at_ns)
    assert found.low_ns is not None
    assert found.high_ns is not None
    assert found.low_ns <= link.truth_ns(at_ns) <= found.high_ns


@pytest.mark.parametrize("drift_ppm", [0, 5, 200])
def test_the_drift_is_a_setting(drift_ppm: int) -> None:
    found = b_against_a(seen(Call("a", "b", 0, 10 * MS, 20 * MS, 30 * MS), drift_ppm=drift_ppm), 10 * S)
    assert found.high_ns == pytest.approx(10 * MS + 10 * S * drift_ppm / 10**6, abs=drift_ppm * SHARED / 30)


def test_calls_too_far_away_say_nothing() -> None:
    clocks = seen(Call("a", "b", 0, 10, 20, 30), window_ns=60 * S)
    assert b_against_a(clocks, 100 * S) == UNBOUNDED
    assert b_against_a(clocks, -100 * S) == UNBOUNDED
    assert b_against_a(clocks, -50 * S) != UNBOUNDED


def test_a_step_splits_what_is_known() -> None:
    before, after, random = Link(theta_ns=0), Link(theta_ns=S), Random(3)
    calls = [before.call(at * S, random) for at in range(30)] + [after.call(at * S, random) for at in range(30, 60)]
    clocks = seen(*calls)
    assert clocks.steps == 1
    for at, link in [(0, before), (15, before), (29, before), (30, after), (45, after), (59, after)]:
        found = b_against_a(clocks, at * S)
        assert found.low_ns is not None
        assert found.high_ns is not None
        assert found.low_ns <= link.theta_ns <= found.high_ns
        assert found.high_ns - found.low_ns < 60 * MS


def test_a_step_that_comes_to_light_late() -> None:
    before, after, random = Link(theta_ns=0), Link(theta_ns=S), Random(3)
    clocks = seen(*[before.call(at * S, random) for at in range(30)])
    clocks.observe([after.call(at * S, random) for at in range(30, 60)])
    assert clocks.steps == 1
    assert b_against_a(clocks, 10 * S).theta_ns == 0
    assert abs(b_against_a(clocks, 50 * S).theta_ns - S) < 30 * MS


# More than two clocks


def test_chains_add() -> None:
    # b is 70 to 130 ahead of a, c is 10 to 30 behind b
    clocks = seen(Call("a", "b", 0, 130, 150, 80), Call("b", "c", 0, -10, 0, 30), drift_ppm=0)
    found = clocks.offsets("a", ("b", "c"), 0).by_clock
    assert (found["c"].low_ns, found["c"].high_ns) == (70 - 30, 130 - 10)
    # against the middle of the chain, and from its end, signs turned
    assert clocks.offsets("b", ("a", "c"), 0).by_clock["c"] == Offset(theta_ns=-20, low_ns=-30, high_ns=-10)
    assert clocks.offsets("c", ("a", "b"), 0).by_clock["a"].low_ns == -120


def test_a_chain_needs_its_links() -> None:
    clocks = seen(Call("a", "b", 0, 130, 150, 80), Call("b", "c", 0, -10, 0, 30), drift_ppm=0)
    assert clocks.offsets("a", ("c",), 0).by_clock["c"] == UNBOUNDED


def test_two_ways_to_one_clock_intersect() -> None:
    calls = [
        Call("a", "b", 0, 130, 150, 80),  # b - a: 70 to 130
        Call("b", "c", 0, -10, 0, 30),  # c - b: -30 to -10, so c - a: 40 to 120
        Call("a", "c", 0, 90, 100, 300),  # c - a: -200 to 90
    ]
    found = seen(*calls, drift_ppm=0).offsets("a", ("b", "c"), 0).by_clock
    assert (found["c"].low_ns, found["c"].high_ns) == (40, 90)
    # and what c says of itself bounds b: at most 90 + 30
    assert (found["b"].low_ns, found["b"].high_ns) == (70, 120)


def test_calls_both_ways_between_two_clocks_intersect() -> None:
    clocks = seen(Call("a", "b", 0, 130, 150, 80), Call("b", "a", 0, -90, -80, 40), drift_ppm=0)
    # a - b: -120 to -90, so b - a: 90 to 120
    assert b_against_a(clocks) == Offset(theta_ns=105, low_ns=90, high_ns=120)


def test_ways_that_disagree_bound_nothing() -> None:
    calls = [
        Call("a", "b", 0, 10, 20, 30),  # b - a: -10 to 10
        Call("b", "c", 0, 10, 20, 30),  # c - b: -10 to 10
        Call("a", "c", 0, 1010, 1020, 30),  # c - a: 990 to 1010
    ]
    found = seen(*calls, drift_ppm=0).offsets("a", ("b", "c"), 0).by_clock
    assert found["c"] == UNBOUNDED
    assert found["a"] == REFERENCE


# Streams


def answers(clocks: Clocks) -> list[Offsets]:
    return [clocks.offsets("a", ("b", "c"), at * S) for at in range(0, 60, 5)]


def stream(random: Random) -> list[Call]:
    links = {"ab": Link(theta_ns=S, drift_ppm=10), "bc": Link(theta_ns=-2 * S), "ac": Link(theta_ns=-S)}
    return [links[names].call(random.randrange(60 * S), random, names=names) for names in sorted(links) * 40]


@pytest.mark.parametrize("seed", range(5))
def test_the_order_within_a_batch_is_nothing(seed: int) -> None:
    # one call has b a minute ahead
    calls = [*stream(Random(1)), Call("a", "b", 7 * S, 67 * S, 67 * S, 7 * S + MS)]
    whole = seen(*calls)
    assert whole.steps == 2
    shuffled = seen(*Random(seed).sample(calls, len(calls)))
    assert (shuffled.steps, shuffled.contradictions) == (whole.steps, whole.contradictions)
    assert answers(shuffled) == answers(whole)


@pytest.mark.parametrize("size", [1, 7, 40])
def test_batches_of_a_steady_stream_say_what_one_says(size: int) -> None:
    calls = sorted(stream(Random(1)), key=lambda call: call.t0_ns)
    clocks = Clocks()
    for first in range(0, len(calls), size):
        clocks.observe(calls[first : first + size])
    assert answers(clocks) == answers(seen(*calls))


def test_what_was_said_is_not_said_again_after_more_is_known() -> None:
    clocks = seen(Call("a", "b", 0, 30, 50, 100), drift_ppm=0)
    assert b_against_a(clocks).high_ns == 30
    clocks.observe([Call("a", "b", 0, 20, 50, 100)])
    assert b_against_a(clocks).high_ns == 20


def size_after(count: int, calls_at: "list[Call]") -> int:
    clocks = Clocks()
    for call in calls_at[:count]:
        clocks.observe([call])
        clocks.offsets(call.caller, (call.callee,), call.t0_ns)
    return len(pickle.dumps(clocks))


def test_a_long_stream_takes_no_more_memory() -> None:
    link, random = Link(theta_ns=S), Random(2)
    calls = [link.call(at * 10 * S, random) for at in range(6_000)]
    assert size_after(6_000, calls) < 1.1 * size_after(2_000, calls)


def test_a_stream_read_backwards_takes_no_more_memory() -> None:
    link, random = Link(theta_ns=S), Random(2)
    calls = [link.call(at * 20 * S, random) for at in range(3_000, 0, -1)]
    # slices are dropped by the dozen, so the size swings; unbounded it would be ten times as much
    assert size_after(3_000, calls) < 3 * size_after(300, calls)


def test_hosts_behind_one_name_take_no_more_memory() -> None:
    # two replicas of one service whose clocks are a second apart: every call contradicts the one before
    random = Random(2)
    links = [Link(theta_ns=0), Link(theta_ns=S)]
    calls = [links[at % 2].call(at * 20 * S, random) for at in range(3_000)]
    # slices are dropped by the dozen, so the size swings; unbounded it would be ten times as much
    assert size_after(3_000, calls) < 3 * size_after(300, calls)


# Calls inside interactions


def test_calls_are_client_spans_and_the_servers_below_them() -> None:
    client = span("c", None, 0, 100, kind="client", clock="a")
    server = span("s", "c", 30, 50, kind="server", clock="b")
    assert calls_of(interaction(client, server)) == [Call("a", "b", 0, 30, 50, 100)]


CLIENT = span("c", None, 0, 100, kind="client", clock="a")
SERVER = span("s", "c", 30, 50, kind="server", clock="b")


@pytest.mark.parametrize(
    ("client", "server"),
    [
        (CLIENT, replace(SERVER, kind="internal")),
        (CLIENT, replace(SERVER, kind="consumer")),
        (replace(CLIENT, kind="producer"), replace(SERVER, kind="consumer")),
        (replace(CLIENT, kind="producer"), SERVER),
        (replace(CLIENT, kind="internal"), SERVER),
        (CLIENT, replace(SERVER, follows=True)),
        (CLIENT, replace(SERVER, parent=None)),
        (CLIENT, replace(SERVER, parent="other")),
        (CLIENT, replace(SERVER, clock="a")),
    ],
)
def test_what_is_no_call(client: object, server: object) -> None:
    assert calls_of(interaction(client, server)) == []  # type: ignore[arg-type] # spans, of which one was changed


def test_the_clocks_of_an_interaction() -> None:
    made = interaction(CLIENT, SERVER)
    assert clocks_of(made) == ("a", "b")


# Real skew


def aligned(made: Interaction, drift_ppm: int = 0) -> tuple[Clocks, Offsets]:
    clocks = Clocks(Alignment(drift_ppm=drift_ppm))
    clocks.observe(calls_of(made))
    assert made.start_ns is not None
    return clocks, clocks.offsets(made.clock, clocks_of(made), made.start_ns)


def test_a_server_66_ms_behind() -> None:
    (made,) = interactions_of("traces-zipkin/skew.json")
    (call,) = calls_of(made)
    # client 65.441 to 159.980, server 0 to 93.577: low 93.577 - 159.980, high 0 - 65.441
    assert (call.low_ns, call.high_ns, call.network_ns) == (-66_403 * US, -65_441 * US, 962 * US)
    clocks, offsets = aligned(made)
    found = offsets.by_clock["192.0.0.0"]
    assert found == Offset(theta_ns=-65_922 * US, low_ns=-66_403 * US, high_ns=-65_441 * US)
    assert found.error_ns == 481 * US
    assert (clocks.steps, clocks.contradictions) == (0, 0)
    # 159.980 - 65.441 of the call less 93.577 of the server, half each way
    assert path(made, offsets) == [
        ("servicea/unattributed.start->post", 3_134 * US),
        ("serviceb/uplink", 481 * US),
        ("serviceb/unattributed.start->async", 1 * US),
        ("serviceb/unattributed.async", 65_000 * US),
        ("serviceb/unattributed.async->end", 28_576 * US),
        ("serviceb/downlink", 481 * US),
        ("servicea/unattributed.post->end", 1_738 * US),
    ]
    assert sum(account(made, offsets).entries.values()) == 99_411 * US


def test_the_error_of_a_report_adds_what_drift_may_do() -> None:
    (made,) = interactions_of("traces-zipkin/skew.json")
    errors = {piece.error_ns for piece in path_of(made, aligned(made, drift_ppm=30)[1])}
    # 0.481 ms, half the network both ways
    (error,) = errors - {0}
    assert error is not None
    assert 481 * US <= error <= 481 * US + SHARED


def test_a_browser_1_890_s_ahead_of_its_server() -> None:
    # 500 ms in the browser; the server took from 40 to 440 of them, and wrote them 1890 ms earlier
    browser = span("GET", None, 0, 500 * MS, kind="client", clock="browser", component="web")
    java = span("handle", "GET", -1850 * MS, -1450 * MS, kind="server", clock="java", component="api", stage="infer")
    made = interaction(browser, java)
    assert account(made).entries == {"web/unattributed.GET": 500 * MS}
    _, offsets = aligned(made)
    # low -1450 - 500, high -1850 - 0: the middle is 10 ms off the truth, and the bound says up to 50
    assert offsets.by_clock["java"] == Offset(theta_ns=-1900 * MS, low_ns=-1950 * MS, high_ns=-1850 * MS)
    assert path(made, offsets) == [
        ("client/uplink", 50 * MS),
        ("api/infer", 400 * MS),
        ("client/downlink", 50 * MS),
    ]
    assert [piece.error_ns for piece in path_of(made, offsets)] == [50 * MS, 0, 50 * MS]


def test_a_server_whose_skew_hides_inside_the_call_is_believed() -> None:
    made = interaction(
        span("GET", None, 0, 500, kind="client", clock="x"), span("h", "GET", 10, 490, kind="server", clock="y")
    )
    _, offsets = aligned(made)
    assert offsets.shifts == {}
    assert offsets.error_ns("y") == 10
