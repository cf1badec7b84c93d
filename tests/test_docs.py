"""The documentation says what the code does: examples run, tables are generated, nothing is left out, links resolve.

`python tests/test_docs.py --write` writes the tables and the output of the examples anew.
"""

import contextlib
import glob
import inspect
import json
import re
import runpy
import shlex
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from inspect import signature
from pathlib import Path

import msgspec
import pytest
import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption
from typer.testing import CliRunner

from outlay import assembly, attribution, bootstrap, clocks, engines, mapping, quantiles, sketch, tabulator
from outlay.budget import THRESHOLDS, Budget, Match, Moment, Share
from outlay.cli import FAIL, INTERRUPTED, OK, REFUSED, UNDECIDED, USAGE, run
from outlay.cli.app import app
from outlay.cold import ClassEffect
from outlay.explain import Question, build, build_report, gather
from outlay.formats.log import VERSION as LOG_VERSION
from outlay.formats.log import parse_lines
from outlay.formats.reading import known_formats
from outlay.formats.spec import load_spec, preset_names
from outlay.formats.world_keys import WorldKeys
from outlay.generator import INVALID, GeneratorVerdict, Reason, Slope, Stall
from outlay.hops import Cost, HopCost
from outlay.interaction import NOTE_KINDS, OUTCOMES, Interaction, Mark, Note, Outcome, Span
from outlay.load import Bound, Load
from outlay.measurement import EngineSeen, Measurement, Point, Series
from outlay.network import Network, Round
from outlay.render.machine import VERSION as REPORT_VERSION
from outlay.render.machine import to_dict
from outlay.render.measured_machine import VERSION as MEASURE_VERSION
from outlay.render.measured_machine import to_dict_of
from outlay.report import OnTime, Percentile, Report, Source
from outlay.sim.policies import POLICIES
from outlay.stages import STAGES, TERMS, USER_COMPONENT, entry, stage_names, term_of
from outlay.units import NS_PER_MS, NS_PER_S, format_duration
from outlay.world import FAULTS

