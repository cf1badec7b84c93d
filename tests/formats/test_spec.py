"""Reading `outlay.yaml`: what it means, what is refused and on which line, and that nothing else ever comes out."""

import re
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from outlay.budget import THRESHOLDS, Budget, ChainStep, Match, Moment, Share
from outlay.formats.spec import (
    MAX_BYTES,
    Spec,
    SpecError,
    load_spec,
    preset_names,
    preset_text,
    spec_schema,
)
from outlay.formats.value_keys import Duration
from outlay.mapping import Rule
from outlay.stages import STAGES, stage_names
from outlay.units import NS_PER_MS, NS_PER_S, parse_duration

DOCS = Path(__file__).parents[2] / "docs" / "outlay-yaml.md"

# No deadline: what a busy machine takes for one example says nothing about the reader.
UNHURRIED = settings(max_examples=60, deadline=None)

COMPLETE = """\
version: 1
moments:
  voice-turn:
    from: speech_end
    to: first_audio
    within: 800ms
    percentile: 95
    thresholds: {unsafe: 1500ms, noticeable: 300ms, disruptive: 800ms}
    stages:
      client/uplink*: {share: 60ms, owner: network}
      "*/queue*": {owner: platform}
      llm/*: {share: 0.5s}
    match: {service: voice-gateway, name: "POST /turn*", kind: server, attributes: {outlay.moment: voice-turn, n: 1}}
    chain: [speech_end, {mark: vad_end, as: client/hold}, {mark: first_audio, as: tts/queue..infer}]
  no: {}
map:
  - match: {service: reranker*, attributes: {db.system: "*", gen_ai.request.stream: true}}
    as: reranker/postprocess
    when: leaf
  - {match: {name: enqueue}, as: "*/queue.wait"}
  - {match: {kind: client}, as: "{peer.service}/uplink..downlink"}
  - {match: {service: orchestrator}, as: container}
"""

VOICE = Moment(
    name="voice-turn",
    start="speech_end",
    end="first_audio",
    budget=Budget(
        limit_ns=800 * NS_PER_MS,
        percentile=95,
        thresholds={"noticeable": 300 * NS_PER_MS, "disruptive": 800 * NS_PER_MS, "unsafe": 1500 * NS_PER_MS},
        shares=(
            Share(entry="client/uplink*", limit_ns=60 * NS_PER_MS, owner="network"),
            Share(entry="*/queue*", limit_ns=None, owner="platform"),
            Share(entry="llm/*", limit_ns=500 * NS_PER_MS, owner=None),
        ),
    ),
    match=Match(
        service="voice-gateway", name="POST /turn*", kind="server", attributes={"outlay.moment": "voice-turn", "n": "1"}
    ),
    chain=(
        ChainStep(mark="speech_end"),
        ChainStep(mark="vad_end", entry="client/hold"),
        ChainStep(mark="first_audio", entry="tts/queue..infer"),
    ),
)


def problems_of(text: str | bytes) -> list[str]:
    """Every problem without the file's name, `LINE: path: message`."""
    with pytest.raises(SpecError) as caught:
        load_spec(text, "outlay.yaml")
    return [str(problem).removeprefix("outlay.yaml:") for problem in caught.value.problems]


def test_every_key_arrives_in_the_core_value_it_stands_for() -> None:
    spec = load_spec(COMPLETE, "outlay.yaml")
    assert spec.moments == (VOICE, Moment(name="no"))
    assert spec.rules == (
        Rule(
            match=Match(service="reranker*", attributes={"db.system": "*", "gen_ai.request.stream": "true"}),
            component="reranker",
            stage="postprocess",
            leaf_only=True,
        ),
        Rule(match=Match(name="enqueue"), component=None, stage="queue.wait"),
        Rule(match=Match(kind="client"), component="{peer.service}", stage="uplink..downlink"),
        Rule(match=Match(service="orchestrator"), component=None, stage=None),
    )


def test_thresholds_come_in_the_order_of_severity() -> None:
    budget = load_spec(COMPLETE, "outlay.yaml").moments[0].budget
    assert budget is not None
    assert tuple(budget.thresholds) == THRESHOLDS


