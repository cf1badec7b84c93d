"""`outlay simulate` and `outlay plan` as a user meets them."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from outlay.cli import FAIL, OK, REFUSED, USAGE
from outlay.cli.app import app

ROOT = Path(__file__).resolve().parents[2]
WORLD = """
about: one site, ten seconds
run: {for: 12s, warm_up: 2s}
rtt: {pairs: {"London -> UK South": 10ms}}
access: {fixed: {constant: 4ms}}
sites: {london: {region: UK South}, lost: {region: Atlantis}}
targets:
  large:
    at: {london: 2}
    service: {prefill: 10000, step: 30ms, overhead: 10ms, max_batch: 16}
    price_per_hour: 10
    cold: {times: [2s], keep: 1h}
users: [{region: London, access: fixed, local: london}]
moments:
  voice:
    within: 900ms
    percentile: 95
    arrivals: {rate: 3}
    input: {median: 500}
    output: {median: 60}
    useful: 10
"""


@pytest.fixture
def world(tmp_path: Path) -> Path:
    path = tmp_path / "small.yaml"
    path.write_text(WORLD)
    return path


def outlay(*arguments: object) -> tuple[int, str, str]:
    outcome = CliRunner().invoke(app, [str(each) for each in arguments], env={"COLUMNS": "80"})
    return outcome.exit_code, outcome.stdout, outcome.stderr


def test_a_contest_is_told_in_eighty_columns_with_a_sentence_that_reads_it(world: Path) -> None:
    code, out, _ = outlay("simulate", world, "-p", "outlay", "-p", "p2c", "--seeds", 2, "--jobs", 1)
    assert code == OK
    assert "Most are on time under" in out
    assert "Promises of outlay" in out
    assert max(map(len, out.splitlines())) <= 80


def test_json_is_a_document_with_every_policy(world: Path) -> None:
    code, out, _ = outlay("simulate", world, "-p", "outlay", "-p", "oracle", "--seeds", 2, "--jobs", 2, "--json")
    document = json.loads(out)
    assert (code, document["outlay"], document["world"]) == (OK, "contest/1", "small")
    assert [each["policy"] for each in document["policies"]] == ["outlay", "oracle"]
    assert document["policies"][0]["n"] > 30
    assert 0 <= document["policies"][0]["on_time"] <= 1


def test_a_page_needs_nothing_else(world: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    code, _, _ = outlay("simulate", world, "-p", "outlay", "--seeds", 2, "--jobs", 1, "--html", page)
    html = page.read_text()
    assert code == OK
    assert "http" not in html.replace("http-equiv", "")
    assert "<script" not in html
    assert "Reliability of outlay" in html


def test_accounts_of_a_run_can_be_explained(world: Path, tmp_path: Path) -> None:
    log = tmp_path / "run.jsonl"
    code, _, said = outlay("simulate", world, "-p", "outlay", "--seeds", 1, "--accounts", log)
    assert code == OK
    assert "next: outlay explain" in said
    code, out, _ = outlay("explain", log, "--json")
    moment = json.loads(out)["moments"][0]
    assert (code, moment["moment"]) == (OK, "voice")
    assert {row["entry"] for row in moment["account"]} >= {
        "llm/infer.prefill",
        "llm/infer.decode",
        "client/uplink.floor",
    }


def test_logged_decisions_come_out_the_same_and_other_rules_change_some(world: Path, tmp_path: Path) -> None:
    log = tmp_path / "decisions.jsonl"
    assert outlay("simulate", world, "-p", "outlay", "--seeds", 1, "--decisions", log)[0] == OK
    code, out, _ = outlay("simulate", "--replay", log, "--json")
    again = json.loads(out)
    assert (code, again["same"]) == (OK, again["decisions"])
    assert again["decisions"] > 30
    strict = tmp_path / "strict.yaml"
    strict.write_text(WORLD.replace("    useful: 10", "    useful: 10\n    ladder: {p_min: 0.9999, p_floor: 0.9999}"))
    code, out, _ = outlay("simulate", strict, "--replay", log)
    assert code == OK
    assert "by the rules of strict" in out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "which world?"),
        (["missing.yaml"], "missing.yaml"),
        (["WORLD", "-p", "p3c"], "did you mean p2c?"),
        (["WORLD", "--accounts", "x.jsonl"], "--policy outlay --seeds 1"),
        (["WORLD", "-p", "p2c", "--seeds", "1", "--decisions", "x.jsonl"], "makes no decisions"),
    ],
)
def test_what_is_wrong_is_said_with_what_to_do(world: Path, arguments: list[str], says: str) -> None:
    code, out, err = outlay("simulate", *(str(world) if each == "WORLD" else each for each in arguments))
    assert code == USAGE
    assert says in out + err


def test_a_world_with_problems_is_refused_with_all_of_them_and_their_lines(tmp_path: Path) -> None:
    broken = tmp_path / "broken.yaml"
    broken.write_text(WORLD.replace("local: london", "local: paris").replace("london: 2", "atlantis: 2"))
    code, out, err = outlay("simulate", broken)
    assert code == USAGE
    assert "broken.yaml:9" in out + err
    assert "broken.yaml:13" in out + err


def test_a_log_that_is_none_is_refused(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    log.write_text('{"a": 1}\n')
    code, out, err = outlay("simulate", "--replay", log)
    assert code == REFUSED
    assert "line 1" in out + err


def test_policies_are_listed() -> None:
    code, out, _ = outlay("simulate", "--list")
    assert code == OK
    assert {"outlay", "prequal", "litellm-latency", "edge-only", "oracle"} <= {
        line.split()[0] for line in out.splitlines()
    }


def test_a_plan_is_made_and_tried(world: Path) -> None:
    code, out, err = outlay("plan", world, "--seeds", 1)
    assert code == OK
    assert "every percentile held in the simulator" in out
    assert "trying" in err
    assert "No round-trip time is known" not in out, "Atlantis is no offer, for nobody has a way to it"


def test_a_plan_that_cannot_hold_says_by_how_much(world: Path, tmp_path: Path) -> None:
    tight = tmp_path / "tight.yaml"
    tight.write_text(WORLD.replace("within: 900ms", "within: 100ms"))
    code, out, _ = outlay("plan", tight, "--seeds", 0)
    assert code == FAIL
    assert "too slow" in out
    code, out, _ = outlay("plan", tight, "--seeds", 0, "--json")
    assert json.loads(out)["shortfalls"][0]["missing_ns"] > 0


def test_budgets_of_another_file_take_the_place_of_the_world_s(world: Path, tmp_path: Path) -> None:
    budget = tmp_path / "outlay.yaml"
    budget.write_text("moments: {voice: {within: 100ms}}\n")
    assert outlay("plan", world, "--seeds", 0, "--budget", budget)[0] == FAIL
    budget.write_text("moments: {other: {within: 100ms}}\n")
    code, _, err = outlay("plan", world, "--seeds", 0, "--budget", budget)
    assert (code, "no budget for a moment" in err) == (USAGE, True)


@pytest.mark.parametrize(
    ("arguments", "key"),
    [
        (["--site", "london"], "site"),
        (["--sessions", "voice", "--every", "8s"], "sessions"),
        (["--pool", "0.5"], "pools"),
        (["--nines"], "nines"),
    ],
)
def test_questions_have_answers_for_people_and_for_programs(world: Path, arguments: list[str], key: str) -> None:
    code, out, _ = outlay("plan", world, *arguments)
    assert code == OK
    assert max(map(len, out.splitlines())) <= 80
    code, out, _ = outlay("plan", world, *arguments, "--json")
    assert (code, json.loads(out)["outlay"]) == (OK, "plan/1")
    assert key in json.loads(out)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--site", "londn"], "did you mean london?"),
        (["--sessions", "chat"], "the world has the moments voice"),
        (["--sessions", "voice", "--every", "soon"], "--every"),
        (["--pool", "0"], "not above 0"),
    ],
)
def test_questions_that_make_no_sense_say_so(world: Path, arguments: list[str], says: str) -> None:
    code, out, err = outlay("plan", world, *arguments)
    assert code == USAGE
    assert says in out + err


@pytest.mark.parametrize("path", sorted((ROOT / "examples/worlds").glob("*.yaml")), ids=lambda path: path.stem)
def test_every_shipped_world_runs(path: Path) -> None:
    from outlay.cli.simulate import world_of
    from outlay.sim.policies import try_policy

    shipped = world_of(str(path))
    from dataclasses import replace

    run = try_policy(replace(shipped, until_ns=shipped.warm_up_ns + 5_000_000_000), "outlay", 0)
    assert run.results
