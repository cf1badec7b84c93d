"""One run: a world, a policy and a seed, from the first user's event to the last percept."""

from collections import Counter
from collections.abc import Callable
from random import Random
from typing import cast

from outlay.interaction import Outcome
from outlay.sim.ablation import Ablation, whole
from outlay.sim.accounts import interaction
from outlay.sim.case import Case, Try
from outlay.sim.chooser import Chooser
from outlay.sim.demand import Ask, draw
from outlay.sim.field import Field
from outlay.sim.kernel import Kernel
from outlay.sim.outlay_router import Decided, OutlayRouter
from outlay.sim.simple_router import SimpleRouter
from outlay.trial import Result, Run
from outlay.work import Request
from outlay.world import Users, World

# After this many times the limit the person has left.
PATIENCE = 3

Router = OutlayRouter | SimpleRouter
# Makes the chooser of one router; None stands for Outlay's own.
Make = Callable[[Field], Chooser] | None


def run(
    world: World,
    policy: str,
    make: Make,
    seed: int,
    *,
    ablation: Ablation = whole,
    decided: Decided | None = None,
    accounts: bool = False,
) -> Run:
    """Run it, and say what came of every interaction after the warm-up. The same arguments give the same run."""
    return _Drive(world, policy, make, seed, ablation, decided, accounts).run()


