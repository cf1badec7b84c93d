"""Reading many inputs on all cores, with progress: what the verbs that read have in common."""

import gc
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, BinaryIO

from outlay.assembly import Assembler, from_source, wanted_keys
from outlay.explain import Gathering, Question
from outlay.explain.gather import retarget
from outlay.formats.codec import FormatError, Shard
from outlay.formats.log import write_line, write_load
from outlay.formats.reading import Fills, Reading, read, splits
from outlay.interaction import SOURCE, Interaction, Note
from outlay.load import Load
from outlay.mapping import Rule, Rules
from outlay.report import Source
from outlay.trace import TraceSpan

if TYPE_CHECKING:
    from multiprocessing.sharedctypes import Synchronized

    from rich.progress import Progress

STDIN = "-"

# Below this many bytes, starting processes costs more than they bring.
PARALLEL_FROM = 32 * 1024 * 1024

# Of so many inputs, which one an interaction came from tells groups apart; more are single traces.
FEW_SOURCES = 64

# Progress is only shown for work that lasts.
PATIENCE_S = 1.0

Take = Callable[[Interaction | Load | Note], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What reading gave: all that was gathered, what each input held, and which inputs were refused and why."""

    gathering: Gathering
    sources: tuple[Source, ...]
    refusals: tuple[str, ...]
    skipped: tuple[str, ...]


@dataclass(slots=True)
class _Part:
    """One worker's share of it, as it travels back."""

    gathering: Gathering
    sources: dict[str, Source] = field(default_factory=dict)
    refusals: dict[str, str] = field(default_factory=dict)

    def merge(self, other: "_Part") -> None:
        self.gathering.merge(other.gathering)
        self.refusals.update(other.refusals)
        for name, source in other.sources.items():
            known = self.sources.get(name)
            self.sources[name] = source if known is None else known.plus(source.records)


def gather_paths(
    paths: Sequence[str], question: Question, rules: Sequence[Rule], *, jobs: int | None = None, log: Path | None = None
) -> Found:
    """Everything that `paths` hold; folders are walked, and files of no known format in them skipped.

    `jobs` None uses all cores where the input is large. `log` receives every interaction as a line of Outlay's own
    log. Raises OSError for a path that cannot be read and a log that cannot be written.
    """
    files, named = _expand(paths)
    jobs = 1 if log else _jobs(files, jobs)
    size = sum(Path(name).stat().st_size for name in files if name != STDIN)
    with _Progress(size * jobs) as progress:
        if jobs == 1:
            part = _gather(files, question, rules, Shard(), progress.advance, log)
        else:
            part = _gather_on_all(files, question, rules, jobs, progress)
    refused = sorted(part.refusals.items())
    return Found(
        gathering=part.gathering,
        sources=tuple(source for _, source in sorted(part.sources.items())),
        refusals=tuple(f"{name}: {why}" for name, why in refused if name in named),
        skipped=tuple(name for name, _ in refused if name not in named),
    )


def _expand(paths: Sequence[str]) -> tuple[list[str], set[str]]:
    """The files behind the paths, folders walked in order; and those that were named one by one."""
    files: list[str] = []
    named = set()
    for name in paths:
        path = Path(name)
        if name != STDIN and path.is_dir():
            files += [str(file) for file in sorted(path.rglob("*")) if file.is_file() and not file.name.startswith(".")]
        else:
            files.append(name)
            named.add(name)
    once = {os.path.realpath(name) if name != STDIN else STDIN: name for name in reversed(files)}
    return list(reversed(once.values())), named


def _jobs(files: Sequence[str], asked: int | None) -> int:
    if STDIN in files or not all(Path(name).is_file() for name in files):
        # A pipe can be read only once, by one process.
        return 1
    if asked is not None:
        return asked
    sizes = {name: Path(name).stat().st_size for name in files}
    if sum(sizes.values()) < PARALLEL_FROM:
        return 1
    large = sum(size for name, size in sizes.items() if _splits(name))
    return os.cpu_count() or 1 if large >= PARALLEL_FROM else 1


def _splits(name: str) -> bool:
    with Path(name).open("rb") as stream:
        return splits(stream)


# One worker


def _gather(
    files: Sequence[str],
    question: Question,
    rules: Sequence[Rule],
    shard: Shard,
    advance: Callable[[int], None],
    log: Path | None,
) -> _Part:
    """One worker's part. Spans of one trace may stand in several files, so all files share one assembler."""
    ruled = Rules(rules)
    wanted = wanted_keys(ruled, question.moments)
    assembler = Assembler(ruled, question.moments)
    part = _Part(Gathering(question))
    with ExitStack() as stack:
        stack.enter_context(_rare_collections())
        take: Take = part.gathering.take
        if log is not None:
            take = _also_writing(stack.enter_context(replacing(log)), take)
        asked = SOURCE in question.by or SOURCE in question.where
        by_source = asked or 1 < len(files) <= FEW_SOURCES
        for name in files:
            with _open(name, advance) as stream:
                try:
                    reading = read(stream, wanted, shard)
                    _take_all(name, reading, assembler, part, take, by_source=by_source)
                except FormatError as error:
                    part.refusals[name] = str(error)
        for interaction in assembler.finish():
            take(interaction)
    part.gathering.flush()
    return part


@contextmanager
def _rare_collections() -> Iterator[None]:
    """Let the cyclic garbage collector run seldom: what is read are many trees, and counting references frees those."""
    before = gc.get_threshold()
    gc.set_threshold(500_000, 20, 100)
    try:
        yield
    finally:
        # What was kept stays to the end; without this the next collection would walk through all of it.
        gc.freeze()
        gc.set_threshold(*before)


def _take_all(
    name: str,
    reading: Reading,
    assembler: Assembler,
    part: _Part,
    take: Take,
    *,
    by_source: bool,
) -> None:
    question = part.gathering.question
    # A name may hold bytes that are no text; JSON holds only text.
    shown = os.fsencode(name).decode("utf-8", "backslashreplace")
    source = Path(shown).name if by_source else None
    records, loads, unit = 0, 0, "interactions"
    for item in reading.items:
        if isinstance(item, TraceSpan):
            records, unit = records + 1, "spans"
            for complete in assembler.add(item, source):
                take(complete)
        elif isinstance(item, Interaction):
            records += 1
            made = retarget(item, question.moments)
            take(made if source is None else from_source(made, source))
        elif isinstance(item, Load):
            loads += 1
            from_here = {} if source is None else {SOURCE: source}
            load = replace(item, name=item.name or shown, dimensions={**item.dimensions, **from_here})
            take(retarget(load, question.moments))
        else:
            take(item)
    if loads and not records:
        records, unit = loads, "loads"
    part.sources[name] = Source(name=shown, format=reading.format, records=records, unit=unit)


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A file to write, which takes the place of `path` when it is whole.

    A full disk must not cost what was there before, and a log may be written over the very one that is read.
    """
    if path.exists() and not path.is_file():
        with path.open("wb") as device:
            yield device
        return
    target = path.resolve()
    beside = target.with_name(target.name + ".part")
    try:
        with beside.open("wb") as out:
            yield out
        beside.replace(target)
    finally:
        beside.unlink(missing_ok=True)


def _also_writing(out: BinaryIO, take: Take) -> Take:
    def taken(item: Interaction | Load | Note) -> None:
        if isinstance(item, Interaction):
            out.write(write_line(item))
        elif isinstance(item, Load):
            out.write(write_load(item))
        take(item)

    return taken


@contextmanager
def _open(name: str, advance: Callable[[int], None]) -> Iterator["_Counted"]:
    if name == STDIN:
        yield _Counted(sys.stdin.buffer, name, advance)  # type: ignore[arg-type] # every binary stream has readinto
        return
    with Path(name).open("rb") as stream:
        yield _Counted(stream, name, advance)


class _Counted:
    """A stream that says how much was read from it, and its name when it cannot be read."""

    def __init__(self, stream: Fills, name: str, advance: Callable[[int], None]) -> None:
        self._stream = stream
        self._name = name
        self._advance = advance

    def readinto(self, buffer: bytearray | memoryview, /) -> int:
        try:
            size = self._stream.readinto(buffer)
        except OSError as error:
            raise OSError(error.errno, error.strerror, self._name) from None
        self._advance(size)
        return size


# All workers


def _gather_on_all(
    files: Sequence[str], question: Question, rules: Sequence[Rule], jobs: int, progress: "_Progress"
) -> _Part:
    whole = _Part(Gathering(question))
    context = multiprocessing.get_context("spawn" if sys.platform == "darwin" else "fork")
    count = context.Value("q", 0)
    with ProcessPoolExecutor(jobs, mp_context=context, initializer=_share, initargs=(count,)) as pool:
        try:
            with _uninterrupted():
                tasks = [pool.submit(_work, files, question, rules, Shard(index, jobs)) for index in range(jobs)]
                import scipy.special  # noqa: F401 - the report needs it, and now is time to load it
            pending: set[Future[_Part]] = set(tasks)
            while pending:
                _, pending = wait(pending, timeout=0.2)
                progress.at(count.value)
        except KeyboardInterrupt:
            for process in multiprocessing.active_children():
                process.terminate()
            raise
        # In the tasks' own order, so that merging is deterministic.
        for task in tasks:
            whole.merge(task.result())
    return whole


_bytes_read: "Synchronized[int] | None" = None


def _share(count: "Synchronized[int]") -> None:
    global _bytes_read  # noqa: PLW0603 - shared memory reaches a pool's worker only by inheritance
    _bytes_read = count


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Let Ctrl-C wait, and never reach a process that is started meanwhile.

    A terminal sends it to all processes at once. The parent ends its workers itself, and they have nothing to say.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _work(files: Sequence[str], question: Question, rules: Sequence[Rule], shard: Shard) -> _Part:
    def advance(size: int) -> None:
        if _bytes_read is not None:
            with _bytes_read.get_lock():
                _bytes_read.value += size

    return _gather(files, question, rules, shard, advance, None)


class _Progress:
    """A bar on standard error for work that lasts longer than a moment, where a person is watching."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._done = 0
        self._begun = monotonic()
        self._shown_at = 0.0
        self._bar: Progress | None = None

    def __enter__(self) -> "_Progress":
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def advance(self, size: int) -> None:
        self.at(self._done + size)

    def at(self, done: int) -> None:
        self._done = done
        now = monotonic()
        if now - self._begun < PATIENCE_S or now - self._shown_at < 0.1 or not sys.stderr.isatty():
            return
        self._shown_at = now
        if self._bar is None:
            self._bar = _bar(self._total)
        self._bar.update(self._bar.task_ids[0], completed=done, refresh=True)


def _bar(total: int) -> "Progress":
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    bar = Progress(
        TextColumn("reading"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        auto_refresh=False,  # its refreshing thread must not be there when a pool forks
        transient=True,
    )
    bar.add_task("reading", total=total or None)
    bar.start()
    return bar
