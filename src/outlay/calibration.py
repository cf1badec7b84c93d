"""Do promises come true? Of all that was called 95 % likely, 95 % should have happened.

A bin's interval is Clopper and Pearson's, on as many independent outcomes as the bin is worth: outcomes of one run at
about the same time stand or fall together, so their number is divided by the design effect of those clusters (Kish,
"Survey Sampling", 1965). It holds at least its nominal share also where a bin holds few or all of its outcomes agree.
"""

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from outlay.quantiles import share_interval

# Deciles say whether the claim holds; near 1, where most promises are, finer bins say where it does not.
DECILES = tuple(place / 10 for place in range(11))
FINER = (0.9, 0.95, 0.98, 0.99, 0.995, 1.0)

# Of how many clusters on a design effect is estimated; below, all outcomes of a cluster count as one.
_FEWEST_CLUSTERS = 5

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Promise:
    """One probability that was claimed, and whether it came true. Those of one cluster depend on each other."""

    p: float
    came_true: bool
    cluster: Hashable = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Bin:
    """The promises between two probabilities: their mean, the share that came true, and its 95 % interval."""

    low: float
    high: float
    n: int
    promised: float
    kept: float
    interval: tuple[float, float]

    @property
    def holds(self) -> bool:
        """Whether what was promised lies inside the interval of what was kept."""
        return self.interval[0] <= self.promised <= self.interval[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reliability:
    """How right a router's promises are. Empty bins are absent.

    `error` is the expected calibration error: the mean over promises of the distance of their decile's promised from
    its kept share (Naeini et al., 2015); `brier` the mean squared distance of a promise from what came.
    """

    n: int
    error: float
    brier: float
    deciles: tuple[Bin, ...]
    finer: tuple[Bin, ...]


def reliability(promises: Iterable[Promise]) -> Reliability | None:
    """How right they are; None of no promises. Raises ValueError for a probability outside 0 to 1."""
    held = list(promises)
    if not held:
        return None
    p = np.array([promise.p for promise in held])
    if not ((p >= 0) & (p <= 1)).all():
        raise ValueError("a probability lies between 0 and 1")
    kept = np.array([promise.came_true for promise in held], dtype=np.float64)
    _, clusters = np.unique(_numbered([promise.cluster for promise in held]), return_inverse=True)
    deciles = _bins(p, kept, clusters, DECILES)
    error = sum(each.n * abs(each.promised - each.kept) for each in deciles) / len(held)
    return Reliability(
        n=len(held),
        error=error,
        brier=float(np.mean((p - kept) ** 2)),
        deciles=deciles,
        finer=_bins(p, kept, clusters, FINER),
    )


def _numbered(clusters: Sequence[Hashable]) -> NDArray[np.intp]:
    """A number for each cluster; without one an outcome is a cluster of its own."""
    seen: dict[Hashable, int] = {}
    numbers = [seen.setdefault(place if name is None else (name,), len(seen)) for place, name in enumerate(clusters)]
    return np.array(numbers, dtype=np.intp)


def _bins(p: Floats, kept: Floats, clusters: NDArray[np.intp], edges: Sequence[float]) -> tuple[Bin, ...]:
    found = []
    for low, high in pairwise(edges):
        inside = (p >= low) & ((p < high) | ((high == edges[-1]) & (p <= high)))
        n = int(inside.sum())
        if n:
            share = float(kept[inside].mean())
            worth = n / _design_effect(kept[inside], clusters[inside])
            found.append(
                Bin(
                    low=low,
                    high=high,
                    n=n,
                    promised=float(p[inside].mean()),
                    kept=share,
                    interval=share_interval(share * worth, worth),
                )
            )
    return tuple(found)


def _design_effect(kept: Floats, clusters: NDArray[np.intp]) -> float:
    """How much wider the spread of clusters is than that of as many independent outcomes; at least 1."""
    _, of = np.unique(clusters, return_inverse=True)
    sizes = np.bincount(of).astype(np.float64)
    share = kept.mean()
    if share in (0.0, 1.0) or len(sizes) == len(kept):
        return 1.0
    if len(sizes) < _FEWEST_CLUSTERS:
        return len(kept) / len(sizes)
    off = np.bincount(of, weights=kept) - sizes * share
    spread = float((off**2).sum() * len(sizes) / (len(sizes) - 1))
    return float(max(spread / (len(kept) * share * (1 - share)), 1.0))
