"""The live view of a run, on standard error where a person is watching."""

import sys
from collections.abc import Callable
from time import monotonic_ns
from typing import TYPE_CHECKING

from outlay.render.words import percent
from outlay.units import NS_PER_S, format_duration

if TYPE_CHECKING:
    from rich.console import RenderableType

    from outlay.cli.measure_options import LoadPlan
    from outlay.cli.recorder import Live

# How often it is drawn anew.
EVERY_S = 0.25


class View:
    """A few lines that follow a run. `total` is how many requests will count, None when a clock decides."""

    def __init__(
        self, live: "Live", load: "LoadPlan", *, begun_ns: int, total: int | None, judged: bool, shown: bool
    ) -> None:
        from rich.console import Console
        from rich.live import Live as Drawn

        self._live = live
        self._load = load
        self._total = total
        self._judged = judged
        self._begun_ns = begun_ns
        self._drawn: Drawn | None = None
        if shown and sys.stderr.isatty():
            self._drawn = Drawn(console=Console(stderr=True), auto_refresh=False, transient=True)
            self._drawn.start()

    def draw(self) -> None:
        """Show how it stands."""
        if self._drawn is not None:
            self._drawn.update(self._picture(), refresh=True)

    def close(self) -> None:
        """Take it away again: what remains is the report."""
        if self._drawn is not None:
            self._drawn.stop()

    def _picture(self) -> "RenderableType":
        from rich.text import Text

        passed_ns = max(monotonic_ns() - self._begun_ns, 0)
        return Text("\n".join(lines(self._live, self._load, self._total, passed_ns, judged=self._judged)))


def lines(live: "Live", load: "LoadPlan", total: int | None, passed_ns: int, *, judged: bool) -> list[str]:
    """What the view says when the run has lasted for `passed_ns`; the warm-up is in none of its numbers."""
    of = "" if total is None else f" of {total:,}"
    counted_ns = passed_ns - load.warm_up_ns
    rate = live.back * NS_PER_S / counted_ns if counted_ns > 0 else 0.0
    running = sum(live.in_flight.values())
    first = f"{_passed(load, passed_ns)}  {live.back:,}{of} back  {rate:.1f}/s  {running:,} in flight"
    second = f"latency p50 {_at(live.latency.quantile, 0.5)}  p99 {_at(live.latency.quantile, 0.99)} so far"
    if judged and live.back:
        second += f"  on time {percent(1 - live.late / live.back)}"
    third = f"sent late p99 {_at(live.lateness.quantile, 0.99)}  {live.failed:,} failed  Ctrl-C ends it and keeps all"
    return [first, second, third]


def _passed(load: "LoadPlan", passed_ns: int) -> str:
    passed = format_duration(passed_ns)
    if passed_ns < load.warm_up_ns:
        return f"{passed}, warming up for {format_duration(load.warm_up_ns)}"
    if load.for_ns is None or load.idle_ns:
        return passed
    return f"{passed} of {format_duration(load.for_ns)}" if passed_ns < load.for_ns else f"{passed}, all sent"


def _at(quantile: Callable[[float], float | None], q: float) -> str:
    value_ns = quantile(q)
    return "-" if value_ns is None else format_duration(value_ns)
