"""Servers of the lab as their users start them: a command that prints its address and stops on a signal."""

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def started(module: str, *arguments: str) -> Iterator[str]:
    """The address that the command prints. It must stop cleanly on SIGTERM, with nothing to complain of."""
    command = [sys.executable, "-X", "faulthandler", "-m", module, *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            address = process.stdout.readline().removesuffix("\n")
            assert re.fullmatch(r"https?://127\.0\.0\.1:\d+", address), process.communicate(timeout=10)
            yield address
            process.send_signal(signal.SIGTERM)
            try:
                _, errors = process.communicate(timeout=30)
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGABRT)
                pytest.fail(f"{module} does not stop:\n{process.communicate(timeout=10)[1]}")
        finally:
            process.kill()
    assert (process.returncode, errors) == (0, "")


def port_of(address: str) -> int:
    return int(address.rpartition(":")[2])
