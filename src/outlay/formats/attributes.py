"""The few attributes of a span that are wanted; the rest, prompts and outputs among it, is not even decoded."""

from collections.abc import Iterable, Mapping, Sequence
from math import isfinite

import msgspec

from outlay.trace import Scalar


def keep(items: Iterable[tuple[str, object]], wanted: frozenset[str]) -> dict[str, Scalar]:
    """The wanted items whose value is text, a finite number or a bool; of a repeated key, the last.

    A value may be a `msgspec.Raw`, which is decoded only when its key is wanted.
    Raises msgspec.DecodeError when that value is no JSON.
    """
    kept: dict[str, Scalar] = {}
    for key, value in items:
        if key in wanted:
            scalar = msgspec.json.decode(value) if isinstance(value, msgspec.Raw) else value
            if isinstance(scalar, str | int) or (isinstance(scalar, float) and isfinite(scalar)):
                kept[key] = scalar
    return kept


def first_of(attributes: Mapping[str, Scalar], keys: Sequence[str]) -> str | None:
    """The value of the first of `keys` that is there and not empty, as text; None when none is."""
    return next((str(attributes[key]) for key in keys if attributes.get(key) not in (None, "")), None)
