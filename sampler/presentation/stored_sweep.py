"""The table of a sweep and the runs behind its rows."""

import csv
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sampler.errors import InputError

_REQUIRED = ("point", "directory", "width")
_GAUSSIAN_PROCESS_PREFIX = "gp:"


@dataclass(frozen=True)
class StoredSweep:
    """The rows of `sweep.csv`, sorted by width when width is what distinguishes them.

    points: label of each row.  directories: run directory of each row.
    columns: each remaining column by name, [row] of strings, empty where undefined.
    """

    points: tuple[str, ...]
    directories: tuple[Path, ...]
    columns: dict[str, tuple[str, ...]]

    def values(self, name: str) -> np.ndarray:
        """Return one numeric column, [row], NaN where it is empty or absent."""
        cells = self.columns.get(name, ("",) * len(self.points))
        try:
            return np.array([float(cell) if cell else np.nan for cell in cells])
        except ValueError as error:
            raise InputError(f"sweep.csv: {name}", str(error), "must be numbers") from error

    @property
    def widths(self) -> np.ndarray | None:
        """The width of each row, or None if the rows are not told apart by their width."""
        widths = self.values("width")
        distinct = np.isfinite(widths).all() and len(set(widths)) == len(widths)
        return widths if distinct else None

    @property
    def subnetworks(self) -> list[str]:
        """Labels of the sub-networks whose Gaussian process limit was tabulated."""
        size = len(_GAUSSIAN_PROCESS_PREFIX)
        return [name[size:] for name in self.columns if name.startswith(_GAUSSIAN_PROCESS_PREFIX)]

    def subnetwork_accuracy(self, label: str) -> np.ndarray:
        """Return the Gaussian process accuracy of one sub-network, [row]."""
        return self.values(_GAUSSIAN_PROCESS_PREFIX + label)


def read_stored_sweep(directory: Path) -> StoredSweep:
    """Read `sweep.csv` of a sweep directory; InputError if it is absent, empty or incomplete."""
    file = directory / "sweep.csv"
    if not file.is_file():
        remedy = "does not exist; name the directory of a finished sweep"
        raise InputError("sweep.csv", str(file), remedy)
    with file.open(newline="", encoding="utf-8") as stream:
        reader = csv.DictReader(stream)
        rows = list(reader)
        names = reader.fieldnames or []
    missing = [name for name in _REQUIRED if name not in names]
    if missing or not rows:
        problem = f"lacks the column {missing[0]!r}" if missing else "has no rows"
        raise InputError("sweep.csv", str(file), f"{problem}; run the sweep again")
    sweep = _from_rows(directory, names, rows)
    if sweep.widths is None:
        return sweep
    return _from_rows(directory, names, [rows[row] for row in np.argsort(sweep.widths)])


def _from_rows(directory: Path, names: list[str], rows: list[dict[str, str]]) -> StoredSweep:
    return StoredSweep(
        points=tuple(row["point"] for row in rows),
        directories=tuple(directory / row["directory"] for row in rows),
        columns={name: tuple(row[name] or "" for row in rows) for name in names},
    )
