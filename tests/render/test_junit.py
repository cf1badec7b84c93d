"""JUnit XML that any parser takes, whatever the data calls its moments and entries; and the gate's other outputs."""

import json
from dataclasses import replace
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from hostile import ATTACKS, names
from hypothesis import given

from outlay.accounts import of_columns
from outlay.budget import Budget
from outlay.compare import Comparison, compare
from outlay.explain.gate import REFUSED, Checked, Compared, Gate, Offender
from outlay.quantiles import FAIL, PASS, UNDECIDED
from outlay.render.gate import check_json, check_markdown, check_text, compare_markdown, compare_text
from outlay.render.junit import to_junit
from outlay.render.untrusted import visible
from outlay.report import Percentile

MS = 1_000_000
LATE = Percentile(level=99.0, value_ns=900.0 * MS, interval_ns=(850.0 * MS, None))


def checked(state: str | None, name: str = "voice-turn") -> Checked:
    """A moment in this state; what it is called, and what is to blame, come from the data."""
    return Checked(
        moment=name,
        state=state,
        why="12 of 300 over the limit",
        more=7 if state == UNDECIDED else None,
        n=300,
        budget=Budget(limit_ns=800 * MS, percentile=99),
        budget_state=state,
        percentile=LATE,
        offender=Offender(entry=f"{name}/infer", tail_ns=900 * MS, excess_ns=400 * MS, owner=name),
        degraded=name,
    )


def gate(name: str = "voice-turn") -> Gate:
    return Gate(sources=(), moments=tuple(checked(state, name) for state in (REFUSED, FAIL, UNDECIDED, PASS, None)))


def test_each_moment_is_a_case_in_its_state() -> None:
    root = ET.fromstring(to_junit(gate()))
    (suite,) = root
    counts = {"tests": "5", "failures": "1", "errors": "1", "skipped": "2"}
    assert root.attrib == suite.attrib == {"name": "outlay check", **counts}
    assert [[child.tag for child in case] for case in suite] == [
        ["error"],
        ["failure"],
        ["skipped"],
        ["system-out"],
        ["skipped"],
    ]
    failure, skipped = suite[1][0], suite[2][0]
    assert failure.get("message") == failure.text
    assert str(failure.text).startswith("p99 900 ms (850 ms or more), p99 within 800 ms; 12 of 300 over the limit")
    assert "voice-turn/infer (voice-turn) adds 400 ms in the tail" in str(failure.text)
    assert "7 more interactions could decide" in str(skipped.get("message"))


@pytest.mark.parametrize("name", [*ATTACKS, "\ud800", "\ufffe\uffff", "]]>", "\x00"])
def test_hostile_names_stay_text_in_xml(name: str) -> None:
    root = ET.fromstring(to_junit(gate(name)))
    told = {case.get("name") for case in root.iter("testcase")}
    assert len(told) == 1
    if visible(name) == name and not set(name) & {"\ufffe", "\uffff"}:
        assert told == {name}


@given(names)
def test_any_name_gives_xml_that_parses_and_holds_no_more_elements(name: str) -> None:
    root = ET.fromstring(to_junit(gate(name)))
    assert len(list(root.iter())) == 1 + 1 + 5 + 5


@given(names)
def test_no_name_steers_a_terminal_or_breaks_a_table(name: str) -> None:
    text = check_text(gate(name))
    assert text.count("\n") == 5
    assert visible(text.replace("\n", "")) == text.replace("\n", "")
    rows = [line for line in check_markdown(gate(name)).splitlines() if line.startswith("|")]
    assert [row.count("|") for row in rows] == [7] * 7
    assert "<script" not in "".join(rows)
    assert json.loads(check_json(gate("x")))["verdict"] == REFUSED


def comparison() -> Comparison:
    """Twice as long, all of it the model."""
    runs = [of_columns({"llm/infer": np.full(300, time * MS)}, start_ns=np.arange(300) * MS) for time in (1, 2)]
    return compare(runs[0], runs[1])


DOUBLED = comparison()


@given(names)
def test_a_comparison_of_any_name_stays_in_its_lines(name: str) -> None:
    assert DOUBLED.tail is not None
    entries = tuple(replace(each, entry=f"{name}/infer") for each in DOUBLED.tail.entries)
    renamed = replace(DOUBLED, tail=replace(DOUBLED.tail, entries=entries))
    made = (Compared(moment=name, comparison=renamed), Compared(moment=name, why=name))
    text = compare_text(made)
    assert visible(text.replace("\n", "")) == text.replace("\n", "")
    rows = [line for line in compare_markdown(made).splitlines() if line.startswith("|")]
    assert [row.count("|") for row in rows] == [6] * 4
