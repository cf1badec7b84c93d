"""From a producer's span to `component/stage`: rules, and the built-in table from the OpenTelemetry conventions.

A user's rules come first, then what the span says of itself (`outlay.stage`, `outlay.component`), then the built-in
table. The first match wins. Nothing matching leaves a container: its own time stays unattributed, under its name.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

from outlay.budget import Match
from outlay.stages import check_stage
from outlay.trace import Scalar, TraceSpan

# The component of a span whose producer named no service.
NO_SERVICE = "app"

# A call of which only the caller's side was recorded: network, queue and work cannot be told apart.
UNSPLIT_CALL = "uplink..downlink"

STAGE_KEY, COMPONENT_KEY, MOMENT_KEY, MARK_KEY = "outlay.stage", "outlay.component", "outlay.moment", "outlay.mark.name"

_CACHE_LIMIT = 10_000

Attributes = Mapping[str, Scalar]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """What a span that matches stands for.

    `component` None keeps the span's service; `{key}` takes an attribute's value. `stage` None makes it a container.
    `leaf_only` claims the span's own time only where it has no children that tell more.
    """

    match: Match
    component: str | None
    stage: str | None
    leaf_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Meaning:
    """Where a span's own time goes; `stage` None: nowhere, it is a container."""

    component: str
    stage: str | None
    leaf_only: bool = False


def _on(
    component: str | None,
    stage: str | None,
    *,
    name: str | None = None,
    kind: str | None = None,
    has: str | None = None,
) -> Rule:
    """One row of the table; `has` is `key` or `key=value`, an attribute the span carries."""
    key, _, value = (has or "").partition("=")
    attributes = {key: value or "*"} if key else {}
    match = Match(name=name, kind=kind, attributes=attributes)
    return Rule(match=match, component=component, stage=stage, leaf_only=True)


# In order of trust: what an engine says of its own stages, what the GenAI conventions say, older dialects of them, then
# what any client call, queue or database is. Names and keys are those of the conventions and engines themselves.
BUILT_IN: tuple[Rule, ...] = (
    # vLLM and SGLang, from inside
    _on("llm", "queue.wait", name="vllm_queue"),
    _on("llm", "infer.prefill", name="vllm_prefill"),
    _on("llm", "infer.decode", name="vllm_decode"),
    _on("llm", "infer", name="vllm_async_kv_transfer"),
    _on("llm", "queue.wait..infer.decode", name="llm_request"),
    _on("llm", "preprocess", name="tokenize"),
    _on("llm", "route", name="api_server_dispatch"),
    _on("llm", "route", name="dpc_dispatch"),
    _on("llm", "preprocess", name="request_process"),
    _on("llm", "queue.wait", name="prefill_waiting"),
    _on("llm", "infer.prefill", name="prefill_forward"),
    _on("llm", "infer.prefill", name="chunked_prefill"),
    _on("llm", "infer.prefill", name="prefill_transfer_kv_cache"),
    _on("llm", "queue.wait", name="decode_waiting"),
    _on("llm", "infer.decode", name="decode_forward"),
    _on("llm", "infer.decode", name="decode_loop"),
    _on("llm", "queue.wait..infer.decode", name="Req *"),
    # OpenTelemetry GenAI conventions
    _on("llm", "queue.wait..infer.decode", kind="server", has="gen_ai.operation.name=chat"),
    _on("llm", "queue.wait..infer.decode", kind="server", has="gen_ai.operation.name=text_completion"),
    _on("llm", UNSPLIT_CALL, has="gen_ai.operation.name=chat"),
    _on("llm", UNSPLIT_CALL, has="gen_ai.operation.name=text_completion"),
    _on("llm", UNSPLIT_CALL, has="gen_ai.operation.name=generate_content"),
    _on("retrieval", UNSPLIT_CALL, has="gen_ai.operation.name=embeddings"),
    _on("retrieval", "preprocess", has="gen_ai.operation.name=retrieval"),
    _on("tool", "preprocess", has="gen_ai.operation.name=execute_tool"),
    _on("asr", UNSPLIT_CALL, has="gen_ai.operation.name=speech_to_text"),
    _on("tts", UNSPLIT_CALL, has="gen_ai.operation.name=text_to_speech"),
    _on(None, None, has="gen_ai.operation.name"),
    # OpenInference, Langfuse, the Vercel AI SDK, OpenLLMetry
    _on("llm", UNSPLIT_CALL, has="openinference.span.kind=LLM"),
    _on("retrieval", UNSPLIT_CALL, has="openinference.span.kind=EMBEDDING"),
    _on("retrieval", "preprocess", has="openinference.span.kind=RETRIEVER"),
    _on("retrieval", "postprocess", has="openinference.span.kind=RERANKER"),
    _on("tool", "preprocess", has="openinference.span.kind=TOOL"),
    _on(None, None, has="openinference.span.kind"),
    _on("llm", UNSPLIT_CALL, has="langfuse.observation.type=GENERATION"),
    _on("retrieval", UNSPLIT_CALL, has="langfuse.observation.type=EMBEDDING"),
    _on("retrieval", "preprocess", has="langfuse.observation.type=RETRIEVER"),
    _on("tool", "preprocess", has="langfuse.observation.type=TOOL"),
    _on(None, None, has="langfuse.observation.type"),
    _on("retrieval", UNSPLIT_CALL, name="ai.embed*"),
    _on("tool", "preprocess", name="ai.toolCall"),
    _on("llm", UNSPLIT_CALL, name="ai.*", has="ai.operationId"),
    _on("llm", UNSPLIT_CALL, has="llm.request.type"),
    _on("llm", UNSPLIT_CALL, has="gen_ai.request.model"),
    # Queues, databases, calls
    _on("{messaging.destination.name}", "queue.broker", kind="producer", has="messaging.destination.name"),
    _on(None, "queue.broker", kind="producer"),
    _on(None, "queue.broker", kind="consumer", has="messaging.operation.type=receive"),
    _on("{db.system.name}", UNSPLIT_CALL, has="db.system.name"),
    _on("{db.system}", UNSPLIT_CALL, has="db.system"),
    _on("{faas.invoked_name}", UNSPLIT_CALL, kind="client", has="faas.invoked_name"),
    _on("{peer.service}", UNSPLIT_CALL, kind="client", has="peer.service"),
    _on("{rpc.service}", UNSPLIT_CALL, kind="client", has="rpc.service"),
    _on("{server.address}", UNSPLIT_CALL, kind="client", has="server.address"),
    _on("{net.peer.name}", UNSPLIT_CALL, kind="client", has="net.peer.name"),
    _on("{http.host}", UNSPLIT_CALL, kind="client", has="http.host"),
    _on(None, UNSPLIT_CALL, kind="client"),
)  # fmt: skip


