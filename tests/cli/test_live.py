"""What a person sees while a run lasts."""

import pytest

from outlay.cli.live import lines
from outlay.cli.measure_options import LoadPlan
from outlay.cli.recorder import Live
from outlay.units import NS_PER_MS, NS_PER_S


def live() -> Live:
    """40 requests are back, of which one failed and two more took too long."""
    seen = Live(back=40, failed=1, late=3, in_flight={0: 2, 1: 1})
    for _ in range(39):
        seen.latency.add(100 * NS_PER_MS)
        seen.lateness.add(NS_PER_MS)
    return seen


@pytest.mark.parametrize(
    ("load", "passed_ns", "begins"),
    [
        (LoadPlan(for_ns=30 * NS_PER_S), 4 * NS_PER_S, "4.00 s of 30.0 s  40 of 90 back  10.0/s  3 in flight"),
        (LoadPlan(for_ns=30 * NS_PER_S), 40 * NS_PER_S, "40.0 s, all sent  40 of 90 back  1.0/s"),
        (LoadPlan(stages="5rps:9s"), 4 * NS_PER_S, "4.00 s  40 of 90 back"),
        # In the two seconds after the warm-up 40 came back: 20 a second.
        (LoadPlan(warm_up_ns=2 * NS_PER_S, for_ns=9 * NS_PER_S), 4 * NS_PER_S, "4.00 s of 9.00 s  40 of 90 back  20.0"),
        (LoadPlan(warm_up_ns=5 * NS_PER_S), 4 * NS_PER_S, "4.00 s, warming up for 5.00 s  "),
    ],
)
def test_the_first_line_says_how_far_it_is(load: LoadPlan, passed_ns: int, begins: str):
    first, *_ = lines(live(), load, 90, passed_ns, judged=False)
    assert first.startswith(begins)


def test_latency_and_lateness_so_far():
    _, latency, lateness = lines(live(), LoadPlan(), None, NS_PER_S, judged=True)
    assert latency == "latency p50 100 ms  p99 100 ms so far  on time 92.5 %"  # 37 of 40
    assert lateness == "sent late p99 1.00 ms  1 failed  Ctrl-C ends it and keeps all"


def test_before_anything_is_back():
    assert lines(Live(), LoadPlan(), None, 0, judged=True) == [
        "0  0 back  0.0/s  0 in flight",
        "latency p50 -  p99 - so far",
        "sent late p99 -  0 failed  Ctrl-C ends it and keeps all",
    ]


def test_every_line_fits_even_when_all_numbers_are_long():
    many = Live(back=9_999_999, failed=9_999_999, in_flight={0: 10_000})
    many.latency.add(3599 * NS_PER_S)
    many.lateness.add(3599 * NS_PER_S)
    load = LoadPlan(for_ns=3600 * NS_PER_S)
    assert max(map(len, lines(many, load, 10_000_000, 3599 * NS_PER_S, judged=True))) <= 80
