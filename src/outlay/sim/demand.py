"""Who asks for what, when, and what their way is like: drawn whole before a run, so that policies meet the same."""

from dataclasses import dataclass

import numpy as np

from outlay.units import NS_PER_S
from outlay.world import Arrivals, Traffic, Users, World


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """One interaction to come. `place` is where the user stands in the recording of the access network.

    `up` and `down` are factors on the floor of the way, one for each direction.
    """

    id: str
    at_ns: int
    traffic: Traffic
    users: Users
    router: int
    place: int
    input_tokens: int
    output_tokens: int
    up: float
    down: float


def draw(world: World, seed: int) -> tuple[Ask, ...]:
    """All interactions of a run, in order of time. The same world and seed give the same ones."""
    random = np.random.default_rng([seed, 1])
    asks = [ask for traffic in world.traffic for ask in _of(traffic, world, random)]
    return tuple(sorted(asks, key=lambda ask: (ask.at_ns, ask.id)))


def _of(traffic: Traffic, world: World, random: np.random.Generator) -> list[Ask]:
    groups = [users for users in world.users if not traffic.regions or users.region in traffic.regions]
    starts = _starts(traffic.arrivals, world.until_ns, random)
    count = len(starts)
    shares = np.array([users.share for users in groups])
    who = random.choice(len(groups), size=count, p=shares / shares.sum())
    places = random.integers(0, 2**31, size=count)
    inputs, outputs = np.array(traffic.input_tokens.values), np.array(traffic.output_tokens.values)
    first = random.integers(0, len(inputs), size=count)
    # Recorded pairs stay pairs.
    second = first if len(inputs) == len(outputs) else random.integers(0, len(outputs), size=count)
    ways = random.lognormal(0.0, world.backbone_jitter, size=(2, count))
    return [
        Ask(
            id=f"{traffic.moment}-{number}",
            at_ns=at_ns,
            traffic=traffic,
            users=groups[group],
            router=world.users.index(groups[group]) % world.routers,
            place=place,
            input_tokens=asked,
            output_tokens=max(answered, 1),
            up=up,
            down=down,
        )
        for number, (at_ns, group, place, asked, answered, up, down) in enumerate(
            zip(
                starts,
                who.tolist(),
                places.tolist(),
                inputs[first].tolist(),
                outputs[second].tolist(),
                *ways.tolist(),
                strict=True,
            )
        )
    ]


def _starts(arrivals: Arrivals, until_ns: int, random: np.random.Generator) -> list[int]:
    if arrivals.at_ns:
        return _replayed(arrivals.at_ns, until_ns)
    starts: list[int] = []
    ends = [at_ns for at_ns, _ in arrivals.rates[1:]] + [until_ns]
    for (begin_ns, rate), end_ns in zip(arrivals.rates, ends, strict=True):
        at_ns = float(begin_ns)
        while rate > 0:
            at_ns += random.gamma(arrivals.shape, NS_PER_S / rate / arrivals.shape)
            if at_ns >= min(end_ns, until_ns):
                break
            starts.append(int(at_ns))
    return starts


def _replayed(at_ns: tuple[int, ...], until_ns: int) -> list[int]:
    """The recording over and over; a round lasts as long as it does, plus one mean gap."""
    length_ns = at_ns[-1] - at_ns[0] + max((at_ns[-1] - at_ns[0]) // max(len(at_ns) - 1, 1), 1)
    starts: list[int] = []
    for begin_ns in range(0, until_ns, length_ns):
        starts += [begin_ns + each - at_ns[0] for each in at_ns if begin_ns + each - at_ns[0] < until_ns]
    return starts
