"""What a simulated interaction looks like in Outlay's log, so that `outlay explain` reads it like a measured one."""

from outlay.interaction import Interaction, Mark
from outlay.sim.case import Case
from outlay.sim.field import Field

CLOCK = "virtual"


def interaction(case: Case, field: Field) -> Interaction:
    """The interaction with a mark at the end of every stage that it went through; they follow one another exactly."""
    ask, attempt = case.ask, case.winner
    sizes = {"input_tokens": ask.input_tokens, "output_tokens": ask.output_tokens}
    dimensions = {"region": ask.users.region, "access": ask.users.access, "rung": str(case.rung)}
    ok = case.outcome == "ok" and case.total_ns is not None
    if attempt is None or case.total_ns is None:
        return Interaction(
            id=ask.id,
            moment=ask.traffic.moment,
            start_ns=ask.at_ns,
            end_ns=None if case.outcome is None else field.kernel.now_ns,
            clock=CLOCK,
            outcome="timeout" if case.outcome in (None, "ok") else case.outcome,
            dimensions=dimensions,
            sizes=sizes,
        )
    target, job = field.fleet.targets[attempt.target], attempt.job
    dimensions |= {"site": target.site, "version": target.variant, "hardware": target.hardware or target.variant}
    arrived_ns = job.arrived_ns
    useful_ns = job.useful_ns or arrived_ns
    first_ns = job.first_ns or useful_ns
    taken_ns = job.taken_ns or first_ns
    heard_ns = case.heard_ns
    end_ns = ask.at_ns + case.total_ns
    stages = (
        ("sent", ask.at_ns + ask.traffic.client_ns, "client", "prepare"),
        ("routed", case.seen_ns, "client", "uplink.excess"),
        # What earlier attempts cost this one: it began later.
        ("retried", attempt.sent_ns, "gateway", "route"),
        ("uploaded", attempt.sent_ns + attempt.payload_ns, "client", "uplink.send"),
        ("arrived", arrived_ns, "client", "uplink.floor"),
        ("loaded", arrived_ns + job.cold_ns, "llm", "queue.cold_start"),
        ("taken", taken_ns, "llm", "queue.wait"),
        ("first_token", first_ns, "llm", "infer.prefill"),
        ("useful", useful_ns, "llm", "infer.decode"),
        ("returned", heard_ns, "client", "downlink.floor"),
        ("received", end_ns - ask.traffic.render_ns, "client", "downlink.excess"),
        ("perceived", end_ns, "client", "render"),
    )
    marks = [Mark(name="event", at_ns=ask.at_ns, clock=CLOCK)]
    marks += [
        Mark(name=name, at_ns=at_ns, clock=CLOCK, component=component, stage=stage)
        for name, at_ns, component, stage in stages
        if at_ns > marks[-1].at_ns or name == "perceived"
    ]
    return Interaction(
        id=ask.id,
        moment=ask.traffic.moment,
        start_ns=ask.at_ns,
        end_ns=end_ns,
        clock=CLOCK,
        outcome="ok" if ok else "error",
        dimensions=dimensions,
        sizes=sizes,
        marks=tuple(marks),
        conditions={"queue_depth": float(case.queue_depth)},
    )
