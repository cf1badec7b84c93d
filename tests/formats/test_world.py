"""World files: what each key means, what is refused and on which line, and what data files become."""

import csv
import re
from collections.abc import Mapping
from contextlib import suppress
from io import StringIO
from itertools import pairwise
from pathlib import Path
from statistics import fmean, median

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from outlay.budget import Budget
from outlay.formats.codec import FormatError
from outlay.formats.spec_yaml import SpecError
from outlay.formats.world import load_world, world_schema
from outlay.formats.world_data import drive_delays_ns, fit_service, pair_delays_ns, servegen_rates
from outlay.policy import Hedge, Rules, Rung
from outlay.units import NS_PER_MS, NS_PER_S
from outlay.work import ColdStart, Fleet, Service, Target
from outlay.world import Access, Arrivals, Fault, Reports, Tokens, Users, World

DATA = Path(__file__).parents[1] / "data"
EXAMPLES = Path(__file__).parents[2] / "examples" / "worlds"
WORLDS = sorted(EXAMPLES.glob("*.yaml"))

# No deadline: what a busy machine takes for one example says nothing about the reader.
UNHURRIED = settings(max_examples=60, deadline=None)

SMALL = """\
about: one server
run: {for: 60s}
rtt: {pairs: {Leeds -> London: 10ms}}
access: {fixed: {constant: 5ms}}
sites: {here: {region: London}}
targets:
  big:
    at: {here: 1}
    service: {prefill: 1000, step: 20ms}
users:
  - {region: Leeds, access: fixed}
moments:
  chat:
    within: 1s
    arrivals: {rate: 2}
"""

COMPLETE = """\
about: every key
run: {for: 120s, warm_up: 10s}
rtt:
  file: matrix.csv
  local: 3ms
  pairs: {Leeds -> Dublin: 12ms}
access:
  slow: {constant: 5ms, throughput: 250000}
  cell: {recording: drives.csv, road: rural, network: n8}
  home: {netlatency: pairs.csv, pair: n1-n2, period: 250ms}
  wide: {median: 8ms, sigma: 0.5}
sites:
  london: {region: London}
  dublin: {region: Dublin}
  far: {region: Perth}
targets:
  large:
    at: {london: 2, dublin: 1}
    variant: llama-70b
    hardware: h100
    quality: 0.9
    price_per_hour: 36
    service:
      prefill: 20000
      step: 30ms
      step_slope: 300us
      overhead: 40ms
      max_batch: 32
      kv_tokens: 200000
      kv_penalty: 10ms
    cold: {times: [2s, 3s], keep: 5m}
  small:
    at: {far: 1}
    service: {perf_model: model.csv, model: m, hardware: h, tensor_parallel: 8, step: 5ms}
users:
  - {region: Leeds, access: slow, share: 3, local: london}
  - {region: London, access: cell}
moments:
  voice-turn:
    within: 900ms
    percentile: 95
    arrivals: {stages: "4rps:60s,12rps:10s", burstiness: 0.4}
    input: {median: 700, sigma: 0.7, most: 6000}
    output: {values: [10, 20, 30]}
    useful: 10
    payload: 120000
    client: 20ms
    render: 40ms
    variant: llama-70b
    regions: [Leeds]
    ladder:
      rungs:
        - {name: large, variants: [llama-70b]}
        - {name: short, output: 0.5}
      last: defer
      p_min: 0.9
      p_floor: 0.5
      attempts: 3
      explore: 0.02
      local_share: 0.2
      sheddable: yes
      hedge: {after: 0.98, gain: 0.3}
  day:
    within: 20s
    arrivals: {servegen: rates.csv, mean: 6}
  again:
    within: 2s
    arrivals: {replay: trace.csv, speed: 2}
faults:
  - {kind: slow, where: large-london#2, from: 10s, to: 20s, factor: 3}
  - {kind: path, where: far, from: 1m, to: 90s, factor: 1.5, extra: 150ms}
  - {kind: client-errors, where: london, from: 0s, to: 5s, share: 0.25}
routers: 3
reports: {every: 2s, delay: 500ms}
probes: 5s
jitter: {backbone: 0.1, service: 0.2}
slow_start: 4s
"""

FILES: Mapping[str, str] = {
    "matrix.csv": "Source,London,Dublin,Perth\nLeeds,9,,250\nLondon,,11,240\n",
    "drives.csv": "road,network,pub_time_ms,delay_ms\nrural,n8,1000,30\nrural,n8,1050,20\nrural,n8,1100,50\n",
    "pairs.csv": "slice,n1-n2,n3-n4\n1,0.1,0.2\n2,0.4,0.2\n",
    "rates.csv": "0,10,1,Gamma,,\n600,20,1,Gamma,,\n1200,0,,,,\n",
    "trace.csv": (
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        "2023-11-16 18:00:00.0,100,11\n2023-11-16 18:00:04.0,200,22\n2023-11-16 18:00:10.0,300,33\n"
    ),
    # Prompts take 20 ms and 0.1 ms a token, steps 10 ms and 1 ms for each further request: straight lines.
    "model.csv": (
        "model,hardware,prompt_size,batch_size,token_size,prompt_time,token_time,tensor_parallel\n"
        "m,h,100,1,128,30,10,8\nm,h,1000,1,128,120,10,8\nm,h,512,1,128,71.2,10,8\nm,h,512,5,128,200,14,8\n"
    ),
}


