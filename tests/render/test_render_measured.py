"""A measured run on a terminal and as JSON: the verdict before any number, and nothing wider than the screen."""

import json
import re
from dataclasses import replace

import pytest
from rich.console import Console

from outlay.cold import ClassEffect
from outlay.generator import DEGRADED, INVALID, VALID, GeneratorVerdict, Reason, State
from outlay.hops import Cost, HopCost
from outlay.load import Bound, Load
from outlay.measurement import EngineSeen, Measurement, Point, Series
from outlay.network import Network, Round
from outlay.render.measured import NAMES, render
from outlay.render.measured_machine import to_json
from outlay.report import OnTime, Percentile
from outlay.units import NS_PER_MS, NS_PER_S

WHY = "1 % of the requests were sent 2.00 s or more after their intended start; at most 1.00 ms is allowed"


def load(state: State) -> Load:
    reasons = () if state == VALID else (Reason(rule="lateness", state=state, measured=2e9, limit=1e6, text=WHY),)
    judged = GeneratorVerdict(
        state=state, reasons=reasons, lateness_p50_ns=5, lateness_p99_ns=9, lateness_max_ns=10, achieved=1.0
    )
    return Load(name="", tool="outlay", moment="m", requests=400, verdict=judged)


def series(name: str, factor: int) -> Series:
    found = tuple(
        Percentile(level=level, value_ns=factor * level * NS_PER_MS, interval_ns=(factor * NS_PER_MS, None))
        for level in (50.0, 95.0, 99.0)
    )
    return Series(name=name, n=400, failures_count=True, percentiles=found)


NETWORK = Network(
    floor_ns=75 * NS_PER_MS,
    sent=400,
    fresh=40,
    setup=(
        Round(name="dns", n=40, p50_ns=30 * NS_PER_MS, p99_ns=60 * NS_PER_MS, rounds=None),
        Round(name="connect", n=40, p50_ns=75 * NS_PER_MS, p99_ns=90 * NS_PER_MS, rounds=1),
        Round(name="tls", n=40, p50_ns=152 * NS_PER_MS, p99_ns=190 * NS_PER_MS, rounds=2),
    ),
    retransmitted=3,
    reported=390,
    server_p50_ns=12 * NS_PER_MS,
)


def point(name: str) -> Point:
    return Point(
        name=name,
        address=f"https://{name}.example.com/v1/chat/completions",
        planned=400,
        unfinished=2,
        outcomes={"ok": 396, "timeout": 4},
        reasons={"no end in the time allowed": 4},
        series=tuple(series(each, place + 1) for place, each in enumerate(NAMES)),
        network=NETWORK,
    )


def measured(state: State = VALID) -> Measurement:
    cost = Cost(value_ns=3 * NS_PER_MS, interval_ns=(2 * NS_PER_MS, 4 * NS_PER_MS))
    return Measurement(
        plan="poisson arrivals, 5 a second for 60 s, 400 requests, seed 1",
        loads=(load(state),),
        points=(point("gateway"), point("server")),
        hops=(
            HopCost(
                outer="gateway",
                inner="server",
                n=200,
                outer_failed=1,
                inner_failed=0,
                typical=cost,
                tail={95.0: cost, 99.0: Cost(value_ns=None, why="p99 needs 299 rounds, there are 200")},
            ),
        ),
        cold=(
            ClassEffect(
                name="idle 30.0 s",
                n=2,
                share=0.005,
                p50_ns=2 * NS_PER_S,
                p99_ns=3 * NS_PER_S,
                p99_without_ns=NS_PER_S,
                tail_share=0.7,
                per_hour=120,
            ),
        ),
        engine=EngineSeen(
            engine="vLLM", largest={"waiting": 3, "cache": 0.5}, mean_ns={"queue": 9}, missing=("running",), pages=4
        ),
        on_time=OnTime(share=0.9, interval=(0.8, 0.95), over=40),
        within_ns=800 * NS_PER_MS,
        warm_up=20,
        warm_up_p50_ns=5 * NS_PER_MS,
        notes={"a stream was asked for, and the answer came whole": 7},
    )


