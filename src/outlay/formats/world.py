"""World files (YAML) to worlds."""

import csv
from collections.abc import Callable
from dataclasses import dataclass, fields
from math import exp, gcd
from statistics import NormalDist
from typing import Any, TypeVar

import msgspec
from msgspec import UnsetType, inspect

from outlay.arrivals import Schedule, parse_stages
from outlay.budget import Budget
from outlay.formats import world_data
from outlay.formats.arrival_traces import read_schedule
from outlay.formats.codec import FormatError
from outlay.formats.routing import cold_start_of, given, given_keys, rules_of
from outlay.formats.routing_keys import LadderKeys
from outlay.formats.rtt_matrix import Matrix, parse
from outlay.formats.spec_wire import read
from outlay.formats.spec_yaml import Findings, Path, SpecError, parse_yaml
from outlay.formats.world_checks import judge, servers
from outlay.formats.world_keys import (
    MOST_PER_S,
    AccessKeys,
    ArrivalsKeys,
    ServiceKeys,
    SizesKeys,
    TargetKeys,
    TrafficKeys,
    WorldKeys,
)
from outlay.policy import Policy, Rules
from outlay.units import NS_PER_S, parse_duration
from outlay.work import Service, Target
from outlay.world import Access, Arrivals, Fault, Reports, Tokens, Traffic, Users, World

Value = TypeVar("Value")
# Gives the bytes of a data file, or raises OSError.
Read = Callable[[str], bytes]

# As many prompts as answers when they were recorded together.
_Pairs = tuple[tuple[int, ...], tuple[int, ...]]

# Distributions are kept as this many equally likely values, and recordings are thinned to it.
_VALUES = 2000
_MOST_TOKENS = 10**9
_DEFAULT_LOCAL_NS = 2_000_000
_DEFAULT_SIZES = SizesKeys(median=512.0, sigma=0.0)


def load_world(text: str | bytes, name: str, read_file: Read) -> World:
    """The world that `text` describes; `name` stands for the file in messages.

    `read_file` gives the bytes of a data file, by its path relative to the world's file. Raises SpecError with every
    problem found, each with its line; a data file that cannot be read or does not hold what is asked of it is one. Data
    files are read when the file itself has no problem.
    """
    findings = Findings(name)
    plain = read(parse_yaml(text, findings), inspect.type_info(WorldKeys), findings)
    if plain is None:
        raise SpecError(findings.problems)
    keys = msgspec.convert(plain, WorldKeys)
    judge(keys, findings)
    if findings.problems:
        raise SpecError(findings.problems)
    maker = _Maker(keys, findings, read_file)
    world = maker.world(name.rpartition("/")[2].removesuffix(".yaml"))
    if findings.problems:
        raise SpecError(findings.problems)
    return world


