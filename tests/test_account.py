"""The law of the sum, and what each shape of a trace means for the person who waited."""

from dataclasses import replace
from functools import partial
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outlay.account import account, path_of
from outlay.clocks import Clocks, Offset, Offsets, calls_of, clocks_of
from outlay.interaction import KINDS, Interaction, Mark, Span
from worlds import Stretch, ambiguous, interaction, interactions_of, path, span, summed

US = 1_000


# The critical-path cases of CRISP: the spans of a case are named O1, O2, ... of the services S1, S2, ...


def own(service: int, edge: str = "") -> str:
    return f"S{service}/unattributed.{edge or f'O{service}'}"


CRISP: dict[int, list[Stretch]] = {
    # one child 10-60 of 0-100
    2: [(own(1, "start->O2"), 10), (own(2), 50), (own(1, "O2->end"), 40)],
    # the child covers its parent: nothing is left for it
    3: [(own(2), 100)],
    # 10-60 holds 20-30
    4: [
        (own(1, "start->O2"), 10),
        (own(2, "start->O3"), 10),
        (own(3), 10),
        (own(2, "O3->end"), 30),
        (own(1, "O2->end"), 40),
    ],
    # three of one name: 10-30, 40-50, 60-90
    5: [
        (own(1, "start->O2"), 10),
        (own(2), 20),
        (own(1, "O2->O2"), 10),
        (own(2), 10),
        (own(1, "O2->O2"), 10),
        (own(2), 30),
        (own(1, "O2->end"), 10),
    ],
    # 10-110 outlasts 0-100 and is cut there; it holds 40-50
    7: [(own(1, "start->O2"), 10), (own(2, "start->O3"), 30), (own(3), 10), (own(2, "O3->end"), 50)],
    # 10-70 holds 20-120, which is cut at 70
    8: [(own(1, "start->O2"), 10), (own(2, "start->O3"), 10), (own(3), 50), (own(1, "O2->end"), 30)],
    # 110-160 lies outside 0-100, with all that is below it
    9: [(own(1, "start->O4"), 60), (own(4), 30), (own(1, "O4->end"), 10)],
    # 10-210, 209-309, 308-608: each is cut where the next began
    10: [
        (own(1, "start->O2"), 10),
        (own(2), 199),
        (own(3), 99),
        (own(4), 300),
        (own(1, "O4->end"), 392),
    ],
    # in 10-70: 25-45 is cut where 30-50 began
    12: [
        (own(1, "start->O2"), 10),
        (own(2, "start->O3"), 15),
        (own(3), 5),
        (own(4), 20),
        (own(2, "O4->end"), 20),
        (own(1, "O2->end"), 30),
    ],
    # 10-30, 20-45, 40-65 of 0-80
    14: [(own(1, "start->O2"), 10), (own(2), 10), (own(3), 20), (own(4), 25), (own(1, "O4->end"), 15)],
    # the last child ends with its parent
    15: [
        (own(1, "start->O2"), 10),
        *[("S2/unattributed.O2", 10), (own(1, "O2->O2"), 5), ("S3/unattributed.O2", 10), (own(1, "O2->O2"), 5)],
        *[("S4/unattributed.O2", 10), (own(1, "O2->O2"), 5), ("S5/unattributed.O2", 10), (own(1, "O2->O2"), 5)],
        ("S6/unattributed.O2", 10),
        (own(1, "O2->O3"), 5),
        ("S7/unattributed.O3", 15),
    ],
    # 10-20, 15-35, 30-40; then 50-60; then 70-100 that holds 80-90
    16: [
        (own(1, "start->O2"), 10),
        (own(2), 5),
        (own(3), 15),
        (own(4), 10),
        (own(1, "O4->O5"), 10),
        (own(5), 10),
        (own(1, "O5->O6"), 10),
        (own(6, "start->O7"), 10),
        (own(7), 10),
        (own(6, "O7->end"), 10),
        (own(1, "O6->end"), 10),
    ],
}  # fmt: skip


