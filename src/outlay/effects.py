"""What a change does to recorded interactions: which edges take how long instead.

How long an entry takes in an interaction is its longest path through that entry alone, which of a chain is the sum; a
change scales all of the entry's edges there by new / recorded. So changes can be made in any order, and several of one
entry multiply.

Replacing an entry by that of other interactions keeps its rank: of those of one shape the k-th smallest gets the k-th
smallest there, so what is slow for other reasons stays slow.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from outlay.accounts import Floats, Ints, Labels
from outlay.change import RTT, START, WARM, Change, matching
from outlay.interaction import SHAPE, SITE
from outlay.quantiles import smallest_n, weighted_quantiles
from outlay.replay import Replay
from outlay.stages import UNATTRIBUTED, entry, split_entry, term_of
from outlay.units import format_duration

Rows = NDArray[np.bool_]

USER_REGION = "user_region"
_COLD, _COLD_TERM = "cold", "cold start"

# Fewer measured interactions of one shape are no distribution to take from.
_FEWEST = 20
# How many round trips the least of each takes; the two ways there and back make one.
_ROUNDS = {"uplink": 0.5, "downlink": 0.5, "uplink.connect": 1.0, "uplink.tls": 1.0}
_FLOORS = {"uplink.floor": 0.5, "downlink.floor": 0.5}

# Durations beyond this would no longer add up in 64 bits.
_LONGEST_NS = float(2**56)


@dataclass(frozen=True, slots=True, eq=False)
class Effect:
    """Edges scaled, each by its factor; and time that is added to whole interactions, which had no such edge."""

    edges: NDArray[np.intp]
    factors: Floats
    added_ns: Ints | None = None
    notes: tuple[str, ...] = ()


def with_effects(replay: Replay, effects: Sequence[Effect]) -> Ints:
    """How long each interaction takes with these effects."""
    factors = np.ones(len(replay.durations_ns))
    for effect in effects:
        factors[effect.edges] *= effect.factors
    changed = np.flatnonzero(factors != 1)
    durations = replay.durations_ns.copy()
    durations[changed] = np.rint(np.minimum(durations[changed] * factors[changed], _LONGEST_NS)).astype(np.int64)
    totals = replay.totals(durations)
    for effect in effects:
        if effect.added_ns is not None:
            totals += effect.added_ns
    return totals


def _edges_of(replay: Replay, names: Sequence[str]) -> NDArray[np.intp]:
    chosen = frozenset(names)
    # One more than there are entries, for the edges that only wait.
    wanted = np.array([*(name in chosen for name in replay.entries), False])
    return np.flatnonzero(wanted[replay.codes])


def _entry_ns(replay: Replay, edges: NDArray[np.intp]) -> Ints:
    """How long each interaction would take if only these edges took any time."""
    durations = np.zeros_like(replay.durations_ns)
    durations[edges] = replay.durations_ns[edges]
    return replay.totals(durations)


def _named(change: Change, replay: Replay) -> NDArray[np.intp]:
    return _edges_of(replay, matching(replay.entries, change.entry))


def _scaled(change: Change, replay: Replay) -> Iterator[Effect]:
    edges = _named(change, replay)
    yield Effect(edges, np.full(len(edges), change.amount))


def _limited(change: Change, replay: Replay) -> Iterator[Effect]:
    edges = _named(change, replay)
    yield _at_most(replay, edges, _entry_ns(replay, edges), change.amount)


def _at_most(replay: Replay, edges: NDArray[np.intp], took_ns: Ints, limit_ns: float) -> Effect:
    factors = np.ones(len(replay))
    over = took_ns > limit_ns
    factors[over] = limit_ns / took_ns[over]
    if limit_ns == 0:
        factors[:] = 0
    return Effect(edges, factors[replay.rows[edges]])


def _limited_to_own(change: Change, replay: Replay) -> Iterator[Effect]:
    edges = _named(change, replay)
    took = _entry_ns(replay, edges)
    has = took > 0
    if has.any():
        (limit,) = weighted_quantiles(took[has].astype(np.float64), replay.weights[has], (change.amount,))
        yield _at_most(replay, edges, took, limit)


def _taken(change: Change, replay: Replay) -> Iterator[Effect]:
    names = matching(replay.entries, change.entry)
    labels = replay.dimensions.get(change.dimension)
    if labels is None:
        known = ", ".join(sorted(replay.dimensions)) or "none"
        raise ValueError(f"{change.text!r}: nothing is known by {change.dimension!r}; known: {known}")
    donors = labels.is_(change.value) & replay.served
    if not donors.any():
        known = ", ".join(value for value in labels.values if value != change.value) or "none"
        raise ValueError(
            f"{change.text!r}: no interaction that was served has {change.dimension} {change.value!r}; others: {known}"
        )
    yield from _from_others(replay, names, donors, replay.served & ~donors, change)


def _warmed(change: Change, replay: Replay) -> Iterator[Effect]:
    starts = replay.dimensions.get(START)
    cold_names = [name for name in replay.entries if term_of(name) == _COLD_TERM]
    cold = replay.served & (starts.is_(_COLD) if starts else False)
    warm = replay.served & (starts.is_(WARM) if starts else False)
    if not (cold_names or (cold.any() and warm.any())):
        raise ValueError(f"{change.text!r}: no entry is queue.cold_start, and not both cold and warm starts are known")
    edges = _edges_of(replay, cold_names)
    yield Effect(edges, np.zeros(len(edges)))
    if cold.any() and warm.any():
        others = [name for name in replay.entries if name not in cold_names]
        yield from _from_others(replay, others, warm, cold, change)


def _from_others(replay: Replay, names: Sequence[str], donors: Rows, targets: Rows, change: Change) -> Iterator[Effect]:
    """Each of these entries of the targets as the donors have it, by rank among those of one shape."""
    if not targets.any():
        return
    match = _Match.of(replay, donors, targets)
    notes = list(match.notes(change))
    added = np.zeros(len(replay), dtype=np.int64)
    for group in _groups(names):
        edges = _edges_of(replay, group)
        took = _entry_ns(replay, edges)
        new = match.apply(took)
        factors = np.ones(len(replay))
        np.divide(new, took, out=factors, where=took > 0)
        added += np.where(took > 0, 0, new)
        yield Effect(edges, factors[replay.rows[edges]])
    if added.any():
        notes.append(
            f"{change.text}: {np.count_nonzero(added):,} interactions had no such entry; theirs was added at the end"
        )
    yield Effect(np.empty(0, dtype=np.intp), np.empty(0), added, tuple(notes))


def _groups(names: Sequence[str]) -> list[list[str]]:
    """The entries one by one; what nobody named is one of each component, as its names may tell single spans apart."""
    groups: dict[str, list[str]] = {}
    for name in names:
        component, stage = split_entry(name)
        key = entry(component, UNATTRIBUTED) if stage.startswith(UNATTRIBUTED) else name
        groups.setdefault(key, []).append(name)
    return list(groups.values())


@dataclass(frozen=True, slots=True, eq=False)
class _Match:
    """Whose durations each target may get: those of `sources` in the same class.

    Classes are shapes with enough sources, and one more with all sources, for the targets of any other shape.
    """

    targets: NDArray[np.intp]
    target_classes: NDArray[np.intp]
    sources: NDArray[np.intp]
    source_classes: NDArray[np.intp]
    weights: Floats
    donors: int
    matched: float

    @classmethod
    def of(cls, replay: Replay, donors: Rows, targets: Rows) -> "_Match":
        shapes = _shapes(replay)
        of_all = int(shapes.max(initial=0)) + 1
        enough = np.bincount(shapes[donors], minlength=of_all + 1) >= _FEWEST
        classes = np.where(enough[shapes], shapes, of_all)
        own = np.flatnonzero(donors)
        own_shape = own[classes[own] < of_all]
        to, weights = np.flatnonzero(targets), replay.weights
        is_matched = classes[to] < of_all
        weight = weights[to].sum()
        return cls(
            to,
            classes[to],
            np.concatenate((own_shape, own)),
            np.concatenate((classes[own_shape], np.full(len(own), of_all))),
            weights,
            len(own),
            float(weights[to][is_matched].sum() / weight) if weight else 1.0,
        )

    def apply(self, took_ns: Ints) -> Ints:
        """What each interaction gets: the source's at its own rank, and its own where it is no target."""
        new = took_ns.copy()
        order, share = self._ranked(self.targets, self.target_classes, took_ns, middle=True)
        known, upto = self._ranked(self.sources, self.source_classes, took_ns, middle=False)
        at = np.searchsorted(
            self.source_classes[known] + upto, self.target_classes[order] + share * (1 - 1e-9), side="left"
        )
        new[self.targets[order]] = took_ns[self.sources[known[at]]]
        return new

    def _ranked(
        self, rows: NDArray[np.intp], classes: NDArray[np.intp], took_ns: Ints, *, middle: bool
    ) -> tuple[NDArray[np.intp], Floats]:
        """The order by class and duration, and in it the share of each class's weight up to each, or to its middle."""
        # Equal durations in an order that says nothing.
        scattered = rows.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        order: NDArray[np.intp] = np.lexsort((scattered, took_ns[rows], classes))
        weights, sorted_classes = self.weights[rows[order]], classes[order]
        summed = np.cumsum(weights)
        firsts = np.flatnonzero(np.diff(sorted_classes, prepend=-1))
        lasts = np.append(firsts[1:], len(rows)) - 1
        lengths = lasts - firsts + 1
        before = np.repeat(summed[firsts] - weights[firsts], lengths)
        whole = np.repeat(summed[lasts], lengths) - before
        if middle:
            return order, (summed - before - weights / 2) / whole
        share: Floats = (summed - before) / whole
        # Whatever the rounding, the last reaches all of it.
        share[lasts] = 1.0
        return order, share

    def notes(self, change: Change) -> Iterator[str]:
        if self.matched < 1:
            yield (
                f"{change.text}: {100 * self.matched:.3g} % matched on shape; the others got the distribution "
                f"of all {self.donors:,} that were measured so"
            )
        if self.donors < smallest_n(0.99):
            yield f"{change.text}: only {self.donors:,} interactions were measured so, too few to show a p99"


