"""The true world while it runs: servers at work, ways to them, and faults that begin and end."""

from collections.abc import Callable
from random import Random

from outlay.sim.case import Case, Try
from outlay.sim.kernel import Kernel
from outlay.sim.network import Network, faults_at
from outlay.sim.server import Job, Server
from outlay.units import NS_PER_MS
from outlay.work import Fleet
from outlay.world import Fault, World

# What a router may hear of an attempt.
Heard = Callable[[Try, str], None]

# A role-only chunk or a keep-alive comment leaves the server this soon; so does the part before a cut.
_EARLY_NS = 50 * NS_PER_MS


class Field:
    """Everything that is true and that no router sees directly."""

    def __init__(self, world: World, seed: int) -> None:
        self.world = world
        self.kernel = Kernel()
        self.fleet = Fleet(world.targets)
        self.network = Network(world)
        self.cases: dict[str, Case] = {}
        self.random = Random(f"{seed}/field")
        self.servers = [
            Server(
                self.kernel,
                target,
                random=Random(f"{seed}/{target.name}"),
                jitter=world.service_jitter,
                slow_start_ns=world.slow_start_ns,
            )
            for target in world.targets
        ]
        self._faults = [faults_at(world, target.name, target.site) for target in world.targets]
        for place, faults in enumerate(self._faults):
            for fault in faults:
                if fault.kind in ("down", "slow"):
                    self.kernel.at(fault.from_ns, self._begin, place, fault)
                    self.kernel.at(fault.to_ns, self._end, place, fault)

    def _begin(self, place: int, fault: Fault) -> None:
        server = self.servers[place]
        if fault.kind == "slow":
            server.slow *= fault.factor
        else:
            server.is_down = True
            server.fail()

    def _end(self, place: int, fault: Fault) -> None:
        server = self.servers[place]
        if fault.kind == "slow":
            server.slow /= fault.factor
        else:
            # Another outage may have begun meanwhile.
            server.is_down = self.fault(place, "down") is not None

    def fault(self, place: int, kind: str) -> Fault | None:
        """The fault of this kind that a target has now; None without one."""
        now_ns = self.kernel.now_ns
        faults = self._faults[place]
        return next((each for each in faults if each.kind == kind and each.from_ns <= now_ns < each.to_ns), None)

    def start(self, case: Case, target: int, output_tokens: int, useful_tokens: int, heard: Heard) -> Try | None:
        """Send an attempt; `heard` is called with what the router hears of it. None where there is no way."""
        ask, now_ns = case.ask, self.kernel.now_ns
        site = self.fleet.targets[target].site
        floor_ns = self.network.floor_ns(ask.users, site, now_ns)
        if floor_ns is None:
            return None
        up_ns = int(floor_ns / 2 * ask.up)
        payload_ns = self.network.payload_ns(ask, site, now_ns)
        output = max(output_tokens, 1)
        job = Job(ask.input_tokens, output, min(max(useful_tokens, 1), output), lambda job, what: None)
        attempt = Try(
            f"{ask.id}/{len(case.tries)}", case, target, job, sent_ns=now_ns, up_ns=up_ns, payload_ns=payload_ns
        )
        case.tries.append(attempt)
        job.told = lambda _, what: self._told(attempt, what, heard)
        self.kernel.after(up_ns + payload_ns, self._arrive, attempt, heard)
        return attempt

    def stop(self, attempt: Try) -> None:
        """Nobody waits for it any more; the server learns of it half a round trip later."""
        attempt.over = True
        Kernel.cancel(attempt.timer)
        self.kernel.after(attempt.up_ns, self.servers[attempt.target].cancel, attempt.job)

    def _arrive(self, attempt: Try, heard: Heard) -> None:
        if attempt.over or self.fault(attempt.target, "silent"):
            return
        wrong = self.fault(attempt.target, "client-errors")
        if wrong is not None and self.random.random() < wrong.share:
            self._hear(attempt, "client-error", heard)
            return
        if self.fault(attempt.target, "role-chunk"):
            self.kernel.after(_EARLY_NS, self._hear, attempt, "chunk", heard)
        server = self.servers[attempt.target]
        attempt.case.queue_depth = len(server.waiting)
        server.submit(attempt.job)

    def _told(self, attempt: Try, what: str, heard: Heard) -> None:
        """The server did something: the router hears of it after the way back."""
        if attempt.over:
            return
        if what == "first" and self.fault(attempt.target, "malformed"):
            self.servers[attempt.target].cancel(attempt.job)
            self._hear(attempt, "failed", heard)
            return
        if what == "first" and self.fault(attempt.target, "cut"):
            self.kernel.after(_EARLY_NS, self._cut, attempt, heard)
        self._hear(attempt, what, heard)

    def _cut(self, attempt: Try, heard: Heard) -> None:
        if not attempt.job.gone:
            self.servers[attempt.target].cancel(attempt.job)
            self._hear(attempt, "failed", heard)

    def _hear(self, attempt: Try, what: str, heard: Heard) -> None:
        self.kernel.after(self.down_ns(attempt), _unless_over, attempt, what, heard)

    def down_ns(self, attempt: Try) -> int:
        """The way back from the server to the router."""
        ask = attempt.case.ask
        site = self.fleet.targets[attempt.target].site
        return int((self.network.floor_ns(ask.users, site, self.kernel.now_ns) or 0.0) / 2 * ask.down)


def _unless_over(attempt: Try, what: str, heard: Heard) -> None:
    if not attempt.over:
        heard(attempt, what)
