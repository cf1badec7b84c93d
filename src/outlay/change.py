"""Changes to replay, in the words of `--what-if`: `ENTRY=VALUE`."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from fnmatch import fnmatchcase

from outlay.stages import JOINT, TERMS, UNATTRIBUTED, split_entry, term_of
from outlay.units import parse_duration

START, WARM, RTT = "start", "warm", "rtt"

_POSSIBLE = (
    "write ENTRY=0, ENTRY=40ms (at most that), ENTRY=p50 (at most its own median), ENTRY=x0.5 (scaled), "
    "ENTRY=site:lon (as measured where a dimension has that value), ENTRY=rtt:76.5ms or start=warm"
)
_PERCENTILE = re.compile(r"p(\d{1,2}(?:\.\d+)?)", re.ASCII)
_FACTOR = re.compile(r"x(\d{1,4}(?:\.\d+)?|\.\d+)", re.ASCII)
_TERM_NAMES = frozenset(term.name for term in TERMS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One change in the words of `--what-if`.

    `entry` says whose time changes, `kind` is a key of the table of effects at the end of this module. `amount` is a
    limit or a round trip in nanoseconds, a percentile, or a factor; `dimension` and `value` say from whom to take.
    `rtts_ns` are round trips by the region of the user, where those differ.
    """

    text: str
    entry: str
    kind: str
    amount: float = 0.0
    dimension: str = ""
    value: str = ""
    rtts_ns: Mapping[str, int] = field(default_factory=dict)


def parse_change(text: str, rtts_ns: Mapping[tuple[str, str], int] | None = None) -> Change:
    """The change that a text asks for. Raises ValueError, which says what is possible, for any other text.

    ENTRY is a shell pattern for whole entries, or for their stage or part whatever the component; parts below it are
    included. Or it is the name of a term. VALUE is `0`, a duration, `p50`, `x0.5`, `DIMENSION:VALUE`, or `rtt:` and a
    duration or, where `rtts_ns` are the round trips from one place to another, a place in it.
    """
    name, sign, to = (part.strip() for part in text.rpartition("="))
    if not (sign and name and to):
        raise ValueError(f"{text!r} is not a change; {_POSSIBLE}")
    if name == START and to != WARM:
        raise ValueError(f"{text!r} is not a change; a start can only be made warm; {_POSSIBLE}")
    if name == START:
        return Change(text=text, entry=name, kind=WARM)
    return _valued(text, name, to, rtts_ns)


def _valued(text: str, name: str, to: str, rtts_ns: Mapping[tuple[str, str], int] | None) -> Change:
    if found := _PERCENTILE.fullmatch(to):
        return Change(text=text, entry=name, kind="percentile", amount=float(found[1]))
    if found := _FACTOR.fullmatch(to):
        return Change(text=text, entry=name, kind="factor", amount=float(found[1]))
    dimension, colon, value = (part.strip() for part in to.partition(":"))
    if dimension == RTT and rtts_ns is not None:
        return _to_place(text, name, value, rtts_ns)
    if dimension == RTT:
        return Change(text=text, entry=name, kind=RTT, amount=_duration(text, value))
    if dimension and colon and value:
        return Change(text=text, entry=name, kind="like", dimension=dimension, value=value)
    return Change(text=text, entry=name, kind="limit", amount=0 if to == "0" else _duration(text, to))


def _duration(text: str, value: str) -> int:
    try:
        return parse_duration(value)
    except ValueError:
        raise ValueError(f"{text!r} is not a change: {value!r} is no duration; {_POSSIBLE}") from None


def _to_place(text: str, name: str, place: str, rtts_ns: Mapping[tuple[str, str], int]) -> Change:
    row = {here: rtt_ns for (here, there), rtt_ns in rtts_ns.items() if there == place}
    if not row:
        near = get_close_matches(place, dict.fromkeys(there for _, there in rtts_ns), n=5, cutoff=0.4)
        raise ValueError(
            f"{text!r} is not a change: no round trip to {place!r} is known; near it: {', '.join(near) or 'none'}"
        )
    return Change(text=text, entry=name, kind=RTT, value=place, rtts_ns=row)


# Which entries a change is of


def matching(entries: Sequence[str], wanted: str) -> tuple[str, ...]:
    """The entries that a change names, as `parse_change` says. Raises ValueError, with the nearest, for none."""
    term = wanted.replace("_", " ").replace("-", " ").lower()
    found = [name for name in entries if _fits(name, wanted)]
    if not found and term in _TERM_NAMES:
        found = [name for name in entries if term_of(name) == term]
    if not found:
        known = [*entries, *(split_entry(name)[1] for name in entries), *(term_of(name) for name in entries)]
        near = get_close_matches(wanted, dict.fromkeys(known), n=5, cutoff=0.4) or sorted(entries)[:5]
        raise ValueError(f"no entry here is {wanted!r}; there are {', '.join(near) or 'none at all'}")
    return tuple(found)


def _fits(name: str, wanted: str) -> bool:
    _, stage = split_entry(name)
    # A joint name begins like its first stage, but is not a part of it.
    parts = JOINT not in stage or stage.startswith(UNATTRIBUTED)
    return any(
        whole == wanted or fnmatchcase(whole, wanted) or (parts and fnmatchcase(whole, f"{wanted}.*"))
        for whole in (name, stage)
    )
