"""The server whose log is the truth: the project's own reference server, or a program in C that spares a core."""

import contextlib
import csv
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import IO

from outlay.units import NS_PER_MS, NS_PER_S, from_ms
from peers.figures import Figures, Span, Spread, Truth, spread

TOKENS = 32
FIRST_NS = from_ms(20)
BEAT_NS = from_ms(5)
END_NS = FIRST_NS + (TOKENS - 1) * BEAT_NS
STALL_NS = NS_PER_S
STALL_EVERY_NS = 10 * NS_PER_S
_PATIENCE_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """One answer as the server saw it. None: it did not come so far, or the log does not say."""

    arrival_ns: int
    first_ns: int | None
    last_ns: int | None
    gaps_ns: tuple[int, ...] | None


@dataclass(slots=True)
class Running:
    """A server that runs: where, since when, and how to end it and get its log."""

    url: str
    started_ns: int
    process: subprocess.Popen[str]
    realtime: bool
    stop: Callable[[], list[Answered]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A kind of server. `stall_at_ns` is where in each period it stands still; `holds` whether that holds back also
    the taking up of a request, or only the frames that fall due."""

    name: str
    stall_model: str
    stall_at_ns: int
    holds: bool

    def model(self, *, stalls: bool) -> str:
        """The model that answers with 32 tokens, the first after 20 ms, then one every 5 ms."""
        return f"mock-t20-i5-n{TOKENS}" + (self.stall_model if stalls else "")

    def stalls(self, started_ns: int, from_ns: int, to_ns: int) -> tuple[Span, ...]:
        """When it stood still within a stretch of time, without what lies outside, and without less than 0.1 s."""
        begin_ns = started_ns + self.stall_at_ns
        periods = range(max(0, (from_ns - begin_ns) // STALL_EVERY_NS), (to_ns - begin_ns) // STALL_EVERY_NS + 1)
        begins = [begin_ns + period * STALL_EVERY_NS for period in periods]
        found = (Span(from_ns=max(begin, from_ns), to_ns=min(begin + STALL_NS, to_ns)) for begin in begins)
        return tuple(span for span in found if span.to_ns - span.from_ns >= STALL_NS // 10)

    def expected(self, started_ns: int, arrivals_ns: list[int]) -> Spread:
        """By arithmetic: how long answers take, from these arrivals to the last token, with the stalls and no noise."""
        return spread(self._end(started_ns, arrival) - arrival for arrival in arrivals_ns)

    def _end(self, started_ns: int, arrival_ns: int) -> int:
        begun = self._after_stall(started_ns, arrival_ns) if self.holds else arrival_ns
        return self._after_stall(started_ns, begun + END_NS)

    def _after_stall(self, started_ns: int, at_ns: int) -> int:
        into = (at_ns - started_ns - self.stall_at_ns) % STALL_EVERY_NS
        return at_ns - into + STALL_NS if into < STALL_NS else at_ns


OURS = Kind(name="mockllm", stall_model="-s1000@10000", stall_at_ns=STALL_EVERY_NS - STALL_NS, holds=False)
IN_C = Kind(name="C", stall_model="-vS", stall_at_ns=0, holds=True)


@contextlib.contextmanager
def serving(program: Path | None, folder: Path) -> Iterator[Running]:
    """A fresh server on a free port of loopback: the program in C where one is given, else the project's own.

    Raises RuntimeError when it does not come up.
    """
    running = _start_in_c(program, folder / "truth.csv") if program else _start_ours()
    try:
        yield running
    finally:
        _end(running.process)


def truth_of(answers: list[Answered]) -> Truth:
    """The log of a run as figures. Gaps that the log does not hold are the beat that the server keeps."""
    whole = [answer for answer in answers if answer.first_ns is not None and answer.last_ns is not None]
    gaps = [gap for answer in whole for gap in answer.gaps_ns or (BEAT_NS,)]
    ends = [answer.last_ns or answer.first_ns or answer.arrival_ns for answer in answers]
    return Truth(
        figures=Figures(
            ttft=spread(answer.first_ns - answer.arrival_ns for answer in answers if answer.first_ns is not None),
            e2e=spread(answer.last_ns - answer.arrival_ns for answer in answers if answer.last_ns is not None),
            gap=spread(gaps),
            mean_gap=spread(_mean_gap(answer) for answer in whole),
        ),
        requests=len(answers),
        whole=len(whole),
        first_ns=min((answer.arrival_ns for answer in answers), default=None),
        last_ns=max(ends, default=None),
    )


def _mean_gap(answer: Answered) -> int:
    assert answer.first_ns is not None
    assert answer.last_ns is not None
    return (answer.last_ns - answer.first_ns) // (TOKENS - 1)


def _realtime() -> list[str]:
    """A prefix for a command: a core and a priority of its own; empty where that is not allowed."""
    prefix = ["taskset", "-c", "0", "chrt", "-r", "10"]
    if not all(shutil.which(name) for name in ("taskset", "chrt")):
        return []
    return prefix if subprocess.run([*prefix, "true"], check=False, capture_output=True).returncode == 0 else []


def _start_ours() -> Running:
    prefix = _realtime()
    command = [*prefix, sys.executable, "-m", "outlay.lab.mockllm", "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    url = _first_line(process.stdout)
    if not url:
        _end(process)
        raise RuntimeError("the reference server did not start")

    def stop() -> list[Answered]:
        with urllib.request.urlopen(f"{url}/truth", timeout=60) as answer:
            lines = answer.read().splitlines()
        _end(process)
        return [_read_ours(line) for line in lines]

    return Running(url, time.monotonic_ns(), process, bool(prefix), stop)


def _first_line(stream: IO[str]) -> str:
    return stream.readline().strip()


def _read_ours(line: bytes) -> Answered:
    record = json.loads(line)
    instants = [frame["written_ns"] for frame in record.get("frames", ()) if frame["tokens"]]
    done = record.get("ended") == "done"
    return Answered(
        arrival_ns=record["received_ns"],
        first_ns=instants[0] if instants else None,
        last_ns=instants[-1] if instants and done else None,
        gaps_ns=tuple(after - before for before, after in pairwise(instants)),
    )


def _start_in_c(program: Path, log: Path) -> Running:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    prefix = _realtime()
    started_ns = time.monotonic_ns()
    process = subprocess.Popen([*prefix, str(program), str(port), str(log)], text=True)
    if not _answers(port):
        _end(process)
        raise RuntimeError(f"{program} did not start")

    def stop() -> list[Answered]:
        _end(process)
        with log.open(encoding="utf-8") as lines:
            return [_read_in_c(row) for row in csv.DictReader(lines)]

    return Running(f"http://127.0.0.1:{port}", started_ns, process, bool(prefix), stop)


def _answers(port: int) -> bool:
    until_ns = time.monotonic_ns() + int(_PATIENCE_S * NS_PER_S)
    while time.monotonic_ns() < until_ns:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return True
        time.sleep(5 * NS_PER_MS / NS_PER_S)
    return False


def _read_in_c(row: dict[str, str]) -> Answered:
    """A row of its log; it writes 0 for an instant that did not come."""
    chunks = int(row["chunks"])
    return Answered(
        arrival_ns=int(row["arrival_ns"]),
        first_ns=int(row["first_ns"]) if chunks else None,
        last_ns=int(row["last_ns"]) if chunks == TOKENS else None,
        gaps_ns=None,
    )


def _end(process: subprocess.Popen[str]) -> None:
    if process.poll() is None:
        os.kill(process.pid, signal.SIGTERM)
    try:
        process.wait(_PATIENCE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if process.stdout is not None:
        process.stdout.close()
