"""A session plays each turn as the model's name says, on one connection, and survives whatever it is sent."""

import json
import socket
from base64 import b64decode
from collections.abc import Iterator
from http.client import HTTPConnection
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lab_process import port_of, started
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from outlay.lab.answer import frames
from outlay.lab.beats import Call
from outlay.lab.inbound import MAX_BODY_BYTES
from outlay.lab.script import parse
from outlay.units import NS_PER_MS

MS = NS_PER_MS


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with started("outlay.lab.mockllm") as address:
        yield port_of(address)


def session(port: int, model: str) -> ClientConnection:
    return connect(f"ws://127.0.0.1:{port}/v1/realtime?model={model}", compression=None, proxy=None)


def say(client: ClientConnection, kind: str, **fields: object) -> None:
    client.send(json.dumps({"type": kind} | fields))


def hear(client: ClientConnection) -> dict[str, Any]:
    event: dict[str, Any] = json.loads(client.recv(timeout=10))
    return event


def turn(client: ClientConnection, **response: object) -> list[dict[str, Any]]:
    """All events of a response, up to its end."""
    say(client, "response.create", response=response)
    events = [hear(client)]
    while events[-1]["type"] != "response.done":
        events.append(hear(client))
    return events


def truth(port: int, **wanted: str) -> list[dict[str, Any]]:
    connection = HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request("GET", "/truth")
    records = map(json.loads, connection.getresponse().read().splitlines())
    connection.close()
    return [record for record in records if wanted.items() <= record.items()]


def worded(model: str, *, audio: bool = False) -> list[tuple[int, str]]:
    """Every event that a model's name makes, with the ms it is due after the turn is taken up."""
    call = Call(api="realtime", id="a", model=model, stream=True, audio=audio)
    return [
        (frame.due_ns // MS, json.loads(line)["type"].removeprefix("response."))
        for frame in frames(parse(model), call)
        for line in frame.data.splitlines()
    ]


@pytest.mark.parametrize(
    ("model", "audio", "events"),
    [
        (
            "mock-t20-i5-n2-r1",  # what is reasoned is not heard, but takes its time: the first word comes at 25
            False,
            [
                (0, "created"),
                (0, "output_item.added"),
                (25, "output_text.delta"),
                (30, "output_text.delta"),
                (30, "output_text.done"),
                (30, "output_item.done"),
                (30, "done"),
            ],
        ),
        (
            "mock-t20-n1",
            True,
            [
                (0, "created"),
                (0, "output_item.added"),
                (20, "output_audio.delta"),
                (20, "output_audio.done"),
                (20, "output_item.done"),
                (20, "done"),
            ],
        ),
        (
            "mock-t20-n1-tool",
            False,
            [
                (0, "created"),
                (0, "output_item.added"),
                (20, "function_call_arguments.delta"),
                (20, "function_call_arguments.done"),
                (20, "output_item.done"),
                (20, "done"),
            ],
        ),
        ("mock-t20-n1-err0", False, [(0, "created"), (0, "output_item.added"), (20, "done")]),
        ("mock-t20-i5-n9-cut1", False, [(0, "created"), (0, "output_item.added"), (20, "output_text.delta")]),
    ],
)
def test_a_turn_tells_the_script(model: str, audio: bool, events: list[tuple[int, str]]) -> None:
    assert worded(model, audio=audio) == events


def test_turns_follow_each_other_and_each_is_in_the_truth(port: int) -> None:
    model = "mock-t3-i1-n3"
    with session(port, model) as client:
        assert hear(client)["session"]["model"] == model
        turns = [turn(client) for _ in range(3)]
    for events in turns:
        text = "".join(event["delta"] for event in events if event["type"] == "response.output_text.delta")
        [output] = events[-1]["response"]["output"]
        assert text == output["content"][0]["text"] == " tok tok tok"
        assert events[-1]["response"]["status"] == "completed"
        assert events[-1]["response"]["usage"]["output_tokens"] == 3
        [record] = truth(port, id=events[0]["response"]["id"])
        # created, and then 3, 3 + 1, 3 + 2 ms after the turn was taken up, which nothing delayed
        due = [frame["due_ns"] - record["taken_up_ns"] for frame in record["frames"]]
        assert due == [0, 3 * MS, 4 * MS, 5 * MS]
        assert all(frame["written_ns"] >= frame["due_ns"] for frame in record["frames"])
        assert record["taken_up_ns"] == record["received_ns"]
        assert (record["api"], record["status"], record["ended"]) == ("realtime", 200, "done")
    assert len({events[0]["response"]["id"] for events in turns}) == 3


def test_a_turn_goes_by_the_name_its_client_gave_it(port: int) -> None:
    with session(port, "mock-n1") as client:
        hear(client)
        say(client, "response.create", event_id="turn-7")
        assert hear(client)["response"]["id"] == "turn-7"
    assert len(truth(port, id="turn-7")) == 1


@pytest.mark.parametrize("key", ["output_modalities", "modalities"])
def test_sound_begins_with_the_scripted_silence(port: int, key: str) -> None:
    with session(port, "mock-n5-k2-q30") as client:
        hear(client)
        events = turn(client, **{key: ["audio"]})
    sounds = [b64decode(event["delta"]) for event in events if event["type"] == "response.output_audio.delta"]
    # 5 tokens by 2, each of 20 ms at 24 kHz and 2 bytes: 960 bytes a token
    assert [len(sound) for sound in sounds] == [1920, 1920, 960]
    quiet = 2 * 24_000 * 30 // 1000  # 30 ms
    assert b"".join(sounds) == bytes(quiet) + b"\x00\x20\x00\xe0" * ((5 * 960 - quiet) // 4)


def test_a_session_may_be_told_to_speak(port: int) -> None:
    with session(port, "mock-n1") as client:
        assert hear(client)["session"]["output_modalities"] == ["text"]
        say(client, "session.update", session={"type": "realtime", "output_modalities": ["audio"]})
        assert hear(client)["session"]["output_modalities"] == ["audio"]
        assert "response.output_audio.delta" in [event["type"] for event in turn(client)]
        assert "response.output_text.delta" in [event["type"] for event in turn(client, modalities=["text"])]


def test_what_is_put_in_is_taken_note_of_and_not_repeated(port: int) -> None:
    content = [{"type": "input_text", "text": "secret"}]
    with session(port, "mock-n1") as client:
        hear(client)
        say(client, "conversation.item.create", item={"type": "message", "role": "user", "content": content})
        say(client, "input_audio_buffer.append", audio="c2VjcmV0")  # not answered
        say(client, "input_audio_buffer.commit")
        say(client, "input_audio_buffer.clear")
        said = [hear(client) for _ in range(4)]
    assert [event["type"] for event in said] == [
        "conversation.item.added",
        "conversation.item.done",
        "input_audio_buffer.committed",
        "input_audio_buffer.cleared",
    ]
    assert "secret" not in json.dumps(said)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"type":"response.fly","event_id":"e1"}', "unknown"),
        ("{", "no event"),
        ('{"type":7}', "no event"),
        ("[" * 100_000, "no event"),
    ],
)
def test_what_is_not_understood_is_an_error_and_the_session_goes_on(port: int, text: str, why: str) -> None:
    with session(port, "mock-n1") as client:
        hear(client)
        client.send(text)
        event = hear(client)
        assert event["type"] == "error"
        assert why in event["error"]["message"]
        assert event["error"]["event_id"] == ("e1" if "e1" in text else None)
        assert turn(client)[-1]["response"]["status"] == "completed"


