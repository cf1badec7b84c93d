"""The network of a run in a few values: its floor, what setting up connections cost, and in how many rounds.

Distance and rounds are told apart. A fresh connection pays its round trip several times over, and "keep it warm" is
another repair than "move nearer".
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from outlay.observed import Observed
from outlay.quantiles import smallest_n
from outlay.sketch import nearest_rank

# What a handshake of TLS can take: one round in 1.3, two in 1.2, more with a check of revocation or a retry.
_MOST_TLS_ROUNDS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One kind of round: how many requests waited for it, how long, and how many round trips it is.

    `p99_ns` is None below 299 requests.
    """

    name: str
    n: int
    p50_ns: int
    p99_ns: int | None
    rounds: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """None is unknown. `floor_ns` is the smallest round trip that any handshake or the kernel saw.

    `sent` counts the requests that left, `fresh` those of them that waited for a new connection. `setup` holds the
    rounds of those: a look-up is answered by a resolver somewhere, so its round trips are not known. `server_p50_ns` is
    the median of what the server reported of itself, of `reported` requests.
    """

    floor_ns: int | None
    sent: int
    fresh: int
    setup: tuple[Round, ...]
    retransmitted: int
    reported: int
    server_p50_ns: int | None

    @property
    def setup_ns(self) -> int:
        """What a new connection costs before the request can leave: the medians of its rounds, one after the other."""
        return sum(each.p50_ns for each in self.setup)


def summarise(requests: Sequence[Observed]) -> Network | None:
    """The network that these requests met; None when none of them left."""
    sent = [seen for seen in requests if seen.written_ns is not None]
    if not sent:
        return None
    floor_ns = min((seen.floor_ns for seen in sent if seen.floor_ns is not None), default=None)
    totals = [
        seen.reported.total_ns for seen in sent if seen.reported is not None and seen.reported.total_ns is not None
    ]
    return Network(
        floor_ns=floor_ns,
        sent=len(sent),
        fresh=sum(seen.connected_ns is not None for seen in sent),
        setup=tuple(_setup(sent, floor_ns)),
        retransmitted=sum(seen.retransmitted for seen in sent),
        reported=len(totals),
        server_p50_ns=_at(totals, 0.5),
    )


def _setup(sent: Sequence[Observed], floor_ns: int | None) -> Iterable[Round]:
    kinds = {
        "dns": (lambda seen: (seen.begun_ns, seen.dns_ns)),
        "connect": (lambda seen: (seen.begun_ns if seen.dns_ns is None else seen.dns_ns, seen.connected_ns)),
        "tls": (lambda seen: (seen.connected_ns, seen.tls_ns)),
        "upgrade": (lambda seen: (seen.connected_ns if seen.tls_ns is None else seen.tls_ns, seen.upgraded_ns)),
    }
    for name, between in kinds.items():
        took = [end - begin for begin, end in map(between, sent) if begin is not None and end is not None]
        p50_ns = _at(took, 0.5)
        p99_ns = _at(took, 0.99) if len(took) >= smallest_n(0.99) else None
        if p50_ns is not None:
            yield Round(name=name, n=len(took), p50_ns=p50_ns, p99_ns=p99_ns, rounds=_rounds(name, p50_ns, floor_ns))


def _rounds(name: str, took_ns: int, floor_ns: int | None) -> int | None:
    """TCP and an upgrade take one. Of TLS it shows in the time; beside a floor of microseconds it is only work."""
    if name == "dns":
        return None
    if name != "tls" or floor_ns is None or floor_ns <= 0:
        return 1 if name != "tls" else None
    rounds = round(took_ns / floor_ns)
    return rounds if 1 <= rounds <= _MOST_TLS_ROUNDS else None


def _at(values: Sequence[int], q: float) -> int | None:
    rank = nearest_rank(q, len(values))
    return None if rank is None else sorted(values)[rank - 1]