def drawn(some: Measurement, width: int = 80) -> list[str]:
    console = Console(width=width, color_system=None, force_terminal=False)
    with console.capture() as out:
        render(some, console)
    return out.get().splitlines()


@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize("state", [VALID, DEGRADED, INVALID])
def test_nothing_is_wider_than_the_screen(state: State, width: int):
    lines = drawn(measured(state), width)
    # An address of its own is as long as it is; a terminal breaks it.
    assert [line for line in lines if len(line) > width] == []


@pytest.mark.parametrize("state", [VALID, DEGRADED, INVALID])
def test_the_verdict_stands_before_any_latency(state: State):
    text = re.sub(r"\s+", " ", "\n".join(drawn(measured(state))))
    assert text.index(state) < text.index("Latency")
    if state != VALID:
        assert text.index("at most 1.00 ms is allowed") < text.index("Latency")


def test_everything_that_was_found_is_told():
    text = re.sub(r"\s+", " ", "\n".join(drawn(measured())))
    for told in (
        "gateway: https://gateway.example.com/v1/chat/completions",
        "400 requests: ok 396, timeout 4; 2 were under way when it was ended",
        "4 x no end in the time allowed",
        "first token",
        "75.0 ms, the smallest of handshakes and kernel",
        "152 ms at p50, 190 ms at p99, 2 rounds",
        "257 ms: 3 rounds x 75.0 ms and work, in 10.0 % of requests",
        "3 segments",
        "12.0 ms at p50, as it says itself, of 390 requests",
        "+3.00 ms",
        "+2.00 ms to +4.00 ms",
        "1 failed at gateway",
        "idle 30.0 s 2 2.00 s 3.00 s 1.00 s 70.0 %",
        "on time, within 800 ms: 90.0 %",
        "kept out as warm-up: 20 requests, p50 5.00 ms",
        "at most 3 waiting, 50.0 % of the cache in use",
        "not on its page: running",
        "7 x a stream was asked for, and the answer came whole",
    ):
        assert told in text, told


def test_bounds_stand_in_the_place_of_percentiles():
    why = "the load was INVALID"
    bounded = replace(
        series("end_to_end", 1),
        percentiles=tuple(Percentile(level=level, value_ns=None, why=why) for level in (50.0, 95.0, 99.0)),
        bounds=(
            Bound(level=50.0, low_ns=NS_PER_MS, high_ns=2 * NS_PER_MS),
            Bound(level=95.0, low_ns=NS_PER_MS, high_ns=None),
        ),
    )
    some = replace(measured(INVALID), points=(replace(point("p"), series=(bounded,)),), hops=(), cold=(), on_time=None)
    (row,) = (line for line in drawn(some) if line.startswith("  end to end"))
    assert re.split(r"\s{2,}", row.strip()) == ["end to end", "1.00 ms to 2.00 ms", "1.00 ms or more", "not known"]
    shown = json.loads(to_json(some))["points"][0]["series"]["end_to_end"]
    assert "p50_ns" not in shown
    assert shown["bounds"] == [
        {"level": 50.0, "interval_ns": [NS_PER_MS, 2 * NS_PER_MS]},
        {"level": 95.0, "interval_ns": [NS_PER_MS, "inf"]},
    ]


def test_names_from_the_command_line_cannot_steer_the_terminal():
    some = replace(measured(), points=(replace(point("p"), name="\x1b[31mred"), point("q")))
    assert "\x1b" not in "\n".join(drawn(some))


def test_an_output_that_is_no_later_than_the_first_token_is_not_told_twice():
    both = (series("ttft", 1), replace(series("ttft", 1), name="first_output"))
    lines = drawn(replace(measured(), points=(replace(point("p"), series=both),), hops=()))
    assert sum(line.startswith("  first output") for line in lines) == 0
