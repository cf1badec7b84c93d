"""One request as its client saw it, and its account: network, server and client split without trusting anyone."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from outlay.interaction import Interaction, Mark, Note, Outcome
from outlay.stages import STAGES, UNATTRIBUTED, USER_COMPONENT, joint
from outlay.units import format_duration


@dataclass(frozen=True, slots=True, kw_only=True)
class Reported:
    """What the server said of its own time, in ns. `source` names the header.

    `total_ns` is its time from taking the request up to writing the head of the answer; `parts` are stages in it, by
    the names of `stages`, such as `queue.wait`.
    """

    source: str
    total_ns: int | None = None
    parts: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """The instants of one request on its client's clock, in causal order; None did not happen or was not seen.

    `first_token_ns` is the first token of any kind, reasoning included; `first_output_ns` the first that a person
    would see or hear. Without a stream both are None and `last_ns` is the end of the body. `done_ns` is the end of the
    stream. `floor_ns` is the path's smallest round trip, known from handshakes and the kernel. `tokens_ns` are the
    instants of the frames that carried tokens.
    """

    id: str
    intended_ns: int
    enqueued_ns: int | None = None
    begun_ns: int | None = None
    dns_ns: int | None = None
    connected_ns: int | None = None
    tls_ns: int | None = None
    upgraded_ns: int | None = None
    written_ns: int | None = None
    sent_ns: int | None = None
    first_byte_ns: int | None = None
    headers_ns: int | None = None
    first_token_ns: int | None = None
    first_output_ns: int | None = None
    last_ns: int | None = None
    done_ns: int | None = None
    ended_ns: int | None = None
    parsed_ns: int | None = None
    outcome: Outcome = "ok"
    why: str | None = None
    streamed: bool = True
    reused: bool = False
    floor_ns: int | None = None
    reported: Reported | None = None
    tokens_ns: tuple[int, ...] = ()
    input_tokens: int | None = None
    output_tokens: int | None = None
    dimensions: Mapping[str, str] = field(default_factory=dict)
    sender: int = 0  # which of the processes that send
    retransmitted: int = 0  # segments

    @property
    def over_ns(self) -> int | None:
        """When the answer was all there; of a request that failed, when its client gave it up."""
        answered = (self.done_ns, self.last_ns) if self.outcome == "ok" else ()
        return next((at_ns for at_ns in (*answered, self.ended_ns) if at_ns is not None), None)


Instant = Callable[[Observed], int | None]

# What a limit may count to, by the name of its mark. A whole answer can be seen when all of it is there.
UNTIL: Mapping[str, Instant] = {
    "first_token": lambda seen: seen.first_token_ns,
    "first_output_token": lambda seen: seen.first_output_ns if seen.streamed else seen.over_ns,
    "end": lambda seen: seen.over_ns,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """One instant of an answer, counted twice: from the intended start and from the write. None: not known.

    `response_ns` is what a user waits; `service_ns` leaves out what the sender itself held the request back.
    """

    response_ns: int | None
    service_ns: int | None


def ttft(observed: Observed) -> Latency:
    """To the first token of any kind, reasoning included; whatever became of the request later."""
    return _latency(observed, observed.first_token_ns)


def first_output_latency(observed: Observed) -> Latency:
    """To the first token that a person would see or hear; whatever became of the request later."""
    return _latency(observed, observed.first_output_ns)


def total_latency(observed: Observed) -> Latency:
    """To the end of an answer that ended well; of any other, nothing is known."""
    return _latency(observed, observed.over_ns if observed.outcome == "ok" else None)


def _latency(observed: Observed, at_ns: int | None) -> Latency:
    if at_ns is None:
        return Latency(response_ns=None, service_ns=None)
    written_ns = observed.written_ns
    return Latency(
        response_ns=at_ns - observed.intended_ns, service_ns=None if written_ns is None else at_ns - written_ns
    )


def per_token_ns(observed: Observed) -> int | None:
    """The mean time between tokens, `(last - first) / (tokens - 1)`, rounded.

    The tokens are those the server counted, reasoning included, because one frame may carry several. None without a
    count, below 2 tokens, and where there was no stream.
    """
    tokens, first_ns, last_ns = observed.output_tokens, observed.first_token_ns, observed.last_ns
    if tokens is None or tokens < 2 or first_ns is None or last_ns is None:
        return None
    return round((last_ns - first_ns) / (tokens - 1))


def gaps_ns(observed: Observed) -> tuple[int, ...]:
    """The gaps between the frames that carried tokens, in order; empty below two frames."""
    return tuple(later - earlier for earlier, later in pairwise(observed.tokens_ns))


def interaction_of(observed: Observed, *, moment: str, clock: str, component: str, shift_ns: int = 0) -> Interaction:
    """The request as a chain of marks whose account sums exactly. `shift_ns` is added to every instant.

    What the client did is its own; rounds of a set-up that this request did not wait for have no row. Any other instant
    that is missing leaves its stage to the next under a joint name. The wait for the first result is divided:

    - The floor, as far as it fits into the wait, is the path's: half of it before the server, half after. One-way
      times cannot be known from one side, so the halves are a convention, right to half a floor; their sum is exact.
    - Of a whole answer the server's reported total is the server's, in its parts (those that are stages of a service);
      what remains is network above the floor. It stands on the way back, though which way it was is not known.
      Without a floor the network is halved like one.
    - Of a stream only reported parts from before the first token are taken out. The rest, `uplink.excess..` through
      `infer.prefill`, holds the server and what the network took above the floor, both ways.

    A report that does not fit into the wait is not used, and noted. Marks `path_there`, `path_back` and
    `reported.*` are derived so; all others were stamped. `headers`, `parsed` and a stream's `first_byte` end nothing.
    A request that failed ends where its client gave it up, its chain where its data ends.
    """
    notes: list[Note] = []
    no_token = observed.first_token_ns is None and observed.first_output_ns is None
    if no_token and observed.streamed and observed.outcome == "ok":
        notes.append(Note(kind="no-first-output", text="a stream that carried no token"))
    steps = [*_sending(observed), *_answer(observed, component, notes)]
    end_ns = observed.over_ns
    return Interaction(
        id=observed.id,
        moment=moment,
        start_ns=observed.intended_ns + shift_ns,
        end_ns=None if end_ns is None else end_ns + shift_ns,
        clock=clock,
        outcome=observed.outcome,
        dimensions=observed.dimensions,
        sizes=_sizes(observed),
        marks=tuple(
            Mark(name=name, at_ns=at_ns + shift_ns, clock=clock, component=owner, stage=stage)
            for name, at_ns, owner, stage in (*_merged(steps), *_aside(observed))
        ),
        notes=tuple(notes),
        conditions={} if observed.floor_ns is None else {"rtt_ns": float(observed.floor_ns)},
    )


# A mark to be: name, instant, and the component and stage that end there.
_Step = tuple[str, int | None, str, str]
_Rows = list[tuple[str, int]]

_SERVICE = tuple(
    name
    for stage in STAGES
    if stage.where == "service"
    for name in (stage.name, *(f"{stage.name}.{part}" for part, _ in stage.parts))
)
_FIRST_TOKEN = "infer.prefill"
# A stream's head is written before its tokens are made, so of `infer` as a whole it can say nothing.
_BEFORE_FIRST = tuple(name for name in _SERVICE[: _SERVICE.index(_FIRST_TOKEN) + 1] if name != "infer")
_TOKENS = joint("infer.decode", "downlink")
_AFTER = joint("postprocess", "downlink")


def _sizes(observed: Observed) -> dict[str, int]:
    counts = {"input_tokens": observed.input_tokens, "output_tokens": observed.output_tokens}
    return {name: count for name, count in counts.items() if count is not None}


def _sending(observed: Observed) -> Iterator[_Step]:
    """Up to the last byte of the request, with the rounds of a set-up that were waited for."""
    yield "intended", observed.intended_ns, USER_COMPONENT, "queue.wait"
    yield "enqueued", observed.enqueued_ns, USER_COMPONENT, "queue.wait"
    yield "begun", observed.begun_ns, USER_COMPONENT, "queue.wait"
    if observed.dns_ns is not None:
        yield "dns", observed.dns_ns, USER_COMPONENT, "uplink.dns"
    # Where there was TLS there was a new connection, seen or not.
    if observed.connected_ns is not None or observed.tls_ns is not None:
        yield "connected", observed.connected_ns, USER_COMPONENT, "uplink.connect"
    if observed.tls_ns is not None:
        yield "tls", observed.tls_ns, USER_COMPONENT, "uplink.tls"
    if observed.upgraded_ns is not None:
        yield "upgraded", observed.upgraded_ns, USER_COMPONENT, "uplink.connect"
    yield "written", observed.written_ns, USER_COMPONENT, "prepare"
    if observed.sent_ns is not None:
        yield "sent", observed.sent_ns, USER_COMPONENT, "uplink.send"


def _answer(observed: Observed, component: str, notes: list[Note]) -> Iterator[_Step]:
    """From the last byte of the request to the last of the answer. The first result that was seen ends the wait."""
    results = _tokens(observed, component) if observed.streamed else _body(observed, component)
    for name, at_ns, _, _ in results:
        if at_ns is not None:
            yield from _wait(observed, component, name, at_ns, notes)
            break
    yield from results


def _tokens(observed: Observed, component: str) -> Iterator[_Step]:
    yield "first_token", observed.first_token_ns, component, _FIRST_TOKEN
    yield "first_output_token", observed.first_output_ns, component, _TOKENS
    yield "last_token", observed.last_ns, component, _TOKENS
    yield "end", observed.done_ns, component, _AFTER


def _body(observed: Observed, component: str) -> Iterator[_Step]:
    yield "first_byte", observed.first_byte_ns, component, _AFTER
    yield "last_byte", observed.last_ns, USER_COMPONENT, "downlink"
    yield "end", observed.done_ns, component, _AFTER


def _wait(observed: Observed, component: str, name: str, at_ns: int, notes: list[Note]) -> Iterator[_Step]:
    """The wait that `name` ends, divided as far as is known: the way there, the server, the way back."""
    through = _FIRST_TOKEN if name == "first_token" else "downlink.excess"
    start = "uplink.floor" if observed.sent_ns is not None else "uplink.send"
    begun_ns = observed.written_ns if observed.sent_ns is None else observed.sent_ns
    if begun_ns is None:
        yield name, at_ns, component, joint("uplink.floor", through)
        return
    wait_ns = max(at_ns - begun_ns, 0)
    floor_ns = None if observed.floor_ns is None else min(observed.floor_ns, wait_ns)
    rows, complete = _server(observed, wait_ns, floor_ns, notes)
    if floor_ns is not None:
        there, back, path_ns = joint(start, "uplink.floor"), "downlink.floor", floor_ns
    elif complete:
        there, back, path_ns = "uplink", "downlink", wait_ns - sum(taken_ns for _, taken_ns in rows)
    else:
        yield from _in_turn(begun_ns, component, rows)
        yield name, at_ns, component, _remainder(start, through, rows)
        return
    there_ns = begun_ns + path_ns // 2
    yield "path_there", there_ns, USER_COMPONENT, there
    yield from _in_turn(there_ns, component, rows)
    excess = (
        (USER_COMPONENT, "downlink.excess") if complete else (component, _remainder("uplink.excess", through, rows))
    )
    yield "path_back", max(at_ns, begun_ns) - (path_ns - path_ns // 2), *excess
    yield name, at_ns, USER_COMPONENT, back


def _in_turn(from_ns: int, component: str, rows: _Rows) -> Iterator[_Step]:
    for stage, taken_ns in rows:
        from_ns += taken_ns
        yield f"reported.{stage}", from_ns, component, stage


def _remainder(start: str, through: str, rows: _Rows) -> str:
    """The name of what the rows leave of `start` through `through`: stages at its end that have a row are not in it."""
    if through != _FIRST_TOKEN:
        return joint(start, through)
    split = {stage for stage, _ in rows}
    whole = (name for name in reversed(_BEFORE_FIRST) if name == _FIRST_TOKEN or "." not in name)
    return joint(start, next((name for name in whole if name not in split), "uplink.excess"))


def _server(observed: Observed, wait_ns: int, floor_ns: int | None, notes: list[Note]) -> tuple[_Rows, bool]:
    """What the server's report says of the wait, and whether that is all of the server's time in it."""
    reported = observed.reported
    if reported is None:
        return [], False
    room_ns = wait_ns if floor_ns is None else wait_ns - floor_ns
    total_ns = reported.total_ns
    known = _BEFORE_FIRST if observed.streamed else _SERVICE
    parts = [(name, reported.parts[name]) for name in known if name in reported.parts]
    named_ns = sum(taken_ns for _, taken_ns in parts)
    least_ns = min([named_ns if total_ns is None else total_ns, *reported.parts.values()])
    if least_ns < 0 or (named_ns if total_ns is None else total_ns) > room_ns:
        room = format_duration(room_ns)
        notes.append(Note(kind="contradiction", text=f"{reported.source} says more than the {room} there was for it"))
        return [], False
    if total_ns is not None and named_ns > total_ns:
        notes.append(Note(kind="contradiction", text=f"{reported.source}: the parts are more than their total"))
        parts, named_ns = [], 0
    if total_ns is None or observed.streamed:
        return parts, False
    return [(_unnamed(parts), total_ns - named_ns), *parts], True


def _unnamed(parts: _Rows) -> str:
    """The name of the server's time that no part names: any of the stages that have none."""
    split = {stage for stage, _ in parts}
    left = [name for name in _SERVICE if "." not in name and name not in split]
    return joint(left[0], left[-1]) if len(left) > 1 else UNATTRIBUTED


def _merged(steps: Iterable[_Step]) -> Iterator[tuple[str, int, str | None, str | None]]:
    """The steps that have an instant; a missing one leaves its stage to the next. The first ends nothing."""
    begun, missed = False, ""
    for name, at_ns, owner, stage in steps:
        ended = joint(missed, stage) if missed else stage
        if at_ns is not None:
            yield (name, at_ns, owner, ended) if begun else (name, at_ns, None, None)
            begun, missed = True, ""
        else:
            missed = ended


def _aside(observed: Observed) -> Iterator[tuple[str, int, str | None, str | None]]:
    """Instants that end no stage."""
    first_byte_ns = observed.first_byte_ns if observed.streamed else None
    for name, at_ns in (
        ("first_byte", first_byte_ns),
        ("headers", observed.headers_ns),
        ("parsed", observed.parsed_ns),
    ):
        if at_ns is not None:
            yield name, at_ns, None, None
