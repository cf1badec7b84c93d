"""A mergeable sketch of latencies: a base-2 exponential histogram at one fixed resolution.

Bucket `i` counts the values in `(b^i, b^(i+1)]` with `b = 2^(2^-6)`, so whatever the sketch says of a value is within
`(b - 1) / (b + 1)` = 0.54 % of it, anywhere between 1 ns and 2^63 ns, without settings that two producers could choose
differently. Counts merge exactly, in any order; numbers read from two sketches never do.

Zero has a count of its own. An interaction that never ended well is `failed`: it is longer than every limit, and ranks
after every finite value as infinity. Count, sum, smallest, largest and the counts over declared limits are exact.
"""

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outlay.units import MAX_NS

SCALE = 6
RELATIVE_ERROR = math.tanh(math.log(2) / 2 ** (SCALE + 1))  # (b - 1) / (b + 1)

_PER_OCTAVE = 1 << SCALE
_OCTAVES = MAX_NS.bit_length()

# No whole number of nanoseconds falls into bucket -2, so zero can sit there, below all others, and needs no branches.
_ZERO = -2
_LAST = _OCTAVES * _PER_OCTAVE - 1

# Halving the resolution leaves at least these apart: zero, 1 ns (bucket -1), and all above (bucket 0).
_FEWEST_BINS = 3
_FEWEST_BUCKETS = 2

_RECORD = "sketch/1"


def _edges() -> tuple[int, ...]:
    """0, then the lower edge of each bucket from 0 up, rounded down: a whole number is above both or neither.

    Integer roots make every edge exact, and the same on every machine; a float logarithm would not be.
    """
    top = _OCTAVES - 1
    octave = []
    for step in range(_PER_OCTAVE):
        edge = 1 << (top * _PER_OCTAVE + step)
        for _ in range(SCALE):  # the 2^SCALE-th root, as square roots
            edge = math.isqrt(edge)
        octave.append(edge)
    return (0, *(edge >> (top - place) for place in range(_OCTAVES) for edge in octave))


