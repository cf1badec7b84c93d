"""The command line: one file a verb. Only this package opens paths, wires edges together and exits."""

import os
import sys

# Exit codes of every verb; docs/cli.md tells users the same.
OK, FAIL, USAGE, UNDECIDED, REFUSED, INTERRUPTED = 0, 1, 2, 3, 4, 130


def main() -> None:
    """The `outlay` command."""
    from outlay.cli.app import app

    try:
        app(prog_name="outlay")
    except KeyboardInterrupt:
        print("outlay: interrupted", file=sys.stderr)
        sys.exit(INTERRUPTED)
    except BrokenPipeError:
        # Whoever read the output has had enough. Python would complain again while closing it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(OK)
