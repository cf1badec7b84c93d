"""A stored baseline: one JSON object, its first key `outlay: "baseline/1"`.

Each moment has its sketch (`sketch/1`) and rows: when an interaction began, its account, and for how many it stands.
A row without `entries` failed, and its `outcome` says how; the entries of others sum to their end-to-end time.
"""

import math
import re
from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
import numpy as np

from outlay.accounts import OUTCOME_NAMES, Accounts
from outlay.baseline import Baseline, MomentBaseline
from outlay.formats.codec import FormatError
from outlay.interaction import Outcome
from outlay.sketch import Sketch
from outlay.stages import split_entry
from outlay.units import MAX_NS

VERSION = "baseline/1"

# How much of a file `recognises` needs.
HEAD = 256
_HEAD = re.compile(rb'\s*\{\s*"outlay"\s*:\s*"baseline/')

# What rounding may add to the sum of a few thousand weights.
_ROUNDING = 1e-6

_Count = Annotated[int, msgspec.Meta(ge=0, le=MAX_NS)]
_Instant = Annotated[int, msgspec.Meta(ge=-MAX_NS, le=MAX_NS)]


class _Row(msgspec.Struct, omit_defaults=True, forbid_unknown_fields=True):
    start_ns: _Instant
    entries: dict[str, _Count] = {}
    outcome: Outcome = "ok"
    # Left out where a row stands for itself alone.
    weight: Annotated[float, msgspec.Meta(gt=0, le=MAX_NS)] | msgspec.UnsetType = msgspec.UNSET

    @property
    def stands_for(self) -> float:
        return 1.0 if isinstance(self.weight, msgspec.UnsetType) else self.weight


class _Moment(msgspec.Struct, forbid_unknown_fields=True):
    moment: str
    started: _Count
    outcomes: dict[Outcome, _Count]
    sketch: dict[str, Any]
    rows: list[_Row]


class _File(msgspec.Struct, forbid_unknown_fields=True):
    outlay: str
    moments: list[_Moment]


class _Version(msgspec.Struct):
    outlay: str


def recognises(head: bytes) -> bool:
    """Whether a file that begins like this is a baseline, of any version."""
    return _HEAD.match(head) is not None


def write_baseline(baseline: Baseline) -> bytes:
    """The file; equal baselines give equal bytes."""
    moments = [
        _Moment(
            moment=name,
            started=kept.started,
            outcomes=dict(sorted(kept.outcomes.items())),  # type: ignore[arg-type] # names are checked when read
            sketch=kept.sketch.to_record(),
            rows=_rows(kept.rows),
        )
        for name, kept in sorted(baseline.items())
    ]
    return msgspec.json.encode(_File(outlay=VERSION, moments=moments)) + b"\n"


def _rows(rows: Accounts) -> list[_Row]:
    codes, durations_ns, ends = rows.codes.tolist(), rows.durations_ns.tolist(), rows.offsets.tolist()
    columns = zip(rows.start_ns.tolist(), rows.outcomes.tolist(), rows.weights.tolist(), strict=True)
    return [
        _Row(
            start_ns=start_ns,
            entries={rows.entries[codes[place]]: durations_ns[place] for place in range(begin, end)},
            outcome=OUTCOME_NAMES[outcome],
            weight=msgspec.UNSET if weight == 1 else weight,
        )
        for (start_ns, outcome, weight), begin, end in zip(columns, ends[:-1], ends[1:], strict=True)
    ]


def read_baseline(content: bytes) -> Baseline:
    """What `write_baseline` wrote. Raises FormatError for anything else, and for a file that contradicts itself."""
    try:
        version = msgspec.json.decode(content, type=_Version).outlay
        if version != VERSION:
            raise FormatError(f"the baseline is of version {version!r}; this program reads {VERSION!r}: update it")
        moments = msgspec.json.decode(content, type=_File).moments
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise FormatError(f"not a baseline: {error}") from None
    baseline = {moment.moment: _moment(moment) for moment in moments}
    if len(baseline) < len(moments):
        raise FormatError("the baseline holds a moment twice")
    return baseline


def _moment(stored: _Moment) -> MomentBaseline:
    try:
        sketch = Sketch.from_record(stored.sketch)
    except ValueError as error:
        raise FormatError(f"the sketch of {stored.moment!r}: {error}") from None
    rows = _accounts(stored)
    count = sum(stored.outcomes.values())
    if not (count == sketch.count <= stored.started and math.isclose(rows.count, count, rel_tol=_ROUNDING)):
        raise FormatError(
            f"{stored.moment!r} contradicts itself: {stored.started} started, {count} measured, {sketch.count} in the "
            f"sketch, {rows.count:g} in the rows"
        )
    return MomentBaseline(
        moment=stored.moment,
        started=stored.started,
        outcomes=dict(stored.outcomes.items()),
        sketch=sketch,
        rows=rows,
    )


def _accounts(stored: _Moment) -> Accounts:
    rows = sorted(stored.rows, key=lambda row: row.start_ns)
    names = tuple(sorted({name for row in rows for name in row.entries}))
    totals = [sum(row.entries.values()) for row in rows]
    _check(rows, names, totals, stored.moment)
    places = {name: place for place, name in enumerate(names)}
    return Accounts(
        start_ns=np.array([row.start_ns for row in rows], dtype=np.int64),
        total_ns=np.array(totals, dtype=np.int64),
        busy_ns=np.array(totals, dtype=np.int64),
        weights=np.array([row.stands_for for row in rows], dtype=np.float64),
        outcomes=np.array([OUTCOME_NAMES.index(row.outcome) for row in rows], dtype=np.int8),
        entries=names,
        offsets=np.cumsum([0, *(len(row.entries) for row in rows)], dtype=np.int64),
        codes=np.array([places[name] for row in rows for name in row.entries], dtype=np.int32),
        durations_ns=np.array([each for row in rows for each in row.entries.values()], dtype=np.int64),
        priorities=np.arange(len(rows), dtype=np.uint64),
        complete=all(row.stands_for == 1 for row in rows),
    )


def _check(rows: Sequence[_Row], names: Sequence[str], totals: Sequence[int], moment: str) -> None:
    try:
        for name in names:
            split_entry(name)
    except ValueError as error:
        raise FormatError(f"a row of {moment!r}: {error}") from None
    if any(row.entries and row.outcome != "ok" for row in rows):
        raise FormatError(f"a row of {moment!r} failed and has entries")
    if max(totals, default=0) > MAX_NS:
        raise FormatError(f"a row of {moment!r} has more than 63 bits of nanoseconds")