_EDGES = _edges()
_EDGE_ARRAY = np.array(_EDGES, dtype=np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExponentialHistogram:
    """The finite values of a sketch as a point of OpenTelemetry's exponential histogram, in nanoseconds.

    `bucket_counts[j]` counts the values in `(b^(offset + j), b^(offset + j + 1)]` with `b = 2^(2^-scale)`. `min_ns` and
    `max_ns` are None when the producer left them out, or nothing was counted.
    Raises ValueError when a count is negative or `count` is not the sum of the others.
    """

    count: int
    sum_ns: int
    scale: int
    zero_count: int
    offset: int
    bucket_counts: tuple[int, ...]
    min_ns: int | None
    max_ns: int | None

    def __post_init__(self) -> None:
        if min(self.zero_count, *self.bucket_counts, 0) < 0:
            raise ValueError("a histogram's counts must not be negative")
        if self.count != self.zero_count + sum(self.bucket_counts):
            raise ValueError("a histogram's count must be the sum of its zero count and its bucket counts")


class Sketch:
    """The distribution of a stream of latencies; see the module for what is exact and what is within 0.54 %.

    `limits_ns` are the limits for which the count of values above them is kept exactly: an edge of a bucket is not an
    edge of a budget. Raises ValueError for a limit that is not a whole number of nanoseconds, at least 0.
    """

    __slots__ = ("_counts", "_failed", "_max_ns", "_min_ns", "_over", "_ranks", "_served", "_sum_ns")

    def __init__(self, limits_ns: Iterable[int] = ()) -> None:
        self._over = dict.fromkeys(sorted({_whole("a limit", limit_ns) for limit_ns in limits_ns}), 0)
        self._counts: Counter[int] = Counter()
        self._served = 0
        self._failed = 0
        self._sum_ns = 0
        self._min_ns: int | None = None
        self._max_ns: int | None = None
        self._ranks: tuple[list[int], list[int]] | None = None

    @property
    def limits_ns(self) -> tuple[int, ...]:
        """The declared limits, ascending."""
        return tuple(self._over)

    @property
    def count(self) -> int:
        """All values, the failed ones included."""
        return self._served + self._failed

    @property
    def served(self) -> int:
        """The finite values."""
        return self._served

    @property
    def failed(self) -> int:
        """The values that count as infinity."""
        return self._failed

    @property
    def sum_ns(self) -> int:
        """The exact sum of the finite values."""
        return self._sum_ns

    @property
    def min_ns(self) -> int | None:
        """The smallest finite value, exact; None without one."""
        return self._min_ns

    @property
    def max_ns(self) -> int | None:
        """The largest finite value, exact; None without one."""
        return self._max_ns

    def add(self, value_ns: float, count: int = 1) -> None:
        """Count a whole number of nanoseconds, at least 0, or infinity, `count` times.

        Raises ValueError for anything else, NaN and values beyond 63 bits included, and for a count below 1.
        """
        if value_ns == math.inf:
            self.add_failed(count)
            return
        if not 0 <= value_ns <= MAX_NS or value_ns != int(value_ns):
            raise ValueError(f"{value_ns!r} is neither a whole number of nanoseconds from 0 to 2^63 - 1 nor infinity")
        value_ns, count = int(value_ns), _whole("a count", count, at_least=1)
        self._counts[_index(value_ns)] += count
        for limit_ns in self._over:
            if value_ns > limit_ns:
                self._over[limit_ns] += count
        self._extend(count, value_ns * count, value_ns, value_ns)

    def add_many(self, values_ns: NDArray[np.int64]) -> None:
        """The same as `add` for each value, at the speed of numpy. Infinite ones go to `add_failed`.

        Raises ValueError, and counts nothing, for a negative value or anything but a one-dimensional int64 array.
        """
        if values_ns.dtype != np.int64 or values_ns.ndim != 1:
            raise ValueError(f"values must be one row of int64, not {values_ns.dtype} of shape {values_ns.shape}")
        if not values_ns.size:
            return
        min_ns, max_ns = int(values_ns.min()), int(values_ns.max())
        if min_ns < 0:
            raise ValueError(f"{min_ns} is negative; a latency is at least 0")
        counts = np.bincount(np.searchsorted(_EDGE_ARRAY, values_ns))
        touched = np.flatnonzero(counts)
        for place, count in zip(touched.tolist(), counts[touched].tolist(), strict=True):
            self._counts[place + _ZERO] += count
        for limit_ns in self._over:
            self._over[limit_ns] += int(np.count_nonzero(values_ns > limit_ns))
        self._extend(values_ns.size, _exact_sum(values_ns), min_ns, max_ns)

    def add_failed(self, count: int = 1) -> None:
        """Count interactions that never ended well. Raises ValueError for a count below 1."""
        self._failed += _whole("a count", count, at_least=1)
        for limit_ns in self._over:
            self._over[limit_ns] += count

    def over(self, limit_ns: int) -> int:
        """How many values are above the limit, exactly, the failed ones included.

        Raises ValueError when the limit was not declared: buckets could only say it roughly.
        """
        if limit_ns not in self._over:
            raise ValueError(f"{limit_ns} ns is not among the limits of this sketch, {self.limits_ns}")
        return self._over[limit_ns]

    def value_at_rank(self, rank: int, *, served_only: bool = False) -> float:
        """The `rank`-th smallest value in ns, counted from 1; failed ones come last, as infinity.

        Within `RELATIVE_ERROR` of the true one, and exact at the first and the last finite rank.
        Raises ValueError for a rank outside 1 to `count`, or with `served_only` outside 1 to `served`.
        """
        last = self._served if served_only else self.count
        if not 1 <= rank <= last:
            raise ValueError(f"rank {rank} is outside 1 to {last}")
        if rank > self._served:
            return math.inf
        assert self._min_ns is not None
        assert self._max_ns is not None
        smallest_ns, largest_ns = float(self._min_ns), float(self._max_ns)
        if rank in (1, self._served):
            return smallest_ns if rank == 1 else largest_ns
        indices, reached = self._cumulative()
        middle_ns = _middle_ns(indices[bisect_left(reached, rank)])
        return min(max(middle_ns, smallest_ns), largest_ns)

    def quantile(self, q: float, *, served_only: bool = False) -> float | None:
        """The value at `nearest_rank(q, n)`, n being `count` or with `served_only` the finite ones; None if n is 0.

        Infinity when so many failed. Raises ValueError for q outside 0 to 1.
        """
        n = self._served if served_only else self.count
        rank = nearest_rank(q, n)
        return None if rank is None else self.value_at_rank(rank, served_only=served_only)

    def merge(self, other: "Sketch") -> None:
        """Count everything that `other` counted as well.

        Raises ValueError unless both declare the same limits: the counts over a limit that only one of them knew are
        lost. (The scale is one and the same for all.)
        """
        if self.limits_ns != other.limits_ns:
            raise ValueError(f"sketches with different limits do not merge: {self.limits_ns} and {other.limits_ns}")
        self._counts.update(other._counts)
        for limit_ns in self._over:
            self._over[limit_ns] += other._over[limit_ns]
        self._failed += other._failed
        if other._min_ns is not None and other._max_ns is not None:
            self._extend(other._served, other._sum_ns, other._min_ns, other._max_ns)

    @classmethod
    def union(cls, sketches: Iterable["Sketch"]) -> "Sketch":
        """A new sketch of everything that any of them counted.

        Raises ValueError for sketches of different limits, and for none at all, because no limits are known then.
        """
        result = None
        for sketch in sketches:
            if result is None:
                result = cls(sketch.limits_ns)
            result.merge(sketch)
        if result is None:
            raise ValueError("the union of no sketches has no limits; start from an empty sketch instead")
        return result

    def __add__(self, other: "Sketch") -> "Sketch":
        return Sketch.union((self, other))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sketch):
            return NotImplemented
        return self.to_record() == other.to_record()

    __hash__ = None  # type: ignore[assignment]  # a sketch grows, so it cannot be a key

    def __repr__(self) -> str:
        return f"Sketch(count={self.count}, failed={self._failed}, min_ns={self._min_ns}, max_ns={self._max_ns})"

    def __reduce__(self) -> tuple[object, ...]:
        return Sketch.from_record, (self.to_record(),)

    def bins(self, at_most: int | None = None) -> tuple[tuple[float, float, int], ...]:
        """`(low_ns, high_ns, count)` of every bucket that holds finite values, ascending, for drawing.

        Values of a bin lie above its low and at or below its high edge; zeros are a bin from 0 to 0. With `at_most`,
        the resolution is halved until there are no more bins than that.
        Raises ValueError for `at_most` below 3, which no halving can reach.
        """
        if at_most is not None and at_most < _FEWEST_BINS:
            raise ValueError(f"at most {at_most} bins cannot be had; ask for {_FEWEST_BINS} or more")
        counts, zeros = self._positive(), self._counts[_ZERO]
        scale = SCALE
        while at_most is not None and len(counts) + (zeros > 0) > at_most:
            counts = _coarser(counts)
            scale -= 1
        first = ((0.0, 0.0, zeros),) if zeros else ()
        rest = ((_edge_ns(i, scale), _edge_ns(i + 1, scale), count) for i, count in sorted(counts.items()))
        return (*first, *rest)

    def to_otel(self, max_buckets: int = 160) -> ExponentialHistogram:
        """The finite values as OpenTelemetry's point; it has no room for `failed` and for the limits.

        The resolution is halved, each count moving whole, until the buckets from the first to the last in use are at
        most `max_buckets`. Raises ValueError for `max_buckets` below 2, which no halving can reach.
        """
        if max_buckets < _FEWEST_BUCKETS:
            raise ValueError(f"{max_buckets} buckets are too few; allow {_FEWEST_BUCKETS} or more")
        counts = self._positive()
        scale = SCALE
        while counts and max(counts) - min(counts) >= max_buckets:
            counts = _coarser(counts)
            scale -= 1
        used = range(min(counts), max(counts) + 1) if counts else range(0)
        return ExponentialHistogram(
            count=self._served,
            sum_ns=self._sum_ns,
            scale=scale,
            zero_count=self._counts[_ZERO],
            offset=used.start,
            bucket_counts=tuple(counts[index] for index in used),
            min_ns=self._min_ns,
            max_ns=self._max_ns,
        )

    @classmethod
    def from_otel(cls, histogram: ExponentialHistogram) -> "Sketch":
        """A sketch without limits and failures, of the same counts at the sketch's own resolution.

        Raises ValueError for a coarser histogram, for values below 1 ns or beyond 63 bits, and for one that does not
        say the smallest and the largest of its values, or says what its buckets or its sum contradict.
        """
        if histogram.scale < SCALE:
            raise ValueError(f"scale {histogram.scale} is coarser than {SCALE}, and lost detail cannot be had back")
        shift = histogram.scale - SCALE
        sketch = cls()
        for index, count in enumerate(histogram.bucket_counts, histogram.offset):
            if count:
                sketch._counts[index >> shift] += count
        if sketch._counts and not _ZERO < min(sketch._counts) <= max(sketch._counts) <= _LAST:
            raise ValueError("a histogram holds values below 1 ns or beyond 2^63 ns; is its unit nanoseconds?")
        if histogram.zero_count:
            sketch._counts[_ZERO] = histogram.zero_count
        if histogram.count:
            if histogram.min_ns is None or histogram.max_ns is None:
                raise ValueError("a histogram that holds values must say the smallest and the largest of them")
            sketch._extend(histogram.count, histogram.sum_ns, histogram.min_ns, histogram.max_ns)
        sketch._check()
        return sketch

    def to_record(self) -> dict[str, object]:
        """All of the sketch as values that JSON can hold; `from_record` reads it back, equal."""
        return {
            "outlay": _RECORD,
            "scale": SCALE,
            "limits_ns": list(self._over),
            "over": list(self._over.values()),
            "failed": self._failed,
            "sum_ns": self._sum_ns,
            "min_ns": self._min_ns,
            "max_ns": self._max_ns,
            "zero_count": self._counts[_ZERO],
            "buckets": [[index, count] for index, count in sorted(self._positive().items())],
        }

    @classmethod
    def from_record(cls, record: object) -> "Sketch":
        """The sketch that `to_record` wrote. Raises ValueError for a record that is not one, or contradicts itself."""
        if not isinstance(record, Mapping) or set(record) != set(cls().to_record()):
            raise ValueError("a record of a sketch has exactly the keys " + ", ".join(cls().to_record()))
        if record["outlay"] != _RECORD or record["scale"] != SCALE:
            raise ValueError(f"only {_RECORD} at scale {SCALE} can be read")
        sketch = cls(_list("limits_ns", record["limits_ns"]))
        over = [_whole("over", count) for count in _list("over", record["over"])]
        if list(sketch._over) != record["limits_ns"] or len(over) != len(sketch._over):
            raise ValueError("limits_ns must ascend, and over must say one count for each")
        sketch._over = dict(zip(sketch._over, over, strict=True))
        sketch._failed = _whole("failed", record["failed"])
        sketch._counts.update(_buckets(record))
        if sketch._counts:
            sum_ns, min_ns, max_ns = (_whole(name, record[name]) for name in ("sum_ns", "min_ns", "max_ns"))
            sketch._extend(sketch._counts.total(), sum_ns, min_ns, max_ns)
        elif (record["sum_ns"], record["min_ns"], record["max_ns"]) != (0, None, None):
            raise ValueError("without finite values, sum_ns is 0 and min_ns and max_ns are null")
        sketch._check()
        return sketch

    def _check(self) -> None:
        """Raises ValueError when what was read contradicts itself.

        Other producers round to whole nanoseconds after sorting into buckets, hence one bucket and 1 ns of slack.
        """
        if self._min_ns is not None and self._max_ns is not None:
            if not 0 <= self._min_ns <= self._max_ns <= MAX_NS:
                raise ValueError("the smallest and the largest value must be in order, from 0 to 2^63 - 1 ns")
            if max(abs(_index(self._min_ns) - min(self._counts)), abs(_index(self._max_ns) - max(self._counts))) > 1:
                raise ValueError("the smallest and the largest value must lie in the first and the last bucket")
            if not (self._min_ns - 1) * self._served <= self._sum_ns <= (self._max_ns + 1) * self._served:
                raise ValueError("the sum must lie between the count times the smallest and the largest value")
        # A higher limit is exceeded by no more values than a lower one, and by all that failed.
        falling = [self.count, *self._over.values(), self._failed]
        if any(later > earlier for earlier, later in pairwise(falling)):
            raise ValueError("over must not grow with the limit, and lie between failed and count")

    def _extend(self, count: int, sum_ns: int, min_ns: int, max_ns: int) -> None:
        self._served += count
        self._sum_ns += sum_ns
        self._min_ns = min_ns if self._min_ns is None else min(self._min_ns, min_ns)
        self._max_ns = max_ns if self._max_ns is None else max(self._max_ns, max_ns)
        self._ranks = None

    def _cumulative(self) -> tuple[list[int], list[int]]:
        """The buckets in use, ascending, and the rank of the last value in each."""
        if self._ranks is None:
            indices = sorted(self._counts)
            self._ranks = indices, list(accumulate(self._counts[index] for index in indices))
        return self._ranks

    def _positive(self) -> Counter[int]:
        return Counter({index: count for index, count in self._counts.items() if index != _ZERO})


