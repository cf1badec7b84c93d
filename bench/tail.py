"""How long does it take to explain the tail of a million accounts? Against one Daft pass over the same Parquet.

    python -m venv DIR && DIR/bin/pip install daft numpy scipy
    BENCH_PYTHON=DIR/bin/python ./dev bench tail                # 1 million accounts, five rounds
    BENCH_PYTHON=DIR/bin/python ./dev bench tail --accounts 10000000 --rounds 1

The floor computes grouped quantiles of every column (three of each, by site and version) with Daft's native engine.
The program reads the same file and gives the whole explanation: both attributions with their intervals, findings with
what they recover, what several do together, drivers, slices, shifts between versions, blame and burn rates. Both are
processes of their own and alternate; the time counted is from opening the file on, so without starting Python.
"""

import argparse
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter

import numpy as np

MS = 1_000_000
BATCH = 1_000_000
SITES = ("fra", "iad", "lon", "sgp")
VERSIONS = ("1.4", "1.5", "1.6", "1.7", "1.8")
HARDWARE = ("a100", "h100", "l40s")
LIMIT_NS = 1500 * MS


def columns(count: int, first: int, seed: int) -> "dict[str, np.ndarray]":
    """A world of bursts: queueing in waves, one slow site, cold starts, a network with a tail, 14 entries."""
    rng = np.random.default_rng((seed, first))
    place = np.arange(first, first + count)
    site, version, hardware = place % 4, (place * 5) // 1_000_000 % 5, place // 7 % 3
    tokens_in, tokens_out = np.exp(rng.normal(6, 1, count)), np.exp(rng.normal(5, 0.8, count))
    waves = np.maximum(0, np.sin(place / 5000)) ** 4
    network = np.array([8, 40, 5, 90])[site] * MS
    ms = {
        "client/prepare": rng.gamma(4, 1, count),
        "client/uplink.connect": np.where(rng.random(count) < 0.05, network / MS, 0),
        "client/uplink.floor": np.full(count, network / MS / 2),
        "client/uplink.excess": rng.lognormal(0, 1.2, count),
        "gateway/auth": rng.gamma(2, 0.5, count),
        "gateway/route": rng.gamma(2, 0.2, count),
        "retrieval/preprocess": rng.lognormal(3, 0.4, count),
        "llm/queue.wait": rng.exponential(1, count) * 600 * waves,
        "llm/queue.cold_start": np.where(rng.random(count) < 0.004, rng.gamma(9, 300, count), 0),
        "llm/infer.prefill": tokens_in * np.array([0.09, 0.05, 0.12])[hardware],
        "llm/infer.decode": rng.lognormal(4, 0.3, count),
        "tts/infer": rng.lognormal(4.2, 0.3, count),
        "client/downlink.floor": np.full(count, network / MS / 2),
        "client/render": rng.gamma(8, 2, count),
    }
    made = {name: (values * MS).astype(np.int64) for name, values in ms.items()}
    start = 1_700_000_000_000_000_000 + place * 20 * MS
    return made | {
        "start_ns": start,
        "site": site,
        "version": version,
        "hardware": hardware,
        "input_tokens": tokens_in.astype(np.int64),
        "output_tokens": tokens_out.astype(np.int64),
    }


def write(path: Path, count: int) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    names = {"site": SITES, "version": VERSIONS, "hardware": HARDWARE}
    writer = None
    for first in range(0, count, BATCH):
        found = columns(min(BATCH, count - first), first, 1)
        arrays = {
            name: pa.DictionaryArray.from_arrays(values.astype(np.int32), list(names[name]))
            if name in names
            else values
            for name, values in found.items()
        }
        table = pa.table(arrays | {"total_ns": sum(found[name] for name in found if "/" in name)})
        writer = writer or pq.ParquetWriter(path, table.schema)
        writer.write_table(table)
    assert writer is not None
    writer.close()


