"""What changes would have given back: recorded interactions replayed, and the percentiles before and after."""

import math
from collections.abc import Mapping, Sequence
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from outlay.accounts import Floats, Ints
from outlay.bootstrap import Blocks, block_length, interval
from outlay.change import Change
from outlay.effects import Effect, effects_of, with_effects
from outlay.quantiles import reached, smallest_n, weighted_quantiles
from outlay.replay import Replay
from outlay.report import Recovery, Together, WhatIf
from outlay.sampling import priority

# Bands of values in which rows are counted around a quantile.
_BANDS = 32
# The fair split takes every subset of so many changes; of more, orders drawn by a hash.
_MOST_EXACT, _ORDERS = 8, 200


def changed_totals(replay: Replay, changes: Sequence[Change]) -> Ints:
    """How long each interaction takes with these changes. Raises ValueError as `what_if` does."""
    return with_effects(replay, effects_of(replay, changes))


def what_if(replay: Replay, changes: Sequence[Change], levels: Sequence[float] = (50, 95, 99)) -> WhatIf:
    """What these changes together recover, at each level that the sample shows.

    Interactions without a result never end, before and after. Intervals are of the moving-block bootstrap, the same
    draws before and after. Raises ValueError for an entry, dimension or value that is not there.
    """
    effects = effects_of(replay, changes)
    shown = [level for level in levels if len(replay) >= smallest_n(level / 100)]
    notes = [note for effect in effects for note in effect.notes]
    if flat := int(replay.flat.sum()):
        notes.append(f"of {flat:,} interactions only the account is known: there, a saving is an upper bound")
    notes += [
        f"p{level:g} takes {smallest_n(level / 100)} interactions, there are {len(replay):,}"
        for level in levels
        if level not in shown
    ]
    return WhatIf(
        changes=tuple(change.text for change in changes),
        replayed=len(replay),
        of=round(float(replay.weights.sum())),
        serial=flat,
        recovers=_recoveries(replay, _times(replay, with_effects(replay, effects)), shown),
        notes=tuple(dict.fromkeys(notes)),
    )


def _times(replay: Replay, total_ns: Ints) -> Floats:
    return np.where(replay.served, total_ns.astype(np.float64), np.inf)


def _recoveries(replay: Replay, after_ns: Floats, levels: Sequence[float]) -> tuple[Recovery, ...]:
    if not levels:
        return ()
    before_ns = _times(replay, replay.total_ns)
    before = weighted_quantiles(before_ns, replay.weights, levels)
    after = weighted_quantiles(after_ns, replay.weights, levels)
    arrival = np.argsort(replay.start_ns, kind="stable")
    weights, was_ns, is_ns = replay.weights[arrival], before_ns[arrival], after_ns[arrival]
    rows = max(block_length(was_ns > quantile) for quantile in before)
    blocks = Blocks(weights, rows * float(weights.mean()))
    sides = [(times_ns, np.argsort(times_ns, kind="stable")) for times_ns in (was_ns, is_ns)]
    drawn = [_saved(*(_replicated(blocks, *side, weights, level, rows) for side in sides)) for level in levels]
    return tuple(
        Recovery(
            level=float(level),
            before_ns=float(was),
            after_ns=float(is_),
            saved_ns=float(_saved(was, is_)),
            interval_ns=interval(drawn[place]),
        )
        for place, (level, was, is_) in enumerate(zip(levels, before, after, strict=True))
    )


