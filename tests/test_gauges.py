"""Engines' own pages: vLLM, SGLang and TensorRT-LLM names; a gauge that is gone is missing and not zero."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlay.gauges import engine_of, load_report, quantities, samples, seen
from outlay.units import NS_PER_MS

VLLM = """# HELP vllm:num_requests_waiting Number of requests waiting.
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{{engine="0",model_name="m"}} {waiting}
vllm:num_requests_waiting{{engine="1",model_name="m"}} 2.0
vllm:num_requests_running{{engine="0",model_name="m, with \\"quotes\\""}} 3.0
vllm:kv_cache_usage_perc{{engine="0"}} 0.25
vllm:kv_cache_usage_perc{{engine="1"}} 0.75
vllm:request_queue_time_seconds_sum{{engine="0"}} {total}
vllm:request_queue_time_seconds_count{{engine="0"}} {count}
"""


def page(waiting: float, total: float, count: int) -> str:
    return VLLM.format(waiting=waiting, total=total, count=count)


def test_gauges_are_summed_over_engines_and_means_are_those_of_the_run_alone():
    # Between the pages 4 requests waited 0.3 s in all: 75 ms each. What was before the run is not in it.
    found = seen([samples(page(1, 10.0, 100)), samples(page(7, 10.2, 103)), samples(page(0, 10.3, 104))])
    assert found is not None
    assert (found.engine, found.pages, found.missing) == ("vLLM", 3, ())
    assert found.largest == {"waiting": 9.0, "running": 3.0, "cache": 0.75}
    assert found.mean_ns == {"queue": 75 * NS_PER_MS}


def test_a_page_without_a_gauge_says_that_it_is_missing():
    found = seen([samples("sglang:num_queue_reqs 4\nsglang:token_usage 0.5\n")])
    assert found is not None
    assert found.engine == "SGLang"
    assert found.missing == ("running",)
    assert "running" not in found.largest
    assert found.mean_ns == {}


@pytest.mark.parametrize(
    ("text", "engine", "largest"),
    [
        ("vllm:gpu_cache_usage_perc 0.5", "vLLM", {"cache": 0.5}),  # the older name
        ("trtllm_num_requests_waiting 3", "TensorRT-LLM", {"waiting": 3.0}),
        (
            'nv_trt_llm_request_metrics{model="m",request_type="waiting"} 5\n'
            'nv_trt_llm_request_metrics{model="m",request_type="scheduled"} 2\n'
            'nv_trt_llm_request_metrics{model="m",request_type="max"} 64\n',
            "TensorRT-LLM on Triton",
            {"waiting": 5.0, "running": 2.0},
        ),
    ],
)
def test_each_engine_has_its_own_names(text: str, engine: str, largest: dict[str, float]):
    found = seen([samples(text)])
    assert found is not None
    assert (found.engine, found.largest) == (engine, largest)


@pytest.mark.parametrize("text", ["", "# nothing", "go_threads 8", "vllm:num_requests_waiting", "<html>", "x{ 1"])
def test_a_page_of_nobody_known_is_none(text: str):
    assert engine_of(samples(text)) is None
    assert seen([samples(text)]) is None


def test_a_server_that_was_started_anew_during_the_run_gives_no_mean():
    found = seen([samples(page(0, 10.0, 100)), samples(page(0, 0.1, 2))])
    assert found is not None
    assert found.mean_ns == {}


@pytest.mark.parametrize(
    ("page", "says"),
    [
        ("vllm:num_requests_waiting 3\nvllm:num_requests_running 5\nvllm:kv_cache_usage_perc 0.4",
         {"waiting": 3, "running": 5, "cache": 0.4}),
        ("tgi_queue_size 2\ntgi_batch_current_size 7", {"waiting": 2, "running": 7}),
        ("vllm:num_requests_pending 3", {}),
        ("go_goroutines 4", {}),
    ],
)  # fmt: skip
def test_one_page_says_what_its_engine_looks_like(page: str, says: dict[str, float]) -> None:
    assert quantities(samples(page)) == says


@pytest.mark.parametrize(
    "header",
    [
        "TEXT cpu_utilization=0.3, named_metrics.kv_cache_usage_perc=0.4, named_metrics.num_requests_waiting=2",
        "kv_cache_usage_perc:0.4,num_requests_waiting:2",
        'JSON {"cpu_utilization": 0.3, "named_metrics": {"kv_cache_usage_perc": 0.4, "num_requests_waiting": 2.0}}',
    ],
)
def test_a_load_report_is_read_in_every_generation(header: str) -> None:
    assert load_report(header) == {"waiting": 2, "cache": 0.4}


@given(st.text())
def test_any_load_report_is_taken(header: str) -> None:
    assert set(load_report(header)) <= {"waiting", "running", "cache"}
