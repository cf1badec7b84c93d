"""What a world file's keys must keep to between them: names that are known, ways that exclude one another, order."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from msgspec import UnsetType

from outlay.formats.routing import given
from outlay.formats.spec_wire import nearest
from outlay.formats.spec_yaml import Findings, Path, shown
from outlay.formats.world_keys import SizesKeys, TargetKeys, WorldKeys
from outlay.units import parse_duration
from outlay.world import FaultKind

# Each check yields a path, and what is wrong there.
_Complaints = Iterator[tuple[Path, str]]


def judge(keys: WorldKeys, findings: Findings) -> None:
    """Add a problem to `findings` for all that does not fit together, on its line.

    A check whose sections were not read whole is left out: half of the sites proves no site unknown.
    """
    unread = set(findings.broken)
    for sections, check in _CHECKS:
        if unread.isdisjoint((section,) for section in sections):
            for path, message in list(check(keys)):
                findings.add(path, message)


def servers(name: str, target: TargetKeys) -> list[tuple[str, str]]:
    """Each server's name and site: `large-london`, or `large-london#1` and so on where there are several."""
    return [
        (f"{name}-{site}" if count == 1 else f"{name}-{site}#{number}", site)
        for site, count in target.at.items()
        for number in range(1, count + 1)
    ]


# Names


def _known(what: str, name: str, known: Iterable[str], path: Path) -> _Complaints:
    names = list(dict.fromkeys(known))
    if name not in names:
        yield path, f"unknown {what} {shown(name)}; {nearest(name, names)}"


def _sites_are_known(keys: WorldKeys) -> _Complaints:
    for name, target in keys.targets.items():
        for site in target.at:
            yield from _known("site", site, keys.sites, ("targets", name, "at", site))


def _local_sites_are_known(keys: WorldKeys) -> _Complaints:
    for place, users in enumerate(keys.users):
        if isinstance(users.local, str):
            yield from _known("site", users.local, keys.sites, ("users", place, "local"))


def _accesses_are_known(keys: WorldKeys) -> _Complaints:
    for place, users in enumerate(keys.users):
        yield from _known("access", users.access, keys.access, ("users", place, "access"))


def _regions_are_known(keys: WorldKeys) -> _Complaints:
    regions = [users.region for users in keys.users]
    for name, traffic in keys.moments.items():
        for place, region in enumerate(given(traffic.regions, ())):
            yield from _known("region", region, regions, ("moments", name, "regions", place))


def _variants_are_served(keys: WorldKeys) -> _Complaints:
    variants = [given(target.variant, name) for name, target in keys.targets.items()]
    for name, traffic in keys.moments.items():
        if isinstance(traffic.variant, str):
            yield from _known("variant", traffic.variant, variants, ("moments", name, "variant"))
        rungs = () if isinstance(traffic.ladder, UnsetType) else given(traffic.ladder.rungs, ())
        for at, rung in enumerate(rungs):
            for place, variant in enumerate(given(rung.variants, ())):
                path = ("moments", name, "ladder", "rungs", at, "variants", place)
                yield from _known("variant", variant, variants, path)


def _servers_differ(keys: WorldKeys) -> _Complaints:
    seen: set[str] = set()
    for name, target in keys.targets.items():
        for server, site in servers(name, target):
            if server in seen:
                yield ("targets", name, "at", site), f"there is already a server named {shown(server)}"
            seen.add(server)


# Ways to say the same thing, of which one is given


@dataclass(frozen=True, slots=True)
class _Way:
    """The keys that one way cannot do without, and those that it may have."""

    needs: tuple[str, ...] = ()
    takes: tuple[str, ...] = ()


_ACCESS: Mapping[str, _Way] = {
    "recording": _Way(needs=("road", "network"), takes=("period",)),
    "netlatency": _Way(needs=("pair",), takes=("period",)),
    "constant": _Way(),
    "median": _Way(needs=("sigma",), takes=("period",)),
}
_ARRIVALS: Mapping[str, _Way] = {
    "rate": _Way(takes=("burstiness",)),
    "stages": _Way(takes=("burstiness",)),
    "replay": _Way(takes=("speed",)),
    "servegen": _Way(needs=("mean",), takes=("burstiness",)),
}
_SIZES: Mapping[str, _Way] = {"median": _Way(takes=("sigma", "most")), "values": _Way()}


def _accesses_are_one(keys: WorldKeys) -> _Complaints:
    for name, access in keys.access.items():
        yield from _one_of(access, _ACCESS, ("access", name))


