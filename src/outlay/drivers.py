"""What drives end-to-end time: the queue, the load and the network that an interaction met, and its own size.

A driver is a number that was there before the time passed: a condition that the producer stated, a size, or what can
be counted from the interactions themselves. Each is judged twice. Alone, by Spearman's rank correlation with the time.
And with the others held, by a quantile regression on all of them at once: busy servers and a long queue come together,
and only that tells which of the two acts.

A driver *explains* the time when all of this holds: the rank correlation is at least 0.5 either way and its interval
leaves out 0; the effect has the same sign, and its interval leaves out 0; the effect is at least a third of the
largest one. Intervals alone would not do: with enough interactions, whatever moves at all moves the time a little.

No more than 5000 rows are looked at each time, drawn by the hashes of their ids with weights that keep sums right
(priority sampling; Duffield, Lund & Thorup 2007). For a percentile in the tail, half of them are drawn from the rows
that a first regression leaves highest, for they alone say where it lies.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from outlay.accounts import Accounts, Floats, Ints, uniform
from outlay.bootstrap import Blocks, block_length, expanded, interval
from outlay.interaction import CONDITIONS
from outlay.quantiles import effective_n
from outlay.regression import quantile_regression
from outlay.report import Driver
from outlay.stages import JOINT, split_entry

QUEUE_DEPTH, IN_FLIGHT, RUNNING = "queue_depth", "in_flight", "running"

# Those who agree in all of these share a queue.
_PLACE = ("site", "hardware", "target")

_LEVELS = (99.0, 95.0, 90.0, 50.0)
# Rows above the percentile for each driver in the regression; also rows in which a driver leaves its usual value.
_FEWEST = 30
_MOST_ROWS = 5000
# A regression is solved for each, and where many rows tie each takes long.
_REPLICATES = 200
# Beyond this rank correlation two drivers are the same thing; beyond this share explained, one is a sum of others.
_SAME, _SUM = 0.98, 0.999

_LAST = len(CONDITIONS) + 1

_STRONG, _LARGE = 0.5, 1 / 3

_Rows = NDArray[np.intp]
_Mask = NDArray[np.bool_]
_Columns = Mapping[str, Floats]


def drivers(accounts: Accounts, level: float) -> tuple[Driver, ...]:
    """Every driver that the data shows: those that explain the time first, then by strength of the rank correlation.

    Failures rank above all times; in the regression they count as slow as the slowest that was served, so where many
    failed an effect is the least that it can be. Its percentile is the highest up to `level`, of 99, 95, 90 and 50 and
    `level` itself, above which lie 30 served rows for each driver, or more where those come in bursts. Drivers that
    are constant or mostly unknown are left out; of several that are the same thing, or sums of each other, the most
    direct one stands for all. Counts are too low where the service also served what is not in `accounts`. Empty where
    nothing is known.
    """
    stated = _telling({**accounts.sizes, **accounts.conditions})
    own = {name: values for name, values in _telling(counted(accounts)).items() if name not in stated}
    columns = _distinct(accounts, dict(sorted({**stated, **own}.items(), key=lambda column: _directness(column[0]))))
    if not columns:
        return ()
    effects = _effects(accounts, columns, level)
    alone = _correlations(accounts, columns)
    found = [_driver(name, alone[name], effects, is_counted=name in own) for name in columns]
    return tuple(sorted(found, key=lambda driver: (not driver.explains, -abs(driver.rank_correlation))))


def _driver(name: str, alone: "_Alone", effects: "_Effects", *, is_counted: bool) -> Driver:
    low, high = alone.interval
    effect_ns = effects.effects_ns.get(name)
    strong = abs(alone.correlation) >= _STRONG and not low <= 0 <= high
    return Driver(
        name=name,
        n=alone.n,
        rank_correlation=alone.correlation,
        correlation_interval=alone.interval,
        level=effects.level,
        effect_ns=effect_ns,
        effect_interval_ns=effects.intervals_ns.get(name),
        counted=is_counted,
        explains=strong and effect_ns is not None and effect_ns * alone.correlation > 0 and effects.large(name),
    )


def _directness(name: str) -> tuple[int, str]:
    """The queue first; last what is also part of another: those served show in utilisation, all in both."""
    places = {**{name: place for place, name in enumerate(CONDITIONS)}, RUNNING: _LAST, IN_FLIGHT: _LAST + 1}
    return places.get(name, len(CONDITIONS)), name


def _telling(columns: _Columns) -> dict[str, Floats]:
    """The columns that are known in at least half of the rows and vary."""
    return {name: values for name, values in columns.items() if _tells(values)}


def _tells(values: Floats) -> bool:
    known = values[~np.isnan(values)]
    return 2 * len(known) >= len(values) > 0 and int((known != np.median(known)).sum()) >= _FEWEST


# Counting


def counted(accounts: Accounts) -> dict[str, Floats]:
    """How many others waited and how many were served, by the names of CONDITIONS, when each came to the queue.

    One waits from its start on the first queue of its account until the end of the last, and is served from then on.
    Where no entry is a queue, only how many were in flight at each start is known. Empty where some have no row.
    """
    if not accounts.complete or (accounts.weights != 1).any():
        return {}
    is_queue = np.array([_is_queue(name) for name in accounts.entries], dtype=bool)
    joined, left = _waits(accounts, is_queue)
    ends = accounts.start_ns + accounts.busy_ns
    depth, running = np.empty(len(accounts)), np.empty(len(accounts))
    for rows in _places(accounts):
        depth[rows] = _present(joined[rows], left[rows], at_ns=joined[rows])
        running[rows] = _present(left[rows], ends[rows], at_ns=joined[rows])
    if not is_queue.any():
        return {IN_FLIGHT: running}
    return {QUEUE_DEPTH: depth, RUNNING: running, IN_FLIGHT: depth + running}


def queue_depth(accounts: Accounts) -> Floats | None:
    """How many waited before each, NaN where unknown: as stated, else as counted; None where neither is there."""
    stated = accounts.conditions.get(QUEUE_DEPTH)
    return counted(accounts).get(QUEUE_DEPTH) if stated is None else stated


def _waits(accounts: Accounts, is_queue: _Mask) -> tuple[Ints, Ints]:
    """When each row came to the first queue of its account and left the last; both its start where it has none."""
    hits = np.flatnonzero(is_queue[accounts.codes])
    rows = np.searchsorted(accounts.offsets, hits, side="right") - 1
    passed = np.concatenate(([0], np.cumsum(accounts.durations_ns)))
    before = accounts.start_ns[rows] - passed[accounts.offsets[rows]]
    joined, left = accounts.start_ns.copy(), accounts.start_ns.copy()
    # Of several assignments to one place the last holds.
    joined[rows[::-1]] = (before + passed[hits])[::-1]
    left[rows] = before + passed[hits + 1]
    return joined, left


def _is_queue(name: str) -> bool:
    """Whether all of an entry is waiting for capacity."""
    _, stage = split_entry(name)
    return all(member.partition(".")[0] == "queue" for member in stage.split(JOINT))


def _places(accounts: Accounts) -> Iterator[_Rows]:
    """The rows of each place, in order of arrival."""
    place = np.zeros(len(accounts), dtype=np.int64)
    for labels in (accounts.dimensions[name] for name in _PLACE if name in accounts.dimensions):
        _, place = np.unique(place * (len(labels.values) + 1) + labels.codes + 1, return_inverse=True)
    order = np.argsort(place, kind="stable")
    yield from np.split(order, np.flatnonzero(np.diff(place[order])) + 1)


def _present(begins: Ints, ends: Ints, *, at_ns: Ints) -> Ints:
    """How many stays hold each instant: begun before it and not ended at it."""
    real = ends > begins
    begun = np.searchsorted(np.sort(begins[real]), at_ns, side="left")
    return begun - np.searchsorted(np.sort(ends[real]), at_ns, side="right")


# Drawing rows


@dataclass(frozen=True, slots=True, eq=False)
class _Draw:
    """Some of the rows, in order of arrival, and what each stands for."""

    rows: _Rows
    weights: Floats


def _draw(accounts: Accounts, within: _Mask, importance: Floats | None = None) -> _Draw:
    """5000 of these rows, each with a chance in proportion to weight and importance; all where there are no more."""
    rows = np.flatnonzero(within)
    weights = accounts.weights[rows]
    if len(rows) <= _MOST_ROWS:
        return _Draw(rows, weights)
    sizes = weights if importance is None else weights * importance[rows]
    keys = uniform(accounts.priorities[rows]) / sizes
    threshold = np.partition(keys, _MOST_ROWS)[_MOST_ROWS]
    kept = np.flatnonzero(keys < threshold)
    return _Draw(rows[kept], weights[kept] / np.minimum(1.0, sizes[kept] * threshold))


def _known(columns: _Columns, n: int) -> _Mask:
    """In which of n rows every driver is known."""
    known = np.ones(n, dtype=bool)
    for values in columns.values():
        known &= ~np.isnan(values)
    return known


def _sets(accounts: Accounts, drawn: _Draw, exceeded: _Mask) -> tuple[Floats, float]:
    """What each row drawn stands for, first as it is, then in each replicate; and the confidence to ask of those.

    Blocks are as long as the bursts of `exceeded` need. Few of them tell little of how far apart they are.
    """
    length = block_length(exceeded)
    factors = Blocks(accounts.weights, length * accounts.count / len(accounts), _REPLICATES).factors(drawn.rows)
    return drawn.weights * np.array([np.ones(len(drawn.rows)), *factors]), expanded(len(accounts) / length)


def _distinct(accounts: Accounts, columns: _Columns) -> dict[str, Floats]:
    """Without those that are the same as one before, or a sum of those before."""
    kept: dict[str, Floats] = {}
    rows = _draw(accounts, _known(columns, len(accounts))).rows
    for name, values in columns.items():
        if len(rows) < _FEWEST or _adds(values[rows], [before[rows] for before in kept.values()]):
            kept[name] = values
    return kept


def _adds(values: Floats, before: Sequence[Floats]) -> bool:
    equal = np.ones((1, len(values)))
    if any(abs(_rank_correlations(values, one, equal)[0]) > _SAME for one in before):
        return False
    design = np.column_stack((np.ones(len(values)), *before))
    missed = values - design @ np.linalg.lstsq(design, values, rcond=None)[0]
    return bool(missed.var() > (1 - _SUM) * values.var())


# Alone


@dataclass(frozen=True, slots=True, kw_only=True)
class _Alone:
    n: int
    correlation: float
    interval: tuple[float, float]


def _correlations(accounts: Accounts, columns: _Columns) -> dict[str, _Alone]:
    """Each driver's rank correlation with the time, over the rows in which it is known."""
    times = accounts.times_ns
    drawn = _draw(accounts, np.ones(len(accounts), dtype=bool))
    sets, confidence = _sets(accounts, drawn, times > np.median(times))
    made = {}
    for name, values in columns.items():
        known = ~np.isnan(values[drawn.rows])
        rows = drawn.rows[known]
        found = _rank_correlations(values[rows], times[rows], sets[:, known])
        n = int((~np.isnan(values)).sum())
        made[name] = _Alone(n=n, correlation=float(found[0]), interval=interval(found[1:], confidence))
    return made


