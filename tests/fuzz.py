"""Throw bytes at every parser, and account for whatever comes out.

`python tests/fuzz.py [SECONDS] [--codec NAME]` bends the files of tests/data and tests/fuzz_corpus. Where atheris is
installed it guides by coverage, else what an input makes a parser say does. Nothing but FormatError and SpecError may
escape, no input may take longer than LIMIT_S, and every interaction must sum to the nanosecond, survive the log and
give a report.

An input that makes a parser say something new is made small and kept in tests/fuzz_corpus/CODEC; test_fuzz.py replays
those. One that breaks a promise is named with its traceback and kept in a folder outside, and the exit code is 1.
"""

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from functools import cache, partial
from hashlib import blake2b
from io import BytesIO
from pathlib import Path
from random import Random
from typing import Any, NoReturn

from google.protobuf.json_format import ParseDict
from opentelemetry.proto.trace.v1.trace_pb2 import TracesData

try:
    import atheris
except ImportError:
    atheris = None

# Only a run has use for the counters that atheris puts into the code.
with atheris.instrument_imports(include=["outlay"]) if atheris and __name__ == "__main__" else nullcontext():
    from outlay.assembly import Assembler, wanted_keys
    from outlay.explain import Gathering, Question, build_report
    from outlay.formats import log, otlp
    from outlay.formats.codec import FormatError, Item, Shard
    from outlay.formats.reading import JSON_CODECS, read, splits
    from outlay.formats.spec import SpecError, load_spec
    from outlay.interaction import KINDS, NOTE_KINDS, OUTCOMES, Interaction, Note
    from outlay.load import Load
    from outlay.mapping import Rules
    from outlay.render.machine import to_json
    from outlay.stages import stage_names
    from outlay.trace import TraceSpan

DATA, CORPUS = Path(__file__).parent / "data", Path(__file__).parent / "fuzz_corpus"
FAILURES = Path(tempfile.gettempdir()) / "outlay-fuzz"

LIMIT_S = 5.0
# The corpus is committed and replayed by every test run: it has to stay small.
MOST_BYTES, MOST_FILES_A_CODEC = 1000, 24
LARGEST_INPUT = 6000

WANTED = wanted_keys(Rules(), ())
REFUSALS = (FormatError, SpecError)

# What a parser said of one input, in words that do not depend on its numbers and names.
Features = frozenset[str]


# What is promised


def features_of(codec: str, raw: bytes) -> Features:
    """Parse, account and check. Raises whatever breaks a promise."""
    begun = time.monotonic()
    try:
        found = _spec_features(raw) if codec == "spec" else _data_features(list(PARSERS[codec](raw)))
    except REFUSALS as refusal:
        found = {f"refused: {_plain(str(refusal))}"}
    if time.monotonic() - begun > LIMIT_S:
        raise TimeoutError(f"{len(raw)} bytes took more than {LIMIT_S} s")
    return frozenset(found)


def _spec_features(raw: bytes) -> set[str]:
    spec = load_spec(raw, "outlay.yaml")
    return {f"{len(spec.moments)} moments", f"{len(spec.rules)} rules"}


def _read(raw: bytes) -> Iterator[Item]:
    splits(BytesIO(raw))
    return read(BytesIO(raw), WANTED).items


# Each takes the whole bytes of an input, as its codec gets them from `reading`.
PARSERS: dict[str, Callable[[bytes], Iterator[Item]]] = {
    **{codec.name: partial(lambda parse, raw: parse(raw, WANTED), codec.parse) for codec in JSON_CODECS},
    log.NAME: lambda raw: log.parse_lines(raw.split(b"\n")),
    otlp.PROTOBUF_NAME: lambda raw: otlp.parse_protobuf(BytesIO(raw), WANTED, Shard()),
    "reading": _read,
}
CODECS = (*PARSERS, "spec")


def _data_features(items: list[Item]) -> set[str]:
    return {feature for item in items for feature in _item_features(item)} | _account_for(items)


