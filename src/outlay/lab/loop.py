"""An event loop whose timers are exact to some tens of microseconds, without spinning.

Event loops hand the kernel whole milliseconds: asyncio rounds its wait up to the next one for epoll, and uvloop's
timers count in them. A server that claims to answer after 20 ms must do better.
"""

import asyncio
import select
import selectors
import sys
from selectors import SelectorKey


def new_loop() -> asyncio.AbstractEventLoop:
    """A loop with exact timers where the system has epoll; asyncio's own elsewhere."""
    return asyncio.SelectorEventLoop(_ExactEpoll()) if sys.platform == "linux" else asyncio.new_event_loop()


if sys.platform == "linux":

    class _ExactEpoll(selectors.EpollSelector):
        def select(self, timeout: float | None = None) -> list[tuple[SelectorKey, int]]:
            # An epoll descriptor can itself be waited for, and select(2) takes microseconds.
            if timeout is None or timeout > 0:
                select.select((self.fileno(),), (), (), timeout)
            return super().select(0)
