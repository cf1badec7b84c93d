"""A named model enters its moment's ladder where the ladder holds it, and goes down from there."""

import pytest

from outlay.deployment import AUTO, Deployment, Endpoint, Ladders, MomentRules, entered_at, hashed
from outlay.policy import Rules, Rung
from outlay.work import Fleet, Service, Target

SERVICE = Service(prefill_tokens_per_s=1000, step_ns=1000)
LARGE, SMALL = Rung(name="large", variants=("large",)), Rung(name="small", variants=("small",))
LADDER = Rules(rungs=(LARGE, SMALL))


def deployment() -> Deployment:
    names = ("large", "small", "odd")
    return Deployment(
        fleet=Fleet(Target(name=f"{name}-lon", site="lon", variant=name, service=SERVICE) for name in names),
        endpoints=tuple(
            Endpoint(target=f"{name}-lon", host="h", port=80, model=f"org/{name}" if name == "large" else None)
            for name in names
        ),
        moments={"m": MomentRules(name="m", rules=LADDER)},
    )


@pytest.mark.parametrize(
    ("model", "rungs"),
    [
        (AUTO, [("large",), ("small",)]),
        ("large", [("large",), ("small",)]),
        ("org/large", [("large",), ("small",)]),
        ("small", [("small",)]),
        ("odd", [("odd",)]),
    ],
)
def test_where_a_model_enters(model: str, rungs: list[tuple[str, ...]]) -> None:
    policy = Ladders(deployment()).policy("m", model)
    assert policy is not None
    assert [rung.variants for rung in policy.of("m").rungs] == rungs


def test_nobody_serves_what_nobody_names() -> None:
    ladders = Ladders(deployment())
    assert ladders.policy("m", "else") is None
    assert not ladders._known
    assert deployment().models() == (AUTO, "large", "small", "odd")


def test_a_ladder_of_any_variant_keeps_its_shorter_rungs_for_the_model_asked() -> None:
    rules = Rules(rungs=(Rung(name="any"), Rung(name="short", output_share=0.5)))
    assert [rung.variants for rung in entered_at(rules, ("small",)).rungs] == [("small",), ("small",)]


def test_an_authority_is_as_the_host_header_names_it() -> None:
    assert Endpoint(target="t", host="::1", port=8000).authority == "[::1]:8000"
    assert Endpoint(target="t", host="h", port=443, tls=True).authority == "h"
    assert hashed("") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
