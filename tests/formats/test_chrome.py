"""Chrome trace events: small traces with known nesting, and hostile bytes."""

import json
from collections.abc import Iterator, Sequence

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from outlay.formats.chrome import CODEC
from outlay.formats.codec import FormatError, Item
from outlay.interaction import NOTE_KINDS, Note
from outlay.trace import Event, TraceSpan
from outlay.units import NS_PER_US

NOTHING: frozenset[str] = frozenset()

# One request in a model server: a browser of its work would draw
#   thread 7   handle 100.......................200    flush 200..210
#                tokenize 110..120  forward 130....190
#                                     attention 130..150
#   async 0x1A request 90................................260
#                queue 95..125   generate 125..........250 (first token at 151.5)
SERVER = [
    {"ph": "M", "name": "process_name", "pid": 3, "args": {"name": "engine"}},
    {"ph": "M", "name": "thread_name", "pid": 3, "tid": 7, "args": {"name": "worker"}},
    {"ph": "X", "name": "handle", "pid": 3, "tid": 7, "ts": 100, "dur": 100, "args": {"batch": 4, "q": "?"}},
    {"ph": "B", "name": "tokenize", "pid": 3, "tid": 7, "ts": 110, "args": {"batch": 4}},
    {"ph": "E", "pid": 3, "tid": 7, "ts": 120, "args": {"tokens": 12}},
    {"ph": "X", "name": "forward", "pid": 3, "tid": 7, "ts": 130, "dur": 60},
    {"ph": "X", "name": "attention", "pid": 3, "tid": 7, "ts": 130, "dur": 20.125},
    {"ph": "X", "name": "flush", "pid": 3, "tid": 7, "ts": 200, "dur": 10},
    {"ph": "b", "name": "request", "cat": "llm", "id": "0x1A", "pid": 3, "tid": 7, "ts": 90},
    {"ph": "b", "name": "queue", "cat": "llm", "id": "0x1A", "pid": 3, "tid": 7, "ts": 95},
    {"ph": "e", "name": "queue", "cat": "llm", "id": "0x1A", "pid": 3, "tid": 7, "ts": 125},
    {"ph": "b", "name": "generate", "cat": "llm", "id": "0x1A", "pid": 3, "tid": 7, "ts": 125},
    {"ph": "n", "name": "first token", "cat": "llm", "id": "0x1A", "pid": 3, "ts": 151.5, "args": {"batch": 4}},
    {"ph": "e", "name": "generate", "cat": "llm", "id": "0x1A", "pid": 3, "tid": 8, "ts": 250},
    {"ph": "e", "name": "request", "cat": "llm", "id": "0x1A", "pid": 3, "tid": 8, "ts": 260},
    {"ph": "s", "name": "flow", "id": 5, "pid": 3, "tid": 7, "ts": 130},
    {"ph": "C", "name": "gpu", "pid": 3, "ts": 131, "args": {"busy": 1}},
    {"ph": "?", "name": "from the future", "pid": 3, "tid": 7, "ts": 132},
]  # fmt: skip

# Of each slice its parent, and start and end in microseconds.
TREE = {
    "handle": (None, 100, 200),
    "tokenize": ("handle", 110, 120),
    "forward": ("handle", 130, 190),
    "attention": ("forward", 130, 150.125),
    "flush": (None, 200, 210),
    "request": (None, 90, 260),
    "queue": ("request", 95, 125),
    "generate": ("request", 125, 250),
}


def parse(events: object, wanted: frozenset[str] = NOTHING) -> list[Item]:
    return list(CODEC.parse(json.dumps(events).encode(), wanted))


def spans(events: object, wanted: frozenset[str] = NOTHING) -> list[TraceSpan]:
    return [item for item in parse(events, wanted) if isinstance(item, TraceSpan)]


def notes(events: object) -> list[str]:
    return [item.kind for item in parse(events) if isinstance(item, Note)]


