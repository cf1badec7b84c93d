"""Keys of routing, the same in `outlay.yaml` and in a world file, to core values."""

from typing import Any, TypeVar

from msgspec import UnsetType

from outlay.formats.routing_keys import ColdKeys, LadderKeys
from outlay.policy import Hedge, Rules, Rung
from outlay.units import parse_duration
from outlay.work import ColdStart

Value = TypeVar("Value")


def given(value: Value | UnsetType, otherwise: Value) -> Value:
    """The value of a key, or what holds when the file does not say."""
    return otherwise if isinstance(value, UnsetType) else value


def given_keys(keys: object, names: dict[str, str]) -> dict[str, Any]:
    """The keys that were given, by the names of the fields they set."""
    values = {there: getattr(keys, here) for here, there in names.items()}
    return {name: value for name, value in values.items() if not isinstance(value, UnsetType)}


def rules_of(keys: LadderKeys, render_ns: int) -> Rules:
    """How a moment is routed. Raises ValueError where the keys contradict one another."""
    names = ("last", "p_min", "p_floor", "attempts", "explore", "local_share")
    values = given_keys(keys, {name: name for name in names})
    if not isinstance(keys.rungs, UnsetType):
        values["rungs"] = tuple(
            Rung(name=rung.name, variants=given(rung.variants, ()), output_share=given(rung.output, 1.0))
            for rung in keys.rungs
        )
    if not isinstance(keys.hedge, UnsetType):
        values["hedge"] = Hedge(**given_keys(keys.hedge, {"after": "after", "gain": "gain"}))
    return Rules(render_ns=render_ns, sheddable=keys.sheddable == "yes", **values)


def cold_start_of(keys: ColdKeys | UnsetType) -> ColdStart | None:
    """What loading the model takes; None when nothing is said of it."""
    if isinstance(keys, UnsetType):
        return None
    return ColdStart(
        start_ns=tuple(parse_duration(time) for time in keys.times),
        keep_ns=None if isinstance(keys.keep, UnsetType) else parse_duration(keys.keep),
    )
