"""The simulated server against arithmetic, and against queueing theory."""

from random import Random

import numpy as np
import pytest
from small import LARGE, MS, S

from outlay.sim.kernel import Kernel
from outlay.sim.server import Job, Server
from outlay.work import ColdStart, Service, Target


def server(kernel: Kernel, service: Service = LARGE, cold: ColdStart | None = None) -> Server:
    target = Target(name="t", site="s", variant="v", service=service, cold=cold)
    return Server(kernel, target, random=Random(1), jitter=0.0, slow_start_ns=0)


def job(prompt: int = 1000, output: int = 11, useful: int = 5, said: list[tuple[str, Job]] | None = None) -> Job:
    return Job(prompt, output, useful, lambda own, what: None if said is None else said.append((what, own)))


def test_calls_are_made_in_the_order_of_their_instants_and_cancelled_ones_are_not() -> None:
    kernel, made = Kernel(), []
    kernel.at(30, made.append, "c")
    kernel.at(10, made.append, "a")
    kernel.cancel(kernel.at(20, made.append, "b"))
    kernel.at(10, made.append, "a2")
    kernel.run()
    assert (made, kernel.now_ns, kernel.events) == (["a", "a2", "c"], 30, 3)


def test_a_request_alone_takes_its_prompt_and_a_step_for_each_further_token() -> None:
    kernel = Kernel()
    given, own = server(kernel), job()
    given.submit(own)
    kernel.run()
    # 10 ms + 1,000 tokens at 10,000 a second = 110 ms to the first token; 4 and then 10 steps of 30 ms after it.
    assert own.first_ns == 110 * MS
    assert own.useful_ns == 230 * MS
    assert kernel.now_ns == 410 * MS
    assert (given.in_flight, given.cache_tokens) == (0, 0)


def test_a_prompt_that_comes_meanwhile_holds_up_the_batch_at_the_end_of_a_step() -> None:
    kernel = Kernel()
    given, first, second = server(kernel), job(), job()
    given.submit(first)
    kernel.at(150 * MS, given.submit, second)
    kernel.run()
    # The step from 140 to 170 ms ends first; then 110 ms of the second prompt, and one step is done of four.
    assert second.taken_ns == 170 * MS
    assert second.first_ns == 280 * MS
    assert first.useful_ns == 280 * MS + 2 * 30 * MS


def test_a_full_batch_makes_the_next_wait_for_a_slot() -> None:
    kernel = Kernel()
    given = server(kernel, Service(prefill_tokens_per_s=10_000, step_ns=30 * MS, max_batch=1))
    first, second = job(), job()
    given.submit(first)
    given.submit(second)
    kernel.run()
    # The first ends after 100 + 10 x 30 ms.
    assert second.taken_ns == 400 * MS


def test_a_cache_without_room_makes_the_next_wait_and_one_too_large_runs_alone() -> None:
    kernel = Kernel()
    given = server(kernel, Service(prefill_tokens_per_s=10_000, step_ns=30 * MS, kv_tokens=1500))
    first, second, giant = job(), job(), job(prompt=5000)
    for each in (first, second, giant):
        given.submit(each)
    kernel.run()
    assert second.taken_ns == 400 * MS
    assert giant.useful_ns is not None


def test_a_cold_server_loads_first_and_forgets_after_a_pause() -> None:
    kernel = Kernel()
    given = server(kernel, cold=ColdStart(start_ns=(2 * S,), keep_ns=10 * S))
    first, soon, late = job(), job(), job()
    given.submit(first)
    kernel.at(5 * S, given.submit, soon)
    kernel.at(30 * S, given.submit, late)
    kernel.run()
    assert first.first_ns == 2 * S + 110 * MS
    assert first.cold_ns == 2 * S
    assert soon.first_ns == 5 * S + 110 * MS
    assert late.first_ns == 32 * S + 110 * MS


def test_cancelling_frees_the_slot_and_the_cache_and_nothing_more_is_told() -> None:
    kernel, said = Kernel(), []
    given = server(kernel, Service(prefill_tokens_per_s=10_000, step_ns=30 * MS, max_batch=1))
    first, second = job(said=said), job()
    given.submit(first)
    given.submit(second)
    kernel.at(160 * MS, given.cancel, first)
    kernel.run()
    assert [what for what, _ in said] == ["first"]
    assert second.taken_ns is not None
    assert second.taken_ns <= 190 * MS
    assert (given.in_flight, given.cache_tokens) == (0, 0)


def test_a_server_that_dies_fails_everything_once_and_refuses_while_it_is_down() -> None:
    kernel, said = Kernel(), []
    given = server(kernel)
    for _ in range(3):
        given.submit(job(said=said))

    def die() -> None:
        given.is_down = True
        given.fail()

    kernel.at(50 * MS, die)
    kernel.at(60 * MS, lambda: given.submit(job(said=said)))
    kernel.run()
    assert [what for what, _ in said] == ["failed"] * 4
    assert given.cache_tokens == 0


def test_a_slow_server_takes_the_factor() -> None:
    kernel = Kernel()
    given, own = server(kernel), job()
    given.slow = 3.0
    given.submit(own)
    kernel.run()
    assert own.useful_ns == 3 * 230 * MS


def test_what_perfect_knowledge_says_is_what_then_happens() -> None:
    kernel = Kernel()
    given = server(kernel)
    given.submit(job())
    given.submit(job(prompt=3000))
    foretold = given.would_take_ns(1000, 1)
    own = job(useful=1)
    given.submit(own)
    kernel.run()
    # 110 + 310 ms ahead, and its own 110 ms.
    assert foretold == own.useful_ns == 530 * MS


@pytest.mark.parametrize("load", [0.5, 0.8])
def test_mean_waits_are_those_of_pollaczek_and_khinchine(load: float) -> None:
    """One slot and one token an answer is M/G/1: E[W] = load x E[S] (1 + cv^2) / (2 (1 - load))."""
    kernel, random = Kernel(), np.random.default_rng(5)
    given = server(kernel, Service(prefill_tokens_per_s=10_000, step_ns=1, max_batch=1))
    prompts = random.choice([500, 1500], size=40_000)
    mean_ns, square = 100 * MS, (50**2 + 150**2) / 2 / 100**2
    jobs = [job(prompt=int(prompt), output=1, useful=1) for prompt in prompts]
    for at_ns, own in zip(np.cumsum(random.exponential(mean_ns / load, len(jobs))), jobs, strict=True):
        kernel.at(int(at_ns), given.submit, own)
    kernel.run()
    waits = np.array([(own.taken_ns or 0) - own.arrived_ns for own in jobs])
    expected = load * mean_ns * square / (2 * (1 - load))
    # The mean of 40,000 correlated waits is known to about 5 % at these loads.
    assert waits.mean() == pytest.approx(expected, rel=0.1)
