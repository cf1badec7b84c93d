"""One interaction on its way through a simulated world, and the attempts that serve it."""

from collections.abc import Callable
from dataclasses import dataclass, field

from outlay.forecast import Expectation
from outlay.interaction import Outcome
from outlay.sim.demand import Ask
from outlay.sim.kernel import Event
from outlay.sim.server import Job
from outlay.underway import Attempt as Tried
from outlay.work import Request


@dataclass(slots=True, eq=False)
class Try:
    """One attempt. `sent_ns` and `up_ns` are of the router and of the way there; `job` is at the server."""

    id: str
    case: "Case"
    target: int
    job: Job
    sent_ns: int
    up_ns: int
    payload_ns: int
    tried: Tried | None = None
    timer: Event | None = None
    heard_first_ns: int | None = None
    over: bool = False
    spent_s: float = 0.0


@dataclass(slots=True, eq=False)
class Case:
    """One interaction. `outcome` stays None until it is known what came of it."""

    ask: Ask
    request: Request
    seen_ns: int = 0
    heard_ns: int = 0
    queue_depth: int = 0
    tries: list[Try] = field(default_factory=list)
    winner: Try | None = None
    outcome: Outcome | None = None
    total_ns: int | None = None
    p_on_time: float | None = None
    p_plain: float = 1.0
    expected: Expectation | None = None
    rung: int = 0
    deferred: bool = False
    shortened: bool = False
    explored: bool = False
    patience: Event | None = None

    @property
    def remaining_base_ns(self) -> int:
        """What was left of the budget when the user's device sent the request."""
        return self.ask.traffic.budget.limit_ns - self.ask.traffic.client_ns

    def remaining_ns(self, now_ns: int) -> int:
        """What is left now, as a router counts it: from its own clock, and what the client said was spent."""
        return self.remaining_base_ns - (now_ns - self.seen_ns)


# What to call when it is known what came of a case: with its outcome, and the attempt that served it.
Close = Callable[[Case, str, Try | None], None]