def _item_features(item: Item) -> Iterator[str]:
    match item:
        case Note():
            assert item.kind in NOTE_KINDS
            yield f"{item.kind}: {_plain(item.text)}"
        case TraceSpan():
            assert item.attributes.keys() <= WANTED
            yield f"span: {item.kind} {item.follows} {item.failed} {item.parent is None} {item.end_ns is None}"
            yield f"events: {min(len(item.events), 2)}"
        case Interaction():
            yield f"interaction: {item.outcome} {item.start_ns is None} {item.end_ns is None}"
            yield from (f"stage: {(part.stage or '').partition('.')[0]}" for part in (*item.marks, *item.spans))
        case Load():
            assert item.requests or item.moment is None
            yield f"load: {item.verdict.state} {item.moment is None} {len(item.bounds)} {len(item.claimed_ns)}"


def _account_for(items: list[Item]) -> set[str]:
    """The troubles and terms of the report that the items give; every list in it sums."""
    gathering = Gathering(Question(by=("site", "shape"), slowest=50))
    # A trace may be complete early, so that late spans are met too.
    assembler = Assembler(Rules(), (), patience=20)
    for item in items:
        for made in assembler.add(item) if isinstance(item, TraceSpan) else (item,):
            gathering.take(_through_the_log(made))
    for made in assembler.finish():
        gathering.take(_through_the_log(made))
    gathering.flush()
    report = json.loads(to_json(build_report(gathering, ())))
    return {feature for moment in report["moments"] for feature in _moment_features(moment)}


def _through_the_log(item: Interaction | Load | Note) -> Interaction | Load | Note:
    if isinstance(item, Interaction):
        (back,) = log.parse_lines([log.write_line(item)])
        # The log refuses what no account could hold.
        assert back == item or (isinstance(back, Note) and "63 bits" in back.text)
    if isinstance(item, Load):
        assert list(log.parse_lines([log.write_load(item)])) == [item]
    return item


def _moment_features(moment: dict[str, Any]) -> Iterator[str]:
    for key in ("typical_ns", "tail_ns"):
        durations = [row[key] for row in moment["account"]]
        assert sum(durations) == moment.get(key, 0)
        assert all(duration >= 0 for duration in durations)
    for slow in moment["slowest"]:
        durations = [entry["duration_ns"] for entry in slow["entries"]]
        assert sum(durations) == slow["total_ns"]
        assert all(duration >= 0 for duration in durations)
    yield from (f"term: {row['term']}" for row in moment["account"])
    yield from (f"health: {line['kind']}" for line in moment["health"])


def _plain(text: str) -> str:
    """A message without what is the input's own: quoted texts, numbers, paths into a document."""
    return re.sub(r"'[^']*'|\"[^\"]*\"|`\$[^`]*`|\d+", "#", text)[:120]


# Seeds: small pieces of real files


# What tests/data does not hold.
EXAMPLES: dict[str, tuple[bytes, ...]] = {
    "chrome": (
        b'{"traceEvents":[{"ph":"M","name":"process_name","pid":1,"args":{"name":"app"}},'
        b'{"ph":"X","name":"task","ts":1,"dur":9.5,"pid":1,"tid":2,"args":{"gen_ai.request.model":"m"}},'
        b'{"ph":"B","name":"in","ts":2,"pid":1,"tid":2},{"ph":"n","cat":"c","id":7,"name":"first_token","ts":3,"pid":1},'
        b'{"ph":"E","ts":4,"pid":1,"tid":2},{"ph":"b","cat":"c","id":7,"name":"call","ts":2,"pid":1},'
        b'{"ph":"e","cat":"c","id":7,"name":"call","ts":8,"pid":1}]}',
    ),
    "inference-perf": (
        b'[{"scheduled_time":1.0,"start_time":1.5,"end_time":3.25,"request":"","info":{"request_metrics":{"text":'
        b'{"input_tokens":7}},"response_metrics":{"output_tokens":2,"output_token_times":[2.0,3.0]}},"error":null},'
        b'{"start_time":2.5,"end_time":3,"info":{"input_tokens":7,"output_tokens":0,"output_token_times":[]},'
        b'"error":{"error_type":"HTTP Error 429","error_msg":""}}]',
    ),
    "langfuse": (
        b'{"trace":{"id":"t","version":"1"},"observations":[{"id":"o","traceId":"t","type":"SPAN","name":"turn",'
        b'"startTime":"2026-02-25T10:00:00.1Z","endTime":"2026-02-25T10:00:02.5+00:00"},{"id":"g","parentObservationId":"o",'
        b'"type":"GENERATION","name":"llm","model":"m","startTime":"2026-02-25T10:00:00.2Z","level":"ERROR",'
        b'"completionStartTime":"2026-02-25T10:00:01Z","endTime":null,"usageDetails":{"input":7,"output":0}}]}',
    ),
    "vllm-bench": (
        b'{"backend":"vllm","request_rate":10.0,"burstiness":1.0,"max_concurrency":1,"duration":4.0,"completed":2,'
        b'"failed":1,"request_throughput":2.0,"input_lens":[5,5,5],"output_lens":[2,3,0],"ttfts":[0.5,0.5,0.0],'
        b'"itls":[[],[0.1,0.1],[]],"start_times":[1.0,1.5,2.2],"queue_times":[0.0,0.4,0.8],"errors":["","","x"],'
        b'"p99_e2el_ms":700.5,"median_ttft_ms":500.0}',
        b'{"num_prompts":3,"request_rate":"inf","burstiness":1.0,"duration":4.0,"completed":2,"request_throughput":2.0,'
        b'"latencies":[0.5,0.7,0.0],"queue_times":[0.0,0.4,0.8],"median_e2el_ms":600.0}',
    ),
    "spec": (
        b"moments:\n  a:\n    match: {name: 'GET *', kind: server, attributes: {k: v}}\n    from: x\n    to: z\n"
        b"    within: 800ms\n    percentile: 99.9\n    thresholds: {noticeable: 1s, disruptive: 2s}\n"
        b"    stages: {llm/infer*: {share: 500ms, owner: me}}\n    chain: [{mark: x}, {mark: z, as: llm/infer}]\n"
        b"map:\n  - {match: {service: api}, as: api/queue.wait}\n  - {match: {name: q}, as: container}\n",
    ),
}


