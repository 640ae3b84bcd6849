r"""Archives of labelled time series: files of training and test series, and what is read of them.

A file has one series a line after a header that ends in `@data`.

.ts    header of lines `@key value`; dimensions separated by colons, values by commas, the class
       after the last colon; lines of comments begin with # or %
.arff  header with a relational attribute of one numeric attribute per time step, then a nominal one
       of classes; `'1,2,3\n4,5,6',class`, dimensions separated by \n; comments begin with %, on a
       line of their own or after anything else

scipy.io.arff does not refuse a dimension with too many values, and names no lines.
"""

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import NoReturn

import numpy as np
from jaxtyping import Float

from sampler.errors import ABSENT, InputError, Verbatim
from sampler.recipes.sections import Section
from sampler.transformer.classified import Classified, targets_of


@dataclass(frozen=True)
class Header:
    """Facts that stand before the data; channels and steps are None where the file does not say.

    data_line  the number of the line @data, where lines are counted from 1
    """

    classes: tuple[str, ...]
    data_line: int
    channels: int | None = None
    steps: int | None = None


@dataclass(frozen=True)
class SeriesLine:
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


def read_series_file(
    path: Path,
    read_header: Callable[[Path, list[str]], Header],
    read_row: Callable[[Path, int, str], SeriesLine],
    without_comment: Callable[[str], str],
) -> SeriesFile:
    """Read the series of a file whose format has one header, and then a series a line.

    Raises InputError, naming the line, for what cannot be used.
    """
    try:
        # Comments of archive files are not always UTF-8; what matters is ASCII, and editors of
        # some systems put a byte order mark before it.
        text = path.read_text(encoding="utf-8-sig", errors="replace")
    except OSError as problem:
        reason = problem.strerror or str(problem)
        raise InputError("task.folder", path, f"{reason}; name a folder of series") from None
    # Python's own lines also end at form feeds and the like, which may stand in a comment.
    lines = [without_comment(line.strip()) for line in text.removesuffix("\n").split("\n")]
    header = read_header(path, lines)
    rows = [
        read_row(path, number, line)
        for number, line in enumerate(lines[header.data_line :], start=header.data_line + 1)
        if line
    ]
    return series_of(path, header, rows)


def series_of(path: Path, header: Header, rows: Sequence[SeriesLine]) -> SeriesFile:
    """Make the arrays of the rows; InputError, naming the line, if they do not fit together."""
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
    """Read the values of one dimension. Raises InputError for a missing value and for no number."""
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


def read_ts(path: Path) -> SeriesFile:
    """Read a .ts file. Raises InputError, naming the line, for what cannot be used."""
    return read_series_file(path, read_ts_header, read_ts_row, without_ts_comment)


def without_ts_comment(line: str) -> str:
    """Empty a line that is a comment; those of the archive's test sets begin with %."""
    return "" if line.startswith(("#", "%")) else line


def read_ts_header(path: Path, lines: list[str]) -> Header:
    """Read classes, and dimensions and length where they are given; keys in any case."""
    classes: tuple[str, ...] = ()
    sizes: dict[str, int | None] = {"@dimensions": None, "@serieslength": None}
    for number, line in enumerate(lines, start=1):
        key, *values = line.split() or [""]
        key = key.lower()
        if key == "@data":
            if not classes:
                refuse(path, number, Verbatim("@data"), "comes without @classLabel true … before")
            return Header(classes, number, sizes["@dimensions"], sizes["@serieslength"])
        switch = values[0].lower() if values else ""
        if key == "@timestamps" and switch != "false":
            refuse(path, number, line, "time stamps are not supported; store values at equal steps")
        elif key == "@classlabel":
            if switch != "true" or len(values) < 2:
                refuse(path, number, line, "the series need classes: @classLabel true first second")
            classes = tuple(values[1:])
        elif key in sizes:
            if len(values) != 1 or not values[0].isdecimal() or int(values[0]) < 1:
                refuse(path, number, line, "must be a whole number from 1")
            sizes[key] = int(values[0])
        elif line and not line.startswith("@"):
            refuse(path, number, line, "data must come after a line @data")
    refuse(path, max(len(lines), 1), Verbatim("(end of file)"), "no line @data was found")


