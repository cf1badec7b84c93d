"""The baselines choose as their sources say, in small fleets whose right choice can be read off."""

from collections import Counter
from random import Random

import numpy as np
import pytest

from outlay.signals import Signals
from outlay.sim.baselines import ABOUT, BASELINES, LiteLlmLatency, PeakEwma, Prequal, Setting
from outlay.sim.chooser import Answer, View
from outlay.units import NS_PER_MS, NS_PER_S
from outlay.work import Fleet, Request, Service, Target

MS, S = NS_PER_MS, NS_PER_S
SLOW = Service(prefill_tokens_per_s=5_000, step_ns=30 * MS)
FAST = Service(prefill_tokens_per_s=20_000, step_ns=30 * MS)
FLEET = Fleet(
    [
        Target(name="near-slow", site="near", variant="large", service=SLOW),
        Target(name="near-fast", site="near", variant="large", service=FAST),
        Target(name="far-fast", site="far", variant="large", service=FAST),
        Target(name="far-fast-2", site="far", variant="large", service=FAST),
        Target(name="little", site="near", variant="small", service=FAST, quality=0.8),
    ]
)
LARGE = np.array([True, True, True, True, False])
REQUEST = Request(id="r", moment="voice", path="uk", input_tokens=1000, output_tokens=100)
SETTING = Setting(fleet=FLEET, limits_ns={"voice": 300 * MS}, sheddable=frozenset())


def view(seed: int = 1) -> View:
    return View(
        fleet=FLEET,
        signals=Signals(FLEET),
        rtt_ns={"uk": np.array([10.0 * MS, 80.0 * MS])},
        rtt_last_ns={},
        usable=np.ones(5, dtype=np.bool_),
        random=Random(seed).random,
    )


def busy(seen: View, **requests: int) -> None:
    """So many of our own requests are under way at a target, each of 1,000 prompt tokens."""
    for name, count in requests.items():
        place = FLEET.index[name.replace("_", "-")]
        for number in range(count):
            seen.signals.sent(f"{name}-{number}", place, 1000.0, 100.0, 0)


def named(target: int | None) -> str | None:
    return None if target is None else FLEET.targets[target].name


def choose(policy: str, seen: View, allowed: np.ndarray = LARGE) -> str | None:
    return named(BASELINES[policy](SETTING).choose(REQUEST, allowed, seen))


def answer(target: int, *, first_ms: float = 100, useful_ms: float = 200, tokens: int = 100, at_ns: int = 0) -> Answer:
    return Answer(
        target=target, request=REQUEST, first_ns=int(first_ms * MS), useful_ns=int(useful_ms * MS), rtt_ns=10.0 * MS,
        output_tokens=tokens, at_ns=at_ns,
    )  # fmt: skip


def test_every_baseline_is_described() -> None:
    assert BASELINES.keys() == ABOUT.keys()


@pytest.mark.parametrize("policy", BASELINES)
def test_a_choice_is_among_those_allowed_and_the_same_for_the_same_chances(policy: str) -> None:
    chosen = []
    for _ in range(2):
        seen, made = view(3), BASELINES[policy](SETTING)
        busy(seen, near_fast=2, far_fast=1)
        chosen.append([made.choose(REQUEST, LARGE, seen) for _ in range(20)])
    assert chosen[0] == chosen[1]
    if policy != "edge-only":
        assert all(target is not None and LARGE[target] for target in chosen[0])


@pytest.mark.parametrize("policy", ["nearest", "gorgo", "edge-only"])
def test_a_site_that_was_never_measured_is_not_the_nearest(policy: str) -> None:
    seen = view()
    seen.rtt_ns["uk"] = np.array([10.0 * MS, np.nan])
    assert (choose(policy, seen) or "").startswith(("near", "little"))


def test_the_nearest_site_s_least_busy_server_is_taken() -> None:
    seen = view()
    busy(seen, near_slow=3, near_fast=1)
    assert choose("nearest", seen) == "near-fast"


def test_round_robin_goes_round() -> None:
    made, seen = BASELINES["round-robin"](SETTING), view()
    assert Counter(made.choose(REQUEST, LARGE, seen) for _ in range(40)) == dict.fromkeys(range(4), 10)


def test_of_two_by_chance_the_less_busy_one_is_taken() -> None:
    made, seen = BASELINES["p2c"](SETTING), view()
    busy(seen, near_slow=9)
    counts = Counter(made.choose(REQUEST, LARGE, seen) for _ in range(2000))
    assert counts[0] == 0, "the busiest never wins a pair"
    assert counts[1] / 2000 == pytest.approx(1 / 3, abs=0.05)


