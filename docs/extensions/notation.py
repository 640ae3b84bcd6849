"""Directives `notation` and `theory-modules`: pages made of the docstring of `theory`."""

import re

from pages import Written, table

import theory

HEAD = ["on paper", "in code", "axes, meaning"]


def notation_rows() -> list[list[str]]:
    """Read the table in the docstring of the package: columns are two or more spaces apart."""
    lines = (theory.__doc__ or "").split("\n")
    begin = next(i for i, line in enumerate(lines) if line.startswith("Notation"))
    block = lines[begin + 2 :]
    found = []
    for line in block[: block.index("")]:
        symbol, word, *rest = re.split(r" {2,}", line.strip(), maxsplit=2)
        found.append([symbol, word, "".join(rest)])
    return found


class Notation(Written):
    """The symbols of the theory, their names in the code, and the axes of their arrays."""

    def run(self) -> list:
        parent = self.state.document.__class__("", self.state.document.reporter)
        rows = [
            [f"`{symbol}`", word, rest.replace("[", "\\[")]
            for symbol, word, rest in notation_rows()
        ]
        self.write(table(HEAD, rows), parent)
        return parent.children


class TheoryModules(Written):
    """Every module of the theory in reading order, with its public names."""

    def run(self) -> list:
        return [
            self.section(
                f"theory.{module}",
                [
                    f".. automodule:: theory.{module}",
                    f"   :members: {', '.join(names.split())}",
                    "",
                ],
            )
            for module, names in theory.CONTENTS.items()
        ]


def setup(app) -> dict:
    app.add_directive("notation", Notation)
    app.add_directive("theory-modules", TheoryModules)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
