"""A budget on the wire: what a request's headers say is left of it, and the headers that hand the rest on.

A budget is a duration that shrinks at every hop and attempt, never a time of day. Its own header is
`x-outlay-budget: moment=voice-turn;rem=412;spent=88`, in milliseconds; other spellings in use are understood too. What
cannot be read is left out and named, and never fails a request.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from urllib.parse import unquote

from outlay.units import NS_PER_MS, NS_PER_S

BUDGET = b"x-outlay-budget"
BAGGAGE = b"baggage"

_MS, _S = NS_PER_MS, NS_PER_S
# Longer budgets than a day are a mistake; shorter than nothing are spent.
_MOST_NS = 86_400 * NS_PER_S
_NUMBER = re.compile(r"-?(\d{1,12}(\.\d{0,9})?|\.\d{1,9})", re.ASCII)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)
_REGION = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._/-]{0,63}", re.ASCII)
_GRPC = re.compile(r"(\d{1,8})([HMSmun])", re.ASCII)
_GRPC_UNITS = {"H": 3600 * _S, "M": 60 * _S, "S": _S, "m": _MS, "u": 1_000, "n": 1}


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What a request says of itself; None for what it does not say. `notes` name what could not be read."""

    moment: str | None = None
    remaining_ns: int | None = None
    spent_ns: int = 0
    region: str | None = None
    notes: tuple[str, ...] = ()


NOTHING = Told()


def read_budget(headers: Mapping[bytes, bytes]) -> Told:
    """What the headers, by name in lower case, say of budget, moment and place. The header of its own wins, then the
    order of SPELLINGS; a budget below 0 is spent.
    """
    if BUDGET not in headers and BAGGAGE not in headers and _OTHERS.isdisjoint(headers):
        return NOTHING
    notes: list[str] = []
    moment, remaining_ns, spent_ns = _own(headers, notes)
    baggage = _baggage(headers.get(BAGGAGE, b"").decode("latin-1"))
    moment = moment or _named(baggage.get("outlay.moment"), _NAME, "baggage outlay.moment", notes)
    if remaining_ns is None:
        for name, parse in SPELLINGS.items():
            if name in headers:
                remaining_ns = parse(headers[name].decode("latin-1").strip())
                if remaining_ns is not None:
                    break
                notes.append(f"{name.decode()} cannot be read")
    region = _named(baggage.get("outlay.user_region"), _REGION, "baggage outlay.user_region", notes)
    return Told(moment=moment, remaining_ns=remaining_ns, spent_ns=spent_ns, region=region, notes=tuple(notes))


def _own(headers: Mapping[bytes, bytes], notes: list[str]) -> tuple[str | None, int | None, int]:
    text = headers.get(BUDGET)
    if text is None:
        return None, None, 0
    pairs = dict(pair.strip().partition("=")[::2] for pair in text.decode("latin-1").split(";"))
    remaining_ns, spent_ns = (_time(pairs.get(key, ""), _MS) for key in ("rem", "spent"))
    if remaining_ns is None or ("spent" in pairs and spent_ns is None):
        notes.append("x-outlay-budget cannot be read: expected such as moment=voice-turn;rem=412;spent=88")
        return None, None, 0
    moment = _named(pairs.get("moment"), _NAME, "x-outlay-budget moment", notes)
    return moment, remaining_ns, max(spent_ns or 0, 0)


def _named(text: str | None, pattern: re.Pattern[str], what: str, notes: list[str]) -> str | None:
    if text is None:
        return None
    if pattern.fullmatch(text) is None:
        notes.append(f"{what} is no name")
        return None
    return text


def _baggage(text: str) -> dict[str, str]:
    """W3C baggage: `key=value;property, ...`, values percent-encoded."""
    members = (member.partition(";")[0].partition("=") for member in text.split(","))
    return {key.strip(): unquote(value.strip()) for key, _, value in members if key.strip()}


def _time(text: str, unit_ns: int) -> int | None:
    if _NUMBER.fullmatch(text) is None:
        return None
    return min(round(float(text) * unit_ns), _MOST_NS)


def _positive(unit_ns: int) -> Callable[[str], int | None]:
    def parse(text: str) -> int | None:
        value = _time(text, unit_ns)
        return None if value is None or value < 0 else value

    return parse


def _grpc_timeout(text: str) -> int | None:
    match = _GRPC.fullmatch(text)
    return None if match is None else min(int(match[1]) * _GRPC_UNITS[match[2]], _MOST_NS)


# Spellings in use, by what they mean most directly for one request; seconds where the name says so.
SPELLINGS: Mapping[bytes, Callable[[str], int | None]] = {
    b"grpc-timeout": _grpc_timeout,
    b"request-timeout-ms": _positive(_MS),
    b"x-llm-d-slo-ttft-ms": _positive(_MS),
    b"x-slo-ttft-ms": _positive(_MS),
    b"x-envoy-expected-rq-timeout-ms": _positive(_MS),
    b"x-envoy-upstream-rq-timeout-ms": _positive(_MS),
    b"x-portkey-request-timeout": _positive(_MS),
    b"x-litellm-stream-timeout": _positive(_S),
    b"x-litellm-timeout": _positive(_S),
}
_OTHERS = frozenset(SPELLINGS)
# Headers that say a budget are replaced on the way on: what they said held at the hop before.
REPLACED = frozenset({BUDGET, *SPELLINGS})


def grpc_timeout(remaining_ns: int) -> str:
    """As gRPC spells it: at most 8 digits, rounded down so that the next hop never has more than there is."""
    for letter in ("u", "m", "S"):
        value = max(remaining_ns, 0) // _GRPC_UNITS[letter]
        if value < 100_000_000:
            return f"{value}{letter}"
    return "99999999S"


def budget_headers(moment: str, remaining_ns: int, spent_ns: int) -> bytes:
    """Header lines for the next hop: what is left of the budget when they are sent."""
    remaining_ns = max(remaining_ns, 0)
    whole_ms = remaining_ns // _MS
    return (
        f"x-outlay-budget: moment={moment};rem={remaining_ns // 1000 / 1000:.3f};spent={spent_ns / _MS:.3f}\r\n"
        f"request-timeout-ms: {whole_ms}\r\ngrpc-timeout: {grpc_timeout(remaining_ns)}\r\n"
    ).encode("latin-1")


def decision_header(target: str, p: float, headroom_ns: float, rung: int) -> bytes:
    """Who was chosen and how likely it is on time: the header line for the answer."""
    # A probability is never rounded up to certainty.
    shown = min(int(p * 1000) / 1000, 0.999)
    return f"x-outlay-decision: target={target};p={shown:g};headroom={headroom_ns / _MS:.0f};rung={rung}\r\n".encode(
        "latin-1", "replace"
    )
