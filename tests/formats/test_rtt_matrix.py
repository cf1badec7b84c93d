"""Round-trip times of regions, from both shapes in which they are published."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlay.formats.codec import FormatError
from outlay.formats.rtt_matrix import parse
from outlay.units import from_ms

DATA = Path(__file__).parents[1] / "data"


def test_pairs_as_ping_sums_them_up():
    matrix = parse((DATA / "aws-region-ping-2020/aws-region-ping-2020.csv").read_text())
    # London to us-east-1: two thirds of what a fresh TLS connection is said to cost there
    assert matrix["eu-west-2", "us-east-1"] == pytest.approx(from_ms(76.5), abs=from_ms(0.5))
    assert len({here for here, _ in matrix}) == 19


def test_a_square_with_blanks():
    matrix = parse((DATA / "azure-region-rtt/latency.csv").read_text())
    assert matrix["UK South", "East US"] == from_ms(79)
    assert ("Australia Central", "Australia Central") not in matrix
    # 50 rows and 50 columns, of which one place each has no other: West India is only reached, and so known backwards
    assert len({here for here, _ in matrix}) == 51


def test_one_way_holds_for_both_where_only_one_is_there():
    assert parse("src,dst,avg_ms\na,b,5\na,a,1\n") == {
        ("a", "b"): 5_000_000,
        ("b", "a"): 5_000_000,
        ("a", "a"): 1_000_000,
    }
    assert parse("x,a,b\na,,7\nb,9,\n") == {("a", "b"): 7_000_000, ("b", "a"): 9_000_000}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "a header and at least one row"),
        ("a,b\n", "a header and at least one row"),
        ("src,dst,mdev_ms\na,b,1\n", "expected a column avg_ms"),
        ("src,dst,avg_ms\na,b\n", "line 2: 2 cells"),
        ("src,dst,avg_ms\na,b,fast\n", "line 2: 'fast'"),
        ("src,dst,avg_ms\na,b,-1\n", "line 2: -1 ms"),
        ("x,a\na,1,2\n", "line 2: 3 cells"),
        ("x,a\na,\n", "no round-trip time"),
    ],
)
def test_what_is_no_matrix_is_refused(text: str, why: str):
    with pytest.raises(FormatError, match=why):
        parse(text)


@given(st.text(alphabet='sdrct,avg_m\n0123456789.-"', max_size=80))
def test_any_text_is_a_matrix_or_refused(text: str):
    try:
        matrix = parse(text)
    except FormatError:
        return
    assert all(rtt >= 0 for rtt in matrix.values())