def _rank_correlations(x: Floats, y: Floats, weights: Floats) -> Floats:
    """Spearman's, for each set of weights, ties at the middle of their ranks; 0 where one of the two is constant."""
    first, second = _ranks(x, weights), _ranks(y, weights)
    total = weights.sum(axis=1, keepdims=True)
    first -= (weights * first).sum(axis=1, keepdims=True) / total
    second -= (weights * second).sum(axis=1, keepdims=True) / total
    both, one, other = ((weights * a * b).sum(axis=1) for a, b in ((first, second), (first, first), (second, second)))
    scale = np.sqrt(one * other)
    correlations: Floats = np.divide(both, scale, out=np.zeros(len(weights)), where=scale > 0)
    return correlations


def _ranks(values: Floats, weights: Floats) -> Floats:
    """The middle rank of each value in each set of weights."""
    distinct, place = np.unique(values, return_inverse=True)
    order = np.argsort(place, kind="stable")
    ends = np.searchsorted(place[order], np.arange(len(distinct)), side="right")
    upto = np.cumsum(weights[:, order], axis=1)[:, ends - 1]
    middles = upto - np.diff(upto, axis=1, prepend=0) / 2
    ranks: Floats = middles[:, place]
    return ranks


# With the others held


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Effects:
    """What each driver does to the percentile at `level`, with an interval; nothing where there are too few rows."""

    level: float | None = None
    effects_ns: Mapping[str, float] = field(default_factory=dict)
    intervals_ns: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    def large(self, name: str) -> bool:
        """Whether one's effect is off 0 and large beside the others'."""
        low, high = self.intervals_ns[name]
        largest = max(map(abs, self.effects_ns.values()))
        return not low <= 0 <= high and abs(self.effects_ns[name]) >= _LARGE * largest