def _shapes(replay: Replay) -> NDArray[np.intp]:
    """A number for each row's shape: the log2 bucket of each size, unknown being one of them."""
    columns = [np.where(np.isnan(values), -1, np.frexp(np.nan_to_num(values))[1]) for values in replay.sizes.values()]
    if SHAPE in replay.dimensions:
        columns.append(replay.dimensions[SHAPE].codes)
    if not columns:
        return np.zeros(len(replay), dtype=np.intp)
    numbers = np.unique(np.stack(columns, axis=1), axis=0, return_inverse=True)[1]
    return numbers.reshape(-1).astype(np.intp)


def _moved(change: Change, replay: Replay) -> Iterator[Effect]:
    """Round trips of another length: each edge is one way, or one handshake, and keeps what exceeds the least."""
    names = [name for name in matching(replay.entries, change.entry) if split_entry(name)[1] in _ROUNDS | _FLOORS]
    if not names:
        known = ", ".join([*_ROUNDS, *_FLOORS])
        raise ValueError(f"{change.text!r}: {change.entry} holds no round trips; those are in {known}")
    trips = _trips(change, replay)
    sites = replay.dimensions.get(SITE) or Labels((), np.full(len(replay), -1, dtype=np.int32))
    for name in names:
        edges = _edges_of(replay, [name])
        edges = edges[replay.durations_ns[edges] > 0]
        took, stage = replay.durations_ns[edges], split_entry(name)[1]
        least = took
        if stage in _ROUNDS:
            site = sites.codes[replay.rows[edges]]
            by_site = np.full(len(sites.values) + 1, np.iinfo(np.int64).max)
            np.minimum.at(by_site, site, took)
            least = by_site[site]
        rounds, rtt_ns = (_ROUNDS | _FLOORS)[stage], trips[replay.rows[edges]]
        yield Effect(edges, np.where(np.isnan(rtt_ns), 1.0, (took - least + rounds * np.nan_to_num(rtt_ns)) / took))
    yield Effect(np.empty(0, dtype=np.intp), np.empty(0), None, tuple(_moved_notes(change, trips[replay.served])))


