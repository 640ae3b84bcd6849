"""Results of one run: every file is written and read here, its schema checked in one place.

theory.nc        the theory, `write_theory`, `read_theory`
task.nc          two examples of the task, for figures, `write_task`, `read_task`
draws.nc         the draws, `write_draws`, `read_draws`
comparison.json  theory against draws, `write_comparison`, `read_comparison`

The readers raise the same InputError, with the file, what is wrong and the remedy, whoever reads.
`RunResults` reads what a directory holds when it is asked for, each file but `draws.nc` once.
"""

import os
from collections.abc import Container, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import h5netcdf
import numpy as np
import xarray as xr

from sampler.errors import InputError
from sampler.recipes.recipe import Recipe, load_recipe
from sampler.storage.manifest import Manifest, read_manifest
from sampler.storage.run_directory import (
    COMPARISON_FILE,
    DRAWS_FILE,
    OWN_THEORIES_FILE,
    RECIPE_FILE,
    SCHEMA_VERSION,
    TASK_FILE,
    THEORY_FILE,
    check_schema,
    read_json,
    read_stored,
    write_atomically,
    write_json,
)

# What everything that reads a file takes to be there.
THEORY_VARIABLES = ("order_parameter", "predictor_mean", "predictor_variance")
# What a variable takes beside its numbers, on the safe side.
BYTES_PER_VARIABLE = 2048


def write_netcdf(path: Path, content: xr.Dataset | xr.DataTree) -> None:
    """Write a NetCDF file; OSError before anything is written if there is no room for it.

    The library does not survive a disk that is full halfway: the room is asked for in advance.
    """
    tables = content.subtree if isinstance(content, xr.DataTree) else [content]
    variables = sum(len(table.variables) for table in tables)
    with path.open("r+b") as file:
        os.posix_fallocate(file.fileno(), 0, content.nbytes + BYTES_PER_VARIABLE * variables)
    content.to_netcdf(path, engine="h5netcdf")


def write_theory(directory: Path, table: xr.Dataset) -> None:
    """Write `theory.nc`."""
    table = table.assign_attrs(schema_version=SCHEMA_VERSION)
    write_atomically(directory / THEORY_FILE, lambda path: write_netcdf(path, table))


def write_draws(directory: Path, draws: xr.DataTree) -> None:
    """Write `draws.nc`; it opens with ArviZ and with `xarray.open_datatree`."""
    draws = draws.copy()
    draws.attrs["schema_version"] = SCHEMA_VERSION
    write_atomically(directory / DRAWS_FILE, lambda path: write_netcdf(path, draws))


def write_comparison(directory: Path, comparison: dict) -> None:
    """Write `comparison.json`."""
    write_json(directory / COMPARISON_FILE, comparison)


def read_theory(directory: Path) -> xr.Dataset:
    """Read `theory.nc` into memory; InputError if it is absent, damaged or of another schema."""

    def load(path: Path) -> xr.Dataset:
        table = xr.load_dataset(path, engine="h5netcdf")
        check_schema(table.attrs.get("schema_version"), str(path))
        missing = [name for name in THEORY_VARIABLES if name not in table]
        if missing:
            raise ValueError(f"it has no variable {missing[0]}")
        return table

    return read_stored(directory / THEORY_FILE, "solve", load)


def write_task(directory: Path, table: xr.Dataset) -> None:
    """Write `task.nc`."""
    table = table.assign_attrs(schema_version=SCHEMA_VERSION)
    write_atomically(directory / TASK_FILE, lambda path: write_netcdf(path, table))


def read_task(directory: Path) -> xr.Dataset:
    """Read `task.nc` into memory; InputError if it is damaged or of another schema."""

    def load(path: Path) -> xr.Dataset:
        table = xr.load_dataset(path, engine="h5netcdf")
        check_schema(table.attrs.get("schema_version"), str(path))
        return table

    return read_stored(directory / TASK_FILE, "run", load)


def read_draws(directory: Path) -> xr.DataTree:
    """Read `draws.nc` into memory; InputError if it is absent, damaged or of another schema."""

    def load(path: Path) -> xr.DataTree:
        with xr.open_datatree(path, engine="h5netcdf") as tree:
            _check_draws(tree.attrs, tree, path)
            return tree.load()

    return read_stored(directory / DRAWS_FILE, "sample", load)


def read_drawn(directory: Path, name: str, group: str = "posterior") -> xr.DataArray | None:
    """Read one variable of `draws.nc`; None if it is not among them, InputError as `read_draws`."""

    def load(path: Path) -> xr.DataArray | None:
        # One group alone: to open all of them takes three times as long.
        with h5netcdf.File(path, "r") as file:
            _check_draws(file.attrs, file.groups, path)
            if group not in file.groups:
                return None
        with xr.open_dataset(path, engine="h5netcdf", group=group) as table:
            return table[name].load() if name in table else None

    return read_stored(directory / DRAWS_FILE, "sample", load)


def _check_draws(attributes: Mapping[str, Any], groups: Container[str], path: Path) -> None:
    check_schema(attributes.get("schema_version"), str(path))
    if "posterior" not in groups:
        raise ValueError("it has no group posterior")


def read_comparison(directory: Path) -> dict:
    """Read `comparison.json`; InputError if it is absent or damaged."""
    return read_json(directory / COMPARISON_FILE, "compare")


def is_solved(directory: Path) -> bool:
    """Whether `theory.nc` is stored."""
    return (directory / THEORY_FILE).is_file()


def is_sampled(directory: Path) -> bool:
    """Whether `draws.nc` is stored."""
    return (directory / DRAWS_FILE).is_file()