def read_file(name: str) -> bytes:
    if name not in FILES:
        raise FileNotFoundError(2, "No such file or directory", name)
    return FILES[name].encode()


def world_of(text: str) -> World:
    return load_world(text, "try.yaml", read_file)


def changed(before: str, after: str, text: str = SMALL) -> str:
    """A world with one thing changed, so that a test says only what it is about."""
    assert text.count(before) == 1, before
    return text.replace(before, after)


def problems_of(text: str | bytes) -> list[str]:
    """Every problem without the file's name, `LINE: path: message`."""
    with pytest.raises(SpecError) as caught:
        load_world(text, "try.yaml", read_file)
    return [str(problem).removeprefix("try.yaml:") for problem in caught.value.problems]


def problem_of(text: str) -> str:
    (problem,) = problems_of(text)
    return problem


def shipped(path: Path) -> World:
    return load_world(path.read_bytes(), str(path), lambda name: (EXAMPLES / name).read_bytes())


# Types of the schema that hold further values.
BRANCHES = ("object", "array")

WHOLE = world_of(COMPLETE)
LARGE = Service(
    prefill_tokens_per_s=20000,
    step_ns=30 * NS_PER_MS,
    step_slope_ns=300_000,
    overhead_ns=40 * NS_PER_MS,
    max_batch=32,
    kv_tokens=200_000,
    kv_penalty_ns=10 * NS_PER_MS,
)


# What each key means


def test_the_run_and_what_routers_hear_arrive_as_they_are_written() -> None:
    assert (WHOLE.name, WHOLE.about) == ("try", "every key")
    assert (WHOLE.until_ns, WHOLE.warm_up_ns) == (120 * NS_PER_S, 10 * NS_PER_S)
    assert (WHOLE.routers, WHOLE.probe_ns, WHOLE.slow_start_ns) == (3, 5 * NS_PER_S, 4 * NS_PER_S)
    assert WHOLE.reports == Reports(every_ns=2 * NS_PER_S, delay_ns=500 * NS_PER_MS)
    assert (WHOLE.backbone_jitter, WHOLE.service_jitter) == (0.1, 0.2)


def test_what_is_not_given_is_as_the_core_has_it_and_a_sixth_is_warm_up() -> None:
    world = world_of(SMALL)
    assert (world.until_ns, world.warm_up_ns) == (60 * NS_PER_S, 10 * NS_PER_S)
    assert (world.routers, world.reports, world.faults, world.slow_start_ns) == (1, Reports(), (), 0)
    assert (world.backbone_jitter, world.service_jitter, world.probe_ns) == (0.03, 0.05, NS_PER_S)
    (traffic,) = world.traffic
    assert (traffic.budget, traffic.useful_tokens) == (Budget(limit_ns=NS_PER_S, percentile=99), None)
    assert traffic.arrivals == Arrivals(rates=((0, 2.0),))
    assert world.policy.moments == {"chat": Rules()}
    assert world.targets[0] == Target(
        name="big-here", site="here", variant="big", service=Service(prefill_tokens_per_s=1000, step_ns=20 * NS_PER_MS)
    )


def test_an_access_is_a_constant_a_drive_or_a_pair() -> None:
    assert WHOLE.access["slow"] == Access(
        name="slow", samples_ns=(5 * NS_PER_MS,), period_ns=NS_PER_S, bytes_per_s=250_000
    )
    # The fastest of 30, 20 and 50 ms is the floor.
    assert WHOLE.access["cell"].samples_ns == (10 * NS_PER_MS, 0, 30 * NS_PER_MS)
    assert WHOLE.access["cell"].period_ns == 50 * NS_PER_MS
    # Seconds: 0.1 and 0.4, above the fastest.
    assert WHOLE.access["home"].samples_ns == (0, 300 * NS_PER_MS)
    assert WHOLE.access["home"].period_ns == 250 * NS_PER_MS


def test_a_log_normal_access_has_its_median_and_no_order() -> None:
    samples = WHOLE.access["wide"].samples_ns
    assert median(samples) == pytest.approx(8 * NS_PER_MS, rel=0.001)
    # 84.13 % of a normal distribution lie below one standard deviation, and exp(0.5) is 1.649.
    assert sorted(samples)[round(0.8413 * len(samples))] == pytest.approx(1.649 * 8 * NS_PER_MS, rel=0.01)
    # In the order of their size neighbours would have a correlation near 1.
    mean = fmean(samples)
    spread = sum((sample - mean) ** 2 for sample in samples)
    together = sum((one - mean) * (other - mean) for one, other in pairwise(samples))
    assert abs(together / spread) < 0.5
    assert len(set(samples)) > 1900


def test_users_know_the_round_trips_of_the_matrix_and_of_pairs_and_no_others() -> None:
    leeds, london = WHOLE.users
    # 9 and 250 ms from the matrix; the blank to Dublin is filled by a pair.
    assert leeds == Users(
        region="Leeds",
        access="slow",
        share=3,
        local="london",
        rtt_ns={"london": 9 * NS_PER_MS, "dublin": 12 * NS_PER_MS, "far": 250 * NS_PER_MS},
    )
    # The diagonal is blank: a place is `local` from itself.
    assert london.rtt_ns == {"london": 3 * NS_PER_MS, "dublin": 11 * NS_PER_MS, "far": 240 * NS_PER_MS}
    assert (london.share, london.local) == (1.0, None)


