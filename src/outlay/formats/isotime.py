"""ISO 8601 times of day as integer nanoseconds since 1970, exact to the last digit written."""

import re
from datetime import UTC, datetime, timedelta

from outlay import units

_ISO = re.compile(
    r"(\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d)(?:[.,](\d{1,9}))?(Z|[+-]\d\d(?::?\d\d)?)?", re.ASCII | re.IGNORECASE
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def parse_iso_ns(text: str) -> int:
    """`2026-02-25T10:00:00.123456789Z` as nanoseconds since 1970; a time without a zone counts as UTC.

    Raises ValueError for anything else: a date alone, more than nine digits of a second, a year beyond 64 bits.
    """
    match = _ISO.fullmatch(text)
    if match is None:
        raise ValueError("a time reads like 2026-02-25T10:00:00.123Z, with at most nine digits after the second")
    stamp, fraction, zone = match.groups()
    whole = datetime.fromisoformat(stamp + (zone or "Z").upper())
    whole_ns = (whole - _EPOCH) // timedelta(seconds=1) * units.NS_PER_S
    # The range is checked on the sum: the second in which the count begins, or ends, is only partly within it.
    return units.scaled(whole_ns + int((fraction or "").ljust(9, "0")), 1)