def tree(found: Sequence[TraceSpan]) -> dict[str, tuple[str | None, float, float | None]]:
    names = {span.id: span.name for span in found}
    return {
        span.name: (
            names[span.parent] if span.parent else None,
            span.start_ns / NS_PER_US,
            None if span.end_ns is None else span.end_ns / NS_PER_US,
        )
        for span in found
    }


def x(name: str, ts: object, dur: object, **more: object) -> dict[str, object]:
    return {"ph": "X", "name": name, "ts": ts, "dur": dur, "pid": 1, "tid": 1, **more}


def at(ph: str, ts: float, name: str | None = None, **more: object) -> dict[str, object]:
    return {"ph": ph, "ts": ts, "pid": 1, "tid": 1, **({} if name is None else {"name": name}), **more}


def group(ph: str, ts: float, name: str, **more: object) -> dict[str, object]:
    return at(ph, ts, name, **{"cat": "llm", "id": 9, **more})


def parents(events: object) -> dict[str, str | None]:
    return {name: parent for name, (parent, _, _) in tree(spans(events)).items()}


@pytest.mark.parametrize("wrapped", [SERVER, {"traceEvents": SERVER}, {"displayTimeUnit": "ms", "traceEvents": SERVER}])
def test_slices_of_threads_and_async_groups_become_spans(wrapped: object) -> None:
    assert notes(wrapped) == []
    found = spans(wrapped)
    assert tree(found) == TREE
    assert {span.service for span in found} == {"engine"}
    assert {span.clock for span in found} == {"trace"}
    assert len({span.id for span in found}) == len(found)


def test_every_outermost_slice_of_a_thread_is_a_trace_and_every_async_group_is_one() -> None:
    traces = {span.name: span.trace for span in spans(SERVER)}
    assert traces == {
        **dict.fromkeys(("handle", "tokenize", "forward", "attention"), "3.7.0"),
        "flush": "3.7.1",
        **dict.fromkeys(("request", "queue", "generate"), "3/llm/0x1a"),
    }


def test_an_instant_of_an_async_group_is_an_event_of_the_innermost_slice() -> None:
    events = {span.name: span.events for span in spans(SERVER, frozenset({"batch"})) if span.events}
    assert events == {"generate": (Event(name="first token", at_ns=151_500, attributes={"batch": 4}),)}


def test_only_wanted_attributes_are_kept_and_those_of_begin_and_end_are_joined() -> None:
    found = spans(SERVER, frozenset({"batch", "tokens"}))
    kept = {span.name: dict(span.attributes) for span in found if span.attributes}
    assert kept == {"handle": {"batch": 4}, "tokenize": {"batch": 4, "tokens": 12}}


def test_an_instant_skips_slices_that_have_ended() -> None:
    ended = [group("e", 3, "c"), group("e", 4, "b")]
    found = spans([group("b", 0, "a"), group("b", 1, "b"), group("b", 2, "c"), *ended, group("n", 5, "mark")])
    assert {span.name: len(span.events) for span in found} == {"a": 1, "b": 0, "c": 0}


