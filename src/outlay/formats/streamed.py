"""What the sender of a streamed request saw of it: the one chain that all load tools' records become.

From outside, network, queue and prefill are one wait, and so are decode and the way back: their rows carry joint names.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from outlay.formats.codec import Item
from outlay.interaction import Interaction, Mark, Outcome
from outlay.load import Load, Sent, recorded_load
from outlay.stages import USER_COMPONENT, joint

MOMENT = "llm-request"
CLOCK = "client"
COMPONENT = "llm"

_TO_FIRST = joint("uplink", "infer.prefill")
_TOKENS = joint("infer.decode", "downlink")
_AFTER = joint("postprocess", "downlink")

# Statuses that say more than "error"; RFC 9110 and RFC 6585.
_OUTCOMES: Mapping[int, Outcome] = {408: "timeout", 429: "refused", 504: "timeout"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """Instants on the sender's clock, in causal order; None is not in the data.

    `first_token_ns` is the first of any kind, reasoning included, `first_output_token_ns` the first of the answer.
    `end_ns` is when the stream closed, for tools that count until then.
    """

    intended_ns: int | None = None
    sent_ns: int | None = None
    first_token_ns: int | None = None
    first_output_token_ns: int | None = None
    last_token_ns: int | None = None
    end_ns: int | None = None

    @property
    def begun_ns(self) -> int | None:
        """When the request was due; when it was sent, where the tool kept no schedule."""
        return self.sent_ns if self.intended_ns is None else self.intended_ns

    @property
    def over_ns(self) -> int | None:
        """When the last of it arrived; None when the data shows no end."""
        return self.last_token_ns if self.end_ns is None else self.end_ns


def marks(seen: Seen) -> Iterator[Mark]:
    """The chain. A missing instant leaves its stage to the next mark, under a joint name; the first ends nothing."""
    chain: tuple[tuple[str, int | None, str, str], ...] = (
        ("intended", seen.intended_ns, USER_COMPONENT, "queue.wait"),
        ("sent", seen.sent_ns, USER_COMPONENT, "queue.wait"),
        ("first_token", seen.first_token_ns, COMPONENT, _TO_FIRST),
        ("first_output_token", seen.first_output_token_ns, COMPONENT, _TOKENS),
        ("last_token", seen.last_token_ns, COMPONENT, _TOKENS),
        ("end", seen.end_ns, COMPONENT, _AFTER),
    )
    begun, missed = False, ""
    for name, at_ns, component, stage in chain:
        ended = joint(missed, stage) if missed else stage
        if at_ns is not None:
            named = (component, ended) if begun else (None, None)
            yield Mark(name=name, at_ns=at_ns, clock=CLOCK, component=named[0], stage=named[1])
            begun, missed = True, ""
        elif begun:
            missed = ended


def sizes(input_tokens: int | None, output_tokens: int | None) -> dict[str, int]:
    """The token counts that are known; negative ones are some tools' "unknown"."""
    counts = {"input_tokens": input_tokens, "output_tokens": output_tokens}
    return {name: count for name, count in counts.items() if count is not None and count >= 0}


def failure(status: object) -> Outcome:
    """How a request failed, from the status or code that its tool kept."""
    return _OUTCOMES.get(int(status), "error") if isinstance(status, int | float) else "error"


def sent_of(interaction: Interaction) -> Sent | None:
    """When a request made of `marks` was due, sent and answered; None where its tool kept no schedule."""
    at_ns = {mark.name: mark.at_ns for mark in interaction.marks}
    if "intended" not in at_ns:
        return None
    answered_ns = interaction.end_ns if interaction.outcome == "ok" else None
    return Sent(intended_ns=at_ns["intended"], written_ns=at_ns.get("sent"), answered_ns=answered_ns)


def closing_with_loads(tool: str, dimension: str) -> Callable[[Iterator[Item]], Iterator[Item]]:
    """What hands on the requests of one input, and at its end adds their load, one for each value of a dimension.

    It is for tools whose intended start is only the first instant that they kept, so the lateness is a lower bound.
    """

    def closing(items: Iterator[Item]) -> Iterator[Item]:
        sent: dict[str | None, list[Sent]] = {}
        for item in items:
            yield item
            if isinstance(item, Interaction) and (found := sent_of(item)):
                sent.setdefault(item.dimensions.get(dimension), []).append(found)
        for value, requests in sent.items():
            yield _load_of(requests, tool, {} if value is None else {dimension: value})

    return closing


def _load_of(requests: list[Sent], tool: str, dimensions: Mapping[str, str]) -> Load:
    load = recorded_load(requests, tool=tool, moment=MOMENT, clock=CLOCK, partly=True)
    return replace(load, name=" ".join(dimensions.values()), dimensions=dimensions)
