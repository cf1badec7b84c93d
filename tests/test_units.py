"""Durations in and out of integer nanoseconds: exact, or refused."""

import math
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlay.units import MAX_NS, format_duration, from_ms, from_s, from_us, parse_duration, scaled, to_ms

S, MS = 1_000_000_000, 1_000_000


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("0ms", 0),
        ("1ns", 1),
        ("250ms", 250 * MS),
        ("1.5s", 1_500 * MS),
        (".5s", 500 * MS),
        ("2m", 120 * S),
        ("1h", 3600 * S),
        ("7us", 7_000),
        ("7µs", 7_000),  # micro sign
        ("7μs", 7_000),  # Greek mu
        (" 3 s ", 3 * S),
        ("0.5ns", 0),  # half to even
        ("1.5ns", 2),
        ("2.5ns", 2),
        ("9223372036.854775807s", MAX_NS),
    ],
)
def test_durations_read(text: str, ns: int) -> None:
    assert parse_duration(text) == ns


@pytest.mark.parametrize(
    "text", ["", "5", "s", "-1s", "1 500ms", "1e3ms", "1,5s", "1.s", "1d", "1sec", "1S", "٣s", "9223372036.854775808s"]
)
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_duration(text)


@pytest.mark.parametrize(
    ("value", "ns"),
    [
        (3, 3 * S),
        (-3, -3 * S),
        (0.1, 100 * MS),  # binary 0.1 is a hair more
        (2.675e-06, 2_675),  # which binary holds as 2.67499999
        ("0.000000001", 1),
        ("1e-9", 1),
        ("-0.5", -500 * MS),
        (1739784012.345679, 1_739_784_012_345_679_000),
    ],
)
def test_scaling_is_decimal(value: float | str, ns: int) -> None:
    assert from_s(value) == ns
    assert scaled(value, S) == ns


def test_the_factors() -> None:
    assert (from_us(3), from_ms(3), from_s(3)) == (3_000, 3_000_000, 3_000_000_000)
    assert to_ms(1_500_000) == 1.5


@pytest.mark.parametrize(
    "value", [math.nan, math.inf, -math.inf, "", "x", "NaN", "1e999999", "1e-", True, 1e300, 2**63, -(2**63)]
)
def test_what_is_no_count_of_nanoseconds_is_refused(value: float | str) -> None:
    with pytest.raises(ValueError, match=r"finite number|64-bit"):
        scaled(value, 1)


@pytest.mark.parametrize("value", [2**63 - 1, -(2**63) + 1])
def test_sixty_three_bits_fit(value: int) -> None:
    assert scaled(value, 1) == value


@given(st.decimals(min_value=-(10**9), max_value=10**9, allow_nan=False, places=9))
def test_nine_decimals_of_a_second_are_exact(seconds: Decimal) -> None:
    assert from_s(str(seconds)) == int(seconds.scaleb(9))


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (0, "0"),
        (0.3, "0.30 ns"),
        (1, "1.00 ns"),
        (850, "850 ns"),
        (999.4, "999 ns"),
        (999.6, "1.00 µs"),  # three digits of 999.6 would read 1000 ns
        (12_340, "12.3 µs"),
        (99_949, "99.9 µs"),
        (99_951, "100 µs"),
        (9_994_000, "9.99 ms"),
        (9_996_000, "10.0 ms"),
        (412 * MS, "412 ms"),
        (999_400_000, "999 ms"),
        (999_500_000, "1.00 s"),
        (1_530 * MS, "1.53 s"),
        (137 * S, "137 s"),
        (-412 * MS, "-412 ms"),
        (math.inf, "never"),
    ],
)
def test_durations_for_people(ns: float, text: str) -> None:
    assert format_duration(ns) == text


@given(st.integers(1, 10**15))
def test_three_digits_are_right(ns: int) -> None:
    number, unit = format_duration(ns).split()
    factor = {"ns": 1, "µs": 1_000, "ms": MS, "s": S}[unit]
    # half of the third digit: 1 of 199 at worst
    assert abs(float(number) * factor - ns) <= ns / 199
    assert len(number.replace(".", "")) == 3 or unit in ("s", "ns")
