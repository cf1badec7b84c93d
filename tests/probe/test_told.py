"""What servers say of themselves is read as they mean it, and nothing is made of what cannot be read."""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlay.probe.told import reported, request_id, retry_after_ns
from outlay.units import NS_PER_MS, NS_PER_S

MS = NS_PER_MS
DATE = "Wed, 21 Oct 2015 07:28:00 GMT"


@pytest.mark.parametrize(
    ("values", "total_ms", "parts_ms"),
    [
        (["total;dur=12.5"], 12.5, {}),
        (["TOTAL;DUR=12.5"], 12.5, {}),
        (
            ["queue;dur=3, prefill;dur=20, decode;dur=100"],
            None,
            {"queue.wait": 3, "infer.prefill": 20, "infer.decode": 100},
        ),
        (["queue.cold_start;dur=900"], None, {"queue.cold_start": 900}),  # our own names
        (["auth;dur=1", "route;dur=2", "tokenize;dur=4"], None, {"auth": 1, "route": 2, "preprocess": 4}),
        (['total;desc="a, b;dur=7";dur=5'], 5, {}),  # separators in a quoted text separate nothing
        (['total;desc="say \\"x\\", ok";dur=5'], 5, {}),
        (['total;dur="5"'], 5, {}),
        (["total ; dur = 5 ; desc = x"], 5, {}),
        (["total;dur=5;dur=9"], 5, {}),  # the first counts
        # Each hop adds a header of its own; the outer total holds the inner one, waits add up: 1 + 2.
        (["total;dur=9, queue;dur=1", "total;dur=30, queue;dur=2"], 30, {"queue.wait": 3}),
        (["infer;dur=120, prefill;dur=20, decode;dur=95"], None, {"infer.prefill": 20, "infer.decode": 95}),
        (["total;dur=5, cdn-cache;dur=1, miss"], 5, {}),
        (["total;dur=5, queue;dur=-1"], 5, {}),
    ],
)
def test_server_timing(values: list[str], total_ms: float | None, parts_ms: Mapping[str, float]) -> None:
    found = reported([("server-timing", value) for value in values])
    assert found is not None
    assert found.source == "server-timing"
    assert found.total_ns == (None if total_ms is None else int(total_ms * MS))
    assert found.parts == {stage: int(duration * MS) for stage, duration in parts_ms.items()}


@pytest.mark.parametrize(
    "value",
    ["", ",", ";", "total", "total;dur", "total;dur=", "total;dur=x", "total;dur=-1", "total;dur=nan", "total;dur=1e99",
     'total;desc="dur=5', 'total;desc="x;dur=5', "miss;dur=5", "uplink;dur=5"],
)  # fmt: skip
def test_what_says_nothing_is_unknown(value: str) -> None:
    assert reported([("server-timing", value)]) is None


def test_tgi_names_its_stages() -> None:
    headers = [
        ("x-compute-time", "99"),
        ("x-total-time", "210"),
        ("x-validation-time", "2"),
        ("x-queue-time", "8"),
        ("x-inference-time", "200"),
    ]
    found = reported(headers)
    assert found is not None
    assert (found.source, found.total_ns) == ("x-total-time", 210 * MS)
    assert found.parts == {"preprocess": 2 * MS, "queue.wait": 8 * MS, "infer": 200 * MS}


@pytest.mark.parametrize(
    ("headers", "source", "total_ms"),
    [
        ([("openai-processing-ms", "87")], "openai-processing-ms", 87),
        ([("x-envoy-upstream-service-time", "31")], "x-envoy-upstream-service-time", 31),
        ([("x-envoy-upstream-service-time", "31"), ("openai-processing-ms", "87")], "openai-processing-ms", 87),
        ([("openai-processing-ms", "87"), ("x-total-time", "80")], "x-total-time", 80),
        ([("x-total-time", "80"), ("server-timing", "total;dur=79")], "server-timing", 79),
        # What is marked as unknown leaves the word to the next.
        (
            [("openai-processing-ms", "-1"), ("x-envoy-upstream-service-time", "31")],
            "x-envoy-upstream-service-time",
            31,
        ),
        ([("server-timing", "cdn;dur=1"), ("openai-processing-ms", "87")], "openai-processing-ms", 87),
    ],
)
def test_the_most_direct_source_has_the_word(headers: list[tuple[str, str]], source: str, total_ms: int) -> None:
    found = reported(headers)
    assert found is not None
    assert (found.source, found.total_ns) == (source, total_ms * MS)


@pytest.mark.parametrize(
    ("headers", "expected_ns"),
    [
        ([("retry-after", "2")], 2 * NS_PER_S),
        ([("retry-after", "0.5")], NS_PER_S // 2),
        ([("retry-after-ms", "1500"), ("retry-after", "9")], 1500 * MS),
        ([("retry-after", DATE), ("date", "Wed, 21 Oct 2015 07:27:50 GMT")], 10 * NS_PER_S),
        ([("retry-after", DATE), ("date", "Wed, 21 Oct 2015 07:29:00 GMT")], 0),  # over already
        ([("retry-after", DATE)], None),  # by whose clock?
        ([("retry-after", "-3")], None),
        ([("retry-after", "soon")], None),
        ([], None),
    ],
)
def test_when_to_come_again(headers: list[tuple[str, str]], expected_ns: int | None) -> None:
    assert retry_after_ns(headers) == expected_ns


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ([("x-request-id", "req_1")], "req_1"),
        ([("request-id", "b"), ("x-request-id", "a")], "a"),
        ([("x-request-id", "two words"), ("request-id", "b")], "b"),
        ([("x-request-id", "x" * 129)], None),
        ([("x-request-id", "a\x1b[31m")], None),
        ([], None),
    ],
)
def test_the_id_of_the_server(headers: list[tuple[str, str]], expected: str | None) -> None:
    assert request_id(headers) == expected


NAMES = st.sampled_from(
    ["server-timing", "x-total-time", "openai-processing-ms", "retry-after", "retry-after-ms", "date", "x-request-id"]
)
VALUES = st.text(st.sampled_from('total;dur=1",\\ eq.-+nf:GMT') | st.characters(), max_size=40)


@given(st.lists(st.tuples(NAMES, VALUES), max_size=6))
def test_any_header_is_read_or_passed_over(headers: list[tuple[str, str]]) -> None:
    found, pause_ns = reported(headers), retry_after_ns(headers)
    durations = [] if found is None else [*found.parts.values(), found.total_ns]
    assert all(duration is None or duration >= 0 for duration in [*durations, pause_ns])
    assert "\n" not in (request_id(headers) or "")