def crisp(case: int | str) -> Interaction:
    (made,) = interactions_of(f"traces-jaeger/crisp/{case}.json")
    return made


@pytest.mark.parametrize("case", CRISP)
def test_crisp_cases_by_hand(case: int) -> None:
    assert path(crisp(case)) == [(entry, duration * US) for entry, duration in CRISP[case]]


@pytest.mark.parametrize(
    ("case", "total_us", "unsure"),
    [
        *[(case, 100, []) for case in (2, 3, 4, 5, 6, 7, 8, 9, 11, 15, 17, "err_pattern1/err1", "err_pattern1/err2")],
        (18, 250, []),
        # 209-309 outlasts 308, when what was waited for began. Without it 10-210 is next, and the root's own 210-308:
        # 209 to 308 is in doubt
        (10, 1000, [(own(3), 99)]),
        # 25-45 outlasts 30; without it 25-30 is the parent's own
        (12, 100, [(own(3), 5)]),
        (13, 100, [(own(3), 5)]),
        # 20-45 outlasts 40; without it 10-30 is next, and the root's own 30-40: 20 to 40 is in doubt
        (14, 80, [(own(3), 20)]),
        # 15-35 outlasts 30; without it 10-20 is next, and the root's own 20-30: 15 to 30 is in doubt
        (16, 110, [(own(3), 15)]),
    ],
)
def test_crisp_totals_and_what_is_ambiguous(case: int | str, total_us: int, unsure: list[Stretch]) -> None:
    made = account(crisp(case))
    assert made.total_ns == sum(made.entries.values()) == total_us * US
    assert ambiguous(made.interaction) == [(entry, duration * US) for entry, duration in unsure]
    assert made.ambiguous_ns == sum(duration for _, duration in unsure) * US


# Shapes of traces

ROOT = span("root", None, 0, 100)


def app(edge: str) -> str:
    return f"app/unattributed.{edge}"


@pytest.mark.parametrize(
    ("spans", "expected"),
    [
        pytest.param((ROOT,), [(app("root"), 100)], id="a lone span is its own"),
        pytest.param((replace(ROOT, stage="infer"),), [("app/infer", 100)], id="a stage claims its own time"),
        pytest.param(
            # two spans touch at 150: both were waited for, and the parent has no time of its own
            (span("root", None, 100, 200), span("a", "root", 100, 150), span("b", "root", 150, 200)),
            [(app("a"), 50), (app("b"), 50)],
            id="back to back",
        ),
        pytest.param(
            # gather(foo1, foo2) then foo3: foo2 ended last, so it is what held foo3 back
            (ROOT, span("foo1", "root", 10, 60), span("foo2", "root", 10, 80), span("foo3", "root", 80, 100)),
            [(app("start->foo2"), 10), (app("foo2"), 70), (app("foo3"), 20)],
            id="gather",
        ),
        pytest.param(
            # the child is longer than its parent on both sides
            (ROOT, span("p", "root", 20, 60), span("c", "p", 0, 90)),
            [(app("start->p"), 20), (app("c"), 40), (app("p->end"), 40)],
            id="a child is cut to its parent",
        ),
        pytest.param(
            (ROOT, span("zero", "root", 50, 50), span("back", "root", 70, 60)),
            [(app("root"), 100)],
            id="no length, no time",
        ),
        pytest.param(
            (ROOT, span("a", "root", 20, 60), span("inner", "a", 60, 80)),
            [(app("start->a"), 20), (app("a"), 40), (app("a->end"), 40)],
            id="a child after its parent is not on the path",
        ),
        pytest.param(
            (ROOT, span("a", "a", 10, 90), span("b", "c", 10, 90), span("c", "b", 10, 90)),
            [(app("root"), 100)],
            id="spans that are their own ancestors hang below nothing",
        ),
        pytest.param(
            (ROOT, span("orphan", "nobody", 90, 100), span("late", None, 120, 130)),
            # of two equal ends the later start is what was waited for; outside the window nothing counts
            [(app("root"), 90), (app("orphan"), 10)],
            id="roots side by side",
        ),
        pytest.param(
            # two roots with a gap between them, which belongs to the component of the first
            (span("a", None, 0, 40, component="x"), span("b", None, 60, 100, component="y")),
            [("x/unattributed.a", 40), ("x/unattributed.a->b", 20), ("y/unattributed.b", 40)],
            id="several roots",
        ),
        pytest.param(
            (span("a", None, 20, 80),), [(app("start->a"), 20), (app("a"), 60), (app("a->end"), 20)], id="around it"
        ),
        pytest.param((), [("app/unattributed.start->end", 100)], id="no spans at all"),
        pytest.param(
            # one id twice: the earlier, then the longer
            (ROOT, span("a", "root", 20, 50), span("a", "root", 10, 30), span("a", "root", 10, 40)),
            [(app("start->a"), 10), (app("a"), 30), (app("a->end"), 60)],
            id="duplicates",
        ),
    ],
)
def test_the_path_of(spans: tuple[Span, ...], expected: list[Stretch]) -> None:
    window = {"start_ns": 100, "end_ns": 200} if expected[0] == (app("a"), 50) else {"start_ns": 0, "end_ns": 100}
    assert path(interaction(*spans, **window)) == expected


