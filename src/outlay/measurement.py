"""What a run of `outlay measure` found, as values only: `render/` draws them, `--json` writes them.

None means unknown or refused everywhere; a float infinity is a real answer (so many requests failed that the
percentile never comes). All times are nanoseconds.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from outlay.cold import ClassEffect
from outlay.hops import HopCost
from outlay.load import Bound, Load
from outlay.network import Network
from outlay.report import OnTime, Percentile, Report


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """The percentiles of one latency of a run's requests.

    With `failures_count` those that failed are in it as never; else it is of those that were answered. `bounds` say
    between what times each percentile lies where the load was INVALID; then the percentiles are refused.
    """

    name: str
    n: int
    failures_count: bool
    percentiles: tuple[Percentile, ...]
    bounds: tuple[Bound, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSeen:
    """What an inference engine's own page said during the run, of all its clients.

    `largest` are the largest values of gauges, `mean_ns` the means of durations, both by quantity; `missing` are
    gauges that its pages should show and do not.
    """

    engine: str
    largest: Mapping[str, float]
    mean_ns: Mapping[str, int]
    missing: tuple[str, ...]
    pages: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One place where the requests were measured, such as the public address or the server itself.

    `planned` counts all but the warm-up; `outcomes` says how they ended, `reasons` why they failed, in words.
    `unfinished` were under way when the run was stopped: nothing is known of how they would have ended.
    """

    name: str
    address: str
    planned: int
    unfinished: int
    outcomes: Mapping[str, int]
    reasons: Mapping[str, int]
    series: tuple[Series, ...]
    network: Network | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """One run. `loads` are the whole run's, then each of its stages'. `plan` says in words what was sent.

    `on_time` is the share within the limit that was asked for, `warm_up` how many requests were kept out of every
    number, and `warm_up_p50_ns` their median. `report` is the account of the interactions.
    """

    plan: str
    loads: tuple[Load, ...]
    points: tuple[Point, ...]
    hops: tuple[HopCost, ...] = ()
    cold: tuple[ClassEffect, ...] = ()
    engine: EngineSeen | None = None
    on_time: OnTime | None = None
    within_ns: int | None = None
    warm_up: int = 0
    warm_up_p50_ns: int | None = None
    stopped: bool = False
    notes: Mapping[str, int] = field(default_factory=dict)
    report: Report | None = None
