from contextlib import suppress
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlay.formats.isotime import parse_iso_ns


@pytest.mark.parametrize(
    ("text", "expected_ns"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("1970-01-01T00:00:01.5Z", 1_500_000_000),
        ("1970-01-01T00:00:00.000000001Z", 1),  # a float of seconds holds this one, but no year of today beside it
        ("2026-02-03T15:19:52.242000001Z", 1_770_131_992_242_000_001),  # 2**53 ns is only 104 days
        ("1969-12-31T23:59:59.75Z", -250_000_000),
        ("2026-02-25T10:00:00.000000", 1_772_013_600_000_000_000),  # no zone: UTC
        ("2026-02-25T11:00:00+01:00", 1_772_013_600_000_000_000),
        ("2026-02-25 04:30:00-0530", 1_772_013_600_000_000_000),  # 04:30 + 5:30 = 10:00
        ("2026-02-25 10:00:00.123+00", 1_772_013_600_123_000_000),  # as PostgreSQL writes it
        ("2026-02-25t10:00:00,5z", 1_772_013_600_500_000_000),
    ],
)
def test_reads_to_the_last_digit(text: str, expected_ns: int) -> None:
    assert parse_iso_ns(text) == expected_ns


@pytest.mark.parametrize(
    "text",
    [
        "",
        "now",
        "2026-02-25",  # a day is no instant
        "2026-02-25T10:00",
        "2026-02-25T10:00:00.1234567890Z",  # ten digits: rounding would be silent
        "2026-02-25T10:00:00.Z",
        "2026-02-30T10:00:00Z",
        "2026-02-25T24:01:00Z",
        "2026-02-25T10:00:60Z",
        "2026-02-25T10:00:00+25:99",
        "9999-01-01T00:00:00Z",  # beyond 2262 a 64-bit count of nanoseconds ends
        "0001-01-01T00:00:00Z",
        "2026-02-25T10:00:00Z\n",
        "\u0662026-02-25T10:00:00Z",  # an Arabic digit
        "1770131992",
    ],
)
def test_refuses_what_is_no_exact_instant(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 -- the text is for people; the type is the promise
        parse_iso_ns(text)


@given(st.integers(-(2**63) + 1, 2**63 - 1))
def test_reads_what_was_written(instant_ns: int) -> None:
    seconds, fraction = divmod(instant_ns, 1_000_000_000)
    stamp = (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%S")
    assert parse_iso_ns(f"{stamp}.{fraction:09d}Z") == instant_ns


@given(st.text() | st.from_regex(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]{5,20}(Z|[+-][0-9]{2}:?[0-9]{2})?"))
def test_raises_nothing_but_value_error(text: str) -> None:
    with suppress(ValueError):
        assert isinstance(parse_iso_ns(text), int)
