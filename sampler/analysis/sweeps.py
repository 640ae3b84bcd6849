"""Results of a sweep, read: its table, its grid, and what was chosen from it."""

import csv
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import xarray as xr

from sampler.analysis.results import RunResults
from sampler.errors import InputError
from sampler.recipes.recipe import Recipe, load_recipe
from sampler.storage.results import has_results
from sampler.storage.run_directory import (
    RECIPE_FILE,
    check_schema,
    point_directory,
    read_json,
    read_stored,
)

SWEEP_FILE, SWEEP_DATASET_FILE = "sweep.csv", "sweep.nc"
SELECTION_FILE, FINITE_SIZE_FILE = "selection.json", "finite_size.json"
SEED_AVERAGES_FILE = "seed_averages.csv"

REQUIRED_COLUMNS = ("point", "directory", "width")
GAUSSIAN_PROCESS_PREFIX = "gp:"


def read_table(path: Path) -> list[dict[str, str]]:
    """The rows of a CSV file of a sweep, each a column → text, empty where undefined.

    Raises InputError if the file is absent or damaged.
    """

    def load(file: Path) -> list[dict[str, str]]:
        with file.open(newline="", encoding="utf-8") as stream:
            rows = list(csv.DictReader(stream, restval=""))
        if not rows:
            raise ValueError("it has no rows")
        if None in rows[0]:
            raise ValueError("its rows are longer than its header")
        return rows

    return read_stored(path, "run", load)


def read_rows(directory: Path) -> list[dict[str, str]]:
    """The rows of `sweep.csv`, in the order of the recipe's points. Raises InputError."""
    rows = read_table(directory / SWEEP_FILE)
    missing = [name for name in REQUIRED_COLUMNS if name not in rows[0]]
    if missing:
        path = directory / SWEEP_FILE
        remedy = f"cannot be read (it has no column {missing[0]}); make it anew with `run`"
        raise InputError(SWEEP_FILE, path, remedy)
    return rows


@dataclass(frozen=True)
class SweptPoint:
    """A point of a grid and what is stored of it.

    label: `key=value,…`.  settings: the swept keys and their values here.
    """

    label: str
    settings: Mapping[str, object]
    recipe: Recipe
    run: RunResults

    @property
    def width(self) -> int:
        """The width, the largest where layers differ."""
        return self.recipe.network.widest

    @property
    def space(self) -> str:
        """The space that was sampled, or that the recipe names."""
        return self.run.space or self.recipe.sampler.space


def swept_points(directory: Path, recipe: Recipe) -> list[SweptPoint]:
    """Every point of a recipe's grid, in its order, whether anything is stored of it or not."""
    values = itertools.product(*recipe.sweep.values())
    return [
        SweptPoint(
            label,
            dict(zip(recipe.sweep, of_point, strict=True)),
            point,
            RunResults(point_directory(directory, label)),
        )
        for (label, point), of_point in zip(recipe.points(), values, strict=True)
    ]


@dataclass(frozen=True)
class SweepTable:
    """The rows of `sweep.csv`, sorted by width when width is what distinguishes them.

    points: label of each row.  directories: run directory of each row.
    columns: each column by name, [row] of strings, empty where undefined.
    """

    points: tuple[str, ...]
    directories: tuple[Path, ...]
    columns: dict[str, tuple[str, ...]]

    @classmethod
    def of_rows(cls, directory: Path, rows: Sequence[dict[str, str]]) -> "SweepTable":
        """The rows in this order."""
        return cls(
            points=tuple(row["point"] for row in rows),
            directories=tuple(directory / row["directory"] for row in rows),
            columns={name: tuple(row[name] for row in rows) for name in rows[0]},
        )

    def values(self, name: str) -> np.ndarray:
        """One numeric column, [row], NaN where it is empty or absent. Raises InputError."""
        cells = self.columns.get(name, ("",) * len(self.points))
        try:
            return np.array([float(cell) if cell else np.nan for cell in cells])
        except ValueError as error:
            raise InputError(f"{SWEEP_FILE}: {name}", str(error), "must be numbers") from error

    @property
    def widths(self) -> np.ndarray | None:
        """The width of each row, or None if the rows are not told apart by their width."""
        widths = self.values("width")
        distinct = np.isfinite(widths).all() and len(set(widths)) == len(widths)
        return widths if distinct else None

    @property
    def subnetworks(self) -> list[str]:
        """Labels of the sub-networks whose Gaussian process limit was tabulated."""
        size = len(GAUSSIAN_PROCESS_PREFIX)
        return [name[size:] for name in self.columns if name.startswith(GAUSSIAN_PROCESS_PREFIX)]

    def subnetwork_accuracy(self, label: str) -> np.ndarray:
        """The Gaussian process accuracy of one sub-network, [row]."""
        return self.values(GAUSSIAN_PROCESS_PREFIX + label)


@dataclass(frozen=True)
class SweepResults:
    """Results of a sweep beside those of its points; a file never written is None.

    A file is read when it is first asked for, and kept. Every property raises InputError for a
    file that is damaged or of another schema.
    """

    directory: Path

    @cached_property
    def table(self) -> SweepTable:
        """The content of `sweep.csv`; InputError also where it is absent."""
        rows = read_rows(self.directory)
        table = SweepTable.of_rows(self.directory, rows)
        if table.widths is None:
            return table
        ordered = [rows[row] for row in np.argsort(table.widths)]
        return SweepTable.of_rows(self.directory, ordered)

    @cached_property
    def runs(self) -> list[RunResults | None]:
        """The results of every row of the table; None where nothing is stored."""
        places = self.table.directories
        return [RunResults(place) if has_results(place) else None for place in places]

    @cached_property
    def settings(self) -> Mapping[str, Mapping[str, object]]:
        """Label of a point → the swept keys and their values there; empty without a recipe."""
        path = self.directory / RECIPE_FILE
        points = swept_points(self.directory, load_recipe(path)) if path.is_file() else []
        return {point.label: point.settings for point in points}

    @property
    def solved(self) -> RunResults | None:
        """The first run that has a theory."""
        return next((run for run in self.runs if run is not None and run.theory is not None), None)

    @cached_property
    def dataset(self) -> xr.Dataset | None:
        """The content of `sweep.nc`: columns of the table and U_1 over the swept keys."""
        path = self.directory / SWEEP_DATASET_FILE

        def load(file: Path) -> xr.Dataset:
            table = xr.load_dataset(file, engine="h5netcdf")
            check_schema(table.attrs.get("schema_version"), str(file))
            return table

        return read_stored(path, "run", load) if path.is_file() else None

    @cached_property
    def selection(self) -> dict | None:
        """The content of `selection.json`: the points chosen by validation split or evidence."""
        return self._json(SELECTION_FILE)

    @cached_property
    def finite_size(self) -> dict | None:
        """The content of `finite_size.json`: U_1 by width, and power laws."""
        return self._json(FINITE_SIZE_FILE)

    @cached_property
    def seed_averages(self) -> list[dict[str, str]] | None:
        """The rows of `seed_averages.csv`."""
        path = self.directory / SEED_AVERAGES_FILE
        return read_table(path) if path.is_file() else None

    def _json(self, name: str) -> dict | None:
        path = self.directory / name
        return read_json(path) if path.is_file() else None
