"""A span as its producer wrote it, before rules say what it means."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from outlay.interaction import Kind

Scalar = str | int | float | bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """An instant inside a span, on the span's clock."""

    name: str
    at_ns: int
    attributes: Mapping[str, Scalar] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceSpan:
    """One span of one trace. Ids are lower case; `parent` None means that the producer named none.

    `service` is None where the producer named none. `clock` names the host whose clock stamped the times: the
    host where it is known, else the service. `end_ns` None means that the producer never saw the end.
    `attributes` hold the span's own and `resource` those of the process behind it; codecs keep only the keys they
    are asked for (see `mapping.wanted_keys`) and never any prompt or output. `follows` as in
    `interaction.Span`. `scope` is the instrumentation library, or "".
    """

    trace: str
    id: str
    parent: str | None
    name: str
    start_ns: int
    end_ns: int | None
    service: str | None = None
    kind: Kind = "internal"
    clock: str = ""
    follows: bool = False
    failed: bool = False
    scope: str = ""
    attributes: Mapping[str, Scalar] = field(default_factory=dict)
    resource: Mapping[str, Scalar] = field(default_factory=dict)
    events: tuple[Event, ...] = ()
