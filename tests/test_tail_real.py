"""The tail of real recordings: what is known to be slow there is what the report names."""

import json

import pytest

from outlay.budget import Budget, Moment
from outlay.cli.run import gather_paths
from outlay.explain import Question, build_report
from outlay.interaction import Interaction
from outlay.report import MomentReport
from outlay.units import NS_PER_S, from_s
from worlds import DATA, explained, simple

FIRST_TOKEN = Moment(name="llm-request", end="first_token", budget=Budget(limit_ns=5 * NS_PER_S, percentile=95))


def of_files(*names: str, moment: Moment | None = None) -> MomentReport:
    question = Question(moments=() if moment is None else (moment,))
    found = gather_paths([str(DATA / name) for name in names], question, ())
    (report,) = build_report(found.gathering, found.sources).moments
    return report


@pytest.mark.parametrize(("gpu", "depth"), [("RTX4090", 0.99), ("RTXPRO6000", 0.95)])
def test_queue_depth_explains_the_first_token_and_utilisation_does_not(gpu: str, depth: float) -> None:
    """98 % of the time to the first token is queue wait: how deep the queue was goes with it, how busy the GPU not."""
    report = of_files(f"vllm-requests/{gpu}__Llama-3.1-8B__requests.jsonl", moment=FIRST_TOKEN)
    assert report.findings[0].term == "queueing"
    assert report.findings[0].entry == "llm/queue.wait"
    assert any(line.startswith("queue on arrival") for line in report.findings[0].evidence)
    first, *others = report.drivers
    assert (first.name, first.counted, first.explains) == ("queue_depth", True, True)
    assert first.rank_correlation == pytest.approx(depth, abs=0.012)
    assert {each.name for each in others} >= {"running", "input_tokens"}
    assert not any(each.explains for each in others)


def test_errors_that_make_the_tail_are_named() -> None:
    """Of five hosted APIs, one answers 130 of 150 requests with 429: no percentile from the p95 on ever comes."""
    names = sorted(str(path.relative_to(DATA)) for path in (DATA / "llmperf-leaderboard/individual").glob("*.json"))
    report = of_files(*names)
    told = report.failing
    assert told is not None
    assert told.outcomes["refused"] == 130
    assert told.from_level == 95.0
    worst = told.parts[0]
    assert (worst.dimension, worst.value) == ("source", "lepton_13b.json")
    assert worst.failed_share == pytest.approx(130 / 150, abs=0.01)


def serverless() -> list[Interaction]:
    """One function called after pauses: cold or warm by the colour it was published in, half a minute apart."""
    points = json.loads((DATA / "cold-start/faas_coldstart_aws_scatter.json").read_text())["points"]
    return [
        simple(
            f"call{place}",
            from_s(took),
            start_ns=place * 30 * NS_PER_S,
            shares={"function/infer": from_s(took)},
            dimensions={"start": "cold" if "blue" in colour else "warm"},
        )
        for place, (_, took, colour) in enumerate(points)
    ]


def test_cold_starts_of_a_function_are_its_tail() -> None:
    report = explained(serverless())
    told = next(each for each in report.findings if each.term == "cold start")
    assert report.findings[0] is told
    assert told.what_if.changes == ("start=warm",)
    last = told.what_if.recovers[-1]
    assert last.after_ns < 0.5 * last.before_ns
    assert "100 % of the slowest" in told.evidence[0]