def nearest_rank(q: float, n: int) -> int | None:
    """The rank of the q-quantile among n values, `ceil(q n)` and at least 1; None when there are none.

    Raises ValueError for q outside 0 to 1.
    """
    if not 0 <= q <= 1:
        raise ValueError(f"{q!r} is not a quantile; it must lie between 0 and 1")
    if n == 0:
        return None
    # 0.55 is a hair above 55/100 in binary; without the allowance the 55 % of 100 values would be the 56th.
    return max(1, math.ceil(q * n * (1 - 1e-12)))


def _index(value_ns: int) -> int:
    return bisect_left(_EDGES, value_ns) + _ZERO


def _edge_ns(index: int, scale: int = SCALE) -> float:
    return float(2.0 ** math.ldexp(index, -scale))


def _middle_ns(index: int) -> float:
    """The point that is off by the same share at both edges of its bucket."""
    if index == _ZERO:
        return 0.0
    low_ns, high_ns = _edge_ns(index), _edge_ns(index + 1)
    return 2 * low_ns * high_ns / (low_ns + high_ns)


def _coarser(counts: Counter[int]) -> Counter[int]:
    """The same counts in buckets twice as wide."""
    halved: Counter[int] = Counter()
    for index, count in counts.items():
        halved[index >> 1] += count
    return halved


