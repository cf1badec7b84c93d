"""LLMPerf's raw results: four real files against the tool's own summaries, one record per case, and hostile bytes."""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings
from typer.testing import CliRunner

from outlay.account import account
from outlay.cli import OK
from outlay.cli.app import app
from outlay.formats.codec import FormatError, Item
from outlay.formats.llmperf import CODEC
from outlay.interaction import NOTE_KINDS, Interaction, Note
from outlay.stages import check_stage
from outlay.units import NS_PER_MS, NS_PER_S

DATA = Path(__file__).parent.parent / "data" / "llmperf-leaderboard"
NOTHING: frozenset[str] = frozenset()

RECORD: dict[str, Any] = {
    "error_code": None,
    "error_msg": "never kept",
    "ttft_s": 0.5,
    "end_to_end_latency_s": 2.0,
    "number_input_tokens": 550,
    "number_output_tokens": 150,
}

# File, and how its requests ended: 429 is refused, -100 ("too few tokens") an error.
FILES: list[tuple[str, dict[str, int]]] = [
    ("anyscale_13b", {"ok": 150}),
    ("bedrock_13b", {"ok": 53, "error": 97}),
    ("lepton_13b", {"ok": 20, "refused": 130}),
    ("replicate_70b", {"ok": 145}),
]
NAMES = [name for name, _ in FILES]


def raw_of(name: str) -> bytes:
    return (DATA / "individual" / f"{name}.json").read_bytes()


def read(name: str) -> list[Interaction]:
    return [item for item in CODEC.parse(raw_of(name), NOTHING) if isinstance(item, Interaction)]


def parse(value: object) -> list[Item]:
    return list(CODEC.parse(json.dumps(value).encode(), NOTHING))


def one(**changes: object) -> Interaction:
    (item,) = parse([RECORD | changes])
    assert isinstance(item, Interaction)
    return item


@pytest.mark.parametrize(("name", "outcomes"), FILES)
def test_no_request_of_a_real_file_is_lost(name: str, outcomes: dict[str, int]) -> None:
    assert Counter(item.outcome for item in read(name)) == outcomes
    assert len(read(name)) == len(json.loads(raw_of(name)))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("quantity", ["ttft_s", "end_to_end_latency_s"])
def test_percentiles_of_the_served_are_those_of_the_tools_own_summary(name: str, quantity: str) -> None:
    """The summary interpolates linearly over the rows without an error."""
    made = [account(item) for item in read(name) if item.outcome == "ok"]
    totals = [one.total_ns if quantity != "ttft_s" else one.entries["llm/uplink..infer.prefill"] for one in made]
    summary = json.loads((DATA / "summary" / f"{name}.json").read_bytes())
    for level in (25, 50, 75, 90, 95, 99):
        stated_s = summary[f"results_{quantity}_quantiles_p{level}"]
        assert np.percentile(totals, level) / NS_PER_S == pytest.approx(stated_s, rel=1e-6)


@pytest.mark.parametrize(("name", "outcomes"), FILES)
def test_explain_counts_every_request_and_sums(name: str, outcomes: dict[str, int]) -> None:
    file = str(DATA / "individual" / f"{name}.json")
    outcome = CliRunner().invoke(app, ["explain", file, "--json", "--slowest", "999"])
    assert outcome.exit_code == OK
    (moment,) = json.loads(outcome.stdout)["moments"]
    assert (moment["moment"], moment["outcomes"]) == ("llm-request", outcomes)
    assert moment["n"] == moment["started"] == sum(outcomes.values())
    assert sum(row["typical_ns"] for row in moment["account"]) == moment["typical_ns"]
    for slow in moment["slowest"]:
        assert sum(entry["duration_ns"] for entry in slow["entries"]) == slow["total_ns"]
    health = {line["kind"]: line["count"] for line in moment["health"]}
    assert health["outside-window"] == moment["n"]


