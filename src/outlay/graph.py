"""Events and what lies between them: when each happens, for thousands of interactions at once.

An edge says that one event comes so long after another. An event happens when the last of the edges into it has passed
(a max-plus graph; Baccelli et al., Synchronization and Linearity, 1992).
"""

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from outlay.accounts import Ints

# What only waits for something, and takes no time of its own.
WAITS = -1


@dataclass(frozen=True, slots=True)
class _Level:
    """Events `low` to `high` happen after those of the levels before, by the runs `begin` to `end`.

    `firsts` are the places of each event's first run; None where each has but one.
    """

    begin: int
    end: int
    low: int
    high: int
    firsts: NDArray[np.intp] | None


@dataclass(frozen=True, slots=True, eq=False)
class Graph:
    """Edges in runs: those that follow each other without a branch or a join count as one.

    Run k has the edges from `begins[k]` up to the next's, and leaves event `sources[k]`. Event 0 is every
    interaction's start. `ends` are the events at which the interactions end.
    """

    edges: int
    events: int
    begins: NDArray[np.intp]
    sources: NDArray[np.intp]
    levels: tuple[_Level, ...]
    ends: NDArray[np.intp]

    def totals(self, durations_ns: Ints) -> Ints:
        """When each interaction ends, after its start."""
        at = np.zeros(self.events, dtype=np.int64)
        if self.edges:
            took = np.add.reduceat(durations_ns, self.begins)
            for level in self.levels:
                reached = at[self.sources[level.begin : level.end]]
                reached += took[level.begin : level.end]
                at[level.low : level.high] = (
                    reached if level.firsts is None else np.maximum.reduceat(reached, level.firsts)
                )
        return at[self.ends]

    @classmethod
    def chains(cls, rows: NDArray[np.int32], n: int) -> "Graph":
        """The graph of `n` interactions whose edges follow each other; `rows`, sorted, are whose edges they are."""
        begins = np.flatnonzero(np.diff(rows, prepend=-1))
        ends = np.zeros(n, dtype=np.intp)
        ends[rows[begins]] = np.arange(1, len(begins) + 1)
        level = _Level(0, len(begins), 1, len(begins) + 1, None)
        return cls(len(rows), len(begins) + 1, begins, np.zeros(len(begins), dtype=np.intp), (level,), ends)


class Draft:
    """Edges of many interactions as they are found, all that lead to an event before any that leaves it."""

    __slots__ = ("codes", "durations", "ends", "entries", "events", "sources", "targets", "upto")

    def __init__(self) -> None:
        self.entries: dict[str, int] = {}
        self.codes, self.durations = array("i"), array("q")
        self.sources, self.targets = array("q"), array("q")
        # Event 0 is the start of every interaction.
        self.events = 1
        self.ends, self.upto = array("q"), array("q")

    def after(self, source: int, whose: str, duration_ns: int) -> int:
        """The event that comes so long after another; that itself where it is no time at all."""
        if duration_ns == 0:
            return source
        return self._edge(source, self.entries.setdefault(whose, len(self.entries)), duration_ns)

    def latest(self, events: Sequence[int]) -> int:
        """The event at which all of these have happened."""
        if len(events) == 1:
            return events[0]
        joined = self._edge(events[0], WAITS, 0)
        for source in events[1:]:
            self._edge(source, WAITS, 0, joined)
        return joined

    def _edge(self, source: int, code: int, duration_ns: int, target: int | None = None) -> int:
        if target is None:
            target = self.events
            self.events += 1
        self.sources.append(source)
        self.targets.append(target)
        self.codes.append(code)
        self.durations.append(duration_ns)
        return target

    def close(self, end: int) -> None:
        """The edges since the last one that was closed are one interaction, which ends with this event."""
        self.ends.append(end)
        self.upto.append(len(self.sources))

    def graph(self) -> tuple[Graph, NDArray[np.intp]]:
        """The graph, and the order in which it takes the edges."""
        runs, sources, targets, levels = self._runs()
        by_level = np.lexsort((targets, levels[targets]))
        rank = np.empty(len(by_level), dtype=np.intp)
        rank[by_level] = np.arange(len(by_level))
        order = np.argsort(rank[runs], kind="stable")
        begins = np.flatnonzero(np.diff(rank[runs][order], prepend=-1))
        targets = targets[by_level]
        firsts = np.flatnonzero(np.diff(targets, prepend=-1))
        number = np.zeros(self.events, dtype=np.intp)
        number[targets[firsts]] = np.arange(1, len(firsts) + 1)
        made = Graph(
            len(self.sources),
            len(firsts) + 1,
            begins,
            number[sources[by_level]],
            tuple(_levels(levels[targets[firsts]], firsts, len(targets))),
            number[np.array(self.ends, dtype=np.intp)],
        )
        return made, order

    def _runs(self) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.intp], NDArray[np.intp]]:
        """The run of each edge; the event before and the event after each run; the level of each event."""
        between = np.bincount(self.sources, minlength=self.events) == 1
        between &= np.bincount(self.targets, minlength=self.events) == 1
        between[np.array(self.ends, dtype=np.intp)] = False
        passed = between.tolist()
        into, levels = [0] * self.events, [0] * self.events
        runs, sources, targets = array("q"), array("q"), array("q")
        for source, target in zip(self.sources, self.targets, strict=True):
            if passed[source]:
                run = into[source]
            else:
                run = len(sources)
                sources.append(source)
                targets.append(target)
            runs.append(run)
            if passed[target]:
                into[target] = run
            else:
                targets[run] = target
                levels[target] = max(levels[target], levels[sources[run]] + 1)
        as_places = (np.array(each, dtype=np.intp) for each in (runs, sources, targets, levels))
        return next(as_places), next(as_places), next(as_places), next(as_places)


def _levels(levels: NDArray[np.intp], firsts: NDArray[np.intp], runs: int) -> Iterator[_Level]:
    """Of events in the order of their levels, with the places of their first runs."""
    bounds = [*np.flatnonzero(np.diff(levels, prepend=0)).tolist(), len(levels)]
    upto = np.append(firsts, runs)
    for low, high in pairwise(bounds):
        begin, end = int(upto[low]), int(upto[high])
        joins = end - begin > high - low
        yield _Level(begin, end, low + 1, high + 1, upto[low:high] - begin if joins else None)
