"""The log of decisions: JSON lines from which every decision can be made again, exactly, or by other rules.

The first line holds the fleet and the policy. After it come decisions, each with its request, what was left of the
budget, the forecasts it was made from and the chances it drew; and before a decision that needs them, rows of the
forecasts' table, each written once and then named. No content of a request is in it, only sizes.
"""

import base64
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from typing import TypeVar

import msgspec
import numpy as np

from outlay.decaying import Floats
from outlay.decision import Action, Decision, decide
from outlay.forecast import Forecasts
from outlay.formats.codec import FormatError
from outlay.policy import Policy
from outlay.work import Fleet, Request, Target

VERSION = "decision/1"

_Any = TypeVar("_Any")


class _Head(msgspec.Struct, kw_only=True):
    outlay: str
    targets: tuple[Target, ...]
    policy: Policy


class _Row(msgspec.Struct, kw_only=True):
    row: str
    cdf: str
    middle: float


class _Line(msgspec.Struct, kw_only=True, omit_defaults=True):
    request: Request
    at_ns: int
    remaining_ns: int
    action: Action
    draws: list[float]
    network_ns: list[str]
    site_rows: list[int]
    service_ns: list[float]
    step_ns: list[float]
    useful_tokens: int
    wait_ns: list[float]
    rows: list[str]
    load: list[int]
    spread: list[float]
    failure: list[float]
    usable: list[bool]
    calibrated: list[bool]
    late: list[float] | None
    pressure: float
    spare: list[bool] | None = None
    target: int | None = None
    p_on_time: float = 0.0
    cold: dict[str, tuple[float, list[float]]] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Logged:
    """One decision as it was made, and all that it was made from."""

    request: Request
    at_ns: int
    remaining_ns: int
    action: Action
    target: int | None
    p_on_time: float
    draws: tuple[float, ...]
    forecasts: Forecasts

    def again(self, policy: Policy) -> Decision:
        """The decision that `policy` makes of the same: with the logged one's policy, the logged decision.

        Another policy may draw more chances than were logged; the further ones are the logged ones from the start.
        """
        draws = self.draws or (0.5,)
        used = iter(range(2**31))
        return decide(
            self.request,
            self.remaining_ns,
            policy,
            self.forecasts,
            self.at_ns,
            lambda: draws[next(used) % len(draws)],
        )


class DecisionWriter:
    """Writes a log with `write`, which is given whole lines without their ends."""

    def __init__(self, write: Callable[[bytes], None], fleet: Fleet, policy: Policy) -> None:
        self._write = write
        self._rows: set[str] = set()
        write(msgspec.json.encode(_Head(outlay=VERSION, targets=fleet.targets, policy=policy)))

    def add(self, decision: Decision, request: Request, forecasts: Forecasts, draws: Iterable[float]) -> None:
        """One decision, with the forecasts it was made from and the chances it drew."""
        names = self._name_rows(forecasts)
        line = _Line(
            request=request,
            at_ns=decision.at_ns,
            remaining_ns=decision.remaining_ns,
            action=decision.action,
            target=decision.target,
            p_on_time=decision.p_on_time,
            draws=list(draws),
            network_ns=[_packed(row) for row in forecasts.network_ns[_first_of_site(forecasts)]],
            site_rows=forecasts.fleet.site_of.tolist(),
            service_ns=forecasts.service_ns.tolist(),
            step_ns=forecasts.step_ns.tolist(),
            useful_tokens=forecasts.useful_tokens,
            wait_ns=forecasts.wait_ns.tolist(),
            rows=names,
            load=forecasts.load.tolist(),
            spread=forecasts.spread.tolist(),
            failure=forecasts.failure.tolist(),
            usable=forecasts.usable.tolist(),
            calibrated=forecasts.calibrated.tolist(),
            late=None if forecasts.late is None else forecasts.late.tolist(),
            pressure=forecasts.pressure,
            spare=None if forecasts.spare is None else forecasts.spare.tolist(),
            cold={
                str(place): (float(forecasts.cold[place]), starts_ns.tolist())
                for place, starts_ns in forecasts.cold_ns.items()
            },
        )
        self._write(msgspec.json.encode(line))

    def _name_rows(self, forecasts: Forecasts) -> list[str]:
        names = []
        for row in forecasts.row.tolist():
            packed = _packed(forecasts.cdf[row])
            name = blake2b(packed.encode(), digest_size=6).hexdigest()
            if name not in self._rows:
                self._rows.add(name)
                self._write(msgspec.json.encode(_Row(row=name, cdf=packed, middle=float(forecasts.middle[row]))))
            names.append(name)
        return names


