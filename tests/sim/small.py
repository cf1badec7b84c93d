"""Small worlds for the simulator's tests: two sites, a large and a small model, users near the first."""

from dataclasses import replace

from outlay.budget import Budget
from outlay.policy import Policy, Rules, Rung
from outlay.sim.policies import try_policy
from outlay.trial import Run
from outlay.units import NS_PER_MS, NS_PER_S
from outlay.work import Service, Target
from outlay.world import Access, Arrivals, Fault, FaultKind, Reports, Tokens, Traffic, Users, World

MS, S = NS_PER_MS, NS_PER_S

LARGE = Service(prefill_tokens_per_s=10_000, step_ns=30 * MS, overhead_ns=10 * MS, max_batch=16, kv_penalty_ns=0)
SMALL = Service(prefill_tokens_per_s=40_000, step_ns=8 * MS, overhead_ns=5 * MS, max_batch=16, kv_penalty_ns=0)

NEAR = Target(name="large-near", site="near", variant="large", service=LARGE)
FAR = Target(name="large-far", site="far", variant="large", service=LARGE)
LITTLE = Target(name="small-near", site="near", variant="small", service=SMALL, quality=0.8)

VOICE = Traffic(
    moment="voice",
    budget=Budget(limit_ns=900 * MS, percentile=95),
    arrivals=Arrivals(rates=((0, 3.0),)),
    # 500 prompt tokens are 60 ms, nine further tokens 270 ms: about 350 ms on an idle large server.
    input_tokens=Tokens(values=(500,)),
    output_tokens=Tokens(values=(60,)),
    useful_tokens=10,
    client_ns=10 * MS,
    render_ns=20 * MS,
)

LADDER = (Rung(name="large", variants=("large",)), Rung(name="small", variants=("small",)))


def world(**changes: object) -> World:
    """The small world, changed."""
    plain = World(
        name="small",
        about="for tests",
        until_ns=20 * S,
        warm_up_ns=2 * S,
        access={"fixed": Access(name="fixed", samples_ns=(4 * MS, 5 * MS, 6 * MS), period_ns=S)},
        users=(Users(region="uk", access="fixed", share=1.0, rtt_ns={"near": 10 * MS, "far": 80 * MS}, local="near"),),
        targets=(NEAR, FAR, LITTLE),
        traffic=(VOICE,),
        policy=Policy(default=Rules(rungs=LADDER, render_ns=20 * MS)),
        reports=Reports(every_ns=S, delay_ns=10 * MS),
    )
    return replace(plain, **changes)  # type: ignore[arg-type] - by the names of fields


def fault(kind: FaultKind, where: str, start_s: float = 5, end_s: float = 15, **changes: object) -> Fault:
    """Something that goes wrong in the middle of the run."""
    return replace(
        Fault(kind=kind, where=where, from_ns=int(start_s * S), to_ns=int(end_s * S)),
        **changes,  # type: ignore[arg-type] - by the names of fields
    )


def on_time(run: Run) -> float:
    """The share of all interactions."""
    return sum(result.on_time for result in run.results) / len(run.results)


def tried(given: World, policy: str = "outlay", seed: int = 1, **options: object) -> Run:
    """One run."""
    return try_policy(given, policy, seed, **options)  # type: ignore[arg-type] - by the names of parameters
