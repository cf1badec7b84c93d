"""Spans to interactions: parents, windows, moments, chains, and what is noted on the way."""

from collections.abc import Iterable
from dataclasses import replace
from random import Random
from time import perf_counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outlay.account import account
from outlay.assembly import (
    FIRST_CHUNK_KEY,
    MARK_EVENT,
    Assembler,
    assemble,
    chained,
    only_open,
    wanted_keys,
    windowed,
)
from outlay.budget import ChainStep, Match, Moment
from outlay.interaction import Interaction, Mark, Note
from outlay.mapping import MARK_KEY, MOMENT_KEY, Rules
from outlay.trace import Event, TraceSpan
from worlds import assembled, interactions_of, kinds, only, path, span, spans_of, traced
from worlds import interaction as made_of

ROOT = traced("root", None, 0, 100)


# Who is whose child


@pytest.mark.parametrize(
    ("spans", "parents", "noted"),
    [
        ((ROOT, traced("a", "root", 10, 20)), {"root": None, "a": "root"}, []),
        # a partial trace is not an error: its end is the last root's, and the absent parent stays named
        ((ROOT, traced("a", "gone", 10, 200)), {"root": None, "a": "gone"}, ["missing-parent"]),
        ((traced("a", "gone", 10, 20),), {"a": "gone"}, ["missing-parent"]),
        ((ROOT, traced("me", "me", 10, 20)), {"root": None, "me": None}, ["contradiction"]),
        # a ring is cut at the span that begins first
        (
            (traced("a", "c", 10, 20), traced("b", "a", 12, 18), traced("c", "b", 14, 16)),
            {"a": None, "b": "a", "c": "b"},
            ["contradiction"],
        ),
        # what hangs below a ring stays there
        (
            (traced("a", "b", 10, 20), traced("b", "a", 12, 18), traced("c", "b", 14, 16)),
            {"a": None, "b": "a", "c": "b"},
            ["contradiction"],
        ),
        # the first of two is used
        (
            (ROOT, traced("a", "root", 10, 20), traced("a", "gone", 12, 20)),
            {"root": None, "a": "root"},
            ["duplicate-span"],
        ),
        # and of two that begin together the longer
        (
            (ROOT, traced("a", "gone", 10, 19), traced("a", "root", 10, 20)),
            {"root": None, "a": "root"},
            ["duplicate-span"],
        ),
    ],
)
def test_parents(spans: tuple[TraceSpan, ...], parents: dict[str, str | None], noted: list[str]) -> None:
    made = only(*spans)
    assert {span.id: span.parent for span in made.spans} == parents
    assert kinds(made) == noted
    assert only(*reversed(spans)) == made


@pytest.mark.parametrize(
    ("spans", "window", "noted"),
    [
        ((ROOT, traced("a", "root", 10, 120)), (0, 100), []),
        # roots side by side: from the first start to the last end
        ((ROOT, traced("b", None, 50, 180)), (0, 180), []),
        # nobody saw the root's end
        ((traced("root", None, 0, None), traced("a", "root", 10, 20)), (0, None), ["missing-value"]),
        # a child's end is nobody's but its own children's
        ((ROOT, traced("a", "root", 10, None), traced("b", "a", 20, 60)), (0, 100), ["missing-value"]),
        # what begins when the answer is there goes on without the person
        ((ROOT, traced("save", "root", 100, 400, follows=True)), (0, 100), ["async-after-end"]),
        ((ROOT, traced("save", "root", 99, 400, follows=True)), (0, 100), []),
        # a producer has no answer of its own: what it caused is the result
        (
            (traced("send", None, 0, 10, kind="producer"), traced("work", "send", 50, 90, kind="consumer")),
            (0, 90),
            [],
        ),
        (
            (traced("poll", None, 0, 10, kind="consumer"), traced("work", "poll", 20, 90, kind="internal")),
            (0, 90),
            [],
        ),
    ],
)
def test_the_window(spans: tuple[TraceSpan, ...], window: tuple[int, int | None], noted: list[str]) -> None:
    made = only(*spans)
    assert (made.start_ns, made.end_ns) == window
    assert kinds(made) == noted


