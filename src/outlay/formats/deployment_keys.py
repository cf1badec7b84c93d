"""The keys of `outlay.yaml` that the gateway reads: sites, targets and the gateway itself."""

from typing import Annotated
from urllib.parse import urlsplit

from msgspec import UNSET, Meta, UnsetType

from outlay.formats.routing_keys import ColdKeys
from outlay.formats.value_keys import AtLeast0, AtLeast1, Count, Duration, Keys, Name, Period, Share, TokenCount

_ENVIRONMENT = r"^OUTLAY_[A-Z0-9_]+$"


def address(text: str) -> tuple[str, int]:
    """The two halves of `127.0.0.1:8080` or `[::1]:8080`. Raises ValueError."""
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise ValueError(f"expected an address such as 127.0.0.1:8080, got {text}")
    return host.strip("[]"), int(port)


def _check_url(text: str) -> None:
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise ValueError(f"expected an address such as http://10.0.0.5:8000, got {text}")
    if parts.username or parts.password:
        raise ValueError("a credential does not stand in a file; name its environment variable with `key`")
    _ = parts.port


Url = Annotated[str, Meta(examples=["http://10.0.0.5:8000"], extra={"check": _check_url})]
Address = Annotated[str, Meta(examples=["127.0.0.1:8080"], extra={"check": address})]
Variable = Annotated[
    str,
    Meta(pattern=_ENVIRONMENT, examples=["OUTLAY_KEY_LONDON"], extra={"expects": "a variable such as OUTLAY_KEY"}),
]
Digest = Annotated[
    str, Meta(pattern=r"^[0-9a-f]{64}$", extra={"expects": "64 hex digits; see `outlay gateway --new-key`"})
]
PathText = Annotated[str, Meta(pattern=r"^/\S*$", extra={"expects": "a path such as /metrics"})]
File = Annotated[str, Meta(min_length=1, extra={"expects": "a file"})]
Bytes = Annotated[int, Meta(ge=1024, le=10**10, extra={"expects": "a whole number of at least 1024"})]


class SiteKeys(Keys, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A place with capacity."""

    rtt: (
        Annotated[Duration, Meta(description="round trip from the gateway, until it is measured; 1ms when not given")]
        | UnsetType
    ) = UNSET


class SpeedKeys(Keys, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How fast a server is without a queue, until enough was learned of it."""

    prefill: Annotated[AtLeast1, Meta(description="prompt tokens a second")]
    step: Annotated[Period, Meta(description="one decode step of one request")]
    step_slope: Annotated[Duration, Meta(description="what each further request adds to a step")] | UnsetType = UNSET
    overhead: Annotated[Duration, Meta(description="of each prompt, however short")] | UnsetType = UNSET
    max_batch: Annotated[Count, Meta(description="requests at once; 64 when not given")] | UnsetType = UNSET


class LiveTargetKeys(Keys, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One server, or one service behind one address."""

    url: Annotated[Url, Meta(description="where it answers; a path in it goes before each request's own")]
    site: Annotated[Name, Meta(description="where it stands")]
    speed: Annotated[SpeedKeys, Meta(description="how fast it is, until enough was learned of it")]
    variant: Annotated[Name, Meta(description="the model as clients name it; its own name, else")] | UnsetType = UNSET
    model: Annotated[Name, Meta(description="the model as the server names it, if otherwise")] | UnsetType = UNSET
    quality: Annotated[Share, Meta(description="what its answers are worth; 1 when not given")] | UnsetType = UNSET
    price_per_hour: Annotated[AtLeast0, Meta(description="in any one currency; 0 when not given")] | UnsetType = UNSET
    key: Annotated[Variable, Meta(description="environment variable that holds its credential")] | UnsetType = UNSET
    metrics: Annotated[PathText, Meta(description="its metrics page; /metrics when not given")] | UnsetType = UNSET
    cold: (
        Annotated[ColdKeys, Meta(description="what loading its model takes; it is always loaded, when not given")]
        | UnsetType
    ) = UNSET


class ClientKeys(Keys, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Who may ask."""

    key_sha256: Annotated[Digest, Meta(description="SHA-256 of its key; `outlay gateway --new-key` makes a pair")]
    moments: Annotated[tuple[Name, ...], Meta(description="that it may name; all when not given")] | UnsetType = UNSET
    moment: Annotated[Name, Meta(description="what its requests are when they say nothing")] | UnsetType = UNSET
    at_once: Annotated[TokenCount, Meta(description="requests at once; any number when not given")] | UnsetType = UNSET
    rate: Annotated[AtLeast0, Meta(description="requests a second; any number when not given")] | UnsetType = UNSET


class LimitKeys(Keys, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The most that is taken of one client."""

    head: Annotated[Bytes, Meta(description="bytes of a request's head; 32 KiB when not given")] | UnsetType = UNSET
    body: Annotated[Bytes, Meta(description="bytes of its body; 4 MiB when not given")] | UnsetType = UNSET
    connections: Annotated[TokenCount, Meta(description="at once; 10000 when not given")] | UnsetType = UNSET
    patience: Annotated[Period, Meta(description="for a request to arrive; 10s when not given")] | UnsetType = UNSET
    idle: Annotated[Period, Meta(description="between two requests; 75s when not given")] | UnsetType = UNSET
    slow: Annotated[Period, Meta(description="for a client to read on; 30s when not given")] | UnsetType = UNSET
    silence: Annotated[Period, Meta(description="within a stream; 10s when not given")] | UnsetType = UNSET
    connect: Annotated[Period, Meta(description="to reach a target; 1s when not given")] | UnsetType = UNSET
    drain: Annotated[Period, Meta(description="for streams to end at a stop; 30s when not given")] | UnsetType = UNSET


class TlsKeys(Keys, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How clients are spoken to; without it in the clear."""

    certificate: Annotated[File, Meta(description="PEM, its chain included")]
    key: Annotated[File, Meta(description="PEM")]


class GatewayKeys(Keys, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The gateway itself."""

    listen: Annotated[Address, Meta(description="127.0.0.1:8080 when not given")] | UnsetType = UNSET
    moment: Annotated[Name, Meta(description="what a request is when it says nothing")] | UnsetType = UNSET
    within: (
        Annotated[Period, Meta(description="budget where neither moment nor request has one; 60s when not given")]
        | UnsetType
    ) = UNSET
    clients: Annotated[dict[Name, ClientKeys], Meta(description="nobody else may ask")] | UnsetType = UNSET
    limits: Annotated[LimitKeys, Meta(description="the most that is taken of one client")] | UnsetType = UNSET
    tls: Annotated[TlsKeys, Meta(description="how clients are spoken to; in the clear, when not given")] | UnsetType = (
        UNSET
    )
    authorities: Annotated[File, Meta(description="PEM of who may vouch for targets")] | UnsetType = UNSET
    access_log: Annotated[File, Meta(description="JSON lines, `-` for standard output")] | UnsetType = UNSET
    scrape: Annotated[Period, Meta(description="how often metrics are read; 200ms when not given")] | UnsetType = UNSET
    probe: Annotated[Period, Meta(description="how often round trips are measured; 1s else")] | UnsetType = UNSET
