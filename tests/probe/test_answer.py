"""What an answer comes to: each shape of frames that servers send, and every way in which answers end."""

import json
from base64 import b64encode
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlay.probe.answer import Answer, read_answer
from outlay.probe.asking import APIS
from outlay.probe.exchange import Exchange, Failure

# Reads come at 100, 200, 300, ... and the answer is over 50 after the last.
STEP = 100


def exchange(
    reads: Sequence[bytes], *, media: str = "text/event-stream", status: int = 200, failure: Failure = ""
) -> Exchange:
    body = [(STEP * place, read) for place, read in enumerate(reads, start=1)]
    return Exchange(
        number=0,
        intended_ns=0,
        written_ns=1,
        first_byte_ns=90,
        headers_ns=90,
        body=body,
        ended_ns=STEP * len(reads) + 50,
        status=status,
        headers=[("content-type", media)] if media else [],
        failure=failure,
    )


def read(
    reads: Sequence[bytes],
    api: str = "chat",
    *,
    streamed: bool = True,
    failure: Failure = "",
    media: str = "text/event-stream",
    status: int = 200,
) -> Answer:
    return read_answer(api, exchange(reads, media=media, status=status, failure=failure), streamed=streamed)


def frame(value: object) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"


def chat(finish: str | None = None, **delta: object) -> bytes:
    return frame(
        {"object": "chat.completion.chunk", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}
    )


