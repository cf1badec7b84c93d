"""The keys of a world file: their types and what each means. Checks that span several keys are in `world_checks`.

Rates and shapes have ends far beyond what anybody means, so that no gap between requests is 0 for ever.
"""

from typing import Annotated, get_args

from msgspec import UNSET, Meta, UnsetType, field

from outlay.arrivals import parse_stages
from outlay.formats.routing_keys import ColdKeys, LadderKeys
from outlay.formats.value_keys import Above0, AtLeast0, AtLeast1, Count, Duration, Keys, Name, Period, Share, TokenCount
from outlay.world import FaultKind

MOST_PER_S = 100_000

File = Annotated[str, Meta(min_length=1, extra={"expects": "a file, relative to the world's own"})]
Pair = Annotated[str, Meta(pattern=r"^.+ -> .+$", extra={"expects": "a pair such as London -> UK South"})]
Shape = Annotated[float, Meta(ge=0.01, le=1000, extra={"expects": "a number from 0.01 to 1000"})]
Rate = Annotated[
    float, Meta(gt=0, le=MOST_PER_S, extra={"expects": f"requests a second, above 0 and at most {MOST_PER_S}"})
]
# What the mean of a log-normal distribution is to its median grows with the square of it: by 20 it is 1e86.
Sigma = Annotated[float, Meta(ge=0, le=5, extra={"expects": "a number from 0 to 5"})]


def _check_stages(text: str) -> None:
    if max(rate for rate, _ in parse_stages(text)) > MOST_PER_S:
        raise ValueError(f"expected at most {MOST_PER_S} requests a second in each stage")


