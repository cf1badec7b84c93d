"""A world to try policies in: users, their networks, sites, servers, load, and what goes wrong when. Values only.

What a world says is true; what a router of that world believes it must learn from signals that are late and partial.
Times are integer nanoseconds since the start of the run, rates are per second.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from outlay.budget import Budget
from outlay.policy import Policy
from outlay.work import Target

FaultKind = Literal[
    "down",
    "silent",
    "cut",
    "malformed",
    "slow",
    "client-errors",
    "no-reports",
    "renamed-gauge",
    "role-chunk",
    "path",
]

FAULTS: Mapping[FaultKind, str] = {
    "down": "connections are refused at once, and what was under way is lost",
    "silent": "requests are accepted, and nothing ever comes back",
    "cut": "the answer breaks off after its first token",
    "malformed": "the answer cannot be read",
    "slow": "service takes `factor` times as long",
    "client-errors": "a `share` of requests is answered with an error that is the client's own",
    "no-reports": "the server works, and no longer says what it looks like",
    "renamed-gauge": "its reports no longer hold how many requests wait",
    "role-chunk": "an empty first chunk comes early, the content when it comes",
    "path": "the way to the site takes `factor` times as long, and `extra` more",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """A last mile: how long it adds to each round trip, as recorded over time, every `period_ns`.

    A user is at one place of the recording and moves through it as the run goes on, so that bad stretches last. The
    extra lies on the way up and on the way down by half. `bytes_per_s` is what it carries towards the service.
    Raises ValueError without samples, for a negative one, or a period or throughput that is not above 0.
    """

    name: str
    samples_ns: tuple[int, ...]
    period_ns: int
    bytes_per_s: float = 1e9

    def __post_init__(self) -> None:
        if not self.samples_ns or min(self.samples_ns) < 0 or self.period_ns <= 0 or not self.bytes_per_s > 0:
            raise ValueError(f"access {self.name}: needs samples of at least 0, a period and a throughput above 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class Users:
    """`share` of all arrivals of the moments they use; `rtt_ns` to each site is the floor, a missing one unknown.

    `local` is the site they go to by default. Their path class is `region/access`.
    """

    region: str
    access: str
    share: float
    rtt_ns: Mapping[str, int]
    local: str | None = None

    @property
    def path(self) -> str:
        """The class of their network, which keys what routers know of it."""
        return f"{self.region}/{self.access}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens:
    """A distribution of sizes: recorded ones, each as likely. Raises ValueError without any, or for a negative one."""

    values: tuple[int, ...]

    def __post_init__(self) -> None:
        if not self.values or min(self.values) < 0:
            raise ValueError("sizes need at least one value, none negative")


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrivals:
    """When requests of a moment come, before they are dealt out to users.

    `rate_per_s` holds from its instant on, a Poisson process between (`shape` 1) or burstier (`shape` below 1, a gamma
    process). With `at_ns` the recorded instants are replayed, over and over, and rates are ignored.
    """

    rates: tuple[tuple[int, float], ...] = ()
    shape: float = 1.0
    at_ns: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """The load of one moment. `useful_tokens` None means that only the whole answer is of use.

    Input and output sizes are drawn together when both have as many values, so that a recorded pair stays one.
    `expected_output` is what a router expects, since nobody knows. `client_ns` is spent before the router sees it,
    `render_ns` after the last byte that counts.
    """

    moment: str
    budget: Budget
    arrivals: Arrivals
    input_tokens: Tokens
    output_tokens: Tokens
    useful_tokens: int | None = 1
    payload_bytes: int = 0
    client_ns: int = 0
    render_ns: int = 0
    variant: str | None = None  # what simple policies ask for; None: the best
    regions: tuple[str, ...] = ()  # who uses it; empty: everybody


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Something that goes wrong from `from_ns` until `to_ns`, at a site or a target by name."""

    kind: FaultKind
    where: str
    from_ns: int
    to_ns: int
    factor: float = 1.0
    extra_ns: int = 0
    share: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Reports:
    """How a router learns what targets look like: each is asked `every_ns`, and the answer is `delay_ns` old."""

    every_ns: int = 1_000_000_000
    delay_ns: int = 10_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """Everything that is true of one world. Targets are single servers; a file's `replicas: 3` is three of them.

    `routers` share the users between them and know nothing of one another. `probe_ns` is how often each of them
    measures the round trip to every site for each class of users. `backbone_jitter` is the standard deviation of
    log of the factor on a floor. `until_ns` ends arrivals; `warm_up_ns` is left out of what is counted.
    """

    name: str
    about: str
    until_ns: int
    warm_up_ns: int
    access: Mapping[str, Access]
    users: tuple[Users, ...]
    targets: tuple[Target, ...]
    traffic: tuple[Traffic, ...]
    policy: Policy
    faults: tuple[Fault, ...] = ()
    routers: int = 1
    reports: Reports = field(default_factory=Reports)
    probe_ns: int = 1_000_000_000
    backbone_jitter: float = 0.03
    service_jitter: float = 0.05
    slow_start_ns: int = 0
