import re
import unicodedata
from dataclasses import replace

import pytest
from hostile import ATTACKS, names
from hostile import report as hostile_report
from hypothesis import example, given, settings
from real import REAL, real
from record_golden import as_text
from rich.cells import cell_len
from sample import ALERT, DOCUMENT, EMPTY, FAILING, INVALID_LOAD, LOADS, RICH, SAMPLE, UNBUDGETED, VOICE

from outlay.generator import Stall
from outlay.render.untrusted import visible
from outlay.report import ModelGap, MomentReport, Percentile, Report

HARMFUL = {"Cc", "Cf", "Cs", "Zl", "Zp"}
REFUSED = Percentile(level=99, value_ns=None, why="p99 needs 999 interactions, there are 640")
ZERO = ModelGap(total_ns=65_400_000, low_ns=0, high_ns=0)
ESCAPE = re.compile(r"\x1b\[[0-9;]*m")


def one(moment: MomentReport, width: int = 80) -> str:
    return as_text(Report(sources=(), moments=(moment,)), width=width)


@pytest.mark.parametrize("encoding", ["utf-8", "ascii", "latin-1", "cp1252"])
@pytest.mark.parametrize("width", [60, 80, 100, 120, 200])
def test_no_line_is_wider_than_the_console(width: int, encoding: str) -> None:
    lines = as_text(SAMPLE, width=width, encoding=encoding).splitlines()
    assert max(cell_len(line) for line in lines) <= width
    assert all(line == line.rstrip() for line in lines)


def test_a_pipe_gets_no_escape_and_a_terminal_the_same_words() -> None:
    piped, shown = as_text(SAMPLE, width=80), as_text(SAMPLE, width=80, terminal=True)
    assert "\x1b" not in piped
    assert "\x1b[1;31m" in shown
    assert ESCAPE.sub("", shown) == piped


@pytest.mark.parametrize(
    ("moment", "says"),
    [
        (VOICE, "Over budget (p99 within 800 ms): 98 of 1200 over the limit"),
        (VOICE, "1,200 measured of 1,240 started (96.8 %): ok 1,194, timeout 2, aborted 4\n"),
        (VOICE, "  worth about 410 independent ones: slow ones come in bursts\n"),
        (ALERT, "  48,210 measured\n"),
        (DOCUMENT, "212 more interactions could"),
        (DOCUMENT, "p99  refused  needs 299 interactions, there are 74"),
        # 50 of 640 failed, so the slowest 1 % never came; those served had a p99.
        (FAILING, "p99     never                             2.70 s  2.38 s to 3.40 s"),
        (UNBUDGETED, "Look first: engine/infer.decode takes 138 ms, 54.3 % of it."),
        (replace(VOICE, account=VOICE.account[-1:]), "Look first: client/uplink.dns"),
        (replace(VOICE, account=(replace(VOICE.account[0], tail_ns=12 * 10**6),)), "No row stands out"),
        (replace(ALERT, typical_gap=ZERO, tail_gap=ZERO), "  no row of this data is known to be a model\n"),
        (EMPTY, "0 measured of 12 started (0 %)"),
    ],
)
def test_the_reader_is_told(moment: MomentReport, says: str) -> None:
    assert says in one(moment)


def durations(text: str, name: str) -> list[str]:
    line = next(line for line in text.splitlines() if line.strip().startswith(name))
    return re.findall(r"[+-]?[\d.]+ (?:ms|s)\b", line.replace(name, ""))


def test_small_rows_are_folded_into_one_line_that_keeps_the_sum() -> None:
    # Below 1/200 of 620.52 ms or of 1,657.26 ms: dns 2.70, encode 2.10, route 1.90, auth 1.40, admit 0.16; and of
    # the other nineteen the eight largest stay, so sixteen fold: 233.52 ms typical and 368.26 ms in the tail.
    text = one(VOICE)
    assert durations(text, "16 smaller rows") == ["234 ms", "368 ms", "+135 ms"]
    assert durations(text, "total") == ["621 ms", "1.66 s", "+1.04 s"]


