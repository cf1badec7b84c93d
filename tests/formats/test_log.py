"""Outlay's own log: what is written is read back equal, old files stay readable, and one bad line costs one line."""

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from io import BytesIO
from itertools import chain
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outlay.account import account
from outlay.formats.codec import FormatError, Item, Shard
from outlay.formats.log import parse_lines, recognises, write_line, write_load
from outlay.formats.reading import BLOCK, read
from outlay.generator import GeneratorVerdict, Reason, Slope, Stall
from outlay.interaction import KINDS, NOTE_KINDS, OUTCOMES, Interaction, Mark, Note, Span
from outlay.load import Bound, Load
from outlay.stages import joint, stage_names
from outlay.units import MAX_NS, NS_PER_MS

OLD = Path(__file__).parents[1] / "data" / "outlay-log" / "interaction-1.jsonl"
OLD_LOAD = OLD.with_name("load-1.jsonl")


def parsed(text: bytes) -> list[Item]:
    return list(read(BytesIO(text), frozenset()).items)


def interactions(items: list[Item]) -> list[Interaction]:
    return [item for item in items if isinstance(item, Interaction)]


def notes(items: list[Item]) -> list[str]:
    """The texts of the dropped records; anything else that is no interaction fails."""
    found = [item for item in items if not isinstance(item, Interaction)]
    assert all(isinstance(item, Note) and item.kind == "dropped-record" for item in found)
    return [item.text for item in found if isinstance(item, Note)]


# Round trip

