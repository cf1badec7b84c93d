"""What a worker counts, and its page in the Prometheus text format."""

from bisect import bisect_left
from collections import Counter

from outlay.units import NS_PER_S

# Bounds of histograms, in seconds: four to each doubling from 0.1 ms on, as coarse as native histograms of schema 2.
_BOUNDS_NS = tuple(round(100_000 * 2 ** (place / 4)) for place in range(80))


class Histogram:
    """Counts of times by bucket."""

    __slots__ = ("counts", "total_ns")

    def __init__(self) -> None:
        self.counts = [0] * (len(_BOUNDS_NS) + 1)
        self.total_ns = 0

    def add(self, time_ns: int) -> None:
        """One more."""
        self.counts[bisect_left(_BOUNDS_NS, time_ns)] += 1
        self.total_ns += time_ns


class Telemetry:
    """The counts of one worker since it began."""

    def __init__(self, targets: tuple[str, ...]) -> None:
        self._targets = targets
        self.requests: Counter[tuple[str, str, int]] = Counter()
        self.attempts: Counter[tuple[str, str]] = Counter()
        self.on_time: Counter[tuple[str, str]] = Counter()
        self.notes = 0
        self._times: dict[tuple[str, str], Histogram] = {}
        self.lag = Histogram()

    def attempt(self, target: int, outcome: str) -> None:
        """An attempt is over."""
        self.attempts[self._targets[target], outcome] += 1

    def useful(self, moment: str, time_ns: int, on_time: bool) -> None:
        """The first output of use was handed on, this long after its request was read."""
        self.on_time[moment, "yes" if on_time else "no"] += 1
        self._time("outlay_gateway_time_to_useful_seconds", moment, time_ns)

    def request(self, moment: str, outcome: str, status: int, route_ns: int) -> None:
        """A request is over; `route_ns` is what the gateway took to decide."""
        self.requests[moment, outcome, status] += 1
        self._time("outlay_gateway_route_seconds", moment, route_ns)

    def _time(self, name: str, moment: str, time_ns: int) -> None:
        key = (name, moment)
        histogram = self._times.get(key)
        if histogram is None:
            histogram = self._times[key] = Histogram()
        histogram.add(time_ns)

    def page(self, values: dict[str, float]) -> bytes:
        """All of it, and `values` that are read when it is asked for: counters by their names' end, else gauges."""
        lines: list[str] = []
        counters = (
            ("outlay_gateway_requests_total", "Requests by what came of them.", ("moment", "outcome", "status"),
             self.requests),
            ("outlay_gateway_attempts_total", "Attempts by target and what came of them.", ("target", "outcome"),
             self.attempts),
            ("outlay_gateway_on_time_total", "Answers by whether they were on time.", ("moment", "on_time"),
             self.on_time),
        )  # fmt: skip
        for name, about, labels, counts in counters:
            lines += (f"# HELP {name} {about}", f"# TYPE {name} counter")
            for key, count in sorted(counts.items(), key=lambda item: str(item[0])):
                told = ",".join(f'{label}="{_escaped(str(value))}"' for label, value in zip(labels, key, strict=True))
                lines.append(f"{name}{{{told}}} {count}")
        for name, value in values.items():
            lines += (f"# TYPE {name} {'counter' if name.endswith('_total') else 'gauge'}", f"{name} {value:.15g}")
        histograms = [(name, f'moment="{_escaped(moment)}"', of) for (name, moment), of in sorted(self._times.items())]
        histograms.append(("outlay_gateway_loop_lag_seconds", "", self.lag))
        typed: set[str] = set()
        for name, label, histogram in histograms:
            if name not in typed:
                typed.add(name)
                lines.append(f"# TYPE {name} histogram")
            lines += _buckets(name, label, histogram)
        return ("\n".join(lines) + "\n").encode()


def _buckets(name: str, label: str, histogram: Histogram) -> list[str]:
    lines, seen = [], 0
    comma = "," if label else ""
    for bound_ns, count in zip(_BOUNDS_NS, histogram.counts, strict=False):
        seen += count
        if count:
            lines.append(f'{name}_bucket{{{label}{comma}le="{bound_ns / NS_PER_S:.9g}"}} {seen}')
    total = seen + histogram.counts[-1]
    ends = f"{{{label}}}" if label else ""
    lines.append(f'{name}_bucket{{{label}{comma}le="+Inf"}} {total}')
    lines.append(f"{name}_sum{ends} {histogram.total_ns / NS_PER_S:.9g}")
    lines.append(f"{name}_count{ends} {total}")
    return lines


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