@pytest.mark.parametrize("step", [-1, 5, 7])
def test_the_order_in_the_file_does_not_matter(step: int) -> None:
    shuffled = [
        SERVER[(place * step) % len(SERVER)] for place in range(len(SERVER))
    ]  # 18 events; no step shares a factor
    assert len({id(event) for event in shuffled}) == len(SERVER)
    assert tree(spans(shuffled)) == TREE


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ([x("a", 0, 10), x("b", 2, 3)], {"a": None, "b": "a"}),
        ([x("a", 0, 10), x("b", 10, 3)], {"a": None, "b": None}),  # back to back
        ([x("a", 0, 10), x("b", 5, 10)], {"a": None, "b": "a"}),  # outlives its parent
        ([x("a", 0, 10), x("b", 5, 10), x("c", 12, 1)], {"a": None, "b": "a", "c": "b"}),
        ([x("a", 0, 20), x("b", 5, 10), x("c", 16, 1)], {"a": None, "b": "a", "c": "a"}),
        ([x("short", 0, 5), x("long", 0, 10)], {"long": None, "short": "long"}),  # children are often written first
        ([x("a", 0, 5), x("b", 0, 5)], {"a": None, "b": "a"}),  # alike: the first written is the outer one
        ([x("a", 0, 5), x("b", 5, 0), x("c", 5, 0)], {"a": None, "b": None, "c": None}),
        ([x("a", 0, 5), x("b", 0, 0)], {"a": None, "b": "a"}),
        ([x("a", 0, 10), x("b", 2, 3, tid=2)], {"a": None, "b": None}),  # another thread
        ([x("a", 0, 10), x("b", 2, 3, pid=2)], {"a": None, "b": None}),  # another process
        ([x("a", 0.5, 1.25), x("b", 1.749, 0.001)], {"a": None, "b": "a"}),  # 1.749 < 0.5 + 1.25
        ([x("a", -10, 5), x("b", -8, 1)], {"a": None, "b": "a"}),  # before the trace's zero
        ([x("a", 0, 10), at("B", 2, "b"), x("c", 3, 1), at("E", 5)], {"a": None, "b": "a", "c": "b"}),
        ([x("a", "1", "10"), x("b", "2.5", 3)], {"a": None, "b": "a"}),  # digits in quotes
    ],
)
def test_the_parent_is_the_innermost_slice_that_holds_the_start(
    events: list[object], expected: dict[str, str | None]
) -> None:
    assert parents(events) == expected


@pytest.mark.parametrize(
    ("events", "ends"),
    [
        ([at("B", 0, "a"), at("B", 1, "b"), at("E", 2), at("E", 3)], {"a": 3, "b": 2}),
        ([at("B", 0, "a"), at("B", 1, "b"), at("E", 2, ""), at("E", 3, "a")], {"a": 3, "b": 2}),
        ([at("B", 0, "a"), at("E", 1), at("B", 1, "b"), at("E", 1)], {"a": 1, "b": 1}),
        ([at("B", 0, "a"), at("B", 1, "b"), at("E", 2)], {"a": None, "b": 2}),  # still open
        ([at("B", 0, "a"), at("B", 0, "b", tid=2), at("E", 1), at("E", 2, tid=2)], {"a": 1, "b": 2}),
        ([at("E", 4), at("B", 0, "a")], {"a": 4}),  # sorted by time first
        ([group("b", 0, "a"), group("b", 1, "b"), group("e", 2, "a"), group("e", 3, "b")], {"a": 2, "b": 3}),
        ([group("S", 0, "a"), group("T", 1, "a"), group("F", 2, "a")], {"a": 2}),
        ([group("b", 0, "a"), group("e", 5, "a", pid=2)], {"a": None}),  # the other process's own 9
        (
            [
                group("b", 0, "a", id=None, id2={"global": "9"}),
                group("e", 5, "a", id=None, id2={"global": "9"}, pid=2),
            ],
            {"a": 5},
        ),
        ([group("b", 0, "a", id=None, id2={"local": 9}), group("e", 5, "a")], {"a": 5}),
        ([group("b", 0, "a", scope="s"), group("e", 5, "a")], {"a": None}),
        ([group("b", 0, "a"), group("e", 5, "a", cat="gpu")], {"a": None}),
    ],
)
def test_ends_find_their_beginnings(events: list[object], ends: dict[str, float | None]) -> None:
    found = {name: end for name, (_, _, end) in tree(spans(events)).items()}
    assert found == ends


def test_an_open_slice_holds_what_follows_on_its_thread() -> None:
    events = [at("B", 0, "a"), at("B", 1, "a"), at("E", 2, "a"), x("later", 50, 1)]
    assert [(span.name, span.parent, span.end_ns) for span in spans(events)] == [
        ("a", None, None),
        ("a", "1.1.0.0", 2_000),
        ("later", "1.1.0.0", 51_000),
    ]