# Half of 63 bits each way, so that no distance between two of them is beyond 63 bits.
instants = st.integers(-(MAX_NS // 2), MAX_NS // 2)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
names = st.sampled_from(stage_names())
stages = (
    st.none() | names | st.builds(joint, names, names) | texts.map("unattributed.{}".format) | st.just("unattributed")
)
marks = st.builds(Mark, name=texts, at_ns=instants, clock=texts, component=st.none() | texts, stage=stages)
spans = st.builds(
    Span,
    id=texts,
    parent=st.none() | texts,
    name=texts,
    component=texts,
    start_ns=instants,
    end_ns=instants,
    stage=stages,
    kind=st.sampled_from(KINDS),
    clock=texts,
    follows=st.booleans(),
)
everything = st.builds(
    Interaction,
    id=texts,
    moment=texts,
    start_ns=st.none() | instants,
    end_ns=st.none() | instants,
    clock=texts,
    outcome=st.sampled_from(sorted(OUTCOMES)),
    dimensions=st.dictionaries(texts, texts, max_size=3),
    sizes=st.dictionaries(texts, st.integers(-(2**70), 2**70), max_size=3),
    marks=st.lists(marks, max_size=3).map(tuple),
    spans=st.lists(spans, max_size=3).map(tuple),
    notes=st.lists(st.builds(Note, kind=st.sampled_from(sorted(NOTE_KINDS)), text=texts), max_size=2).map(tuple),
)


@settings(max_examples=200, deadline=None)
@given(everything)
def test_a_written_line_is_read_back_equal(interaction: Interaction) -> None:
    line = write_line(interaction)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1  # whatever line breaks the names hold
    assert list(parse_lines([line])) == [interaction]
    assert next(iter(json.loads(line))) == "outlay"


@settings(max_examples=50, deadline=None)
@given(st.lists(everything, min_size=1, max_size=4), st.sampled_from([b"\n", b"\r\n", b"\n\n", b"\n \t\n"]))
def test_lines_survive_other_line_ends_and_empty_lines(many: list[Interaction], end: bytes) -> None:
    text = end.join(write_line(interaction).rstrip(b"\n") for interaction in many)
    for whole in (text, text + end, end + text, b"\xef\xbb\xbf" + text):  # also: no line end at all, and a mark
        assert parsed(whole) == many


states = st.sampled_from(["VALID", "DEGRADED", "INVALID"])
floats = st.floats(allow_nan=False, allow_infinity=False)
stalls = st.lists(
    st.builds(Stall, from_ns=instants, to_ns=st.none() | instants, due=st.integers(0, 9)), max_size=2
).map(tuple)
reasons = st.builds(Reason, rule=texts, state=st.none() | states, measured=st.none() | floats, limit=floats, text=texts)
verdicts = st.builds(
    GeneratorVerdict,
    state=states,
    reasons=st.lists(reasons, max_size=2).map(tuple),
    lateness_p50_ns=st.none() | instants,
    lateness_p99_ns=st.none() | instants,
    lateness_max_ns=st.none() | instants,
    achieved=st.none() | floats,
    unsent=st.none() | st.integers(0, 9),
    slope=st.none() | st.builds(Slope, value=floats, low=floats, high=floats),
)
loads = st.builds(
    Load,
    name=texts,
    tool=texts,
    moment=st.none() | texts,
    requests=st.integers(0, 2**40),
    verdict=verdicts,
    requested_rate=st.none() | floats,
    achieved_rate=st.none() | floats,
    bounds=st.lists(st.builds(Bound, level=floats, low_ns=instants, high_ns=st.none() | instants), max_size=2).map(
        tuple
    ),
    claimed_ns=st.dictionaries(texts, instants, max_size=2),
    clock=texts,
    sender_stalls=stalls,
    silences=stalls,
    begin_ns=st.none() | instants,
    dimensions=st.dictionaries(texts, texts, max_size=2),
)


@settings(max_examples=100, deadline=None)
@given(loads)
def test_a_load_is_read_back_equal(load: Load) -> None:
    line = write_load(load)
    assert line.startswith(b'{"outlay":"load/1",')
    assert line.count(b"\n") == 1
    assert list(parse_lines([line])) == [load]


def test_loads_stand_between_interactions_and_before_them() -> None:
    load = next(item for item in parsed(OLD_LOAD.read_bytes()) if isinstance(item, Load))
    assert parsed(write_load(load) + LINE) == [load, INTERACTION]
    assert [type(item) for item in parsed(OLD_LOAD.read_bytes())] == [*[Interaction] * 3, Load, *[Interaction] * 3]


def test_an_old_load_stays_readable() -> None:
    (load,) = (item for item in parsed(OLD_LOAD.read_bytes()) if isinstance(item, Load))
    assert (load.name, load.tool, load.moment, load.requests) == ("whole run", "outlay", "chat", 6)
    assert load.verdict.state == "DEGRADED"
    assert [reason.rule for reason in load.verdict.reasons] == ["lateness", "stall"]
    assert load.bounds[1] == Bound(level=99.0, low_ns=400 * NS_PER_MS, high_ns=None)
    assert load.begin_ns is not None
    assert load.sender_stalls[0].from_ns - load.begin_ns == 1_500 * NS_PER_MS
    assert (load.silences[0].to_ns, load.dimensions) == (None, {"site": "lon"})


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        (b'{"outlay":"load/1"}', "missing required field"),
        (b'{"outlay":"load/1","name":"a","tool":"t","moment":null,"requests":"7"}', "Expected `int`"),
    ],
)
def test_a_bad_load_is_a_note(bad: bytes, said: str) -> None:
    (text,) = notes(parsed(LINE + bad)[1:])
    assert text.startswith("line 2: ")
    assert said in text


# Versions


def test_an_old_file_stays_readable() -> None:
    """Its first lines, by hand: what a later version makes of it must not change."""
    items = parsed(OLD.read_bytes())
    made = interactions(items)
    assert len(items) == len(made) == 20
    assert Counter((each.moment, each.outcome) for each in made) == {
        ("voice-turn", "ok"): 11,
        ("voice-turn", "aborted"): 1,
        ("chat", "ok"): 7,
        ("chat", "error"): 1,
    }
    first = made[0]
    assert (first.id, first.clock, first.start_ns, first.end_ns) == (
        *("turn-00", "phone"),
        1772366400000874110,
        1772366401103947403,
    )
    assert first.sizes == {"input_tokens": 1615, "output_tokens": 42}
    assert first.marks[1] == Mark(
        name="endpointed", at_ns=1772366400372460098, clock="phone", component="asr", stage="hold"
    )
    assert made[7].marks[4].stage == "queue.wait..infer.prefill"
    assert {each.dimensions["site"] for each in made} >= {"são-paulo", "東京"}
    # The broker's consumer, the only span that follows another.
    assert [span.id for each in made for span in each.spans if span.follows] == ["c1"]


