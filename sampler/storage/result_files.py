"""Results of a run or sweep: every NetCDF file is written and read here, its schema checked once.

theory.nc        the theory, `write_result`, `read_table`
task.nc          heads, and their attention to an example, for figures, likewise
sweep.nc         a sweep over its settings, likewise
draws.nc         the draws, `write_result`, `read_draws`
comparison.nc    theories against draws, `write_comparison`, `read_comparison`; its summary beside
                 it in `comparison.json`

The readers raise the same InputError, with the file, what is wrong and the remedy, whoever reads.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import xarray as xr

from sampler.storage.directory import (
    COMPARISON_FILE,
    COMPARISON_SUMMARY_FILE,
    DRAWS_FILE,
    SWEEP_DATASET_FILE,
    TASK_FILE,
    THEORY_FILE,
)
from sampler.storage.files import (
    SCHEMA_VERSION,
    check_schema,
    read_stored,
    write_atomically,
    write_json,
)
from sampler.storage.netcdf import dimensions_of, netcdf_file, netcdf_table, netcdf_tree, shown

# Tables: the command that makes each, and the variables that all readers take to be there.
TABLES = {
    THEORY_FILE: ("solve", ("predictor_mean", "predictor_variance")),
    TASK_FILE: ("run", ()),
    SWEEP_DATASET_FILE: ("run", ("point", "directory", "width", "stored", "predictor", "degrees")),
}


def write_result(directory: Path, file: str, content: xr.Dataset | xr.DataTree) -> None:
    """Write a table, or the draws, which open with ArviZ and with `xarray.open_datatree`."""
    tree = content.copy() if isinstance(content, xr.DataTree) else xr.DataTree(content)
    tree.attrs = content.attrs | {"schema_version": SCHEMA_VERSION}
    image = netcdf_file(tree)
    write_atomically(directory / file, lambda path: path.write_bytes(image))


def write_comparison(directory: Path, tree: xr.DataTree, summary: dict) -> None:
    """Write a comparison, and its summary for whoever reads JSON."""
    write_result(directory, COMPARISON_FILE, tree)
    write_json(directory / COMPARISON_SUMMARY_FILE, summary)


# --- reading: through a file of Python's, which HDF5 neither locks nor takes for one that it has
# open. So it is read whoever has it open, in this process or another one, and however.


def read_table(directory: Path, file: str) -> xr.Dataset:
    """Read one of TABLES into memory; InputError if absent, damaged or of another schema."""
    command, variables = TABLES[file]

    def load(path: Path) -> xr.Dataset:
        with opened(path) as file:
            table = netcdf_table(file)
        missing = [name for name in variables if name not in table]
        if missing:
            raise ValueError(f"it has no variable {missing[0]}")
        return table

    return read_stored(directory / file, command, load)


def read_draws(directory: Path) -> xr.DataTree:
    """Read `draws.nc` into memory; InputError if it is absent, damaged or of another schema."""
    return read_tree(directory / DRAWS_FILE, "sample", "posterior")


def read_comparison(directory: Path) -> xr.DataTree:
    """Read `comparison.nc`; InputError if it is absent, damaged or of another schema."""
    return read_tree(directory / COMPARISON_FILE, "compare", "summary", "degrees")


def read_tree(path: Path, command: str, group: str, variable: str = "") -> xr.DataTree:
    """Read a file of groups into memory, which `command` makes.

    One of the groups must be there, with this variable where one is named.
    """

    def load(path: Path) -> xr.DataTree:
        with opened(path, group) as file:
            if variable and variable not in file[group]:
                raise ValueError(f"it has no variable {variable}")
            return netcdf_tree(file)

    return read_stored(path, command, load)


def read_drawn(directory: Path, name: str, group: str = "posterior") -> xr.DataArray | None:
    """Read one variable of `draws.nc`; None if it is not among them, InputError as `read_draws`."""

    def load(path: Path) -> xr.DataArray | None:
        with opened(path, "posterior") as file:
            if group not in file or name not in file[group]:
                return None
            dimensions = dimensions_of(file[group][name])
            return netcdf_table(file[group], {name, *dimensions})[name]

    return read_stored(directory / DRAWS_FILE, "sample", load)


def read_attribute(directory: Path, name: str, group: str) -> Any:
    """Read an attribute of a group of `draws.nc`; None if it is not there."""

    def load(path: Path) -> Any:
        with opened(path, "posterior") as file:
            attribute = shown(file[group].attrs).get(name) if group in file else None
            return attribute.item() if isinstance(attribute, np.generic) else attribute

    return read_stored(directory / DRAWS_FILE, "sample", load)


@contextmanager
def opened(path: Path, group: str = "") -> Iterator[h5py.File]:
    """A file of results. InputError for another schema, ValueError where it lacks the group."""
    with path.open("rb") as content, h5py.File(content, "r") as file:
        check_schema(shown(file.attrs).get("schema_version"), str(path))
        if group and group not in file:
            raise ValueError(f"it has no group {group}")
        yield file


def is_sampled(directory: Path) -> bool:
    return (directory / DRAWS_FILE).is_file()


def has_results(directory: Path) -> bool:
    """Whether there is anything to draw or to report."""
    return (directory / THEORY_FILE).is_file() or is_sampled(directory)