def test_a_pair_that_nobody_measured_is_absent_and_not_0() -> None:
    (users,) = world_of(changed("sites: {", "sites: {there: {region: Perth}, ")).users
    assert users.rtt_ns == {"here": 10 * NS_PER_MS}


def test_a_stated_pair_wins_over_the_file_in_both_directions() -> None:
    text = changed("rtt: {pairs: {Leeds -> London: 10ms}}", "rtt: {file: matrix.csv, pairs: {London -> Leeds: 1ms}}")
    assert world_of(text).users[0].rtt_ns == {"here": NS_PER_MS}


def test_servers_of_one_kind_are_single_targets_with_a_number_where_there_are_several() -> None:
    assert [target.name for target in WHOLE.targets] == [
        "large-london#1",
        "large-london#2",
        "large-dublin",
        "small-far",
    ]
    assert WHOLE.targets[1] == Target(
        name="large-london#2",
        site="london",
        variant="llama-70b",
        hardware="h100",
        service=LARGE,
        quality=0.9,
        price_per_s=0.01,  # 36 an hour
        cold=ColdStart(start_ns=(2 * NS_PER_S, 3 * NS_PER_S), keep_ns=300 * NS_PER_S),
    )


def test_a_fitted_service_takes_what_is_measured_and_stated_keys_win() -> None:
    small = WHOLE.targets[3]
    assert (small.variant, small.hardware, small.cold) == ("small", "h", None)
    assert small.service.prefill_tokens_per_s == pytest.approx(10_000)
    assert small.service.overhead_ns == pytest.approx(20 * NS_PER_MS, rel=1e-6)
    assert small.service.step_slope_ns == pytest.approx(NS_PER_MS, rel=1e-6)
    assert small.service.step_ns == 5 * NS_PER_MS  # measured 10


def test_a_moment_has_its_budget_its_sizes_and_its_devices_times() -> None:
    voice = WHOLE.traffic[0]
    assert (voice.moment, voice.budget) == ("voice-turn", Budget(limit_ns=900 * NS_PER_MS, percentile=95))
    assert (voice.useful_tokens, voice.payload_bytes, voice.variant, voice.regions) == (
        10,
        120_000,
        "llama-70b",
        ("Leeds",),
    )
    assert (voice.client_ns, voice.render_ns) == (20 * NS_PER_MS, 40 * NS_PER_MS)
    assert median(voice.input_tokens.values) == pytest.approx(700, rel=0.01)
    assert max(voice.input_tokens.values) == 6000
    assert voice.output_tokens == Tokens(values=(10, 20, 30))


def test_stages_begin_one_after_the_other_and_nothing_comes_after_the_last() -> None:
    # 60 s and 10 s of a run of 120
    assert WHOLE.traffic[0].arrivals == Arrivals(
        rates=((0, 4.0), (60 * NS_PER_S, 12.0), (70 * NS_PER_S, 0.0)), shape=0.4
    )


def test_stages_that_fill_the_run_end_with_it() -> None:
    text = changed("{rate: 2}", "{stages: '2rps:20s,0rps:40s'}")
    assert world_of(text).traffic[0].arrivals.rates == ((0, 2.0), (20 * NS_PER_S, 0.0))


def test_recorded_rates_fill_the_run_with_the_mean_asked_for() -> None:
    # 10, 20 and 0 a second on average 10, asked for 6: times 0.6, 40 s each
    (start, *_), rates = zip(*WHOLE.traffic[1].arrivals.rates, strict=True)
    assert start == 0
    assert rates == pytest.approx((6, 12, 0))
    assert [at_ns for at_ns, _ in WHOLE.traffic[1].arrivals.rates] == [0, 40 * NS_PER_S, 80 * NS_PER_S]


def test_a_replay_keeps_gaps_at_its_speed_and_sizes_in_pairs() -> None:
    again = WHOLE.traffic[2]
    assert again.arrivals == Arrivals(at_ns=(0, 2 * NS_PER_S, 5 * NS_PER_S))  # 0, 4 and 10 s, twice as fast
    assert (again.input_tokens.values, again.output_tokens.values) == ((100, 200, 300), (11, 22, 33))


def test_sizes_stated_beside_a_replay_win_and_make_no_pairs_of_what_is_left() -> None:
    text = changed("{rate: 2}", "{replay: trace.csv}\n    output: {values: [1, 2, 3]}")
    (traffic,) = world_of(text).traffic
    assert traffic.input_tokens.values == (100, 200, 300)
    assert traffic.output_tokens.values == (2, 3)  # as many as prompts would be pairs


def test_as_many_values_for_both_sizes_are_pairs() -> None:
    text = changed("{rate: 2}", "{rate: 2}\n    input: {values: [5, 6]}\n    output: {values: [1, 2]}")
    (traffic,) = world_of(text).traffic
    assert (traffic.input_tokens.values, traffic.output_tokens.values) == ((5, 6), (1, 2))


def test_drawn_sizes_are_no_pairs() -> None:
    text = changed("{rate: 2}", "{rate: 2}\n    input: {median: 50, sigma: 1}\n    output: {median: 50, sigma: 1}")
    (traffic,) = world_of(text).traffic
    assert len(traffic.input_tokens.values) != len(traffic.output_tokens.values)


def test_sizes_are_at_least_one_token_and_the_same_ones_each_time() -> None:
    text = changed("{rate: 2}", "{rate: 2}\n    input: {median: 1, sigma: 3}")
    assert min(world_of(text).traffic[0].input_tokens.values) == 1
    assert world_of(text) == world_of(text)


