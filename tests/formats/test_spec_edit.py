"""A budget put into a text: only what changes is touched, and what comes out says what was meant."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outlay.budget import Budget, Share
from outlay.formats.spec import SpecError, load_spec
from outlay.formats.spec_edit import duration, new_spec, with_budget
from outlay.units import NS_PER_MS, parse_duration

BUDGET = Budget(
    limit_ns=900 * NS_PER_MS,
    percentile=95,
    shares=(
        Share(entry="llm/*", limit_ns=250_500_000),
        Share(entry="*/queue*", limit_ns=100 * NS_PER_MS),
        Share(entry="tts/infer", limit_ns=40 * NS_PER_MS),
        Share(entry="asr/*", limit_ns=None, owner="voice"),
    ),
)

COMMENTED = """\
# ours
moments:
  chat:
    within: 800ms   # the limit
    percentile: 95
    stages:
      llm/*:
        owner: model   # them
      "*/queue*": {owner: platform, share: 90ms}   # waits
      # the last

  other: {}   # no budget
"""

BESIDE = """\
# ours
moments:
  chat:
    within: 900ms   # the limit
    percentile: 95
    stages:
      llm/*:
        owner: model   # them
        share: 250.5ms
      "*/queue*": {owner: platform, share: 100ms}   # waits
      tts/infer: {share: 40ms}
      # the last

  other: {}   # no budget
"""


def test_only_what_changes_is_touched() -> None:
    assert with_budget(COMMENTED, "outlay.yaml", "chat", BUDGET) == BESIDE


def test_a_text_that_says_it_all_stays() -> None:
    assert with_budget(BESIDE, "outlay.yaml", "chat", BUDGET) == BESIDE


STAGES = '"*/queue*": {share: 100ms}, tts/infer: {share: 40ms}'
LIMIT = "    within: 900ms\n    percentile: 95\n"
LINES = """\
    stages:
      llm/*: {share: 250.5ms}
      "*/queue*": {share: 100ms}
      tts/infer: {share: 40ms}
"""
CHAIN = "    chain:\n      - a\n      - {mark: b, as: llm/infer} # x\n"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param(
            "moments: {chat: {}, other: {}}",
            f"moments: {{chat: {{within: 900ms, percentile: 95, stages: {{llm/*: {{share: 250.5ms}}, {STAGES}}}}}, "
            "other: {}}",
            id="in braces",
        ),
        pytest.param(
            "moments:\n  chat: {within: 1s, percentile: 95, stages: {llm/*: {owner: x}}}\n",
            "moments:\n  chat: {within: 900ms, percentile: 95, stages: {llm/*: {owner: x, share: 250.5ms}, "
            f"{STAGES}}}}}\n",
            id="half in braces",
        ),
        pytest.param(
            f"moments:\n  chat:\n{LIMIT}{CHAIN}\nmap: []",
            f"moments:\n  chat:\n{LIMIT}{CHAIN}{LINES}\nmap: []",
            id="behind a list",
        ),
        pytest.param(
            "moments:\n  chat:\n    from: a",
            f"moments:\n  chat:\n    from: a\n{LIMIT}{LINES}".rstrip("\n"),
            id="at the end of the file",
        ),
    ],
)
def test_keys_are_added_as_their_neighbours_are_written(before: str, after: str) -> None:
    assert with_budget(before, "outlay.yaml", "chat", BUDGET) == after


def test_a_file_from_nothing() -> None:
    assert new_spec("chat", BUDGET) == (
        "moments:\n  chat:\n    within: 900ms\n    percentile: 95\n    stages:\n      llm/*: {share: 250.5ms}\n"
        '      "*/queue*": {share: 100ms}\n      tts/infer: {share: 40ms}\n'
    )


def test_a_moment_that_is_not_there_is_refused() -> None:
    with pytest.raises(ValueError, match=r"outlay.yaml: has no moment voice"):
        with_budget("moments: {chat: {}}", "outlay.yaml", "voice", BUDGET)


def test_shares_that_the_text_has_beside_leave_no_room() -> None:
    text = "moments: {chat: {within: 1s, stages: {vad/hold: {share: 800ms}}}}"
    with pytest.raises(SpecError, match=r"the shares exceed within \(900ms\) by 290 ms"):
        with_budget(text, "outlay.yaml", "chat", BUDGET)


@pytest.mark.parametrize(
    ("value_ns", "text"),
    [(1, "0.000001ms"), (157_300_000, "157.3ms"), (9 * 10**9, "9s"), (1_500_000_001, "1.500000001s")],
)
def test_durations_are_short_and_exact(value_ns: int, text: str) -> None:
    assert duration(value_ns) == text


@given(st.integers(0, 10**15))
def test_durations_read_back_as_they_were(value_ns: int) -> None:
    assert parse_duration(duration(value_ns)) == value_ns


NAMES = st.text(st.characters(exclude_categories=["C", "Z"], exclude_characters="*?[]{}/"), min_size=1, max_size=8)


@settings(max_examples=60, deadline=None)
@given(
    entries=st.lists(st.tuples(NAMES, st.sampled_from(["infer", "queue*", "unattributed*"])), max_size=5, unique=True),
    limits=st.lists(st.integers(1, 10**9), min_size=5, max_size=5),
    percentile=st.sampled_from([50.0, 99.0, 99.9]),
)
def test_a_new_file_says_the_budget_whatever_its_names(
    entries: list[tuple[str, str]], limits: list[int], percentile: float
) -> None:
    shares = tuple(
        Share(entry=f"{component}/{stage}", limit_ns=limit)
        for (component, stage), limit in zip(entries, limits, strict=False)
    )
    budget = Budget(limit_ns=5 * 10**9, percentile=percentile, shares=shares)
    (moment,) = load_spec(new_spec("chat", budget), "outlay.yaml").moments
    assert moment.budget == budget
