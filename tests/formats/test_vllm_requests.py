"""vLLM's per-request stamps: two real runs of 300 requests, one record per case, and hostile bytes."""

import json
from collections.abc import Iterator
from pathlib import Path

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from outlay.formats.codec import FormatError, Item
from outlay.formats.vllm_requests import CODEC
from outlay.interaction import NOTE_KINDS, Interaction, Note
from outlay.stages import check_stage
from outlay.units import NS_PER_MS, from_s

DATA = Path(__file__).parent.parent / "data" / "vllm-requests"
RUNS = ("RTX4090", "RTXPRO6000")
NOTHING: frozenset[str] = frozenset()

RECORD = {
    "request_id": "bench-0",
    "input_toks": 2358,
    "output_toks": 531,
    "arrival_time": 1787267980.0827403,
    "queued_ts": 100.0,
    "scheduled_ts": 100.25,
    "first_token_ts": 100.75,
    "last_token_ts": 102.0,
}


def lines(run: str) -> list[bytes]:
    return (DATA / f"{run}__Llama-3.1-8B__requests.jsonl").read_bytes().splitlines()


def parse(value: object) -> list[Item]:
    return list(CODEC.parse(json.dumps(value).encode(), NOTHING))


def one(**changes: object) -> Interaction:
    (item,) = parse({**RECORD, **changes})
    assert isinstance(item, Interaction)
    return item


def read(run: str) -> list[Interaction]:
    items = [item for line in lines(run) for item in CODEC.parse(line, NOTHING)]
    return [item for item in items if isinstance(item, Interaction)]


def at(interaction: Interaction, name: str) -> int:
    return next(mark.at_ns for mark in interaction.marks if mark.name == name)


def between(interaction: Interaction, first: str, last: str) -> int:
    return at(interaction, last) - at(interaction, first)


def reported_ms(run: str) -> dict[str, float]:
    """The column `vLLM` of the summary beside the records."""
    rows = (DATA / f"{run}__Llama-3.1-8B__summary.txt").read_text().splitlines()
    return {" ".join(words[:2]): float(words[2]) for row in rows if len(words := row.split()) == 5}


@pytest.mark.parametrize("run", RUNS)
def test_every_request_of_a_real_run_is_read_to_the_nanosecond(run: str) -> None:
    interactions = read(run)
    assert len(interactions) == 300
    assert len({interaction.id for interaction in interactions}) == 300
    for line, interaction in zip(lines(run), interactions, strict=True):
        record = json.loads(line)
        assert interaction.start_ns == from_s(record["queued_ts"])
        assert interaction.end_ns == from_s(record["last_token_ts"])
        assert [mark.name for mark in interaction.marks] == ["queued", "scheduled", "first_token", "last_token"]
        assert interaction.sizes == {"input_tokens": record["input_toks"], "output_tokens": record["output_toks"]}


@pytest.mark.parametrize(("run", "share"), [("RTX4090", 0.996), ("RTXPRO6000", 0.983)])
def test_almost_all_of_the_time_to_first_token_is_queue(run: str, share: float) -> None:
    """Over a whole run: the sum of (scheduled - queued) over the sum of (first token - queued)."""
    interactions = read(run)
    queued_ns = sum(between(interaction, "queued", "scheduled") for interaction in interactions)
    first_token_ns = sum(between(interaction, "queued", "first_token") for interaction in interactions)
    assert round(queued_ns / first_token_ns, 3) == share


@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize(
    ("metric", "last"),
    [("TTFT", "first_token"), ("Latency", "last_token")],
)
def test_the_published_figures_come_out(run: str, metric: str, last: str) -> None:
    """The summary counts from the engine's queue too, so it agrees to its last digit, a tenth of a millisecond.

    Counted from `arrival_time` the figures would move by the wandering of the two clocks, 0.1 s and 0.2 s a run.
    """
    reported = reported_ms(run)
    times_ms = np.array([between(interaction, "queued", last) for interaction in read(run)]) / NS_PER_MS
    assert times_ms.mean() == pytest.approx(reported[f"{metric} Mean"], abs=0.051)
    for level in (90, 95, 99):
        assert np.percentile(times_ms, level) == pytest.approx(reported[f"{metric} P{level}"], abs=0.051)


@pytest.mark.parametrize("run", RUNS)
def test_arrival_is_on_another_clock_and_every_request_says_that_it_is_not_counted(run: str) -> None:
    records = [json.loads(line) for line in lines(run)]
    offsets_s = [record["arrival_time"] - record["queued_ts"] for record in records]
    assert 0.1 < max(offsets_s) - min(offsets_s) < 0.4  # one offset for both clocks would be wrong by as much
    for interaction in read(run):
        (note,) = interaction.notes
        assert note.kind == "outside-window"
        assert "another clock" in note.text


def test_the_marks_end_queue_prefill_and_decode() -> None:
    interaction = one()
    assert [(mark.name, mark.component, mark.stage) for mark in interaction.marks] == [
        ("queued", None, None),
        ("scheduled", "llm", "queue.wait"),
        ("first_token", "llm", "infer.prefill"),
        ("last_token", "llm", "infer.decode"),
    ]
    assert between(interaction, "queued", "scheduled") == 250 * NS_PER_MS  # 100.25 - 100
    assert between(interaction, "scheduled", "first_token") == 500 * NS_PER_MS  # 100.75 - 100.25
    assert between(interaction, "first_token", "last_token") == 1250 * NS_PER_MS  # 102 - 100.75