def test_a_ladder_becomes_the_rules_of_its_moment_and_keeps_back_the_time_to_render() -> None:
    assert WHOLE.policy.moments["voice-turn"] == Rules(
        rungs=(Rung(name="large", variants=("llama-70b",)), Rung(name="short", output_share=0.5)),
        last="defer",
        p_min=0.9,
        p_floor=0.5,
        render_ns=40 * NS_PER_MS,
        attempts=3,
        explore=0.02,
        local_share=0.2,
        sheddable=True,
        hedge=Hedge(after=0.98, gain=0.3),
    )
    assert WHOLE.policy.moments["day"] == Rules()


def test_faults_have_their_place_time_and_strength() -> None:
    assert WHOLE.faults == (
        Fault(kind="slow", where="large-london#2", from_ns=10 * NS_PER_S, to_ns=20 * NS_PER_S, factor=3),
        Fault(
            kind="path", where="far", from_ns=60 * NS_PER_S, to_ns=90 * NS_PER_S, factor=1.5, extra_ns=150 * NS_PER_MS
        ),
        Fault(kind="client-errors", where="london", from_ns=0, to_ns=5 * NS_PER_S, share=0.25),
    )


def test_the_name_is_the_files_without_folder_and_ending() -> None:
    assert load_world(SMALL, "some/where/steady.yaml", read_file).name == "steady"


# What is refused, and on which line


@pytest.mark.parametrize(
    ("before", "after", "problem"),
    [
        ("for: 60s", "for: 0s", "2: run.for: must be above 0"),
        ("for: 60s", "for: 60s, warm_up: 60s", "2: run.warm_up: must be shorter than `for` (60s), or nothing is left"),
        ("Leeds -> London:", "Leeds to London:", "3: rtt.pairs.Leeds to London: expected a pair such as London -> UK"),
        ("{constant: 5ms}", "{}", "4: access.fixed: needs one of recording, netlatency, constant, median"),
        ("{constant: 5ms}", "{constant: 5ms, median: 1ms}", "4: access.fixed: needs one of recording, netlatency, "),
        ("{constant: 5ms}", "{median: 5ms}", "4: access.fixed.median: needs `sigma` beside it"),
        ("{constant: 5ms}", "{constant: 5ms, road: rural}", "4: access.fixed.road: means nothing beside `constant`"),
        ("{constant: 5ms}", "{constant: 5ms, throughput: 0}", "4: access.fixed.throughput: expected a number of at le"),
        ("{constant: 5ms}", "{median: 5ms, sigma: 99}", "4: access.fixed.sigma: expected a number from 0 to 5, got 99"),
        ("region: London", "region: London, regoin: a", "5: sites.here.regoin: unknown key; did you mean region?"),
        ("at: {here: 1}", "at: {hear: 1}", "8: targets.big.at.hear: unknown site hear; did you mean here?"),
        ("at: {here: 1}", "at: {here: 0}", "8: targets.big.at.here: expected a whole number from 1 to 1000, got 0"),
        ("at: {here: 1}", "at: {here: 1.5}", "8: targets.big.at.here: expected a whole number from 1 to 1000, got 1.5"),
        ("at: {here: 1}", "at: {here: 1000000000}", "8: targets.big.at.here: expected a whole number from 1 to 1000"),
        ("at: {here: 1}", "at: {}", "8: targets.big.at: expected a mapping, got an empty mapping"),
        ("prefill: 1000, ", "", "9: targets.big.service: needs `prefill`, or `perf_model` to fit it to"),
        (", step: 20ms", "", "9: targets.big.service: needs `step`, or `perf_model` to fit it to"),
        ("step: 20ms", "step: 0ms", "9: targets.big.service.step: must be above 0"),
        ("prefill: 1000", "prefill: 1e999", "9: targets.big.service.prefill: expected a number of at least 1"),
        ("prefill: 1000", "prefill: 1, model: m", "9: targets.big.service.model: means nothing without `perf_model`"),
        (
            "{prefill: 1000, step: 20ms}",
            "{perf_model: model.csv, model: m}",
            "9: targets.big.service.perf_model: needs `hardware` beside it",
        ),
        ("access: fixed", "access: fxied", "11: users[0].access: unknown access fxied; did you mean fixed?"),
        ("access: fixed", "access: fixed, local: hre", "11: users[0].local: unknown site hre; did you mean here?"),
        ("access: fixed", "access: fixed, share: 0", "11: users[0].share: expected a number above 0, got 0"),
        ("access: fixed", "access: fixed, share: -1", "11: users[0].share: expected a number above 0, got -1"),
        ("within: 1s", "within: 0s", "14: moments.chat.within: must be above 0"),
        ("{rate: 2}", "{}", "15: moments.chat.arrivals: needs one of rate, stages, replay, servegen"),
        (
            "{rate: 2}",
            "{rate: 2, stages: '1rps:1s'}",
            "15: moments.chat.arrivals: needs one of rate, stages, replay, servegen, not rate and stages",
        ),
        ("{rate: 2}", "{servegen: rates.csv}", "15: moments.chat.arrivals.servegen: needs `mean` beside it"),
        ("{rate: 2}", "{rate: 0}", "15: moments.chat.arrivals.rate: expected requests a second, above 0 and at most"),
        ("{rate: 2}", "{rate: 2, speed: 2}", "15: moments.chat.arrivals.speed: means nothing beside `rate`"),
        ("{rate: 2}", "{rate: 2, burstiness: 1e-9}", "15: moments.chat.arrivals.burstiness: expected a number from 0."),
        ("{rate: 2}", "{stages: 4:60s}", "15: moments.chat.arrivals.stages: stage 1, '4:60s': expected RATErps:"),
        ("{rate: 2}", "{stages: '999999rps:1s'}", "15: moments.chat.arrivals.stages: expected at most 100000 requests"),
        ("{rate: 2}", "{rate: 2}\n    input: {}", "16: moments.chat.input: needs one of median, values"),
        (
            "{rate: 2}",
            "{rate: 2}\n    output: {values: [1], most: 5}",
            "16: moments.chat.output.most: means nothing beside `values`",
        ),
        (
            "{rate: 2}",
            "{rate: 2}\n    output: {values: [1, 2.5]}",
            "16: moments.chat.output.values[1]: expected a whole number of at least 1, got 2.5",
        ),
        ("{rate: 2}", "{rate: 2}\n    useful: 0", "16: moments.chat.useful: expected a whole number of at least 1"),
        (
            "{rate: 2}",
            "{rate: 2}\n    variant: bgi",
            "16: moments.chat.variant: unknown variant bgi; did you mean big?",
        ),
        (
            "{rate: 2}",
            "{rate: 2}\n    regions:\n      - Leeds\n      - Leedz",
            "18: moments.chat.regions[1]: unknown region Leedz; did you mean Leeds?",
        ),
        (
            "{rate: 2}",
            "{rate: 2}\n    ladder:\n      rungs:\n        - {name: a, variants: [bigger]}",
            "18: moments.chat.ladder.rungs[0].variants[0]: unknown variant bigger; did you mean big?",
        ),
        (
            "{rate: 2}",
            "{rate: 2}\n    ladder: {rungs: [{name: a, output: 0}]}",
            "16: moments.chat.ladder.rungs[0].output: expected a number above 0, at most 1, got 0",
        ),
        (
            "{rate: 2}",
            "{rate: 2}\n    ladder: {p_min: 0.5}",
            "16: moments.chat.ladder: p_floor must lie above 0 and at most at p_min, and p_min below 1",
        ),
        (
            "{rate: 2}",
            "{rate: 2}\n    ladder: {attempts: 1.5}",
            "16: moments.chat.ladder.attempts: expected a whole number from 1 to 1000, got 1.5",
        ),
        (
            "{rate: 2}",
            "{rate: 2}\n    ladder: {last: give-up}",
            "16: moments.chat.ladder.last: unknown value give-up; valid here: defer, refuse",
        ),
        ("about: one server", "about: one server\nrouters: 0", "2: routers: expected a whole number from 1 to 1000"),
        ("about: one server", "about: one server\nreports: {every: 0s}", "2: reports.every: must be above 0"),
        ("about: one server", "about: one server\nprobes: 0s", "2: probes: must be above 0"),
        ("about: one server\n", "", "1: needs the key `about`"),
    ],
)
def test_what_does_not_fit_is_refused_on_its_line(before: str, after: str, problem: str) -> None:
    assert problem_of(changed(before, after)).startswith(problem)