def world_schema() -> dict[str, object]:
    """The JSON Schema (2020-12) of a world file. What spans several keys is only checked by `load_world`."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "an Outlay world",
        **msgspec.json.schema(WorldKeys),
    }


# Keys to core values. What spans keys was checked; what is wrong from here on lies in data files.


def _ns(value: str | UnsetType, otherwise: int = 0) -> int:
    return otherwise if isinstance(value, UnsetType) else parse_duration(value)


@dataclass(slots=True)
class _Maker:
    """Keys to core values. What data files do not hold is noted where the file is named."""

    keys: WorldKeys
    findings: Findings
    read_file: Read

    def world(self, name: str) -> World:
        keys = self.keys
        run_ns, jitter = parse_duration(keys.run.lasts), keys.jitter
        reports, usual = keys.reports, Reports()
        ladders = {moment: given(traffic.ladder, LadderKeys()) for moment, traffic in keys.moments.items()}
        jitters = {} if isinstance(jitter, UnsetType) else given_keys(
            jitter, {"backbone": "backbone_jitter", "service": "service_jitter"}
        )  # fmt: skip
        return World(
            name=name,
            about=keys.about,
            until_ns=run_ns,
            warm_up_ns=_ns(keys.run.warm_up, run_ns // 6),
            access={each: self._access(each, access) for each, access in keys.access.items()},
            users=self._users(),
            targets=tuple(target for each, of in keys.targets.items() for target in self._targets(each, of)),
            traffic=tuple(self._traffic(moment, traffic, run_ns) for moment, traffic in keys.moments.items()),
            policy=Policy(
                moments={
                    moment: self._rules(ladder, _ns(keys.moments[moment].render), ("moments", moment, "ladder"))
                    for moment, ladder in ladders.items()
                }
            ),
            faults=tuple(
                Fault(
                    kind=fault.kind,
                    where=fault.where,
                    from_ns=parse_duration(fault.start),
                    to_ns=parse_duration(fault.end),
                    factor=given(fault.factor, 1.0),
                    extra_ns=_ns(fault.extra),
                    share=given(fault.share, 1.0),
                )
                for fault in given(keys.faults, ())
            ),
            routers=given(keys.routers, 1),
            reports=usual
            if isinstance(reports, UnsetType)
            else Reports(every_ns=_ns(reports.every, usual.every_ns), delay_ns=_ns(reports.delay, usual.delay_ns)),
            probe_ns=_ns(keys.probes, NS_PER_S),
            slow_start_ns=_ns(keys.slow_start),
            **jitters,
        )

    def _data(self, path: Path, file: str, of: Callable[[bytes], Value], otherwise: Value) -> Value:
        """What a data file says; what is wrong with it is noted, and stands in for nothing further."""
        try:
            return of(self.read_file(file))
        except OSError as error:
            self.findings.add(path, f"{file}: {error.strerror or error}")
        except FormatError as error:
            self.findings.add(path, f"{file}: {error}")
        except (UnicodeDecodeError, csv.Error):
            self.findings.add(path, f"{file}: expected a CSV text in UTF-8")
        return otherwise

    def _access(self, name: str, keys: AccessKeys) -> Access:
        path: Path = ("access", name)
        period_ns = _ns(keys.period, world_data.SEND_PERIOD_NS if isinstance(keys.recording, str) else NS_PER_S)
        samples: tuple[int, ...] = (0,)
        if isinstance(keys.recording, str):
            road, network = given(keys.road, ""), given(keys.network, "")
            samples = self._data(
                (*path, "recording"),
                keys.recording,
                lambda text: world_data.drive_delays_ns(text, road, network),
                samples,
            )
        elif isinstance(keys.netlatency, str):
            pair = given(keys.pair, "")
            samples = self._data(
                (*path, "netlatency"), keys.netlatency, lambda text: world_data.pair_delays_ns(text, pair), samples
            )
        elif isinstance(keys.constant, str):
            samples = (parse_duration(keys.constant),)
        else:
            samples = _spread(_log_normal(_ns(keys.median), given(keys.sigma, 0.0)))
        return Access(
            name=name, samples_ns=samples, period_ns=period_ns, bytes_per_s=given(keys.throughput, 12_500_000.0)
        )

    def _users(self) -> tuple[Users, ...]:
        rtt_ns = self._matrix()
        found = []
        for place, users in enumerate(self.keys.users):
            ways = {
                site: rtt_ns[users.region, keys.region]
                for site, keys in self.keys.sites.items()
                if (users.region, keys.region) in rtt_ns
            }
            if not ways:
                message = f"no round-trip time is known from {users.region} to any site"
                self.findings.add(("users", place, "region"), message)
            local = given(users.local, None)
            if ways and local is not None and local not in ways:
                region = self.keys.sites[local].region
                self.findings.add(
                    ("users", place, "local"), f"no round-trip time is known from {users.region} to {region}"
                )
            found.append(
                Users(region=users.region, access=users.access, share=given(users.share, 1.0), rtt_ns=ways, local=local)
            )
        return tuple(found)

    def _matrix(self) -> Matrix:
        keys = self.keys.rtt
        found: dict[tuple[str, str], int] = {}
        if isinstance(keys.file, str):
            found |= self._data(("rtt", "file"), keys.file, lambda text: dict(parse(text.decode("utf-8-sig"))), found)
        regions = {users.region for users in self.keys.users} | {site.region for site in self.keys.sites.values()}
        local_ns = _ns(keys.local, _DEFAULT_LOCAL_NS)
        found |= {(region, region): local_ns for region in regions if (region, region) not in found}
        for pair, text in given(keys.pairs, {}).items():
            here, there = (end.strip() for end in pair.split(" -> ", 1))
            found[here, there] = found[there, here] = parse_duration(text)
        return found

    def _targets(self, name: str, keys: TargetKeys) -> list[Target]:
        service = self._service(name, keys.service)
        cold = cold_start_of(keys.cold)
        return [
            Target(
                name=server,
                site=site,
                variant=given(keys.variant, name),
                service=service,
                hardware=given(keys.hardware, given(keys.service.hardware, "")),
                quality=given(keys.quality, 1.0),
                price_per_s=given(keys.price_per_hour, 0.0) / 3600,
                cold=cold,
            )
            for server, site in servers(name, keys)
        ]

    def _service(self, name: str, keys: ServiceKeys) -> Service:
        path: Path = ("targets", name, "service")
        values: dict[str, Any] = {}
        if isinstance(keys.perf_model, str):
            model, hardware = given(keys.model, ""), given(keys.hardware, "")
            cards = given(keys.tensor_parallel, 1)
            fitted = self._data(
                (*path, "perf_model"),
                keys.perf_model,
                lambda text: world_data.fit_service(text, model, hardware, cards),
                None,
            )
            if fitted is not None:
                kept = {each.name for each in fields(Service)}
                values |= {each.name: getattr(fitted, each.name) for each in fields(fitted) if each.name in kept}
        for key in ("step", "step_slope", "overhead", "kv_penalty"):
            if isinstance(text := getattr(keys, key), str):
                values[f"{key}_ns"] = parse_duration(text)
        values |= given_keys(
            keys, {"prefill": "prefill_tokens_per_s", "max_batch": "max_batch", "kv_tokens": "kv_tokens"}
        )
        return Service(**{"prefill_tokens_per_s": 1.0, "step_ns": 1, **values})

    def _traffic(self, moment: str, keys: TrafficKeys, run_ns: int) -> Traffic:
        path: Path = ("moments", moment)
        arrivals, recorded = self._arrivals(keys.arrivals, run_ns, (*path, "arrivals"))
        inputs, outputs = _sizes_of(keys, recorded)
        return Traffic(
            moment=moment,
            budget=Budget(limit_ns=parse_duration(keys.within), percentile=given(keys.percentile, 99.0)),
            arrivals=arrivals,
            input_tokens=Tokens(values=inputs),
            output_tokens=Tokens(values=outputs),
            useful_tokens=given(keys.useful, None),
            payload_bytes=int(given(keys.payload, 0.0)),
            client_ns=_ns(keys.client),
            render_ns=_ns(keys.render),
            variant=given(keys.variant, None),
            regions=given(keys.regions, ()),
        )

    def _arrivals(self, keys: ArrivalsKeys, run_ns: int, path: Path) -> tuple[Arrivals, _Pairs | None]:
        """When requests come, and where a recording says it, how large they are."""
        shape = given(keys.burstiness, 1.0)
        if isinstance(keys.replay, str):
            speed = given(keys.speed, 1.0)
            nothing: Schedule = ()
            schedule = self._data(
                (*path, "replay"), keys.replay, lambda text: read_schedule(text.splitlines()), nothing
            )
            at_ns = tuple(round(arrival.at_ns / speed) for arrival in schedule)
            if schedule and len(at_ns) * NS_PER_S > MOST_PER_S * at_ns[-1]:
                message = f"{keys.replay}: more than {MOST_PER_S} requests a second, at this speed"
                self.findings.add((*path, "replay"), message)
            thin = schedule[:: max(len(schedule) // _VALUES, 1)]
            pairs = [(one.input_tokens, one.output_tokens) for one in thin]
            whole = [(asked, answered) for asked, answered in pairs if asked is not None and answered is not None]
            sizes = (tuple(asked for asked, _ in whole), tuple(answered for _, answered in whole)) if whole else None
            return Arrivals(at_ns=at_ns or (0,)), sizes
        if isinstance(keys.servegen, str):
            mean = given(keys.mean, 1.0)
            none: tuple[tuple[int, float], ...] = ((0, 0.0),)
            rates = self._data(
                (*path, "servegen"),
                keys.servegen,
                lambda text: world_data.servegen_rates(text, mean, run_ns),
                none,
            )
            return Arrivals(rates=rates, shape=shape), None
        if isinstance(keys.stages, str):
            begin_ns, steps = 0, []
            for rate, duration_ns in parse_stages(keys.stages):
                steps.append((begin_ns, rate))
                begin_ns += duration_ns
            if begin_ns < run_ns:
                steps.append((begin_ns, 0.0))
            return Arrivals(rates=tuple(steps), shape=shape), None
        return Arrivals(rates=((0, given(keys.rate, 1.0)),), shape=shape), None

    def _rules(self, keys: LadderKeys, render_ns: int, path: Path) -> Rules:
        try:
            return rules_of(keys, render_ns)
        except ValueError as error:
            self.findings.add(path, str(error))
            return Rules()


def _sizes_of(keys: TrafficKeys, recorded: _Pairs | None) -> _Pairs:
    """Sizes of prompts and of answers. Only where they are pairs is there the same number of both."""
    stated = [keys.input, keys.output]
    inputs, outputs = (
        recorded[place] if recorded and isinstance(of, UnsetType) else _sizes(given(of, _DEFAULT_SIZES))
        for place, of in enumerate(stated)
    )
    are_recorded = recorded is not None and all(isinstance(of, UnsetType) for of in stated)
    are_listed = all(isinstance(of, SizesKeys) and isinstance(of.values, tuple) for of in stated)
    is_by_chance = not (are_recorded or are_listed) and len(inputs) == len(outputs) > 1
    return inputs, outputs[1:] if is_by_chance else outputs


def _sizes(keys: SizesKeys) -> tuple[int, ...]:
    if not isinstance(keys.values, UnsetType):
        return keys.values
    most, median = given(keys.most, _MOST_TOKENS), given(keys.median, 1.0)
    return tuple(min(max(value, 1), most) for value in _log_normal(median, given(keys.sigma, 0.0)))


def _log_normal(median: float, sigma: float) -> tuple[int, ...]:
    """Equally likely values of a log-normal distribution: its quantiles at the middles of equal parts."""
    if sigma == 0:
        return (round(median),) * 2
    normal = NormalDist(0.0, sigma)
    levels = ((place + 0.5) / _VALUES for place in range(_VALUES))
    return tuple(round(median * exp(normal.inv_cdf(level))) for level in levels)


def _spread(values: tuple[int, ...]) -> tuple[int, ...]:
    """The same values in an order in which neighbours are unalike: a step that is prime to their number at a time."""
    count = len(values)
    step = next(step for step in range(max(round(count * 0.618), 1), 2 * count + 2) if gcd(step, count) == 1)
    return tuple(values[place * step % count] for place in range(count))
