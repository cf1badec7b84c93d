"""Standings and counterfactuals as text, JSON and a page."""

import io
import json

from rich.console import Console

from outlay.contest import rank, standings
from outlay.counterfactual import Choice, compare_choices
from outlay.render import contest, counterfactual
from outlay.render.contest_html import to_html
from outlay.trial import Result, Run

MS = 1_000_000


def runs() -> list[Run]:
    """Two policies, two seeds, fifty interactions each, of which one policy has all and the other half on time."""

    def result(number: int, *, good: bool, promised: bool) -> Result:
        return Result(
            id=str(number), moment="voice-turn", path="uk/5g", at_ns=number * 1000 * MS, limit_ns=100 * MS,
            outcome="ok" if good else "refused", total_ns=50 * MS if good else None, target="t", site="s", variant="v",
            quality=1.0, rung=0, p_on_time=0.97 if promised else None, attempts=1,
        )  # fmt: skip

    return [
        Run(
            world="w",
            policy=policy,
            seed=seed,
            alarms={"stale": 3} if policy == "outlay" else {},
            results=tuple(
                result(number, good=policy == "outlay" or number % 2 == 0, promised=policy == "outlay")
                for number in range(50 + seed)
            ),
        )
        for policy in ("outlay", "nearest")
        for seed in (1, 2)
    ]


def text(width: int = 80) -> str:
    found = standings(runs(), {})
    out = io.StringIO()
    contest.draw(Console(file=out, width=width), "small", "two policies", found, rank(found))
    return out.getvalue()


def test_a_contest_fits_eighty_columns_and_says_who_is_best() -> None:
    drawn = text()
    assert max(map(len, drawn.splitlines())) <= 80
    assert "Most are on time under outlay: 100 %, more than under any other." in " ".join(drawn.split())
    assert "never" in drawn, "half of nearest's interactions never come"
    assert "stale 3" not in drawn
    assert "stale 6" in drawn


def test_the_document_leaves_out_what_is_unknown_and_what_never_comes() -> None:
    found = standings(runs(), {})
    document = json.loads(contest.document("small", found, rank(found)))
    own, other = document["policies"]
    assert (document["outlay"], document["ranking"]["best"], document["ranking"]["tied"]) == (
        "contest/1", "outlay", ["outlay"],
    )  # fmt: skip
    assert "regret" not in own
    assert "reliability" not in other
    assert own["reliability"]["deciles"][0]["kept"] == 1.0
    assert "p99" not in other["moments"][0]["all_ns"]
    assert other["moments"][0]["served_ns"]["p99"] == 50 * MS


def test_the_page_holds_all_of_it_and_asks_for_nothing() -> None:
    found = standings(runs(), {})
    page = to_html("small", "<b>about</b>", found, rank(found))
    assert "&lt;b&gt;about&lt;/b&gt;" in page
    assert "<script" not in page
    assert page.count("<figure>") == 1, "one of the two makes promises"
    assert page.count('class="share') == 2
    assert "nan" not in page.lower().replace("nant", "")


def choice(target: str | None, p: float) -> Choice:
    return Choice(request="r1", moment="voice", action="serve" if target else "refuse", target=target, p_on_time=p)


def test_a_counterfactual_is_told_with_its_changes_and_examples() -> None:
    found = compare_choices([(choice("a", 0.9), choice("b", 0.8)), (choice("a", 0.9), choice(None, 0.1))])
    said = counterfactual.text(found, "overload")
    assert "2 decisions made again by the rules of overload: 0 are the same." in said
    assert "90.0 % before, 40.0 % now" in said
    assert "a -> refuse" in said
    assert "r1: a (90.0 %), now b (80.0 %)" in said
    document = json.loads(counterfactual.document(found, None))
    assert "rules" not in document
    assert document["examples"][1]["after"] == {"action": "refuse", "p_on_time": 0.1}


def test_an_empty_log_says_so() -> None:
    assert counterfactual.text(compare_choices([]), None) == "The log holds no decisions."