def matches(match: Match, span: TraceSpan) -> bool:
    """Whether a span is one that `match` means. Patterns are the shell's, and case counts."""
    return (
        (match.kind is None or match.kind == span.kind)
        and (match.name is None or fnmatchcase(span.name, match.name))
        and (match.service is None or fnmatchcase(span.service or "", match.service))
        and all(_attribute_matches(span, key, pattern) for key, pattern in match.attributes.items())
    )


def _attribute_matches(span: TraceSpan, key: str, pattern: str) -> bool:
    value = span.attributes.get(key, span.resource.get(key))
    return value is not None and (pattern == "*" or fnmatchcase(_text(value), pattern))


def _text(value: Scalar) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


class Rules:
    """The rules in force: a user's own first, then the built-in table. Remembers what it decided for equal spans."""

    __slots__ = ("_keys", "_known", "_known_resources", "_rules")

    def __init__(self, own: Iterable[Rule] = ()) -> None:
        self._rules = (*own, *_SELF_DESCRIBED, *BUILT_IN)
        self._keys = frozenset(_keys_of(self._rules))
        self._known: dict[tuple[object, ...], Meaning] = {}
        self._known_resources: dict[int, tuple[Attributes, tuple[object, ...]]] = {}

    def wanted_keys(self) -> frozenset[str]:
        """The attribute keys that some rule looks at."""
        return self._keys

    def meaning(self, span: TraceSpan) -> Meaning:
        """What the span stands for."""
        facts = self._facts(span.attributes) if span.attributes else ()
        key = (span.service, span.name, span.kind, facts, self._resource_facts(span.resource))
        known = self._known.get(key)
        if known is None:
            if len(self._known) >= _CACHE_LIMIT:
                # Span names with ids in them would otherwise grow it without end.
                self._known.clear()
            known = self._known[key] = self._decide(span)
        return known

    def _facts(self, attributes: Attributes) -> tuple[object, ...]:
        keys = self._keys
        # With the type, because True, 1 and 1.0 are equal but read differently.
        return tuple([(item, type(item[1])) for item in attributes.items() if item[0] in keys])

    def _resource_facts(self, resource: Attributes) -> tuple[object, ...]:
        """Worked out once for each resource object: a codec shares one among all spans of a process."""
        if not resource:
            return ()
        known = self._known_resources.get(id(resource))
        if known is None or known[0] is not resource:
            if len(self._known_resources) >= _CACHE_LIMIT:
                self._known_resources.clear()
            # Holding the object keeps its id from being given to another.
            known = self._known_resources[id(resource)] = (resource, self._facts(resource))
        return known[1]

    def _decide(self, span: TraceSpan) -> Meaning:
        service = span.service or NO_SERVICE
        for rule in self._rules:
            if matches(rule.match, span):
                component = _fill(rule.component, span) or service
                stage = _fill(rule.stage, span)
                return Meaning(component=component, stage=_checked(stage), leaf_only=rule.leaf_only)
        return Meaning(component=service, stage=None)


# What a span says of itself. Without a component it is the service's.
_SELF_DESCRIBED = (
    Rule(match=Match(attributes={STAGE_KEY: "*"}), component=f"{{{COMPONENT_KEY}}}", stage=f"{{{STAGE_KEY}}}"),
)


def _fill(template: str | None, span: TraceSpan) -> str | None:
    if template is None or not template.startswith("{"):
        return template
    key = template[1:-1]
    value = span.attributes.get(key, span.resource.get(key))
    return None if value is None else _text(value)


def _checked(stage: str | None) -> str | None:
    """A stage that a producer wrote may be any text; one that the vocabulary does not hold names nothing."""
    try:
        return None if stage is None else check_stage(stage)
    except ValueError:
        return None


def _keys_of(rules: Iterable[Rule]) -> set[str]:
    keys = {key for rule in rules for key in rule.match.attributes}
    templates = [text for rule in rules for text in (rule.component, rule.stage) if text and text.startswith("{")]
    return keys | {template[1:-1] for template in templates}
