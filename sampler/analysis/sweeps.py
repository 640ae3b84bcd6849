"""Results of a sweep, read: its table, its grid, and what was chosen from it."""

import csv
import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import xarray as xr

from sampler.analysis.results import RunResults
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

# The first columns of the table of a sweep; all others follow by name.
COLUMNS = (
    "point", "directory", "width", "accuracy_theory", "accuracy_gp", "accuracy_sampled",
    "accuracy_sampled_mcse", "accuracy_sampled_binomial", "sampled_space",
    "accuracy_diagonal_only", "accuracy_equal_diagonal",
)  # fmt: skip
# Attribute of what is a column of the table in the Dataset, where names have no slash: its name.
COLUMN = "column"
GAUSSIAN_PROCESS_PREFIX = "gp:"


def read_sweep(directory: Path) -> xr.Dataset:
    """Read `sweep.nc`; InputError if it is absent, damaged or of another schema."""

    def load(file: Path) -> xr.Dataset:
        table = xr.load_dataset(file, engine="h5netcdf")
        check_schema(table.attrs.get("schema_version"), str(file))
        if missing := [name for name in COLUMNS[:3] if name not in table]:
            raise ValueError(f"it has no variable {missing[0]}")
        return table

    return read_stored(directory / SWEEP_DATASET_FILE, "run", load)


def columns_of_sweep(dataset: xr.Dataset) -> dict[str, np.ndarray]:
    """Return the columns of the table of a sweep by name, [row] in the order of its points."""
    found = {v.attrs[COLUMN]: v.values.ravel() for v in dataset.values() if COLUMN in v.attrs}
    first = [name for name in COLUMNS if name in found]
    return {name: found[name] for name in [*first, *sorted({*found} - {*first})]}


def rows_of_sweep(dataset: xr.Dataset) -> list[dict[str, str]]:
    """Return the rows of the table of a sweep as text, empty where a number does not exist."""
    columns = columns_of_sweep(dataset)
    return [
        {name: cell_text(value) for name, value in zip(columns, row, strict=True)}
        for row in zip(*columns.values(), strict=True)
    ]


def cell_text(value: object) -> str:
    """Return a cell of a CSV file: a number in full, empty where it is not finite."""
    return "" if isinstance(value, float) and not np.isfinite(value) else str(value)


def read_table(path: Path) -> list[dict[str, str]]:
    """Read the rows of a CSV file of a sweep, each a column → text, empty where undefined.

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
    """The table of a sweep, sorted by width when width is what distinguishes its rows.

    points: label of each row.  directories: run directory of each row.
    columns: each column by name, [row], numbers or text.
    """

    points: tuple[str, ...]
    directories: tuple[Path, ...]
    columns: dict[str, np.ndarray]

    @classmethod
    def of(cls, directory: Path, columns: dict[str, np.ndarray]) -> "SweepTable":
        """Return the table of these columns, in this order of the rows."""
        return cls(
            points=tuple(map(str, columns["point"])),
            directories=tuple(directory / where for where in columns["directory"]),
            columns=columns,
        )

    def values(self, name: str) -> np.ndarray:
        """Return one numeric column, [row], NaN where there is none."""
        found = self.columns.get(name, np.full(len(self.points), np.nan))
        return np.asarray(found, dtype=np.float64)

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
        """The table in `sweep.nc`; InputError also where there is no such file."""
        columns = columns_of_sweep(read_sweep(self.directory))
        table = SweepTable.of(self.directory, columns)
        if table.widths is None:
            return table
        order = np.argsort(table.widths)
        return SweepTable.of(self.directory, {name: v[order] for name, v in columns.items()})

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
        there = (self.directory / SWEEP_DATASET_FILE).is_file()
        return read_sweep(self.directory) if there else None

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
