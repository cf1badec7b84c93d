"""What other rules would have decided, of the same requests, from the same forecasts."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from outlay.decision import Action, Decision

_MOST_EXAMPLES = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What was done with one request: `target` by name, None unless it was served; how likely on time it was called."""

    request: str
    moment: str
    action: Action
    target: str | None
    p_on_time: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Counterfactual:
    """How two sets of rules differ on the same decisions.

    `changes` counts by what became of it, such as `large-lon -> small-lon` or `serve -> refuse`. `claimed_before` and
    `claimed_after` are the mean probabilities of being on time that each claims for what it serves, and nothing for
    what it does not: the expected on-time share, as far as the forecasts are right. None without decisions.
    """

    decisions: int
    same: int
    changes: Mapping[str, int]
    claimed_before: float | None
    claimed_after: float | None
    examples: tuple[tuple[Choice, Choice], ...]


def choice_of(decision: Decision, moment: str) -> Choice:
    """A decision as a choice."""
    fleet = decision.forecasts.fleet
    return Choice(
        request=decision.request,
        moment=moment,
        action=decision.action,
        target=None if decision.target is None else fleet.targets[decision.target].name,
        p_on_time=decision.p_on_time,
    )


def compare_choices(pairs: Iterable[tuple[Choice, Choice]]) -> Counterfactual:
    """What was chosen before, and what is chosen now, of each request."""
    changes: Counter[str] = Counter()
    examples: list[tuple[Choice, Choice]] = []
    count, before_sum, after_sum = 0, 0.0, 0.0
    for before, after in pairs:
        count += 1
        before_sum += _claimed(before)
        after_sum += _claimed(after)
        if (before.action, before.target) != (after.action, after.target):
            changes[f"{before.target or before.action} -> {after.target or after.action}"] += 1
            if len(examples) < _MOST_EXAMPLES:
                examples.append((before, after))
    return Counterfactual(
        decisions=count,
        same=count - changes.total(),
        changes=dict(changes.most_common()),
        claimed_before=before_sum / count if count else None,
        claimed_after=after_sum / count if count else None,
        examples=tuple(examples),
    )


def _claimed(choice: Choice) -> float:
    return choice.p_on_time if choice.target is not None else 0.0
