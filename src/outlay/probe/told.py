"""What the head of an answer tells of the server: its own time, its id for the request, and when to come again."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from email.utils import parsedate_to_datetime

from outlay.observed import Reported
from outlay.stages import STAGES
from outlay.units import from_ms, from_s

Headers = Sequence[tuple[str, str]]

_TOTAL = "total"

# Our own names, and what servers call the same thing. A name that is not here says nothing that can be placed.
_STAGES: Mapping[str, str] = {
    name: name
    for stage in STAGES
    if stage.where == "service"
    for name in (stage.name, *(f"{stage.name}.{part}" for part, _ in stage.parts))
} | {
    "queue": "queue.wait",
    "queueing": "queue.wait",
    "queued": "queue.wait",
    "wait": "queue.wait",
    "batch": "queue.batch",
    "batching": "queue.batch",
    "broker": "queue.broker",
    "cold_start": "queue.cold_start",
    "cold-start": "queue.cold_start",
    "coldstart": "queue.cold_start",
    "authn": "auth",
    "authz": "auth",
    "authentication": "auth",
    "routing": "route",
    "router": "route",
    "admission": "admit",
    "ratelimit": "admit",
    "validation": "preprocess",
    "tokenize": "preprocess",
    "tokenise": "preprocess",
    "tokenization": "preprocess",
    "retrieval": "preprocess",
    "inference": "infer",
    "model": "infer",
    "compute": "infer",
    "prefill": "infer.prefill",
    "decode": "infer.decode",
    "generation": "infer.decode",
    "detokenize": "postprocess",
    "detokenise": "postprocess",
}

_TGI: Mapping[str, str] = {
    "x-validation-time": "preprocess",
    "x-queue-time": "queue.wait",
    "x-inference-time": "infer",
}
_TOTALS = ("openai-processing-ms", "x-envoy-upstream-service-time")
_IDS = ("x-request-id", "request-id", "apim-request-id", "x-amzn-requestid", "x-correlation-id")

# What lies between two separators, quoted texts whole; a quote without its end reaches to the end of the header.
_QUOTED = r'"(?:[^"\\]|\\.)*(?:"|\\?$)'
_ENTRY = re.compile(rf'(?:[^",]|{_QUOTED})+', re.DOTALL)
_PARAMETER = re.compile(rf'(?:[^";]|{_QUOTED})+', re.DOTALL)
_PLAIN_ID = re.compile(r"[!-~]{1,128}", re.ASCII)


def reported(headers: Headers) -> Reported | None:
    """What the server said of its own time; None when it said nothing that can be used.

    Of several sources the most direct one counts and the others are not read: `Server-Timing`, in which a server names
    its own stages; then the headers of TGI; then `openai-processing-ms`; last `x-envoy-upstream-service-time`, which a
    proxy measured. Negative times, which several servers write for "unknown", are missing, and so is what is no
    number. Stages that the headers name twice are added, of several totals the largest counts: each hop adds its own,
    and the outer ones hold the inner. A stage beside its own parts would count twice, so only its parts are kept.
    """
    for read in (_server_timing, _tgi, *map(_only_total, _TOTALS)):
        found = read(headers)
        if found is not None:
            return found
    return None


def request_id(headers: Headers) -> str | None:
    """The server's id for the request; None when it gave none that is a plain text of up to 128 characters."""
    values = (value.strip() for name in _IDS for value in _values(headers, name))
    return next((value for value in values if _PLAIN_ID.fullmatch(value)), None)


def retry_after_ns(headers: Headers) -> int | None:
    """How long to stay away, in ns from the answer; None when it does not say.

    `retry-after-ms` is finer and wins. A date counts from the answer's own `date`: the clocks of two hosts are never
    compared.
    """
    readings: tuple[tuple[str, Callable[[str], int]], ...] = (("retry-after-ms", from_ms), ("retry-after", from_s))
    for name, convert in readings:
        for value in _values(headers, name):
            found = _duration_ns(value, convert)
            if found is not None:
                return found
    return _until_ns(headers)


def _server_timing(headers: Headers) -> Reported | None:
    totals_ns: list[int] = []
    parts: dict[str, int] = {}
    for name, duration_ns in _timings(headers):
        if name == _TOTAL:
            totals_ns.append(duration_ns)
        elif name in _STAGES:
            stage = _STAGES[name]
            parts[stage] = parts.get(stage, 0) + duration_ns
    if not totals_ns and not parts:
        return None
    divided = {stage.partition(".")[0] for stage in parts if "." in stage}
    kept = {stage: duration_ns for stage, duration_ns in parts.items() if stage not in divided}
    return Reported(source="server-timing", total_ns=max(totals_ns, default=None), parts=kept)


def _timings(headers: Headers) -> Iterator[tuple[str, int]]:
    """Each metric of the `Server-Timing` headers that has a duration. The first `dur` of a metric counts."""
    for value in _values(headers, "server-timing"):
        for entry in _ENTRY.findall(value):
            name, *parameters = (part.strip() for part in _PARAMETER.findall(entry) or ("",))
            pairs = (parameter.partition("=") for parameter in parameters)
            durations = (text for key, _, text in pairs if key.strip().lower() == "dur")
            duration_ns = _duration_ns(next(durations, ""), from_ms)
            if duration_ns is not None:
                yield name.lower(), duration_ns


def _tgi(headers: Headers) -> Reported | None:
    total_ns = _first_ns(headers, "x-total-time")
    found = {stage: _first_ns(headers, name) for name, stage in _TGI.items()}
    parts = {stage: duration_ns for stage, duration_ns in found.items() if duration_ns is not None}
    return Reported(source="x-total-time", total_ns=total_ns, parts=parts) if total_ns is not None or parts else None


def _only_total(name: str) -> Callable[[Headers], Reported | None]:
    def read(headers: Headers) -> Reported | None:
        total_ns = _first_ns(headers, name)
        return None if total_ns is None else Reported(source=name, total_ns=total_ns)

    return read


def _first_ns(headers: Headers, name: str) -> int | None:
    return _duration_ns(next(_values(headers, name), ""), from_ms)


def _values(headers: Headers, name: str) -> Iterator[str]:
    return (value for key, value in headers if key == name)


def _duration_ns(text: str, convert: Callable[[str], int]) -> int | None:
    try:
        duration_ns = convert(text.strip().strip('"'))
    except ValueError:
        return None
    return duration_ns if duration_ns >= 0 else None


def _until_ns(headers: Headers) -> int | None:
    dates = (next(_values(headers, "retry-after"), ""), next(_values(headers, "date"), ""))
    try:
        until, now = map(parsedate_to_datetime, dates)
        return max(from_s(int((until - now).total_seconds())), 0)
    except (ValueError, TypeError, OverflowError):  # no date, or one with a zone and one without
        return None
