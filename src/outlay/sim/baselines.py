"""Routing policies that are in use or published, to measure Outlay against.

Each names one server for a request, of those that serve the model asked for. They trade neither models nor time: they
do not know how much of a budget is left. What they see is what Outlay's router sees. Constants are those of their
sources, named with each.
"""

import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from outlay.sim.chooser import Answer, Chooser, View
from outlay.units import NS_PER_S
from outlay.work import Fleet, Mask, Request


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What a policy may be told beforehand: the servers, each moment's limit, and which may be shed."""

    fleet: Fleet
    limits_ns: Mapping[str, int]
    sheddable: frozenset[str] = frozenset()


class _Silent:
    """A policy that learns nothing from answers."""

    def answered(self, answer: Answer, view: View) -> None:
        """Nothing is learned."""

    def failed(self, target: int, request: Request, view: View) -> None:
        """Nothing is learned."""


def _in_flight(view: View) -> "np.typing.NDArray[np.float64]":
    """What is under way at each server: our own, and what others had there when it last reported."""
    signals = view.signals
    others = np.nan_to_num(signals.others_waiting) + np.nan_to_num(signals.others_running)
    return np.asarray(signals.own_waiting + signals.own_answering + others)


def _rtt_ns(request: Request, view: View) -> "np.typing.NDArray[np.float64]":
    """The smoothed round trip to each server's site; infinity where none was measured, which is never the best."""
    of_site = view.rtt_ns.get(request.path)
    if of_site is None:
        return np.full(len(view.fleet.targets), np.inf)
    return np.nan_to_num(of_site, nan=np.inf)[view.fleet.site_of]


def _least(cost: "np.typing.NDArray[np.float64]", allowed: Mask, view: View) -> int:
    """The allowed server of the lowest cost; chance picks among equals, and among all when every cost is infinite."""
    options = allowed.nonzero()[0]
    own = cost[options]
    options = options[own == own.min()]
    return int(options[int(view.random() * len(options))])


def _two(allowed: Mask, view: View) -> Sequence[int]:
    """Two different allowed servers by chance; one where there is only one."""
    options = allowed.nonzero()[0].tolist()
    first = options.pop(int(view.random() * len(options)))
    return (first, options[int(view.random() * len(options))]) if options else (first,)


class Nearest(_Silent):
    """The nearest site, and there the server with least under way."""

    def choose(self, request: Request, allowed: Mask, view: View) -> int | None:
        rtt_ns = np.where(allowed, _rtt_ns(request, view), np.inf)
        return _least(_in_flight(view), allowed & (rtt_ns <= rtt_ns.min()), view)


class RoundRobin(_Silent):
    """One after the other."""

    def __init__(self) -> None:
        self._next = 0

    def choose(self, request: Request, allowed: Mask, view: View) -> int | None:
        options = allowed.nonzero()[0]
        self._next += 1
        return int(options[self._next % len(options)])


class Chance(_Silent):
    """Any server."""

    def choose(self, request: Request, allowed: Mask, view: View) -> int | None:
        return _least(np.zeros(len(allowed)), allowed, view)


class PowerOfTwo(_Silent):
    """Of two by chance the one with less under way (Mitzenmacher, 2001; Envoy's and Ray Serve's least request)."""

    def choose(self, request: Request, allowed: Mask, view: View) -> int | None:
        in_flight = _in_flight(view)
        return min(_two(allowed, view), key=lambda target: float(in_flight[target]))


class LeastInFlight(_Silent):
    """The server with least under way."""

    def choose(self, request: Request, allowed: Mask, view: View) -> int | None:
        return _least(_in_flight(view), allowed, view)


