"""A stored baseline reads back as it was, and a file that is not one, or contradicts itself, is refused."""

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlay.accounts import OUTCOME_NAMES, of_columns
from outlay.baseline import Baseline, MomentBaseline
from outlay.formats.baseline import HEAD, read_baseline, recognises, write_baseline
from outlay.formats.codec import FormatError
from outlay.sketch import Sketch

# Two moments: one of three that were served in 5, 12 and 20 ns, the last row standing for 4; one that only failed.
STORED = b"""{"outlay":"baseline/1","moments":[
{"moment":"chat","started":9,"outcomes":{"ok":6,"timeout":1},
"sketch":{"outlay":"sketch/1","scale":6,"limits_ns":[10],"over":[6],"failed":1,"sum_ns":97,"min_ns":5,"max_ns":20,
"zero_count":0,"buckets":[[148,1],[229,1],[276,4]]},
"rows":[{"start_ns":1,"entries":{"llm/queue.wait":2,"llm/infer":3}},{"start_ns":2,"entries":{"llm/infer":12}},
{"start_ns":3,"entries":{"llm/infer":20},"weight":4.0},{"start_ns":4,"outcome":"timeout"}]},
{"moment":"voice-turn","started":1,"outcomes":{"error":1},
"sketch":{"outlay":"sketch/1","scale":6,"limits_ns":[],"over":[],"failed":1,"sum_ns":0,"min_ns":null,"max_ns":null,
"zero_count":0,"buckets":[]},"rows":[{"start_ns":-5,"outcome":"error"}]}]}"""


def test_a_file_says_what_was_stored() -> None:
    baseline = read_baseline(STORED)
    assert list(baseline) == ["chat", "voice-turn"]
    chat = baseline["chat"]
    assert (chat.started, chat.outcomes, chat.limits_ns) == (9, {"ok": 6, "timeout": 1}, (10,))
    assert (chat.sketch.count, chat.sketch.over(10), chat.rows.count) == (7, 6, 7.0)
    assert chat.rows.total_ns.tolist() == [5, 12, 20, 0]
    assert chat.rows.entry_ns("llm/queue.wait").tolist() == [2, 0, 0, 0]
    assert chat.rows.served.tolist() == [True, True, True, False]
    assert [OUTCOME_NAMES[code] for code in baseline["voice-turn"].rows.outcomes] == ["error"]


def test_what_is_read_is_written_again_byte_for_byte() -> None:
    once = write_baseline(read_baseline(STORED))
    assert json.loads(once) == json.loads(STORED)
    assert write_baseline(read_baseline(once)) == once


@given(st.lists(st.tuples(st.integers(0, 2**40), st.integers(0, 2**40)), min_size=1, max_size=30))
def test_whatever_is_written_reads_back(durations: list[tuple[int, int]]) -> None:
    n = len(durations)
    model, queue = np.array(durations, dtype=np.int64).T
    rows = of_columns({"a/infer": model, "b/queue": queue}, start_ns=np.arange(n))
    sketch = Sketch()
    sketch.add_many(rows.total_ns)
    stored: Baseline = {"m": MomentBaseline(moment="m", started=n, outcomes={"ok": n}, sketch=sketch, rows=rows)}
    back = read_baseline(write_baseline(stored))["m"]
    assert back.sketch == sketch
    assert back.rows.total_ns.tolist() == rows.total_ns.tolist()
    assert [back.rows.entry_ns(name).tolist() for name in rows.entries] == [
        rows.entry_ns(name).tolist() for name in rows.entries
    ]


def changed(change: Callable[[Any], object]) -> bytes:
    """The file with something done to it."""
    whole = json.loads(STORED)
    change(whole)
    return json.dumps(whole).encode()


def chat(whole: Any) -> Any:
    return whole["moments"][0]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda whole: whole.update(outlay="baseline/2"), "version 'baseline/2'; this program reads 'baseline/1'"),
        (lambda whole: whole["moments"].append(whole["moments"][0]), "holds a moment twice"),
        (lambda whole: chat(whole).update(started=6), "contradicts itself: 6 started, 7 measured"),
        (
            lambda whole: chat(whole)["outcomes"].update(ok=5),
            "contradicts itself: 9 started, 6 measured, 7 in the sketch",
        ),
        (lambda whole: chat(whole)["rows"].pop(), "7 in the sketch, 6 in the rows"),
        (lambda whole: chat(whole)["sketch"].update(min_ns=6000), "the sketch of 'chat'"),
        (lambda whole: chat(whole)["rows"][3].update(entries={"llm/infer": 1}), "failed and has entries"),
        (lambda whole: chat(whole)["rows"][0].update(entries={"nonsense": 5}), "'nonsense' is not an entry"),
        (lambda whole: chat(whole)["rows"][0].update(entries={"llm/infer": -5}), r"moments\[0\].rows\[0\].entries"),
        (
            lambda whole: chat(whole)["rows"][0].update(entries={"a/infer": 2**62, "b/infer": 2**62}),
            "more than 63 bits",
        ),
        (lambda whole: chat(whole)["rows"][0].update(weight=0), r"rows\[0\].weight"),
        (lambda whole: chat(whole)["rows"][0].update(outcome="fine"), "Invalid enum value 'fine'"),
        (lambda whole: chat(whole)["rows"][0].update(note="?"), "unknown field `note`"),
        (lambda whole: whole.pop("moments"), "missing required field `moments`"),
    ],
)
def test_a_file_that_is_wrong_is_refused_with_the_place(change: Callable[[Any], object], says: str) -> None:
    with pytest.raises(FormatError, match=says):
        read_baseline(changed(change))


@pytest.mark.parametrize("end", range(0, len(STORED), 7))
def test_a_file_that_breaks_off_is_refused(end: int) -> None:
    with pytest.raises(FormatError, match="not a baseline"):
        read_baseline(STORED[:end])


@given(st.binary(max_size=200))
def test_no_bytes_do_anything_but_be_refused(content: bytes) -> None:
    with pytest.raises(FormatError):
        read_baseline(content)


@pytest.mark.parametrize(
    ("head", "answer"),
    [
        (STORED[:HEAD], True),
        (b'\n{ "outlay" : "baseline/7"', True),
        (b'{"outlay":"interaction/1"}', False),
        (b'{"moments":[],"outlay":"baseline/1"}', False),
        (b"", False),
    ],
)
def test_a_baseline_is_known_by_how_it_begins(head: bytes, answer: bool) -> None:
    assert recognises(head) is answer