def test_percentile_is_99_when_only_the_limit_is_given() -> None:
    budget = load_spec("moments: {chat: {within: 1s}}", "outlay.yaml").moments[0].budget
    assert budget == Budget(limit_ns=NS_PER_S, percentile=99)
    assert budget.unassigned_ns == NS_PER_S


def test_what_no_share_was_given_is_unassigned() -> None:
    # 800 - 60 - 500; the share without a limit takes nothing
    assert VOICE.budget is not None
    assert VOICE.budget.unassigned_ns == 240 * NS_PER_MS


def test_bytes_may_begin_with_a_byte_order_mark() -> None:
    assert load_spec("\ufeffmoments: {chat: {}}".encode(), "x").moments == (Moment(name="chat"),)


@pytest.mark.parametrize("text", ["version: 1", "{}", "moments: {}", "map: []", "--- {moments: {}}\n..."])
def test_a_file_may_declare_nothing(text: str) -> None:
    assert load_spec(text, "outlay.yaml") == Spec(moments=(), rules=())


def moment(body: str) -> str:
    """The body of moment `m`, whose first line is line 3 of the file."""
    return "moments:\n  m:\n" + "".join(f"    {line}\n" for line in body.splitlines())


def rule(body: str) -> str:
    """The one rule of a file, all on line 2."""
    return f"map:\n  - {{{body}}}\n"


ALL_STAGES = ", ".join(stage.name for stage in STAGES)