def _exact_sum(values_ns: NDArray[np.int64]) -> int:
    # A sum of int64 wraps around silently; two halves of 32 bits cannot.
    return (int((values_ns >> 32).sum()) << 32) + int((values_ns & 0xFFFF_FFFF).sum())


def _buckets(record: Mapping[str, object]) -> dict[int, int]:
    counts: dict[int, int] = {}
    zeros = _whole("zero_count", record["zero_count"])
    if zeros:
        counts[_ZERO] = zeros
    last = _ZERO
    for pair in _list("buckets", record["buckets"]):
        index, count = _list("a bucket", pair, length=2)
        if type(index) is not int or not last < index <= _LAST:
            raise ValueError(f"buckets must ascend from {_ZERO + 1} to {_LAST}, not {index!r} after {last}")
        counts[index] = _whole("a bucket's count", count, at_least=1)
        last = index
    return counts


def _list(name: str, value: object, length: int | None = None) -> list[Any]:
    if not isinstance(value, list) or length not in (None, len(value)):
        raise ValueError(f"{name} must be a list" + (f" of {length}" if length else ""))
    return value


def _whole(name: str, value: object, at_least: int = 0) -> int:
    if type(value) is not int or value < at_least:
        raise ValueError(f"{name} must be a whole number of at least {at_least}, not {value!r}")
    return value
