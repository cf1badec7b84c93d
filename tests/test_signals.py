"""Live signals: own work is conserved, others' work is what a report holds beyond it, missing is not zero."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outlay.signals import WAITING_HALF_NS, Signals
from outlay.units import NS_PER_MS, NS_PER_S
from outlay.work import Fleet, Service, Target

MS, S = NS_PER_MS, NS_PER_S
FLEET = Fleet(
    Target(name=name, site="lon", variant="large", service=Service(prefill_tokens_per_s=1e4, step_ns=MS))
    for name in ("a", "b")
)

actions = st.lists(
    st.tuples(st.sampled_from(["sent", "answering", "ended"]), st.integers(0, 6), st.integers(0, 1)), max_size=60
)


@settings(max_examples=100, deadline=None)
@given(actions)
def test_own_work_is_conserved_under_any_order_of_events(events: list[tuple[str, int, int]]) -> None:
    signals = Signals(FLEET)
    open_: set[str] = set()
    for now_ns, (what, number, target) in enumerate(events):
        name = f"attempt-{number}"
        if what == "sent" and name not in open_:
            signals.sent(name, target, 100.0 + number, 10.0, now_ns)
            open_.add(name)
        elif what == "answering":
            signals.answering(name, now_ns)
        elif what == "ended":
            assert signals.ended(name, now_ns) == (name in open_)
            open_.discard(name)
        counted = np.array([signals.own_waiting, signals.own_answering, signals.own_prefill, signals.own_decode])
        assert (counted >= 0).all()
        assert signals.under_way() == len(open_) == int(counted[:2].sum())
    for name in list(open_):
        signals.ended(name, 1000)
    left = [signals.own_waiting, signals.own_answering, signals.own_prefill, signals.own_decode]
    assert [each.tolist() for each in left] == [[0.0, 0.0]] * 4


def test_an_attempt_under_way_cannot_be_sent_again() -> None:
    signals = Signals(FLEET)
    signals.sent("x", 0, 1.0, 1.0, 0)
    with pytest.raises(ValueError, match="already under way"):
        signals.sent("x", 1, 1.0, 1.0, 0)


def test_a_report_holds_others_work_beyond_our_own_at_its_instant() -> None:
    signals = Signals(FLEET)
    for number in range(3):
        signals.sent(f"x{number}", 0, 100.0, 10.0, 1 * S)
    signals.ended("x0", 2 * S)
    # Five waiting at 1.5 s, three of them ours then, though only two are now.
    signals.reported(0, {"waiting": 5, "running": 4, "cache": 0.5}, 3 * S // 2, "scrape")
    assert (signals.others_waiting[0], signals.others_running[0]) == (2.0, 4.0)


def test_an_older_report_is_ignored() -> None:
    signals = Signals(FLEET)
    signals.reported(0, {"waiting": 5, "running": 0, "cache": 0}, 2 * S, "probe")
    signals.reported(0, {"waiting": 9, "running": 0, "cache": 0}, 1 * S, "scrape")
    assert signals.others_waiting[0] == 5


def test_missing_is_not_zero_and_raises_an_alarm() -> None:
    signals = Signals(FLEET)
    assert np.isnan(signals.others_waiting).all()
    assert "waiting" not in signals.of(0, 0)
    signals.reported(0, {"waiting": 5, "running": 1, "cache": 0.1}, 0, "scrape")
    signals.reported(0, {"running": 1, "cache": 0.1}, S, "scrape")
    assert np.isnan(signals.others_waiting[0])
    assert [(alarm.kind, alarm.target) for alarm in signals.alarms(S)] == [("missing", "a")]
    assert "waiting" not in signals.of(0, S)


def test_reports_that_stop_raise_an_alarm_and_what_never_reported_does_not() -> None:
    signals = Signals(FLEET)
    signals.reported(0, {"waiting": 0, "running": 0, "cache": 0}, 0, "scrape")
    assert list(signals.alarms(4 * S)) == []
    assert [(alarm.kind, alarm.target) for alarm in signals.alarms(6 * S)] == [("stale", "a")]


def test_what_a_report_says_beyond_the_usual_fades_with_its_age() -> None:
    signals = Signals(FLEET)
    for second in range(200):
        signals.reported(0, {"waiting": 2, "running": 4, "cache": 0}, second * S, "scrape")
    signals.reported(0, {"waiting": 12, "running": 4, "cache": 0}, 200 * S, "scrape")
    usual = signals.usual_waiting[0]
    # Of the ten or so beyond the usual half is left after one half life.
    half = signals.others(200 * S + WAITING_HALF_NS)[0][0]
    assert half == pytest.approx(usual + (12 - usual) / 2)
    assert signals.others(300 * S)[0][0] == pytest.approx(usual, abs=1e-3)


def test_own_work_has_no_age_and_a_report_grows_uncertain() -> None:
    signals = Signals(FLEET)
    signals.sent("x", 0, 100.0, 10.0, 0)
    signals.reported(0, {"waiting": 5, "running": 1, "cache": 0.1}, 0, "scrape")
    early, late = signals.of(0, 50 * MS), signals.of(0, 5 * S)
    assert (early["own_waiting"].value, early["own_waiting"].age_ns, early["own_waiting"].source) == (1.0, 0, "own")
    assert late["waiting"].sigma > 5 * early["waiting"].sigma
    assert late["waiting"].age_ns == 5 * S


def test_pressure_is_the_share_of_those_that_waiting_would_have_made_late_and_fades() -> None:
    signals = Signals(FLEET)
    for number in range(2000):
        signals.decided(number % 4 == 0, number * MS)
    assert signals.pressure(2 * S) == pytest.approx(0.25, abs=0.06)
    assert signals.pressure(60 * S) < 0.001