class PeakEwma:
    """linkerd's peak EWMA: of two by chance the lower `time x (under way + 1)`; slower times count at once, faster ones
    as the memory fades (decay 10 s, 1 s before anything was seen). A failure counts as 5 s. The time is to the first
    useful output, the way there and back in it.
    """

    decay_ns, unseen_ns, failure_ns = 10 * NS_PER_S, 1.0 * NS_PER_S, 5.0 * NS_PER_S

    def __init__(self, fleet: Fleet) -> None:
        self._time_ns = [self.unseen_ns] * len(fleet.targets)
        self._at_ns = [0] * len(fleet.targets)

    def choose(self, request: Request, allowed: Mask, view: View) -> int | None:
        pending = view.signals.own_waiting + view.signals.own_answering
        return min(_two(allowed, view), key=lambda target: self._now(target, view.now_ns) * (pending[target] + 1))

    def answered(self, answer: Answer, view: View) -> None:
        self._add(answer.target, float(answer.useful_ns), view.now_ns)

    def failed(self, target: int, request: Request, view: View) -> None:
        self._add(target, self.failure_ns, view.now_ns)

    def _now(self, target: int, now_ns: int) -> float:
        return self._time_ns[target] * math.exp(-(now_ns - self._at_ns[target]) / self.decay_ns)

    def _add(self, target: int, time_ns: float, now_ns: int) -> None:
        if time_ns > self._time_ns[target]:
            self._time_ns[target] = time_ns
        else:
            kept = math.exp(-(now_ns - self._at_ns[target]) / self.decay_ns)
            self._time_ns[target] = self._time_ns[target] * kept + time_ns * (1 - kept)
        self._at_ns[target] = now_ns


class LiteLlmLatency:
    """LiteLLM's latency-based strategy as it behaves: by the mean of up to ten times, each divided by the tokens of its
    answer; an unseen server counts as 0; the eleventh and later ones overwrite the tenth. Lists expire after an hour.
    """

    most, expires_ns = 10, 3600 * NS_PER_S

    def __init__(self, fleet: Fleet) -> None:
        self._times: list[list[float]] = [[] for _ in fleet.targets]
        self._begun_ns = [0] * len(fleet.targets)

    def choose(self, request: Request, allowed: Mask, view: View) -> int | None:
        return _least(np.array([float(np.mean(times)) if times else 0.0 for times in self._times]), allowed, view)

    def answered(self, answer: Answer, view: View) -> None:
        times = self._times[answer.target]
        if times and view.now_ns - self._begun_ns[answer.target] > self.expires_ns:
            times.clear()
        if not times:
            self._begun_ns[answer.target] = view.now_ns
        per_token = answer.first_ns / max(answer.output_tokens, 1)
        if len(times) < self.most:
            times.append(per_token)
        else:
            times[-1] = per_token

    def failed(self, target: int, request: Request, view: View) -> None:
        """Failures that are no time-outs are not in its lists."""


@dataclass(slots=True)
class _Probe:
    target: int
    in_flight: float
    at_ns: int
    uses: float


