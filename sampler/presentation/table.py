"""A table as a value, with two forms: text of a terminal, by rich, and HTML."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from io import StringIO
from typing import TYPE_CHECKING

from sampler.analysis.text import (
    DIGITS,
    NO_BREAK,
    Number,
    counted,
    terminal_width,
    wrapped,
)
from sampler.presentation.templates import templates

if TYPE_CHECKING:
    from rich.table import Table as RichTable

LEAST_NAME = 20  # characters that a name has room for before columns are left out
# Digits before the decimal point of a number; everything, where there is no number.
WHOLE_PART = re.compile(r"\D*\d*")


@dataclass(frozen=True)
class Link:
    """A text that leads somewhere."""

    text: str
    target: str

    def __str__(self) -> str:
        return self.text


Cell = str | Number | Link


@dataclass(frozen=True)
class Column:
    """A column of a table: header, meaning and form.

    meaning   a sentence that a page shows when the header is pointed at
    unit, scale, digits   of plain numbers in it, as in `Number`
    dropped   the larger, the earlier it is left out on a narrow terminal; 0: never
    """

    header: str
    meaning: str = ""
    unit: str = ""
    scale: float = 1.0
    digits: int = DIGITS
    dropped: int = 0

    def cell(self, given: object) -> Cell:
        """A cell of this column: text, a link, a number, or a number with its errors."""
        if isinstance(given, str | Number | Link):
            return given
        value, *errors = given if isinstance(given, tuple) else (given,)
        error, test_error = (*errors, None, None)[:2]
        return Number(value, error, self.scale, self.unit, self.digits, test_error)


@dataclass(frozen=True)
class Table:
    """A table whose first column names its rows.

    title    its subject, in a few words
    columns  of type `Column`; a mere header is given as text
    rows     [row][column]: texts, links, numbers, and a number with its error, or with both errors
    caption  how it is read, below it on pages
    """

    title: str
    columns: Sequence[Column | str]
    rows: Sequence[Sequence[object]]
    caption: str = ""

    def __post_init__(self) -> None:
        columns = tuple(Column(c) if isinstance(c, str) else c for c in self.columns)
        rows = tuple(
            tuple(column.cell(given) for column, given in zip(columns, row, strict=True))
            for row in self.rows
        )
        # A frozen dataclass leaves no other way to store the normalised value.
        object.__setattr__(self, "columns", columns)
        object.__setattr__(self, "rows", rows)

    def __bool__(self) -> bool:
        return bool(self.rows)

    @property
    def shown(self) -> "list[tuple[Column, list[Cell]]]":
        """Columns with their cells; those that are empty in every row are left out."""
        cells = zip(*self.rows, strict=True) if self.rows else ([] for _ in self.columns)
        first, *others = zip(self.columns, map(list, cells), strict=True)
        return [first, *(pair for pair in others if not all(map(is_empty, pair[1])))]

    # --- on a terminal

    def text(self, width: int | None = None, elsewhere: str = "", most: int | None = None) -> str:
        """Lines for a terminal, of a limited number of rows.

        Columns that do not fit are left out and counted below, with `elsewhere`, the place where
        all of them are.
        """
        width = terminal_width() if width is None else width
        every = replace(self, rows=self.rows[:most]).shown
        lines, fitting = printed(every, width)
        if self.title:
            lines.insert(0, wrapped(self.title, width))
        hidden, rows = len(every) - fitting, len(self.rows) - (most or len(self.rows))
        missing = [counted(hidden, "column")] if hidden else []
        missing += [counted(rows, "row")] if rows > 0 else []
        if missing:
            where = f"; see {elsewhere}" if elsewhere else ""
            lines.append(wrapped(f"({' and '.join(missing)} hidden{where})", width))
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.text()

    # --- on a page

    def __html__(self) -> str:
        """HTML in a box that scrolls; the full value of rounded numbers attached."""
        return (
            templates()
            .get_template("table.html")
            .render(
                title=self.title or "Table",
                caption=self.caption,
                columns=self.shown,
                holds_numbers=holds_numbers,
            )
        )

    def _repr_html_(self) -> str:
        return self.__html__()


def is_empty(cell: Cell) -> bool:
    """Whether a cell has neither a text nor a number that is defined."""
    return not cell.defined if isinstance(cell, Number) else not str(cell)


def holds_numbers(cells: Sequence[Cell]) -> bool:
    """Whether a column holds numbers, some of them perhaps as text such as `< 5 %`."""
    return any(isinstance(cell, Number) for cell in cells)


def printed(columns: Sequence[tuple[Column, list[Cell]]], width: int) -> tuple[list[str], int]:
    """Lines of a table of limited width, and the number of columns with room."""
    from rich.console import Console
    from rich.measure import Measurement

    file, shown = StringIO(), list(columns)
    console = Console(file=file, width=width, color_system=None, highlight=False, emoji=False)
    boundless = console.options.update(width=10_000)
    table = rich_table(shown)
    while Measurement.get(console, boundless, table).minimum > width:
        droppable = [pair for pair in shown[1:] if pair[0].dropped]
        if not droppable:
            break
        shown.remove(max(droppable, key=lambda pair: pair[0].dropped))
        table = rich_table(shown)
    # Names make room first: rich would take it from other texts alike, and cut off the end.
    least, natural = Measurement.get(console, boundless, table)
    if least <= width < natural:
        names = table.columns[0]
        longest = max(map(len, cell_texts([str(names.header), *shown[0][1]])))
        names.width = max(names.min_width, longest - (natural - width))
    console.print(table)
    return [line.rstrip() for line in file.getvalue().splitlines()], len(shown)


def rich_table(columns: Sequence[tuple[Column, list[Cell]]]) -> "RichTable":
    """A table without lines: numbers are never broken, names and headers are between words."""
    from rich.table import Table as RichTable
    from rich.text import Text

    headed = any(column.header for column, _ in columns)
    table = RichTable(box=None, padding=(0, 2, 0, 0), pad_edge=False, show_header=headed)
    # For a name of several lines numbers are on its last line, texts on its first.
    numbers = [place > 0 and holds_numbers(cells) for place, (_, cells) in enumerate(columns)]
    texts = [cell_texts(cells) for _, cells in columns]
    for is_number, (column, _), cells in zip(numbers, columns, texts, strict=True):
        width = max([width_in_two_lines(column.header), *map(len, cells)])
        table.add_column(
            Text(column.header),
            justify="right" if is_number else "left",
            vertical="bottom" if any(numbers) else "top",
            width=width if is_number else None,
            min_width=min(LEAST_NAME, width),
            overflow="fold",
        )
    for row in zip(*texts, strict=True):
        table.add_row(*map(Text, row))
    return table


def width_in_two_lines(header: str) -> int:
    """Characters that a header needs where it is broken between words at most once."""
    words = header.split() or [""]
    parts = ((words[:at], words[at:]) for at in range(1, len(words) + 1))
    return min(max(len(" ".join(part)) for part in both) for both in parts)


def cell_texts(cells: Sequence[Cell]) -> list[str]:
    """Cells as text; numbers aligned at the decimal point."""
    texts = [str(cell).replace(NO_BREAK, " ") for cell in cells]
    if not holds_numbers(cells):
        return texts
    numbers = [any(map(str.isdigit, text)) for text in texts]
    behind = [len(text) - len(WHOLE_PART.match(text)[0]) for text in texts]
    most = max((n for n, is_number in zip(behind, numbers, strict=True) if is_number), default=0)
    padded = zip(texts, behind, numbers, strict=True)
    return [text + " " * (most - n) if is_number else text for text, n, is_number in padded]
