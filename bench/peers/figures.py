"""What one run of one tool gave: its own figures, the server's, and how they are kept as a line of JSON."""

from collections.abc import Iterable

import msgspec

from outlay.sketch import nearest_rank


class Spread(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Percentiles of one duration. None: not told, or there was nothing to take it from."""

    p50_ns: int | None = None
    p90_ns: int | None = None
    p99_ns: int | None = None


class Figures(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Time to the first token, to the end, and between tokens: each gap, and the mean gap of each request."""

    ttft: Spread = Spread()
    e2e: Spread = Spread()
    gap: Spread = Spread()
    mean_gap: Spread = Spread()


class Span(msgspec.Struct, frozen=True, kw_only=True):
    """From when to when, on CLOCK_MONOTONIC."""

    from_ns: int
    to_ns: int


class Said(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A tool's own report. `of_itself` is what it says of its own lateness; `silences` the stalls that it names."""

    figures: Figures = Figures()
    requests: int | None = None
    of_itself: str | None = None
    silences: tuple[Span, ...] | None = None


class Truth(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The server's own log of the same run."""

    figures: Figures = Figures()
    requests: int = 0
    whole: int = 0
    first_ns: int | None = None
    last_ns: int | None = None


class Record(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One run. `cpu_ns` is what the tool and its processes took; `others_cores` how many cores anything but the tool,
    the server and this program kept busy on average. `expected` is how long answers take by arithmetic."""

    scenario: str
    tool: str
    version: str
    server: str
    realtime: bool
    round: int
    rate: int | None = None
    duration_s: int | None = None
    said: Said = Said()
    truth: Truth = Truth()
    start_ns: int | None = None
    cpu_ns: int | None = None
    others_cores: float | None = None
    expected: Spread | None = None
    stalls: tuple[Span, ...] = ()
    error: str | None = None


def spread(values_ns: Iterable[int]) -> Spread:
    """The percentiles of some durations by nearest rank; all None when there are none."""
    ordered = sorted(values_ns)

    def at(q: float) -> int | None:
        rank = nearest_rank(q, len(ordered))
        return None if rank is None else ordered[rank - 1]

    return Spread(p50_ns=at(0.5), p90_ns=at(0.9), p99_ns=at(0.99))
