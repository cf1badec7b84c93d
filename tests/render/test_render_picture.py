from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sample import ALERT, DOCUMENT, EMPTY, FAILING, RICH, SAMPLE, VOICE, rows

from outlay.budget import Budget, Share
from outlay.render import picture
from outlay.render.picture import Scale
from outlay.report import Bin, ModelGap, Percentile, Segment

MS = 10**6


@pytest.mark.parametrize(
    ("scale", "value_ns", "percent"),
    [
        (Scale(low_ns=0, high_ns=200), 50, 25.0),
        (Scale(low_ns=100, high_ns=200), 150, 50.0),
        # One decade of two.
        (Scale(low_ns=10, high_ns=1000, log=True), 100, 50.0),
        (Scale(low_ns=10, high_ns=1000, log=True), 0, 0.0),
        (Scale(low_ns=0, high_ns=200), 900, 100.0),
        (Scale(low_ns=0, high_ns=200), -5, 0.0),
        (Scale(low_ns=7, high_ns=7), 7, 0.0),
    ],
)
def test_scale(scale: Scale, value_ns: float, percent: float) -> None:
    assert scale.at(value_ns) == percent


@given(st.floats(1, 1e15), st.floats(1.001, 1e6), st.booleans())
@settings(max_examples=200)
def test_an_axis_has_a_few_round_values_inside(low_ns: float, ratio: float, log: bool) -> None:
    ticks = picture.axis(Scale(low_ns=low_ns, high_ns=low_ns * ratio, log=log))
    assert len(ticks) <= 8
    assert [tick.x for tick in ticks] == sorted(tick.x for tick in ticks)
    assert all(0 <= tick.x <= 100 for tick in ticks)


@pytest.mark.parametrize(
    ("high_ns", "labels"),
    [
        # On a narrow page the label at the end would meet the one before it: its line stands alone.
        (1_000 * MS, ["0", "200 ms", "400 ms", "600 ms", "800 ms", ""]),
        # 1.658 s in at most five steps: 331 ms each, the next round step is 500 ms.
        (1_658 * MS, ["0", "500 ms", "1.00 s", "1.50 s"]),
    ],
)
def test_linear_axis(high_ns: int, labels: list[str]) -> None:
    assert [tick.label for tick in picture.axis(Scale(low_ns=0, high_ns=high_ns))] == labels


def test_the_axis_is_logarithmic_beyond_a_range_of_twenty() -> None:
    narrow, wide = picture.distribution(ALERT), picture.distribution(FAILING)
    assert narrow is not None
    assert wide is not None
    # 50 to 150 ms against 60 ms to 3.4 s.
    assert (narrow.log, wide.log) == (False, True)


def test_the_budget_stays_in_the_picture_when_no_interaction_reached_it() -> None:
    drawn = picture.distribution(ALERT)
    assert drawn is not None
    limit = next(mark for mark in drawn.marks if mark.style == "limit")
    assert (limit.x, limit.anchor) == (100.0, "end")


def test_labels_of_marks_never_share_a_line() -> None:
    drawn = picture.distribution(VOICE)
    assert drawn is not None
    assert len({mark.y for mark in drawn.marks}) == len(drawn.marks) == 3


def test_no_bins_no_distribution() -> None:
    assert picture.distribution(EMPTY) is None


def test_one_interaction_is_visible_beside_thousands() -> None:
    moment = replace(ALERT, bins=(Bin(low_ns=1, high_ns=2, count=10_000), Bin(low_ns=2, high_ns=3, count=1)))
    drawn = picture.distribution(moment)
    assert drawn is not None
    assert [column.height for column in drawn.columns] == [picture.PLOT_PX, 2.0]


def test_the_area_of_a_column_is_its_count() -> None:
    # 10 in 10 ns is as dense as 30 in 30 ns; 15 in 30 ns is half as dense.
    bins = (
        Bin(low_ns=10, high_ns=20, count=10),
        Bin(low_ns=20, high_ns=50, count=30),
        Bin(low_ns=50, high_ns=80, count=15),
    )
    drawn = picture.distribution(replace(ALERT, bins=bins, total=(), budget=None))
    assert drawn is not None
    assert [column.height for column in drawn.columns] == pytest.approx([120, 120, 60], rel=1e-3)