ROLE, EMPTY = chat(role="assistant", content=""), chat(content="")
ONE, TWO = chat(content="one"), chat(content=" two")
STOP, DONE = chat("stop"), b"data: [DONE]\n\n"
USAGE = frame({"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 2}})
COMMENT = b": keep-alive\n\n"


def instants(answer: Answer) -> tuple[int | None, ...]:
    return answer.first_frame_ns, answer.first_token_ns, answer.first_output_ns, answer.last_ns, answer.done_ns


# Chat


def test_a_plain_stream():
    answer = read([ROLE, ONE, TWO, STOP, USAGE, DONE])
    assert answer.outcome == "ok"
    assert instants(answer) == (100, 200, 200, 300, 600)
    assert answer.tokens_ns == (200, 300)
    assert (answer.input_tokens, answer.output_tokens) == (7, 2)
    assert answer.notes == ()


@pytest.mark.parametrize(
    "prelude",
    [
        ROLE,
        EMPTY,
        COMMENT,
        chat(),
        chat(content=None),
        frame({"choices": []}),
        chat(reasoning_content=""),
        chat(tool_calls=[]),
    ],
)
def test_what_is_no_progress_does_not_move_the_first_token(prelude: bytes):
    answer = read([prelude, prelude, ONE, TWO, STOP, DONE])
    assert (answer.first_token_ns, answer.first_output_ns) == (300, 300)


@pytest.mark.parametrize(
    "output",
    [
        chat(content="x"),
        chat(content=" "),
        chat(refusal="no"),
        chat(tool_calls=[{"index": 0, "function": {"name": "f", "arguments": ""}}]),
        chat(tool_calls=[{"index": 0, "function": {"arguments": "{"}}]),
        chat(function_call={"name": "f"}),
        chat(audio={"data": "AAAA"}),
        chat(content=[{"type": "text", "text": "x"}]),
        frame({"choices": [{"index": 0, "text": "x", "finish_reason": None}]}),
    ],
)
def test_what_a_person_sees_or_a_tool_is_called_with_is_output(output: bytes):
    answer = read([ROLE, output, STOP, DONE])
    assert (answer.first_token_ns, answer.first_output_ns) == (200, 200)


@pytest.mark.parametrize(
    "thought",
    [
        chat(reasoning_content="hm"),
        chat(reasoning="hm"),
        chat(reasoning_text="hm"),
        chat(thinking="hm"),
        chat(reasoning_details=[{"type": "reasoning.text", "text": "hm"}]),
        chat(content=[{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}]),
    ],
)
def test_reasoning_is_a_first_token_and_no_output(thought: bytes):
    """Two numbers for each request: guidellm#737, inference-perf#559."""
    answer = read([ROLE, thought, thought, ONE, STOP, DONE])
    assert (answer.first_token_ns, answer.first_output_ns) == (200, 400)
    assert answer.tokens_ns == (200, 300, 400)


def test_a_role_at_once_and_minutes_of_reasoning():
    """api7/aisix#869: one request, told as 175 ms and as 183 581 ms. Both are right, of different tokens."""
    body = [
        (0, ROLE),
        (175_000_000, chat(reasoning_content="so")),
        (183_581_000_000, ONE),
        (183_600_000_000, STOP + DONE),
    ]
    made = exchange([])
    made.body, made.ended_ns = body, 183_600_000_001
    answer = read_answer("chat", made, streamed=True)
    assert (answer.first_frame_ns, answer.first_token_ns, answer.first_output_ns) == (0, 175_000_000, 183_581_000_000)


def test_several_tokens_in_a_frame_and_several_frames_in_a_read():
    answer = read(
        [
            ROLE + ONE + TWO + chat(content=" three four"),
            STOP,
            frame({"choices": [], "usage": {"completion_tokens": 4}}),
            DONE,
        ]
    )
    assert answer.tokens_ns == (100, 100, 100)  # a frame each, however many tokens they hold
    assert answer.output_tokens == 4


def test_a_frame_over_many_reads_came_with_the_last_of_them():
    pieces = [ONE[place : place + 10] for place in range(0, len(ONE), 10)]
    answer = read([ROLE, *pieces, STOP, DONE])
    assert answer.first_token_ns == STEP * (1 + len(pieces))


def test_reasoning_counts_as_output_also_where_the_server_leaves_it_out():
    usage = {
        "prompt_tokens": 10,
        "completion_tokens": 5,
        "total_tokens": 35,
        "completion_tokens_details": {"reasoning_tokens": 20},
    }
    answer = read([ROLE, ONE, STOP, frame({"choices": [], "usage": usage}), DONE])
    assert (answer.output_tokens, answer.reasoning_tokens) == (25, 20)
    usage |= {"completion_tokens": 25}
    answer = read([ROLE, ONE, STOP, frame({"choices": [], "usage": usage}), DONE])
    assert (answer.output_tokens, answer.reasoning_tokens) == (25, 20)


# How streams end


@pytest.mark.parametrize("end", [[STOP, DONE], [STOP], [DONE], [chat("length"), USAGE, DONE], [chat("tool_calls")]])
def test_an_end_that_was_said_is_an_end(end: list[bytes]):
    assert read([ROLE, ONE, *end]).outcome == "ok"


@pytest.mark.parametrize("failure", ["", "cut"])
def test_a_stream_that_breaks_off_has_failed(failure: Failure):
    answer = read([ROLE, ONE, TWO], failure=failure)
    assert answer.outcome == "error"
    assert "cut" in (answer.why or "")
    assert (answer.first_token_ns, answer.last_ns) == (200, 300)  # what was seen is kept


def test_a_connection_that_breaks_after_the_end_was_said_is_noted():
    answer = read([ROLE, ONE, STOP, DONE], failure="cut")
    assert answer.outcome == "ok"
    assert [note.kind for note in answer.notes] == ["contradiction"]


def test_a_connection_left_open_after_the_model_stopped_ends_where_it_stopped():
    """The person has had the answer with the last frame; what was waited for afterwards is only noted."""
    answer = read([ROLE, ONE, STOP, USAGE], failure="timeout")
    assert (answer.outcome, answer.done_ns) == ("ok", 300)
    assert [note.kind for note in answer.notes] == ["contradiction"]


def test_the_first_of_several_errors_is_the_cause():
    assert read([frame({"error": {"code": 429}}), frame({"error": {"code": 500}})]).outcome == "refused"


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        ({"error": {"message": "secret prompt", "type": "server_error", "code": None}}, "error"),
        ({"error": {"message": "m", "type": "rate_limit_error"}}, "refused"),
        ({"error": {"message": "m", "code": 429}}, "refused"),
        ({"error": {"message": "m", "code": "rate_limit_exceeded"}}, "refused"),
        ({"error": {"code": 504}}, "timeout"),
        ({"error": "overloaded"}, "error"),
        ({"error": "secret", "error_type": "overloaded"}, "refused"),  # TGI names the type beside it
        ({"object": "error", "message": "secret", "code": 500}, "error"),
        ({"type": "error", "error": {"type": "overloaded_error"}}, "refused"),
    ],
)
def test_an_error_inside_a_200_is_an_error_and_its_message_is_not_told(error: object, outcome: str):
    answer = read([ROLE, ONE, frame(error), DONE])
    assert answer.outcome == outcome
    assert "secret" not in (answer.why or "")
    assert answer.first_token_ns == 200


