"""Schedules of runs, drawn from their options."""

from pathlib import Path

import pytest

from outlay.arrivals import constant
from outlay.cli.measure_options import LoadPlan, Mistake
from outlay.cli.schedules import draw, parts_of
from outlay.units import NS_PER_MS, NS_PER_S


def plan(**more: object) -> LoadPlan:
    return LoadPlan(**{"rate": 100.0, "for_ns": NS_PER_S} | more)  # type: ignore[arg-type] # a test's own


def starts(load: LoadPlan, points: int = 1) -> list[int]:
    schedule = draw(load, points)
    assert schedule is not None
    return [arrival.at_ns for arrival in schedule]


def test_the_same_seed_draws_the_same_and_another_one_another():
    assert starts(plan(seed=7)) == starts(plan(seed=7))
    assert starts(plan(seed=7)) != starts(plan(seed=8))


@pytest.mark.parametrize("arrivals", ["poisson", "constant", "gamma"])
def test_a_number_of_requests_is_that_many(arrivals: str):
    found = starts(plan(arrivals=arrivals, shape=0.25, for_ns=None, requests=137))
    assert len(found) == 137
    assert found == sorted(found)


def test_constant_arrivals_need_no_chance():
    assert starts(plan(arrivals="constant")) == [each.at_ns for each in constant(100.0, NS_PER_S)]


def test_several_points_get_whole_rounds():
    assert len(starts(plan(arrivals="constant"), points=3)) == 99


def test_stages_and_their_parts():
    load = plan(rate=None, for_ns=None, stages="10rps:1s,0rps:1s,20rps:2s", arrivals="constant")
    assert len(starts(load)) == 50
    first, second = parts_of(load)
    assert (first.rate, first.from_ns, first.to_ns) == (10.0, 0, NS_PER_S)
    assert (second.rate, second.from_ns, second.to_ns) == (20.0, 2 * NS_PER_S, 4 * NS_PER_S)
    assert parts_of(plan()) == ()


def test_a_recording_keeps_gaps_and_lengths_and_stops_where_it_is_told(tmp_path: Path):
    path = tmp_path / "trace.jsonl"
    path.write_text(
        "".join(f'{{"at_ms": {5 + 10 * n}, "input_tokens": {n + 1}, "output_tokens": 3}}\n' for n in range(9))
    )
    schedule = draw(plan(rate=None, for_ns=None, replay=path, speed=2.0), 1)
    assert schedule is not None
    assert [each.at_ns for each in schedule] == [5 * NS_PER_MS * n for n in range(9)]
    assert [(each.input_tokens, each.output_tokens) for each in schedule] == [(n + 1, 3) for n in range(9)]
    assert len(starts(plan(rate=None, for_ns=20 * NS_PER_MS, replay=path))) == 2
    assert len(starts(plan(rate=None, for_ns=None, requests=4, replay=path))) == 4


def test_a_closed_loop_has_no_schedule():
    assert draw(plan(rate=None, lanes=3), 1) is None


@pytest.mark.parametrize(
    ("load", "says"),
    [
        (plan(rate=0.001), "no request falls into that time"),
        (plan(arrivals="constant", warm_up_ns=NS_PER_S), "nothing starts after it"),
        (plan(rate=None, for_ns=None, stages="10rps:1s,fast:1s"), "stage 2"),
        (plan(rate=1e5, for_ns=3600 * NS_PER_S), "more than a run can keep"),
        (plan(rate=None, for_ns=None, stages="100000rps:1h"), "more than a run can keep"),
        (plan(rate=None, replay=Path("no-such-trace.csv")), "--replay no-such-trace.csv: No such file"),
    ],
)
def test_what_cannot_be_drawn_is_said(load: LoadPlan, says: str):
    with pytest.raises(Mistake, match=says):
        draw(load, 1)


def test_a_recording_that_cannot_be_read_is_said_with_its_line(tmp_path: Path):
    path = tmp_path / "trace.jsonl"
    path.write_text('{"at_ms": 1, "input_tokens": 1}\nnonsense\n')
    with pytest.raises(Mistake, match="line 2"):
        draw(plan(rate=None, replay=path), 1)
