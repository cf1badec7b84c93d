"""The timer of the senders: never early, and only as last set."""

import asyncio
from time import monotonic_ns

from outlay.probe.timer import Timer
from outlay.units import NS_PER_MS


def rung(*offsets_ns: int) -> list[int]:
    """How long after each setting's instant the timer rang, set anew each time it did."""

    async def ring() -> list[int]:
        loop, late, left, done = asyncio.get_running_loop(), [], list(offsets_ns), asyncio.Event()
        at_ns = 0

        def due() -> None:
            late.append(monotonic_ns() - at_ns)
            following()

        def following() -> None:
            nonlocal at_ns
            if not left:
                done.set()
                return
            at_ns = monotonic_ns() + left.pop(0)
            timer.set(at_ns)

        timer = Timer(loop, due)
        following()
        await asyncio.wait_for(done.wait(), 10)
        timer.close()
        return late

    return asyncio.run(ring())


def test_it_rings_never_before_its_instant():
    late_ns = rung(3 * NS_PER_MS, 100_000, 1, 0, -NS_PER_MS, 2 * NS_PER_MS)
    assert len(late_ns) == 6
    assert all(each >= 0 for each in late_ns)


def test_setting_it_anew_forgets_what_was_set_before():
    async def ring() -> int:
        rings = 0

        def due() -> None:
            nonlocal rings
            rings += 1

        timer = Timer(asyncio.get_running_loop(), due)
        timer.set(monotonic_ns() + 3_600_000 * NS_PER_MS)
        timer.set(monotonic_ns() + NS_PER_MS)
        await asyncio.sleep(0.005)
        timer.close()
        return rings

    assert asyncio.run(ring()) == 1