def test_a_span_without_an_end_lasts_as_long_as_its_children() -> None:
    made = only(ROOT, traced("a", "root", 10, None), traced("b", "a", 20, 60), traced("c", "root", 70, None))
    assert {span.id: (span.start_ns, span.end_ns) for span in made.spans} == {
        "root": (0, 100),
        "a": (10, 60),
        "b": (20, 60),
        "c": (70, 70),
    }


@pytest.mark.parametrize(
    ("root", "child", "outcome"), [(True, False, "error"), (False, True, "ok"), (False, False, "ok")]
)
def test_an_interaction_fails_as_its_root_does(root: bool, child: bool, outcome: str) -> None:
    assert only(replace(ROOT, failed=root), traced("a", "root", 10, 20, failed=child)).outcome == outcome


def test_ids_and_clocks_are_the_roots() -> None:
    made = only(replace(ROOT, trace="abc", clock="h"), traced("a", "root", 1, 2, clock="other"))
    assert (made.id, made.clock, made.moment) == ("abc", "h", "trace")


# What a hand-over holds and what it only causes


def sent(*spans: TraceSpan) -> Interaction:
    return only(traced("root", None, 0, 100, kind="server"), *spans)


def test_a_consumer_is_caused_and_not_held() -> None:
    made = sent(
        traced("send", "root", 10, 20, kind="producer", attributes={"messaging.destination.name": "orders"}),
        traced("work", "send", 50, 90, kind="consumer", service="worker"),
    )
    # in the broker from 20 to 50; nothing is cut to the producer
    assert path(made) == [
        ("app/unattributed.start->send", 10),
        # the consumer tells nothing of the producer's own time, which stays what its rule says
        ("orders/queue.broker", 10),
        ("worker/queue.broker", 30),
        ("worker/unattributed.work", 40),
        ("app/unattributed.work->end", 10),
    ]


def test_the_work_inside_a_consumer_is_on_the_path() -> None:
    made = only(
        traced("send", None, 0, 10, kind="producer"),
        traced("process", "send", 30, 90, kind="consumer", service="worker"),
        traced(
            "chat", "process", 40, 80, kind="client", service="worker", attributes={"gen_ai.operation.name": "chat"}
        ),
    )
    assert path(made) == [
        ("app/queue.broker", 10),
        ("worker/queue.broker", 20),
        ("worker/unattributed.start->chat", 10),
        ("llm/uplink..downlink", 40),
        ("worker/unattributed.chat->end", 10),
    ]


@pytest.mark.parametrize(
    ("work", "on_path"),
    [
        # inside its producer: it ran while that waited
        (traced("work", "send", 12, 18), ("app/unattributed.work", 6)),
        # to the very end
        (traced("work", "send", 10, 20), ("app/unattributed.work", 10)),
        # it goes on: it was only caused there
        (traced("work", "send", 12, 50), ("app/unattributed.work", 38)),
        (traced("work", "send", 30, 50), ("app/unattributed.work", 20)),
    ],
)
def test_work_below_a_producer(work: TraceSpan, on_path: tuple[str, int]) -> None:
    made = sent(traced("send", "root", 10, 20, kind="producer"), work)
    assert on_path in path(made)


@pytest.mark.parametrize(
    ("work", "follows"),
    [
        (traced("work", "send", 12, 18), False),
        (traced("work", "send", 10, 20), False),
        (traced("work", "send", 12, None), False),
        (traced("work", "send", 9, 18), True),
        (traced("work", "send", 12, 21), True),
        (traced("work", "send", 21, None), True),
        # on another host, whether it lies inside is for the clocks to say
        (traced("work", "send", 12, 18, clock="far"), True),
        (traced("work", "send", 12, 18, kind="consumer"), True),
    ],
)
def test_what_a_hand_over_holds(work: TraceSpan, follows: bool) -> None:
    made = sent(traced("send", "root", 10, 20, kind="producer"), work)
    assert {span.id: span.follows for span in made.spans} == {"root": False, "send": False, "work": follows}


