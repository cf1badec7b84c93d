import msgspec
import pytest

from outlay.formats.attributes import first_of, keep


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        ("text", True),
        ("", True),
        (0, True),
        (0.5, True),
        (False, True),
        (None, False),
        (["a"], False),
        ({"a": 1}, False),
        (float("nan"), False),  # JSON has no such number, and no comparison would hold
        (float("inf"), False),
    ],
)
def test_keeps_json_scalars_alone(value: object, kept: bool) -> None:
    assert keep([("k", value)], frozenset({"k"})) == ({"k": value} if kept else {})


def test_keeps_only_wanted_keys_and_of_a_repeated_one_the_last() -> None:
    items = [("a", 1), ("b", 2), ("a", 3)]
    assert keep(items, frozenset({"a"})) == {"a": 3}


def test_what_is_not_wanted_is_not_decoded() -> None:
    broken = msgspec.Raw(b'"\xff"')
    assert keep([("gen_ai.prompt", broken), ("a", msgspec.Raw(b"1"))], frozenset({"a"})) == {"a": 1}
    with pytest.raises(msgspec.DecodeError):
        keep([("a", broken)], frozenset({"a"}))


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        ({}, None),
        ({"b": "x"}, "x"),
        ({"a": "", "b": "x"}, "x"),  # empty says nothing
        ({"b": "x", "a": "y"}, "y"),  # the order of the keys asked for, not of the data
        ({"a": 0}, "0"),
    ],
)
def test_first_of(attributes: dict[str, str | int], expected: str | None) -> None:
    assert first_of(attributes, ("a", "b")) == expected
