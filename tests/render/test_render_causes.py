from dataclasses import replace
from math import inf

import pytest
from sample import FINDINGS, MS, RICH, VOICE, recovery, replayed

from outlay.render import causes, words
from outlay.render.words import Name
from outlay.report import Failing, FailingPart, MomentReport, Recovery, WhatIf

NOT_FINE = replace(RICH, fine=())


def told(moment: MomentReport) -> str:
    return words.plain(causes.start(moment))


def never(after_ns: float) -> WhatIf:
    recovered = Recovery(level=99.0, before_ns=inf, after_ns=after_ns, saved_ns=0.0, interval_ns=(0.0, 0.0))
    return replace(FINDINGS[0].what_if, recovers=(recovered,))


def test_the_answer_is_one_sentence_after_the_other() -> None:
    assert told(RICH) == (
        "Start with queueing: 480 ms [410, 560] of your p99 of 1.39 s would come back if queueing took no time"
        " (owner: platform). To do: add capacity, shed early, shorten the longest jobs."
        " Already fine, do not start here: routing (3.46 ms), broker (0)."
    )


def test_what_may_give_back_nothing_says_so() -> None:
    moment = replace(NOT_FINE, findings=FINDINGS[2:3])
    # From -6 to 91 ms.
    assert told(moment).endswith("pin or change the path. It may give back nothing: the interval holds 0.")


def test_without_findings_there_is_no_answer() -> None:
    assert causes.start(VOICE) == ()
    assert causes.assumptions(VOICE) == ()


@pytest.mark.parametrize(
    ("after_ns", "says"),
    [
        (inf, "Start with queueing: p99 stays never if "),
        (1_200 * MS, "Start with queueing: p99 from never to 1.20 s if "),
    ],
)
def test_a_percentile_that_never_comes_has_no_difference(after_ns: float, says: str) -> None:
    moment = replace(NOT_FINE, findings=(replace(FINDINGS[0], what_if=never(after_ns)),))
    assert told(moment).startswith(says)


def test_the_highest_percentile_that_ends_is_the_one_that_is_told() -> None:
    half = recovery(50.0, 600 * MS, 20, 10, 30)
    assert causes.best(replace(never(inf), recovers=(half, *never(inf).recovers))) is half


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (("queueing=0",), "queueing took no time"),
        (("llm/queue.wait=40ms",), "llm/queue.wait took at most 40.0 ms"),
        (("model=p50",), "model never took longer than the median"),
        (("tts/infer=p95",), "tts/infer never took longer than the p95"),
        (("llm/infer=x0.5",), "llm/infer took 0.5 times as long"),
        (("llm/infer*=version:1.4",), "llm/infer* took as long as at version=1.4"),
        (("uplink=rtt:76.5ms",), "uplink had a round trip of 76.5 ms"),
        (("start=warm",), "all starts were warm"),
        (("uplink.connect=0", "uplink.tls=0"), "uplink.connect, uplink.tls took no time"),
        (("start=warm", "broker=0"), "all starts were warm and broker took no time"),
        # Only a table of round trips could say what this is.
        (("uplink=rtt:lon",), "uplink=rtt:lon"),
    ],
)
def test_a_change_in_words(changes: tuple[str, ...], says: str) -> None:
    assert words.plain(causes.condition(changes)) == says


def test_entries_are_names_and_terms_are_words() -> None:
    assert [type(piece) for piece in causes.condition(("broker=0",))] == [str, str, str]
    assert causes.condition(("llm/infer=0",))[0] == Name("llm/infer")
    assert isinstance(causes.condition(("llm/infer=0",))[0], Name)


def test_how_many_were_replayed() -> None:
    some = replayed("a/infer=0", saved=((0, 0, 0),) * 3)
    assert next(causes.replayed(some)) == ("Replayed: 4,096 of 12,400 interactions, weighted.",)
    assert next(causes.replayed(replace(some, replayed=12_400))) == ("Replayed: all 12,400 interactions.",)


def test_an_assumption_of_several_findings_is_said_once() -> None:
    assert len(causes.assumptions(RICH)) == 2


@pytest.mark.parametrize("draw", [causes.changed, causes.for_whom, causes.whose])
def test_what_is_not_known_has_no_section(draw: object) -> None:
    assert draw(VOICE) == ()  # type: ignore[operator]


def lines(moment: MomentReport) -> dict[str, list[str]]:
    sections = (*causes.changed(moment), *causes.for_whom(moment), *causes.whose(moment))
    return {section.title: [words.plain(line) for line in section.lines] for section in sections}


def cells(moment: MomentReport, title: str) -> list[list[str]]:
    sections = (*causes.changed(moment), *causes.for_whom(moment), *causes.whose(moment))
    found = next(section for section in sections if section.title == title)
    return [[words.plain(cell) for cell in row] for row in found.rows]