@pytest.mark.parametrize(
    "events",
    [
        [at("E", 4)],
        [at("E", 4, "a")],
        [at("B", 0, "a"), at("E", 4, "b"), at("E", 5, "a")],
        [group("e", 4, "a")],
        [group("F", 4, "a")],
        [at("B", 5, "a"), at("E", 4), at("E", 6)],
    ],
)
def test_an_end_without_a_beginning_began_before_the_trace(events: list[object]) -> None:
    assert notes(events) == ["outside-window"]


def test_an_instant_outside_of_any_slice_is_nothing() -> None:
    assert parse([group("n", 4, "a"), group("T", 5, "b")]) == []


@pytest.mark.parametrize("dur", [None, -1, -0.5])
def test_a_slice_of_unknown_length_has_no_end_and_holds_nothing(dur: object) -> None:
    events = [x("a", 0, dur), x("b", 1, 1)]
    assert notes(events) == ["missing-value"]
    assert tree(spans(events)) == {"a": (None, 0, None), "b": (None, 1, 2)}


@pytest.mark.parametrize(
    ("named", "pid", "service"),
    [
        ({"name": "web"}, 1, "web"),
        ({"name": ""}, 1, "pid 1"),
        (None, 1, "pid 1"),
        (None, "GPU 0", "pid GPU 0"),
        (None, None, None),
    ],
)
def test_the_service_is_the_process(named: object, pid: object, service: str | None) -> None:
    metadata = [] if named is None else [{"ph": "M", "name": "process_name", "pid": pid, "args": named}]
    (span,) = spans([x("a", 0, 1, pid=pid), *metadata])  # the name may come after the slices
    assert span.service == service


def test_threads_named_by_text_keep_apart_and_ids_stay_in_lower_case() -> None:
    found = spans(
        [x("a", 0, 1, pid="Spans", tid="Stream 7.0"), x("b", 0, 1, pid="Spans", tid="Stream 7", cat="Kernel")]
    )
    assert [(span.trace, span.scope) for span in found] == [("spans.stream 7_0.0", ""), ("spans.stream 7.0", "Kernel")]


def test_a_slice_without_a_name_is_still_a_slice() -> None:
    (span,) = spans([{"ph": "X", "ts": 1, "dur": 2}])
    assert (span.name, span.start_ns, span.end_ns) == ("", 1_000, 3_000)


@pytest.mark.parametrize(
    "bad",
    [
        7,
        {},
        {"ph": 5},
        {"ph": "X", "dur": 4},
        {"ph": "X", "ts": 1e300, "dur": 4},
        {"ph": "X", "ts": 9e15, "dur": 9e15},  # each fits 63 bits, the sum does not
        {"ph": "X", "ts": "1e900000", "dur": 1},
        {"ph": "B", "ts": 0, "name": 5},
        {"ph": "b", "ts": 0, "name": "a", "cat": "llm"},
        {"ph": "M", "name": "process_name", "args": {"name": 5}},
    ],
)
def test_an_event_that_cannot_be_read_is_dropped_and_the_others_survive(bad: object) -> None:
    items = parse([x("a", 0, 1), bad, x("b", 2, 1)])
    (note,) = (item for item in items if isinstance(item, Note))
    assert note.kind == "dropped-record"
    assert "event 1" in note.text
    assert [item.name for item in items if isinstance(item, TraceSpan)] == ["a", "b"]


@pytest.mark.parametrize("args", [None, [], "text", 5, {"a": {"deep": 1}}])
def test_arguments_of_any_shape_do_no_harm(args: object) -> None:
    (span,) = spans([x("a", 0, 1, args=args)], frozenset({"a"}))
    assert span.attributes == {}


@pytest.mark.parametrize("value", [None, 3, "x", {}, {"traceEvents": 5}, [], [1, "x"], [{"name": "a"}], [{"ph": 3}]])
def test_other_json_is_not_this_format(value: object) -> None:
    assert not CODEC.recognises(value)
    with pytest.raises(FormatError, match="expected Chrome trace events"):
        parse(value)


@pytest.mark.parametrize("value", [SERVER, {"traceEvents": SERVER}, {"traceEvents": []}, [3, SERVER[0]]])
def test_traces_are_recognised(value: object) -> None:
    assert CODEC.recognises(value)


