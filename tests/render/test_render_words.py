from dataclasses import replace
from math import inf

import pytest
from sample import DOCUMENT, EMPTY, RICH, VOICE

from outlay.render import words
from outlay.report import ModelGap, Percentile, Report, Segment, Source, Verdict

MS = 10**6


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (0, "0 %"),
        (1, "100 %"),
        (0.932, "93.2 %"),
        # Rounding must not turn nearly all into all, nor a few into none.
        (0.9997, "99.97 %"),
        (0.99999, "99.999 %"),
        (0.9999999, "> 99.999 %"),
        (0.0004, "0.04 %"),
        (1e-9, "< 0.001 %"),
    ],
)
def test_percent(share: float, text: str) -> None:
    assert words.percent(share) == text


@pytest.mark.parametrize(
    ("percentile", "value", "detail"),
    [
        (Percentile(level=99, value_ns=1.5e9, interval_ns=(1.3e9, 1.8e9)), "1.50 s", "1.30 s to 1.80 s"),
        (Percentile(level=99, value_ns=1.5e9, interval_ns=(1.3e9, None)), "1.50 s", "1.30 s or more"),
        (Percentile(level=99, value_ns=inf, interval_ns=(1.3e9, inf)), "never", "1.30 s to never"),
        (Percentile(level=99, value_ns=inf, interval_ns=(inf, inf)), "never", ""),
        (Percentile(level=99, value_ns=None, why="p99 needs 299, has 74"), "refused", "needs 299, has 74"),
        (Percentile(level=99, value_ns=0.0), "0", ""),
    ],
)
def test_percentiles(percentile: Percentile, value: str, detail: str) -> None:
    assert (words.percentile_value(percentile), words.percentile_detail(percentile)) == (value, detail)


@pytest.mark.parametrize(
    ("gap", "text"),
    [
        (ModelGap(total_ns=1_200 * MS, low_ns=12 * MS, high_ns=12 * MS), "model 12.0 ms of 1.20 s (1.0 %)"),
        # 340 of 1,200 ms is 28.3 %.
        (
            ModelGap(total_ns=1_200 * MS, low_ns=12 * MS, high_ns=340 * MS),
            "model 12.0 ms to 340 ms of 1.20 s (1.0 % to 28.3 %)",
        ),
        (ModelGap(total_ns=0, low_ns=0, high_ns=0), "model 0 of 0"),
    ],
)
def test_model_gap(gap: ModelGap, text: str) -> None:
    assert words.model_gap(gap) == text


@pytest.mark.parametrize(
    ("error_ns", "ambiguous", "text"),
    [
        (0, False, ""),
        (11 * MS, False, "±11.0 ms"),
        (None, False, "± unknown"),
        (0, True, "maybe parallel"),
        (None, True, "± unknown, maybe parallel"),
    ],
)
def test_doubt(error_ns: int | None, ambiguous: bool, text: str) -> None:
    segment = Segment(entry="a/infer", start_ns=0, duration_ns=1, error_ns=error_ns, ambiguous=ambiguous)
    assert words.doubt(segment) == text


@pytest.mark.parametrize(
    ("more", "text"),
    [
        (None, "close"),
        (1, "close; 1 more interaction could decide"),
        (1_200, "close; 1,200 more interactions could decide"),
    ],
)
def test_verdict_reason(more: int | None, text: str) -> None:
    assert words.verdict_reason(Verdict(state="UNDECIDED", why="close", more=more)) == text


@pytest.mark.parametrize(
    ("started", "text"), [(1_240, "1,200 measured of 1,240 started (96.8 %)"), (1_200, "1,200 measured")]
)
def test_measured(started: int, text: str) -> None:
    assert words.measured(replace(VOICE, started=started)) == text


def test_measured_without_anything_started_states_no_coverage() -> None:
    assert words.measured(replace(EMPTY, started=0)) == "0 measured of 0 started"


def test_outcomes_come_in_the_order_of_the_vocabulary() -> None:
    moment = replace(VOICE, outcomes={"zzz": 1, "timeout": 2, "ok": 3, "error": 0})
    assert words.outcomes(moment) == (("ok", 3), ("timeout", 2), ("zzz", 1))


def test_many_inputs_are_counted() -> None:
    sources = tuple(Source(name=f"{place}.json", format="otlp", records=10, unit="spans") for place in range(30))
    report = Report(sources=sources, moments=())
    assert words.inputs(report) == "30 inputs (otlp), 300 spans"
    assert ([source.name for source in words.listed(report)], words.unlisted(report)) == (["0.json", "1.json"], 28)


