"""Recorded data that a world is made of: last miles, service times, rates of arrival."""

import csv
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from outlay.formats.codec import FormatError
from outlay.formats.spec_wire import nearest
from outlay.formats.spec_yaml import shown
from outlay.units import NS_PER_MS, NS_PER_S, from_ms, from_s

# How often the drives were sent, and so how long one of their samples holds.
SEND_PERIOD_NS = 50 * NS_PER_MS
_LONGEST_DRIVE = 24 * 3600 * NS_PER_S // SEND_PERIOD_NS

_MOST = 10**15
_MOST_STEPS = 60
_MOST_NAMES = 6

_LONGEST_PROMPT = 4096
_LONGEST_MS = 24 * 3600 * 1000
_FEWEST_POINTS = 2

Row = Mapping[str, str]


def _rows(text: bytes, needed: Sequence[str]) -> list[Row]:
    """The rows of a CSV with these columns. Raises FormatError without rows, or for one that is cut short."""
    rows: list[Row] = list(csv.DictReader(text.decode("utf-8-sig").splitlines()))
    missing = [name for name in needed if not rows or name not in rows[0]]
    if missing:
        raise FormatError(f"expected a CSV with the columns {', '.join(needed)}; there is no {missing[0]}")
    for number, row in enumerate(rows, start=2):
        if None in row or None in row.values():
            raise FormatError(f"line {number}: expected as many cells as there are columns")
    return rows


def _read(value: str, of: Callable[[str], int | float]) -> float:
    """A cell that must be a number from 0 to 1e15, past which nothing measured lies. Raises FormatError otherwise."""
    try:
        number = of(value)
    except ValueError:
        number = -1
    if not 0 <= number <= _MOST:
        raise FormatError(f"expected a number of at least 0, got {shown(value)}")
    return number


def drive_delays_ns(text: bytes, road: str, network: str) -> tuple[int, ...]:
    """Round trips of one drive (5g-rtt), above its fastest, one for every 50 ms of it in order of sending.

    Of several sent in one slot the first counts, and of several sent at once the fastest. A slot in which nothing was
    sent repeats the one before: the network was as it was. Raises FormatError when the recording has no such drive, or
    one that lasts for more than a day.
    """
    rows = _rows(text, ("road", "network", "pub_time_ms", "delay_ms"))
    sent = sorted(
        (int(_read(row["pub_time_ms"], int)), int(_read(row["delay_ms"], from_ms)))
        for row in rows
        if (row["road"], row["network"]) == (road, network)
    )
    if not sent:
        known = sorted({f"{row['road']} {row['network']}" for row in rows})
        raise FormatError(f"no drive on the road {road} in the network {network}; it has {_listed(known)}")
    fastest_ns = min(delay_ns for _, delay_ns in sent)
    begin_ms, period_ms = sent[0][0], SEND_PERIOD_NS // NS_PER_MS
    samples: list[int] = []
    for at_ms, delay_ns in sent:
        slot = (at_ms - begin_ms) // period_ms
        if slot > _LONGEST_DRIVE:
            raise FormatError(f"the drive on the road {road} lasts for more than a day")
        samples += samples[-1:] * (slot - len(samples))
        if slot == len(samples):
            samples.append(delay_ns - fastest_ns)
    return tuple(samples)


def pair_delays_ns(text: bytes, pair: str) -> tuple[int, ...]:
    """Round trips of one pair of personal devices (netlatency), slice by slice, above its fastest.

    The slices were taken hours apart: they say how unlike one another round trips of a pair are, not how soon they
    change. Raises FormatError when the recording has no such pair.
    """
    rows = _rows(text, ("slice",))
    if pair not in rows[0] or pair == "slice":
        raise FormatError(f"no pair {pair}; it has {_listed(list(rows[0])[1:])}")
    times = [int(_read(row[pair], from_s)) for row in rows]
    return tuple(time - min(times) for time in times)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:_MOST_NAMES]) + (", ..." if len(names) > _MOST_NAMES else "")


