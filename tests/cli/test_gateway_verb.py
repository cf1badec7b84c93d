"""`outlay gateway` as its users start it: what it says of a file, and how it stops."""

import hashlib
import json
import re
import signal
import socket
import subprocess
import sys
from http.client import HTTPConnection
from pathlib import Path

import pytest
from typer.testing import CliRunner

from outlay.cli.app import app

TARGETS = """
sites: {here: {}}
targets:
  a: {url: "http://127.0.0.1:9", site: here, speed: {prefill: 1000, step: 1ms}, key: OUTLAY_KEY_OF_A}
gateway: {listen: "127.0.0.1:18080"}
"""


@pytest.mark.parametrize(
    ("content", "arguments", "message"),
    [
        ("moments: {a: {within: 1s}}", (), "needs `sites` and `targets`"),
        (TARGETS.replace("site: here", "site: there"), (), "outlay.yaml:4: targets.a.site: unknown site there"),
        (TARGETS, (), "the environment has no OUTLAY_KEY_OF_A"),
        (TARGETS, ("--listen", "80"), "--listen: expected an address such as 127.0.0.1:8080, got 80"),
    ],
)
def test_a_file_that_cannot_be_served_is_told_in_a_line(
    tmp_path: Path, content: str, arguments: tuple[str, ...], message: str
) -> None:
    file = tmp_path / "outlay.yaml"
    file.write_text(content)
    outcome = CliRunner().invoke(app, ["gateway", str(file), *arguments])
    assert outcome.exit_code == 2
    assert message in outcome.stderr.replace("\n", " ")


def test_without_a_file_it_says_what_to_do() -> None:
    outcome = CliRunner().invoke(app, ["gateway"])
    assert (outcome.exit_code, "try: outlay gateway outlay.yaml" in outcome.stderr) == (2, True)
    assert CliRunner().invoke(app, ["gateway", "nowhere.yaml"]).exit_code == 2


def test_a_new_key_comes_with_its_digest() -> None:
    key, digest = re.findall(r"^\w+ +(\S+)$", CliRunner().invoke(app, ["gateway", "--new-key"]).stdout, re.MULTILINE)
    assert hashlib.sha256(key.encode()).hexdigest() == digest


def test_it_serves_logs_and_stops_in_good_order(tmp_path: Path) -> None:
    file, log = tmp_path / "outlay.yaml", tmp_path / "access.jsonl"
    file.write_text(
        TARGETS.replace(", key: OUTLAY_KEY_OF_A", "").replace(
            'listen: "127.0.0.1:18080"', f"access_log: {log}, within: 1s"
        )
    )
    command = [sys.executable, "-m", "outlay", "gateway", str(file), "--listen", "127.0.0.1:1"]
    command[-1] = f"127.0.0.1:{_free_port()}"
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            address = process.stdout.readline().strip()
            connection = HTTPConnection(address.removeprefix("http://"), timeout=20)
            connection.request("POST", "/v1/chat/completions", b'{"model": "auto", "messages": ["secret"]}')
            answer = connection.getresponse()
            assert (answer.status, "cannot be reached" in json.load(answer)["error"]["message"]) == (502, True)
            connection.close()
            process.send_signal(signal.SIGTERM)
            _, errors = process.communicate(timeout=30)
        finally:
            process.kill()
    assert (process.returncode, errors) == (0, "outlay: stopping when what is under way has ended\n")
    (line,) = log.read_text().splitlines()
    entry = json.loads(line)
    assert (entry["outcome"], entry["status"], entry["tries"]) == ("error", 502, 1)
    assert "secret" not in line


def test_a_port_that_is_taken_is_told(tmp_path: Path) -> None:
    file = tmp_path / "outlay.yaml"
    file.write_text(TARGETS.replace(", key: OUTLAY_KEY_OF_A", ""))
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        sock.listen()
        address = f"127.0.0.1:{sock.getsockname()[1]}"
        command = [sys.executable, "-m", "outlay", "gateway", str(file), "--listen", address]
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith(f"outlay: {address}: ")


def _free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])