def test_a_hand_over_that_nobody_saw_end_holds_what_it_caused() -> None:
    made = sent(traced("send", "root", 10, None, kind="producer"), traced("work", "send", 50, 90))
    assert [span.follows for span in made.spans] == [False, False, False]


# Moments

CHAT = Moment(name="chat", match=Match(name="chat*"))
VOICE = Moment(name="voice", match=Match(attributes={"turn": "*"}))
OPEN = Moment(name="anything")


def moments_of(spans: Iterable[TraceSpan], *moments: Moment) -> list[tuple[str, str, int | None, int | None]]:
    found = assembled(*spans, moments=moments)
    return [(made.moment, made.id, made.start_ns, made.end_ns) for made in found]


@pytest.mark.parametrize(
    ("spans", "moments", "expected"),
    [
        ((ROOT,), (), [("trace", "t", 0, 100)]),
        ((ROOT,), (OPEN,), [("anything", "t", 0, 100)]),
        # two that take anything: which one is meant is not known
        ((ROOT,), (OPEN, Moment(name="other")), [("trace", "t", 0, 100)]),
        ((ROOT,), (CHAT,), [("trace", "t", 0, 100)]),
        ((ROOT,), (CHAT, OPEN), [("anything", "t", 0, 100)]),
        # the data names it, declared or not
        ((replace(ROOT, attributes={MOMENT_KEY: "mine"}),), (OPEN,), [("mine", "t", 0, 100)]),
        ((ROOT, traced("a", "root", 1, 2, attributes={MOMENT_KEY: "mine"})), (), [("mine", "t", 0, 100)]),
        # a root that is claimed is the trace
        ((replace(ROOT, name="chat one"),), (CHAT,), [("chat", "t", 0, 100)]),
        # inside the trace each has a window and a name of its own
        (
            (ROOT, traced("x", "root", 10, 30, name="chat one"), traced("y", "root", 40, 60, name="chat two")),
            (CHAT, OPEN),
            [("chat", "t/x", 10, 30), ("chat", "t/y", 40, 60)],
        ),
        # only the topmost of those below each other
        (
            (ROOT, traced("x", "root", 10, 90, name="chat"), traced("y", "x", 20, 60, name="chat")),
            (CHAT,),
            [("chat", "t/x", 10, 90)],
        ),
        # the first moment that matches
        (
            (ROOT, traced("x", "root", 10, 30, name="chat", attributes={"turn": 1})),
            (VOICE, CHAT),
            [("voice", "t/x", 10, 30)],
        ),
    ],
)
def test_moments(
    spans: tuple[TraceSpan, ...],
    moments: tuple[Moment, ...],
    expected: list[tuple[str, str, int | None, int | None]],
) -> None:
    assert moments_of(spans, *moments) == expected
    assert moments_of(spans[::-1], *moments) == expected


def test_a_moment_inside_a_trace_holds_what_is_below_it() -> None:
    below, beside = traced("y", "x", 20, 30), traced("z", "root", 60, 70)
    (made,) = assembled(ROOT, traced("x", "root", 10, 50, name="chat"), below, beside, moments=[CHAT])
    assert [span.id for span in made.spans] == ["x", "y"]
    assert account(made).total_ns == 40


def test_only_open() -> None:
    assert only_open([CHAT, OPEN]) is OPEN
    assert only_open([CHAT]) is None
    assert only_open([OPEN, OPEN]) is None


# Marks and windows

TOKEN = Event(name="ai.stream.firstChunk", at_ns=40)


def marked(name: str, at_ns: int) -> Event:
    return Event(name=MARK_EVENT, at_ns=at_ns, attributes={MARK_KEY: name})


