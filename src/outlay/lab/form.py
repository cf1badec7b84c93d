"""A multipart form, as uploads come: the fields of one body that has been read. Pure."""

import re
from collections.abc import Mapping
from typing import NamedTuple

MAX_FIELDS = 64
MAX_FIELD_HEAD_BYTES = 8 * 1024

# RFC 2046 section 5.1.1 and RFC 7578 section 4.2. A boundary may stand in quotes or without.
_BOUNDARY = re.compile(
    r'multipart/form-data\s*;.*?\bboundary="?([^\s";]{1,70})"?', re.ASCII | re.IGNORECASE | re.DOTALL
)
_NAME = re.compile(rb'(?:^|[;\s])name="([^"\r\n]*)"', re.IGNORECASE)
_FILE_NAME = re.compile(rb"[;\s]filename\*?=", re.IGNORECASE)


class Field(NamedTuple):
    """One field: whether it is a file, and what it holds."""

    is_file: bool
    value: bytes


def fields(content_type: str, body: bytes) -> Mapping[str, Field]:
    """The fields of a form by name, the first of each name.

    Raises ValueError, for people, where the body is no whole form or has too many fields.
    """
    match = _BOUNDARY.match(content_type)
    if match is None:
        raise ValueError("the content-type is not multipart/form-data with a boundary")
    mark = b"\r\n--" + match[1].encode("latin-1")
    # A form may begin with its mark, so the line end that belongs to a mark is put before it.
    _preamble, *parts = (b"\r\n" + body).split(mark, MAX_FIELDS + 2)
    if len(parts) > MAX_FIELDS + 1:
        raise ValueError(f"a form has at most {MAX_FIELDS} fields")
    if not parts or not parts[-1].startswith(b"--"):
        raise ValueError("the form does not end with its boundary")
    found: dict[str, Field] = {}
    for part in parts[:-1]:
        name, field = _field(part)
        found.setdefault(name, field)
    return found


def _field(part: bytes) -> tuple[str, Field]:
    head, blank, value = part.partition(b"\r\n\r\n")
    if not blank or len(head) > MAX_FIELD_HEAD_BYTES:
        raise ValueError("a field of the form has no head that can be read")
    lines = (line for line in head.split(b"\r\n") if line.lower().startswith(b"content-disposition:"))
    disposition = next(lines, b"")
    name = _NAME.search(disposition)
    if name is None:
        raise ValueError("a field of the form has no name")
    return name[1].decode("utf-8", "replace"), Field(_FILE_NAME.search(disposition) is not None, value)
