"""What shows that a term is where the time goes: sentences of numbers, each from the columns themselves."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from outlay.accounts import Accounts, Floats, Ints
from outlay.cold import COLD, WARM
from outlay.interaction import SITE
from outlay.quantiles import smallest_n, weighted_quantiles
from outlay.report import Row
from outlay.stages import USER_COMPONENT, split_entry, term_of
from outlay.units import format_duration, from_ms

# What of geography a connection that is kept would not pay for.
SETUP = "set-up"
SETUP_PARTS = ("uplink.dns", "uplink.connect", "uplink.tls")
_FLOORS = ("uplink.floor", "downlink.floor")
_NETWORK = ("uplink", "downlink")

# A wait that hardly differs from its median is a constant somebody set.
_CONSTANT = 0.05
# How far the quartiles of a wait may lie from those of an even spread to be called one.
_EVEN = 0.06
_FEW_MS = from_ms(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """The columns, and which rows are the slow and the typical ones. `depth` is the queue's on arrival, if known."""

    accounts: Accounts
    slow: NDArray[np.intp]
    typical: NDArray[np.intp]
    depth: Floats | None = None

    def entry_ns(self, rows: Sequence[Row]) -> Ints:
        """How long all of these entries took together, in each interaction."""
        total = np.zeros(len(self.accounts), dtype=np.int64)
        for row in rows:
            total += self.accounts.entry_ns(row.entry)
        return total


def evidence(about: str, rows: Sequence[Row], scene: Scene) -> tuple[str, ...]:
    """What the data shows of a term beside its size, or of the SETUP in it; `rows` are the term's. May be empty."""
    told = _TOLD.get(about)
    return () if told is None else tuple(told(rows, scene))


def _set_up(rows: Sequence[Row], scene: Scene) -> Iterator[str]:
    setup = [row for row in rows if split_entry(row.entry)[1] in SETUP_PARTS]
    if any(row.tail_ns for row in setup):
        names = ", ".join(split_entry(row.entry)[1].partition(".")[2] for row in setup if row.tail_ns)
        took = scene.entry_ns(setup) > 0
        yield (
            f"setting up connections ({names}) takes {_ms(sum(row.tail_ns for row in setup))} of the slowest; "
            f"{_share(took, scene.slow)} of them open one, {_share(took, None)} of all"
        )
    yield from _rounds(rows, scene)


def _rounds(rows: Sequence[Row], scene: Scene) -> Iterator[str]:
    rtt_ns = _round_trip_ns(scene)
    tail_ns = sum(row.tail_ns for row in rows)
    if rtt_ns and tail_ns:
        yield f"{tail_ns / rtt_ns:.1f} round trips of {_ms(rtt_ns)}"


def _geography(rows: Sequence[Row], scene: Scene) -> Iterator[str]:
    yield from _rounds(rows, scene)
    sites = _by_site(rows, scene)
    if len(sites) > 1:
        nearest = sorted(sites.items(), key=lambda site: site[1])[:3]
        yield "median network time by site: " + ", ".join(f"{name} {_ms(took)}" for name, took in nearest)


def _round_trip_ns(scene: Scene) -> float | None:
    """The path's round trip: as measured, else both floors, else a handshake of TCP."""
    accounts = scene.accounts
    stated = accounts.conditions.get("rtt_ns")
    if stated is not None and np.isfinite(stated).any():
        return float(np.nanmedian(stated))
    for parts in (_FLOORS, ("uplink.connect",)):
        took = np.zeros(len(accounts), dtype=np.int64)
        for part in parts:
            took += accounts.entry_ns(f"{USER_COMPONENT}/{part}")
        if (took > 0).any():
            return float(np.median(took[took > 0]))
    return None


def _by_site(rows: Sequence[Row], scene: Scene) -> Mapping[str, float]:
    """The median network time of each site with enough interactions to tell."""
    sites = scene.accounts.dimensions.get(SITE)
    if sites is None:
        return {}
    took, served = scene.entry_ns(rows), scene.accounts.served
    found = {}
    for place, name in enumerate(sites.values):
        at = served & (sites.codes == place)
        if at.sum() >= smallest_n(0.95):
            found[name] = float(np.median(took[at]))
    return found


def _api_hop(rows: Sequence[Row], scene: Scene) -> Iterator[str]:
    hops: dict[str, int] = {}
    for row in rows:
        component = split_entry(row.entry)[0]
        hops[component] = hops.get(component, 0) + row.tail_ns
    told = ", ".join(f"{name} {_ms(took)}" for name, took in sorted(hops.items(), key=lambda hop: (-hop[1], hop[0])))
    yield f"{len(hops)} {'hop' if len(hops) == 1 else 'hops'}: to {told}"


