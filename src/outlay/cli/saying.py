"""What verbs that read and write files have in common: words on standard error, the spec, whole files."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import typer

from outlay.cli import USAGE
from outlay.render.untrusted import visible

if TYPE_CHECKING:  # what these import would slow `outlay --help`
    from outlay.formats.spec import Spec


def say(message: str) -> None:
    """One line on standard error. File names and keys of other people's JSON may be in it."""
    print(f"outlay: {visible(message)}", file=sys.stderr)


def stop(message: str, code: int) -> NoReturn:
    """Say why, and end with this exit code."""
    say(message)
    raise typer.Exit(code)


def spec_of(budget: str | None) -> "Spec":
    """The spec of a file or a preset; without either ./outlay.yaml, or nothing. Ends with what is wrong with it."""
    from outlay.formats.spec import MAX_BYTES, Spec, SpecError, load_preset, load_spec, preset_names

    if budget is None and not Path("outlay.yaml").is_file():
        return Spec(moments=(), rules=())
    name = budget or "outlay.yaml"
    if name in preset_names() and not Path(name).exists():
        return load_preset(name)
    try:
        with Path(name).open("rb") as stream:
            return load_spec(stream.read(MAX_BYTES + 1), name)
    except OSError as error:
        known = ", ".join(preset_names())
        stop(f"{name}: {error.strerror}; --budget takes a file, or one of the presets {known}", USAGE)
    except SpecError as error:
        print(error, file=sys.stderr)
        raise typer.Exit(USAGE) from None


def conditions(where: list[str]) -> dict[str, str]:
    """The conditions of `--where`, by dimension. Ends with what is wrong with one."""
    found = {}
    for condition in where:
        name, equals, value = condition.partition("=")
        if not (name and equals):
            stop(f"--where {condition}: expected DIM=VALUE, for example --where site=lon", USAGE)
        found[name.strip()] = value.strip()
    return found


def write_whole(path: Path, content: bytes) -> None:
    """A file, replaced only when all of it is written. Ends with the reason when it cannot be."""
    from outlay.cli.run import replacing

    try:
        with replacing(path) as out:
            out.write(content)
    except OSError as error:
        stop(f"{path}: {error.strerror}", USAGE)