def test_the_account_has_the_wait_for_the_first_token_and_the_rest() -> None:
    """0.5 s to the first token, 1.5 more to the last."""
    item = one()
    assert account(item).entries == {
        "llm/uplink..infer.prefill": 500 * NS_PER_MS,
        "llm/infer.decode..downlink": 1500 * NS_PER_MS,
    }
    assert (item.start_ns, item.sizes) == (0, {"input_tokens": 550, "output_tokens": 150})
    assert [note.kind for note in item.notes] == ["outside-window"]


def test_the_zeros_of_a_refused_request_are_no_times() -> None:
    item = one(error_code=429, ttft_s=0, end_to_end_latency_s=0, number_output_tokens=1)
    assert (item.outcome, item.end_ns, item.sizes) == ("refused", None, {"input_tokens": 550})
    assert [mark.name for mark in item.marks] == ["sent"]
    assert [note.kind for note in item.notes] == ["outside-window", "missing-value"]


@pytest.mark.parametrize(
    ("code", "outcome"),
    [
        (None, "ok"),
        (429, "refused"),
        (429.0, "refused"),
        (408, "timeout"),
        (-100, "error"),
        (500, "error"),
        ("x", "error"),
    ],
)
def test_the_code_decides_the_outcome(code: object, outcome: str) -> None:
    assert one(error_code=code).outcome == outcome


def test_a_failed_request_keeps_its_real_times() -> None:
    assert account(one(error_code=-100)).total_ns == 2 * NS_PER_S


def test_without_a_first_token_it_is_one_wait() -> None:
    assert account(one(ttft_s=0)).entries == {"llm/uplink..downlink": 2 * NS_PER_S}


def test_a_bad_result_does_not_take_the_others_with_it() -> None:
    items = parse([RECORD, RECORD | {"ttft_s": "soon"}, 7, RECORD | {"ttft_s": 1e30}, RECORD])
    found = [item.kind if isinstance(item, Note) else item.id for item in items if isinstance(item, Note | Interaction)]
    assert found == ["0", "dropped-record", "dropped-record", "dropped-record", "4"]


def test_ids_sort_as_the_file_does() -> None:
    ids = [item.id for item in read("replicate_70b")]
    assert ids == sorted(ids)
    assert len(set(ids)) == 145


@pytest.mark.parametrize("value", [None, 3, [], {}, RECORD, [{"ttft_s": 1.0}], [7]])
def test_other_json_is_not_this_format(value: object) -> None:
    assert not CODEC.recognises(value)
    with pytest.raises(FormatError, match="expected LLMPerf results"):
        parse(value)


@pytest.mark.parametrize("name", NAMES)
def test_a_summary_is_not_this_format(name: str) -> None:
    assert not CODEC.recognises(json.loads((DATA / "summary" / f"{name}.json").read_bytes()))


def survived(raw: bytes) -> Iterator[Item]:
    try:
        yield from CODEC.parse(raw, NOTHING)
    except FormatError:
        return


WHOLE = json.dumps([RECORD, RECORD]).encode()


def test_a_file_cut_at_any_byte_is_a_format_error() -> None:
    for length in range(len(WHOLE)):
        with pytest.raises(FormatError):
            list(CODEC.parse(WHOLE[:length], NOTHING))


VALUES = st.none() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=3)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.fixed_dictionaries({}, optional=dict.fromkeys(RECORD, VALUES)), max_size=3))
def test_any_values_give_stages_and_notes_of_the_closed_lists(value: object) -> None:
    for item in survived(json.dumps(value).encode()):
        notes = (item,) if isinstance(item, Note) else item.notes if isinstance(item, Interaction) else ()
        assert all(note.kind in NOTE_KINDS for note in notes)
        if isinstance(item, Interaction):
            assert all(check_stage(mark.stage) for mark in item.marks if mark.stage is not None)


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=80), st.integers(0, 320), st.integers(0, 8))
def test_any_bytes_in_a_file_raise_at_most_a_format_error(noise: bytes, place: int, cut: int) -> None:
    list(survived(WHOLE[:place] + noise + WHOLE[place + cut :]))
    list(survived(noise))