@pytest.mark.parametrize(
    ("foo2_ends", "unsure"),
    [
        # gather waits for both; foo2 ended last, and foo3 began when it did: nothing else explains 80
        (80, []),
        # foo2 outlasts 80, so foo3 did not wait for it: without foo2, foo1 is next, and 60-80 the root's own.
        # 10 to 80 is in doubt; foo3 is not
        (90, [(app("foo2"), 70)]),
    ],
)
def test_what_a_gather_waited_for(foo2_ends: int, unsure: list[Stretch]) -> None:
    foo1, foo2 = span("foo1", "root", 10, 60), span("foo2", "root", 10, foo2_ends)
    made = interaction(ROOT, foo1, foo2, span("foo3", "root", 80, 100))
    assert path(made)[-1] == (app("foo3"), 20)
    assert ambiguous(made) == unsure


# Causes that are no containers


PUBLISH = span("publish", "root", 10, 20, kind="producer", stage="queue.broker")
CONSUME = span("consume", "publish", 50, 90, kind="consumer", follows=True, component="worker")


@pytest.mark.parametrize(
    ("spans", "expected"),
    [
        pytest.param(
            # publish 10-20, pick-up at 50: 30 in the broker, inside the root that waited for it
            (ROOT, PUBLISH, CONSUME),
            [
                (app("start->publish"), 10),
                ("app/queue.broker", 10),
                ("worker/queue.broker", 30),
                ("worker/unattributed.consume", 40),
                (app("consume->end"), 10),
            ],
            id="a consumer is not cut to its producer, and the gap before it is the broker's",
        ),
        pytest.param(
            # the parent ends at 20; what follows it runs 30-60 inside the root
            (ROOT, span("first", "root", 10, 20), span("then", "first", 30, 60, follows=True)),
            [
                (app("start->first"), 10),
                (app("first"), 10),
                (app("first->then"), 10),
                (app("then"), 30),
                (app("then->end"), 40),
            ],
            id="FOLLOWS_FROM is not cut to its parent",
        ),
        pytest.param(
            # it begins as its parent ends, which therefore does not hold it
            (ROOT, span("first", "root", 10, 20), span("then", "first", 20, 60, follows=True)),
            [(app("start->first"), 10), (app("first"), 10), (app("then"), 40), (app("then->end"), 40)],
            id="FOLLOWS_FROM back to back",
        ),
        pytest.param(
            # it follows, but its parent still runs: it is inside
            (ROOT, span("p", "root", 10, 90), span("c", "p", 20, 95, follows=True)),
            [(app("start->p"), 10), (app("start->c"), 10), (app("c"), 70), (app("p->end"), 10)],
            id="what follows a parent that still runs is inside it",
        ),
        pytest.param(
            # nothing of the root runs any more: it stands beside it
            (span("root", None, 0, 40), span("after", "root", 60, 100, follows=True)),
            [(app("root"), 40), (app("root->after"), 20), (app("after"), 40)],
            id="what follows a root stands beside it",
        ),
        pytest.param(
            (ROOT, span("me", "me", 20, 60, follows=True)),
            [(app("root"), 100)],
            id="what follows itself stands beside the root",
        ),
    ],
)
def test_the_path_through_a_hand_over(spans: tuple[Span, ...], expected: list[Stretch]) -> None:
    assert path(interaction(*spans, start_ns=0, end_ns=100)) == expected


