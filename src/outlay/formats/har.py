"""HAR 1.2: what a browser or an HTTP client recorded of each request, phase by phase, in milliseconds.

Only hosts and paths are kept of a URL: query strings hold keys. -1 says that a phase did not apply. TLS (`ssl`) lies
inside `connect`, and what Chrome calls `_blocked_queueing` inside `blocked`; neither is added again.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from urllib.parse import SplitResult, urldefrag, urljoin, urlsplit

import msgspec

from outlay.formats import records
from outlay.formats.codec import Item, JsonCodec
from outlay.formats.isotime import parse_iso_ns
from outlay.interaction import SITE, Interaction, Mark, Note, Outcome
from outlay.stages import USER_COMPONENT, joint
from outlay.units import NS_PER_MS, format_duration, from_ms, scaled

CLOCK = "browser"

_EXPECTED = "HAR: {log: {entries: [{startedDateTime, time, request, response, timings}]}}"

# The phases in the order in which they pass, `connect` without the TLS inside it, and the stage that each one is.
# Nobody but the server can cut its own work out of `wait`.
_STAGES: Mapping[str, str] = {
    "blocked": "queue.wait",
    "dns": "uplink.dns",
    "connect": "uplink.connect",
    "ssl": "uplink.tls",
    "send": "uplink.send",
    "wait": joint("uplink.floor", "downlink"),
    "receive": "downlink",
}
_NOT_APPLICABLE = -1

# A recorder that counts whole milliseconds may round each part on its own.
_ROUNDING_NS = NS_PER_MS

_STREAMED = frozenset({"text/event-stream", "application/vnd.amazon.eventstream"})

_VERSIONS: Mapping[str, str] = {
    "http/1.0": "1.0",
    "http/1.1": "1.1",
    "1.1": "1.1",
    "http/2": "2",
    "http/2.0": "2",
    "h2": "2",
    "http/3": "3",
    "http/3.0": "3",
    "h3": "3",
}

# What browsers call a request that nobody answered, by a word in it; any other failure is an error.
_FAILURES: tuple[tuple[bytes, Outcome], ...] = (
    (b"ABORTED", "aborted"),
    (b"TIMED_OUT", "timeout"),
    (b"BLOCKED_BY_CLIENT", "unsent"),
)
_NO_FAILURE = frozenset({b"null", b'""'})

# RFC 9110, section 15.4: clients should detect cycles; five hops in a row were once the recommended limit.
_MOST_REDIRECTS = 5

_HIERARCHICAL = frozenset({"http", "https", "ws", "wss"})
_SECURE = frozenset({"https", "wss"})
_PATH_PARAMETERS = re.compile(r";[^/]*")


class _Timings(msgspec.Struct, frozen=True):
    blocked: float | None = None
    dns: float | None = None
    connect: float | None = None
    ssl: float | None = None
    send: float | None = None
    wait: float | None = None
    receive: float | None = None


class _Request(msgspec.Struct, frozen=True, rename="camel"):
    url: str
    method: str | None = None
    http_version: str | None = None
    body_size: float | None = None


class _Content(msgspec.Struct, frozen=True, rename="camel"):
    mime_type: str | None = None


class _Response(
    msgspec.Struct,
    frozen=True,
    rename={"http_version": "httpVersion", "body_size": "bodySize", "redirect_url": "redirectURL", "error": "_error"},
):
    status: float | None = None
    http_version: str | None = None
    body_size: float | None = None
    redirect_url: str | None = None
    content: _Content | None = None
    error: msgspec.Raw = msgspec.Raw(b"null")


class _Entry(msgspec.Struct, frozen=True, rename={"started": "startedDateTime"}):
    request: _Request
    started: str | None = None
    time: float | None = None
    response: _Response | None = None
    timings: _Timings | None = None


class _Log(msgspec.Struct, frozen=True):
    entries: list[msgspec.Raw]


class _File(msgspec.Struct, frozen=True):
    log: _Log


_FILE = msgspec.json.Decoder(_File)
_ENTRY = msgspec.json.Decoder(_Entry)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Call:
    """One request. `phases_ns` holds the phases that applied, in order; None times are not in the data."""

    url: SplitResult
    target: str | None
    request: _Request
    response: _Response
    start_ns: int | None
    end_ns: int | None
    phases_ns: Mapping[str, int]
    oddities: tuple[tuple[str, str], ...]

    @property
    def name(self) -> str:
        """Method and path, without the parts that may hold a key."""
        path = _PATH_PARAMETERS.sub("", self.url.path) or "/"
        # What follows other schemes is content (data:) or names nothing on the network (blob:).
        where = path if self.url.scheme in _HIERARCHICAL else f"{self.url.scheme}:"
        return f"{self.request.method or '?'} {where}"

    @property
    def connected(self) -> bool:
        return any(self.phases_ns.get(phase) for phase in ("connect", "ssl"))

    @property
    def streamed(self) -> bool:
        return self.mime in _STREAMED

    @property
    def mime(self) -> str | None:
        """The media type without its parameters; None when the response names none."""
        stated = self.response.content and self.response.content.mime_type
        mime = (stated or "").partition(";")[0].strip().lower()
        return mime if "/" in mime else None


def recognises(value: object) -> bool:
    """Whether a decoded JSON value is a HAR file."""
    log = value.get("log") if isinstance(value, dict) else None
    return isinstance(log, dict) and isinstance(log.get("entries"), list)


def parse(raw: bytes, _wanted: frozenset[str]) -> Iterator[Item]:
    """One interaction per request, and a note for each that cannot be read and each chain of redirects gone astray."""
    log = records.whole(_FILE.decode, raw, expected=_EXPECTED).log
    calls = list(records.each(log.entries, _read, place="entry"))
    # A recorder that never saw a connection being made does not look: of reuse it says nothing.
    sees_connections = any(isinstance(call, _Call) and call.connected for call in calls)
    for place, call in enumerate(calls):
        yield call if isinstance(call, Note) else _interaction(place, call, sees_connections=sees_connections)
    yield from _redirect_notes(call for call in calls if isinstance(call, _Call))


CODEC = JsonCodec(name="har", title="HAR", recognises=recognises, parse=parse)


def _read(raw: bytes) -> _Call:
    entry = _ENTRY.decode(raw)
    stated = msgspec.structs.asdict(entry.timings or _Timings())
    stated_ns = {phase: from_ms(value) for phase, value in stated.items() if value is not None and value >= 0}
    phases_ns = _without_tls(stated_ns)
    named_ns = sum(phases_ns.values()) if phases_ns else None
    total_ns = from_ms(entry.time) if entry.time is not None and entry.time >= 0 else None
    start_ns = _start_ns(entry.started)
    response = entry.response or _Response()
    url = _url(entry.request.url)
    return _Call(
        url=url,
        target=_target(url, response),
        request=entry.request,
        response=response,
        start_ns=start_ns,
        end_ns=_end_ns(start_ns, total_ns, named_ns),
        phases_ns=phases_ns,
        oddities=(
            *_missing({**stated, "time": entry.time}, start_ns, total_ns, named_ns),
            *_contradictions(stated_ns, total_ns, named_ns),
        ),
    )


def _without_tls(stated_ns: Mapping[str, int]) -> dict[str, int]:
    """The phases one after the other: TLS taken out of `connect`, and cut to it when it says more."""
    phases_ns = dict(stated_ns)
    tls_ns = phases_ns.pop("ssl", None)
    connect_ns = phases_ns.get("connect")
    if tls_ns is None or connect_ns is None:
        return phases_ns
    inside_ns = min(tls_ns, connect_ns)
    split_ns = {**phases_ns, "connect": connect_ns - inside_ns, "ssl": inside_ns}
    return {phase: split_ns[phase] for phase in _STAGES if phase in split_ns}


def _start_ns(text: str | None) -> int | None:
    try:
        return None if text is None else parse_iso_ns(text)
    except ValueError:
        return None


def _end_ns(start_ns: int | None, *durations_ns: int | None) -> int | None:
    """The later of two statements: what a total adds to its parts has no name, and no part may outlast the end."""
    known_ns = [duration_ns for duration_ns in durations_ns if duration_ns is not None]
    return scaled(start_ns + max(known_ns), 1) if start_ns is not None and known_ns else None


def _url(text: str) -> SplitResult:
    try:
        return urlsplit(text)
    except ValueError:
        raise records.Unreadable("its url is none") from None


def _target(url: SplitResult, response: _Response) -> str | None:
    """Where a redirect leads; None for any other answer."""
    if response.status is None or not 300 <= response.status < 400 or not response.redirect_url:
        return None
    try:
        return urldefrag(urljoin(url.geturl(), response.redirect_url)).url
    except ValueError:
        return None


def _missing(
    stated: Mapping[str, float | None], start_ns: int | None, total_ns: int | None, named_ns: int | None
) -> Iterator[tuple[str, str]]:
    negative = [name for name, value in stated.items() if value is not None and value < 0 and value != _NOT_APPLICABLE]
    if negative:
        yield "missing-value", f"{', '.join(negative)} below zero"
    if start_ns is None:
        yield "missing-value", "no startedDateTime that can be read"
    if total_ns is None and named_ns is None:
        yield "missing-value", "neither time nor timings"


def _contradictions(
    stated_ns: Mapping[str, int], total_ns: int | None, named_ns: int | None
) -> Iterator[tuple[str, str]]:
    tls_ns, connect_ns = stated_ns.get("ssl"), stated_ns.get("connect")
    if tls_ns and (connect_ns is None or tls_ns > connect_ns):
        yield "contradiction", f"ssl {format_duration(tls_ns)} lies inside connect, which is {_said(connect_ns)}"
    if total_ns is not None and named_ns is not None and abs(total_ns - named_ns) > _ROUNDING_NS:
        yield "contradiction", f"time is {format_duration(total_ns)}, its parts sum to {format_duration(named_ns)}"


def _said(value_ns: int | None) -> str:
    return "absent" if value_ns is None else format_duration(value_ns)


def _interaction(place: int, call: _Call, *, sees_connections: bool) -> Interaction:
    sizes = {"request_bytes": call.request.body_size, "response_bytes": call.response.body_size}
    dimensions = {
        SITE: call.url.hostname,
        "http.version": _version(call),
        "connection": _connection(call, sees_connections=sees_connections),
        "mime": call.mime,
    }
    return Interaction(
        id=f"{place} {call.name}",
        moment="http-request",
        start_ns=call.start_ns,
        end_ns=call.end_ns,
        clock=CLOCK,
        outcome=_outcome(call.response),
        dimensions={name: value for name, value in dimensions.items() if value},
        sizes={name: int(size) for name, size in sizes.items() if size is not None and size >= 0},
        marks=tuple(_marks(call)),
        notes=tuple(Note(kind=kind, text=f"entry {place}: {text}") for kind, text in _oddities(call)),
    )


def _version(call: _Call) -> str | None:
    """The protocol version that both sides spoke; None when the recorder wrote something else there."""
    stated = (call.response.http_version, call.request.http_version)
    return next((_VERSIONS[text.lower()] for text in stated if text and text.lower() in _VERSIONS), None)


def _connection(call: _Call, *, sees_connections: bool) -> str | None:
    if call.connected:
        return "new"
    return "reused" if sees_connections and call.response.status else None


def _outcome(response: _Response) -> Outcome:
    failure = bytes(response.error)
    if failure not in _NO_FAILURE:
        return next((outcome for word, outcome in _FAILURES if word in failure.upper()), "error")
    return "ok" if response.status is not None and 0 < response.status < 400 else "error"


def _marks(call: _Call) -> Iterator[Mark]:
    at_ns = call.start_ns
    for phase, duration_ns in call.phases_ns.items():
        if at_ns is None:
            return
        at_ns += duration_ns
        component, stage = _row(call, phase)
        yield Mark(name=phase, at_ns=at_ns, clock=CLOCK, component=component, stage=stage)


def _row(call: _Call, phase: str) -> tuple[str, str]:
    """The component and the stage of a phase, joint where the recorder could not see the border."""
    server = call.url.hostname or "server"
    if phase == "wait":
        return server, _STAGES[phase]
    if phase == "receive" and call.streamed:
        return server, joint("infer.decode", "downlink")
    if phase == "connect" and "ssl" not in call.phases_ns and call.url.scheme in _SECURE:
        return USER_COMPONENT, joint("uplink.connect", "uplink.tls")
    return USER_COMPONENT, _STAGES[phase]


def _oddities(call: _Call) -> Iterator[tuple[str, str]]:
    yield from call.oddities
    if call.streamed:
        receive_ns = call.phases_ns.get("receive")
        where = "; all of the answer sits in wait" if receive_ns == 0 else ""
        yield "no-first-output", f"a HAR does not show the first token of a streamed answer{where}"


def _redirect_notes(calls: Iterable[_Call]) -> Iterator[Note]:
    """One note per chain of redirects that returns to an address, or goes on for longer than it should."""
    # By the address that a chain leads to: the addresses behind it, or None once the note is out.
    chains: dict[str, set[str] | None] = {}
    for call in calls:
        here = urldefrag(call.request.url).url
        visited = chains.pop(here, set())
        if call.target is None:
            continue
        if visited is not None:
            visited.add(here)
            if call.target in visited or len(visited) > _MOST_REDIRECTS:
                yield Note(kind="overlapping-attempts", text=f"{call.name}: redirected in a circle, or without an end")
                visited = None
        chains[call.target] = visited
