"""Every policy that can be tried in a world, by name."""

from collections.abc import Mapping

from outlay.sim.ablation import ABLATIONS, whole
from outlay.sim.baselines import ABOUT, BASELINES, Setting
from outlay.sim.chooser import Chooser
from outlay.sim.drive import run
from outlay.sim.field import Field
from outlay.sim.oracle import Oracle
from outlay.sim.outlay_router import Decided
from outlay.trial import Run
from outlay.world import World

OWN = "outlay"
ORACLE = "oracle"

_ABOUT_OWN = {
    "outlay": "by what is left of the budget: the likeliest on time, a smaller model before it is too late",
    "outlay-no-queue": "Outlay without knowing what waits and runs",
    "outlay-no-spread": "Outlay without knowing how far round trips lie apart",
    "outlay-no-age": "Outlay without knowing how old its signals are",
    "outlay-capacity-only": "Outlay knowing only how fast servers and paths are",
    "oracle": "knows the true state of everything at the instant it chooses; a bound, not a rival",
}

# Who competes: Outlay and the baselines. Ablations and the oracle only show what is between them.
RIVALS = (OWN, *BASELINES)

# Name and one line each: Outlay, the baselines, the ablations, the oracle.
POLICIES: Mapping[str, str] = {
    OWN: _ABOUT_OWN[OWN],
    **{name: ABOUT[name] for name in BASELINES},
    **{name: about for name, about in _ABOUT_OWN.items() if name != OWN},
}


def try_policy(world: World, policy: str, seed: int, *, accounts: bool = False, decided: Decided | None = None) -> Run:
    """One run of the policy of this name. Raises KeyError for a name that is not in POLICIES."""
    if policy in ABLATIONS:
        ablation = ABLATIONS.get(policy, whole)
        return run(world, policy, None, seed, ablation=ablation, decided=decided, accounts=accounts)
    if policy == ORACLE:
        return run(world, policy, Oracle, seed, accounts=accounts)
    make = BASELINES[policy]
    limits_ns = {traffic.moment: traffic.budget.limit_ns for traffic in world.traffic}
    sheddable = frozenset(moment for moment in limits_ns if world.policy.of(moment).sheddable)

    def chooser(field: Field) -> Chooser:
        return make(Setting(fleet=field.fleet, limits_ns=limits_ns, sheddable=sheddable))

    return run(world, policy, chooser, seed, accounts=accounts)