def floor(path: Path) -> dict[str, float]:
    """One pass of grouped quantiles over every column of time."""
    os.environ |= {"DO_NOT_TRACK": "1", "DAFT_ANALYTICS_ENABLED": "0"}
    import daft

    begun = perf_counter()
    frame = daft.read_parquet(str(path))
    times = [name for name in frame.column_names if "/" in name or name == "total_ns"]
    quantiles = [daft.col(name).approx_percentiles([0.5, 0.95, 0.99]).alias(name) for name in times]
    groups = frame.groupby("site", "version").agg(*quantiles).to_pydict()
    assert len(groups["site"]) >= len(SITES)
    return {"seconds": perf_counter() - begun}


def program(path: Path) -> dict[str, float]:
    """The whole explanation."""
    begun = perf_counter()
    from outlay.budget import Budget, Moment, Share
    from outlay.explain.tail import explain_table
    from outlay.tabulator import Tabulator

    budget = Budget(
        limit_ns=LIMIT_NS,
        percentile=99,
        shares=(
            Share(entry="client/*", limit_ns=200 * MS, owner="edge"),
            Share(entry="llm/*", limit_ns=1000 * MS, owner="platform"),
        ),
    )
    table = Tabulator()
    for batch in _batches(path):
        table.add_many(batch)
    read = perf_counter() - begun
    answer = explain_table(table.accounts(), Moment(name="bench", budget=budget))
    seconds = perf_counter() - begun
    if not (answer.findings and answer.slices and answer.rows):
        raise AssertionError("an explanation is missing")
    print(
        "; ".join(f"{f.term} {f.what_if.recovers[-1].saved_ns / MS:.0f} ms" for f in answer.findings), file=sys.stderr
    )
    return {"seconds": seconds, "reading": read, "replayed": answer.findings[0].what_if.replayed}


def _batches(path: Path):  # type: ignore[no-untyped-def]
    import pyarrow as pa
    import pyarrow.parquet as pq

    from outlay.accounts import Labels, of_columns

    for group in range((file := pq.ParquetFile(path)).num_row_groups):
        table = file.read_row_group(group)
        entries = {name: table[name].to_numpy() for name in table.column_names if "/" in name}
        labels = {}
        for name in ("site", "version", "hardware"):
            column = table[name].combine_chunks()
            column = column if isinstance(column, pa.DictionaryArray) else column.dictionary_encode()
            labels[name] = Labels(tuple(column.dictionary.to_pylist()), column.indices.to_numpy().astype(np.int32))
        start = table["start_ns"].to_numpy()
        yield of_columns(
            entries,
            start_ns=start,
            ids=start.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15),
            dimensions=labels,
            sizes={name: table[name].to_numpy().astype(float) for name in ("input_tokens", "output_tokens")},
        )


ROLES = {"floor": floor, "program": program}


def measured(role: str, path: Path) -> dict[str, float]:
    """One round in a process of its own: its seconds, and the most memory it held in MiB."""
    done = subprocess.run(
        [sys.executable, __file__, "--role", role, "--file", str(path)], check=True, stdout=subprocess.PIPE, text=True
    )
    found: dict[str, float] = json.loads(done.stdout)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--accounts", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--role", choices=ROLES, help=argparse.SUPPRESS)
    parser.add_argument("--file", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.role:
        found = ROLES[options.role](options.file)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(json.dumps(found | {"mib": peak}))
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "accounts.parquet"
        write(path, options.accounts)
        print(f"{options.accounts:,} accounts, {path.stat().st_size / 2**20:.0f} MiB of Parquet, {platform.platform()}")
        rounds = [(measured("floor", path), measured("program", path)) for _ in range(options.rounds)]
    for name, place in (("one Daft pass", 0), ("explanation", 1)):
        seconds = [each[place]["seconds"] for each in rounds]
        peak = max(each[place]["mib"] for each in rounds)
        print(f"{name}: {statistics.median(seconds):.2f} s ({min(seconds):.2f} to {max(seconds):.2f}), {peak:.0f} MiB")
    ratios = sorted(ours["seconds"] / theirs["seconds"] for theirs, ours in rounds)
    print(f"ratio {statistics.median(ratios):.1f} ({ratios[0]:.1f} to {ratios[-1]:.1f})")
    print(f"of it reading {statistics.median(ours['reading'] for _, ours in rounds):.2f} s")


if __name__ == "__main__":
    main()