_MEASURED = (
    "model", "hardware", "tensor_parallel", "prompt_size", "batch_size", "token_size", "prompt_time", "token_time",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """Straight lines through measured service times, by least squares of relative errors.

    `prefill_error` and `step_error` are the largest relative distances of a measured mean from its line.
    """

    prefill_tokens_per_s: float
    overhead_ns: int
    step_ns: int
    step_slope_ns: int
    prefill_error: float
    step_error: float


def fit_service(text: bytes, model: str, hardware: str, tensor_parallel: int) -> Fitted:
    """Service times of one model on one hardware (splitwise's measurements).

    Prompts: mean time by size at batch 1, up to 4,096 tokens; beyond them attention makes it anything but straight, and
    at the last of them a fast card is already a third above its line (`prefill_error`). Steps: mean time of a token by
    batch size, for answers of 128 to prompts of 512. Raises FormatError when nothing was measured for them, or what was
    does not rise with the size.
    """
    rows = _rows(text, _MEASURED)
    wanted = (model, hardware, str(tensor_parallel))
    mine = [row for row in rows if _kind(row) == wanted]
    if not mine:
        known = sorted({"{} on {} x{}".format(*_kind(row)) for row in rows})
        asked = f"{model} on {hardware} x{tensor_parallel}"
        raise FormatError(f"nothing was measured for {asked}; {nearest(asked, known)}")
    prompts = _means(mine, "prompt_size", "prompt_time", {"batch_size": "1"})
    steps = _means(mine, "batch_size", "token_time", {"prompt_size": "512", "token_size": "128"})
    overhead, per_token, prefill_error = _line(
        {size: time for size, time in prompts.items() if size <= _LONGEST_PROMPT}
    )
    first, slope, step_error = _line({batch - 1: time for batch, time in steps.items()})
    if per_token <= 0 or first <= 0:
        raise FormatError(f"times of {model} on {hardware} x{tensor_parallel} do not rise with the size")
    return Fitted(
        prefill_tokens_per_s=1000.0 / per_token,
        overhead_ns=from_ms(max(overhead, 0.0)),
        step_ns=from_ms(first),
        step_slope_ns=from_ms(max(slope, 0.0)),
        prefill_error=prefill_error,
        step_error=step_error,
    )


def _kind(row: Row) -> tuple[str, str, str]:
    return row["model"], row["hardware"], row["tensor_parallel"]


def _means(rows: Sequence[Row], by: str, what: str, where: Mapping[str, str]) -> dict[int, float]:
    values: dict[int, list[float]] = {}
    for row in rows:
        if all(row[key] == value for key, value in where.items()):
            values.setdefault(int(_read(row[by], int)), []).append(_read(row[what], float))
    return {size: float(np.mean(times)) for size, times in values.items()}


def _line(points: Mapping[int, float]) -> tuple[float, float, float]:
    """First value, slope, and the largest relative distance of a point, by least squares of relative errors."""
    if len(points) < _FEWEST_POINTS or not 0 < min(points.values()) <= max(points.values()) < _LONGEST_MS:
        raise FormatError("fewer than two sizes were measured, or one took no time, or more than a day")
    x, y = np.array(list(points), dtype=np.float64), np.array(list(points.values()))
    slope, first = np.polyfit(x, y, 1, w=1 / y)
    return float(first), float(slope), float(np.max(np.abs(first + slope * x - y) / y))


def servegen_rates(text: bytes, mean_per_s: float, until_ns: int) -> tuple[tuple[int, float], ...]:
    """Recorded rates of ServeGen (rows of seconds, rate, ...), squeezed into `until_ns` and scaled to a mean.

    At most 60 steps of equal length, each the mean of its part of the recording. Raises FormatError for a recording
    without rates.
    """
    rows = [line.split(",") for line in text.decode("utf-8-sig").splitlines() if line.strip()]
    if not rows or min(map(len, rows)) <= 1:
        raise FormatError("expected rows of seconds, rate, ... without a header")
    rates = np.array([_read(row[1], float) for row in rows])
    if not rates.any():
        raise FormatError("the recording has no rates above 0")
    means = np.array([step.mean() for step in np.array_split(rates, min(_MOST_STEPS, len(rates)))])
    means *= mean_per_s / means.mean()
    return tuple((until_ns * place // len(means), float(rate)) for place, rate in enumerate(means))
