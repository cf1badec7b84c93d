"""`outlay measure` against a server that does what the name of a model says, and keeps the truth of it."""

import json
import os
import pty
import re
import signal
import socket
import statistics
import subprocess
import time
import wave
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from threading import Thread

import pytest
import trustme
from measure_world import (
    OUTLAY,
    Ran,
    environment,
    instant,
    leaves,
    listening,
    measure,
    measure_all,
    refused_in_one_line,
    screen,
    serving,
    some,
    truth,
)
from typer.testing import CliRunner
from websockets.sync.server import ServerConnection, serve

from outlay.cli.app import app
from outlay.cli.measure_options import LoadPlan
from outlay.cli.schedules import draw
from outlay.units import NS_PER_MS, NS_PER_S


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with serving() as address:
        yield address


def ok(ran: Ran) -> bool:
    return ran.point["outcomes"] == {"ok": 20}


# What is asked, and what is seen of the answer


EMBEDDINGS = "/v1/embeddings"
STREAMS = ("", "/v1/completions", "/v1/responses")


@pytest.fixture(scope="module")
def streamed(server: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Ran]:
    asked = {path: some(f"{server}{path}", "mock-t5-i1-n8") for path in (*STREAMS, EMBEDDINGS)}
    return measure_all(tmp_path_factory.mktemp("streams"), asked)


@pytest.mark.parametrize("path", STREAMS)
def test_streams_of_each_api(streamed: dict[str, Ran], path: str):
    ran = streamed[path]
    assert ok(ran)
    assert ran.p50_ns("first_token") >= 5 * NS_PER_MS
    # Seven gaps of a millisecond after the first token.
    assert ran.p50_ns("last_token") >= 12 * NS_PER_MS
    assert {each["sizes"]["output_tokens"] for each in ran.interactions} == {8}


def test_every_stamp_lies_after_what_the_server_did(server: str, tmp_path: Path):
    ran = measure(tmp_path, *some(server, "mock-t20-i5-n4"))
    known = truth(server)
    # The id of a request is a trace id, and the server got it.
    assert len({each["id"] for each in ran.interactions}) == 20
    assert all(re.fullmatch("[0-9a-f]{32}", each["id"]) for each in ran.interactions)
    # One clock for both: the log's wall clock is the monotonic one, moved by one offset for the whole run.
    first_token, last_token, sent = [], [], []
    for each in ran.interactions:
        frames = known[each["id"]]["frames"]
        first_token.append(instant(each, "first_token") - frames[0]["written_ns"])
        last_token.append(instant(each, "last_token") - frames[-1]["written_ns"])
        sent.append(known[each["id"]]["received_ns"] - instant(each, "written"))
    offset = max(value for value in sent)  # received after it was written: the offset is at least this much below 0
    assert all(value + offset >= 0 for value in first_token + last_token)
    assert statistics.median(first_token) + statistics.median(sent) < 5 * NS_PER_MS
    assert statistics.median(last_token) + statistics.median(sent) < 5 * NS_PER_MS


def test_the_schedule_that_a_seed_draws_is_kept_to_the_nanosecond(server: str, tmp_path: Path):
    ran = measure(tmp_path, server, "--model", "mock", "--rate", "200", "--requests", "40", "--seed", "7")
    starts = sorted(each["start_ns"] for each in ran.interactions)
    drawn = draw(LoadPlan(rate=200, requests=40, seed=7), 1)
    assert [start - starts[0] for start in starts] == [each.at_ns - drawn[0].at_ns for each in drawn]


@pytest.mark.parametrize(
    ("model", "first_ms", "output_ms"),
    [
        ("mock-t20-i5-n8-role-empty-comment-usage", 20, 20),
        ("mock-t20-i5-n8-tool-k4", 20, 20),
        ("mock-t20-i5-n8-r4", 20, 40),  # four tokens of reasoning come first
    ],
)
def test_odd_frames_do_not_move_the_first_token(server: str, tmp_path: Path, model: str, first_ms: int, output_ms: int):
    ran = measure(tmp_path, *some(server, model))
    assert ok(ran)
    assert first_ms * NS_PER_MS <= ran.p50_ns("first_token") < (first_ms + 15) * NS_PER_MS
    assert output_ms * NS_PER_MS <= ran.p50_ns("first_output_token") < (output_ms + 15) * NS_PER_MS