def test_model_time_that_is_not_known_exactly_has_two_bounds() -> None:
    text = one(DOCUMENT)
    assert durations(text, "of it the model, at least") == ["820 ms", "1.24 s"]
    assert durations(text, "of it the model, at most") == ["5.33 s", "11.5 s"]
    assert durations(one(ALERT), "of it the model") == ["23.6 ms", "25.3 ms"]


def test_of_many_shares_those_exceeded_have_a_line_and_the_others_a_name() -> None:
    text = one(VOICE)
    assert text.count("over by") == 4
    assert "within: client/downlink*, */hold, llm/infer*\n" in text
    assert "without a limit: */unattributed*\n" in text


@pytest.mark.parametrize("name", REAL)
def test_the_answer_of_real_data_fits_a_screen(name: str) -> None:
    for moment in real(name).moments:
        text = one(moment)
        # With findings a screen ends with the last of them.
        answer = text.partition("\nWhere the time goes")[0] if moment.findings else text
        assert len(answer.splitlines()) <= 45


def test_the_first_lines_answer_what_to_do() -> None:
    lines = one(RICH).splitlines()
    first = next(
        place for place, line in enumerate(lines) if line.startswith("  Start with queueing: 480 ms [410, 560]")
    )
    table = lines.index("What to do  each change by itself; savings do not add")
    # The verdict takes three lines, after one for the inputs and an empty one.
    assert (first, table) == (5, 17)
    assert lines[table + 2] == "  1.  queueing          486 ms  480 ms [410, 560]      platform"


@pytest.mark.parametrize(
    ("width", "heads"),
    [
        (120, ["entry", "typical", "slowest", "sets p99", "excess", "95 %", "share", "owner"]),
        (100, ["entry", "typical", "slowest", "sets p99", "excess", "95 %", "share"]),
        (80, ["entry", "typical", "slowest", "sets p99", "excess", "95 %"]),
        (60, ["entry", "excess", "95 %", "sets p99"]),
    ],
)
def test_the_excess_keeps_its_interval_at_any_width(width: int, heads: list[str]) -> None:
    lines = one(RICH, width=width).splitlines()
    head = next(line for line in lines if line.startswith("  entry"))
    assert re.split(r" {2,}", head.strip()) == heads
    row = next(line for line in lines if line.strip().startswith("llm/queue.wait "))
    assert re.search(r"\+474 ms  \[427, 521\]", row)


def test_the_strip_is_as_wide_as_its_times() -> None:
    lines = one(RICH).splitlines()
    strip = lines.index("What the tail adds  each as wide as its time: component, stage, part") + 1
    components, stages = lines[strip], lines[strip + 1]
    # 624 ms of the model and 248 ms of the client among 1,040.74 ms in 78 columns: 46.8 and 65.4.
    assert [place - 2 for place, char in enumerate(components) if char == "|"][:3] == [0, 47, 65]
    assert components.startswith("  |llm 624 ms ")
    assert stages.startswith("  |queue 622 ms ")
    assert lines[strip + 3] == "  1.04 s more, 4.00 ms less: +1.04 s in all."


def test_without_shares_no_key_speaks_of_them() -> None:
    assert "over its share" not in one(FAILING)
    assert "over its share" in one(VOICE)


def test_what_is_empty_draws_nothing() -> None:
    text = one(VOICE)
    titles = ("Start with", "What to do", "Several at once", "What if", "What goes with", "For whom", "What changed")
    assert not [title for title in (*titles, "Whose overrun", "How fast", "Duty", "sets", "started:") if title in text]


def test_a_long_list_ends_with_how_many_are_left() -> None:
    many = replace(RICH, findings=RICH.findings * 2, slices=RICH.slices * 4)
    text = one(many)
    # Five of eight findings and six of eight slices are drawn.
    assert "  and 3 more; --json holds all" in text
    assert "  and 2 more; --json holds all" in text


def test_what_has_no_room_beside_a_heading_stands_below_it() -> None:
    assert "▒ typical  █ added in the tail  > over its share" in one(VOICE, width=60)


