"""The part of `outlay.yaml` that the gateway reads, to a deployment."""

from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

from msgspec import UNSET, UnsetType

from outlay.deployment import AUTO, Client, Deployment, Endpoint, Limits, MomentRules
from outlay.formats.deployment_keys import GatewayKeys, LiveTargetKeys, address
from outlay.formats.routing import cold_start_of, given, given_keys, rules_of
from outlay.formats.routing_keys import LadderKeys
from outlay.formats.spec_keys import MomentKeys, SpecKeys
from outlay.formats.spec_wire import nearest
from outlay.formats.spec_yaml import Findings, Path, shown
from outlay.units import parse_duration
from outlay.work import Fleet, Service, Target

_Complaints = Iterator[tuple[Path, str]]


def judge_deployment(keys: SpecKeys, findings: Findings) -> None:
    """Add a problem to `findings` for all that does not fit together, on its line."""
    if findings.broken:
        return
    for check in (_targets_stand_somewhere, _variants_are_served, _ladders_hold, _gateway_fits):
        for path, message in list(check(keys)):
            findings.add(path, message)


def make_deployment(keys: SpecKeys) -> Deployment | None:
    """The deployment of keys that were judged; None where the file has no targets."""
    targets = given(keys.targets, {})
    if not targets:
        return None
    gateway = given(keys.gateway, GatewayKeys())
    durations: dict[str, Any] = {
        key: parse_duration(text)
        for key, text in given_keys(
            gateway, {"within": "fallback_ns", "scrape": "scrape_ns", "probe": "probe_ns"}
        ).items()
    }
    host, port = address(given(gateway.listen, "127.0.0.1:8080"))
    tls: dict[str, Any] = {} if isinstance(gateway.tls, UnsetType) else {
        "certificate": gateway.tls.certificate, "private_key": gateway.tls.key
    }  # fmt: skip
    names = {name: name for name in ("moment", "authorities", "access_log")}
    return Deployment(
        fleet=Fleet(_target(name, target) for name, target in targets.items()),
        endpoints=tuple(_endpoint(name, target) for name, target in targets.items()),
        moments={name: _moment(name, moment) for name, moment in given(keys.moments, {}).items()},
        rtt_ns={name: parse_duration(given(site.rtt, "1ms")) for name, site in given(keys.sites, {}).items()},
        host=host,
        port=port,
        clients=tuple(
            Client(
                name=name,
                key_sha256=client.key_sha256,
                **given_keys(client, {"moments": "moments", "moment": "moment", "at_once": "at_once", "rate": "per_s"}),
            )
            for name, client in given(gateway.clients, {}).items()
        ),
        limits=_limits(gateway),
        **tls,
        **durations,
        **given_keys(gateway, names),
    )


def _target(name: str, keys: LiveTargetKeys) -> Target:
    speed = keys.speed
    return Target(
        name=name,
        site=keys.site,
        variant=given(keys.variant, name),
        service=Service(
            prefill_tokens_per_s=speed.prefill,
            step_ns=parse_duration(speed.step),
            step_slope_ns=parse_duration(given(speed.step_slope, "0ns")),
            overhead_ns=parse_duration(given(speed.overhead, "0ns")),
            max_batch=given(speed.max_batch, 64),
        ),
        quality=given(keys.quality, 1.0),
        price_per_s=given(keys.price_per_hour, 0.0) / 3600,
        cold=cold_start_of(keys.cold),
    )


def _endpoint(name: str, keys: LiveTargetKeys) -> Endpoint:
    url = urlsplit(keys.url)
    tls = url.scheme == "https"
    return Endpoint(
        target=name,
        host=url.hostname or "",
        port=url.port or (443 if tls else 80),
        tls=tls,
        prefix=url.path.rstrip("/"),
        **given_keys(keys, {"model": "model", "key": "key_variable", "metrics": "metrics"}),
    )


def _moment(name: str, keys: MomentKeys) -> MomentRules:
    useful = given(keys.useful, "1")
    render_ns = parse_duration(given(keys.render, "0ns"))
    return MomentRules(
        name=name,
        limit_ns=parse_duration(keys.within) if isinstance(keys.within, str) else None,
        rules=rules_of(given(keys.ladder, LadderKeys()), render_ns),
        useful_tokens=None if useful == "all" else int(useful),
        **given_keys(keys, {"output": "output_tokens"}),
    )


def _limits(gateway: GatewayKeys) -> Limits:
    if isinstance(gateway.limits, UnsetType):
        return Limits()
    sizes = {"head": "head_bytes", "body": "body_bytes", "connections": "connections"}
    times = {key: f"{key}_ns" for key in ("patience", "idle", "slow", "silence", "connect", "drain")}
    spans = {name: parse_duration(text) for name, text in given_keys(gateway.limits, times).items()}
    return Limits(**given_keys(gateway.limits, sizes), **spans)


# Checks that span several keys


def _targets_stand_somewhere(keys: SpecKeys) -> _Complaints:
    sites = given(keys.sites, {})
    for name, target in given(keys.targets, {}).items():
        if target.site not in sites:
            yield ("targets", name, "site"), f"unknown site {shown(target.site)}; {nearest(target.site, sites)}"
        if AUTO in (name, target.variant):
            yield ("targets", name), f"{AUTO} is what clients say to leave the choice to the gateway"


def _variants_are_served(keys: SpecKeys) -> _Complaints:
    served = list(dict.fromkeys(given(target.variant, name) for name, target in given(keys.targets, {}).items()))
    for name, moment in given(keys.moments, {}).items():
        rungs = () if isinstance(moment.ladder, UnsetType) else given(moment.ladder.rungs, ())
        for at, rung in enumerate(rungs):
            for place, variant in enumerate(given(rung.variants, ())):
                if served and variant not in served:
                    path = ("moments", name, "ladder", "rungs", at, "variants", place)
                    yield path, f"unknown variant {shown(variant)}; {nearest(variant, served)}"


def _ladders_hold(keys: SpecKeys) -> _Complaints:
    for name, moment in given(keys.moments, {}).items():
        try:
            rules_of(given(moment.ladder, LadderKeys()), 0)
        except ValueError as error:
            yield ("moments", name, "ladder"), str(error)


def _gateway_fits(keys: SpecKeys) -> _Complaints:
    gateway = given(keys.gateway, GatewayKeys())
    moments = given(keys.moments, {})
    if keys.gateway is not UNSET and keys.targets is UNSET:
        yield ("gateway",), "needs `targets` beside it, which say who serves requests"
    asked: list[tuple[Path, str]] = []
    if isinstance(gateway.moment, str):
        asked.append((("gateway", "moment"), gateway.moment))
    for name, client in given(gateway.clients, {}).items():
        path: Path = ("gateway", "clients", name)
        asked += [((*path, "moments", place), moment) for place, moment in enumerate(given(client.moments, ()))]
        if isinstance(client.moment, str):
            asked.append(((*path, "moment"), client.moment))
    for where, moment in asked:
        if moment not in moments:
            yield where, f"unknown moment {shown(moment)}; {nearest(moment, moments)}"
