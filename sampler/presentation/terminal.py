"""Text that fits a terminal: paragraphs that break between words, never in a number."""

import re
import shutil
import textwrap
from collections.abc import Sequence

# Where nothing says how wide the terminal is, and what is written for at least.
USUAL, NARROWEST = 80, 40
NO_BREAK = "\N{NO-BREAK SPACE}"
# A number and its error, its unit, or what it is compared with.
TOGETHER = re.compile(r"(?<=[<=±\d]) (?=[<=±%\d])|(?<=\d) (?=points|nats)|(?<=\w) (?=[<=] ?[\d-])")


def terminal_width() -> int:
    """Characters in a line of the terminal."""
    return max(NARROWEST, shutil.get_terminal_size((USUAL, 24)).columns)


def together(text: str) -> str:
    """Return a text in which no line ends between a number and its error or unit."""
    return TOGETHER.sub(NO_BREAK, text)


def wrapped(text: str, width: int | None = None, further: str = "  ") -> str:
    """Lines of a text broken to the width of the terminal, what follows behind `further`."""
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
