"""Classes of cold starts, and what they do to the percentiles."""

import math

import numpy as np
import pytest

from outlay.cold import CLASSES, WARM, Labels, leading_slow, with_and_without
from outlay.units import NS_PER_MS, NS_PER_S


def labelled(*requests: tuple[float, dict[str, object]], pauses_s: tuple[float, ...] = ()) -> list[str]:
    labels = Labels([round(pause * NS_PER_S) for pause in pauses_s])
    # Each takes half a second.
    return [
        labels.label(round(at_s * NS_PER_S), round((at_s + 0.5) * NS_PER_S), **options)  # type: ignore[arg-type]
        for at_s, options in requests
    ]


KEPT: dict[str, object] = {"reused": True}
NEW: dict[str, object] = {"reused": False}


def test_the_first_three_may_meet_anything_cold():
    assert labelled(*[(at_s, NEW) for at_s in range(5)]) == ["first"] * 3 + ["connection"] * 2


def test_a_pause_is_called_by_the_longest_that_it_was():
    begin = [(0, KEPT)] * 3
    # 30.0 s pass between the end at 20.5 s and 50.5 s, and less between 0.5 s and 20 s.
    later = [(20, KEPT), (50.5, KEPT), (400, NEW), (401, KEPT)]
    found = labelled(*begin, *later, pauses_s=(30, 300))
    assert found[3:] == [WARM, "idle 30.0 s", "idle 300 s", WARM]


def test_the_first_of_a_size_is_a_class_of_its_own_and_what_the_server_declares_comes_first():
    sizes = [
        (place, {"reused": True, "input_size": size}) for place, size in enumerate((100, 100, 100, 120, 1000, 900))
    ]
    # 100 and 120 lie in one power of two, and so do 1000 and 900.
    assert labelled(*sizes) == ["first"] * 3 + [WARM, "shape", WARM]
    assert labelled((0, {"reused": False, "declared": True})) == ["declared"]


def test_ten_cold_of_a_hundred():
    """aws-samples/aws-do-eks#88: 10 of 100 requests took 40 to 57.6 s, the rest 0.60 to 1.38 s; p50 704 ms."""
    rng = np.random.default_rng(88)
    rest = np.sort(rng.uniform(0.60, 0.7042, 45)).tolist() + np.linspace(0.7045, 1.38, 45).tolist()
    totals = [seconds * NS_PER_S for seconds in [*np.linspace(57.6, 40, 10).tolist(), *rng.permutation(rest).tolist()]]
    assert leading_slow(totals) == 10
    start, warm = with_and_without(totals, [WARM] * 100, passed_ns=3600 * NS_PER_S)
    assert (start.name, start.n, start.share, start.per_hour) == ("start", 10, 0.1, 10)
    assert start.p50_ns >= 40 * NS_PER_S
    assert warm.p50_ns < 1.38 * NS_PER_S
    # The slowest 1 % of a hundred is the two slowest, from rank 99 on.
    assert start.tail_share == 1.0
    assert start.p99_ns is None  # a hundred requests carry no p99


def test_the_p99_with_and_without():
    # 1..1000 ms, of which the slowest 20 were on a new connection: without them p99 is rank 971 of 980.
    totals = [place * NS_PER_MS for place in range(1, 1001)]
    order = np.random.default_rng(1).permutation(1000)
    labels = ["connection" if place >= 980 else WARM for place in order]
    connection, warm = with_and_without([totals[place] for place in order], labels, passed_ns=NS_PER_S)
    assert (connection.name, connection.n) == ("connection", 20)
    assert connection.p99_ns == 990 * NS_PER_MS
    assert connection.p99_without_ns == 971 * NS_PER_MS
    assert connection.tail_share == 1.0
    assert warm.tail_share == 0.0
    assert warm.p99_without_ns is None  # only 20 are left


def test_failures_are_never_and_belong_to_their_class():
    totals = [1.0 * NS_PER_MS] * 396 + [math.inf] * 4
    labels = [WARM] * 396 + ["connection"] * 4
    connection, _ = with_and_without(totals, labels, passed_ns=NS_PER_S)
    assert connection.p50_ns == math.inf
    # Four of 400 is 1 %: rank 396 is the last that was answered.
    assert connection.p99_ns == NS_PER_MS
    assert connection.p99_without_ns == NS_PER_MS


@pytest.mark.parametrize(
    "totals", [[], [1.0] * 19, [math.inf] * 40, [5.0] * 40, [6.0] + [5.0] * 40, list(map(float, range(40)))]
)
def test_nothing_leads_where_nothing_stands_out(totals: list[float]):
    assert leading_slow(totals) == 0


def test_one_class_alone_is_no_comparison_and_lengths_must_agree():
    assert with_and_without([1.0, 2.0], [WARM, WARM], passed_ns=1) == ()
    with pytest.raises(ValueError, match="not one run"):
        with_and_without([1.0], [], passed_ns=1)


def test_every_class_says_what_it_is():
    assert list(CLASSES)[-1] == WARM
    assert all(CLASSES.values())
