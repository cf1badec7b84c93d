"""What engines say of themselves in attributes: vLLM's and SGLang's meanings, unknown values, contradictions."""

import re
from dataclasses import replace

import pytest

from outlay.account import account
from outlay.engines import (
    DECODE,
    END_TO_END,
    FIRST_TOKEN_AFTER,
    PREFILL,
    QUEUE,
    SGLANG,
    VLLM,
    engine_of,
    engine_stages,
)
from outlay.interaction import Note
from outlay.trace import TraceSpan
from worlds import assembled, kinds, only, path, traced

MS, US = 1_000_000, 1_000

# The spans of vLLM 0.29: 254.92 ms in which queue, prefill and decode name 196.16.
REQUEST = traced(
    "llm_request",
    None,
    0,
    254_920 * US,
    kind="server",
    attributes={END_TO_END: 0.2536, QUEUE: 0.00005, PREFILL: 0.05781, DECODE: 0.1383, FIRST_TOKEN_AFTER: 0.11555},
)


def told(span: TraceSpan, **stage_times: int) -> tuple[dict[str, tuple[int, int]], list[Note]]:
    """Stage, from and to in µs of what the attributes place; and the notes."""
    notes: list[Note] = []
    placed = engine_stages(span, stage_times, notes)
    return {made.stage or "": (made.start_ns // US, made.end_ns // US) for made in placed}, notes


def attributes(**changes: float | str | None) -> TraceSpan:
    """The request with some of its attributes changed, or gone where the value is None."""
    names = {"queue": QUEUE, "prefill": PREFILL, "decode": DECODE, "first": FIRST_TOKEN_AFTER, "e2e": END_TO_END}
    changed = {**REQUEST.attributes, **{names[name]: value for name, value in changes.items()}}
    return replace(REQUEST, attributes={key: value for key, value in changed.items() if value is not None})


def test_the_account_of_a_vllm_request() -> None:
    made = only(REQUEST)
    edge = "app/unattributed" if made.spans[-1].component == "app" else "llm/unattributed"
    assert path(made) == [
        # 115.55 less 57.81 and 0.05 of prefill and queue, which end at the first token
        (f"{edge}.start->queue.wait", 57_690 * US),
        ("llm/queue.wait", 50 * US),
        ("llm/infer.prefill", 57_810 * US),
        ("llm/infer.decode", 138_300 * US),
        # 254.92 less 115.55 and 138.30
        (f"{edge}.infer.decode->end", 1_070 * US),
    ]
    unnamed = sum(duration for entry, duration in account(made).entries.items() if "/unattributed" in entry)
    assert unnamed == 58_760 * US
    assert round(100 * unnamed / made.end_ns, 2) == 23.05  # type: ignore[operator] # it has an end
    # e2e says 253.60 of 254.92: within what two stamps may differ by
    assert kinds(made) == []


@pytest.mark.parametrize(
    ("span", "expected"),
    [
        # a first token that nobody stamped: the stages follow each other from the start
        (attributes(first=None, queue=None), {"infer.prefill": (0, 57_810), "infer.decode": (57_810, 196_110)}),
        (attributes(first=None, decode=None), {"queue.wait": (0, 50), "infer.prefill": (50, 57_860)}),
        # nothing says where anything is
        (attributes(first=None, prefill=None), {}),
        (attributes(queue=None), {"infer.prefill": (57_740, 115_550), "infer.decode": (115_550, 253_850)}),
        (attributes(decode=None), {"queue.wait": (57_690, 57_740), "infer.prefill": (57_740, 115_550)}),
        # decode may end up to 5 ms after the span, and is cut there: 115.55 + 141 is 256.55
        (attributes(decode=0.141, queue=None, prefill=None), {"infer.decode": (115_550, 254_920)}),
        # a first token at the very end
        (attributes(first=0.25492, queue=None, decode=None), {"infer.prefill": (197_110, 254_920)}),
        # text, as a store writes it
        (attributes(decode="0.1", queue=None, prefill=None), {"infer.decode": (115_550, 215_550)}),
        (replace(REQUEST, end_ns=None), {}),
        (replace(REQUEST, attributes={"gen_ai.request.model": "m"}), {}),
    ],
)
def test_where_the_stages_lie(span: TraceSpan, expected: dict[str, tuple[int, int]]) -> None:
    assert told(span) == (expected, [])


@pytest.mark.parametrize(
    ("span", "stages", "kind", "text"),
    [
        # -48 s of queue, as streaming sessions wrote it: everything else is kept
        (attributes(queue=-48.0), ["infer.prefill", "infer.decode"], "missing-value", "time_in_queue is -48.0"),
        (attributes(queue=-1), ["infer.prefill", "infer.decode"], "missing-value", "time_in_queue is -1"),
        (attributes(queue="fast"), ["infer.prefill", "infer.decode"], "missing-value", "time_in_queue is 'fast'"),
        (attributes(queue=True), ["infer.prefill", "infer.decode"], "missing-value", "time_in_queue is True"),
        (attributes(queue=float("nan")), ["infer.prefill", "infer.decode"], "missing-value", "time_in_queue is nan"),
        (attributes(queue=1e300), ["infer.prefill", "infer.decode"], "missing-value", "time_in_queue is 1e.300"),
        # a prefill longer than it took to the first token: neither it nor the queue before it can be placed
        (attributes(prefill=0.2), ["infer.decode"], "contradiction", "prefill says 200 ms where .* shows 116 ms"),
        # 115.55 less 57.81 leaves 57.74 for the queue
        (attributes(queue=0.06), ["infer.prefill", "infer.decode"], "contradiction", "queue says 60.0 ms .* 57.7 ms"),
        # 254.92 less 115.55 leaves 139.37, and 5 ms
        (attributes(decode=0.145), ["infer.prefill", "queue.wait"], "contradiction", "decode says 145 ms .* 139 ms"),
        (attributes(first=0.3), [], "contradiction", "first_token says 300 ms where .* shows 255 ms"),
        # e2e may differ by 5 ms and a tenth: 30.49 of 254.92
        (attributes(e2e=0.286), ["infer.prefill", "queue.wait", "infer.decode"], "contradiction", "e2e says 286 ms"),
    ],
)
def test_what_cannot_be(span: TraceSpan, stages: list[str], kind: str, text: str) -> None:
    placed, notes = told(span)
    assert list(placed) == stages
    assert [note.kind for note in notes] == [kind]
    assert re.search(text, notes[0].text)


@pytest.mark.parametrize("e2e", [0.285, 0.2249])
def test_two_stamps_of_one_time_may_differ_a_little(e2e: float) -> None:
    # 254.92 may be 5 ms and a tenth, 30.492 ms, off
    assert told(attributes(e2e=e2e))[1] == []


# SGLang


@pytest.mark.parametrize(
    ("span", "engine"),
    [
        (REQUEST, VLLM),
        (replace(REQUEST, name="Req 7f3a"), SGLANG),
        (replace(REQUEST, scope="SGLang.tracing"), SGLANG),
        (replace(REQUEST, name="Request"), VLLM),
    ],
)
def test_whose_meaning_the_keys_have(span: TraceSpan, engine: object) -> None:
    assert engine_of(span) is engine


def test_sglang_counts_its_queue_as_prefill() -> None:
    span = replace(attributes(queue=None), name="Req 7f3a", id="r")
    assert told(span)[0] == {
        # until the first token, from when the request was dispatched: the queue is in it
        "queue.wait..infer.prefill": (57_740, 115_550),
        "infer.decode": (115_550, 253_850),
    }
    assert account(only(span)).entries["llm/queue.wait..infer.prefill"] == 57_810 * US


# Spans win over attributes

BELOW = (
    traced("vllm_queue", "llm_request", 5 * MS, 10 * MS),
    traced("vllm_prefill", "llm_request", 10 * MS, 68 * MS),
    traced("vllm_decode", "llm_request", 68 * MS, 205 * MS),
)


def test_spans_of_the_stages_win() -> None:
    made = only(REQUEST, *BELOW)
    # prefill 58 of 57.81 and decode 137 of 138.3 agree; queue 5 of 0.05 is within 5 ms and a tenth
    assert kinds(made) == []
    entries = account(made).entries
    assert (entries["llm/queue.wait"], entries["llm/infer.prefill"], entries["llm/infer.decode"]) == (
        5 * MS,
        58 * MS,
        137 * MS,
    )


def test_attributes_that_contradict_the_spans_are_noted() -> None:
    # 57.81 of prefill where spans say 40: more than 5 ms and a tenth apart
    slower = [replace(BELOW[1], end_ns=50 * MS), *BELOW[2:]]
    made = only(REQUEST, *slower)
    assert [note.text for note in made.notes] == [
        f"{PREFILL} says 57.8 ms where span 'llm_request' shows 40.0 ms",
    ]
    assert account(made).entries["llm/infer.prefill"] == 40 * MS


def test_spans_below_a_thread_win_as_well() -> None:
    # SGLang's stages hang below the span of the thread that ran them
    root = replace(attributes(queue=None), name="Req 7f3a", id="r")
    thread = traced("Scheduler [TP 0]", "r", 1 * MS, 254 * MS)
    stages = (
        traced("prefill_waiting", thread.id, 2 * MS, 12 * MS),
        traced("prefill_forward", thread.id, 12 * MS, 115 * MS),
        traced("decode_loop", thread.id, 115 * MS, 250 * MS),
        traced("decode_forward", "decode_loop", 116 * MS, 249 * MS),
    )
    made = only(root, thread, *stages)
    entries = account(made).entries
    assert "llm/queue.wait..infer.prefill" not in entries
    assert (entries["llm/queue.wait"], entries["llm/infer.prefill"]) == (10 * MS, 103 * MS)
    # decode_loop and what it holds are one statement: 135 of 138.3 agrees; 113 of queue and prefill is another 57.81
    assert kinds(made) == ["contradiction"]


@pytest.mark.parametrize("name", ["vllm_prefill", "prefill_forward"])
def test_one_span_of_a_stage_is_enough(name: str) -> None:
    root = replace(attributes(queue=None), name="Req 7f3a", id="r")
    made = only(root, traced(name, "r", 20 * MS, 78 * MS))
    assert sorted(filter(None, (span.stage for span in made.spans))) == ["infer.prefill"]


def test_an_engine_span_below_a_call_leaves_the_network_to_the_call() -> None:
    call = traced("chat", None, -20 * MS, 270 * MS, kind="client", clock="gw", service="gw")
    made = only(call, replace(REQUEST, parent="chat"))
    assert path(made)[0] == ("client/uplink", 20 * MS)
    assert path(made)[-1] == ("client/downlink", 15_080 * US)


def test_spans_without_attributes_say_nothing() -> None:
    (made,) = assembled(replace(REQUEST, attributes={}))
    assert account(made).entries == {"llm/queue.wait..infer.decode": 254_920 * US}
