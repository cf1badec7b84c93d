"""How fast is an account, and how much memory does it take? Ratios within one run, against the floor.

    ./dev bench                    # 100 000 interactions, then 1 000 000 for memory: about 6 minutes
    ./dev bench --interactions 20000 --rounds 2 --quick

The floor decodes the same bytes and reads every field once, in one process: nothing can explain data with less. Each
measurement is a process of its own; floor and program alternate, so that a noisy minute hits both.
"""

import argparse
import json
import os
import platform
import random
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from time import perf_counter, process_time

SPANS = 12
MS = 1_000_000

# name, parent, component or service, host, kind, stage, start and end as shares of the whole
_TREE = (
    ("ask", None, "client", "phone", "client", None, 0.0, 1.0),
    ("POST /chat", 0, "gateway", "gw-1", "server", None, 0.04, 0.96),
    ("auth", 1, "gateway", "gw-1", "internal", "auth", 0.042, 0.05),
    ("route", 1, "gateway", "gw-1", "internal", "route", 0.05, 0.052),
    ("embed", 1, "retrieval", "gw-1", "internal", "preprocess", 0.054, 0.08),
    ("search", 1, "retrieval", "gw-1", "internal", "preprocess", 0.082, 0.12),
    ("chat", 1, "llm", "gw-1", "client", None, 0.122, 0.94),
    ("llm_request", 6, "llm", "gpu-1", "server", None, 0.126, 0.936),
    ("queue", 7, "llm", "gpu-1", "internal", "queue.wait", 0.126, 0.2),
    ("prefill", 7, "llm", "gpu-1", "internal", "infer.prefill", 0.2, 0.3),
    ("decode", 7, "llm", "gpu-1", "internal", "infer.decode", 0.3, 0.92),
    ("filter", 1, "gateway", "gw-1", "internal", "postprocess", 0.942, 0.958),
)
_OFFSET_NS = {"phone": 0, "gw-1": -37 * MS, "gpu-1": 12 * MS}


def world(count: int, seed: int = 1) -> Iterator[tuple[int, int, int, list[tuple[int, int]], tuple[int, int]]]:
    """`count` interactions at 50 a second: number, start, total, span times on each host's clock, token counts."""
    rng = random.Random(seed)
    start = 1_700_000_000_000_000_000
    for number in range(count):
        start += int(rng.expovariate(50) * 1e9)
        total = int(rng.lognormvariate(6, 0.5) * MS) + (rng.random() < 0.01) * 3000 * MS
        times = []
        for _, _, _, host, _, _, low, high in _TREE:
            shift = start + _OFFSET_NS[host]
            times.append((shift + int(low * total), shift + int(high * total) - rng.randrange(1000)))
        times[0] = (start, start + total)
        yield number, start, total, times, (rng.randrange(20, 4000), rng.randrange(5, 800))


def _span_id(number: int, place: int) -> str:
    return f"{number * SPANS + place + 1:016x}"


def write_log(path: Path, count: int) -> None:
    """The world as Outlay's own log."""
    from outlay.formats.log import write_line
    from outlay.interaction import Interaction, Span

    with path.open("wb") as out:
        for number, start, total, times, (tokens_in, tokens_out) in world(count):
            spans = tuple(
                Span(
                    id=_span_id(number, place),
                    parent=None if parent is None else _span_id(number, parent),
                    name=name,
                    component=component,
                    start_ns=times[place][0],
                    end_ns=times[place][1],
                    stage=stage,
                    kind=kind,  # type: ignore[arg-type] # a literal in the table
                    clock=host,
                )
                for place, (name, parent, component, host, kind, stage, _, _) in enumerate(_TREE)
            )
            interaction = Interaction(
                id=f"{number + 1:032x}",
                moment="chat",
                start_ns=start,
                end_ns=start + total,
                clock="phone",
                # 120 cohorts: 4 sites, 5 versions, 6 kinds of hardware
                dimensions={
                    "site": f"site-{number % 4}",
                    "version": f"1.{number % 5}",
                    "hardware": f"gpu-{number // 7 % 6}",
                },
                sizes={"input_tokens": tokens_in, "output_tokens": tokens_out},
                spans=spans,
            )
            out.write(write_line(interaction))