# The engine initialises its stamps with 0; other writers say -1, null or nothing at all.
@pytest.mark.parametrize("unknown", [None, -1, -48.2, 0, 0.0])
@pytest.mark.parametrize(
    ("fields", "stages"),
    [
        (["scheduled_ts"], [None, "queue.wait..infer.prefill", "infer.decode"]),
        (["first_token_ts"], [None, "queue.wait", "infer.prefill..infer.decode"]),
        (["scheduled_ts", "first_token_ts"], [None, "queue.wait..infer.decode"]),
        (["queued_ts"], [None, "infer.prefill", "infer.decode"]),
        (["queued_ts", "scheduled_ts"], [None, "infer.decode"]),
        (["last_token_ts"], [None, "queue.wait", "infer.prefill"]),
    ],
)
def test_a_missing_stamp_merges_its_stage_into_the_next(
    unknown: object, fields: list[str], stages: list[str | None]
) -> None:
    interaction = one(**dict.fromkeys(fields, unknown))
    assert [mark.stage for mark in interaction.marks] == stages
    assert all(check_stage(mark.stage) for mark in interaction.marks if mark.stage is not None)
    (missing,) = (note for note in interaction.notes if note.kind == "missing-value")
    assert all(field in missing.text for field in fields)
    assert (interaction.start_ns is None) == ("queued_ts" in fields)
    assert (interaction.end_ns is None) == ("last_token_ts" in fields)


def test_an_absent_key_is_as_unknown_as_a_null() -> None:
    record = {key: value for key, value in RECORD.items() if key != "scheduled_ts"}
    assert parse(record) == parse({**RECORD, "scheduled_ts": None})


def test_stamps_out_of_order_stay_where_they_are() -> None:
    interaction = one(scheduled_ts=90.5)
    assert [mark.at_ns for mark in interaction.marks] == [from_s(stamp) for stamp in (100, 90.5, 100.75, 102)]


@pytest.mark.parametrize(
    ("changes", "sizes"),
    [
        ({"output_toks": 1}, {"input_tokens": 2358, "output_tokens": 1}),
        ({"output_toks": 0}, {"input_tokens": 2358, "output_tokens": 0}),
        ({"output_toks": -1, "input_toks": None}, {}),
    ],
)
def test_token_counts_are_kept_and_unknown_ones_are_absent(changes: dict[str, object], sizes: dict[str, int]) -> None:
    assert one(**changes).sizes == sizes


def test_a_list_yields_its_requests_and_a_bad_one_does_not_take_the_others_with_it() -> None:
    items = parse([RECORD, {**RECORD, "queued_ts": "soon"}, 7, {**RECORD, "last_token_ts": 1e30}, RECORD])
    assert [item.kind if isinstance(item, Note) else item.id for item in items] == [
        "bench-0",
        "dropped-record",
        "dropped-record",
        "dropped-record",
        "bench-0",
    ]


@pytest.mark.parametrize(
    "value",
    [None, 3, "x", [], {}, {"request_id": "a"}, {"request_id": "a", "first_token_ts": 1.0}, {"queued_ts": 1.0}],
)
def test_other_json_is_not_this_format(value: object) -> None:
    assert not CODEC.recognises(value)
    with pytest.raises(FormatError, match="expected vLLM requests"):
        parse(value)


@pytest.mark.parametrize("run", RUNS)
def test_real_lines_and_lists_of_them_are_recognised(run: str) -> None:
    record = json.loads(lines(run)[0])
    assert CODEC.recognises(record)
    assert CODEC.recognises(["noise", record])


def test_a_line_cut_at_any_byte_is_a_format_error() -> None:
    line = lines("RTX4090")[0]
    for length in range(len(line)):
        with pytest.raises(FormatError):
            list(CODEC.parse(line[:length], NOTHING))


def survived(raw: bytes) -> Iterator[Item]:
    try:
        yield from CODEC.parse(raw, NOTHING)
    except FormatError:
        return


STAMPS = st.none() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=3)
JSON = st.recursive(
    st.none() | st.booleans() | STAMPS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(list(RECORD)), inner, max_size=8),
    max_leaves=12,
)


@settings(max_examples=150, deadline=None)
@given(st.fixed_dictionaries({}, optional=dict.fromkeys(RECORD, STAMPS)) | JSON)
def test_any_json_gives_stages_and_notes_of_the_closed_lists(value: object) -> None:
    CODEC.recognises(value)
    for item in survived(json.dumps(value).encode()):
        notes = (item,) if isinstance(item, Note) else item.notes if isinstance(item, Interaction) else ()
        assert all(note.kind in NOTE_KINDS for note in notes)
        if isinstance(item, Interaction):
            assert all(check_stage(mark.stage) for mark in item.marks if mark.stage is not None)


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=80), st.integers(0, 220), st.integers(0, 8))
def test_any_bytes_in_a_real_line_raise_at_most_a_format_error(noise: bytes, place: int, cut: int) -> None:
    line = lines("RTX4090")[0]
    list(survived(line[:place] + noise + line[place + cut :]))
    list(survived(noise))


def test_deep_nesting_is_a_format_error() -> None:
    with pytest.raises(FormatError, match="too deep"):
        list(CODEC.parse(b"[" * 100_000 + b"]" * 100_000, NOTHING))
