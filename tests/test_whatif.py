"""What-ifs against worlds whose generator can be changed: the prediction is compared with what the change gives."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outlay.accounts import Floats, Ints, Labels, of_columns
from outlay.change import Change, matching, parse_change
from outlay.interaction import FIRST_TOKEN, Interaction, Mark, Span
from outlay.replay import Replay, compile_replay
from outlay.report import Together
from outlay.units import NS_PER_MS
from outlay.whatif import changed_totals, together, what_if
from worlds import interaction, simple, span

MS = NS_PER_MS


def columns(
    entries: Mapping[str, Sequence[int]],
    labels: Mapping[str, Sequence[str]] | None = None,
    **sizes: Sequence[float],
) -> Replay:
    """Rows of which only the account is known; an empty label is unknown."""
    n = len(next(iter(entries.values())))
    dimensions = {}
    for name, said in (labels or {}).items():
        values = tuple(sorted({value for value in said if value}))
        codes = np.array([values.index(value) if value else -1 for value in said], dtype=np.int32)
        dimensions[name] = Labels(values, codes)
    return Replay.serial(
        of_columns(
            {name: np.array(took, dtype=np.int64) for name, took in entries.items()},
            start_ns=np.arange(n),
            dimensions=dimensions,
            sizes={name: np.array(values, dtype=np.float64) for name, values in sizes.items()},
        )
    )


def compiled(*made: Interaction) -> Replay:
    return compile_replay([(each, None) for each in made])


def each_after(replay: Replay, *texts: str) -> list[int]:
    return changed_totals(replay, [parse_change(text) for text in texts]).tolist()


# Words


CHANGES: list[tuple[str, dict[str, object]]] = [
    ("queue.broker=0", {"entry": "queue.broker", "kind": "limit", "amount": 0}),
    ("llm/infer = 40ms", {"entry": "llm/infer", "kind": "limit", "amount": 40 * MS}),
    ("infer=p50", {"entry": "infer", "kind": "percentile", "amount": 50}),
    ("llm/*=x0.5", {"entry": "llm/*", "kind": "factor", "amount": 0.5}),
    ("infer=x.25", {"entry": "infer", "kind": "factor", "amount": 0.25}),
    ("uplink=site:lon", {"entry": "uplink", "kind": "like", "dimension": "site", "value": "lon"}),
    ("infer=version:1.4", {"entry": "infer", "kind": "like", "dimension": "version", "value": "1.4"}),
    ("infer=model:a:b", {"entry": "infer", "kind": "like", "dimension": "model", "value": "a:b"}),
    ("uplink=rtt:76.5ms", {"entry": "uplink", "kind": "rtt", "amount": 76.5 * MS}),
    ("start=warm", {"entry": "start", "kind": "warm"}),
    ("app/unattributed.a=b->end=0", {"entry": "app/unattributed.a=b->end", "kind": "limit", "amount": 0}),
]


@pytest.mark.parametrize(("text", "fields"), CHANGES, ids=[text for text, _ in CHANGES])
def test_the_words_of_a_change(text: str, fields: dict[str, object]) -> None:
    assert parse_change(text) == Change(text=text, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("queue", "'queue' is not a change; write ENTRY=0"),
        ("=0", "write ENTRY=0"),
        ("queue=", "write ENTRY=0"),
        ("queue=soon", "'soon' is no duration; write ENTRY=0"),
        ("queue=5", "'5' is no duration"),
        ("queue=-4ms", "'-4ms' is no duration"),
        ("queue=p100", "'p100' is no duration"),
        ("queue=x-1", "'x-1' is no duration"),
        ("uplink=rtt:near", "'near' is no duration"),
        ("uplink=site:", "write ENTRY=0"),
        ("start=cold", "a start can only be made warm"),
    ],
)
def test_other_words_say_what_is_possible(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said.replace("(", r"\(")):
        parse_change(text)


ENTRIES = (
    "client/uplink.connect",
    "client/uplink.floor",
    "gateway/queue.broker",
    "gateway/queue.wait",
    "llm/infer.decode",
    "llm/infer.prefill",
    "llm/queue.cold_start",
    "llm/uplink",
    "llm/uplink..downlink",
    "app/unattributed.a[1]->end",
)


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ("llm/infer.decode", {"llm/infer.decode"}),
        ("llm/infer", {"llm/infer.decode", "llm/infer.prefill"}),
        ("infer", {"llm/infer.decode", "llm/infer.prefill"}),
        ("queue.wait", {"gateway/queue.wait"}),
        ("queue.*", {"gateway/queue.broker", "gateway/queue.wait", "llm/queue.cold_start"}),
        # A joint name begins with its first stage, and is not a part of it.
        ("uplink", {"client/uplink.connect", "client/uplink.floor", "llm/uplink"}),
        ("uplink..downlink", {"llm/uplink..downlink"}),
        ("*/uplink*", {"client/uplink.connect", "client/uplink.floor", "llm/uplink", "llm/uplink..downlink"}),
        ("app/unattributed.a[1]->end", {"app/unattributed.a[1]->end"}),
        ("unattributed", {"app/unattributed.a[1]->end", "llm/uplink..downlink"} - {"llm/uplink..downlink"}),
        ("broker", {"gateway/queue.broker"}),
        ("cold start", {"llm/queue.cold_start"}),
        ("cold_start", {"llm/queue.cold_start"}),
        ("queueing", {"gateway/queue.wait"}),
        ("geography", {"client/uplink.connect", "client/uplink.floor"}),
        ("API hop", {"llm/uplink"}),
    ],
)
def test_what_a_name_matches(wanted: str, found: set[str]) -> None:
    assert set(matching(ENTRIES, wanted)) == found


def test_a_name_that_matches_nothing_gets_the_nearest() -> None:
    with pytest.raises(ValueError, match=r"no entry here is 'gateway/queue\.weight'; there are gateway/queue\.wait"):
        matching(ENTRIES, "gateway/queue.weight")
    with pytest.raises(ValueError, match="there are none at all"):
        matching((), "queue")


# Limits and factors


def test_at_most_so_long_together_with_its_parts() -> None:
    replay = columns({"llm/infer.prefill": [10, 30, 80], "llm/infer.decode": [10, 30, 20], "x/render": [1, 1, 1]})
    assert each_after(replay, "infer=40ns") == [21, 41, 41]
    assert each_after(replay, "infer=0") == [1, 1, 1]
    assert each_after(replay, "infer=x0.5") == [11, 31, 51]
    assert each_after(replay, "infer=x2") == [41, 121, 201]
    # Of 20, 60 and 100 together the median is 60.
    assert each_after(replay, "infer=p50") == [21, 61, 61]


def test_the_median_is_of_those_that_have_the_entry() -> None:
    replay = columns({"llm/queue.wait": [0, 0, 0, 10, 20, 90], "llm/infer": [5] * 6})
    assert each_after(replay, "queueing=p50") == [5, 5, 5, 15, 25, 25]


def test_changes_multiply_in_any_order() -> None:
    replay = columns({"llm/infer": [80, 20], "llm/queue": [10, 10]})
    assert each_after(replay, "infer=40ns", "infer=x0.5", "queue=0") == [20, 10]
    assert each_after(replay, "queue=0", "infer=x0.5", "infer=40ns") == [20, 10]


def test_a_limit_is_on_the_longest_path_through_an_entry() -> None:
    # Four at once of 30, 60, 90 and 20: the longest is 90. At most 45 halves them all.
    spans = [span("app", None, 0, 100)]
    spans += [
        span(f"s{place}", "app", 10, 10 + took, component="search", stage="preprocess")
        for place, took in enumerate((30, 60, 90, 20))
    ]
    replay = compiled(*(interaction(*spans, id=str(place)) for place in range(6)))
    assert each_after(replay, "search/preprocess=45ns") == [55] * 6
    assert each_after(replay, "search/preprocess=95ns") == [100] * 6


# The distribution of others


def test_as_elsewhere_by_rank() -> None:
    sites = ["lon"] * 4 + ["nyc"] * 4
    replay = columns({"net/uplink": [1, 3, 5, 7, 40, 10, 30, 20], "llm/infer": [100] * 8}, {"site": sites})
    assert each_after(replay, "uplink=site:lon") == [101, 103, 105, 107, 107, 101, 105, 103]


def test_those_whose_value_is_unknown_change_too_and_failures_lend_nothing() -> None:
    lent = simple("lent", 5, dimensions={"site": "lon"})
    failed = simple("failed", 900, dimensions={"site": "lon"}, outcome="error")
    replay = compiled(lent, failed, *(simple(str(at), 50 + at) for at in range(5)))
    assert sorted(zip(replay.served.tolist(), each_after(replay, "infer=site:lon"), strict=True)) == [
        (False, 0),
        *[(True, 5)] * 6,
    ]


def test_as_elsewhere_within_one_shape() -> None:
    # Long inputs take 1000 more. Only nyc is slower, by 7, and has more of the long ones.
    sites = ["lon"] * 40 + ["nyc"] * 30
    tokens = [10] * 20 + [2000] * 20 + [10] * 5 + [2000] * 25
    took = [100 + 1000 * (size > 1000) + 7 * (site == "nyc") for size, site in zip(tokens, sites, strict=True)]
    replay = columns({"llm/infer": took}, {"site": sites}, input_tokens=tokens)
    assert each_after(replay, "infer=site:lon")[40:] == [100] * 5 + [1100] * 25
    assert what_if(replay, [parse_change("infer=site:lon")]).notes[0].startswith("infer=site:lon: only 40 interactions")


def test_a_shape_that_was_not_measured_there_gets_all_of_it() -> None:
    sites, tokens = ["lon"] * 20 + ["nyc"] * 4, [10] * 20 + [10, 10, 10, 5000]
    replay = columns({"llm/infer": [*range(20), 90, 90, 90, 90]}, {"site": sites}, input_tokens=tokens)
    notes = what_if(replay, [parse_change("infer=site:lon")]).notes
    assert notes[0] == (
        "infer=site:lon: 75 % matched on shape; the others got the distribution of all 20 that were measured so"
    )
    # One alone stands in the middle of its class: at the 10th of 20.
    assert each_after(replay, "infer=site:lon")[23] == 9


def test_an_entry_that_an_interaction_lacks_is_added_at_its_end() -> None:
    replay = columns({"q/queue.wait": [6, 8, 0, 0], "llm/infer": [10] * 4}, {"site": ["lon", "lon", "nyc", "nyc"]})
    assert sorted(each_after(replay, "queue.wait=site:lon")) == [16, 16, 18, 18]
    assert any(
        "2 interactions had no such entry" in note
        for note in what_if(replay, [parse_change("queue.wait=site:lon")]).notes
    )


def test_unnamed_edges_of_a_component_are_replaced_as_one() -> None:
    entries = {"app/unattributed.a->b": [4, 0, 9], "app/unattributed.c->d": [0, 2, 3], "llm/infer": [10, 10, 10]}
    replay = columns(entries, {"site": ["lon", "nyc", "nyc"]})
    assert each_after(replay, "unattributed=site:lon") == [14, 14, 14]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("infer=site:par", "no interaction that was served has site 'par'; others: lon, nyc"),
        ("infer=hardware:h100", "nothing is known by 'hardware'; known: site"),
        ("render=0", "no entry here is 'render'"),
        ("infer=rtt:5ms", "infer holds no round trips"),
        ("start=warm", "no entry is queue.cold_start"),
    ],
)
def test_what_is_not_there_cannot_be_changed(text: str, said: str) -> None:
    replay = columns({"llm/infer": [5, 9]}, {"site": ["lon", "nyc"]})
    with pytest.raises(ValueError, match=said):
        what_if(replay, [parse_change(text)])


# Round trips and cold starts


def test_another_round_trip_replaces_the_floor_and_keeps_what_exceeds_it() -> None:
    # Site near: floors of 10 up and 12 down; site far: 50 and 60. Half of 8 each way.
    replay = columns(
        {"client/uplink": [10, 15, 50, 51], "client/downlink": [12, 12, 60, 90], "llm/infer": [100] * 4},
        {"site": ["near", "near", "far", "far"]},
    )
    assert each_after(replay, "geography=rtt:8ns") == [108, 113, 108, 108 + 1 + 30]


def test_a_split_round_trip_keeps_its_excess_and_a_handshake_is_all_of_one() -> None:
    replay = columns(
        {
            "client/uplink.connect": [30, 0, 35],
            "client/uplink.floor": [14, 15, 15],
            "client/uplink.excess": [3, 4, 5],
            "client/downlink.floor": [16, 15, 15],
        }
    )
    assert each_after(replay, "client/*=rtt:10ns") == [10 + 5 + 3 + 5, 5 + 4 + 5, 15 + 5 + 5 + 5]


def test_a_matrix_says_the_round_trip_from_each_region() -> None:
    # Floors of one way each; from fra 8 there and back, from sgp 20, and of ams nothing is known.
    replay = columns(
        {"client/uplink.floor": [10, 40, 30], "client/downlink.floor": [10, 40, 30], "llm/infer": [100] * 3},
        {"user_region": ["fra", "sgp", "ams"]},
    )
    matrix = {("fra", "lon"): 8, ("sgp", "lon"): 20, ("fra", "iad"): 90}
    change = parse_change("geography=rtt:lon", matrix)
    assert changed_totals(replay, [change]).tolist() == [108, 120, 160]
    (_, unknown) = what_if(replay, [change], (50.0,)).notes[:2]
    assert unknown == "geography=rtt:lon: the round trip of 1 interactions is not known; theirs is left as it was"


def test_a_place_or_a_region_that_is_not_known_is_refused() -> None:
    matrix = {("fra", "london"): 8}
    with pytest.raises(ValueError, match="no round trip to 'londn' is known; near it: london"):
        parse_change("uplink=rtt:londn", matrix)
    replay = columns({"client/uplink.floor": [10, 40]}, {"site": ["a", "b"]})
    with pytest.raises(ValueError, match="no interaction says where its user is"):
        what_if(replay, [parse_change("uplink=rtt:london", matrix)])


def test_warm_starts_take_the_cold_start_away_and_what_comes_with_it() -> None:
    replay = columns(
        {"llm/queue.cold_start": [0, 0, 0, 500, 0], "llm/infer": [10, 30, 20, 90, 60]},
        {"start": ["warm", "warm", "warm", "cold", "cold"]},
    )
    # Of 60 and 90 the ranks are a quarter and three quarters: of 10, 20 and 30, the first and the third.
    assert each_after(replay, "start=warm") == [10, 30, 20, 30, 10]


def test_without_a_word_on_starts_only_the_entry_goes() -> None:
    replay = columns({"llm/queue.cold_start": [0, 500], "llm/infer": [10, 90]})
    assert each_after(replay, "start=warm") == [10, 90]


# What is told


def test_what_failed_never_ends_before_nor_after() -> None:
    made = [simple(str(at), 100 + at, start_ns=at) for at in range(290)]
    made += [simple(f"f{at}", 9, start_ns=400 + at, outcome="timeout") for at in range(10)]
    found = what_if(compiled(*made), [parse_change("infer=0")])
    median, _, last = found.recovers
    # The 150th of 300 is the 150th of those served.
    assert (median.before_ns, median.after_ns, median.saved_ns) == (249, 0, 249)
    assert (last.before_ns, last.after_ns, last.saved_ns) == (float("inf"), float("inf"), 0)
    assert last.interval_ns == (0, 0) or last.interval_ns[1] > 0


def test_a_row_counts_for_as_many_as_it_stands_for() -> None:
    replay = compile_replay([(simple(str(at), 10 * at, start_ns=at), None) for at in range(1, 11)], [91] + [1] * 9)
    found = what_if(replay, [parse_change("infer=x0.5")], levels=(50,))
    assert (found.replayed, found.of, found.serial) == (10, 100, 0)
    assert (found.recovers[0].before_ns, found.recovers[0].after_ns) == (10, 5)


def test_a_level_that_the_sample_does_not_show_is_refused() -> None:
    found = what_if(columns({"llm/infer": list(range(1, 101))}), [parse_change("infer=0")])
    assert [recovery.level for recovery in found.recovers] == [50, 95]
    assert found.serial == 100
    assert found.notes == (
        "of 100 interactions only the account is known: there, a saving is an upper bound",
        "p99 takes 299 interactions, there are 100",
    )


def test_what_everybody_is_saved_has_no_doubt() -> None:
    # However drawn, 50 less for each is 50 less at every quantile.
    replay = columns({"llm/queue.wait": [50] * 400, "llm/infer": [int(at**1.5) for at in range(400)]})
    for recovery in what_if(replay, [parse_change("queue=0")]).recovers:
        assert (recovery.saved_ns, recovery.interval_ns) == (50, (50, 50))


# Several at once


def game(replay: Replay, *texts: str) -> Together:
    found = together(replay, {text: [parse_change(text)] for text in texts})
    assert found is not None
    return found


def test_two_branches_side_by_side_only_save_together_and_share_it() -> None:
    spans = [span("app", None, 0, 110)]
    spans += [span(name, "app", 0, 100, component=name, stage="infer") for name in "ab"]
    spans += [span("c", "app", 100, 110, component="c", stage="render")]
    replay = compiled(*(interaction(*spans, id=str(at)) for at in range(300)))
    found = game(replay, "a/infer=0", "b/infer=0", "c/render=0")
    # Alone a and b save nothing, both 100; c saves 10 whatever the others do.
    assert found.all_recovers.saved_ns == 110
    assert found.shares_ns == pytest.approx({"a/infer=0": 50, "b/infer=0": 50, "c/render=0": 10})
    assert found.pair == ("a/infer=0", "b/infer=0")
    assert found.pair_recovers is not None
    assert found.pair_recovers.saved_ns == 100


@settings(max_examples=6, deadline=None)
@given(st.integers(1, 10), st.integers(0, 2**32 - 1))
def test_the_fair_split_sums_to_what_all_recover(number: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    names = [f"s{place}/infer" for place in range(number)]
    replay = columns({name: random.lognormal(3, 1, 300).astype(np.int64) + 1 for name in names})
    found = game(replay, *(f"{name}=p50" for name in names))
    assert sum(found.shares_ns.values()) == pytest.approx(found.all_recovers.saved_ns, abs=1e-6)
    assert (found.pair is None) == (number == 1)
    assert found == game(replay, *(f"{name}=p50" for name in names))


def test_too_few_to_show_the_level_have_no_split() -> None:
    assert together(columns({"llm/infer": [5] * 298}), {"a": [parse_change("infer=0")]}) is None


# Whether it comes true: worlds that can really be changed


@dataclass(frozen=True)
class World:
    """One kind of system: draws the durations of so many interactions, lets them run, and shows what a trace would."""

    draw: Callable[[np.random.Generator, int], dict[str, Floats]]
    run: Callable[[Mapping[str, Floats]], Floats]
    record: Callable[[Mapping[str, Floats]], Replay]


def lognormal(
    random: np.random.Generator, n: int, median_ms: float, sigma: float, load: Floats | None = None
) -> Floats:
    normal = random.standard_normal(n)
    shared = 0 if load is None else load
    return np.rint(np.exp(np.log(median_ms * MS) + sigma * (0.6 * normal + 0.8 * shared)))


def draws(random: np.random.Generator, n: int) -> dict[str, Floats]:
    """Medians, spreads, a shared load on queue and model, and a rare slow start, another mixture in each world."""
    load = random.standard_normal(n) if random.random() < 0.5 else None
    medians, sigmas = random.uniform(10, 300, 4), random.uniform(0.2, 0.9, 4)
    names = ("queue", "llm", "search", "tts")
    drawn = {
        name: lognormal(random, n, medians[place], sigmas[place], load if place < 2 else None)
        for place, name in enumerate(names)
    }
    if random.random() < 0.3:
        drawn["queue"] += np.where(random.random(n) < 0.03, np.rint(random.uniform(300, 900) * MS), 0)
    return drawn


def chain_run(took: Mapping[str, Floats]) -> Floats:
    return took["queue"] + took["llm"] + took["search"] + took["tts"]


def chain_record(took: Mapping[str, Floats]) -> Replay:
    starts = np.arange(len(took["llm"])) * 10 * MS
    return Replay.serial(of_columns({STAGED[name]: as_ns(each) for name, each in took.items()}, start_ns=starts))


STAGED = {"queue": "llm/queue.wait", "llm": "llm/infer", "search": "rag/preprocess", "tts": "tts/infer"}


def as_ns(values: Floats) -> Ints:
    return values.astype(np.int64)


def marks_record(took: Mapping[str, Floats]) -> Replay:
    ends = np.cumsum(np.stack([as_ns(took[name]) for name in STAGED], axis=1), axis=1).tolist()
    split = [(name, *entry.split("/")) for name, entry in STAGED.items()]
    return compiled(
        *(
            Interaction(
                id=f"{row:05}",
                moment="m",
                start_ns=start,
                end_ns=start + at[-1],
                marks=tuple(
                    Mark(name=name, at_ns=start + end, component=component, stage=stage)
                    for (name, component, stage), end in zip(split, at, strict=True)
                ),
            )
            for row, (start, at) in enumerate((row * 10 * MS, at) for row, at in enumerate(ends))
        )
    )


def part(name: str, start_ns: int, end_ns: int) -> Span:
    component, _, stage = STAGED[name].partition("/")
    return Span(id=name, parent="app", name=name, component=component, start_ns=start_ns, end_ns=end_ns, stage=stage)


def traced(row: int, end_ns: int, spans: Sequence[Span], *marks: Mark) -> Interaction:
    root = Span(id="app", parent=None, name="app", component="app", start_ns=spans[0].start_ns, end_ns=end_ns)
    return Interaction(
        id=f"{row:05}", moment="m", start_ns=root.start_ns, end_ns=end_ns, spans=(root, *spans), marks=marks
    )


def fork_run(took: Mapping[str, Floats]) -> Floats:
    """The search runs beside the queue and the model; speech begins when both are there."""
    return np.maximum(took["queue"] + took["llm"], took["search"]) + took["tts"]


def fork_record(took: Mapping[str, Floats]) -> Replay:
    made = []
    for row, (queue, llm, search, tts) in enumerate(rows_of(took)):
        start = row * 10 * MS
        both = start + max(queue + llm, search)
        spans = [
            part("queue", start, start + queue),
            part("llm", start + queue, start + queue + llm),
            part("search", start, start + search),
            part("tts", both, both + tts),
        ]
        made.append(traced(row, both + tts, spans))
    return compiled(*made)


def stream_run(took: Mapping[str, Floats]) -> Floats:
    """Search, then the queue, then the model; speech begins at its first token, a quarter into its answer."""
    first = took["search"] + took["queue"] + np.rint(took["llm"] / 4)
    return np.maximum(first + took["tts"], took["search"] + took["queue"] + took["llm"])


def stream_record(took: Mapping[str, Floats]) -> Replay:
    made = []
    for row, (queue, llm, search, tts) in enumerate(rows_of(took)):
        start = row * 10 * MS
        queued, begun = start + search, start + search + queue
        first = begun + round(llm / 4)
        spans = [
            part("search", start, queued),
            part("queue", queued, begun),
            part("llm", begun, begun + llm),
            part("tts", first, first + tts),
        ]
        made.append(traced(row, max(first + tts, begun + llm), spans, Mark(name=FIRST_TOKEN, at_ns=first)))
    return compiled(*made)


def rows_of(took: Mapping[str, Floats]) -> list[list[int]]:
    return np.stack([as_ns(took[name]) for name in STAGED], axis=1).tolist()


WORLDS = {
    "chain": World(draws, chain_run, chain_record),
    "marks": World(draws, chain_run, marks_record),
    "fork and join": World(draws, fork_run, fork_record),
    "stream": World(draws, stream_run, stream_record),
}

# What is done to the generator, and how the same is asked for.
MADE: dict[str, tuple[str, Callable[[Floats], Floats]]] = {
    "llm/infer=x0.5": ("llm", lambda took: np.rint(took / 2)),
    "queueing=0": ("queue", lambda took: 0 * took),
    "rag/preprocess=60ms": ("search", lambda took: np.minimum(took, 60 * MS)),
    "tts/infer=p50": ("tts", lambda took: np.minimum(took, np.sort(took)[(len(took) - 1) // 2])),
}


def changed(took: Mapping[str, Floats], text: str) -> dict[str, Floats]:
    name, make = MADE[text]
    return {**took, name: make(took[name])}


@pytest.mark.parametrize("text", MADE)
@pytest.mark.parametrize("kind", WORLDS)
def test_with_the_same_draws_each_interaction_takes_what_the_changed_world_gives(kind: str, text: str) -> None:
    world = WORLDS[kind]
    took = world.draw(np.random.default_rng(11), 400)
    found = what_if(world.record(took), [parse_change(text)], levels=(25, 50, 75, 90, 95, 99))
    truth = np.sort(world.run(changed(took, text)))
    places = np.ceil(np.array([25, 50, 75, 90, 95, 99]) / 100 * 400).astype(int) - 1
    # A first token a quarter into an answer is rounded once more when halved.
    assert [each.after_ns for each in found.recovers] == pytest.approx(truth[places].tolist(), abs=2, rel=0)


# Reading traces takes longer than columns, so there are fewer of those worlds.
TRIED = {"chain": 140, "marks": 20, "fork and join": 20, "stream": 20}


def test_what_is_recovered_comes_true_in_new_draws() -> None:
    """In 200 worlds, the true recovery of the p99, of 20,000 fresh interactions, lies in the interval of 500."""
    kinds = [kind for kind, number in TRIED.items() for _ in range(number)]
    texts = list(MADE)
    inside = 0
    for number, kind in enumerate(kinds):
        world, text = WORLDS[kind], texts[number % 4]
        fresh = world.draw(np.random.default_rng(number), 20_000)
        truth = np.quantile(world.run(fresh), 0.99) - np.quantile(world.run(changed(fresh, text)), 0.99)
        seen = {name: each[:500] for name, each in fresh.items()}
        (recovery,) = what_if(world.record(seen), [parse_change(text)], levels=(99,)).recovers
        low, high = recovery.interval_ns
        inside += low - 1 <= truth <= high + 1
    assert len(kinds) == 200
    assert inside >= 180
