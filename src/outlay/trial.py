"""What came of every interaction of a run, and what a policy is worth over several."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from outlay.interaction import Interaction, Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One interaction of a simulated run, counted from the user's event.

    `total_ns` is None unless the outcome is `ok`; the percept of a deferred one, if any, does not count. `p_on_time`
    is what the router claimed when it decided first; None where it claims nothing, or served nothing. `attempts`
    counts every one that was sent, hedges included. `best_possible` says whether an oracle that knows the true state
    of every server and path when the request came could have had it on time; None when no oracle was asked.
    """

    id: str
    moment: str
    path: str
    at_ns: int
    limit_ns: int
    outcome: Outcome
    total_ns: int | None
    target: str | None
    site: str | None
    variant: str | None
    quality: float
    rung: int
    p_on_time: float | None
    attempts: int
    deferred: bool = False
    shortened: bool = False
    explored: bool = False
    best_possible: bool | None = None

    @property
    def on_time(self) -> bool:
        """Perceived within the budget's limit."""
        return self.total_ns is not None and self.total_ns <= self.limit_ns


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One policy in one world with one seed. `results` are of the interactions that count, in order of arrival.

    `spent_s` is how long each target worked, by name; `alarms` what the router complained of, with how often.
    `interactions` are the same ones as accounts can be made of; empty unless they were asked for.
    """

    world: str
    policy: str
    seed: int
    results: tuple[Result, ...]
    spent_s: Mapping[str, float] = field(default_factory=dict)
    alarms: Mapping[str, int] = field(default_factory=dict)
    interactions: tuple[Interaction, ...] = ()
    events: int = 0
