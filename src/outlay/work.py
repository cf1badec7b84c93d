"""What a request asks for, and where and how fast it can be done.

Times are integer nanoseconds, rates are per second, work is counted in tokens: one prompt of 8,000 tokens is not one of
80. A *candidate* is one server: one model variant on one hardware profile at one site. What a candidate does to a
request is described by its `Service`; what it looks like right now is a signal (`signals`).
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from outlay.units import NS_PER_MS, NS_PER_S

# One KV block too many stalls a whole batch: SMG's least-load score charges 0.15 s x k / (1 - k), k the share in use.
KV_PENALTY_NS = 150 * NS_PER_MS
MOST_KV = 0.99

# A fallback at the same site may fail with what it stands in for, so it must be this much quicker.
SAME_SITE = 1.5

Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request as the router sees it.

    `path` is the class of the user's network, such as `uk/5g`; it keys what is known of the way to a site. `local` is
    the site that serves this user by default. `output_tokens` is expected, not known. `useful_tokens` is how many of
    them the person needs to perceive a result: 1 for the first token, all of them for a document.
    Raises ValueError for a negative size, or `useful_tokens` outside 1 to the larger of 1 and `output_tokens`.
    """

    id: str
    moment: str
    path: str
    input_tokens: int
    output_tokens: int
    useful_tokens: int = 1
    payload_bytes: int = 0
    local: str | None = None

    def __post_init__(self) -> None:
        if min(self.input_tokens, self.output_tokens, self.payload_bytes) < 0:
            raise ValueError("a request's sizes must not be negative")
        if not 1 <= self.useful_tokens <= max(1, self.output_tokens):
            raise ValueError(f"useful tokens must lie between 1 and the output's {self.output_tokens}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """How fast one server works, without any queue: the token-work model.

    A prompt of P tokens takes `overhead_ns + P / prefill_tokens_per_s`; a decode step of b requests takes
    `step_ns + (b - 1) * step_slope_ns`. At most `max_batch` requests run at once, holding at most `kv_tokens` tokens.
    A KV cache filled to the share k costs `kv_penalty_ns * k / (1 - k)` more.
    Raises ValueError for a rate, a step, a batch or a cache that is not above 0, or a negative time.
    """

    prefill_tokens_per_s: float
    step_ns: int
    step_slope_ns: int = 0
    overhead_ns: int = 0
    max_batch: int = 64
    kv_tokens: int = 1_000_000
    kv_penalty_ns: int = KV_PENALTY_NS

    def __post_init__(self) -> None:
        if not (self.prefill_tokens_per_s > 0 and self.step_ns > 0 and self.max_batch > 0 and self.kv_tokens > 0):
            raise ValueError("a service needs a prefill rate, a step, a batch and a KV cache above 0")
        if min(self.step_slope_ns, self.overhead_ns, self.kv_penalty_ns) < 0:
            raise ValueError("a service's times must not be negative")

    def prefill_ns(self, tokens: float) -> float:
        """Time of a prompt alone on the server."""
        return self.overhead_ns + tokens * NS_PER_S / self.prefill_tokens_per_s

    def step_of(self, batch: float) -> float:
        """Time of one decode step of `batch` requests, in ns; of one when less than one is given."""
        return self.step_ns + max(batch - 1, 0) * self.step_slope_ns


@dataclass(frozen=True, slots=True, kw_only=True)
class ColdStart:
    """What a server that holds no model costs: `start_ns` are equally likely times to load it.

    After `keep_ns` without work the model is unloaded; None means never.
    Raises ValueError without times, or for a negative one.
    """

    start_ns: tuple[int, ...]
    keep_ns: int | None = None

    def __post_init__(self) -> None:
        if not self.start_ns or min(self.start_ns) < 0 or (self.keep_ns is not None and self.keep_ns < 0):
            raise ValueError("a cold start needs at least one time, none of them negative")


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One server that may be chosen.

    `variant` names the model; `quality` is what its answers are worth, 0 to 1, declared by its owner. `price_per_s` is
    what a second of it costs, in any one currency. Raises ValueError for a quality outside 0 to 1 or a negative price.
    """

    name: str
    site: str
    variant: str
    service: Service
    hardware: str = ""
    quality: float = 1.0
    price_per_s: float = 0.0
    cold: ColdStart | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.quality <= 1 or self.price_per_s < 0:
            raise ValueError("a target's quality lies between 0 and 1, and its price is not negative")


class Fleet:
    """The candidates of a router, in a fixed order that all arrays about them follow.

    Raises ValueError for a name that two of them bear.
    """

    __slots__ = (
        "_beside",
        "_mixed",
        "_of_site",
        "_of_variants",
        "index",
        "price",
        "quality",
        "site_of",
        "sites",
        "targets",
    )

    def __init__(self, targets: Iterable[Target]) -> None:
        self.targets = tuple(targets)
        self.sites = tuple(dict.fromkeys(target.site for target in self.targets))
        self.index = {target.name: place for place, target in enumerate(self.targets)}
        if len(self.index) < len(self.targets):
            raise ValueError("two targets have the same name")
        self.site_of = np.array([self.sites.index(target.site) for target in self.targets], dtype=np.intp)
        self.quality = np.array([target.quality for target in self.targets])
        self.price = np.array([target.price_per_s for target in self.targets])
        self._of_site: dict[str | None, Mask] = {}
        self._of_variants: dict[tuple[str, ...], Mask] = {}
        self._beside: dict[str, NDArray[np.float64]] = {}
        self._mixed: dict[tuple[str, ...], bool] = {}

    def at(self, site: str | None) -> Mask:
        """Which targets stand at a site; none at a site that has none."""
        mask = self._of_site.get(site)
        if mask is None:
            mask = self._of_site[site] = np.array([target.site == site for target in self.targets], dtype=np.bool_)
        return mask

    def of(self, variants: tuple[str, ...]) -> Mask:
        """Which targets serve one of `variants`; every one when none is named."""
        mask = self._of_variants.get(variants)
        if mask is None:
            chosen = [not variants or target.variant in variants for target in self.targets]
            mask = self._of_variants[variants] = np.array(chosen, dtype=np.bool_)
        return mask

    def beside(self, site: str) -> NDArray[np.float64]:
        """How much longer each target counts as a fallback for one at a site: SAME_SITE times when it stands there."""
        factors = self._beside.get(site)
        if factors is None:
            factors = self._beside[site] = np.where(self.at(site), SAME_SITE, 1.0)
        return factors

    def is_mixed(self, variants: tuple[str, ...]) -> bool:
        """Whether the targets of `variants` differ in quality."""
        mixed = self._mixed.get(variants)
        if mixed is None:
            mixed = self._mixed[variants] = len(set(self.quality[self.of(variants)].tolist())) > 1
        return mixed
