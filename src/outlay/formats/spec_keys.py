"""The keys of `outlay.yaml`: their types, what each means, and what a value must look like.

This is the one description. The reader (`spec_wire`), the JSON Schema (`outlay budget schema`) and the table in
docs/outlay-yaml.md all draw from it. Checks that span several keys are in `spec`.
"""

import re
from fnmatch import fnmatchcase
from typing import Annotated, Literal, get_args

from msgspec import UNSET, Meta, Struct, UnsetType, field

from outlay.budget import THRESHOLDS
from outlay.formats.deployment_keys import GatewayKeys, LiveTargetKeys, SiteKeys
from outlay.formats.routing_keys import LadderKeys
from outlay.formats.spec_wire import nearest, one_of
from outlay.formats.spec_yaml import shown
from outlay.formats.value_keys import Duration, Name, TokenCount
from outlay.interaction import Kind
from outlay.stages import JOINT, STAGES, UNATTRIBUTED, check_stage, joint, split_entry, stage_names

CONTAINER = "container"
ANY = "*"

_GLOB = frozenset("*?[]")
_TEMPLATE = re.compile(r"\{[^{}]+\}")


def component_and_stage(text: str) -> tuple[str, str]:
    """The two halves of `llm/infer.prefill`. Raises ValueError, with the nearest stage, when the stage is unknown."""
    try:
        component, stage = split_entry(text)
    except ValueError:
        component, _, stage = text.rpartition("/")
    if not component.strip():
        raise ValueError(f"expected component/stage such as llm/infer, got {shown(text)}")
    try:
        return component, check_stage(stage)
    except ValueError:
        raise ValueError(_why_no_stage(stage)) from None


def _why_no_stage(text: str) -> str:
    first, _, last = text.partition(JOINT)
    unknown = [end for end in (first, last) if end not in stage_names()]
    if not unknown:
        return f"{text} does not run forwards; write {joint(first, last)}"
    return f"unknown stage {shown(unknown[0])}; {_nearest_stage(unknown[0])}"


def _nearest_stage(text: str) -> str:
    return nearest(text, stage_names(), listed=[stage.name for stage in STAGES])


def _check_row(text: str) -> None:
    component, _ = component_and_stage(text)
    if _GLOB.intersection(component) or "{" in component:
        raise ValueError(f"expected the name of one component, got {shown(component)}")


def _check_target(text: str) -> None:
    if text == CONTAINER:
        return
    if "/" not in text:
        raise ValueError(f"expected component/stage such as llm/infer, or {CONTAINER}, got {shown(text)}")
    component, _ = component_and_stage(text)
    is_template = _TEMPLATE.fullmatch(component) is not None
    if component != ANY and not is_template and _GLOB.union("{}").intersection(component):
        raise ValueError(
            f"expected a component's name, * or {{attribute key}} before the stage, got {shown(component)}"
        )


def _check_share_pattern(text: str) -> None:
    component, _, stage = text.rpartition("/")
    if not component:
        raise ValueError(f"expected a pattern on component/stage such as llm/queue* or */queue*, got {shown(text)}")
    if f"/{UNATTRIBUTED}" in text:
        return  # its parts are names of edges, which no list holds
    for side in stage.split(JOINT):
        if not any(fnmatchcase(name, side) for name in stage_names()):
            raise ValueError(f"no stage matches {shown(side)}; {_nearest_stage(side.strip('*'))}")


# What the schema can say of an entry: every name but no order within a joint one; the checks above say the rest.
_STAGE = "|".join(re.escape(name) for name in stage_names())
_ANY_STAGE = rf"(({_STAGE})(\.\.({_STAGE}))?|{UNATTRIBUTED}\..+)"

