"""How two sets of rules differ on the same decisions."""

from outlay.counterfactual import Choice, compare_choices


def _choice(target: str | None, p: float = 0.9, action: str = "serve") -> Choice:
    return Choice(request="r", moment="voice", action=action, target=target, p_on_time=p)  # type: ignore[arg-type] - short


def test_changes_are_counted_by_what_became_of_them() -> None:
    found = compare_choices(
        [
            (_choice("a"), _choice("a")),
            (_choice("a"), _choice("b")),
            (_choice("a"), _choice("b")),
            (_choice("a"), _choice(None, 0.2, "refuse")),
        ]
    )
    assert (found.decisions, found.same) == (4, 1)
    assert found.changes == {"a -> b": 2, "a -> refuse": 1}
    assert len(found.examples) == 3


def test_what_is_not_served_claims_nothing() -> None:
    # Before: (0.8 + 0.6) / 2 = 0.7; now the second is refused, whatever its best chance was: 0.8 / 2 = 0.4.
    found = compare_choices([(_choice("a", 0.8), _choice("a", 0.8)), (_choice("a", 0.6), _choice(None, 0.5, "refuse"))])
    assert found.claimed_before == 0.7
    assert found.claimed_after == 0.4


def test_no_decisions_claim_nothing_at_all() -> None:
    found = compare_choices([])
    assert (found.decisions, found.claimed_before, found.claimed_after) == (0, None, None)
