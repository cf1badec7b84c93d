"""The HTML report in a real browser: on phone, tablet and desk, by day and by night."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import chromium
import pytest
from chromium import Chromium
from real import REAL, real
from sample import SAMPLE

from outlay.render.html import to_html

pytestmark = pytest.mark.skipif(
    chromium.PATH is None, reason="needs a browser: install chromium, on Debian by `apt install chromium`"
)

WIDTHS = (390, 768, 1280)
REPORTS = ("sample", *REAL)

# Everything that must not be, as texts; the names of the lists are those of FAULTS below.
MEASURE = """(() => {
  document.querySelectorAll("details").forEach(each => each.open = true);
  const found = {wide: [], overlapping: [], outside: [], crossed: [], cut: [], pale: []};
  const root = document.documentElement;
  if (root.scrollWidth > root.clientWidth) found.wide.push(`${root.scrollWidth} in ${root.clientWidth}`);

  const boxOf = each => each.getBoundingClientRect();
  const meet = (a, b) => a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;
  const fits = (a, b) => a.left >= b.left - 1 && a.right <= b.right + 1;
  const within = (a, b) => fits(a, b) && a.top >= b.top - 1 && a.bottom <= b.bottom + 1;
  const isSeen = each => {
    const box = boxOf(each), head = each.closest("thead");
    return box.width > 0 && box.height > 0 && !(head && boxOf(head).width <= 1) && boxOf(each).right > 0;
  };
  for (const svg of document.querySelectorAll("svg")) {
    const texts = [...svg.querySelectorAll("text")].filter(isSeen);
    const lines = [...svg.querySelectorAll(".limit-line, .percentile-line")];
    texts.forEach((one, place) => {
      if (!within(boxOf(one), boxOf(svg))) found.outside.push(one.textContent);
      texts.slice(place + 1).forEach(other => {
        if (meet(boxOf(one), boxOf(other))) found.overlapping.push(`${one.textContent} / ${other.textContent}`);
      });
      lines.forEach(line => { if (meet(boxOf(one), boxOf(line))) found.crossed.push(one.textContent); });
    });
  }

  const read = color => {
    const [red, green, blue, alpha] = color.match(/[\\d.]+/g).map(Number);
    return {red, green, blue, alpha: alpha === undefined ? 1 : alpha};
  };
  const luminance = ({red, green, blue}) => {
    const linear = [red, green, blue].map(value => value / 255)
      .map(value => value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4);
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
  };
  const contrast = (one, other) => {
    const [light, dark] = [luminance(one), luminance(other)].sort((a, b) => b - a);
    return (light + 0.05) / (dark + 0.05);
  };
  const bar = text => {
    const {left, top, width, height} = boxOf(text), x = left + width / 2, y = top + height / 2;
    return [...text.ownerSVGElement.querySelectorAll("rect")].filter(rect => {
      const box = boxOf(rect), isBefore = rect.compareDocumentPosition(text) & Node.DOCUMENT_POSITION_FOLLOWING;
      const holds = box.left <= x && x <= box.right && box.top <= y && y <= box.bottom;
      return isBefore && holds && getComputedStyle(rect).fill.startsWith("rgb");
    }).pop();
  };
  const ground = each => {
    for (let at = each; at; at = at.parentElement) {
      const color = read(getComputedStyle(at).backgroundColor);
      if (color.alpha > 0) return color;
    }
    return read("rgb(255, 255, 255)");
  };
  const clipOf = each => {
    for (let at = each.parentElement; at; at = at.parentElement) {
      const {overflowX} = getComputedStyle(at);
      if (overflowX !== "visible") return overflowX === "hidden" ? at : null;
    }
    return null;
  };
  for (const each of document.body.querySelectorAll("*")) {
    const texts = [...each.childNodes].filter(node => node.nodeType === Node.TEXT_NODE);
    const says = texts.map(node => node.data).join("").trim();
    if (!says || !isSeen(each)) continue;
    const style = getComputedStyle(each), isSvg = each.ownerSVGElement && each.localName === "text";
    const under = isSvg && bar(each);
    const behind = under ? read(getComputedStyle(under).fill) : ground(each);
    if (contrast(read(isSvg ? style.fill : style.color), behind) < 4.5) found.pale.push(says);
    const clip = isSvg ? null : clipOf(each);
    if (clip && !fits(boxOf(each), boxOf(clip))) found.cut.push(says);
  }
  return found;
})()"""

FAULTS = """<!doctype html><html><head>
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; img-src file:">
</head><body style="background: #fff; margin: 0">
<div style="width: 2000px">wide</div><p style="color: #999">pale</p>
<div style="overflow: hidden; width: 90px"><p style="width: 120px">hidden</p></div>
<svg width="300" height="60">
  <text x="10" y="20">one</text><text x="20" y="22">two</text><text x="290" y="20">outside</text>
  <text x="10" y="50">crossed</text><line class="limit-line" x1="15" x2="15" y1="30" y2="60" stroke="#000"/>
  <rect x="100" y="30" width="100" height="30" fill="#777"/><text x="110" y="50" fill="#555">on a bar</text>
