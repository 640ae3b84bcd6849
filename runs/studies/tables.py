"""Tables and numbers of pages: as text, and where they stand on a page.

On a page a table stands below a comment with its study and its name, <!-- STUDY: NAME -->. A single
number stands between two comments, <!-- STUDY: PATH @DIGITS*FACTOR -->1.2 ± 0.3<!-- -->; the digits
are those that its error leaves it, and the factor is 1, where nothing else is said. In a table of
Markdown an upright stroke of a path is written \\|.
"""

import math
import re
from collections.abc import Mapping
from pathlib import Path

RUNS = Path(__file__).resolve().parents[1]
FOLDERS = (RUNS.parent / "docs" / "findings", RUNS / "studies")
Table = list[list[str]]  # lines of cells; the first is that of the heads
PLACE = re.compile(r"(<!-- (\w+): ([^\n>]+) -->\n)((?:\|.*\n)*)")
NUMBER = re.compile(r"(<!-- (\w+): ([^>]+?)(?: @(\d*)(?:\*([\d.]+))?)? -->)([^<\n]+)(<!-- -->)")


def put_on_pages(study: str, tables: Mapping[str, Table], numbers: Mapping) -> None:
    """Put tables and numbers of a study into the pages that show them."""
    for page in pages():
        text = with_tables(page.read_text(encoding="utf-8"), study, tables)
        page.write_text(with_numbers(text, study, numbers), encoding="utf-8")


def pages() -> list[Path]:
    """The pages on which tables stand."""
    return sorted(page for folder in FOLDERS for page in folder.rglob("*.md"))


def with_tables(text: str, study: str, tables: Mapping[str, Table]) -> str:
    """The text of a page with the tables of a study below their comments."""

    def anew(found: re.Match) -> str:
        comment, of, name, _ = found.groups()
        return comment + markdown(tables[name]) if of == study else found[0]

    return PLACE.sub(anew, text)


def with_numbers(text: str, study: str, numbers: Mapping) -> str:
    """The text of a page with single numbers of a study between their comments."""

    def anew(found: re.Match) -> str:
        comment, of, path, digits, times, _, end = found.groups()
        if of != study:
            return found[0]
        number = at(numbers, path.replace("\\|", "|"))
        if number is None:
            raise KeyError(f"{study} has no number {path}")
        text = cell(number, int(digits) if digits else None, float(times or 1.0))
        return f"{comment}{text}{end}"

    return NUMBER.sub(anew, text)


def markdown(table: Table) -> str:
    """Lines of cells as a page has them."""
    first, *lines = (f"| {' | '.join(line)} |\n".replace("|  |", "| |") for line in table)
    return "".join([first, "|" + "---|" * (first.count("|") - 1) + "\n", *lines])


def table(first: str, rows: Mapping[str, Mapping], columns: Mapping[str, tuple]) -> Table:
    """Numbers of rows, by columns.

    first    head of the first column, "a | b" of the first two, as in the labels of rows
    columns  head → path to the number, its digits, None for those that its error leaves it, and by
             what it is multiplied
    """
    lines = [
        [label, *(cell(at(numbers, path), *how) for path, *how in columns.values())]
        for label, numbers in rows.items()
    ]
    return [[first, *columns], *lines]


def at(numbers: object, path: str) -> object:
    """What stands at a path, "key/key", of nested numbers; None where it ends before.

    Keys may have strokes themselves.
    """
    if not path or not isinstance(numbers, Mapping):
        return None if path else numbers
    key = next((key for key in numbers if f"{path}/".startswith(f"{key}/")), None)
    return None if key is None else at(numbers[key], path[len(key) + 1 :])


def cell(number: object, digits: int | None = None, times: float = 1.0) -> str:
    """A number as a table shows it, with its error or its interval; a dash for none."""
    if number is None:
        return "—"
    if isinstance(number, str):
        return number
    if not isinstance(number, Mapping):
        text = f"{times * number:.{digits or 0}f}"
        return text.removeprefix("-") if float(text) == 0 else text.replace("-", "−")
    if digits is None:
        digits = known_digits(abs(times) * (number["error"] or 0.0))
    value = cell(number["value"], digits, times)
    if "low" in number:
        low, high = (cell(number[end], digits, times) for end in ("low", "high"))
        return f"{value} ({low} to {high})"
    return (
        value
        if number["error"] is None
        else f"{value} ± {cell(number['error'], digits, abs(times))}"
    )


def known_digits(error: float) -> int:
    """Two digits of an error that begins with 1, one of others."""
    if not error:
        return 0
    power = math.floor(math.log10(error))
    return max(0, (error < 2.0 * 10.0**power) - power)
