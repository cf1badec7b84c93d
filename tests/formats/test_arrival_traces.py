"""Recorded arrivals: excerpts of real traces, each spelling of a row, and rows that cannot be read."""

import json
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlay.arrivals import Arrival
from outlay.formats.arrival_traces import read_schedule
from outlay.formats.codec import FormatError
from outlay.formats.log import write_line
from outlay.interaction import Interaction
from outlay.units import NS_PER_MS, NS_PER_S

DATA = Path(__file__).parents[1] / "data"
SECRET = "what the person said"


def lines_of(name: str) -> list[bytes]:
    return (DATA / name).read_bytes().splitlines(keepends=True)


def refusal(*lines: bytes) -> str:
    with pytest.raises(FormatError) as caught:
        read_schedule(lines)
    return str(caught.value)


def test_the_azure_trace_keeps_its_digits() -> None:
    schedule = read_schedule(lines_of("azure-llm-2023/conv_first500.csv"))
    assert len(schedule) == 500
    # 18:15:46.6805900, then 50.9951690 and 51.2224670
    assert [arrival.at_ns for arrival in schedule[:3]] == [0, 4_314_579_000, 4_541_877_000]
    assert schedule[1] == Arrival(at_ns=4_314_579_000, input_tokens=396, output_tokens=109)


def test_mooncake_counts_in_milliseconds_and_in_batches() -> None:
    """The trap: its 500 requests begin at 56 instants, three seconds apart, which no user did."""
    schedule = read_schedule(lines_of("mooncake-fast25/conversation_first500.jsonl"))
    assert len(schedule) == 500
    assert schedule[0] == Arrival(at_ns=0, input_tokens=6758, output_tokens=500)
    instants = sorted(Counter(arrival.at_ns for arrival in schedule))
    assert len(instants) == 56
    assert all(at_ns % NS_PER_MS == 0 for at_ns in instants)
    assert min(later - earlier for earlier, later in pairwise(instants)) >= 2_999 * NS_PER_MS


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ({"at_ms": 1.5}, Arrival(at_ns=1_500_000)),
        ({"at_s": 2, "input_tokens": 7}, Arrival(at_ns=2 * NS_PER_S, input_tokens=7)),
        ({"timestamp": 3, "output_tokens": 0}, Arrival(at_ns=3 * NS_PER_MS, output_tokens=0)),
        (
            {"timestamp": 3, "input_length": 1, "output_length": 2},
            Arrival(at_ns=3_000_000, input_tokens=1, output_tokens=2),
        ),
        ({"timestamp": "1970-01-01T00:00:04Z"}, Arrival(at_ns=4 * NS_PER_S)),
        ({"at_s": "5", "input_tokens": None, "prompt": SECRET}, Arrival(at_ns=5 * NS_PER_S)),
    ],
)
def test_a_row_of_json(row: object, expected: Arrival) -> None:
    # The first of a trace is due at 0, so that another goes before.
    first, second = read_schedule([b'{"at_ms": 0}\n', b"\n", json.dumps(row).encode()])
    assert (first, second) == (Arrival(at_ns=0), expected)


def test_rows_may_stand_in_any_order_and_columns_too() -> None:
    table = b"GeneratedTokens, Kind ,TIMESTAMP,ContextTokens\r\n9,x,1970-01-01 00:00:02,8\r\n7,y,1970-01-01 00:00:01,6"
    assert read_schedule(b"\xef\xbb\xbf".join([b"", table]).splitlines()) == (
        Arrival(at_ns=0, input_tokens=6, output_tokens=7),
        Arrival(at_ns=NS_PER_S, input_tokens=8, output_tokens=9),
    )


def test_outlays_own_log_gives_starts_and_sizes() -> None:
    made = [
        Interaction(id=str(k), moment="m", start_ns=k * NS_PER_S, end_ns=None, sizes={"input_tokens": k})
        for k in (3, 1)
    ]
    assert read_schedule(map(write_line, made)) == (
        Arrival(at_ns=0, input_tokens=1),
        Arrival(at_ns=2 * NS_PER_S, input_tokens=3),
    )
    assert len(read_schedule(lines_of("outlay-log/interaction-1.jsonl"))) == 20


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        (b'{"at_ms": 1', "truncated"),
        (b'{"prompt": "' + SECRET.encode() + b'"}', "cannot be read"),
        (b'{"at_ms": true}', "cannot be read"),
        (b'{"at_ms": "' + SECRET.encode() + b'"}', "cannot be read"),
        (b'{"at_ms": 1e300}', "cannot be read"),
        (b'{"at_ms": 1, "input_tokens": -1}', "cannot be read"),
        (b'{"at_ms": 1, "input_tokens": true}', "cannot be read"),
        (b'{"at_ms": 1, "output_length": 1.5}', "cannot be read"),
        (SECRET.encode(), "cannot be read"),
        (b'{"outlay":"interaction/1","id":"a"}', "missing required field"),
        (b'{"outlay":"interaction/9","id":"a"}', "is of version"),
        (b'{"outlay":"interaction/1","id":"a","moment":"m","start_ns":null,"end_ns":1}', "has no start"),
        (b"{" * 100_000, ""),
        (b"\xff\xfe", "cannot be read"),
    ],
)
def test_a_row_that_cannot_be_read_is_named_by_its_line(bad: bytes, said: str) -> None:
    message = refusal(b'{"at_ms": 0}', b"", bad)
    assert message.startswith("line 3")
    assert said in message
    assert SECRET not in message


@pytest.mark.parametrize("row", [b"1", b"1970-01-01 00:00:01,1", b"noon,1,2", b"1970-01-01 00:00:01,x,2"])
def test_a_row_of_a_table_that_cannot_be_read(row: bytes) -> None:
    assert refusal(b"TIMESTAMP,ContextTokens,GeneratedTokens", row).startswith("line 2: ")


@pytest.mark.parametrize("lines", [(), (b"\n", b" "), (b"TIMESTAMP,ContextTokens,GeneratedTokens\n",)])
def test_a_trace_without_requests_is_refused(lines: tuple[bytes, ...]) -> None:
    assert "holds no requests" in refusal(*lines)


@given(st.lists(st.binary(max_size=40), max_size=5))
def test_any_lines_give_a_schedule_or_a_format_error(lines: list[bytes]) -> None:
    try:
        schedule = read_schedule(lines)
    except FormatError:
        return
    assert schedule[0].at_ns == 0
