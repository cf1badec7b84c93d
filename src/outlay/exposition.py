"""Counts of durations, in the text format that Prometheus reads."""

from bisect import bisect_left
from collections.abc import Iterator
from itertools import accumulate

from outlay.units import NS_PER_S


class Histogram:
    """Durations counted in fixed buckets, each up to and with its bound; `bounds_ns` rise."""

    __slots__ = ("bounds_ns", "counts", "sum_ns")

    def __init__(self, bounds_ns: tuple[int, ...]) -> None:
        self.bounds_ns = bounds_ns
        self.counts = [0] * (len(bounds_ns) + 1)
        self.sum_ns = 0

    def add(self, duration_ns: int) -> None:
        """One more."""
        self.counts[bisect_left(self.bounds_ns, duration_ns)] += 1
        self.sum_ns += duration_ns

    def text(self, name: str, labels: str = "") -> Iterator[str]:
        """The lines of its samples: every bucket each time, as rates need. `labels` are as `label_pairs` gives them."""
        before = f"{labels}," if labels else ""
        own = f"{{{labels}}}" if labels else ""
        bounds = [*(f"{bound / NS_PER_S:.6g}" for bound in self.bounds_ns), "+Inf"]
        for bound, count in zip(bounds, accumulate(self.counts), strict=True):
            yield f'{name}_bucket{{{before}le="{bound}"}} {count}'
        yield f"{name}_sum{own} {self.sum_ns / NS_PER_S:.9f}"
        yield f"{name}_count{own} {sum(self.counts)}"


def label_pairs(**labels: object) -> str:
    """Labels with their values, escaped."""
    return ",".join(f'{name}="{_escaped(str(value))}"' for name, value in labels.items())


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
