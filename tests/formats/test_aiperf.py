"""AIPerf's records: two real runs of 10 requests, one record per case, and hostile bytes."""

import json
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from typer.testing import CliRunner

from outlay.account import account
from outlay.cli import OK
from outlay.cli.app import app
from outlay.formats.aiperf import CODEC
from outlay.formats.codec import FormatError, Item
from outlay.formats.reading import read
from outlay.generator import DEGRADED, INVALID
from outlay.interaction import NOTE_KINDS, Interaction, Note
from outlay.load import Load
from outlay.stages import check_stage
from outlay.units import NS_PER_MS, from_ms

DATA = Path(__file__).parent.parent / "data" / "aiperf-exports"
RUNS = ("qwen_concurrency1", "qwen_concurrency2")
NOTHING: frozenset[str] = frozenset()

METADATA: dict[str, Any] = {
    "x_request_id": "a",
    "request_start_ns": 1000 * NS_PER_MS,
    "request_end_ns": 1025 * NS_PER_MS,
}
# 10 ms to the first token of any kind, 2 more to the first of the answer, 18.5 and 1.5 in chunks: 30 ms.
METRICS: dict[str, Any] = {
    "time_to_first_token": {"value": 10, "unit": "ms"},
    "time_to_first_output_token": {"value": 0.012, "unit": "sec"},
    "request_latency": {"value": 30.0, "unit": "ms"},
    "inter_chunk_latency": {"value": [18.5, 1.5], "unit": "ms"},
    "input_sequence_length": {"value": 7, "unit": "tokens"},
    "output_sequence_length": {"value": 3, "unit": "tokens"},
}


def lines(run: str) -> list[bytes]:
    return (DATA / run / "profile_export.jsonl").read_bytes().splitlines()


def parse(value: object) -> list[Item]:
    return list(CODEC.parse(json.dumps(value).encode(), NOTHING))


def one(metadata: dict[str, Any], metrics: dict[str, Any] | None = None, error: object = None) -> Interaction:
    (item,) = parse(
        {"metadata": METADATA | metadata, "metrics": METRICS if metrics is None else metrics, "error": error}
    )
    assert isinstance(item, Interaction)
    return item


def loads(records: list[dict[str, Any]]) -> list[Load]:
    raw = "\n".join(json.dumps({"metadata": METADATA | each, "metrics": METRICS}) for each in records).encode()
    return [item for item in read(BytesIO(raw), NOTHING).items if isinstance(item, Load)]


def credited(number: int, late_ms: int, **more: Any) -> dict[str, Any]:
    """A request whose credit came every 100 ms, sent so long after it."""
    due_ms = 1000 + 100 * number
    stamps = {"credit_issued_ns": due_ms * NS_PER_MS, "request_start_ns": (due_ms + late_ms) * NS_PER_MS}
    return {"x_request_id": f"r{number}", **stamps, **more}


@pytest.mark.parametrize(("late_ms", "state"), [(0, DEGRADED), (1, DEGRADED), (500, INVALID)])
def test_lateness_after_the_credit_is_the_least_there_was(late_ms: int, state: str) -> None:
    """How late the credit was itself nobody knows, so that a good half of the lateness makes no good load."""
    (load,) = loads([credited(number, late_ms) for number in range(20)])
    assert (load.tool, load.verdict.state, load.verdict.lateness_max_ns) == ("AIPerf", state, late_ms * NS_PER_MS)
    # Each takes 30 ms from its send; what a person waited has no upper bound.
    assert {(bound.low_ns, bound.high_ns) for bound in load.bounds} == {(30 * NS_PER_MS, None)}


def test_each_phase_has_its_load_and_records_without_a_credit_none() -> None:
    phases = [credited(number, 0, benchmark_phase="warmup" if number < 3 else "profiling") for number in range(9)]
    first, second = loads([*phases, {"x_request_id": "x", "benchmark_phase": "profiling"}])
    assert (first.name, first.requests, first.dimensions) == ("warmup", 3, {"phase": "warmup"})
    assert (second.name, second.requests) == ("profiling", 6)
    assert loads([{"x_request_id": "x"}]) == []


def kinds(interaction: Interaction) -> list[str]:
    return [note.kind for note in interaction.notes]


@pytest.mark.parametrize("run", RUNS)
def test_first_token_and_chunks_of_a_real_run_sum_to_its_latency(run: str) -> None:
    """The aggregate beside it covers 64 requests and is another input; the lines are 10."""
    assert len(lines(run)) == 10
    for line in lines(run):
        metrics = json.loads(line)["metrics"]
        (item,) = CODEC.parse(line, NOTHING)
        assert isinstance(item, Interaction)
        made = account(item)
        assert made.total_ns == from_ms(metrics["request_latency"]["value"])
        assert made.entries == {
            "llm/uplink..infer.prefill": from_ms(metrics["time_to_first_token"]["value"]),
            "llm/infer.decode..downlink": sum(map(from_ms, metrics["inter_chunk_latency"]["value"])),
        }
        assert item.sizes == {"input_tokens": 100, "output_tokens": metrics["output_sequence_length"]["value"]}
        assert kinds(item) == ["outside-window"]


@pytest.mark.parametrize("run", RUNS)
def test_the_aggregate_beside_the_records_is_not_this_format(run: str) -> None:
    aggregate = json.loads((DATA / run / "profile_export_aiperf.json").read_bytes())
    assert not CODEC.recognises(aggregate)


