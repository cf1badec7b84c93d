"""The reference server's own frames, whose instants its script states, read back: the script comes out again."""

from hypothesis import given
from hypothesis import strategies as st

from outlay.lab.answer import frames
from outlay.lab.beats import Api, Call
from outlay.lab.script import Script
from outlay.probe.answer import Answer, read_answer
from outlay.probe.exchange import Exchange
from outlay.units import NS_PER_MS

MS = NS_PER_MS
TEXT: tuple[Api, ...] = ("chat", "responses", "transcriptions")

SCRIPTS = st.builds(
    Script,
    first_ns=st.integers(1, 50).map(lambda ms: ms * MS),
    gap_ns=st.integers(1, 20).map(lambda ms: ms * MS),
    tokens=st.integers(1, 20),
    reasoning=st.integers(0, 20),
    chunk=st.integers(1, 4),
    role=st.booleans(),
    empty=st.booleans(),
    comment=st.booleans(),
    usage=st.booleans(),
    tool=st.booleans(),
)


def answered(script: Script, api: Api, *, pieces: int = 1, cut: bool = False) -> Answer:
    """The stream as its reader has it; each frame in so many reads, of which only the last is at its instant."""
    body: list[tuple[int, bytes]] = []
    for due_ns, data, *_ in frames(script, Call(api=api, id="a", model="mock", stream=True, usage=True)):
        size = max(-(-len(data) // pieces), 1)
        *early, last = [data[begin : begin + size] for begin in range(0, len(data), size)] or [b""]
        body += [*((due_ns - 1, part) for part in early), (due_ns, last)]
    seen = Exchange(
        number=0,
        intended_ns=0,
        status=200,
        headers=[("content-type", "text/event-stream; charset=utf-8")],
        body=body,
        ended_ns=body[-1][0] + 1,
        failure="cut" if cut else "",
    )
    return read_answer(api, seen, streamed=True)


def token_instants(script: Script) -> tuple[list[int], int]:
    """When each frame with tokens is due, and how many of them are reasoning, by the words of `Script`."""
    thoughts, words = (-(-count // script.chunk) for count in (script.reasoning, script.tokens))
    return [script.first_ns + place * script.gap_ns for place in range(thoughts + words)], thoughts


@given(SCRIPTS, st.sampled_from(("chat", "responses")))
def test_a_stream_tells_its_script(script: Script, api: Api) -> None:
    instants, thoughts = token_instants(script)
    answer = answered(script, api)
    assert (answer.outcome, answer.notes) == ("ok", ())
    assert answer.tokens_ns == tuple(instants)
    assert answer.first_token_ns == instants[0]
    assert answer.first_output_ns == instants[thoughts]
    assert answer.last_ns == answer.done_ns == instants[-1]  # the server ends with its last token
    assert answer.output_tokens == script.reasoning + script.tokens


@given(SCRIPTS, st.integers(2, 5), st.sampled_from(TEXT))
def test_how_the_bytes_were_cut_changes_nothing(script: Script, pieces: int, api: Api) -> None:
    once, cut = answered(script, api), answered(script, api, pieces=pieces)
    # A frame of the server may hold several events, of which the first are complete before its last piece.
    assert cut.outcome == once.outcome
    assert len(cut.tokens_ns) == len(once.tokens_ns)
    assert all(0 <= late - early <= 1 for early, late in zip(cut.tokens_ns, once.tokens_ns, strict=True))
    assert (cut.input_tokens, cut.output_tokens) == (once.input_tokens, once.output_tokens)


@given(SCRIPTS, st.integers(0, 8), st.sampled_from(("chat", "responses")))
def test_a_stream_that_the_server_cuts_keeps_what_had_come(script: Script, tokens: int, api: Api) -> None:
    cut_script = Script(
        first_ns=script.first_ns,
        gap_ns=script.gap_ns,
        tokens=9,
        role=script.role,
        comment=script.comment,
        cut_after=tokens,
    )
    answer = answered(cut_script, api, cut=True)
    assert (answer.outcome, answer.done_ns) == ("error", None)
    assert len(answer.tokens_ns) == tokens


@given(SCRIPTS, st.integers(0, 8), st.sampled_from(("chat", "responses")))
def test_a_stream_that_fails_inside_is_an_error_with_what_had_come(script: Script, tokens: int, api: Api) -> None:
    failing = Script(first_ns=script.first_ns, gap_ns=script.gap_ns, tokens=9, role=script.role, error_after=tokens)
    answer = answered(failing, api)
    assert answer.outcome == "error"
    assert len(answer.tokens_ns) == tokens
    assert "script" not in (answer.why or "")  # its message says that the script says so
