"""Which servers, where, so that every moment's percentile holds for every region, at least cost.

The slow loop beside routing: it is run in minutes or days, on forecasts of demand, while routing works with what is
there. A *column* is one demand served by one offer run at one level of utilisation. It exists when the quantile of
network, wait and work fits into the budget; a pair of region and site without a round-trip time has none. What is left
is a mixed integer programme: whole servers for each offer and level, any split of each demand, least price.

Server time is the token-work model. A request takes `p = overhead + prompt / R` of a server alone, and a share of each
of its steps with the rest of the batch. The wait for the prompt's turn has an exponential tail with Kingman's mean
(Kingman, "The single server queue in heavy traffic", 1961): P(W > t) = rho exp(-rho t / E[W]). Sums of quantiles are
upper bounds here, never forecasts: a plan errs to the costly side, and is then verified by trying it.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import LinearConstraint, milp
from scipy.sparse import csr_matrix

from outlay.compare import newcombe
from outlay.sampling import priority
from outlay.units import NS_PER_S, format_duration
from outlay.work import Service, Target

# How full servers may be planned: emptier ones are for budgets that a queue would spend.
LEVELS = (0.3, 0.5, 0.7, 0.85)
# Squared coefficient of variation of a request's time on the server: prompts vary about as much as they are long.
_VARIATION = 1.0
_GAP = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """What one region asks of one moment. Sizes are means, but `useful_tokens`, which is what a person waits for: the
    `percentile` of answers where the whole answer is of use.

    `network_ns` is the `percentile` of the network both ways, payload included, by site; a site that is absent has no
    known path. `fixed_ns` is spent on the device. Raises ValueError for a rate, a limit or a size that is not above 0,
    or a percentile outside (0, 100).
    """

    region: str
    moment: str
    rate_per_s: float
    input_tokens: float
    output_tokens: float
    useful_tokens: float
    limit_ns: int
    percentile: float
    network_ns: Mapping[str, float]
    fixed_ns: int = 0
    least_quality: float = 0.0

    def __post_init__(self) -> None:
        if not (self.rate_per_s > 0 and self.limit_ns > 0 and self.input_tokens >= 0 and self.output_tokens >= 1):
            raise ValueError(f"{self.moment} in {self.region}: rate, limit and sizes must be above 0")
        if not 0 < self.percentile < 100:
            raise ValueError("a percentile lies between 0 and 100")


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """Servers that could be had at a site; `most` of them, any number when None."""

    site: str
    variant: str
    hardware: str
    service: Service
    price_per_s: float
    quality: float = 1.0
    most: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Servers:
    """So many servers of one offer, each planned to be busy for `level` of its time."""

    offer: Offer
    level: float
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """A part of a demand and who serves it; `predicted_ns` bounds its percentile."""

    demand: Demand
    offer: Offer
    level: float
    rate_per_s: float
    predicted_ns: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortfall:
    """A demand that no offer can serve in time: the best one misses by this; infinity where no path is known."""

    region: str
    moment: str
    missing_ns: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Servers and flows at least price. With shortfalls there are neither: the plan would not hold.

    `gap` is how far above the least possible price it may be; `unknown` are pairs of region and site without a path.
    """

    servers: tuple[Servers, ...] = ()
    flows: tuple[Flow, ...] = ()
    price_per_s: float = 0.0
    gap: float = 0.0
    shortfalls: tuple[Shortfall, ...] = ()
    unknown: tuple[tuple[str, str], ...] = ()

    def targets(self) -> tuple[Target, ...]:
        """The servers one by one, as a world or a router takes them."""
        return tuple(
            Target(
                name=f"{servers.offer.variant}-{servers.offer.hardware or 'any'}-{servers.offer.site}-{place}#{number}",
                site=servers.offer.site,
                variant=servers.offer.variant,
                hardware=servers.offer.hardware,
                service=servers.offer.service,
                quality=servers.offer.quality,
                price_per_s=servers.offer.price_per_s,
            )
            for place, servers in enumerate(self.servers)
            for number in range(1, servers.count + 1)
        )


# One server


def seconds_of(demand: Demand, service: Service, level: float) -> float:
    """How much of a server's time one request takes at a level: its prompt, and its share of the steps of a batch."""
    batch = _batch(service, level)
    prompt_ns = service.prefill_ns(demand.input_tokens)
    return (prompt_ns + demand.output_tokens * service.step_of(batch) / batch) / NS_PER_S


