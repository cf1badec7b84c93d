"""What is kept of a run, so that later ones can be held against it: distributions and accounts, never a number.

A stored p99 could only be compared as if it were exact. Kept are, for each moment, the sketch of all end-to-end times
and rows that stand for all interactions: the slowest one by one, a uniform sample of the others, and one of those that
failed. So the tail has its accounts, and every difference its interval.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from outlay.accounts import Accounts
from outlay.sketch import Sketch
from outlay.tabulator import Keep, Tabulator

# The p99 rests on rows one by one up to 400,000 interactions with both ends of its interval; about 1 MB in a file.
KEEP = Keep(slowest=8192, sample=2048, failed=1024)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MomentBaseline:
    """One moment of a run. `started` interactions were there, `outcomes` say how those that were measured ended.

    `rows` stand for all that `sketch` counts; the limits of the budget that the run was held against are the sketch's.
    """

    moment: str
    started: int
    outcomes: Mapping[str, int]
    sketch: Sketch
    rows: Accounts

    @property
    def limits_ns(self) -> tuple[int, ...]:
        """The limits over which the count is exact, ascending."""
        return self.sketch.limits_ns


Baseline = Mapping[str, MomentBaseline]


def kept(accounts: Accounts, keep: Keep = KEEP) -> Accounts:
    """The rows of a run that a baseline keeps, without dimensions, sizes and conditions. They stand for all of it."""
    tabulator = Tabulator(keep)
    tabulator.add_many(replace(accounts, dimensions={}, sizes={}, conditions={}))
    return tabulator.accounts()
