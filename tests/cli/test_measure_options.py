"""What options of `outlay measure` mean together, and what is said of those that cannot be."""

from pathlib import Path
from typing import Any

import pytest
import typer

from outlay.cli.app import app
from outlay.cli.measure_options import Job, Mistake, Numbers, describe, job_of, judged_of
from outlay.units import NS_PER_MS, NS_PER_S

COMMAND = typer.main.get_command(app).commands["measure"]  # type: ignore[attr-defined] # a group has commands


def given(*arguments: str) -> dict[str, Any]:
    return dict(COMMAND.make_context("measure", list(arguments)).params)


def job(*arguments: str) -> Job:
    return job_of(given("http://host:8000", "--model", "m", *arguments))


def mistake(*arguments: str) -> str:
    with pytest.raises(Mistake) as caught:
        judged_of(job_of(given(*arguments)))
    text = str(caught.value)
    assert "\n" not in text
    return text


@pytest.fixture(autouse=True)
def _no_keys(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("OUTLAY_API_KEY", raising=False)
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("url", "api", "path"),
    [
        ("http://host", "chat", "/v1/chat/completions"),
        ("http://host/v1", "chat", "/v1/chat/completions"),
        ("http://host/v1/responses", "responses", "/v1/responses"),
        ("http://host/proxy/v1/completions?x=1", "completions", "/proxy/v1/completions?x=1"),
        ("http://host/analyse", "http", "/analyse"),
        ("ws://host/v1/realtime", "websocket", "/v1/realtime?model=m"),
        ("wss://host/v1/realtime?model=other", "websocket", "/v1/realtime?model=other"),
    ],
)
def test_the_path_shows_the_api(url: str, api: str, path: str):
    made = job_of(given(url, "--model", "m"))
    assert (made.ask.api, made.points[0].path) == (api, path)


def test_the_usual_load_is_a_trickle_for_half_a_minute():
    load = job().load
    assert (load.rate, load.for_ns, load.requests, load.lanes) == (2.0, 30 * NS_PER_S, None, None)
    assert describe(load, 60) == "poisson arrivals, 2 a second for 30 s, 60 requests, seed 1"


def test_a_number_of_requests_has_no_duration_unless_both_are_given():
    assert job("--requests", "5").load.for_ns is None
    both = job("--requests", "5", "--duration", "2s").load
    assert (both.requests, both.for_ns) == (5, 2 * NS_PER_S)
    assert job("--concurrency", "4").load.for_ns == 30 * NS_PER_S


def test_several_senders_for_high_rates_and_never_more_than_lanes():
    assert job().senders == 1
    assert job("--senders", "8", "--concurrency", "3").senders == 3


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "what is to be measured?"),
        (("ftp://x", "--model", "m"), "not an address"),
        (("http://u:p@x", "--model", "m"), "environment variable"),
        (("http://x",), "--model: the chat API wants one by name"),
        (("http://x", "--api", "soap"), "--api soap: known are chat"),
        (("http://x", "--path", "a=http://y"), "not both"),
        (("--path", "a=http://x", "--path", "a=http://y", "--model", "m"), "two points have the same name"),
        (("--path", "http//x", "--model", "m"), "--path: expected NAME=URL"),
        (("http://x", "--model", "m", "--rate", "0"), "--rate: requests a second"),
        (("http://x", "--model", "m", "--rate", "5", "--concurrency", "2"), "--rate and --concurrency"),
        (("http://x", "--model", "m", "--stages", "5rps:1s", "--duration", "3s"), "--stages say for how long already"),
        (("http://x", "--model", "m", "--duration", "5"), "--duration: '5' is not a duration"),
        (("http://x", "--model", "m", "--timeout", "0s"), "--timeout: expected a time above 0"),
        (("http://x", "--model", "m", "--arrivals", "burst"), "--arrivals burst: expected"),
        (("http://x", "--model", "m", "--arrivals", "gamma:-1"), "--arrivals gamma:-1: expected"),
        (("http://x", "--model", "m", "--replay", "a.csv", "--speed", "0"), "--speed: above 0"),
        (("http://x", "--model", "m", "--speed", "2"), "--speed goes with --replay"),
        (("http://x", "--model", "m", "--concurrency", "2", "--arrivals", "constant"), "--arrivals goes with --rate"),
        (("http://x", "--model", "m", "--until", "done"), "--until goes with WebSockets"),
        (("http://x", "--model", "m", "--file", "a.wav"), "--file goes with --api transcriptions"),
        (("http://x", "--model", "m", "--body", "a.json"), "--body goes with --api http"),
        (("http://x", "--model", "m", "--method", "GET"), "--method goes with --api http"),
        (("http://x/analyse", "--method", "A /b"), "--method A /b: known are GET"),
        (("http://x", "--model", "m", "--ca-file", "a.pem"), "--ca-file goes with https"),
        (("http://x", "--model", "m", "--insecure"), "--insecure goes with https"),
        (("https://x", "--model", "m", "--cert-key", "a.pem"), "--cert-key goes with --cert"),
        (("http://x", "--model", "m", "--percentile", "95"), "--percentile goes with --within"),
        (("http://x", "--model", "m", "--within", "1s", "--budget", "chat"), "--within and --budget"),
        (("http://x", "--model", "m", "--html", "none/a.html"), "--html none/a.html: no file can be written there"),
        (("http://x", "--model", "m", "--key-env", "NO_SUCH_KEY"), "--key-env: the environment has no variable"),
        (("http://x", "--model", "m", "--header", "broken"), "--header: expected NAME:VALUE"),
        (("http://x", "--model", "m", "--header", "a b: c"), "is not a header's name"),
        (("http://x", "--model", "m", "--header", "Host: y"), "Host: outlay writes this header itself"),
        (("http://x", "--model", "m", "--dim", "site"), "--dim: expected NAME=VALUE"),
        (("http://x", "--model", "m", "--dim", "cold=no"), "--dim cold: outlay writes it itself"),
        (("http://x", "--model", "m", "--body", "none.json", "--api", "http"), "--body none.json: No such file"),
        (("https://x", "--model", "m", "--ca-file", "none.pem"), "--ca-file none.pem: No such file"),
        (("http://x/v1/audio/transcriptions", "--model", "m"), "--file: a transcription needs a recording"),
        (("http://x", "--model", "m", "--to", "payment"), "--to payment: a client sees first_token"),
        (("http://x", "--model", "m", "--whole", "--to", "first_token"), "an answer at once has no first token"),
        (("http://x", "--model", "m", "--budget", "chat", "--moment", "tea"), "--moment: choose one of chat"),
    ],
)
def test_a_mistake_is_one_line_that_says_what_to_write(arguments: tuple[str, ...], says: str):
    assert says in mistake(*arguments)