def test_equal_times_are_one_column_that_can_be_seen() -> None:
    drawn = picture.distribution(replace(ALERT, bins=(Bin(low_ns=9, high_ns=9, count=4),), total=(), budget=None))
    assert drawn is not None
    assert (drawn.columns[0].height, drawn.columns[0].width) == (120.0, picture.HAIR_PERCENT)


def test_bins_from_zero_have_a_place_on_a_logarithmic_axis() -> None:
    moment = replace(FAILING, bins=(Bin(low_ns=0, high_ns=10 * MS, count=5), *FAILING.bins))
    drawn = picture.distribution(moment)
    assert drawn is not None
    assert drawn.log
    # The axis starts at half the first bin's end, so the first column is drawn from the edge.
    assert drawn.columns[0].x == 0.0
    assert drawn.columns[0].width > 0


@pytest.mark.parametrize("moment", SAMPLE.moments, ids=lambda moment: moment.moment)
def test_bars_of_terms_touch_and_end_at_their_total(moment: object) -> None:
    drawn = picture.stack(moment)  # type: ignore[arg-type]
    for boxes in (drawn.typical, drawn.tail, drawn.sets):
        for left, right in pairwise(boxes):
            assert left.end == pytest.approx(right.x, abs=0.002)


def test_what_sets_the_percentile_is_a_bar_of_its_own() -> None:
    drawn = picture.stack(RICH)
    # The tail, 1,657.26 ms, is the longest; what sets the p99 takes RICH.sets.total_ns on the same scale.
    assert RICH.sets is not None
    assert RICH.sets.total_ns is not None
    assert drawn.sets[-1].end == pytest.approx(100 * RICH.sets.total_ns / (1_657.26 * MS * 1.02), abs=0.01)
    assert picture.stack(VOICE).sets == ()


def test_a_row_that_grew_and_one_that_shrank() -> None:
    share = Share(entry="llm/*", limit_ns=40 * MS)
    grew, shrank = rows(("llm/queue", 10 * MS, 50 * MS, share), ("llm/infer", 100 * MS, 80 * MS, None))
    scale = picture.excess_scale((grew, shrank))
    up, down = picture.excess(grew, scale), picture.excess(shrank, scale)
    assert (up.typical.width, up.added.end if up.added else None, up.saved, up.share) == (10.0, 50.0, None, 40.0)
    assert (down.typical.width, down.added, down.saved.end if down.saved else None) == (80.0, None, 100.0)


def test_model_time_known_exactly_has_no_maybe() -> None:
    exact = picture.gap(ModelGap(total_ns=100, low_ns=40, high_ns=40), 200)
    open_gap = picture.gap(ModelGap(total_ns=100, low_ns=40, high_ns=90), 200)
    assert (exact.all.width, exact.sure.width, exact.maybe) == (50.0, 20.0, None)
    assert open_gap.maybe is not None
    assert (open_gap.maybe.x, open_gap.maybe.end) == (20.0, 45.0)


def test_a_waterfall_shows_what_the_clocks_leave_open() -> None:
    drawn = picture.waterfall(VOICE.slowest[0])
    by_entry = {lane.segment.entry: lane for lane in drawn.lanes}
    # 2,625 ms in all; the uplink runs from 420 to 512 ms, each end within 11 ms.
    first, last = by_entry["client/uplink.excess"].whiskers
    assert (first.x, first.end) == pytest.approx((100 * 409 / 2625, 100 * 431 / 2625), abs=0.002)
    assert (last.x, last.end) == pytest.approx((100 * 501 / 2625, 100 * 523 / 2625), abs=0.002)
    assert by_entry["vad/hold"].whiskers == ()
    assert by_entry["engine/unattributed.tokenize->dispatch"].unattributed
    unbounded = picture.waterfall(VOICE.slowest[1]).lanes[1]
    assert (unbounded.unbounded, unbounded.whiskers) == (True, ())