def predicted_ns(demand: Demand, service: Service, level: float, percentile: float | None = None) -> float:
    """A bound on the percentile of wait and work on a server that is busy for `level` of its time."""
    q = (demand.percentile if percentile is None else percentile) / 100
    step_ns, prompt_ns = service.step_of(_batch(service, level)), service.prefill_ns(demand.input_tokens)
    # The part of the time in which prompts hold up the batch.
    prompts = level * prompt_ns / (seconds_of(demand, service, level) * NS_PER_S)
    mean_ns = prompts * prompt_ns * (1 + _VARIATION) / (2 * (1 - prompts))
    wait_ns = max(mean_ns / prompts * math.log(prompts / (1 - q)), 0.0) if prompts > 0 else 0.0
    # A prompt is taken up at the end of a step; steps are held up by other prompts.
    return wait_ns + step_ns + prompt_ns + (demand.useful_tokens - 1) * step_ns / (1 - prompts)


def _batch(service: Service, level: float) -> float:
    return max(level * service.max_batch, 1.0)


# The plan


def make_plan(
    demands: Sequence[Demand],
    offers: Sequence[Offer],
    *,
    levels: Sequence[float] = LEVELS,
    gap: float = _GAP,
    time_limit_s: float = 60.0,
) -> Plan:
    """The cheapest servers that serve all demands within their budgets, to `gap` of the least possible price.

    Raises ValueError when the solver ends without an answer, which the time limit may be the reason for.
    """
    unknown = tuple(
        sorted(
            {
                (demand.region, offer.site)
                for demand in demands
                for offer in offers
                if offer.site not in demand.network_ns
            }
        )
    )
    columns = _columns(demands, offers, levels)
    shortfalls = _shortfalls(demands, offers, levels, columns)
    if shortfalls or not demands:
        return Plan(shortfalls=shortfalls, unknown=unknown)
    return replace(_solved(demands, offers, levels, columns, gap, time_limit_s), unknown=unknown)


@dataclass(frozen=True, slots=True)
class _Column:
    demand: int
    pool: int  # an offer at a level
    seconds: float
    predicted_ns: float


def _columns(demands: Sequence[Demand], offers: Sequence[Offer], levels: Sequence[float]) -> list[_Column]:
    found = []
    for at, demand in enumerate(demands):
        for place, offer in enumerate(offers):
            network_ns = demand.network_ns.get(offer.site)
            if network_ns is None or offer.quality < demand.least_quality:
                continue
            for step, level in enumerate(levels):
                ahead_ns = demand.fixed_ns + network_ns + predicted_ns(demand, offer.service, level)
                if ahead_ns <= demand.limit_ns:
                    pool = place * len(levels) + step
                    found.append(_Column(at, pool, seconds_of(demand, offer.service, level), ahead_ns))
    return found


def _shortfalls(
    demands: Sequence[Demand], offers: Sequence[Offer], levels: Sequence[float], columns: Iterable[_Column]
) -> tuple[Shortfall, ...]:
    served = {column.demand for column in columns}
    return tuple(
        Shortfall(region=demand.region, moment=demand.moment, missing_ns=_missing_ns(demand, offers, levels))
        for at, demand in enumerate(demands)
        if at not in served
    )


def _missing_ns(demand: Demand, offers: Sequence[Offer], levels: Sequence[float]) -> float:
    ahead = (
        demand.fixed_ns + demand.network_ns[offer.site] + predicted_ns(demand, offer.service, min(levels))
        for offer in offers
        if offer.site in demand.network_ns and offer.quality >= demand.least_quality
    )
    return min(ahead, default=math.inf) - demand.limit_ns


