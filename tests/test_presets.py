"""The presets that come with Outlay, and `outlay budget`, which shows them and checks files like them."""

import json
import re
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator
from typer.testing import CliRunner, Result

from outlay.budget import Budget, Moment
from outlay.cli.budget import app
from outlay.formats.spec import load_preset, load_spec, preset_names, preset_text
from outlay.units import NS_PER_MS, NS_PER_S

# name, from, to, limit in ms, percentile, sum of the shares in ms
PRESETS = [
    # 100 + 50 + 100 + 100 + 50 + 150 + 400
    ("chat", "submit", "first_visible", 1000, 95, 950),
    # 1000 + 200 + 500 + 200 + 100 + 1000 + 1500 + 1000 + 4000
    ("document-analysis", "submit", "result", 10_000, 95, 9500),
    # 67 + 20 + 30 + 30 + 17 + 40 + 60 + 15
    ("safety-alert", "exposure", "display", 300, 99.9, 279),
    # 200 + 50 + 50 + 60 + 70 + 40 + 20 + 40 + 140 + 90 + 10
    ("voice-turn", "speech_end", "first_audio", 800, 95, 770),
]

SOURCES = {
    "chat": ["Nielsen 1993", "RAIL"],
    "document-analysis": ["Nielsen 1993"],
    "safety-alert": ["ISO 13855", "Green 2000", "Nielsen 1993", "maximum over a duty period"],
    "voice-turn": ["Stivers 2009", "Levinson & Torreira 2015", "ITU-T G.114", "practitioners"],
}


def preset(name: str) -> tuple[Moment, Budget]:
    (moment,) = load_preset(name).moments
    assert moment.budget is not None
    return moment, moment.budget


def test_these_are_the_presets() -> None:
    assert list(preset_names()) == [row[0] for row in PRESETS] == list(SOURCES)


@pytest.mark.parametrize(("name", "start", "end", "limit_ms", "percentile", "shares_ms"), PRESETS)
def test_a_preset_grants_no_more_than_its_limit(
    name: str, start: str, end: str, limit_ms: int, percentile: float, shares_ms: int
) -> None:
    moment, budget = preset(name)
    assert (moment.name, moment.start, moment.end) == (name, start, end)
    assert (budget.limit_ns, budget.percentile) == (limit_ms * NS_PER_MS, percentile)
    assert budget.unassigned_ns == (limit_ms - shares_ms) * NS_PER_MS


@pytest.mark.parametrize("name", preset_names())
def test_every_row_of_a_preset_s_chain_has_a_share_with_an_owner(name: str) -> None:
    moment, budget = preset(name)
    assert [moment.chain[0].mark, moment.chain[-1].mark] == [moment.start, moment.end]
    owners = {step.entry: budget.share_of(step.entry) for step in moment.chain if step.entry is not None}
    assert [entry for entry, share in owners.items() if share is None or not share.owner] == []


@pytest.mark.parametrize("name", preset_names())
def test_every_share_of_a_preset_is_reached_by_its_chain(name: str) -> None:
    moment, budget = preset(name)
    reached = {budget.share_of(step.entry) for step in moment.chain if step.entry is not None}
    assert [share.entry for share in budget.shares if share not in reached] == []


@pytest.mark.parametrize("name", preset_names())
def test_a_preset_names_its_sources_and_calls_itself_a_prior(name: str) -> None:
    comments = " ".join(re.findall(r"# ?(.*)", preset_text(name)))
    missing = [source for source in [*SOURCES[name], "prior", "your own study"] if source not in comments]
    assert missing == []


@pytest.mark.parametrize("name", preset_names())
def test_the_rule_that_a_preset_offers_in_a_comment_is_valid(name: str) -> None:
    uncommented = re.sub(r"^    # (match: .*)$", r"    \1", preset_text(name), flags=re.MULTILINE)
    (moment,) = load_spec(uncommented, name).moments
    assert moment.match is not None


@pytest.mark.parametrize(("name", "nearest"), [("voice", "voice-turn"), ("../chat", "chat")])
def test_an_unknown_preset_is_refused_with_the_nearest_name(name: str, nearest: str) -> None:
    with pytest.raises(ValueError, match=f"did you mean {nearest}"):
        load_preset(name)


# The verb


def run(*arguments: str) -> Result:
    # A fixed terminal, so that the developer's own does not show in the output.
    return CliRunner(env={"COLUMNS": "80", "FORCE_COLOR": None}).invoke(app, arguments)


@pytest.fixture
def spec_file(tmp_path: Path) -> Path:
    return tmp_path / "outlay.yaml"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("moments: {a: {}, b: {}}", "2 moments, 0 rules"),
        ("moments: {a: {}}\nmap: [{match: {name: x}, as: container}]", "1 moment, 1 rule"),
    ],
)
def test_validate_counts_what_a_valid_file_holds(spec_file: Path, text: str, said: str) -> None:
    spec_file.write_text(text, encoding="utf-8")
    result = run("validate", str(spec_file))
    assert (result.exit_code, result.stdout, result.stderr) == (0, f"{spec_file}: ok, {said}\n", "")


