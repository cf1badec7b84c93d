"""What the values of a YAML file of Outlay look like: durations, names, shares and counts, each with its message.

Numbers have ends far beyond what anybody means, so that none overflows and no file asks for a million servers.
"""

from typing import Annotated

from msgspec import Meta, Struct

from outlay.units import parse_duration


class Keys(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Keys that Outlay chose: an unknown one is an error."""


def _check_above_0(text: str) -> None:
    if parse_duration(text) == 0:
        raise ValueError("must be above 0")


Duration = Annotated[
    str,
    Meta(
        pattern=r"^([0-9]+(\.[0-9]+)?|\.[0-9]+) ?(ns|us|µs|μs|ms|s|m|h)$",
        examples=["250ms", "1.5s", "2m"],
        extra={"expects": "a duration such as 250ms", "check": parse_duration},
    ),
]
Period = Annotated[Duration, Meta(extra={"check": _check_above_0})]
Name = Annotated[str, Meta(min_length=1, extra={"expects": "a name"})]
Share = Annotated[float, Meta(ge=0, le=1, extra={"expects": "a number from 0 to 1"})]
Above0 = Annotated[float, Meta(gt=0, le=1e12, extra={"expects": "a number above 0"})]
AtLeast0 = Annotated[float, Meta(ge=0, le=1e12, extra={"expects": "a number of at least 0"})]
AtLeast1 = Annotated[float, Meta(ge=1, le=1e12, extra={"expects": "a number of at least 1"})]
Count = Annotated[int, Meta(ge=1, le=1000, extra={"expects": "a whole number from 1 to 1000"})]
TokenCount = Annotated[int, Meta(ge=1, le=10**9, extra={"expects": "a whole number of at least 1"})]
