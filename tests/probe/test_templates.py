"""Bodies that users write: every place is filled, once, and JSON stays JSON."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlay.probe.templates import NAMES, check, fill, is_json, names

VALUES = {"prompt": "p", "model": "m", "input_tokens": "3", "output_tokens": "5", "id": "i"}


def test_every_name_is_filled_with_its_own_value():
    template = b"|".join(b"{{%s}}" % name.encode() for name in NAMES)
    assert fill(template, VALUES) == b"p|m|3|5|i"
    assert names(template) == set(NAMES)


@pytest.mark.parametrize(
    ("template", "filled"),
    [
        (b"", b""),
        (b"nothing to fill", b"nothing to fill"),
        (b"{{prompt}}", b"p"),
        (b"{{ prompt }} {{\tid\n}}", b"p i"),
        (b"{{prompt}}{{prompt}}", b"pp"),
        (b"{{{prompt}}}", b"{p}"),
        (b"{prompt} {{ }} {{a b}} {{", b"{prompt} {{ }} {{a b}} {{"),  # no places
        (b"\xff{{id}}\x00", b"\xffi\x00"),  # bytes that are no text are kept
    ],
)
def test_places(template: bytes, filled: bytes):
    assert fill(check(template), VALUES) == filled


@pytest.mark.parametrize(
    ("template", "json_once_filled"),
    [
        (b'{"q": "{{prompt}}"}', True),
        (b'{"n": {{input_tokens}}}', True),
        (b'{"n": "{{output_tokens}}"}', True),
        (b'{"a": {"n": {{output_tokens}}}}', True),  # the places' braces beside JSON's own
        (b'{"q": "say {{prompt}} as {{id}}"}', True),
        (b'["{{prompt}}"]', True),
        (b"{{prompt}}", False),  # a text alone is sent as it is
        (b"say {{prompt}}", False),
        (b"{{prompt}}\n{{id}}", False),
        (b"", False),
        (b"{" * 100_000, False),
    ],
)
def test_what_is_json(template: bytes, json_once_filled: bool):
    assert is_json(template) == json_once_filled


def test_a_text_alone_is_not_escaped():
    assert fill(b"{{prompt}}", {"prompt": 'say "hi"\n'}) == b'say "hi"\n'


@given(st.text(max_size=40), st.text(max_size=40), st.integers(1, 10**6))
def test_json_reads_back_as_what_was_filled_in(prompt: str, model: str, tokens: int):
    template = b'{"q": "<{{prompt}}>", "m": ["{{model}}"], "n": {{output_tokens}}, "s": "{{output_tokens}}"}'
    filled = fill(check(template), {"prompt": prompt, "model": model, "output_tokens": str(tokens)})
    assert json.loads(filled) == {"q": f"<{prompt}>", "m": [model], "n": tokens, "s": str(tokens)}


def test_what_is_filled_in_is_no_template():
    """A prompt may hold the spelling of a place; it is sent as it is."""
    assert fill(b"{{prompt}} {{id}}", {"prompt": "{{id}} {{model}} \\1", "id": "7"}) == b"{{id}} {{model}} \\1 7"


@pytest.mark.parametrize("template", [b"{{promt}}", b"{{prompt}} {{Prompt}}", b'{"q": "{{answer}}"}', b"{{0}}"])
def test_what_cannot_be_filled_in_is_said_with_what_can(template: bytes):
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - braces are no regular expression
        check(template)
    assert all(f"{{{{{name}}}}}" in str(caught.value) for name in NAMES)


@pytest.mark.parametrize(
    "template", [b'{"q": {{prompt}}}', b'{"q": "{{prompt}}", "id": {{id}}}', b" [{{model}}]", b'{"n": [1, {{prompt}}]}']
)
def test_a_bare_text_in_json_is_said(template: bytes):
    with pytest.raises(ValueError, match="stands in quotes"):
        check(template)


@pytest.mark.parametrize("template", [b"{ {{prompt}} }", b"[INST] {{prompt}} [/INST]", b"{{input_tokens}} {{prompt}}"])
def test_braces_and_brackets_alone_make_no_json(template: bytes):
    assert check(template) == template


def test_a_value_that_is_not_given_is_missed():
    with pytest.raises(KeyError):
        fill(b"{{output_tokens}}", {"prompt": "p"})


@given(st.binary(max_size=60))
def test_any_bytes_are_a_template_or_refused(template: bytes):
    try:
        good = check(template)
    except ValueError:
        return
    assert good == template
    assert names(good) <= set(NAMES)
    assert b"{{prompt}}" not in fill(good, VALUES)