# Wrong in a way that the schema sees too.
WRONG_FOR_BOTH = [
    pytest.param("momnts: {}", "1: momnts: unknown key; did you mean moments?", id="top-level key"),
    pytest.param("zz: 1", "1: zz: unknown key; valid here: version, moments, map, sites, targets, gateway",
                 id="nothing near"),
    pytest.param("version: 2", "1: version: unknown value 2; valid here: 1", id="version"),
    pytest.param("[1]", "1: expected a mapping, got a list of 1", id="a list"),
    pytest.param("moments:", "1: moments: expected moments by name, got nothing", id="no moments"),
    pytest.param("map: {}", "1: map: expected a list of rules such as "
                 "- {match: {service: reranker}, as: reranker/infer}, got an empty mapping", id="map is no list"),
    pytest.param("moments: {a b: {}}", "1: moments.a b: expected a name of letters, digits, `-`, `_` and `.`, got a b",
                 id="moment name"),
    pytest.param("moments: {m: 3}", "1: moments.m: expected a mapping, got 3", id="moment is a number"),
    pytest.param(moment("witin: 1s"), "3: moments.m.witin: unknown key; did you mean within?", id="moment key"),
    pytest.param(moment("\nwithin: 250"), "4: moments.m.within: expected a duration such as 250ms, got 250",
                 id="no unit"),
    pytest.param(moment("within: ~"), "3: moments.m.within: expected a duration such as 250ms, got nothing", id="null"),
    pytest.param(moment("within: 1 sec"), "3: moments.m.within: expected a duration such as 250ms, got 1 sec",
                 id="unit"),
    pytest.param(moment("within: -1s"), "3: moments.m.within: expected a duration such as 250ms, got -1s",
                 id="negative"),
    pytest.param(moment("within: 1s\npercentile: 100"),
                 "4: moments.m.percentile: expected a number between 0 and 100, got 100", id="percentile 100"),
    pytest.param(moment("within: 1s\npercentile: 0"),
                 "4: moments.m.percentile: expected a number between 0 and 100, got 0", id="percentile 0"),
    pytest.param(moment("within: 1s\npercentile: p99"),
                 "4: moments.m.percentile: expected a number between 0 and 100, got p99", id="percentile p99"),
    pytest.param(moment("within: 1s\nthresholds: {disrutive: 1s}"),
                 "4: moments.m.thresholds.disrutive: unknown threshold disrutive; did you mean disruptive?",
                 id="threshold"),
    pytest.param(moment("within: 1s\nstages: {llm: {share: 1s}}"),
                 "4: moments.m.stages.llm: expected a pattern on component/stage such as llm/queue* or */queue*, "
                 "got llm",
                 id="share without stage"),
    pytest.param(moment("within: 1s\nstages: {llm/*: {}}"),
                 "4: moments.m.stages.llm/*: expected a share, an owner or both, got an empty mapping",
                 id="empty share"),
    pytest.param(moment("within: 1s\nstages: {llm/*: {share: 1s, ownr: x}}"),
                 "4: moments.m.stages.llm/*.ownr: unknown key; did you mean owner?", id="share key"),
    pytest.param(moment("match: {}"),
                 "3: moments.m.match: expected at least one of service, name, kind, attributes, got an empty mapping",
                 id="match everything"),
    pytest.param(moment("match: {attributes: {}}"),
                 "3: moments.m.match.attributes: expected patterns by attribute such as {db.system: postgres*}, "
                 "got an empty mapping", id="no attributes"),
    pytest.param(moment("match: {attributes: {a.b: [1]}}"),
                 "3: moments.m.match.attributes.'a.b': expected a shell pattern such as *, got a list of 1",
                 id="attribute is a list"),
    pytest.param(moment("match: {kind: sever}"), "3: moments.m.match.kind: unknown value sever; did you mean server?",
                 id="kind"),
    pytest.param(moment("chain: [a]"), "3: moments.m.chain: expected a list of at least two marks, got a list of 1",
                 id="short chain"),
    pytest.param(moment("chain: [a, {mark: b, as: tts}]"),
                 "3: moments.m.chain[1].as: expected component/stage such as llm/infer, got tts",
                 id="chain without /"),
    pytest.param(moment("chain: [a, {mark: b, as: tts/infre}]"),
                 "3: moments.m.chain[1].as: unknown stage infre; did you mean infer?", id="chain stage"),
    pytest.param(moment("chain: [a, {mark: b, as: '*/infer'}]"),
                 "3: moments.m.chain[1].as: expected the name of one component, got *", id="chain pattern"),
    pytest.param(moment("chain: [a, {as: tts/infer}]"), "3: moments.m.chain[1]: needs the key `mark`", id="no mark"),
    pytest.param(moment("chain: [a, [b]]"), "3: moments.m.chain[1]: expected the name of a mark, got a list of 1",
                 id="mark is a list"),
    pytest.param(rule("as: llm/infer"), "2: map[0]: needs the key `match`", id="rule without match"),
    pytest.param(rule("match: {name: a}"), "2: map[0]: needs the key `as`", id="rule without as"),
    pytest.param(rule("match: {name: a}, as: containr"),
                 "2: map[0].as: expected component/stage such as llm/infer, or container, got containr",
                 id="container"),
    pytest.param(rule("match: {name: a}, as: llm/quantum"),
                 f"2: map[0].as: unknown stage quantum; valid here: {ALL_STAGES}", id="nothing near a stage"),
    pytest.param(rule("match: {name: a}, as: ll*/infer"),
                 "2: map[0].as: expected a component's name, * or {attribute key} before the stage, got ll*",
                 id="rule pattern"),
    pytest.param(rule("match: {name: a}, as: '{a/infer'"),
                 "2: map[0].as: expected a component's name, * or {attribute key} before the stage, got {a",
                 id="open brace"),
    pytest.param(rule("match: {name: a}, as: llm/infer, when: leav"),
                 "2: map[0].when: unknown value leav; did you mean leaf?", id="when"),
    pytest.param(rule("match: {name: ''}, as: llm/infer"),
                 "2: map[0].match.name: expected a shell pattern such as voice-*, got ''", id="empty pattern"),
]  # fmt: skip

