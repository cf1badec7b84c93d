"""How true is what a load tool says? `outlay measure` beside others, each against the log of the server it asked.

    python bench/measure.py acc rate stall --peers DIR --mock PATH --out runs.jsonl
    python bench/measure.py --report runs.jsonl

Every run has a fresh server on loopback. One thing runs at a time, and the tools take turns within a round, so that a
noisy minute hits them all. Nothing else should run on the machine; the CPU that others took is noted with every run.
"""

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from outlay.units import NS_PER_S, from_s
from peers.figures import Record, Said, Truth
from peers.servers import IN_C, OURS, TOKENS, Kind, serving, truth_of
from peers.table import tables
from peers.tokenizer import write_tokenizer
from peers.tools import TOOLS, Load, Place, Tool

RATES = (50, 100, 200, 400, 500, 800)
_PATIENCE_S = 120.0  # beyond the load itself: some tools take a quarter of a minute to start


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One run: `rate` a second for `duration_s`, or else `requests` one after the other."""

    scenario: str
    tool: Tool
    round: int
    rate: int | None = None
    duration_s: int = 0
    requests: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What is the same for all runs. `program` None: the project's own server."""

    peers: Path
    tokenizer: Path
    program: Path | None
    kind: Kind


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """A tool that came to its end: when it began, what it and its processes cost, how it ended when not well."""

    begun_ns: int
    cpu_ns: int
    ended: str | None


def jobs(options: argparse.Namespace, tools: Sequence[Tool]) -> Iterator[Job]:
    """All runs in order: in each round every load, and for each load every tool."""
    loads: Mapping[str, list[dict[str, Any]]] = {
        "acc": [{"requests": options.requests}],
        "rate": [{"rate": rate, "duration_s": options.rate_seconds} for rate in options.rates],
        "stall": [{"rate": 40, "duration_s": options.stall_seconds}],
    }
    for number in range(1, options.rounds + 1):
        for scenario in options.scenarios:
            for load in loads[scenario]:
                for tool in tools:
                    yield Job(scenario=scenario, tool=tool, round=number, **load)


def measured(job: Job, setting: Setting, version: str) -> Record:
    """Do one run. What went wrong stands in the record's `error`."""
    with tempfile.TemporaryDirectory(prefix="outlay-bench-") as name:
        folder = Path(name)
        others_ns, begun_ns = _others_ns(), time.monotonic_ns()
        with serving(setting.program, folder) as server:
            place = Place(peers=setting.peers, tokenizer=setting.tokenizer, folder=folder)
            spent = _run(job, _load(job, setting.kind, server.url), place)
            truth = truth_of(server.stop())
        others = (_others_ns() - others_ns) / (time.monotonic_ns() - begun_ns)
        said, error = _report(job.tool, folder)
        record = Record(
            scenario=job.scenario,
            tool=job.tool.name,
            version=version,
            server=setting.kind.name,
            realtime=server.realtime,
            round=job.round,
            rate=job.rate,
            duration_s=job.duration_s or None,
            said=said,
            truth=truth,
            start_ns=None if truth.first_ns is None else truth.first_ns - spent.begun_ns,
            cpu_ns=spent.cpu_ns,
            others_cores=round(max(0.0, others), 2),
            error="; ".join(filter(None, (error and spent.ended, error))) or None,
        )
    return _with_stalls(record, setting.kind, server.started_ns) if job.scenario == "stall" else record


def _load(job: Job, kind: Kind, url: str) -> Load:
    return Load(
        url=url,
        model=kind.model(stalls=job.scenario == "stall"),
        output_tokens=TOKENS,
        rate=job.rate,
        duration_s=job.duration_s,
        requests=job.requests,
    )


def _run(job: Job, load: Load, place: Place) -> Spent:
    """Run the tool to its end. One that takes far too long is ended, with the processes that it started."""
    command, variables = job.tool.command(load, place)
    environment = {**os.environ, **job.tool.environment, **variables}
    with (place.folder / "stdout").open("wb") as out, (place.folder / "stderr").open("wb") as err:
        spent_ns, begun_ns = _own_ns(), time.monotonic_ns()
        process = subprocess.Popen(
            command, stdout=out, stderr=err, cwd=place.folder, env=environment, start_new_session=True
        )
        ended = None
        try:
            code = process.wait(job.duration_s + _PATIENCE_S)
            ended = f"exit code {code}" if code else None
        except subprocess.TimeoutExpired:
            ended = "took too long"
        finally:
            _end_session(process)
    return Spent(begun_ns=begun_ns, cpu_ns=_own_ns() - spent_ns, ended=ended)