def test_an_answer_at_once_has_no_first_token(server: str, tmp_path: Path):
    ran = measure(tmp_path, *some(server, "mock-t5-i1-n8"), "--whole")
    assert ok(ran)
    assert "ttft" not in ran.point["series"]
    assert all(instant(each, "first_token") is None for each in ran.interactions)
    assert ran.p50_ns("last_byte") >= 12 * NS_PER_MS
    # The server says what it took: that is its own row, and the rest is network.
    assert ran.point["network"]["reported"] == 20


def test_embeddings_come_whole(streamed: dict[str, Ran]):
    ran = streamed[EMBEDDINGS]
    assert ok(ran)
    assert ran.p50_ns("last_byte") >= 5 * NS_PER_MS
    assert all(instant(each, "first_token") is None for each in ran.interactions)


def test_speech_counts_to_the_first_sound(server: str, tmp_path: Path):
    """20 ms of sound a token, the first 100 ms of it silent: the sixth token holds the first sound, 5 gaps later."""
    ran = measure(tmp_path, *some(f"{server}/v1/audio/speech", "mock-t10-i4-n10-q100"))
    assert ok(ran)
    assert 10 * NS_PER_MS <= ran.p50_ns("first_token") < 30 * NS_PER_MS
    assert ran.p50_ns("first_output_token") >= 30 * NS_PER_MS
    assert {each["moment"] for each in ran.interactions} == {"speech"}


def test_a_recording_is_transcribed(server: str, tmp_path: Path):
    with wave.open(str(tmp_path / "a.wav"), "wb") as out:
        out.setparams((1, 2, 16_000, 0, "NONE", ""))
        out.writeframes(bytes(3200))
    url = f"{server}/v1/audio/transcriptions"
    ran = measure(tmp_path, *some(url, "mock-t5-i1-n4"), "--file", "a.wav")
    assert ok(ran)
    assert ran.p50_ns("first_token") >= 5 * NS_PER_MS


def test_turns_on_a_websocket(server: str, tmp_path: Path):
    ran = measure(tmp_path, *some(server.replace("http", "ws") + "/v1/realtime", "mock-t5-i1-n8"))
    assert ok(ran)
    assert ran.p50_ns("first_output_token") >= 5 * NS_PER_MS
    assert ran.p50_ns("last_token") >= 12 * NS_PER_MS
    assert any(instant(each, "upgraded") for each in ran.interactions)


def test_a_websocket_that_ends_after_each_turn_fails_nobody(tmp_path: Path):
    """A turn may begin on one that the server is just closing, and be tried again on another such one."""

    def turn(connection: ServerConnection) -> None:
        connection.recv()
        connection.send("done")

    (tmp_path / "turn.txt").write_text("hello\n")
    asked = ("--body", "turn.txt", "--until", "done", "--rate", "500", "--requests", "100", "--metrics", "off")
    with serve(turn, "127.0.0.1", 0) as ending:
        thread = Thread(target=ending.serve_forever)
        thread.start()
        ran = measure(tmp_path, f"ws://127.0.0.1:{ending.socket.getsockname()[1]}", *asked)
        ending.shutdown()
        thread.join(timeout=10)
    assert ran.point["outcomes"] == {"ok": 100}


def test_a_body_of_ones_own(server: str, tmp_path: Path):
    body = '{"model": "{{model}}", "stream": true, "messages": [{"role": "user", "content": "{{prompt}} {{id}}"}]}'
    (tmp_path / "body.json").write_text(body)
    url = f"{server}/v1/chat/completions"
    ran = measure(tmp_path, *some(url, "mock-t5-i1-n4"), "--api", "http", "--body", "body.json")
    assert ok(ran)
    assert ran.p50_ns("first_token") >= 5 * NS_PER_MS