def test_a_long_waterfall_keeps_the_longest_pieces_and_the_sum() -> None:
    segments = tuple(
        Segment(entry="app/infer", start_ns=place * 1000, duration_ns=1000 if place % 2 else 1) for place in range(100)
    )
    slow = replace(VOICE.slowest[0], segments=segments, total_ns=sum(each.duration_ns for each in segments))
    drawn = picture.waterfall(slow)
    # The 50 long ones and 10 of the 50 short ones.
    assert (len(drawn.lanes), drawn.left, drawn.left_ns) == (60, 40, 40)
    assert [lane.segment.start_ns for lane in drawn.lanes] == sorted(lane.segment.start_ns for lane in drawn.lanes)


def test_a_joint_row_between_causes_counts_as_unattributed() -> None:
    lanes = picture.waterfall(DOCUMENT.slowest[0]).lanes
    assert [lane.unattributed for lane in lanes] == [False, False, True]


@pytest.mark.parametrize(
    ("marks", "drawn"),
    # A label of 12 letters needs 2.5 + 12 * 2.4 = 31.3 percent of a narrow page.
    [
        # All have room to the right: the leftmost stands highest, so no line to its right runs through it.
        ([("p50", 10), ("budget", 20)], [("p50", "start", 0), ("budget", "start", 17)]),
        # The last has no room to the right; the first would reach its line, but is above it.
        ([("p50", 40), ("budget", 90)], [("p50", "start", 0), ("budget", "end", 17)]),
        # Written to the left of its own line, the last label would meet the other's line: that begins below it.
        ([("p50", 80), ("budget", 90)], [("budget", "end", 0), ("p50", "end", 17)]),
        # Nor can a label at the left edge be written to the left.
        ([("p50", 5), ("p99", 31), ("budget", 75)], [("p50", "start", 0), ("p99", "start", 17), ("budget", "end", 34)]),
    ],
)
def test_no_label_of_a_mark_meets_the_line_of_another(
    marks: list[tuple[str, int]], drawn: list[tuple[str, str, float]]
) -> None:
    moment = replace(
        ALERT,
        bins=(Bin(low_ns=0, high_ns=100 * MS, count=1),),
        total=tuple(Percentile(level=float(name[1:]), value_ns=at * MS) for name, at in marks if name != "budget"),
        budget=Budget(limit_ns=marks[-1][1] * MS, percentile=99),
    )
    shown = picture.distribution(moment)
    assert shown is not None
    assert [(mark.label.partition(" ")[0], mark.anchor, mark.y) for mark in shown.marks] == drawn


@pytest.mark.parametrize(
    ("limit_ms", "label", "x"),
    # One term of 100 ms on a scale of 102: "queueing" needs 2.6 + 8 * 1.15 = 11.8 of its 98 percent.
    [
        (50, "queueing", 0.0),
        # The limit's line would run through the name, so the name begins at the line.
        (5, "queueing", 4.902),
    ],
)
def test_a_name_in_a_bar_keeps_clear_of_the_limit(limit_ms: int, label: str, x: float) -> None:
    account = rows(("llm/queue", 100 * MS, 100 * MS, None))
    budget = Budget(limit_ns=limit_ms * MS, percentile=99)
    drawn = picture.stack(replace(FAILING, account=account, budget=budget))
    assert [(box.label, box.label_x) for box in drawn.tail] == [(label, x)]


def test_a_name_without_room_beside_the_limit_is_left_out() -> None:
    # The bar ends at 12.7 percent of the width and its name needs 11.8, but the line at 4.9 runs through it.
    account = rows(("llm/queue", 13 * MS, 13 * MS, None), ("vad/hold", 87 * MS, 87 * MS, None))
    drawn = picture.stack(replace(FAILING, account=account, budget=Budget(limit_ns=5 * MS, percentile=99)))
    assert [box.label for box in drawn.tail] == ["", "setting"]


def test_only_what_the_timelines_show_needs_a_key() -> None:
    shown = picture.doubts(VOICE.slowest)
    assert (shown.parallel, shown.unattributed, shown.whiskers, shown.unbounded) == (True, True, True, True)
    shown = picture.doubts(ALERT.slowest)
    assert (shown.parallel, shown.unattributed, shown.whiskers, shown.unbounded) == (False, False, False, False)
