import re

import pytest
from hostile import ATTACKS, names
from hostile import report as hostile_report
from hypothesis import example, given, settings
from markdown_it import MarkdownIt
from markdown_it.token import Token
from sample import RICH, SAMPLE, VOICE

from outlay.render.markdown import name as markdown_name
from outlay.render.markdown import prose, to_markdown
from outlay.render.untrusted import visible
from outlay.report import Report

PARSER = MarkdownIt("commonmark").enable("table")
# Raw HTML that the renderer itself writes; anything else came from a name.
OWN_HTML = re.compile(r"</?(code|details|summary)>|<details><summary>.*</summary>", re.DOTALL)


def inline(tokens: list[Token]) -> list[Token]:
    return [child for token in tokens for child in (token.children or [])]


def text_of(markdown: str) -> str:
    return "".join(token.content for token in inline(PARSER.parse(markdown)) if token.type in {"text", "code_inline"})


def columns(markdown: str) -> list[list[int]]:
    """The number of cells of each row of each table."""
    tables: list[list[int]] = []
    for token in PARSER.parse(markdown):
        if token.type == "table_open":
            tables.append([])
        elif token.type == "tr_open":
            tables[-1].append(0)
        elif token.type in {"td_open", "th_open"}:
            tables[-1][-1] += 1
    return tables


def test_every_table_is_rectangular_and_read_as_a_table() -> None:
    found = columns(to_markdown(SAMPLE))
    assert len(found) == len(re.findall(r"^\| ---", to_markdown(SAMPLE), re.MULTILINE))
    assert all(len(set(table)) == 1 for table in found)


@given(names)
@example("a|b")
@settings(max_examples=150, deadline=None)
def test_a_name_in_a_cell_is_read_back_as_it_was(name: str) -> None:
    table = f"| a | b |\n| --- | --- |\n| {markdown_name(name)} | x |\n"
    assert columns(table) == [[2, 2]]
    # A reader trims a cell and a code span; nothing else is lost.
    assert text_of(table).removeprefix("ab").removesuffix("x").strip() == visible(name).strip()


@given(names)
@example("".join(ATTACKS))
@settings(max_examples=60, deadline=None)
def test_no_name_becomes_markup(name: str) -> None:
    markdown = to_markdown(hostile_report(name))
    tokens = PARSER.parse(markdown)
    assert not {token.type for token in inline(tokens)} & {"link_open", "image"}
    for token in [*tokens, *inline(tokens)]:
        if token.type in {"html_block", "html_inline"}:
            assert OWN_HTML.fullmatch(token.content.strip()), token.content
            assert not re.search(r"<(?!/?(code|details|summary)>)", token.content)
    assert all(len(set(table)) == 1 for table in columns(markdown))


@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("llm/queue.wait", "`llm/queue.wait`"),
        ("engine/unattributed.a->b", "`engine/unattributed.a->b`"),
        ("a|b", "<code>a&#124;b</code>"),
        ("`x`", "<code>&#96;x&#96;</code>"),
        ("@all", "<code>&#64;all</code>"),
        ("\u202ex", "<code>&#92;u202ex</code>"),
        ("", ""),
    ],
)
def test_names_are_code(name: str, written: str) -> None:
    assert markdown_name(name) == written


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("p99 of 1.38 s (±2 %)", "p99 of 1.38 s (±2 %)"),
        ("www.x.y", "www&#46;x&#46;y"),
        ("a < b", "a &#60; b"),
        ("*b*", "&#42;b&#42;"),
        ("one. two.", "one. two."),
        # At the start of a line this would be a list.
        ("1. x", "1&#46; x"),
    ],
)
def test_prose_is_not_markup(text: str, written: str) -> None:
    assert prose(text) == written


def test_the_answer_stands_before_the_numbers() -> None:
    markdown = to_markdown(Report(sources=(), moments=(RICH,)))
    order = ("**Over budget**", "Start with queueing: 480 ms", "| p50 |", "### What to do", "### Where the time goes")
    places = [markdown.index(part) for part in order]
    assert places == sorted(places)
    assert "| 1. | queueing | 486 ms | **480 ms [410, 560]** | 210 ms [188, 240] |" in markdown
    assert "By component: `llm` +624 ms, `client` +248 ms" in markdown


def test_what_is_empty_draws_nothing() -> None:
    markdown = to_markdown(Report(sources=(), moments=(VOICE,)))
    headings = re.findall(r"^### (.*)$", markdown, re.MULTILINE)
    assert headings == [
        "Where the time goes",
        "Model time against end to end",
        "Budget against actual",
        "Slowest",
        "Cohorts",
        "Health of the data",
    ]
