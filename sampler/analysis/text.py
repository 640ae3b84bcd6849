"""Numbers as text, with the digits that their errors leave, and text that fits a terminal."""

import math
import re
import shutil
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup, escape

MISSING = "–"
NO_BREAK = "\N{NO-BREAK SPACE}"
DIGITS = 4
# Behind the decimal point, of a value with its error.
MOST_PLACES = 8


@dataclass(frozen=True)
class Number:
    """A value, with its error where it has one; NaN or None means a number that is undefined.

    An error that is None or 0 is not shown, one that is not finite is unknown. A number with an
    error by the finite number of examples as well shows both, the Monte Carlo error first.

    scale: factor for display, 100 for a share in per cent. unit: after it.
    digits: significant ones of a value without an error.
    """

    value: float | int | None
    error: float | int | None = None
    scale: float = 1.0
    unit: str = ""
    digits: int = DIGITS
    test_error: float | int | None = None

    @property
    def defined(self) -> bool:
        return self.value is not None and math.isfinite(self.value)

    @property
    def text(self) -> str:
        """`14.96 ± 0.13`, `14.96 ± ?`, `95.10 ± 0.05 ± 0.68`.

        The larger error to two digits, the value to as many decimals, the other error to at least
        one digit.
        """
        if not self.defined:
            return MISSING
        value = self.value if self.scale == 1.0 else self.scale * float(self.value)
        error, test_error = (
            self.scale * float(one or 0.0) for one in (self.error, self.test_error)
        )
        errors = [error, test_error] if math.isfinite(test_error) and test_error > 0 else [error]
        known = [one for one in errors if math.isfinite(one) and one > 0.0]
        places = places_of(max(known)) if known else None
        if places is None or places > MOST_PLACES:
            texts = [significant(value, self.digits)]
        else:
            texts = [f"{value:z.{places}f}"]
        if errors != [0.0]:
            texts += [error_text(one, places) for one in errors]
        return " ± ".join(texts).replace("-", "−") + self.unit

    @property
    def exactly(self) -> str:
        """The value with all its digits, as programs read it."""
        value: Any = self.value
        return repr(value.item() if hasattr(value, "item") else value)

    def __str__(self) -> str:
        return self.text


def places_of(error: float) -> int:
    """Decimals of a value whose error has two digits."""
    places = max(0, 1 - math.floor(math.log10(error)))
    # 0.0996 is 0.10 to two digits, not 0.100.
    return places - 1 if places and float(f"{error:.{places}f}") >= 10.0 ** (2 - places) else places


def error_text(error: float, places: int | None) -> str:
    """An error with these decimals, or with a digit; a question mark if it is unknown."""
    if error == 0.0:
        return "0"
    if places is None or not math.isfinite(error):
        return "?"
    if places > MOST_PLACES:
        return significant(error, 2)
    text = f"{error:.{places}f}"
    return text if float(text) else significant(error, 1)


def percent(
    value: float | int | None,
    error: float | int | None = None,
    digits: int = 3,
    test_error: float | int | None = None,
) -> Number:
    return Number(value, error, 100.0, f"{NO_BREAK}%", digits, test_error)


def points(value: float | int | None, error: float | int | None = None, digits: int = 3) -> Number:
    """A difference of shares."""
    return Number(value, error, 100.0, f"{NO_BREAK}points", digits)


def count(value: float | int | None) -> Number:
    """A whole number; rounded down, as an effective sample size is."""
    defined = value is not None and math.isfinite(value)
    return Number(math.floor(value) if defined else None)


def counted(number: int, noun: str) -> str:
    """`1 example`, `2 examples`."""
    return f"{number:,} {noun}{'s' * (number != 1)}"


def significant(value: float | int, digits: int) -> str:
    """So many significant digits, with an exponent only where a number would be long."""
    if isinstance(value, int) or value == 0.0:
        return f"{int(value)}"
    if not 1e-4 <= abs(value) < 1e6:
        return f"{value:.{digits - 1}e}"
    # The exponent of the rounded value: 0.99996 is 1.000 to four digits.
    places = digits - 1 - int(f"{value:.{digits - 1}e}".partition("e")[2])
    return f"{value:.{max(0, places)}f}"


# Width of an unknown terminal, and the least width.
USUAL, NARROWEST = 80, 40
# A number and its error, its unit, or its reference.
TOGETHER = re.compile(
    r"(?<=[<=≤≥±\d]) (?=[<=≤≥±?%\d])|(?<=\d) (?=points|nats)|(?<=\w) (?=[<=≤≥] ?[\d-])"
    r"|(?<=ESS|hat) (?=\d)"
)
NEGATIVE = re.compile(r"(?<=[=<>≤≥±][ \N{NO-BREAK SPACE}])-(?=\d)")
IN_BACKTICKS = re.compile(r"`([^`]+)`")


def terminal_width() -> int:
    return max(NARROWEST, shutil.get_terminal_size((USUAL, 24)).columns)


def together(text: str) -> str:
    """Return a text in which no line ends between a number and its error or unit.

    Negative numbers of sentences have the minus sign of tables.
    """
    return NEGATIVE.sub("−", TOGETHER.sub(NO_BREAK, text))


def marked(text: object) -> Markup:
    """A text as a page shows it: escaped, backticks as code."""
    return Markup(IN_BACKTICKS.sub(r"<code>\1</code>", str(escape(together(str(text))))))


def wrapped(text: str, width: int | None = None, further: str = "  ") -> str:
    """Lines of a text broken to the width of the terminal, later ones behind `further`."""
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


def section(title: str, rows: Sequence[tuple[str, str]]) -> str:
    """A title, and below it a name and a text in each line."""
    width = max(len(name) for name, _ in rows)
    lines = [
        wrapped(f"{name:<{width}}  {text}", terminal_width() - 2, further=" " * (width + 2))
        for name, text in rows
    ]
    return "\n".join([title, textwrap.indent("\n".join(lines), "  ")])