def test_tls_with_an_authority_of_ones_own_and_without(tmp_path: Path):
    authority = trustme.CA()
    issued = authority.issue_cert("localhost")
    issued.private_key_pem.write_to_path(tmp_path / "key.pem")
    issued.cert_chain_pems[0].write_to_path(tmp_path / "cert.pem")
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    with serving("--cert", str(tmp_path / "cert.pem"), "--key", str(tmp_path / "key.pem")) as address:
        url = address.replace("127.0.0.1", "localhost")
        asked = some(url, "mock-t5")
        ran = measure_all(tmp_path, {"trusted": [*asked, "--ca-file", str(tmp_path / "ca.pem")], "refused": asked})
        trusted, refused = ran["trusted"], ran["refused"]
        assert ok(trusted)
        assert {each["name"] for each in trusted.point["network"]["setup"]} >= {"dns", "connect", "tls"}
        assert refused.code == 4
        (why,) = refused.point["reasons"]
        assert why.startswith("TLS failed")


# How requests end


FAILURES = {
    "mock-e429": ("refused", "status 429"),
    "mock-e500": ("error", "status 500"),
    "mock-t1-i1-n8-cut3": ("error", "cut"),
    "mock-t1-i1-n8-err3": ("error", ""),
    "mock-no-such-part": ("error", "status 400"),
}


@pytest.fixture(scope="module")
def failed(server: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Ran]:
    return measure_all(tmp_path_factory.mktemp("failures"), {model: some(server, model) for model in FAILURES})


@pytest.mark.parametrize("model", FAILURES)
def test_failures_are_results_with_a_reason(failed: dict[str, Ran], model: str):
    ran, (outcome, why) = failed[model], FAILURES[model]
    assert ran.code == 4  # nobody got an answer
    assert ran.point["outcomes"] == {outcome: 20}
    assert all(why in each for each in ran.point["reasons"])
    assert ran.point["series"]["end_to_end"].get("p50_ns", "inf") == "inf"


def test_whoever_waits_too_long_has_failed(server: str, tmp_path: Path):
    ran = measure(tmp_path, *some(server, "mock-t5000"), "--timeout", "100ms")
    assert ran.point["outcomes"] == {"timeout": 20}
    assert all(each["end_ns"] - each["start_ns"] >= 100 * NS_PER_MS for each in ran.interactions)


def test_nobody_listens(tmp_path: Path):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    ran = measure(tmp_path, *some(f"http://127.0.0.1:{port}", "m"))
    assert (ran.code, ran.point["reasons"]) == (4, {"no connection: Connection refused": 20})


def test_a_name_that_nobody_has(tmp_path: Path):
    # No label of a name is so long, so nobody need be asked.
    ran = measure(tmp_path, *some(f"http://{'a' * 64}.invalid", "m"), as_json=False)
    assert ran.code == 4
    assert "20 x the name was not found" in ran.out


@pytest.mark.parametrize(
    ("reply", "why"),
    [
        (b"", "connection reset: the server (closed the connection|broke the connection off)"),
        (b"220 ready\r\n", "the answer is not HTTP: .*"),
        (b"HTTP/1.1 302 Found\r\nlocation: /x\r\ncontent-length: 0\r\n\r\n", "status 302: redirect, not followed"),
    ],
)
def test_servers_that_are_none(tmp_path: Path, reply: bytes, why: str):
    with listening(reply) as (address, _):
        ran = measure(tmp_path, *some(address, "m"), "--metrics", "off")
    assert (ran.code, ran.point["outcomes"]) == (4, {"error": 20})
    assert all(re.fullmatch(why, each) for each in ran.point["reasons"]), ran.point["reasons"]


# Whether the load counts


