"""The closed vocabulary: stages, their parts, and the terms they roll up to.

This table is the one source from which code, documentation and file formats draw. An *entry* of an account reads
`component/stage` or `component/stage.part`. Two or more stages that no mark separates carry a joint name,
`component/first..last`, and stand for every stage from the first through the last in the order of this table.
"""

from dataclasses import dataclass
from functools import lru_cache


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """One place where time is spent. `parts` are its finer cuts; `where` is device, network, service or anywhere."""

    name: str
    where: str
    meaning: str
    parts: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """A roll-up of entries by cause: one of the places where latency hides, and the usual fix."""

    name: str
    meaning: str
    fix: str


STAGES: tuple[Stage, ...] = (
    Stage(name="capture", where="device", meaning="sensor or input device: exposure, microphone frame, key"),
    Stage(name="encode", where="device", meaning="compression or serialisation before sending"),
    Stage(name="prepare", where="device", meaning="other work on the device before sending"),
    Stage(
        name="uplink",
        where="network",
        meaning="network on the way to the service, with the connection set-up",
        parts=(
            ("dns", "name look-up"),
            ("connect", "TCP or QUIC handshake"),
            ("tls", "TLS handshake"),
            ("send", "writing the request"),
            ("floor", "the path's smallest one-way time"),
            ("excess", "above the floor: queues, loss, radio, buffering proxies"),
        ),
    ),
    Stage(name="auth", where="service", meaning="who is this, and may they"),
    Stage(name="route", where="service", meaning="choosing a site, a model or a replica"),
    Stage(name="admit", where="service", meaning="rate limits and admission control"),
    Stage(
        name="queue",
        where="service",
        meaning="waiting for capacity",
        parts=(
            ("wait", "in line behind other work"),
            ("broker", "between publishing to a broker and a worker's pick-up"),
            ("batch", "waiting for a batch to form or to take another member"),
            ("cold_start", "starting or loading what should have been warm"),
        ),
    ),
    Stage(name="preprocess", where="service", meaning="work before the model: tokenising, retrieval, tool calls"),
    Stage(
        name="infer",
        where="service",
        meaning="the model at work",
        parts=(
            ("prefill", "from being scheduled to the first token"),
            ("decode", "the tokens after the first"),
        ),
    ),
    Stage(name="postprocess", where="service", meaning="work after the model: detokenising, ranking, filters"),
    Stage(
        name="downlink",
        where="network",
        meaning="network on the way back",
        parts=(
            ("floor", "the path's smallest one-way time"),
            ("excess", "above the floor: queues, loss, radio, buffering proxies"),
        ),
    ),
    Stage(name="stream", where="device", meaning="receiving and buffering a stream: jitter buffer, reassembly"),
    Stage(name="render", where="device", meaning="to the pixel or the speaker"),
    Stage(name="actuate", where="device", meaning="to the movement of a machine"),
    Stage(name="respond", where="device", meaning="to a finished reply that no screen shows"),
    Stage(
        name="hold",
        where="anywhere",
        meaning="a wait that a setting imposes on purpose: endpointing, polling",
    ),
    Stage(name="unattributed", where="anywhere", meaning="time that no span, mark or rule names"),
)

TERMS: tuple[Term, ...] = (
    Term(
        name="geography",
        meaning="round trips between the user and the service",
        fix="serve from a nearer site, or spend fewer round trips: keep connections warm",
    ),
    Term(
        name="api hop",
        meaning="network between the orchestration and a model or service that is not beside it",
        fix="place the callee beside its caller, or merge the calls",
    ),
    Term(name="broker", meaning="hand-over through a task queue", fix="call directly, or push instead of poll"),
    Term(
        name="routing",
        meaning="authentication, routing, admission",
        fix="cache decisions, verify keys locally",
    ),
    Term(name="cold start", meaning="starting what should be warm", fix="keep warm, restore from a snapshot"),
    Term(
        name="queueing",
        meaning="waiting for capacity",
        fix="add capacity, shed early, shorten the longest jobs",
    ),
    Term(
        name="variability",
        meaning="network time above the floor",
        fix="find the lossy hop; pin or change the path",
    ),
    Term(
        name="model",
        meaning="the model and the work around it",
        fix="a smaller model, shorter prompts, better batching",
    ),
    Term(
        name="device",
        meaning="the user's own device",
        fix="render earlier, shrink buffers, move work off the device",
    ),
    Term(name="setting", meaning="a wait that somebody configured", fix="change the setting that owns the wait"),
    Term(
        name="unattributed",
        meaning="nobody has named it yet",
        fix="add a span, a mark or a mapping rule there",
    ),
)

UNATTRIBUTED = "unattributed"
JOINT = ".."