def _trips(change: Change, replay: Replay) -> Floats:
    """The round trip of each interaction: the same for all, or that from its user's region; NaN where unknown."""
    if not change.rtts_ns:
        return np.full(len(replay), float(change.amount))
    regions = replay.dimensions.get(USER_REGION)
    if regions is None:
        raise ValueError(f"{change.text!r}: no interaction says where its user is ({USER_REGION})")
    known = np.array([*(change.rtts_ns.get(name, np.nan) for name in regions.values), np.nan], dtype=np.float64)
    trips: Floats = known[regions.codes]
    return trips


def _moved_notes(change: Change, trips_ns: Floats) -> Iterator[str]:
    each = f"the round trip to {change.value}" if change.rtts_ns else format_duration(change.amount)
    yield (
        f"{change.text}: half of {each} each way, all of it for each handshake; what exceeded the smallest of the same "
        "site is kept"
    )
    if unknown := int(np.isnan(trips_ns).sum()):
        yield f"{change.text}: the round trip of {unknown:,} interactions is not known; theirs is left as it was"


_EFFECTS: Mapping[str, Callable[[Change, Replay], Iterator[Effect]]] = {
    "limit": _limited,
    "percentile": _limited_to_own,
    "factor": _scaled,
    "like": _taken,
    RTT: _moved,
    WARM: _warmed,
}


def effects_of(replay: Replay, changes: Sequence[Change]) -> list[Effect]:
    return [effect for change in changes for effect in _EFFECTS[change.kind](change, replay)]