def test_an_event_named_error_is_one():
    assert read([ROLE, b'event: error\ndata: {"message": "x"}\n\n']).outcome == "error"


@pytest.mark.parametrize(
    ("status", "outcome"),
    [
        (301, "error"),
        (400, "error"),
        (401, "error"),
        (404, "error"),
        (408, "timeout"),
        (429, "refused"),
        (500, "error"),
        (503, "error"),
        (504, "timeout"),
    ],
)
def test_a_status_says_how_it_failed(status: int, outcome: str):
    answer = read([b'{"error": {"message": "secret", "type": "t"}}'], media="application/json", status=status)
    assert answer.outcome == outcome
    assert answer.why is not None
    assert f"status {status}" in answer.why
    assert "secret" not in answer.why


def test_503_with_a_time_to_come_again_is_a_refusal():
    made = exchange([b""], status=503)
    made.headers.append(("retry-after", "1"))
    assert read_answer("chat", made, streamed=True).outcome == "refused"


@pytest.mark.parametrize(
    ("failure", "outcome"),
    [("timeout", "timeout"), ("stopped", "aborted"), ("connect", "error"), ("reset", "error"), ("dns", "error")],
)
def test_what_the_sender_saw_fail_has_failed(failure: Failure, outcome: str):
    made = Exchange(number=0, intended_ns=0, ended_ns=9, failure=failure)
    answer = read_answer("chat", made, streamed=True)
    assert (answer.outcome, answer.first_token_ns) == (outcome, None)
    assert answer.why


def test_frames_that_are_no_json_are_counted_and_not_fatal():
    answer = read([ROLE, b"data: {broken\n\n", ONE, b"data: nonsense\n\n", STOP, DONE])
    assert answer.outcome == "ok"
    assert answer.first_token_ns == 300
    assert [note.kind for note in answer.notes] == ["dropped-record"]


# Whole answers


WHOLE = json.dumps(
    {"choices": [{"message": {"content": "x"}}], "usage": {"prompt_tokens": 3, "completion_tokens": 9}}
).encode()


def test_an_answer_at_once_has_an_end_and_no_first_token():
    answer = read([WHOLE[:20], WHOLE[20:]], streamed=False, media="application/json")
    assert (answer.outcome, answer.streamed) == ("ok", False)
    assert (answer.first_token_ns, answer.first_output_ns, answer.last_ns) == (None, None, 200)
    assert (answer.input_tokens, answer.output_tokens) == (3, 9)


def test_a_server_that_does_not_stream_though_asked_is_read_and_noted():
    answer = read([WHOLE], media="application/json")
    assert (answer.outcome, answer.streamed, answer.last_ns) == ("ok", False, 100)
    assert [note.kind for note in answer.notes] == ["no-first-output"]


def test_a_whole_answer_that_breaks_off_has_failed():
    assert read([WHOLE[:20]], streamed=False, media="application/json", failure="cut").outcome == "error"


# Responses


def typed(event: str, **more: object) -> bytes:
    return f"event: {event}\n".encode() + frame({"type": event, "sequence_number": 1, **more})