@cache
def seeds(codec: str) -> tuple[bytes, ...]:
    kept = [file.read_bytes() for file in sorted((CORPUS / codec).glob("*"))]
    real = [_pruned(raw) for form, raw in _real() if codec in (form, "reading")]
    if codec == otlp.PROTOBUF_NAME:
        real = [_as_protobuf(raw) for form, raw in _real() if form == otlp.JSON.name]
    fit = [raw for raw in dict.fromkeys(real) if len(raw) <= LARGEST_INPUT]
    return (*kept, *EXAMPLES.get(codec, ()), *fit)


@cache
def _real() -> tuple[tuple[str, bytes], ...]:
    """Format and content of every file of the test data that is of some."""
    found = []
    for file in sorted(path for path in DATA.rglob("*") if path.is_file()):
        raw = file.read_bytes()
        with suppress(FormatError):
            found.append((read(BytesIO(raw), WANTED).format, raw))
    return tuple(found)


def _pruned(raw: bytes) -> bytes:
    """A document with at most three members of each list, short of text; of lines, the first three."""
    try:
        value = json.loads(raw)
    except ValueError:
        return b"\n".join(raw.splitlines()[:3])
    return json.dumps(_shortened(value), separators=(",", ":")).encode()


def _shortened(value: Any) -> Any:
    match value:
        case list():
            return [_shortened(member) for member in value[:3]]
        case dict():
            return {key: _shortened(member) for key, member in value.items()}
        case str():
            return value[:60]
    return value


def _as_protobuf(raw: bytes) -> bytes:
    """OTLP JSON as the message it stands for."""

    def with_ids(fields: dict[str, Any]) -> dict[str, Any]:
        # The generic mapping of protobuf writes bytes in base 64, OTLP writes ids in hex.
        ids = {key: b64encode(bytes.fromhex(fields[key])).decode() for key in fields if key in _IDS}
        return fields | ids

    return ParseDict(json.loads(raw, object_hook=with_ids), TracesData()).SerializeToString()


_IDS = ("traceId", "spanId", "parentSpanId")


# Bending


NUMBERS = (-1, 0, 1, 2**31, 2**53 + 1, 2**63 - 1, 2**63, -(2**63), 10**25, 0.5, 1e308)
ODD = (*NUMBERS, None, True, "", "0", "-1", "NaN", "..", "x", [], {}, [[]], {"": 0})
# Words that mean something to some parser or rule, so that chance need not spell them.
STRANGE = ("a/infer..x", "infer..queue", "unattributed.a..b", "SPAN_KIND_SERVER", "a->b", "\x1b[31m", "\u202e")
YEARS = ("1700-01-01T00:00:00Z", "2200-12-31T23:59:59.999999999Z")
WORDS = (*sorted(WANTED), *stage_names(), *KINDS, *OUTCOMES, *STRANGE, *YEARS)
TOKENS = (
    *(b"\0", b"\xff", b"\n", b'"', b"{", b"}", b"[", b"]", b":", b",", b"-", b"null", b"1e999", b"9" * 25, b"\\u0000"),
    *(b"\xed\xa0\x80", b"\x1f\x8b\x08", b"\x28\xb5\x2f\xfd"),
)


