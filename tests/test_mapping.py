"""What a span stands for: one realistic span for each family of rules, and who wins when several speak."""

from typing import Any

import pytest

from outlay.budget import Match
from outlay.mapping import BUILT_IN, UNSPLIT_CALL, Meaning, Rule, Rules, matches
from outlay.stages import check_stage
from outlay.trace import TraceSpan
from worlds import traced

ENGINE = "queue.wait..infer.decode"


def named(name: str, kind: str = "internal", service: str | None = "app", **attributes: Any) -> TraceSpan:
    """A span whose attributes are written with `__` for a dot."""
    keys = {key.replace("__", "."): value for key, value in attributes.items()}
    return traced(name, None, 0, 1, kind=kind, service=service, attributes=keys)


@pytest.mark.parametrize(
    ("span", "component", "stage"),
    [
        # vLLM and SGLang, from inside
        (named("llm_request", "server"), "llm", ENGINE),
        (named("vllm_queue"), "llm", "queue.wait"),
        (named("vllm_prefill"), "llm", "infer.prefill"),
        (named("vllm_decode"), "llm", "infer.decode"),
        (named("vllm_async_kv_transfer"), "llm", "infer"),
        (named("Req 7f3a"), "llm", ENGINE),
        (named("tokenize"), "llm", "preprocess"),
        (named("request_process"), "llm", "preprocess"),
        (named("api_server_dispatch"), "llm", "route"),
        (named("dpc_dispatch"), "llm", "route"),
        (named("prefill_waiting"), "llm", "queue.wait"),
        (named("prefill_forward"), "llm", "infer.prefill"),
        (named("chunked_prefill"), "llm", "infer.prefill"),
        (named("prefill_transfer_kv_cache"), "llm", "infer.prefill"),
        (named("decode_waiting"), "llm", "queue.wait"),
        (named("decode_forward"), "llm", "infer.decode"),
        (named("decode_loop"), "llm", "infer.decode"),
        # OpenTelemetry's GenAI conventions: a call seen by its caller, and by the server that is called
        (named("chat gpt", "client", gen_ai__operation__name="chat"), "llm", UNSPLIT_CALL),
        (named("chat gpt", "server", gen_ai__operation__name="chat"), "llm", ENGINE),
        (named("complete", "client", gen_ai__operation__name="text_completion"), "llm", UNSPLIT_CALL),
        (named("complete", "server", gen_ai__operation__name="text_completion"), "llm", ENGINE),
        (named("gemini", "client", gen_ai__operation__name="generate_content"), "llm", UNSPLIT_CALL),
        (named("embed", "client", gen_ai__operation__name="embeddings"), "retrieval", UNSPLIT_CALL),
        (named("retrieve", gen_ai__operation__name="retrieval"), "retrieval", "preprocess"),
        (named("execute_tool x", gen_ai__operation__name="execute_tool"), "tool", "preprocess"),
        (named("stt", "client", gen_ai__operation__name="speech_to_text"), "asr", UNSPLIT_CALL),
        (named("tts", "client", gen_ai__operation__name="text_to_speech"), "tts", UNSPLIT_CALL),
        # an agent only holds what it calls, whatever model it names
        (named("invoke_agent x", gen_ai__operation__name="invoke_agent", gen_ai__request__model="m"), "app", None),
        # dialects
        (named("ChatOpenAI", openinference__span__kind="LLM"), "llm", UNSPLIT_CALL),
        (named("embed", openinference__span__kind="EMBEDDING"), "retrieval", UNSPLIT_CALL),
        (named("retrieve", openinference__span__kind="RETRIEVER"), "retrieval", "preprocess"),
        (named("rerank", openinference__span__kind="RERANKER"), "retrieval", "postprocess"),
        (named("search", openinference__span__kind="TOOL"), "tool", "preprocess"),
        (named("chain", openinference__span__kind="CHAIN"), "app", None),
        (named("call", langfuse__observation__type="GENERATION"), "llm", UNSPLIT_CALL),
        (named("embed", langfuse__observation__type="EMBEDDING"), "retrieval", UNSPLIT_CALL),
        (named("retrieve", langfuse__observation__type="RETRIEVER"), "retrieval", "preprocess"),
        (named("search", langfuse__observation__type="TOOL"), "tool", "preprocess"),
        (named("step", langfuse__observation__type="SPAN"), "app", None),
        (named("ai.streamText.doStream", ai__operationId="ai.streamText.doStream"), "llm", UNSPLIT_CALL),
        (named("ai.embed.doEmbed", ai__operationId="ai.embed.doEmbed"), "retrieval", UNSPLIT_CALL),
        (named("ai.toolCall", ai__operationId="ai.toolCall"), "tool", "preprocess"),
        (named("ai.else"), "app", None),
        (named("openai.chat", llm__request__type="chat"), "llm", UNSPLIT_CALL),
        (named("generate", gen_ai__request__model="m"), "llm", UNSPLIT_CALL),
        # queues
        (named("orders send", "producer", messaging__destination__name="orders"), "orders", "queue.broker"),
        (named("send", "producer"), "app", "queue.broker"),
        (named("orders receive", "consumer", messaging__operation__type="receive"), "app", "queue.broker"),
        (named("orders process", "consumer", messaging__operation__type="process"), "app", None),
        # databases and calls
        (named("SELECT", "client", db__system__name="postgresql"), "postgresql", UNSPLIT_CALL),
        (named("GET", "client", db__system="redis"), "redis", UNSPLIT_CALL),
        (named("GET /", "client", peer__service="billing", server__address="b.local"), "billing", UNSPLIT_CALL),
        (named("Get", "client", rpc__service="pkg.Users"), "pkg.Users", UNSPLIT_CALL),
        (named("GET /", "client", server__address="api.example.com"), "api.example.com", UNSPLIT_CALL),
        (named("GET /", "client", net__peer__name="old.local"), "old.local", UNSPLIT_CALL),
        (named("GET /", "client", http__host="older.local"), "older.local", UNSPLIT_CALL),
        (named("GET /", "client"), "app", UNSPLIT_CALL),
        # a server with an address, a function, a cold one: containers
        (named("GET /", "server", server__address="api.example.com"), "app", None),
        (named("handler", "server", faas__coldstart=True), "app", None),
        (named("work"), "app", None),
        (named("work", service=None), "app", None),
    ],
    ids=lambda value: value.name if isinstance(value, TraceSpan) else None,
)
def test_a_span_of_each_family(span: TraceSpan, component: str, stage: str | None) -> None:
    found = Rules().meaning(span)
    assert (found.component, found.stage) == (component, stage)


