"""A session in the words of OpenAI's Realtime API: turns that follow each other on a WebSocket, each of them played."""

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import count

import msgspec
from websockets.frames import Frame as Message
from websockets.frames import Opcode
from websockets.protocol import OPEN
from websockets.server import ServerProtocol

from outlay.lab.asked import ID
from outlay.lab.beats import Call, Frame
from outlay.lab.bodies import encode
from outlay.lab.inbound import MAX_BODY_BYTES, Connection, Request
from outlay.lab.play import Answering, Part, Server
from outlay.lab.script import Script
from outlay.lab.tally import Ended, Record


class _Wishes(msgspec.Struct):
    """What a session or a response says of how it wants to be answered; `modalities` is the older name."""

    output_modalities: list[str] | None = None
    modalities: list[str] | None = None


class _Event(msgspec.Struct):
    type: str
    event_id: str | None = None
    session: _Wishes | None = None
    response: _Wishes | None = None


_EVENT = msgspec.json.Decoder(_Event)


class Realtime:
    """One session. It is an answer that lasts as long as its connection, and the wire of the answers within it."""

    def __init__(self, server: Server, connection: Connection, request: Request, script: Script, call: Call) -> None:
        self._server, self._connection, self._request = server, connection, request
        self._script, self._call = script, call
        self._protocol = ServerProtocol(max_size=MAX_BODY_BYTES)
        self._numbers = count(1)
        self._message = bytearray()
        self._received_ns = 0
        self._audio = False
        self._playing: Answering | None = None

    def begin(self) -> None:
        """The handshake. One that fails is answered so, and ends the connection."""
        self._protocol.receive_data(_raw(self._request))
        for request in self._protocol.events_received():
            self._protocol.send_response(self._protocol.accept(request))  # type: ignore[arg-type] # the first is one
        if self._protocol.state is not OPEN:
            self._flush()
            return
        self._tell("session.created", session=self._session())
        self._connection.on_data = self._received
        self._received(self._request.rest or b"")

    def abandon(self) -> None:
        """The client is gone."""
        if self._playing is not None:
            playing, self._playing = self._playing, None
            playing.abandon()

    # The wire of the answers

    def encode(self, frame: Frame, record: Record) -> bytes:
        for event in frame.data.splitlines():
            self._protocol.send_text(event)
        return b"".join(self._protocol.data_to_send())

    def last(self, record: Record) -> bytes:
        return b""

    def over(self, ended: Ended) -> None:
        self._playing = None
        if ended == "cut":
            self._connection.transport.close()

    # What the client says

    def _received(self, data: bytes) -> None:
        self._received_ns = time.monotonic_ns()
        self._protocol.receive_data(data)
        for message in self._protocol.events_received():
            assert isinstance(message, Message)  # requests are over
            self._take(message)
        self._flush()

    def _take(self, message: Message) -> None:
        if message.opcode is Opcode.CLOSE:
            self.abandon()
        elif message.opcode in (Opcode.TEXT, Opcode.BINARY, Opcode.CONT):
            self._message += message.data
            if message.fin:
                text, self._message = bytes(self._message), bytearray()
                self._hear(text)

    def _hear(self, text: bytes) -> None:
        if self._protocol.state is not OPEN:
            return
        try:
            event = _EVENT.decode(text)
        except (msgspec.DecodeError, RecursionError):
            self._refuse("this is no event that can be read")
            return
        _EVENTS.get(event.type, Realtime._unknown)(self, event)

    def _unknown(self, event: _Event) -> None:
        known = ", ".join(_EVENTS)
        self._refuse(f"the event is unknown; events are {known}", event)

    def _update(self, event: _Event) -> None:
        self._audio = _audio(event.session, self._audio)
        self._tell("session.updated", session=self._session())

    def _item(self, event: _Event) -> None:
        item = {"id": f"item-{next(self._numbers)}", "object": "realtime.item", "type": "message", "role": "user"}
        self._tell("conversation.item.added", previous_item_id=None, item=item)
        self._tell("conversation.item.done", previous_item_id=None, item=item)

    def _commit(self, event: _Event) -> None:
        item_id = f"item-{next(self._numbers)}"
        self._tell("input_audio_buffer.committed", previous_item_id=None, item_id=item_id)

    def _clear(self, event: _Event) -> None:
        self._tell("input_audio_buffer.cleared")

    def _append(self, event: _Event) -> None:
        """Sound that comes in is not answered, nor kept."""

    def _respond(self, event: _Event) -> None:
        if self._playing is not None:
            self._refuse("a response is being given", event, "conversation_already_has_active_response")
            return
        given = event.event_id or ""
        name = given if ID.fullmatch(given) else self._server.new_id()
        call = replace(self._call, id=name, audio=_audio(event.response, self._audio))
        self._flush()  # what was said before goes out before
        part = Part(self._script, call, self._received_ns, self._received_ns)
        self._playing = Answering(self._server, self._connection.transport, part, self)
        self._playing.begin()

    # What it is told at once

    def _session(self) -> dict[str, object]:
        head = {"id": f"session-{self._call.id}", "object": "realtime.session", "type": "realtime"}
        return head | {"model": self._call.model, "output_modalities": ["audio" if self._audio else "text"]}

    def _refuse(self, why: str, event: _Event | None = None, code: str | None = None) -> None:
        cause = event.event_id if event is not None else None
        error = {"type": "invalid_request_error", "code": code, "message": why, "param": None, "event_id": cause}
        self._tell("error", error=error)

    def _tell(self, kind: str, **fields: object) -> None:
        event_id = f"event-{self._call.id}-{next(self._numbers)}"
        self._protocol.send_text(encode({"type": kind, "event_id": event_id} | fields))

    def _flush(self) -> None:
        for data in self._protocol.data_to_send():
            if data:
                self._connection.transport.write(data)
            else:  # the protocol's way to say that nothing follows
                self.abandon()
                self._connection.hang_up()


_EVENTS: Mapping[str, Callable[[Realtime, _Event], None]] = {
    "session.update": Realtime._update,
    "conversation.item.create": Realtime._item,
    "input_audio_buffer.append": Realtime._append,
    "input_audio_buffer.commit": Realtime._commit,
    "input_audio_buffer.clear": Realtime._clear,
    "response.create": Realtime._respond,
}


def _raw(request: Request) -> bytes:
    """The head of the request as the WebSocket protocol reads it."""
    lines = [b"%b: %b" % pair for pair in request.headers]
    return b"\r\n".join([b"%b %b HTTP/1.1" % (request.method, request.target), *lines, b"", b""])


def _audio(wishes: _Wishes | None, before: bool) -> bool:
    said = None if wishes is None else wishes.output_modalities or wishes.modalities
    return before if said is None else "audio" in said
