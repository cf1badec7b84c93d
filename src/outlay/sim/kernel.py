"""Virtual time: calls in the order of their instants, equal instants in the order in which they were asked for."""

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

# [instant, order, call, arguments]; a cancelled one has no call.
Event = list[Any]


class Kernel:
    """A clock that jumps from one call to the next. Nothing in it is random."""

    __slots__ = ("_heap", "_order", "events", "now_ns")

    def __init__(self) -> None:
        self._heap: list[Event] = []
        self._order = 0
        self.now_ns = 0
        self.events = 0

    def at(self, at_ns: int, call: Callable[..., None], *arguments: object) -> Event:
        """Call at `at_ns`, or now when that is past. The event can be given to `cancel`."""
        self._order += 1
        event = [at_ns if at_ns > self.now_ns else self.now_ns, self._order, call, arguments]
        heappush(self._heap, event)
        return event

    def after(self, delay_ns: int, call: Callable[..., None], *arguments: object) -> Event:
        """`at`, counted from now."""
        return self.at(self.now_ns + delay_ns, call, *arguments)

    @staticmethod
    def cancel(event: Event | None) -> None:
        """Do not make the call; harmless when it was made, or for None."""
        if event is not None:
            event[2] = None

    def run(self, until_ns: int | None = None) -> None:
        """Make all calls up to and including `until_ns`; to the last one when that is None."""
        heap = self._heap
        while heap and (until_ns is None or heap[0][0] <= until_ns):
            at_ns, _, call, arguments = heappop(heap)
            if call is not None:
                self.now_ns = at_ns
                self.events += 1
                call(*arguments)
        if until_ns is not None:
            self.now_ns = max(self.now_ns, until_ns)
