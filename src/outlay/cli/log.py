"""A log that grows while a run lasts, and never ends it."""

from pathlib import Path
from typing import BinaryIO


class Log:
    """The log as it grows. When it cannot be written any more, the run goes on, and says so at its end."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.trouble: OSError | None = None
        self._out: BinaryIO = path.open("wb")

    def write(self, line: bytes) -> None:
        """One line more, if the file still takes any."""
        if self.trouble is None:
            try:
                self._out.write(line)
            except OSError as error:
                self.trouble = error

    def flush(self) -> None:
        """What was written survives this process from here on."""
        if self.trouble is None:
            try:
                self._out.flush()
            except OSError as error:
                self.trouble = error

    def close(self) -> None:
        """The end of the file. Python tries to write what it still holds, and then gives it up."""
        self.flush()
        try:
            self._out.close()
        except OSError as error:
            self.trouble = self.trouble or error