def _replicated(
    blocks: Blocks, values: Floats, order: NDArray[np.intp], weights: Floats, level: float, block: int
) -> Floats:
    """The quantile of each replicate; `order` sorts the values, `block` is how many rows are drawn at a time.

    Rows are counted in bands of values, and looked at one by one only in the band in which the quantile lies.
    """
    n, q = len(values), level / 100
    near = int(reached(weights[order], (level,))[0])
    # Wider than the quantile moves where blocks of so many rows are slow or fast as a whole.
    reach = 4 * math.sqrt(n * q * (1 - q) * block) + 1
    inner = np.clip(np.linspace(near - reach, near + reach, _BANDS - 1), 1, n).astype(np.intp)
    bounds = np.unique(np.concatenate(([0], inner, [n])))
    bands = np.repeat(np.arange(len(bounds) - 1, dtype=np.int32), np.diff(bounds))
    upto = np.cumsum(blocks.totals(order, bands, weights[order], len(bounds) - 1), axis=1)
    wanted = q * upto[:, -1] * (1 - 1e-12)
    found = (upto < wanted[:, np.newaxis]).sum(axis=1)
    quantiles = np.empty(len(wanted))
    for band in np.unique(found):
        replicates, rows = np.flatnonzero(found == band), order[bounds[band] : bounds[band + 1]]
        below = upto[replicates, band - 1] if band else np.zeros(len(replicates))
        inside = np.cumsum(blocks.drawn(rows, replicates) * weights[rows], axis=1) + below[:, np.newaxis]
        place = (inside < wanted[replicates, np.newaxis]).sum(axis=1)
        # Sums in another order may differ in their last digit.
        quantiles[replicates] = values[rows[np.minimum(place, len(rows) - 1)]]
    return quantiles


def _saved(before: Floats, after: Floats) -> Floats:
    """The difference; none where neither ever ends."""
    saved = np.zeros(np.shape(before))
    np.subtract(before, after, out=saved, where=np.isfinite(before) | np.isfinite(after))
    return saved


def together(replay: Replay, changes: Mapping[str, Sequence[Change]], level: float = 99.0) -> Together | None:
    """What the named changes, at least one, do together: the best two, all, and the fair split of what all recover.

    The split is Shapley's: what each adds, over all orders of making them; over 200 orders where there are more than
    eight. None where the sample is too small for the level. Raises ValueError as `what_if` does.
    """
    if len(replay) < smallest_n(level / 100):
        return None
    names = tuple(changes)
    game = _Game(replay, [effects_of(replay, changes[name]) for name in names], level)
    pairs = [1 << one | 1 << two for one, two in combinations(range(len(names)), 2)]
    best = max(pairs, key=game.saved, default=None)
    shares = game.exact() if len(names) <= _MOST_EXACT else game.sampled(names)
    return Together(
        pair=None if best is None else _two([name for place, name in enumerate(names) if best >> place & 1]),
        pair_recovers=None if best is None else game.recovery(best),
        all_recovers=game.recovery((1 << len(names)) - 1),
        shares_ns=dict(zip(names, shares, strict=True)),
    )


def _two(names: Sequence[str]) -> tuple[str, str]:
    one, two = names
    return one, two


class _Game:
    """What any of some changes recover; a set of them is a number whose bits say which."""

    __slots__ = ("_before", "_effects", "_level", "_replay", "_saved")

    def __init__(self, replay: Replay, effects: Sequence[Sequence[Effect]], level: float) -> None:
        self._replay, self._effects, self._level = replay, effects, level
        self._before = weighted_quantiles(_times(replay, replay.total_ns), replay.weights, (level,))
        self._saved: dict[int, float] = {0: 0.0}

    def _after(self, members: int) -> Floats:
        made = [effect for place, own in enumerate(self._effects) if members >> place & 1 for effect in own]
        return _times(self._replay, with_effects(self._replay, made))

    def saved(self, members: int) -> float:
        known = self._saved.get(members)
        if known is None:
            after = weighted_quantiles(self._after(members), self._replay.weights, (self._level,))
            known = self._saved[members] = float(_saved(self._before, after)[0])
        return known

    def recovery(self, members: int) -> Recovery:
        return _recoveries(self._replay, self._after(members), (self._level,))[0]

    def exact(self) -> list[float]:
        """Each one's part: what it adds to a set, over all sets by how many orders begin with it."""
        n = len(self._effects)
        parts = [0.0] * n
        for place in range(n):
            for members in range(1 << n):
                if not members >> place & 1:
                    share = 1 / (n * math.comb(n - 1, members.bit_count()))
                    parts[place] += share * (self.saved(members | 1 << place) - self.saved(members))
        return parts

    def sampled(self, names: Sequence[str]) -> list[float]:
        """The same over some orders alone."""
        parts = [0.0] * len(names)
        for drawn in range(_ORDERS):
            members = 0
            for place in sorted(range(len(names)), key=lambda place: priority(f"{drawn} {names[place]}")):
                parts[place] += (self.saved(members | 1 << place) - self.saved(members)) / _ORDERS
                members |= 1 << place
        return parts