BEGIN = [
    typed("response.created", response={"status": "in_progress"}),
    typed("response.queued"),
    typed("response.in_progress"),
]
OVER = {"usage": {"input_tokens": 5, "output_tokens": 6, "output_tokens_details": {"reasoning_tokens": 2}}}


def test_responses_begin_with_the_first_delta_of_visible_output():
    reads = [
        *BEGIN,
        typed("response.output_item.added", item={}),
        typed("response.reasoning_text.delta", delta="h"),
        typed("response.output_text.delta", delta="x"),
        typed("response.completed", response={"status": "completed"} | OVER),
    ]
    answer = read(reads, "responses")
    assert answer.outcome == "ok"
    assert instants(answer) == (100, 500, 600, 600, 700)
    assert (answer.input_tokens, answer.output_tokens, answer.reasoning_tokens) == (5, 6, 2)


@pytest.mark.parametrize(
    "event", ["response.output_text.delta", "response.function_call_arguments.delta", "response.refusal.delta"]
)
def test_each_kind_of_visible_delta_is_output(event: str):
    answer = read(
        [*BEGIN, typed(event, delta="x"), typed("response.completed", response={"status": "completed"})], "responses"
    )
    assert answer.first_output_ns == 400


@pytest.mark.parametrize(("end", "outcome"), [("completed", "ok"), ("incomplete", "ok"), ("failed", "error")])
def test_responses_say_how_they_end(end: str, outcome: str):
    answer = read(
        [*BEGIN, typed("response.output_text.delta", delta="x"), typed(f"response.{end}", response={"status": end})],
        "responses",
    )
    assert answer.outcome == outcome


def test_responses_that_never_end_have_failed_though_nothing_says_done():
    assert read([*BEGIN, typed("response.output_text.delta", delta="x")], "responses").outcome == "error"


# Sound, transcriptions, WebSockets, anything else


def test_a_transcription_comes_in_deltas():
    reads = [
        typed("transcript.text.delta", delta="a"),
        typed("transcript.text.delta", delta="b"),
        typed("transcript.text.done", text="ab"),
    ]
    answer = read(reads, "transcriptions")
    assert (answer.outcome, answer.first_output_ns, answer.last_ns, answer.done_ns) == ("ok", 100, 200, 300)


def test_compressed_sound_has_a_first_byte_and_no_first_sound():
    answer = read([b"ID3\x04", b"\xff\xfb" * 50], "speech", media="audio/mpeg")
    assert (answer.outcome, answer.first_token_ns, answer.first_output_ns) == ("ok", 100, None)
    assert [note.kind for note in answer.notes] == ["no-first-output"]


@pytest.mark.parametrize(
    "delta",
    [
        "response.output_audio.delta",
        "response.audio.delta",
        "response.output_text.delta",
        "response.text.delta",
        "response.output_audio_transcript.delta",
    ],
)
def test_a_turn_on_a_websocket(delta: str):
    messages = [
        json.dumps({"type": kind, "delta": "x"}).encode()
        for kind in ("session.created", "response.created", delta, delta, "response.done")
    ]
    answer = read(messages, "websocket", media="")
    assert (answer.outcome, answer.first_output_ns, answer.last_ns) == ("ok", 300, 400)


def test_an_error_on_a_websocket():
    assert (
        read([b'{"type": "error", "error": {"type": "invalid_request_error"}}'], "websocket", media="").outcome
        == "error"
    )


def test_messages_of_ones_own_are_output_from_the_first_to_the_last():
    answer = read([b"hello", b'{"a": 1}', b"bye"], "websocket", media="")
    assert (answer.outcome, answer.first_output_ns, answer.last_ns) == ("ok", 100, 300)


def test_any_http_answer_that_streams_counts_its_events():
    answer = read([b"data: a\n\n", b"data: b\n\n"], "http")
    assert (answer.outcome, answer.first_output_ns, answer.last_ns) == ("ok", 100, 200)


