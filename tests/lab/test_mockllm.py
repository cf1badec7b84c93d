"""A reference server answers exactly what the model's name says, when it says so, and survives whatever it is sent."""

import json
import re
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPSConnection, IncompleteRead
from itertools import pairwise
from pathlib import Path
from typing import Any, get_args

import pytest
import trustme
from hypothesis import given, settings
from hypothesis import strategies as st
from lab_process import port_of, started
from websockets.sync.client import connect

from outlay.lab.answer import frames, media_type
from outlay.lab.beats import Api, Call, Frame
from outlay.lab.inbound import MAX_BODY_BYTES, MAX_HEAD_BYTES
from outlay.lab.script import PARTS, Script, after_stall, parse, spell
from outlay.lab.sound import SAMPLE_RATE
from outlay.lab.tally import MAX_RECORDS, Metrics, Played, Record, Truth
from outlay.units import NS_PER_MS, NS_PER_S

MS = NS_PER_MS
CHAT = "/v1/chat/completions"


# Names


@pytest.mark.parametrize(
    ("name", "script"),
    [
        ("mock", Script()),
        ("mock-t20-i5-n32", Script(first_ns=20 * MS, gap_ns=5 * MS, tokens=32)),
        ("mock-n32-t20-i0.5", Script(first_ns=20 * MS, gap_ns=MS // 2, tokens=32)),  # any order
        ("mock-r3-k4", Script(reasoning=3, chunk=4)),
        ("mock-s1000@10000", Script(stall_ns=NS_PER_S, stall_every_ns=10 * NS_PER_S)),
        ("mock-cut5", Script(cut_after=5)),
        ("mock-e429", Script(status=429)),
        ("mock-err3", Script(error_after=3)),
        ("mock-role-empty-comment-usage-tool", Script(role=True, empty=True, comment=True, usage=True, tool=True)),
        ("mock-tgi", Script(tgi=True)),
        ("mock-slots2-q300", Script(slots=2, quiet_ns=300 * MS)),
    ],
)
def test_a_name_spells_a_behaviour(name: str, script: Script) -> None:
    assert parse(name) == script


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("gpt-4o", "not of the form"),
        ("mock-", "part '' is unknown"),
        ("mock-x3", "part 'x3' is unknown"),
        ("mock-t", "part 't' is unknown"),
        ("mock-t-5", "part 't' is unknown"),
        ("mock-t٣", "is unknown"),  # a digit, but not an ASCII one
        ("mock-t1-t2", "says again"),
        ("mock-n0", "1 to 10000 tokens"),
        ("mock-n99999", "1 to 10000 tokens"),
        ("mock-k0", "at least one token"),
        ("mock-slots0", "at least one slot"),
        ("mock-e200", "from 400 to 599"),
        ("mock-s10@10", "shorter"),
        ("mock-cut1-err1", "not both"),
        ("mock" + "-role" * 100, "not of the form"),
    ],
)
def test_a_name_that_spells_none_is_refused_with_the_reason(name: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        parse(name)


durations = st.integers(0, 9_999_999 * MS)
SCRIPTS = st.builds(
    lambda stall, end, **fields: Script(**fields, **stall, **end),
    stall=st.tuples(durations, durations).map(
        lambda pair: {"stall_ns": min(pair), "stall_every_ns": max(pair)} if pair[0] != pair[1] else {}
    ),
    end=st.sampled_from(["cut_after", "error_after", "status"]).flatmap(
        lambda name: st.fixed_dictionaries({name: st.none() | st.integers(400, 599)})
    ),
    first_ns=durations,
    gap_ns=durations,
    quiet_ns=durations,
    tokens=st.integers(1, 40),
    reasoning=st.integers(0, 40),
    chunk=st.integers(1, 9),
    slots=st.none() | st.integers(1, 9),
    **{name: st.booleans() for name in ("role", "empty", "comment", "usage", "tool", "tgi")},
)


@settings(max_examples=200)
@given(SCRIPTS)
def test_the_name_of_a_behaviour_is_read_as_that_behaviour(script: Script) -> None:
    assert parse(spell(script)) == script


@pytest.mark.parametrize(
    ("at_ms", "done_ms"),
    [(0, 0), (8999, 8999), (9000, 10_000), (9999, 10_000), (10_000, 10_000), (19_500, 20_000)],
)
def test_a_stall_is_the_end_of_every_period(at_ms: int, done_ms: int) -> None:
    assert after_stall(parse("mock-s1000@10000"), at_ms * MS) == done_ms * MS


# Frames


def told(frame: Frame) -> list[str]:
    """What each event of a frame says, in short."""
    return [short(block) for block in frame.data.decode().strip().split("\n\n")]


def short(block: str) -> str:
    data = block.rpartition("data: ")[2]
    if not data.startswith("{"):
        return data
    value = json.loads(data)
    if "type" in value:
        return value["type"].removeprefix("response.") + (f" {value['delta'].strip()}" if "delta" in value else "")
    if not value.get("choices"):
        return "error" if "error" in value else f"usage {value['usage']['completion_tokens']}"
    return short_choice(**value["choices"][0])


def short_choice(index: int, delta: dict[str, Any], finish_reason: str | None) -> str:
    text = json.dumps(delta)
    names = {"reasoning_content": "think", "tool_calls": "call", "content": "say"}
    said = [f"{name} {text.count('tok')}" for key, name in names.items() if delta.get(key)]
    return next(iter(said), None) or finish_reason or ("empty" if "content" in delta else "role")


@pytest.mark.parametrize(
    ("name", "timeline"),
    [
        # 20 + 5 x index
        ("mock-t20-i5-n3", {20: ["say 1"], 25: ["say 1"], 30: ["say 1", "stop", "[DONE]"]}),
        ("mock-t20-i5-n2-r2", {20: ["think 1"], 25: ["think 1"], 30: ["say 1"], 35: ["say 1", "stop", "[DONE]"]}),
        # 6 tokens by 4: 4 + 2
        ("mock-t20-i5-n6-k4", {20: ["say 4"], 25: ["say 2", "stop", "[DONE]"]}),
        ("mock-t20-n1-role", {0: ["role"], 20: ["say 1", "stop", "[DONE]"]}),
        ("mock-t20-n1-empty", {0: ["empty"], 20: ["say 1", "stop", "[DONE]"]}),
        ("mock-t20-n1-comment", {0: [": keep-alive"], 10: [": keep-alive"], 20: ["say 1", "stop", "[DONE]"]}),
        ("mock-t20-n1-usage", {20: ["say 1", "stop", "usage 1", "[DONE]"]}),
        ("mock-t20-i5-n2-tool", {20: ["call 1"], 25: ["call 1", "tool_calls", "[DONE]"]}),
        ("mock-t20-i5-n9-cut2", {20: ["say 1"], 25: ["say 1"]}),
        ("mock-t20-i5-n9-r1-cut2", {20: ["think 1"], 25: ["say 1"]}),
        ("mock-t20-i5-n9-cut0", {20: [""]}),
        # 5 ms after the second token, where the third would be
        ("mock-t20-i5-n9-err2", {20: ["say 1"], 25: ["say 1"], 30: ["error", "[DONE]"]}),
        ("mock-t20-n9-err0", {20: ["error", "[DONE]"]}),
        ("mock-t20-e503", {20: ["error"]}),
    ],
)
def test_a_stream_tells_the_script(name: str, timeline: dict[int, list[str]]) -> None:
    told_at = {}
    for frame in frames(parse(name), Call(api="chat", id="a", model=name, stream=True)):
        assert frame.due_ns % MS == 0
        assert frame.due_ns // MS not in told_at or parse(name).gap_ns == 0
        told_at[frame.due_ns // MS] = told(frame)
    assert told_at == timeline


@pytest.mark.parametrize(
    ("name", "timeline"),
    [
        (
            "mock-t20-i5-n2-r1-role-usage",  # the typed events know neither a role frame nor a usage frame
            {
                0: ["created", "in_progress", "output_item.added"],
                20: ["reasoning_text.delta tok"],
                25: ["output_text.delta tok"],
                30: ["output_text.delta tok", "output_item.done", "completed"],
            },
        ),
        (
            "mock-t20-n1-tool",
            {
                0: ["created", "in_progress", "output_item.added"],
                20: ["function_call_arguments.delta tok", "output_item.done", "completed"],
            },
        ),
        ("mock-t20-n1-err0", {0: ["created", "in_progress", "output_item.added"], 20: ["failed"]}),
    ],
)
def test_responses_are_typed_events_that_end_without_done(name: str, timeline: dict[int, list[str]]) -> None:
    found = list(frames(parse(name), Call(api="responses", id="a", model=name, stream=True)))
    assert {frame.due_ns // MS: told(frame) for frame in found} == timeline
    numbers = [int(number) for frame in found for number in re.findall(rb'"sequence_number":(\d+)', frame.data)]
    assert numbers == list(range(len(numbers)))


def test_chat_frames_are_these_bytes() -> None:
    head = b'data: {"id":"a","object":"chat.completion.chunk","created":1700000000,"model":"mock-n1","choices":'
    assert list(frames(parse("mock-n1"), Call(api="chat", id="a", model="mock-n1", stream=True, usage=True))) == [
        Frame(
            0,
            head
            + b'[{"index":0,"delta":{"content":" tok"},"finish_reason":null}]}\n\n'
            + head
            + b'[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
            + head
            + b'[],"usage":{"prompt_tokens":8,"completion_tokens":1,"total_tokens":9}}\n\ndata: [DONE]\n\n',
            1,
        )
    ]


def test_speech_is_a_wav_file_that_begins_with_the_scripted_silence() -> None:
    found = list(frames(parse("mock-t20-i5-n4-k2-q30"), Call(api="speech", id="a", model="m")))
    assert [frame.due_ns for frame in found] == [20 * MS, 25 * MS]
    wav = b"".join(frame.data for frame in found)
    quiet = 2 * SAMPLE_RATE * 30 // 1000  # two bytes a sample, 30 ms
    assert wav[:4] == b"RIFF"
    assert int.from_bytes(wav[4:8], "little") == len(wav) - 8
    assert int.from_bytes(wav[40:44], "little") == len(wav) - 44 == 2 * SAMPLE_RATE * 80 // 1000  # 4 tokens of 20 ms
    assert wav[44 : 44 + quiet] == bytes(quiet)
    assert wav[44 + quiet :] == b"\x00\x20\x00\xe0" * ((len(wav) - 44 - quiet) // 4)  # 50 ms, over both frames


@settings(max_examples=150)
@given(SCRIPTS, st.sampled_from(get_args(Api)), st.booleans())
def test_frames_are_in_order_of_time_and_carry_the_tokens(script: Script, api: Any, stream: bool) -> None:
    call = Call(api=api, id="a", model="m", stream=stream or api == "realtime")
    found = list(frames(script, call))
    assert found
    assert [frame.due_ns for frame in found] == sorted(frame.due_ns for frame in found)
    wanted = script.reasoning + script.tokens
    ends = (script.cut_after, script.error_after)
    limit = min(wanted, *(end for end in ends if end is not None), wanted)
    if script.status is None and media_type(script, call).startswith("text/event-stream"):
        # What is reasoned is neither in a transcript nor in what is spoken.
        unsaid = min(script.reasoning, limit) if api in ("transcriptions", "realtime") else 0
        assert sum(frame.tokens for frame in found) == limit - unsaid


# Truth and metrics


def test_the_truth_forgets_the_oldest() -> None:
    truth = Truth()
    for number in range(MAX_RECORDS + 2):
        truth.add(Record(id=str(number), model="m", api="chat", status=200, received_ns=number))
    lines = list(truth.lines())
    assert len(lines) == MAX_RECORDS
    assert json.loads(lines[0])["id"] == "2"


def test_the_truth_counts_the_frames_of_forgotten_records() -> None:
    truth = Truth()
    first, second = (Record(id=name, model="m", api="chat", status=200, received_ns=0) for name in "ab")
    truth.add(first)
    truth.played(first, Played(1, 2, 1))
    truth.add(second)
    assert [json.loads(line) for line in truth.lines()] == [
        {
            "id": "a",
            "model": "m",
            "api": "chat",
            "status": 200,
            "received_ns": 0,
            "frames": [{"due_ns": 1, "written_ns": 2, "tokens": 1}],
        },
        {"id": "b", "model": "m", "api": "chat", "status": 200, "received_ns": 0},
    ]


def test_a_histogram_counts_at_or_below_each_bound() -> None:
    histogram = Metrics().queue
    for duration_ms in (1, 2, 5, 90_000):
        histogram.add(duration_ms * MS)
    lines = list(histogram.text("x", "a"))
    assert 'x_bucket{a,le="0.001"} 1' in lines
    assert 'x_bucket{a,le="0.005"} 3' in lines
    assert lines[-3:] == ['x_bucket{a,le="+Inf"} 4', "x_sum{a} 90.008000000", "x_count{a} 4"]


# Served


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with started("outlay.lab.mockllm", "--port", "0", "--patience", "0.2") as address:
        yield port_of(address)


def ask(port: int, path: str, **body: object) -> tuple[int, dict[str, str], bytes]:
    connection = HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("POST" if body else "GET", path, json.dumps(body) if body else None)
        answer = connection.getresponse()
        return answer.status, {key.lower(): value for key, value in answer.getheaders()}, answer.read()
    finally:
        connection.close()


def raw(port: int, data: bytes) -> bytes:
    """All that comes back until the server closes."""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as client:
        client.sendall(data)
        return b"".join(iter(lambda: client.recv(65536), b""))


def request(body: bytes, path: str = CHAT, *more: str) -> bytes:
    head = [f"POST {path} HTTP/1.1", "host: x", f"content-length: {len(body)}", *more, "", ""]
    return "\r\n".join(head).encode() + body


def upload(model: str, *more: str) -> tuple[str, bytes]:
    """A form with a file, and its Content-Type."""
    said = {"model": model} | dict(pair.split("=") for pair in more)
    parts = [f'--xyz\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{text}\r\n' for name, text in said.items()]
    file = '--xyz\r\nContent-Disposition: form-data; name="file"; filename="a.wav"\r\n\r\nRIFF\r\n--xyz--\r\n'
    return "multipart/form-data; boundary=xyz", ("".join(parts) + file).encode()


def transcribe(port: int, content_type: str, body: bytes) -> tuple[int, bytes]:
    connection = HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request("POST", "/v1/audio/transcriptions", body, {"content-type": content_type})
    answer = connection.getresponse()
    found = answer.status, answer.read()
    connection.close()
    return found


def truth(port: int, model: str) -> list[dict[str, Any]]:
    records = map(json.loads, ask(port, "/truth")[2].splitlines())
    return [record for record in records if record["model"] == model]


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    ("path", "api"),
    [
        (CHAT, "chat"),
        ("/v1/completions", "completions"),
        ("/v1/responses", "responses"),
        ("/v1/embeddings", "embeddings"),
        ("/v1/audio/speech", "speech"),
    ],
)
def test_the_bytes_of_the_script_arrive(port: int, path: str, api: Any, stream: bool) -> None:
    model = f"mock-t2-i1-n5-r2-k2-role-comment-{'usage' if stream else 'tool'}"
    connection = HTTPConnection("127.0.0.1", port, timeout=10)
    body = json.dumps({"model": model, "stream": stream, "input": ["a", "b"]})
    connection.request("POST", path, body, {"x-request-id": f"id-{api}-{stream}"})
    answer = connection.getresponse()
    call = Call(api=api, id=f"id-{api}-{stream}", model=model, stream=stream, inputs=2)
    assert answer.status == 200
    assert answer.headers["content-type"] == media_type(parse(model), call)
    assert answer.headers["x-request-id"] == call.id
    assert answer.read() == b"".join(frame.data for frame in frames(parse(model), call))
    connection.close()
    [record] = [record for record in truth(port, model) if record["id"] == call.id]
    due = [frame["due_ns"] - record["taken_up_ns"] for frame in record["frames"]]
    assert due == [frame.due_ns for frame in frames(parse(model), call)]
    assert all(frame["written_ns"] >= frame["due_ns"] for frame in record["frames"])
    assert record["ended"] == "done"


def test_a_transcript_is_there_with_its_first_token(port: int) -> None:
    model = "mock-t4-i1-n3"
    status, body = transcribe(port, *upload(model))
    assert status == 200
    assert json.loads(body)["text"] == " tok tok tok"
    [record] = truth(port, model)
    assert [frame["due_ns"] - record["taken_up_ns"] for frame in record["frames"]] == [4 * MS]


def test_a_transcript_may_come_in_pieces(port: int) -> None:
    model = "mock-t4-i1-n2-k1"
    status, body = transcribe(port, *upload(model, "stream=true", "response_format=json"))
    assert status == 200
    events = [json.loads(line.removeprefix(b"data: ")) for line in body.split(b"\n\n")[:-1]]
    assert [(event["type"], event.get("delta", event.get("text"))) for event in events] == [
        ("transcript.text.delta", " tok"),
        ("transcript.text.delta", " tok"),
        ("transcript.text.done", " tok tok"),
    ]
    [record] = truth(port, model)
    assert [frame["due_ns"] - record["taken_up_ns"] for frame in record["frames"]] == [4 * MS, 5 * MS]


@pytest.mark.parametrize(
    ("content_type", "body", "why"),
    [
        ("application/json", b'{"model":"mock"}', b"multipart/form-data"),
        (*upload("mock-x"), b"unknown"),
        (*upload("mock", "response_format=srt"), b"only response_format"),
        ("multipart/form-data; boundary=x", b'--x\r\nContent-Disposition: form; name="a"\r\n\r\n\r\n--x--', b"`file`"),
    ],
)
def test_a_form_that_asks_for_nothing_that_can_be_is_refused(
    port: int, content_type: str, body: bytes, why: bytes
) -> None:
    status, answer = transcribe(port, content_type, body)
    assert status == 400
    assert why in answer


def test_whole_answers_tell_their_times_as_tgi_does(port: int) -> None:
    model = "mock-t20-i5-n3-tgi"
    _, headers, _ = ask(port, CHAT, model=model)
    [record] = truth(port, model)
    times = {name: int(headers[f"x-{name}-time"]) for name in ("total", "validation", "queue", "inference")}
    # 20 + 2 x 5 ms after it was taken up, and whatever the loop was late; at once, so queue and total differ by nothing
    took_ms = (record["frames"][0]["written_ns"] - record["received_ns"]) // MS
    assert 30 <= times["inference"] == times["total"] <= took_ms
    assert times["queue"] == times["validation"] == 0
    assert int(headers["x-time-per-token"]) == times["inference"] // 3
    assert (headers["x-prompt-tokens"], headers["x-generated-tokens"]) == ("8", "3")
    assert times["total"] == int(float(headers["x-compute-time"]) * 1000)
    assert "x-total-time" not in ask(port, CHAT, model=model, stream=True)[1]
    assert "x-total-time" not in ask(port, CHAT, model="mock-t1-n1", stream=False)[1]


def test_a_stream_tells_how_long_it_took_to_who_reads_trailers(port: int) -> None:
    body = b'{"model":"mock-t4-n1","stream":true}'
    found = raw(port, request(body, CHAT, "te: trailers", "connection: close"))
    assert b"trailer: server-timing\r\n" in found
    trailer = re.search(rb"\r\n0\r\nserver-timing: total;dur=([\d.]+)\r\n\r\n$", found)
    assert trailer is not None
    assert float(trailer[1]) >= 4
    assert raw(port, request(body, CHAT, "connection: close")).endswith(b"\r\n0\r\n\r\n")


@pytest.mark.parametrize(("method", "status"), [(b"GET", 200), (b"POST", 400)])
def test_an_upgrade_that_is_not_followed_is_the_last_request(port: int, method: bytes, status: int) -> None:
    head = b" /healthz HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: h2c\r\ncontent-length: 1\r\n\r\nx"
    found = raw(port, method + head)
    assert found.startswith(b"HTTP/1.1 %d " % status)
    assert b"connection: close" in found


def test_one_connection_serves_requests_one_after_the_other_also_when_sent_ahead(port: int) -> None:
    body = b'{"model":"mock-t3-n1","stream":true}'
    last = b'{"model":"mock-n1"}'
    found = raw(port, request(body, CHAT, "x-request-id: p1") * 2 + request(last, CHAT, "connection: close"))
    assert [int(status) for status in re.findall(rb"HTTP/1\.1 (\d+)", found)] == [200, 200, 200]
    first, second = truth(port, "mock-t3-n1")
    assert first["taken_up_ns"] == first["received_ns"]
    assert second["taken_up_ns"] >= first["frames"][-1]["written_ns"]  # in its turn


def test_a_slot_is_held_until_the_answer_is_over(port: int) -> None:
    """Three requests of 10 ms at one slot: the second is taken up after 10 ms, the third after 20."""
    model = "mock-t10-n1-slots1"
    clients = [socket.create_connection(("127.0.0.1", port), timeout=10) for _ in range(3)]
    for client in clients:
        client.sendall(request(json.dumps({"model": model}).encode(), CHAT, "connection: close"))
    answers = [b"".join(iter(lambda client=client: client.recv(65536), b"")) for client in clients]
    for client in clients:
        client.close()
    records = sorted(truth(port, model), key=lambda record: record["taken_up_ns"])
    assert [record["received_ns"] for record in records] == sorted(record["received_ns"] for record in records)
    for before, after in pairwise(records):
        assert after["taken_up_ns"] >= before["frames"][0]["written_ns"] >= before["taken_up_ns"] + 10 * MS
    waits = sorted(float(match) for answer in answers for match in re.findall(rb"queue;dur=([\d.]+)", answer))
    expected = sorted((record["taken_up_ns"] - record["received_ns"]) / MS for record in records)
    assert waits == pytest.approx(expected, abs=0.001)


def test_metrics_show_who_runs_and_who_waits(port: int) -> None:
    """One slot, an answer that lasts a minute: one runs, two wait; when they go away, none does."""
    clients = [socket.create_connection(("127.0.0.1", port), timeout=10) for _ in range(3)]
    body = b'{"model":"mock-t60000-slots1-role","stream":true}'
    clients[0].sendall(request(body))
    assert clients[0].recv(65536).startswith(b"HTTP/1.1 200")
    for client in clients[1:]:
        client.sendall(request(body))
    gauges = (b'running{model_name="mock"} ', b'waiting{model_name="mock"} ')
    assert until(port, *(gauge + count for gauge, count in zip(gauges, (b"1", b"2"), strict=True)))
    for client in reversed(clients):
        client.close()
    assert until(port, *(gauge + b"0" for gauge in gauges))
    assert [record["ended"] for record in truth(port, "mock-t60000-slots1-role")] == ["gone"] * 3


def until(port: int, *lines: bytes) -> bool:
    """Whether the metrics come to hold these lines; each look is a round trip, so the server gets on meanwhile."""
    return any(all(line in ask(port, "/metrics")[2] for line in lines) for _ in range(500))


def test_a_cut_stream_ends_without_its_end(port: int) -> None:
    found = raw(port, request(b'{"model":"mock-n9-cut5","stream":true}'))
    assert found.count(b'"content":" tok"') == 5
    assert b"[DONE]" not in found
    assert not found.endswith(b"0\r\n\r\n")


def test_a_cut_whole_answer_is_shorter_than_promised(port: int) -> None:
    with pytest.raises(IncompleteRead):
        ask(port, CHAT, model="mock-n9-cut5")


def test_an_error_may_come_inside_a_200(port: int) -> None:
    status, _, body = ask(port, CHAT, model="mock-n9-err3", stream=True)
    assert status == 200
    assert body.count(b'"content":" tok"') == 3
    assert body.endswith(b'"code":500}}\n\ndata: [DONE]\n\n')
    assert ask(port, CHAT, model="mock-n9-err3")[0] == 500


def test_a_scripted_status_tells_when_to_come_back(port: int) -> None:
    status, headers, body = ask(port, CHAT, model="mock-e429", stream=True)
    assert (status, headers["retry-after"]) == (429, "1")
    assert json.loads(body)["error"]["code"] == 429


@pytest.mark.parametrize(
    ("path", "expected"),
    [("/healthz", b"ok\n"), ("/v1/models", b'"id":"mock"'), ("/metrics", b"vllm:time_to_first_token_seconds_count")],
)
def test_pages(port: int, path: str, expected: bytes) -> None:
    status, _, body = ask(port, path)
    assert status == 200
    assert expected in body


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"\x16\x03\x01\x02\x00garbage\r\n\r\n", 400),
        (b"GET / HTTP/9.9\r\n\r\n", 400),
        (b"GET /metrics HTTP/1.1\r\nhost: x\r\nx: " + b"a" * (MAX_HEAD_BYTES + 1) + b"\r\n\r\n", 431),
        (b"GET /" + b"a" * (MAX_HEAD_BYTES + 1) + b" HTTP/1.1\r\n\r\n", 431),
        (request(b" " * (MAX_BODY_BYTES + 1)), 413),
        (b"POST " + CHAT.encode() + b" HTTP/1.1\r\ncontent-length: 9\r\n\r\n{", 408),  # and then nothing more
        (b"GET /nowhere HTTP/1.0\r\n\r\n", 404),
        (b"GET " + CHAT.encode() + b" HTTP/1.0\r\n\r\n", 405),
        (request(b"{", CHAT, "connection: close"), 400),
        (request(b"[" * 100_000, CHAT, "connection: close"), 400),
        (request(b'{"model":"mock-x"}', CHAT, "connection: close"), 400),
        (request(b'{"model":7}', CHAT, "connection: close"), 400),
    ],
)
def test_what_cannot_be_answered_is_refused(port: int, data: bytes, status: int) -> None:
    answer = raw(port, data)
    assert answer.startswith(b"HTTP/1.1 %d " % status)
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["code"] == status


