"""Reports of the bundled real data, as `outlay explain` makes them."""

from functools import cache
from pathlib import Path

from outlay.cli.run import gather_paths
from outlay.explain import Question, build_report
from outlay.formats.spec import Spec, load_spec
from outlay.report import Report

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "tests" / "data"
BUDGET = ROOT / "examples" / "vllm-requests" / "outlay.yaml"

# What is read, and the budget it is held against.
REAL: dict[str, tuple[tuple[str, ...], Path | None]] = {
    "vllm": (tuple(map(str, sorted(DATA.glob("vllm-requests/*.jsonl")))), BUDGET),
    "skew": ((str(DATA / "traces-zipkin" / "skew.json"),), None),
    "genai": ((str(DATA / "traces-jaeger" / "genaiTestTrace.json"),), None),
    "har": ((str(DATA / "har"),), None),
    "langfuse": ((str(DATA / "traces-langfuse"),), None),
    "jaeger": ((str(DATA / "traces-jaeger"),), None),
}


@cache
def real(name: str) -> Report:
    """The report on one of REAL."""
    paths, budget = REAL[name]
    spec = load_spec(budget.read_bytes(), budget.name) if budget else Spec(moments=(), rules=())
    found = gather_paths(paths, Question(moments=spec.moments, only=None, by=(), where={}, slowest=5), spec.rules)
    return build_report(found.gathering, found.sources)
