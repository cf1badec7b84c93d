"""What a worker counts, and its page in the Prometheus text format."""

from collections import Counter

from outlay.exposition import Histogram, label_pairs

# Two buckets to each doubling, from 0.1 ms to 100 s.
_BOUNDS_NS = tuple(round(100_000 * 2 ** (place / 2)) for place in range(41))


class Telemetry:
    """The counts of one worker since it began."""

    def __init__(self, targets: tuple[str, ...]) -> None:
        self._targets = targets
        self.requests: Counter[tuple[str, str, int]] = Counter()
        self.attempts: Counter[tuple[str, str]] = Counter()
        self.on_time: Counter[tuple[str, str]] = Counter()
        self.notes = 0
        self._times: dict[tuple[str, str], Histogram] = {}
        self.lag = Histogram(_BOUNDS_NS)

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
            histogram = self._times[key] = Histogram(_BOUNDS_NS)
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
            for key, count in sorted(counts.items(), key=str):
                lines.append(f"{name}{{{label_pairs(**dict(zip(labels, key, strict=True)))}}} {count}")
        for name, value in values.items():
            lines += (f"# TYPE {name} {'counter' if name.endswith('_total') else 'gauge'}", f"{name} {value:.15g}")
        for name in dict.fromkeys(name for name, _ in self._times):
            lines.append(f"# TYPE {name} histogram")
            for moment in sorted(moment for of, moment in self._times if of == name):
                lines += self._times[name, moment].text(name, label_pairs(moment=moment))
        lines += ("# TYPE outlay_gateway_loop_lag_seconds histogram", *self.lag.text("outlay_gateway_loop_lag_seconds"))
        return ("\n".join(lines) + "\n").encode()
