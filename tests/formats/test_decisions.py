"""The log of decisions: what is read back decides as it did."""

from random import Random

import numpy as np
import pytest

from outlay.decision import Decision, decide
from outlay.forecaster import Forecaster
from outlay.formats.codec import FormatError
from outlay.formats.decisions import DecisionWriter, read_decisions
from outlay.policy import Policy, Rules, Rung
from outlay.signals import Signals
from outlay.units import NS_PER_MS, NS_PER_S
from outlay.work import ColdStart, Fleet, Request, Service, Target

LARGE = Service(prefill_tokens_per_s=10_000, step_ns=30 * NS_PER_MS, max_batch=8)
SMALL = Service(prefill_tokens_per_s=60_000, step_ns=6 * NS_PER_MS, max_batch=8)
FLEET = Fleet(
    [
        Target(name="large-lon", site="lon", variant="large", service=LARGE),
        Target(name="large-us", site="us", variant="large", service=LARGE),
        Target(
            name="small-lon",
            site="lon",
            variant="small",
            service=SMALL,
            quality=0.8,
            cold=ColdStart(start_ns=(2 * NS_PER_S, 3 * NS_PER_S), keep_ns=60 * NS_PER_S),
        ),
    ]
)
LARGE_FIRST = Policy(
    default=Rules(rungs=(Rung(name="large", variants=("large",)), Rung(name="small", variants=("small",))))
)
SMALL_ONLY = Policy(default=Rules(rungs=(Rung(name="small", variants=("small",)),), explore=0.0))


def _log(count: int = 40) -> tuple[list[bytes], list[Decision]]:
    """A log of decisions made while signals and what was learned change, and the decisions themselves."""
    lines: list[bytes] = []
    writer = DecisionWriter(lines.append, FLEET, LARGE_FIRST)
    signals = Signals(FLEET)
    forecaster = Forecaster(signals, prior_rtt_ns={("uk", "lon"): 10 * NS_PER_MS, ("uk", "us"): 80 * NS_PER_MS})
    random, made = Random(7), []
    usable = np.array([True, True, True])
    for number in range(count):
        now_ns = number * NS_PER_S // 5
        signals.reported(number % 3, {"waiting": number % 5, "running": 2, "cache": 0.4}, now_ns, "scrape")
        request = Request(
            id=f"r{number}",
            moment="voice",
            path="uk",
            input_tokens=500,
            output_tokens=100,
            useful_tokens=9,
            local="lon",
        )
        forecasts = forecaster.forecasts(request, now_ns, usable)
        draws: list[float] = []

        def draw(draws: list[float] = draws) -> float:
            draws.append(random.random())
            return draws[-1]

        decision = decide(request, 600 * NS_PER_MS, LARGE_FIRST, forecasts, now_ns, draw)
        writer.add(decision, request, forecasts, draws)
        made.append(decision)
        forecaster.learn(forecasts.expectation(number % 3), (300 + 9 * number) * NS_PER_MS, now_ns)
        forecaster.network("uk", "us", (80 + number) * NS_PER_MS, now_ns)
    return lines, made


def test_every_logged_decision_comes_out_the_same_by_the_logged_rules() -> None:
    lines, made = _log()
    policy, logged = read_decisions(lines)
    again = [each.again(policy) for each in logged]
    assert policy == LARGE_FIRST
    assert [each.target for each in again] == [each.target for each in made]
    assert [each.p_on_time for each in again] == [each.p_on_time for each in made]
    assert [each.deadline_ns for each in again] == [each.deadline_ns for each in made]


def test_the_decisions_that_are_logged_differ_among_themselves() -> None:
    _, made = _log()
    assert len({each.target for each in made}) > 1, "a log of one choice would prove nothing"


def test_other_rules_decide_otherwise_on_the_same_forecasts() -> None:
    lines, _ = _log()
    _, logged = read_decisions(lines)
    assert {each.again(SMALL_ONLY).target for each in logged} <= {2, None}


def test_a_row_of_the_table_is_written_once_and_then_named() -> None:
    lines, _ = _log()
    rows = [line for line in lines if line.startswith(b'{"row"')]
    assert len(set(rows)) == len(rows) < 3 * 40


def test_a_log_that_does_not_begin_with_its_head_is_refused_by_line() -> None:
    lines, _ = _log(2)
    with pytest.raises(FormatError, match="line 1"):
        read_decisions(lines[1:])
    with pytest.raises(FormatError, match="line 1: expected a log of decisions"):
        read_decisions([])


@pytest.mark.parametrize("broken", [b"{", b'{"request": 1}', b"\xff\xfe"])
def test_a_line_that_cannot_be_read_is_named(broken: bytes) -> None:
    lines, _ = _log(2)
    _, logged = read_decisions([*lines, broken])
    with pytest.raises(FormatError, match=f"line {len(lines) + 1}"):
        list(logged)


def test_a_decision_whose_rows_are_missing_is_refused() -> None:
    lines, _ = _log(2)
    _, logged = read_decisions([line for line in lines if not line.startswith(b'{"row"')])
    with pytest.raises(FormatError, match="does not fit the lines before it"):
        list(logged)


def test_no_content_of_a_request_is_in_the_log() -> None:
    lines, _ = _log(1)
    request = next(line for line in lines if line.startswith(b'{"request"'))
    assert b"prompt" not in request
    assert b"content" not in request
