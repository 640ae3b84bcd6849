"""The one table of this program: a value with three renderers, for terminal, pages and pandas.

Whoever has something to tabulate builds a `Table`; the same value is printed (`text`), put on a
page or into a notebook (`_repr_html_`) and handed on as a DataFrame (`to_dataframe`).
"""

import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, replace
from io import StringIO
from typing import TYPE_CHECKING

from markupsafe import Markup

from sampler.analysis.text import (
    DIGITS,
    MISSING,
    NO_BREAK,
    Number,
    terminal_width,
    together,
    wrapped,
)

if TYPE_CHECKING:
    import pandas

GAP = "  "
LEAST_NAME = 20
# What stands before the decimal point of a number; everything, where there is no number.
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

    header    what stands above it
    key       its name in a DataFrame; the header where it is empty
    error     name of the errors of its numbers in a DataFrame; empty where they have none there
    meaning   a sentence that a page shows when the header is pointed at
    unit, scale, digits   of plain numbers in it, as in `Number`
    dropped   the larger, the earlier it is left out on a narrow terminal; 0: never
    """

    header: str
    key: str = ""
    error: str = ""
    meaning: str = ""
    unit: str = ""
    scale: float = 1.0
    digits: int = DIGITS
    dropped: int = 0

    def cell(self, given: object) -> Cell:
        """A cell of this column: text, a link or a number; None is a number that is not known."""
        if isinstance(given, str | Number | Link):
            return given
        value, error = given if isinstance(given, tuple) else (given, None)
        return Number(value, error, self.scale, self.unit, self.digits)


@dataclass(frozen=True)
class Table:
    """A table whose first column names its rows.

    title    its subject, in a few words
    columns  of type `Column`; a mere header is given as text
    rows     [row][column]: texts, links, numbers, and pairs of a number and its error
    caption  how it is read, for pages
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
        # A frozen dataclass leaves no other way to keep what was normalised.
        object.__setattr__(self, "columns", columns)
        object.__setattr__(self, "rows", rows)

    def __bool__(self) -> bool:
        return bool(self.rows)

    @property
    def shown(self) -> "list[tuple[Column, list[Cell]]]":
        """Columns with their cells; those that say nothing in any row are left out."""
        cells = zip(*self.rows, strict=True) if self.rows else ([] for _ in self.columns)
        first, *others = zip(self.columns, map(list, cells), strict=True)
        return [first, *(one for one in others if any(map(says_something, one[1])))]

    def text(
        self,
        width: int | None = None,
        indent: str = "",
        elsewhere: str = "",
        most: int | None = None,
    ) -> str:
        """Lines for a terminal, of so many rows at most.

        Columns that do not fit are left out and counted below, with `elsewhere`, the place where
        all of them are.
        """
        width = (terminal_width() if width is None else width) - len(indent)
        shown = replace(self, rows=self.rows[:most]).shown
        text, hidden = printed(shown, width)
        lines = [wrapped(self.title, width)] if self.title else []
        lines.append(text)
        missing = [f"{hidden} column{'s' * (hidden > 1)}"] if hidden else []
        missing += [f"{len(self.rows) - most} rows"] if most and most < len(self.rows) else []
        if missing:
            where = f"; see {elsewhere}" if elsewhere else ""
            lines.append(wrapped(f"({' and '.join(missing)} hidden{where})", width))
        return textwrap.indent("\n".join(lines), indent)

    def __str__(self) -> str:
        return self.text()

    def __html__(self) -> Markup:
        """Return the table in a box that scrolls by itself; the full value stands beside a number.

        The first column names the rows; numbers are aligned on the right, their headers too.
        """
        caption = f"{self.title}. {self.caption}".strip() if self.title else self.caption
        columns = self.shown
        head = Markup("").join(
            Markup('<th scope="col"{}{}>{}</th>').format(
                number_class(cells),
                Markup(' title="{}"').format(column.meaning) if column.meaning else "",
                column.header,
            )
            for column, cells in columns
        )
        body = Markup("\n").join(
            Markup('<tr><th scope="row">{}</th>{}</tr>').format(
                cell_html(name),
                Markup("").join(
                    Markup("<td{}>{}</td>").format(number_class(cells), cell_html(cells[row]))
                    for _, cells in columns[1:]
                ),
            )
            for row, name in enumerate(columns[0][1])
        )
        return Markup(
            '<div class="scroll" role="group" aria-label="{caption}" tabindex="0"><table>\n'
            "<caption>{caption}</caption>\n<thead><tr>{head}</tr></thead>\n"
            "<tbody>\n{body}\n</tbody></table></div>\n"
        ).format(caption=caption, head=head, body=body)

    def _repr_html_(self) -> str:
        return str(self.__html__())

    def to_dataframe(self) -> "pandas.DataFrame":
        """The rows by name, numbers in full; errors have a column where theirs has a name."""
        import pandas

        frame = {}
        for place, column in enumerate(self.columns[1:], start=1):
            cells = [row[place] for row in self.rows]
            frame[column.key or column.header] = [plain_value(cell) for cell in cells]
            if column.error:
                frame[column.error] = [getattr(cell, "error", None) for cell in cells]
        first = self.columns[0]
        names = pandas.Index([str(row[0]) for row in self.rows], name=first.key or None)
        table = pandas.DataFrame(frame, names)
        numeric = [name for name in table if not table[name].map(type).eq(str).any()]
        return table.astype(dict.fromkeys(numeric, float))