@pytest.mark.parametrize(
    ("span", "marks"),
    [
        (replace(ROOT, events=(TOKEN,)), [("first_token", 40)]),
        (replace(ROOT, events=(replace(TOKEN, name="First Token Stream Event"),)), [("first_token", 40)]),
        (replace(ROOT, events=(replace(TOKEN, name="exception"),)), []),
        (replace(ROOT, events=(marked("asked", 5), marked("heard", 50))), [("asked", 5), ("heard", 50)]),
        (replace(ROOT, events=(Event(name=MARK_EVENT, at_ns=5),)), []),
        (replace(ROOT, start_ns=7, attributes={FIRST_CHUNK_KEY: 2e-8}), [("first_token", 27)]),
        (replace(ROOT, attributes={FIRST_CHUNK_KEY: 0}), [("first_token", 0)]),
        (replace(ROOT, attributes={FIRST_CHUNK_KEY: "0.00000002"}), [("first_token", 20)]),  # as some stores write it
    ],
)
def test_marks(span: TraceSpan, marks: list[tuple[str, int]]) -> None:
    made = only(span)
    assert [(mark.name, mark.at_ns) for mark in made.marks] == marks
    assert {mark.clock for mark in made.marks} <= {"host"}
    assert kinds(made) == []


@pytest.mark.parametrize("seconds", [-1, -0.5, float("nan"), float("inf"), 1e300, True, "soon"])
def test_a_first_chunk_that_cannot_be_is_noted(seconds: float) -> None:
    made = only(replace(ROOT, attributes={FIRST_CHUNK_KEY: seconds}))
    assert made.marks == ()
    assert kinds(made) == ["missing-value"]


CHAIN = (
    ChainStep(mark="asked"),
    ChainStep(mark="scheduled", entry="gateway/queue.wait"),
    ChainStep(mark="token", entry="llm/infer.prefill"),
    ChainStep(mark="heard", entry="client/render"),
)
STEPS = Moment(name="m", start="asked", end="heard", chain=CHAIN)
MARKS = {"asked": 10, "scheduled": 20, "token": 60, "heard": 100}


def with_marks(*names: str, extra: tuple[Mark, ...] = ()) -> Interaction:
    marks = tuple(Mark(name=name, at_ns=MARKS[name]) for name in names)
    return made_of(span("root", None, 0, 500), marks=marks + extra)


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (
            ("asked", "scheduled", "token", "heard"),
            [("gateway/queue.wait", 10), ("llm/infer.prefill", 40), ("client/render", 40)],
        ),
        # nobody marked when it was scheduled: queue and prefill are one, under the name of who ended it
        (("asked", "token", "heard"), [("llm/queue.wait..infer.prefill", 50), ("client/render", 40)]),
        (("asked", "scheduled", "heard"), [("gateway/queue.wait", 10), ("client/infer.prefill..render", 80)]),
        (("asked", "heard"), [("client/queue.wait..render", 90)]),
    ],
)
def test_a_chain_between_its_marks(names: tuple[str, ...], expected: list[tuple[str, int]]) -> None:
    made = windowed(with_marks(*names), STEPS)
    assert (made.start_ns, made.end_ns) == (10, 100)
    assert path(made) == expected


@pytest.mark.parametrize(("missing", "window"), [("asked", (None, 100)), ("heard", (10, None))])
def test_a_missing_end_is_unknown_and_not_somewhere_else(missing: str, window: tuple[int | None, int | None]) -> None:
    made = windowed(with_marks(*[name for name in MARKS if name != missing]), STEPS)
    assert (made.start_ns, made.end_ns) == window


@pytest.mark.parametrize(
    ("moment", "window"),
    [
        (Moment(name="m"), (0, 500)),
        (Moment(name="m", start="token"), (60, 500)),
        (Moment(name="m", end="token"), (0, 60)),
        (Moment(name="m", start="scheduled", end="token"), (20, 60)),
        (Moment(name="m", end="nothing"), (0, None)),
    ],
)
def test_a_moment_may_name_either_end(moment: Moment, window: tuple[int | None, int | None]) -> None:
    made = windowed(with_marks(*MARKS), moment)
    assert (made.start_ns, made.end_ns) == window
    assert [mark.stage for mark in made.marks] == [None] * 4