class RunKeys(Keys, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How long it goes on."""

    lasts: Annotated[Period, Meta(description="arrivals end then")] = field(name="for")
    warm_up: Annotated[Duration, Meta(description="what comes before is left out of all numbers")] | UnsetType = UNSET


class ReportsKeys(Keys, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How routers learn what servers look like."""

    every: Annotated[Period, Meta(description="how often each server is asked")] | UnsetType = UNSET
    delay: Annotated[Duration, Meta(description="how old its answer is when it comes")] | UnsetType = UNSET


class RttKeys(Keys, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Round-trip times between regions. A pair that neither names is unknown."""

    file: Annotated[File, Meta(description="a matrix, a row and a column for each region")] | UnsetType = UNSET
    local: Annotated[Duration, Meta(description="inside one region, where the matrix says nothing")] | UnsetType = UNSET
    pairs: (
        Annotated[
            dict[Pair, Duration],
            Meta(description="single pairs, both ways; they win over the file"),
        ]
        | UnsetType
    ) = UNSET  # fmt: skip


class AccessKeys(Keys, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A last mile: what it adds to a round trip, one of a recording, a constant, or a log-normal distribution."""

    recording: Annotated[File, Meta(description="a CSV of delays (5g-rtt), with the next two keys")] | UnsetType = UNSET
    road: Annotated[Name, Meta(description="of the drive to take")] | UnsetType = UNSET
    network: Annotated[Name, Meta(description="of the drive to take")] | UnsetType = UNSET
    netlatency: Annotated[File, Meta(description="a CSV of pairs by slice (seconds), with `pair`")] | UnsetType = UNSET
    pair: Annotated[Name, Meta(description="its column, such as n41-n19")] | UnsetType = UNSET
    period: (
        Annotated[
            Period,
            Meta(
                description="how long one sample holds: 50ms for `recording`, as it was sent, else 1s when not given; "
                "slices of `netlatency` lay hours apart, and are taken as if they lay this far apart"
            ),
        ]
        | UnsetType
    ) = UNSET
    constant: Annotated[Duration, Meta(description="the same at all times")] | UnsetType = UNSET
    median: Annotated[Duration, Meta(description="of a log-normal distribution, with `sigma`")] | UnsetType = UNSET
    sigma: Annotated[Sigma, Meta(description="of its logarithm")] | UnsetType = UNSET
    throughput: Annotated[AtLeast1, Meta(description="bytes a second towards the service")] | UnsetType = UNSET


class SiteKeys(Keys, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A place with capacity."""

    region: Annotated[Name, Meta(description="its name in the round-trip times")]


class ServiceKeys(Keys, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How fast a server is: fitted to measurements, stated, or both; what is stated wins."""

    perf_model: Annotated[File, Meta(description="measured times by model and hardware (splitwise)")] | UnsetType = (
        UNSET
    )
    model: Annotated[Name, Meta(description="its name in the measurements")] | UnsetType = UNSET
    hardware: Annotated[Name, Meta(description="its name in the measurements")] | UnsetType = UNSET
    tensor_parallel: Annotated[Count, Meta(description="cards, as measured; 1 when not given")] | UnsetType = UNSET
    prefill: Annotated[AtLeast1, Meta(description="prompt tokens a second")] | UnsetType = UNSET
    step: Annotated[Period, Meta(description="one decode step of one request")] | UnsetType = UNSET
    step_slope: Annotated[Duration, Meta(description="what each further request adds to a step")] | UnsetType = UNSET
    overhead: Annotated[Duration, Meta(description="of each prompt, however short")] | UnsetType = UNSET
    max_batch: Annotated[Count, Meta(description="requests at once")] | UnsetType = UNSET
    kv_tokens: Annotated[TokenCount, Meta(description="tokens that fit into the KV cache")] | UnsetType = UNSET
    kv_penalty: Annotated[Duration, Meta(description="what routers expect a full cache to cost")] | UnsetType = UNSET


class TargetKeys(Keys, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Servers of one kind: `at` says how many of them stand at which site."""

    at: Annotated[
        dict[Name, Count], Meta(description="servers by site; several are named NAME-SITE#1 and so on", min_length=1)
    ]
    service: ServiceKeys
    variant: Annotated[Name, Meta(description="the model; the target's own name when not given")] | UnsetType = UNSET
    hardware: (
        Annotated[Name, Meta(description="what it runs on; that of the measurements, when not given")] | UnsetType
    ) = UNSET
    quality: Annotated[Share, Meta(description="what its answers are worth; 1 when not given")] | UnsetType = UNSET
    price_per_hour: (
        Annotated[AtLeast0, Meta(description="of each server, in any one currency; 0 when not given")] | UnsetType
    ) = UNSET
    cold: ColdKeys | UnsetType = UNSET


class UsersKeys(Keys, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A group of users."""

    region: Annotated[Name, Meta(description="its name in the round-trip times")]
    access: Annotated[Name, Meta(description="their last mile, by its name")]
    share: Annotated[Above0, Meta(description="of all requests, against the others'")] | UnsetType = UNSET
    local: Annotated[Name, Meta(description="the site that serves them by default")] | UnsetType = UNSET


class ArrivalsKeys(Keys, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When requests come: one of `rate`, `stages`, `replay` and `servegen`."""

    rate: Annotated[Rate, Meta(description="requests a second")] | UnsetType = UNSET
    stages: (
        Annotated[
            str,
            Meta(
                description="rates one after the other; nothing comes after the last",
                examples=["4rps:60s,12rps:10s"],
                extra={"check": _check_stages},
            ),
        ]
        | UnsetType
    ) = UNSET  # fmt: skip
    replay: Annotated[File, Meta(description="recorded arrivals, with their sizes where it has them")] | UnsetType = (
        UNSET
    )
    speed: Annotated[Above0, Meta(description="how much faster than recorded")] | UnsetType = UNSET
    servegen: Annotated[File, Meta(description="recorded rates, with `mean` for their mean here")] | UnsetType = UNSET
    mean: Annotated[Rate, Meta(description="requests a second over the whole run")] | UnsetType = UNSET
    burstiness: (
        Annotated[Shape, Meta(description="shape of the gaps: 1 is Poisson, 0.25 comes in bursts")] | UnsetType
    ) = UNSET


class SizesKeys(Keys, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Sizes in tokens: log-normal and cut off at `most`, or `values`, each equally likely."""

    median: Annotated[Above0, Meta(description="of a log-normal distribution")] | UnsetType = UNSET
    sigma: Annotated[Sigma, Meta(description="of its logarithm; 0 when not given")] | UnsetType = UNSET
    most: Annotated[TokenCount, Meta(description="no size is above it")] | UnsetType = UNSET
    values: (
        Annotated[
            tuple[TokenCount, ...],
            Meta(description="as they are; as many for `input` and `output` are drawn as pairs", min_length=1),
        ]
        | UnsetType
    ) = UNSET


class TrafficKeys(Keys, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One moment: its budget, its load, and how it is routed."""

    within: Annotated[Period, Meta(description="the limit, from the user's event to the percept")]
    arrivals: ArrivalsKeys
    percentile: (
        Annotated[
            float,
            Meta(
                description="how many percent of requests must keep to `within`; 99 when not given",
                gt=0,
                lt=100,
                extra={"expects": "a number between 0 and 100"},
            ),
        ]
        | UnsetType
    ) = UNSET
    input: (
        Annotated[SizesKeys, Meta(description="tokens of the prompt; 512, or as `replay` has them, when not given")]
        | UnsetType
    ) = UNSET
    output: (
        Annotated[SizesKeys, Meta(description="tokens of the answer; 512, or as `replay` has them, when not given")]
        | UnsetType
    ) = UNSET
    useful: (
        Annotated[TokenCount, Meta(description="tokens needed to perceive a result; the whole answer, when not given")]
        | UnsetType
    ) = UNSET
    payload: Annotated[AtLeast0, Meta(description="bytes sent with a request")] | UnsetType = UNSET
    client: Annotated[Duration, Meta(description="spent on the device before sending")] | UnsetType = UNSET
    render: Annotated[Duration, Meta(description="spent on the device after the last useful byte")] | UnsetType = UNSET
    variant: Annotated[Name, Meta(description="what simple policies ask for; the best, when not given")] | UnsetType = (
        UNSET
    )
    regions: Annotated[tuple[Name, ...], Meta(description="who uses it; everybody, when not given")] | UnsetType = UNSET
    ladder: LadderKeys | UnsetType = UNSET


class FaultKeys(Keys, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Something that goes wrong."""

    kind: Annotated[FaultKind, Meta(description=", ".join(get_args(FaultKind)))]
    where: Annotated[Name, Meta(description="a site, or a server by its name")]
    start: Annotated[Duration, Meta(description="when it begins")] = field(name="from")
    end: Annotated[Duration, Meta(description="when it is over")] = field(name="to")
    factor: Annotated[Above0, Meta(description="how many times as long it takes: `slow` and `path`")] | UnsetType = (
        UNSET
    )
    extra: Annotated[Duration, Meta(description="what comes on top: `path`")] | UnsetType = UNSET
    share: Annotated[Share, Meta(description="of requests: `client-errors`")] | UnsetType = UNSET


class JitterKeys(Keys, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Standard deviations of the logarithm of what varies from one time to the next."""

    backbone: Annotated[AtLeast0, Meta(description="of the way between regions; 0.03 when not given")] | UnsetType = (
        UNSET
    )
    service: Annotated[AtLeast0, Meta(description="of service times; 0.05 when not given")] | UnsetType = UNSET


class WorldKeys(Keys, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A whole world file."""

    about: Annotated[str, Meta(min_length=1, description="one sentence")]
    run: RunKeys
    rtt: RttKeys
    access: Annotated[dict[Name, AccessKeys], Meta(min_length=1)]
    sites: Annotated[dict[Name, SiteKeys], Meta(min_length=1)]
    targets: Annotated[dict[Name, TargetKeys], Meta(min_length=1)]
    users: Annotated[tuple[UsersKeys, ...], Meta(min_length=1)]
    moments: Annotated[dict[Name, TrafficKeys], Meta(min_length=1)]
    faults: tuple[FaultKeys, ...] | UnsetType = UNSET
    routers: Annotated[Count, Meta(description="they share the users and know nothing of one another")] | UnsetType = (
        UNSET
    )
    reports: ReportsKeys | UnsetType = UNSET
    probes: Annotated[Period, Meta(description="how often routers measure round trips")] | UnsetType = UNSET
    jitter: JitterKeys | UnsetType = UNSET
    slow_start: Annotated[Duration, Meta(description="how long a server is slower after a cold start")] | UnsetType = (
        UNSET
    )