def test_an_old_file_is_accounted_for_to_the_nanosecond() -> None:
    whole = [each for each in interactions(parsed(OLD.read_bytes())) if each.end_ns is not None]
    assert len(whole) == 18
    for each in whole:
        made = account(each)
        assert sum(made.entries.values()) == made.total_ns
        assert 500 * NS_PER_MS < made.total_ns < 5_000 * NS_PER_MS
        # A turn is a chain from its first mark to its last, so every part of it has a name.
        assert each.moment == "chat" or not [entry for entry in made.entries if "unattributed" in entry]


def test_a_newer_version_is_refused_by_name() -> None:
    newer = b'{"outlay":"interaction/2","id":"a"}\n'
    with pytest.raises(FormatError, match=r"line 1 is of version 'interaction/2'.*reads 'interaction/1' and"):
        parsed(newer)
    # What stands before it was already handed over.
    lines = parse_lines([LINE, newer])
    assert next(lines) == INTERACTION
    with pytest.raises(FormatError, match="line 2 is of version"):
        next(lines)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"outlay": "interaction/1"}, True),
        ({"outlay": "interaction/77"}, True),
        ({"outlay": "load/1"}, True),
        ({"outlay": "report/1"}, False),
        ({"outlay": 1}, False),
        ({"interaction/1": "outlay"}, False),
        (["interaction/1"], False),
        (None, False),
    ],
)
def test_what_is_taken_for_a_line_of_the_log(value: object, expected: bool) -> None:
    assert recognises(value) is expected


def test_the_order_of_keys_and_unknown_keys_do_not_matter() -> None:
    line = b'{"end_ns":5,"start_ns":0,"from":"a later version","id":"a","outlay":"interaction/1","moment":"m"}'
    assert list(parse_lines([line])) == [Interaction(id="a", moment="m", start_ns=0, end_ns=5)]


# Lines that cannot be read

INTERACTION = Interaction(id="a", moment="m", start_ns=0, end_ns=5)
LINE = write_line(INTERACTION)


def line_with(**fields: object) -> bytes:
    return json.dumps({**json.loads(LINE), **fields}).encode()


def span_with(**fields: object) -> bytes:
    span = {"id": "s", "parent": None, "name": "s", "component": "c", "start_ns": 0, "end_ns": 1, **fields}
    return line_with(spans=[span])


def mark_with(**fields: object) -> bytes:
    return line_with(marks=[{"name": "m", "at_ns": 0, **fields}])


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        (b"{", "truncated"),
        (b"noise", "malformed"),
        (b"[]", "Expected `object`"),
        (b"\xff\xfe", "malformed"),
        (b'{"id":"a"}', "missing required field `outlay`"),
        (b'{"outlay":"interaction/1"}', "missing required field `id`"),
        (b'{"outlay":"interaction/1","id":"a","moment":"m"}', "missing required field `start_ns`"),
        (LINE[:-3], "truncated"),
        (LINE.strip() + LINE, "trailing"),
        (line_with(start_ns=1.5), "Expected `int | null`"),
        (line_with(outcome="fine"), "Invalid enum value"),
        (line_with(sizes={"input_tokens": "7"}), "Expected `int`"),
        (line_with(start_ns=2**63), "63 bits"),
        (line_with(start_ns=-(2**63)), "63 bits"),
        (line_with(end_ns=10**30), "63 bits"),
        # Each fits, their distance does not: 2 * (2**62 + 1) > 2**63 - 1.
        (line_with(start_ns=-(2**62) - 1, end_ns=2**62 + 1), "63 bits"),
        (span_with(stage="thinking"), "'thinking' is not a stage"),
        (span_with(stage=""), "'' is not a stage"),
        (span_with(stage="infer..queue"), "is not a stage"),  # a joint name is in the order of the table
        (mark_with(stage="infer.nap"), "'infer.nap' is not a stage"),
        (span_with(kind="SERVER"), "Invalid enum value"),
        (b'{"outlay":"interaction/1","id":"a","moment":"m","start_ns":0,"end_ns":1,"dimensions":' + b"[" * 10**5, ""),
    ],
)
def test_a_bad_line_is_a_note_with_its_number_and_the_rest_survives(bad: bytes, said: str) -> None:
    items = parsed(b"\n".join([LINE.strip(), b"", bad, LINE.strip()]))
    assert interactions(items) == [INTERACTION, INTERACTION]
    (text,) = notes(items)
    assert text.startswith("line 3: ")
    assert said in text


