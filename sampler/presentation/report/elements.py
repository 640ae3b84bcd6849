"""What a page is made of: tables, links, pictures."""

import base64
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from sampler.analysis.numbers import Number
from sampler.presentation.style import FigureEntry

# Pixels on the page for a pixel of a figure: text as large as the page's, and sharp.
SHOWN = 0.75


@dataclass(frozen=True)
class Link:
    """A text that leads somewhere."""

    text: str
    target: str

    def __html__(self) -> Markup:
        return Markup('<a href="{}">{}</a>').format(self.target, self.text)


Cell = str | Number | Link


@dataclass(frozen=True)
class Table:
    """A table whose first column names its rows; rows: [row][column]."""

    caption: str
    header: Sequence[str]
    rows: Sequence[Sequence[Cell]]

    @property
    def columns(self) -> list[tuple[str, bool]]:
        """Name of every column, and whether there are numbers in it."""
        columns = zip(self.header, *self.rows, strict=True)
        return [(name, any(isinstance(c, Number) for c in cells)) for name, *cells in columns]


@dataclass(frozen=True)
class Picture:
    """A figure inside the page, with its words."""

    png: Path
    entry: FigureEntry

    @property
    def name(self) -> str:
        """The name of its file, and of its place on the page."""
        return self.png.stem

    @property
    def source(self) -> str:
        """The picture itself, as text."""
        return f"data:image/png;base64,{base64.b64encode(self.png.read_bytes()).decode('ascii')}"

    @property
    def size(self) -> tuple[int, int]:
        """Width and height in pixels of the page."""
        with self.png.open("rb") as file:
            width, height = struct.unpack(">II", file.read(24)[16:])  # the header of a PNG
        return round(SHOWN * width), round(SHOWN * height)


@cache
def templates() -> Environment:
    """The templates of the pages; every text is escaped."""
    loader = PackageLoader("sampler.presentation.report")
    environment = Environment(loader=loader, autoescape=True, undefined=StrictUndefined)
    environment.tests["number"] = lambda cell: isinstance(cell, Number)
    return environment