# Wrong between keys, or in how the YAML is written: the schema cannot see it.
WRONG_FOR_THE_LOADER = [
    # 300 + 350 - 500 = 150
    pytest.param(moment("within: 500ms\nstages:\n  a/*: {share: 300ms}\n  b/*: {share: 350ms}"),
                 "4: moments.m.stages: the shares exceed within (500ms) by 150 ms", id="shares"),
    pytest.param(moment("within: 0ms"), "3: moments.m.within: must be above 0", id="zero"),
    pytest.param(moment("within: 9999999999999999999s"),
                 "3: moments.m.within: '9999999999999999999' is beyond what a 64-bit nanosecond count can hold",
                 id="huge"),
    pytest.param(moment("percentile: 95"),
                 "3: moments.m.percentile: means nothing without `within`; add the limit, or leave this out",
                 id="no limit"),
    pytest.param(moment("thresholds: {noticeable: 1s}"),
                 "3: moments.m.thresholds: means nothing without `within`; add the limit, or leave this out",
                 id="thresholds without limit"),
    pytest.param(moment("stages: {llm/*: {owner: x}}"),
                 "3: moments.m.stages: means nothing without `within`; add the limit, or leave this out",
                 id="shares without limit"),
    pytest.param(moment("within: 1s\nthresholds:\n  noticeable: 1s\n  unsafe: 1000ms"),
                 "6: moments.m.thresholds.unsafe: must be longer than noticeable (1s), got 1000ms",
                 id="thresholds equal"),
    pytest.param(moment("within: 1s\nstages: {llm/infre*: {share: 1s}}"),
                 "4: moments.m.stages.llm/infre*: no stage matches infre*; did you mean infer?",
                 id="pattern on no stage"),
    pytest.param(moment("chain:\n- {mark: a, as: x/infer}\n- {mark: b, as: x/infer}"),
                 "4: moments.m.chain[0]: the first mark ends nothing, so it takes no `as`", id="as on the first"),
    pytest.param(moment("chain:\n- a\n- b"),
                 "5: moments.m.chain[1]: the time before it needs a name, such as {mark: b, as: llm/infer}",
                 id="no as"),
    pytest.param(moment("chain:\n- a\n- {mark: a, as: x/infer}"),
                 "5: moments.m.chain[1]: the mark a stands in the chain twice", id="mark twice"),
    pytest.param(moment("to: speech_ed\nchain: [speech_end, {mark: b, as: x/infer}]"),
                 "3: moments.m.to: speech_ed is no mark of the chain; did you mean speech_end?", id="to not in chain"),
    pytest.param(moment("from: b\nto: a\nchain: [a, {mark: b, as: x/infer}]"),
                 "4: moments.m.to: a comes before b in the chain", id="ends reversed"),
    pytest.param(moment("from: a\nto: a"), "4: moments.m.to: the clock cannot stop at the mark where it starts",
                 id="same"),
    pytest.param(rule("match: {name: a}, as: llm/infer..queue"),
                 "2: map[0].as: infer..queue does not run forwards; write queue..infer", id="joint out of order"),
    pytest.param(rule("match: {name: a}, as: llm/auth..queue..infer"),
                 "2: map[0].as: unknown stage queue..infer; did you mean queue.broker?", id="joint of three"),
    pytest.param(rule("match: {name: a}, as: llm/queue..infre"),
                 "2: map[0].as: unknown stage infre; did you mean infer?", id="joint with an unknown stage"),
    pytest.param(moment("within: 1s\nwithin: 2s"), "4: moments.m.within: given twice, first on line 3",
                 id="double key"),
    pytest.param("moments: {a: {}}\nmoments: {b: {}}", "2: moments: given twice, first on line 1", id="double top key"),
    pytest.param(moment("<<: {within: 1s}"), "3: moments.m: merge keys (<<) are not read; write the keys out",
                 id="merge"),
    pytest.param("moments: &a {}\nmap: *a", "2: map: aliases (*name) are not read; write the value out", id="alias"),
    pytest.param("moments: !!python/name:os.system ''",
                 "1: moments: tags (tag:yaml.org,2002:python/name:os.system) are not read", id="tag"),
    pytest.param("? [a]\n: 1", "1: a key must be text, got a list of 1", id="list as key"),
    pytest.param(rule("match: {name: " + "a" * 1001 + "}, as: container"),
                 "2: map[0].match.name: text longer than 1000 characters", id="long text"),
    pytest.param(moment("from: |\n  a\n  b"), "3: moments.m.from: text with line breaks or control characters",
                 id="lines"),
    pytest.param("", "1: the file is empty; start with `moments:`, or from a preset", id="empty"),
    pytest.param("# nothing\n", "1: the file is empty; start with `moments:`, or from a preset", id="only a comment"),
    pytest.param("moments:\n\tm: {}", "2: a tab where YAML wants spaces", id="tab"),
    pytest.param("moments: {}\n--- {}", "2: a second document begins here; a file holds one", id="two documents"),
    pytest.param("a: 1\nb: \x00", "2: character U+0000 may not stand in YAML", id="NUL"),
    pytest.param('\n"\\UFFFFFFFF"', "1: not YAML: a number is out of range", id="escape beyond Unicode"),
    pytest.param("moments: [a", "1: not YAML: while parsing a flow sequence, "
                 "expected ',' or ']', but got '<stream end>'",
                 id="open bracket"),
    pytest.param("- " * 40 + "a", "1: nested deeper than 32 levels", id="deep"),
    pytest.param("a\nb\xff".encode("latin-1"), "2: not UTF-8 (byte 3); save the file as UTF-8", id="Latin-1"),
    pytest.param("moments: {}".encode("utf-16"), "1: not UTF-8 (byte 0); save the file as UTF-8", id="UTF-16"),
    # 131 072 two-byte characters and two more are beyond the limit as bytes, though not as characters
    pytest.param(("#" + "é" * (MAX_BYTES // 2)).encode(), "1: larger than 256 KiB, the most that is read", id="large"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), WRONG_FOR_BOTH + WRONG_FOR_THE_LOADER)
def test_a_problem_names_its_line_its_path_and_the_way_out(text: str | bytes, expected: str) -> None:
    assert problems_of(text) == [expected]


@pytest.mark.parametrize(("text", "expected"), WRONG_FOR_BOTH)
def test_the_schema_refuses_what_the_loader_refuses(text: str, expected: str) -> None:
    assert not schema().is_valid(yaml.safe_load(text)), expected


def test_all_problems_come_at_once_in_the_order_of_the_file() -> None:
    text = """\
moments:
  a:
    percentile: 200
    within: 1s
    stages:
      llm/*: {share: 900ms, ownr: me}
      tts/*: {share: 200ms}
    thresholds: {noticeable: 2s, disruptive: 1s, usafe: 3s}
    from: nowhere
    chain: [x, {mark: y, as: tts/infer}]
map:
  - as: llm/infer
"""
    assert problems_of(text) == [
        "3: moments.a.percentile: expected a number between 0 and 100, got 200",
        # 900 + 200 - 1000 = 100, whatever the misspelt key meant
        "5: moments.a.stages: the shares exceed within (1s) by 100 ms",
        "6: moments.a.stages.llm/*.ownr: unknown key; did you mean owner?",
        "8: moments.a.thresholds.usafe: unknown threshold usafe; did you mean unsafe?",
        "8: moments.a.thresholds.disruptive: must be longer than noticeable (2s), got 1s",
        "9: moments.a.from: nowhere is no mark of the chain; valid here: x, y",
        "12: map[0]: needs the key `match`",
    ]


def test_a_chain_that_could_not_be_read_accuses_nobody_else() -> None:
    text = moment("from: a\nto: b\nchain: [a, {mark: b, as: tts/infre}]")
    assert problems_of(text) == ["5: moments.m.chain[1].as: unknown stage infre; did you mean infer?"]


def test_problems_stop_at_a_hundred() -> None:
    found = problems_of("".join(f"k{place}: 1\n" for place in range(5000)))
    assert len(found) == 101
    assert found[-1] == "100: stopped after 100 problems"


def test_an_alias_bomb_stays_small() -> None:
    bomb = "a0: &a0 [x]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 50))
    assert len(problems_of(bomb)) == 50  # one for each unknown key; nothing was expanded


# The one description: keys, schema, documentation


def schema() -> Draft202012Validator:
    return Draft202012Validator(spec_schema())


def fenced(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", DOCS.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


def test_the_schema_is_a_valid_schema() -> None:
    Draft202012Validator.check_schema(spec_schema())


@pytest.mark.parametrize(
    "text", [COMPLETE.replace("no: {}", "'no': {}"), *fenced("yaml"), *map(preset_text, preset_names())]
)
def test_the_schema_accepts_every_valid_example(text: str) -> None:
    load_spec(text, "outlay.yaml")
    schema().validate(yaml.safe_load(text))


def test_the_examples_in_the_schema_are_valid() -> None:
    definitions = spec_schema()["$defs"]
    properties = [each for record in definitions.values() for each in record["properties"].values()]
    shown = [(each, example) for each in properties for example in each.get("examples", ())]
    assert shown
    for each, example in shown:
        schema().evolve(schema={**each, "$defs": definitions}).validate(example)


def test_the_documentation_explains_every_key_and_no_other() -> None:
    records = spec_schema()["$defs"].values()
    keys = {(key, each["description"]) for record in records for key, each in record["properties"].items()}
    rows = re.findall(r"^\| `(\w+)` \| (.*) \|$", DOCS.read_text(encoding="utf-8"), re.MULTILINE)
    assert set(rows) == keys


def test_the_documented_errors_are_those_that_one_gets() -> None:
    (wrong,), (listing,) = fenced("yaml wrong"), fenced("text")
    with pytest.raises(SpecError) as caught:
        load_spec(wrong, "outlay.yaml")
    assert str(caught.value) == listing.rstrip("\n")


@UNHURRIED
@given(st.from_regex(Duration.__metadata__[0].pattern, fullmatch=True).filter(lambda text: len(text) <= 7))
def test_every_duration_that_the_schema_accepts_is_one(text: str) -> None:
    assert parse_duration(text) >= 0


# Anything at all goes in; a spec or SpecError comes out


def read_or_refuse(text: str | bytes) -> None:
    try:
        load_spec(text, "outlay.yaml")
    except SpecError as error:
        refusal = error
    else:
        return
    assert refusal.problems
    assert len(str(refusal).splitlines()) == len(refusal.problems)
    assert all(problem.line >= 1 for problem in refusal.problems)


@UNHURRIED
@given(st.text() | st.binary())
def test_arbitrary_input_is_read_or_refused(text: str | bytes) -> None:
    read_or_refuse(text)


@UNHURRIED
@given(st.text(alphabet="amops:{}[],-?!&*|>%@`'\"\\#<~ \n\t\r\x85\u2028\ufeff0"))
def test_text_made_of_yaml_signs_is_read_or_refused(text: str) -> None:
    read_or_refuse(text)


@UNHURRIED
@given(st.data())
def test_a_damaged_preset_is_read_or_refused(data: st.DataObject) -> None:
    text = preset_text(data.draw(st.sampled_from(preset_names())))
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(text)))
        end = min(len(text), start + data.draw(st.integers(0, 40)))
        text = text[:start] + data.draw(st.text(max_size=5)) + text[end:]
    read_or_refuse(text)


KEYS = st.sampled_from(
    [
        *(key for record in spec_schema()["$defs"].values() for key in record["properties"]),
        *("noticeable", "disruptive", "llm/*", "a.b"),
    ]
)
LEAVES = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(["1s", "a", "llm/infer", "server", "95"])
)
TREES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4), max_leaves=20
)