def test_an_empty_trace_holds_nothing() -> None:
    assert parse({"traceEvents": []}) == []


RAW = json.dumps({"traceEvents": SERVER}).encode()


def test_a_file_cut_at_any_byte_is_a_format_error() -> None:
    for length in range(len(RAW)):
        with pytest.raises(FormatError):
            list(CODEC.parse(RAW[:length], NOTHING))


@pytest.mark.parametrize(
    "events",
    [
        [at("B", place, f"f{place}") for place in range(20_000)] + [at("E", 20_000 + place) for place in range(20_000)],
        [at("B", place, f"f{place}") for place in range(40_000)],
        [group("b", place, f"f{place}") for place in range(20_000)]
        + [group("e", 20_000 + place, f"f{place}") for place in range(20_000)],
    ],
    ids=["nested", "open", "async, first in first out"],
)  # fmt: skip
def test_depth_costs_neither_recursion_nor_time(events: list[object]) -> None:
    found = spans(events)
    assert [span.parent for span in found] == [None, *(span.id for span in found[:-1])]


def survived(raw: bytes) -> Iterator[Item]:
    try:
        yield from CODEC.parse(raw, frozenset({"batch"}))
    except FormatError:
        return


def check(items: Iterator[Item]) -> None:
    """Ids are unique, a parent is in its child's trace and begins no later than its child."""
    found: dict[str, TraceSpan] = {}
    for item in items:
        assert isinstance(item, TraceSpan | Note)
        if isinstance(item, Note):
            assert item.kind in NOTE_KINDS
            continue
        assert item.id not in found
        found[item.id] = item
        if item.parent is not None:
            parent = found[item.parent]
            assert parent.trace == item.trace
            assert parent.start_ns <= item.start_ns
            assert parent.end_ns is None or item.start_ns < parent.end_ns or parent.start_ns == item.start_ns


TIMES = st.none() | st.integers(-3, 12) | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=3)
IDS = st.none() | st.integers(0, 2) | st.sampled_from(["a", "A", "a.b", "a/b", ""])
EVENTS = st.fixed_dictionaries(
    {"ph": st.sampled_from("XBEbneSTFpMsC"), "ts": st.integers(0, 12) | TIMES},
    optional={
        "dur": st.integers(0, 6) | TIMES,
        "name": st.sampled_from(["", "a", "b", "process_name"]),
        "pid": IDS,
        "tid": IDS,
        "id": IDS,
        "id2": st.dictionaries(st.sampled_from(["local", "global"]), IDS),
        "cat": st.sampled_from(["", "a", "a.b"]),
        "scope": st.none() | st.just("a"),
        "args": st.none() | st.dictionaries(st.sampled_from(["name", "batch"]), IDS),
    },
)


@settings(max_examples=250, deadline=None)
@given(st.lists(EVENTS, max_size=12))
def test_any_events_give_a_forest(events: list[object]) -> None:
    check(survived(json.dumps({"traceEvents": events}).encode()))


JSON = st.recursive(
    st.booleans() | TIMES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["traceEvents", "ph", "ts"]), inner),
    max_leaves=12,
)


@settings(max_examples=100, deadline=None)
@given(JSON)
def test_any_json_raises_at_most_a_format_error(value: object) -> None:
    CODEC.recognises(value)
    check(survived(json.dumps(value).encode()))


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=60), st.integers(0, len(RAW)), st.integers(0, 8))
def test_any_bytes_in_a_trace_raise_at_most_a_format_error(noise: bytes, place: int, cut: int) -> None:
    check(survived(RAW[:place] + noise + RAW[place + cut :]))
    check(survived(noise))


def test_deep_nesting_is_a_format_error() -> None:
    with pytest.raises(FormatError, match="too deep"):
        list(CODEC.parse(b'{"traceEvents":[' + b"[" * 100_000 + b"]" * 100_000 + b"]}", NOTHING))
