"""Addresses as people write them, and requests as HTTP wants them."""

import httptools
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlay.probe.address import check_header, parse_address, request_bytes


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("http://localhost:8000/v1/chat/completions", "http://localhost:8000/v1/chat/completions"),
        ("localhost:8000", "http://localhost:8000/"),
        ("https://api.example.com", "https://api.example.com/"),
        ("https://api.example.com:443/x?a=1", "https://api.example.com/x?a=1"),
        ("http://[::1]:9/v1", "http://[::1]:9/v1"),
        ("ws://host/turn?model=m", "ws://host/turn?model=m"),
        ("wss://host", "wss://host/"),
    ],
)
def test_an_address_in_one_spelling(text: str, url: str):
    address = parse_address(text)
    assert address.url == url
    assert parse_address(address.url) == address


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("ftp://host/", "not an address"),
        ("http://", "not an address"),
        ("http://host:99999/", "not an address"),
        ("http://host/a b", "characters"),
        ("http://host/\r\nx: y", "characters"),
        ("https://user:secret@host/", "environment variable"),
    ],
)
def test_what_is_no_address_is_said_and_secrets_are_not_repeated(text: str, says: str):
    with pytest.raises(ValueError, match=says) as caught:
        parse_address(text)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(("name", "value"), [("x y", "v"), ("", "v"), ("x", "a\r\nb"), ("x", "é"), ("x:", "v")])
def test_a_header_that_http_cannot_carry_is_refused_without_its_value(name: str, value: str):
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the text differs; what it must not hold does not
        check_header(name, value)
    assert value == "v" or value not in str(caught.value)


class _Taken:
    def __init__(self, raw: bytes) -> None:
        self.headers: list[tuple[str, str]] = []
        self.body = b""
        self.complete = False
        parser = httptools.HttpRequestParser(self)
        parser.feed_data(raw)
        self.method = parser.get_method()

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name.decode(), value.decode()))

    def on_body(self, body: bytes) -> None:
        self.body += body

    def on_message_complete(self) -> None:
        self.complete = True


@given(st.binary(max_size=300), st.sampled_from(["POST", "PUT", "PATCH"]))
def test_a_parser_reads_back_what_was_written(body: bytes, method: str):
    address = parse_address("http://host:8000/base")
    taken = _Taken(request_bytes(method, address, "/v1/x?y=1", [("accept", "*/*")], body))
    assert (taken.method, taken.body, taken.complete) == (method.encode(), body, True)
    assert ("Host", "host:8000") in taken.headers
    assert ("accept", "*/*") in taken.headers


def test_a_get_without_a_body_says_no_length():
    assert b"ength" not in request_bytes("GET", parse_address("http://h/"), "/", [], b"")