def test_a_single_further_input_is_named() -> None:
    sources = tuple(Source(name=f"{place}", format=f"{place}", records=1, unit="spans") for place in range(3))
    report = Report(sources=sources, moments=())
    # Formats that differ stand beside each name instead.
    assert words.inputs(report) == "3 inputs, 3 spans"
    assert (words.listed(report), words.unlisted(report)) == (sources, 0)


@pytest.mark.parametrize(
    ("effective_n", "text"),
    [
        (410.0, "worth about 410 independent ones: slow ones come in bursts"),
        # 1,194 were served: nine tenths of them are 1,074.6.
        (1_074.0, "worth about 1,074 independent ones: slow ones come in bursts"),
        (1_075.0, ""),
        (None, ""),
    ],
)
def test_worth_is_told_where_interactions_depend_on_each_other(effective_n: float | None, text: str) -> None:
    assert words.worth(replace(VOICE, effective_n=effective_n)) == text


@pytest.mark.parametrize(("value_ns", "text"), [(412 * MS, "+412 ms"), (-3_100_000, "-3.10 ms"), (0, "0")])
def test_signed(value_ns: int, text: str) -> None:
    assert words.signed(value_ns) == text


@pytest.mark.parametrize(
    ("value_ms", "interval_ms", "text"),
    [
        (480, (410, 560), "480 ms [410, 560]"),
        (480, None, "480 ms"),
        (4, (0, 9), "4.00 ms [0, 9.00]"),
        (0, (-2, 3), "0 [-2.00 ms, 3.00 ms]"),
        # One unit for all would hide a factor of a thousand.
        (980, (940, 1_100), "980 ms [940 ms, 1.10 s]"),
        (1, (0.9, 1.1), "1.00 ms [900 \u00b5s, 1.10 ms]"),
        # What is always 0 needs no interval, and one without an end is none.
        (0, (0, 0), "0"),
        (480, (410, inf), "480 ms"),
    ],
)
def test_an_estimate_has_its_interval_in_the_same_unit(
    value_ms: float, interval_ms: tuple[float, float] | None, text: str
) -> None:
    interval_ns = None if interval_ms is None else (interval_ms[0] * MS, interval_ms[1] * MS)
    assert words.estimate(value_ms * MS, interval_ns) == text


def test_a_signed_estimate() -> None:
    assert words.estimate(20 * MS, (-10 * MS, 50 * MS), sign=True) == "+20.0 ms [-10.0, 50.0]"


@pytest.mark.parametrize(
    ("period_s", "text"), [(28_800, "8 h"), (900, "15 min"), (5_400, "90 min"), (90, "90.0 s"), (30, "30.0 s")]
)
def test_period(period_s: int, text: str) -> None:
    assert words.period(period_s * 10**9) == text


@pytest.mark.parametrize(
    ("coverage_ms", "text"),
    [
        ((812, None), "all that was started: 812 ms to no bound"),
        ((None, 900), "all that was started: no bound to 900 ms"),
        ((812, inf), "all that was started: 812 ms to never"),
        (None, ""),
    ],
)
def test_bounds_of_all_that_was_started(coverage_ms: tuple[float | None, float | None] | None, text: str) -> None:
    ends = coverage_ms and tuple(end_ms and end_ms * MS for end_ms in coverage_ms)
    assert words.coverage(Percentile(level=99, value_ns=MS, coverage_ns=ends)) == text  # type: ignore[arg-type]


def test_of_several_percentiles_the_highest_is_told() -> None:
    assert words.covered(RICH) == "p99 of all that was started: 1.18 s to no bound"
    assert words.covered(VOICE) == ""


def test_both_attributions_are_named_in_words() -> None:
    assert (words.fills(RICH), words.sets(RICH)) == ("slowest 1 %", "sets the p99")
    assert words.attributions(RICH).endswith("What sets the p99 is the mean of 56 around its rank.")


def test_a_refused_attribution_says_why_in_one_line() -> None:
    assert (words.fills(DOCUMENT), words.sets(DOCUMENT)) == ("tail", "")
    assert words.attributions(DOCUMENT) == ("What sets the p95 is not told: needs 5,000 interactions, there are 74.")
    assert words.attributions(VOICE) == ""
