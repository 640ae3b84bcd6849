"""Reads numbers as they are shown, with errors and units, and holds them against stored ones."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

NUMBER = r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?"
# Units, and what a number is multiplied by to be shown in them.
SCALES = {"%": 100.0, "points": 1.0, "nats": 1.0, "MiB": 2.0**-20}
CELL = re.compile(
    rf"(?P<below>< )?(?P<value>{NUMBER})(?P<errors>(?: ± (?:{NUMBER}|\?))*)"
    rf"(?: (?P<unit>{'|'.join(SCALES)}))?"
)


@dataclass(frozen=True)
class Shown:
    """A number as it is shown: texts of value and errors, unit, and whether it is a bound."""

    value: str
    errors: tuple[str, ...]
    unit: str
    below: bool

    def shows(self, value: float, errors: Sequence[float] = (), unit: str = "") -> bool:
        """Whether these are the numbers, to the digits that there are, and at least two of them.

        A single error of 0 is not shown, one that is unknown is a question mark. Of two errors the
        larger one has two digits, and as many places as the value.
        """
        errors = [error for error in errors if error != 0.0] if len(errors) < 2 else list(errors)
        if unit != self.unit or len(errors) != len(self.errors):
            return False
        scale = SCALES[unit] if unit else 1.0
        largest = max((error for error in errors if not np.isnan(error)), default=np.nan)
        for text, error in zip(self.errors, errors, strict=True):
            if np.isnan(error) != (text == "?"):
                return False
            if text != "?" and not rounds_to(scale * error, text, error < largest):
                return False
            if error == largest and places(self.value) < places(text):
                return False
        return rounds_to(scale * value, self.value, bool(self.errors))


def plain(text: str) -> str:
    """The text with usual spaces and minus signs."""
    return text.replace("\N{NO-BREAK SPACE}", " ").replace("−", "-").strip()


def read(text: str) -> Shown:
    """A cell that holds a number; ValueError for any other."""
    match = CELL.fullmatch(plain(text))
    if match is None:
        raise ValueError(f"{text!r} is no number with errors and a unit")
    return shown_of(match)


def shown_of(match: re.Match) -> Shown:
    errors = tuple(match["errors"].split(" ± ")[1:])
    return Shown(match["value"], errors, match["unit"] or "", bool(match["below"]))


def places(text: str) -> int:
    """How many digits are behind the decimal point, of a number without an exponent."""
    return len(text.partition("e")[0].partition(".")[2]) - int(text.partition("e")[2] or 0)


def rounds_to(value: float, text: str, with_error: bool = False) -> bool:
    """Whether a number is what the text says, rounded to its last digit."""
    digits = len(text.partition("e")[0].replace(".", "").replace("-", "").lstrip("0"))
    few = digits < 2 and places(text) > 0 and not with_error
    step = 10.0 ** -places(text)
    exact = float(text) == value
    return exact or (not few and abs(float(text) - value) <= 0.5 * step * (1 + 1e-9) + 1e-15)


def assert_shows(text: str, value: float, errors: Sequence[float] = (), unit: str = "", what=""):
    """A cell shows this number; one that is undefined is a dash."""
    if np.isnan(value):
        assert plain(text) in ("–", ""), f"{what}: {text!r}, nothing is known"
        return
    shown = read(text)
    assert shown.shows(value, errors, unit), f"{what}: {text!r}, stored {value} ± {errors} {unit}"


def numbers_in(text: str) -> list[Shown]:
    """Every number of a sentence, with errors and units as far as they stand behind it."""
    pattern = re.compile(rf"(?<![\w.₀-₉]){CELL.pattern}(?![\w₀-₉])")
    return [shown_of(match) for match in pattern.finditer(plain(text))]


def rows_of(block: str) -> dict[str, list[str]]:
    """Rows of a printed table: the name, and the cells beside it that are not empty."""
    rows = {}
    for line in block.splitlines():
        name, *cells = re.split(r"\s{2,}", line.strip())
        if cells:
            rows.setdefault(name, cells)
    return rows