def read_ts_row(path: Path, number: int, line: str) -> SeriesLine:
    *channels, label = line.split(":")
    if not channels:
        refuse(path, number, line, "must end in a colon and the class of the series")
    return SeriesLine(number, tuple(channels), label.strip())


QUOTED = r"'[^']*'|\"[^\"]*\""
ATTRIBUTE = re.compile(rf"@attribute\s+(?:{QUOTED}|\S+)\s+(?P<type>.+)", re.IGNORECASE)
NUMERIC = ("numeric", "real", "integer")
CLASS_NAME = re.compile(rf"\s*({QUOTED}|[^,'\"]+)\s*(?:,|$)")
UNCOMMENTED = re.compile(rf"(?:{QUOTED}|[^%])*")
SERIES = re.compile(rf"(?P<channels>{QUOTED})\s*,\s*(?P<label>{QUOTED}|[^,]+)")


def read_arff(path: Path) -> SeriesFile:
    """Read an .arff file. Raises InputError, naming the line, for what cannot be used."""
    return read_series_file(path, read_arff_header, read_arff_row, without_arff_comment)


def without_arff_comment(line: str) -> str:
    """Cut a line before the first % that stands outside of quotation marks."""
    return UNCOMMENTED.match(line)[0].rstrip()


def read_arff_header(path: Path, lines: list[str]) -> Header:
    classes: tuple[str, ...] = ()
    steps, inside = 0, False
    for number, line in enumerate(lines, start=1):
        lower = line.lower()
        if lower == "@data":
            if not steps or not classes:
                what = "classes {first,second}" if steps else "numeric ones in a relational one"
                remedy = f"comes without attributes: {what}; use the problem's multivariate file"
                refuse(path, number, Verbatim("@data"), remedy)
            return Header(classes, number, steps=steps)
        if lower.startswith("@end"):
            inside = False
        elif lower.startswith("@attribute"):
            match = ATTRIBUTE.fullmatch(line)
            kind = match["type"].strip() if match else ""
            if inside and kind.lower() in NUMERIC:
                steps += 1
            elif kind.lower() == "relational" and not steps:
                inside = True
            elif kind.startswith("{") and kind.endswith("}") and not inside and not classes:
                classes = tuple(map(unquoted, CLASS_NAME.findall(kind[1:-1])))
            else:
                refuse(path, number, line, "is not one of a multivariate problem: a relational "
                       "attribute of numeric ones, then one of classes {first,second}")  # fmt: skip
        elif line and not lower.startswith("@relation"):
            refuse(path, number, line, "data must come after a line @data")
    refuse(path, max(len(lines), 1), Verbatim("(end of file)"), "no line @data was found")


def read_arff_row(path: Path, number: int, line: str) -> SeriesLine:
    match = SERIES.fullmatch(line)
    if match is None:
        refuse(path, number, line, r"must read '1,2\n3,4',class: dimensions in quotation marks")
    channels = unquoted(match["channels"]).removesuffix(r"\n").split(r"\n")
    return SeriesLine(number, tuple(channels), unquoted(match["label"]))


def unquoted(text: str) -> str:
    text = text.strip()
    return text[1:-1] if text[:1] in "'\"" and text else text


READERS = MappingProxyType({".ts": read_ts, ".arff": read_arff})


@dataclass(frozen=True)
class SeriesArchive:
    """The series of some classes, for training and for the test; `names` are the classes'.

    Each channel is in units of the training series.
    """

    train: Classified
    test: Classified
    names: tuple[str, ...]


