"""YAML text as a small tree that remembers its lines, and the problems that a file can have.

Only the part of YAML that JSON also has is read, and every scalar is taken as it is written, so that a moment named
`no` stays `no`. Aliases, merge keys and tags are refused: no input can grow while it is read.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import yaml

# A file that people write by hand stays far below each of these; together they bound the time any input can take.
MAX_BYTES = 256 * 1024
MAX_DEPTH = 32
MAX_TEXT = 1000
MAX_PROBLEMS = 100

Path = tuple[str | int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One thing wrong with a file. `line` counts from 1; `path` is "" for what concerns the file as a whole."""

    file: str
    line: int
    path: str
    message: str

    def __str__(self) -> str:
        place = f"{self.path}: " if self.path else ""
        return f"{self.file}:{self.line}: {place}{self.message}"


class SpecError(ValueError):
    """The file is not a valid spec. Its text is one line per problem, in the order of the file."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(sorted(problems, key=lambda problem: problem.line))
        super().__init__("\n".join(str(problem) for problem in self.problems))


@dataclass(slots=True)
class Findings:
    """What is known of one file while it is read: the line of each path, the problems, and the paths they touch."""

    file: str
    lines: dict[Path, int] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    broken: set[Path] = field(default_factory=set)

    def add(self, path: Path, message: str, line: int | None = None) -> None:
        """Note a problem, by default on the line of `path`. Raises SpecError at the MAX_PROBLEMS-th."""
        self.problems.append(self._problem(self.lines[path] if line is None else line, dotted(path), message))
        # What holds something broken is broken too, so that nobody judges it by what is left of it.
        self.broken.update(path[:length] for length in range(1, len(path) + 1))
        if len(self.problems) == MAX_PROBLEMS:
            raise self.fatal(self.problems[-1].line, f"stopped after {MAX_PROBLEMS} problems")

    def fatal(self, line: int, message: str) -> SpecError:
        """The error to raise when nothing more of the file can be read."""
        return SpecError([*self.problems, self._problem(line, "", message)])

    def _problem(self, line: int, path: str, message: str) -> Problem:
        return Problem(file=self.file, line=line, path=path, message=message)


def dotted(path: Path) -> str:
    """A path for people: `moments.voice-turn.chain[2].as`, with quotes around a key that itself holds a dot."""
    steps = (f"[{step}]" if isinstance(step, int) else f".{_key(step)}" for step in path)
    return "".join(steps).removeprefix(".")


def _key(key: str) -> str:
    return repr(_short(key)) if "." in key else shown(key)


def shown(text: str) -> str:
    """`text` in a message: short, and quoted where its borders would be unclear."""
    short = _short(text)
    return short if short and short == short.strip() and ": " not in short else repr(short)


def _short(text: str) -> str:
    return text if len(text) <= 60 else text[:60] + "..."


@dataclass(frozen=True, slots=True)
class Scalar:
    """Printable text, as written. `is_null` for nothing at all, `null` and `~`."""

    line: int
    text: str
    is_null: bool


@dataclass(frozen=True, slots=True)
class Sequence:
    """A list of nodes."""

    line: int
    items: tuple["Node", ...]


@dataclass(frozen=True, slots=True)
class Mapping:
    """Keys and values in the order of the file, doubles included."""

    line: int
    pairs: tuple[tuple["Node", "Node"], ...]


@dataclass(frozen=True, slots=True)
class Refused:
    """YAML that is not read here, and why."""

    line: int
    why: str


Node = Scalar | Sequence | Mapping | Refused

_NULLS = frozenset({"", "~", "null", "Null", "NULL"})


def parse_yaml(text: str | bytes, findings: Findings) -> Node:
    """The one document in `text`; bytes are UTF-8, with or without a byte order mark.

    Raises SpecError when it is not YAML, empty, too large or too deep.
    """
    if len(text) > MAX_BYTES:
        raise findings.fatal(1, f"larger than {MAX_BYTES // 1024} KiB, the most that is read")
    return _document(text if isinstance(text, str) else _decode(text, findings), findings)


def _decode(data: bytes, findings: Findings) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise findings.fatal(line, f"not UTF-8 (byte {error.start}); save the file as UTF-8") from None


def _document(text: str, findings: Findings) -> Node:
    events = _events(text, findings)
    first = next(events, None)
    if first is None:
        raise findings.fatal(1, "the file is empty; start with `moments:`, or from a preset")
    root = _node(first, events, findings, depth=0)
    after = next(events, None)
    if after is not None:
        raise findings.fatal(_line(after), "a second document begins here; a file holds one")
    return root


def _events(text: str, findings: Findings) -> Iterator[yaml.Event]:
    """The events that make up nodes; what PyYAML raises becomes SpecError here and nowhere else."""
    line = 1
    try:
        for event in yaml.parse(text, Loader=yaml.SafeLoader):
            line = _line(event)
            if isinstance(event, yaml.NodeEvent | yaml.CollectionEndEvent):
                yield event
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise findings.fatal(line, f"character U+{ord(text[error.position]):04X} may not stand in YAML") from None
    except yaml.MarkedYAMLError as error:
        raise _syntax(error, text, findings) from None
    except (ValueError, OverflowError):
        # PyYAML lets these out for an escape beyond Unicode and for a %YAML version of thousands of digits.
        raise findings.fatal(line, "not YAML: a number is out of range") from None


def _syntax(error: yaml.MarkedYAMLError, text: str, findings: Findings) -> SpecError:
    mark = error.problem_mark
    if mark is None:
        return findings.fatal(1, f"not YAML: {_one_line(str(error.problem))}")
    line = mark.line + 1
    if text[mark.index : mark.index + 1] == "\t":
        return findings.fatal(line, "a tab where YAML wants spaces")
    reason = ", ".join(part for part in (error.context, error.problem) if part)
    return findings.fatal(line, f"not YAML: {_one_line(reason)}")


def _one_line(text: str) -> str:
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


def _line(event: yaml.Event) -> int:
    mark = event.start_mark
    return mark.line + 1 if mark else 1


def _node(event: yaml.Event, events: Iterator[yaml.Event], findings: Findings, depth: int) -> Node:
    line = _line(event)
    if depth > MAX_DEPTH:
        raise findings.fatal(line, f"nested deeper than {MAX_DEPTH} levels")
    if isinstance(event, yaml.AliasEvent):
        return Refused(line, "aliases (*name) are not read; write the value out")
    node = _scalar(event) if isinstance(event, yaml.ScalarEvent) else _collection(event, events, findings, depth)
    tag = event.tag if isinstance(event, yaml.ScalarEvent | yaml.CollectionStartEvent) else None
    return node if tag is None else Refused(line, f"tags ({_one_line(_short(tag))}) are not read")


def _scalar(event: yaml.ScalarEvent) -> Node:
    line, text = _line(event), event.value
    if len(text) > MAX_TEXT:
        return Refused(line, f"text longer than {MAX_TEXT} characters")
    if not text.isprintable():
        return Refused(line, "text with line breaks or control characters")
    return Scalar(line, text, is_null=event.style is None and text in _NULLS)


def _collection(event: yaml.Event, events: Iterator[yaml.Event], findings: Findings, depth: int) -> Node:
    inside: list[Node] = []
    for each in events:
        if isinstance(each, yaml.CollectionEndEvent):
            break
        inside.append(_node(each, events, findings, depth + 1))
    if isinstance(event, yaml.MappingStartEvent):
        return Mapping(_line(event), tuple(zip(inside[::2], inside[1::2], strict=True)))
    return Sequence(_line(event), tuple(inside))
