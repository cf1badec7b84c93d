import re
from dataclasses import replace
from functools import cache
from html.parser import HTMLParser
from importlib.resources import files

import pytest
from hostile import ATTACKS, names
from hostile import report as hostile_report
from hypothesis import example, given, settings
from sample import DOCUMENT, EMPTY, FAILING, INVALID_LOAD, LOADS, RICH, SAMPLE, UNBUDGETED, VOICE

from outlay.render.html import firm, to_html
from outlay.render.untrusted import visible
from outlay.report import MomentReport, Report
from outlay.stages import TERMS

VOID = {"meta", "br", "hr", "img", "input", "link"}
CSS = files("outlay.render").joinpath("templates/report.css").read_text(encoding="utf-8")


class Page(HTMLParser):
    """The elements and the text of a page; fails on tags that do not nest."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.text: list[str] = []
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1:] != ["style"]:
            self.text.append(data)

    @property
    def words(self) -> str:
        return " ".join(" ".join(self.text).split())


def page(*moments: MomentReport) -> Page:
    return Page(to_html(Report(sources=(), moments=moments)))


def test_the_page_needs_nothing_else_and_runs_nothing() -> None:
    html = to_html(SAMPLE)
    read = Page(html)
    assert not {"script", "link", "img", "iframe", "object", "embed", "form", "base"} & set(read.tags)
    assert all(value.startswith("#") for _, name, value in read.attributes if name in {"href", "src", "xlink:href"})
    assert not [name for _, name, _ in read.attributes if name.startswith("on")]
    assert set(re.findall(r"url\(([^)]*)\)", html)) == {"#parallel", "#unattributed"}
    assert "@import" not in html
    assert "http://" not in html
    assert "https://" not in html
    policy = next(value for tag, name, value in read.attributes if tag == "meta" and value.startswith("default-src"))
    assert policy == "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


def test_ids_are_unique_and_every_link_has_its_target() -> None:
    read = Page(to_html(SAMPLE))
    ids = [value for _, name, value in read.attributes if name == "id"]
    links = {value[1:] for _, name, value in read.attributes if name == "href"}
    labels = {value for _, name, value in read.attributes if name == "aria-labelledby"}
    assert len(ids) == len(set(ids))
    assert links | labels <= set(ids)


def test_every_picture_is_described_or_hidden() -> None:
    html = to_html(SAMPLE)
    for tag in re.findall(r"<svg[^>]*>", html):
        hidden = 'aria-hidden="true"' in tag or ('role="img"' in tag and "aria-label" in tag)
        led = 'role="group"' in tag and "aria-labelledby" in tag and "aria-describedby" in tag
        in_key = re.fullmatch(r'<svg height="1[24]">', tag)
        assert hidden or led or in_key, tag
    # The keys to the pictures are hidden as a whole: the tables say the same in words.
    assert html.count('class="key"') == html.count('class="key" aria-hidden="true"')


@pytest.mark.parametrize(
    ("moment", "says"),
    [
        (VOICE, "✕ FAIL"),
        (VOICE, "p99 over all 1.56 s 1.38 s to 1.96 s of those served 1.52 s (1.35 s to 1.88 s)"),
        (VOICE, "98 late"),
        (VOICE, "▲ over by 436 ms"),
        (VOICE, "5 smaller rows, listed below 3.52 ms 8.26 ms +4.74 ms"),
        (VOICE, "±11.0 ms"),
        (VOICE, "± unknown"),
        (VOICE, "maybe parallel"),
        (VOICE, "40 × incomplete"),
        (DOCUMENT, "212 more interactions could decide"),
        (DOCUMENT, "refused needs 299 interactions, there are 74"),
        (DOCUMENT, "model 820 ms to 5.33 s of 5.47 s"),
        (FAILING, "p99 over all never of those served 2.70 s"),
        (FAILING, "120 cohorts"),
        (VOICE, "worth about 410 independent ones: slow ones come in bursts"),
        (UNBUDGETED, "No budget was given, so there is no verdict."),
        # One interaction is not told twice: no percentiles, no excess, each row as its part of 254.91 ms.
        (UNBUDGETED, "took 255 ms one interaction has no percentiles"),
        (UNBUDGETED, "engine/infer.decode takes 138 ms, 54.3 % of it"),
        (UNBUDGETED, "total 255 ms 100 %"),
        (EMPTY, "nothing was measured"),
        (RICH, "p99 over all 1.39 s 1.24 s to 1.51 s all that was started: 1.18 s to no bound"),
        (RICH, "1 queueing 486 ms typical 12.0 ms 480 ms [410, 560] 210 ms [188, 240] 10.0 ms [8.00, 12.0] platform"),
        (RICH, "Tried: client/uplink.connect , client/uplink.tls took no time. Mostly client/uplink.tls ."),
        (RICH, "Seen: queue on arrival: 9.3 before the slowest, 0.8 typically."),
        (RICH, "fills the slowest 1 % 1.66 s sets the p99 1.39 s"),
        (RICH, "llm/queue.wait queueing 12.0 ms 486 ms [439, 533] 604 ms [544, 664] +474 ms [427, 521]"),
        (RICH, "1.04 s more, 4.00 ms less: +1.04 s in all."),
        (RICH, "site=fra : 18.0 % of interactions, 61.0 % of the slow ones"),
        (DOCUMENT, "What sets the p95 is not told: needs 5,000 interactions, there are 74."),
    ],
)
def test_the_reader_is_told(moment: MomentReport, says: str) -> None:
    assert says in page(moment).words


def test_the_answer_stands_before_the_numbers_and_the_numbers_before_their_account() -> None:
    body = to_html(Report(sources=(), moments=(RICH,))).partition('<main id="report">')[2]
    order = ("Over budget", "Start with queueing", '<dl class="facts">', "What to do", "Where the time goes")
    places = [body.index(part) for part in order]
    assert places == sorted(places)
    # Where findings say what to do first, the rows that add most do not say it again.
    assert "Look first at" not in body


def test_what_is_empty_draws_nothing() -> None:
    words = page(VOICE).words
    titles = ("Start with", "What to do", "Several at once", "What if", "What goes with", "For whom", "What changed")
    assert not [title for title in (*titles, "Whose overrun", "How fast", "Duty", "sets the") if title in words]


def test_every_box_of_the_flame_is_a_link_with_a_name_to_a_row_with_the_same_time() -> None:
    html = to_html(Report(sources=(), moments=(RICH,)))
    boxes = re.findall(r'<a class="t-[a-z-]+" href="#([^"]+)" aria-label="([^"]+)">\s*<title>([^<]+)</title>', html)
    rows = dict(re.findall(r'<tr id="([^"]+)">.*?<td class="number">([^<]+)</td></tr>', html))
    assert len(boxes) == len(rows) > 20
    assert all(label == title and label.endswith(f" {rows[row]}") for row, label, title in boxes)
    assert ("m1-more-3", "llm/queue.wait +474 ms", "llm/queue.wait +474 ms") in boxes


@pytest.mark.parametrize(
    ("text", "held"),
    [
        ("480 ms [410, 560] of 1.1 s", "480_ms [410,_560] of 1.1_s"),
        ("980 ms [940 ms, 1.10 s]", "980_ms [940_ms,_1.10_s]"),
        ("+20.0 ms [-10.0, 50.0]", "+20.0_ms [-10.0,_50.0]"),
        ("3 of 74 late; 0.844 % to 11.4 %", "3 of 74 late; 0.844_% to 11.4_%"),
        ("1.31 s to 1.80 s", "1.31_s to 1.80_s"),
        ("12.3 µs or 40 ns", "12.3_µs or 40_ns"),
        # Not units: the beginning of a word.
        ("5 smaller rows, 3 nodes", "5 smaller rows, 3 nodes"),
    ],
)
def test_no_line_ends_between_a_number_and_its_unit(text: str, held: str) -> None:
    assert firm(text) == held.replace("_", "\u00a0")


def test_cohorts_are_capped_and_the_rest_counted() -> None:
    words = page(replace(FAILING, cohorts=FAILING.cohorts * 2)).words
    assert "240 cohorts" in words
    assert "and 40 more" in words


def test_a_moment_without_interactions_shows_no_account() -> None:
    words = page(EMPTY).words
    assert "Where the time goes" not in words
    assert "of 12 started (0 %)" in words


def test_an_index_comes_with_the_second_moment() -> None:
    assert "nav" not in page(VOICE).tags
    assert "nav" in page(VOICE, EMPTY).tags
    assert "No moment was found" in page().words


@cache
def harmless() -> Page:
    return Page(to_html(hostile_report("x")))


@given(names)
@example("".join(ATTACKS))
@settings(max_examples=40, deadline=None)
def test_no_name_becomes_markup(name: str) -> None:
    plain, hostile = harmless(), Page(to_html(hostile_report(name)))
    # An empty name draws nothing where a name is optional; any other draws the same elements as a harmless one.
    if name:
        assert hostile.tags == plain.tags
    assert {(tag, key) for tag, key, _ in hostile.attributes} == {(tag, key) for tag, key, _ in plain.attributes}
    assert " ".join(visible(name).split()) in hostile.words


def luminance(color: str) -> float:
    channels = [int(color[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return sum(weight * c for weight, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(one: str, other: str) -> float:
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def themes() -> dict[str, dict[str, str]]:
    blocks = re.findall(r":root \{(.*?)\}", CSS, re.DOTALL)
    return {
        name: dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", block))
        for name, block in zip(("light", "dark"), blocks, strict=False)
    }


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_and_the_colours_that_carry_it_have_contrast_aa(theme: str) -> None:
    colors = themes()[theme]
    inks = ["ink", "soft", "good", "bad", "open", "accent", *(key for key in colors if key.startswith("c-"))]
    # 4.5 to 1 for text; a term's colour carries the paper's colour as text, so it is held to the same.
    low = {ink: contrast(colors[ink], colors["paper"]) for ink in inks if contrast(colors[ink], colors["paper"]) < 4.5}
    assert low == {}
    assert all(contrast(colors[ink], colors["panel"]) >= 4.5 for ink in ("ink", "soft"))


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_term_has_a_colour_of_its_own(theme: str) -> None:
    keys = ["c-" + term.name.replace(" ", "-") for term in TERMS]
    assert len({themes()[theme][key] for key in keys}) == len(TERMS)
    assert all(f".t-{key[2:]} {{" in CSS for key in keys)


def test_the_loads_stand_before_the_moments_and_their_verdict_before_their_numbers() -> None:
    page = to_html(replace(SAMPLE, moments=(INVALID_LOAD,), loads=LOADS[:1]))
    order = (
        "INVALID</span>",
        "1\u00a0% of the requests were sent",
        "9,464 requests",
        "29.0\u00a0s to 35.9\u00a0s",
        "refund-agent</bdi></h2>",
    )
    body = page[page.index('<main id="report">') :]
    places = [body.index(part) for part in order]
    assert places == sorted(places)
    assert 'data-label="what the tool claims">5.49' in body
    assert "No moment was found" not in to_html(replace(SAMPLE, moments=()))
