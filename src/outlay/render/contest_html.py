"""What policies are worth in a world, as one HTML file: on-time bars, tables, and how right promises are."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from math import log10

from jinja2 import Environment, PackageLoader, StrictUndefined, Template

from outlay.calibration import Bin, Reliability
from outlay.contest import LEVELS, Ranking, Standing
from outlay.render import words
from outlay.render.contest import reading
from outlay.render.untrusted import visible
from outlay.units import format_duration

# Of the reliability plot: its square, in the units of the drawing.
_SIDE = 220.0
_LEFT, _WIDTH, _ROW = 140.0, 560.0, 22.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Bar:
    name: str
    y: float
    width: float
    low: float | None
    high: float | None
    tied: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class _Mark:
    x: float
    y: float
    low: float
    high: float
    size: float
    off: bool
    title: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    name: str
    promised: float
    kept: float
    n: int
    interval: tuple[float, float]


def to_html(world: str, about: str, found: Sequence[Standing], ranking: Ranking | None) -> str:
    """The whole page; it asks for nothing else."""
    moments = dict.fromkeys(each.moment for standing in found for each in standing.moments)
    return _page().render(
        world=world,
        about=about,
        says=reading(found, ranking),
        found=found,
        bars=_bars(found, () if ranking is None else ranking.tied),
        moments=[
            (moment, standing.policy, own)
            for moment in moments
            for standing in found
            for own in standing.moments
            if own.moment == moment
        ],
        levels=LEVELS,
        plots=[_plot(each.policy, each.reliability) for each in found if each.reliability is not None],
    )


@cache
def _page() -> Template:
    environment = Environment(
        loader=PackageLoader("outlay.render"),
        autoescape=True,
        finalize=lambda value: visible(value) if type(value) is str else value,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals |= {"words": words, "interval": _interval}
    environment.filters |= {"duration": format_duration}
    return environment.get_template("contest.html.j2")


def _interval(interval: tuple[float, float] | None) -> str:
    if interval is None:
        return "-"
    low, high = (min(max(end, 0.0), 1.0) for end in interval)
    return f"{100 * low:.1f} to {100 * high:.1f} %"


def _bars(found: Sequence[Standing], tied: Sequence[str]) -> dict[str, object]:
    room = _WIDTH - _LEFT - 20

    def x(share: float) -> float:
        return round(_LEFT + min(max(share, 0.0), 1.0) * room, 1)

    bars = [
        _Bar(
            name=each.policy,
            y=place * _ROW,
            width=round(x(each.on_time) - _LEFT, 1),
            low=None if each.interval is None else x(each.interval[0]),
            high=None if each.interval is None else x(each.interval[1]),
            tied=each.policy in tied,
        )
        for place, each in enumerate(found)
    ]
    ticks = [{"x": x(step / 100), "label": f"{step} %"} for step in range(0, 101, 20)]
    return {"bars": bars, "ticks": ticks, "left": _LEFT, "width": _WIDTH, "height": len(found) * _ROW + 20}


def _plot(policy: str, found: Reliability) -> dict[str, object]:
    bins = [each for each in found.deciles if each.low < 0.9] + list(found.finer)
    return {
        "policy": policy,
        "n": found.n,
        "error": found.error,
        "marks": [_mark(each, found.n) for each in found.deciles],
        "rows": [
            _Row(
                name=f"{100 * each.low:g} to {100 * each.high:g} %",
                promised=each.promised,
                kept=each.kept,
                n=each.n,
                interval=each.interval,
            )
            for each in bins
        ],
    }


def _mark(each: Bin, total: int) -> _Mark:
    def y(share: float) -> float:
        return round(_SIDE * (1 - share), 1)

    return _Mark(
        x=round(_SIDE * each.promised, 1),
        y=y(each.kept),
        low=y(each.interval[0]),
        high=y(each.interval[1]),
        # Larger marks hold more, by orders of magnitude: from a few to all.
        size=round(2.5 + 4 * log10(max(each.n, 1)) / max(log10(max(total, 10)), 1), 1),
        off=not each.holds,
        title=f"{words.count(each.n)} promises of {100 * each.promised:.1f} %: {100 * each.kept:.1f} % came true",
    )
