"""How long each candidate will still take: a distribution, not a number.

The time ahead of a candidate is the network both ways, then what the server needs: waiting and working. The network
is a distribution given as weighted points. The server's time is what the token-work model predicts, times a factor
whose distribution was learned from what its predictions were worth (1 is exact). Both are taken as independent, and
their sum is integrated, so that a joint tail is never the sum of two tails. A cold start is a mass of its own, and
so is failure, which never arrives in time.

Age widens: what was learned from a signal is spread about its median by `spread`, which grows with the signal's age.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from outlay.decaying import LEVELS, PER_OCTAVE, WEIGHTS
from outlay.work import Fleet

Floats = NDArray[np.float64]

# Factors between 1/16 and 64; what lies outside counts at the ends.
LOW, HIGH = -4, 6
BUCKETS = (HIGH - LOW) * PER_OCTAVE
EDGES = np.linspace(LOW, HIGH, BUCKETS + 1)

# Multiples of the median between which a quantile is interpolated.
_GRID = np.exp2(np.array([-2, -0.7, -0.3, -0.1, 0, 0.1, 0.25, 0.4, 0.6, 0.85, 1.2, 1.7, 2.4, 3.4, 5]))

_ONE = 4

# Where it is learned how far promises are off, and the same as log-odds; between them it is interpolated.
CLAIMS = (0.5, 0.8, 0.9, 0.95, 0.98, 0.995)
_CLAIMED = np.log(np.array(CLAIMS) / (1 - np.array(CLAIMS)))
# Plain probabilities at which a promise is worked out, evenly spaced as log-odds: between two it is nearly a line.
_LOGITS = np.linspace(-7, 9, 97)
PLAIN = np.concatenate([[0.0], 1 / (1 + np.exp(-_LOGITS)), [1.0]])
# The same for each of three load classes, two apart.
SIDE_BY_SIDE = np.concatenate([PLAIN, PLAIN + 2, PLAIN + 4])


def promised(rise: Floats) -> Floats:
    """What may be promised at each of PLAIN, when the log-odds of being late are higher by `rise[k]` at CLAIMS[k].

    Where a better chance would become a worse promise, both become the worse one.
    """
    logits = _LOGITS - np.interp(_LOGITS, _CLAIMED, rise)
    logits = np.minimum.accumulate(logits[::-1])[::-1]
    return np.concatenate([[0.0], 1 / (1 + np.exp(-logits)), [1.0]])


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """What was predicted of one attempt, kept beside it until it is known what came of it."""

    target: int
    moment: str
    load: int
    service_ns: float
    spread: float


@dataclass(frozen=True, kw_only=True, eq=False)
class Forecasts:
    """The time still ahead, from the decision to the percept, of every candidate; arrays have a row for each.

    `network_ns` has a column for each weight of `decaying.WEIGHTS`; NaN where nothing is known of the path.
    `service_ns` is predicted for `useful_tokens`, of which `wait_ns` is spent waiting, and `step_ns` for each token
    after the first. Row `row[c]` of `cdf` is the distribution of the factor on it: `cdf[r, j]` is the probability that
    it lies below `2^EDGES[j]`; `middle[r]` is log2 of its median.
    With probability `cold[c]` one of `cold_ns[c]`, equally likely, comes on top. With `failure[c]` nothing comes.
    `usable[c]` is False while the target is ejected; `calibrated[c]` says whether enough was learned.
    `late` holds what may be promised at each of SIDE_BY_SIDE, which is PLAIN for each load class, so that promises come
    true; None: the plain probability itself. `load[c]` is the class.
    `pressure` is the share of requests that may not be shed and that waiting would have made late. `spare[c]` says
    where further attempts may go, because its site has retries left; None: anywhere.
    """

    fleet: Fleet
    moment: str
    network_ns: Floats
    service_ns: Floats
    step_ns: Floats
    useful_tokens: int
    wait_ns: Floats
    cdf: Floats
    middle: Floats
    row: NDArray[np.intp]
    load: NDArray[np.intp]
    spread: Floats
    cold: Floats
    cold_ns: dict[int, Floats]
    failure: Floats
    usable: NDArray[np.bool_]
    calibrated: NDArray[np.bool_]
    late: Floats | None = None
    pressure: float = 0.0
    spare: NDArray[np.bool_] | None = None

    def p_within(self, within_ns: float) -> Floats:
        """The plain probability that the result is perceived within `within_ns` from now, for every candidate.

        0 where nothing is known of the path. `judged` makes promises of these.
        """
        p = self._p_warm(within_ns - self.network_ns, *self._columns)
        if self.cold_ns:
            scale, shift, begin = self._places
            places, starts_ns, shares = self._cold_starts
            left = within_ns - starts_ns[:, :, None] - self.network_ns[places][:, None, :]
            at = places[:, None, None]
            late = (self._p_warm(left, scale[at], shift[at], begin[at]) * shares).sum(axis=1)
            p[places] += self.cold[places] * (late - p[places])
        p *= self._arrives
        return p

    def bound_ns(self, candidate: int, level: float) -> float:
        """A time within which the candidate is with at least probability `level`, given that it comes.

        Half of what may be late is granted to the network and half to the server (Boole's inequality), so it holds
        whatever the two have to do with one another. It is quick to find, and never less than the quantile.
        """
        # Plain numbers: arithmetic on single elements of arrays takes several times as long.
        each = (1.0 + level) / 2
        row = self.row.item(candidate)
        edge = LOW + self.cdf[row].searchsorted(each).item() / PER_OCTAVE
        middle = self.middle.item(row)
        factor = 2.0 ** (middle + (edge - middle) * self.spread.item(candidate))
        network_ns = self.network_ns.item(candidate, bisect_left(_LEVELS, each))
        bound_ns: float = network_ns + self.service_ns.item(candidate) * factor
        if candidate in self.cold_ns and self.cold[candidate] > (1.0 - each) / 2:
            bound_ns += float(self.cold_ns[candidate].max())
        return bound_ns

    def judged(self, p: Floats) -> Floats:
        """Plain probabilities as they may be promised: what came of earlier ones is in them."""
        return p if self.late is None else np.interp(p + self._beside, SIDE_BY_SIDE, self.late)

    def curves(self, candidates: Sequence[int]) -> "tuple[Curve, ...]":
        """How likely each of `candidates` has come by when: as functions of time that are cheap to ask again."""
        chosen = np.array(candidates, dtype=np.intp)
        scale, shift, begin = self._places
        scale, shift, begin = (
            scale[chosen][:, None, None],
            shift[chosen][:, None, None],
            begin[chosen][:, None, None],
        )
        grid = self.middle_ns[chosen][:, None] * _GRID
        cold = [(at, candidate) for at, candidate in enumerate(candidates) if candidate in self.cold_ns]
        for at, candidate in cold:
            # A cold start moves the steep part: half of the steps go to where it may end.
            starts_ns = self.cold_ns[candidate]
            ends_ns = np.linspace(starts_ns.min(), starts_ns.max() * 1.5, len(_GRID) // 2) + grid[at, _ONE]
            grid[at] = np.sort(np.concatenate([grid[at, ::2], ends_ns]))
        left = grid[:, :, None] - self.network_ns[chosen][:, None, :]
        p = self._p_warm(left, scale, shift, begin)
        for at, candidate in cold:
            later = left[at] - self.cold_ns[candidate][:, None, None]
            late = self._p_warm(later, scale[at], shift[at], begin[at]).mean(axis=0)
            p[at] += self.cold[candidate] * (late - p[at])
        return tuple(
            Curve(times_ns=times.tolist(), p=row.tolist(), arrives=1.0 - failure)
            for times, row, failure in zip(grid, p, self.failure[chosen].tolist(), strict=True)
        )

    @cached_property
    def middle_ns(self) -> Floats:
        """Roughly the median of each candidate when it is warm; infinity where nothing is known of the path."""
        factor = np.exp2(self.middle)[self.row]
        # fmin turns the NaN of an unknown path into infinity.
        return np.asarray(np.fmin(self.network_ns[:, _MIDDLE] + self.service_ns * factor, np.inf))

    @cached_property
    def ahead_ns(self) -> Floats:
        """`middle_ns`, with what a cold start adds on average."""
        if not self.cold_ns:
            return self.middle_ns
        places, starts_ns, shares = self._cold_starts
        ahead_ns = self.middle_ns.copy()
        ahead_ns[places] += self.cold[places] * (starts_ns * shares).sum(axis=1)
        return ahead_ns

    @cached_property
    def network_sigma_ns(self) -> Floats:
        """The standard deviation of each candidate's network, as half of the distance from its p16 to its p84."""
        return np.asarray((self.network_ns[:, _P84] - self.network_ns[:, _P16]) / 2)

    def prepared(self) -> "Forecasts":
        """Itself, with everything worked out that a decision will ask first."""
        _ = self._columns, self._arrives, self._beside, self._flat, self.ahead_ns, self.network_sigma_ns
        return self

    def shorter(self, useful_tokens: int) -> "Forecasts":
        """The same for an answer of which fewer tokens are useful; more than now changes nothing."""
        fewer = max(self.useful_tokens - useful_tokens, 0)
        return replace(self, service_ns=self.service_ns - fewer * self.step_ns, useful_tokens=useful_tokens)

    def expectation(self, candidate: int) -> Expectation:
        """What is predicted of one candidate, to be kept with the attempt."""
        return Expectation(
            target=candidate,
            moment=self.moment,
            load=int(self.load[candidate]),
            service_ns=float(self.service_ns[candidate]),
            spread=float(self.spread[candidate]),
        )

    @cached_property
    def _places(self) -> tuple[Floats, Floats, NDArray[np.intp]]:
        """How log2 of a time becomes a place in a row of `cdf`: a factor and a shift; and where the row begins."""
        scale, middle = PER_OCTAVE / self.spread, self.middle[self.row]
        shift = (middle - LOW) * PER_OCTAVE - (np.log2(self.service_ns) + middle) * scale
        return scale, shift, self.row * (BUCKETS + 1)

    @cached_property
    def _columns(self) -> tuple[Floats, Floats, NDArray[np.intp]]:
        """`_places` as columns, beside the points of the network."""
        scale, shift, begin = self._places
        return scale[:, None], shift[:, None], begin[:, None]

    @cached_property
    def _arrives(self) -> Floats:
        return 1.0 - self.failure

    @cached_property
    def _beside(self) -> Floats:
        """Where each candidate's load class begins in SIDE_BY_SIDE."""
        return np.asarray(2.0 * self.load, dtype=np.float64)

    def _p_warm(self, left: Floats, scale: Floats, shift: Floats, begin: NDArray[np.intp]) -> Floats:
        """P(service x factor <= left), with the points of the network in the last axis weighed; shapes broadcast."""
        # NaN stands for an unknown path: it becomes no time at all, which is below every bucket.
        place = np.fmax(left, 1.0)
        np.log2(place, out=place)
        place *= scale
        place += shift
        np.minimum(place, BUCKETS - 1e-6, out=place)
        np.maximum(place, 0.0, out=place)
        whole = place.astype(np.intp)
        place -= whole
        whole += begin
        lower, rise = self._flat
        place *= rise[whole]
        place += lower[whole]
        return np.asarray(place @ WEIGHTS)

    @cached_property
    def _cold_starts(self) -> tuple[NDArray[np.intp], Floats, Floats]:
        """The candidates that may be cold, their times to start side by side, and the share of each time."""
        longest = max(len(starts_ns) for starts_ns in self.cold_ns.values())
        places = np.array(list(self.cold_ns), dtype=np.intp)
        starts, shares = np.zeros((2, len(places), longest))
        for row, starts_ns in enumerate(self.cold_ns.values()):
            starts[row, : len(starts_ns)] = starts_ns
            shares[row, : len(starts_ns)] = 1 / len(starts_ns)
        return places, starts, shares

    @cached_property
    def _flat(self) -> tuple[Floats, Floats]:
        """The table in one row, and what each place rises by to the next; the last of a row is never asked for."""
        lower = self.cdf.ravel()
        return lower, np.append(np.diff(lower), 0.0)


@dataclass(frozen=True, slots=True)
class Curve:
    """The distribution of one candidate's time ahead, at `times_ns`, given that it comes; `arrives` is how likely."""

    times_ns: list[float]
    p: list[float]
    arrives: float

    def within(self, within_ns: float) -> float:
        """The probability that it has come within `within_ns`, failure counted."""
        times_ns, p = self.times_ns, self.p
        place = bisect_right(times_ns, within_ns)
        if place == 0:
            return 0.0
        if place == len(times_ns):
            come = p[-1]
        else:
            part = (within_ns - times_ns[place - 1]) / (times_ns[place] - times_ns[place - 1])
            come = p[place - 1] + part * (p[place] - p[place - 1])
        return come * self.arrives

    def quantile_ns(self, level: float) -> float:
        """The time within which it has come with probability `level`, failure left out; infinity when it never has.

        Failure is left out because this is how long to wait for an answer that comes.
        """
        times_ns, p = self.times_ns, self.p
        place = bisect_left(p, level)
        if place == len(p):
            return float("inf")
        if place == 0 or p[place] == p[place - 1]:
            return times_ns[place]
        part = (level - p[place - 1]) / (p[place] - p[place - 1])
        return times_ns[place - 1] + part * (times_ns[place] - times_ns[place - 1])


_LEVELS = LEVELS.tolist()
_MIDDLE = int(np.searchsorted(np.cumsum(WEIGHTS), 0.5))
_P16, _P84 = (int(np.searchsorted(LEVELS, level)) for level in (0.16, 0.84))
