"""A budget on the wire shrinks, is read in every spelling, and a broken one is named and fails nothing."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlay.units import NS_PER_MS, NS_PER_S
from outlay.wire import NOTHING, budget_headers, decision_header, grpc_timeout, read_budget

MS = NS_PER_MS


@pytest.mark.parametrize(
    ("name", "value", "remaining_ns"),
    [
        ("x-outlay-budget", "moment=voice-turn;rem=412;spent=88", 412 * MS),
        ("x-outlay-budget", "rem=0.5", MS // 2),
        ("x-outlay-budget", "rem=-3;spent=500", -3 * MS),
        ("grpc-timeout", "250m", 250 * MS),
        ("grpc-timeout", "2S", 2 * NS_PER_S),
        ("grpc-timeout", "1500u", 1_500_000),
        ("request-timeout-ms", "900", 900 * MS),
        ("x-envoy-expected-rq-timeout-ms", "80", 80 * MS),
        ("x-llm-d-slo-ttft-ms", "200", 200 * MS),
        ("x-portkey-request-timeout", "1000", NS_PER_S),
        ("x-litellm-timeout", "1.5", 3 * NS_PER_S // 2),
        ("x-litellm-stream-timeout", "0.2", 200 * MS),
        ("grpc-timeout", "999999999999m", None),
        ("grpc-timeout", "5", None),
        ("request-timeout-ms", "-5", None),
        ("request-timeout-ms", "1e3", None),
        ("x-outlay-budget", "rem=NaN", None),
        ("x-outlay-budget", "", None),
        ("x-outlay-budget", "rem=5;spent=x", None),
    ],
)
def test_every_spelling_is_read_and_what_cannot_be_is_named(name: str, value: str, remaining_ns: int | None) -> None:
    told = read_budget({name.encode(): value.encode()})
    assert told.remaining_ns == remaining_ns
    assert bool(told.notes) == (remaining_ns is None)


def test_its_own_header_wins_and_baggage_fills_in() -> None:
    told = read_budget(
        {
            b"x-outlay-budget": b"rem=10;spent=2",
            b"grpc-timeout": b"5S",
            b"baggage": b"a=b, outlay.moment=chat;p=1 , outlay.user_region=uk%20south",
        }
    )
    assert (told.moment, told.remaining_ns, told.spent_ns, told.region) == ("chat", 10 * MS, 2 * MS, "uk south")
    assert read_budget({b"host": b"a"}) is NOTHING


@given(st.integers(-NS_PER_S, 10**7 * NS_PER_S), st.integers(0, NS_PER_S))
def test_the_next_hop_never_has_more_than_there_is(remaining_ns: int, spent_ns: int) -> None:
    lines = budget_headers("m", remaining_ns, spent_ns).decode().split("\r\n")
    sent = {name.encode(): value.encode() for name, _, value in (line.partition(": ") for line in lines if line)}
    most_ns = max(remaining_ns, 0)
    for header in sent.items():
        told = read_budget(dict([header]))
        assert told.remaining_ns is not None
        assert 0 <= told.remaining_ns <= most_ns
    match = re.fullmatch(r"\d{1,8}[mSu]", grpc_timeout(remaining_ns))
    assert match is not None


@given(st.dictionaries(st.sampled_from([b"x-outlay-budget", b"baggage", b"grpc-timeout", b"x-litellm-timeout"]),
                       st.binary(max_size=60)))  # fmt: skip
def test_any_bytes_are_taken(headers: dict[bytes, bytes]) -> None:
    told = read_budget(headers)
    assert told.remaining_ns is None or isinstance(told.remaining_ns, int)


def test_a_decision_is_never_rounded_up_to_certainty() -> None:
    assert (
        decision_header("a", 0.99999, 120.4 * MS, 2) == b"x-outlay-decision: target=a;p=0.999;headroom=120;rung=2\r\n"
    )
