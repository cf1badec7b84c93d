"""Integer nanoseconds: the only unit inside Outlay, and the only place that converts to or from another.

Every name that holds a time ends in its unit (`_ns`, `_ms`). Text durations read `250ms`, `1.5s`, `2m`.
"""

import re
from decimal import Decimal

NS_PER_US = 1_000
NS_PER_MS = 1_000_000
NS_PER_S = 1_000_000_000

_UNITS = {
    "ns": 1,
    "us": NS_PER_US,
    "µs": NS_PER_US,  # micro sign U+00B5
    "μs": NS_PER_US,  # Greek mu U+03BC, which some producers write instead
    "ms": NS_PER_MS,
    "s": NS_PER_S,
    "m": 60 * NS_PER_S,
    "h": 3600 * NS_PER_S,
}
_DURATION = re.compile(r"\s*(\d+(?:\.\d+)?|\.\d+)\s*(ns|us|µs|μs|ms|s|m|h)\s*", re.ASCII)

# Beyond 64 bits no producer's clock counts, and arrays of totals could not hold it.
MAX_NS = 2**63 - 1


def parse_duration(text: str) -> int:
    """`"250ms"`, `"1.5s"`, `"2m"` as nanoseconds, at least 0.

    Raises ValueError when the text is not a number with a unit, or does not fit 63 bits.
    """
    match = _DURATION.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a duration; write a number and a unit, such as 250ms or 1.5s")
    number, unit = match.groups()
    return scaled(number, _UNITS[unit])


def scaled(value: int | float | str, factor_ns: int) -> int:
    """`value` times `factor_ns`, rounded half to even, without the error that a binary float would add.

    A float is read as the shortest decimal that names it, which is what its producer wrote.
    Raises ValueError for text that is no number, for NaN and infinity, and beyond 63 bits.
    """
    if type(value) is int:
        result = value * factor_ns
    else:
        try:
            product = Decimal(str(value)) * factor_ns
            # Before making an integer of it: one with an exponent of a million would take seconds.
            result = int(product.to_integral_value()) if abs(product) < 2 * MAX_NS else 2 * MAX_NS
        except (ArithmeticError, ValueError):
            raise ValueError(f"{value!r} is not a finite number") from None
    if not -MAX_NS <= result <= MAX_NS:
        raise ValueError(f"{value!r} is beyond what a 64-bit nanosecond count can hold")
    return result


def from_us(value: int | float | str) -> int:
    """Microseconds as nanoseconds; see `scaled`."""
    return scaled(value, NS_PER_US)


def from_ms(value: int | float | str) -> int:
    """Milliseconds as nanoseconds; see `scaled`."""
    return scaled(value, NS_PER_MS)


def from_s(value: int | float | str) -> int:
    """Seconds as nanoseconds; see `scaled`."""
    return scaled(value, NS_PER_S)


def to_ms(value_ns: float) -> float:
    """Nanoseconds as milliseconds, for drawing and for people; never for further arithmetic."""
    return value_ns / NS_PER_MS


def format_duration(value_ns: float) -> str:
    """Nanoseconds for people, three significant digits: `0`, `850 ns`, `12.3 µs`, `412 ms`, `1.53 s`, `137 s`.

    Infinity, which is how a failed interaction counts, reads `never`.
    """
    if value_ns in (float("inf"), float("-inf")):
        return "never"
    if value_ns < 0:
        return "-" + format_duration(-value_ns)
    if value_ns == 0:
        return "0"
    for factor, unit in ((NS_PER_S, "s"), (NS_PER_MS, "ms"), (NS_PER_US, "µs"), (1, "ns")):
        # 999.6 ms would round to "1000 ms": leave such values to the larger unit.
        if value_ns >= 0.9995 * factor:
            return f"{_three_digits(value_ns / factor)} {unit}"
    return f"{_three_digits(value_ns)} ns"


def _three_digits(value: float) -> str:
    if value >= 99.95:
        return f"{value:.0f}"
    return f"{value:.1f}" if value >= 9.995 else f"{value:.2f}"