MomentName = Annotated[
    str,
    Meta(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$",
        extra={"expects": "a name of letters, digits, `-`, `_` and `.`"},
    ),
]
MarkName = Annotated[str, Meta(min_length=1, examples=["speech_end"], extra={"expects": "the name of a mark"})]
Glob = Annotated[str, Meta(min_length=1, examples=["voice-*"], extra={"expects": "a shell pattern such as voice-*"})]
Threshold = Annotated[
    str,
    Meta(extra_json_schema={"enum": list(THRESHOLDS)}, extra={"check": one_of("threshold", THRESHOLDS)}),
]
SharePattern = Annotated[str, Meta(extra_json_schema={"pattern": "^.+/.+$"}, extra={"check": _check_share_pattern})]
# YAML reads an unquoted true or 200 as no string; as a pattern each stands for its own spelling.
AttributePattern = Annotated[str, Meta(extra={"expects": "a shell pattern such as *"})] | float | bool


class MatchKeys(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which spans are meant. Every key given must match; patterns are the shell's, and case counts."""

    service: Annotated[Glob, Meta(description="pattern on the service's name")] | UnsetType = UNSET
    name: Annotated[Glob, Meta(description="pattern on the span's name")] | UnsetType = UNSET
    kind: (
        Annotated[Kind, Meta(description=f"the span's kind: {', '.join(get_args(Kind))}", examples=["server"])]
        | UnsetType
    ) = UNSET
    attributes: (
        Annotated[
            dict[Annotated[str, Meta(min_length=1)], AttributePattern],
            Meta(
                description="pattern per attribute of the span or its resource; `*` asks only that it is there",
                min_length=1,
                extra={"expects": "patterns by attribute such as {db.system: postgres*}"},
            ),
        ]
        | UnsetType
    ) = UNSET


# An empty match would mean every span, which nobody means.
_MATCH = Meta(
    extra_json_schema={"minProperties": 1},
    extra={"expects": "at least one of service, name, kind, attributes"},
)


class ShareKeys(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the entries that match may spend, and who answers for them."""

    share: Annotated[Duration, Meta(description="part of `within` that these entries may spend")] | UnsetType = UNSET
    owner: (
        Annotated[
            str,
            Meta(min_length=1, description="who answers for these entries", examples=["network", "platform", "model"]),
        ]
        | UnsetType
    ) = UNSET


class StepKeys(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One mark of a chain."""

    mark: Annotated[MarkName, Meta(description="name of the mark")]
    entry: (
        Annotated[
            str,
            Meta(
                description="row for the time between the mark before and this one; the first mark has none",
                examples=["llm/infer.prefill"],
                extra_json_schema={"pattern": rf"^[^*?\[\]{{}}]+/{_ANY_STAGE}$"},
                extra={"expects": "component/stage such as llm/infer", "check": _check_row},
            ),
        ]
        | UnsetType
    ) = field(name="as", default=UNSET)


Share = Annotated[
    ShareKeys,
    Meta(extra_json_schema={"minProperties": 1}, extra={"expects": "a share, an owner or both"}),
]


class MomentKeys(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A kind of interaction and what it may cost."""

    start: (
        Annotated[
            MarkName, Meta(description="mark at which the clock starts; without it, the first instant of the data")
        ]
        | UnsetType
    ) = field(name="from", default=UNSET)
    end: (
        Annotated[MarkName, Meta(description="mark at which the clock stops; without it, the last instant of the data")]
        | UnsetType
    ) = field(name="to", default=UNSET)
    within: Annotated[Duration, Meta(description="the limit; without it the moment has no budget")] | UnsetType = UNSET
    percentile: (
        Annotated[
            float,
            Meta(
                description="how many percent of interactions must keep to `within`; 99 when not given",
                gt=0,
                lt=100,
                examples=[95, 99, 99.9],
                extra={"expects": "a number between 0 and 100"},
            ),
        ]
        | UnsetType
    ) = UNSET
    thresholds: (
        Annotated[
            dict[Threshold, Duration],
            Meta(
                description=f"limits on single interactions, each longer than the one before: {', '.join(THRESHOLDS)}",
                examples=[{"noticeable": "300ms", "disruptive": "800ms"}],
                extra={"expects": "durations by name such as {noticeable: 300ms}"},
            ),
        ]
        | UnsetType
    ) = UNSET
    duty_period: (
        Annotated[
            Duration,
            Meta(
                description="for safety: how long a duty is, of which no interaction may exceed `within`",
                examples=["1h"],
            ),
        ]
        | UnsetType
    ) = UNSET
    stages: (
        Annotated[
            dict[SharePattern, Share],
            Meta(
                description="shares of `within` by pattern on component/stage; the first match wins",
                examples=[{"*/queue*": {"share": "40ms", "owner": "platform"}}],
                extra={"expects": "shares by pattern such as {llm/*: {share: 200ms, owner: model}}"},
            ),
        ]
        | UnsetType
    ) = UNSET
    match: (
        Annotated[
            MatchKeys,
            _MATCH,
            Meta(description="root spans that begin such an interaction; without it, data must name the moment"),
        ]
        | UnsetType
    ) = UNSET
    chain: (
        Annotated[
            tuple[MarkName | StepKeys, ...],
            Meta(
                description="marks in order, on the path of the first result that can be perceived",
                min_length=2,
                examples=[["speech_end", {"mark": "vad_end", "as": "vad/hold"}]],
                extra={"expects": "a list of at least two marks"},
            ),
        ]
        | UnsetType
    ) = UNSET
    render: (
        Annotated[Duration, Meta(description="kept back by the gateway for the device that shows the result")]
        | UnsetType
    ) = UNSET
    useful: (
        Annotated[
            str,
            Meta(
                pattern=r"^(all|[1-9][0-9]{0,8})$",
                description="tokens needed to perceive a result, or `all`; 1 when not given",
                examples=["1", "all"],
                extra={"expects": "a whole number of at least 1, or all"},
            ),
        ]
        | UnsetType
    ) = UNSET
    output: (
        Annotated[TokenCount, Meta(description="tokens expected where a request names no most; 128 when not given")]
        | UnsetType
    ) = UNSET
    ladder: Annotated[LadderKeys, Meta(description="how the gateway routes it")] | UnsetType = UNSET


class RuleKeys(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the spans that match stand for."""

    match: Annotated[MatchKeys, _MATCH, Meta(description="which spans the rule is for")]
    target: Annotated[
        str,
        Meta(
            description=(
                "component/stage of the span's own time; `*` keeps its service and `{key}` takes an attribute as the "
                "component; `container` claims nothing"
            ),
            examples=["reranker/postprocess", "*/queue.wait", "{db.system}/preprocess", CONTAINER],
            extra_json_schema={"pattern": rf"^({CONTAINER}|(\*|\{{[^{{}}]+\}}|[^*?\[\]{{}}]+)/{_ANY_STAGE})$"},
            extra={"expects": f"component/stage such as llm/infer, or {CONTAINER}", "check": _check_target},
        ),
    ] = field(name="as")
    when: Annotated[Literal["leaf"], Meta(description="`leaf`: only where the span has no children")] | UnsetType = (
        UNSET
    )


class SpecKeys(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole of `outlay.yaml`."""

    version: Annotated[Literal[1], Meta(description="version of this format: 1")] | UnsetType = UNSET
    moments: (
        Annotated[
            dict[MomentName, MomentKeys],
            Meta(description="the moments, by name", extra={"expects": "moments by name"}),
        ]
        | UnsetType
    ) = UNSET
    rules: (
        Annotated[
            tuple[RuleKeys, ...],
            Meta(
                description="what spans stand for; the first match wins, before any built-in rule",
                extra={"expects": "a list of rules such as - {match: {service: reranker}, as: reranker/infer}"},
            ),
        ]
        | UnsetType
    ) = field(name="map", default=UNSET)
    sites: (
        Annotated[
            dict[Name, SiteKeys], Meta(description="places with capacity, by name", extra={"expects": "sites by name"})
        ]
        | UnsetType
    ) = UNSET
    targets: (
        Annotated[
            dict[Name, LiveTargetKeys],
            Meta(description="who serves the gateway's requests, by name", extra={"expects": "targets by name"}),
        ]
        | UnsetType
    ) = UNSET
    gateway: Annotated[GatewayKeys, Meta(description="how `outlay gateway` serves them")] | UnsetType = UNSET