def test_every_built_in_stage_is_of_the_vocabulary_and_yields_to_children() -> None:
    assert all(check_stage(rule.stage) for rule in BUILT_IN if rule.stage is not None)
    assert all(rule.leaf_only for rule in BUILT_IN)


@pytest.mark.parametrize(
    ("match", "expected"),
    [
        (Match(), True),
        (Match(name="chat *"), True),
        (Match(name="CHAT *"), False),  # case counts
        (Match(name="chat ?pt"), True),
        (Match(name="chat"), False),
        (Match(service="ap[ip]"), True),
        (Match(service=""), False),
        (Match(kind="client"), True),
        (Match(kind="server"), False),
        (Match(attributes={"n": "7"}), True),
        (Match(attributes={"n": "*"}), True),
        (Match(attributes={"absent": "*"}), False),
        (Match(attributes={"on": "true"}), True),  # as configuration files write it
        (Match(attributes={"on": "True"}), False),
        (Match(attributes={"region": "eu-*"}), True),  # of the process
        (Match(attributes={"n": "8"}), False),  # the span's own wins over its process's
        (Match(name="chat *", kind="client", service="app", attributes={"n": "7", "on": "true"}), True),
        (Match(name="chat *", kind="server", service="app", attributes={"n": "7"}), False),
    ],
)
def test_matching(match: Match, expected: bool) -> None:
    span = traced(
        "chat gpt", None, 0, 1, kind="client", attributes={"n": 7, "on": True}, resource={"region": "eu-1", "n": 8}
    )
    assert matches(match, span) is expected


def test_a_span_of_no_service_matches_the_empty_one() -> None:
    assert matches(Match(service=""), traced("x", None, 0, 1, service=None))


CHAT = named("chat", "client", gen_ai__operation__name="chat", outlay__stage="infer", outlay__component="bot")


