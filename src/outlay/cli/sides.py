"""What `outlay check` and `outlay compare` have in common: data or a stored baseline as input, and the tolerance."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from outlay.cli import REFUSED, USAGE
from outlay.cli.saying import say, stop
from outlay.units import parse_duration

if TYPE_CHECKING:  # what these import would slow `outlay --help`
    from outlay.baseline import Baseline
    from outlay.cli.run import Found
    from outlay.compare import Tolerance
    from outlay.explain import Question
    from outlay.mapping import Rule


def found_in(paths: Sequence[str], question: "Question", rules: Sequence["Rule"]) -> "Found":
    """What the paths hold. Says which inputs were refused; ends where one cannot be read, or nothing can be."""
    from outlay.cli.run import gather_paths

    try:
        found = gather_paths(paths, question, rules)
    except OSError as error:
        stop(f"{error.filename}: {error.strerror}", USAGE)
    for refusal in found.refusals:
        say(refusal)
    if not found.gathering.offered:
        stop("nothing could be read" if found.refusals else "the input holds no interactions", REFUSED)
    return found


def is_baseline(path: str) -> bool:
    """Whether this is a file that holds a baseline. Ends with the reason where it cannot be read."""
    from outlay.formats.baseline import HEAD, recognises

    if not Path(path).is_file():
        return False
    try:
        with Path(path).open("rb") as stream:
            return recognises(stream.read(HEAD))
    except OSError as error:
        stop(f"{path}: {error.strerror}", USAGE)


def baseline_in(path: str) -> "Baseline":
    """The baseline in a file. Ends with the reason where it cannot be read, or is none."""
    from outlay.formats.baseline import read_baseline
    from outlay.formats.codec import FormatError

    try:
        return read_baseline(Path(path).read_bytes())
    except OSError as error:
        stop(f"{path}: {error.strerror}", USAGE)
    except FormatError as error:
        stop(f"{path}: {error}", REFUSED)


def tolerance_of(text: str) -> "Tolerance":
    """`5%` of what the percentile was, or `20ms`. Ends with the reason for anything else."""
    from outlay.compare import Tolerance

    number, percent, rest = text.strip().partition("%")
    try:
        if not percent:
            return Tolerance(time_ns=parse_duration(text))
        share = float(number) / 100
    except ValueError:
        share = -1.0
    if rest or not 0 <= share <= 10:
        stop(f"--tolerance {text}: expected a part from 0 % to 1000 % or a time, for example 5% or 20ms", USAGE)
    return Tolerance(share=share)
