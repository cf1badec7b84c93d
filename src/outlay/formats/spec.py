"""`outlay.yaml` to moments and mapping rules, its JSON Schema, and the presets that come with Outlay."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import resources
from importlib.resources.abc import Traversable
from itertools import pairwise
from typing import TypeVar

import msgspec
from msgspec import UNSET, UnsetType, inspect

from outlay.budget import THRESHOLDS, Budget, ChainStep, Match, Moment, Share
from outlay.deployment import Deployment
from outlay.formats.deployment import judge_deployment, make_deployment
from outlay.formats.spec_keys import (
    ANY,
    CONTAINER,
    MatchKeys,
    MomentKeys,
    RuleKeys,
    ShareKeys,
    SpecKeys,
    component_and_stage,
)
from outlay.formats.spec_wire import nearest, read
from outlay.formats.spec_yaml import MAX_BYTES, Findings, Path, Problem, SpecError, parse_yaml, shown
from outlay.mapping import Rule
from outlay.units import format_duration, parse_duration

__all__ = [
    "MAX_BYTES",
    "Problem",
    "Spec",
    "SpecError",
    "load_preset",
    "load_spec",
    "preset_names",
    "preset_text",
    "spec_schema",
]

DEFAULT_PERCENTILE = 99.0

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """What one `outlay.yaml` says. Rules are in the order in which they are tried.

    `deployment` is what `outlay gateway` serves, None where the file names no targets.
    """

    moments: tuple[Moment, ...]
    rules: tuple[Rule, ...]
    deployment: Deployment | None = None


def load_spec(text: str | bytes, name: str) -> Spec:
    """The spec in `text`; bytes are UTF-8. `name` stands for the file in messages.

    Raises SpecError with every problem found (at most MAX_PROBLEMS), each with its line. A file that is no YAML, or
    larger or deeper than is read, has the one problem that stopped it.
    """
    findings = Findings(name)
    plain = read(parse_yaml(text, findings), inspect.type_info(SpecKeys), findings)
    keys = SpecKeys() if plain is None else msgspec.convert(plain, SpecKeys)
    moments = _known(keys.moments) or {}
    for moment, moment_keys in moments.items():
        _judge(moment_keys, ("moments", moment), findings)
    judge_deployment(keys, findings)
    if findings.problems:
        raise SpecError(findings.problems)
    return Spec(
        moments=tuple(_moment(moment, moment_keys) for moment, moment_keys in moments.items()),
        rules=tuple(_rule(rule) for rule in _known(keys.rules) or ()),
        deployment=make_deployment(keys),
    )


def spec_schema() -> dict[str, object]:
    """The JSON Schema (2020-12) of `outlay.yaml`. What spans several keys is only checked by `load_spec`."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "outlay.yaml",
        **msgspec.json.schema(SpecKeys),
    }


# Checks that span several keys. Each yields the path below the moment, and what is wrong there.

_Complaints = Iterator[tuple[Path, str]]


def _limit_is_time(moment: MomentKeys) -> _Complaints:
    for key, value in (("within", _known(moment.within)), ("duty_period", _known(moment.duty_period))):
        if value is not None and parse_duration(value) == 0:
            yield (key,), "must be above 0"


def _limit_is_there(moment: MomentKeys) -> _Complaints:
    needy = {
        "percentile": moment.percentile,
        "thresholds": moment.thresholds,
        "duty_period": moment.duty_period,
        "stages": moment.stages,
    }
    for key, value in needy.items():
        if moment.within is UNSET and value is not UNSET:
            yield (key,), "means nothing without `within`; add the limit, or leave this out"


def _thresholds_rise(moment: MomentKeys) -> _Complaints:
    given = _known(moment.thresholds) or {}
    for lower, higher in pairwise(name for name in THRESHOLDS if name in given):
        if parse_duration(given[higher]) <= parse_duration(given[lower]):
            yield ("thresholds", higher), f"must be longer than {lower} ({given[lower]}), got {given[higher]}"


def _shares_fit(moment: MomentKeys) -> _Complaints:
    within, stages = _known(moment.within), _known(moment.stages)
    if within is None or stages is None:
        return
    shares = [share for share in map(_share_ns, stages.values()) if share is not None]
    over_ns = sum(shares) - parse_duration(within)
    if over_ns > 0:
        yield ("stages",), f"the shares exceed within ({within}) by {format_duration(over_ns)}"


def _chain_reads(moment: MomentKeys) -> _Complaints:
    seen: set[str] = set()
    for place, (mark, entry) in enumerate(_steps(moment)):
        if mark in seen:
            yield ("chain", place), f"the mark {shown(mark)} stands in the chain twice"
        seen.add(mark)
        if place == 0 and entry is not None:
            yield ("chain", place), "the first mark ends nothing, so it takes no `as`"
        if place > 0 and entry is None:
            yield ("chain", place), f"the time before it needs a name, such as {{mark: {shown(mark)}, as: llm/infer}}"


