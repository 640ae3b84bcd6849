"""The .ts files of the UEA archive.

Lines `@key value` up to `@data`; then one series a line, its dimensions separated by colons, their
values by commas, and its class after the last colon. Lines that begin with # are comments.
"""

from pathlib import Path

from sampler.errors import Verbatim
from sampler.tasks.series_file import Header, Row, SeriesFile, read_series_file, refuse


def read_ts(path: Path) -> SeriesFile:
    """The series of a .ts file. Raises InputError, naming the line, for what cannot be used."""
    return read_series_file(path, read_header, read_row, comment="#")


def read_header(path: Path, lines: list[str]) -> Header:
    """Classes, and dimensions and length where the header has them; its keys know no case."""
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
            sizes[key] = read_size(path, number, line, values)
        elif line and not line.startswith(("@", "#")):
            refuse(path, number, line, "data must come after a line @data")
    refuse(path, max(len(lines), 1), Verbatim("(end of file)"), "no line @data was found")


def read_size(path: Path, number: int, line: str, values: list[str]) -> int:
    if len(values) != 1 or not values[0].isdecimal() or int(values[0]) < 1:
        refuse(path, number, line, "must be a whole number from 1")
    return int(values[0])


def read_row(path: Path, number: int, line: str) -> Row:
    """Dimensions and class of one line."""
    *channels, label = line.split(":")
    if not channels:
        refuse(path, number, line, "must end in a colon and the class of the series")
    return Row(number, tuple(channels), label.strip())
