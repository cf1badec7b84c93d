"""Interactions that stand for others: what producers say of their samplers, and a hash to sample by."""

import math
import re
from collections.abc import Mapping
from hashlib import blake2b

# Where a producer says how it sampled, on the span that begins a trace.
TRACE_STATE = "tracestate"
_JAEGER_TYPE, _JAEGER_PARAM = "sampler.type", "sampler.param"
_RATE = "SampleRate"

KEYS = frozenset({TRACE_STATE, _JAEGER_TYPE, _JAEGER_PARAM, _RATE})

# Beyond this a count says more of a broken sampler than of the traffic.
MOST = 1_000_000

# OpenTelemetry's rejection threshold: up to 14 hexadecimal digits of a fraction of 2^56, trailing zeros left out.
_THRESHOLD = re.compile(r"(?:^|,)\s*ot=(?:[^,]*;)?th:([0-9a-f]{1,14})(?:[;,]|$)", re.ASCII)
_DIGITS = 14


def priority(name: str) -> int:
    """A hash of an id, uniform over 64 bits: the smallest are a sample that depends on no order."""
    return int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "big")


def stands_for(attributes: Mapping[str, object]) -> float:
    """How many interactions one with these attributes of its first span stands for; 1 where no sampler is named.

    The inverse of the probability that it was kept: by OpenTelemetry's threshold (`tracestate: ot=th:...`), Jaeger's
    probabilistic sampler, or a `SampleRate`. A value that makes no sense, or more than a million of it, counts as 1.
    """
    found = _THRESHOLD.search(str(attributes.get(TRACE_STATE, "")))
    if found is not None:
        rejected = int(found[1].ljust(_DIGITS, "0"), 16)
        return _sane(16**_DIGITS / (16**_DIGITS - rejected))
    if attributes.get(_JAEGER_TYPE) == "probabilistic":
        probability = _number(attributes.get(_JAEGER_PARAM))
        return _sane(1 / probability) if probability else 1.0
    return _sane(_number(attributes.get(_RATE)))


def whole(count: float, name: str) -> int:
    """The count as a whole number, rounded up or down by the hash of an id, so that it is right on the average."""
    below = math.floor(count)
    return below + (priority(name) / 2**64 < count - below)


def _number(value: object) -> float:
    try:
        number = float(value) if isinstance(value, str | int | float) else 0.0
    except ValueError:
        return 0.0
    return number if math.isfinite(number) else 0.0


def _sane(count: float) -> float:
    return count if 1 <= count <= MOST else 1.0