def test_waiting_at_the_server_is_response_and_waiting_for_a_connection_is_lateness(server: str, tmp_path: Path):
    """20 requests in 0.1 s, 30 ms each, one at a time: the last is answered after 0.6 s at the earliest."""
    queued = measure(tmp_path, *some(server, "mock-t30-n1-slots1"))
    assert max(instant(each, "begun") - each["start_ns"] for each in queued.interactions) < 400 * NS_PER_MS
    assert max(each["end_ns"] - each["start_ns"] for each in queued.interactions) >= 500 * NS_PER_MS
    pooled = measure(tmp_path, *some(server, "mock-t30-n1"), "--connections", "1")
    assert pooled.code == 4
    assert pooled.document["verdict"] == "INVALID"
    assert "p50_ns" not in pooled.point["series"]["end_to_end"]
    (half, *_) = pooled.point["series"]["end_to_end"]["bounds"]
    low_ns, high_ns = half["interval_ns"]
    # On its own each takes 30 ms. When the tenth of them is answered 300 ms have passed, and it was due after 45 ms.
    assert 30 * NS_PER_MS <= low_ns < 60 * NS_PER_MS
    assert high_ns >= 200 * NS_PER_MS


def test_of_an_invalid_load_no_percentile_is_printed(server: str, tmp_path: Path):
    ran = measure(tmp_path, *some(server, "mock-t30-n1"), "--connections", "1", as_json=False)
    assert ran.code == 4
    verdict, *rest = ran.out.splitlines()[3:]
    assert "INVALID" in verdict
    assert "lies in" in ran.out
    assert "Where the time goes" not in ran.out
    # Where nobody watches there is no live view.
    assert ran.err == f"Log: {ran.log} (outlay explain {ran.log})\n"
    assert max(map(len, ran.out.splitlines())) <= 80
    # A row of percentiles would begin like this; those of bounds have a range in each cell.
    assert [line for line in rest if line.startswith("  end to end") and " to " not in line] == []
    shown = CliRunner(env={"NO_COLOR": "1", "COLUMNS": "80"}).invoke(app, ["explain", str(ran.log)])
    assert "INVALID" in shown.stdout
    assert "refused" in shown.stdout


def test_explain_says_the_same_of_the_log(server: str, tmp_path: Path):
    """300 requests are enough for a p99; with 0.3 s each, 60 ms of lateness are still no reason to refuse it."""
    asked = ("--model", "mock-t300-n1", "--rate", "300", "--requests", "300", "--arrivals", "constant")
    ran = measure(tmp_path, server, *asked, "--site", "lon", "--dim", "version=7")
    (load,) = ran.loads
    assert (load["tool"], load["requests"], load["dimensions"]) == ("outlay", 300, {"site": "lon", "version": "7"})
    report = json.loads(CliRunner().invoke(app, ["explain", str(ran.log), "--json", "--by", "site"]).stdout)
    (told,), (moment,) = report["loads"], report["moments"]
    assert told["verdict"] == ran.document["verdict"]
    measured = ran.point["series"]["end_to_end"]
    levels = ("p50_ns", "p95_ns", "p99_ns")
    assert [moment["total"][level] for level in levels] == [measured[level] for level in levels]
    assert [row["key"] for row in moment["cohorts"]] == [{"site": "lon"}]


def test_logs_of_two_sites_merge(server: str, tmp_path: Path):
    asked = {site: some(server, "mock-t5", "--site", site) for site in ("lon", "fra")}
    logs = [str(ran.log) for ran in measure_all(tmp_path, asked).values()]
    report = json.loads(CliRunner().invoke(app, ["explain", *logs, "--json", "--by", "site"]).stdout)
    (moment,) = report["moments"]
    assert {row["key"]["site"]: row["n"] for row in moment["cohorts"]} == {"lon": 20, "fra": 20}
    assert len(report["loads"]) == 2


# What is sent when


def test_stages_have_loads_of_their_own(server: str, tmp_path: Path):
    asked = (
        server,
        "--model",
        "mock-t1-n1",
        "--stages",
        "50rps:400ms,0rps:100ms,100rps:300ms",
        "--arrivals",
        "constant",
    )
    ran = measure(tmp_path, *asked)
    assert ran.point["planned"] == 50
    names = [load["dimensions"].get("stage") for load in ran.loads]
    assert names == [None, "stage 1, 50 a second", "stage 2, 100 a second"]
    stages = [each["dimensions"]["stage"] for each in ran.interactions]
    assert (stages.count(names[1]), stages.count(names[2])) == (20, 30)


