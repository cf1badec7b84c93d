"""A Report as one HTML file that needs nothing else: no script, no request, light and dark, screen and paper."""

import re
from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup, escape

from outlay.render import causes, flame, loads, picture, rollup, words
from outlay.render.untrusted import visible
from outlay.render.words import Name, Sentence
from outlay.report import Report
from outlay.units import format_duration

_UNIT = re.compile(r"(?<=\d) (?=(?:[nµm]?s|%)(?!\w))")
_INTERVAL = re.compile(r"\[[^\[\] ]+(?: [nµm]?s)?, [^\[\] ]+(?: [nµm]?s)?\]")

ROWS = 60
COHORTS = 200


def to_html(report: Report) -> str:
    """The whole page."""
    return _page().render(report=report)


@cache
def _page() -> Template:
    environment = Environment(
        loader=PackageLoader("outlay.render"),
        autoescape=True,
        # On every value that is printed, so that no template can forget it.
        finalize=_neutral,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    modules = {"causes": causes, "flame": flame, "loads": loads, "picture": picture, "rollup": rollup, "words": words}
    environment.globals |= modules
    environment.globals |= {"rows_shown": ROWS, "cohorts_shown": COHORTS}
    environment.filters |= {"duration": format_duration, "doubt": words.doubt, "firm": firm, "told": told}
    return environment.get_template("report.html.j2")


def firm(text: str) -> str:
    """A sentence of Outlay's own in which no line ends between a number and its unit, or inside an interval."""
    return _INTERVAL.sub(lambda found: found[0].replace(" ", "\u00a0"), _UNIT.sub("\u00a0", text))


def told(sentence: Sentence) -> Markup:
    """A sentence with its names set apart."""
    pieces = (
        Markup("<bdi>{}</bdi>").format(visible(piece)) if isinstance(piece, Name) else escape(firm(visible(piece)))
        for piece in sentence
    )
    return Markup("").join(pieces)


def _neutral(value: object) -> object:
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value
