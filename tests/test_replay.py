"""Interactions run again: unchanged they take what they took, changed they take what the changed world would."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outlay.account import account
from outlay.accounts import Accounts, Labels, of_columns
from outlay.clocks import Offset, Offsets
from outlay.graph import WAITS
from outlay.interaction import FIRST_TOKEN, KINDS, Interaction, Mark, Span
from outlay.replay import Replay, compile_replay
from worlds import DATA, interaction, interactions_of, simple, span


def compiled(*made: Interaction) -> Replay:
    return compile_replay([(each, None) for each in made])


def scaled(replay: Replay, **by_name: float) -> list[int]:
    """The totals where the entries of these components or stages, `_` standing for `/`, take so much of their time."""
    durations = replay.durations_ns.copy()
    for name, factor in by_name.items():
        hits = [code for code, entry in enumerate(replay.entries) if name.replace("_", "/") in entry]
        assert hits, f"{name} is not in {replay.entries}"
        of_it = np.isin(replay.codes, hits)
        durations[of_it] = np.rint(durations[of_it] * factor).astype(np.int64)
    return replay.totals(durations).tolist()


def call(key: str, parent: str | None, start_ns: int, end_ns: int, **more: object) -> Span:
    return span(key, parent, start_ns, end_ns, component=key, stage="infer", **more)


def token(at_ns: int, **more: str) -> Mark:
    return Mark(name=FIRST_TOKEN, at_ns=at_ns, **more)


def ahead(theta_ns: int) -> Offsets:
    """The clock x is ahead by so much."""
    return Offsets.of("", {"x": Offset(theta_ns=theta_ns, low_ns=theta_ns - 1, high_ns=theta_ns + 1)})


# The law


TRACES = sorted(str(path.relative_to(DATA)) for path in DATA.glob("traces-*/**/*.json"))


@pytest.mark.parametrize("file", TRACES)
def test_run_unchanged_every_recorded_trace_takes_what_it_took(file: str) -> None:
    made = [replace(each, outcome="ok") for each in interactions_of(file) if each.end_ns is not None]
    replay = compiled(*made)
    assert sorted(replay.totals(replay.durations_ns).tolist()) == sorted(account(each).total_ns for each in made)


times = st.integers(0, 60)


@st.composite
def trees(draw: st.DrawFn) -> tuple[Interaction, Offsets]:
    """Spans on three clocks in any relation, rings of parents among them, with marks, under any window."""
    names = [str(number) for number in range(draw(st.integers(0, 12)))]
    spans = tuple(
        Span(
            id=name,
            parent=draw(st.sampled_from([None, "absent", *names])),
            name=name,
            component=draw(st.sampled_from("ab")),
            start_ns=draw(times),
            end_ns=draw(times),
            stage=draw(st.sampled_from((None, "infer", "queue"))),
            kind=draw(st.sampled_from(KINDS)),
            clock=draw(st.sampled_from(("", "x", "y"))),
            follows=draw(st.booleans()),
        )
        for name in names
    )
    marks = tuple(token(at, clock=draw(st.sampled_from(("", "x")))) for at in draw(st.lists(times, max_size=4)))
    start, length = draw(times), draw(times)
    offsets = ahead(draw(st.integers(-20, 20)))
    return Interaction(id="i", moment="m", start_ns=start, end_ns=start + length, spans=spans, marks=marks), offsets


@settings(max_examples=200, deadline=None)
@given(st.lists(trees(), min_size=1, max_size=3))
def test_run_unchanged_any_tree_takes_what_it_took(made: Sequence[tuple[Interaction, Offsets]]) -> None:
    replay = compile_replay(made)
    expected = sorted(account(each, offsets).total_ns for each, offsets in made)
    assert sorted(replay.totals(replay.durations_ns).tolist()) == expected


@settings(max_examples=100, deadline=None)
@given(trees(), st.data())
def test_shorter_edges_never_make_an_interaction_longer(made: tuple[Interaction, Offsets], data: st.DataObject) -> None:
    replay = compile_replay([made])
    n = len(replay.codes)
    parts = np.array(data.draw(st.lists(st.floats(0, 1), min_size=n, max_size=n)))
    shorter = np.floor(replay.durations_ns * parts).astype(np.int64)
    assert 0 <= replay.totals(shorter)[0] <= replay.total_ns[0]
    assert replay.totals(2 * replay.durations_ns)[0] == 2 * replay.total_ns[0]
    assert replay.totals(0 * replay.durations_ns)[0] == 0


@settings(max_examples=50, deadline=None)
@given(st.lists(trees(), min_size=2, max_size=5), st.randoms())
def test_the_order_of_the_input_never_shows(made: list[tuple[Interaction, Offsets]], random: object) -> None:
    made = [(replace(each, id=str(place)), offsets) for place, (each, offsets) in enumerate(made)]
    shuffled = [(replace(each, spans=each.spans[::-1], marks=each.marks[::-1]), offsets) for each, offsets in made]
    shuffled.reverse()
    one, two = compile_replay(made), compile_replay(shuffled)
    for name in ("infer", "queue", "unattributed"):
        left, right = (
            each.totals(
                np.where([code >= 0 and name in each.entries[code] for code in each.codes], 0, each.durations_ns)
            )
            for each in (one, two)
        )
        assert left.tolist() == right.tolist()


# What waits for what


def test_children_one_after_the_other_add_up_and_gaps_keep_their_length() -> None:
    # app 10, a 40, app 5, b 30, app 15
    replay = compiled(interaction(span("app", None, 0, 100), call("a", "app", 10, 50), call("b", "app", 55, 85)))
    assert scaled(replay, a_infer=0) == [60]
    assert scaled(replay, b_infer=0.5) == [85]
    assert scaled(replay, app_unattributed=0) == [70]
    assert sorted(replay.entries) == [
        "a/infer",
        "app/unattributed.a->b",
        "app/unattributed.b->end",
        "app/unattributed.start->a",
        "b/infer",
    ]


def test_of_children_side_by_side_the_parent_waits_for_the_last() -> None:
    replay = compiled(interaction(span("app", None, 0, 100), call("a", "app", 10, 90), call("b", "app", 10, 60)))
    # Without a, b ends at 60; twice as long, b ends at 110; then 10 of the parent's own.
    assert scaled(replay, a_infer=0) == [70]
    assert scaled(replay, b_infer=2) == [120]
    assert scaled(replay, b_infer=0) == [100]


def test_a_child_waits_for_all_siblings_that_had_ended() -> None:
    spans = [span("app", None, 0, 100), call("a", "app", 0, 50), call("b", "app", 0, 40), call("c", "app", 60, 100)]
    replay = compiled(interaction(*spans))
    # c began 10 after a, the later of the two: with a at 20 it begins 10 after b's end at 40.
    assert scaled(replay, a_infer=0.4) == [90]
    assert scaled(replay, b_infer=2) == [80 + 10 + 40]


def test_a_child_waits_for_no_sibling_that_still_ran() -> None:
    replay = compiled(interaction(span("app", None, 0, 100), call("a", "app", 0, 60), call("b", "app", 50, 100)))
    assert scaled(replay, a_infer=0) == [100]
    assert scaled(replay, b_infer=0) == [60]


def test_a_later_join_also_waits_for_what_an_earlier_one_did_not() -> None:
    # b begins after a; c after both a's follower b and the long d. Each is exact when stretched.
    spans = [
        span("app", None, 0, 100),
        call("a", "app", 0, 20),
        call("d", "app", 0, 50),
        call("b", "app", 20, 40),
        call("c", "app", 50, 100),
    ]
    replay = compiled(interaction(*spans))
    assert scaled(replay, d_infer=0) == [40 + 50]
    assert scaled(replay, a_infer=2) == [60 + 50]
    assert scaled(replay, d_infer=0, b_infer=0) == [20 + 50]


def test_whom_a_child_was_seen_to_begin_beside_it_does_not_wait_for() -> None:
    def once(key: str, search_ns: int, queue_ns: int) -> Interaction:
        spans = [
            span("app", None, 0, 100),
            call("search", "app", 0, search_ns),
            call("queue", "app", 0, queue_ns),
            call("llm", "app", queue_ns, 90),
        ]
        return interaction(*spans, id=key)

    # In the first alone, the model may have waited for the search of 20; that it need not shows in the second.
    assert scaled(compiled(once("a", 20, 40)), queue_infer=0) == [20 + 50 + 10]
    assert scaled(compiled(once("a", 20, 40), once("b", 60, 30)), queue_infer=0) == [50 + 10, 60 + 10]
    # What is the same for both: the end waits for all.
    assert scaled(compiled(once("a", 20, 40), once("b", 60, 30)), search_infer=5) == [110, 310]


def test_what_ran_beside_it_by_rounding_or_another_clock_is_still_waited_for() -> None:
    def once(key: str, end_ns: int, clock: str = "") -> Interaction:
        spans = [span("app", None, 0, 9000), call("a", "app", 0, end_ns, clock=clock), call("b", "app", 5000, 8000)]
        return interaction(*spans, id=key)

    assert scaled(compiled(once("1", 5000), once("2", 5020), once("3", 5500, "x")), a_infer=0)[0] == 4000
    assert scaled(compiled(once("1", 5000), once("2", 5500)), a_infer=0)[0] == 9000


def test_nested_time_is_waited_for_through_all_parents() -> None:
    spans = [span("app", None, 0, 100), span("mid", "app", 10, 90), call("a", "mid", 20, 70), call("b", "app", 20, 80)]
    replay = compiled(interaction(*spans))
    # Without a: mid ends at 10 + 10 + 20 = 40, so b's end at 80 is waited for, and then 10.
    assert scaled(replay, a_infer=0) == [90]


# Streams


def test_what_begins_during_a_stream_was_begun_by_its_first_token() -> None:
    # The first token comes at 30 of 10..90; speech begins 5 later and takes 60.
    spans = [span("app", None, 0, 100), call("llm", "app", 10, 90), call("tts", "app", 35, 95)]
    replay = compiled(interaction(*spans, marks=(token(30),)))
    # Half: the first token at 20, speech from 25 to 85, then 5.
    assert scaled(replay, llm_infer=0.5) == [90]
    assert compiled(interaction(*spans)).entries != replay.entries
    assert scaled(compiled(interaction(*spans)), llm_infer=0.5) == [100]


def test_a_token_reaches_what_waits_outside_the_span_it_came_in() -> None:
    spans = [
        span("app", None, 0, 100),
        span("answer", "app", 0, 90),
        call("llm", "answer", 10, 80),
        call("tts", "app", 40, 100),
    ]
    # The token at 30 is the model's, 20 after its start; tts begins 10 after it.
    replay = compiled(interaction(*spans, marks=(token(30),)))
    assert scaled(replay, llm_infer=0.5) == [90]
    assert scaled(replay, llm_infer=0) == [80]


def test_a_parent_that_ends_within_a_stream_waited_for_its_first_token() -> None:
    spans = [span("app", None, 0, 50), call("llm", "app", 10, 400)]
    replay = compiled(interaction(*spans, marks=(token(30),)))
    assert scaled(replay, llm_infer=0.5) == [40]
    assert scaled(replay, llm_infer=20)[0] == 50 + 19 * 20


def test_a_token_on_another_clock_is_read_with_its_offset() -> None:
    spans = [span("app", None, 0, 100), call("llm", "app", 10, 90), call("tts", "app", 35, 95)]
    made = interaction(*spans, marks=(token(1030, clock="x"),))
    assert scaled(compile_replay([(made, ahead(1000))]), llm_infer=0.5) == [90]


def test_what_began_before_the_token_elsewhere_was_not_begun_by_it() -> None:
    def once(key: str, log_ns: int) -> Interaction:
        log = span("log", "app", log_ns, 98, component="log", stage="respond")
        spans = [span("app", None, 0, 100), call("llm", "app", 10, 90), log]
        return interaction(*spans, id=key, marks=(token(30),))

    assert scaled(compiled(once("a", 40)), llm_infer=0.5) == [90]
    assert scaled(compiled(once("a", 40), once("b", 15)), llm_infer=0.5) == [100, 100]


# Ends of parents


def test_a_parent_did_not_wait_for_what_outlasts_it() -> None:
    spans = [span("app", None, 0, 100), call("a", "app", 0, 60), call("audit", "app", 10, 300)]
    assert scaled(compiled(interaction(*spans)), a_infer=0) == [40]


@pytest.mark.parametrize(("end_ns", "clock"), [(100_500, ""), (130_000, "other")], ids=["rounding", "clocks"])
def test_outlasting_by_rounding_or_across_clocks_proves_nothing(end_ns: int, clock: str) -> None:
    spans = [span("app", None, 0, 100_000), call("a", "app", 10_000, end_ns, clock=clock)]
    assert scaled(compiled(interaction(*spans)), a_infer=0) == [10_000]


def test_a_window_that_ends_inside_spans_cuts_the_one_that_the_account_follows() -> None:
    # The window ends at the first token; the log outlasts the root itself, the model goes on inside it.
    spans = [
        span("app", None, 0, 200),
        call("llm", "app", 10, 190),
        call("check", "app", 0, 150),
        call("log", "app", 50, 300),
    ]
    replay = compiled(interaction(*spans, end_ns=70))
    assert scaled(replay, llm_infer=0) == [10]
    assert replay.entries == ("app/unattributed.start->llm", "llm/infer")


# Chains, failures, columns


def test_a_chain_of_marks_is_one_stage_after_the_other() -> None:
    marks = (
        Mark(name="sent", at_ns=20, component="client", stage="uplink"),
        Mark(name=FIRST_TOKEN, at_ns=80, component="llm", stage="infer.prefill"),
    )
    replay = compiled(Interaction(id="i", moment="m", start_ns=0, end_ns=100, marks=marks))
    assert dict(zip(replay.entries, replay.durations_ns.tolist(), strict=True)) == {
        "client/uplink": 20,
        "llm/infer.prefill": 60,
        "llm/unattributed.first_token->end": 20,
    }
    assert scaled(replay, llm_infer=0.5) == [70]
    assert not replay.flat.any()


def test_what_failed_is_a_row_without_a_time() -> None:
    made = compiled(simple("a", 100, start_ns=5), simple("b", 70, start_ns=1, outcome="error", weight=3))
    assert made.start_ns.tolist() == [1, 5]
    assert made.served.tolist() == [False, True]
    assert made.total_ns.tolist() == made.totals(made.durations_ns).tolist() == [0, 100]
    assert made.weights.tolist() == [3, 1]


def test_one_that_ended_well_needs_a_window() -> None:
    with pytest.raises(ValueError, match="no end after its start"):
        compiled(Interaction(id="i", moment="m", start_ns=3, end_ns=None))
    assert len(compiled()) == 0


def columns() -> Accounts:
    sites = Labels(("lon", "nyc"), np.array([1, 0], dtype=np.int32))
    entries = {"llm/infer": np.array([30, 40]), "llm/queue": np.array([0, 5])}
    return of_columns(entries, start_ns=np.array([0, 9]), dimensions={"site": sites})


def test_of_accounts_alone_a_total_is_the_sum() -> None:
    replay = Replay.serial(columns())
    assert replay.totals(replay.durations_ns).tolist() == [30, 45]
    assert scaled(replay, llm_infer=0.5) == [15, 25]
    assert replay.flat.all()


def test_two_replays_side_by_side() -> None:
    spans = [span("app", None, 0, 100), call("a", "app", 10, 90), call("b", "app", 10, 60)]
    both = compiled(interaction(*spans, sizes={"input_tokens": 7})).plus(Replay.serial(columns()))
    assert both.totals(both.durations_ns).tolist() == both.total_ns.tolist() == [100, 30, 45]
    assert scaled(both, a_infer=0, llm_infer=0) == [70, 0, 5]
    assert both.flat.tolist() == [False, True, True]
    assert both.dimensions["site"].is_("nyc").tolist() == [False, True, False]
    assert np.nan_to_num(both.sizes["input_tokens"], nan=-1).tolist() == [7, -1, -1]
    assert both.rows[both.codes != WAITS].max() == 2


def test_a_trace_deeper_than_the_stack_and_a_wide_one() -> None:
    depth = 5000
    deep = [span("0", None, 0, 3 * depth)]
    deep += [span(str(at), str(at - 1), at, 3 * depth - at) for at in range(1, depth)]
    assert scaled(compiled(interaction(*deep, call("leaf", str(depth - 1), depth, depth + 50))), leaf_infer=0) == [
        3 * depth - 50
    ]
    wide = [span("app", None, 0, 2 * depth), *(call(f"c{at}", "app", 2 * at, 2 * at + 1) for at in range(depth))]
    replay = compiled(interaction(*wide))
    assert replay.totals(np.where(replay.durations_ns == 1, 0, replay.durations_ns)).tolist() == [0]
    assert len(replay.codes) < 3 * depth
