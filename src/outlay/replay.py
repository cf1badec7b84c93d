"""Interactions as what waits for what, so that they can be run again with other durations.

`drawing` says what waits for what in one interaction's spans. Chains of marks, and interactions of which only the
account is known, are one entry after the other. Run unchanged, every interaction takes exactly as long as it did.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from outlay.account import account, has_chain, window_of
from outlay.accounts import Accounts, Floats, Ints, Labels
from outlay.clocks import Offsets
from outlay.drawing import Drawing, seen_apart
from outlay.graph import WAITS, Draft, Graph
from outlay.interaction import Interaction


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Replay:
    """Interactions in columns, and the edges between their events.

    Row i of `start_ns` to `sizes` is one interaction and stands for `weights[i]`; rows that are not `served` never
    gave a result and have a total of 0. `flat` are the rows of which only the account is known. Edge k belongs to
    interaction `rows[k]` and to `entries[codes[k]]`, or to none where the code is WAITS, and takes `durations_ns[k]`.
    """

    start_ns: Ints
    total_ns: Ints
    weights: Floats
    served: NDArray[np.bool_]
    flat: NDArray[np.bool_]
    dimensions: Mapping[str, Labels]
    sizes: Mapping[str, Floats]
    entries: tuple[str, ...]
    codes: NDArray[np.int32]
    rows: NDArray[np.int32]
    durations_ns: Ints
    graphs: tuple[Graph, ...] = field(repr=False)

    def __len__(self) -> int:
        return len(self.total_ns)

    def totals(self, durations_ns: Ints) -> Ints:
        """How long each interaction takes when edge k takes `durations_ns[k]`, at least 0."""
        out, begin = [], 0
        for graph in self.graphs:
            out.append(graph.totals(durations_ns[begin : begin + graph.edges]))
            begin += graph.edges
        return np.concatenate(out)

    @classmethod
    def serial(cls, accounts: Accounts) -> "Replay":
        """Interactions of which only the account is known: a total is the sum of its entries."""
        n = len(accounts)
        rows = np.repeat(np.arange(n, dtype=np.int32), np.diff(accounts.offsets))
        return cls(
            start_ns=accounts.start_ns,
            total_ns=accounts.total_ns,
            weights=accounts.weights,
            served=accounts.served,
            flat=accounts.served,
            dimensions=accounts.dimensions,
            sizes=accounts.sizes,
            entries=accounts.entries,
            codes=accounts.codes,
            rows=rows,
            durations_ns=accounts.durations_ns,
            graphs=(Graph.chains(rows, n),),
        )

    def plus(self, other: "Replay") -> "Replay":
        """The interactions of both, those of `other` after these."""
        entries = tuple(dict.fromkeys(self.entries + other.entries))
        place = {name: code for code, name in enumerate(entries)}
        recode = np.array([*(place[name] for name in other.entries), WAITS], dtype=np.int32)
        names = dict.fromkeys([*self.dimensions, *other.dimensions])
        sizes = dict.fromkeys([*self.sizes, *other.sizes])
        return Replay(
            start_ns=np.concatenate((self.start_ns, other.start_ns)),
            total_ns=np.concatenate((self.total_ns, other.total_ns)),
            weights=np.concatenate((self.weights, other.weights)),
            served=np.concatenate((self.served, other.served)),
            flat=np.concatenate((self.flat, other.flat)),
            dimensions={name: _joined(self._labels(name), other._labels(name)) for name in names},
            sizes={name: np.concatenate((self._size(name), other._size(name))) for name in sizes},
            entries=entries,
            codes=np.concatenate((self.codes, recode[other.codes])),
            rows=np.concatenate((self.rows, other.rows + np.int32(len(self)))),
            durations_ns=np.concatenate((self.durations_ns, other.durations_ns)),
            graphs=self.graphs + other.graphs,
        )

    def _labels(self, name: str) -> Labels:
        return self.dimensions.get(name) or Labels((), np.full(len(self), -1, dtype=np.int32))

    def _size(self, name: str) -> Floats:
        found = self.sizes.get(name)
        return np.full(len(self), np.nan) if found is None else found


def _joined(one: Labels, two: Labels) -> Labels:
    values = tuple(sorted({*one.values, *two.values}))
    codes = [
        np.array([*(values.index(value) for value in labels.values), -1], dtype=np.int32)[labels.codes]
        for labels in (one, two)
    ]
    return Labels(values, np.concatenate(codes))


def compile_replay(
    items: Sequence[tuple[Interaction, Offsets | None]], weights: Sequence[float] | Floats | None = None
) -> Replay:
    """These interactions, in order of arrival, with what brings the clocks of each together.

    `weights` say how many each stands for, by default its own. One whose outcome is not "ok" has no total. Raises
    ValueError for one with that outcome but without a start and an end in that order.
    """
    order = sorted(range(len(items)), key=lambda place: (items[place][0].start_ns or 0, items[place][0].id))
    ordered = [items[place] for place in order]
    interactions = [interaction for interaction, _ in ordered]
    drawings = [
        None if each.outcome != "ok" or has_chain(each) else Drawing(each, offsets) for each, offsets in ordered
    ]
    apart = seen_apart(drawings)
    draft = Draft()
    for (interaction, offsets), drawing in zip(ordered, drawings, strict=True):
        if drawing is not None:
            drawing.draw(draft, apart)
        else:
            _draw_chain(draft, account(interaction, offsets).entries if interaction.outcome == "ok" else {})
    own = [interaction.weight for interaction in interactions] if weights is None else [weights[k] for k in order]
    return _checked(_replay(draft, interactions, np.array(own, dtype=np.float64)))


def _draw_chain(draft: Draft, entries: Mapping[str, int]) -> None:
    event = 0
    for name, duration_ns in entries.items():
        event = draft.after(event, name, duration_ns)
    draft.close(event)


def _replay(draft: Draft, interactions: Sequence[Interaction], weights: Floats) -> Replay:
    graph, order = draft.graph()
    n = len(interactions)
    upto = np.array([0, *draft.upto], dtype=np.int64)
    rows = np.repeat(np.arange(n, dtype=np.int32), upto[1:] - upto[:-1])
    return Replay(
        start_ns=np.array([interaction.start_ns or 0 for interaction in interactions], dtype=np.int64),
        total_ns=np.array([_total_ns(interaction) for interaction in interactions], dtype=np.int64),
        weights=weights,
        served=np.array([interaction.outcome == "ok" for interaction in interactions], dtype=bool),
        flat=np.zeros(n, dtype=bool),
        dimensions=_dimensions(interactions),
        sizes={
            name: np.array([interaction.sizes.get(name, np.nan) for interaction in interactions], dtype=np.float64)
            for name in sorted({name for interaction in interactions for name in interaction.sizes})
        },
        entries=tuple(draft.entries),
        codes=np.array(draft.codes, dtype=np.int32)[order],
        rows=rows[order],
        durations_ns=np.array(draft.durations, dtype=np.int64)[order],
        graphs=(graph,),
    )


def _total_ns(interaction: Interaction) -> int:
    if interaction.outcome != "ok":
        return 0
    start, end = window_of(interaction)
    return end - start


def _dimensions(interactions: Sequence[Interaction]) -> dict[str, Labels]:
    out = {}
    for name in sorted({name for interaction in interactions for name in interaction.dimensions}):
        said = [interaction.dimensions.get(name) for interaction in interactions]
        values = sorted({value for value in said if value is not None})
        places: dict[str | None, int] = {value: place for place, value in enumerate(values)} | {None: -1}
        out[name] = Labels(tuple(values), np.array([places[value] for value in said], dtype=np.int32))
    return out


def _checked(replay: Replay) -> Replay:
    wrong = np.flatnonzero(replay.totals(replay.durations_ns) != replay.total_ns)
    if wrong.size:
        raise AssertionError(f"run unchanged, interaction {wrong[0]} does not take {replay.total_ns[wrong[0]]} ns")
    return replay