@pytest.mark.parametrize(
    ("fault", "problem"),
    [
        ("kind: down, where: her, from: 1s, to: 2s", "where: unknown site or server her; did you mean here?"),
        (
            "kind: down, where: big-her, from: 1s, to: 2s",
            "where: unknown site or server big-her; did you mean big-here?",
        ),
        (
            "kind: path, where: big-here, from: 1s, to: 2s, factor: 2",
            "where: unknown site big-here; did you mean here?",
        ),
        ("kind: down, where: here, from: 2s, to: 2s", "to: must be later than `from` (2s)"),
        ("kind: slow, where: here, from: 1s, to: 2s", "kind: slow needs `factor`"),
        ("kind: path, where: here, from: 1s, to: 2s", "kind: path needs `factor` or `extra`"),
        ("kind: silent, where: here, from: 1s, to: 2s, factor: 2", "factor: means nothing to a fault of kind silent"),
        (
            "kind: slow, where: here, from: 1s, to: 2s, factor: 2, share: 1",
            "share: means nothing to a fault of kind slow",
        ),
        ("kind: dwon, where: here, from: 1s, to: 2s", "kind: unknown value dwon; did you mean down?"),
    ],
)
def test_a_fault_that_would_do_nothing_is_refused(fault: str, problem: str) -> None:
    found = problem_of(f"{SMALL}faults:\n  - {{{fault}}}\n")
    assert found.startswith(f"17: faults[0].{problem}")


def test_a_local_site_needs_a_round_trip_time() -> None:
    text = changed("sites: {", "sites: {there: {region: Perth}, ")
    assert problem_of(changed("access: fixed", "access: fixed, local: there", text)) == (
        "11: users[0].local: no round-trip time is known from Leeds to Perth"
    )


def test_users_that_reach_no_site_at_all_are_refused() -> None:
    assert problem_of(changed("region: Leeds", "region: Leedz, local: here")) == (
        "11: users[0].region: no round-trip time is known from Leedz to any site"
    )


def test_two_servers_may_not_end_up_with_one_name() -> None:
    text = changed("sites: {", "sites: {a-here: {region: London}, ")
    text = changed("targets:\n", "targets:\n  big-a: {at: {here: 1}, service: {prefill: 1, step: 1s}}\n", text)
    assert problem_of(changed("at: {here: 1}\n", "at: {here: 1, a-here: 1}\n", text)) == (
        "9: targets.big.at.a-here: there is already a server named big-a-here"
    )


