"""Chrome's trace event JSON, which browsers, Perfetto and PyTorch's profiler write: slices on threads and async groups.

A slice becomes a span. The format names no parents: a slice's parent is the innermost slice of its thread, or of its
async group, that has begun and not ended when it begins. Times are microseconds on the trace's one clock.
"""

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import msgspec

from outlay.formats import records
from outlay.formats.attributes import keep
from outlay.formats.codec import FormatError, Item, JsonCodec
from outlay.interaction import Note
from outlay.trace import Event, Scalar, TraceSpan
from outlay.units import from_us, scaled

CLOCK = "trace"

_EXPECTED = "Chrome trace events: {traceEvents: [{ph, ts, pid, tid}]}, or the list alone"

# The event types (`ph`) that are read. All others (counters, flows, object snapshots, ...) take no time.
_COMPLETE, _METADATA = "X", "M"
_BEGIN, _END, _INSTANT = frozenset("BbS"), frozenset("EeF"), frozenset("nTp")
_ASYNC = frozenset("bneSTpF")
_TIMED = _BEGIN | _END | _INSTANT | {_COMPLETE}

# Ids join their fields with these, so that no field may hold them.
_FIELDS = str.maketrans({".": "_", "/": "_"})

_Id = str | int | float | None


class _ScopedId(msgspec.Struct, frozen=True, rename={"of_process": "local", "of_all": "global"}):
    of_process: _Id = None
    of_all: _Id = None


class _Wire(msgspec.Struct, frozen=True):
    ph: str
    name: str | None = None
    cat: str | None = None
    ts: records.Number | None = None
    dur: records.Number | None = None
    pid: _Id = None
    tid: _Id = None
    id: _Id = None
    id2: _ScopedId | None = None
    scope: str | None = None
    args: msgspec.Raw = msgspec.Raw(b"null")


class _File(msgspec.Struct, frozen=True, rename={"events": "traceEvents"}):
    events: list[msgspec.Raw]


class _ProcessName(msgspec.Struct, frozen=True):
    name: str


_FILE: msgspec.json.Decoder[list[msgspec.Raw] | _File] = msgspec.json.Decoder(list[msgspec.Raw] | _File)
_EVENT = msgspec.json.Decoder(_Wire)
_PROCESS_NAME = msgspec.json.Decoder(_ProcessName)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Process:
    pid: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Point:
    """A timed event. `lane` is its thread or async group; `end_ns` is for complete events, None when unknown."""

    ph: str
    lane: str
    pid: str
    name: str
    category: str
    at_ns: int
    end_ns: int | None
    attributes: Mapping[str, Scalar]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Slice:
    """`until_ns` is how far it encloses others: infinity while open, nowhere when its length is unknown."""

    begin: _Point
    end_ns: int | None
    until_ns: float
    attributes: Mapping[str, Scalar]
    events: tuple[Event, ...] = ()


@dataclass(frozen=True, slots=True)
class _Opened:
    begin: _Point
    events: list[Event] = field(default_factory=list)

    def ended(self, end_ns: int | None, attributes: Mapping[str, Scalar]) -> _Slice:
        return _Slice(
            begin=self.begin,
            end_ns=end_ns,
            until_ns=math.inf if end_ns is None else end_ns,
            attributes={**self.begin.attributes, **attributes},
            events=tuple(self.events),
        )


def recognises(value: object) -> bool:
    """Whether a decoded JSON value is an object with `traceEvents`, or a list that holds an event."""
    if isinstance(value, dict):
        return isinstance(value.get("traceEvents"), list)
    return isinstance(value, list) and any(_is_event(item) for item in value)


def parse(raw: bytes, wanted: frozenset[str]) -> Iterator[Item]:
    """One span per slice, thread by thread, and a note for each event that cannot be read or paired."""
    items = _items(raw, wanted)
    yield from (item for item in items if isinstance(item, Note))
    names = {item.pid: item.name for item in items if isinstance(item, _Process)}
    points = sorted((item for item in items if isinstance(item, _Point)), key=lambda point: point.at_ns)
    lanes: dict[str, _Lane] = defaultdict(_Lane)
    for point in points:
        if not lanes[point.lane].take(point):
            yield Note(kind="outside-window", text=f"a slice on {point.lane} began before the trace did")
        if point.ph == _COMPLETE and point.end_ns is None:
            yield Note(kind="missing-value", text=f"a slice on {point.lane} has no duration, or a negative one")
    for key, lane in lanes.items():
        yield from _spans(key, lane.slices(), names)


CODEC = JsonCodec(name="chrome", title="Chrome trace events", recognises=recognises, parse=parse)


def _is_event(value: object) -> bool:
    return isinstance(value, dict) and isinstance(value.get("ph"), str)