def _effects(accounts: Accounts, columns: _Columns, level: float) -> _Effects:
    whole = _known(columns, len(accounts))
    pilot = _draw(accounts, whole)
    times = np.minimum(accounts.times_ns, accounts.total_ns.max())
    found = _level(accounts, columns, times, pilot, level)
    if found is None:
        return _Effects()
    at, left = found
    chosen = _draw(accounts, whole, _importance(left, pilot, at / 100))
    sets, confidence = _sets(accounts, chosen, left > 0)
    slopes = quantile_regression(_matrix(columns, chosen.rows), times[chosen.rows], sets, at / 100)[:, 1:]
    rises_ns = slopes * np.stack(
        [_reaches(accounts, whole, values, chosen, sets) for values in columns.values()], axis=1
    )
    return _Effects(
        level=at,
        effects_ns=dict(zip(columns, rises_ns[0].tolist(), strict=True)),
        intervals_ns={name: interval(rises_ns[1:, place], confidence) for place, name in enumerate(columns)},
    )


def _level(
    accounts: Accounts, columns: _Columns, times: Floats, pilot: _Draw, highest: float
) -> tuple[float, Floats] | None:
    """The highest level with enough rows above, and how far each row lies above what the pilot's regression gives.

    Enough are 30 served ones for each driver, and above the median as many after what bursts take away. The median is
    answered even for a single ramp of load, which is one burst: its interval says what that is worth.
    """
    fewest = _FEWEST * len(columns)
    if len(pilot.rows) < 2 * fewest:
        return None
    x = _matrix(columns, pilot.rows)
    for level in (highest, *(lower for lower in _LEVELS if lower < highest)):
        fitted = quantile_regression(x, times[pilot.rows], pilot.weights, level / 100)
        left = times - fitted[0]
        for slope, values in zip(fitted[1:], columns.values(), strict=True):
            left -= slope * values
        above = left > 0
        served = int((above & accounts.served).sum())
        bursts = len(above) / effective_n(above) if level > _LEVELS[-1] else 1.0
        if served >= fewest * bursts:
            return level, left
    return None


