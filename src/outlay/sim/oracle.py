"""A router that knows the true state of every server and path at the instant it chooses, and no future."""

from collections.abc import Sequence

import numpy as np

from outlay.sim.chooser import Answer, View
from outlay.sim.field import Field
from outlay.work import Mask, Request

# Others will come while it is served: what is left of the limit for them before a better variant is worth it, and
# before anything is. Smaller shares have
# fewer on time in the shipped worlds, larger ones hardly more and worse answers.
_ROOM = 0.5
_LEAST = 0.35


class Oracle:
    """Of the candidates that would be on time with room to spare if nothing else came, the best variant; of those the
    quickest. With no such room anywhere, the quickest of all that would be on time.

    Refuses what none could have on time: what is late anyway should not make others late.
    """

    def __init__(self, field: Field) -> None:
        self._field = field

    def choose(self, request: Request, allowed: Mask, view: View) -> int | None:
        """A variant of any kind may be chosen, whatever is `allowed`: this is how well routing could do."""
        fleet = self._field.fleet
        ahead_ns = np.array(self._ahead_ns(request))
        case = self._field.cases[request.id]
        limit_ns = case.ask.traffic.budget.limit_ns
        left_ns = limit_ns - (view.now_ns - case.ask.at_ns) - ahead_ns
        roomy = left_ns >= _ROOM * limit_ns
        if roomy.any():
            ahead_ns = np.where(roomy & (fleet.quality >= fleet.quality[roomy].max()), ahead_ns, np.inf)
        elif not (left_ns >= _LEAST * limit_ns).any():
            return None
        return int(ahead_ns.argmin())

    def _ahead_ns(self, request: Request) -> Sequence[float]:
        field, case = self._field, self._field.cases[request.id]
        ask, now_ns = case.ask, self._field.kernel.now_ns
        output = ask.output_tokens
        useful = output if ask.traffic.useful_tokens is None else min(ask.traffic.useful_tokens, output)
        last_ns = field.network.last_mile_ns(ask.users, ask.place, now_ns) + ask.traffic.render_ns
        ahead: list[float] = []
        for place, (server, target) in enumerate(zip(field.servers, field.fleet.targets, strict=True)):
            floor_ns = field.network.floor_ns(ask.users, target.site, now_ns)
            broken = server.is_down or field.fault(place, "silent") or field.fault(place, "malformed")
            if floor_ns is None or broken:
                ahead.append(np.inf)
                continue
            ways_ns = floor_ns / 2 * (ask.up + ask.down) + field.network.payload_ns(ask, target.site, now_ns)
            ahead.append(ways_ns + server.would_take_ns(request.input_tokens, useful) + last_ns)
        return ahead

    def answered(self, answer: Answer, view: View) -> None:
        """It knew."""

    def failed(self, target: int, request: Request, view: View) -> None:
        """It does not learn."""
