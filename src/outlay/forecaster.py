"""What makes forecasts: the token-work model as a prior, corrected by what its predictions were worth.

Server time is predicted as `max(tokens ahead / R, slots short x time a slot takes) + overhead + prompt / R + steps`,
plus a penalty for a full KV cache (token-work load: SMG, GORGO, llm-d). Queue and slots hold up the same requests, so
the larger of the two counts, not their sum. The ratio of what was observed to what was predicted is kept by target,
moment and load, in histograms that forget; few observations lean on those of all targets alike, and before there are
any, on a stated prior. This makes any bias of the model, of stale signals and of having picked the best-looking
candidate part of the next prediction: a split conformal correction whose calibration set forgets.

An observation that was cut short says only that the truth is longer: its weight is spread over what is known of longer
ones (redistribution to the right: Efron, "The two sample problem with censored data", 1967).
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from outlay.decaying import LEVELS, PER_OCTAVE, DecayingHistogram, Floats
from outlay.forecast import BUCKETS, CLAIMS, EDGES, HIGH, LOW, Expectation, Forecasts, promised
from outlay.signals import NEVER, WAITING_HALF_NS, Alarm, Signal, Signals
from outlay.units import NS_PER_S
from outlay.work import MOST_KV, Request

# What every observation of server time must mean; anything else would be learned as a slower server.
MEASURES = "arrival at the server to the first useful output, in ns"

# Load classes: nothing waits, less waits than the request itself takes, more waits.
LOADS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Learning:
    """How fast is learned and forgotten.

    half_life_ns: of ratios, 60 s; network_half_life_ns: of paths, 60 s; error_half_life_ns: of failures, 8 s, so that a
    server that is back is used again within a minute.
    prior_weight: how many observations the prior is worth; prior_octaves: its standard deviation, in doublings.
    cell_weight: how many of its own a cell needs before they weigh as much as those of all targets.
    enough: from how many on a cell is called calibrated.
    promise_half_life_ns, promise_weight: of promises broken, 60 s; how many late ones it begins with.
    path_tau_ns: age at which what is known of a path is as uncertain again (10 to 30 s: routing practice).
    most_spread: the largest widening of a path by age.
    age_variance: what an old report adds to the variance of a prediction that rests on it alone, in units of its own.
    """

    half_life_ns: int = 60 * NS_PER_S
    network_half_life_ns: int = 60 * NS_PER_S
    error_half_life_ns: int = 8 * NS_PER_S
    prior_weight: float = 10.0
    prior_octaves: float = 0.5
    cell_weight: float = 100.0
    enough: float = 100.0
    promise_half_life_ns: int = 60 * NS_PER_S
    promise_weight: float = 1.0
    path_tau_ns: int = 20 * NS_PER_S
    most_spread: float = 4.0
    age_variance: float = 8.0
    default_error: float = 0.001


DEFAULT_LEARNING = Learning()

_CENTRES = (EDGES[1:] + EDGES[:-1]) / 2
# Beyond this many doublings a median ratio is no error of a model but of a unit or an event.
_SUSPICIOUS_OCTAVES = 2.0
_SUSPICIOUS_COUNT = 30.0
_LEAST_LATE, _MOST_LATE = 0.1, 20.0


class Forecaster:
    """Learns from what came of attempts, and forecasts.

    `prior_rtt_ns` is what a path to a site is expected to take, both ways, before any of it was seen; a pair that is
    neither declared nor seen is unknown, and its candidates are not forecast.
    """

    def __init__(
        self,
        signals: Signals,
        *,
        learning: Learning = DEFAULT_LEARNING,
        prior_rtt_ns: Mapping[tuple[str, str], int] | None = None,
        typical_tokens: tuple[float, float] = (512.0, 128.0),
    ) -> None:
        fleet = signals.fleet
        self.signals = signals
        self.fleet = fleet
        self.learning = learning
        self._prior_rtt_ns = prior_rtt_ns or {}
        self._input, self._output = typical_tokens
        services = [target.service for target in fleet.targets]
        self._ns_per_token = np.array([NS_PER_S / service.prefill_tokens_per_s for service in services])
        self._overhead = np.array([float(service.overhead_ns) for service in services])
        self._step = np.array([float(service.step_ns) for service in services])
        self._slope = np.array([float(service.step_slope_ns) for service in services])
        self._batch = np.array([float(service.max_batch) for service in services])
        self._penalty = np.array([float(service.kv_penalty_ns) for service in services])
        self._site = np.array(fleet.site_of, dtype=np.intp)
        self._cold = [place for place, target in enumerate(fleet.targets) if target.cold is not None]
        self._starting: dict[int, int] = {}
        self._ratios = _Ratios(learning)
        self._paths: dict[str, _Path] = {}
        self._promises: dict[str, _Promises] = {}
        self._failures = _Failures(len(fleet.targets), learning)

    # Learning

    def network(self, path: str, site: str, network_ns: float, at_ns: int) -> None:
        """A path took this long, both ways, the payload's own time left out. A site that is no target's is ignored."""
        if site in self.fleet.sites:
            self._path(path).add(self.fleet.sites.index(site), network_ns, at_ns)

    def learn(self, expected: Expectation, service_ns: float, at_ns: int, *, measures: str = MEASURES) -> None:
        """The server took this long. Raises ValueError when something else than MEASURES was measured."""
        self._check(measures)
        self._observed(expected, service_ns, at_ns, cut=False)
        self._failures.add(expected.target, False, at_ns)

    def learn_cut(self, expected: Expectation, service_ns: float, at_ns: int, *, measures: str = MEASURES) -> None:
        """The server would have taken longer than this: we did not wait. Raises ValueError as `learn`."""
        self._check(measures)
        self._observed(expected, service_ns, at_ns, cut=True)

    def kept(self, expected: Expectation, plain: float, on_time: bool, at_ns: int) -> None:
        """What came of a choice whose plain probability of being on time was this."""
        self._promises.setdefault(expected.moment, _Promises(self.learning)).add(expected.load, plain, on_time, at_ns)

    def failed(self, target: int, at_ns: int) -> None:
        """The target failed an attempt, for a reason that is its own: not a client's error, not our cancelling."""
        self._failures.add(target, True, at_ns)

    def sizes(self, input_tokens: int, output_tokens: int) -> None:
        """What a request turned out to be; work that is only known as a number of requests is counted in these."""
        self._input += 0.02 * (input_tokens - self._input)
        self._output += 0.02 * (output_tokens - self._output)

    def starting(self, target: int, at_ns: int) -> None:
        """A cold target was sent work, so it is loading since now at the latest."""
        self._starting.setdefault(target, at_ns)

    def warm(self, target: int) -> None:
        """The target answered: it holds its model."""
        self._starting.pop(target, None)

    def settle(self, now_ns: int) -> None:
        """Work out now what follows from what was learned, so that the next forecast does not have to."""
        for path in self._paths.values():
            path.settle()
        for promises in self._promises.values():
            promises.late(now_ns)

    def alarms(self, now_ns: int) -> Iterator[Alarm]:
        """Of the signals, and of predictions so far off that something else must have been measured."""
        yield from self.signals.alarms(now_ns)
        for target, octaves in self._ratios.far_off(now_ns):
            how = "shorter" if octaves < 0 else "longer"
            yield Alarm(
                kind="units",
                target=self.fleet.targets[target].name,
                text=f"takes {2 ** abs(octaves):.0f} times {how} than its service model says: is it {MEASURES}?",
            )

    # For people

    def of(self, target: int, now_ns: int) -> dict[str, Signal]:
        """All live signals of one target: its own, how likely it fails, and how likely it must load its model first."""
        share, count = self._failures.shares(now_ns)[target], self._failures.counts(now_ns)[target]
        failure = Signal(
            value=float(share),
            sigma=math.sqrt(share * (1 - share) / (1 + count)),
            age_ns=max(now_ns - int(self._failures.at_ns[target]), 0),
            source="own",
        )
        found = self.signals.of(target, now_ns) | {"failure": failure}
        if self.fleet.targets[target].cold is not None:
            cold = 1.0 if target in self._starting else self._cold_share(target, now_ns)
            sigma = math.sqrt(cold * (1 - cold))
            found["cold"] = Signal(value=cold, sigma=sigma, age_ns=0, source="own")
        return found

    def path_of(self, path: str, site: str, now_ns: int) -> Signal | None:
        """The round trip of a class of users to a site: its median and spread; None where nothing is known of it."""
        if site not in self.fleet.sites:
            return None
        return self._path(path).signal(self.fleet.sites.index(site), now_ns)

    def _check(self, measures: str) -> None:
        if measures != MEASURES:
            raise ValueError(f"forecasts are of {MEASURES!r}; an observation of {measures!r} cannot be learned from")

    def _observed(self, expected: Expectation, service_ns: float, at_ns: int, *, cut: bool) -> None:
        ratio = max(service_ns, 1.0) / expected.service_ns
        self._ratios.add(expected, math.log2(ratio), at_ns, cut=cut)

    # Forecasting

    def forecasts(
        self,
        request: Request,
        now_ns: int,
        usable: "np.typing.NDArray[np.bool_]",
        *,
        spare: "np.typing.NDArray[np.bool_] | None" = None,
    ) -> Forecasts:
        """The time ahead of every target of the fleet for this request. It holds until something more is learned."""
        signals, learning = self.signals, self.learning
        useful = request.useful_tokens
        others_waiting, others_running = signals.others(now_ns)
        unknown = np.isnan(others_waiting)
        if unknown.any():
            others_waiting, others_running = np.nan_to_num(others_waiting), np.nan_to_num(others_running)
        waiting = signals.own_waiting + others_waiting
        running = signals.own_answering + others_running
        tokens = signals.own_prefill + others_waiting * self._input
        step = self._step + np.minimum(running + waiting, self._batch - 1) * self._slope
        short = np.maximum(waiting + running + 1 - self._batch, 0.0)
        wait = np.maximum(
            waiting * self._overhead + tokens * self._ns_per_token, short * self._output * step / self._batch
        )
        cache = np.minimum(np.nan_to_num(signals.cache), MOST_KV)
        wait += self._penalty * cache / (1.0 - cache)
        alone = self._overhead + request.input_tokens * self._ns_per_token + (useful - 1) * step
        service = wait + alone
        load = (wait > 0).astype(np.intp) + (wait > alone)

        # Own work has no age: only the part of the prediction that rests on others' work, or should, is widened. A
        # report as old as a queue lives says nothing more, and there the widening ends.
        others = others_waiting * self._input * self._ns_per_token / service
        part = np.where(unknown, 0.5, np.minimum(others, 1.0))
        age_ns = now_ns - signals.reported_at_ns
        spread = np.sqrt(1.0 + learning.age_variance * part * (1.0 - np.exp2(-age_ns / WAITING_HALF_NS)))

        network = self._path(request.path).points(now_ns, learning)[self._site]
        if request.payload_bytes:
            network = network + self._path(request.path).payload_ns(request.payload_bytes)[self._site, None]
        rows, calibrated = self._ratios.rows(request.moment, load, now_ns)
        cold, cold_ns = self._cold_starts(now_ns)
        return Forecasts(
            fleet=self.fleet,
            moment=request.moment,
            network_ns=network,
            service_ns=service,
            step_ns=step,
            useful_tokens=useful,
            wait_ns=wait,
            cdf=self._ratios.cdf,
            middle=self._ratios.middle,
            row=rows,
            load=load,
            spread=spread,
            cold=cold,
            cold_ns=cold_ns,
            failure=self._failures.shares(now_ns),
            usable=usable,
            calibrated=calibrated,
            late=promises.late(now_ns) if (promises := self._promises.get(request.moment)) else None,
            pressure=signals.pressure(now_ns),
            spare=spare,
        ).prepared()

    def throughput(self, path: str, bytes_per_s: float) -> None:
        """What a path carries towards the service. Raises ValueError unless above 0."""
        if not bytes_per_s > 0:
            raise ValueError("a throughput must be above 0 bytes a second")
        self._path(path).bytes_per_s = bytes_per_s

    def _path(self, path: str) -> "_Path":
        known = self._paths.get(path)
        if known is None:
            prior = [self._prior_rtt_ns.get((path, site)) for site in self.fleet.sites]
            known = self._paths[path] = _Path(prior, self.learning)
        return known

    def _cold_starts(self, now_ns: int) -> tuple[Floats, dict[int, Floats]]:
        cold = np.zeros(len(self.fleet.targets))
        cold_ns: dict[int, Floats] = {}
        for target in self._cold:
            start = self.fleet.targets[target].cold
            since_ns = self._starting.get(target)
            share = 1.0 if since_ns is not None else self._cold_share(target, now_ns)
            if start is not None and share > 0:
                cold[target] = share
                elapsed_ns = 0 if since_ns is None else now_ns - since_ns
                # Times that have passed already are out: the start is at least that long.
                left = [float(each - elapsed_ns) for each in start.start_ns if each > elapsed_ns]
                cold_ns[target] = np.array(left or [max(start.start_ns) * 0.25])
        return cold, cold_ns

    def _cold_share(self, target: int, now_ns: int) -> float:
        """How likely it is that the model must be loaded: certain long after its last work, unknown before any."""
        start, signals = self.fleet.targets[target].cold, self.signals
        if start is None or signals.own_requests(target) > 0:
            return 0.0
        busy_ns = int(max(signals.busy_at_ns[target], signals.idle_since_ns[target]))
        if busy_ns == NEVER:
            return 1.0 if start.keep_ns == 0 else 0.5
        if start.keep_ns is None:
            return 0.0
        idle = (now_ns - busy_ns) / max(start.keep_ns, 1)
        return min(max((idle - 0.9) / 0.2, 0.0), 1.0)


