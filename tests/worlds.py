"""Synthetic truth: small builders of spans, interactions, calls and accounts whose right answers are known.

Times are plain nanoseconds unless a name says otherwise, so that the arithmetic beside a test stays short.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outlay.account import Account, Offsets, Piece, account, path_of
from outlay.assembly import assemble, wanted_keys
from outlay.budget import Moment
from outlay.change import parse_change
from outlay.clocks import Call
from outlay.explain import Question, build_report
from outlay.explain.gather import gather
from outlay.formats.reading import read
from outlay.interaction import Interaction, Span
from outlay.mapping import Rule, Rules
from outlay.report import MomentReport
from outlay.trace import TraceSpan

Floats = NDArray[np.float64]

DATA = Path(__file__).parent / "data"


# Spans and interactions


def span(key: str, parent: str | None, start_ns: int, end_ns: int, /, **more: Any) -> Span:
    """A span whose id is its name, of the component `app`, a container unless `stage` says otherwise."""
    given = {"id": key, "name": key, "component": "app"} | more
    return Span(parent=parent, start_ns=start_ns, end_ns=end_ns, **given)


def interaction(*spans: Span, **more: Any) -> Interaction:
    """An interaction from the first span's start to its end, on its clock, unless the keywords say otherwise."""
    given: dict[str, Any] = {"id": "i", "moment": "m"}
    if spans:
        given |= {"start_ns": spans[0].start_ns, "end_ns": spans[0].end_ns, "clock": spans[0].clock}
    return Interaction(spans=spans, **(given | more))


def traced(key: str, parent: str | None, start_ns: int, end_ns: int | None, /, **more: Any) -> TraceSpan:
    """A producer's span whose id is its name, of the trace `t` and the service `app` on the clock `host`."""
    given: dict[str, Any] = {"trace": "t", "id": key, "name": key, "service": "app", "clock": "host"} | more
    return TraceSpan(parent=parent, start_ns=start_ns, end_ns=end_ns, **given)


def assembled(*spans: TraceSpan, moments: Sequence[Moment] = (), rules: Iterable[Rule] = ()) -> list[Interaction]:
    return list(assemble(spans, Rules(rules), moments))


def only(*spans: TraceSpan, moments: Sequence[Moment] = (), rules: Iterable[Rule] = ()) -> Interaction:
    """The one interaction that the spans make."""
    (made,) = assembled(*spans, moments=moments, rules=rules)
    return made


def spans_of(file: str) -> list[TraceSpan]:
    """The spans of a file under tests/data, as the program reads it."""
    with (DATA / file).open("rb") as stream:
        items = list(read(stream, wanted_keys(Rules(), ())).items)
    assert all(isinstance(item, TraceSpan) for item in items)
    return [item for item in items if isinstance(item, TraceSpan)]


def interactions_of(file: str, moments: Sequence[Moment] = ()) -> list[Interaction]:
    return list(assemble(spans_of(file), Rules(), moments))


def json_lines(file: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (DATA / file).read_bytes().splitlines()]


# Answers in a short form


Stretch = tuple[str, int]


def path(made: Interaction, offsets: Offsets | None = None) -> list[Stretch]:
    """Entries and their lengths in the order of time."""
    return [(piece.entry, piece.end_ns - piece.start_ns) for piece in path_of(made, offsets)]


def ambiguous(made: Interaction) -> list[Stretch]:
    return [(piece.entry, piece.end_ns - piece.start_ns) for piece in path_of(made) if piece.ambiguous]


def summed(pieces: Iterable[Piece]) -> dict[str, int]:
    sums: dict[str, int] = {}
    for piece in pieces:
        sums[piece.entry] = sums.get(piece.entry, 0) + piece.end_ns - piece.start_ns
    return sums


def kinds(made: Interaction) -> list[str]:
    """The kinds of an interaction's notes, sorted."""
    return sorted(note.kind for note in made.notes)


# Clocks


@dataclass(frozen=True, kw_only=True)
class Link:
    """Two clocks whose true distance is known: `theta_ns` at instant 0, growing by `drift_ppm`.

    The way there takes at least `there_ns`, back at least `back_ns`, each longer by exponential queueing.
    """

    theta_ns: int
    drift_ppm: float = 0.0
    there_ns: int = 15_000_000
    back_ns: int = 22_000_000
    queueing_ns: int = 5_000_000

    def truth_ns(self, at_ns: int) -> float:
        return self.theta_ns + self.drift_ppm * at_ns / 1_000_000

    def read_ns(self, at_ns: int) -> int:
        """What the callee's clock shows when the caller's shows `at_ns`."""
        return round(at_ns + self.truth_ns(at_ns))

    def call(self, at_ns: int, random: Random, *, work_ns: int = 30_000_000, names: str = "ab") -> Call:
        received = at_ns + self.there_ns + round(random.expovariate(1) * self.queueing_ns)
        answered = received + work_ns
        back = answered + self.back_ns + round(random.expovariate(1) * self.queueing_ns)
        return Call(names[0], names[1], at_ns, self.read_ns(received), self.read_ns(answered), back)


# Accounts by the hundred


def accounted(
    name: str, total_ns: int, *, start_ns: int = 0, shares: dict[str, int] | None = None, **more: Any
) -> Account:
    """The account of an interaction that is one span of `llm/infer`, or the entries of `shares` one after the other."""
    return account(simple(name, total_ns, start_ns=start_ns, shares=shares, **more))


def simple(
    name: str, total_ns: int, *, start_ns: int = 0, shares: dict[str, int] | None = None, **more: Any
) -> Interaction:
    spans, at = [], start_ns
    for entry, duration in (shares or {"llm/infer": total_ns}).items():
        component, _, stage = entry.partition("/")
        spans.append(span(entry, None, at, at + duration, component=component, stage=stage))
        at += duration
    return interaction(*spans, **({"id": name, "start_ns": start_ns, "end_ns": start_ns + total_ns} | more))


# Worlds of many interactions


def chained(
    ms: Mapping[str, Floats], *, start_ns: Sequence[int] | None = None, prefix: str = "i", **each: Sequence[Any]
) -> list[Interaction]:
    """Interactions of one entry after the other, from a column of milliseconds for each; 20 ms apart.

    Further keywords are columns of `simple`'s: dimensions, sizes, conditions, outcome.
    """
    ns = {name: np.rint(values * 1e6).astype(np.int64).tolist() for name, values in ms.items()}
    n = len(next(iter(ns.values())))
    starts = start_ns if start_ns is not None else [place * 20_000_000 for place in range(n)]
    made = []
    for place in range(n):
        shares = {name: values[place] for name, values in ns.items() if values[place]}
        more = {name: values[place] for name, values in each.items()}
        made.append(
            simple(f"{prefix}{place}", sum(shares.values()), start_ns=int(starts[place]), shares=shares, **more)
        )
    return made


def explained(items: Iterable[Interaction], *, asked: Sequence[str] = (), moment: Moment | None = None) -> MomentReport:
    """The report on the one moment of these interactions."""
    question = Question(moments=() if moment is None else (moment,))
    changes = [(parse_change(text),) for text in asked]
    (made,) = build_report(gather(items, question), (), changes).moments
    return made
