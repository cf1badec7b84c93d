"""The keys that say how a moment is routed and what a server costs, the same in `outlay.yaml` and in a world file."""

from typing import Annotated, Literal

from msgspec import UNSET, Meta, UnsetType

from outlay.formats.value_keys import Count, Duration, Keys, Name, Share
from outlay.policy import Last


class ColdKeys(Keys, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What loading a model takes."""

    times: Annotated[tuple[Duration, ...], Meta(description="each equally likely", min_length=1)]
    keep: (
        Annotated[Duration, Meta(description="unloaded after this long without work; never, when not given")]
        | UnsetType
    ) = UNSET


class RungKeys(Keys, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One way to serve."""

    name: Annotated[Name, Meta(description="what it is called in decisions")]
    variants: Annotated[tuple[Name, ...], Meta(description="any, when not given")] | UnsetType = UNSET
    output: (
        Annotated[
            float,
            Meta(
                description="share of the output asked for",
                gt=0,
                le=1,
                extra={"expects": "a number above 0, at most 1"},
            ),
        ]
        | UnsetType
    ) = UNSET


class HedgeKeys(Keys, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When a second attempt may run beside a slow first one."""

    after: Annotated[Share, Meta(description="the quantile of the first one's own time")] | UnsetType = UNSET
    gain: Annotated[Share, Meta(description="how much likelier on time the second must be")] | UnsetType = UNSET


class LadderKeys(Keys, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a moment is routed."""

    rungs: (
        Annotated[
            tuple[RungKeys, ...],
            Meta(description="ways to serve, best first; any target, when not given", min_length=1),
        ]
        | UnsetType
    ) = UNSET
    last: Annotated[Last, Meta(description="what is left when none is on time")] | UnsetType = UNSET
    p_min: (
        Annotated[Share, Meta(description="how likely on time a choice must be; 0.95 when not given")] | UnsetType
    ) = UNSET
    p_floor: (
        Annotated[Share, Meta(description="below it nothing is served that would have to queue; 0.9 when not given")]
        | UnsetType
    ) = UNSET
    attempts: (
        Annotated[Count, Meta(description="the most that one request may cost, the first included; 2 when not given")]
        | UnsetType
    ) = UNSET
    explore: (
        Annotated[
            Share,
            Meta(description="of requests, which go to any that is likely on time; 0.01 when not given"),
        ]
        | UnsetType
    ) = UNSET
    local_share: (
        Annotated[Share, Meta(description="of what remains, which another site must save; 0.1 when not given")]
        | UnsetType
    ) = UNSET
    sheddable: Annotated[Literal["yes", "no"], Meta(description="turned away first")] | UnsetType = UNSET
    hedge: Annotated[HedgeKeys, Meta(description="when a second attempt may run beside a slow one")] | UnsetType = UNSET
