"""What other rules would have decided, for people and for programs."""

import json

from outlay.counterfactual import Choice, Counterfactual
from outlay.render.words import percent

VERSION = "counterfactual/1"
_MOST_CHANGES = 12


def text(found: Counterfactual, rules: str | None) -> str:
    """A few lines at 80 columns. `rules` names the other rules; None for the log's own."""
    if not found.decisions:
        return "The log holds no decisions."
    by = "the log's own rules" if rules is None else f"the rules of {rules}"
    lines = [f"{found.decisions:,} decisions made again by {by}: {found.same:,} are the same."]
    if found.claimed_before is not None and found.claimed_after is not None:
        before, after = percent(found.claimed_before), percent(found.claimed_after)
        lines.append(f"Expected on time, as far as the forecasts are right: {before} before, {after} now.")
    if found.changes:
        lines += ["", "What changed"]
        width = max(len(change) for change in list(found.changes)[:_MOST_CHANGES])
        lines += [f"  {change:{width}}  {count:>6,}" for change, count in list(found.changes.items())[:_MOST_CHANGES]]
        if len(found.changes) > _MOST_CHANGES:
            lines.append(f"  and {len(found.changes) - _MOST_CHANGES} other changes")
        lines += ["", "For example"]
        lines += [f"  {before.request}: {_said(before)}, now {_said(after)}" for before, after in found.examples]
    return "\n".join(lines)


def _said(choice: Choice) -> str:
    return f"{choice.target or choice.action} ({percent(choice.p_on_time)})"


def document(found: Counterfactual, rules: str | None) -> bytes:
    """`counterfactual/1`; what is unknown is absent."""
    content: dict[str, object] = {"outlay": VERSION, "decisions": found.decisions, "same": found.same}
    if rules is not None:
        content["rules"] = rules
    if found.claimed_before is not None:
        content |= {"claimed_before": found.claimed_before, "claimed_after": found.claimed_after}
    content["changes"] = [{"change": change, "count": count} for change, count in found.changes.items()]
    content["examples"] = [
        {"request": before.request, "moment": before.moment, "before": _choice(before), "after": _choice(after)}
        for before, after in found.examples
    ]
    return json.dumps(content, indent=2).encode()


def _choice(choice: Choice) -> dict[str, object]:
    target = {} if choice.target is None else {"target": choice.target}
    return {"action": choice.action, **target, "p_on_time": choice.p_on_time}
