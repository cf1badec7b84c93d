"""A Measurement as JSON, `measure/1`: a contract, documented in docs/formats.md and versioned. Absent means unknown."""

import msgspec

from outlay.cold import ClassEffect
from outlay.hops import Cost, HopCost
from outlay.measurement import EngineSeen, Measurement, Point, Series
from outlay.network import Network, Round
from outlay.render.machine import Json, known, limits, ns, one_bound, ordered, percentiles, share_on_time, to_dict
from outlay.render.words import percentile_name

VERSION = "measure/1"


def to_json(measured: Measurement) -> bytes:
    """The document as UTF-8 JSON, indented."""
    return msgspec.json.format(msgspec.json.encode(to_dict_of(measured)), indent=2)


def to_dict_of(measured: Measurement) -> Json:
    """The same as plain values; the verdict on the load comes first, and the loads stand in the report."""
    return known(
        outlay=VERSION,
        verdict=measured.loads[0].verdict.state,
        plan=measured.plan,
        stopped=measured.stopped,
        warm_up=known(n=measured.warm_up, p50_ns=measured.warm_up_p50_ns),
        within_ns=measured.within_ns,
        on_time=measured.on_time and share_on_time(measured.on_time),
        points=[_point(point) for point in measured.points],
        hops=[_hop(hop) for hop in measured.hops],
        cold=[_cold(effect) for effect in measured.cold],
        engine=measured.engine and _engine(measured.engine),
        notes=ordered(measured.notes),
        report=measured.report and to_dict(measured.report),
    )


def _point(point: Point) -> Json:
    return known(
        name=point.name,
        address=point.address,
        planned=point.planned,
        unfinished=point.unfinished,
        outcomes=ordered(point.outcomes),
        reasons=ordered(point.reasons),
        series={series.name: _series(series) for series in point.series},
        network=point.network and _network(point.network),
    )


def _series(series: Series) -> Json:
    counted = {"n": series.n, "failures_count": series.failures_count}
    bounds = [one_bound(each) for each in series.bounds] or None
    return counted | percentiles(series.percentiles) | known(bounds=bounds)


def _network(network: Network) -> Json:
    return known(
        floor_ns=network.floor_ns,
        sent=network.sent,
        fresh=network.fresh,
        setup=[_round(each) for each in network.setup],
        setup_ns=network.setup_ns if network.setup else None,
        retransmitted=network.retransmitted,
        reported=network.reported,
        server_p50_ns=network.server_p50_ns,
    )


def _round(each: Round) -> Json:
    return known(name=each.name, n=each.n, p50_ns=each.p50_ns, p99_ns=each.p99_ns, rounds=each.rounds)


def _hop(hop: HopCost) -> Json:
    return {
        "outer": hop.outer,
        "inner": hop.inner,
        "n": hop.n,
        "outer_failed": hop.outer_failed,
        "inner_failed": hop.inner_failed,
        "typical": _cost(hop.typical),
        "tail": {percentile_name(level): _cost(cost) for level, cost in hop.tail.items()},
    }


def _cost(cost: Cost) -> Json:
    between = None if cost.interval_ns is None else limits(*cost.interval_ns)
    return known(value_ns=cost.value_ns, interval_ns=between, why=cost.why, resolved=cost.resolved)


def _cold(effect: ClassEffect) -> Json:
    return known(
        name=effect.name,
        n=effect.n,
        share=effect.share,
        p50_ns=ns(effect.p50_ns),
        p99_ns=ns(effect.p99_ns),
        p99_without_ns=ns(effect.p99_without_ns),
        tail_share=effect.tail_share,
        per_hour=effect.per_hour,
    )


def _engine(engine: EngineSeen) -> Json:
    return {
        "engine": engine.engine,
        "largest": ordered(engine.largest),
        "mean_ns": ordered(engine.mean_ns),
        "missing": list(engine.missing),
        "pages": engine.pages,
    }
