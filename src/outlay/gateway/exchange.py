"""One request through the gateway: decided, sent, watched, and answered, once and honestly.

Nothing is handed on before the first content is there, so that until then another target can take over. After that
the answer is relayed frame by frame; if it breaks off, the client is told by an error frame, and never by an end that
looks clean.
"""

import asyncio
import time
from typing import TYPE_CHECKING

from outlay.decision import Decision
from outlay.deployment import MomentRules
from outlay.gateway.frames import Frames
from outlay.gateway.inbound import REASONS, Asked, Connection, error_body
from outlay.gateway.outbound import Upstream
from outlay.gateway.surface import LIMIT_KEYS, Ask, renamed
from outlay.policy import Policy
from outlay.underway import Next
from outlay.units import NS_PER_MS, NS_PER_S
from outlay.wire import REPLACED, Told, budget_headers, decision_header
from outlay.work import Request

if TYPE_CHECKING:
    from outlay.gateway.router import Sent
    from outlay.gateway.worker import Known, Worker

_MOST_HELD = 64 * 1024
_MOST_WHOLE = 256 * 1024
_SSE = b"text/event-stream"
_LAST_CHUNK = b"0\r\n\r\n"

# Headers of one hop, and those that the gateway writes itself.
_HOP = frozenset(
    (b"connection", b"keep-alive", b"proxy-connection", b"proxy-authenticate", b"proxy-authorization", b"te",
     b"trailer", b"transfer-encoding", b"upgrade", b"content-length", b"host", b"expect")
)  # fmt: skip
_NOT_UP = _HOP | REPLACED | {b"x-request-id"}
_NOT_DOWN = _HOP | {b"x-request-id", b"x-outlay-decision", b"x-outlay-note"}
_CREDENTIALS = frozenset((b"authorization", b"x-api-key"))
_RETRIED = frozenset((408, 429))


