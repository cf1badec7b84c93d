import json
from collections.abc import Iterator
from dataclasses import replace
from math import inf, nan
from typing import Any

import jsonschema
import pytest
from hostile import names
from hostile import report as hostile_report
from hypothesis import given, settings
from sample import EMPTY, FAILING, RICH, SAMPLE, UNBUDGETED, VOICE

from outlay.render.machine import to_dict, to_json
from outlay.report import Percentile, Report

NS = {"anyOf": [{"type": "integer"}, {"const": "inf"}]}
PAIR = {"type": "array", "items": NS, "minItems": 2, "maxItems": 2}


def table(required: dict[str, Any], **optional: Any) -> dict[str, Any]:
    return {"type": "object", "required": list(required), "properties": required | optional}


def listed(item: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": item}


TEXT, WHOLE, NUMBER = {"type": "string"}, {"type": "integer"}, {"type": "number"}
ENTRY = table({"entry": TEXT, "start_ns": WHOLE, "duration_ns": WHOLE}, error_ns=WHOLE)
ROW = table({"entry": TEXT, "typical_ns": WHOLE, "tail_ns": WHOLE, "excess_ns": WHOLE}, budget_ns=WHOLE, owner=TEXT)
RECOVERS = table({"interval_ns": PAIR}, p50_ns=NS, p95_ns=NS, p99_ns=NS, p99_interval_ns=PAIR)
FINDING = table({"term": TEXT, "entry": TEXT, "fix": TEXT, "change": listed(TEXT), "recovers": RECOVERS}, owner=TEXT)
TOTAL = table({}, p50_ns=NS, p95_ns=NS, p99_ns=NS, p99_interval_ns=PAIR)
CONTRACT = table(
    {
        "outlay": {"const": "report/1"},
        "sources": listed(table({"name": TEXT})),
        "moments": listed(
            table(
                {
                    "moment": TEXT,
                    "n": WHOLE,
                    "validity": TEXT,
                    "total": TOTAL,
                    "account": listed(ROW),
                    "findings": listed(FINDING),
                    "slowest": listed(table({"id": TEXT, "total_ns": WHOLE, "entries": listed(ENTRY)})),
                    "health": listed(table({"kind": TEXT, "count": WHOLE, "example": TEXT})),
                },
                coverage=NUMBER,
                verdict={"enum": ["PASS", "FAIL", "UNDECIDED"]},
            )
        ),
    }
)


def leaves(value: object) -> Iterator[object]:
    if isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            yield from leaves(part)
    else:
        yield value


def only(moment: Any) -> Any:
    return json.loads(to_json(Report(sources=(), moments=(moment,))))["moments"][0]


def test_json_keeps_the_contract() -> None:
    document = json.loads(to_json(SAMPLE))
    jsonschema.validate(document, CONTRACT)
    assert document == to_dict(SAMPLE)
    assert None not in list(leaves(document))


def test_every_sum_holds_in_the_file() -> None:
    for moment in json.loads(to_json(SAMPLE))["moments"]:
        for column in ("typical_ns", "tail_ns"):
            if column in moment:
                assert sum(row[column] for row in moment["account"]) == moment[column]
        if "total_ns" in moment.get("sets", {}):
            assert sum(row["sets_ns"] for row in moment["account"]) == moment["sets"]["total_ns"]
        for row in moment["account"]:
            assert row["excess_ns"] == row["tail_ns"] - row["typical_ns"]
        for slow in moment["slowest"]:
            assert sum(entry["duration_ns"] for entry in slow["entries"]) == slow["total_ns"]


def test_what_each_finding_recovers() -> None:
    first = only(RICH)["findings"][0]
    assert (first["term"], first["entry"], first["owner"]) == ("queueing", "llm/queue.wait", "platform")
    assert first["recovers"]["p99_ns"] == 480_000_000
    # Without a name of its own, the interval of the highest percentile.
    assert first["recovers"]["interval_ns"] == first["recovers"]["p99_interval_ns"] == [410_000_000, 560_000_000]
    assert first["recovers"]["p99_before_ns"] - first["recovers"]["p99_after_ns"] == first["recovers"]["p99_ns"]
    assert (first["change"], first["replayed"], first["of"], first["serial"]) == (["queueing=0"], 4_096, 12_400, 12)


def test_parts_sum_to_the_whole() -> None:
    moment = only(RICH)
    assert sum(moment["together"]["shares_ns"].values()) == moment["together"]["all_recovers"]["saved_ns"]
    shift = moment["shifts"][0]
    assert shift["version_ns"] + shift["shape_ns"] == shift["new_ns"] - shift["old_ns"]
    assert sum(each["share"] for each in moment["blame"]) == pytest.approx(1)


def test_what_has_no_bound_is_absent() -> None:
    total = only(RICH)["total"]
    assert total["p99_started"] == {"low_ns": 1_180_000_000}
    assert total["p95_started"] == {"low_ns": 984_000_000, "high_ns": 1_210_000_000}
    assert "p99_started" not in only(VOICE)["total"]


def test_what_nobody_knows_of_causes_is_absent() -> None:
    moment, plain = only(RICH), only(VOICE)
    assert "effect_ns" not in moment["drivers"][2]
    assert "owner" not in moment["blame"][2]
    assert moment["burn"][2] == {"owner": "network", "rates": {"1h": 0.4, "3d": 0.2, "6h": 0.31}}
    added = {"sets", "fine", "together", "what_ifs", "drivers", "slices", "shifts", "blame", "burn", "duty"}
    assert set(moment) - set(plain) == added
    assert plain["findings"] == []


def test_a_difference_of_two_times_that_never_come_is_absent() -> None:
    recovery = replace(RICH.what_ifs[0].recovers[2], before_ns=inf, after_ns=inf, saved_ns=nan, interval_ns=(nan, nan))
    what_if = replace(RICH.what_ifs[0], recovers=(recovery,))
    assert only(replace(RICH, what_ifs=(what_if,)))["what_ifs"][0]["recovers"] == {
        "p99_before_ns": "inf",
        "p99_after_ns": "inf",
    }


def test_unknown_is_absent() -> None:
    empty, unbudgeted = only(EMPTY), only(UNBUDGETED)
    # A moment without interactions has no typical one; one without a budget has no verdict.
    assert not {"typical_ns", "tail_ns", "on_time", "model_time", "served"} & set(empty)
    assert not {"verdict", "budget", "on_time", "effective_n"} & set(unbudgeted)
    assert "p99_ns" not in unbudgeted["total"]
    assert unbudgeted["total"]["p99_why"] == "p99 needs 299 interactions, there are 1"
    assert (empty["n"], empty["coverage"]) == (0, 0.0)


def test_nothing_started_has_no_coverage() -> None:
    assert "coverage" not in only(replace(EMPTY, started=0))


def test_zero_clock_error_is_known_and_an_unbounded_one_absent() -> None:
    entries = only(VOICE)["slowest"][1]["entries"]
    assert (entries[0]["error_ns"], "error_ns" in entries[1]) == (0, False)


def test_an_unknown_dimension_is_absent_from_the_key() -> None:
    assert only(VOICE)["cohorts"][2]["key"] == {"version": "2026-07-4"}


@pytest.mark.parametrize(
    ("value_ns", "interval_ns", "written"),
    [
        (inf, (2.4e9, inf), {"p99_ns": "inf", "p99_interval_ns": [2_400_000_000, "inf"]}),
        # No upper bound is the interval up to infinity.
        (1e9, (9e8, None), {"p99_ns": 1_000_000_000, "p99_interval_ns": [900_000_000, "inf"]}),
        # A value between two integers is rounded: nothing here is known below a nanosecond.
        (1.6, (1.2, 2.0), {"p99_ns": 2, "p99_interval_ns": [1, 2]}),
        (0.0, None, {"p99_ns": 0}),
        (None, None, {}),
    ],
)
def test_percentiles_are_whole_numbers_or_inf(value_ns: Any, interval_ns: Any, written: dict[str, Any]) -> None:
    percentile = Percentile(level=99, value_ns=value_ns, interval_ns=interval_ns)
    assert only(replace(FAILING, total=(percentile,)))["total"] == written


def test_a_level_between_whole_ones_keeps_its_name() -> None:
    total = (Percentile(level=99.9, value_ns=7.0),)
    assert only(replace(FAILING, total=total))["total"] == {"p99.9_ns": 7}


def test_equal_reports_give_equal_bytes() -> None:
    turned = replace(VOICE, outcomes=dict(reversed(VOICE.outcomes.items())))
    assert to_json(Report(sources=(), moments=(turned,))) == to_json(Report(sources=(), moments=(VOICE,)))


@given(names)
@settings(max_examples=50, deadline=None)
def test_names_come_back_as_they_were(name: str) -> None:
    moment = json.loads(to_json(hostile_report(name)))["moments"][0]
    assert (moment["moment"], moment["slowest"][0]["id"], moment["health"][0]["example"]) == (name, name, name)
