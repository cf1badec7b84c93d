"""A budget put into the text of an `outlay.yaml`, which otherwise stays as its author wrote it, comments included.

The parser says where each value stands in the text. Those that change are replaced, and what is missing is added
behind what is there: among shares the first match wins, so an added one takes nothing from those before it.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from outlay.budget import Budget
from outlay.formats.spec import DEFAULT_PERCENTILE, load_spec
from outlay.formats.spec_yaml import shown
from outlay.units import NS_PER_MS, NS_PER_S

_PLAIN = re.compile(r"[A-Za-z0-9_][\w./*-]*", re.ASCII)

# Keys to values as YAML writes them, or to what stands below.
_Tree = Mapping[str, "str | _Tree"]
# A text in place of what stands between two places.
_Edit = tuple[int, int, str]


def with_budget(text: str, name: str, moment: str, budget: Budget) -> str:
    """The text of the file `name`, with the limit, the percentile and the shares of `budget` in this moment.

    Shares that only the text has stay, and so do owners. Raises SpecError where the text is not valid, also for the
    shares it would have then, and ValueError where it lacks the moment.
    """
    wanted = _changes(text, name, moment, budget)
    root: Any = yaml.compose(text, Loader=yaml.SafeLoader)
    edits = _edits(text, _values(_values(root)["moments"])[moment], wanted)
    for begin, end, new in sorted(edits, reverse=True):
        text = text[:begin] + new + text[end:]
    load_spec(text, name)
    return text


def new_spec(moment: str, budget: Budget) -> str:
    """The text of a file that holds this moment alone."""
    return with_budget(f"moments:\n  {_key(moment)}:\n    within: 1h\n", "outlay.yaml", moment, budget)


def duration(value_ns: int) -> str:
    """Exactly so many nanoseconds, as `outlay.yaml` writes them: `157.3ms`, `9s`."""
    factor, unit = (NS_PER_S, "s") if value_ns >= NS_PER_S else (NS_PER_MS, "ms")
    whole, rest = divmod(value_ns, factor)
    # The zeros of the factor are the decimals.
    return f"{whole}.{rest:0{len(str(factor)) - 1}d}".rstrip("0").rstrip(".") + unit


def _changes(text: str, name: str, moment: str, budget: Budget) -> _Tree:
    """The keys of the moment that say something else than the budget, with what they should say."""
    found = next((each for each in load_spec(text, name).moments if each.name == moment), None)
    if found is None:
        raise ValueError(f"{name}: has no moment {shown(moment)}")
    told = found.budget
    changes: dict[str, str | _Tree] = {}
    if told is None or told.limit_ns != budget.limit_ns:
        changes["within"] = duration(budget.limit_ns)
    if (told.percentile if told else DEFAULT_PERCENTILE) != budget.percentile:
        changes["percentile"] = f"{budget.percentile:g}"
    limits = {share.entry: share.limit_ns for share in told.shares} if told else {}
    shares = {
        share.entry: {"share": duration(share.limit_ns)}
        for share in budget.shares
        if share.limit_ns is not None and share.limit_ns != limits.get(share.entry)
    }
    return changes | ({"stages": shares} if shares else {})


def _values(node: yaml.CollectionNode) -> dict[str, Any]:
    """The nodes of a mapping's values by key: which kind each is was checked when the file was read."""
    return {key.value: value for key, value in node.value}


def _edits(text: str, node: yaml.CollectionNode, wanted: _Tree) -> Iterator[_Edit]:
    known = _values(node)
    for key, value in wanted.items():
        if key in known and isinstance(value, str):
            yield known[key].start_mark.index, known[key].end_mark.index, value
        elif key in known and not isinstance(value, str):
            yield from _edits(text, known[key], value)
    missing = {key: value for key, value in wanted.items() if key not in known}
    if missing:
        yield _added(text, node, missing)


def _added(text: str, node: yaml.CollectionNode, missing: _Tree) -> _Edit:
    """Keys behind the last of a mapping: on its line where braces hold it, else on lines of their own."""
    if not node.value:
        at = node.start_mark.index + 1
        return at, at, _braced(missing)[1:-1]
    if node.flow_style:
        at = node.value[-1][1].end_mark.index
        return at, at, f", {_braced(missing)[1:-1]}"
    # A comment behind the last value stays on its line.
    at = text.find("\n", _last(node).end_mark.index)
    at = len(text) if at < 0 else at
    indent = " " * node.start_mark.column
    return at, at, "".join(f"\n{indent}{line}" for line in _lines(missing))


def _last(node: yaml.Node) -> yaml.Node:
    """The value that ends a node: behind one without braces or brackets, the parser has gone on to what follows."""
    if not isinstance(node, yaml.CollectionNode) or node.flow_style:
        return node
    last = node.value[-1]
    return _last(last[1] if isinstance(node, yaml.MappingNode) else last)


def _lines(tree: _Tree) -> Iterator[str]:
    for key, value in tree.items():
        if isinstance(value, str) or all(isinstance(below, str) for below in value.values()):
            yield f"{_key(key)}: {_braced(value)}"
        else:
            yield f"{_key(key)}:"
            yield from (f"  {line}" for line in _lines(value))


def _braced(value: str | _Tree) -> str:
    if isinstance(value, str):
        return value
    return "{" + ", ".join(f"{_key(key)}: {_braced(below)}" for key, below in value.items()) + "}"


def _key(text: str) -> str:
    return text if _PLAIN.fullmatch(text) else json.dumps(text, ensure_ascii=False)