# Whose round trips are the user's own: everything between this component and the service is geography.
USER_COMPONENT = "client"

_STAGE = {stage.name: stage for stage in STAGES}
_ORDER = {stage.name: place for place, stage in enumerate(STAGES)}
_NETWORK = frozenset(stage.name for stage in STAGES if stage.where == "network")
MODEL_STAGES = frozenset({"preprocess", "infer", "postprocess"})

# A part's own row wins over its stage's row. Plain network rows depend on whose network it is: see `term_of`.
_TERM_OF_STAGE = {
    "capture": "device",
    "encode": "device",
    "prepare": "device",
    "uplink.excess": "variability",
    "downlink.excess": "variability",
    "auth": "routing",
    "route": "routing",
    "admit": "routing",
    "queue": "queueing",
    "queue.broker": "broker",
    "queue.cold_start": "cold start",
    "preprocess": "model",
    "infer": "model",
    "postprocess": "model",
    "stream": "device",
    "render": "device",
    "actuate": "device",
    "respond": "device",
    "hold": "setting",
    UNATTRIBUTED: UNATTRIBUTED,
}


def stage_names() -> tuple[str, ...]:
    """Every name a mapping rule may use, in order: each stage, then each of its parts as `stage.part`."""
    return tuple(
        name for stage in STAGES for name in (stage.name, *(f"{stage.name}.{part}" for part, _ in stage.parts))
    )


_NAMES = frozenset(stage_names())


def check_stage(name: str) -> str:
    """`name` itself when it is a stage, a part, or a joint name of two in order.

    Raises ValueError otherwise. `unattributed` may carry any part: the edge or span nobody named.
    """
    if not _is_stage(name):
        raise ValueError(f"{name!r} is not a stage; see docs/stages.md for the closed list")
    return name


def _is_stage(name: str) -> bool:
    if name in _NAMES or name.startswith(UNATTRIBUTED + "."):
        return True
    first, joint, last = name.partition(JOINT)
    return bool(joint) and first in _NAMES and last in _NAMES and _position(first) < _position(last)


def joint(first: str, last: str) -> str:
    """The name for all of `first` through `last` together, in either order given; the stage itself when equal.

    Each may be a joint name itself.
    """
    names = sorted((*first.split(JOINT), *last.split(JOINT)), key=_position)
    return names[0] if names[0] == names[-1] else f"{names[0]}{JOINT}{names[-1]}"


def _position(name: str) -> tuple[int, int]:
    stage, _, part = name.partition(".")
    parts = [known for known, _ in _STAGE[stage].parts]
    return _ORDER[stage], parts.index(part) if part in parts else -1


def entry(component: str, stage: str) -> str:
    """The name of an account's row: `component/stage[.part]`."""
    return f"{component}/{stage}"


def split_entry(name: str) -> tuple[str, str]:
    """Component and stage of a row's name. A component may itself hold `/`; a stage never does, an edge may."""
    # Stage names are closed, so the first "/" that is followed by one is the border.
    start = 0
    while (cut := name.find("/", start)) >= 0:
        if _is_stage(name[cut + 1 :]):
            return name[:cut], name[cut + 1 :]
        start = cut + 1
    raise ValueError(f"{name!r} is not an entry; entries read component/stage or component/stage.part")


@lru_cache(maxsize=4096)
def term_of(name: str) -> str:
    """The term that a row belongs to.

    Network time is geography when the component is the user's own client, otherwise an API hop. A joint row whose
    members belong to different terms cannot be given to either: it is unattributed between them.
    """
    component, stage = split_entry(name)
    terms = {_term(component, member) for member in _members(stage)}
    return terms.pop() if len(terms) == 1 else UNATTRIBUTED


def may_hold_model_time(name: str) -> bool:
    """Whether some of the row could be the model: its own row, or a joint one that spans it."""
    _, stage = split_entry(name)
    return any(member.partition(".")[0] in MODEL_STAGES for member in _members(stage))


def is_model_time(name: str) -> bool:
    """Whether all of the row is the model and the work around it."""
    return term_of(name) == "model"


def _members(stage: str) -> list[str]:
    """The names that a joint name stands for; any other is its own. An unnamed edge may hold the joint's sign too."""
    first, is_joint, last = stage.partition(JOINT)
    if not is_joint or stage.startswith(UNATTRIBUTED):
        return [stage]
    return [name for name in stage_names() if _position(first) <= _position(name) <= _position(last)]


def _term(component: str, stage: str) -> str:
    known = _TERM_OF_STAGE.get(stage)
    if known is not None:
        return known
    base = stage.partition(".")[0]
    if base in _NETWORK:
        return "geography" if component == USER_COMPONENT else "api hop"
    return _TERM_OF_STAGE[base]
