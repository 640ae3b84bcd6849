"""Text that fits a terminal: paragraphs and tables that break between words, never in a number."""

import re
import shutil
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

# Where nothing says how wide the terminal is, and what is written for at least.
USUAL, NARROWEST = 80, 40
NO_BREAK = "\N{NO-BREAK SPACE}"
# A number and its error, its unit, or what it is compared with.
TOGETHER = re.compile(r"(?<=[<=±\d]) (?=[<=±%\d])|(?<=\d) (?=points|nats)|(?<=\w) (?=[<=] ?[\d-])")
GAP = "  "
LEAST_NAME = 8


def terminal_width() -> int:
    """Characters in a line of the terminal."""
    return max(NARROWEST, shutil.get_terminal_size((USUAL, 24)).columns)


def together(text: str) -> str:
    """Return a text in which no line ends between a number and its error or unit."""
    return TOGETHER.sub(NO_BREAK, text)


def wrapped(text: str, width: int | None = None, further: str = "  ") -> str:
    """Lines of a text broken to the width of the terminal, what follows behind `further`."""
    width = terminal_width() if width is None else width
    lines = []
    for line in text.splitlines():
        indent = " " * (len(line) - len(line.lstrip(" ")))
        kept = together(line)
        lines += textwrap.wrap(
            kept, width, subsequent_indent=f"{indent}{further}", break_long_words=False,
            break_on_hyphens=False,
        ) or [""]  # fmt: skip
    return "\n".join(lines).replace(NO_BREAK, " ")


def unbroken(parts: Sequence[str]) -> str:
    """Parts of a list, with commas, for `wrapped` to break between them only."""
    return ", ".join(part.replace(" ", NO_BREAK) for part in parts)


@dataclass(frozen=True)
class Column:
    """A column of numbers. dropped: the larger, the earlier it is left out; 0: never."""

    header: str
    cells: Sequence[str]
    dropped: int = 0

    @property
    def width(self) -> int:
        """Characters of the widest line; a header may have several."""
        return max(map(len, [*self.header.split("\n"), *self.cells]))

    @property
    def name(self) -> str:
        """The header in one line."""
        return self.header.replace("\n", " ").strip()


def table_lines(
    names: Sequence[str], columns: Sequence[Column], width: int | None = None
) -> list[list[str]]:
    """The header and every row of a table, each as its lines.

    A name too long for its place has a line of its own above its numbers. Columns that do not fit
    even so are left out, and the last entry names them.
    """
    width = terminal_width() if width is None else width
    kept = list(columns)

    def taken() -> int:
        return sum(len(GAP) + column.width for column in kept)

    while taken() + LEAST_NAME > width and any(column.dropped for column in kept):
        kept.remove(max(kept, key=lambda column: column.dropped))
    longest = max(map(len, names), default=0)
    room = max(LEAST_NAME, min(longest, width - taken()))
    height = max((column.header.count("\n") + 1 for column in kept), default=1)
    headers = [([""] * height + column.header.split("\n"))[-height:] for column in kept]

    def numbers(cells: Sequence[str]) -> str:
        return "".join(f"{GAP}{c:>{column.width}}" for c, column in zip(cells, kept, strict=True))

    rows = [[" " * room + numbers([lines[at] for lines in headers]) for at in range(height)]]
    for place, name in enumerate(names):
        line = numbers([column.cells[place] for column in kept])
        rows.append([f"{name:<{room}}{line}"] if len(name) <= room else [name, " " * room + line])
    left_out = [column.name for column in columns if column not in kept]
    note = f"(no room for {', '.join(left_out)})" if left_out else ""
    return [[line.rstrip() for line in row] for row in rows] + [[note]]
