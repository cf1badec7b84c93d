"""A decision stands for alike requests until time, work, another budget or something learned ends it."""

from hypothesis import given
from hypothesis import strategies as st

from outlay.decision import Decision, decide
from outlay.forecaster import Forecaster
from outlay.held import HELD_NS, Held, kind_of
from outlay.policy import Policy, Rules
from outlay.signals import Signals
from outlay.units import NS_PER_MS
from outlay.work import Fleet, Request, Service, Target

RULES = Rules(explore=0.0)
REMAINING_NS = 500 * NS_PER_MS


def request(**changed: int) -> Request:
    values = {"input_tokens": 100, "output_tokens": 1} | changed
    return Request(id="r", moment="m", path="p", **values)


def decided(overhead_ns: int, remaining_ns: int = REMAINING_NS) -> Decision:
    service = Service(prefill_tokens_per_s=1e6, step_ns=1000, overhead_ns=overhead_ns)
    fleet = Fleet([Target(name="a", site="s", variant="v", service=service)])
    forecaster = Forecaster(Signals(fleet), prior_rtt_ns={("p", "s"): NS_PER_MS})
    view = forecaster.forecasts(request(), 0, fleet.at("s"))
    return decide(request(), remaining_ns, Policy(default=RULES), view, 0, lambda: 0.5)


def test_it_stands_for_as_much_work_as_a_tie_and_no_longer_than_its_time() -> None:
    held, kind, decision = Held(), kind_of(request(), "auto"), decided(400_000)
    held.keep(kind, decision, RULES, 0)
    cost_ns = float(decision.forecasts.service_ns[0])
    most = int(RULES.tie_ns // cost_ns)
    found = [held.find(kind, REMAINING_NS, 1) for _ in range(most + 1)]
    assert found == [decision] * most + [None]
    held.keep(kind, decision, RULES, 0)
    assert held.find(kind, REMAINING_NS, HELD_NS - 1) is decision
    assert held.find(kind, REMAINING_NS, HELD_NS) is None


def test_another_budget_and_anything_learned_end_it() -> None:
    held, kind, decision = Held(), kind_of(request(), "auto"), decided(10_000)
    held.keep(kind, decision, RULES, 0)
    assert held.find(kind, REMAINING_NS * 98 // 100, 1) is None
    assert held.find(kind, REMAINING_NS, 1) is decision
    held.changed()
    assert held.find(kind, REMAINING_NS, 1) is None


def test_only_a_sure_choice_of_little_work_stands() -> None:
    held, kind = Held(), kind_of(request(), "auto")
    for decision in (decided(50 * NS_PER_MS), decided(10_000, remaining_ns=0), decided(10_000, remaining_ns=1_100_000)):
        held.keep(kind, decision, RULES, 0)
        assert held.find(kind, decision.remaining_ns, 1) is None


@given(st.integers(1, 10**6), st.integers(1, 10**6))
def test_sizes_are_alike_within_an_eighth_of_an_octave(one: int, other: int) -> None:
    if kind_of(request(input_tokens=one), "m") == kind_of(request(input_tokens=other), "m"):
        assert max(one, other) < min(one, other) * 1.126
    else:
        assert one != other