@pytest.mark.parametrize(
    "good",
    [
        line_with(start_ns=None, end_ns=None),
        line_with(start_ns=0, end_ns=2**63 - 1),
        line_with(start_ns=-(2**62), end_ns=2**62 - 1),
        line_with(start_ns=5, end_ns=0),  # ends before it starts: data, which the account refuses
        span_with(end_ns=-1),
        span_with(stage="unattributed.a->b"),
        span_with(stage="queue.wait..infer.decode"),
    ],
)
def test_what_is_odd_but_readable_is_read(good: bytes) -> None:
    assert [type(item) for item in parse_lines([good])] == [Interaction]


def test_line_numbers_hold_beyond_the_first_block() -> None:
    """Blocks of input are cut at line ends; the number of a line must not depend on where."""
    padding = line_with(id="x" * 1_000_000).strip()
    lines = [padding] * 9 + [b"bad"] + [padding] * 9 + [b"worse"]
    assert sum(map(len, lines)) > 4 * BLOCK
    texts = notes(parsed(b"\n".join(lines)))
    assert [text.partition(":")[0] for text in texts] == ["line 10", "line 20"]
    sharded = [note for index in range(3) for note in notes(shard_of(b"\n".join(lines), index, 3))]
    assert sorted(sharded) == sorted(texts)


# Sharing the work


def shard_of(text: bytes, index: int, of: int) -> list[Item]:
    return list(read(BytesIO(text), frozenset(), Shard(index, of)).items)


def ids(items: list[Item]) -> list[str]:
    return [each.id for each in interactions(items)]


@pytest.fixture(scope="module")
def large() -> bytes:
    """Lines of some hundred KB each, so that a few are more than a block, and their ends fall anywhere."""

    def lines() -> Iterator[bytes]:
        for number in range(40):
            yield line_with(id=str(number), moment="m" * (290_000 + number * 997))

    return b"\n".join(lines())


@pytest.mark.parametrize("of", [1, 2, 3, 7])
def test_shards_are_disjoint_and_their_union_is_the_whole(large: bytes, of: int) -> None:
    parts = [ids(shard_of(large, index, of)) for index in range(of)]
    assert sorted(chain.from_iterable(parts)) == sorted(ids(parsed(large)))
    assert len(ids(parsed(large))) == 40


def test_a_line_longer_than_a_block_is_one_line() -> None:
    text = line_with(id="long", moment="m" * (2 * BLOCK + 17)) + b"\n" + LINE
    assert ids(parsed(text)) == ["long", "a"]
    assert sorted(ids(shard_of(text, 0, 2)) + ids(shard_of(text, 1, 2))) == ["a", "long"]


# Any bytes


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=60), st.integers(0, len(LINE)), st.integers(0, 30))
def test_any_bytes_in_a_line_give_an_interaction_a_note_or_a_refusal(noise: bytes, place: int, cut: int) -> None:
    items = []
    # The one refusal that there is: noise that spells a later version.
    with suppress(FormatError):
        items += parse_lines([LINE, LINE[:place] + noise + LINE[place + cut :]])
    assert items[:1] == [INTERACTION]
    notes(items)


def test_cut_at_every_byte() -> None:
    line = OLD.read_bytes().splitlines()[15]
    for end in range(1, len(line)):
        (note,) = parse_lines([line[:end]])
        assert isinstance(note, Note)
        assert note.text.startswith("line 1: ")