def test_the_first_of_two_marks_of_one_name_counts() -> None:
    made = with_marks(*MARKS, extra=(Mark(name="token", at_ns=90), Mark(name="seen", at_ns=95)))
    assert [(mark.name, mark.at_ns) for mark in chained(made.marks, CHAIN)] == list(MARKS.items())
    assert windowed(made, Moment(name="m", end="token")).end_ns == 60


def test_what_lies_before_the_first_mark_is_no_step_of_the_chain() -> None:
    made = windowed(with_marks(*MARKS), Moment(name="m", end="token", chain=CHAIN))
    assert path(made) == [
        ("client/unattributed.start->asked", 10),
        ("gateway/queue.wait", 10),
        ("llm/infer.prefill", 40),
    ]


def test_a_chain_of_a_trace_is_cut_from_its_events() -> None:
    spans = (
        replace(ROOT, events=(marked("asked", 10), marked("token", 60))),
        traced("a", "root", 15, 90, events=(marked("scheduled", 20), marked("heard", 90))),
    )
    assert path(windowed(only(*spans, moments=[STEPS]), STEPS)) == [
        ("gateway/queue.wait", 10),
        ("llm/infer.prefill", 40),
        ("client/render", 30),
    ]


# Dimensions and sizes


def test_dimensions_are_those_nearest_the_root() -> None:
    made = only(
        replace(ROOT, resource={"service.version": "7", "region": "eu"}),
        traced("a", "root", 1, 9, attributes={"cloud.region": "us", "gen_ai.request.model": "m1"}),
        traced("b", "a", 2, 8, attributes={"gen_ai.request.model": "m2", "host.type": "h100"}),
    )
    assert made.dimensions == {"version": "7", "site": "eu", "model": "m1", "hardware": "h100"}


@pytest.mark.parametrize(
    ("attributes", "resource", "site"),
    [
        ({"outlay.site": "one", "cloud.region": "two"}, {}, "one"),  # the most telling key
        ({"cloud.region": "two"}, {"outlay.site": "one"}, "two"),  # a span's own before its process's
        ({}, {"cloud.availability_zone": "z", "region": "r"}, "z"),
        ({}, {"region": 7}, "7"),
    ],
)
def test_which_key_names_a_site(attributes: dict[str, str], resource: dict[str, str], site: str) -> None:
    assert only(replace(ROOT, attributes=attributes, resource=resource)).dimensions == {"site": site}


@pytest.mark.parametrize(
    ("values", "start"),
    [
        ((), None),
        ((False,), "warm"),
        ((False, True), "cold"),
        ((True,), "cold"),
        (("true",), "cold"),
        (("false",), "warm"),
    ],
)
def test_one_cold_start_makes_it_cold(values: tuple[bool | str, ...], start: str | None) -> None:
    spans = [traced(f"s{i}", "root", 1, 2, attributes={"faas.coldstart": value}) for i, value in enumerate(values)]
    assert only(ROOT, *spans).dimensions.get("start") == start


def test_sizes_are_the_largest_of_each() -> None:
    tokens = "gen_ai.usage.input_tokens"
    made = only(
        replace(ROOT, attributes={tokens: 30, "gen_ai.usage.completion_tokens": -1}),
        traced("a", "root", 1, 2, attributes={tokens: 10}),
        traced("b", "root", 3, 4, attributes={tokens: 20, "gen_ai.usage.output_tokens": 0}),
    )
    assert made.sizes == {"input_tokens": 30, "output_tokens": 0}


def test_codecs_are_asked_for_what_assembling_reads_and_nothing_else() -> None:
    moment = Moment(name="m", match=Match(attributes={"turn": "1"}))
    wanted = wanted_keys(Rules(), [moment, OPEN])
    assert {"turn", "cloud.region", "gen_ai.usage.input_tokens", MOMENT_KEY, MARK_KEY, "gen_ai.latency.e2e"} <= wanted
    assert not {"gen_ai.prompt", "gen_ai.input.messages", "gen_ai.output.messages", "exception.message"} & wanted


# Any order of arrival

