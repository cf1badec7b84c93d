"""What an inference engine says of itself on its `/metrics` page: vLLM, SGLang, TensorRT-LLM, llama.cpp, TGI.

A page covers all clients of the server, so its means are the engine's, not those of this run's requests alone.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from outlay.measurement import EngineSeen
from outlay.units import from_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """An engine's names. `gauges` are read as they are, older names after newer ones; `seconds` are histograms."""

    name: str
    prefix: str
    gauges: Mapping[str, tuple[str, ...]]
    seconds: Mapping[str, str]


ENGINES = (
    Engine(
        name="vLLM",
        prefix="vllm:",
        gauges={
            "waiting": ("vllm:num_requests_waiting",),
            "running": ("vllm:num_requests_running",),
            "cache": ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"),
        },
        seconds={
            "queue": "vllm:request_queue_time_seconds",
            "prefill": "vllm:request_prefill_time_seconds",
            "decode": "vllm:request_decode_time_seconds",
            "ttft": "vllm:time_to_first_token_seconds",
        },
    ),
    Engine(
        name="SGLang",
        prefix="sglang:",
        gauges={
            "waiting": ("sglang:num_queue_reqs",),
            "running": ("sglang:num_running_reqs",),
            "cache": ("sglang:token_usage",),
        },
        seconds={"ttft": "sglang:time_to_first_token_seconds", "queue": "sglang:queue_time_seconds"},
    ),
    Engine(
        name="llama.cpp",
        prefix="llamacpp:",
        gauges={"waiting": ("llamacpp:requests_deferred",), "running": ("llamacpp:requests_processing",)},
        seconds={},
    ),
    Engine(
        name="TensorRT-LLM",
        prefix="trtllm_",
        gauges={
            "waiting": ("trtllm_num_requests_waiting",),
            "running": ("trtllm_num_requests_running",),
            "cache": ("trtllm_kv_cache_utilization",),
        },
        seconds={"ttft": "trtllm_time_to_first_token_seconds", "queue": "trtllm_request_queue_time_seconds"},
    ),
    Engine(
        name="TensorRT-LLM on Triton",
        prefix="nv_trt_llm_",
        gauges={
            "waiting": ('nv_trt_llm_request_metrics{request_type="waiting"}',),
            "running": ('nv_trt_llm_request_metrics{request_type="scheduled"}',),
            "cache": ('nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="fraction"}',),
        },
        seconds={},
    ),
    Engine(
        name="TGI",
        prefix="tgi_",
        gauges={"waiting": ("tgi_queue_size",), "running": ("tgi_batch_current_size",)},
        seconds={},
    ),
)

# A sample of the text exposition format: name, labels, value; the time stamp behind it is not read.
_SAMPLE = re.compile(r"([a-zA-Z_:][\w:]*)(?:\{(.*)\})?\s+(\S+)", re.ASCII)
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"', re.ASCII)

Samples = Mapping[str, tuple[tuple[Mapping[str, str], float], ...]]


def samples(text: str) -> Samples:
    """The samples of a page by name; lines that are none are skipped."""
    found: dict[str, list[tuple[Mapping[str, str], float]]] = {}
    for line in text.splitlines():
        match = None if line.startswith("#") else _SAMPLE.match(line)
        if match is None:
            continue
        try:
            value = float(match[3])
        except ValueError:
            continue
        found.setdefault(match[1], []).append((dict(_LABEL.findall(match[2] or "")), value))
    return {name: tuple(values) for name, values in found.items()}


def engine_of(page: Samples) -> Engine | None:
    """The engine whose names stand on a page; None when none of those known does."""
    return next((engine for engine in ENGINES if any(name.startswith(engine.prefix) for name in page)), None)


def seen(pages: Iterable[Samples]) -> EngineSeen | None:
    """What the pages of one run, in order of time, say together; None without a page of a known engine.

    Largest values of gauges, and means of the durations that were added between the first page and the last. A
    quantity that its engine's pages do not show is named in `missing`: a renamed gauge must never read as 0.
    """
    pages = [page for page in pages if engine_of(page) is not None]
    engine = engine_of(pages[0]) if pages else None
    if engine is None:
        return None
    gauges = {
        quantity: max(values)
        for quantity, names in engine.gauges.items()
        if (values := [value for page in pages for value in [_gauge(page, names)] if value is not None])
    }
    means = {
        quantity: mean_ns
        for quantity, name in engine.seconds.items()
        if (mean_ns := _mean_ns(pages[0], pages[-1], name)) is not None
    }
    missing = [quantity for quantity in engine.gauges if quantity not in gauges]
    return EngineSeen(engine=engine.name, largest=gauges, mean_ns=means, missing=tuple(missing), pages=len(pages))


def quantities(page: Samples) -> dict[str, float]:
    """What one page says of its engine right now: any of `waiting`, `running` and `cache`. Empty: no known engine."""
    engine = engine_of(page)
    if engine is None:
        return {}
    values = {quantity: _gauge(page, names) for quantity, names in engine.gauges.items()}
    return {quantity: value for quantity, value in values.items() if value is not None}


# What ORCA load reports call the same, in vLLM's and Triton's spelling.
_REPORTED = {
    "waiting": ("num_requests_waiting", "named_metrics.num_requests_waiting"),
    "running": ("num_requests_running", "named_metrics.num_requests_running"),
    "cache": ("kv_cache_usage_perc", "named_metrics.kv_cache_usage_perc", "kv_cache_utilization"),
}
_PAIR = re.compile(r"([\w.]+)\s*[=:]\s*([-+0-9.eE]+)")
_JSON_PAIR = re.compile(r'"([\w.]+)"\s*:\s*([-+0-9.eE]+)')


def load_report(header: str) -> dict[str, float]:
    """What an `endpoint-load-metrics` header says: `TEXT a=1, b:2` or `JSON {...}`, the prefix optional.

    Lenient, as generations of proxies differ in it; what cannot be read says nothing. Binary reports are not read.
    """
    found = _JSON_PAIR.findall(header) if "{" in header else _PAIR.findall(header)
    values: dict[str, float] = {}
    for name, text in found:
        try:
            values[name] = float(text)
        except ValueError:
            continue
    return {
        quantity: next(values[name] for name in names if name in values)
        for quantity, names in _REPORTED.items()
        if any(name in values for name in names)
    }


def _gauge(page: Samples, names: Iterable[str]) -> float | None:
    """The first name that the page shows, over all its series: the largest share, or the sum of counts."""
    for wanted in names:
        name, _, labels = wanted.partition("{")
        required = dict(_LABEL.findall(labels))
        values = [value for found, value in page.get(name, ()) if required.items() <= found.items()]
        if values:
            return max(values) if all(value <= 1 for value in values) else sum(values)
    return None


def _mean_ns(first: Samples, last: Samples, name: str) -> int | None:
    """The mean of what was added to a histogram of seconds between two pages; None when nothing was."""
    count, total = (_total(last, name + end) - _total(first, name + end) for end in ("_count", "_sum"))
    return from_s(total / count) if count > 0 and total >= 0 else None


def _total(page: Samples, name: str) -> float:
    return sum(value for _, value in page.get(name, ()))