@UNHURRIED
@given(
    TREES
    | st.fixed_dictionaries({"moments": st.dictionaries(KEYS, st.dictionaries(KEYS, TREES)), "map": st.lists(TREES)})
)
def test_well_formed_nonsense_is_read_or_refused(tree: object) -> None:
    read_or_refuse(yaml.safe_dump(tree))


ENTRY_SIGNS = st.lists(
    st.sampled_from(["llm", "/", "..", ".", "queue", "infer", "prefill", "unattributed", "*", "[", "{", "}"])
)


@UNHURRIED
@given(ENTRY_SIGNS.map("".join))
def test_anything_like_an_entry_is_read_or_refused(text: str) -> None:
    read_or_refuse(f"map: [{{match: {{name: a}}, as: '{text}'}}]")
    read_or_refuse(f"moments: {{m: {{within: 1s, stages: {{'{text}': {{owner: a}}}}}}}}")
    read_or_refuse(f"moments: {{m: {{chain: [a, {{mark: b, as: '{text}'}}]}}}}")


# What is written is what is read back

NAMES = st.text(
    st.characters(exclude_categories=("C", "Z")) | st.just(" "), min_size=1, max_size=20
)  # printable, and any of YAML's signs
MOMENT_NAMES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,8}", fullmatch=True)
COMPONENTS = st.from_regex(r"[a-z][a-z0-9 .-]{0,8}", fullmatch=True)
ENTRIES = st.builds("{}/{}".format, COMPONENTS, st.sampled_from(stage_names()))
MATCHES = st.builds(
    Match,
    service=NAMES,
    name=st.none() | NAMES,
    kind=st.none() | st.sampled_from(["server", "consumer"]),
    attributes=st.dictionaries(NAMES.filter(lambda name: name != "<<"), NAMES, max_size=3),
)