FILES = [
    "traces-zipkin/skew.json",
    "traces-zipkin/messaging-kafka.json",
    "traces-zipkin/yelp.json",
    "traces-jaeger/testTrace.json",
    "traces-jaeger/genaiTestTrace.json",
    "traces-otlp/otlp2jaeger-multi-in-combined.json",
    "traces-otlp/otlp_proto_example_trace.json",
]
REAL = [found for file in FILES for found in spans_of(file)]


def gathered(spans: Iterable[TraceSpan], patience: int = 10**6) -> list[Interaction | Note]:
    assembler = Assembler(Rules(), (), patience=patience)
    made = [item for found in spans for item in assembler.add(found)]
    return [*made, *assembler.finish()]


@settings(max_examples=15)
@given(st.integers(0, 2**32))
def test_any_order_of_arrival_gives_the_same_interactions(seed: int) -> None:
    whole = {item.id: item for item in gathered(REAL) if isinstance(item, Interaction)}
    shuffled = gathered(Random(seed).sample(REAL, len(REAL)))
    assert {item.id: item for item in shuffled if isinstance(item, Interaction)} == whole
    assert len(shuffled) == len(whole)


@pytest.mark.parametrize("file", FILES)
def test_real_traces_account_to_the_nanosecond(file: str) -> None:
    for made in interactions_of(file):
        told = account(made)
        assert sum(told.entries.values()) == told.total_ns


def test_a_late_span_is_counted_and_not_lost() -> None:
    first, other, late = ROOT, traced("b", None, 0, 9, trace="u"), traced("late", "root", 5, 6)
    items = gathered([first, other, other, late], patience=2)
    assert [(type(item).__name__, getattr(item, "id", "late-span")) for item in items] == [
        ("Interaction", "t"),
        ("Note", "late-span"),
        ("Interaction", "u"),
    ]
    assert items[1] == Note(kind="late-span", text="span late (late) of trace t")


def test_a_trace_waits_for_its_spans_as_long_as_it_is_patient() -> None:
    others = [traced("b", None, 0, 9, trace=f"u{i}") for i in range(3)]
    late = traced("late", "root", 5, 6)
    # two others came since its last: with a patience of three it is still open
    (whole,) = [item for item in gathered([ROOT, *others[:2], late], patience=3) if getattr(item, "id", "") == "t"]
    assert isinstance(whole, Interaction)
    assert [span.id for span in whole.spans] == ["root", "late"]
    assert Note(kind="late-span", text="span late (late) of trace t") in gathered([ROOT, *others, late], patience=3)


def test_memory_is_bounded_by_patience() -> None:
    assembler = Assembler(Rules(), (), patience=50)
    out = 0
    for number in range(5_000):
        # each trace sends its three spans within ten arrivals of others'
        for name, trace in (("r", number), ("a", number - 5), ("b", number - 10)):
            out += len(list(assembler.add(traced(name, None, 0, 1, trace=f"t{trace}"))))
        # begun are number + 11; each lasts for ten more and waits for 50 arrivals, which are 17
        assert number + 11 - out <= 10 + 17 + 1
    assert out + len(list(assembler.finish())) == 5_010


# Sizes


def in_time(spans: list[TraceSpan]) -> Interaction:
    begun = perf_counter()
    (made,) = assemble(spans, Rules())
    assert perf_counter() - begun < 2
    return made


N = 10_000


@pytest.mark.parametrize("parent", [None, "gone", "root"])
def test_ten_thousand_side_by_side(parent: str | None) -> None:
    spans = [traced("root", None, 0, 10 * N), *[traced(f"s{i}", parent, 10 * i, 10 * i + 8) for i in range(N)]]
    assert len(in_time(spans).spans) == N + 1


@pytest.mark.parametrize("follows", [False, True])
@pytest.mark.parametrize("attributes", [{}, {"gen_ai.latency.e2e": 1.0}], ids=["plain", "engine"])
def test_ten_thousand_below_each_other(attributes: dict[str, float], follows: bool) -> None:
    deep = [traced(f"s{i}", f"s{i - 1}", i, 3 * N - i, follows=follows) for i in range(1, N)]
    assert len(in_time([traced("s0", None, 0, 3 * N, attributes=attributes), *deep]).spans) == N
