"""One inference server with continuous batching, as engines work: prompts first, then a step for the whole batch.

A waiting prompt is taken up at the end of a step when the batch has a slot and the KV cache has room for prompt and
answer; its prefill holds up the batch and ends with the first token. Steps between two changes of the batch are passed
in one jump, so that an answer of a thousand tokens costs a handful of events and not a thousand.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from heapq import heappop, heappush
from random import Random

from outlay.sim.kernel import Event, Kernel
from outlay.work import Target


@dataclass(slots=True, eq=False)
class Job:
    """One request at one server. `told` is called with `first`, `useful` and `end`, each once, or `failed`.

    The instants are None until they are known: arrival, taken up, first token, last useful one.
    """

    prompt: int
    output: int
    useful: int
    told: Callable[["Job", str], None]
    arrived_ns: int = 0
    taken_ns: int | None = None
    first_ns: int | None = None
    useful_ns: int | None = None
    cold_ns: int = 0
    gone: bool = False
    running: bool = False


class Server:
    """A target at work in virtual time. `slow` multiplies all its times."""

    def __init__(self, kernel: Kernel, target: Target, *, random: Random, jitter: float, slow_start_ns: int) -> None:
        self.target = target
        self.slow = 1.0
        self.is_down = False
        self.worked_ns = 0
        self.waiting: deque[Job] = deque()
        self.running: set[Job] = set()
        self.cache_tokens = 0
        self._kernel, self._random, self._jitter = kernel, random, jitter
        self._slow_start_ns = slow_start_ns
        self._service = target.service
        self._milestones: list[tuple[int, int, Job, str]] = []
        self._order = 0
        self._steps = 0
        self._busy: Event | None = None
        # Of the jump under way: begin, time of a step, steps; no steps while a prompt or a load is.
        self._jump = (0, 1, 0)
        self._warm = target.cold is None
        self._loading = False
        self._warm_at_ns = -slow_start_ns
        self._idle_since_ns = 0

    # What others may see

    @property
    def cache(self) -> float:
        """The share of the KV cache in use."""
        return min(self.cache_tokens / self._service.kv_tokens, 1.0)

    @property
    def in_flight(self) -> int:
        """Jobs waiting or running."""
        return len(self.waiting) + len(self.running)

    def would_take_ns(self, prompt: int, useful: int) -> float:
        """From now to the last useful token of one more job, if nothing else came: what perfect knowledge would say."""
        service, now_ns = self._service, self._kernel.now_ns
        batch = min(len(self.running) + len(self.waiting) + 1, service.max_batch)
        step_ns = service.step_of(batch) * self.slow
        begun = max(self._busy[0] - now_ns, 0) if self._busy is not None and not self._jump[2] else 0
        ahead = sum(service.prefill_ns(job.prompt) for job in self.waiting) * self.slow + begun
        short = len(self.running) + len(self.waiting) + 1 - service.max_batch
        if short > 0:
            ends = sorted(at for at, _, job, what in self._milestones if what == "end" and not job.gone)
            ends += [self._steps + job.output for job in self.waiting]
            ends.sort()
            ahead = max(ahead, (ends[min(short, len(ends)) - 1] - self._steps) * step_ns)
        cold = 0.0
        if self._is_cold() and self.target.cold is not None:
            cold = sum(self.target.cold.start_ns) / len(self.target.cold.start_ns)
        return cold + ahead + service.prefill_ns(prompt) * self.slow + (useful - 1) * step_ns

    # Work

    def submit(self, job: Job) -> None:
        """A job arrives. It fails at once while the server is down."""
        if self.is_down:
            job.gone = True
            job.told(job, "failed")
            return
        now_ns = self._kernel.now_ns
        job.arrived_ns = now_ns
        self.waiting.append(job)
        if self._is_cold():
            self._load()
        elif self._busy is None:
            self._next()
        elif self._jump[2] and self._has_room(job) and len(self.waiting) == 1:
            self._stop_jump()

    def cancel(self, job: Job) -> None:
        """Nobody waits for it any more: its slot and its cache are freed at the next step."""
        if job.gone:
            return
        job.gone = True
        if job.running:
            self.running.discard(job)
            self._leave(job)
            if self._jump[2]:
                self._stop_jump()
        elif job in self.waiting:
            self.waiting.remove(job)

    def fail(self) -> None:
        """The server dies: everything at it fails. `is_down` says whether it takes new work."""
        lost = [*self.running, *self.waiting]
        self.waiting.clear()
        self.running.clear()
        self._milestones.clear()
        self.cache_tokens = 0
        Kernel.cancel(self._busy)
        self._busy, self._jump, self._loading = None, (0, 1, 0), False
        self._warm = self.target.cold is None
        for job in lost:
            if not job.gone:
                job.gone = True
                job.told(job, "failed")

    def _is_cold(self) -> bool:
        cold = self.target.cold
        if cold is None or self._loading:
            return False
        if self._warm and self._busy is None and cold.keep_ns is not None and not self.running:
            self._warm = self._kernel.now_ns - self._idle_since_ns <= cold.keep_ns
        return not self._warm

    def _load(self) -> None:
        cold = self.target.cold
        assert cold is not None
        self._loading = True
        start_ns = cold.start_ns[int(self._random.random() * len(cold.start_ns))]
        self._busy = self._kernel.after(start_ns, self._loaded, start_ns)

    def _loaded(self, start_ns: int) -> None:
        self._warm, self._loading = True, False
        self._warm_at_ns = self._kernel.now_ns
        self.worked_ns += start_ns
        for job in self.waiting:
            job.cold_ns = self._kernel.now_ns - job.arrived_ns
        self._next()

    def _factor(self) -> float:
        factor = self.slow * self._random.lognormvariate(0.0, self._jitter) if self._jitter else self.slow
        since_ns = self._kernel.now_ns - self._warm_at_ns
        if since_ns < self._slow_start_ns:
            factor *= 2.0 - since_ns / self._slow_start_ns
        return factor

    def _has_room(self, job: Job) -> bool:
        service = self._service
        needs = job.prompt + job.output
        # A job that is larger than the cache runs alone rather than never.
        fits = self.cache_tokens + needs <= service.kv_tokens or not self.running
        return len(self.running) < service.max_batch and fits

    def _next(self) -> None:
        """The end of a prompt or of a jump: what now?"""
        kernel = self._kernel
        if self.waiting and self._has_room(self.waiting[0]):
            job = self.waiting.popleft()
            job.taken_ns, job.running = kernel.now_ns, True
            self.running.add(job)
            self.cache_tokens += job.prompt + job.output
            duration_ns = int(self._service.prefill_ns(job.prompt) * self._factor())
            self._jump = (kernel.now_ns, 1, 0)
            self.worked_ns += duration_ns
            self._busy = kernel.after(duration_ns, self._prefilled, job)
            return
        while self._milestones and self._milestones[0][2].gone:
            heappop(self._milestones)
        if not self._milestones:
            self._busy, self._jump = None, (0, 1, 0)
            self._idle_since_ns = kernel.now_ns
            return
        step_ns = max(int(self._service.step_of(len(self.running)) * self._factor()), 1)
        self._start_jump(kernel.now_ns, step_ns, self._milestones[0][0] - self._steps)

    def _start_jump(self, begin_ns: int, step_ns: int, steps: int) -> None:
        self._jump = (begin_ns, step_ns, steps)
        self._busy = self._kernel.at(begin_ns + steps * step_ns, self._decoded)

    def _stop_jump(self) -> None:
        """Something changes: end with the step that is under way."""
        begin_ns, step_ns, steps = self._jump
        done = min((self._kernel.now_ns - begin_ns) // step_ns + 1, steps)
        if done < steps:
            Kernel.cancel(self._busy)
            self._start_jump(begin_ns, step_ns, done)

    def _prefilled(self, job: Job) -> None:
        if not job.gone:
            job.first_ns = self._kernel.now_ns
            job.told(job, "first")
            for tokens, what in ((job.useful, "useful"), (job.output, "end")):
                self._order += 1
                heappush(self._milestones, (self._steps + max(tokens, 1) - 1, self._order, job, what))
            self._pass_milestones()
        self._next()

    def _decoded(self) -> None:
        begin_ns, _, steps = self._jump
        self.worked_ns += self._kernel.now_ns - begin_ns
        self._steps += steps
        self._jump = (0, 1, 0)
        self._pass_milestones()
        self._next()

    def _pass_milestones(self) -> None:
        while self._milestones and (self._milestones[0][0] <= self._steps or self._milestones[0][2].gone):
            _, _, job, what = heappop(self._milestones)
            if job.gone:
                continue
            if what == "useful":
                job.useful_ns = self._kernel.now_ns
            else:
                job.gone = True
                self.running.discard(job)
                self._leave(job)
            job.told(job, what)

    def _leave(self, job: Job) -> None:
        self.cache_tokens -= job.prompt + job.output
