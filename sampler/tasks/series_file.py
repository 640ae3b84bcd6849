"""Files of labelled time series: what formats have in common, and what no file may contain."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import numpy as np
from jaxtyping import Float

from sampler.errors import InputError, Verbatim


@dataclass(frozen=True)
class Header:
    """What stands before the data; channels and steps are None where the file does not say.

    data_line  the number of the line @data, where lines are counted from 1
    """

    classes: tuple[str, ...]
    data_line: int
    channels: int | None = None
    steps: int | None = None


@dataclass(frozen=True)
class Row:
    """One series as it stands in a line: channels with commas between their values, and a class."""

    line: int
    channels: tuple[str, ...]
    label: str


@dataclass(frozen=True)
class SeriesFile:
    """The series of a file with their classes; `classes` are those declared, in that order."""

    path: Path
    classes: tuple[str, ...]
    values: Float[np.ndarray, "example step channel"]
    labels: tuple[str, ...]


def refuse(path: Path, line: int, value: object, remedy: str) -> NoReturn:
    """Raise InputError that names the file, the line and what stands there."""
    raise InputError(f"{path.name}, line {line}", value, remedy)


def read_lines(path: Path) -> list[str]:
    """The lines of a text file, without white space around them."""
    try:
        # Comments of archive files are not always UTF-8; what matters is ASCII.
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as problem:
        reason = problem.strerror or str(problem)
        raise InputError("task.folder", str(path), f"{reason}; name a folder of series") from None
    return [line.strip() for line in text.splitlines()]


def read_series_file(
    path: Path,
    read_header: Callable[[Path, list[str]], Header],
    read_row: Callable[[Path, int, str], Row],
    comment: str,
) -> SeriesFile:
    """The series of a file whose format reads one header, and then a series a line.

    Lines that begin with `comment` are none. Raises InputError, naming the line, for what cannot be
    used.
    """
    lines = read_lines(path)
    header = read_header(path, lines)
    rows = [
        read_row(path, number, line)
        for number, line in enumerate(lines[header.data_line :], start=header.data_line + 1)
        if line and not line.startswith(comment)
    ]
    return series_of(path, header, rows)


def series_of(path: Path, header: Header, rows: Sequence[Row]) -> SeriesFile:
    """The arrays of the rows. Raises InputError, naming the line, if they do not fit together."""
    if not rows:
        refuse(path, header.data_line, Verbatim("@data"), "no series follow; restore the file")
    channels = header.channels or len(rows[0].channels)
    # Without a word in the header the first channel of the first series sets the length.
    steps = header.steps or rows[0].channels[0].count(",") + 1
    values = np.empty((len(rows), steps, channels))
    for example, row in enumerate(rows):
        if row.label not in header.classes:
            known = ", ".join(header.classes)
            refuse(path, row.line, row.label, f"is no class of the header; declared: {known}")
        if len(row.channels) != channels:
            found = Verbatim(f"{len(row.channels)} dimensions")
            refuse(path, row.line, found, f"every series must have {channels}")
        for channel, text in enumerate(row.channels):
            numbers = read_numbers(path, row.line, channel, text)
            if len(numbers) != steps:
                refuse(
                    path,
                    row.line,
                    Verbatim(f"{len(numbers)} values in dimension {channel + 1}"),
                    f"every dimension must have {steps}: use a problem of equal lengths",
                )
            values[example, :, channel] = numbers
    return SeriesFile(path, header.classes, values, tuple(row.label for row in rows))


def read_numbers(path: Path, line: int, channel: int, text: str) -> list[float]:
    """The values of one dimension. Raises InputError for a missing value and for no number."""
    try:
        numbers = [float(value) for value in text.split(",")]
    except ValueError:
        numbers = [math.nan]
    if all(map(math.isfinite, numbers)):
        return numbers
    wrong = next(value.strip() for value in text.split(",") if not is_finite(value))
    if wrong.lower() in ("?", "nan", ""):
        remedy = f"is missing in dimension {channel + 1}; fill it in, or use a complete problem"
        refuse(path, line, wrong, remedy)
    if wrong.startswith("("):
        refuse(path, line, wrong, "time stamps are not supported; store values at equal steps")
    refuse(path, line, wrong, f"is no finite number, in dimension {channel + 1}")


def is_finite(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False