class _Lane:
    """The slices of one thread or async group, folded from its events in order of time."""

    def __init__(self) -> None:
        self._done: list[_Slice] = []
        self._opened: dict[int, _Opened] = {}
        # Two orders of the same opened slices, so that an end finds its begin at once however deep they nest.
        self._by_name: dict[str, list[int]] = defaultdict(list)
        self._in_order: list[int] = []
        self._begun = 0

    def take(self, point: _Point) -> bool:
        """False for the end of a slice that never began here."""
        if point.ph == _COMPLETE:
            until_ns = point.at_ns if point.end_ns is None else point.end_ns
            self._done.append(_Slice(begin=point, end_ns=point.end_ns, until_ns=until_ns, attributes=point.attributes))
        elif point.ph in _BEGIN:
            self._begin(point)
        elif point.ph in _END:
            return self._end(point)
        else:
            self._instant(point)
        return True

    def slices(self) -> list[_Slice]:
        """All of them; those still open have no end."""
        return self._done + [opened.ended(None, {}) for opened in self._opened.values()]

    def _begin(self, point: _Point) -> None:
        self._opened[self._begun] = _Opened(point)
        self._by_name[point.name].append(self._begun)
        self._in_order.append(self._begun)
        self._begun += 1

    def _end(self, point: _Point) -> bool:
        # Ends on a thread need not repeat the name; those of async groups, which overlap, do.
        place = self._innermost_of(point.name) if point.name else self._innermost()
        if place is None:
            return False
        opened = self._opened.pop(place)
        self._by_name[opened.begin.name].pop()
        self._done.append(opened.ended(point.at_ns, point.attributes))
        return True

    def _instant(self, point: _Point) -> None:
        # One outside of any slice took no time and tells of none.
        place = self._innermost()
        if place is not None:
            instant = Event(name=point.name, at_ns=point.at_ns, attributes=point.attributes)
            self._opened[place].events.append(instant)

    def _innermost_of(self, name: str) -> int | None:
        places = self._by_name.get(name)
        return places[-1] if places else None

    def _innermost(self) -> int | None:
        while self._in_order and self._in_order[-1] not in self._opened:
            self._in_order.pop()
        return self._in_order[-1] if self._in_order else None


def _items(raw: bytes, wanted: frozenset[str]) -> list[_Process | _Point | Note | None]:
    file = records.whole(_FILE.decode, raw, expected=_EXPECTED)
    events = file.events if isinstance(file, _File) else file
    items = list(records.each(events, partial(_read, wanted=wanted), place="event"))
    # Any JSON list could be this one, so at least one of its records has to say that it is.
    if isinstance(file, list) and all(isinstance(item, Note) for item in items):
        raise FormatError(f"expected {_EXPECTED}; none of {len(items)} records is an event")
    return items


def _read(raw: bytes, wanted: frozenset[str]) -> _Process | _Point | None:
    wire = _EVENT.decode(raw)
    if wire.ph == _METADATA and wire.name == "process_name":
        return _Process(pid=_text(wire.pid), name=_PROCESS_NAME.decode(wire.args).name)
    return _point(wire, wanted) if wire.ph in _TIMED else None


def _point(wire: _Wire, wanted: frozenset[str]) -> _Point:
    if wire.ts is None:
        raise records.Unreadable("it has no ts")
    at_ns = from_us(wire.ts)
    duration_ns = None if wire.dur is None else from_us(wire.dur)
    return _Point(
        ph=wire.ph,
        lane=_group(wire) if wire.ph in _ASYNC else f"{_field(wire.pid)}.{_field(wire.tid)}",
        pid=_text(wire.pid),
        name=wire.name or "",
        category=wire.cat or "",
        at_ns=at_ns,
        end_ns=None if duration_ns is None or duration_ns < 0 else scaled(at_ns + duration_ns, 1),
        attributes=_attributes(wire.args, wanted),
    )


def _group(wire: _Wire) -> str:
    """An id belongs to its process unless it says that it is global."""
    ids = wire.id2 or _ScopedId()
    local = wire.id if wire.id is not None else ids.of_process
    if local is None and ids.of_all is None:
        raise records.Unreadable("it is asynchronous and has no id")
    owner, own = (wire.pid, local) if local is not None else ("global", ids.of_all)
    scope = () if wire.scope is None else (wire.scope,)
    return "/".join(_field(value) for value in (owner, wire.cat, own, *scope))


def _attributes(args: msgspec.Raw, wanted: frozenset[str]) -> dict[str, Scalar]:
    if not wanted or not bytes(args).startswith(b"{"):
        return {}
    return keep(msgspec.json.decode(args, type=dict[str, msgspec.Raw]).items(), wanted)


def _text(value: _Id) -> str:
    return "" if value is None else str(value)


def _field(value: _Id) -> str:
    return _text(value).lower().translate(_FIELDS)


def _spans(lane: str, slices: Sequence[_Slice], names: Mapping[str, str]) -> Iterator[TraceSpan]:
    """Each outermost slice of a thread begins a trace; an async group is one trace."""
    # Of two that begin together the longer is the outer one; of two alike, the first written.
    ordered = sorted(slices, key=lambda piece: (piece.begin.at_ns, -piece.until_ns))
    enclosing: list[tuple[float, str]] = []
    traces = 0
    trace = lane
    for place, piece in enumerate(ordered):
        begin = piece.begin
        while enclosing and enclosing[-1][0] <= begin.at_ns:
            enclosing.pop()
        if not enclosing and begin.ph not in _ASYNC:
            trace = f"{lane}.{traces}"
            traces += 1
        span_id = f"{trace}.{place}"
        yield TraceSpan(
            trace=trace,
            id=span_id,
            parent=enclosing[-1][1] if enclosing else None,
            name=begin.name,
            start_ns=begin.at_ns,
            end_ns=piece.end_ns,
            service=names.get(begin.pid) or (f"pid {begin.pid}" if begin.pid else None),
            clock=CLOCK,
            scope=begin.category,
            attributes=piece.attributes,
            events=piece.events,
        )
        enclosing.append((piece.until_ns, span_id))