def test_percentiles_side_by_side_keep_their_heads_and_intervals() -> None:
    lines = one(
        replace(FAILING, total=(*FAILING.total[:2], REFUSED), served=(*FAILING.served[:2], REFUSED))
    ).splitlines()
    head = next(place for place, line in enumerate(lines) if "over all" in line)
    assert lines[head].split("  ")[-1] == "95 % interval"
    assert [" ".join(line.split()) for line in lines[head + 1 : head + 5]] == [
        "p50 460 ms 441 ms to 477 ms 430 ms 421 ms to 440 ms",
        "p95 never 1.90 s 1.62 s to 2.21 s",
        "p99 refused refused",
        "p99 needs 999 interactions, there are 640",
    ]


def test_an_exceeded_share_is_marked_without_colour() -> None:
    lines = one(VOICE).splitlines()
    assert next(line for line in lines if "llm/queue.wait " in line).endswith("> 50.0 ms")
    assert next(line for line in lines if "vad/hold " in line).endswith("  200 ms")


def test_a_moment_without_interactions_has_no_account() -> None:
    text = one(EMPTY)
    assert "Where the time goes" not in text
    assert "Distribution" not in text


def test_a_report_without_moments_says_so() -> None:
    assert "No moment was found" in as_text(replace(SAMPLE, moments=(), loads=()), width=80)


@given(names)
@example("".join(ATTACKS))
@settings(max_examples=60, deadline=None)
def test_no_name_steers_the_terminal(name: str) -> None:
    for encoding in ("utf-8", "ascii"):
        text = as_text(hostile_report(name), width=80, encoding=encoding)
        assert not {unicodedata.category(char) for char in text.replace("\n", "")} & HARMFUL
        assert max(cell_len(line) for line in text.splitlines()) <= 80


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("llm/queue.wait", "llm/queue.wait"),
        ("\x1b[2J", "\\x1b[2J"),
        ("a\nb", "a\\x0ab"),
        ("\u202eabc", "\\u202eabc"),
        ("\U000e0041tag", "\\U000e0041tag"),
        ("caf\u00e9 \u6f22", "caf\u00e9 \u6f22"),
        ("\ud800", "\\ud800"),
    ],
)
def test_acting_characters_are_shown_as_codes(text: str, shown: str) -> None:
    assert visible(text) == shown


def test_whether_a_load_counts_stands_before_any_of_its_numbers() -> None:
    text = as_text(replace(SAMPLE, moments=(), loads=LOADS[:1]), width=80)
    assert text.index("INVALID") < text.index("1 % of the requests were sent") < text.index("9,464 requests")
    assert text.index("9,464 requests") < text.index("29.0 s to 35.9 s")
    # What the tool claims is named as such, beside what can be said.
    assert text.index("what the tool claims") < text.index("5.49 s")
    assert "No moment was found" not in text


def test_stalls_and_silences_are_told_from_when_to_when() -> None:
    text = " ".join(as_text(replace(SAMPLE, moments=(), loads=LOADS[1:2]), width=80).split())
    assert "The sender stood still once, counted from the start: 9.00 s to 9.03 s (1 due)" in text
    assert "The server was silent 4 times, counted from the start: 9.00 s to 10.0 s (40 due)," in text
    assert "29.0 s to 30.0 s (40 due), and 1 more" in text


def test_a_stall_without_a_start_or_an_end_is_told_as_it_stands() -> None:
    load = replace(LOADS[0], sender_stalls=(Stall(from_ns=7 * 10**9, to_ns=None, due=2),))
    assert "The sender stood still once: 7.00 s to the end (2 due)" in as_text(replace(SAMPLE, loads=(load,)), width=80)


def test_a_moment_under_an_invalid_load_shows_bounds_and_no_percentile() -> None:
    text = as_text(replace(SAMPLE, moments=(INVALID_LOAD,), loads=()), width=80)
    assert "Not decided (p99 within 5.00 s): its load was INVALID." in text
    assert text.count("refused  its load was INVALID; it is 29.0 s to 35.9 s") == 3
    assert "Where the time goes" not in text
