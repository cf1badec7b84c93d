"""Events come out the same however the bytes were cut, each with the instant of the read that completed it."""

from itertools import accumulate, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlay.probe.sse import events


def plain(stream: bytes) -> list[tuple[str | None, bytes]]:
    return [(event.name, event.data) for event in events([(0, stream)])]


def at_each_byte(stream: bytes) -> list[tuple[int, str | None, bytes]]:
    """With a read for each byte, an event's instant is the place of the byte that completed it."""
    return [tuple(event) for event in events([(place, bytes([byte])) for place, byte in enumerate(stream)])]


@pytest.mark.parametrize(
    ("stream", "expected"),
    [
        (b"data: a\n\n", [(None, b"a")]),
        (b"data: a\r\n\r\n", [(None, b"a")]),
        (b"data: a\r\r", [(None, b"a")]),
        (b"data: a\r\n\ndata: b\n\r\n", [(None, b"a"), (None, b"b")]),  # mixed ends
        (b"data:a\n\n", [(None, b"a")]),
        (b"data:  a\n\n", [(None, b" a")]),  # one space only belongs to the framing
        (b"data: a\ndata: b\n\n", [(None, b"a\nb")]),
        (b"data\n\n", [(None, b"")]),
        (b"data: \xc2\x85a\n\n", [(None, b"\xc2\x85a")]),  # U+0085 ends no line here
        (b"event: error\ndata: x\n\n", [("error", b"x")]),
        (b"event: ping\n\ndata: x\n\n", [(None, b"x")]),  # a name without data is no event and is forgotten
        (b": keep-alive\n\n", []),
        (b": keep-alive\ndata: a\n\n", [(None, b"a")]),
        (b"\xef\xbb\xbfdata: a\n\n", [(None, b"a")]),
        (b"id: 1\nretry: 5\ndatum: x\ndata-x: y\ndata: a\n\n", [(None, b"a")]),
        (b"\n\n\ndata: a\n\n\n\n", [(None, b"a")]),
        (b"data: a\n", []),  # without its blank line it is not complete
        (b"", []),
    ],
)
def test_framing(stream: bytes, expected: list[tuple[str | None, bytes]]) -> None:
    assert plain(stream) == expected
    assert [(name, data) for _, name, data in at_each_byte(stream)] == expected


@pytest.mark.parametrize(
    ("stream", "instants"),
    [
        # The blank line's own end: the second LF, at place 8 of `data: a` (0-6), LF, LF.
        (b"data: a\n\n", [8]),
        # A CR ends the blank line at once; the LF after it is not awaited. `data: a` CR LF CR LF.
        (b"data: a\r\n\r\n", [9]),
        (b"data: a\n\ndata: b\n\n", [8, 17]),
    ],
)
def test_an_event_came_with_the_byte_that_completed_it(stream: bytes, instants: list[int]) -> None:
    assert [at for at, _, _ in at_each_byte(stream)] == instants


LINES = st.sampled_from(
    [
        b"",
        b"",
        b"",
        b"data: a",
        b"data:",
        b"data",
        b"event: e",
        b": c",
        b"\xef\xbb\xbfdata: b",
        b"junk",
        b"data: {}",
        b"id",
    ]
)
ENDS = st.sampled_from([b"\n", b"\r", b"\r\n"])
STREAMS = st.one_of(
    st.binary(max_size=60),
    st.lists(st.tuples(LINES, ENDS).map(b"".join), max_size=12).map(b"".join),
)


@given(STREAMS, st.data())
def test_any_cut_gives_the_same_events_at_the_instant_of_their_last_byte(stream: bytes, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    pieces = [stream[begin:end] for begin, end in pairwise([0, *cuts, len(stream)])]
    ends = list(accumulate(map(len, pieces)))
    found = [tuple(event) for event in events(list(enumerate(pieces)))]
    expected = [
        (next(piece for piece, end in enumerate(ends) if place < end), name, value)
        for place, name, value in at_each_byte(stream)
    ]
    assert found == expected
    assert [(name, value) for _, name, value in found] == plain(stream)


def test_a_line_in_very_many_reads_is_one_event() -> None:
    reads = [(0, b"data: "), *((place, b"x") for place in range(1, 50_001)), (50_001, b"\n\n")]
    (event,) = events(reads)
    assert (event.at_ns, event.data) == (50_001, b"x" * 50_000)
