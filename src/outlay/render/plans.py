"""Plans and the answers around them, for a terminal of 80 columns and for programs."""

import json
import math
from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from outlay.placement import Demand, NinePoint, Offer, Plan, PoolPoint, SessionPoint, SiteGain, Verified, said
from outlay.render.sheet import Lines, Sheet
from outlay.render.words import many, percent, percentile_name
from outlay.units import format_duration

VERSION = "plan/1"

Planned = tuple[str, Sequence[Demand], Verified]
Sessions = Sequence[tuple[Demand, Offer, tuple[SessionPoint, ...]]]
Pools = Sequence[tuple[str, tuple[PoolPoint, ...]]]


def draw(console: Console, planned: Planned) -> None:
    """The plan, and how every demand fares with it."""
    name, demands, verified = planned
    sheet, plan = Sheet(console=console), verified.plan
    lines = [Text(sheet.ink(name), "bold"), *sheet.paragraph(_reading(verified))]
    for shortfall in plan.shortfalls:
        lines += sheet.paragraph(said(shortfall))
    if plan.servers:
        lines += sheet.heading(
            "Servers", f"{_per_hour(plan.price_per_s)} an hour, at most {percent(plan.gap)} too much"
        )
        rows = [[(cell, "dim") for cell in ("site", "model", "hardware", "servers", "busy", "an hour")]]
        rows += [
            [
                (cell, "")
                for cell in (
                    each.offer.site,
                    each.offer.variant,
                    each.offer.hardware,
                    str(each.count),
                    percent(each.level),
                    _per_hour(each.count * each.offer.price_per_s),
                )
            ]
            for each in plan.servers
        ]
        lines += sheet.table(rows, "<<<>>>")
        lines += _demands(sheet, demands, verified)
    if plan.unknown:
        pairs = ", ".join(f"{region} to {site}" for region, site in plan.unknown)
        lines += sheet.paragraph(f"No round-trip time is known, so nothing was planned, for: {pairs}.")
    _show(console, lines)


def _reading(verified: Verified) -> str:
    plan = verified.plan
    if plan.shortfalls:
        return f"No plan: {many(len(plan.shortfalls), 'demand')} cannot be served in time by anything on offer."
    servers = many(sum(each.count for each in plan.servers), "server")
    if not verified.shares:
        return f"{servers} would do; the plan was not tried."
    if verified.open:
        return f"{servers}, and {many(len(verified.open), 'demand')} still fell short after {verified.rounds} rounds."
    return f"{servers} do: every percentile held in the simulator, after {many(verified.rounds, 'round')}."


def _demands(sheet: Sheet, demands: Sequence[Demand], verified: Verified) -> Lines:
    rows = [[(cell, "dim") for cell in ("users", "moment", "budget", "bound", "on time in the trial")]]
    for demand in demands:
        flows = [flow for flow in verified.plan.flows if flow.demand.region == demand.region]
        mine = [flow for flow in flows if flow.demand.moment == demand.moment]
        share = verified.shares.get((demand.region, demand.moment))
        style = "bold" if (demand.region, demand.moment) in verified.open else ""
        rows.append(
            [
                (cell, style)
                for cell in (
                    demand.region,
                    demand.moment,
                    f"{percentile_name(demand.percentile)} {format_duration(demand.limit_ns)}",
                    format_duration(max((flow.predicted_ns for flow in mine), default=math.inf)),
                    "-" if share is None else f"{100 * share[0]:.1f} to {100 * share[1]:.1f} %",
                )
            ]
        )
    note = "bound: of the percentile, by the plan; 95 % interval in the trial"
    return [*sheet.heading("Demands", note), *sheet.table(rows, "<<<>>", flex=0)]


def document(planned: Planned) -> bytes:
    """`plan/1`; what is unknown is absent."""
    name, demands, verified = planned
    content = {"outlay": VERSION, "world": name, **_plan(verified.plan), "rounds": verified.rounds}
    content["demands"] = [
        {
            "region": demand.region,
            "moment": demand.moment,
            "rate_per_s": demand.rate_per_s,
            "limit_ns": demand.limit_ns,
            "percentile": demand.percentile,
            **(
                {}
                if (share := verified.shares.get((demand.region, demand.moment))) is None
                else {"on_time_interval": share, "holds": (demand.region, demand.moment) not in verified.open}
            ),
        }
        for demand in demands
    ]
    return _encoded(content)


def _plan(plan: Plan) -> dict[str, object]:
    content: dict[str, object] = {
        "price_per_s": plan.price_per_s,
        "gap": plan.gap,
        "servers": [
            {**_offer(each.offer), "count": each.count, "busy": each.level, "price_per_s": each.offer.price_per_s}
            for each in plan.servers
        ],
        "flows": [
            {
                "region": flow.demand.region,
                "moment": flow.demand.moment,
                **_offer(flow.offer),
                "rate_per_s": flow.rate_per_s,
                "predicted_ns": flow.predicted_ns,
            }
            for flow in plan.flows
        ],
        "unknown": [{"region": region, "site": site} for region, site in plan.unknown],
    }
    if plan.shortfalls:
        return {
            "unknown": content["unknown"],
            "shortfalls": [
                {"region": each.region, "moment": each.moment}
                | ({} if math.isinf(each.missing_ns) else {"missing_ns": each.missing_ns})
                for each in plan.shortfalls
            ],
        }
    return content


def _offer(offer: Offer) -> dict[str, object]:
    return {"site": offer.site, "variant": offer.variant, "hardware": offer.hardware}


