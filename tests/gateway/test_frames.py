"""Streams are cut at the ends of frames, and their first content, errors and ends are found wherever reads are cut."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlay.gateway.frames import Frames

ROLE = b'data: {"choices":[{"delta":{"role":"assistant","content":""}}]}\n\n'
THINK = b'data: {"choices":[{"delta":{"reasoning_content":"hm"}}]}\n\n'
WORD = b'data: {"choices":[{"delta":{"content":"a \\"finish_reason\\":\\"x\\" data: [DONE]"}}]}\r\n\r\n'
TOOL = b'data: {"choices":[{"delta":{"tool_calls":[{"index":0}]}}]}\n\n'
STOP = b'data: {"choices":[{"delta":{},"finish_reason":"stop"}]}\n\n'
USAGE = b'data: {"choices":[],"usage":{"total_tokens":3}}\n\n'
DONE = b"data: [DONE]\n\n"
NOISE = b": keep-alive\n\n"


def fed(data: bytes, cuts: tuple[int, ...] = ()) -> tuple[Frames, bytes]:
    frames, out, ends = Frames(), b"", sorted({min(cut, len(data)) for cut in cuts} | {len(data)})
    begin = 0
    for end in ends:
        out += frames.feed(data[begin:end])
        begin = end
    return frames, out


@pytest.mark.parametrize(
    ("data", "content", "ended"),
    [
        (NOISE + ROLE + THINK, False, False),
        (ROLE + WORD, True, False),
        (TOOL, True, False),
        (b'data: {"choices":[{"text":"a"}]}\n\n', True, False),
        (WORD + STOP, True, True),
        (ROLE + DONE, False, True),
        (b'event: x\ndata: {"type":"response.in_progress"}\n\n', False, False),
        (b'data: {"type":"response.reasoning_text.delta","delta":"a"}\n\n', False, False),
        (b'data: {"type":"response.output_text.delta","delta":"a"}\n\n', True, False),
        (b'data: {"type":"response.completed"}\n\n', False, True),
        (USAGE, False, False),
    ],
)
def test_the_first_content_and_the_end_are_what_the_api_says(data: bytes, content: bool, ended: bool) -> None:
    frames, out = fed(data)
    assert (out, frames.content, frames.ended, frames.failed, frames.malformed) == (data, content, ended, None, False)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b'data: {"error":{"message":"out of memory"}}\n\n', "out of memory"),
        (b'data: {"error":"gone"}\n\n', "gone"),
        (b'data: {"type":"response.failed","response":{}}\n\n', "None"),
    ],
)
def test_an_error_inside_is_found(data: bytes, why: str) -> None:
    assert fed(WORD + data)[0].failed == why


@pytest.mark.parametrize("data", [b"data: {no\n\n", b"data: 3\n\n", b'data: "error"\n\n', b"data: \xff\n\n"])
def test_what_is_no_event_is_malformed(data: bytes) -> None:
    assert fed(WORD + data)[0].malformed


@given(
    st.lists(st.sampled_from([NOISE, ROLE, THINK, WORD, TOOL, STOP, USAGE, DONE]), max_size=8),
    st.lists(st.integers(0, 600), max_size=12),
    st.binary(max_size=20),
)
def test_cuts_change_nothing_and_only_whole_frames_come_out(pieces: list[bytes], cuts: list[int], rest: bytes) -> None:
    data = b"".join(pieces)
    whole, cut = fed(data), fed(data, tuple(cuts))
    assert whole[1] == cut[1] == data
    assert all(getattr(whole[0], name) == getattr(cut[0], name) for name in ("content", "ended", "failed", "malformed"))
    frames, out = fed(data + b"data: " + rest.replace(b"\n", b""))
    assert out == data
    assert frames.unfinished == 6 + len(rest.replace(b"\n", b""))