def test_a_refusal_comes_after_the_answers_before_it(port: int) -> None:
    found = raw(port, request(b'{"model":"mock-t3-n1"}') + b"\0\0\0\r\n\r\n")
    assert [int(status) for status in re.findall(rb"HTTP/1\.1 (\d+)", found)] == [200, 400]


def test_http_1_0_gets_a_stream_that_ends_with_the_connection(port: int) -> None:
    body = b'{"model":"mock-n1","stream":true}'
    found = raw(port, request(body).replace(b"HTTP/1.1", b"HTTP/1.0"))
    assert b"transfer-encoding" not in found
    assert found.endswith(b"data: [DONE]\n\n")


@settings(max_examples=60, deadline=None)
@given(data=st.binary(max_size=200), cut=st.integers(0, 120))
def test_no_bytes_bring_it_down(port: int, data: bytes, cut: int) -> None:
    whole = request(b'{"model":"mock-n1","stream":true}')
    with socket.create_connection(("127.0.0.1", port), timeout=10) as client:
        client.sendall(whole[:cut] + data)
    assert ask(port, "/healthz")[0] == 200


# TLS


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, ssl.SSLContext]:
    """The files that a server needs, and what its client trusts."""
    folder, authority = tmp_path_factory.mktemp("tls"), trustme.CA()
    issued = authority.issue_cert("127.0.0.1")
    cert, key = folder / "cert.pem", folder / "key.pem"
    cert.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
    key.write_bytes(issued.private_key_pem.bytes())
    trust = ssl.create_default_context()
    authority.configure_trust(trust)
    return cert, key, trust


