"""A script as the bytes of an answer, each with the instant it is due. Pure: the server only plays it.

An answer is first a row of beats (what happens when), the same for every API; a wording then says each beat.
"""

from collections.abc import Iterator

from outlay.lab.beats import Call, Frame, beats, end_ns, limit
from outlay.lab.bodies import BODIES, encode, error_body
from outlay.lab.script import Script
from outlay.lab.sound import wav
from outlay.lab.wording import WORDINGS

_AT_FIRST_TOKEN = ("embeddings", "transcriptions")  # whole answers that are due then


def frames(script: Script, call: Call) -> Iterator[Frame]:
    """The body of the answer in order of time, worded as it is asked for. At least one frame.

    Where the script cuts the connection, it is cut after the last of them. Over a WebSocket each line of a frame is a
    message.
    """
    if is_whole(script, call):
        return iter((_whole(script, call),))
    return wav(script) if call.api == "speech" else _stream(script, call)


def refused(script: Script, call: Call) -> int | None:
    """The error status that is all of the answer; None where there is more. A whole answer cannot fail half-way."""
    if script.status is not None:
        return script.status
    whole = not call.stream or call.api not in WORDINGS
    return 500 if script.error_after is not None and whole else None


def is_whole(script: Script, call: Call) -> bool:
    """Whether the answer is one frame of a length known beforehand."""
    streams = call.api == "speech" or (call.stream and call.api != "embeddings")
    return refused(script, call) is not None or not streams


def is_cut(script: Script, call: Call) -> bool:
    """Whether the connection ends after the last frame, before the answer does."""
    return script.cut_after is not None and refused(script, call) is None


def media_type(script: Script, call: Call) -> str:
    """The Content-Type of the answer."""
    if is_whole(script, call):
        return "application/json"
    return "audio/wav" if call.api == "speech" else "text/event-stream; charset=utf-8"


def whole_length(script: Script, call: Call) -> int | None:
    """The length that a whole answer promises where a cut does not keep it; None where the frame's own is right."""
    return len(_body(script, call)) if is_cut(script, call) else None


def _stream(script: Script, call: Call) -> Iterator[Frame]:
    """Beats that fall due together and carry no token of their own go out with the one before them."""
    words = WORDINGS[call.api](script, call)
    worded = ((beat, words[beat.what](beat.tokens)) for beat in beats(script, usage=call.usage) if beat.what in words)
    held: Frame | None = None
    for beat, data in worded:
        if held is not None and held.due_ns == beat.due_ns and not beat.tokens:
            held = held._replace(data=held.data + data)
        else:
            if held is not None:
                yield held
            held = Frame(beat.due_ns, data, beat.tokens)
    yield held if held is not None else Frame(script.first_ns, b"")


def _whole(script: Script, call: Call) -> Frame:
    status = refused(script, call)
    due_ns = script.first_ns if call.api in _AT_FIRST_TOKEN or script.status is not None else end_ns(script)
    if status is not None:
        return Frame(due_ns, error_body(status, "the script says so"))
    body = _body(script, call)
    unsaid = {"embeddings": limit(script), "transcriptions": min(script.reasoning, limit(script))}.get(call.api, 0)
    # Cut after a number of tokens: a part of the body, so that the length that was promised is not kept.
    whole = script.reasoning + script.tokens
    kept = body[: len(body) * limit(script) // (whole + 1)] if script.cut_after is not None else body
    return Frame(due_ns, kept, limit(script) - unsaid)


def _body(script: Script, call: Call) -> bytes:
    return encode(BODIES[call.api](script, call))