@st.composite
def budgets(draw: st.DrawFn) -> Budget:
    limits = draw(st.lists(st.none() | st.integers(0, NS_PER_S), max_size=4))
    entries = draw(st.lists(ENTRIES, min_size=len(limits), max_size=len(limits), unique=True))
    given_ns = sum(limit for limit in limits if limit is not None)
    thresholds = draw(st.lists(st.integers(1, 10 * NS_PER_S), unique=True, max_size=3))
    return Budget(
        limit_ns=given_ns + draw(st.integers(1, NS_PER_S)),
        percentile=draw(st.floats(0, 100, exclude_min=True, exclude_max=True)),
        thresholds=dict(zip(THRESHOLDS, sorted(thresholds), strict=False)),
        shares=tuple(
            Share(entry=entry, limit_ns=limit, owner=draw(NAMES)) for entry, limit in zip(entries, limits, strict=True)
        ),
    )


@st.composite
def moments(draw: st.DrawFn) -> Moment:
    marks = draw(st.lists(NAMES, min_size=2, max_size=5, unique=True))
    is_chain = draw(st.booleans())
    first, *later = marks
    return Moment(
        name=draw(MOMENT_NAMES),
        budget=draw(st.none() | budgets()),
        start=draw(st.sampled_from([None, first])),
        end=draw(st.sampled_from([None, later[-1]])),
        match=draw(st.none() | MATCHES),
        chain=(ChainStep(mark=first), *(ChainStep(mark=mark, entry=draw(ENTRIES)) for mark in later))
        if is_chain
        else (),
    )