def read_decisions(lines: Iterable[bytes]) -> tuple[Policy, Iterator[Logged]]:
    """The policy of a log and its decisions, in order.

    Raises FormatError for a log without its first line, and while it is read for a line that cannot be, by its number.
    """
    numbered = enumerate(lines, start=1)
    number, first = next(numbered, (1, b""))
    head = _decoded(first, number, _Head)
    if head.outlay != VERSION:
        raise FormatError(f"line 1: expected a log of decisions ({VERSION}), found {head.outlay!r}")
    return head.policy, _logged(numbered, Fleet(head.targets))


def _logged(lines: Iterator[tuple[int, bytes]], fleet: Fleet) -> Iterator[Logged]:
    rows: dict[str, tuple[Floats, float]] = {}
    for number, line in lines:
        if not line.strip():
            continue
        if line.startswith(b'{"row"'):
            row = _decoded(line, number, _Row)
            rows[row.row] = (_unpacked(row.cdf, number), row.middle)
            continue
        read = _decoded(line, number, _Line)
        try:
            yield _one(read, fleet, rows, number)
        except (KeyError, IndexError, ValueError) as error:
            raise FormatError(f"line {number}: the decision does not fit the lines before it ({error})") from None


def _one(line: _Line, fleet: Fleet, rows: dict[str, tuple[Floats, float]], number: int) -> Logged:
    of_site = np.array([_unpacked(text, number) for text in line.network_ns])
    names = list(dict.fromkeys(line.rows))
    cold = np.zeros(len(fleet.targets))
    for place, (share, _) in line.cold.items():
        cold[int(place)] = share
    forecasts = Forecasts(
        fleet=fleet,
        moment=line.request.moment,
        network_ns=of_site[np.array(line.site_rows)],
        service_ns=np.array(line.service_ns),
        step_ns=np.array(line.step_ns),
        useful_tokens=line.useful_tokens,
        wait_ns=np.array(line.wait_ns),
        cdf=np.array([rows[name][0] for name in names]),
        middle=np.array([rows[name][1] for name in names]),
        row=np.array([names.index(name) for name in line.rows], dtype=np.intp),
        load=np.array(line.load, dtype=np.intp),
        spread=np.array(line.spread),
        cold=cold,
        cold_ns={int(place): np.array(starts_ns) for place, (_, starts_ns) in line.cold.items()},
        failure=np.array(line.failure),
        usable=np.array(line.usable, dtype=np.bool_),
        calibrated=np.array(line.calibrated, dtype=np.bool_),
        late=None if line.late is None else np.array(line.late),
        pressure=line.pressure,
        spare=None if line.spare is None else np.array(line.spare, dtype=np.bool_),
    )
    return Logged(
        request=line.request,
        at_ns=line.at_ns,
        remaining_ns=line.remaining_ns,
        action=line.action,
        target=line.target,
        p_on_time=line.p_on_time,
        draws=tuple(line.draws),
        forecasts=forecasts,
    )


def _first_of_site(forecasts: Forecasts) -> list[int]:
    """A candidate of each site: all candidates of a site share its way."""
    site_of = forecasts.fleet.site_of.tolist()
    return [site_of.index(site) for site in range(len(forecasts.fleet.sites))]


def _packed(row: Floats) -> str:
    return base64.b64encode(np.ascontiguousarray(row, dtype="<f8").tobytes()).decode()


def _unpacked(text: str, number: int) -> Floats:
    try:
        return np.frombuffer(base64.b64decode(text, validate=True), dtype="<f8").astype(np.float64)
    except ValueError:
        raise FormatError(f"line {number}: packed numbers that cannot be read") from None


def _decoded(line: bytes, number: int, kind: type[_Any]) -> _Any:
    try:
        return msgspec.json.decode(line, type=kind)
    except (msgspec.MsgspecError, ValueError) as error:
        raise FormatError(f"line {number}: expected a log of decisions ({VERSION}): {error}") from None
