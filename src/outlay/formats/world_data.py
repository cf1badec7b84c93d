"""Recorded data that a world is made of: last miles, service times, rates of arrival."""

import csv
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from outlay.formats.codec import FormatError
from outlay.units import from_ms, from_s

# Both network recordings are resampled to this, which is how often the 5G one was sent.
SEND_PERIOD_NS = 50_000_000


def _rows(text: bytes, needed: Sequence[str]) -> list[dict[str, str]]:
    rows = list(csv.DictReader(text.decode("utf-8-sig", "replace").splitlines()))
    missing = [name for name in needed if not rows or name not in rows[0]]
    if missing:
        raise FormatError(f"expected a CSV with the columns {', '.join(needed)}; there is no {missing[0]}")
    return rows


def drive_delays_ns(text: bytes, road: str, network: str) -> tuple[int, ...]:
    """Round trips of one drive (5g-rtt), above its fastest, one for every 50 ms of it in order of sending.

    A slot in which nothing was sent repeats the one before: the network was as it was. Raises FormatError when the
    recording has no such drive.
    """
    rows = _rows(text, ("road", "network", "pub_time_ms", "delay_ms"))
    sent = sorted(
        (int(row["pub_time_ms"]), from_ms(row["delay_ms"]))
        for row in rows
        if row["road"] == road and row["network"] == network
    )
    if not sent:
        known = sorted({f"{row['road']} {row['network']}" for row in rows})
        raise FormatError(f"no drive on the road {road} in the network {network}; it has {', '.join(known)}")
    fastest_ns = min(delay_ns for _, delay_ns in sent)
    samples: list[int] = []
    begin_ms, period_ms = sent[0][0], SEND_PERIOD_NS // 1_000_000
    for at_ms, delay_ns in sent:
        slot = (at_ms - begin_ms) // period_ms
        samples += [samples[-1]] * (slot - len(samples)) if samples else []
        if slot >= len(samples):
            samples.append(delay_ns - fastest_ns)
    return tuple(samples)


def pair_delays_ns(text: bytes, pair: str) -> tuple[int, ...]:
    """Round trips of one pair of personal devices (netlatency), slice by slice, above its fastest.

    Raises FormatError when the recording has no such pair.
    """
    rows = _rows(text, ("slice",))
    if pair not in rows[0]:
        raise FormatError(f"no pair {pair}; it has {', '.join(list(rows[0])[1:6])}, ...")
    times = [from_s(row[pair]) for row in rows]
    return tuple(time - min(times) for time in times)


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

    Prompts: mean time by size at batch 1 up to 4,096 tokens, where it is still nearly straight. Steps: mean time of a
    token by batch size, at prompts of 512. Raises FormatError when nothing was measured for them.
    """
    rows = _rows(
        text,
        (
            "model",
            "hardware",
            "tensor_parallel",
            "prompt_size",
            "batch_size",
            "token_size",
            "prompt_time",
            "token_time",
        ),
    )
    wanted = (model, hardware, tensor_parallel)
    mine = [row for row in rows if (row["model"], row["hardware"], int(row["tensor_parallel"])) == wanted]
    if not mine:
        known = sorted({f"{row['model']} on {row['hardware']} x{row['tensor_parallel']}" for row in rows})
        raise FormatError(f"nothing measured for {model} on {hardware} x{tensor_parallel}; it has {', '.join(known)}")
    prompts = _means(mine, "prompt_size", "prompt_time", {"batch_size": "1"})
    prompts = {size: time for size, time in prompts.items() if size <= 4096}
    steps = _means(mine, "batch_size", "token_time", {"prompt_size": "512", "token_size": "128"})
    overhead, per_token, prefill_error = _line(prompts)
    first, slope, step_error = _line({batch - 1: time for batch, time in steps.items()})
    return Fitted(
        prefill_tokens_per_s=1000.0 / per_token,
        overhead_ns=from_ms(max(overhead, 0.0)),
        step_ns=from_ms(first),
        step_slope_ns=from_ms(max(slope, 0.0)),
        prefill_error=prefill_error,
        step_error=step_error,
    )


def _means(rows: Sequence[dict[str, str]], by: str, what: str, where: dict[str, str]) -> dict[int, float]:
    kept = [row for row in rows if all(row[key] == value for key, value in where.items())]
    values: dict[int, list[float]] = {}
    for row in kept:
        values.setdefault(int(row[by]), []).append(float(row[what]))
    if len(values) < 2:
        raise FormatError(f"fewer than two values of {by} were measured")
    return {size: float(np.mean(times)) for size, times in values.items()}


def _line(points: dict[int, float]) -> tuple[float, float, float]:
    x, y = np.array(list(points), dtype=np.float64), np.array(list(points.values()))
    slope, first = np.polyfit(x, y, 1, w=1 / y)
    return float(first), float(slope), float(np.max(np.abs(first + slope * x - y) / y))


def servegen_rates(text: bytes, mean_per_s: float, until_ns: int) -> tuple[tuple[int, float], ...]:
    """Recorded rates of ServeGen (rows of seconds, rate, ...), squeezed into `until_ns` and scaled to a mean.

    At most 60 steps, evenly spaced over the recording. Raises FormatError for a recording without rates.
    """
    rows = [line.split(",") for line in text.decode("utf-8", "replace").splitlines() if line.strip()]
    try:
        rates = np.array([float(row[1]) for row in rows])
    except (IndexError, ValueError):
        raise FormatError("expected rows of seconds, rate, ... without a header") from None
    if not len(rates) or not rates.mean() > 0:
        raise FormatError("the recording has no rates above 0")
    steps = np.array_split(rates, min(60, len(rates)))
    means = np.array([step.mean() for step in steps])
    means *= mean_per_s / means.mean()
    return tuple((until_ns * place // len(means), float(rate)) for place, rate in enumerate(means))
