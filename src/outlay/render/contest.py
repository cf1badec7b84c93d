"""What policies are worth in a world, for a terminal of 80 columns and for programs."""

import json
import math
from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from outlay.calibration import Bin, Reliability
from outlay.contest import LEVELS, MomentStanding, Ranking, Standing
from outlay.render.sheet import Lines, Sheet
from outlay.render.words import count, many, percent, percentile_name
from outlay.units import format_duration

VERSION = "contest/1"


def draw(console: Console, world: str, about: str, found: Sequence[Standing], ranking: Ranking | None) -> None:
    """Print it: who is on time, each moment's percentiles, how well promises are kept, and a sentence that reads it."""
    sheet = Sheet(console=console)
    lines = [Text(sheet.ink(world), "bold").append(sheet.ink(f"  {about}"), "dim")]
    lines += sheet.paragraph(reading(found, ranking))
    lines += _policies(sheet, found, ranking)
    lines += _moments(sheet, found)
    for standing in found:
        if standing.reliability is not None:
            lines += _promises(sheet, standing.policy, standing.reliability)
    lines += _alarms(sheet, found)
    for line in lines:
        console.print(line, soft_wrap=True)


def reading(found: Sequence[Standing], ranking: Ranking | None) -> str:
    """One or two sentences: who is best, how sure that is, and what it costs."""
    seeds = max((len(each.seeds) for each in found), default=0)
    runs = f"{many(seeds, 'run')} of each policy, {count(found[0].n)} interactions." if found else "Nothing ran."
    if ranking is None:
        return runs
    best = next(each for each in found if each.policy == ranking.best)
    on_time = percent(best.on_time)
    if not ranking.decided:
        return f"{runs} Most are on time under {best.policy}: {on_time}. One run shows no more than that: add --seeds."
    if len(ranking.tied) == 1:
        return f"{runs} Most are on time under {best.policy}: {on_time}, more than under any other."
    others = ", ".join(name for name in ranking.tied if name != best.policy)
    return f"{runs} Most are on time under {best.policy}: {on_time}; no difference is shown from {others}."


def _policies(sheet: Sheet, found: Sequence[Standing], ranking: Ranking | None) -> Lines:
    head = ["", "policy", "on time", "", "quality", "lower", "refused", "extra", "regret"]
    tied = () if ranking is None else ranking.tied
    rows = [[(name, "dim") for name in head]]
    for each in found:
        style = "bold" if each.policy in tied else ""
        cells = [
            "*" if each.policy in tied else "",
            each.policy,
            percent(each.on_time),
            _plus_minus(each.interval),
            "-" if each.quality is None else f"{each.quality:.2f}",
            _share(each.lower),
            _share(each.refused + each.deferred),
            _share(each.extra),
            "-" if each.regret is None else f"{100 * each.regret:+.1f}",
        ]
        rows.append([(cell, style) for cell in cells])
    note = "of all interactions; failures, refusals and deferrals are not on time"
    return [
        *sheet.heading("Policies", note),
        *sheet.table(rows, "<<>>>>>>>", flex=1),
        *sheet.paragraph(
            "* best, or no difference shown. quality: of those served. lower: served by less than the best. extra: "
            "attempts beyond the first. regret: points behind an oracle that knows the true state.",
            "dim",
        ),
    ]


def _moments(sheet: Sheet, found: Sequence[Standing]) -> Lines:
    rows = [[(name, "dim") for name in ("moment", "policy", "on time", *map(percentile_name, LEVELS))]]
    for moment in dict.fromkeys(each.moment for standing in found for each in standing.moments):
        for standing in found:
            for own in standing.moments:
                if own.moment == moment:
                    rows.append([(cell, "") for cell in (moment, standing.policy, percent(own.on_time), *_times(own))])
    return [*sheet.heading("Moments", "percentiles over all interactions"), *sheet.table(rows, "<<>>>>>", flex=0)]


def _times(own: MomentStanding) -> list[str]:
    return [format_duration(value_ns) for value_ns in own.all_ns]


