"""What a gateway serves: where its targets answer, what each moment may cost, who may ask, and within which bounds.

Values only; `outlay.yaml` is read into them by `formats.deployment`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import sha256

from outlay.policy import DEFAULT_RULES, Policy, Rules, Rung
from outlay.units import NS_PER_MS, NS_PER_S
from outlay.work import Fleet

# The model that a client names when it leaves the choice to the gateway.
AUTO = "auto"


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Where one target answers. `prefix` goes before each path; `key_variable` names the environment variable that
    holds its credential; `metrics` is the path of its metrics page, None when it has none.
    """

    target: str
    host: str
    port: int
    tls: bool = False
    prefix: str = ""
    model: str | None = None
    key_variable: str | None = None
    metrics: str | None = "/metrics"

    @property
    def authority(self) -> str:
        """As the `Host` header names it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.tls else 80) else f"{host}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class MomentRules:
    """What one moment may cost, and what a request of it is expected to need.

    `limit_ns` None: it has no budget, and `fallback_ns` of the gateway holds. `useful_tokens` None: only the whole
    answer is of use.
    """

    name: str
    limit_ns: int | None = None
    rules: Rules = DEFAULT_RULES
    output_tokens: int = 128
    useful_tokens: int | None = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """Who may ask. The key itself is not known, only its SHA-256 in hex. Empty `moments`: all of them; limits of
    None: without.
    """

    name: str
    key_sha256: str
    moments: tuple[str, ...] = ()
    moment: str | None = None
    at_once: int | None = None
    per_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The most that one connection may ask of the gateway; sizes in bytes.

    body_bytes: of a body, which is kept whole so that it can be sent again. patience_ns: for a request to arrive once
    begun. idle_ns: between requests. slow_ns: a client that reads nothing of what waits for it is cut off. silence_ns:
    a stream that stalls is ended. drain_ns: for streams after SIGTERM. connect_ns: to reach a target.
    """

    head_bytes: int = 32 * 1024
    body_bytes: int = 4 * 1024 * 1024
    connections: int = 10_000
    patience_ns: int = 10 * NS_PER_S
    idle_ns: int = 75 * NS_PER_S
    slow_ns: int = 30 * NS_PER_S
    silence_ns: int = 10 * NS_PER_S
    drain_ns: int = 30 * NS_PER_S
    connect_ns: int = NS_PER_S


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """Everything that one gateway needs to know, besides secrets.

    `endpoints` are in the order of the fleet. `moment` is what a request is when it says nothing. A request without a
    budget, of a moment without one, has `fallback_ns`. Without `clients` nobody is asked for a key.
    """

    fleet: Fleet
    endpoints: tuple[Endpoint, ...]
    moments: Mapping[str, MomentRules]
    rtt_ns: Mapping[str, int] = field(default_factory=dict)
    host: str = "127.0.0.1"
    port: int = 8080
    moment: str = "default"
    fallback_ns: int = 60 * NS_PER_S
    clients: tuple[Client, ...] = ()
    limits: Limits = field(default_factory=Limits)
    certificate: str | None = None
    private_key: str | None = None
    authorities: str | None = None
    access_log: str | None = None
    scrape_ns: int = 200 * NS_PER_MS
    probe_ns: int = NS_PER_S

    def moment_of(self, name: str) -> MomentRules:
        """The rules of a moment; those of none in particular for one that is not declared."""
        return self.moments.get(name) or MomentRules(name=name)

    def models(self) -> tuple[str, ...]:
        """The names by which clients may ask, the gateway's own choice first."""
        return (AUTO, *dict.fromkeys(target.variant for target in self.fleet.targets))


@dataclass(frozen=True)
class Ladders:
    """The rules for each moment and each model that was asked for, worked out once."""

    deployment: Deployment
    _known: dict[tuple[str, str], Policy | None] = field(default_factory=dict)

    def policy(self, moment: str, model: str) -> Policy | None:
        """How to route a request of `moment` for `model`; None when nobody serves that model.

        A named model enters the moment's ladder at the first rung that holds it, and may go down from there; where no
        rung does, it is served by its own targets alone.
        """
        if (moment, model) not in self._known:
            variants = self._variants(model)
            if variants is None:
                return None  # not kept: clients may name anything
            rules = self.deployment.moment_of(moment).rules
            self._known[moment, model] = Policy(default=entered_at(rules, variants))
        return self._known[moment, model]

    def _variants(self, model: str) -> tuple[str, ...] | None:
        if model == AUTO:
            return ()
        return self._by_model.get(model)

    @cached_property
    def _by_model(self) -> dict[str, tuple[str, ...]]:
        """A variant by its own name, and by the name that its servers know."""
        found: dict[str, tuple[str, ...]] = {}
        for target, endpoint in zip(self.deployment.fleet.targets, self.deployment.endpoints, strict=True):
            found[target.variant] = (target.variant,)
            if endpoint.model is not None:
                found.setdefault(endpoint.model, (target.variant,))
        return found


def entered_at(rules: Rules, variants: tuple[str, ...]) -> Rules:
    """The ladder from the first rung on that serves one of `variants`, which alone are served there; empty: all."""
    if not variants:
        return rules
    for place, rung in enumerate(rules.rungs):
        if not rung.variants or set(rung.variants) & set(variants):
            first = replace(rung, variants=variants)
            # A rung below that allows any variant is, for a model that was named, one of less output.
            below = (each if each.variants else replace(each, variants=variants) for each in rules.rungs[place + 1 :])
            return replace(rules, rungs=(first, *below))
    return replace(rules, rungs=(Rung(name=variants[0], variants=variants),))


def hashed(key: str) -> str:
    """A client's key as it is kept."""
    return sha256(key.encode()).hexdigest()
