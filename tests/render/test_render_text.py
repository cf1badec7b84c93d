import re
import unicodedata
from dataclasses import replace

import pytest
from hostile import ATTACKS, names
from hostile import report as hostile_report
from hypothesis import example, given, settings
from record_golden import as_text
from rich.cells import cell_len
from sample import DOCUMENT, EMPTY, FAILING, SAMPLE, UNBUDGETED, VOICE

from outlay.render.untrusted import visible
from outlay.report import MomentReport, Report

HARMFUL = {"Cc", "Cf", "Cs", "Zl", "Zp"}
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
        (VOICE, "1,200 measured of 1,240 started (96.8 %), worth 410 independent ones"),
        (DOCUMENT, "212 more interactions could"),
        (DOCUMENT, "p99  refused  p99 needs 299 interactions, there are 74"),
        (DOCUMENT, "model 820 ms to 5.33 s of 5.47 s (15.0 % to 97.5 %)"),
        # 50 of 640 failed, so the slowest 1 % never came; those served had a p99.
        (FAILING, "p99     never                             2.70 s  2.38 s to 3.40 s"),
        (UNBUDGETED, "No row stands out"),
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
    # the other nineteen the ten largest stay, so fourteen fold: 176.52 ms typical and 255.26 ms in the tail.
    text = one(VOICE)
    assert durations(text, "14 smaller rows") == ["177 ms", "255 ms", "+78.7 ms"]
    assert durations(text, "total") == ["621 ms", "1.66 s", "+1.04 s"]


def test_an_exceeded_share_is_marked_without_colour() -> None:
    lines = one(VOICE).splitlines()
    assert next(line for line in lines if "llm/queue.wait " in line).endswith("> 50.0 ms")
    assert next(line for line in lines if "vad/hold " in line).endswith("  200 ms")


def test_a_moment_without_interactions_has_no_account() -> None:
    text = one(EMPTY)
    assert "Where the time goes" not in text
    assert "Distribution" not in text


def test_a_report_without_moments_says_so() -> None:
    assert "No moment was found" in as_text(replace(SAMPLE, moments=()), width=80)


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