RULES = st.one_of(
    st.builds(Rule, match=MATCHES, component=st.none() | COMPONENTS, stage=st.sampled_from(stage_names()),
              leaf_only=st.booleans()),
    st.builds(Rule, match=MATCHES, component=st.none(), stage=st.none(), leaf_only=st.booleans()),
)  # fmt: skip


def stated(**keys: object) -> dict[str, object]:
    return {key.rstrip("_"): value for key, value in keys.items() if value not in (None, {}, [])}


def duration(value_ns: int | None) -> str | None:
    return None if value_ns is None else f"{value_ns}ns"


def match_keys(match: Match | None) -> dict[str, object] | None:
    return match and stated(service=match.service, name=match.name, kind=match.kind, attributes=dict(match.attributes))


def budget_keys(budget: Budget | None) -> dict[str, object]:
    if budget is None:
        return {}
    return stated(
        within=duration(budget.limit_ns),
        percentile=budget.percentile,
        thresholds={name: duration(limit) for name, limit in budget.thresholds.items()},
        stages={share.entry: stated(share=duration(share.limit_ns), owner=share.owner) for share in budget.shares},
    )


def moment_keys(moment: Moment) -> dict[str, object]:
    chain = [stated(mark=step.mark, as_=step.entry) if step.entry else step.mark for step in moment.chain]
    ends = stated(from_=moment.start, to=moment.end, match=match_keys(moment.match), chain=chain)
    return ends | budget_keys(moment.budget)


def rule_keys(rule: Rule) -> dict[str, object]:
    target = "container" if rule.stage is None else f"{rule.component or '*'}/{rule.stage}"
    return stated(match=match_keys(rule.match), as_=target, when="leaf" if rule.leaf_only else None)


@UNHURRIED
@given(st.lists(moments(), max_size=3, unique_by=lambda moment: moment.name), st.lists(RULES, max_size=3))
def test_a_spec_that_is_written_out_reads_back_the_same(expected: list[Moment], rules: list[Rule]) -> None:
    document = {
        "moments": {moment.name: moment_keys(moment) for moment in expected},
        "map": [rule_keys(rule) for rule in rules],
    }
    text = yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=1000)
    assert load_spec(text, "outlay.yaml") == Spec(moments=tuple(expected), rules=tuple(rules))
    schema().validate(document)