class _Drive:
    def __init__(
        self,
        world: World,
        policy: str,
        make: Make,
        seed: int,
        ablation: Ablation,
        decided: Decided | None,
        accounts: bool,
    ) -> None:
        self._world, self._policy, self._seed, self._accounts = world, policy, seed, accounts
        self._field = Field(world, seed)
        self._kernel = self._field.kernel
        self._cases: list[Case] = []
        self._alarms: Counter[str] = Counter()
        self._random = Random(f"{seed}/drive")
        self._routers: list[Router] = [
            OutlayRouter(
                self._field, world.policy, self._close, seed=f"{seed}/{place}", ablation=ablation, decided=decided
            )
            if make is None
            else SimpleRouter(self._field, make(self._field), self._close, Random(f"{seed}/{place}"))
            for place in range(world.routers)
        ]
        self._users = [
            [users for at, users in enumerate(world.users) if at % world.routers == place]
            for place in range(world.routers)
        ]
        # What a router expects of an answer's length is what the moment's answers are like on average.
        self._expected = {
            traffic.moment: max(round(sum(traffic.output_tokens.values) / len(traffic.output_tokens.values)), 1)
            for traffic in world.traffic
        }

    def run(self) -> Run:
        asks = draw(self._world, self._seed)
        for ask in asks:
            self._kernel.at(ask.at_ns, self._event, ask)
        for router, users in zip(self._routers, self._users, strict=True):
            self._kernel.at(0, self._measure, router, users)
            for target in range(len(self._field.fleet.targets)):
                self._kernel.at(0, self._scrape, router, target)
        self._kernel.run(self._world.until_ns + self._longest_ns())
        return Run(
            world=self._world.name,
            policy=self._policy,
            seed=self._seed,
            results=tuple(_result(case, self._field) for case in self._counted()),
            spent_s={server.target.name: server.worked_ns / 1e9 for server in self._field.servers},
            alarms=dict(self._alarms),
            interactions=tuple(interaction(case, self._field) for case in self._counted()) if self._accounts else (),
            events=self._kernel.events,
        )

    def _longest_ns(self) -> int:
        return PATIENCE * max(traffic.budget.limit_ns for traffic in self._world.traffic)

    def _counted(self) -> list[Case]:
        return [case for case in self._cases if case.ask.at_ns >= self._world.warm_up_ns]

    # Signals

    def _measure(self, router: Router, users: list[Users]) -> None:
        now_ns, world, network = self._kernel.now_ns, self._world, self._field.network
        for group in users:
            for site in self._field.fleet.sites:
                floor_ns = network.floor_ns(group, site, now_ns)
                if floor_ns is not None:
                    place = int(self._random.random() * 2**31)
                    last_ns = 2 * network.last_mile_ns(group, place, now_ns)
                    jitter = self._random.lognormvariate(0.0, world.backbone_jitter)
                    router.measured(group.path, site, floor_ns * jitter + last_ns)
        if now_ns < world.until_ns:
            self._kernel.after(world.probe_ns, self._measure, router, users)

    def _scrape(self, router: Router, target: int) -> None:
        """What the server says of itself now arrives after the reports' delay."""
        field, now_ns = self._field, self._kernel.now_ns
        if not field.fault(target, "no-reports") and not field.servers[target].is_down:
            server = field.servers[target]
            said = {"waiting": float(len(server.waiting)), "running": float(len(server.running))}
            said["cache"] = server.cache
            if field.fault(target, "renamed-gauge"):
                del said["waiting"]
            self._kernel.after(self._world.reports.delay_ns, router.reported, target, said, now_ns)
        if now_ns < self._world.until_ns:
            self._kernel.after(self._world.reports.every_ns, self._scrape, router, target)
            if target == 0 and isinstance(router, OutlayRouter):
                self._alarms.update(alarm.kind for alarm in router.forecaster.alarms(now_ns))

    # Interactions

    def _event(self, ask: Ask) -> None:
        useful = ask.traffic.useful_tokens
        expected = self._expected[ask.traffic.moment]
        request = Request(
            id=ask.id,
            moment=ask.traffic.moment,
            path=ask.users.path,
            input_tokens=ask.input_tokens,
            output_tokens=expected,
            useful_tokens=expected if useful is None else min(useful, expected),
            payload_bytes=ask.traffic.payload_bytes,
            local=ask.users.local,
        )
        case = Case(ask, request)
        self._cases.append(case)
        self._field.cases[ask.id] = case
        way_ns = self._field.network.last_mile_ns(ask.users, ask.place, ask.at_ns)
        self._kernel.after(ask.traffic.client_ns + int(way_ns), self._arrive, case)
        limit_ns = ask.traffic.budget.limit_ns
        case.patience = self._kernel.after(PATIENCE * limit_ns, self._leave, case)

    def _arrive(self, case: Case) -> None:
        case.seen_ns = self._kernel.now_ns
        self._routers[case.ask.router].arrive(case)

    def _leave(self, case: Case) -> None:
        if case.outcome is None:
            self._routers[case.ask.router].gone(case)
            case.outcome = "timeout"
            self._routers[case.ask.router].known(case, on_time=False)

    def _close(self, case: Case, outcome: str, attempt: Try | None) -> None:
        if case.outcome is not None:
            return
        case.outcome, case.winner = cast(Outcome, outcome), attempt
        if outcome != "ok" or attempt is None:
            Kernel.cancel(case.patience)
            self._routers[case.ask.router].known(case, on_time=False)
            return
        case.heard_ns = self._kernel.now_ns
        last_ns = self._field.network.last_mile_ns(case.ask.users, case.ask.place, case.heard_ns)
        self._kernel.after(int(last_ns) + case.ask.traffic.render_ns, self._perceive, case, attempt)

    def _perceive(self, case: Case, attempt: Try) -> None:
        Kernel.cancel(case.patience)
        ask, job = case.ask, attempt.job
        case.total_ns = self._kernel.now_ns - ask.at_ns
        # All that was neither the device, the payload, the server nor the router's own earlier attempts.
        served_ns = (job.useful_ns or 0) - job.arrived_ns
        waited_ns = attempt.sent_ns - case.seen_ns
        rest_ns = ask.traffic.client_ns + ask.traffic.render_ns + served_ns + attempt.payload_ns + waited_ns
        self._routers[ask.router].perceived(case, case.total_ns - rest_ns)
        self._routers[ask.router].known(case, on_time=case.total_ns <= ask.traffic.budget.limit_ns)


def _result(case: Case, field: Field) -> Result:
    target = None if case.winner is None else field.fleet.targets[case.winner.target]
    ok = case.outcome == "ok" and case.total_ns is not None
    return Result(
        id=case.ask.id,
        moment=case.ask.traffic.moment,
        path=case.ask.users.path,
        at_ns=case.ask.at_ns,
        limit_ns=case.ask.traffic.budget.limit_ns,
        outcome="ok" if ok else ("timeout" if case.outcome in (None, "ok") else case.outcome),
        total_ns=case.total_ns if ok else None,
        target=None if target is None else target.name,
        site=None if target is None else target.site,
        variant=None if target is None else target.variant,
        quality=0.0 if target is None else target.quality,
        rung=case.rung,
        p_on_time=case.p_on_time,
        attempts=len(case.tries),
        deferred=case.deferred,
        shortened=case.shortened,
        explored=case.explored,
    )