class Exchange:
    """The life of one request. `outcome` is `ok` once its answer was whole; until then what it would be."""

    __slots__ = (
        "_attempts", "_client_paused", "_over", "_relaying", "_timer", "_useful_seen", "ask", "asked", "bytes_in",
        "bytes_out", "connection", "decided_ns", "decision", "ended_ns", "first_ns", "id_bytes", "known",
        "last_frame_ns", "moment", "outcome", "policy", "remaining_ns", "request", "status", "told", "tries", "worker",
    )  # fmt: skip

    def __init__(  # noqa: PLR0913, PLR0917 - what is known of a request when it begins
        self,
        worker: "Worker",
        connection: Connection,
        asked: Asked,
        ask: Ask,
        told: Told,
        moment: MomentRules,
        policy: Policy,
        request: Request,
        known: "Known | None",
    ) -> None:
        self.worker, self.connection, self.asked, self.ask, self.told = worker, connection, asked, ask, told
        self.moment, self.policy, self.request, self.known = moment, policy, request, known
        limit_ns = moment.limit_ns or worker.deployment.fallback_ns
        remaining_ns = limit_ns if told.remaining_ns is None else told.remaining_ns
        # What is told held when it was sent: the way here is spent too.
        self.remaining_ns = remaining_ns - (0 if told.remaining_ns is None else connection.rtt_ns // 2)
        self.decision: Decision | None = None
        self.decided_ns = 0
        self.first_ns: int | None = None
        self.last_frame_ns = 0
        self.outcome, self.status = "error", 0
        self.tries = 0
        self._attempts: list[_Attempt] = []
        self._relaying: _Attempt | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._over = self._useful_seen = False
        self._client_paused = connection.stuck_ns is not None
        self.bytes_in, self.bytes_out = len(asked.body), 0
        self.ended_ns = 0
        self.id_bytes = request.id.encode("latin-1", "replace")

    @property
    def route_ns(self) -> int:
        """What the gateway took to decide."""
        return max(self.decided_ns - self.asked.received_ns, 0)

    # From the client's side

    def begin(self) -> None:
        """Decide, and do it."""
        now_ns = time.monotonic_ns()
        decision = self.worker.router.choose(
            self.request, self.ask.model or "", self.policy, self._left_ns(now_ns), now_ns
        )
        self.decision = decision
        self.decided_ns = time.monotonic_ns()
        if decision.target is None:
            self._refuse(decision)
        else:
            self._send(decision, self.decided_ns)

    def abandon(self) -> None:
        """The client is gone: everything of it is cancelled, and its slots are free."""
        if not self._over:
            self.outcome, self.status = "gone", 499
            self._finish()

    def writable(self, can: bool) -> None:
        """The client reads on, or has stopped to: then nothing more is read for it."""
        self._client_paused = not can
        if self._relaying is not None:
            self._relaying.pause(not can)

    def _left_ns(self, now_ns: int) -> int:
        return self.remaining_ns - (now_ns - self.asked.received_ns)

    # Attempts

    def _send(self, decision: Decision, now_ns: int) -> None:
        self.tries += 1
        sent = self.worker.router.sent(self.request, decision, self.tries, now_ns)
        attempt = _Attempt(self, sent)
        attempt.look_ns = self.worker.router.first_look_ns(sent, self.policy, self.moment.name)
        self._attempts.append(attempt)
        self._look_at_the_next()
        attempt.start()

    def _look_at_the_next(self) -> None:
        if self._attempts:
            self._look_at(min(attempt.look_ns for attempt in self._attempts))

    def _look_at(self, at_ns: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        delay_s = max(at_ns - time.monotonic_ns(), 0) / NS_PER_S
        self._timer = self.worker.loop.call_later(delay_s, self._look)

    def _look(self) -> None:
        """It is time to see how the attempts are doing."""
        self._timer = None
        now_ns = time.monotonic_ns()
        if self._over:
            return
        if self._relaying is not None:
            self._watch(self._relaying, now_ns)
            return
        for attempt in [each for each in self._attempts if each.look_ns <= now_ns]:
            what = self.worker.router.after_silence(
                attempt.sent, self.request, self.policy, self._left_ns(now_ns), relayed=False, now_ns=now_ns
            )
            deadline_ns = attempt.sent.started_ns + int(attempt.sent.decision.deadline_ns)
            if what.step == "wait":
                attempt.look_ns = deadline_ns if what.look_again_ns is None else what.look_again_ns
                continue
            if what.step == "hedge" and what.decision is not None:
                attempt.look_ns = deadline_ns
                self._send(what.decision, now_ns)
                return
            self._attempts.remove(attempt)
            self.worker.router.gave_up(attempt.sent, self.worker.router.site_rtt_ns(attempt.sent.target), now_ns)
            attempt.cancel()
            self.worker.telemetry.attempt(attempt.sent.target, "timeout")
            self._go_on(what, 504, "the budget was spent before an answer came")
            break
        if not self._over:
            self._look_at_the_next()

    def _watch(self, attempt: "_Attempt", now_ns: int) -> None:
        """A stream that stalls is ended; whatever the client has not read is no stall of the server's."""
        silence_ns = self.worker.deployment.limits.silence_ns
        if self._client_paused:
            self.last_frame_ns = now_ns
        if now_ns - self.last_frame_ns < silence_ns:
            self._look_at(self.last_frame_ns + silence_ns)
            return
        self.worker.router.failed(attempt.sent, now_ns)
        attempt.cancel()
        self._attempts.remove(attempt)
        self.worker.telemetry.attempt(attempt.sent.target, "stall")
        self._break_off("the answer stalled")

    def _go_on(self, what: Next, status: int, why: str) -> None:
        decision = what.decision
        if what.step == "move" and decision is not None and decision.target is not None:
            self.decision = decision
            self._send(decision, time.monotonic_ns())
        elif not self._attempts:
            self.outcome = "timeout" if status == 504 else "error"
            self._answer_error(status, f"{why}: {what.reason}", reason=what.reason)

    def attempt_failed(self, attempt: "_Attempt", what: str, status: int, why: str) -> None:
        """An attempt broke before it said anything of use, or after."""
        now_ns = time.monotonic_ns()
        router = self.worker.router
        router.failed(attempt.sent, now_ns)
        self.worker.telemetry.attempt(attempt.sent.target, what)
        if self._over or attempt not in self._attempts:
            return
        self._attempts.remove(attempt)
        if attempt is self._relaying:
            self._break_off(why)
            return
        found = router.after_failure(
            attempt.sent, self.request, self.policy, self._left_ns(now_ns), relayed=False, now_ns=now_ns
        )
        self._go_on(found, 504 if self._left_ns(now_ns) <= 0 else status, why)

    # The answer

    def relay(self, attempt: "_Attempt", first: bytes) -> None:
        """The first content is there: from here on this attempt is the answer."""
        now_ns = self.last_frame_ns = self.first_ns = time.monotonic_ns()
        self._relaying = attempt
        if self._client_paused:
            attempt.pause(True)
        self.decision = attempt.sent.decision
        framing = b"transfer-encoding: chunked\r\n" if self.asked.is_1_1 else b""
        if not (self.asked.is_1_1 and self.asked.keep_alive):
            framing += b"connection: close\r\n"
        self._write(self._head(attempt, framing) + self._framed(first))
        self.worker.router.answering(attempt.sent, now_ns)
        for other in self._attempts:
            if other is not attempt:
                self.worker.router.cancelled(other.sent, now_ns)
                other.cancel()
        self._attempts = [attempt]
        if attempt.is_stream and self.moment.useful_tokens is not None:
            self._useful(attempt, now_ns)
        self._look_at(now_ns + self.worker.deployment.limits.silence_ns)

    def relay_more(self, frames: bytes) -> None:
        """More of the answer."""
        self.last_frame_ns = time.monotonic_ns()
        self._write(self._framed(frames))

    def relay_end(self, attempt: "_Attempt") -> None:
        """The answer is whole."""
        if not self._useful_seen:
            self._useful(attempt, time.monotonic_ns())
        end = self._framed(b": server-timing %b\n\n" % self._timing()) if attempt.is_stream else b""
        self._write(end + (_LAST_CHUNK if self.asked.is_1_1 else b""))
        self.outcome = "ok"
        self._close(attempt)

    def relay_whole(self, attempt: "_Attempt", body: bytes) -> None:
        """An answer that came at once."""
        now_ns = self.first_ns = time.monotonic_ns()
        self.decision = attempt.sent.decision
        no_body = attempt.status in (204, 304)
        keep = b"" if self.asked.keep_alive else b"connection: close\r\n"
        length = b"" if no_body else b"content-length: %d\r\n" % len(body)
        self._write(self._head(attempt, length + keep) + (b"" if self.asked.method == b"HEAD" else body))
        # The client has its answer: what is learned from it can wait until now.
        router = self.worker.router
        if attempt.status < 400:
            self.outcome = "ok"
            router.answering(attempt.sent, now_ns)
            self._useful(attempt, now_ns)
        else:
            self.outcome = "client-error"
            router.client_error(attempt.sent, now_ns)
        self._close(attempt)

    def _useful(self, attempt: "_Attempt", now_ns: int) -> None:
        self._useful_seen = True
        on_time = self._left_ns(now_ns) - self.connection.rtt_ns // 2 >= self.policy.of(self.moment.name).render_ns
        router = self.worker.router
        router.useful(attempt.sent, router.site_rtt_ns(attempt.sent.target), on_time, now_ns)
        self.worker.telemetry.useful(self.moment.name, now_ns - self.asked.received_ns, on_time)

    def _close(self, attempt: "_Attempt") -> None:
        self.status = attempt.status
        self.worker.router.ended(attempt.sent, time.monotonic_ns())
        self.worker.telemetry.attempt(attempt.sent.target, self.outcome)
        self._attempts.clear()
        self._finish()
        self.connection.finished(keep_alive=self.asked.keep_alive and self.asked.is_1_1)

    def _break_off(self, why: str) -> None:
        """Something was handed on already: say that it broke off, and do not end as if it was whole."""
        self.outcome, self.status = "cut", 200
        relayed = self._relaying
        if relayed is not None and relayed.is_stream:
            self._write(self._framed(b"data: " + error_body(502, why) + b"\n\n"))
        self._finish()
        self.connection.answering = None
        if self.asked.is_1_1 or (relayed is not None and relayed.is_stream):
            # Without the last chunk: a client that counts on it sees that the answer is not whole.
            self.connection.hang_up()
        else:
            # HTTP/1.0 has no chunks: there only a reset says so.
            self.connection.transport.abort()

    def _refuse(self, decision: Decision) -> None:
        self.outcome = "refused"
        spent = self._left_ns(self.decided_ns) <= self.policy.of(self.moment.name).render_ns
        status = 504 if spent else 429 if decision.reason == "shed" else 503
        retry_ms = 0 if spent else 1000
        extra = b"" if spent else b"retry-after: 1\r\nretry-after-ms: %d\r\n" % retry_ms
        why = f"refused: {decision.reason}" if decision.action == "refuse" else f"try later: {decision.reason}"
        self._answer_error(status, why, extra, reason=decision.reason, rung=decision.rung)

    def _answer_error(self, status: int, why: str, extra: bytes = b"", **more: object) -> None:
        self.status = status
        lines = b"x-request-id: %b\r\nserver-timing: %b\r\n%b%b" % (
            self.id_bytes, self._timing(), self._notes(), extra,
        )  # fmt: skip
        body = error_body(status, why, moment=self.moment.name, **more)
        self._finish()
        self.connection.write_page(self.asked, status, b"application/json", body, lines)
        self.connection.finished(keep_alive=self.asked.keep_alive)

    def _finish(self) -> None:
        """Leave nothing behind."""
        self._over = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        now_ns = time.monotonic_ns()
        for attempt in self._attempts:
            self.worker.router.cancelled(attempt.sent, now_ns)
            attempt.cancel()
        self._attempts.clear()
        self.worker.done(self, now_ns)

    # Bytes

    def _framed(self, data: bytes) -> bytes:
        if not data or not self.asked.is_1_1:
            return data
        return b"%x\r\n%b\r\n" % (len(data), data)

    def _write(self, data: bytes) -> None:
        self.bytes_out += len(data)
        self.connection.transport.write(data)

    def _head(self, attempt: "_Attempt", framing: bytes) -> bytes:
        decision, name = attempt.sent.decision, self.worker.names[attempt.sent.target]
        headroom_ns = self.worker.headroom_ns(decision)
        lines = [b"HTTP/1.1 %d %b\r\n" % (attempt.status, REASONS.get(attempt.status, b"OK"))]
        named = next((value for name, value in attempt.headers if name == b"connection"), None)
        left_out = _NOT_DOWN | _nominated(named)
        lines += [b"%b: %b\r\n" % header for header in attempt.headers if header[0] not in left_out]
        lines += (
            framing,
            b"x-request-id: %b\r\n" % self.id_bytes,
            b"server-timing: %b\r\n" % self._timing(),
            decision_header(name, decision.p_on_time, headroom_ns, decision.rung),
            self._notes(),
            b"\r\n",
        )
        return b"".join(lines)

    def _timing(self) -> bytes:
        """The account so far, in ms."""
        begun_ns, decided_ns = self.asked.received_ns, self.decided_ns or self.asked.received_ns
        upstream = b"" if self.first_ns is None else b", upstream;dur=%.3f" % ((self.first_ns - decided_ns) / NS_PER_MS)
        return b"route;dur=%.3f%b" % ((decided_ns - begun_ns) / NS_PER_MS, upstream)

    def _notes(self) -> bytes:
        return b"".join(b"x-outlay-note: %b\r\n" % note.encode("latin-1", "replace") for note in self.told.notes)

    def upstream_request(self, attempt: "_Attempt") -> bytes:
        """The request as the target gets it: its own model and credential, and what is left of the budget."""
        target = attempt.sent.target
        endpoint, asked, worker = self.worker.deployment.endpoints[target], self.asked, self.worker
        decision, body = attempt.sent.decision, asked.body
        model = endpoint.model or worker.deployment.fleet.targets[target].variant
        shorter = decision.output_tokens < self.request.output_tokens and self.ask.kind in LIMIT_KEYS
        if self.ask.model is not None and (model != self.ask.model or shorter):
            most = (LIMIT_KEYS[self.ask.kind or ""], decision.output_tokens) if shorter else None
            body = renamed(body, model, most)
        now_ns = time.monotonic_ns()
        rest_ns = min(self._left_ns(now_ns), int(decision.deadline_ns) - (now_ns - attempt.sent.started_ns))
        prefix, authority = worker.upstream_names[target]
        lines = [b"%b %b%b HTTP/1.1\r\nhost: %b\r\n" % (asked.method, prefix, asked.target, authority)]
        left_out = _NOT_UP | _nominated(asked.named.get(b"connection"))
        credential = worker.credentials[target]
        if worker.deployment.clients or credential is not None:
            left_out |= _CREDENTIALS  # they are for the gateway
        lines += [b"%b: %b\r\n" % header for header in asked.headers if header[0] not in left_out]
        if credential is not None:
            lines.append(b"authorization: Bearer %b\r\n" % credential)
        lines.append(b"x-request-id: %b\r\n" % self.id_bytes)
        lines.append(budget_headers(self.moment.name, rest_ns - worker.router.site_rtt_ns(target) // 2,
                                    self.told.spent_ns + now_ns - asked.received_ns))  # fmt: skip
        if body or asked.method in (b"POST", b"PUT", b"PATCH"):
            lines.append(b"content-length: %d\r\n" % len(body))
        lines += (b"\r\n", body)
        return b"".join(lines)


def _nominated(connection: bytes | None) -> frozenset[bytes]:
    """Headers that are named as those of this hop alone: RFC 9110, section 7.6.1."""
    if connection is None:
        return _NOTHING
    return frozenset(name.strip().lower() for name in connection.split(b","))


_NOTHING: frozenset[bytes] = frozenset()


class _Attempt:
    """One attempt: listens to its upstream, and holds what it says until that is worth handing on."""

    __slots__ = (
        "_dialing", "_frames", "_held", "_held_bytes", "_upstream", "exchange", "headers", "is_stream", "look_ns",
        "sent", "status",
    )  # fmt: skip

    def __init__(self, exchange: Exchange, sent: "Sent") -> None:
        self.exchange, self.sent = exchange, sent
        self.look_ns = 0
        self.status = 0
        self.headers: list[tuple[bytes, bytes]] = []
        self.is_stream = False
        self._frames: Frames | None = None
        self._held: list[bytes] = []
        self._held_bytes = 0
        self._upstream: Upstream | None = None
        self._dialing: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Send on a warm connection, or make one."""
        pool = self.exchange.worker.pools[self.sent.target]
        upstream = pool.take()
        if upstream is None:
            self._dialing = self.exchange.worker.spawn(self._dial())
        else:
            self._ask(upstream)

    async def _dial(self) -> None:
        pool = self.exchange.worker.pools[self.sent.target]
        try:
            upstream = await pool.connect()
        except OSError as error:
            self._dialing = None
            self.exchange.attempt_failed(self, "connect", 502, f"the target cannot be reached ({type(error).__name__})")
            return
        self._dialing = None
        self._ask(upstream)

    def _ask(self, upstream: Upstream) -> None:
        self._upstream = upstream
        asked = self.exchange.asked
        upstream.send(self, self.exchange.upstream_request(self), no_body=asked.method == b"HEAD")

    def cancel(self) -> None:
        """Nobody wants it any more."""
        if self._dialing is not None:
            self._dialing.cancel()
            self._dialing = None
        upstream, self._upstream = self._upstream, None
        if upstream is not None:
            upstream.cancel()

    def pause(self, paused: bool) -> None:
        """Read no more until the client does."""
        if self._upstream is not None:
            self._upstream.pause(paused)

    # What its connection tells

    def heard_head(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        """Errors that another target may not have are failures; the client's own are its answer."""
        self.status, self.headers = status, headers
        for name, value in headers:
            if name == b"content-type":
                self.is_stream = status < 300 and value.lower().startswith(_SSE)
            elif name == b"endpoint-load-metrics":
                self.exchange.worker.load_report(self.sent.target, value)
        if status >= 500 or status in _RETRIED:
            self._fail(f"status-{status}", 502 if status >= 500 else status, f"the target answered {status}")
        elif self.is_stream:
            self._frames = Frames()

    def heard_body(self, data: bytes) -> None:
        frames, relaying = self._frames, self.exchange._relaying is self
        if frames is None:
            if relaying:
                self.exchange.relay_more(data)
            else:
                self._hold(data, _MOST_WHOLE)
            return
        whole = frames.feed(data)
        if frames.failed is not None:
            self._fail("in-band", 502, f"the target reported: {frames.failed}")
        elif frames.malformed and self.exchange.ask.kind is not None:
            self._fail("malformed", 502, "the target sent a frame that cannot be read")
        elif frames.unfinished > _MOST_WHOLE:
            self._fail("malformed", 502, "the target sent a frame without an end")
        elif relaying:
            if whole:
                self.exchange.relay_more(whole)
        elif whole:
            self._hold(whole, _MOST_HELD)

    def _hold(self, data: bytes, most: int) -> None:
        self._held.append(data)
        self._held_bytes += len(data)
        is_generic = self._frames is not None and self.exchange.ask.kind is None
        if is_generic or (self._frames is not None and self._frames.content) or self._held_bytes > most:
            first, self._held = b"".join(self._held), []
            self.exchange.relay(self, first)

    def heard_end(self) -> None:
        self._upstream = None
        frames = self._frames
        if frames is not None and self.exchange.ask.kind is not None and not frames.ended:
            self._fail("cut", 502, "the answer broke off")
        elif frames is not None and frames.unfinished:
            self._fail("cut", 502, "the answer broke off within a frame")
        elif self.exchange._relaying is self:
            self.exchange.relay_end(self)
        elif frames is not None:
            # A stream that ended well without any content, which is an answer too.
            self.exchange.relay(self, b"".join(self._held))
            self.exchange.relay_end(self)
        else:
            self.exchange.relay_whole(self, b"".join(self._held))

    def broke(self, reason: str, *, untouched: bool) -> None:
        self._upstream = None
        worker = self.exchange.worker
        if untouched and not self.exchange._over:
            # The target had closed an idle connection as we wrote to it: it has not seen the request.
            worker.pools[self.sent.target].replayed += 1
            self._dialing = worker.spawn(self._dial())
            return
        self.exchange.attempt_failed(self, reason, 502, f"the target's connection ended ({reason})")

    def _fail(self, what: str, status: int, why: str) -> None:
        upstream, self._upstream = self._upstream, None
        if upstream is not None:
            upstream.cancel()
        self.exchange.attempt_failed(self, what, status, why)
