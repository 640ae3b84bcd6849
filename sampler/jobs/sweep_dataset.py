"""The results of a sweep on its grid, one dimension per swept key (`sweep.nc`)."""

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from sampler.jobs.sweep_table import SWEEP_FILE
from sampler.recipes.recipe import Recipe
from sampler.recipes.toml_text import toml_value
from sampler.storage.json_file import read_json, write_atomically
from sampler.storage.point_directory import point_directory
from sampler.storage.results import COMPARISON_FILE, THEORY_FILE, read_theory
from sampler.storage.schema import SCHEMA_VERSION

SWEEP_DATASET_FILE = "sweep.nc"
PATHS = ("path", "path_")


def write_sweep_dataset(directory: Path, recipe: Recipe) -> None:
    """Write `sweep.nc` from `sweep.csv` and from the U_1 of every point.

    U_1 is there if all points have the same paths; what a point lacks is NaN.
    """
    dataset = sweep_dataset(directory, recipe)
    path = directory / SWEEP_DATASET_FILE
    write_atomically(path, lambda file: dataset.to_netcdf(file, engine="h5netcdf"))


def sweep_dataset(directory: Path, recipe: Recipe) -> xr.Dataset:
    """The numeric columns of the table, the directories and the U_1, over the swept keys."""
    grid = {key: coordinate(values) for key, values in recipe.sweep.items()}
    shape = tuple(map(len, grid.values()))
    rows = read_rows(directory)
    columns = {
        name.replace("/", "_"): (tuple(grid), values.reshape(shape))
        for name, values in numeric_columns(rows).items()
    }
    columns["directory"] = (
        tuple(grid),
        np.array([row["directory"] for row in rows], dtype=object).reshape(shape),
    )
    paths, matrices = order_parameters(
        [point_directory(directory, label) for label, _ in recipe.points()]
    )
    columns |= {
        name: ((*grid, *PATHS), values.reshape(*shape, *values.shape[1:]))
        for name, values in matrices.items()
    }
    coordinates = grid | (dict.fromkeys(PATHS, paths) if matrices else {})
    attributes = {"name": recipe.name, "schema_version": SCHEMA_VERSION}
    return xr.Dataset(columns, coords=coordinates, attrs=attributes)


def coordinate(values: Sequence[Any]) -> list[Any]:
    """Values along an axis: numbers or words as they are, lists and mixtures as TOML."""
    kinds = {type(value) for value in values}
    if kinds <= {int, float} or kinds in ({bool}, {str}):
        return list(values)
    return [value if isinstance(value, str) else toml_value(value) for value in values]


def read_rows(directory: Path) -> list[dict[str, str]]:
    """The rows of `sweep.csv`, in the order of the recipe's points."""
    with (directory / SWEEP_FILE).open(newline="", encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


def numeric_columns(rows: Sequence[Mapping[str, str]]) -> dict[str, np.ndarray]:
    """The columns whose filled cells are all numbers, NaN where a cell is empty."""
    columns = {}
    for name in rows[0]:
        cells = [row[name] for row in rows]
        try:
            columns[name] = np.array([float(cell) if cell else np.nan for cell in cells])
        except ValueError:
            continue
    return {n: v for n, v in columns.items() if n != "sampled_space"}


def order_parameters(directories: Sequence[Path]) -> tuple[list[str], dict[str, np.ndarray]]:
    """Paths, and theory, sampled value and MCSE of U_1, each [point, path, path_].

    Empty if no point is solved, or if the points differ in their paths.
    """
    parts = ("theory", "sampled", "mcse")
    found: dict[int, dict[str, Any]] = {}
    names: set[tuple[str, ...]] = set()
    for place, directory in enumerate(directories):
        if not (directory / THEORY_FILE).is_file():
            continue
        theory = read_theory(directory)
        names.add(tuple(map(str, theory["path"].values)))
        compared = {}
        if (directory / COMPARISON_FILE).is_file():
            compared = read_json(directory / COMPARISON_FILE).get("order_parameter") or {}
        found[place] = compared | {"theory": theory["order_parameter"].values}
    if len(names) != 1:
        return [], {}
    paths = list(names.pop())
    arrays = {}
    for part in parts:
        values = np.full((len(directories), len(paths), len(paths)), np.nan)
        for place, tables in found.items():
            if part in tables:
                values[place] = np.array(tables[part], dtype=float)
        arrays[f"order_parameter_{part}"] = values
    return paths, arrays
