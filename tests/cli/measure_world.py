"""`outlay measure` as a user runs it, and the server that it runs against."""

import json
import os
import re
import signal
import socket
import statistics
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.request import urlopen

OUTLAY = (sys.executable, "-m", "outlay")


@contextmanager
def serving(*arguments: str) -> Iterator[str]:
    """The address of a reference server."""
    command = [sys.executable, "-m", "outlay.lab.mockllm", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(timeout=10)


def truth(server: str) -> dict[str, dict[str, Any]]:
    """What the server did, by the id of each request."""
    with urlopen(f"{server}/truth", timeout=10) as answer:
        return {record["id"]: record for record in map(json.loads, answer.read().splitlines())}


@contextmanager
def listening(reply: bytes) -> Iterator[tuple[str, list[bytes]]]:
    """A server's address, and what it was asked: to each connection it reads once, replies and closes.

    Without a reply it closes at once.
    """
    asked: list[bytes] = []

    def serve(listener: socket.socket) -> None:
        with suppress(OSError):  # the listener is shut at the end
            while True:
                connection, _ = listener.accept()
                with connection:
                    if reply:
                        asked.append(connection.recv(1 << 20))
                        connection.sendall(reply)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = Thread(target=serve, args=(listener,))
        server.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}", asked
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            server.join(timeout=10)


@dataclass(frozen=True)
class Ran:
    """One run: its exit code, what it said, and its log."""

    code: int
    out: str
    err: str
    log: Path

    @property
    def document(self) -> dict[str, Any]:
        assert self.code in (0, 4, 130), self.err
        whole: dict[str, Any] = json.loads(self.out)
        return whole

    @property
    def point(self) -> dict[str, Any]:
        (point,) = self.document["points"]
        return dict(point)

    @property
    def interactions(self) -> list[dict[str, Any]]:
        return [line for line in self._lines() if line["outlay"] == "interaction/1"]

    def p50_ns(self, mark: str) -> float:
        """The median from the intended start to a mark, of those that have it; the report may have refused it."""
        took = [at_ns - each["start_ns"] for each in self.interactions if (at_ns := instant(each, mark)) is not None]
        return statistics.median(took)

    @property
    def loads(self) -> list[dict[str, Any]]:
        return [line for line in self._lines() if line["outlay"] == "load/1"]

    def _lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.log.read_bytes().splitlines()]


def leaves(value: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    """Each value that holds no other, with the last key above it."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from leaves(inner, name)
    elif isinstance(value, list):
        for inner in value:
            yield from leaves(inner, key)
    else:
        yield key, value


def environment(**more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("OUTLAY_")}
    return kept | {"COLUMNS": "80", "NO_COLOR": "1"} | more


def measure(
    folder: Path, *arguments: str, env: Mapping[str, str] | None = None, log: str | None = None, as_json: bool = True
) -> Ran:
    """Run it in a folder of its own."""
    path = folder / "run.jsonl"
    command = [*OUTLAY, "measure", *arguments, "--log", log or str(path), *(["--json"] if as_json else [])]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=60, cwd=folder, env=environment(**(env or {})), check=False
    )
    return Ran(done.returncode, done.stdout, done.stderr, path)


def screen(written: bytes) -> tuple[list[str], int]:
    """The lines that stand on a terminal when all this was written, and how long the longest of all lines was."""
    lines, row, longest = [""], 0, 0
    for moved, control, plain in re.findall(r"\x1b\[\??(\d*)([A-Za-z])|([^\x1b\r\n]+|\n)", written.decode()):
        if control == "A":
            row -= int(moved or 1)
        elif control == "K":
            lines[row] = ""
        elif plain == "\n":
            row += 1
            lines += [""] * (row + 1 - len(lines))
        else:
            lines[row] += plain  # a carriage return comes only before a line is cleared or ended
            longest = max(longest, len(lines[row]))
    return [line for line in lines if line], longest


def measure_all(folder: Path, asked: Mapping[str, Sequence[str]]) -> dict[str, Ran]:
    """Several runs by name, two at a time: what they take is mostly their start."""

    def one(name: str) -> Ran:
        own = folder / str(list(asked).index(name))
        own.mkdir()
        return measure(own, *asked[name])

    with ThreadPoolExecutor(2) as pool:
        return dict(zip(asked, pool.map(one, asked), strict=True))


def instant(interaction: Mapping[str, Any], name: str) -> int | None:
    return next((mark["at_ns"] for mark in interaction["marks"] if mark["name"] == name), None)


def refused_in_one_line(ran: Ran) -> str:
    """The only line on standard error of a command that was not understood; nothing was printed."""
    assert (ran.code, ran.out) == (2, ""), ran.err
    (line,) = ran.err.splitlines()
    match = re.fullmatch(r"outlay: (.*)", line)
    assert match is not None, line
    return match[1]


def some(server: str, model: str, *more: str) -> Sequence[str]:
    """A short run: 20 requests, one each 5 ms."""
    return (server, "--model", model, "--rate", "200", "--requests", "20", "--arrivals", "constant", *more)