def test_any_http_answer_that_does_not_stream_is_whole():
    answer = read([b"<p>", b"</p>"], "http", streamed=False, media="text/html")
    assert (answer.outcome, answer.last_ns) == ("ok", 200)
    # Whether a user's own body asked for a stream is not known, so nothing is missed.
    assert read([b"{}"], "http", media="application/json").notes == ()


def test_events_of_ones_own_over_http_end_with_done():
    answer = read([b"data: a\n\n", b"data: b\n\n", DONE, b"data: late\n\n"], "http")
    assert (answer.outcome, answer.tokens_ns, answer.done_ns) == ("ok", (100, 200), 300)


def test_events_over_http_that_are_of_a_known_api_are_read_as_such():
    answer = read([ROLE, ONE, STOP, DONE], "http")
    assert (answer.first_output_ns, answer.done_ns) == (200, 400)
    assert read([ROLE, ONE], "http").outcome == "error"


def test_a_page_instead_of_a_stream_is_an_error():
    answer = read([b"<html>please log in</html>"], media="text/html")
    assert (answer.outcome, answer.why) == ("error", "the answer is no stream of events")


def test_a_usage_without_choices_counts():
    answer = read([ONE, STOP, frame({"usage": {"prompt_tokens": 7, "completion_tokens": -1}}), DONE])
    assert (answer.input_tokens, answer.output_tokens) == (7, None)  # a negative count is unknown


def test_a_response_that_was_cancelled_was_left_by_the_person():
    done = json.dumps({"type": "response.done", "response": {"status": "cancelled"}}).encode()
    assert read([done], "websocket", media="").outcome == "aborted"


def test_what_a_person_says_on_a_websocket_is_no_output():
    heard = json.dumps({"type": "conversation.item.input_audio_transcription.delta", "delta": "x"}).encode()
    shown = json.dumps({"type": "response.output_text.delta", "delta": "x"}).encode()
    assert read([heard, shown, b'{"type": "response.done"}'], "websocket", media="").first_token_ns == 200


@pytest.mark.parametrize(("silent_ms", "output_ns"), [(0, 100), (10, 200), (15, 200), (20, None)])
def test_speech_as_events_is_heard_with_its_first_loud_sample(silent_ms: int, output_ns: int | None):
    """Two events of 10 ms each, 24 samples of two bytes a millisecond; the end is said by the third."""
    samples = (b"\0\0" * 24 * silent_ms + b"\0\x40" * 480)[:960]
    deltas = [typed("speech.audio.delta", audio=b64encode(samples[begin : begin + 480]).decode()) for begin in (0, 480)]
    made = exchange([*deltas, typed("speech.audio.done")])
    answer = read_answer("speech", made, streamed=True, sound_format="pcm")
    assert (answer.outcome, answer.first_token_ns, answer.first_output_ns) == ("ok", 100, output_ns)
    assert answer.silence_ns == (None if output_ns is None else silent_ms * 1_000_000)


def test_speech_that_stops_without_its_end_has_failed():
    made = exchange([typed("speech.audio.delta", audio="AAAA")])
    assert read_answer("speech", made, streamed=True, sound_format="pcm").outcome == "error"


# Hostile


@given(
    st.sampled_from(sorted(APIS)),
    st.lists(
        st.one_of(st.binary(max_size=60), st.sampled_from([ROLE, ONE, STOP, DONE, USAGE, COMMENT, WHOLE, *BEGIN])),
        max_size=8,
    ),
    st.sampled_from(["text/event-stream", "application/json", "audio/wav", "audio/pcm", "", "text/html"]),
    st.booleans(),
    st.sampled_from(["", "cut", "timeout", "reset"]),
)
def test_any_bytes_come_to_something(api: str, reads: list[bytes], media: str, streamed: bool, failure: Failure):
    answer = read(reads, api, streamed=streamed, media=media, failure=failure)
    known = [at_ns for at_ns in (answer.first_token_ns, answer.first_output_ns, answer.last_ns) if at_ns is not None]
    assert known == sorted(known)
    assert (answer.why is None) == (answer.outcome == "ok")
    assert list(answer.tokens_ns) == sorted(answer.tokens_ns)