@pytest.mark.parametrize("name", ["Authorization", "api-key", "X-API-Key", "Cookie", "proxy-authorization"])
def test_secrets_on_the_command_line_are_refused_and_not_repeated(name: str):
    said = mistake("http://x", "--model", "m", "--header", f"{name}: s3cr3t")
    assert "--header-env" in said
    assert "s3cr3t" not in said


def test_keys_come_from_the_environment(monkeypatch: pytest.MonkeyPatch):
    assert job().headers == ()
    monkeypatch.setenv("OUTLAY_API_KEY", "one")
    monkeypatch.setenv("OTHER", "two")
    assert job().headers == (("Authorization", "Bearer one"),)
    assert job("--key-env", "OTHER").headers == (("Authorization", "Bearer two"),)
    own = job("--header-env", "api-key:OTHER", "--header", "x-team: a:b")
    assert own.headers == (("x-team", "a:b"), ("api-key", "two"), ("Authorization", "Bearer one"))
    assert "two" not in repr(own)
    monkeypatch.setenv("OTHER", "a\r\nb")
    assert "a\r\nb" not in mistake("http://x", "--model", "m", "--key-env", "OTHER")


def test_the_name_of_a_model_may_hold_anything():
    assert job_of(given("ws://host", "--api", "websocket", "--model", "a&b c/d")).points[0].path == (
        "/v1/realtime?model=a%26b%20c%2Fd"
    )


def test_where_the_engines_page_is():
    assert job().metrics.url == "http://host:8000/metrics"
    assert job("--metrics", "off").metrics is None
    assert job("--metrics", "other:9000/m").metrics.url == "http://other:9000/m"


def test_a_limit_counts_to_the_first_output_unless_told_otherwise():
    judged = judged_of(job("--within", "800ms", "--percentile", "95"))
    assert (judged.within_ns, judged.moment.budget.percentile, judged.moment.end) == (
        800 * NS_PER_MS,
        95,
        "first_output_token",
    )
    assert judged_of(job()).moment.end is None
    assert judged_of(job("--within", "1s", "--to", "end")).moment.end is None
    # An answer at once can be seen when it is all there.
    assert judged_of(job("--within", "1s", "--whole")).moment.end is None


def test_a_moment_of_an_outlay_yaml_in_this_folder(tmp_path: Path):
    (tmp_path / "outlay.yaml").write_text(
        "moments:\n  reply: {to: first_token, within: 2s, percentile: 90}\n  other: {within: 1s, percentile: 99}\n"
    )
    judged = judged_of(job("--moment", "reply"))
    assert (judged.moment.name, judged.within_ns, judged.moment.end) == ("reply", 2 * NS_PER_S, "first_token")
    assert judged_of(job()).within_ns is None  # nobody asked for either
    # What stands on the command line wins over a file that only happens to lie here.
    assert judged_of(job("--moment", "reply", "--within", "1s")).within_ns == NS_PER_S
    assert "choose one of other, reply" in mistake("http://x", "--model", "m", "--budget", "outlay.yaml")


def test_every_round_visits_each_point_once_and_begins_one_further():
    numbers = Numbers(3)
    rounds = [[numbers.point_of(3 * round_ + place) for place in range(3)] for round_ in range(4)]
    assert rounds == [[0, 1, 2], [1, 2, 0], [2, 0, 1], [0, 1, 2]]


def test_trace_ids_are_unlike_and_of_the_form_of_w3c():
    first, second = Numbers(1), Numbers(1)
    ids = {numbers.trace_id(number) for numbers in (first, second) for number in range(50)}
    assert len(ids) == 100
    assert all(len(each) == 32 and int(each, 16) for each in ids)


def test_a_log_without_a_name_gets_one_that_no_file_has(tmp_path: Path):
    first = job().log
    (tmp_path / first).touch()
    # Within the same second the name would be the same.
    assert job().log not in (first,)
    assert first.suffix == ".jsonl"