def has_results(directory: Path) -> bool:
    """Whether there is anything to draw or to report."""
    return is_solved(directory) or is_sampled(directory)


def open_run(directory: Path) -> "RunResults":
    """The results in a directory; InputError if it holds neither theory nor draws."""
    if not has_results(directory):
        remedy = f"holds neither {THEORY_FILE} nor {DRAWS_FILE}; name the directory of a "
        raise InputError("directory", directory, f"{remedy}finished run")
    return RunResults(Path(directory))


@dataclass(frozen=True)
class RunResults:
    """What a run directory holds; a file that was never written is None.

    A file is read when it is first asked for, and kept. Every property raises InputError for a
    file that is damaged or of another schema.
    """

    directory: Path

    @cached_property
    def recipe(self) -> Recipe | None:
        """The resolved recipe."""
        path = self.directory / RECIPE_FILE
        return load_recipe(path) if path.is_file() else None

    @cached_property
    def manifest(self) -> Manifest:
        """What was asked for and what is finished; empty if there is no manifest."""
        return read_manifest(self.directory)

    @cached_property
    def theory(self) -> xr.Dataset | None:
        """The content of `theory.nc`."""
        return read_theory(self.directory) if is_solved(self.directory) else None

    @cached_property
    def task(self) -> xr.Dataset | None:
        """The content of `task.nc`."""
        there = (self.directory / TASK_FILE).is_file()
        return read_task(self.directory) if there else None

    @cached_property
    def own_theories(self) -> xr.Dataset | None:
        """The content of `own_theories.nc`."""
        path = self.directory / OWN_THEORIES_FILE
        if not path.is_file():
            return None
        return read_stored(path, "compare", lambda p: xr.load_dataset(p, engine="h5netcdf"))

    @cached_property
    def draws(self) -> xr.DataTree | None:
        """The content of `draws.nc`."""
        return read_draws(self.directory) if is_sampled(self.directory) else None

    @cached_property
    def comparison(self) -> dict | None:
        """The content of `comparison.json`."""
        there = (self.directory / COMPARISON_FILE).is_file()
        return read_comparison(self.directory) if there else None

    def theory_values(self, name: str) -> np.ndarray | None:
        """A variable of `theory.nc`, or None if it is absent or has no finite entry."""
        if self.theory is None or name not in self.theory:
            return None
        values = np.asarray(self.theory[name].values, dtype=np.float64)
        return values if np.isfinite(values).any() else None

    def compared(self, name: str) -> dict[str, np.ndarray] | None:
        """`theory`, `sampled` and `mcse` of one compared quantity; None if it was not sampled."""
        table = (self.comparison or {}).get(name)
        keys = ("theory", "sampled", "mcse")
        if not table or any(table.get(key) is None for key in keys):
            return None
        # JSON null (an undefined number) becomes NaN here.
        return {key: np.asarray(table[key], dtype=np.float64) for key in keys}

    def drawn(self, name: str, group: str = "posterior") -> xr.DataArray | None:
        """A variable of `draws.nc`, None where there is none: large runs keep only moments.

        It is read whenever it is asked for, alone: the draws of all points of a sweep together
        can be more than the memory holds.
        """
        if "draws" not in vars(self):
            return read_drawn(self.directory, name, group) if is_sampled(self.directory) else None
        there = self.draws is not None and group in self.draws and name in self.draws[group]
        return self.draws[group][name] if there else None

    @property
    def order_parameter_draws(self) -> xr.DataArray | None:
        """The draws of U_1, [chain, draw, path, path_]."""
        found = self.drawn("order_parameter")
        return None if found is None else found.transpose("chain", "draw", "path", "path_")

    @property
    def predictor_draws(self) -> xr.DataArray | None:
        """The draws of f, [chain, draw, test_example, …]."""
        return self.drawn("predictor")

    @property
    def labels_test(self) -> np.ndarray | None:
        """The labels of the test set, [test_example, output]."""
        found = self.drawn("labels_test", "constant_data")
        return None if found is None else found.values

    @property
    def path_names(self) -> list[str]:
        """The names along the `path` axis of U_1; none where U_1 is neither solved nor sampled."""
        source = self.theory["order_parameter"] if self.theory is not None else None
        source = self.order_parameter_draws if source is None else source
        return [] if source is None else [str(name) for name in source["path"].values]

    @property
    def widths(self) -> tuple[int, ...] | None:
        """The widths as the recipe has them, one for all layers or one for each."""
        if self.recipe is None:
            widths = None if self.theory is None else self.theory.attrs.get("widths")
            return None if widths is None else tuple(map(int, np.atleast_1d(widths)))
        widths = self.recipe.network.widths
        return (widths,) if isinstance(widths, int) else tuple(widths)

    @property
    def temperature(self) -> float | None:
        """The temperature; None where it was sampled."""
        if self.recipe is None:
            known = self.theory is not None and self.drawn("temperature") is None
            return self.theory.attrs.get("temperature") if known else None
        if self.recipe.posterior.temperature_spread:
            return None
        return self.recipe.posterior.temperature

    @property
    def space(self) -> str | None:
        """The space that was sampled, or that the recipe names."""
        if self.manifest.choice is not None:
            return self.manifest.choice["space"]
        if self.recipe is None and self.draws is not None:
            return self.draws["posterior"].attrs.get("space")
        return None if self.recipe is None else self.recipe.sampler.space

    @property
    def diagnostics_passed(self) -> bool:
        """False only if the stored verdict says that sampling failed its diagnostics."""
        diagnostics = (self.comparison or {}).get("diagnostics") or {}
        return diagnostics.get("verdict") != "fail"
