"""Histograms count every duration once, show every bucket each time, and are read back by our own reader."""

from hypothesis import given
from hypothesis import strategies as st

from outlay.exposition import Histogram, label_pairs
from outlay.gateway.telemetry import Telemetry
from outlay.gauges import samples

BOUNDS_NS = (1_000_000, 5_000_000, 1_000_000_000)


@given(st.lists(st.integers(0, 3_000_000_000)))
def test_buckets_are_cumulative_and_complete(durations: list[int]) -> None:
    histogram = Histogram(BOUNDS_NS)
    for duration_ns in durations:
        histogram.add(duration_ns)
    page = samples("\n".join(histogram.text("x", label_pairs(moment="m"))))
    expected = [sum(each <= bound for each in durations) for bound in BOUNDS_NS]
    assert [value for _, value in page["x_bucket"]] == [*expected, len(durations)]
    assert [labels["le"] for labels, _ in page["x_bucket"]] == ["0.001", "0.005", "1", "+Inf"]
    assert page["x_count"] == (({"moment": "m"}, len(durations)),)


def test_values_of_labels_are_escaped() -> None:
    assert label_pairs(a='"\n\\', b=3) == 'a="\\"\\n\\\\",b="3"'


def test_the_page_of_a_gateway_shows_the_same_series_before_and_after_a_request() -> None:
    telemetry = Telemetry(("t",))
    telemetry.request("m", "ok", 200, 300_000)
    before = {line.rpartition(" ")[0] for line in telemetry.page({}).decode().splitlines()}
    telemetry.request("m", "ok", 200, 90_000_000)
    after = {line.rpartition(" ")[0] for line in telemetry.page({}).decode().splitlines()}
    assert before == after
    assert any(series.startswith("outlay_gateway_route_seconds_bucket") for series in after)
