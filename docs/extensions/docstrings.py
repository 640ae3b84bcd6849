"""Docstrings as Sphinx reads them: here they are plain text, `code`, equations, tables of names."""

import re
from itertools import pairwise

SPECIAL = re.compile(r"([\\*_|])")
CODE = re.compile(r"(`[^`]+`)")
# A row of a table, `name  meaning`; its further lines are indented as far as the meaning.
ROW = re.compile(r"(\S+(?:, \S+)*) {2,}(?=\S)")
# Names that are too long for that have their meaning on the next line, indented.
NAMES = re.compile(r"(\w+(?:, \w+)*)$")


def as_restructured_text(lines: list[str]) -> list[str]:
    """Translate a docstring into reStructuredText: indented lines stay as they are."""
    written: list[str] = []
    kind = ""
    for line, following in pairwise([*lines, ""]):
        before, kind = kind, kind_of(line, following, kind)
        if kind != before and line.strip():
            written += ["", "::", ""] if kind == "verbatim" else [""]
        if kind == "verbatim" or not line.strip():
            written.append(line)
        elif kind == "table":
            written.append(row(line))
        else:
            written.append(escaped(line))
    return written


def kind_of(line: str, following: str, before: str) -> str:
    """Return "text", "table" or "verbatim": blank lines and continued rows are as those before."""
    if not line.strip() or (before == "table" and line.startswith("  ")):
        return before
    if line.startswith("    "):
        return "verbatim"
    alone = NAMES.match(line) and following.startswith("    ")
    return "table" if alone or ROW.match(line) else "text"


def row(line: str) -> str:
    """Translate one row of a table; a continued row belongs to the line before it."""
    found = ROW.match(line) or NAMES.match(line)
    if not found:
        return f"  {escaped(line.strip())}"
    return f"| **{escaped(found[1])}** {escaped(line[found.end() :])}"


def escaped(line: str) -> str:
    """Escape a line of prose, in which nothing but `code` has a meaning of its own."""
    parts = CODE.split(line)
    parts[::2] = [SPECIAL.sub(r"\\\1", part) for part in parts[::2]]
    # Code that touches a word would not be read as code.
    parts[1::2] = [f"`{part}`\\ " for part in parts[1::2]]
    return "".join(parts)


def rewrite(app, what, name, thing, options, lines: list[str]) -> None:
    lines[:] = as_restructured_text(lines)


def without_factories(app, what, name, thing, options, signature, returned):
    """Leave out a signature where a default is made anew each time: it would be no Python."""
    return ("", returned) if "<factory>" in (signature or "") else None


def setup(app) -> dict:
    app.connect("autodoc-process-signature", without_factories)
    app.connect("autodoc-process-docstring", rewrite)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
