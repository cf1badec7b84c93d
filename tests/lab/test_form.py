"""A form is read as what was put into it, whatever its files hold, and one that is none is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlay.lab.form import MAX_FIELDS, Field, fields


def form(parts: dict[str, Field], boundary: str = "xyz") -> bytes:
    """A form as browsers and clients write it."""
    written = [
        f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"'.encode()
        + (b'; filename="a.wav"\r\nContent-Type: audio/wav' if field.is_file else b"")
        + b"\r\n\r\n"
        + field.value
        + b"\r\n"
        for name, field in parts.items()
    ]
    return b"".join(written) + f"--{boundary}--\r\n".encode()


names = st.text(st.characters(exclude_characters='"\r\n', exclude_categories=["Cs"]), min_size=1, max_size=9)
values = st.binary(max_size=50).filter(lambda value: b"\r\n--xyz" not in b"\r\n" + value)


@given(st.dictionaries(names, st.builds(Field, st.booleans(), values), min_size=1, max_size=5))
def test_a_form_is_read_as_it_was_written(parts: dict[str, Field]) -> None:
    assert fields("multipart/form-data; boundary=xyz", form(parts)) == parts


@pytest.mark.parametrize(
    "content_type",
    ["multipart/form-data;boundary=xyz", 'Multipart/Form-Data; charset=utf-8; boundary="xyz"; more=1'],
)
def test_a_boundary_is_found_however_it_is_spelt(content_type: str) -> None:
    assert fields(content_type, form({"a": Field(False, b"1")})) == {"a": Field(False, b"1")}


def test_what_stands_around_a_form_has_no_meaning_and_the_first_of_a_name_holds() -> None:
    twice = form({"a": Field(False, b"1")}).removesuffix(b"--xyz--\r\n") + form({"a": Field(False, b"2")})
    body = b"preamble\r\n" + twice + b"epilogue"
    assert fields("multipart/form-data; boundary=xyz", body) == {"a": Field(False, b"1")}


@pytest.mark.parametrize(
    ("content_type", "body", "why"),
    [
        ("application/json", b"{}", "not multipart/form-data"),
        ("multipart/form-data", b"", "with a boundary"),
        ("multipart/form-data; boundary=xyz", b"", "does not end"),
        ("multipart/form-data; boundary=xyz", form({"a": Field(False, b"1")})[:-5], "does not end"),
        ("multipart/form-data; boundary=xyz", b"--xyz\r\n\r\nvalue\r\n--xyz--", "no name"),
        ("multipart/form-data; boundary=xyz", b"--xyz\r\nvalue\r\n--xyz--", "no head"),
        (
            "multipart/form-data; boundary=xyz",
            form({str(number): Field(False, b"") for number in range(MAX_FIELDS + 1)}),
            f"at most {MAX_FIELDS}",
        ),
    ],
)
def test_what_is_no_form_is_refused_with_the_reason(content_type: str, body: bytes, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        fields(content_type, body)


def test_a_form_may_have_as_many_fields_as_it_says() -> None:
    parts = {str(number): Field(False, b"") for number in range(MAX_FIELDS)}
    assert fields("multipart/form-data; boundary=xyz", form(parts)) == parts


@given(st.binary(max_size=200))
def test_no_bytes_do_more_than_be_refused(body: bytes) -> None:
    try:
        found = fields("multipart/form-data; boundary=b", b"--b" + body + b"--b--")
    except ValueError:
        return
    assert len(found) <= MAX_FIELDS