def test_every_problem_is_told_at_once_in_the_order_of_the_file() -> None:
    text = changed("at: {here: 1}", "at: {hear: 1}")
    text = changed("about: one server", "about: one server\njitter: {backbone: -1}", text)
    text = changed("{rate: 2}", "{}\n    variant: bgi", text)
    assert [problem.partition(": ")[0] for problem in problems_of(text)] == ["2", "9", "16", "17"]


def test_what_was_not_read_whole_makes_nothing_else_unknown() -> None:
    """The site itself has a wrong key: that nobody then knows it is no second problem."""
    assert problem_of(changed("here: {region: London}", "here: {region: ''}, b: {region: London}")) == (
        "5: sites.here.region: expected a name, got ''"
    )


# Data files


@pytest.mark.parametrize(
    ("before", "after", "problem"),
    [
        (
            "{constant: 5ms}",
            "{recording: gone.csv, road: rural, network: n8}",
            "4: access.fixed.recording: gone.csv: No such file or directory",
        ),
        (
            "{constant: 5ms}",
            "{recording: drives.csv, road: city, network: n8}",
            "4: access.fixed.recording: drives.csv: no drive on the road city in the network n8; it has rural n8",
        ),
        (
            "{constant: 5ms}",
            "{recording: pairs.csv, road: city, network: n8}",
            "4: access.fixed.recording: pairs.csv: expected a CSV with the columns road, network, pub_time_ms, delay_",
        ),
        (
            "{constant: 5ms}",
            "{netlatency: pairs.csv, pair: n1-n3}",
            "4: access.fixed.netlatency: pairs.csv: no pair n1-n3; it has n1-n2, n3-n4",
        ),
        ("{pairs: ", "{file: drives.csv, pairs: ", "3: rtt.file: drives.csv: line 2: "),
        (
            "{prefill: 1000, step: 20ms}",
            "{perf_model: model.csv, model: m, hardware: h}",
            "9: targets.big.service.perf_model: model.csv: nothing was measured for m on h x1; did you mean m on h x8?",
        ),
        (
            "{rate: 2}",
            "{servegen: trace.csv, mean: 1}",
            "15: moments.chat.arrivals.servegen: trace.csv: expected a number of at least 0, got ContextTokens",
        ),
        ("{rate: 2}", "{replay: rates.csv}", "15: moments.chat.arrivals.replay: rates.csv: line 1: "),
        (
            "{rate: 2}",
            "{replay: trace.csv, speed: 1000000}",
            "15: moments.chat.arrivals.replay: trace.csv: more than 100000 requests a second, at this speed",
        ),
    ],
)
def test_what_is_wrong_with_a_data_file_is_told_where_the_file_is_named(before: str, after: str, problem: str) -> None:
    assert problem_of(changed(before, after)).startswith(problem)


def test_all_data_files_are_tried_before_anything_is_said() -> None:
    text = changed("{constant: 5ms}", "{recording: a.csv, road: rural, network: n8}")
    text = changed("{rate: 2}", "{replay: b.csv}", text)
    assert [problem.partition(": ")[0] for problem in problems_of(text)] == ["4", "15"]


def test_a_drive_has_a_sample_each_50_ms_whatever_was_sent_in_between() -> None:
    rows = [(1000, 20), (1030, 90), (1060, 30), (1260, 50), (1210, 40)]  # two in the first slot, none in 100 to 200
    text = "road,network,pub_time_ms,delay_ms\n" + "".join(f"r,n,{at},{delay}\n" for at, delay in rows)
    # Slots 0 (the first counts), 1, then twice the one before, 4, 5; 20 ms is the floor.
    milliseconds = (0, 10, 10, 10, 20, 30)
    assert drive_delays_ns(text.encode(), "r", "n") == tuple(each * NS_PER_MS for each in milliseconds)


@pytest.mark.parametrize("row", ["r,n,1000", "r,n,1000,20,7", "r,n,1000,nan", "r,n,soon,20", "r,n,1000,-5"])
def test_a_drive_with_a_row_that_is_no_measurement_is_refused(row: str) -> None:
    text = f"road,network,pub_time_ms,delay_ms\nr,n,1,20\n{row}\n"
    with pytest.raises(FormatError, match="expected"):
        drive_delays_ns(text.encode(), "r", "n")


def test_a_drive_of_more_than_a_day_is_refused_before_it_is_filled_up() -> None:
    text = "road,network,pub_time_ms,delay_ms\nr,n,1,20\nr,n,900000000000,20\n"
    with pytest.raises(FormatError, match="more than a day"):
        drive_delays_ns(text.encode(), "r", "n")


def test_the_recorded_rural_drive_is_as_bad_as_its_source_says() -> None:
    """Its round trips have a median of 28 ms and a 95th percentile of 6,058."""
    rows = [row for row in table("5g-rtt/5g-rtt.csv") if (row["road"], row["network"]) == ("rural", "n8")]
    fastest = min(float(row["delay_ms"]) for row in rows)
    samples = drive_delays_ns((DATA / "5g-rtt/5g-rtt.csv").read_bytes(), "rural", "n8")
    assert median(float(row["delay_ms"]) for row in rows) == 28
    assert max(samples) == (max(float(row["delay_ms"]) for row in rows) - fastest) * NS_PER_MS
    assert sorted(samples)[round(0.95 * len(samples))] == pytest.approx(6 * NS_PER_S, rel=0.2)
    # The drive in slots of 50 ms, from the first to the last sent.
    sent = [int(row["pub_time_ms"]) for row in rows]
    assert len(samples) == (max(sent) - min(sent)) // 50 + 1


