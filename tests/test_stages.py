"""The closed vocabulary: every name has a meaning, every row a term, and joint names span what they say."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlay.stages import (
    STAGES,
    TERMS,
    check_stage,
    entry,
    is_model_time,
    joint,
    may_hold_model_time,
    split_entry,
    stage_names,
    term_of,
)

NAMES = stage_names()


def test_every_stage_part_and_term_has_a_meaning() -> None:
    assert all(stage.meaning and stage.where in ("device", "network", "service", "anywhere") for stage in STAGES)
    assert all(name and meaning for stage in STAGES for name, meaning in stage.parts)
    assert all(term.meaning and term.fix for term in TERMS)


def test_names_are_closed_and_in_order() -> None:
    assert len(set(NAMES)) == len(NAMES) == sum(1 + len(stage.parts) for stage in STAGES)
    assert NAMES[:4] == ("capture", "encode", "prepare", "uplink")
    assert NAMES[-2:] == ("hold", "unattributed")
    place = NAMES.index("queue")
    assert NAMES[place : place + 5] == ("queue", "queue.wait", "queue.broker", "queue.batch", "queue.cold_start")


@pytest.mark.parametrize(
    "name", [*NAMES, "unattributed.start->a..b/c", "uplink..downlink", "queue.wait..infer.prefill"]
)
def test_stages_that_are(name: str) -> None:
    assert check_stage(name) == name


@pytest.mark.parametrize(
    "name",
    ["", "wait", "Queue", "queue.", "queue.nap", "downlink..uplink", "queue..queue", "queue..", "..queue", "a..b"],
)
def test_stages_that_are_not(name: str) -> None:
    with pytest.raises(ValueError, match="is not a stage"):
        check_stage(name)


@pytest.mark.parametrize(
    ("first", "last", "expected"),
    [
        ("queue.wait", "infer.prefill", "queue.wait..infer.prefill"),
        ("infer.prefill", "queue.wait", "queue.wait..infer.prefill"),  # in either order
        ("infer", "infer", "infer"),
        ("infer", "infer.decode", "infer..infer.decode"),  # the whole before its part
        ("capture", "hold", "capture..hold"),
        ("uplink..queue", "infer", "uplink..infer"),
        ("infer", "uplink..queue", "uplink..infer"),
        ("uplink..infer", "queue", "uplink..infer"),  # what is inside changes nothing
        ("uplink..queue", "route..downlink", "uplink..downlink"),
        ("uplink..queue", "uplink..queue", "uplink..queue"),
    ],
)
def test_joint_names(first: str, last: str, expected: str) -> None:
    assert joint(first, last) == expected
    assert joint(last, first) == expected


@given(st.lists(st.sampled_from(NAMES), min_size=1, max_size=5))
def test_joining_one_by_one_spans_the_first_through_the_last(names: list[str]) -> None:
    joined = names[0]
    for name in names[1:]:
        joined = joint(joined, name)
    first, last = min(names, key=NAMES.index), max(names, key=NAMES.index)
    assert joined == (first if first == last else f"{first}..{last}")
    assert check_stage(joined) == joined


# One row for each line of the table, and its exceptions
TERM_OF = [
    ("client/capture", "device"),
    ("client/encode", "device"),
    ("client/prepare", "device"),
    ("client/uplink", "geography"),
    ("client/uplink.dns", "geography"),
    ("client/uplink.connect", "geography"),
    ("client/uplink.tls", "geography"),
    ("client/uplink.send", "geography"),
    ("client/uplink.floor", "geography"),
    ("client/uplink.excess", "variability"),
    ("llm/uplink", "api hop"),
    ("llm/uplink.tls", "api hop"),
    ("llm/uplink.excess", "variability"),
    ("gateway/auth", "routing"),
    ("gateway/route", "routing"),
    ("gateway/admit", "routing"),
    ("llm/queue", "queueing"),
    ("llm/queue.wait", "queueing"),
    ("llm/queue.batch", "queueing"),
    ("llm/queue.broker", "broker"),
    ("llm/queue.cold_start", "cold start"),
    ("tool/preprocess", "model"),
    ("llm/infer", "model"),
    ("llm/infer.prefill", "model"),
    ("llm/infer.decode", "model"),
    ("llm/postprocess", "model"),
    ("client/downlink", "geography"),
    ("client/downlink.floor", "geography"),
    ("client/downlink.excess", "variability"),
    ("llm/downlink.floor", "api hop"),
    ("llm/downlink.excess", "variability"),
    ("client/stream", "device"),
    ("client/render", "device"),
    ("client/actuate", "device"),
    ("client/respond", "device"),
    ("asr/hold", "setting"),
    ("app/unattributed", "unattributed"),
    ("app/unattributed.start->GET /infer", "unattributed"),
    # joint rows: a term where all members agree
    ("gateway/auth..admit", "routing"),
    ("llm/preprocess..postprocess", "model"),
    ("client/capture..prepare", "device"),
    ("client/uplink..uplink.floor", "geography"),
    ("client/uplink..uplink.excess", "unattributed"),
    ("llm/uplink..downlink", "unattributed"),
    ("llm/queue.wait..infer.prefill", "unattributed"),
]


@pytest.mark.parametrize(("name", "term"), TERM_OF)
def test_term(name: str, term: str) -> None:
    assert term_of(name) == term
    assert is_model_time(name) == (term == "model")


def test_every_name_has_a_term_and_every_term_a_name() -> None:
    terms = {term.name for term in TERMS}
    assert {term_of(entry(component, name)) for component in ("client", "x") for name in NAMES} == terms
    tested = {split_entry(name)[1] for name, _ in TERM_OF}
    assert set(NAMES) <= tested


@pytest.mark.parametrize(
    ("name", "may"),
    [
        ("llm/infer", True),
        ("tool/preprocess", True),
        ("llm/queue.wait..infer.prefill", True),
        ("llm/uplink..downlink", True),
        ("llm/queue.wait..queue.batch", False),
        ("llm/queue", False),
        ("llm/uplink", False),
        ("app/unattributed", False),
        ("app/unattributed.infer", False),
        # an edge takes its name from spans, which may hold anything
        ("app/unattributed.start->range 1..10", False),
        ("app/unattributed.queue..infer", False),
    ],
)
def test_what_could_be_the_model(name: str, may: bool) -> None:
    assert may_hold_model_time(name) is may


@pytest.mark.parametrize(
    "component",
    ["llm", "", "infer", "queue/infer", "github.com/team/render", "a/b/", "GET /uplink", "a/infer.v2", "../.."],
)
@pytest.mark.parametrize("stage", ["infer", "queue.wait", "uplink..downlink", "unattributed.GET /a/queue->end"])
def test_entries_come_apart_again(component: str, stage: str) -> None:
    assert split_entry(entry(component, stage)) == (component, stage)
    assert term_of(entry(component, stage)) == term_of(entry("x", stage))


@pytest.mark.parametrize("name", ["", "infer", "llm", "llm/nap", "llm/", "llm/queue.nap", "llm/infer..queue"])
def test_what_is_no_entry_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="is not an entry"):
        split_entry(name)
