"""What to do when time is short, as data: the ladder of each moment, and how much risk each step may take."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from outlay.units import NS_PER_MS

Last = Literal["refuse", "defer"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rung:
    """One way to serve: by any of `variants` (empty: by any at all), with `output_share` of the output asked for.

    Raises ValueError for a share outside (0, 1].
    """

    name: str
    variants: tuple[str, ...] = ()
    output_share: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.output_share <= 1:
            raise ValueError(f"an output share lies above 0 and at most at 1, not at {self.output_share}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Hedge:
    """When a second attempt may run beside a slow first one.

    after: the quantile of the first's own time after which it is slow; 0.95 costs about 5 % more load, 0.98 about
    2 % (Dean and Barroso, "The Tail at Scale", 2013). gain: how much more likely the second must be on time.
    """

    after: float = 0.95
    gain: float = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """How one moment is routed. Probabilities lie in (0, 1), times are in ns.

    rungs: ways to serve, best first; last: what is left when none is on time.
    p_min: how likely on time a choice must be. p_floor: below this nothing is served that would have to queue, because
    it would make others late; where nothing queues, any chance is taken. Both refuse nobody who can be on time.
    render_ns: kept back for the device that shows the result. margin_ns: between an attempt's deadline and the
    fallback's start. attempts: the most one interaction may cost, the first included.
    local_share: the user's own site keeps the request unless another one saves this share of what remains (Envoy's
    local snap: 0.1). tie_ns, tie_share: candidates this close are one, and chance picks, so that several routers do
    not run to the same one. explore: share of the eligible that goes to a random one that is likely on time
    (llm-d 1 %, Cloudflare 1 %, Envoy 3 %).
    sheddable: turned away first, some of it from `shed_from` on and all at four times that, which is the share of other
    requests that waiting would have made late (DAGOR sheds by class before it sheds by chance).
    """

    rungs: tuple[Rung, ...] = (Rung(name="any"),)
    last: Last = "refuse"
    p_min: float = 0.95
    p_floor: float = 0.9
    render_ns: int = 0
    margin_ns: int = 10 * NS_PER_MS
    attempts: int = 2
    local_share: float = 0.1
    tie_ns: int = 2 * NS_PER_MS
    tie_share: float = 0.02
    explore: float = 0.01
    sheddable: bool = False
    shed_from: float = 0.02
    hedge: Hedge | None = None
    # Every variant that some rung allows; empty when one allows any.
    variants: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        if not self.rungs:
            raise ValueError("a ladder needs at least one way to serve")
        if not (0 < self.p_floor <= self.p_min < 1):
            raise ValueError("p_floor must lie above 0 and at most at p_min, and p_min below 1")
        if not (0 <= self.explore < 1 and self.attempts >= 1):
            raise ValueError("the share to explore lies in [0, 1), and there is at least one attempt")
        every = dict.fromkeys(variant for rung in self.rungs for variant in rung.variants)
        whole = any(not rung.variants for rung in self.rungs)
        object.__setattr__(self, "variants", () if whole else tuple(every))


DEFAULT_RULES = Rules()


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """The rules of every moment; a moment without rules of its own follows `default`."""

    moments: Mapping[str, Rules] = field(default_factory=dict)
    default: Rules = DEFAULT_RULES

    def of(self, moment: str) -> Rules:
        """The rules that hold for a moment."""
        return self.moments.get(moment, self.default)
