"""The command line: one file a verb. Only this package opens paths, wires edges together and exits."""

import os
import sys

# Exit codes of every verb; docs/cli.md tells users the same.
OK, FAIL, USAGE, UNDECIDED, REFUSED, INTERRUPTED = 0, 1, 2, 3, 4, 130


def main() -> None:
    """The `outlay` command."""
    try:
        from outlay.cli.app import app

        app(prog_name="outlay")
    except KeyboardInterrupt:
        print("outlay: interrupted", file=sys.stderr)
        sys.exit(INTERRUPTED)
    except OSError as error:
        # Verbs say what they cannot read or write themselves; what is left is standard output.
        discard_output()
        print(f"outlay: {error.filename or 'standard output'}: {error.strerror}", file=sys.stderr)
        sys.exit(USAGE)


def discard_output() -> None:
    """Send what waits to be printed nowhere: Python would fail on it again when it ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
