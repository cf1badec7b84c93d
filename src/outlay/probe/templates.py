"""Bodies and messages that users write themselves: `{{prompt}}` and its like are filled in for each request."""

import re
from collections.abc import Mapping
from functools import lru_cache

import msgspec

NAMES = ("prompt", "model", "input_tokens", "output_tokens", "id")
_NUMBERS = (b"input_tokens", b"output_tokens")

_PLACE = re.compile(rb"\{\{\s*(\w+)\s*\}\}")


def check(template: bytes) -> bytes:
    """The template itself.

    Raises ValueError when it names what cannot be filled in, or is JSON but for a text that stands there bare.
    """
    unknown = {found.decode("ascii", "replace") for found in _PLACE.findall(template)} - set(NAMES)
    if unknown:
        known = ", ".join(f"{{{{{name}}}}}" for name in NAMES)
        raise ValueError(f"the template asks for {{{{{min(unknown)}}}}}; what can be filled in: {known}")
    numbers_only = _PLACE.sub(b"0", template)
    if numbers_only.lstrip().startswith((b"{", b"[")) and _decodes(numbers_only) and not is_json(template):
        raise ValueError('in a JSON template a text stands in quotes: "{{prompt}}"')
    return template


def names(template: bytes) -> frozenset[str]:
    """What the template asks for."""
    return frozenset(found.decode() for found in _PLACE.findall(template))


@lru_cache(maxsize=64)
def is_json(template: bytes) -> bool:
    """Whether it would be JSON once filled in: texts in quotes, numbers in quotes or bare."""
    return _decodes(_PLACE.sub(lambda found: b"0" if found[1] in _NUMBERS else b"x", template))


def fill(template: bytes, values: Mapping[str, str]) -> bytes:
    """The template with its values, escaped as the inside of a JSON text where it is JSON.

    Raises KeyError for a value that is not given.
    """
    write = _escaped if is_json(template) else str.encode
    return _PLACE.sub(lambda found: write(values[found[1].decode()]), template)


def _escaped(value: str) -> bytes:
    return msgspec.json.encode(value)[1:-1]


def _decodes(text: bytes) -> bool:
    try:
        msgspec.json.decode(text)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return False
    return True
