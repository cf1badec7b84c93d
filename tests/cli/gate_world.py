"""Runs whose verdicts are known, as logs: so many interactions, so many of them over the limit."""

from collections.abc import Iterable
from pathlib import Path

from outlay.formats.log import write_line, write_load
from outlay.generator import GeneratorVerdict, Reason, State
from outlay.interaction import Interaction, Mark
from outlay.load import Load
from outlay.units import NS_PER_MS

# 99 percent within 800 ms, of which the queue may take 300.
YAML = """
moments:
  voice-turn:
    within: 800ms
    percentile: 99
    stages:
      llm/queue*: {share: 300ms, owner: platform}
      llm/infer*: {share: 500ms, owner: model}
"""

LIMIT_MS = 800


def turns(
    n: int, over: int = 0, *, moment: str = "voice-turn", failed: int = 0, faster_ms: int = 0
) -> list[Interaction]:
    """`n` turns of 500 to 549 ms, all model but 100 ms of queue; `over` of them wait 900 ms, evenly spread.

    Of the others the first `failed` never got a result; all take `faster_ms` less.
    """
    late = {place * n // over for place in range(over)} if over else set()
    made = []
    for place in range(n):
        queue_ms = (900 if place in late else 100) - faster_ms
        made.append(_turn(f"{moment}-{place}", moment, place, queue_ms, 400 + place * 17 % 50))
    lost = [place for place in range(n) if place not in late][:failed]
    for place in lost:
        made[place] = Interaction(
            id=f"lost-{place}", moment=moment, start_ns=made[place].start_ns, end_ns=None, outcome="error"
        )
    return made


def _turn(key: str, moment: str, place: int, queue_ms: int, infer_ms: int) -> Interaction:
    start = place * 10_000 * NS_PER_MS
    queued = start + queue_ms * NS_PER_MS
    end = queued + infer_ms * NS_PER_MS
    marks = (
        Mark(name="scheduled", at_ns=queued, component="llm", stage="queue.wait"),
        Mark(name="first_token", at_ns=end, component="llm", stage="infer"),
    )
    return Interaction(id=key, moment=moment, start_ns=start, end_ns=end, marks=marks)


def load(state: State, n: int, moment: str = "voice-turn") -> Load:
    """The load that `n` turns came under."""
    reason = Reason(rule="lateness", state=state, measured=2e9, limit=1e6, text="the p99 of lateness is 2 s")
    judged = GeneratorVerdict(
        state=state,
        reasons=(reason,),
        lateness_p50_ns=10**9,
        lateness_p99_ns=2 * 10**9,
        lateness_max_ns=2 * 10**9,
        achieved=1.0,
        unsent=0,
    )
    return Load(name="run", tool="probe", moment=moment, requests=n, verdict=judged)


def write(path: Path, items: Iterable[Interaction | Load]) -> str:
    """A log of these."""
    lines = [write_load(item) if isinstance(item, Load) else write_line(item) for item in items]
    path.write_bytes(b"".join(lines))
    return str(path)
