"""What is sent: each API's own words, a user's template, and prompts that no cache has seen."""

import json
from email import message_from_bytes
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlay.probe.asking import APIS, WORDS, Ask, Request, Upload, api_of, path_of, request_of, synthetic
from outlay.probe.templates import fill


def body(ask: Ask, number: int = 0) -> dict[str, Any]:
    return dict(json.loads(request_of(ask, number=number).body))


def test_chat_asks_for_a_stream_with_its_usage():
    assert body(Ask(model="m", prompt="hi", output_tokens=5)) == {
        "model": "m",
        "messages": [{"role": "user", "content": "hi"}],
        "max_tokens": 5,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    assert body(Ask(model="m", prompt="hi", stream=False)) == {
        "model": "m",
        "messages": [{"role": "user", "content": "hi"}],
        "stream": False,
    }


def test_the_other_apis_in_their_own_words():
    assert body(Ask(api="completions", model="m", prompt="hi"))["prompt"] == "hi"
    responses = body(Ask(api="responses", model="m", prompt="hi", output_tokens=5))
    assert (responses["input"], responses["max_output_tokens"], responses["stream"]) == ("hi", 5, True)
    assert body(Ask(api="embeddings", model="m", prompt="hi")) == {"model": "m", "input": "hi"}
    assert body(Ask(api="speech", model="m", prompt="hi"))["response_format"] == "wav"  # in MP3 no sound could be seen
    assert body(Ask(model="m", prompt="x", options={"temperature": 0}))["temperature"] == 0


def test_a_recording_is_a_form():
    made = request_of(
        Ask(api="transcriptions", model="m", file=Upload(name='a "b".wav', data=b"RIFF\r\n--x")), number=3
    )
    (kind,) = (value for name, value in made.headers if name == "content-type")
    parts = message_from_bytes(b"content-type: " + kind.encode() + b"\r\n\r\n" + made.body).get_payload()
    named = {part.get_param("name", header="content-disposition"): part for part in parts}
    assert named["model"].get_payload() == "m"
    assert named["file"].get_payload(decode=True) == b"RIFF\r\n--x"
    assert named["file"].get_filename() == "a %22b%22.wav"


def test_no_recording_holds_the_border_between_parts():
    boundary = "outlay-0-3"  # what it would be otherwise
    data = f"x\r\n--{boundary}--\r\n--{boundary}-".encode()
    made = request_of(Ask(api="transcriptions", model="m", file=Upload(name="a.wav", data=data)), number=3)
    (kind,) = (value for name, value in made.headers if name == "content-type")
    chosen = kind.partition("boundary=")[2]
    assert made.body.count(data) == 1
    assert chosen.encode() not in data
    assert made.body.endswith(f"--{chosen}--\r\n".encode())


def test_each_request_has_words_of_its_own_and_the_same_number_the_same():
    ask = Ask(model="m", words=50)
    prompts = [body(ask, number)["messages"][0]["content"] for number in range(200)]
    assert {len(prompt.split()) for prompt in prompts} == {50}
    # A prefix cache works in blocks of some tokens: no two begin alike.
    assert len({tuple(prompt.split()[:4]) for prompt in prompts}) == 200
    assert request_of(ask, number=5, seed=1) == request_of(ask, number=5, seed=1)
    assert request_of(ask, number=5, seed=1) != request_of(ask, number=5, seed=2)


def test_words_are_many_and_short():
    assert len(set(WORDS)) == len(WORDS) > 200
    assert all(word.isascii() and word.islower() and len(word) <= 7 for word in WORDS)
    assert len(synthetic(1, "x").split()) == 1


@pytest.mark.parametrize(
    ("path", "api"),
    [
        ("/", "chat"),
        ("/v1", "chat"),
        ("/v1/", "chat"),
        ("", "chat"),
        ("/v1/chat/completions", "chat"),
        ("/v1/completions?x=1", "completions"),
        ("/openai/deployments/d/chat/completions", "chat"),
        ("/v1/responses", "responses"),
        ("/v1/embeddings", "embeddings"),
        ("/v1/audio/speech", "speech"),
        ("/v1/audio/transcriptions", "transcriptions"),
        ("/v1/realtime", "websocket"),
        ("/analyse", "http"),
    ],
)
def test_the_api_by_its_path(path: str, api: str):
    assert api_of(path) == api
    assert path_of(api, path) == (path if path.strip("/v1") else APIS[api].path)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"api": "soap"}, "not an API"),
        ({"words": 0}, "at least one word"),
        ({"output_tokens": 0}, "at least one token"),
        ({"api": "transcriptions"}, "needs a file"),
        ({"templates": (b"{}",)}, "a template goes with"),
        ({"api": "http", "templates": (b"a", b"b")}, "one body"),
        ({"api": "http", "templates": (b"{{promt}}",)}, "{{promt}}"),
        ({"api": "http", "templates": (b"{{output_tokens}}",)}, "none are given"),
    ],
)
def test_what_cannot_be_asked_is_said(given: dict[str, Any], says: str):
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - braces are no regular expression
        Ask(**given)
    assert says in str(caught.value)


@given(st.text(max_size=50))
def test_a_template_that_is_json_stays_json_whatever_the_prompt(prompt: str):
    ask = Ask(
        api="http", model="m", prompt=prompt, templates=(b'{"q": "{{prompt}}", "n": {{input_tokens}}, "id": "{{id}}"}',)
    )
    made = body(ask, 7)
    assert (made["q"], made["n"]) == (prompt, len(prompt.split()))
    assert made["id"] == body(ask, 7)["id"] != body(ask, 8)["id"]


def test_a_template_that_is_text_is_filled_as_it_is():
    assert fill(b"say {{ prompt }}!", {"prompt": 'a "b"'}) == b'say a "b"!'


def test_a_turn_on_the_realtime_api_and_one_of_ones_own():
    first, second = request_of(Ask(api="websocket", model="m", prompt="hi", output_tokens=9), number=0).messages
    assert json.loads(first)["item"]["content"][0]["text"] == "hi"
    assert json.loads(second) == {"type": "response.create", "response": {"max_output_tokens": 9}}
    own = request_of(Ask(api="websocket", prompt="hi", templates=(b"{{prompt}}", b"end")), number=0)
    assert own == Request(method="GET", path="/v1/realtime", messages=(b"hi", b"end"))


def test_what_is_asked_shows_in_no_repr():
    made = Ask(prompt="very private", file=Upload(name="n", data=b"private too"), templates=())
    assert "private" not in repr(made) + repr(request_of(made, number=0))
