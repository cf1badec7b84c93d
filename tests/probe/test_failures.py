"""How a request failed, in an outcome and in words that never hold what the server wrote for people."""

import json
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlay.interaction import Outcome
from outlay.probe.exchange import Exchange, Failure
from outlay.probe.failures import Failed, by_body, by_cause, by_failure, by_status


def answered(status: int | None, body: bytes = b"", **headers: str) -> Exchange:
    named = [(name.replace("_", "-"), value) for name, value in headers.items()]
    return Exchange(number=0, intended_ns=0, status=status, headers=named, body=[(1, body)] if body else [])


@pytest.mark.parametrize("status", [None, 101, 200, 204, 299])
def test_these_statuses_say_of_no_failure(status: int | None):
    assert by_status(answered(status)) is None


@pytest.mark.parametrize("status", [300, 301, 307, 399])
def test_a_redirect_is_not_followed(status: int):
    assert by_status(answered(status)) == Failed("error", f"status {status}: redirect, not followed")


@pytest.mark.parametrize(
    ("status", "outcome"),
    [(400, "error"), (408, "timeout"), (429, "refused"), (500, "error"), (503, "error"), (504, "timeout")],
)
def test_an_error_without_a_body(status: int, outcome: Outcome):
    assert by_status(answered(status)) == Failed(outcome, f"status {status}")


@pytest.mark.parametrize(
    ("headers", "outcome"),
    [
        ({"retry_after": "2"}, "refused"),
        ({"retry_after": "0"}, "refused"),
        ({"retry_after_ms": "15.5"}, "refused"),
        ({"retry_after": "-1"}, "error"),
        ({"retry_after": "soon"}, "error"),
        ({"x_retry_after": "2"}, "error"),
    ],
)
def test_503_is_a_refusal_where_it_says_when_to_come_again(headers: dict[str, str], outcome: Outcome):
    assert by_status(answered(503, **headers)) == Failed(outcome, "status 503")


def test_a_time_to_come_again_makes_no_refusal_of_another_error():
    assert by_status(answered(500, retry_after="2")) == Failed("error", "status 500")


def test_a_status_weighs_more_than_the_names_in_its_body():
    failed = by_status(answered(400, b'{"error": {"type": "rate_limit_error"}}'))
    assert failed == Failed("error", "status 400: rate_limit_error")


def test_a_body_in_many_reads_is_one():
    made = answered(429)
    made.body = [(1, b'{"error": {"co'), (2, b'de": "slow_down"}}')]
    assert by_status(made) == Failed("refused", "status 429: slow_down")


# Bodies as servers write them: OpenAI, vLLM before and since 0.10, Anthropic, TGI, Google, Azure, a list of FastAPI's.
BODIES: list[tuple[dict[str, Any], Failed]] = [
    (
        {"error": {"message": "secret", "type": "invalid_request_error", "param": "secret", "code": None}},
        Failed("error", "invalid_request_error"),
    ),
    (
        {"object": "error", "message": "secret", "type": "BadRequestError", "param": None, "code": 400},
        Failed("error", "400, BadRequestError"),
    ),
    (
        {"error": {"message": "secret", "type": "BadRequestError", "param": None, "code": 400}},
        Failed("error", "400, BadRequestError"),
    ),
    (
        {"type": "error", "error": {"type": "overloaded_error", "message": "secret"}, "request_id": "secret"},
        Failed("refused", "overloaded_error"),
    ),
    ({"error": "secret", "error_type": "overloaded"}, Failed("refused", "overloaded")),
    (
        {"error": {"code": 504, "message": "secret", "status": "DEADLINE_EXCEEDED"}},
        Failed("timeout", "504, DEADLINE_EXCEEDED"),
    ),
    ({"error": {"code": "429", "message": "secret"}}, Failed("refused", "429")),
    ({"detail": [{"loc": ["secret"], "msg": "secret", "type": "missing"}]}, Failed("error", "")),
    # What is none of a name's types hides no other name.
    ({"error": {"code": {"secret": 1}, "type": "rate_limit_error"}}, Failed("refused", "rate_limit_error")),
    ({"error": {"code": ["secret"], "status": 429}}, Failed("refused", "429")),
    ({"error": {}}, Failed("error", "")),
    ({"error": None, "code": "timeout"}, Failed("timeout", "timeout")),
    ({}, Failed("error", "")),
]


@pytest.mark.parametrize(("body", "failed"), BODIES)
def test_errors_as_servers_write_them(body: dict[str, Any], failed: Failed):
    assert by_body(json.dumps(body).encode()) == failed


@pytest.mark.parametrize(
    ("codes", "outcome"),
    [
        (("invalid", "timeout"), "timeout"),
        (("rate_limit_exceeded", "timeout"), "refused"),  # the code comes before the type
        (("RESOURCE_EXHAUSTED", "x"), "refused"),
        (("x", "y"), "error"),
    ],
)
def test_the_first_name_that_says_more_than_error_decides(codes: tuple[str, str], outcome: Outcome):
    cause = json.dumps({"code": codes[0], "type": codes[1]}).encode()
    assert by_cause(cause) == Failed(outcome, ", ".join(codes))


@pytest.mark.parametrize("text", ["what was asked", "a\nb", "x" * 65, "", "naïve", "error"])
def test_what_is_no_name_is_not_told(text: str):
    """A message in the wrong place may quote the prompt; `error` says nothing that the outcome does not."""
    assert by_cause(json.dumps({"type": text, "code": "kept"}).encode()) == Failed("error", "kept")


@given(st.text(max_size=80), st.sampled_from(["message", "param", "detail", "error"]))
def test_messages_are_never_told(text: str, place: str):
    body = {place: f"~{text}", "error": {"message": f"~{text}", "code": 500}}
    if place == "error":
        body["error"] = f"~{text}"
    assert "~" not in by_body(json.dumps(body).encode()).why


HOSTILE = [
    b"[" * 100_000,
    b'{"error": ' * 100_000,
    b'{"error": {"code": 1' + b"0" * 5_000 + b"}}",
    b'{"error": {"code": 1e999}}',
    b'{"error": {"type": "\xff"}}',
    b'{"error": {"type": "\\ud800"}}',
    b"",
    b"\x00",
    b"null",
]


@pytest.mark.parametrize("body", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_bodies_are_errors_without_a_name(body: bytes):
    assert by_body(body) == by_cause(body) == Failed("error", "")


@given(st.binary(max_size=60))
def test_any_bytes_are_an_error_of_some_kind(body: bytes):
    assert by_body(body).outcome in ("error", "refused", "timeout")
    assert by_body(b'{"error": ' + body + b"}").outcome in ("error", "refused", "timeout")


@pytest.mark.parametrize("failure", [failure for failure in get_args(Failure) if failure])
def test_each_failure_of_a_sender_has_an_outcome_and_a_reason(failure: Failure):
    made = Exchange(number=0, intended_ns=0, failure=failure)
    plain = by_failure(made)
    assert plain is not None
    assert plain.outcome == {"timeout": "timeout", "stopped": "aborted"}.get(failure, "error")
    made.why = "ECONNREFUSED"
    assert by_failure(made) == Failed(plain.outcome, f"{plain.why}: ECONNREFUSED")


def test_no_failure_is_none():
    assert by_failure(Exchange(number=0, intended_ns=0, status=500)) is None