def test_validate_prints_every_problem_to_standard_error(spec_file: Path) -> None:
    spec_file.write_text("momnts: {}\nmoments: {a: {within: 5}}\n", encoding="utf-8")
    result = run("validate", str(spec_file))
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.splitlines() == [
        f"{spec_file}:1: momnts: unknown key; did you mean moments?",
        f"{spec_file}:2: moments.a.within: expected a duration such as 250ms, got 5",
    ]


@pytest.mark.parametrize("verb", ["validate", "show"])
def test_what_cannot_be_read_is_a_usage_error_in_one_line(tmp_path: Path, verb: str) -> None:
    result = run(verb, str(tmp_path))
    assert (result.exit_code, result.stderr) == (2, f"{tmp_path}: Is a directory\n")


def test_a_missing_file_is_a_usage_error(spec_file: Path) -> None:
    result = run("validate", str(spec_file))
    assert (result.exit_code, result.stderr) == (2, f"{spec_file}: No such file or directory\n")


def test_show_takes_a_mistyped_preset_for_one() -> None:
    result = run("show", "voce-turn")
    assert result.exit_code == 2
    assert result.stderr == "no such file, and unknown preset voce-turn; did you mean voice-turn?\n"


def test_an_unknown_preset_is_a_usage_error() -> None:
    result = run("presets", "cht")
    assert (result.exit_code, result.stderr) == (2, "unknown preset cht; did you mean chat?\n")


def test_a_printed_preset_is_a_valid_file(spec_file: Path) -> None:
    spec_file.write_bytes(run("presets", "safety-alert").stdout_bytes)
    assert run("validate", str(spec_file)).stdout == f"{spec_file}: ok, 1 moment, 0 rules\n"


def test_presets_are_listed_one_a_line() -> None:
    lines = run("presets").stdout.splitlines()
    assert [line.split()[0] for line in lines] == list(preset_names())
    assert all(" from " in line and len(line) <= 80 for line in lines)


SMALL = """\
moments:
  a:
    from: ask
    within: 1s
    percentile: 99.9
    thresholds: {noticeable: 100ms}
    stages: {llm/*: {share: 600ms, owner: "[bold]me"}, tts/*: {owner: voice}}
  b: {}
map:
  - {match: {name: x}, as: container}
"""


def test_show_draws_shares_owners_and_what_is_left(spec_file: Path) -> None:
    spec_file.write_text(SMALL, encoding="utf-8")
    result = run("show", str(spec_file))
    assert result.exit_code == 0
    assert [line.rstrip() for line in result.stdout.splitlines()] == [
        "a  from ask to the last instant",
        "  99.9 percent within 1.00 s",
        "  thresholds: noticeable 100 ms",
        "  entries      share  owner",
        "  llm/*       600 ms  [bold]me",
        "  tts/*            -  voice",
        "  unassigned  400 ms  -",  # 1 s - 600 ms
        "",
        "b  from the first instant to the last instant",
        "  no budget",
        "",
        "1 mapping rule",
    ]


def test_show_as_json_leaves_out_what_the_file_does_not_say(spec_file: Path) -> None:
    spec_file.write_text(SMALL, encoding="utf-8")
    assert json.loads(run("show", str(spec_file), "--json").stdout) == {
        "outlay": "budget/1",
        "moments": [
            {
                "moment": "a",
                "from": "ask",
                "limit_ns": NS_PER_S,
                "percentile": 99.9,
                "thresholds_ns": {"noticeable": 100 * NS_PER_MS},
                "shares": [
                    {"entry": "llm/*", "limit_ns": 600 * NS_PER_MS, "owner": "[bold]me"},
                    {"entry": "tts/*", "owner": "voice"},
                ],
                "unassigned_ns": 400 * NS_PER_MS,
            },
            {"moment": "b"},
        ],
        "rules": 1,
    }


@pytest.mark.parametrize("name", preset_names())
def test_show_fits_80_columns(name: str) -> None:
    lines = run("show", name).stdout.splitlines()
    assert lines
    assert max(map(len, lines)) <= 80


def test_a_file_wins_over_a_preset_of_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "chat").write_text("moments: {mine: {}}", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert run("show", "chat").stdout.startswith("mine ")


def test_schema_prints_a_schema_that_accepts_the_presets() -> None:
    printed = json.loads(run("schema").stdout)
    Draft202012Validator.check_schema(printed)
    assert printed["$schema"] == "https://json-schema.org/draft/2020-12/schema"


@pytest.mark.parametrize("verb", ["validate", "show", "presets", "schema"])
def test_every_help_has_a_line_to_paste(verb: str) -> None:
    help_text = run(verb, "--help").stdout
    assert re.search(rf"^ +outlay budget {verb}\b", help_text, re.MULTILINE)
