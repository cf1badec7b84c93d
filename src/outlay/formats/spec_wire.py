"""Nodes to plain values, checked against msgspec types, with a problem for everything that does not fit.

msgspec's types are the one description of the keys: they drive the check here and the JSON Schema beside it. Two
things that they have no word for sit in `Meta(extra=...)`: `expects` completes "expected ..., got ...", and `check`
takes a text and raises ValueError with a one-line reason.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from msgspec import inspect

from outlay.formats.spec_yaml import Findings, Mapping, Node, Path, Refused, Scalar, Sequence, shown

Plain = str | int | float | list["Plain"] | dict[str, "Plain"]

# Only decimals: in YAML 1.1 `1:30` is 90 and `0x5f` is 95, which nobody means here.
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)
_WHOLE = re.compile(r"[+-]?\d+", re.ASCII)

_MOST_LISTED = 24


@dataclass(frozen=True, slots=True)
class _Shape:
    """A msgspec type out of its wrapping. `expects` is in words, for messages."""

    type: Any
    expects: str
    check: Callable[[str], object] | None
    min_keys: int


def one_of(what: str, choices: Iterable[str]) -> Callable[[str], None]:
    """A `check` that lets one of `choices` pass and names the nearest of them otherwise."""
    known = tuple(choices)

    def check(text: str) -> None:
        if text not in known:
            raise ValueError(f"unknown {what} {shown(text)}; {nearest(text, known)}")

    return check


def nearest(text: str, choices: Iterable[str], *, listed: Iterable[str] | None = None) -> str:
    """`did you mean infer?`, or where no choice is near, the first of them; `listed` in their place when given."""
    known = list(choices)
    close = get_close_matches(text, known, n=1)
    if close:
        return f"did you mean {close[0]}?"
    listing = known if listed is None else list(listed)
    more = ", ..." if len(listing) > _MOST_LISTED else ""
    return f"valid here: {', '.join(listing[:_MOST_LISTED])}{more}"


def read(node: Node, kind: inspect.Type, findings: Findings, path: Path = ()) -> Plain | None:
    """What `node` says, as plain values that msgspec will convert to `kind`; None when it says nothing that fits.

    Wrong entries of a record or a mapping are left out and the rest is read on; a list with a wrong item, and a record
    without a key that it needs, are left out whole. `findings` gets a problem for each.
    """
    findings.lines.setdefault(path, node.line)
    if isinstance(node, Refused):
        findings.add(path, node.why, node.line)
        return None
    shape = _shape(kind)
    return _READERS[type(shape.type)](node, shape, findings, path)


def _shape(kind: inspect.Type) -> _Shape:
    if not isinstance(kind, inspect.Metadata):
        return _Shape(kind, _WORDS[type(kind)], None, 0)
    extra, schema = kind.extra or {}, kind.extra_json_schema or {}
    expects = extra.get("expects", _WORDS[type(kind.type)])
    return _Shape(kind.type, expects, extra.get("check"), schema.get("minProperties", 0))


def _wrong(node: Node, shape: _Shape, findings: Findings, path: Path) -> None:
    findings.add(path, f"expected {shape.expects}, got {_found(node)}")


def _found(node: Node) -> str:
    if isinstance(node, Scalar):
        return "nothing" if node.is_null else shown(node.text)
    items = node.pairs if isinstance(node, Mapping) else node.items if isinstance(node, Sequence) else ()
    noun = "mapping" if isinstance(node, Mapping) else "list"
    return f"a {noun} of {len(items)}" if items else f"an empty {noun}"


def _text(node: Node, shape: _Shape, findings: Findings, path: Path) -> Plain | None:
    if not isinstance(node, Scalar) or node.is_null or not _fits(node.text, shape.type):
        _wrong(node, shape, findings, path)
        return None
    return node.text if _passes(node.text, shape, findings, path) else None


def _fits(text: str, kind: inspect.StrType) -> bool:
    return len(text) >= (kind.min_length or 0) and (
        kind.pattern is None or re.fullmatch(kind.pattern, text) is not None
    )


def _passes(text: str, shape: _Shape, findings: Findings, path: Path) -> bool:
    try:
        if shape.check is not None:
            shape.check(text)
    except ValueError as error:
        findings.add(path, str(error))
        return False
    return True


def _number(node: Node, shape: _Shape, findings: Findings, path: Path) -> Plain | None:
    value = float(node.text) if isinstance(node, Scalar) and _NUMBER.fullmatch(node.text) else None
    if value is None or not _in_range(value, shape.type):
        _wrong(node, shape, findings, path)
        return None
    return value


def _whole(node: Node, shape: _Shape, findings: Findings, path: Path) -> Plain | None:
    value = int(node.text) if isinstance(node, Scalar) and _WHOLE.fullmatch(node.text) else None
    if value is None or not _in_range(value, shape.type):
        _wrong(node, shape, findings, path)
        return None
    return value


def _in_range(value: float, kind: inspect.FloatType | inspect.IntType) -> bool:
    return (
        (kind.gt is None or value > kind.gt)
        and (kind.ge is None or value >= kind.ge)
        and (kind.lt is None or value < kind.lt)
        and (kind.le is None or value <= kind.le)
    )


def _literal(node: Node, shape: _Shape, findings: Findings, path: Path) -> Plain | None:
    known = {str(value): value for value in shape.type.values}
    if not isinstance(node, Scalar) or node.is_null:
        _wrong(node, shape, findings, path)
        return None
    if node.text not in known:
        findings.add(path, f"unknown value {shown(node.text)}; {nearest(node.text, known)}")
    return known.get(node.text)


def _list(node: Node, shape: _Shape, findings: Findings, path: Path) -> Plain | None:
    if not isinstance(node, Sequence) or len(node.items) < (shape.type.min_length or 0):
        _wrong(node, shape, findings, path)
        return None
    items = [read(item, shape.type.item_type, findings, (*path, place)) for place, item in enumerate(node.items)]
    kept = [item for item in items if item is not None]
    return kept if len(kept) == len(items) else None


def _mapping(node: Node, shape: _Shape, findings: Findings, path: Path) -> Plain | None:
    """Names that the user chose."""
    fewest = shape.type.min_length or 0
    if not isinstance(node, Mapping) or len(node.pairs) < fewest:
        _wrong(node, shape, findings, path)
        return None
    key_shape = _shape(shape.type.key_type)
    values: dict[str, Plain] = {}
    for key, value in _pairs(node, findings, path):
        inner = (*path, key.text)
        # The value is read even under a wrong name: its own problems are worth knowing too.
        name = _text(key, key_shape, findings, inner)
        item = read(value, shape.type.value_type, findings, inner)
        if name is not None and item is not None:
            values[key.text] = item
    return values if len(values) >= fewest else None


def _record(node: Node, shape: _Shape, findings: Findings, path: Path) -> Plain | None:
    """Names that Outlay chose."""
    if not isinstance(node, Mapping) or len(node.pairs) < shape.min_keys:
        _wrong(node, shape, findings, path)
        return None
    fields = {each.encode_name: each for each in shape.type.fields}
    values: dict[str, Plain] = {}
    present: set[str] = set()
    for key, value in _pairs(node, findings, path):
        inner = (*path, key.text)
        present.add(key.text)
        if key.text not in fields:
            findings.add(inner, f"unknown key; {nearest(key.text, fields)}")
        elif (item := read(value, fields[key.text].type, findings, inner)) is not None:
            values[key.text] = item
    needed = [name for name, each in fields.items() if each.required]
    for name in needed:
        if name not in present:
            findings.add(path, f"needs the key `{name}`")
    return values if all(name in values for name in needed) else None


def _pairs(node: Mapping, findings: Findings, path: Path) -> Iterator[tuple[Scalar, Node]]:
    """The pairs whose key is text and stands for the first time; the line of each key becomes its path's line."""
    for key, value in node.pairs:
        if not isinstance(key, Scalar):
            why = key.why if isinstance(key, Refused) else f"a key must be text, got {_found(key)}"
            findings.add(path, why, key.line)
        elif key.text == "<<":
            findings.add(path, "merge keys (<<) are not read; write the keys out", key.line)
        elif (first := findings.lines.get((*path, key.text))) is not None:
            findings.add((*path, key.text), f"given twice, first on line {first}", key.line)
        else:
            findings.lines[*path, key.text] = key.line
            yield key, value


def _union(node: Node, shape: _Shape, findings: Findings, path: Path) -> Plain | None:
    """A mapping is read as the record among the members; everything else as the text, which a union always has."""
    members = {type(_shape(each).type): each for each in shape.type.types}
    text = members[inspect.StrType]
    return read(node, members.get(inspect.StructType, text) if isinstance(node, Mapping) else text, findings, path)


_Reader = Callable[[Node, _Shape, Findings, Path], Plain | None]

_READERS: dict[type, _Reader] = {
    inspect.StrType: _text,
    inspect.LiteralType: _literal,
    inspect.FloatType: _number,
    inspect.IntType: _whole,
    inspect.VarTupleType: _list,
    inspect.DictType: _mapping,
    inspect.StructType: _record,
    inspect.UnionType: _union,
}

_WORDS: dict[type, str] = {
    inspect.StrType: "text",
    inspect.LiteralType: "one word",
    inspect.FloatType: "a number",
    inspect.IntType: "a whole number",
    inspect.VarTupleType: "a list",
    inspect.DictType: "a mapping",
    inspect.StructType: "a mapping",
    inspect.UnionType: "text",
    inspect.BoolType: "true or false",
}
