"""From what a sender saw to what it means: one request as its client saw it."""

from time import monotonic_ns

from outlay.interaction import Outcome
from outlay.observed import Observed
from outlay.probe.answer import Answer, read_answer
from outlay.probe.asking import Ask
from outlay.probe.exchange import Exchange
from outlay.probe.told import reported
from outlay.units import from_us


class Understanding:
    """The exchanges of one point, understood one by one.

    The floor of its path is the smallest of what handshakes took and of what the kernel measured, so far: a request
    is told by what was known when it ended.
    """

    __slots__ = ("_ask", "_sound", "floor_ns")

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._sound = str(ask.options.get("response_format", "wav")) if ask.api == "speech" else ""
        self.floor_ns: int | None = None

    def observe(self, exchange: Exchange, request_id: str) -> tuple[Observed, Answer]:
        """The request, and its answer with what does not fit into it. Nothing of either's content is kept."""
        answer = read_answer(self._ask.api, exchange, streamed=self._ask.stream, sound_format=self._sound)
        self._learn(exchange)
        seen = Observed(
            id=request_id,
            intended_ns=exchange.intended_ns,
            enqueued_ns=exchange.enqueued_ns,
            begun_ns=exchange.begun_ns,
            dns_ns=exchange.dns_ns,
            connected_ns=exchange.connected_ns,
            tls_ns=exchange.tls_ns,
            upgraded_ns=exchange.upgraded_ns,
            written_ns=exchange.written_ns,
            sent_ns=exchange.sent_ns,
            first_byte_ns=exchange.first_byte_ns,
            headers_ns=exchange.headers_ns,
            first_token_ns=answer.first_token_ns,
            first_output_ns=answer.first_output_ns,
            last_ns=answer.last_ns,
            done_ns=answer.done_ns,
            ended_ns=None if exchange.failure == "stopped" else exchange.ended_ns,
            parsed_ns=monotonic_ns(),
            outcome=_outcome(exchange, answer),
            why=answer.why,
            streamed=answer.streamed,
            reused=exchange.reused,
            floor_ns=self.floor_ns,
            reported=reported(exchange.headers),
            tokens_ns=answer.tokens_ns,
            input_tokens=answer.input_tokens,
            output_tokens=answer.output_tokens,
            sender=exchange.sender,
            retransmitted=exchange.retransmitted,
        )
        return seen, answer

    def _learn(self, exchange: Exchange) -> None:
        known = [
            exchange.connected_ns - (exchange.begun_ns if exchange.dns_ns is None else exchange.dns_ns)
            if exchange.connected_ns is not None and exchange.begun_ns is not None
            else None,
            None if exchange.min_rtt_us is None else from_us(exchange.min_rtt_us),
            self.floor_ns,
        ]
        self.floor_ns = min((floor_ns for floor_ns in known if floor_ns is not None), default=None)


def _outcome(exchange: Exchange, answer: Answer) -> Outcome:
    """What never left, because no connection was free for it, was not the server's to answer."""
    return "unsent" if exchange.failure == "timeout" and exchange.begun_ns is None else answer.outcome