class Prequal:
    """Prequal's hot-cold rule (NSDI 2024) on a pool of up to 16 probes of at most 1 s, three a request.

    A probe's answer is the newest report of a server chosen by chance. Servers above the 2^-0.25 quantile of what was
    seen under way are hot: of cold ones the quickest is taken, with only hot ones the least busy. With fewer than two
    probes, of two by chance. Quickness is the median of recent times near the same load, the way there and back in it.
    """

    pool, per_request, most_age_ns, delta, remembered = 16, 3, NS_PER_S, 1.0, 64
    quantile = 2**-0.25

    def __init__(self, fleet: Fleet) -> None:
        self._pool: list[_Probe] = []
        self._seen: deque[float] = deque(maxlen=self.remembered)
        self._times: list[deque[tuple[float, float]]] = [deque(maxlen=32) for _ in fleet.targets]
        self._load_then: dict[str, float] = {}
        self._worst_next = False

    def choose(self, request: Request, allowed: Mask, view: View) -> int | None:
        self._probe(allowed, view)
        usable = [
            probe for probe in self._pool if allowed[probe.target] and view.now_ns - probe.at_ns <= self.most_age_ns
        ]
        if len(usable) < 2:
            in_flight = _in_flight(view)
            chosen = min(_two(allowed, view), key=lambda target: float(in_flight[target]))
            self._load_then[request.id] = float(in_flight[chosen])
            return chosen
        limit = float(np.quantile(np.array(self._seen), self.quantile))
        cold = [probe for probe in usable if probe.in_flight <= limit]
        best = min(cold, key=self._time_ns) if cold else min(usable, key=lambda probe: probe.in_flight)
        self._use(best, usable, limit)
        self._load_then[request.id] = best.in_flight
        return best.target

    def reuse_limit(self, servers: int) -> float:
        """How often one probe may be used: `(1 + delta) / ((1 - m / n) r_probe - r_remove)`, at least 1, at most 16."""
        rest = (1 - self.pool / servers) * self.per_request - 1.0
        return float(self.pool) if rest <= 0 else min(max(1.0, (1 + self.delta) / rest), float(self.pool))

    def _probe(self, allowed: Mask, view: View) -> None:
        options = allowed.nonzero()[0].tolist()
        in_flight = _in_flight(view)
        uses = self.reuse_limit(len(options))
        for _ in range(min(self.per_request, len(options))):
            target = options.pop(int(view.random() * len(options)))
            # The mean number of uses is kept by rounding by chance.
            whole = math.floor(uses) + (view.random() < uses % 1)
            self._pool = [probe for probe in self._pool if probe.target != target]
            self._pool.append(_Probe(target, float(in_flight[target]), view.now_ns, whole))
            self._seen.append(float(in_flight[target]))
        self._pool = self._pool[-self.pool :]

    def _use(self, best: _Probe, usable: Sequence[_Probe], limit: float) -> None:
        # What we send is not in the probe: add it.
        best.in_flight += 1
        best.uses -= 1
        if best.uses <= 0:
            self._pool.remove(best)
        if len(self._pool) > 2:
            # One goes with each request, in turns the oldest and the worst.
            hot = [probe for probe in self._pool if probe.in_flight > limit]
            worst = max(hot, key=lambda probe: probe.in_flight) if hot else max(self._pool, key=self._time_ns)
            self._pool.remove(worst if self._worst_next else self._pool[0])
            self._worst_next = not self._worst_next

    def _time_ns(self, probe: _Probe) -> float:
        near = sorted(self._times[probe.target], key=lambda seen: abs(seen[0] - probe.in_flight))[:9]
        return float(np.median([time_ns for _, time_ns in near])) if near else 0.0

    def answered(self, answer: Answer, view: View) -> None:
        load = self._load_then.pop(answer.request.id, 0.0)
        self._times[answer.target].append((load, float(answer.useful_ns)))

    def failed(self, target: int, request: Request, view: View) -> None:
        # A server that fails fast must not look quick.
        self._load_then.pop(request.id, None)
        self._pool = [probe for probe in self._pool if probe.target != target]


class Gorgo(_Silent):
    """GORGO's cost (arXiv 2602.11688): round trip plus time per token of all that is queued, running and asked for."""

    def __init__(self, fleet: Fleet) -> None:
        self._ns_per_token = np.array([NS_PER_S / target.service.prefill_tokens_per_s for target in fleet.targets])

    def choose(self, request: Request, allowed: Mask, view: View) -> int | None:
        signals = view.signals
        tokens = signals.own_prefill + signals.own_decode + request.input_tokens
        return _least(_rtt_ns(request, view) + self._ns_per_token * tokens, allowed, view)


class LMetric(_Silent):
    """LMetric (arXiv 2603.15202): new prefill tokens times batch."""

    def choose(self, request: Request, allowed: Mask, view: View) -> int | None:
        tokens = view.signals.own_prefill + request.input_tokens
        return _least(tokens * (_in_flight(view) + 1), allowed, view)