def test_others_work_counts_where_it_is_known() -> None:
    seen = view()
    for place in range(5):
        seen.signals.reported(place, {"waiting": 0 if place == 2 else 4, "running": 1, "cache": 0}, 0, "scrape")
    assert choose("least-in-flight", seen) == "far-fast"


def test_peak_ewma_takes_slow_times_at_once_and_forgets_them() -> None:
    made, seen = PeakEwma(FLEET), view()
    made.answered(answer(0, useful_ms=3000), seen)
    assert made._now(0, 0) == pytest.approx(3 * S)
    seen.now_ns = 10 * S
    made.answered(answer(0, useful_ms=100), seen)
    # One decay of 10 s: e^-1 of 3 s, and the rest of 0.1 s.
    assert made._now(0, 10 * S) == pytest.approx(3 * S * np.exp(-1) + 0.1 * S * (1 - np.exp(-1)))


def test_the_lists_of_litellm_freeze_divide_by_tokens_and_take_the_unseen_for_free() -> None:
    """What the real one does, as its issues say; it is a baseline, not an example."""
    made, seen = LiteLlmLatency(FLEET), view()
    for _ in range(10):
        made.answered(answer(0, first_ms=100, tokens=10), seen)
    for _ in range(50):
        made.answered(answer(0, first_ms=100_000, tokens=10), seen)
    assert len(made._times[0]) == 10
    assert made._times[0][:9] == [10.0 * MS] * 9, "only the last of the ten moves"
    assert choose("litellm-latency", seen) is not None
    assert made.choose(REQUEST, LARGE, seen) != 0, "the unseen ones count as 0"


def test_prequal_reuses_probes_as_its_paper_says() -> None:
    made = Prequal(FLEET)
    # m = 16, n = 100, delta = 1, 3 probes a request, 1 removed: 2 / (0.84 x 3 - 1).
    assert made.reuse_limit(100) == pytest.approx(1.316, abs=0.001)
    assert made.reuse_limit(16) == 16


def test_prequal_takes_the_quickest_of_the_cold_and_the_least_busy_of_the_hot() -> None:
    made, seen = Prequal(FLEET), view()
    for target, useful_ms in ((0, 900), (1, 200), (2, 400), (3, 400)):
        for _ in range(5):
            made.answered(answer(target, useful_ms=useful_ms), seen)
    cold = Counter(made.choose(REQUEST, LARGE, seen) for _ in range(30))
    assert cold.most_common(1)[0][0] == 1


def test_gorgo_adds_the_network_to_the_tokens_queued() -> None:
    seen = view()
    # Near and slow: 10 + 1,000 / 5 = 210 ms; near and fast with 1,100 tokens there: 10 + 105; far and fast: 80 + 50.
    busy(seen, near_fast=1)
    assert choose("gorgo", seen) == "near-fast"
    busy(seen, near_fast=0)
    seen.signals.sent("more", 1, 2000.0, 100.0, 0)
    assert (choose("gorgo", seen) or "").startswith("far-fast")


def test_lmetric_multiplies_new_prompt_tokens_by_the_batch() -> None:
    seen = view()
    busy(seen, near_slow=1, near_fast=1, far_fast=1)
    assert choose("lmetric", seen) == "far-fast-2"


def test_a_static_service_level_packs_the_fullest_that_still_keeps_it_and_sheds_only_what_may_be() -> None:
    seen = view()
    # 300 ms: an idle slow server takes 200 ms, an idle fast one 50 ms; the least headroom is the slow one's.
    assert choose("slo-header", seen) == "near-slow"
    busy(seen, near_slow=20, near_fast=20, far_fast=20, far_fast_2=20)
    assert choose("slo-header", seen) is not None
    shed = Setting(fleet=FLEET, limits_ns={"voice": 300 * MS}, sheddable=frozenset({"voice"}))
    assert BASELINES["slo-header"](shed).choose(REQUEST, LARGE, seen) is None


def test_cloud_and_edge_stay_where_they_are_whatever_is_asked_for() -> None:
    seen = view()
    busy(seen, little=50)
    assert choose("edge-only", seen) == "little"
    assert (choose("cloud-only", seen, np.array([False, False, False, False, True])) or "").startswith(("near", "far"))