def test_with_a_certificate_all_is_encrypted(certificate: tuple[Path, Path, ssl.SSLContext]) -> None:
    cert, key, trust = certificate
    with started("outlay.lab.mockllm", "--cert", str(cert), "--key", str(key)) as address:
        assert address.startswith("https://")
        connection = HTTPSConnection("127.0.0.1", port_of(address), timeout=10, context=trust)
        connection.request("POST", CHAT, b'{"model":"mock-t2-n2","stream":true}')
        assert connection.getresponse().read().endswith(b"data: [DONE]\n\n")
        connection.close()
        where = f"wss://127.0.0.1:{port_of(address)}/v1/realtime?model=mock-n1"
        with connect(where, ssl=trust, proxy=None) as client:
            assert json.loads(client.recv(timeout=10))["type"] == "session.created"
        assert b"HTTP" not in raw(port_of(address), b"GET / HTTP/1.1\r\n\r\n")


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--cert", "nowhere.pem"], "--cert nowhere.pem: "),
        (["--cert", __file__], "--cert"),  # no certificate
        (["--key", __file__], "--key needs --cert"),
        (["--port", "99999"], "port 99999: "),
    ],
)
def test_what_cannot_be_begun_is_refused_in_one_line(arguments: list[str], why: str) -> None:
    command = [sys.executable, "-m", "outlay.lab.mockllm", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 2
    assert why in done.stderr.splitlines()[-1]


# The page


def test_the_page_lists_every_part() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "lab.md").read_text(encoding="utf-8")
    for part in PARTS:
        letters = iter("AB" if part.spelling.count("{}") > 1 else "N")
        spelt = re.sub(r"\{\}", lambda _, letters=letters: next(letters), part.spelling)
        assert f"| `{spelt}` | {part.meaning} |" in page