ROOT = Path(__file__).resolve().parents[1]
PAGES = (*(ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md")), *sorted(ROOT.glob("docs/*.md")))
WRITE = "python tests/test_docs.py --write"
MOCK = (sys.executable, "-m", "outlay.lab.mockllm")

pages = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


def text_of(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


# Tables that are generated


def table(heads: Sequence[str], rows: Iterator[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |\n" for line in lines)


def code(text: str) -> str:
    return f"`{text}`"


def terms_of(name: str) -> str:
    """The term of a stage or part; network rows have two, by whose network it is."""
    users, others = term_of(entry(USER_COMPONENT, name)), term_of(entry("llm", name))
    return users if users == others else f"{users} ({code(USER_COMPONENT)}), {others} (any other component)"


def stages_table() -> str:
    rows = ([code(stage.name), stage.where, stage.meaning, terms_of(stage.name)] for stage in STAGES)
    return table(["stage", "where", "meaning", "term"], rows)


def parts_table() -> str:
    named = ((f"{stage.name}.{part}", meaning) for stage in STAGES for part, meaning in stage.parts)
    return table(["part", "meaning", "term"], ([code(name), meaning, terms_of(name)] for name, meaning in named))


def terms_table() -> str:
    return table(["term", "meaning", "usual fix"], ([term.name, term.meaning, term.fix] for term in TERMS))


def notes_table() -> str:
    return table(["kind", "meaning"], ([code(kind), meaning] for kind, meaning in NOTE_KINDS.items()))


def outcomes_table() -> str:
    return table(["outcome", "meaning"], ([code(outcome), meaning] for outcome, meaning in OUTCOMES.items()))


def rules_table() -> str:
    """The built-in mapping rules in their order; rules of one meaning side by side share a row."""
    rows: list[tuple[str, str]] = []
    for rule in mapping.BUILT_IN:
        stands_for = "nothing: a container" if rule.stage is None else code(entry(rule.component or "*", rule.stage))
        if rows and rows[-1][1] == stands_for:
            rows[-1] = (f"{rows[-1][0]}; {spans_of(rule.match)}", stands_for)
        else:
            rows.append((spans_of(rule.match), stands_for))
    return table(["spans", "become"], iter(rows))


def spans_of(match: Match) -> str:
    parts = [f"kind {match.kind}"] if match.kind else []
    parts += [f"name {code(match.name)}"] if match.name else []
    parts += [code(key if value == "*" else f"{key}={value}") for key, value in match.attributes.items()]
    return " and ".join(parts)


def dimensions_table() -> str:
    conditions = {name: (key,) for key, name in assembly.CONDITION_KEYS.items()}
    keys = {**assembly.DIMENSION_KEYS, "start": (assembly.COLD_KEY,), **assembly.SIZE_KEYS, **conditions}
    rows = ([code(name), ", ".join(map(code, found))] for name, found in keys.items())
    return table(["dimension, size or condition", "taken from the first of these attributes that is there"], rows)


def constants_table() -> str:
    alignment, keep = clocks.Alignment(), tabulator.Keep()
    low, high = attribution.TYPICAL_BAND
    patience = signature(assembly.Assembler).parameters["patience"].default
    rows = (
        ("drift that two clocks are granted", f"{alignment.drift_ppm} ppm"),
        ("calls that bound a clock lie within", format_duration(alignment.window_ns)),
        ("interactions aligned together", f"the first {gather.FIRST_BATCH}, then each {gather.LATER_BATCH}"),
        ("spans that may pass before a trace counts as complete", str(patience)),
        ("percentiles reported", ", ".join(f"p{level:g}" for level in build.LEVELS)),
        *(
            (f"fewest interactions for a p{level:g}", f"{quantiles.smallest_n(level / 100)}")
            for level in (*build.LEVELS, 99.9)
        ),
        ("interactions that are typical", f"those between p{100 * low:g} and p{100 * high:g}"),
        ("accounts kept whole for a moment", f"the {keep.slowest:,} slowest and a sample of {keep.sample:,}"),
        ("interactions kept whole to be replayed, for a moment", f"{gather.REPLAYED:,}"),
        ("replicates of a bootstrap", f"{bootstrap.REPLICATES}"),
        ("fewest interactions in the tail for intervals of its rows", f"{attribution.FEWEST_IN_TAIL}"),
        ("fewest interactions for what sets a percentile", f"{attribution.FEWEST_FOR_SETS:,}"),
        ("relative error of a percentile beyond those kept", f"{100 * sketch.RELATIVE_ERROR:.2f} %"),
        ("disagreement of an engine's attributes that is ignored", format_duration(engines.TOLERANCE_NS)),
        ("input from which all cores are used", f"{run.PARALLEL_FROM // 2**20} MiB"),
    )
    return table(["what", "value"], iter(rows))


def example(*arguments: str) -> Callable[[], str]:
    """The JSON that a command prints, one key a line, as a fenced block."""

    def made() -> str:
        with workspace():
            outcome = CliRunner().invoke(app, list(arguments))
        return f"```json\n{json.dumps(json.loads(outcome.stdout), indent=2, ensure_ascii=False)}\n```\n"

    return made


def log_example() -> str:
    with workspace():
        CliRunner().invoke(app, ["explain", "tests/data/traces-zipkin/skew.json", "--log", "interactions.jsonl"])
        line = Path("interactions.jsonl").read_text(encoding="utf-8")
    return f"```json\n{json.dumps(json.loads(line), indent=2, ensure_ascii=False)}\n```\n"


def layers_list() -> str:
    contracts = tomllib.loads(text_of("pyproject.toml"))["tool"]["importlinter"]["contracts"]
    layers = next(contract["layers"] for contract in contracts if contract["type"] == "layers")
    return "```text\n" + "".join(f"{layer}\n" for layer in layers) + "```\n"


def policies_table() -> str:
    return table(["policy", "how it chooses"], ([code(name), about] for name, about in POLICIES.items()))


def faults_table() -> str:
    return table(["kind", "what happens"], ([code(kind), meaning] for kind, meaning in FAULTS.items()))


def world_keys_table() -> str:
    return table(["key", "meaning"], struct_keys(WorldKeys, ""))


def struct_keys(struct: type, above: str) -> Iterator[list[str]]:
    """A row for each key of a msgspec struct and of those below it, by its path."""
    for key in msgspec.inspect.type_info(struct).fields:  # type: ignore[attr-defined]
        path, kind, meaning = f"{above}{key.encode_name}", key.type, ""
        for each in kind.types if isinstance(kind, msgspec.inspect.UnionType) else (kind,):
            inner = each
            while isinstance(inner, msgspec.inspect.Metadata):
                meaning = meaning or (inner.extra_json_schema or {}).get("description", "")
                inner = inner.type
            if isinstance(inner, msgspec.inspect.DictType | msgspec.inspect.VarTupleType):
                is_list = isinstance(inner, msgspec.inspect.VarTupleType)
                path += "[]" if is_list else ".NAME"
                inner = inner.item_type if is_list else inner.value_type
            while isinstance(inner, msgspec.inspect.Metadata):
                inner = inner.type
            if isinstance(inner, msgspec.inspect.StructType):
                meaning = meaning or (inspect.getdoc(inner.cls) or "").partition(".")[0].lower()
                yield [code(path), meaning]
                yield from struct_keys(inner.cls, f"{path}.")
                break
        else:
            yield [code(path), meaning]


GENERATED: Mapping[str, Callable[[], str]] = {
    "stages": stages_table,
    "parts": parts_table,
    "terms": terms_table,
    "notes": notes_table,
    "outcomes": outcomes_table,
    "rules": rules_table,
    "dimensions": dimensions_table,
    "constants": constants_table,
    "report-example": example("explain", "tests/data/traces-zipkin/skew.json", "--slowest", "1", "--json"),
    "budget-example": example("budget", "show", "examples/vllm-requests/outlay.yaml", "--json"),
    "log-example": log_example,
    "layers": layers_list,
    "policies": policies_table,
    "faults": faults_table,
    "world-keys": world_keys_table,
}
_REGION = re.compile(r"(?P<head><!-- generated: (?P<name>[\w-]+) -->\n)(?P<body>.*?)(?P<foot><!-- end -->)", re.DOTALL)


@pytest.mark.parametrize("name", GENERATED)
def test_every_generated_part_stands_in_one_page_and_is_what_the_code_says(name: str) -> None:
    regions = [
        region["body"] for page in PAGES for region in _REGION.finditer(page.read_text()) if region["name"] == name
    ]
    assert regions == [GENERATED[name]()], f"run {WRITE}"


# Examples that are run

_FENCE = re.compile(
    r"^(?:<!-- not run: (?P<why>[^\n]+) -->\n)?```(?P<language>console|sh)\n(?P<body>.*?)^```$",
    re.DOTALL | re.MULTILINE,
)
_EXIT = re.compile(r"# exits (\d+)$")
CUT = "..."


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A command of an example. `shown` are the lines of output below it, None where the block shows none.

    A last line `...` says that the output goes on.
    """

    command: str
    shown: tuple[str, ...] | None

    @property
    def runs(self) -> bool:
        return self.command.startswith("outlay")

    @property
    def exits(self) -> int:
        stated = _EXIT.search(self.command)
        return int(stated[1]) if stated else OK

    def cut(self, printed: Sequence[str]) -> tuple[str, ...]:
        """What a block shows of an output, cut as this one is."""
        if self.shown and self.shown[-1] == CUT:
            return (*printed[: len(self.shown) - 1], CUT)
        return tuple(printed)


def steps_of(fence: re.Match[str]) -> list[Step]:
    lines = fence["body"].splitlines()
    if fence["language"] == "sh":
        return [Step(command=line, shown=None) for line in lines]
    starts = [place for place, line in enumerate(lines) if line.startswith("$ ")]
    ends = [*starts[1:], len(lines)]
    return [
        Step(command=lines[start].removeprefix("$ "), shown=tuple(lines[start + 1 : end]))
        for start, end in zip(starts, ends, strict=True)
    ]


@contextlib.contextmanager
def workspace() -> Iterator[None]:
    """A folder that looks like the repository's root, to which examples may write."""
    with tempfile.TemporaryDirectory() as folder:
        for name in ("tests", "examples"):
            (Path(folder) / name).symlink_to(ROOT / name)
        with contextlib.chdir(folder):
            yield


def perform(command: str) -> tuple[int, list[str]]:
    """Exit code and lines printed, as a shell would: comments, patterns of file names, `> FILE`."""
    words = shlex.split(command, comments=True)
    words, target = (words[:-2], words[-1]) if ">" in words else (words, None)
    arguments = [path for word in words[1:] for path in sorted(glob.glob(word)) or [word]]
    # Eighty columns and no colour, whatever terminal runs the tests.
    settings = {"COLUMNS": "80", "NO_COLOR": "1", "FORCE_COLOR": None, "TERM": "dumb"}
    outcome = CliRunner().invoke(app, arguments, prog_name="outlay", env=settings)
    if target is not None:
        Path(target).write_text(outcome.stdout, encoding="utf-8")
    printed = outcome.stderr if target is not None else outcome.output
    return outcome.exit_code, [line.rstrip() for line in printed.splitlines()]


@pages
def test_examples_do_what_the_page_says(page: Path) -> None:
    wrong = []
    with workspace():
        for fence in _FENCE.finditer(page.read_text()):
            for step in [] if fence["why"] else [step for step in steps_of(fence) if step.runs]:
                exits, printed = perform(step.command)
                if exits != step.exits:
                    wrong.append(f"{step.command} exits with {exits}: {printed[-1:]}")
                elif step.shown is not None and step.shown != step.cut(printed):
                    wrong.append(f"{step.command} prints other lines; run {WRITE}")
    assert wrong == []


@pages
def test_examples_that_measure_run_in_a_process_of_their_own(page: Path) -> None:
    """They fork, give way to others and take the signals: nothing to do inside the process that runs the tests."""
    fences = [fence for fence in _FENCE.finditer(page.read_text()) if not fence["why"]]
    commands = [step.command for fence in fences for step in steps_of(fence)]
    assert [command for command in commands if command.startswith("outlay measure")] == []


def test_steps_are_read_as_a_reader_would() -> None:
    (fence,) = _FENCE.finditer("```console\n$ outlay a > b  # exits 4\n$ ls\none\n...\n```\n")
    first, second = steps_of(fence)
    assert (first.runs, first.exits, first.shown) == (True, 4, ())
    assert (second.runs, second.exits, second.cut(["1", "2", "3"])) == (False, 0, ("1", "..."))


# Nothing is left out


def sections(text: str, level: int) -> dict[str, str]:
    """The text under each heading of a level, up to the next of that level or above."""
    found = {}
    heading = re.compile(rf"^#{{{level}}} (.+)$", re.MULTILINE)
    ends = re.compile(rf"^#{{1,{level}}} ", re.MULTILINE)
    for match in heading.finditer(text):
        end = ends.search(text, match.end())
        found[match[1]] = text[match.end() : end.start() if end else len(text)]
    return found


def first_cells(text: str) -> list[str]:
    """The first cell of each row of the tables in a text, heads left out."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    cells = [re.split(r"(?<!\\)\|", line)[1].strip().replace("\\|", "|") for line in lines]
    rules = {place for place, cell in enumerate(cells) if set(cell) <= set("-: ")}
    return [cell for place, cell in enumerate(cells) if place not in rules and place + 1 not in rules]


def ticked(text: str) -> list[str]:
    return re.findall(r"`([^`\n]+)`", text)


def verbs(command: object, name: str) -> Iterator[tuple[str, TyperCommand | TyperGroup]]:
    assert isinstance(command, TyperCommand | TyperGroup)
    yield name, command
    if isinstance(command, TyperGroup):
        for child, below in command.commands.items():
            yield from verbs(below, f"{name} {child}")


# What a producer may say of itself, in Outlay's own words.
OWN_ATTRIBUTES = frozenset(
    {mapping.STAGE_KEY, mapping.COMPONENT_KEY, mapping.MOMENT_KEY, mapping.MARK_KEY, assembly.FIRST_CHUNK_KEY}
)

VERBS = dict(verbs(typer.main.get_command(app), "outlay"))


def names_of(parameter: object) -> list[str]:
    """What a user writes for it: `PATH...`, or `--budget` and `-b`."""
    if isinstance(parameter, TyperArgument):
        return [parameter.metavar or str(parameter.name).upper()]
    assert isinstance(parameter, TyperOption)
    return [name for name in parameter.opts if name != "--help"]


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_a_section_that_lists_its_options(verb: str) -> None:
    section = {**sections(text_of("docs/cli.md"), 2), **sections(text_of("docs/cli.md"), 3)}[f"`{verb}`"]
    # Of a verb with verbs below it, only the part before them is its own.
    listed = [name for cell in first_cells(section.partition("\n### ")[0]) for name in ticked(cell)]
    names = [name for parameter in VERBS[verb].params for name in names_of(parameter)]
    assert sorted(listed) == sorted(names)


def test_every_exit_code_is_listed() -> None:
    section = sections(text_of("docs/cli.md"), 2)["Exit codes"]
    assert [int(code) for code in first_cells(section)] == [OK, FAIL, USAGE, UNDECIDED, REFUSED, INTERRUPTED]


def test_every_format_has_a_section_under_its_name_and_title() -> None:
    formats = sections(text_of("docs/formats.md"), 2)["Input formats"]
    told = sections(formats, 3)
    assert list(told) == [f"`{name}`: {title}" for name, title in known_formats()]
    questions = ("**Read:**", "**Account:**", "**Cannot tell:**")
    assert [name for name, text in told.items() if not all(question in text for question in questions)] == []


def test_every_preset_is_named() -> None:
    assert set(preset_names()) <= set(ticked(text_of("docs/cli.md")))


LOGGED = (Interaction, Mark, Span, Note, Load, GeneratorVerdict, Reason, Slope, Bound, Stall)


@pytest.mark.parametrize("record", LOGGED, ids=lambda record: record.__name__)
def test_every_field_of_the_log_is_told_in_order(record: type) -> None:
    section = sections(sections(text_of("docs/formats.md"), 2)[f"The interaction log: `{LOG_VERSION}`"], 3)
    head = ["outlay"] if record in (Interaction, Load) else []
    listed = [name for cell in first_cells(section[record.__name__]) for name in ticked(cell)]
    assert listed == head + [field.name for field in fields(record)]


def test_lines_of_the_log_in_the_docs_can_be_read() -> None:
    (block,) = re.findall(r"^```jsonl\n(.*?)^```$", text_of("docs/formats.md"), re.DOTALL | re.MULTILINE)
    read = list(parse_lines(line.encode() for line in block.splitlines()))
    assert [type(item) for item in read] == [Interaction] * block.count("\n")


@pages
def test_every_outlay_yaml_in_a_page_is_valid(page: Path) -> None:
    blocks = re.findall(r"^```yaml\n(.*?)^```$", page.read_text(), re.DOTALL | re.MULTILINE)
    for block in blocks:
        if re.search(r"^(moments|map):", block, re.MULTILINE):
            load_spec(block, page.name)


@pytest.mark.parametrize("name", sorted(assembly.FIRST_TOKEN_EVENTS | engines.ENGINE_KEYS | OWN_ATTRIBUTES))
def test_every_attribute_with_a_meaning_of_its_own_is_named(name: str) -> None:
    assert name in ticked(text_of("docs/formats.md"))


def interaction(number: int, outcome: Outcome = "ok", moment: str = "chat") -> Interaction:
    """Half a second of waiting on the person's clock, then the model on a clock that no call ties to it."""
    start = number * NS_PER_S
    return Interaction(
        id=f"{moment}-{number}",
        moment=moment,
        start_ns=start,
        end_ns=start + NS_PER_S,
        clock="phone",
        outcome=outcome,
        dimensions={"site": "lon"},
        marks=(
            Mark(name="scheduled", at_ns=start + NS_PER_S // 2, clock="phone", component="llm", stage="queue.wait"),
            Mark(name="first_token", at_ns=start + NS_PER_S, clock="gpu", component="llm", stage="infer.prefill"),
        ),
        notes=(Note(kind="unsplit-call", text="llm"),),
    )


def load(name: str = "late", moment: str = "late") -> Load:
    """One with every field set, and a verdict that leaves only bounds."""
    reasons = (
        Reason(rule="lateness", state=INVALID, measured=2.0 * NS_PER_S, limit=1.0 * NS_PER_MS, text="late"),
        Reason(rule="cpu", state=None, measured=None, limit=0.7, text="cpu: not measured"),
    )
    judged = GeneratorVerdict(
        state=INVALID,
        reasons=reasons,
        lateness_p50_ns=NS_PER_S,
        lateness_p99_ns=2 * NS_PER_S,
        lateness_max_ns=2 * NS_PER_S,
        achieved=0.5,
        unsent=1,
        slope=Slope(value=0.1, low=0.0, high=0.2),
    )
    stalls = (Stall(from_ns=0, to_ns=NS_PER_S, due=3), Stall(from_ns=0, to_ns=None, due=3))
    return Load(
        name=name,
        tool="made",
        moment=moment,
        requests=400,
        verdict=judged,
        requested_rate=10.0,
        achieved_rate=5.0,
        bounds=(Bound(level=99.0, low_ns=NS_PER_S, high_ns=None),),
        claimed_ns={"p99": NS_PER_MS},
        clock="phone",
        sender_stalls=stalls,
        silences=stalls,
        begin_ns=0,
        dimensions={"site": "lon"},
    )


def everything() -> Report:
    """A report in which every key of the contract occurs: enough interactions, too few, failures, a budget, a load."""
    thresholds = {name: (place + 2) * NS_PER_S for place, name in enumerate(THRESHOLDS)}
    shares = (Share(entry="llm/queue*", limit_ns=NS_PER_MS, owner="platform"),)
    budget = Budget(limit_ns=2 * NS_PER_S, percentile=99, thresholds=thresholds, shares=shares)
    moments = tuple(Moment(name=name, budget=budget) for name in ("chat", "few"))
    many = [interaction(number, "error" if number == 7 else "ok") for number in range(400)]
    few = [interaction(number, "error" if number == 7 else "ok", "few") for number in range(10)]
    question = Question(moments=moments, by=("site",), where={"site": "*"})
    source = Source(name="made", format="none", records=410, unit="interactions")
    late = [interaction(number, moment="late") for number in range(10)]
    return build_report(gather.gather([*many, *few, *late, load()], question), [source])


# Objects whose keys are names from the data or from outlay.yaml.
FREE = {
    *("filters", "loads[].dimensions", "loads[].claimed_ns"),
    *("moments[].outcomes", "moments[].cohorts[].key", "moments[].slowest[].dimensions"),
    *("moments[].blame[].entries", "moments[].burn[].rates", "moments[].together.shares_ns"),
    "moments[].failing.outcomes",
}
THRESHOLD_PATHS = {"moments[].budget.thresholds", "moments[].thresholds_ns"}


def keys_of(value: object, path: str = "") -> Iterator[str]:
    """The path of every key below a JSON value, percentiles under one name."""
    if isinstance(value, list):
        for item in value:
            yield from keys_of(item, f"{path}[]")
    elif isinstance(value, dict) and path not in FREE | THRESHOLD_PATHS:
        for name, child in value.items():
            below = f"{path}.{name}" if path else name
            yield re.sub(r"p[0-9.]+_", "pNN_", below)
            yield from keys_of(child, below)


def keys_told(section: str) -> set[str]:
    """The keys in the tables below headings that name the objects they belong to."""
    return {
        f"{path}.{key}".lstrip(".")
        for heading, text in sections(section, 3).items()
        for path in ticked(heading) or [""]
        for cell in first_cells(text)
        for key in ticked(cell)
    }


def test_every_key_of_the_report_is_told_and_no_other() -> None:
    section = sections(text_of("docs/formats.md"), 2)[f"The report as JSON: `{REPORT_VERSION}`"]
    # What takes thousands of interactions to compute stands in the report that the renderers are tested with.
    sample = runpy.run_path(str(ROOT / "tests/render/sample.py"))["SAMPLE"]
    made = {*keys_of(to_dict(everything())), *keys_of(to_dict(sample))}
    assert keys_told(section) == made


def measurement() -> Measurement:
    """A measured run in which every key of the contract occurs."""
    percentiles = (
        Percentile(level=50, value_ns=1, interval_ns=(1, None)),
        Percentile(level=99, value_ns=None, why="p99 needs 299 requests, there are 1"),
    )
    bound = Bound(level=50, low_ns=1, high_ns=2)
    series = Series(name="ttft", n=1, failures_count=True, percentiles=percentiles, bounds=(bound,))
    network = Network(
        floor_ns=1,
        sent=1,
        fresh=1,
        setup=(Round(name="tls", n=1, p50_ns=1, p99_ns=1, rounds=1),),
        retransmitted=0,
        reported=1,
        server_p50_ns=1,
    )
    point = Point(
        name="p",
        address="http://p/",
        planned=1,
        unfinished=0,
        outcomes={"ok": 1},
        reasons={"status 500": 1},
        series=(series,),
        network=network,
    )
    costs = {95.0: Cost(value_ns=1, interval_ns=(1, 2), why="told"), 99.0: Cost(value_ns=None, why="too few")}
    return Measurement(
        plan="one",
        loads=(load(),),
        points=(point,),
        hops=(HopCost(outer="a", inner="b", n=1, outer_failed=0, inner_failed=0, typical=costs[95.0], tail=costs),),
        cold=(ClassEffect(name="first", n=1, share=1, p50_ns=1, p99_ns=1, p99_without_ns=1, tail_share=1, per_hour=1),),
        engine=EngineSeen(engine="vLLM", largest={"waiting": 1}, mean_ns={"queue": 1}, missing=("cache",), pages=2),
        on_time=OnTime(share=1, interval=(0, 1), over=0),
        within_ns=1,
        warm_up=1,
        warm_up_p50_ns=1,
        notes={"a stream that came whole": 1},
        report=everything(),
    )


# Objects of a measured run whose keys are names, and names under which the same object stands several times.
MEASURED_FREE = {"points[].outcomes", "points[].reasons", "engine.largest", "engine.mean_ns", "notes", "report"}
MEASURED_NAMED = {"points[].series.ttft": "points[].series.NAME", "hops[].tail.p95": "hops[].tail.NAME"}


def test_every_key_of_a_measured_run_is_told_and_no_other() -> None:
    section = sections(text_of("docs/formats.md"), 2)[f"A measured run as JSON: `{MEASURE_VERSION}`"]
    document = to_dict_of(measurement())
    found = set()
    for key in keys_of(document):
        if any(key.startswith((f"{free}.", f"{free}[")) for free in MEASURED_FREE):
            continue
        for named, general in MEASURED_NAMED.items():
            key = key.replace("hops[].tail.p99", "hops[].tail.p95").replace(named, general)  # noqa: PLW2901
        found.add(key)
    told = {re.sub(r"p[0-9.]+_", "pNN_", key) for key in keys_told(section)}
    assert told == found - {"points[].series.NAME", "hops[].tail.NAME"}


@pages
def test_examples_that_need_a_server_run_against_one(page: Path) -> None:
    commands = [
        step.command
        for fence in _FENCE.finditer(page.read_text())
        if fence["why"] == "needs a server"
        for step in steps_of(fence)
        if step.runs
    ]
    if not commands:
        return
    with workspace(), subprocess.Popen(MOCK, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            address = server.stdout.readline().strip()
            for command in commands:
                words = shlex.split(re.sub(r"http://localhost:\d+", address, command), comments=True)
                # What a reader waits for half a minute is enough in one second here.
                words = [
                    "1s" if before == "--duration" else word for before, word in zip(["", *words], words, strict=False)
                ]
                done = subprocess.run(
                    [sys.executable, "-m", *words], capture_output=True, text=True, timeout=60, check=False
                )
                # A machine that is busy may spoil the load, which is no fault of the page.
                assert done.returncode == OK or "load  INVALID" in done.stdout, done.stderr
                assert re.search(r"requests: ok \d+$", done.stdout, re.MULTILINE), done.stdout
        finally:
            server.terminate()


def test_every_key_of_the_budget_is_told_and_no_other() -> None:
    section = sections(text_of("docs/formats.md"), 2)["The budget as JSON: `budget/1`"]
    with workspace():
        shown = [perform(f"outlay budget show {name} --json")[1] for name in preset_names()]
    assert keys_told(section) == {key for lines in shown for key in keys_of(json.loads("\n".join(lines)))}


def test_every_dependency_is_argued() -> None:
    project = tomllib.loads(text_of("pyproject.toml"))
    extras = [name for names in project["project"]["optional-dependencies"].values() for name in names]
    wanted = project["project"]["dependencies"] + extras + project["dependency-groups"]["dev"]
    names = {re.split(r"[<>=~ ]", requirement)[0].lower() for requirement in wanted}
    section = sections(text_of("docs/decisions.md"), 2)["Dependencies"]
    assert {name.lower() for cell in first_cells(section) for name in ticked(cell)} == names


def test_stage_names_that_pages_use_exist() -> None:
    """Whatever reads like `component/stage` in code type is an entry."""
    known = {*stage_names(), *(stage.name for stage in STAGES)}
    entries = re.compile(r"(?:client|llm|gateway|asr|tts|vad|tool|retrieval)/([a-z_.]+)")
    used = {match[1] for page in PAGES for text in ticked(page.read_text()) for match in entries.finditer(text)}
    unknown = {name for name in used for part in name.split("..") if part and part not in known}
    assert {name for name in unknown if not name.startswith("unattributed.")} == set()


# Links and paths

_LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
_MACHINE = re.compile(r"(?<![\w.])(?:/(?:home|Users|tmp|work|var)/|/root\b|[A-Z]:\\|file:///)")


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pages
def test_links_within_the_repository_lead_somewhere(page: Path) -> None:
    lost = []
    for target in _LINK.findall(page.read_text()):
        if target.startswith(("http://", "https://")):
            continue
        path, _, anchor = target.partition("#")
        there = (page.parent / path).resolve() if path else page
        if not there.exists() or (anchor and anchor not in anchors(there)):
            lost.append(target)
    assert lost == []


@pytest.mark.parametrize("page", [*PAGES, *sorted(ROOT.glob("examples/**/*.yaml"))], ids=lambda page: page.name)
def test_no_page_names_a_path_of_somebody_s_machine(page: Path) -> None:
    assert _MACHINE.findall(page.read_text()) == []


# The recorder


def rewritten(text: str) -> str:
    text = _REGION.sub(lambda region: region["head"] + GENERATED[region["name"]]() + region["foot"], text)
    with workspace():
        return _FENCE.sub(_performed, text)


def _performed(fence: re.Match[str]) -> str:
    """The block with what its commands print now."""
    if fence["why"]:
        return fence[0]
    lines: list[str] = []
    for step in steps_of(fence):
        shown = step.cut(perform(step.command)[1]) if step.runs else step.shown
        if step.shown is not None:
            lines += [f"$ {step.command}", *(shown or ())]
    return fence[0] if fence["language"] == "sh" else "```console\n" + "\n".join(lines) + "\n```"


if __name__ == "__main__":
    if sys.argv[1:] != ["--write"]:
        sys.exit(f"usage: {WRITE}")
    for each in PAGES:
        each.write_text(rewritten(each.read_text(encoding="utf-8")), encoding="utf-8")