CALL = span("call", "root", 10, 90, kind="client", component="gateway", clock="g")
SERVE = span("serve", "call", 30, 80, kind="server", component="llm", clock="l", stage="infer")
GATEWAY = span("root", None, 0, 100, component="gateway", clock="g")


@pytest.mark.parametrize(
    ("spans", "expected"),
    [
        pytest.param(
            (GATEWAY, CALL, SERVE),
            [
                ("gateway/unattributed.start->call", 10),
                ("llm/uplink", 20),
                ("llm/infer", 50),
                ("llm/downlink", 10),
                ("gateway/unattributed.call->end", 10),
            ],
            id="inside",
        ),
        pytest.param(
            # nobody called the caller: its network is the user's own
            (replace(CALL, parent=None), SERVE),
            [("client/uplink", 20), ("llm/infer", 50), ("client/downlink", 10)],
            id="the user's",
        ),
        pytest.param(
            (replace(CALL, parent=None), replace(SERVE, clock="g", component="gateway")),
            [("gateway/unattributed.start->serve", 20), ("gateway/infer", 50), ("gateway/unattributed.serve->end", 10)],
            id="one process calling itself has no network between",
        ),
        pytest.param(
            # two hosts of one component are still two hosts
            (replace(CALL, parent=None), replace(SERVE, component="gateway")),
            [("client/uplink", 20), ("gateway/infer", 50), ("client/downlink", 10)],
            id="one component",
        ),
        pytest.param(
            # another component on the same host is still another process
            (replace(CALL, parent=None), replace(SERVE, clock="g")),
            [("client/uplink", 20), ("llm/infer", 50), ("client/downlink", 10)],
            id="one host",
        ),
        pytest.param(
            # the way back from the first attempt is not the way to the second: between them lies the caller's wait
            (
                GATEWAY,
                CALL,
                replace(SERVE, end_ns=40),
                replace(SERVE, id="again", name="again", start_ns=60, end_ns=80),
            ),
            [
                ("gateway/unattributed.start->call", 10),
                ("llm/uplink", 20),
                ("llm/infer", 10),
                ("gateway/unattributed.serve->again", 20),
                ("llm/infer", 20),
                ("llm/downlink", 10),
                ("gateway/unattributed.call->end", 10),
            ],
            id="a retry",
        ),
        pytest.param(
            (replace(CALL, parent=None, kind="internal"), SERVE),
            [("gateway/unattributed.start->serve", 20), ("llm/infer", 50), ("gateway/unattributed.serve->end", 10)],
            id="only a client's gaps are network",
        ),
        pytest.param(
            (replace(CALL, parent=None), replace(SERVE, kind="internal")),
            [("gateway/unattributed.start->serve", 20), ("llm/infer", 50), ("gateway/unattributed.serve->end", 10)],
            id="only towards a server",
        ),
    ],
)
def test_the_network_around_a_call(spans: tuple[Span, ...], expected: list[Stretch]) -> None:
    assert path(interaction(*spans)) == expected


