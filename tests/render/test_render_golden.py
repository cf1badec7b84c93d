import json

import pytest
from record_golden import GOLDEN, OUTPUTS
from sample import SAMPLE

from outlay.report import MomentReport


@pytest.mark.parametrize("name", OUTPUTS)
def test_output_is_what_was_read_and_recorded(name: str) -> None:
    assert OUTPUTS[name]() == (GOLDEN / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("moment", SAMPLE.moments, ids=lambda moment: moment.moment)
def test_sample_keeps_the_laws_it_is_drawn_by(moment: MomentReport) -> None:
    assert sum(row.typical_ns for row in moment.account) == (moment.typical_ns or 0)
    assert sum(row.tail_ns for row in moment.account) == (moment.tail_ns or 0)
    assert sum(moment.outcomes.values()) == moment.n
    for gap, total_ns in ((moment.typical_gap, moment.typical_ns), (moment.tail_gap, moment.tail_ns)):
        assert gap is None or gap.total_ns == total_ns
    for slow in moment.slowest:
        assert sum(segment.duration_ns for segment in slow.segments) == slow.total_ns


def test_recorded_json_is_json() -> None:
    assert json.loads((GOLDEN / "report.json").read_text(encoding="utf-8"))["outlay"] == "report/1"
