"""What each hop on the way costs: the same requests measured at several points, compared within their rounds.

Whatever drifts during a run, a neighbour or a cache, drifts for all points alike, so differences within a round say
more than differences of percentiles.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from outlay.quantiles import effective_n, rank_interval, smallest_n
from outlay.sketch import nearest_rank

LEVELS = (95.0, 99.0)

# Resamples behind an interval of a difference of percentiles.
RESAMPLES = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """How much more the outer point took, in ns; negative when it was faster. `value_ns` None: refused, `why` says why.

    `interval_ns` is a 95 % interval. Unless it lies on one side of 0, the sample does not show which is faster.
    """

    value_ns: int | None
    interval_ns: tuple[int, int] | None = None
    why: str | None = None

    @property
    def resolved(self) -> bool:
        """Whether the sample shows a difference at all."""
        return self.interval_ns is not None and not self.interval_ns[0] <= 0 <= self.interval_ns[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class HopCost:
    """What lies between two points: `n` rounds in which both answered, and how often either failed.

    `typical` is the median of the differences within rounds, `tail` the differences of percentiles, by level.
    """

    outer: str
    inner: str
    n: int
    outer_failed: int
    inner_failed: int
    typical: Cost
    tail: Mapping[float, Cost]


def hop_costs(
    rounds: Sequence[Mapping[str, int | None]], order: Sequence[str], rng: np.random.Generator
) -> tuple[HopCost, ...]:
    """The cost of the hop between each point and the next, from the outermost inwards.

    A round holds what each point took, None for a failure; a point that it does not hold was not asked. The interval
    of the median is that of order statistics; those of percentiles come from resampling blocks of about n^(1/3) rounds
    in a row (Künsch 1989), because slow rounds come together.
    """
    return tuple(_hop(rounds, outer, inner, rng) for outer, inner in pairwise(order))


def _hop(rounds: Sequence[Mapping[str, int | None]], outer: str, inner: str, rng: np.random.Generator) -> HopCost:
    asked = [(each[outer], each[inner]) for each in rounds if outer in each and inner in each]
    both = np.array([pair for pair in asked if None not in pair], dtype=np.int64).reshape(-1, 2)
    return HopCost(
        outer=outer,
        inner=inner,
        n=len(both),
        outer_failed=sum(took is None for took, _ in asked),
        inner_failed=sum(took is None for _, took in asked),
        typical=_typical(both[:, 0] - both[:, 1]),
        tail={level: _tail(both, level / 100, rng) for level in LEVELS},
    )


def _typical(in_turn: NDArray[np.int64]) -> Cost:
    """The median of the differences, given in order of the rounds: those in a row are worth less than their number."""
    n, differences = len(in_turn), np.sort(in_turn)
    ranks = rank_interval(n, 0.5, effective_n=effective_n(in_turn > np.median(in_turn))) if n else None
    low, high = ranks or (None, None)
    if low is None or high is None:
        needed = smallest_n(0.5, two_sided=True)
        return Cost(value_ns=None, why=f"a median with an interval needs {needed} rounds, there are {n}")
    value_ns = int(np.median(differences))
    return Cost(value_ns=value_ns, interval_ns=(int(differences[low - 1]), int(differences[high - 1])))


def _tail(both: NDArray[np.int64], q: float, rng: np.random.Generator) -> Cost:
    n, needed = len(both), smallest_n(q)
    if n < needed:
        return Cost(value_ns=None, why=f"p{100 * q:g} needs {needed} rounds, there are {n}")
    block = max(1, round(n ** (1 / 3)))
    starts = rng.integers(0, n - block + 1, size=(RESAMPLES, -(-n // block)))
    places = (starts[:, :, None] + np.arange(block)).reshape(RESAMPLES, -1)[:, :n]
    drawn = [_difference(both[some], q) for some in places]
    low, high = np.quantile(drawn, (0.025, 0.975))
    return Cost(value_ns=_difference(both, q), interval_ns=(int(np.floor(low)), int(np.ceil(high))))


def _difference(both: NDArray[np.int64], q: float) -> int:
    rank = nearest_rank(q, len(both)) or 1
    ordered = np.sort(both, axis=0)
    return int(ordered[rank - 1, 0] - ordered[rank - 1, 1])