def test_errors_stand_where_two_clocks_meet() -> None:
    made = interaction(GATEWAY, CALL, SERVE)
    # bounds -4 to 2 leave 0 possible, so nothing moves and the error is the larger side
    offsets = Offsets.of("g", {"l": Offset(theta_ns=0, low_ns=-4, high_ns=2)})
    assert [piece.error_ns for piece in path_of(made, offsets)] == [0, 4, 0, 4, 0]
    assert [piece.error_ns for piece in path_of(made)] == [0, None, 0, None, 0]


def test_errors_of_two_foreign_clocks_add() -> None:
    first, second = span("a", "root", 10, 40, clock="x"), span("b", "root", 60, 90, clock="y")
    offsets = Offsets.of(
        "g", {"x": Offset(theta_ns=0, low_ns=-4, high_ns=2), "y": Offset(theta_ns=0, low_ns=-1, high_ns=10)}
    )
    errors = [piece.error_ns for piece in path_of(interaction(GATEWAY, first, second), offsets)]
    # to x, x itself, from x to y, y itself, from y
    assert errors == [4, 0, 14, 0, 10]


def test_an_offset_moves_spans_and_not_the_sum() -> None:
    made = interaction(GATEWAY, CALL, replace(SERVE, start_ns=1030, end_ns=1080))
    offsets = Offsets.of("g", {"l": Offset(theta_ns=1000, low_ns=990, high_ns=1010)})
    # 1030-1080 less 1000 is 30-80 of 10-90
    assert path(made, offsets)[1:4] == [("llm/uplink", 20), ("llm/infer", 50), ("llm/downlink", 10)]
    assert {piece.error_ns for piece in path_of(made, offsets)} == {0, 10}
    # unaligned it lies outside the call, which is then undivided
    assert account(made).entries["gateway/unattributed.call"] == 80


@pytest.mark.parametrize(("start_ns", "end_ns"), [(None, 5), (5, None), (None, None), (6, 5)])
def test_no_window_no_account(start_ns: int | None, end_ns: int | None) -> None:
    made = interaction(ROOT, start_ns=start_ns, end_ns=end_ns)
    with pytest.raises(ValueError, match="no end after its start"):
        account(made)
    with pytest.raises(ValueError, match="no end after its start"):
        path_of(made)


def test_no_time_at_all_is_an_account() -> None:
    made = account(interaction(ROOT, start_ns=7, end_ns=7))
    assert (made.total_ns, made.entries, path_of(made.interaction)) == (0, {}, ())


# Moment chains


def mark(name: str, at_ns: int, entry: str | None = None, clock: str = "") -> Mark:
    component, _, stage = (entry or "").partition("/")
    return Mark(name=name, at_ns=at_ns, component=component or None, stage=stage or None, clock=clock)


def chain(*marks: Mark) -> Interaction:
    return interaction(ROOT, marks=marks)


@pytest.mark.parametrize(
    ("marks", "expected"),
    [
        pytest.param(
            (mark("asked", 0), mark("scheduled", 30, "llm/queue.wait"), mark("token", 100, "llm/infer.prefill")),
            [("llm/queue.wait", 30), ("llm/infer.prefill", 70)],
            id="neighbours subtracted",
        ),
        pytest.param(
            (mark("token", 60, "llm/infer"),),
            [("llm/infer", 60), ("llm/unattributed.token->end", 40)],
            id="after the last mark",
        ),
        pytest.param(
            (mark("token", 60, "/infer"),),
            [("client/infer", 60), ("client/unattributed.token->end", 40)],
            id="nobody's mark is the user's",
        ),
        pytest.param(
            # the second lies before the first and is moved onto it, so it ends nothing
            (mark("a", 50, "x/queue"), mark("b", 40, "x/infer"), mark("c", 100, "x/postprocess")),
            [("x/queue", 50), ("x/postprocess", 50)],
            id="out of order",
        ),
        pytest.param((mark("a", 150, "x/infer"),), [("x/infer", 100)], id="after the end it is cut"),
        pytest.param((mark("a", -50, "x/queue"), mark("b", 100, "x/infer")), [("x/infer", 100)], id="before the start"),
    ],
)
def test_the_path_of_a_chain(marks: tuple[Mark, ...], expected: list[Stretch]) -> None:
    assert path(chain(*marks)) == expected
    made = account(chain(*marks))
    assert made.entries == dict(expected)
    assert made.ambiguous_ns == 0