def test_pairs_are_slices_in_seconds_above_the_fastest() -> None:
    samples = pair_delays_ns((DATA / "netlatency-seattle/seattle_40pairs_688slices_s.csv").read_bytes(), "n41-n19")
    assert len(samples) == 688
    assert min(samples) == 0


def table(name: str) -> list[dict[str, str]]:
    return list(csv.DictReader(StringIO((DATA / name).read_text())))


@pytest.mark.parametrize(
    ("hardware", "tokens_per_s", "overhead_ms", "step_ms"),
    [("h100-80gb", 19236, 37.4, 30.0), ("h100-80gb-pcap", 14797, 48.7, 30.0), ("a100-80gb", 8340, 40.7, 44.2)],
)
def test_measured_hardware_is_fitted_by_lines_through_its_means(
    hardware: str, tokens_per_s: float, overhead_ms: float, step_ms: float
) -> None:
    fitted = fit_service((DATA / "splitwise-perf-model/perf_model.csv").read_bytes(), "llama2-70b", hardware, 8)
    assert fitted.prefill_tokens_per_s == pytest.approx(tokens_per_s, rel=0.001)
    assert fitted.overhead_ns == pytest.approx(overhead_ms * NS_PER_MS, rel=0.002)
    assert fitted.step_ns == pytest.approx(step_ms * NS_PER_MS, rel=0.002)
    # The same by hand, from the normal equations with each point's weight one over its square.
    prompts = means(hardware, "prompt_size", "prompt_time", {"batch_size": "1"})
    first, slope = weighted_line({size: time for size, time in prompts.items() if size <= 4096})
    assert (first, 1000 / slope) == pytest.approx((fitted.overhead_ns / NS_PER_MS, fitted.prefill_tokens_per_s))
    steps = means(hardware, "batch_size", "token_time", {"prompt_size": "512", "token_size": "128"})
    first, slope = weighted_line({batch - 1: time for batch, time in steps.items()})
    assert (first, slope) == pytest.approx((fitted.step_ns / NS_PER_MS, fitted.step_slope_ns / NS_PER_MS), rel=1e-5)
    worst = max(abs(first + slope * (batch - 1) - time) / time for batch, time in steps.items())
    assert fitted.step_error == pytest.approx(worst)


def means(hardware: str, by: str, what: str, where: Mapping[str, str]) -> dict[int, float]:
    kind = {"model": "llama2-70b", "hardware": hardware, "tensor_parallel": "8", **where}
    times: dict[int, list[float]] = {}
    for row in table("splitwise-perf-model/perf_model.csv"):
        if kind.items() <= row.items():
            times.setdefault(int(row[by]), []).append(float(row[what]))
    return {size: fmean(values) for size, values in times.items()}


def weighted_line(points: Mapping[int, float]) -> tuple[float, float]:
    weights = {size: 1 / time**2 for size, time in points.items()}
    whole = sum(weights.values())
    middle = sum(weight * size for size, weight in weights.items()) / whole
    height = sum(weight * points[size] for size, weight in weights.items()) / whole
    slope = sum(weight * (size - middle) * (points[size] - height) for size, weight in weights.items()) / sum(
        weight * (size - middle) ** 2 for size, weight in weights.items()
    )
    return height - slope * middle, slope


def test_a_line_says_how_far_off_it_is() -> None:
    """A fast card's prompt of 4,096 tokens takes 379 ms where the line says 250: a third less."""
    fitted = fit_service((DATA / "splitwise-perf-model/perf_model.csv").read_bytes(), "llama2-70b", "h100-80gb", 8)
    assert fitted.prefill_error == pytest.approx((379 - 250) / 379, abs=0.005)
    assert fitted.step_error < 0.03


@pytest.mark.parametrize(
    "rows",
    ["m,h,100,1,128,30,10,8", "m,h,100,1,128,30,10,8\nm,h,512,2,128,0,0,8", "m,h,512,1,128,9,9,8\nm,h,99,1,128,99,9,8"],
)
def test_times_that_make_no_line_are_refused(rows: str) -> None:
    head = "model,hardware,prompt_size,batch_size,token_size,prompt_time,token_time,tensor_parallel\n"
    with pytest.raises(FormatError):
        fit_service(f"{head}{rows}\n".encode(), "m", "h", 8)


def test_recorded_rates_are_parts_of_a_day_with_the_mean_asked_for() -> None:
    text = (DATA / "servegen-rates/reason__deepseek-r1__chunk-35-trace.csv").read_bytes()
    rates = servegen_rates(text, 16.0, 240 * NS_PER_S)
    assert [at_ns for at_ns, _ in rates] == [place * 4 * NS_PER_S for place in range(60)]
    assert fmean(rate for _, rate in rates) == pytest.approx(16.0)
    # Of 144 rows the first of 60 parts holds three: the mean of theirs, against the mean of all parts.
    rows = [float(line.split(",")[1]) for line in text.decode().splitlines()]
    assert rates[0][1] / rates[1][1] == pytest.approx(fmean(rows[:3]) / fmean(rows[3:6]))