def write_protobuf(path: Path, count: int) -> None:
    """The world as OTLP protobuf: a ResourceSpans for each host of each 100 traces, as exporters send it."""
    from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, TracesData

    kinds = {"internal": 1, "server": 2, "client": 3}
    hosts = sorted(_OFFSET_NS)
    with path.open("wb") as out:
        groups: dict[str, ResourceSpans] = {}
        for number, _, _, times, (tokens_in, tokens_out) in world(count):
            for place, (name, parent, component, host, kind, stage, _, _) in enumerate(_TREE):
                group = groups.get(host)
                if group is None:
                    group = groups[host] = ResourceSpans()
                    for key, value in (
                        ("service.name", f"svc-{host}"),
                        ("host.name", host),
                        ("service.version", "1.4"),
                    ):
                        group.resource.attributes.add(key=key).value.string_value = value
                    group.scope_spans.add().scope.name = "bench"
                span = group.scope_spans[0].spans.add()
                span.trace_id = (number + 1).to_bytes(16, "big")
                span.span_id = (number * SPANS + place + 1).to_bytes(8, "big")
                if parent is not None:
                    span.parent_span_id = (number * SPANS + parent + 1).to_bytes(8, "big")
                span.name = name
                span.kind = kinds[kind]  # type: ignore[assignment] # an enum's number is its value
                span.start_time_unix_nano, span.end_time_unix_nano = times[place]
                span.attributes.add(key="thread.id").value.int_value = 7
                if stage:
                    span.attributes.add(key="outlay.stage").value.string_value = stage
                    span.attributes.add(key="outlay.component").value.string_value = component
                if name == "llm_request":
                    span.attributes.add(key="gen_ai.usage.input_tokens").value.int_value = tokens_in
                    span.attributes.add(key="gen_ai.usage.output_tokens").value.int_value = tokens_out
            if number % 100 == 99 or number == count - 1:
                out.write(
                    TracesData(resource_spans=[groups[host] for host in hosts if host in groups]).SerializeToString()
                )
                groups = {}


def floor_log(path: Path) -> int:
    """Decode every line into the program's own record type and read every field once."""
    import msgspec

    from outlay.interaction import Interaction

    decode = msgspec.json.Decoder(Interaction).decode
    count = 0
    with path.open("rb") as lines:
        for line in lines:
            it = decode(line)
            _ = it.id, it.moment, it.start_ns, it.end_ns, it.clock, it.outcome
            _ = tuple(it.dimensions.items()), tuple(it.sizes.items()), tuple(it.marks), tuple(it.notes)
            for span in it.spans:
                _ = span.id, span.parent, span.name, span.component, span.start_ns, span.end_ns
                _ = span.stage, span.kind, span.clock, span.follows
            count += 1
    return count


def floor_protobuf(path: Path) -> int:
    """Parse the file as one message after another and read every field of every span once."""
    from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans

    from outlay.formats.otlp import _messages

    count = 0
    with path.open("rb") as stream:
        for body in _messages(stream):
            group = ResourceSpans.FromString(body)
            for item in group.resource.attributes:
                _ = item.key, getattr(item.value, str(item.value.WhichOneof("value")))
            for scope in group.scope_spans:
                _ = scope.scope.name
                for span in scope.spans:
                    _ = span.trace_id, span.span_id, span.parent_span_id, span.name, span.kind
                    _ = span.start_time_unix_nano, span.end_time_unix_nano, span.status.code
                    for item in span.attributes:
                        _ = item.key, getattr(item.value, str(item.value.WhichOneof("value")))
                    for event in span.events:
                        _ = event.name, event.time_unix_nano
                    for link in span.links:
                        _ = link.trace_id, link.span_id
                    count += 1
    return count


def explain(path: Path, jobs: int, by: tuple[str, ...]) -> int:
    """What `outlay explain --json` does."""
    from outlay.cli.run import gather_paths
    from outlay.explain import Question, build_report
    from outlay.render.machine import to_json

    found = gather_paths([str(path)], Question(by=by), (), jobs=jobs)
    to_json(build_report(found.gathering, found.sources))
    return sum(cohorts.everything.measured for cohorts in found.gathering.moments.values())


