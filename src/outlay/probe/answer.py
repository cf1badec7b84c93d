"""An answer understood: how it ended, when its first token, its first output and its last came, and what it counted.

The instants are those of the reads, so a frame that lies in several of them came with the last. What the server says
of its own end weighs more than how the connection ended.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from outlay.interaction import Note, Outcome
from outlay.probe import frames, sound, sse
from outlay.probe.asking import APIS
from outlay.probe.exchange import Exchange
from outlay.probe.failures import Failed, by_body, by_failure, by_status
from outlay.probe.frames import Said

Way = Literal["events", "any events", "messages", "sound", "sound events", "reads", "json", "whole"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What one exchange came to. Instants are the exchange's; None did not happen or cannot be seen.

    `first_frame_ns` is the first frame of any kind, `first_token_ns` the first with a token of any kind, reasoning
    included, `first_output_ns` the first that a person sees or hears, or with a part of a tool call; `tokens_ns` are
    all that carried tokens, each once however many tokens it held, and `last_ns` is the last of them. `done_ns` is the
    end of the stream: the frame that says so, else the end of the body. A whole answer has only `last_ns`, the end of
    its body.

    `output_tokens` counts reasoning too. Of sound, frames are the reads that hold it, and `silence_ns` is how much of
    it comes before the first that can be heard. `why` says for people how an answer failed, in types and codes.
    """

    outcome: Outcome = "ok"
    why: str | None = None
    streamed: bool = True
    first_frame_ns: int | None = None
    first_token_ns: int | None = None
    first_output_ns: int | None = None
    last_ns: int | None = None
    done_ns: int | None = None
    tokens_ns: tuple[int, ...] = ()
    silence_ns: int | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    reasoning_tokens: int | None = None
    notes: tuple[Note, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Read:
    """An answer as far as its body tells. `said_ns` is when it told that it was complete, None when it did not."""

    answer: Answer
    said_ns: int | None = None
    must_say: bool = False
    failed: Failed | None = None


def read_answer(api: str, exchange: Exchange, *, streamed: bool, sound_format: str = "") -> Answer:
    """What came of a request to this API. Takes any bytes and never raises.

    `streamed` says whether a stream was asked for, `sound_format` which kind of sound. A server that streams unasked
    is read as a stream, and one that was asked to and does not as a whole answer, with a note.

    Where no frame of an `http` or `websocket` answer is of a known API, each counts as output, and its end is the end.
    """
    refused = by_status(exchange)
    if refused is not None:
        return Answer(outcome=refused.outcome, why=refused.why, streamed=streamed)
    way = _way(api, exchange, streamed=streamed)
    answer = _judged(exchange, _WAYS[way](exchange, sound_format))
    # Of a user's own body it is not known whether it asks for a stream.
    if not answer.streamed and streamed and APIS[api].streams and api != "http" and answer.outcome == "ok":
        return replace(answer, notes=(*answer.notes, _unseen("a stream was asked for, and the answer came whole")))
    return answer


_EVENTS: Mapping[str, Way] = {"speech": "sound events", "http": "any events"}
# What is not JSON may be a whole answer of these: sound, a transcript as plain text, anything.
_WHOLE: Mapping[str, Way] = {"speech": "whole", "transcriptions": "whole", "http": "whole"}


def _way(api: str, exchange: Exchange, *, streamed: bool) -> Way:
    """How to read the body: by what it says it is, and where that says nothing by what was asked for."""
    media = _media(exchange).partition(";")[0].strip()
    if api == "websocket":
        return "messages"
    if media == "text/event-stream":
        return _EVENTS.get(api, "events")
    whole = _WHOLE.get(api, "json")
    if not streamed or media == "application/json" or media.endswith("+json"):
        return whole
    head = next((piece for _, piece in exchange.body if piece.strip()), b"").lstrip()
    # Some servers call any bytes text/html; a page of a proxy or a log-in also looks like one.
    is_page = media == "text/html" and head.startswith(b"<")
    if media.startswith("audio/") or (api == "speech" and not is_page):
        return "sound"
    if api == "http":
        return "reads"
    return whole if head.startswith(b"{") else "events"


def _media(exchange: Exchange) -> str:
    return next((value for name, value in exchange.headers if name == "content-type"), "").lower()


def _judged(exchange: Exchange, read: _Read) -> Answer:
    """The outcome: what the body says of itself, else what became of the connection, else whether it is all there."""
    answer = read.answer
    lost = by_failure(exchange)
    failed = read.failed
    if failed is None and read.said_ns is None:
        failed = lost or (_incomplete(exchange, answer) if read.must_say else None)
    if failed is not None:
        return replace(answer, outcome=failed.outcome, why=failed.why or "an error in the answer", done_ns=None)
    if answer.streamed and answer.done_ns is None:
        answer = replace(answer, done_ns=exchange.ended_ns if lost is None else read.said_ns)
    if lost is None:
        return answer
    note = Note(kind="contradiction", text=f"an answer had said that it was done; then {lost.why}")
    return replace(answer, notes=(*answer.notes, note))


def _incomplete(exchange: Exchange, answer: Answer) -> Failed:
    if not answer.streamed:
        return Failed("error", "the answer is not JSON")
    if exchange.body and answer.first_frame_ns is None and not _media(exchange).startswith("text/event-stream"):
        return Failed("error", "the answer is no stream of events")
    return Failed("error", "cut: the stream ended before the answer did")


def _unseen(text: str) -> Note:
    return Note(kind="no-first-output", text=text)


# The ways to read a body


def _whole(exchange: Exchange, asked: str) -> _Read:
    return replace(_json(exchange, asked), must_say=False)


def _json(exchange: Exchange, _: str) -> _Read:
    body = b"".join(piece for _, piece in exchange.body)
    said = frames.whole(body)
    counts = frames.tokens(said.usage)
    answer = Answer(
        streamed=False,
        last_ns=exchange.body[-1][0] if exchange.body else exchange.headers_ns,
        input_tokens=counts.input,
        output_tokens=counts.output,
        reasoning_tokens=counts.reasoning,
    )
    return _Read(answer=answer, must_say=not said.readable, failed=said.failed)


def _events(exchange: Exchange, _: str) -> _Read:
    return _stream(_said(sse.events(exchange.body)), must_say=True)


def _any_events(exchange: Exchange, _: str) -> _Read:
    said = list(_said(sse.events(exchange.body)))
    return _stream(said, must_say=True) if _are_known(said) else _stream(_as_output(said), must_say=False)


def _messages(exchange: Exchange, _: str) -> _Read:
    # A turn ends with the message that its sender was told to wait for, whatever that says.
    said = [(at_ns, frames.said(message)) for at_ns, message in exchange.body]
    return _stream(said if _are_known(said) else _as_output(said), must_say=False)


def _reads(exchange: Exchange, _: str) -> _Read:
    return _stream(((at_ns, frames.SHOWN) for at_ns, piece in exchange.body if piece), must_say=False)


def _sound(exchange: Exchange, asked: str) -> _Read:
    heard = sound.heard(exchange.body, media=_media(exchange), asked=asked)
    began_ns = heard.began_ns
    tokens_ns = tuple(at_ns for at_ns, piece in exchange.body if piece and began_ns is not None and at_ns >= began_ns)
    answer = Answer(
        first_frame_ns=next((at_ns for at_ns, piece in exchange.body if piece), None),
        last_ns=tokens_ns[-1] if tokens_ns else None,
        tokens_ns=tokens_ns,
    )
    return _Read(answer=_with_sound(answer, heard), must_say=began_ns is None)


def _sound_events(exchange: Exchange, asked: str) -> _Read:
    events = list(sse.events(exchange.body))
    read = _stream(_said(events), must_say=True)
    heard = sound.heard([(event.at_ns, frames.sound(event.data)) for event in events], asked=asked)
    return replace(read, answer=_with_sound(read.answer, heard))


_WAYS: Mapping[Way, Callable[[Exchange, str], _Read]] = {
    "events": _events,
    "any events": _any_events,
    "messages": _messages,
    "sound": _sound,
    "sound events": _sound_events,
    "reads": _reads,
    "json": _json,
    "whole": _whole,
}


def _with_sound(answer: Answer, heard: sound.Heard) -> Answer:
    notes = answer.notes
    if heard.began_ns is None:
        notes = (*notes, _unseen("no sound came"))
    elif not heard.visible:
        notes = (*notes, _unseen("the sound is compressed: when it can first be heard is not seen"))
    elif heard.sound_ns is None:
        notes = (*notes, _unseen("the sound is silence throughout"))
    return replace(
        answer,
        first_token_ns=heard.began_ns,
        first_output_ns=heard.sound_ns,
        silence_ns=heard.silence_ns,
        notes=notes,
    )


# Frames


def _said(events: Iterable[sse.Event]) -> Iterator[tuple[int, Said]]:
    for event in events:
        said = frames.said(event.data)
        if event.name == "error" and said.failed is None:
            said = said._replace(failed=by_body(event.data), readable=True)
        yield event.at_ns, said


def _are_known(said: Iterable[tuple[int, Said]]) -> bool:
    """Whether any is of a known API; the bare end of a stream is of none."""
    return any((each.known and each is not frames.DONE) or each.failed is not None for _, each in said)


def _as_output(said: Iterable[tuple[int, Said]]) -> Iterator[tuple[int, Said]]:
    return ((at_ns, each if each is frames.DONE else frames.SHOWN) for at_ns, each in said)


def _stream(said: Iterable[tuple[int, Said]], *, must_say: bool) -> _Read:
    """What the frames of a stream come to, up to the one after which nothing comes."""
    first_frame_ns = first_output_ns = said_ns = done_ns = None
    tokens_ns: list[int] = []
    usage, failed, unreadable = frames.NOTHING.usage, None, 0
    for at_ns, each in said:
        first_frame_ns = at_ns if first_frame_ns is None else first_frame_ns
        if each.token:
            tokens_ns.append(at_ns)
            if each.output and first_output_ns is None:
                first_output_ns = at_ns
        if each is frames.SHOWN or each is frames.THOUGHT:
            continue
        unreadable += not each.readable
        failed = failed or each.failed
        usage = each.usage if len(each.usage) else usage
        said_ns = at_ns if each.finished and said_ns is None else said_ns
        if each.done:
            done_ns = at_ns
            break
    counts = frames.tokens(usage)
    answer = Answer(
        first_frame_ns=first_frame_ns,
        first_token_ns=tokens_ns[0] if tokens_ns else None,
        first_output_ns=first_output_ns,
        last_ns=tokens_ns[-1] if tokens_ns else None,
        done_ns=done_ns,
        tokens_ns=tuple(tokens_ns),
        input_tokens=counts.input,
        output_tokens=counts.output,
        reasoning_tokens=counts.reasoning,
        notes=_lost_frames(unreadable),
    )
    return _Read(answer=answer, said_ns=said_ns, must_say=must_say, failed=failed)


def _lost_frames(unreadable: int) -> tuple[Note, ...]:
    if not unreadable:
        return ()
    return (Note(kind="dropped-record", text=f"frames of an answer that are not JSON: {unreadable}"),)
