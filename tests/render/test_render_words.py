from dataclasses import replace
from math import inf

import pytest
from sample import EMPTY, VOICE

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