def _waiting(rows: Sequence[Row], scene: Scene) -> Iterator[str]:
    waits = scene.entry_ns(rows)
    yield (
        f"waits before service: {_ms(np.median(waits[scene.typical]))} typically, "
        f"{_ms(np.median(waits[scene.slow]))} for the slowest; {_share(waits > _FEW_MS, None)} wait over 1 ms"
    )
    if scene.depth is not None:
        slow, typical = scene.depth[scene.slow], scene.depth[scene.typical]
        if np.isfinite(slow).any() and np.isfinite(typical).any():
            yield f"queue on arrival: {np.nanmean(slow):.1f} before the slowest, {np.nanmean(typical):.1f} typically"
    even = _spread(waits[waits > 0])
    if even is not None:
        yield even


def _cold(rows: Sequence[Row], scene: Scene) -> Iterator[str]:
    accounts = scene.accounts
    took = scene.entry_ns([row for row in rows if term_of(row.entry) == row.term])
    cold = took > 0
    if not cold.any():
        labels = accounts.dimensions.get("start")
        cold = np.zeros(len(accounts), bool) if labels is None else labels.is_("cold")
        took = accounts.total_ns
    if cold.any():
        each = _ms(np.median(took[cold]))
        yield (
            f"{_share(cold, None)} of all meet one, of {each} in the median; {_share(cold, scene.slow)} of the slowest"
        )
        warm = accounts.times_ns[~cold]
        if len(warm) >= smallest_n(0.99):
            (p99,) = weighted_quantiles(warm, accounts.weights[~cold], (99,))
            yield f"p99 without them {_ms(p99)}"
    classes = accounts.dimensions.get(COLD)
    if classes is not None:
        found = {
            name: int((classes.codes[scene.slow] == place).sum())
            for place, name in enumerate(classes.values)
            if name != WARM
        }
        told = [f"{name} {count}" for name, count in sorted(found.items()) if count]
        if told:
            yield f"of the {len(scene.slow)} slowest by class: {', '.join(told)}"


def _variability(rows: Sequence[Row], scene: Scene) -> Iterator[str]:
    accounts, took = scene.accounts, scene.entry_ns(rows)[scene.accounts.served].astype(np.float64)
    weights = accounts.weights[accounts.served]
    levels = [level for level in (50, 95, 99) if len(took) >= smallest_n(level / 100)]
    if levels:
        values = weighted_quantiles(took, weights, levels)
        told = [f"p{level} {_ms(value)}" for level, value in zip(levels, values, strict=True)]
        yield f"above the path's floor: {', '.join(told)}"


def _setting(rows: Sequence[Row], scene: Scene) -> Iterator[str]:
    for row in rows:
        took = scene.accounts.entry_ns(row.entry)
        told = _spread(took[took > 0])
        if told is not None:
            yield f"{row.entry}: {told}"


def _spread(waits: Ints) -> str | None:
    """What the distribution of a wait says of what imposes it; None where it says nothing in particular."""
    if len(waits) < smallest_n(0.95):
        return None
    low, first, middle, third, high = (float(value) for value in np.quantile(waits, (0.01, 0.25, 0.5, 0.75, 0.99)))
    if high - low <= _CONSTANT * middle:
        return f"the same {_ms(middle)} for all, as a fixed setting gives"
    quartiles = np.array((first, middle, third)) / high
    if high > _FEW_MS and np.abs(quartiles - (0.25, 0.5, 0.75)).max() < _EVEN:
        return f"spread evenly up to {_ms(high)}, as looking every {_ms(high)} gives"
    return None


def _unattributed(rows: Sequence[Row], _: Scene) -> Iterator[str]:
    largest = sorted(rows, key=lambda row: (-row.tail_ns, row.entry))[:3]
    yield "largest: " + ", ".join(f"{row.entry} {_ms(row.tail_ns)}" for row in largest if row.tail_ns)


def _model(_: Sequence[Row], scene: Scene) -> Iterator[str]:
    for name, label in (("input_tokens", "input"), ("output_tokens", "output")):
        sizes = scene.accounts.sizes.get(name)
        if sizes is not None:
            slow, typical = sizes[scene.slow], sizes[scene.typical]
            if np.isfinite(slow).any() and np.isfinite(typical).any():
                yield (
                    f"{label} tokens: {np.nanmedian(slow):,.0f} for the slowest, {np.nanmedian(typical):,.0f} typically"
                )


_TOLD: Mapping[str, Callable[[Sequence[Row], Scene], Iterator[str]]] = {
    "geography": _geography,
    SETUP: _set_up,
    "api hop": _api_hop,
    "broker": _waiting,
    "cold start": _cold,
    "queueing": _waiting,
    "variability": _variability,
    "model": _model,
    "setting": _setting,
    "unattributed": _unattributed,
}


def _ms(value_ns: float) -> str:
    return format_duration(float(value_ns))


def _share(which: NDArray[np.bool_], among: NDArray[np.intp] | None) -> str:
    chosen = which if among is None else which[among]
    return f"{100 * float(chosen.mean()):.3g} %" if len(chosen) else "none"


def rows_of(term: str, rows: Sequence[Row]) -> list[Row]:
    """The rows that belong to one term."""
    return [row for row in rows if term_of(row.entry) == term]
