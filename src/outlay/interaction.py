"""One measured instance of a moment: marks, spans, dimensions, outcome.

Times are integer nanoseconds on a named clock (a host and its boot). Nothing here compares two clocks; `clocks` does.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Outcome = Literal["ok", "error", "timeout", "refused", "aborted", "unsent"]
Kind = Literal["internal", "client", "server", "producer", "consumer"]

KINDS: tuple[Kind, ...] = ("internal", "client", "server", "producer", "consumer")

OUTCOMES: Mapping[Outcome, str] = {
    "ok": "the person got the result",
    "error": "the service answered with an error",
    "timeout": "nobody waited any longer",
    "refused": "turned away before work began",
    "aborted": "the person left or spoke over the answer",
    "unsent": "scheduled, but the client never sent it",
}

# The mark at which a streamed answer begins.
FIRST_TOKEN = "first_token"

# The dimensions that Outlay itself reads; producers may add their own.
SITE, VERSION, HARDWARE, SHAPE = "site", "version", "hardware", "shape"
# The input an interaction was read from; only told when asked for.
SOURCE = "source"

# What the service or the path looked like when the interaction began, as its producer saw it.
CONDITIONS: Mapping[str, str] = {
    "queue_depth": "requests waiting before this one",
    "in_flight": "requests under way, waiting or served",
    "running": "requests being served",
    "utilisation": "share of the capacity in use, 0 to 1",
    "rtt_ns": "round-trip time of the path",
    "rtt_spread_ns": "how far round-trip times of the path lay apart of late",
}

NOTE_KINDS: Mapping[str, str] = {
    "async-after-end": "spans that go on after the answer; they are not on the person's path",
    "clock-skew": "a clock proved wrong by a call that would otherwise take negative time; corrected within bounds",
    "clock-step": "a clock that jumped: no single offset fits all calls around that time",
    "clock-unbounded": "no call ties these two clocks together: order and gaps between them are not proven",
    "contradiction": "two statements about the same time that cannot both be true; the more direct one was used",
    "dropped-record": "records that could not be read",
    "duplicate-span": "the same span delivered more than once; the first was used",
    "incomplete": "interactions without a start or an end; they count against coverage",
    "late-span": "spans that arrived after their trace had been accounted",
    "missing-parent": "spans whose parent is not in the data; the trace is partial",
    "missing-value": "values a producer marked as unknown, or that cannot be (negative, -1)",
    "no-first-output": "streamed answers whose first token or byte the data does not show",
    "out-of-order-mark": "marks that contradict the order of their chain; moved to the one before",
    "outside-window": "time before or after what this data shows; it is in no number here",
    "overlapping-attempts": "redirects or retries inside one request",
    "too-many-rows": "distinct unnamed edges beyond what a cohort keeps apart",
    "unnamed-time": "interactions of which more than 5 % and 50 ms is unattributed",
    "unsplit-call": "calls seen only by their caller: network, queue and model are one row",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """Something about the data that a reader of the numbers must know. `kind` is a key of NOTE_KINDS."""

    kind: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A named instant. `stage`, when given, names the time that ends here and began at the mark before it."""

    name: str
    at_ns: int
    clock: str = ""
    component: str | None = None
    stage: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """An interval of work. `stage` None means a container: what its children leave over belongs to nobody yet.

    `follows` says that the span was caused by its parent but does not run inside it (a queue's consumer, a
    FOLLOWS_FROM reference), so the parent's end does not bound it. An end before the start is data, not an error.
    """

    id: str
    parent: str | None
    name: str
    component: str
    start_ns: int
    end_ns: int
    stage: str | None = None
    kind: Kind = "internal"
    clock: str = ""
    follows: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Interaction:
    """From the person's event (`start_ns`) to what the person perceived (`end_ns`), both on `clock`.

    `start_ns` or `end_ns` None means that the data does not say: such an interaction counts against coverage.
    `sizes` are what the shape is made of (`input_tokens`, `output_tokens`, ...); absent means unknown.
    `conditions` are what the service looked like on arrival, by the names of CONDITIONS or the producer's own.
    `weight` is how many interactions it stands for, where its producer kept only a sample: at least 1.
    """

    id: str
    moment: str
    start_ns: int | None
    end_ns: int | None
    clock: str = ""
    outcome: Outcome = "ok"
    dimensions: Mapping[str, str] = field(default_factory=dict)
    sizes: Mapping[str, int] = field(default_factory=dict)
    marks: tuple[Mark, ...] = ()
    spans: tuple[Span, ...] = ()
    notes: tuple[Note, ...] = ()
    conditions: Mapping[str, float] = field(default_factory=dict)
    weight: int = 1


def shape(sizes: Mapping[str, int]) -> str | None:
    """The interaction's size class: each size in its log2 bucket, such as `input_tokens 1024+ output_tokens 256+`.

    None when no size is known. A size of 0 is its own bucket.
    """
    if not sizes:
        return None
    return " ".join(f"{name} {_bucket(size)}" for name, size in sorted(sizes.items()))


def _bucket(size: int) -> str:
    return f"{1 << (size.bit_length() - 1)}+" if size > 0 else "0"


def dimension(interaction: Interaction, name: str) -> str | None:
    """The value of one dimension; `shape` is derived from the sizes unless the producer stated it. None: unknown."""
    value = interaction.dimensions.get(name)
    return shape(interaction.sizes) if value is None and name == SHAPE else value
