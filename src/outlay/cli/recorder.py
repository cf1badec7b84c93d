"""What becomes of each request of a run while it runs: understood, logged, counted, and told to whoever watches."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from time import monotonic_ns, time_ns

from outlay.cli.log import Log
from outlay.cli.measure_options import Job, Judged, Numbers, clock_name
from outlay.cli.schedules import parts_of
from outlay.cold import COLD, Labels
from outlay.explain import Gathering, Question
from outlay.formats.log import write_line, write_load
from outlay.load import Load
from outlay.observed import Observed, interaction_of
from outlay.probe.asking import APIS
from outlay.probe.exchange import Exchange
from outlay.probe.orders import Health, Word
from outlay.probe.understand import Understanding
from outlay.sketch import Sketch
from outlay.tally import Clock, SenderHealth, Tally

WARM_UP = "warm-up"


@dataclass(slots=True)
class Live:
    """So far, without the warm-up: what a live view shows."""

    back: int = 0
    failed: int = 0
    late: int = 0
    in_flight: dict[int, int] = field(default_factory=dict)
    latency: Sketch = field(default_factory=Sketch)
    lateness: Sketch = field(default_factory=Sketch)


class Recorder:
    """Hears the senders of a run that began at `begun_ns`, on the clock of the run."""

    def __init__(self, job: Job, judged: Judged, numbers: Numbers, log: Log, begun_ns: int) -> None:
        self.begun_ns = begun_ns
        self.live = Live()
        self.notes: Counter[str] = Counter()
        self.tallies = tuple(Tally() for _ in job.points)
        # Instants are monotonic; one reading of the wall clock says where on it the run lies.
        self.clock = Clock(name=clock_name(), shift_ns=time_ns() - monotonic_ns())
        split = ("point",) if len(job.points) > 1 else ("stage",) if job.load.stages else ()
        self.gathering = Gathering(Question(moments=(judged.moment,), by=split))
        self.rounds: dict[int, dict[str, int | None]] = {}
        self.judged = judged
        self._job = job
        self._numbers = numbers
        self._log = log
        self._component = APIS[job.ask.api].component
        self._understanding = tuple(Understanding(job.ask) for _ in job.points)
        self._labels = tuple(Labels(job.load.idle_ns) for _ in job.points)
        self._parts = parts_of(job.load)
        self._health: dict[int, tuple[int, int, int]] = {}
        self._stalls: list[tuple[int, int]] = []

    def hear(self, word: Word) -> None:
        """One word of a sender."""
        if isinstance(word, Exchange):
            self._take(word)
        elif isinstance(word, Health):
            passed_ns, cpu_ns, stalled_ns = self._health.get(word.sender, (0, 0, 0))
            stalled_ns = max(stalled_ns, word.stalled_ns)
            self._health[word.sender] = (passed_ns + word.passed_ns, cpu_ns + word.cpu_ns, stalled_ns)
            self._stalls += word.stalls
            self.live.in_flight[word.sender] = word.in_flight
            self._log.flush()

    def health(self) -> SenderHealth:
        """How the senders fared, all of the run taken together."""
        told = self._health.values()
        return SenderHealth(
            cpu_share=max((cpu_ns / passed_ns for passed_ns, cpu_ns, _ in told if passed_ns), default=None),
            longest_stall_ns=max((stalled_ns for _, _, stalled_ns in told), default=None),
            stalls=tuple(self._stalls),
        )

    def keep(self, load: Load) -> None:
        """The load stands in the log beside its interactions, and in the report."""
        self._log.write(write_load(load))
        self.gathering.take(load)

    def _take(self, exchange: Exchange) -> None:
        place = self._numbers.point_of(exchange.number)
        understanding = self._understanding[place]
        warm_up_ns = self._job.load.warm_up_ns
        # A closed loop may begin a moment before the run counts from.
        warm_up = warm_up_ns > 0 and exchange.intended_ns - self.begun_ns < warm_up_ns
        seen, answer = understanding.observe(exchange, self._numbers.trace_id(exchange.number))
        seen = replace(seen, dimensions=self._dimensions(place, seen))
        self.notes.update(note.text for note in answer.notes)
        self.tallies[place].take(seen, warm_up=warm_up)
        moment = f"{self.judged.moment.name} {WARM_UP}" if warm_up else self.judged.moment.name
        interaction = interaction_of(
            seen, moment=moment, clock=self.clock.name, component=self._component, shift_ns=self.clock.shift_ns
        )
        if exchange.failure == "stopped":
            # The run's own doing: it was started, and nobody knows how it would have ended.
            interaction = replace(interaction, outcome="ok", end_ns=None)
        self._log.write(write_line(interaction))
        if not warm_up:
            self.gathering.take(interaction)
            if exchange.failure != "stopped":
                self._count(seen, place, exchange.number)

    def _dimensions(self, place: int, seen: Observed) -> Mapping[str, str]:
        job = self._job
        after_ns = seen.intended_ns - self.begun_ns
        own = {
            COLD: self._cold(place, seen),
            "model": job.ask.model,
            "stage": next((part.name for part in self._parts if part.from_ns <= after_ns < part.to_ns), ""),
            "point": job.points[place].name if len(job.points) > 1 else "",
        }
        return {name: value for name, value in own.items() if value} | dict(job.dimensions)

    def _cold(self, place: int, seen: Observed) -> str:
        parts = {} if seen.reported is None else seen.reported.parts
        return self._labels[place].label(
            seen.begun_ns or seen.intended_ns,
            seen.over_ns or seen.intended_ns,
            reused=seen.reused,
            input_size=seen.input_tokens,
            declared=parts.get("queue.cold_start", 0) > 0,
        )

    def _count(self, seen: Observed, place: int, number: int) -> None:
        live, points = self.live, self._job.points
        live.back += 1
        if seen.begun_ns is not None:
            live.lateness.add(max(seen.begun_ns - seen.intended_ns, 0))
        at_ns = self.judged.until(seen) if seen.outcome == "ok" else None
        took_ns = None if at_ns is None else at_ns - seen.intended_ns
        if took_ns is None:
            live.failed += 1
            live.latency.add_failed()
        else:
            live.latency.add(took_ns)
        if self.judged.within_ns is not None and (took_ns is None or took_ns > self.judged.within_ns):
            live.late += 1
        if len(points) > 1:
            self.rounds.setdefault(number // len(points), {})[points[place].name] = took_ns
