"""A gate as JUnit XML: one test case a moment, so that a CI server lists it beside the other tests.

FAIL is a failure, REFUSED an error, UNDECIDED skipped with the reason; so is a moment of which nothing was asked.
"""

import re
from collections import Counter
from xml.etree import ElementTree as ET

from outlay.explain.gate import REFUSED, Checked, Gate
from outlay.quantiles import FAIL, PASS
from outlay.render import words
from outlay.render.gate import change, reason
from outlay.render.untrusted import visible

SUITE = "outlay check"

# XML 1.0 has no way to write these, not even as entities; controls are shown as codes before.
_NO_XML = re.compile("[\ud800-\udfff\ufffe\uffff]")

_ELEMENTS = {FAIL: "failure", REFUSED: "error"}


def to_junit(gate: Gate) -> bytes:
    """UTF-8 XML that any parser takes, whatever names the data holds; equal gates give equal bytes."""
    made = [_case(moment) for moment in gate.moments]
    told = Counter(element for _, element in made)
    numbers = {
        "tests": str(len(made)),
        "failures": str(told["failure"]),
        "errors": str(told["error"]),
        "skipped": str(told["skipped"]),
    }
    root = ET.Element("testsuites", {"name": SUITE, **numbers})
    ET.SubElement(root, "testsuite", {"name": SUITE, **numbers}).extend(case for case, _ in made)
    ET.indent(root)
    return b'<?xml version="1.0" encoding="utf-8"?>\n' + ET.tostring(root, encoding="unicode").encode() + b"\n"


def _case(moment: Checked) -> tuple[ET.Element, str | None]:
    """The test case, and what is in it beside its text."""
    case = ET.Element("testcase", {"classname": SUITE, "name": _text(moment.moment)})
    lines = [_text(words.plain(reason(moment)))]
    if moment.against is not None:
        lines.append(_text(f"against the baseline {words.plain(change(moment.against))}"))
    element = None if moment.state == PASS else _ELEMENTS.get(moment.state or "", "skipped")
    if element is None:
        ET.SubElement(case, "system-out").text = "\n".join(lines)
    else:
        told = ET.SubElement(case, element, {"message": "; ".join(lines)})
        if element != "skipped":
            told.set("type", moment.state or "")
            told.text = "\n".join(lines)
    return case, element


def _text(text: str) -> str:
    """The text with characters that act, or that XML cannot hold, shown as their codes."""
    return _NO_XML.sub(lambda char: f"\\u{ord(char[0]):04x}", visible(text))