def _end_session(process: subprocess.Popen[bytes]) -> None:
    """End what a tool left running, also when it is this program that was interrupted."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _report(tool: Tool, folder: Path) -> tuple[Said, str | None]:
    """The tool's own report, or why there is none, with the end of what it printed."""
    try:
        return tool.read(folder), None
    except (OSError, ValueError, LookupError, TypeError) as error:
        printed = "".join((folder / name).read_text(errors="replace") for name in ("stdout", "stderr"))
        return Said(), f"no report ({type(error).__name__}: {error}); it printed: {printed[-300:]!r}"


def _with_stalls(record: Record, kind: Kind, started_ns: int) -> Record:
    """What the run must show by arithmetic, if every request had come when it should, from the first on."""
    truth: Truth = record.truth
    if truth.first_ns is None or truth.last_ns is None or not record.rate or not record.duration_s:
        return record
    count = record.rate * record.duration_s
    arrivals_ns = [truth.first_ns + NS_PER_S * place // record.rate for place in range(count)]
    return msgspec.structs.replace(
        record,
        expected=kind.expected(started_ns, arrivals_ns),
        stalls=kind.stalls(started_ns, truth.first_ns, truth.last_ns),
    )


def _own_ns() -> int:
    """CPU of this process and of all that it waited for."""
    return from_s(sum(os.times()[:4]))


def _others_ns() -> int:
    """CPU that this machine has spent on anything else: all that the kernel counts, in ticks, less `_own_ns`."""
    ticks = Path("/proc/stat").read_text(encoding="ascii").split(maxsplit=8)[1:8]
    user, nice, system, _idle, _iowait, hard, soft = map(int, ticks)
    return (user + nice + system + hard + soft) * NS_PER_S // os.sysconf("SC_CLK_TCK") - _own_ns()


def _chosen(names: str | None, peers: Path) -> list[Tool]:
    """The tools to run: those named, else all that are installed. Exits where one is missing."""
    wanted = names.split(",") if names else [name for name, tool in TOOLS.items() if tool.installed(peers)]
    for name in wanted:
        if name not in TOOLS or not TOOLS[name].installed(peers):
            sys.exit(f"{name} is not below {peers}; there can be {', '.join(TOOLS)}")
    return [TOOLS[name] for name in wanted]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenarios", nargs="*", help="acc, rate, stall; all of them when none is given")
    parser.add_argument("--peers", type=Path, default=Path("peers"), help="where bench/peers/install.sh put the tools")
    parser.add_argument("--tools", help="only these, with commas; by default all that are installed")
    parser.add_argument("--mock", type=Path, help="a server in C that logs the truth; the project's own by default")
    parser.add_argument("--out", type=Path, help="append every run here as a line of JSON")
    parser.add_argument("--report", type=Path, help="run nothing, print the tables of such a file")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rates", type=lambda text: [int(rate) for rate in text.split(",")], default=list(RATES))
    parser.add_argument("--requests", type=int, default=100, help="of acc")
    parser.add_argument("--rate-seconds", type=int, default=8)
    parser.add_argument("--stall-seconds", type=int, default=30)
    options = parser.parse_args()
    options.scenarios = options.scenarios or ["acc", "rate", "stall"]
    unknown = set(options.scenarios) - {"acc", "rate", "stall"}
    if unknown:
        parser.error(f"there is no scenario {', '.join(sorted(unknown))}")
    return options


def main() -> None:
    options = _options()
    if options.report:
        lines = options.report.read_bytes().splitlines()
        print(tables([msgspec.json.decode(line, type=Record) for line in lines]))
        return
    peers = options.peers.resolve()
    tools = _chosen(options.tools, peers)
    versions = {tool.name: tool.version(peers) for tool in tools}
    records = []
    with tempfile.TemporaryDirectory(prefix="outlay-bench-") as name:
        tokenizer = Path(name) / "tokenizer"
        write_tokenizer(tokenizer)
        program = options.mock and options.mock.resolve()
        setting = Setting(peers=peers, tokenizer=tokenizer, program=program, kind=IN_C if program else OURS)
        for job in jobs(options, tools):
            records.append(measured(job, setting, versions[job.tool.name]))
            line = msgspec.json.encode(records[-1])
            print(line.decode(), flush=True)
            if options.out:
                with options.out.open("ab") as out:
                    out.write(line + b"\n")
    print(tables(records))


if __name__ == "__main__":
    main()