def test_savings_together() -> None:
    assert lines(RICH)["Several at once"] == [
        "The best two, queueing and geography: 530 ms [470, 601] of the p99.",
        "All 4: 560 ms [500, 640] of the p99; split fairly: queueing 440 ms, geography 70.0 ms, variability 40.0 ms,"
        " cold start 10.0 ms.",
    ]
    assert RICH.together is not None
    two = replace(RICH.together, shares_ns={"model": 2.0 * MS, "broker": 1.0 * MS})
    told = lines(replace(RICH, together=two))["Several at once"]
    assert told == ["Both: 560 ms [500, 640] of the p99; split fairly: model 2.00 ms, broker 1.00 ms."]


def test_a_what_if_goes_from_before_to_after() -> None:
    assert cells(RICH, "What if")[0] == ["p50", "612 ms", "600 ms", "12.0 ms [9.00, 15.0]"]


def test_slow_groups() -> None:
    slow, refused = lines(RICH)["For whom it is slow"]
    assert slow == (
        "site=fra: 18.0 % of interactions, 61.0 % of the slow ones; p99 +210 ms [150, 280] against others with the same"
        " shapes, which 96.0 % of them have."
    )
    assert refused.endswith("4.0 % of the slow ones; of their shapes the others have only 31 %.")
    whole = lines(replace(RICH, slices=(replace(RICH.slices[0], compared=1.0),)))
    assert whole["For whom it is slow"][0].endswith("against others with the same shapes.")


def test_a_new_version_and_other_shapes_sum_to_the_change() -> None:
    assert lines(RICH)["What changed"] == [
        "version 1.5 after 1.4: p99 1.12 s to 1.24 s, +120 ms = version +20.0 ms [-10.0, 50.0] + shapes +100 ms"
        " [80.0, 121]. Both saw the shapes of 94.0 % of the new ones."
    ]


def test_what_explains_the_time_and_what_does_not() -> None:
    assert cells(RICH, "What goes with the time") == [
        ["queue depth", "yes", "0.91 [0.88, 0.93]", "+620 ms [510, 740]"],
        ["rtt_spread_ns", "no", "0.22 [0.15, 0.29]", "+31.0 ms [-4.00, 66.0]"],
        ["input_tokens", "no", "0.05 [0.01, 0.09]", ""],
    ]
    assert lines(RICH)["What goes with the time"] == ["Counted from the interactions themselves: queue depth."]


def test_effects_on_several_percentiles_say_on_which() -> None:
    queue, spread, _ = RICH.drivers
    table = cells(replace(RICH, drivers=(queue, replace(spread, level=95.0))), "What goes with the time")
    assert [row[3] for row in table] == ["p99 +620 ms [510, 740]", "p95 +31.0 ms [-4.00, 66.0]"]


def test_blame_ends_with_what_it_sums_to() -> None:
    table = cells(RICH, "Whose overrun it is")
    assert table[1] == ["network", "9.00 s", "18.0 %", "client/uplink.excess 6.00 s, client/uplink.tls 3.00 s"]
    # 38 + 9 + 3 s
    assert [row[:2] for row in table[2:]] == [["nobody", "3.00 s"], ["in all", "50.0 s"]]


def test_burn_rates_by_window() -> None:
    assert cells(RICH, "How fast the allowance is used up") == [
        ["everybody", "too few", "15.2", "7.31", "1.4", "page"],
        ["platform", "too few", "12.6", "6.02", "1.1", "ticket"],
        ["network", "too few", "0.4", "0.31", "0.2", ""],
    ]


@pytest.mark.parametrize(
    ("over", "worst_ns", "says"),
    [
        (3, 2.0e9, "Of 42 whole periods of 8 h, 3 held an interaction over the limit; the longest of all took 2.00 s."),
        (
            0,
            2.0e9,
            "Of 42 whole periods of 8 h, none held an interaction over the limit; the longest of all took 2.00 s.",
        ),
        (1, inf, "Of 42 whole periods of 8 h, 1 held an interaction over the limit; one never ended."),
    ],
)
def test_duty_periods(over: int, worst_ns: float, says: str) -> None:
    assert RICH.duty is not None
    duty = replace(RICH.duty, over=over, worst_ns=worst_ns, misses=None)
    assert lines(replace(RICH, duty=duty))["Duty periods"] == [says]
    told = lines(replace(RICH, duty=replace(duty, misses="at 15 a second, a p99 miss comes every 6.67 s")))
    assert told["Duty periods"] == [f"{says} And at 15 a second, a p99 miss comes every 6.67 s."]


def test_what_failed_is_told_with_its_parts() -> None:
    part = FailingPart(dimension="site", value="fra", n=160, failed_share=0.1, of_failures=0.8)
    failed = Failing(share=0.02, outcomes={"error": 4, "timeout": 16}, from_level=99.0, parts=(part,))
    assert lines(replace(RICH, failing=failed))["What never came"] == [
        "2.0 % got no result (timeout 16, error 4): the p99 never comes.",
        "site=fra: 10.0 % of 160 got none, 80.0 % of all that did not.",
    ]
    assert lines(replace(RICH, failing=replace(failed, from_level=None, parts=())))["What never came"] == [
        "2.0 % got no result (timeout 16, error 4)."
    ]