class _Path:
    """The network time of one class of users to every site."""

    def __init__(self, prior_rtt_ns: Sequence[int | None], learning: Learning) -> None:
        self.bytes_per_s = math.inf
        self._learning = learning
        self._seen = [
            DecayingHistogram(low=16, high=36, half_life_ns=learning.network_half_life_ns) for _ in prior_rtt_ns
        ]
        self._prior = prior_rtt_ns
        self._points = np.full((len(prior_rtt_ns), len(LEVELS)), np.nan)
        self._at_ns = np.full(len(prior_rtt_ns), np.inf)
        self._dirty = set(range(len(prior_rtt_ns)))

    def add(self, site: int, network_ns: float, at_ns: int) -> None:
        seen, prior_ns = self._seen[site], self._prior[site]
        if seen.at_ns is None and prior_ns is not None:
            # The prior is a few observations about the declared time, which real ones soon outweigh.
            for factor in (0.9, 1.0, 1.0, 1.2, 2.0):
                seen.add(max(prior_ns, 1) * factor, at_ns, self._learning.prior_weight / 5 * 0.2)
        seen.add(max(network_ns, 1.0), at_ns)
        self._dirty.add(site)

    def points(self, now_ns: int, learning: Learning) -> Floats:
        """A row for each site, a column for each of LEVELS."""
        self.settle()
        age = np.maximum(now_ns - self._at_ns, 0.0) / learning.path_tau_ns
        factor = np.minimum(np.sqrt(1.0 + age), learning.most_spread)[:, None]
        middle = self._points[:, len(LEVELS) // 3 : len(LEVELS) // 3 + 1]
        # Nothing is faster than half of the fastest seen: widening must not invent a shorter path.
        return np.asarray(np.maximum(middle + (self._points - middle) * factor, self._points[:, :1] / 2))

    def settle(self) -> None:
        """Work out the points of what was added to."""
        for site in self._dirty:
            self._refresh(site)
        self._dirty.clear()

    def signal(self, site: int, now_ns: int) -> Signal | None:
        """What is known of one site; half of the distance from its p16 to its p84 stands for the standard deviation."""
        points = self.points(now_ns, self._learning)[site]
        if np.isnan(points[0]):
            return None
        low, middle, high = np.interp((0.16, 0.5, 0.84), LEVELS, points)
        seen_ns = self._seen[site].at_ns
        return Signal(
            value=float(middle),
            sigma=float(high - low) / 2,
            age_ns=0 if seen_ns is None else max(now_ns - seen_ns, 0),
            source="declared" if seen_ns is None else "measured",
        )

    def payload_ns(self, payload_bytes: int) -> Floats:
        """Sending: bytes over throughput, and the round trips of a slow start, `log2(1 + bytes / 14 KB)` of them."""
        rounds = math.log2(1 + payload_bytes / 14_336)
        middle = self._points[:, len(LEVELS) // 3]
        return np.asarray(payload_bytes / self.bytes_per_s * NS_PER_S + rounds * middle)

    def _refresh(self, site: int) -> None:
        seen, prior_ns = self._seen[site], self._prior[site]
        if seen.at_ns is not None:
            self._points[site] = seen.quantiles(LEVELS)
            self._at_ns[site] = seen.at_ns
        elif prior_ns is not None:
            # Unseen: about the declared time, with the right tail that networks have.
            self._points[site] = max(prior_ns, 1) * (1 - 0.1 * np.log1p(-LEVELS))


class _Ratios:
    """log2 of observed over predicted server time, by load, moment and target; rows of one table of CDFs."""

    def __init__(self, learning: Learning) -> None:
        self._learning = learning
        self._cells: dict[tuple[int, str, int], DecayingHistogram] = {}
        self._rows: dict[tuple[int, str, int], int] = {}
        self._of_moment: dict[str, np.typing.NDArray[np.intp]] = {}
        prior = np.exp(-0.5 * (_CENTRES / learning.prior_octaves) ** 2)
        self._prior = prior / prior.sum()
        self.cdf = np.empty((0, BUCKETS + 1))
        self.middle = np.empty(0)
        self._enough = np.empty(0, dtype=np.bool_)
        self._aged_ns = 0

    def rows(
        self, moment: str, load: "np.typing.NDArray[np.intp]", now_ns: int
    ) -> "tuple[np.typing.NDArray[np.intp], np.typing.NDArray[np.bool_]]":
        """For every target the row for its load, and whether it holds enough."""
        if now_ns - self._aged_ns > self._learning.half_life_ns // 4:
            self._age(now_ns)
        table = self._of_moment.get(moment)
        if table is None or table.shape[1] < len(load):
            table = self._new_moment(moment, len(load))
        rows = table[load, np.arange(len(load))]
        return rows, self._enough[rows]

    def add(self, expected: Expectation, octaves: float, at_ns: int, *, cut: bool) -> None:
        load, moment, target = expected.load, expected.moment, expected.target
        if moment not in self._of_moment:
            return
        middle = self.middle[self._of_moment[moment][load, target]]
        # Learned in units of the spread that was claimed, so that age widens once, not twice.
        standard = middle + (octaves - middle) / expected.spread
        for key in ((load, moment, -1), (load, moment, target)):
            cell = self._cells.get(key)
            if cell is None:
                cell = self._cells[key] = DecayingHistogram(
                    low=LOW, high=HIGH, half_life_ns=self._learning.half_life_ns
                )
            if cut:
                self._add_cut(cell, self._row(key), standard, at_ns)
            else:
                cell.add(2.0 ** min(max(standard, LOW), HIGH), at_ns)
        self._refresh((load, moment, -1), at_ns)
        if self._rows.get((load, moment, target)) is None:
            self._own_row(load, moment, target)
        self._refresh((load, moment, target), at_ns)

    def far_off(self, now_ns: int) -> Iterator[tuple[int, float]]:
        for (_, _, target), cell in self._cells.items():
            if target >= 0 and cell.count(now_ns) >= _SUSPICIOUS_COUNT:
                octaves = float(np.log2(cell.quantiles(np.array([0.5]))[0]))
                if abs(octaves) > _SUSPICIOUS_OCTAVES:
                    yield target, octaves

    def _age(self, now_ns: int) -> None:
        """Let what nobody confirmed of late fade, parents first: an avoided target must not stay bad for ever."""
        self._aged_ns = now_ns
        for key in sorted(self._cells, key=lambda key: key[2] >= 0):
            self._refresh(key, now_ns)

    def _row(self, key: tuple[int, str, int]) -> int:
        return self._rows.get(key, self._rows[key[0], key[1], -1])

    def _add_cut(self, cell: DecayingHistogram, row: int, standard: float, at_ns: int) -> None:
        place = min(max(int((standard - LOW) * PER_OCTAVE), 0), BUCKETS - 1)
        beyond = np.diff(self.cdf[row])[place:]
        total = float(beyond.sum())
        if total <= 0:
            cell.add(2.0 ** min(standard + 1.0, HIGH), at_ns)
            return
        for bucket in np.flatnonzero(beyond > 0.01 * total):
            cell.add(2.0 ** float(_CENTRES[place + bucket]), at_ns, float(beyond[bucket] / total))

    def _new_moment(self, moment: str, size: int) -> "np.typing.NDArray[np.intp]":
        table = np.empty((LOADS, size), dtype=np.intp)
        for load in range(LOADS):
            table[load] = self._rows[load, moment, -1] = self._append(self._prior)
        self._of_moment[moment] = table
        return table

    def _own_row(self, load: int, moment: str, target: int) -> None:
        row = self._append(self._prior)
        self._rows[load, moment, target] = row
        self._of_moment[moment][load, target] = row

    def _append(self, shares: Floats) -> int:
        self.cdf = np.concatenate([self.cdf, np.concatenate([[0.0], np.cumsum(shares)])[None]])
        self.middle = np.append(self.middle, 0.0)
        self._enough = np.append(self._enough, False)
        return len(self.middle) - 1

    def _refresh(self, key: tuple[int, str, int], now_ns: int) -> None:
        learning, row = self._learning, self._rows[key]
        counts = self._cells[key].counts(now_ns)
        own = float(counts.sum())
        if key[2] < 0:
            base, weight = self._prior, learning.prior_weight
        else:
            base, weight = np.diff(self.cdf[self._rows[key[0], key[1], -1]]), learning.cell_weight
        shares = (counts + base * weight) / (own + weight)
        cdf = np.concatenate([[0.0], np.cumsum(shares)])
        self.cdf[row] = cdf
        self.middle[row] = np.interp(0.5, cdf, EDGES)
        self._enough[row] = own >= learning.enough


class _Failures:
    """How often each target fails, lately; without news the memory fades back to the default."""

    def __init__(self, size: int, learning: Learning) -> None:
        self._half_life_ns = learning.error_half_life_ns
        self._default = learning.default_error
        self._all = np.zeros(size)
        self._failed = np.zeros(size)
        self.at_ns = np.zeros(size)

    def add(self, target: int, failed: bool, at_ns: int) -> None:
        kept = 2.0 ** (-max(at_ns - self.at_ns[target], 0.0) / self._half_life_ns)
        self._all[target] = self._all[target] * kept + 1.0
        self._failed[target] = self._failed[target] * kept + float(failed)
        self.at_ns[target] = max(at_ns, self.at_ns[target])

    def shares(self, now_ns: int) -> Floats:
        """One observation's worth of the default, so that two failures in a row already count for much."""
        kept = np.exp2((self.at_ns - now_ns) / self._half_life_ns)
        return np.asarray((self._default + self._failed * kept) / (1.0 + self._all * kept))

    def counts(self, now_ns: int) -> Floats:
        """How many attempts at each target are still remembered."""
        return np.asarray(self._all * np.exp2((self.at_ns - now_ns) / self._half_life_ns))


class _Promises:
    """How much more often results were late than was promised, as what log-odds must rise by, claim by claim.

    Whoever looks best among many is so in part by luck, which no forecast of a single one can show. What became of the
    chosen ones shows it, load class by load class: where something waits, other chances are taken than where nothing
    does. A claim between two of CLAIMS counts for both, for the nearer one more.
    """

    def __init__(self, learning: Learning) -> None:
        self._half_life_ns = learning.promise_half_life_ns
        self._weight = learning.promise_weight
        self._expected = np.zeros((LOADS, len(CLAIMS)))
        self._seen = np.zeros((LOADS, len(CLAIMS)))
        self._at_ns = 0
        self._table: Floats | None = None

    def add(self, load: int, plain: float, on_time: bool, at_ns: int) -> None:
        share = self._share(at_ns)
        claims = np.interp(plain, CLAIMS, np.arange(len(CLAIMS)))
        weights = np.maximum(1.0 - np.abs(np.arange(len(CLAIMS)) - claims), 0.0)
        self._expected *= share
        self._seen *= share
        self._expected[load] += weights * (1.0 - plain)
        self._seen[load] += weights * float(not on_time)
        self._at_ns = max(at_ns, self._at_ns)
        self._table = None

    def late(self, now_ns: int) -> Floats:
        """What may be promised at each of `forecast.SIDE_BY_SIDE`; worked out anew when something came of a promise."""
        if self._table is None:
            share = self._share(now_ns)
            factors = (self._seen * share + self._weight) / (self._expected * share + self._weight)
            rises = np.log(np.clip(factors, _LEAST_LATE, _MOST_LATE))
            self._table = np.concatenate([promised(rise) for rise in rises])
        return self._table

    def _share(self, now_ns: int) -> float:
        return math.exp2(-max(now_ns - self._at_ns, 0) / self._half_life_ns)
