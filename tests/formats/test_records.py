import msgspec
import pytest

from outlay.formats import records
from outlay.formats.codec import FormatError
from outlay.interaction import Note


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("00AB", "00ab"),  # leading zeros are part of the id
        ("0x00aB", "00ab"),
        ("0X1", "1"),
        (" a ", "a"),
        ("", None),
        ("0x", None),
        (None, None),
        ("0000000000000000", None),
        ("0", "0"),  # hand-made data counts from 0
    ],
)
def test_identifier(text: str | None, expected: str | None) -> None:
    assert records.identifier(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SERVER", "server"),
        ("client", "client"),
        ("SPAN_KIND_PRODUCER", "producer"),
        ("SpanKind.CONSUMER", "consumer"),
        ("SPAN_KIND_UNSPECIFIED", "internal"),
        ("LOCAL", "internal"),
        (None, "internal"),
        (3, "internal"),  # numbers mean different kinds in different formats: codecs read those themselves
    ],
)
def test_kind(text: object, expected: str) -> None:
    assert records.kind(text) == expected


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b"1", 1),
        (b"1.5", 1.5),
        (b'"12"', "12"),
        (b'"-1.25"', "-1.25"),
    ],
)
def test_numbers_come_in_three_spellings(raw: bytes, expected: float | str) -> None:
    assert msgspec.json.decode(raw, type=records.Number) == expected


@pytest.mark.parametrize("raw", [b'"1e900000"', b'"x"', b'""', b"true", b"null", b'"1"x', b"1e999"])
def test_other_numbers_are_refused(raw: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        msgspec.json.decode(raw, type=records.Number)


@pytest.mark.parametrize(
    ("start_ns", "duration_us", "expected_ns"),
    [
        (1, None, None),
        (1, 0, 1),
        (1, "1.5", 1501),
        (5000, -1, 4000),  # an end before the start is data
    ],
)
def test_end(start_ns: int, duration_us: records.Number | None, expected_ns: int | None) -> None:
    assert records.end_ns(start_ns, duration_us) == expected_ns


def test_end_beyond_64_bits_is_refused() -> None:
    with pytest.raises(ValueError, match="64-bit"):
        records.end_ns(2**63 - 1, 1)


def _read(raw: bytes) -> int:
    value = msgspec.json.decode(raw, type=int)
    if value < 0:
        raise records.Unreadable("it is negative")
    if value == 0:
        raise FormatError("another format")
    if value > 9:
        raise ValueError("secret")
    return value


def test_one_bad_record_costs_no_other() -> None:
    raws = [b"1", b"-1", b'"secret"', b"10", b"[" * 100_000, b"2"]
    assert list(records.each(raws, _read, place="row")) == [
        1,
        Note(kind="dropped-record", text="row 1: it is negative"),
        Note(kind="dropped-record", text="row 2: Expected `int`, got `str`"),
        Note(kind="dropped-record", text="row 3: a time in it cannot be read"),
        Note(kind="dropped-record", text="row 4: Expected `int`, got `array`"),
        2,
    ]


def test_a_record_may_show_that_the_whole_is_another_format() -> None:
    with pytest.raises(FormatError, match="another format"):
        list(records.each([b"1", b"0"], _read, place="row"))


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b"", "truncated"),
        (b"1 2", "trailing"),
        (b'"secret"', "Expected `int`"),
        (b"[" * 100_000, "Expected `int`"),
        (b"-1", "it is negative"),
        (b"10", "a time in it cannot be read"),
    ],
)
def test_a_bad_whole_is_a_format_error_that_quotes_nothing(raw: bytes, reason: str) -> None:
    with pytest.raises(FormatError, match=reason) as caught:
        records.whole(_read, raw, expected="a digit")
    assert "secret" not in str(caught.value)
    assert str(caught.value).startswith("expected a digit; ")