FORMATS: dict[str, Callable[[Path, int], None]] = {"log": write_log, "protobuf": write_protobuf}
BY = ("site", "version", "hardware")
TASKS: dict[str, Callable[[Path], int]] = {
    "floor log": floor_log,
    "floor protobuf": floor_protobuf,
    "one": lambda path: explain(path, 1, ()),
    "one by": lambda path: explain(path, 1, BY),
    "all": lambda path: explain(path, os.cpu_count() or 1, ()),
}


def measured(task: str, path: Path) -> dict[str, float]:
    """Run one task in a process of its own: wall and CPU seconds of the work, and the peak memory of the largest."""
    done = subprocess.run(
        [sys.executable, __file__, "--task", task, str(path)], check=True, capture_output=True, text=True
    )
    result: dict[str, float] = json.loads(done.stdout)
    return result


def run_task(task: str, path: Path) -> None:
    import resource

    import scipy.special  # noqa: F401 - importing is not what is measured

    import outlay.cli.run  # noqa: F401 - nor is this

    begun, cpu = perf_counter(), process_time()
    count = TASKS[task](path)
    wall = perf_counter() - begun
    peak = max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    print(json.dumps({"count": count, "wall_s": wall, "cpu_s": process_time() - cpu, "peak_mib": peak / 1024}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--interactions", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", choices=FORMATS, help="one format; both by default")
    parser.add_argument("--quick", action="store_true", help="leave out the million")
    parser.add_argument("--task", nargs=2, metavar=("TASK", "FILE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.task:
        run_task(options.task[0], Path(options.task[1]))
        return
    with tempfile.TemporaryDirectory() as folder:
        formats = {options.only: FORMATS[options.only]} if options.only else FORMATS
        print(f"{platform.platform()}, Python {platform.python_version()}, {os.cpu_count()} cores")
        print(f"{options.interactions} x {SPANS} spans")
        for form in formats:
            speed(form, Path(folder) / form, options.interactions, options.rounds)
        if not options.quick:
            memory(formats, Path(folder), options.interactions)


def speed(form: str, path: Path, count: int, rounds: int) -> None:
    """Every task on one format, in turns, and their ratios to the floor of the same round."""
    FORMATS[form](path, count)
    # Only the log's world has the dimensions that make 120 cohorts.
    tasks = [f"floor {form}", "one", "all", *(["one by"] if form == "log" else [])]
    runs: dict[str, list[dict[str, float]]] = {task: [] for task in tasks}
    for _ in range(rounds):
        for task in tasks:
            runs[task].append(measured(task, path))
    print(f"\n{form}, {path.stat().st_size / 2**20:.0f} MiB")
    for task in tasks:
        row(task, runs[task], runs[tasks[0]], count)
    if "one by" in runs:
        ratios = [by["wall_s"] / one["wall_s"] for by, one in zip(runs["one by"], runs["one"], strict=True)]
        spread = f"({min(ratios):.2f} to {max(ratios):.2f})"
        print(f"  120 cohorts against none: x {statistics.median(ratios):.2f} {spread}")
    path.unlink()


def row(task: str, runs: list[dict[str, float]], floors: list[dict[str, float]], count: int) -> None:
    ratios = [run["wall_s"] / floor["wall_s"] for run, floor in zip(runs, floors, strict=True)]
    wall = statistics.median(run["wall_s"] for run in runs)
    peak = max(run["peak_mib"] for run in runs)
    print(
        f"  {task:15} {wall:7.2f} s  {count / wall:9,.0f}/s  x floor {statistics.median(ratios):5.2f} "
        f"({min(ratios):.2f} to {max(ratios):.2f})  peak {peak:5.0f} MiB"
    )


def memory(formats: Iterable[str], folder: Path, count: int) -> None:
    """Peak memory of one process, at the given number and ten times it."""
    print("\npeak memory of one process")
    for form in formats:
        for size in (count, 10 * count):
            path = folder / form
            FORMATS[form](path, size)
            run = measured("one", path)
            print(f"  {form:9} {size:9,}  {run['peak_mib']:5.0f} MiB  {run['wall_s']:6.1f} s")
            path.unlink()


if __name__ == "__main__":
    main()