@pytest.mark.parametrize("text", ["", "0\n", "0,0\n600,0\n", "seconds,rate\n0,1\n", "0,nan\n", "0,-1\n", "0,inf\n"])
def test_a_recording_without_rates_is_refused(text: str) -> None:
    with pytest.raises(FormatError):
        servegen_rates(text.encode(), 1.0, NS_PER_S)


# What ships


@pytest.mark.parametrize("path", WORLDS, ids=lambda path: path.stem)
def test_a_shipped_world_loads_and_says_what_it_tries(path: Path) -> None:
    world = shipped(path)
    assert world.name == path.stem
    comments = [line for line in path.read_text().splitlines() if line.startswith("#")]
    assert len(comments) >= 5
    assert f"outlay simulate examples/worlds/{path.name}" in path.read_text()
    Fleet(world.targets)  # no name twice
    # Everybody can reach the site that is theirs, and every moment somebody's best model.
    assert all(users.local in users.rtt_ns for users in world.users)
    assert {traffic.moment for traffic in world.traffic} == set(world.policy.moments)


def test_the_shipped_worlds_are_eleven() -> None:
    assert [path.stem for path in WORLDS] == [
        "burst",
        "cold-fleet",
        "diurnal",
        "heterogeneous",
        "jittery-access",
        "low-load",
        "overload",
        "site-loss",
        "stale-signals",
        "steady",
        "two-routers",
    ]


def load_of(name: str, variants: set[str]) -> float:
    """Tokens asked for over tokens that full servers of some variants bear, of the mean request at the mean rate."""
    world = shipped(EXAMPLES / f"{name}.yaml")
    busy = 0.0
    bears = [target.service for target in world.targets if target.variant in variants]
    for traffic in world.traffic:
        (rate,) = [rate for _, rate in traffic.arrivals.rates]
        asked, answered = fmean(traffic.input_tokens.values), fmean(traffic.output_tokens.values)
        # A server does 1 / (prefill + output x step / batch) of these a second: how many servers' worth, over all.
        per_s = sum(
            NS_PER_S / (one.prefill_ns(asked) + answered * one.step_of(one.max_batch) / one.max_batch) for one in bears
        )
        busy += rate / per_s
    return busy


@pytest.mark.parametrize(
    ("name", "variants", "low", "high"),
    [
        ("steady", {"large"}, 0.6, 0.8),
        ("low-load", {"large"}, 0.05, 0.1),
        ("overload", {"large", "small"}, 1.2, 1.5),
    ],
)
def test_a_shipped_world_is_loaded_as_its_first_lines_say(
    name: str, variants: set[str], low: float, high: float
) -> None:
    assert low < load_of(name, variants) < high


# The schema


def test_the_schema_holds_for_every_shipped_world() -> None:
    validator = Draft202012Validator(world_schema())
    Draft202012Validator.check_schema(world_schema())
    for path in WORLDS:
        assert list(validator.iter_errors(yaml.safe_load(path.read_text()))) == []


def test_the_schema_refuses_what_the_reader_refuses() -> None:
    validator = Draft202012Validator(world_schema())
    for before, after in (("{rate: 2}", "{rate: 0}"), ("here: 1}", "here: 1.5}"), ("about:", "abuot:")):
        text = changed(before, after)
        assert problems_of(text)
        assert not validator.is_valid(yaml.safe_load(text))


def test_every_key_has_a_place_in_the_complete_world() -> None:
    """So that the tests above read each of them; only `rate` stands in the small one."""
    definitions = world_schema()["$defs"]
    assert isinstance(definitions, dict)
    keys = {key for each in definitions.values() for key in each["properties"]}
    assert {key for key in keys if not re.search(rf"\b{key}:", COMPLETE)} == {"rate"}


def test_every_single_value_is_described() -> None:
    definitions = world_schema()["$defs"]
    assert isinstance(definitions, dict)
    fields = [(key, value) for each in definitions.values() for key, value in each["properties"].items()]
    plain = [
        (key, value) for key, value in fields if {"type", "enum"} & set(value) and value.get("type") not in BRANCHES
    ]
    assert len(plain) > 70
    assert [key for key, value in plain if "description" not in value] == []


# Whatever comes


@given(data=st.data())
@UNHURRIED
def test_a_bent_world_is_read_or_refused_and_nothing_else(data: st.DataObject) -> None:
    lines = COMPLETE.splitlines()
    place = data.draw(st.integers(0, len(lines) - 1))
    words = re.findall(r"[^\s,{}\[\]:]+|[\s,{}\[\]:]+", lines[place])
    at = data.draw(st.integers(0, len(words) - 1))
    words[at] = data.draw(
        st.sampled_from(["", "0", "-1", "1e999", "0s", "9" * 400, "9999999h", "{}", "[]", "null", "a", ": ", "london"])
    )
    lines[place] = "".join(words)
    with suppress(SpecError):
        assert all(users.rtt_ns for users in world_of("\n".join(lines)).users)


@given(content=st.one_of(st.binary(max_size=60), st.text("0123456789,.-\neINFna", max_size=60).map(str.encode)))
@UNHURRIED
def test_no_content_of_a_data_file_takes_the_reader_down(content: bytes) -> None:
    heads = {name: text.encode().splitlines(keepends=True)[0] for name, text in FILES.items()}
    with suppress(SpecError):
        assert load_world(COMPLETE, "try.yaml", lambda name: heads.get(name, b"") + content).users