def draw_site(console: Console, gain: SiteGain) -> None:
    """What a site gives, in a few lines."""
    sheet = Sheet(console=console)
    with_it, without_it = (_priced(plan) for plan in (gain.with_it, gain.without_it))
    lines = [Text(sheet.ink(f"What {gain.site} gives"), "bold")]
    lines += sheet.table([[("with it", ""), (with_it, "")], [("without it", ""), (without_it, "")]], "<<")
    for shortfall in gain.without_it.shortfalls:
        lines += sheet.paragraph(f"Without it: {said(shortfall)}")
    if gain.saves_per_s is not None:
        saved = f"It saves {_per_hour(gain.saves_per_s)} an hour." if gain.saves_per_s > 1e-9 else "It saves nothing."
        lines += sheet.paragraph(saved)
    _show(console, lines)


def _priced(plan: Plan) -> str:
    if plan.shortfalls:
        return f"no plan: {many(len(plan.shortfalls), 'demand')} cannot be served in time"
    return f"{many(sum(each.count for each in plan.servers), 'server')}, {_per_hour(plan.price_per_s)} an hour"


def site_document(gain: SiteGain) -> bytes:
    """`plan/1` of a site."""
    content: dict[str, object] = {"outlay": VERSION, "site": gain.site}
    content |= {"with": _plan(gain.with_it), "without": _plan(gain.without_it)}
    return _encoded(content if gain.saves_per_s is None else content | {"saves_per_s": gain.saves_per_s})


def draw_sessions(console: Console, curves: Sessions) -> None:
    """How many sessions one server bears, by users and kind of server."""
    sheet = Sheet(console=console)
    lines = sheet.heading(
        "Sessions on one server", "at the users' nearest site; the most that fit, and the bound on the way"
    )
    rows = [
        [(cell, "dim") for cell in ("users", "model", "hardware", "most", "busy", "bound at a half", "at the most")]
    ]
    for demand, offer, points in curves:
        fits = [point for point in points if point.fits]
        half = fits[(len(fits) - 1) // 2] if fits else None
        cells = [demand.region, offer.variant, offer.hardware, str(len(fits)), percent(fits[-1].level) if fits else "-"]
        cells += ["-" if half is None else format_duration(half.predicted_ns)]
        cells += [format_duration(fits[-1].predicted_ns) if fits else "-"]
        rows.append([(cell, "") for cell in cells])
    _show(console, [*lines, *sheet.table(rows, "<<<>>>>", flex=0)])


def sessions_document(curves: Sessions) -> bytes:
    """`plan/1` of sessions: a curve for each class of users and kind of server."""
    return _encoded(
        {
            "outlay": VERSION,
            "sessions": [
                {
                    "region": demand.region,
                    "moment": demand.moment,
                    **_offer(offer),
                    "points": [
                        {"sessions": point.sessions, "busy": point.level, "fits": point.fits}
                        | ({} if math.isinf(point.predicted_ns) else {"predicted_ns": point.predicted_ns})
                        for point in points
                    ],
                }
                for demand, offer, points in curves
            ],
        }
    )


def draw_pool(console: Console, pools: Pools) -> None:
    """Warm servers against cold starts."""
    sheet = Sheet(console=console)
    lines = sheet.heading("Warm pool", "how often a start finds it empty, and the p99 of the time to start")
    rows = [[(cell, "dim") for cell in ("model", "warm", "cold starts", "p99")]]
    rows += [
        [
            (cell, "")
            for cell in (
                name,
                str(point.size),
                percent(point.cold),
                format_duration(point.quantile_ns) if point.quantile_ns else "0",
            )
        ]
        for name, points in pools
        for point in points
    ]
    _show(console, [*lines, *sheet.table(rows, "<>>>")])


def pool_document(pools: Pools) -> bytes:
    """`plan/1` of warm pools."""
    content = [
        {
            "variant": name,
            "points": [{"warm": each.size, "cold": each.cold, "p99_ns": each.quantile_ns} for each in points],
        }
        for name, points in pools
    ]
    return _encoded({"outlay": VERSION, "pools": content})


def draw_nines(console: Console, points: Sequence[NinePoint]) -> None:
    """What each further nine costs."""
    sheet = Sheet(console=console)
    rows = [[(cell, "dim") for cell in ("percentile", "plan", "against the first")]]
    for point in points:
        against, first = "", points[0].plan
        if not point.plan.shortfalls and not first.shortfalls and first.price_per_s > 0:
            against = f"x {point.plan.price_per_s / first.price_per_s:.2f}"
        rows.append([(cell, "") for cell in (percentile_name(point.percentile), _priced(point.plan), against)])
    lines = [*sheet.heading("Nines", "the limits held for this percentile"), *sheet.table(rows, "<<>")]
    for shortfall in next((point.plan.shortfalls for point in points if point.plan.shortfalls), ()):
        lines += sheet.paragraph(said(shortfall))
    _show(console, lines)


def nines_document(points: Sequence[NinePoint]) -> bytes:
    """`plan/1` of percentiles."""
    content = [{"percentile": point.percentile, "plan": _plan(point.plan)} for point in points]
    return _encoded({"outlay": VERSION, "nines": content})


def _per_hour(price_per_s: float) -> str:
    return f"{price_per_s * 3600:.2f}"


def _show(console: Console, lines: Lines) -> None:
    for line in lines:
        console.print(line, soft_wrap=True)


def _encoded(content: dict[str, object]) -> bytes:
    return json.dumps(content, indent=2, allow_nan=False).encode()
