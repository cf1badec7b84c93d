"""The true way between a user and a site: a floor that hardly moves, a last mile that does, and a payload's time."""

import math

from outlay.sim.demand import Ask
from outlay.units import NS_PER_S
from outlay.world import Access, Fault, Users, World

# What a fresh connection sends before the first acknowledgement: ten segments (RFC 6928).
_FIRST_FLIGHT_BYTES = 14_336


class Network:
    """One-way times in ns at an instant; None where no way is known to exist."""

    def __init__(self, world: World) -> None:
        self._access = world.access
        self._faults = [fault for fault in world.faults if fault.kind == "path"]

    def floor_ns(self, users: Users, site: str, at_ns: int) -> float | None:
        """The round trip without last mile and jitter."""
        rtt_ns = users.rtt_ns.get(site)
        if rtt_ns is None:
            return None
        floor_ns = float(rtt_ns)
        for fault in self._faults:
            if fault.where == site and fault.from_ns <= at_ns < fault.to_ns:
                floor_ns = floor_ns * fault.factor + fault.extra_ns
        return floor_ns

    def last_mile_ns(self, users: Users, place: int, at_ns: int) -> float:
        """What the last mile adds in one direction: half of what it adds to a round trip."""
        return _at(self._access[users.access], place, at_ns) / 2

    def payload_ns(self, ask: Ask, site: str, at_ns: int) -> int:
        """Sending the payload: bytes over throughput, and the round trips of a slow start."""
        size = ask.traffic.payload_bytes
        floor_ns = self.floor_ns(ask.users, site, at_ns)
        if not size or floor_ns is None:
            return 0
        access = self._access[ask.users.access]
        rounds = math.log2(1 + size / _FIRST_FLIGHT_BYTES)
        rtt_ns = floor_ns + _at(access, ask.place, at_ns)
        return int(size / access.bytes_per_s * NS_PER_S + rounds * rtt_ns)


def _at(access: Access, place: int, at_ns: int) -> int:
    samples = access.samples_ns
    return samples[(place + at_ns // access.period_ns) % len(samples)]


def faults_at(world: World, target_name: str, site: str) -> tuple[Fault, ...]:
    """The faults of one target: its own and its site's."""
    return tuple(fault for fault in world.faults if fault.where in (target_name, site) and fault.kind != "path")
