"""What samplers say of how many interactions one stands for."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlay.sampling import MOST, stands_for, whole
from worlds import only, traced


@pytest.mark.parametrize(
    ("attributes", "count"),
    [
        ({}, 1),
        # A threshold of 0 rejects nothing; 8 is half of 16, c three quarters, ff a share of 255/256.
        ({"tracestate": "ot=th:0"}, 1),
        ({"tracestate": "ot=th:8"}, 2),
        ({"tracestate": "congo=t61rcWkgMzE,ot=rv:9b8233f7e3a151;th:c"}, 4),
        ({"tracestate": "ot=th:ff;rv:1"}, 256),
        ({"tracestate": "other=th:8"}, 1),
        ({"tracestate": "ot=th:zz"}, 1),
        ({"tracestate": "ot=th:ffffffffffffff"}, 1),  # one in 7e16 is no sampler
        ({"sampler.type": "probabilistic", "sampler.param": 0.1}, 10),
        ({"sampler.type": "probabilistic", "sampler.param": "0.25"}, 4),
        ({"sampler.type": "probabilistic", "sampler.param": 0}, 1),
        ({"sampler.type": "const", "sampler.param": 0.5}, 1),
        ({"SampleRate": 20}, 20),
        ({"SampleRate": "nan"}, 1),
        ({"SampleRate": -3}, 1),
        ({"SampleRate": True}, 1),
    ],
)
def test_what_a_sampler_says(attributes, count):
    assert stands_for(attributes) == pytest.approx(count)


@given(st.floats(1, 50), st.integers(0, 10**6))
def test_a_whole_number_next_to_the_count(count, number):
    assert abs(whole(count, f"i{number}") - count) < 1


def test_whole_numbers_are_right_on_the_average():
    """A third of 3000 round up: within 4 standard deviations of sqrt(3000 * 1/3 * 2/3) = 26."""
    assert abs(sum(whole(4 / 3, f"i{number}") for number in range(3000)) - 4000) < 4 * 26


@given(
    st.dictionaries(
        st.sampled_from(["tracestate", "sampler.type", "sampler.param", "SampleRate"]), st.text() | st.floats()
    )
)
def test_any_attributes_are_a_count(attributes):
    assert 1 <= stands_for(attributes) <= MOST


def test_a_trace_stands_for_what_its_first_span_says():
    root = traced("a", None, 0, 10, attributes={"tracestate": "ot=th:c"})
    assert only(root, traced("b", "a", 1, 5, attributes={"tracestate": "ot=th:8"})).weight == 4