@dataclass(slots=True)
class SloHeader(_Silent):
    """A static service level on each request, as llm-d's: predicted time to the first output on the server against a
    constant. Of those that keep it the one with the least headroom; if none does, what may be shed is refused, and the
    rest goes where the idle ones are or the least is missing. It knows no network and no time already spent.
    """

    setting: Setting
    ns_per_token: "np.typing.NDArray[np.float64]" = field(init=False)
    overhead_ns: "np.typing.NDArray[np.float64]" = field(init=False)

    def __post_init__(self) -> None:
        services = [target.service for target in self.setting.fleet.targets]
        self.ns_per_token = np.array([NS_PER_S / service.prefill_tokens_per_s for service in services])
        self.overhead_ns = np.array([float(service.overhead_ns) for service in services])

    def choose(self, request: Request, allowed: Mask, view: View) -> int | None:
        waiting = view.signals.own_waiting + np.nan_to_num(view.signals.others_waiting)
        tokens = view.signals.own_prefill + request.input_tokens
        first_ns = (waiting + 1) * self.overhead_ns + tokens * self.ns_per_token
        headroom_ns = self.setting.limits_ns[request.moment] - first_ns
        keeps = allowed & (headroom_ns >= 0)
        if keeps.any():
            return _least(headroom_ns, keeps, view)
        if request.moment in self.setting.sheddable:
            return None
        return _least(first_ns, allowed, view)


class CloudOnly(_Silent):
    """The best model at the site with most servers of it, whatever was asked for; there the least busy one."""

    def choose(self, request: Request, allowed: Mask, view: View) -> int | None:
        fleet = view.fleet
        best = fleet.quality >= fleet.quality.max()
        largest = np.bincount(fleet.site_of[best]).argmax()
        return _least(_in_flight(view), best & (fleet.site_of == largest), view)


class EdgeOnly(_Silent):
    """The smallest model at the nearest site that has it, whatever was asked for; there the least busy one."""

    def choose(self, request: Request, allowed: Mask, view: View) -> int | None:
        fleet = view.fleet
        small = fleet.quality <= fleet.quality.min()
        rtt_ns = np.where(small, _rtt_ns(request, view), np.inf)
        return _least(_in_flight(view), small & (rtt_ns <= rtt_ns.min()), view)


BASELINES: Mapping[str, Callable[[Setting], Chooser]] = {
    "nearest": lambda setting: Nearest(),
    "round-robin": lambda setting: RoundRobin(),
    "random": lambda setting: Chance(),
    "p2c": lambda setting: PowerOfTwo(),
    "least-in-flight": lambda setting: LeastInFlight(),
    "peak-ewma": lambda setting: PeakEwma(setting.fleet),
    "litellm-latency": lambda setting: LiteLlmLatency(setting.fleet),
    "prequal": lambda setting: Prequal(setting.fleet),
    "gorgo": lambda setting: Gorgo(setting.fleet),
    "lmetric": lambda setting: LMetric(),
    "slo-header": SloHeader,
    "cloud-only": lambda setting: CloudOnly(),
    "edge-only": lambda setting: EdgeOnly(),
}

ABOUT: Mapping[str, str] = {
    "nearest": "the nearest site, and there the least busy server",
    "round-robin": "one server after the other",
    "random": "any server",
    "p2c": "of two by chance the less busy one",
    "least-in-flight": "the least busy server",
    "peak-ewma": "linkerd's: of two by chance the lower time x busyness, slow times counting at once",
    "litellm-latency": "LiteLLM's lists of ten latencies, as they behave",
    "prequal": "the hot-cold rule on asynchronous probes",
    "gorgo": "round trip plus the time of all tokens queued",
    "lmetric": "new prompt tokens x batch",
    "slo-header": "a constant service level on each request, as llm-d's",
    "cloud-only": "the best model at the largest site",
    "edge-only": "the smallest model at the nearest site",
}
