"""Where terminal text lands: width, encoding, wrapping, aligned columns."""

from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

from outlay.render.untrusted import visible

INDENT = 2

# What a console without UTF-8 gets; applied before anything is measured.
_PLAIN = str.maketrans("▁▂▃▄▅▆▇█▒░·─×µμ–−", "_.:-=+*#:?.-xuu--") | {ord("±"): "+-", ord("…"): ".."}

Lines = list[Text]
Cell = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sheet:
    """A console to draw on: everything drawn passes through `ink`, so nothing from the data can steer the terminal."""

    console: Console

    @property
    def width(self) -> int:
        """Columns there are."""
        return self.console.width

    def ink(self, text: str) -> str:
        """`text` with harmless characters only, all of them within the console's encoding."""
        text = visible(text)
        if self.console.encoding.startswith("utf"):
            return text
        text = text.translate(_PLAIN)
        encoded = (char.encode(self.console.encoding, "replace") == b"?" and char != "?" for char in text)
        return "".join("?" * cell_len(char) if lost else char for char, lost in zip(text, encoded, strict=True))

    def paragraph(self, text: str, style: str = "", indent: int = INDENT, most: int | None = None) -> Lines:
        """Text wrapped into the width, cut after `most` lines; no line for no text."""
        room = max(self.width - indent, 1)
        wrapped = list(Text(self.ink(text), style).wrap(self.console, room, overflow="fold")) if text else []
        if most is not None and len(wrapped) > most:
            last = wrapped[most - 1].plain.rstrip()
            wrapped[most - 1 :] = [Text(set_cell_size(last, room - 2).rstrip() + self.ink("…"), style)]
        return [Text(" " * indent) + line for line in wrapped]

    def heading(self, title: str, note: str = "") -> Lines:
        """A section's title, with a note on how to read it beside it or, where there is no room, below."""
        line = Text(self.ink(title), "bold")
        if cell_len(title) + 2 + cell_len(note) > self.width:
            return [Text(""), line, *self.paragraph(note, "dim")]
        return [Text(""), line.append(self.ink(f"  {note}" if note else ""), "dim")]

    def table(self, rows: Sequence[Sequence[Cell]], align: str, flex: int = 0) -> Lines:
        """Rows as aligned columns; `align` holds `<` or `>` a column. Column `flex` is shortened until all fits."""
        if not rows:
            return []
        inked = [[(self.ink(text), style) for text, style in row] for row in rows]
        widths = [max(cell_len(row[place][0]) for row in inked) for place in range(len(align))]
        others = sum(width + 2 for place, width in enumerate(widths) if width and place != flex)
        widths[flex] = min(widths[flex], max(self.width - INDENT - others, 4))
        return [self._row(row, align, widths, flex) for row in inked]

    def _row(self, row: Sequence[Cell], align: str, widths: Sequence[int], flex: int) -> Text:
        line = Text(" " * INDENT)
        shown = [place for place, width in enumerate(widths) if width]
        for place in shown:
            text, style = row[place]
            if place == flex:
                text = self.shorten(text, widths[place])
            gap = " " * (widths[place] - cell_len(text))
            line.append(gap if align[place] == ">" else "").append(text, style)
            line.append("" if align[place] == ">" else gap).append("  " if place != shown[-1] else "")
        line.truncate(self.width)
        return line

    def shorten(self, text: str, room: int) -> str:
        """The start and the end of `text`, inked, in `room` columns: an entry's stage stands at its end."""
        text = self.ink(text)
        if cell_len(text) <= room:
            return text
        head = set_cell_size(text, room // 3) + self.ink("…")
        tail = text[-room:]
        while tail and cell_len(head + tail) > room:
            tail = tail[1:]
        return set_cell_size(head + tail, room).rstrip()
