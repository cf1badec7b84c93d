"""How a request failed, from what its status, its body or its sender says: an outcome, and a reason for people.

A reason holds statuses, types and codes, never the server's message: that may quote what was asked.
"""

import re
from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from outlay.interaction import Outcome
from outlay.probe.exchange import Exchange, Failure
from outlay.probe.told import retry_after_ns


class Failed(NamedTuple):
    """An outcome other than ok, and why; an empty text where nothing more is known."""

    outcome: Outcome
    why: str


class _Cause(msgspec.Struct, gc=False):
    # Of any type, so that an odd one does not hide the others.
    code: object = None
    type: object = None
    status: object = None
    error_type: object = None


class _Body(msgspec.Struct, gc=False):
    error: msgspec.Raw = msgspec.Raw(b"")


_CAUSE = msgspec.json.Decoder(_Cause)
_BODY = msgspec.json.Decoder(_Body)
_READ_ERRORS = (msgspec.MsgspecError, ValueError, RecursionError)
_NAME = re.compile(r"[\w.:-]{1,64}", re.ASCII)

# Statuses, and codes and types of errors in lower case, that say more than "error".
_OUTCOMES: Mapping[str, Outcome] = {
    "408": "timeout",
    "504": "timeout",
    "timeout": "timeout",
    "timeout_error": "timeout",
    "request_timeout": "timeout",
    "deadline_exceeded": "timeout",
    "429": "refused",
    "529": "refused",
    "rate_limit": "refused",
    "rate_limit_error": "refused",
    "rate_limit_exceeded": "refused",
    "too_many_requests": "refused",
    "insufficient_quota": "refused",
    "resource_exhausted": "refused",
    "overloaded": "refused",
    "overloaded_error": "refused",
    "engine_overloaded": "refused",
}

_FAILURES: Mapping[Failure, Failed] = {
    "dns": Failed("error", "the name was not found"),
    "connect": Failed("error", "no connection"),
    "tls": Failed("error", "TLS failed"),
    "upgrade": Failed("error", "no WebSocket"),
    "reset": Failed("error", "connection reset"),
    "cut": Failed("error", "cut: the connection ended in the middle of the answer"),
    "wire": Failed("error", "the answer is not HTTP"),
    "timeout": Failed("timeout", "no end in the time allowed"),
    "too large": Failed("error", "the answer is too large"),
    "stopped": Failed("aborted", "the run was ended"),
}


def by_status(exchange: Exchange) -> Failed | None:
    """How the status of an answer fails it; None for 1xx, 2xx and where there is none."""
    status = exchange.status
    if status is None or status < 300:
        return None
    if status < 400:
        return Failed("error", f"status {status}: redirect, not followed")
    named = by_body(b"".join(piece for _, piece in exchange.body))
    turned_away = status == 503 and retry_after_ns(exchange.headers) is not None
    outcome = "refused" if turned_away else _OUTCOMES.get(str(status), "error")
    return Failed(outcome, f"status {status}: {named.why}" if named.why else f"status {status}")


def by_failure(exchange: Exchange) -> Failed | None:
    """How its sender saw it fail; None when it did not."""
    if not exchange.failure:
        return None
    outcome, why = _FAILURES[exchange.failure]
    return Failed(outcome, f"{why}: {exchange.why}" if exchange.why else why)


def by_body(body: bytes) -> Failed:
    """How an error's JSON names its cause, nested under `error` or not. "error" when it says nothing that is known."""
    try:
        error = _BODY.decode(body).error
    except _READ_ERRORS:
        return Failed("error", "")
    nested = by_cause(error)
    return nested if nested.why else by_cause(body)


def by_cause(error: bytes | msgspec.Raw) -> Failed:
    """How the JSON of an error itself names its cause; "error" when it says nothing that is known."""
    try:
        cause = _CAUSE.decode(error)
    except _READ_ERRORS:
        return Failed("error", "")
    values = (cause.code, cause.type, cause.status, cause.error_type)
    texts = (str(value) for value in values if isinstance(value, str | int | float))
    names = [text for text in texts if text != "error" and _NAME.fullmatch(text)]
    outcomes = (_OUTCOMES.get(name.lower()) for name in names)
    return Failed(next((outcome for outcome in outcomes if outcome is not None), "error"), ", ".join(names))