def test_one_response_at_a_time(port: int) -> None:
    with session(port, "mock-t60000-n1") as client:
        hear(client)
        say(client, "response.create")
        assert hear(client)["type"] == "response.created"
        assert hear(client)["type"] == "response.output_item.added"
        say(client, "response.create")
        assert hear(client)["error"]["code"] == "conversation_already_has_active_response"
    [record] = truth(port, model="mock-t60000-n1")
    assert record["ended"] == "gone"


def test_a_message_may_come_in_pieces_and_a_ping_between_them(port: int) -> None:
    with session(port, "mock-n1") as client:
        hear(client)
        client.send(iter(['{"type":"session', '.update"}']))
        assert hear(client)["type"] == "session.updated"
        assert client.ping().wait(10)


def test_a_cut_ends_the_connection_without_a_word(port: int) -> None:
    with session(port, "mock-n9-cut2") as client:
        hear(client)
        say(client, "response.create")
        events = [hear(client)["type"] for _ in range(4)]
        with pytest.raises(ConnectionClosed) as closed:
            hear(client)
    assert events[2:] == ["response.output_text.delta"] * 2
    assert closed.value.rcvd is None
    assert truth(port, model="mock-n9-cut2")[0]["ended"] == "cut"


def test_an_error_of_the_script_is_the_end_of_the_turn_only(port: int) -> None:
    with session(port, "mock-n9-err1") as client:
        hear(client)
        for _ in range(2):
            response = turn(client)[-1]["response"]
            assert (response["status"], response["status_details"]["type"]) == ("failed", "failed")


@pytest.mark.parametrize(
    ("query", "status"),
    [("?model=mock-e429", 429), ("?model=mock-x", 400), ("", 400), ("?" + "a=1&" * 100 + "model=mock", 400)],
)
def test_a_session_that_cannot_be_is_refused_before_it_begins(port: int, query: str, status: int) -> None:
    with pytest.raises(InvalidStatus) as refused, connect(f"ws://127.0.0.1:{port}/v1/realtime{query}", proxy=None):
        pass
    assert refused.value.response.status_code == status


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"", 426),
        (b"connection: upgrade\r\nupgrade: websocket\r\n", 400),  # no key
        (b"connection: upgrade\r\nupgrade: h2c\r\n", 426),
    ],
)
def test_what_is_no_websocket_is_told_so(port: int, head: bytes, status: int) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=10) as client:
        client.sendall(b"GET /v1/realtime?model=mock HTTP/1.1\r\nhost: x\r\n" + head + b"\r\n")
        assert client.recv(65536).startswith(b"HTTP/1.1 %d " % status)


def test_a_message_that_is_too_large_closes_the_session(port: int) -> None:
    with session(port, "mock-n1") as client:
        hear(client)
        with pytest.raises(ConnectionClosed) as closed:
            ask_too_much(client)
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 1009  # message too big, RFC 6455 section 7.4.1


def ask_too_much(client: ClientConnection) -> None:
    """It is refused while it is sent, or when the next word is awaited."""
    client.send("a" * (MAX_BODY_BYTES + 1))
    hear(client)


@settings(max_examples=40, deadline=None)
@given(data=st.binary(max_size=100))
def test_no_bytes_bring_it_down(port: int, data: bytes) -> None:
    head = (
        b"GET /v1/realtime?model=mock HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: websocket\r\n"
        b"sec-websocket-version: 13\r\nsec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", port), timeout=10) as client:
        client.sendall(head + data)
        assert client.recv(65536).startswith(b"HTTP/1.1 101 ")
    with session(port, "mock-n1") as again:
        assert hear(again)["type"] == "session.created"