def _ends_are_marks(moment: MomentKeys) -> _Complaints:
    start, end = _known(moment.start), _known(moment.end)
    if start is not None and start == end:
        yield ("to",), "the clock cannot stop at the mark where it starts"
    marks = [mark for mark, _ in _steps(moment)]
    if not marks:
        return
    for key, mark in (("from", start), ("to", end)):
        if mark is not None and mark not in marks:
            yield (key,), f"{shown(mark)} is no mark of the chain; {nearest(mark, marks)}"
    if start in marks and end in marks and marks.index(end) < marks.index(start):
        yield ("to",), f"{shown(end)} comes before {shown(start)} in the chain"


# A check runs only where the keys beside it were read whole: half of a chain proves nothing, while shares that already
# exceed the limit do so whatever the unread ones would add.
_CHECKS: tuple[tuple[tuple[str, ...], Callable[[MomentKeys], _Complaints]], ...] = (
    ((), _limit_is_time),
    (("within",), _limit_is_there),
    (("within",), _shares_fit),
    ((), _thresholds_rise),
    (("chain",), _chain_reads),
    (("from", "to", "chain"), _ends_are_marks),
)


def _judge(moment: MomentKeys, path: Path, findings: Findings) -> None:
    for keys, check in _CHECKS:
        if findings.broken.isdisjoint((*path, key) for key in keys):
            # All of its complaints first, so that none hides the next.
            for below, message in list(check(moment)):
                findings.add((*path, *below), message)


# Keys to core values. Everything was checked above, so nothing here fails.


def _known(value: Value | UnsetType) -> Value | None:
    return None if isinstance(value, UnsetType) else value


def _moment(name: str, keys: MomentKeys) -> Moment:
    return Moment(
        name=name,
        budget=_budget(keys),
        start=_known(keys.start),
        end=_known(keys.end),
        match=None if isinstance(keys.match, UnsetType) else _match(keys.match),
        chain=tuple(ChainStep(mark=mark, entry=entry) for mark, entry in _steps(keys)),
    )


def _budget(keys: MomentKeys) -> Budget | None:
    within, percentile, duty_period = _known(keys.within), _known(keys.percentile), _known(keys.duty_period)
    if within is None:
        return None
    thresholds = _known(keys.thresholds) or {}
    return Budget(
        limit_ns=parse_duration(within),
        percentile=DEFAULT_PERCENTILE if percentile is None else percentile,
        thresholds={name: parse_duration(thresholds[name]) for name in THRESHOLDS if name in thresholds},
        shares=tuple(
            Share(entry=entry, limit_ns=_share_ns(share), owner=_known(share.owner))
            for entry, share in (_known(keys.stages) or {}).items()
        ),
        duty_period_ns=None if duty_period is None else parse_duration(duty_period),
    )


def _share_ns(share: ShareKeys) -> int | None:
    text = _known(share.share)
    return None if text is None else parse_duration(text)


def _steps(moment: MomentKeys) -> list[tuple[str, str | None]]:
    steps = _known(moment.chain) or ()
    return [(step, None) if isinstance(step, str) else (step.mark, _known(step.entry)) for step in steps]


def _match(keys: MatchKeys) -> Match:
    return Match(
        service=_known(keys.service),
        name=_known(keys.name),
        kind=_known(keys.kind),
        attributes={key: str(pattern) for key, pattern in (_known(keys.attributes) or {}).items()},
    )


def _rule(keys: RuleKeys) -> Rule:
    component, stage = (None, None) if keys.target == CONTAINER else component_and_stage(keys.target)
    return Rule(
        match=_match(keys.match),
        component=None if component == ANY else component,
        stage=stage,
        leaf_only=keys.when is not UNSET,
    )


# Presets


def preset_names() -> tuple[str, ...]:
    """The presets that come with Outlay, in alphabetical order."""
    files = (file.name for file in _presets().iterdir())
    return tuple(sorted(name.removesuffix(".yaml") for name in files if name.endswith(".yaml")))


def preset_text(name: str) -> str:
    """A preset as written, comments included. Raises ValueError, with the nearest name, when there is none."""
    names = preset_names()
    if name not in names:
        raise ValueError(f"unknown preset {shown(name)}; {nearest(name, names)}")
    return _presets().joinpath(f"{name}.yaml").read_text(encoding="utf-8")


def load_preset(name: str) -> Spec:
    """A preset as a spec. Raises ValueError, with the nearest name, when there is none."""
    return load_spec(preset_text(name), f"{name}.yaml")


def _presets() -> Traversable:
    return resources.files("outlay.formats").joinpath("presets")
