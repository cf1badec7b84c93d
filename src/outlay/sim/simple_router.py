"""A shell in which any simple routing policy can stand in a simulated world.

It sees what Outlay's router sees: its own attempts, reports that are late, round trips that it measures.
"""

from random import Random

import numpy as np

from outlay.health import Health
from outlay.signals import Signals
from outlay.sim.case import Case, Close, Try
from outlay.sim.chooser import Answer, Chooser, View
from outlay.sim.field import Field


class SimpleRouter:
    """Names a target by some policy; tries one other when an attempt fails, as gateways do. It has no deadlines."""

    def __init__(self, field: Field, chooser: Chooser, close: Close, random: Random) -> None:
        fleet = field.fleet
        self._field, self._chooser, self._close = field, chooser, close
        self.signals = Signals(fleet)
        self.health = Health(fleet)
        self._view = View(
            fleet=fleet,
            signals=self.signals,
            rtt_ns={},
            rtt_last_ns={},
            usable=np.ones(len(fleet.targets), dtype=np.bool_),
            random=random.random,
        )

    def _look(self) -> View:
        self._view.now_ns = self._field.kernel.now_ns
        self._view.usable = self.health.usable(self._view.now_ns)
        return self._view

    def measured(self, path: str, site: str, rtt_ns: float) -> None:
        """Smoothed by RFC 6298."""
        place = self._view.fleet.sites.index(site)
        unknown = np.full(len(self._view.fleet.sites), np.nan)
        smooth = self._view.rtt_ns.setdefault(path, unknown.copy())
        last = self._view.rtt_last_ns.setdefault(path, unknown)
        smooth[place] = rtt_ns if np.isnan(smooth[place]) else smooth[place] + (rtt_ns - smooth[place]) / 8
        last[place] = rtt_ns

    def reported(self, target: int, quantities: dict[str, float], at_ns: int) -> None:
        """A scraped report."""
        self.signals.reported(target, quantities, at_ns, "scrape")

    def perceived(self, case: Case, network_ns: float) -> None:
        """Simple policies do not listen to clients."""

    def known(self, case: Case, on_time: bool) -> None:
        """Nor do they promise anything."""

    def arrive(self, case: Case) -> None:
        """A request comes in."""
        self._choose(case, without=None)

    def _choose(self, case: Case, without: int | None) -> None:
        fleet, view = self._field.fleet, self._look()
        asked = case.ask.traffic.variant
        best = fleet.quality >= fleet.quality.max() if asked is None else fleet.of((asked,))
        allowed = best & view.usable
        if without is not None:
            allowed = allowed.copy()
            allowed[without] = False
        if not allowed.any():
            allowed = best
        target = self._chooser.choose(case.request, allowed, view)
        if target is None:
            self._close(case, "refused", None)
            return
        useful = case.ask.traffic.useful_tokens
        output = case.ask.output_tokens
        attempt = self._field.start(case, target, output, output if useful is None else useful, self._heard)
        if attempt is None:
            self._close(case, "error", None)
            return
        self.signals.sent(attempt.id, target, case.request.input_tokens, case.request.output_tokens, self._view.now_ns)
        self.health.took(target, self._view.now_ns)

    def _heard(self, attempt: Try, what: str) -> None:
        view, target, case = self._look(), attempt.target, attempt.case
        if what in ("chunk", "first"):
            attempt.heard_first_ns = attempt.heard_first_ns or view.now_ns
            self.signals.answering(attempt.id, view.now_ns)
        elif what == "useful":
            self.health.answered(target, view.now_ns, None)
            self._chooser.answered(self._answer(attempt), view)
            self._close(case, "ok", attempt)
        elif what == "end":
            attempt.over = True
            self.signals.ended(attempt.id, view.now_ns)
        else:
            self._failed(attempt, what, view)

    def _failed(self, attempt: Try, what: str, view: View) -> None:
        self._field.stop(attempt)
        self.signals.ended(attempt.id, view.now_ns)
        if what == "failed":
            self.health.failed(attempt.target, view.now_ns)
            self._chooser.failed(attempt.target, attempt.case.request, view)
            if len(attempt.case.tries) < 2 and attempt.heard_first_ns is None:
                self._choose(attempt.case, without=attempt.target)
                return
        self._close(attempt.case, "error", None)

    def _answer(self, attempt: Try) -> Answer:
        now_ns, rtts = self._view.now_ns, self._view.rtt_ns.get(attempt.case.request.path)
        place = int(self._view.fleet.site_of[attempt.target])
        return Answer(
            target=attempt.target,
            request=attempt.case.request,
            first_ns=(attempt.heard_first_ns or now_ns) - attempt.sent_ns,
            useful_ns=now_ns - attempt.sent_ns,
            rtt_ns=float("nan") if rtts is None else float(rtts[place]),
            output_tokens=attempt.job.output,
            at_ns=now_ns,
        )

    def gone(self, case: Case) -> None:
        """The client left: its attempts are cancelled."""
        for attempt in case.tries:
            if not attempt.over:
                self._field.stop(attempt)
                self.signals.ended(attempt.id, self._field.kernel.now_ns)
