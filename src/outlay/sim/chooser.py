"""What a simulated router sees, and what it must be able to do."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from outlay.signals import Signals
from outlay.work import Fleet, Mask, Request


@dataclass(slots=True)
class View:
    """What one router knows when it chooses: nothing of it is the truth of the world, all of it was learned.

    `rtt_ns[path]` holds the smoothed round trip to each of the fleet's sites, by its own measurements (RFC 6298's
    gain of 1/8), NaN where none was made yet; `rtt_last_ns` the newest one. `usable` is False where a breaker is open.
    """

    fleet: Fleet
    signals: Signals
    rtt_ns: dict[str, "np.typing.NDArray[np.float64]"]
    rtt_last_ns: dict[str, "np.typing.NDArray[np.float64]"]
    usable: Mask
    random: Callable[[], float]
    now_ns: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What the router saw of an attempt that answered: times from sending it, as the router's own clock has them.

    `first_ns` to the first output token, `useful_ns` to the last useful one, both with the way to the server and back;
    `rtt_ns` is what its own measurements say of that way. `last_ns` to the end of the answer.
    """

    target: int
    request: Request
    first_ns: int
    useful_ns: int
    rtt_ns: float
    output_tokens: int
    at_ns: int


class Chooser(Protocol):
    """A routing policy that names one target for each request, and is told what came of it."""

    def choose(self, request: Request, allowed: Mask, view: View) -> int | None:
        """A target out of those `allowed` (at least one; those that serve the variant asked for), or None: refuse."""

    def answered(self, answer: Answer, view: View) -> None:
        """The first useful output came."""

    def failed(self, target: int, request: Request, view: View) -> None:
        """An attempt failed."""
