"""Shapes and dimensions: what is not known has no value."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlay.interaction import KINDS, NOTE_KINDS, OUTCOMES, SHAPE, SITE, dimension, shape
from worlds import interaction


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ({}, None),
        ({"input_tokens": 0}, "input_tokens 0"),
        ({"input_tokens": 1}, "input_tokens 1+"),
        ({"input_tokens": 1023}, "input_tokens 512+"),
        ({"input_tokens": 1024}, "input_tokens 1024+"),
        ({"output_tokens": 3, "input_tokens": 5}, "input_tokens 4+ output_tokens 2+"),
    ],
)
def test_shape(sizes: dict[str, int], expected: str | None) -> None:
    assert shape(sizes) == expected


@given(st.integers(1, 2**70))
def test_a_bucket_holds_its_size_and_less_than_its_double(size: int) -> None:
    low = int((shape({"x": size}) or "").removeprefix("x ").removesuffix("+"))
    assert low <= size < 2 * low


@pytest.mark.parametrize(
    ("name", "expected"), [(SITE, "lon"), ("tenant", "7"), (SHAPE, "input_tokens 8+"), ("version", None)]
)
def test_dimension(name: str, expected: str | None) -> None:
    made = interaction(
        start_ns=0, end_ns=1, dimensions={SITE: "lon", "tenant": "7"}, sizes={"input_tokens": 9}
    )  # fmt: skip
    assert dimension(made, name) == expected


def test_a_producer_may_state_the_shape_itself() -> None:
    made = interaction(start_ns=0, end_ns=1, dimensions={SHAPE: "short"}, sizes={"input_tokens": 9})
    assert dimension(made, SHAPE) == "short"
    assert dimension(interaction(start_ns=0, end_ns=1), SHAPE) is None


def test_every_word_has_a_meaning() -> None:
    assert all(OUTCOMES.values())
    assert all(NOTE_KINDS.values())
    assert len(set(KINDS)) == len(KINDS) == 5
