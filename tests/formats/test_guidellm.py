"""GuideLLM's report: a real one saved without its requests, the requests written out, and hostile bytes."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from typer.testing import CliRunner

from outlay.account import account
from outlay.cli import OK, REFUSED
from outlay.cli.app import app
from outlay.formats.codec import FormatError, Item
from outlay.formats.guidellm import CODEC
from outlay.interaction import NOTE_KINDS, Interaction, Note
from outlay.load import Load
from outlay.stages import check_stage
from outlay.units import NS_PER_MS, from_ms, from_s

REAL = Path(__file__).parent.parent / "data" / "guidellm-report" / "guidellm_report_v2.json"
NOTHING: frozenset[str] = frozenset()

START_S = 1786678148.25
TIMINGS: dict[str, float | None] = {
    "targeted_start": START_S,
    "request_start": START_S + 0.5,
    "first_token_iteration": START_S + 0.75,
    "first_output_token_iteration": START_S + 1.25,
    "last_token_iteration": START_S + 2.0,
    "request_end": START_S + 2.125,
}


def request(name: str = "a", **timings: float | None) -> dict[str, Any]:
    """One request, with the numbers that the report itself derives from its timings."""
    stamps = TIMINGS | timings
    start, end, first = (stamps[key] for key in ("request_start", "request_end", "first_token_iteration"))
    return {
        "request_id": name,
        "info": {"timings": stamps},
        "prompt_tokens": 50,
        "output_tokens": 10,
        "request_latency": None if start is None or end is None else end - start,
        "time_to_first_token_ms": None if start is None or first is None else 1000 * (first - start),
        "output": "never kept",
    }


def report(**requests: list[object]) -> dict[str, Any]:
    return {"metadata": {"version": 2}, "benchmarks": [{"requests": requests}]}


def parse(value: object) -> list[Item]:
    return list(CODEC.parse(json.dumps(value).encode(), NOTHING))


def one(group: str = "successful", **timings: float | None) -> Interaction:
    (item,) = parse(report(**{group: [request(**timings)]}))
    assert isinstance(item, Interaction)
    return item


def test_a_real_report_without_requests_is_refused_with_the_reason() -> None:
    assert CODEC.recognises(json.loads(REAL.read_bytes()))
    outcome = CliRunner().invoke(app, ["explain", str(REAL), "--json"])
    assert (outcome.exit_code, outcome.stdout) == (REFUSED, "")
    assert "saved without its requests" in outcome.stderr


def test_a_real_report_with_requests_put_back_is_read_and_sums(tmp_path: Path) -> None:
    value = json.loads(REAL.read_bytes())
    value["benchmarks"][0]["requests"]["successful"] = [request("a"), request("b", request_end=START_S + 3)]
    value["benchmarks"][1]["requests"]["errored"] = [request("c")]
    file = tmp_path / "report.json"
    file.write_text(json.dumps(value, indent=1))
    outcome = CliRunner().invoke(app, ["explain", str(file), "--json", "--by", "benchmark"])
    assert outcome.exit_code == OK
    (moment,) = json.loads(outcome.stdout)["moments"]
    assert moment["outcomes"] == {"error": 1, "ok": 2}
    for slow in moment["slowest"]:
        assert sum(entry["duration_ns"] for entry in slow["entries"]) == slow["total_ns"]


def test_the_account_counts_from_the_target_and_ends_as_the_reports_own_latency_does() -> None:
    """500 ms late, 250 to the first token, 500 of reasoning and 750 of answer, 125 until the stream closed."""
    made = account(one())
    assert made.entries == {
        "client/queue.wait": 500 * NS_PER_MS,
        "llm/uplink..infer.prefill": 250 * NS_PER_MS,
        "llm/infer.decode..downlink": 1250 * NS_PER_MS,
        "llm/postprocess..downlink": 125 * NS_PER_MS,
    }
    own = request()
    assert made.total_ns - made.entries["client/queue.wait"] == from_s(own["request_latency"])
    assert made.entries["llm/uplink..infer.prefill"] == from_ms(own["time_to_first_token_ms"])
    assert made.interaction.sizes == {"input_tokens": 50, "output_tokens": 10}


@pytest.mark.parametrize(
    ("timings", "entries_ms"),
    [
        # no schedule: from the send at 500 ms
        (
            {"targeted_start": None},
            {"llm/uplink..infer.prefill": 250, "llm/infer.decode..downlink": 1250, "llm/postprocess..downlink": 125},
        ),
        # not streamed: one wait from 500 to 2125
        (
            dict.fromkeys(("first_token_iteration", "first_output_token_iteration", "last_token_iteration")),
            {"client/queue.wait": 500, "llm/uplink..downlink": 1625},
        ),
        # only reasoning: no first token of an answer
        (
            {"first_output_token_iteration": None},
            {
                "client/queue.wait": 500,
                "llm/uplink..infer.prefill": 250,
                "llm/infer.decode..downlink": 1250,
                "llm/postprocess..downlink": 125,
            },
        ),
        # no last token: decode runs until the end, 2125 - 750
        (
            {"first_output_token_iteration": None, "last_token_iteration": None},
            {"client/queue.wait": 500, "llm/uplink..infer.prefill": 250, "llm/infer.decode..downlink": 1375},
        ),
    ],
)
def test_a_missing_instant_merges_stages(timings: dict[str, None], entries_ms: dict[str, int]) -> None:
    assert account(one(**timings)).entries == {name: value * NS_PER_MS for name, value in entries_ms.items()}


@pytest.mark.parametrize(
    ("group", "timings", "outcome"),
    [
        ("successful", {}, "ok"),
        ("errored", {}, "error"),
        ("incomplete", {"request_end": None}, "aborted"),
        ("incomplete", dict.fromkeys(tuple(TIMINGS)[1:]), "unsent"),
    ],
)
def test_every_group_counts_under_its_outcome(group: str, timings: dict[str, None], outcome: str) -> None:
    assert one(group, **timings).outcome == outcome


def test_only_a_missing_target_is_worth_a_note() -> None:
    assert one().notes == ()
    assert [note.kind for note in one(targeted_start=None).notes] == ["outside-window"]


def scheduled(kind: str, rate: float | None, **requests: list[object]) -> list[Item]:
    value = report(**requests)
    value["benchmarks"][0]["config"] = {"strategy": {"type_": kind, "rate": rate}}
    return parse(value)


def at(number: int, late_s: float) -> dict[str, Any]:
    """A request due so many half seconds after the first, and answered a second after its send."""
    due = START_S + number / 2
    return request(f"r{number}", targeted_start=due, request_start=due + late_s, request_end=due + late_s + 1)


@pytest.mark.parametrize(("late_s", "state"), [(0.0, "VALID"), (0.125, "DEGRADED"), (2.0, "INVALID")])
def test_a_benchmark_with_a_schedule_has_a_load(late_s: float, state: str) -> None:
    """2 % of a response of about 1 s is 20 ms: 125 ms is within ten times that, 2 s is not."""
    *_, load = scheduled("constant", 2.0, successful=[at(number, late_s) for number in range(8)])
    assert isinstance(load, Load)
    assert (load.verdict.state, load.name, load.tool, load.requested_rate) == (state, "benchmark 0", "GuideLLM", 2.0)
    assert load.dimensions == {"benchmark": "0"}
    assert load.verdict.lateness_max_ns == from_s(late_s)
    assert load.bounds[0].low_ns == from_s(1)
    assert load.bounds[0].high_ns == from_s(1 + late_s)


def test_what_was_queued_beyond_the_end_was_not_due() -> None:
    """Of two that were never sent, only the one due before the last send is missing."""
    unsent = [
        {"request_id": name, "info": {"timings": {"targeted_start": START_S + after_s}}}
        for name, after_s in (("missing", 1.0), ("later", 60.0))
    ]
    *_, load = scheduled("poisson", None, successful=[at(number, 0) for number in range(8)], incomplete=unsent)
    assert isinstance(load, Load)
    assert (load.requests, load.verdict.unsent) == (9, 1)


@pytest.mark.parametrize("kind", ["synchronous", "concurrent", "throughput", ""])
def test_without_a_schedule_there_is_none_to_keep(kind: str) -> None:
    assert [type(item) for item in scheduled(kind, 2.0, successful=[at(0, 1.0)])] == [Interaction]


def test_a_bad_request_does_not_take_the_others_with_it() -> None:
    items = parse(report(successful=[request("a"), 7, {"request_id": "b"}, request("c", request_end=1e30)], errored=[]))
    found = [item.kind if isinstance(item, Note) else item.id for item in items if isinstance(item, Note | Interaction)]
    assert found == ["a", "dropped-record", "dropped-record", "dropped-record"]


@pytest.mark.parametrize("value", [None, 3, [], {}, {"benchmarks": []}, {"benchmarks": [7]}, {"benchmarks": [{}]}])
def test_other_json_is_not_this_format(value: object) -> None:
    assert not CODEC.recognises(value)
    with pytest.raises(FormatError):
        parse(value)


def survived(raw: bytes) -> Iterator[Item]:
    try:
        yield from CODEC.parse(raw, NOTHING)
    except FormatError:
        return


WHOLE = json.dumps(report(successful=[request()])).encode()


def test_a_report_cut_at_any_byte_is_a_format_error() -> None:
    for length in range(len(WHOLE)):
        with pytest.raises(FormatError):
            list(CODEC.parse(WHOLE[:length], NOTHING))


STAMPS = st.none() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=3)


@settings(max_examples=150, deadline=None)
@given(st.fixed_dictionaries({}, optional=dict.fromkeys(TIMINGS, STAMPS)), st.sampled_from(["errored", "incomplete"]))
def test_any_stamps_give_stages_and_notes_of_the_closed_lists(timings: dict[str, Any], group: str) -> None:
    for item in parse(report(**{group: [{"request_id": "a", "info": {"timings": timings}}]})):
        notes = (item,) if isinstance(item, Note) else item.notes if isinstance(item, Interaction) else ()
        assert all(note.kind in NOTE_KINDS for note in notes)
        if isinstance(item, Interaction):
            assert all(check_stage(mark.stage) for mark in item.marks if mark.stage is not None)


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=80), st.integers(0, 400), st.integers(0, 8))
def test_any_bytes_in_a_report_raise_at_most_a_format_error(noise: bytes, place: int, cut: int) -> None:
    list(survived(WHOLE[:place] + noise + WHOLE[place + cut :]))
    list(survived(noise))