@pytest.mark.parametrize(
    ("own", "expected"),
    [
        # what the span says of itself wins over the table
        ((), Meaning(component="bot", stage="infer")),
        # and a user's rule over both; the first that matches
        (
            (
                Rule(match=Match(name="other"), component="no", stage="route"),
                Rule(match=Match(name="chat"), component="mine", stage="hold"),
                Rule(match=Match(name="chat"), component="late", stage="queue"),
            ),
            Meaning(component="mine", stage="hold"),
        ),
        ((Rule(match=Match(), component=None, stage=None),), Meaning(component="app", stage=None)),
        # templates, which take an attribute's value, and the service where it is absent
        (
            (Rule(match=Match(), component="{outlay.component}", stage="{outlay.stage}", leaf_only=True),),
            Meaning(component="bot", stage="infer", leaf_only=True),
        ),
        ((Rule(match=Match(), component="{absent}", stage="queue"),), Meaning(component="app", stage="queue")),
        ((Rule(match=Match(), component="c", stage="{absent}"),), Meaning(component="c", stage=None)),
        # a stage that the vocabulary does not hold names nothing
        (
            (Rule(match=Match(), component="c", stage="{gen_ai.operation.name}"),),
            Meaning(component="c", stage=None),
        ),
    ],
)
def test_who_wins(own: tuple[Rule, ...], expected: Meaning) -> None:
    assert Rules(own).meaning(CHAT) == expected


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        ({"outlay__stage": "queue.wait"}, Meaning(component="app", stage="queue.wait")),
        ({"outlay__stage": "uplink..downlink"}, Meaning(component="app", stage="uplink..downlink")),
        ({"outlay__stage": "sleep"}, Meaning(component="app", stage=None)),
        ({"outlay__stage": ""}, Meaning(component="app", stage=None)),
        ({"outlay__stage": 7}, Meaning(component="app", stage=None)),
        ({"outlay__component": "bot"}, Meaning(component="app", stage=None)),
    ],
)
def test_what_a_span_says_of_itself(attributes: dict[str, Any], expected: Meaning) -> None:
    assert Rules().meaning(named("x", **attributes)) == expected


def test_a_process_may_say_it_for_its_spans() -> None:
    span = traced("x", None, 0, 1, resource={"outlay.stage": "render", "outlay.component": "tv"})
    assert Rules().meaning(span) == Meaning(component="tv", stage="render")


def test_the_keys_that_rules_look_at_are_wanted() -> None:
    own = Rule(match=Match(attributes={"x": "1"}), component="{y}", stage="{z}")
    wanted = Rules((own,)).wanted_keys()
    assert {"x", "y", "z", "outlay.stage", "outlay.component", "gen_ai.operation.name", "server.address"} <= wanted
    assert Rules().wanted_keys() < wanted


# What was decided once is only used again for spans that no rule could tell apart.

BY_VALUE = Rules(
    [Rule(match=Match(attributes={"x": text}), component=f"x={text}", stage="infer") for text in ("true", "1", "1.0")]
)
VALUES: list[bool | int | float | str] = [True, 1, 1.0, "true", "1"]


@pytest.mark.parametrize("values", [VALUES, VALUES[::-1]])
def test_values_that_python_calls_equal_are_told_apart(values: list[bool | int | float | str]) -> None:
    expected = {"True": "x=true", "1": "x=1", "1.0": "x=1.0", "true": "x=true"}
    assert [BY_VALUE.meaning(named("s", x=value)).component for value in values] == [
        expected[str(value)] for value in values
    ]


def test_spans_of_different_facts_are_told_apart() -> None:
    rules = Rules()
    spans = [
        traced("s", None, 0, 1, kind=kind, service=service, attributes=attributes, resource=resource)
        for kind in ("client", "internal")
        for service in ("a", "b", None)
        for attributes in ({}, {"server.address": "one"}, {"server.address": "two"}, {"unknown": "one"})
        for resource in ({}, {"server.address": "three"}, {"db.system": "redis"})
    ]
    once = [Rules().meaning(span) for span in spans]
    assert [rules.meaning(span) for span in spans] == once
    assert [rules.meaning(span) for span in reversed(spans)] == once[::-1]


def test_names_without_end_are_no_trouble() -> None:
    rules = Rules()
    found = {rules.meaning(traced(f"GET /{i}", None, 0, 1, kind="client")) for i in range(25_000)}
    assert found == {Meaning(component="app", stage=UNSPLIT_CALL, leaf_only=True)}
