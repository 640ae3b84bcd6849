"""Reads an HTML page strictly: every element closed, tables as cells, images with their texts."""

import shutil
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path

from sampler.presentation.report import write_report
from tests import FIXTURES

# Two chains of 40 draws, whose diagnostics fail: `run` of its `recipe.toml` makes it anew.
STORED = FIXTURES / "finished"
VOID = ("br", "img", "link", "meta")
# Elements whose text begins on a new line.
BLOCKS = ("h1", "h2", "h3", "li", "p", "summary")


@dataclass
class Table:
    """A table as a reader sees it; `values` holds the full number behind a cell, or None."""

    caption: str = ""
    rows: list[list[str]] = field(default_factory=list)
    values: list[list[str | None]] = field(default_factory=list)

    def row(self, name: str) -> list[str]:
        found = [row for row in self.rows if row[0] == name]
        assert len(found) == 1, f"{name}: {len(found)} rows in {self.caption!r}"
        return found[0]


class Page(HTMLParser):
    """A parsed page; AssertionError where an element is not closed, or closed before another."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.elements: list[tuple[str, dict]] = []
        self.tables: list[Table] = []
        self.text = ""
        self.feed(text)
        self.close()
        assert not self.open, f"left open: {self.open}"

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        assert len(attributes) == len(attrs), f"{tag} repeats an attribute: {attrs}"
        self.elements.append((tag, attributes))
        if tag == "table":
            self.tables.append(Table())
        elif tag == "tr":
            self.tables[-1].rows.append([])
            self.tables[-1].values.append([])
        elif tag in ("td", "th"):
            self.tables[-1].rows[-1].append("")
            self.tables[-1].values[-1].append(None)
        elif tag == "data":
            self.tables[-1].values[-1][-1] = attributes["value"]
        if tag in BLOCKS:
            self.text += "\n"
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag, f"</{tag}> closes another element"

    def handle_data(self, data):
        if "style" in self.open:
            return
        self.text += data.replace("\N{NO-BREAK SPACE}", " ")
        if "caption" in self.open:
            self.tables[-1].caption += data
        elif {"td", "th"} & set(self.open):
            self.tables[-1].rows[-1][-1] += data

    def named(self, tag: str) -> list[dict]:
        """Attributes of every element of this name."""
        return [attributes for name, attributes in self.elements if name == tag]

    def table(self, caption: str) -> Table:
        """The only table whose caption begins so."""
        found = [table for table in self.tables if table.caption.startswith(caption)]
        assert len(found) == 1, f"{len(found)} tables begin with {caption!r}"
        return found[0]


def stored_run(directory: Path, *files: str) -> Path:
    """A copy of the stored run, of these files alone if there are any."""
    directory.mkdir(parents=True)
    for file in STORED.iterdir():
        if not files or file.name in files:
            shutil.copy(file, directory / file.name)
    return directory


def page_of(directory: Path) -> Page:
    return Page(write_report(directory)[-1].read_text(encoding="utf-8"))
