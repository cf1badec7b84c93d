"""A histogram that forgets: what was seen half a life ago counts half.

Buckets are logarithmic, 16 to a doubling (4.4 % wide), between two powers of two. What lies outside goes to the
first or last bucket. Forgetting costs nothing: instead of shrinking all counts, each newer one weighs more.
"""

import math

import numpy as np
from numpy.typing import NDArray

PER_OCTAVE = 16

# Weights grow as 2^(age / half life); long before they overflow a float everything is scaled back.
_MOST_OCTAVES = 256.0

Floats = NDArray[np.float64]


def _strata() -> tuple[Floats, Floats]:
    """Midpoints and weights of strata of (0, 1) that get finer towards 1, where lateness is decided."""
    edges = np.concatenate([np.linspace(0, 0.9, 13), [0.925, 0.95, 0.965, 0.98, 0.99, 0.995, 0.998, 0.9995, 1.0]])
    return (edges[1:] + edges[:-1]) / 2, np.diff(edges)


# A distribution as points: the value at each level stands for the weight beside it. The weights sum to 1.
LEVELS, WEIGHTS = _strata()


class DecayingHistogram:
    """Positive values between `2^low` and `2^high` with a half life in ns.

    Raises ValueError unless low < high and the half life is above 0.
    """

    __slots__ = ("_at_ns", "_half_life_ns", "_low", "_weights", "at_ns")

    def __init__(self, *, low: int, high: int, half_life_ns: int) -> None:
        if low >= high or half_life_ns <= 0:
            raise ValueError("a decaying histogram needs low below high and a half life above 0")
        self._low = low
        self._half_life_ns = half_life_ns
        self._weights = np.zeros((high - low) * PER_OCTAVE)
        self._at_ns: int | None = None
        self.at_ns: int | None = None  # the newest value's instant; None while empty

    def add(self, value: float, at_ns: int, weight: float = 1.0) -> None:
        """Count `value`, seen at `at_ns`, `weight` times. Instants may come out of order.

        Raises ValueError for a value that is not above 0 and finite, or a weight that is not above 0.
        """
        if not (0 < value < math.inf and weight > 0):
            raise ValueError(f"{value!r} is not a positive value, or {weight!r} not a positive weight")
        if self._at_ns is None:
            self._at_ns = self.at_ns = at_ns
        octaves = (at_ns - self._at_ns) / self._half_life_ns
        if octaves > _MOST_OCTAVES:
            self._weights *= 2.0 ** -min(octaves, 1000.0)
            self._at_ns, octaves = at_ns, 0.0
        place = int((math.log2(value) - self._low) * PER_OCTAVE)
        self._weights[min(max(place, 0), len(self._weights) - 1)] += weight * 2.0 ** max(octaves, -1000.0)
        self.at_ns = max(at_ns, self.at_ns or at_ns)

    def count(self, now_ns: int) -> float:
        """How many values are left at `now_ns`, each counted by what it still weighs; 0 when empty."""
        if self._at_ns is None:
            return 0.0
        return float(self._weights.sum() * 2.0 ** min((self._at_ns - now_ns) / self._half_life_ns, 0.0))

    def counts(self, now_ns: int) -> Floats:
        """What each bucket holds at `now_ns`, from `2^low` up."""
        if self._at_ns is None:
            return np.zeros_like(self._weights)
        return np.asarray(self._weights * 2.0 ** min((self._at_ns - now_ns) / self._half_life_ns, 0.0))

    def quantiles(self, levels: Floats) -> Floats:
        """The values at `levels` (0 to 1), interpolated inside buckets. Raises ValueError when empty."""
        if self._at_ns is None:
            raise ValueError("an empty histogram has no quantiles")
        return quantiles(self._weights, levels, self._low)


def quantiles(weights: Floats, levels: Floats, low: int) -> Floats:
    """The values at `levels` of a histogram whose first bucket begins at `2^low`; weights must not all be 0."""
    cumulated = np.cumsum(weights)
    wanted = levels * cumulated[-1]
    place = np.minimum(np.searchsorted(cumulated, wanted), len(weights) - 1)
    below = cumulated[place] - weights[place]
    inside = np.divide(wanted - below, weights[place], out=np.full(len(levels), 0.5), where=weights[place] > 0)
    result: Floats = np.exp2(low + (place + np.clip(inside, 0, 1)) / PER_OCTAVE)
    return result
