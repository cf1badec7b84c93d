"""The tail explained: worlds whose cause is known, and the report names it, with its milliseconds."""

import numpy as np
import pytest

from outlay.budget import Budget, Moment, Share
from outlay.interaction import Interaction
from outlay.report import Finding, MomentReport
from outlay.units import NS_PER_MS
from worlds import Floats, chained, explained

N = 2400
# What sets a p99 takes so many.
MANY = 6000


def rng(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


def calm(random: np.random.Generator, n: int = N) -> dict[str, Floats]:
    """What every interaction has: some network, some model."""
    return {
        "client/uplink.floor": np.full(n, 20.0),
        "llm/infer.prefill": random.lognormal(4, 0.2, n),
        "client/downlink.floor": np.full(n, 20.0),
    }


def finding(report: MomentReport, term: str) -> Finding:
    return next(each for each in report.findings if each.term == term)


def p99(values: Floats) -> float:
    return float(np.sort(values)[int(np.ceil(0.99 * len(values))) - 1])


def saved_ms(found: Finding) -> tuple[float, float, float]:
    last = found.what_if.recovers[-1]
    return last.saved_ns / NS_PER_MS, last.interval_ns[0] / NS_PER_MS, last.interval_ns[1] / NS_PER_MS


def check_sums(report: MomentReport) -> None:
    """Whatever the world, both attributions add up to the nanosecond."""
    assert sum(row.typical_ns for row in report.account) == report.typical_ns
    assert sum(row.tail_ns for row in report.account) == report.tail_ns
    if report.sets is not None and report.sets.total_ns is not None:
        assert sum(row.sets_ns or 0 for row in report.account) == report.sets.total_ns


def test_cold_starts_fill_the_tail_and_queueing_sets_the_p99() -> None:
    """0.6 % are cold, of about 2.3 s: above the p99 they are most of the time, at the p99 there is none."""
    random = rng(1)
    ms = calm(random, MANY) | {"llm/queue.wait": random.exponential(150, MANY)}
    cold = random.random(MANY) < 0.006
    ms["llm/queue.cold_start"] = np.where(cold, random.normal(2300, 100, MANY), 0)
    report = explained(chained(ms))
    check_sums(report)
    assert report.sets is not None
    rows = {row.entry: row for row in report.account}
    start, wait = rows["llm/queue.cold_start"], rows["llm/queue.wait"]
    assert max(report.account, key=lambda row: row.tail_ns).entry == start.entry
    assert max(report.account, key=lambda row: row.sets_ns or 0).entry == wait.entry
    assert (start.sets_ns or 0) < 0.1 * (wait.sets_ns or 0)
    # the p99 falls when nobody waits; without cold starts it moves only to the 99.6th percentile's place
    assert report.findings[0].term == "queueing"
    told = finding(report, "cold start")
    assert told.what_if.changes == ("start=warm",)
    share = 100 * cold.mean()
    assert told.evidence[0].startswith(f"{share:.3g} % of all meet one, of 2.")


def test_two_stages_that_slow_down_together_share_the_tail() -> None:
    """Both are the exponential of one normal number each, correlated at 0.8 and of one distribution: half each."""
    random = rng(2)
    shared = random.normal(size=(MANY, 2)) @ np.linalg.cholesky(np.array([[1, 0.8], [0.8, 1]])).T
    one, two = np.exp(4 + 0.6 * shared[:, 0]), np.exp(4 + 0.6 * shared[:, 1])
    report = explained(chained({"llm/queue.wait": one, "llm/infer.prefill": two}))
    check_sums(report)
    total = one + two
    slow = np.argsort(total)[-61:]
    rows = {row.entry: row for row in report.account}
    for name, values in (("llm/queue.wait", one), ("llm/infer.prefill", two)):
        row = rows[name]
        assert row.tail_ns == pytest.approx(values[slow].mean() * NS_PER_MS, abs=2)
        # the true share of the tail is a half
        low, high = row.tail_interval_ns or (0, 0)
        assert low < 0.5 * total[slow].mean() * NS_PER_MS < high
    # savings do not add: what both give back is told beside what each does
    queue = finding(report, "queueing")
    assert saved_ms(queue)[0] == pytest.approx(p99(total) - p99(two), abs=0.01)


def test_longer_prompts_are_not_a_slower_version() -> None:
    """1 ms for 10 tokens in both versions; 1.5 gets four times the tokens: all of the change is the mix of shapes."""
    random = rng(3)
    new = np.arange(N) >= N // 2
    tokens = np.rint(random.choice([256, 1024], N, p=[0.5, 0.5]))
    tokens = np.where(new & (random.random(N) < 0.6), 4096.0, tokens)
    old_long = ~new & (random.random(N) < 0.15)
    tokens = np.where(old_long, 4096.0, tokens)
    ms = calm(random) | {"llm/infer.decode": tokens / 10 * random.lognormal(0, 0.05, N)}
    items = chained(
        ms,
        dimensions=[{"version": "1.5" if each else "1.4"} for each in new],
        sizes=[{"input_tokens": int(each)} for each in tokens],
    )
    report = explained(items)
    (shift,) = report.shifts
    assert (shift.old, shift.new) == ("1.4", "1.5")
    assert shift.version_ns + shift.shape_ns == pytest.approx(shift.new_ns - shift.old_ns)
    low, high = shift.version_interval_ns
    assert low <= 0 <= high
    assert abs(shift.version_ns) < 30 * NS_PER_MS


def test_a_slow_site_is_named_with_its_milliseconds() -> None:
    """Of four sites one is 80 ms further away; served from the nearest, everybody loses what lies between."""
    random = rng(4)
    site = np.arange(N) % 4
    far = np.array([10.0, 12.0, 14.0, 50.0])[site]
    total_model = random.lognormal(4, 0.2, N)
    ms = {"client/uplink.floor": far, "llm/infer": total_model, "client/downlink.floor": far}
    names = np.array(["fra", "lon", "par", "sgp"])[site]
    report = explained(chained(ms, dimensions=[{"site": str(name)} for name in names]))
    first = report.slices[0]
    assert (first.dimension, first.value) == ("site", "sgp")
    assert first.effect_ns is not None
    assert first.effect_interval_ns is not None
    low, high = first.effect_interval_ns
    # 100 ms of distance there against 24 on the average of the other three: 20, 24 and 28
    assert low < 76 * NS_PER_MS < high
    told = finding(report, "geography")
    assert told.what_if.changes == ("client/downlink=site:fra", "client/uplink=site:fra")
    truth = p99(total_model + 2 * far) - p99(total_model + 20)
    saved, low_ms, high_ms = saved_ms(told)
    assert saved == pytest.approx(truth, abs=1)
    assert low_ms <= truth <= high_ms
    assert any("fra 20.0 ms" in line for line in told.evidence)


def test_a_broker_whose_long_jobs_block_the_others() -> None:
    """One worker, first come first served; a job in 50 takes 300 ms, the others 5: behind those everybody waits."""
    random = rng(5)
    starts = np.cumsum(random.exponential(20, N))
    work = np.where(random.random(N) < 0.02, 300.0, 5.0)
    free, waits = 0.0, np.zeros(N)
    for place in range(N):
        waits[place] = max(0.0, free - starts[place])
        free = max(free, starts[place]) + work[place]
    items = chained({"worker/queue.broker": waits, "worker/infer": work}, start_ns=[int(at * 1e6) for at in starts])
    report = explained(items)
    told = report.findings[0]
    assert told.term == "broker"
    saved, low, high = saved_ms(told)
    truth = p99(waits + work) - p99(work)
    assert saved == pytest.approx(truth, abs=0.01)
    assert low <= truth <= high
    assert report.drivers[0].name == "queue_depth"
    assert report.drivers[0].explains
    assert any(line.startswith("queue on arrival") for line in told.evidence)


def test_a_polling_interval_is_a_setting() -> None:
    """A worker looks every 500 ms: waits are spread evenly up to that, and all of it is the setting's."""
    random = rng(6)
    polled = random.uniform(0, 500, N)
    base = calm(random)
    report = explained(chained(base | {"worker/hold": polled}))
    told = report.findings[0]
    assert told.term == "setting"
    assert any("spread evenly up to 49" in line for line in told.evidence)
    truth = p99(sum(base.values(), start=polled)) - p99(sum(base.values(), start=np.zeros(N)))
    assert saved_ms(told)[0] == pytest.approx(truth, abs=0.01)


def test_what_is_not_measured_bounds_every_percentile() -> None:
    """2 % have no end: of all, the p50 lies between the observed 49th and 51st percentile, the p99 anywhere above."""
    total = np.arange(1, N + 1, dtype=np.float64)
    items = chained({"llm/infer": rng(7).permutation(total)})
    missing = N // 49  # 48 beside 2400: 1.96 %
    items += [Interaction(id=f"m{k}", moment="m", start_ns=k, end_ns=None) for k in range(missing)]
    report = explained(items)
    c = N / (N + missing)
    p50, _, last = report.total
    assert p50.coverage_ns is not None
    low, high = p50.coverage_ns
    assert low == pytest.approx(N * (1 - 0.5 / c) * NS_PER_MS, rel=0.0055)
    assert high == pytest.approx(N * 0.5 / c * NS_PER_MS, rel=0.0055)
    assert last.coverage_ns is not None
    assert last.coverage_ns[1] is None
    assert last.coverage_ns[0] == pytest.approx(N * (1 - 0.01 / c) * NS_PER_MS, rel=0.0055)


def test_routing_of_two_milliseconds_is_fine() -> None:
    random = rng(8)
    ms = calm(random) | {"gateway/route": np.full(N, 2.0), "llm/queue.wait": random.exponential(200, N)}
    report = explained(chained(ms))
    assert "routing" in {each.term for each in report.fine}
    assert "routing" not in {each.term for each in report.findings}


def test_who_pays_for_what_went_over() -> None:
    """The queue is all that varies: over the limit, all of the blame is its owner's, to the nanosecond."""
    n = 2000
    waits = rng(9).exponential(100, n)
    items = chained({"llm/infer": np.full(n, 100.0), "llm/queue.wait": waits})
    shares = (
        Share(entry="llm/infer", limit_ns=100 * NS_PER_MS, owner="model"),
        Share(entry="llm/queue*", limit_ns=200 * NS_PER_MS, owner="platform"),
    )
    moment = Moment(name="m", budget=Budget(limit_ns=300 * NS_PER_MS, percentile=95, shares=shares))
    report = explained(items, moment=moment)
    (blamed,) = report.blame
    assert blamed.owner == "platform"
    over = np.rint(waits * NS_PER_MS).astype(np.int64) - 200 * NS_PER_MS
    assert blamed.over_ns == over[over > 0].sum()
    assert report.findings[0].owner == "platform"


def test_what_if_is_asked_in_words() -> None:
    random = rng(10)
    ms = calm(random) | {"llm/queue.wait": random.exponential(200, N)}
    report = explained(chained(ms), asked=["queue=50ms", "llm/infer.prefill=x0.5"])
    halved = sum(values / (2 if "prefill" in name else 1) for name, values in ms.items())
    capped = sum(np.minimum(values, 50) if "queue" in name else values for name, values in ms.items())
    total = sum(ms.values(), start=np.zeros(N))
    for asked, after in zip(report.what_ifs, (capped, halved), strict=True):
        assert asked.recovers[-1].after_ns == pytest.approx(p99(np.asarray(after)) * NS_PER_MS, abs=20)
        assert asked.recovers[-1].before_ns == pytest.approx(p99(total) * NS_PER_MS, abs=20)


def test_a_sampled_interaction_counts_as_many() -> None:
    """Every tenth fast one was kept, and all slow ones: unweighted, the p50 would be among the slow."""
    fast = chained({"llm/infer": np.linspace(10, 20, 400)}, prefix="f", weight=[10] * 400)
    slow = chained({"llm/infer": np.linspace(100, 200, 600)}, prefix="s")
    report = explained([*fast, *slow])
    assert report.n == 4600
    assert report.total[0].value_ns == pytest.approx(10 * NS_PER_MS + 2300 / 4000 * 10 * NS_PER_MS, rel=0.01)
    # 4600^2 over 400 * 100 + 600 is as many of equal weight
    assert report.effective_n is not None
    assert report.effective_n <= 4600**2 / 40_600


@pytest.mark.parametrize("n", [0, 1, 2, 19, 25, 60])
def test_few_interactions_say_little(n: int) -> None:
    if n == 0:
        return
    report = explained(chained({"llm/infer": np.linspace(10, 20, n)}))
    check_sums(report)
    assert report.slices == ()
    assert report.sets is None or report.sets.total_ns is None


def test_where_failures_come_from() -> None:
    """A tenth of one site of four fails: 2.5 % of all, so the p99 never comes and the p95 does."""
    site = np.arange(N) % 4
    failed = (site == 2) & (np.arange(N) // 4 % 10 == 0)
    items = chained(
        {"llm/infer": rng(11).lognormal(4, 0.2, N)},
        dimensions=[{"site": f"s{each}"} for each in site],
        outcome=["timeout" if each else "ok" for each in failed],
    )
    told = explained(items).failing
    assert told is not None
    assert told.share == pytest.approx(0.025)
    assert told.outcomes == {"timeout": 60}
    assert told.from_level == 99.0
    (part,) = told.parts
    assert (part.dimension, part.value, part.n) == ("site", "s2", 600)
    assert (part.failed_share, part.of_failures) == (0.1, 1.0)


def test_failures_that_are_anywhere_stand_out_nowhere() -> None:
    random = rng(12)
    items = chained(
        {"llm/infer": random.lognormal(4, 0.2, N)},
        dimensions=[{"site": f"s{each}"} for each in random.integers(0, 5, N)],
        outcome=["error" if each else "ok" for each in random.random(N) < 0.02],
    )
    told = explained(items).failing
    assert told is not None
    assert told.parts == ()