def bent(codec: str, raw: bytes, random: Random) -> bytes:
    """The input with a few changes: to a node of its JSON where it has some, else to its bytes."""
    for _ in range(random.choice((1, 1, 2, 4))):
        change = random.choice((_bent_json, _bent_json, _bent_bytes))
        raw = change(codec, raw, random) or _bent_bytes(codec, raw, random)
    return raw[:LARGEST_INPUT]


def _bent_json(codec: str, raw: bytes, random: Random) -> bytes | None:
    lines = raw.split(b"\n")
    place = random.randrange(len(lines))
    whole = codec != log.NAME and random.random() < 0.7
    try:
        value = json.loads(raw if whole else lines[place])
        nodes = list(_nodes(value))
    except (ValueError, RecursionError):
        return None
    if not nodes:
        return None
    holder, key = random.choice(nodes)
    _bend_node(holder, key, random.choice(nodes), random)
    written = json.dumps(value, separators=(",", ":")).encode()
    lines[place] = written
    return written if whole else b"\n".join(lines)


def _nodes(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every place below a value: what holds it, and its key or index there."""
    keys = value.keys() if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in list(keys):
        yield value, key
        yield from _nodes(value[key])


def _bend_node(holder: Any, key: Any, other: tuple[Any, Any], random: Random) -> None:
    dice = random.random()
    if dice < 0.5:
        holder[key] = random.choice(random.choice((ODD, WORDS)))
    elif dice < 0.65:
        del holder[key]
    elif dice < 0.8:
        # As text and back: the other place must not become a part of itself.
        holder[key] = json.loads(
            json.dumps(other[0].get(other[1]) if isinstance(other[0], dict) else other[0][other[1]])
        )
    elif isinstance(holder[key], int | float) and not isinstance(holder[key], bool):
        holder[key] = holder[key] * random.choice((-1, 0.5, 2, 1000)) + random.choice((-1, 0, 1))
    elif isinstance(holder, list):
        holder.insert(key, holder[key])
    else:
        holder[random.choice(list(holder))] = holder[key]


def _bent_bytes(codec: str, raw: bytes, random: Random) -> bytes:
    at = random.randrange(len(raw) + 1)
    size = random.choice((1, 1, 2, 4, 16, 200))
    match random.randrange(6):
        case 0:
            return raw[:at] + random.randbytes(min(size, 8)) + raw[at + size :]
        case 1:
            return raw[:at] + raw[at + size :]
        case 2:
            return raw[:at] + raw[max(0, at - size) : at] + raw[at:]
        case 3:
            return raw[:at] + random.choice(TOKENS) + raw[at:]
        case 4:
            return (
                raw[: at + 1] + bytes([raw[at] ^ (1 << random.randrange(8))]) + raw[at + 1 :] if at < len(raw) else raw
            )
        case _:
            other = random.choice(seeds(codec))
            return raw[:at] + other[random.randrange(len(other) + 1) :]


# A run


@dataclass(slots=True)
class Run:
    """One codec under fire: what was seen, what was kept, what broke."""

    codec: str
    seen: set[str] = field(default_factory=set)
    kept: int = 0
    tried: int = 0
    broken: set[str] = field(default_factory=set)

    def start(self) -> None:
        self.kept = len(list((CORPUS / self.codec).glob("*")))
        for raw in seeds(self.codec):
            self.seen |= self.features(raw) or set()

    def features(self, raw: bytes) -> Features | None:
        """None for an input that breaks a promise, after telling of it."""
        self.tried += 1
        signal.setitimer(signal.ITIMER_REAL, 2 * LIMIT_S)
        try:
            return features_of(self.codec, raw)
        except Exception as error:  # noqa: BLE001 - whatever escapes is what this program is for
            self._tell(raw, error)
            return None
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)

    def offer(self, raw: bytes) -> None:
        """Try an input, and keep it when it is small and made the parser say something new."""
        found = self.features(raw)
        if found is None or found <= self.seen:
            return
        small = smallest(raw, found - self.seen, partial(features_of, self.codec))
        self.seen |= found
        if len(small) <= MOST_BYTES and self.kept < MOST_FILES_A_CODEC:
            self.kept += 1
            _keep(CORPUS / self.codec, small)

    def _tell(self, raw: bytes, error: Exception) -> None:
        last = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{type(error).__name__} at {Path(last.filename).name}:{last.lineno}"
        if where not in self.broken:
            self.broken.add(where)
            file = _keep(FAILURES / self.codec, raw)
            traceback.print_exception(error)
            print(f"{self.codec}: {where}; the input is {file}", file=sys.stderr, flush=True)


def _keep(folder: Path, raw: bytes) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / blake2b(raw, digest_size=6).hexdigest()
    file.write_bytes(raw)
    return file


def smallest(raw: bytes, wanted: Features | set[str], features: Callable[[bytes], Features]) -> bytes:
    """The input with pieces left out for as long as it still has the wanted features."""
    size = max(1, len(raw) // 2)
    deadline = time.monotonic() + 2
    while size and time.monotonic() < deadline:
        at = 0
        while at < len(raw) and time.monotonic() < deadline:
            shorter = raw[:at] + raw[at + size :]
            try:
                still = wanted <= features(shorter)
            except Exception:  # noqa: BLE001 - another input, and another story
                still = False
            raw, at = (shorter, at) if still else (raw, at + size)
        size //= 2
    return raw


def _guided(run: Run, seconds: float) -> NoReturn:
    """With atheris, whose loop has no end but that of the process."""
    deadline = time.monotonic() + seconds

    def offer(raw: bytes) -> None:
        run.offer(raw)
        if time.monotonic() > deadline:
            os._exit(_report(run))

    def mutate(raw: bytes, limit: int, seed: int) -> bytes:
        random = Random(seed)
        return (bent(run.codec, raw, random) if random.random() < 0.5 else atheris.Mutate(raw, limit))[:limit]

    folder = Path(tempfile.mkdtemp(prefix="outlay-fuzz-"))
    for raw in seeds(run.codec):
        _keep(folder, raw)
    # The timer is this program's own: one that is not deaf to Python.
    options = [f"-max_len={LARGEST_INPUT}", "-timeout=0", "-verbosity=0"]
    atheris.Setup([sys.argv[0], *options, str(folder)], offer, custom_mutator=mutate)
    atheris.Fuzz()
    raise AssertionError("atheris does not return")


def _random(run: Run, seconds: float) -> None:
    random = Random(time.time_ns())
    deadline = time.monotonic() + seconds
    pool = list(seeds(run.codec))
    while time.monotonic() < deadline:
        raw = bent(run.codec, random.choice(pool), random)
        before = len(run.seen)
        run.offer(raw)
        if len(run.seen) > before:
            pool.append(raw)


def _expired(*_: object) -> NoReturn:
    raise TimeoutError(f"still running after {2 * LIMIT_S} s")


def fuzz(codec: str, seconds: float) -> int:
    """Fuzz one codec in this process. 1 when something broke."""
    signal.signal(signal.SIGALRM, _expired)
    run = Run(codec)
    run.start()
    if atheris:
        _guided(run, seconds)
    _random(run, seconds)
    return _report(run)


def _report(run: Run) -> int:
    print(f"{run.codec}: {run.tried} inputs, {len(run.seen)} features, {len(run.broken)} broken", flush=True)
    return 1 if run.broken else 0


def main() -> int:
    parser = argparse.ArgumentParser(description="Throw bytes at the parsers.")
    parser.add_argument("seconds", type=float, nargs="?", default=60.0, help="how long in all (60)")
    parser.add_argument("--codec", choices=CODECS, action="append", help="only these; all by default")
    given = parser.parse_args()
    codecs = given.codec or CODECS
    if len(codecs) == 1:
        return fuzz(codecs[0], given.seconds)
    # One process a codec: atheris runs once in a process, and a hard crash takes only one down.
    share = given.seconds / len(codecs)
    command = [sys.executable, os.fspath(Path(__file__).resolve())]
    codes = [subprocess.run([*command, str(share), "--codec", codec], check=False).returncode for codec in codecs]
    return 1 if any(codes) else 0


if __name__ == "__main__":
    sys.exit(main())