@pytest.mark.parametrize("run", RUNS)
def test_explain_reads_a_run(run: str) -> None:
    outcome = CliRunner().invoke(
        app, ["explain", str(DATA / run / "profile_export.jsonl"), "--json", "--slowest", "99"]
    )
    assert outcome.exit_code == OK
    (moment,) = json.loads(outcome.stdout)["moments"]
    assert (moment["moment"], moment["n"]) == ("llm-request", 10)
    assert len(moment["slowest"]) == 10
    for slow in moment["slowest"]:
        assert sum(entry["duration_ns"] for entry in slow["entries"]) == slow["total_ns"]


def test_lateness_counts_from_the_credit() -> None:
    """Issued at 996 ms, sent at 1000: 4 ms in the client's queue, 10 to the first token, 2 + 18 to the last."""
    item = one({"credit_issued_ns": 996 * NS_PER_MS})
    assert account(item).entries == {
        "client/queue.wait": 4 * NS_PER_MS,
        "llm/uplink..infer.prefill": 10 * NS_PER_MS,
        "llm/infer.decode..downlink": 20 * NS_PER_MS,
    }
    assert [mark.name for mark in item.marks] == ["intended", "sent", "first_token", "first_output_token", "last_token"]


def test_without_a_credit_the_clock_starts_at_the_send_and_a_note_says_so() -> None:
    item = one({})
    assert item.start_ns == METADATA["request_start_ns"]
    assert item.notes == (Note(kind="outside-window", text="request a: how late the send was is not in the data"),)


@pytest.mark.parametrize(
    ("metadata", "error", "outcome"),
    [
        ({}, None, "ok"),
        ({}, {"code": 500}, "error"),
        ({}, {"code": None, "message": "x"}, "error"),
        ({}, {"code": 429}, "refused"),
        ({}, {"code": 504}, "timeout"),
        ({"was_cancelled": True}, {"code": 499}, "aborted"),
    ],
)
def test_a_failure_is_a_result(metadata: dict[str, Any], error: object, outcome: str) -> None:
    assert one(metadata, error=error).outcome == outcome


def test_a_request_without_tokens_is_one_wait_until_its_end() -> None:
    """Sent at 1000 ms, over at 1025."""
    assert account(one({}, {}, {"code": 500})).entries == {"llm/uplink..downlink": 25 * NS_PER_MS}


def test_chunks_that_do_not_sum_to_the_latency_are_told() -> None:
    """10 ms and 20 in chunks are not 31."""
    assert "contradiction" in kinds(one({}, METRICS | {"request_latency": {"value": 31, "unit": "ms"}}))
    assert "contradiction" not in kinds(one({}))


def test_a_bad_record_of_a_list_does_not_take_the_others_with_it() -> None:
    good = {"metadata": METADATA, "metrics": METRICS}
    in_years = {"metadata": METADATA, "metrics": {"time_to_first_token": {"value": 1, "unit": "years"}}}
    items = parse([good, {"metadata": {"request_start_ns": "soon"}, "metrics": {}}, 7, in_years, good])
    found = [item.kind if isinstance(item, Note) else item.id for item in items if not hasattr(item, "trace")]
    assert found == ["a", "dropped-record", "dropped-record", "dropped-record", "a"]


@pytest.mark.parametrize(
    "value", [None, 3, [], {}, {"metadata": {}, "metrics": {}}, {"metadata": {"request_start_ns": 1}}]
)
def test_other_json_is_not_this_format(value: object) -> None:
    assert not CODEC.recognises(value)
    with pytest.raises(FormatError, match="expected AIPerf records"):
        parse(value)


def survived(raw: bytes) -> Iterator[Item]:
    try:
        yield from CODEC.parse(raw, NOTHING)
    except FormatError:
        return


def test_a_line_cut_short_is_a_format_error() -> None:
    line = lines(RUNS[0])[0]
    for length in range(0, len(line), 7):
        with pytest.raises(FormatError):
            list(CODEC.parse(line[:length], NOTHING))


NUMBERS = st.none() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=3)
TIMES = st.fixed_dictionaries(
    {"value": NUMBERS | st.lists(NUMBERS, max_size=2), "unit": st.sampled_from(["ms", "s", "x"])}
)


@settings(max_examples=150, deadline=None)
@given(
    st.fixed_dictionaries(
        {
            "metadata": st.fixed_dictionaries(
                {"request_start_ns": NUMBERS}, optional={"credit_issued_ns": NUMBERS, "request_end_ns": NUMBERS}
            ),
            "metrics": st.fixed_dictionaries({}, optional=dict.fromkeys(METRICS, TIMES)),
        }
    )
)
def test_any_numbers_give_stages_and_notes_of_the_closed_lists(value: object) -> None:
    for item in survived(json.dumps(value).encode()):
        notes = (item,) if isinstance(item, Note) else item.notes if isinstance(item, Interaction) else ()
        assert all(note.kind in NOTE_KINDS for note in notes)
        if isinstance(item, Interaction):
            assert all(check_stage(mark.stage) for mark in item.marks if mark.stage is not None)


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=80), st.integers(0, 900), st.integers(0, 8))
def test_any_bytes_in_a_real_line_raise_at_most_a_format_error(noise: bytes, place: int, cut: int) -> None:
    line = lines(RUNS[0])[0]
    list(survived(line[:place] + noise + line[place + cut :]))
    list(survived(noise))
