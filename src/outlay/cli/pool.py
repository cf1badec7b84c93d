"""Many independent calls on all cores, with progress and a Ctrl-C that ends them all."""

import multiprocessing
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, wait
from time import monotonic
from typing import TypeVar

# Progress is only shown for work that lasts.
PATIENCE_S = 1.0

Result = TypeVar("Result")
Item = TypeVar("Item")


def on_all_cores(
    work: Callable[..., Result], calls: Sequence[tuple[object, ...]], *, jobs: int, label: str
) -> list[Result]:
    """The result of each call, in the order of `calls`, however many processes share them.

    Both the work and what it is given must be picklable. An interruption ends every process before it is raised.
    """
    if jobs == 1 or len(calls) == 1:
        return [work(*call) for call in _shown(iter(calls), label, len(calls))]
    context = multiprocessing.get_context("spawn" if sys.platform == "darwin" else "fork")
    with ProcessPoolExecutor(min(jobs, len(calls)), mp_context=context, initializer=_quiet) as pool:
        try:
            tasks = [pool.submit(work, *call) for call in calls]
            for _ in _shown(_finishing(tasks), label, len(tasks)):
                pass
        except KeyboardInterrupt:
            pool.shutdown(wait=False, cancel_futures=True)
            for process in multiprocessing.active_children():
                process.terminate()
            raise
        return [task.result() for task in tasks]


def _quiet() -> None:
    """A terminal sends Ctrl-C to all processes; the parent ends its workers itself, and they have nothing to say."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _finishing(tasks: Sequence[Future[Result]]) -> Iterator[Future[Result]]:
    """Each task as it ends; the first that failed ends it all."""
    pending: set[Future[Result]] = set(tasks)
    while pending:
        done, pending = wait(pending, timeout=0.2)
        for task in done:
            task.result()
            yield task


def _shown(items: Iterator[Item], label: str, total: int) -> Iterator[Item]:
    """The same items, with a bar on standard error that follows them where a person is watching."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    bar: Progress | None = None
    begun = monotonic()
    try:
        for done, item in enumerate(items):
            if bar is None and sys.stderr.isatty() and monotonic() - begun >= PATIENCE_S:
                bar = Progress(
                    TextColumn(label),
                    BarColumn(),
                    MofNCompleteColumn(),
                    TimeRemainingColumn(),
                    console=Console(stderr=True),
                    transient=True,
                )
                bar.add_task(label, total=total)
                bar.start()
            if bar is not None:
                bar.update(bar.task_ids[0], completed=done)
            yield item
    finally:
        if bar is not None:
            bar.stop()
