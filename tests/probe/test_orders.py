"""Frames over pipes: what is said arrives, however the bytes are cut."""

from hypothesis import given
from hypothesis import strategies as st

from outlay.probe.exchange import Exchange
from outlay.probe.orders import ORDER, WORD, Bye, Finish, Frames, Health, Ready, Shot, Shots, frame

WORDS = (
    Ready(0),
    Exchange(number=3, intended_ns=7, body=[(8, b"a"), (9, b"")], headers=[("x", "y")], status=200, failure="cut"),
    Health(sender=1, at_ns=2, passed_ns=3, cpu_ns=4, stalled_ns=5, in_flight=6, waiting=7),
    Bye(1),
)
ORDERS = (
    Shots((Shot(number=1, at_ns=2, target=0, parts=(b"x" * 1000, b"")),)),
    Finish(True),
)


@given(st.data())
def test_any_cut_of_the_stream_gives_the_same_messages(data: st.DataObject):
    for messages, decoder in ((WORDS, WORD), (ORDERS, ORDER)):
        stream = b"".join(map(frame, messages))
        cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
        taken: list[object] = []
        frames = Frames(decoder.decode, taken.append)
        for begin, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
            frames.feed(stream[begin:end])
        assert taken == list(messages)