def read_archive(settings: Section, two_classes: bool) -> SeriesArchive:
    """Read the series of the classes to tell apart, averaged over neighbouring steps.

    Settings are folder, problem, classes, stride and max_tokens, as of `SeriesArchiveSection`.
    Every channel has mean 0 and variance 1 on the training series; a constant one is 0 there.
    Raises InputError for files that cannot be used, and where it is open which two classes are
    meant.
    """
    folder = Path(settings.folder)
    if not folder.is_dir():
        raise InputError("task.folder", folder, "is no folder; name one with series")
    problem = settings.problem or folder.name
    train, test = (read_series_of(folder, problem, split) for split in ("TRAIN", "TEST"))
    for axis, what in ((2, "dimensions"), (1, "time steps")):
        expected, received = train.values.shape[axis], test.values.shape[axis]
        if received != expected:
            remedy = f"{train.path.name} has {expected}; use files of one problem"
            raise InputError(test.path.name, Verbatim(f"{received} {what}"), remedy)
    names = chosen_classes(settings.classes, train, two_classes)
    stride = settings.stride or -(-train.values.shape[1] // settings.max_tokens)
    splits = [of_classes(file, names, stride) for file in (train, test)]
    learned = splits[0].inputs
    constant = np.ptp(learned, axis=(0, 1)) == 0.0
    mean, scale = learned.mean(axis=(0, 1)), np.where(constant, 1.0, learned.std(axis=(0, 1)))
    return SeriesArchive(*(replace(s, inputs=(s.inputs - mean) / scale) for s in splits), names)


def read_series_of(folder: Path, problem: str, split: str) -> SeriesFile:
    """Read the series of `<problem>_<split>`, from .ts where there are both formats."""
    for suffix, read in READERS.items():
        path = folder / f"{problem}_{split}{suffix}"
        if path.is_file():
            return read(path)
    names = " or ".join(f"{problem}_{split}{suffix}" for suffix in READERS)
    raise InputError("task.folder", folder, f"holds no {names}; put it there, or set task.problem")


def chosen_classes(
    wanted: tuple[str, ...] | None, train: SeriesFile, two_classes: bool
) -> tuple[str, ...]:
    """Return the classes to tell apart. Raises InputError if that is open or impossible."""
    known = ", ".join(train.classes)
    if two_classes and not wanted and len(train.classes) > 2:
        first, second, *_ = train.classes
        remedy = (
            f"{train.path.name} has {len(train.classes)} classes, {known}; name the two to "
            f'separate, as in classes = ["{first}", "{second}"]'
        )
        raise InputError("task.classes", ABSENT, remedy)
    names = wanted or train.classes
    if len(set(names)) < 2:
        raise InputError(train.path.name, known, "declares fewer than two classes; nothing to tell")
    for name in names:
        if name not in train.classes:
            raise InputError("task.classes", name, f"is no class of {train.path.name}: {known}")
        if name not in train.labels:
            raise InputError(train.path.name, name, "no training series is of this class")
    return names


def of_classes(file: SeriesFile, names: tuple[str, ...], stride: int) -> Classified:
    """Select the series of these classes, averaged over neighbouring steps; number the classes."""
    places = {name: place for place, name in enumerate(names)}
    classes = np.array([places.get(label, -1) for label in file.labels])
    kept = classes >= 0
    if not kept.any():
        raise InputError(file.path.name, list(names), "no series is of these classes")
    classes = classes[kept]
    return Classified(averaged(file.values[kept], stride), classes, targets_of(classes, len(names)))


def averaged(
    values: Float[np.ndarray, "example step channel"], stride: int
) -> Float[np.ndarray, "example token channel"]:
    """Average over `stride` neighbouring steps, the last time over what is left."""
    starts = np.arange(0, values.shape[1], stride)
    counts = np.diff(np.append(starts, values.shape[1]))
    return np.add.reduceat(values, starts, axis=1) / counts[:, None]
