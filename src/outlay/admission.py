"""Who may go on, and in which order: retries by their site's allowance, waiting work by how little time it can lose.

Pure state machines: time is given by the caller, and nothing in them is random.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import Generic, TypeVar

Item = TypeVar("Item")


class RetryThrottle:
    """gRPC's retry throttling (proposal A6): full at first, a failure takes a token, a success gives a tenth.

    Retries and hedges are allowed while more than half is left. Raises ValueError for tokens outside 1 to 1000 or a
    ratio that is not above 0.
    """

    __slots__ = ("_most", "_ratio", "tokens")

    def __init__(self, most: float = 10.0, ratio: float = 0.1) -> None:
        if not (1 <= most <= 1000 and ratio > 0):
            raise ValueError("a throttle has 1 to 1000 tokens and a ratio above 0")
        self._most, self._ratio = most, ratio
        self.tokens = most

    def failed(self) -> None:
        """An attempt failed or was given up."""
        self.tokens = max(self.tokens - 1.0, 0.0)

    def succeeded(self) -> None:
        """An attempt was answered."""
        self.tokens = min(self.tokens + self._ratio, self._most)

    @property
    def allows(self) -> bool:
        """Whether one more attempt may be spent."""
        return self.tokens > self._most / 2


class Throttles:
    """A throttle for each site, so that a dead site cannot use up another's allowance."""

    def __init__(self, sites: Iterable[str]) -> None:
        self._of = {site: RetryThrottle() for site in sites}

    def failed(self, site: str) -> None:
        """An attempt at the site failed or was given up."""
        self._of[site].failed()

    def succeeded(self, site: str) -> None:
        """An attempt at the site was answered."""
        self._of[site].succeeded()

    def allows(self, site: str) -> bool:
        """Whether an attempt that the site lost may be made again elsewhere."""
        return self._of[site].allows


class GradientLimit:
    """How many requests a target may hold at once, by whether it slows down: Netflix's Gradient2.

    It is fed with observed over predicted service time, so that a long prompt is no congestion. Constants: long-term
    average over 600 samples after 10 of warm-up, tolerance 1.5, smoothing 0.2, 4 to grow by; the limit stays between
    `least` and `most`, and does not move while less than half of it is in use.
    """

    __slots__ = ("_count", "_least", "_limit", "_long", "_most")

    def __init__(self, *, first: float = 20.0, least: float = 4.0, most: float = 1000.0) -> None:
        if not 1 <= least <= first <= most:
            raise ValueError("a limit begins between its least, at least 1, and its most")
        self._limit, self._least, self._most = first, least, most
        self._long, self._count = 0.0, 0

    @property
    def limit(self) -> int:
        """The most requests at once, now."""
        return int(self._limit)

    def answered(self, ratio: float, in_flight: int) -> None:
        """One answer: how long it took over what was predicted, and how many were under way when it came.

        Raises ValueError for a ratio that is not above 0 and finite.
        """
        if not 0 < ratio < math.inf:
            raise ValueError(f"a ratio is above 0 and finite, not {ratio!r}")
        self._count += 1
        share = 1.0 / self._count if self._count <= _WARM_UP else 2.0 / (_WINDOW + 1)
        self._long += share * (ratio - self._long)
        if self._long / ratio > 2.0:
            # The long-term average has stayed behind after a bad spell.
            self._long *= 0.95
        if in_flight < self._limit / 2:
            return
        gradient = min(max(_TOLERANCE * self._long / ratio, 0.5), 1.0)
        wanted = self._limit * gradient + _GROWTH
        self._limit = min(max(0.8 * self._limit + 0.2 * wanted, self._least), self._most)


_WARM_UP, _WINDOW, _TOLERANCE, _GROWTH = 10, 600, 1.5, 4.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting(Generic[Item]):
    """One request that waits for a slot. `deadline_ns` is when its result must be there, `service_ns` how long it will
    be served, both as expected when it was put in; `tokens` is its work.
    """

    id: str
    item: Item
    deadline_ns: int
    service_ns: int
    tokens: int = 0
    sheddable: bool = False

    @property
    def latest_ns(self) -> int:
        """The latest instant at which it can begin: its deadline less its service."""
        return self.deadline_ns - self.service_ns


class SlackQueue(Generic[Item]):
    """Waiting requests, the one that can wait least first; what cannot be on time any more is dropped when it is met.

    Order by deadline less expected service (AIBrix's rank); the test on taking out is Clockwork's: earliest deadline
    first alone serves the hopeless under overload. A request without a deadline of its own must be given its arrival
    plus its class's default, never infinity, or it would starve. What was put in is taken out, dropped, cancelled or
    inside. Raises ValueError for a size below 1.
    """

    def __init__(self, size: int = 1024) -> None:
        if size < 1:
            raise ValueError("a queue holds at least one")
        self._size = size
        self._heap: list[tuple[int, int, Waiting[Item]]] = []
        self._inside: dict[str, Waiting[Item]] = {}
        self._order = 0
        self.tokens = 0

    def __len__(self) -> int:
        return len(self._inside)

    def push(self, waiting: Waiting[Item]) -> "Waiting[Item] | None":
        """Put one in. When the queue is full, one is turned away and returned: of those that may be shed, else of all,
        the one with the most slack, which may be the new one. Raises ValueError for an id that is inside.
        """
        if waiting.id in self._inside:
            raise ValueError(f"{waiting.id!r} is waiting already")
        self._inside[waiting.id] = waiting
        self._order += 1
        heappush(self._heap, (waiting.latest_ns, self._order, waiting))
        self.tokens += waiting.tokens
        if len(self._inside) <= self._size:
            return None
        turned_away = max(self._inside.values(), key=lambda each: (each.sheddable, each.latest_ns))
        self.cancel(turned_away.id)
        return turned_away

    def pop(self, now_ns: int) -> "tuple[Waiting[Item] | None, tuple[Waiting[Item], ...]]":
        """The one that can wait least, and those before it that were dropped because they would be late."""
        dropped: list[Waiting[Item]] = []
        while self._heap:
            _, _, waiting = heappop(self._heap)
            if self._inside.get(waiting.id) is not waiting:
                continue  # cancelled
            self._leave(waiting)
            if now_ns <= waiting.latest_ns:
                return waiting, tuple(dropped)
            dropped.append(waiting)
        return None, tuple(dropped)

    def cancel(self, id: str) -> bool:  # noqa: A002 - the name of the field
        """Whoever asked has gone. False when it is not inside."""
        waiting = self._inside.get(id)
        if waiting is None:
            return False
        self._leave(waiting)
        # Cancelled entries stay in the heap until they are met; never more of them than of the others.
        if len(self._heap) > 2 * len(self._inside) + 16:
            self._heap = [entry for entry in self._heap if self._inside.get(entry[2].id) is entry[2]]
            heapify(self._heap)
        return True

    def _leave(self, waiting: Waiting[Item]) -> None:
        del self._inside[waiting.id]
        self.tokens -= waiting.tokens