def test_a_recording_is_replayed_with_its_lengths(server: str, tmp_path: Path):
    rows = ["TIMESTAMP,ContextTokens,GeneratedTokens"]
    rows += [f"2023-11-16 18:15:46.{place:02}00000,{10 + place},{2 + place % 3}" for place in range(20)]
    (tmp_path / "azure.csv").write_text("\n".join(rows) + "\n")
    ran = measure(tmp_path, server, "--model", "mock-t1-i1-n9", "--replay", "azure.csv", "--speed", "2")
    assert ran.point["planned"] == 20
    starts = sorted(each["start_ns"] for each in ran.interactions)
    # Ten ms apart in the recording, five at twice the speed.
    assert {later - earlier for earlier, later in pairwise(starts)} == {5 * NS_PER_MS}


def test_what_a_recorded_request_asks_for_is_sent(tmp_path: Path):
    (tmp_path / "trace.jsonl").write_text('{"at_ms": 0, "input_tokens": 12, "output_tokens": 34}\n')
    with listening(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n") as (address, asked):
        measure(tmp_path, address, "--model", "m", "--replay", "trace.jsonl", "--metrics", "off")
    (request,) = asked
    body = json.loads(request.partition(b"\r\n\r\n")[2])
    assert body["max_tokens"] == 34
    assert len(body["messages"][0]["content"].split()) == 12


@pytest.mark.parametrize("how", [("--requests", "30"), ("--duration", "400ms")])
def test_a_closed_loop(server: str, tmp_path: Path, how: tuple[str, str]):
    ran = measure(tmp_path, server, "--model", "mock-t10-n1", "--concurrency", "3", *how)
    assert set(ran.point["outcomes"]) == {"ok"}
    assert ran.document["plan"].startswith("closed loop, 3 at once")
    spans = sorted((each["start_ns"], each["end_ns"]) for each in ran.interactions)
    running = [sum(start <= at < end for start, end in spans) for at, _ in spans]
    assert max(running) <= 3
    assert (ran.document["warm_up"]["n"], ran.point["planned"]) == (0, len(spans))
    if how[0] == "--requests":
        assert len(spans) == 30


def test_the_warm_up_is_kept_apart(server: str, tmp_path: Path):
    ran = measure(tmp_path, *some(server, "mock-t1-n1"), "--warm-up", "50ms", "--within", "1s")
    # Of 20 requests, one each 5 ms from 0 on, ten start before 50 ms.
    assert (ran.point["planned"], ran.document["warm_up"]["n"]) == (10, 10)
    moments = [each["moment"] for each in ran.interactions]
    assert (moments.count("llm-request"), moments.count("llm-request warm-up")) == (10, 10)
    # The document begins with its version; nanoseconds are whole, or "inf" for what never comes; the unknown is absent.
    assert next(iter(ran.document)) == "outlay"
    known = list(leaves(ran.document))
    assert {type(value) for key, value in known if key.endswith("_ns")} <= {int, str}
    assert None not in [value for _, value in known]


def test_requests_after_a_pause_are_a_class(server: str, tmp_path: Path):
    ran = measure(tmp_path, *some(server, "mock-t200-n1"), "--idle", "200ms,100ms")
    assert ran.point["planned"] == 22
    labels = [each["dimensions"]["cold"] for each in ran.interactions]
    assert (labels.count("idle 200 ms"), labels.count("idle 100 ms")) == (1, 1)
    assert {effect["name"] for effect in ran.document["cold"]} >= {"first", "idle 200 ms", "idle 100 ms"}


def test_what_a_hop_costs(server: str, tmp_path: Path):
    """Two points on one server: there is no hop, but its cost is measured."""
    asked = ("--path", f"outer={server}", "--path", f"inner={server}", "--model", "mock-t500-n1")
    ran = measure(tmp_path, *asked, "--rate", "200", "--requests", "60", "--arrivals", "constant")
    outer, inner = ran.document["points"]
    assert (outer["name"], inner["name"], outer["planned"], inner["planned"]) == ("outer", "inner", 30, 30)
    (hop,) = ran.document["hops"]
    assert (hop["outer"], hop["inner"], hop["n"]) == ("outer", "inner", 30)
    low_ns, high_ns = hop["typical"]["interval_ns"]
    assert low_ns <= hop["typical"]["value_ns"] <= high_ns
    # Each round begins with the other point.
    order = [each["dimensions"]["point"] for each in sorted(ran.interactions, key=lambda each: each["start_ns"])]
    assert order[:6] == ["outer", "inner", "inner", "outer", "outer", "inner"]


def test_on_time_counts_to_the_mark_that_was_asked_for(server: str, tmp_path: Path):
    limited = some(server, "mock-t400-i100-n2-r2", "--within", "500ms")
    ran = measure_all(tmp_path, {"first": [*limited, "--to", "first_token"], "shown": limited})
    assert ran["first"].document["on_time"]["share"] == 1
    shown = ran["shown"]  # to the first output, at 600 ms
    assert shown.document["on_time"]["share"] == 0
    (moment,) = shown.document["report"]["moments"]
    assert moment["verdict"] == "FAIL"


def test_a_budget_from_a_preset(server: str, tmp_path: Path):
    ran = measure(tmp_path, *some(server, "mock-t200-n2"), "--budget", "chat")
    (moment,) = ran.document["report"]["moments"]
    assert (moment["moment"], moment["budget"]["limit_ns"]) == ("chat", NS_PER_S)
    assert ran.document["on_time"]["share"] == 1


# What is kept, and what is not


def test_a_request_carries_its_id_and_keys_and_neither_they_nor_words_are_kept(tmp_path: Path):
    """Even where the server says them again in its error."""
    words, keys = "a very private question", {"OUTLAY_API_KEY": "sk-one", "OTHER": "sk-two"}
    body = b'{"error": {"code": "bad", "message": "a very private question from sk-one and sk-two"}}'
    reply = b"HTTP/1.1 400 Bad Request\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body)
    asked = ("--model", "m", "--prompt", words, "--requests", "1", "--rate", "100", "--metrics", "off")
    own = ("--header", "Content-Type: text/x", "--header-env", "api-key:OTHER")
    with listening(reply) as (address, requests):
        ran = measure(tmp_path, address, *asked, *own, env=keys)
    head, _, sent = requests[0].partition(b"\r\n\r\n")
    named = [line.partition(b": ") for line in head.split(b"\r\n")[1:]]
    fields = {name.decode().lower(): value.decode() for name, _, value in named}
    assert len(fields) == len(named)  # each once
    (interaction,) = ran.interactions
    assert re.fullmatch(f"00-{interaction['id']}-0*1-01", fields["traceparent"])
    assert (fields["content-type"], fields["api-key"]) == ("text/x", "sk-two")
    assert fields["authorization"] == "Bearer sk-one"
    assert json.loads(sent)["messages"] == [{"role": "user", "content": words}]
    assert ran.point["reasons"] == {"status 400: bad": 1}
    assert [each for each in (words, *keys.values()) if each in ran.log.read_text() + ran.out + ran.err] == []


def test_a_full_disk_costs_the_log_and_not_the_numbers(server: str, tmp_path: Path):
    ran = measure(tmp_path, *some(server, "mock"), log="/dev/full")
    assert ran.code == 2
    assert json.loads(ran.out)["points"][0]["outcomes"] == {"ok": 20}
    assert "/dev/full: No space left on device" in ran.err


def test_a_log_that_cannot_be_made_is_said_before_anything_is_sent(server: str, tmp_path: Path):
    ran = measure(tmp_path, *some(server, "mock"), log=str(tmp_path / "none" / "x.jsonl"))
    assert refused_in_one_line(ran).endswith("none/x.jsonl: No such file or directory")


def test_a_log_replaces_only_a_log(server: str, tmp_path: Path):
    (tmp_path / "notes.txt").write_text("mine")
    ran = measure(tmp_path, *some(server, "mock"), log=str(tmp_path / "notes.txt"))
    assert refused_in_one_line(ran).endswith(
        "notes.txt: this file is no log of outlay and is not replaced; write another name"
    )
    assert (tmp_path / "notes.txt").read_text() == "mine"
    (tmp_path / "run.jsonl").write_text('{"outlay":"interaction/1"}\n' * 30)
    assert len(measure(tmp_path, *some(server, "mock")).interactions) == 20


@contextmanager
def under_way(server: str, log: Path) -> Iterator["subprocess.Popen[str]"]:
    """A run of which some requests are back, in a process group of its own."""
    command = [*OUTLAY, "measure", server, "--model", "mock-t5-n2", "--rate", "100", "--log", str(log), "--json"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(), start_new_session=True
    ) as process:
        while not (log.exists() and log.stat().st_size > 5000):
            assert process.poll() is None, process.communicate()
            time.sleep(0.02)
        yield process


# A terminal sends it to all processes of the group, and timeout(1) and service managers do.
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_keeps_what_was_measured(server: str, tmp_path: Path, number: int):
    log = tmp_path / "run.jsonl"
    with under_way(server, log) as process:
        os.killpg(process.pid, number)
        out, err = process.communicate(timeout=20)
    ran = Ran(process.returncode, out, err, log)
    assert (ran.code, ran.document["stopped"]) == (130, True)
    assert ran.point["outcomes"]["ok"] >= 5
    assert CliRunner().invoke(app, ["explain", str(log)]).exit_code == 0


def test_a_second_interrupt_ends_it_at_once_and_leaves_a_log(server: str, tmp_path: Path):
    log = tmp_path / "run.jsonl"
    with under_way(server, log) as process:
        for _ in range(2):
            os.killpg(process.pid, signal.SIGINT)
            time.sleep(0.005)
        _, err = process.communicate(timeout=20)
    # A shell calls it 130, whether Python ended with that number or by the signal itself.
    assert process.returncode in (130, -signal.SIGINT)
    assert "Traceback" not in err
    assert CliRunner().invoke(app, ["explain", str(log)]).exit_code == 0


def test_a_sender_that_dies_is_said(server: str, tmp_path: Path):
    log = tmp_path / "run.jsonl"
    with under_way(server, log) as process:
        (child,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        os.kill(int(child), signal.SIGKILL)
        out, err = process.communicate(timeout=20)
    assert (process.returncode, out) == (4, "")
    assert err == "outlay: a sender process died; what came back until then is in the log\n"
    assert CliRunner().invoke(app, ["explain", str(log)]).exit_code == 0


def test_whoever_reads_only_the_begin_is_left_alone(server: str, tmp_path: Path):
    """As `| head` does: standard output is closed before all of it is written."""
    log = tmp_path / "run.jsonl"
    with under_way(server, log) as process:
        assert process.stdout is not None
        process.stdout.close()
        os.killpg(process.pid, signal.SIGTERM)
        assert process.stderr is not None
        assert process.stderr.read() == ""
    assert process.returncode == 0
    assert CliRunner().invoke(app, ["explain", str(log)]).exit_code == 0


# On a terminal


def test_the_live_view_fits_and_leaves_nothing_behind(server: str, tmp_path: Path):
    asked = (server, "--model", "mock-t5-n2", "--rate", "100", "--duration", "1s", "--within", "1s")
    command = [*OUTLAY, "measure", *asked, "--log", "x"]
    ours, other = pty.openpty()
    env = environment(TERM="xterm")
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=other, env=env, cwd=tmp_path) as process:
        os.close(other)
        seen = b""
        while True:
            try:
                piece = os.read(ours, 4096)
            except OSError:
                break
            if not piece:
                break
            seen += piece
        process.communicate(timeout=20)
    os.close(ours)
    assert b"back" in seen
    assert b"on time" in seen
    left, longest = screen(seen)
    assert left == ["Log: x (outlay explain x)"]
    assert longest <= 80
