r"""The multivariate .arff files of the UEA archive.

A relational attribute with one numeric attribute per time step, then a nominal one of classes;
after @data one series a line, `'1,2,3\n4,5,6',class`, its dimensions separated by \n in quotation
marks. Lines that begin with % are comments. scipy.io.arff reads such files, but takes a dimension
with too many values for one without them, and names no lines.
"""

import re
from pathlib import Path

from sampler.errors import Verbatim
from sampler.tasks.series_file import Header, Row, SeriesFile, read_series_file, refuse

QUOTED = r"'[^']*'|\"[^\"]*\""
ATTRIBUTE = re.compile(rf"@attribute\s+(?:{QUOTED}|\S+)\s+(?P<type>.+)", re.IGNORECASE)
NUMERIC = ("numeric", "real", "integer")
CLASS_NAME = re.compile(rf"\s*({QUOTED}|[^,'\"]+)\s*(?:,|$)")
SERIES = re.compile(rf"(?P<channels>{QUOTED})\s*,\s*(?P<label>{QUOTED}|[^,]+)")


def read_arff(path: Path) -> SeriesFile:
    """The series of an .arff file. Raises InputError, naming the line, for what cannot be used."""
    return read_series_file(path, read_header, read_row, comment="%")


def read_header(path: Path, lines: list[str]) -> Header:
    """Classes and number of time steps."""
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
        elif line and not lower.startswith(("@relation", "%")):
            refuse(path, number, line, "data must come after a line @data")
    refuse(path, max(len(lines), 1), Verbatim("(end of file)"), "no line @data was found")


def read_row(path: Path, number: int, line: str) -> Row:
    """Dimensions and class of one line."""
    match = SERIES.fullmatch(line)
    if match is None:
        refuse(path, number, line, r"must read '1,2\n3,4',class: dimensions in quotation marks")
    channels = unquoted(match["channels"]).removesuffix(r"\n").split(r"\n")
    return Row(number, tuple(channels), unquoted(match["label"]))


def unquoted(text: str) -> str:
    text = text.strip()
    return text[1:-1] if text[:1] in "'\"" and text else text
