from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from sample import RICH, VOICE, rows

from outlay.render import flame
from outlay.render.flame import Frame
from outlay.report import Row

MS = 10**6
ENTRIES = (
    "client/uplink",
    "client/uplink.tls",
    "client/uplink.connect",
    "client/render",
    "llm/queue.wait",
    "llm/infer",
    "x/unattributed.a..b->c",
    "moderation/uplink..downlink",
)
accounts = st.lists(
    st.tuples(st.sampled_from(ENTRIES), st.integers(0, 10**10), st.integers(0, 10**10)), unique_by=lambda cell: cell[0]
).map(lambda cells: rows(*((*cell, None) for cell in cells)))


@given(accounts)
@settings(max_examples=200)
def test_widths_sum_to_the_excess(account: tuple[Row, ...]) -> None:
    drawn = flame.flame(account)
    assert drawn.added_ns - drawn.saved_ns == sum(row.excess_ns for row in account)
    assert all(frame.width_ns > 0 for frame in (*drawn.added, *drawn.saved))


@given(accounts)
@settings(max_examples=200)
def test_every_frame_lies_in_the_one_above_it_and_beside_its_neighbours(account: tuple[Row, ...]) -> None:
    drawn = flame.flame(account)
    for frames in (drawn.added, drawn.saved):
        for depth in range(flame.DEPTHS):
            level = [frame for frame in frames if frame.depth == depth]
            assert all(left.start_ns + left.width_ns <= right.start_ns for left, right in pairwise(level))
        by_path = {frame.path: frame for frame in frames}
        for frame in frames:
            above = by_path.get(frame.path[:-1])
            assert above is None or above.start_ns <= frame.start_ns
            assert above is None or frame.start_ns + frame.width_ns <= above.start_ns + above.width_ns


def test_components_stages_and_parts_stand_over_each_other_the_widest_first() -> None:
    drawn = flame.flame(
        rows(
            ("client/uplink.tls", 0, 30 * MS, None),
            ("client/uplink", 10 * MS, 20 * MS, None),
            ("llm/queue.wait", 5 * MS, 505 * MS, None),
            ("llm/infer.decode", 40 * MS, 36 * MS, None),
        )
    )
    # Added are 30 + 10 of the client and 500 of the queue; saved are 4 of decoding.
    assert [(frame.path, frame.term, frame.start_ns // MS, frame.width_ns // MS) for frame in drawn.added] == [
        (("llm",), "queueing", 0, 500),
        (("llm", "queue"), "queueing", 0, 500),
        (("llm", "queue", "wait"), "queueing", 0, 500),
        (("client",), "geography", 500, 40),
        (("client", "uplink"), "geography", 500, 40),
        (("client", "uplink", "tls"), "geography", 500, 30),
    ]
    assert (drawn.added_ns, drawn.saved_ns) == (540 * MS, 4 * MS)
    assert flame.summed(drawn) == "540 ms more, 4.00 ms less: +536 ms in all"


def test_what_several_terms_share_has_none() -> None:
    frames = {frame.path: frame.term for frame in flame.flame(RICH.account).added}
    # The queue of the model holds a wait and cold starts.
    assert (frames["llm",], frames["llm", "queue"], frames["llm", "queue", "wait"]) == (None, None, "queueing")


@pytest.mark.parametrize(
    ("entry", "path"),
    [
        ("moderation/uplink..downlink", ("moderation", "uplink..downlink")),
        ("a/uplink.floor..downlink", ("a", "uplink.floor..downlink")),
        # The sign of a joint name inside an edge that nobody named joins nothing.
        ("x/unattributed.a..b->c", ("x", "unattributed", "a..b->c")),
        ("a/b/infer", ("a/b", "infer")),
    ],
)
def test_a_joint_name_is_one_stage(entry: str, path: tuple[str, ...]) -> None:
    assert flame.flame(rows((entry, 0, MS, None))).added[-1].path == path


def test_pixels_follow_one_scale() -> None:
    drawn = flame.flame(rows(("llm/queue", 0, 300 * MS, None), ("llm/infer", 75 * MS, 0, None)))
    scale = flame.scale(drawn)
    added, saved = flame.drawing(drawn.added, scale), flame.drawing(drawn.saved, scale)
    assert [(piece.box.x, piece.box.width) for piece in added.pieces] == [(0, 100), (0, 100)]
    # 75 of 300 ms.
    assert [(piece.box.x, piece.box.width) for piece in saved.pieces] == [(0, 25), (0, 25)]
    assert added.height == saved.height == 2 * flame.ROW_PX


@pytest.mark.parametrize(
    ("name", "letters", "label"),
    [
        ("cold_start", 17, "cold_start 148 ms"),
        ("cold_start", 16, "cold_sta… 148 ms"),
        ("cold_start", 9, "148 ms"),
        ("cold_start", 6, ""),
        # Wide letters take two columns each.
        ("\u6f22\u5b57\u6f22\u5b57", 13, "\u6f22\u5b57… 148 ms"),
        ("\x1b[2J", 40, "\\x1b[2J 148 ms"),
    ],
)
def test_a_label_takes_the_room_there_is(name: str, letters: int, label: str) -> None:
    frame = Frame(path=(name,), term=None, start_ns=0, width_ns=148 * MS)
    assert flame.label(frame, letters) == label
    assert cell_len(label) <= letters


@pytest.mark.parametrize(
    ("wait", "infer", "worth"),
    # One leaf of 100 is 89 of it, 90 of it, all of it; of nothing there is nothing to see.
    [(89, 11, True), (90, 10, False), (100, 0, False), (0, 0, False)],
)
def test_one_thing_alone_is_no_picture(wait: int, infer: int, worth: bool) -> None:
    account = rows(("llm/queue.wait", 0, wait, None), ("llm/infer", 0, infer, None))
    assert flame.is_worth_drawing(flame.flame(account)) is worth


def test_only_terms_that_are_drawn_need_a_key() -> None:
    assert flame.terms(flame.flame(rows(("llm/queue", 0, 9, None), ("tts/infer", 9, 0, None)))) == ("queueing", "model")
    assert "setting" not in flame.terms(flame.flame(VOICE.account))
