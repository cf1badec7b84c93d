"""A timer exact to some tens of microseconds, for event loops that count in whole milliseconds.

On Linux it is a timerfd, which any loop can wait for like a socket; elsewhere it is the loop's own timer.
"""

import asyncio
import ctypes
import os
import sys
from collections.abc import Callable
from time import monotonic_ns

from outlay.units import NS_PER_S


class _Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


class _Setting(ctypes.Structure):
    _fields_ = (("interval", _Timespec), ("value", _Timespec))


# <sys/timerfd.h>, <time.h>; Python itself offers these from 3.13 on.
_CLOCK_MONOTONIC, _NONBLOCK, _CLOEXEC, _ABSOLUTE = 1, os.O_NONBLOCK, getattr(os, "O_CLOEXEC", 0), 1


class Timer:
    """Calls `due` once at the instant it was last set to, of CLOCK_MONOTONIC."""

    def __init__(self, loop: asyncio.AbstractEventLoop, due: Callable[[], None]) -> None:
        self._loop = loop
        self._due = due
        self._handle: asyncio.TimerHandle | None = None
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._fd = self._libc.timerfd_create(_CLOCK_MONOTONIC, _NONBLOCK | _CLOEXEC) if sys.platform == "linux" else -1
        if self._fd >= 0:
            loop.add_reader(self._fd, self._rang)

    def set(self, at_ns: int) -> None:
        """Ring at this instant, at once when it has passed; what was set before is forgotten."""
        if self._fd >= 0:
            # A setting of zero would switch the timer off.
            seconds, nanoseconds = divmod(max(at_ns, 1), NS_PER_S)
            setting = _Setting(_Timespec(0, 0), _Timespec(seconds, nanoseconds))
            self._libc.timerfd_settime(self._fd, _ABSOLUTE, ctypes.byref(setting), None)
            return
        if self._handle is not None:
            self._handle.cancel()
        self._handle = self._loop.call_later(max(at_ns - monotonic_ns(), 0) / NS_PER_S, self._due)

    def close(self) -> None:
        """Never ring again."""
        if self._fd >= 0:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1
        if self._handle is not None:
            self._handle.cancel()

    def _rang(self) -> None:
        try:
            os.read(self._fd, 8)
        except BlockingIOError:
            return  # it was set anew meanwhile
        self._due()
