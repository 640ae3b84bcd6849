"""Sections and tables that the directives of this site are made of."""

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.util.docutils import SphinxDirective


class Written(SphinxDirective):
    """A directive that writes sections of a page in the language of that page."""

    def section(self, title: str, lines: list[str], name: str = "") -> nodes.section:
        """Return a section with this text below its title, and an address of its own."""
        made = nodes.section(
            ids=[nodes.make_id(name or title)], names=[nodes.fully_normalize_name(name or title)]
        )
        made += nodes.title(title, title)
        self.state.document.note_implicit_target(made, made)
        self.write(lines, made)
        return made

    def write(self, lines: list[str], parent: nodes.Element) -> None:
        source, _ = self.get_source_info()
        self.state.nested_parse(StringList(lines, source=source), self.content_offset, parent)


def table(head: list[str], rows: list[list[str]]) -> list[str]:
    """Write a table in Markdown; bars within a cell begin no new cell."""
    cells = [[cell.replace("|", "\\|") for cell in row] for row in rows]
    lines = [head, ["---"] * len(head), *cells]
    return ["", *(f"| {' | '.join(line)} |" for line in lines), ""]