def _arrivals_are_one(keys: WorldKeys) -> _Complaints:
    for name, traffic in keys.moments.items():
        yield from _one_of(traffic.arrivals, _ARRIVALS, ("moments", name, "arrivals"))


def _sizes_are_one(keys: WorldKeys) -> _Complaints:
    for name, traffic in keys.moments.items():
        for key, sizes in (("input", traffic.input), ("output", traffic.output)):
            if isinstance(sizes, SizesKeys):
                yield from _one_of(sizes, _SIZES, ("moments", name, key))


def _one_of(keys: object, ways: Mapping[str, _Way], path: Path) -> _Complaints:
    taken = [way for way in ways if _has(keys, way)]
    if len(taken) != 1:
        yield path, f"needs one of {', '.join(ways)}" + (f", not {' and '.join(taken)}" if taken else "")
        return
    way = ways[taken[0]]
    for needed in way.needs:
        if not _has(keys, needed):
            yield (*path, taken[0]), f"needs `{needed}` beside it"
    others = dict.fromkeys(key for each in ways.values() for key in (*each.needs, *each.takes))
    for key in others:
        if _has(keys, key) and key not in (*way.needs, *way.takes):
            yield (*path, key), f"means nothing beside `{taken[0]}`"


def _has(keys: object, key: str) -> bool:
    return not isinstance(getattr(keys, key), UnsetType)


def _services_are_whole(keys: WorldKeys) -> _Complaints:
    for name, target in keys.targets.items():
        path, service = ("targets", name, "service"), target.service
        if _has(service, "perf_model"):
            for needed in ("model", "hardware"):
                if not _has(service, needed):
                    yield (*path, "perf_model"), f"needs `{needed}` beside it"
            continue
        for needed in ("prefill", "step"):
            if not _has(service, needed):
                yield path, f"needs `{needed}`, or `perf_model` to fit it to"
        for key in ("model", "tensor_parallel"):
            if _has(service, key):
                yield (*path, key), "means nothing without `perf_model`"


# Faults and order

# How strong it is, for those kinds that ask; each needs one of these, but for `client-errors`, where all is the usual.
_STRENGTH: Mapping[FaultKind, tuple[str, ...]] = {
    "slow": ("factor",),
    "path": ("factor", "extra"),
    "client-errors": ("share",),
}


def _faults_are_somewhere(keys: WorldKeys) -> _Complaints:
    names = [server for name, target in keys.targets.items() for server, _ in servers(name, target)]
    for place, fault in enumerate(given(keys.faults, ())):
        path = ("faults", place, "where")
        if fault.kind == "path":
            yield from _known("site", fault.where, keys.sites, path)
        else:
            yield from _known("site or server", fault.where, (*keys.sites, *names), path)


def _faults_do_something(keys: WorldKeys) -> _Complaints:
    for place, fault in enumerate(given(keys.faults, ())):
        path: Path = ("faults", place)
        if parse_duration(fault.end) <= parse_duration(fault.start):
            yield (*path, "to"), f"must be later than `from` ({fault.start})"
        fitting = _STRENGTH.get(fault.kind, ())
        if fault.kind in ("slow", "path") and not any(_has(fault, key) for key in fitting):
            yield (*path, "kind"), f"{fault.kind} needs {' or '.join(f'`{key}`' for key in fitting)}"
        for key in ("factor", "extra", "share"):
            if _has(fault, key) and key not in fitting:
                yield (*path, key), f"means nothing to a fault of kind {fault.kind}"


def _warm_up_is_shorter(keys: WorldKeys) -> _Complaints:
    warm_up = given(keys.run.warm_up, None)
    if warm_up is not None and parse_duration(warm_up) >= parse_duration(keys.run.lasts):
        yield ("run", "warm_up"), f"must be shorter than `for` ({keys.run.lasts}), or nothing is left to count"


_CHECKS: tuple[tuple[tuple[str, ...], Callable[[WorldKeys], _Complaints]], ...] = (
    (("run",), _warm_up_is_shorter),
    (("access",), _accesses_are_one),
    (("targets", "sites"), _sites_are_known),
    (("targets",), _servers_differ),
    (("targets",), _services_are_whole),
    (("users", "sites"), _local_sites_are_known),
    (("users", "access"), _accesses_are_known),
    (("users", "moments"), _regions_are_known),
    (("targets", "moments"), _variants_are_served),
    (("moments",), _arrivals_are_one),
    (("moments",), _sizes_are_one),
    (("targets", "sites", "faults"), _faults_are_somewhere),
    (("faults",), _faults_do_something),
)