def _promises(sheet: Sheet, policy: str, found: Reliability) -> Lines:
    rows = [[(name, "dim") for name in ("promised", "", "n", "came true", "95 % interval", "")]]
    # Deciles below, finer bins where most promises are.
    bins = [each for each in found.deciles if each.low < 0.9] + list(found.finer)
    rows += [[(cell, "") for cell in _bin(each)] for each in bins]
    note = f"{count(found.n)} promises, expected calibration error {100 * found.error:.1f} points"
    return [*sheet.heading(f"Promises of {policy}", note), *sheet.table(rows, "<>>>><")]


def _bin(each: Bin) -> list[str]:
    low, high = each.interval
    return [
        f"{100 * each.low:g} to {100 * each.high:g} %",
        percent(each.promised),
        count(each.n),
        percent(each.kept),
        f"{100 * low:.1f} to {100 * high:.1f} %",
        "" if each.holds else "outside",
    ]


def _alarms(sheet: Sheet, found: Sequence[Standing]) -> Lines:
    said = [
        f"{each.policy}: " + ", ".join(f"{kind} {count(number)}" for kind, number in sorted(each.alarms.items()))
        for each in found
        if each.alarms
    ]
    if not said:
        return []
    lines = sheet.heading("Alarms", "what routers missed of targets, once a second")
    return lines + [line for text in said for line in sheet.paragraph(text)]


def _plus_minus(interval: tuple[float, float] | None) -> str:
    return "" if interval is None else f"±{50 * (interval[1] - interval[0]):.1f}"


def _share(share: float) -> str:
    return "-" if share <= 0 else percent(share)


def document(world: str, found: Sequence[Standing], ranking: Ranking | None) -> bytes:
    """`contest/1`. What is unknown is absent; a percentile that never comes is absent too."""
    content: dict[str, object] = {"outlay": VERSION, "world": world}
    if ranking is not None:
        content["ranking"] = {"best": ranking.best, "tied": list(ranking.tied), "decided": ranking.decided}
    content["policies"] = [_standing(each) for each in found]
    return json.dumps(content, indent=2, allow_nan=False).encode()


def _standing(each: Standing) -> dict[str, object]:
    content: dict[str, object] = {
        "policy": each.policy,
        "seeds": list(each.seeds),
        "n": each.n,
        "on_time": each.on_time,
        "on_time_interval": each.interval,
        "by_seed": list(each.by_seed),
        "refused": each.refused,
        "deferred": each.deferred,
        "failed": each.failed,
        "lower_quality": each.lower,
        "shortened": each.shortened,
        "quality": each.quality,
        "worth": each.worth,
        "extra_attempts": each.extra,
        "cost_per_1000": each.cost,
        "regret": each.regret,
        "regret_interval": each.regret_interval,
        "alarms": dict(each.alarms),
        "moments": [_moment(own) for own in each.moments],
        "reliability": None if each.reliability is None else _reliability(each.reliability),
    }
    return _known(content)


def _moment(own: MomentStanding) -> dict[str, object]:
    times: dict[str, object] = {"all": own.all_ns, "served": own.served_ns}
    percentiles = {
        name: {percentile_name(level): value for level, value in zip(LEVELS, values, strict=True) if value < math.inf}
        for name, values in times.items()
        if isinstance(values, tuple)
    }
    content = {"moment": own.moment, "n": own.n, "on_time": own.on_time, "on_time_interval": own.interval}
    return _known(content) | {f"{name}_ns": values for name, values in percentiles.items()}


def _reliability(found: Reliability) -> dict[str, object]:
    bins = {"deciles": found.deciles, "finer": found.finer}
    return {"n": found.n, "error": found.error, "brier": found.brier} | {
        name: [
            {
                "low": each.low,
                "high": each.high,
                "n": each.n,
                "promised": each.promised,
                "kept": each.kept,
                "interval": each.interval,
                "holds": each.holds,
            }
            for each in found
        ]
        for name, found in bins.items()
    }


def _known(content: dict[str, object]) -> dict[str, object]:
    return {key: value for key, value in content.items() if value is not None}