def _solved(
    demands: Sequence[Demand],
    offers: Sequence[Offer],
    levels: Sequence[float],
    columns: Sequence[_Column],
    gap: float,
    time_limit_s: float,
) -> Plan:
    """Variables: servers of each pool, whole; then each column's part of its demand, from 0 to 1."""
    pools, size = len(offers) * len(levels), len(columns)
    demand_of = np.array([column.demand for column in columns])
    pool_of = np.array([column.pool for column in columns])
    rates = np.array([demand.rate_per_s for demand in demands])
    busy = np.array([column.seconds for column in columns]) * rates[demand_of]
    whole = csr_matrix((np.ones(size), (demand_of, pools + np.arange(size))), shape=(len(demands), pools + size))
    room = np.tile(np.array(levels), len(offers))
    load = csr_matrix(
        (
            np.concatenate([room, -busy]),
            (np.concatenate([np.arange(pools), pool_of]), np.concatenate([np.arange(pools), pools + np.arange(size)])),
        ),
        shape=(pools, pools + size),
    )
    constraints = [LinearConstraint(whole, 1.0, 1.0), LinearConstraint(load, 0.0, np.inf)]
    limited = [place for place, offer in enumerate(offers) if offer.most is not None]
    if limited:
        rows = np.repeat(np.arange(len(limited)), len(levels))
        places = np.concatenate([place * len(levels) + np.arange(len(levels)) for place in limited])
        matrix = csr_matrix((np.ones(len(rows)), (rows, places)), shape=(len(limited), pools + size))
        constraints.append(
            LinearConstraint(matrix, 0.0, np.array([float(offers[place].most or 0) for place in limited]))
        )
    prices = np.repeat(np.array([offer.price_per_s for offer in offers]), len(levels))
    answer = milp(
        # A little for each level breaks ties towards emptier servers, which cost the same.
        np.concatenate([prices * (1 + 1e-6 * room), np.zeros(size)]),
        constraints=constraints,
        integrality=np.concatenate([np.ones(pools), np.zeros(size)]),
        options={"mip_rel_gap": gap, "time_limit": time_limit_s, "presolve": True},
    )
    if answer.x is None:
        raise ValueError(f"no plan was found: {answer.message}")
    counts = np.rint(answer.x[:pools]).astype(int)
    servers = tuple(
        Servers(offer=offers[pool // len(levels)], level=levels[pool % len(levels)], count=int(counts[pool]))
        for pool in np.flatnonzero(counts).tolist()
    )
    flows = tuple(
        Flow(
            demand=demands[column.demand],
            offer=offers[column.pool // len(levels)],
            level=levels[column.pool % len(levels)],
            rate_per_s=float(part * rates[column.demand]),
            predicted_ns=column.predicted_ns,
        )
        for column, part in zip(columns, answer.x[pools:], strict=True)
        if part > 1e-6
    )
    return Plan(
        servers=servers,
        flows=flows,
        price_per_s=sum(each.count * each.offer.price_per_s for each in servers),
        gap=float(answer.mip_gap or 0.0),
    )


# Verifying

# Of one region and moment: the 95 % interval of the share on time.
Shares = Mapping[tuple[str, str], tuple[float, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """A plan that was tried. `shares` are of the last round; `open` are demands whose interval lies below their
    percentile still, `rounds` how often it was planned.
    """

    plan: Plan
    shares: Shares
    open: tuple[tuple[str, str], ...]
    rounds: int


def verify(
    demands: Sequence[Demand],
    offers: Sequence[Offer],
    measure: Callable[[Plan], Shares],
    *,
    rounds: int = 4,
    more: float = 0.2,
) -> Verified:
    """Plan, try, and plan again for `more` of what fell short, in a tighter limit, until all holds or rounds are over.

    A demand falls short when all of its interval lies below its percentile: what the sample leaves open is no reason
    to buy.
    """
    asked = list(demands)
    plan = Plan()
    shares: Shares = {}
    short: tuple[tuple[str, str], ...] = ()
    for round_ in range(1, rounds + 1):
        plan = make_plan(asked, offers)
        if plan.shortfalls:
            return Verified(plan=plan, shares={}, open=(), rounds=round_)
        shares = measure(plan)
        short = tuple(
            (demand.region, demand.moment)
            for demand in demands
            if (demand.region, demand.moment) in shares
            and shares[demand.region, demand.moment][1] < demand.percentile / 100
        )
        if not short:
            break
        asked = [
            replace(each, rate_per_s=each.rate_per_s * (1 + more), limit_ns=int(each.limit_ns * (1 - more / 2)))
            if (each.region, each.moment) in short
            else each
            for each in asked
        ]
    return Verified(plan=plan, shares=shares, open=short, rounds=round_)


# Questions


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteGain:
    """What a site gives: the price with and without it, and which demands only it can serve in time."""

    site: str
    with_it: Plan
    without_it: Plan

    @property
    def saves_per_s(self) -> float | None:
        """What it saves; negative never, None where nothing works without it."""
        return None if self.without_it.shortfalls else self.without_it.price_per_s - self.with_it.price_per_s


def site_gain(demands: Sequence[Demand], offers: Sequence[Offer], site: str) -> SiteGain:
    """The plan with all offers, and the one without those of a site."""
    return SiteGain(
        site=site,
        with_it=make_plan(demands, offers),
        without_it=make_plan(demands, [offer for offer in offers if offer.site != site]),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionPoint:
    """So many sessions at once on one server: how busy it is, and the bound on the percentile; infinity when full."""

    sessions: int
    level: float
    predicted_ns: float
    fits: bool


def sessions_curve(demand: Demand, offer: Offer, gap_ns: int, most: int = 512) -> tuple[SessionPoint, ...]:
    """How many sessions, each asking every `gap_ns`, one server bears: points up to the first that does not fit.

    Empty when the site has no known path. Raises ValueError for a gap that is not above 0.
    """
    if gap_ns <= 0:
        raise ValueError("sessions ask again after more than no time")
    network_ns = demand.network_ns.get(offer.site)
    if network_ns is None:
        return ()
    points = []
    for sessions in range(1, most + 1):
        level = _level_of(demand, offer.service, sessions * NS_PER_S / gap_ns)
        ahead_ns = math.inf
        if level < 1:
            ahead_ns = demand.fixed_ns + network_ns + predicted_ns(demand, offer.service, level)
        points.append(
            SessionPoint(sessions=sessions, level=level, predicted_ns=ahead_ns, fits=ahead_ns <= demand.limit_ns)
        )
        if not points[-1].fits:
            break
    return tuple(points)


def _level_of(demand: Demand, service: Service, rate_per_s: float) -> float:
    """How busy a server is at a rate. Busier servers batch more, so it is solved for; 1 when it cannot keep up."""
    low, high = 0.0, 1.0
    if rate_per_s * seconds_of(demand, service, 1.0) >= 1.0:
        return 1.0
    for _ in range(40):
        middle = (low + high) / 2
        if rate_per_s * seconds_of(demand, service, middle) > middle:
            low = middle
        else:
            high = middle
    return high


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolPoint:
    """A pool of so many warm servers: how often a start finds it empty, and the percentile of the time to start."""

    size: int
    cold: float
    quantile_ns: float


def warm_pool(starts_per_s: float, start_ns: Sequence[int], percentile: float, most: int = 64) -> tuple[PoolPoint, ...]:
    """Warm servers against cold starts: each start takes one from the pool, which is filled again after a cold start.

    A start that finds the pool empty is cold: Erlang's loss formula with load `starts_per_s x mean start`, which holds
    for any distribution of start times (Sevastyanov, 1957). Points from an empty pool to the first below one in a
    million. Raises ValueError without start times, or for a rate that is not above 0.
    """
    if not start_ns or not starts_per_s > 0:
        raise ValueError("a pool needs times to start, and a rate of starts above 0")
    load = starts_per_s * sum(start_ns) / len(start_ns) / NS_PER_S
    ordered = sorted(start_ns)
    points, blocked = [], 1.0
    for size in range(most + 1):
        if size:
            blocked = load * blocked / (size + load * blocked)
        beyond = 1 - percentile / 100
        # The percentile lies among the cold ones when they are more than what is beyond it.
        rank = 0 if blocked <= beyond else min(int((1 - beyond / blocked) * len(ordered)), len(ordered) - 1)
        points.append(
            PoolPoint(size=size, cold=blocked, quantile_ns=0.0 if blocked <= beyond else float(ordered[rank]))
        )
        if blocked < 1e-6:
            break
    return tuple(points)


@dataclass(frozen=True, slots=True, kw_only=True)
class NinePoint:
    """What it costs to hold the limits for this percentile of interactions."""

    percentile: float
    plan: Plan


def nines(
    at: Callable[[float], Sequence[Demand]],
    offers: Sequence[Offer],
    percentiles: Sequence[float] = (90.0, 95.0, 99.0, 99.9),
) -> tuple[NinePoint, ...]:
    """A plan for each percentile; `at` gives the demands of one, because their networks' percentiles move with it."""
    return tuple(NinePoint(percentile=each, plan=make_plan(at(each), offers)) for each in percentiles)


# The slow loop

KEEP, REVERT, WAIT = "keep", "revert", "not enough data"


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """A placement on trial: `holdout` of the interactions stay on the old one, always, so that there is something to
    compare with. `least` late ones and interactions on each side are needed before anything is judged.
    """

    holdout: float = 0.01
    least_n: int = 500
    least_late: int = 5
    tolerance: float = 0.0

    def is_held_out(self, id: str) -> bool:  # noqa: A002 - what it is called everywhere
        """Whether an interaction stays on the old placement; the same for every router that sees it."""
        return priority(id) / 2**64 < self.holdout

    def judge(self, new: tuple[int, int], old: tuple[int, int]) -> str:
        """KEEP, REVERT or WAIT, from (late, all) on the new placement and among those held out.

        Reverted when Newcombe's 95 % interval of the difference of the late shares lies above the tolerance; kept when
        it lies at or below; else, or with too little, it waits. A revert needs no person.
        """
        if min(new[1], old[1]) < self.least_n or max(new[0], old[0]) < self.least_late:
            return WAIT
        low, high = newcombe(new[0], new[1], old[0], old[1])
        if low > self.tolerance:
            return REVERT
        return KEEP if high <= self.tolerance else WAIT


def said(shortfall: Shortfall) -> str:
    """One line for people."""
    if math.isinf(shortfall.missing_ns):
        return f"{shortfall.moment} in {shortfall.region}: no path to any offer is known"
    return (
        f"{shortfall.moment} in {shortfall.region}: the best offer is {format_duration(shortfall.missing_ns)} too slow"
    )
