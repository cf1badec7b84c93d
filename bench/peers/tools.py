"""The load tools: how each is started, and where its own report says what.

Every tool runs as it comes: its own number of workers, no warm-up. Only what a run needs is set: the load, a local
tokenizer where one is asked for, and no network.
"""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from outlay.formats.log import parse_lines
from outlay.interaction import Interaction
from outlay.units import MAX_NS, from_ms, from_s, to_ms
from peers.figures import Figures, Said, Span, Spread, spread

INPUT_TOKENS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What to send: `rate` a second for `duration_s`, or else `requests` in all over `streams` in a closed loop."""

    url: str
    model: str
    output_tokens: int
    rate: int | None = None
    duration_s: int = 0
    streams: int = 1
    requests: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where things are: the peers' environments, their tokenizer, and an empty folder for this run."""

    peers: Path
    tokenizer: Path
    folder: Path


Command = tuple[list[str], Mapping[str, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A tool. `program` is below the folder of the peers; None: it is this project."""

    name: str
    program: str | None
    command: Callable[[Load, Place], Command]
    read: Callable[[Path], Said]
    environment: Mapping[str, str] = field(default_factory=dict)

    def installed(self, peers: Path) -> bool:
        """Whether it can be run."""
        return self.program is None or (peers / self.program).exists()

    def version(self, peers: Path) -> str:
        """Its version, as its own Python environment knows it."""
        python = sys.executable if self.program is None else str((peers / self.program).parent / "python")
        text = f"import importlib.metadata as m; print(m.version({self.name!r}))"
        command = [python, "-m", "outlay", "--version"] if self.program is None else [python, "-c", text]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()[-1]


def _outlay(load: Load, place: Place) -> Command:
    if load.rate:
        shape = ["--rate", str(load.rate), "--duration", f"{load.duration_s}s", "--arrivals", "constant"]
    else:
        shape = ["--concurrency", str(load.streams), "--requests", str(load.requests)]
    sizes = ["--input-tokens", str(INPUT_TOKENS), "--output-tokens", str(load.output_tokens)]
    target = [f"{load.url}/v1/chat/completions", "--model", load.model, *sizes]
    log = ["--json", "--log", str(place.folder / "run.jsonl")]
    return [sys.executable, "-m", "outlay", "measure", *target, *shape, *log], {}


def _read_outlay(folder: Path) -> Said:
    report = _json(folder / "stdout")
    (point,) = report["points"]
    load = report["report"]["loads"][0]
    first, ends = _log(folder / "run.jsonl", load["moment"])
    late_ns = load["lateness"].get("p99_ns")
    return Said(
        figures=Figures(
            ttft=_filled(_series(point, "ttft"), first),
            e2e=_filled(_series(point, "end_to_end"), ends),
            gap=_series(point, "between_tokens"),
            mean_gap=_series(point, "per_token"),
        ),
        requests=point["outcomes"].get("ok"),
        of_itself=load["verdict"] + ("" if late_ns is None else f", late p99 {to_ms(late_ns):.1f} ms"),
        silences=tuple(_on_monotonic(silence) for silence in load["silences"]),
    )


def _series(point: dict[str, Any], name: str) -> Spread:
    told = point["series"].get(name) or {}
    return Spread(**{key: told.get(key) for key in Spread.__struct_fields__})


def _on_monotonic(silence: dict[str, int]) -> Span:
    """Its instants are on the wall clock, as it was when the run began."""
    shift_ns = time.time_ns() - time.monotonic_ns()
    return Span(from_ns=silence["from_ns"] - shift_ns, to_ns=silence.get("to_ns", MAX_NS) - shift_ns)


def _log(path: Path, moment: str) -> tuple[Spread, Spread]:
    """Times to the first token and to the end in the log of a run, from when a request was due, without a warm-up."""
    first, ends = [], []
    with path.open("rb") as lines:
        for item in parse_lines(lines):
            if not isinstance(item, Interaction) or item.moment != moment or item.outcome != "ok":
                continue
            if item.start_ns is None:
                continue
            first += [mark.at_ns - item.start_ns for mark in item.marks if mark.name == "first_token"]
            ends += [item.end_ns - item.start_ns] if item.end_ns is not None else []
    return spread(first), spread(ends)


def _filled(told: Spread, log: Spread) -> Spread:
    """What the report leaves out comes from its log: it gives no p90, and refuses a p99 of few samples."""
    return Spread(**{key: getattr(told, key) or getattr(log, key) for key in Spread.__struct_fields__})


def _aiperf(load: Load, place: Place) -> Command:
    if load.rate:
        shape = ["--request-rate", str(load.rate), "--arrival-pattern", "constant"]
        shape += ["--benchmark-duration", str(load.duration_s)]
    else:
        shape = ["--concurrency", str(load.streams), "--request-count", str(load.requests)]
    target = ["-u", load.url, "-m", load.model, "--endpoint-type", "chat", "--streaming"]
    prompts = ["--tokenizer", str(place.tokenizer), "--synthetic-input-tokens-mean", str(INPUT_TOKENS)]
    output = ["--output-artifact-dir", str(place.folder), "--ui", "none"]
    return [str(place.peers / "aiperf/bin/aiperf"), "profile", *target, *prompts, *output, *shape], {}


def _read_aiperf(folder: Path) -> Said:
    report = _json(folder / "profile_export_aiperf.json")

    def of(name: str) -> Spread:
        return _scaled(report.get(name), ("p50", "p90", "p99"), from_ms)

    late = of("credit_to_start_latency").p99_ns
    return Said(
        figures=Figures(
            ttft=of("time_to_first_token"),
            e2e=of("request_latency"),
            gap=of("inter_chunk_latency"),
            mean_gap=of("inter_token_latency"),
        ),
        requests=int(report["request_count"]["avg"]),
        of_itself=None if late is None else f"credit to start p99 {to_ms(late):.1f} ms",
    )


def _guidellm(load: Load, place: Place) -> Command:
    if load.rate:
        profile, limit = f"kind=constant,rate={load.rate}", f"kind=max_duration,seconds={load.duration_s}"
    else:
        profile, limit = f"kind=concurrent,streams={load.streams}", f"kind=max_requests,count={load.requests}"
    data = f"kind=synthetic_text,prompt_tokens={INPUT_TOKENS},output_tokens={load.output_tokens}"
    command = [str(place.peers / "guidellm/bin/guidellm"), "run", "--disable-console-interactive"]
    command += ["--backend", f"kind=openai_http,target={load.url},model={load.model},validate_backend=false"]
    command += ["--tokenizer", f"kind=huggingface_auto,model={place.tokenizer}", "--data", data]
    command += ["--output", f"kind=json,path={place.folder / 'report.json'}"]
    return [*command, "--profile", profile, "--constraint", limit], {}


def _read_guidellm(folder: Path) -> Said:
    (benchmark,) = _json(folder / "report.json")["benchmarks"]
    metrics = benchmark["metrics"]

    def of(name: str, unit: Callable[[float], int]) -> Spread:
        return _scaled(metrics[name]["successful"]["percentiles"], ("p50", "p90", "p99"), unit)

    warnings = [warning["code"] for warning in benchmark.get("warnings") or ()]
    return Said(
        figures=Figures(
            ttft=of("time_to_first_token_ms", from_ms),
            e2e=of("request_latency", from_s),
            mean_gap=of("inter_token_latency_ms", from_ms),
        ),
        requests=benchmark["scheduler_metrics"]["requests_made"]["successful"],
        of_itself="warns: " + ", ".join(warnings) if warnings else None,
    )


def _inference_perf(load: Load, place: Place) -> Command:
    if load.rate:
        stages: dict[str, Any] = {"type": "constant", "stages": [{"rate": load.rate, "duration": load.duration_s}]}
    else:
        stage = {"concurrency_level": load.streams, "num_requests": load.requests}
        stages = {"type": "concurrent", "stages": [stage], "num_workers": 1}
    prefix = {"num_groups": 1, "num_prompts_per_group": 50, "system_prompt_len": 5, "question_len": INPUT_TOKENS - 5}
    configuration = {
        "load": stages,
        "api": {"type": "chat", "streaming": True},
        "server": {"type": "vllm", "model_name": load.model, "base_url": load.url, "ignore_eos": True},
        "tokenizer": {"pretrained_model_name_or_path": str(place.tokenizer)},
        "data": {"type": "shared_prefix", "shared_prefix": prefix | {"output_len": load.output_tokens}},
        "report": {"request_lifecycle": {"summary": True, "percentiles": [50, 90, 99]}},
        "storage": {"local_storage": {"path": str(place.folder)}},
    }
    path = place.folder / "load.yml"
    path.write_text(json.dumps(configuration), encoding="utf-8")
    return [str(place.peers / "inference-perf/bin/inference-perf"), "-c", str(path)], {}


def _read_inference_perf(folder: Path) -> Said:
    report = _json(folder / "summary_lifecycle_metrics.json")
    latency = report["successes"]["latency"]

    def of(name: str) -> Spread:
        return _scaled(latency.get(name), ("median", "p90", "p99"), from_s)

    late = (report["load_summary"].get("schedule_delay") or {}).get("p99")
    return Said(
        figures=Figures(
            ttft=of("time_to_first_token"),
            e2e=of("request_latency"),
            gap=of("inter_token_latency"),
            mean_gap=of("time_per_output_token"),
        ),
        requests=report["successes"]["count"],
        of_itself=None if late is None else f"schedule delay p99 {to_ms(from_s(late)):.1f} ms",
    )


def _k6(load: Load, place: Place) -> Command:
    script = Path(__file__).with_name("load.js")
    command = [str(place.peers / "k6/bin/k6"), "run", "--quiet", "--no-usage-report"]
    command += ["--summary-export", str(place.folder / "report.json"), str(script)]
    return command, {
        "BASE_URL": load.url,
        "MODEL": load.model,
        "RATE": str(load.rate or 0),
        "SECONDS": str(load.duration_s),
        "STREAMS": str(load.streams),
        "REQUESTS": str(load.requests),
    }


def _read_k6(folder: Path) -> Said:
    metrics = _json(folder / "report.json")["metrics"]

    def of(name: str) -> Spread:
        return _scaled(metrics.get(name), ("med", "p(90)", "p(99)"), from_ms)

    dropped = metrics.get("dropped_iterations")
    return Said(
        figures=Figures(ttft=of("http_req_waiting"), e2e=of("http_req_duration")),
        requests=metrics["http_reqs"]["count"],
        of_itself=f"dropped {dropped['count']:.0f}" if dropped else None,
    )


def _json(path: Path) -> dict[str, Any]:
    decoded: dict[str, Any] = json.loads(path.read_bytes())
    return decoded


def _scaled(values: Mapping[str, Any] | None, keys: tuple[str, str, str], unit: Callable[[float], int]) -> Spread:
    """A tool's own p50, p90 and p99 under its own names and in its own unit."""
    found = [(values or {}).get(key) for key in keys]
    p50_ns, p90_ns, p99_ns = (None if value is None else unit(value) for value in found)
    return Spread(p50_ns=p50_ns, p90_ns=p90_ns, p99_ns=p99_ns)


_OFFLINE = {"HF_HUB_OFFLINE": "1"}

TOOLS = {
    tool.name: tool
    for tool in (
        Tool(name="outlay", program=None, command=_outlay, read=_read_outlay),
        # It takes no tokenizer from a folder when it is told to be offline, and asks nobody when it is not.
        Tool(
            name="aiperf",
            program="aiperf/bin/aiperf",
            command=_aiperf,
            read=_read_aiperf,
            environment={"HF_HUB_DISABLE_TELEMETRY": "1"},
        ),
        Tool(
            name="guidellm",
            program="guidellm/bin/guidellm",
            command=_guidellm,
            read=_read_guidellm,
            environment=_OFFLINE,
        ),
        Tool(
            name="inference-perf",
            program="inference-perf/bin/inference-perf",
            command=_inference_perf,
            read=_read_inference_perf,
            environment=_OFFLINE,
        ),
        Tool(name="k6", program="k6/bin/k6", command=_k6, read=_read_k6),
    )
}