@pytest.mark.parametrize(
    ("at_ns", "noted"),
    [
        ((30, 60), []),
        ((60, 60), []),
        ((60, 59), ["out-of-order-mark"]),
        ((-1, 60), ["out-of-order-mark"]),
    ],
)
def test_a_mark_out_of_order_is_noted(at_ns: tuple[int, int], noted: list[str]) -> None:
    made = account(chain(mark("a", at_ns[0], "x/queue"), mark("b", at_ns[1], "x/infer")))
    assert [note.kind for note in made.notes] == noted


def test_marks_of_another_clock_are_moved_and_carry_its_error() -> None:
    made = chain(mark("a", 1030, "x/queue", clock="far"), mark("b", 100, "x/infer"))
    offsets = Offsets.of("", {"far": Offset(theta_ns=1000, low_ns=995, high_ns=1005)})
    assert [(piece.entry, piece.start_ns, piece.end_ns, piece.error_ns) for piece in path_of(made, offsets)] == [
        ("x/queue", 0, 30, 5),
        ("x/infer", 30, 100, 5),
    ]


def test_marks_without_stages_leave_the_spans_to_tell() -> None:
    assert path(chain(mark("seen", 50))) == [(app("root"), 100)]


# Any data at all


IDS = st.sampled_from([f"s{number}" for number in range(7)])
CLOCKS = ("", "x", "y")


@st.composite
def offset(draw: st.DrawFn) -> Offset:
    low, theta, high = sorted(draw(st.tuples(*[st.integers(-9, 9)] * 3)))
    return Offset(
        theta_ns=theta, low_ns=draw(st.sampled_from([low, None])), high_ns=draw(st.sampled_from([high, None]))
    )


@st.composite
def any_span(draw: st.DrawFn, name: st.SearchStrategy[str]) -> Span:
    start = draw(st.integers(-3, 15))
    return Span(
        id=draw(name),
        parent=draw(st.none() | IDS | st.just("absent")),
        name=draw(st.sampled_from(["a", "1..9"])),
        component=draw(st.sampled_from(["p", "q"])),
        stage=draw(st.sampled_from([None, None, "infer"])),
        start_ns=start,
        end_ns=start + draw(st.integers(-1, 12)),
        kind=draw(st.sampled_from(KINDS)),
        clock=draw(st.sampled_from(CLOCKS)),
        follows=draw(st.booleans()),
    )


ANY_SPANS = st.lists(any_span(IDS), max_size=12)
ANY_OFFSETS = st.none() | st.dictionaries(st.sampled_from(CLOCKS[1:]), offset()).map(partial(Offsets.of, ""))


@settings(max_examples=200)
@given(ANY_SPANS, ANY_OFFSETS, st.integers(0, 15), st.randoms(use_true_random=False))
def test_whatever_the_spans(spans: list[Span], offsets: Offsets | None, end_ns: int, random: Random) -> None:
    made = interaction(*spans, start_ns=0, end_ns=end_ns, clock="")
    told = account(made, offsets)
    assert sum(told.entries.values()) == told.total_ns == end_ns
    assert all(duration > 0 for duration in told.entries.values())
    assert 0 <= told.ambiguous_ns <= end_ns

    pieces = path_of(made, offsets)
    edges = [0, *(piece.end_ns for piece in pieces)]
    assert [piece.start_ns for piece in pieces] == edges[:-1]
    assert edges[-1] == end_ns
    assert all(piece.start_ns < piece.end_ns for piece in pieces)
    assert all(piece.error_ns is None or piece.error_ns >= 0 for piece in pieces)
    assert summed(pieces) == told.entries
    assert sum(piece.end_ns - piece.start_ns for piece in pieces if piece.ambiguous) == told.ambiguous_ns

    random.shuffle(spans)
    shuffled = replace(made, spans=tuple(spans))
    assert account(shuffled, offsets).entries == told.entries
    assert path_of(shuffled, offsets) == pieces