def _importance(left: Floats, pilot: _Draw, q: float) -> Floats:
    """So large for the rows that lie highest, a part of 2 (1 - q), that they are half of what is drawn."""
    part = min(2 * (1 - q), 0.5)
    high = left > _quantile(left[pilot.rows], pilot.weights, 1 - part)
    return np.where(high, (1 - part) / part, 1.0)


def _matrix(columns: _Columns, rows: _Rows) -> Floats:
    return np.column_stack([values[rows] for values in columns.values()])


def _quantile(values: Floats, weights: Floats, q: float) -> float:
    """The smallest value with a share of at least q at or below it."""
    order = np.argsort(values)
    reached = np.cumsum(weights[order])
    return float(values[order[np.searchsorted(reached, q * reached[-1])]])


def _reaches(accounts: Accounts, whole: _Mask, values: Floats, drawn: _Draw, sets: Floats) -> Floats:
    """How far a driver reaches in each set of weights: that of all rows, varied as that of the rows drawn varies.

    Of more rows than were drawn it varies less, by the root of how many more.
    """
    of_all = _tenths_apart(values[whole], accounts.weights[whole][np.newaxis])[0]
    of_drawn = _tenths_apart(values[drawn.rows], sets)
    if not of_drawn[0]:
        return np.full(len(sets), of_all)
    varied: Floats = of_all * (1 + (of_drawn / of_drawn[0] - 1) * math.sqrt(len(drawn.rows) / whole.sum()))
    return varied


def _tenths_apart(values: Floats, sets: Floats) -> Floats:
    """From the mean of the lowest tenth to that of the highest, in each set of weights (a row)."""
    order = np.argsort(values)
    each = sets[:, order]
    upto = np.cumsum(each, axis=1)
    tenth = upto[:, -1:] / 10
    low = np.clip(tenth - (upto - each), 0, each)
    high = np.clip(tenth - (upto[:, -1:] - upto), 0, each)
    apart: Floats = (high - low) @ values[order] / tenth[:, 0]
    return apart