</svg>
<img src="missing.png" alt=""><script>document.title = "ran"</script></body></html>"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    with chromium.chromium(tmp_path_factory.mktemp("profile")) as started:
        yield started


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    reports = {"sample": SAMPLE, **{name: real(name) for name in REAL}}
    written = {name: folder / f"{name}.html" for name in (*reports, "faults")}
    for name, report in reports.items():
        written[name].write_text(to_html(report), encoding="utf-8")
    written["faults"].write_text(FAULTS, encoding="utf-8")
    return written


def requests(browser: Chromium) -> list[str]:
    """What the page asked for beside itself."""
    asked = [event for event in browser.events if event.get("method") == "Network.requestWillBeSent"]
    return [event["params"]["request"]["url"] for event in asked if event["params"]["type"] != "Document"]


def complaints(browser: Chromium) -> list[Any]:
    """What the console says: errors, warnings, violations of the page's policy."""
    kinds = {"Log.entryAdded", "Runtime.consoleAPICalled", "Runtime.exceptionThrown"}
    return [event["params"] for event in browser.events if event.get("method") in kinds]


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", REPORTS)
def test_a_report_can_be_read_without_a_fault(
    browser: Chromium, pages: dict[str, Path], name: str, width: int, dark: bool
) -> None:
    browser.view(width=width, dark=dark)
    browser.load(pages[name])
    assert {kind: found for kind, found in browser.evaluate(MEASURE).items() if found} == {}
    assert complaints(browser) == []
    assert requests(browser) == []


def test_the_measure_finds_every_fault(browser: Chromium, pages: dict[str, Path]) -> None:
    browser.view(width=390)
    browser.load(pages["faults"])
    assert browser.evaluate(MEASURE) == {
        "wide": ["2000 in 390"],
        "overlapping": ["one / two"],
        "outside": ["outside"],
        "crossed": ["crossed"],
        "cut": ["hidden"],
        # #999 on #fff is 2.8 to 1, #555 on #777 1.7 to 1.
        "pale": ["pale", "on a bar"],
    }
    assert [url.rpartition("/")[2] for url in requests(browser)] == ["missing.png"]
    assert any("Content Security Policy" in entry["entry"]["text"] for entry in complaints(browser) if "entry" in entry)


@pytest.mark.parametrize(("dark", "paper"), [(False, "rgb(255, 255, 255)"), (True, "rgb(19, 22, 26)")])
def test_the_page_follows_the_readers_scheme(browser: Chromium, pages: dict[str, Path], dark: bool, paper: str) -> None:
    browser.view(width=768, dark=dark)
    browser.load(pages["vllm"])
    assert browser.evaluate("getComputedStyle(document.body).backgroundColor") == paper


def test_a_timeline_opens_and_closes_by_keyboard(browser: Chromium, pages: dict[str, Path]) -> None:
    browser.view(width=1280)
    browser.load(pages["vllm"])
    browser.evaluate('document.querySelector("details:not([open]) > summary").focus()')
    states = []
    for _ in range(2):
        browser.press_enter()
        states.append(browser.evaluate("document.activeElement.parentElement.open"))
    assert states == [True, False]


def test_a_box_of_the_flame_leads_to_its_row_by_keyboard(browser: Chromium, pages: dict[str, Path]) -> None:
    browser.view(width=1280)
    browser.load(pages["sample"])
    browser.evaluate("document.querySelector(\".flame a[aria-label^='llm/queue.wait']\").focus()")
    assert browser.evaluate("document.activeElement.getAttribute('aria-label')").startswith("llm/queue.wait +474")
    browser.press_enter()
    # The table was closed: going to its row opens it.
    assert browser.evaluate('document.querySelector("tr:target").textContent') == "waitqueueing+474 ms"
    assert browser.evaluate('document.querySelector("tr:target").closest("details").open')


def test_paper_shows_tables_as_tables_and_every_timeline(browser: Chromium, pages: dict[str, Path]) -> None:
    # A4 is narrower than the width from which a screen shows rows as cards.
    browser.view(width=700, dark=True, media="print")
    browser.load(pages["vllm"])
    assert browser.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert browser.evaluate('getComputedStyle(document.querySelector("table.stack tr")).display') == "table-row"
    closed = 'document.querySelector("details:not([open]):not(.quiet) table")'
    assert browser.evaluate(f"{closed}.checkVisibility({{contentVisibilityAuto: true}})")
    browser.view(width=700)
    assert not browser.evaluate(f"{closed}.checkVisibility({{contentVisibilityAuto: true}})")