ANY_MARKS = st.lists(
    st.builds(
        Mark,
        name=st.sampled_from("abc"),
        at_ns=st.integers(-20, 120),
        clock=st.sampled_from(CLOCKS),
        component=st.sampled_from([None, "p"]),
        stage=st.sampled_from([None, "queue", "infer"]),
    ),
    max_size=6,
)


@given(ANY_MARKS, ANY_OFFSETS)
def test_whatever_the_marks(marks: list[Mark], offsets: Offsets | None) -> None:
    made = chain(*marks)
    told, pieces = account(made, offsets), path_of(made, offsets)
    assert sum(told.entries.values()) == 100
    assert summed(pieces) == told.entries
    assert [piece.start_ns for piece in pieces] == [0, *(piece.end_ns for piece in pieces)][:-1]


@given(ANY_SPANS)
def test_offsets_that_the_data_itself_gives(spans: list[Span]) -> None:
    made = interaction(*spans, start_ns=0, end_ns=100, clock="")
    clocks = Clocks()
    clocks.observe(calls_of(made))
    offsets = clocks.offsets("", clocks_of(made), 0)
    assert sum(account(made, offsets).entries.values()) == 100


# Sizes: each would take minutes if the work grew with the square of the spans


def in_time(made: Interaction) -> Interaction:
    """The interaction, after its account and path were made: work that grew with the square would hang the suite."""
    told, pieces = account(made), path_of(made)
    assert sum(told.entries.values()) == told.total_ns
    assert summed(pieces) == told.entries
    return made


N = 10_000


def test_ten_thousand_children() -> None:
    flat = [span(f"s{i}", "root", 10 * i, 10 * i + 8, stage="infer") for i in range(N)]
    made = in_time(interaction(span("root", None, 0, 10 * N), *flat))
    assert account(made).entries["app/infer"] == 8 * N


def test_ten_thousand_generations() -> None:
    deep = [span(f"s{i}", f"s{i - 1}" if i else None, i, 3 * N - i, stage="infer") for i in range(N)]
    made = in_time(interaction(*deep))
    assert account(made).entries == {"app/infer": 3 * N}


def test_ten_thousand_of_anything() -> None:
    random = Random(5)
    spans = [
        span(
            f"s{i}",
            random.choice([None, "absent", *[f"s{random.randrange(N)}"] * 8]),
            at := random.randrange(10**6),
            at + random.randrange(10**5),
            kind=random.choice(KINDS),
        )
        for i in range(N)
    ]
    in_time(interaction(*spans, start_ns=0, end_ns=10**6))


FEW = N


def test_many_roots() -> None:
    roots = [span(f"s{i}", None, 10 * i, 10 * i + 8) for i in range(FEW)]
    in_time(interaction(*roots, start_ns=0, end_ns=10 * FEW))


def test_many_calls_of_the_user() -> None:
    calls = [span(f"c{i}", None, 10 * i, 10 * i + 8, kind="client") for i in range(FEW)]
    served = [span(f"s{i}", f"c{i}", 10 * i + 2, 10 * i + 6, kind="server", component="b") for i in range(FEW)]
    made = in_time(interaction(*calls, *served, start_ns=0, end_ns=10 * FEW))
    assert account(made).entries["client/uplink"] == 2 * FEW


def test_many_that_follow_each_other() -> None:
    chained = [span(f"s{i}", f"s{i - 1}" if i else None, 10 * i, 10 * i + 8, follows=i > 0) for i in range(FEW)]
    in_time(interaction(*chained, start_ns=0, end_ns=10 * FEW))