def says_something(cell: Cell) -> bool:
    """Whether a cell has a text, or a number that is defined."""
    return cell.defined if isinstance(cell, Number) else bool(str(cell))


def plain_value(cell: Cell) -> object:
    """Return a cell for a DataFrame: a number as it was computed, or text."""
    return cell.value if isinstance(cell, Number) else str(cell)


# --- on a page


def number_class(cells: Sequence[Cell]) -> Markup | str:
    """The class of cells of a column in which there are numbers."""
    return Markup(' class="number"') if holds_numbers(cells) else ""


def holds_numbers(cells: Sequence[Cell]) -> bool:
    """Whether a column holds numbers, some of them perhaps as text such as `< 5 %`."""
    return any(isinstance(cell, Number) for cell in cells)


def cell_html(cell: Cell) -> Markup | str:
    """A cell of a page; programs find the full value of a number beside its rounded text."""
    if isinstance(cell, Link):
        return Markup('<a href="{}">{}</a>').format(cell.target, cell.text)
    if isinstance(cell, Number) and cell.defined:
        value = cell.value.item() if hasattr(cell.value, "item") else cell.value
        return Markup('<data value="{}">{}</data>').format(repr(value), cell.text)
    return Markup.escape(together(str(cell)))


# --- on a terminal


def cell_texts(cells: Sequence[Cell]) -> list[str]:
    """Cells as text; decimal points of numbers stand below each other."""
    texts = [str(cell).replace(NO_BREAK, " ") for cell in cells]
    if not holds_numbers(cells):
        return texts
    behind = [len(text) - len(WHOLE_PART.match(text)[0]) for text in texts]
    most = max(behind)
    padded = zip(texts, behind, strict=True)
    return [text if text == MISSING else text + " " * (most - n) for text, n in padded]


def width_of(header: str, texts: Sequence[str]) -> int:
    """Characters of the widest cell, or of the longest word of the header."""
    return max(map(len, [*texts, *header.split()]), default=0)


def printed(columns: Sequence[tuple[Column, list[Cell]]], width: int) -> tuple[str, int]:
    """A table for a terminal of so many characters, and how many columns had no room."""
    from rich.console import Console
    from rich.table import Table as RichTable

    shown = [(column, cells, cell_texts(cells)) for column, cells in columns]
    name, _, names = shown[0]
    first = min(width_of(name.header, names), LEAST_NAME)

    def needed() -> int:
        others = (width_of(column.header, texts) for column, _, texts in shown[1:])
        return first + sum(len(GAP) + each for each in others)

    while needed() > width and any(column.dropped for column, *_ in shown[1:]):
        shown.remove(max(shown[1:], key=lambda one: one[0].dropped))
    with_headers = any(column.header for column, *_ in shown)
    padding = (0, len(GAP), 0, 0)
    table = RichTable(box=None, padding=padding, pad_edge=False, show_header=with_headers)
    # Beside a name of several lines numbers stand on its last one, texts on its first.
    vertical = "bottom" if any(holds_numbers(cells) for _, cells, _ in shown[1:]) else "top"
    for place, (column, cells, texts) in enumerate(shown):
        numbers = holds_numbers(cells) and place > 0
        table.add_column(
            column.header,
            justify="right" if numbers else "left",
            vertical=vertical,
            width=width_of(column.header, texts) if numbers else None,
            overflow="fold",
        )
    for row in zip(*(texts for _, _, texts in shown), strict=True):
        table.add_row(*row)
    console = Console(
        file=StringIO(), width=width, color_system=None, highlight=False, markup=False, emoji=False
    )
    console.print(table)
    lines = [line.rstrip() for line in console.file.getvalue().splitlines()]
    return "\n".join(lines), len(columns) - len(shown)
