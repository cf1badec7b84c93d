"""Names come from other people's traces: nothing in them may steer a terminal, a page or the order of reading."""

import unicodedata

# Controls and escapes, format characters (bidi overrides, zero width), lone surrogates, line and paragraph breaks.
_HARMFUL = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})


def visible(text: str) -> str:
    """`text` with every character that would act instead of being read shown as its code, such as `\\x1b`."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(_code(char) if unicodedata.category(char) in _HARMFUL else char for char in text)


def _code(char: str) -> str:
    point = ord(char)
    if point < 0x100:
        return f"\\x{point:02x}"
    return f"\\u{point:04x}" if point < 0x10000 else f"\\U{point:08x}"
