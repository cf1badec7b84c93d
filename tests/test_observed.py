"""The account of one request: that it sums whatever is missing, and that its names claim only what is known."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outlay.account import account
from outlay.interaction import Interaction
from outlay.observed import (
    Observed,
    Reported,
    first_output_latency,
    gaps_ns,
    interaction_of,
    per_token_ns,
    total_latency,
    ttft,
)
from outlay.stages import is_model_time, may_hold_model_time, split_entry, term_of

# On a new connection: each step of the sending takes a length of its own, so that no two rows can be confused.
STREAM = Observed(
    id="r",
    intended_ns=1000,
    enqueued_ns=1001,  # +1
    begun_ns=1003,  # +2
    dns_ns=1007,  # +4
    connected_ns=1015,  # +8
    tls_ns=1031,  # +16
    written_ns=1063,  # +32
    sent_ns=1127,  # +64
    first_byte_ns=1300,
    headers_ns=1300,
    first_token_ns=1627,  # +500
    first_output_ns=1727,  # +100
    last_ns=2027,  # +300
    done_ns=2034,  # +7
    ended_ns=2034,
    parsed_ns=2500,
    floor_ns=21,
    input_tokens=9,
    output_tokens=5,
    tokens_ns=(1627, 1727, 2027),
)
SENDING = {
    "client/queue.wait": 3,  # 1 + 2
    "client/uplink.dns": 4,
    "client/uplink.connect": 8,
    "client/uplink.tls": 16,
    "client/prepare": 32,
    "client/uplink.send": 64,
}
AFTER = {"llm/infer.decode..downlink": 400, "llm/postprocess..downlink": 7}
# The body comes in 1000 after the last byte was sent.
WHOLE = replace(
    STREAM, streamed=False, first_byte_ns=1627, headers_ns=1627, first_token_ns=None, first_output_ns=None, done_ns=None
)


def made(observed: Observed, **more: Any) -> Interaction:
    return interaction_of(observed, moment="chat", clock="here", component="llm", **more)


def entries(observed: Observed) -> Mapping[str, int]:
    return account(made(observed)).entries


def reported(total_ns: int | None = None, **parts: int) -> Reported:
    return Reported(source="server-timing", total_ns=total_ns, parts={k.replace("_", "."): v for k, v in parts.items()})


def test_a_stream_on_a_new_connection() -> None:
    assert entries(STREAM) == SENDING | AFTER | {
        "client/uplink.floor": 10,  # 21 halved; the odd nanosecond is on the way back
        "llm/uplink.excess..infer.prefill": 479,  # 500 - 21
        "client/downlink.floor": 11,
    }


def test_what_was_stamped_and_what_was_derived() -> None:
    marks = made(STREAM).marks
    assert {mark.name for mark in marks if mark.stage is None} == {"intended", "headers", "first_byte", "parsed"}
    # 1127 + 10 and 1627 - 11
    assert {mark.name: mark.at_ns for mark in marks if mark.name.startswith("path")} == {
        "path_there": 1137,
        "path_back": 1616,
    }
    fields = {"first_output_token": "first_output", "last_token": "last", "end": "done"}
    stamped = {mark.name: mark.at_ns for mark in marks if not mark.name.startswith("path")}
    assert stamped == {name: getattr(STREAM, f"{fields.get(name, name)}_ns") for name in stamped}


def test_a_reused_connection_has_no_rows_of_a_set_up() -> None:
    warm = replace(STREAM, reused=True, dns_ns=None, connected_ns=None, tls_ns=None)
    kept = {name: length for name, length in SENDING.items() if "uplink" not in name}
    # 1003 to 1063 is the client's
    assert entries(warm).items() >= (kept | {"client/prepare": 60, "client/uplink.send": 64}).items()


@pytest.mark.parametrize(
    ("missing", "rows"),
    [
        (("enqueued_ns",), {"client/queue.wait": 3}),
        (("begun_ns",), {"client/queue.wait": 1, "client/uplink.dns..queue.wait": 6}),
        (("dns_ns",), {"client/uplink.connect": 12}),
        (("connected_ns",), {"client/uplink.connect..uplink.tls": 24}),
        (("sent_ns",), {"client/uplink.send..uplink.floor": 10, "llm/uplink.excess..infer.prefill": 543}),
        (("floor_ns",), {"llm/uplink.floor..infer.prefill": 500}),
        (("floor_ns", "sent_ns"), {"llm/uplink.send..infer.prefill": 564}),
        # Where the wait began is not known, so nothing can be taken out of it.
        (("written_ns", "sent_ns"), {"llm/prepare..infer.prefill": 596}),
        (("first_output_ns",), {"llm/infer.decode..downlink": 400}),
        (("first_token_ns",), {"llm/uplink.excess..downlink.excess": 579, "llm/infer.decode..downlink": 300}),
        (("last_ns",), {"llm/infer.decode..downlink": 407}),
        (("done_ns",), {"llm/infer.decode..downlink": 400}),
    ],
)
def test_what_is_missing_leaves_its_time_under_a_joint_name(missing: tuple[str, ...], rows: dict[str, int]) -> None:
    assert entries(replace(STREAM, **dict.fromkeys(missing))).items() >= rows.items()


def test_a_floor_beyond_the_wait_is_cut_to_it() -> None:
    rows = entries(replace(STREAM, floor_ns=501))
    assert (rows["client/uplink.floor"], rows["client/downlink.floor"]) == (250, 250)
    assert "llm/uplink.excess..infer.prefill" not in rows


# What the server reports


@pytest.mark.parametrize(
    ("report", "rows"),
    [
        (None, {"llm/uplink.excess..downlink.excess": 479}),
        (reported(400), {"llm/auth..postprocess": 400, "client/downlink.excess": 79}),
        (
            reported(400, queue_wait=30, infer=350),
            {
                # A queue may do more than wait, so what is left could be anywhere but in `infer`.
                "llm/auth..postprocess": 20,
                "llm/queue.wait": 30,
                "llm/infer": 350,
                "client/downlink.excess": 79,
            },
        ),
        (
            reported(400, auth=1, infer=350, postprocess=9),
            {
                "llm/auth": 1,
                "llm/infer": 350,
                "llm/postprocess": 9,
                "llm/route..preprocess": 40,
                "client/downlink.excess": 79,
            },
        ),
        (
            reported(400, auth=1, route=2, admit=3, queue=4, preprocess=5, infer=384),
            {
                "llm/auth": 1,
                "llm/route": 2,
                "llm/admit": 3,
                "llm/queue": 4,
                "llm/preprocess": 5,
                "llm/infer": 384,
                "llm/unattributed": 1,  # one stage is left, and nobody said that it was that one
                "client/downlink.excess": 79,
            },
        ),
        (reported(479), {"llm/auth..postprocess": 479}),
        (reported(queue_wait=30), {"llm/queue.wait": 30, "llm/uplink.excess..downlink.excess": 449}),
        # What is no stage of a service stays with the rest of the server's time.
        (reported(400, render=30), {"llm/auth..postprocess": 400, "client/downlink.excess": 79}),
    ],
)
def test_a_whole_answer_and_its_report(report: Reported | None, rows: dict[str, int]) -> None:
    floor = {"client/uplink.floor": 10, "client/downlink.floor": 11, "client/downlink": 400}
    found = entries(replace(WHOLE, reported=report))
    server = {name: length for name, length in found.items() if name not in SENDING and name not in floor}
    assert server == rows
    assert found.items() >= floor.items()
    assert made(replace(WHOLE, reported=report)).notes == ()


def test_without_a_floor_the_network_of_a_whole_answer_is_halved() -> None:
    # 500 of wait less 389 of the server: 111 of network, the odd one on the way back, where 400 of body follow.
    rows = entries(replace(WHOLE, floor_ns=None, reported=reported(389)))
    assert (rows["client/uplink"], rows["llm/auth..postprocess"], rows["client/downlink"]) == (55, 389, 456)


@pytest.mark.parametrize(
    ("report", "rows"),
    [
        (reported(400), {"llm/uplink.excess..infer.prefill": 479}),  # the head of a stream says nothing of its tokens
        (reported(400, queue_wait=30), {"llm/queue.wait": 30, "llm/uplink.excess..infer.prefill": 449}),
        (reported(infer_prefill=99), {"llm/infer.prefill": 99, "llm/uplink.excess..preprocess": 380}),
        (
            reported(infer_prefill=99, preprocess=80),
            {"llm/infer.prefill": 99, "llm/preprocess": 80, "llm/uplink.excess..queue": 300},
        ),
        # Some of these may come after the first token.
        (reported(infer=400, infer_decode=300, postprocess=1), {"llm/uplink.excess..infer.prefill": 479}),
    ],
)
def test_a_stream_and_its_report(report: Reported, rows: dict[str, int]) -> None:
    found = entries(replace(STREAM, reported=report))
    floor = {"client/uplink.floor": 10, "client/downlink.floor": 11}
    assert found == SENDING | AFTER | floor | rows


@pytest.mark.parametrize("observed", [STREAM, WHOLE])
@pytest.mark.parametrize(
    "report",
    [
        reported(480),  # 500 - 21 is the most there is room for
        reported(-1),
        reported(queue_wait=480),
        reported(400, queue_wait=-1),
    ],
)
def test_a_report_that_cannot_be_true_is_noted_and_not_used(observed: Observed, report: Reported) -> None:
    doubtful = replace(observed, reported=report)
    assert entries(doubtful) == entries(observed)
    assert [note.kind for note in made(doubtful).notes] == ["contradiction"]


def test_parts_beyond_their_total_are_not_used() -> None:
    doubtful = replace(WHOLE, reported=reported(400, infer=401))
    assert entries(doubtful)["llm/auth..postprocess"] == 400
    assert [note.kind for note in made(doubtful).notes] == ["contradiction"]


# What the names mean


def test_terms() -> None:
    assert {term_of(name) for name in entries(STREAM) if "floor" in name} == {"geography"}
    (middle,) = (name for name in entries(STREAM) if "prefill" in name)
    assert (term_of(middle), may_hold_model_time(middle), is_model_time(middle)) == ("unattributed", True, False)
    rows = entries(replace(WHOLE, reported=reported(400, queue_wait=30, infer=350)))
    assert [name for name in rows if is_model_time(name)] == ["llm/infer"]
    assert term_of("client/downlink.excess") == "variability"
    # Once the model's stages are split off, the rest cannot hold them.
    split = entries(replace(STREAM, reported=reported(infer_prefill=99, preprocess=80)))
    assert not may_hold_model_time(next(name for name in split if ".." in name and "uplink" in name))


# The ends


def test_a_failed_request_ends_where_its_client_gave_it_up() -> None:
    cut = replace(
        STREAM,
        outcome="timeout",
        first_token_ns=None,
        first_output_ns=None,
        last_ns=None,
        done_ns=None,
        ended_ns=9000,
    )
    assert (made(cut).end_ns, made(cut).marks[-1].name) == (9000, "parsed")
    assert entries(cut) == SENDING | {"client/unattributed.sent->end": 7873}  # 9000 - 1127


def test_an_unsent_request_lasts_until_it_was_given_up() -> None:
    unsent = made(Observed(id="r", intended_ns=5, ended_ns=25, outcome="unsent"), shift_ns=100)
    assert (unsent.start_ns, unsent.end_ns, unsent.outcome) == (105, 125, "unsent")
    assert [(mark.name, mark.at_ns) for mark in unsent.marks] == [("intended", 105)]


def test_nobody_knows_when_it_ended() -> None:
    assert made(Observed(id="r", intended_ns=5, outcome="error")).end_ns is None


def test_a_stream_without_tokens_is_noted() -> None:
    silent = replace(STREAM, first_token_ns=None, first_output_ns=None)
    assert [note.kind for note in made(silent).notes] == ["no-first-output"]
    # 1127 to 2027, less the floor: tokens may have been among it
    assert entries(silent)["llm/uplink.excess..downlink.excess"] == 879


def test_sizes_dimensions_and_the_clock() -> None:
    there = made(replace(STREAM, dimensions={"site": "lon"}, output_tokens=None), shift_ns=7)
    assert (there.sizes, there.dimensions, there.clock) == ({"input_tokens": 9}, {"site": "lon"}, "here")
    assert (there.start_ns, there.end_ns) == (1007, 2041)
    assert {mark.clock for mark in there.marks} == {"here"}


# Every request sums

INSTANTS = tuple(name for name in Observed.__dataclass_fields__ if name.endswith("_ns") and name != "floor_ns")[:-1]
STEPS = st.lists(st.integers(0, 50), min_size=len(INSTANTS), max_size=len(INSTANTS))
PARTS = st.dictionaries(
    st.sampled_from(["queue.wait", "infer", "infer.prefill", "auth", "postprocess"]), st.integers(-1, 60)
)


@given(
    steps=STEPS,
    missing=st.sets(st.sampled_from(INSTANTS[1:])),
    floor_ns=st.none() | st.integers(0, 200),
    report=st.none() | st.builds(Reported, source=st.just("x"), total_ns=st.none() | st.integers(-1, 300), parts=PARTS),
    streamed=st.booleans(),
    shift_ns=st.integers(-5, 5),
)
@settings(max_examples=400, deadline=None)
def test_entries_sum_whatever_is_missing(
    steps: list[int],
    missing: set[str],
    floor_ns: int | None,
    report: Reported | None,
    streamed: bool,
    shift_ns: int,
) -> None:
    at = {name: sum(steps[: place + 1]) for place, name in enumerate(INSTANTS)}
    instants: dict[str, Any] = {name: None if name in missing else at_ns for name, at_ns in at.items()}
    observed = Observed(id="r", streamed=streamed, floor_ns=floor_ns, reported=report, **instants)
    interaction = made(observed, shift_ns=shift_ns)
    ends = (observed.done_ns, observed.last_ns, observed.ended_ns)
    end_ns = next((at_ns for at_ns in ends if at_ns is not None), None)
    if end_ns is None:
        assert interaction.end_ns is None
        return
    found = account(interaction)
    assert sum(found.entries.values()) == found.total_ns == end_ns - observed.intended_ns
    for name in found.entries:
        term_of(name)  # raises for a name outside the vocabulary
        # Without a mark that ends a stage there is nobody to give the time to.
        assert split_entry(name)[0] in ("client", "llm") or not any(mark.stage for mark in interaction.marks)
    # Instants in causal order give marks in causal order, derived ones included.
    assert found.notes == ()


# Latencies


def test_latencies_from_the_intended_start_and_from_the_write() -> None:
    assert (ttft(STREAM).response_ns, ttft(STREAM).service_ns) == (627, 564)  # 1627 less 1000, less 1063
    assert first_output_latency(STREAM).response_ns == 727
    assert total_latency(STREAM).response_ns == 1034
    assert total_latency(replace(STREAM, outcome="error")).response_ns is None
    assert ttft(WHOLE).response_ns is ttft(WHOLE).service_ns is None
    assert ttft(replace(STREAM, written_ns=None)).service_ns is None


@pytest.mark.parametrize(
    ("more", "per_token"),
    [
        ({}, 100),  # 400 between 5 tokens
        ({"output_tokens": 2}, 400),
        ({"output_tokens": 1}, None),
        ({"output_tokens": None}, None),
        ({"first_token_ns": None}, None),
        ({"last_ns": None}, None),
    ],
)
def test_time_per_token(more: dict[str, Any], per_token: int | None) -> None:
    assert per_token_ns(replace(STREAM, **more)) == per_token


def test_gaps_between_frames() -> None:
    assert gaps_ns(STREAM) == (100, 300)
    assert gaps_ns(WHOLE) == (100, 300)
    assert gaps_ns(replace(STREAM, tokens_ns=(5,))) == ()
