"""Results of a run or sweep: every file is written and read here, its schema checked in one place.

theory.nc        the theory, `write_result`, `read_table`
task.nc          heads, and their attention to an example, for figures, likewise
sweep.nc         a sweep over its settings, likewise
draws.nc         the draws, `write_result`, `read_draws`
comparison.nc    theories against draws, `write_comparison`, `read_comparison`; its summary beside
                 it in `comparison.json`

The readers raise the same InputError, with the file, what is wrong and the remedy, whoever reads.
"""

import types
from collections.abc import Container, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any, Union, get_args, get_origin, get_type_hints

import h5netcdf
import numpy as np
import xarray as xr
from xarray.backends import H5NetCDFStore

from sampler.storage.run_directory import (
    COMPARISON_FILE,
    COMPARISON_SUMMARY_FILE,
    DRAWS_FILE,
    SCHEMA_VERSION,
    SWEEP_DATASET_FILE,
    TASK_FILE,
    THEORY_FILE,
    UNLOCKED,
    check_schema,
    read_stored,
    write_atomically,
    write_json,
)

# Tables: the command that makes each, and the variables that all readers take to be there.
TABLES = {
    THEORY_FILE: ("solve", ("predictor_mean", "predictor_variance")),
    TASK_FILE: ("run", ()),
    SWEEP_DATASET_FILE: ("run", ("point", "directory", "width", "stored", "predictor")),
}
# Arrays of draws from this size on are compressed, and carry a checksum.
COMPRESSED_BYTES = 2**14
OPENED = {"engine": "h5netcdf", "driver_kwds": UNLOCKED}
COMPRESSION = {"zlib": True, "complevel": 1, "shuffle": True, "fletcher32": True}


def write_netcdf(path: Path, content: xr.Dataset | xr.DataTree) -> None:
    """Write a NetCDF file."""
    tree = content if isinstance(content, xr.DataTree) else xr.DataTree(content)
    # Not `to_netcdf`: it locks, and where Dask is installed imports it, for nothing.
    with h5netcdf.File(path, "w", **UNLOCKED) as file:
        for table in tree.subtree:
            encoding = {
                name: COMPRESSION
                for name, values in table.data_vars.items()
                if values.nbytes >= COMPRESSED_BYTES and values.dtype.kind in "fiub"
            }
            group = None if table is tree else table.path
            store = H5NetCDFStore(file, group=group, mode="w")
            table.to_dataset(inherit=False).dump_to_store(
                store, encoding=encoding if tree is content else None
            )


def write_result(directory: Path, file: str, content: xr.Dataset | xr.DataTree) -> None:
    """Write a table, or the draws, which open with ArviZ and with `xarray.open_datatree`."""
    content = content.copy()
    content.attrs["schema_version"] = SCHEMA_VERSION
    write_atomically(directory / file, lambda path: write_netcdf(path, content))


def write_comparison(directory: Path, tree: xr.DataTree, summary: dict) -> None:
    """Write a comparison, and its summary for whoever reads JSON."""
    write_result(directory, COMPARISON_FILE, tree)
    write_json(directory / COMPARISON_SUMMARY_FILE, summary)


def read_table(directory: Path, file: str) -> xr.Dataset:
    """Read one of TABLES into memory; InputError if absent, damaged or of another schema."""
    command, variables = TABLES[file]

    def load(path: Path) -> xr.Dataset:
        table = xr.load_dataset(path, **OPENED)
        check_schema(table.attrs.get("schema_version"), str(path))
        missing = [name for name in variables if name not in table]
        if missing:
            raise ValueError(f"it has no variable {missing[0]}")
        return table

    return read_stored(directory / file, command, load)


def loaded(tree: xr.DataTree) -> xr.DataTree:
    """The tree with everything in memory.

    `DataTree.load` passes over a variable that has the name of its group, which would stay in the
    file and keep it open.
    """
    for node in tree.subtree:
        for variable in node.variables.values():
            variable.load()
    return tree


def read_draws(directory: Path) -> xr.DataTree:
    """Read `draws.nc` into memory; InputError if it is absent, damaged or of another schema."""

    def load(path: Path) -> xr.DataTree:
        with xr.open_datatree(path, **OPENED) as tree:
            _check_draws(tree.attrs, tree, path)
            return loaded(tree)

    return read_stored(directory / DRAWS_FILE, "sample", load)


def read_drawn(directory: Path, name: str, group: str = "posterior") -> xr.DataArray | None:
    """Read one variable of `draws.nc`; None if it is not among them, InputError as `read_draws`."""

    def load(path: Path) -> xr.DataArray | None:
        # One variable of one group alone: to open all of them takes many times as long.
        with h5netcdf.File(path, "r", **UNLOCKED) as file:
            _check_draws(file.attrs, file.groups, path)
            if group not in file.groups or name not in file.groups[group].variables:
                return None
            there = file.groups[group].variables
            others = set(there) - {name, *there[name].dimensions}
        with xr.open_dataset(path, group=group, drop_variables=others, **OPENED) as table:
            return table[name].load()

    return read_stored(directory / DRAWS_FILE, "sample", load)


def read_attribute(directory: Path, name: str, group: str) -> Any:
    """Read an attribute of a group of `draws.nc`; None if it is not there."""

    def load(path: Path) -> Any:
        with h5netcdf.File(path, "r", **UNLOCKED) as file:
            _check_draws(file.attrs, file.groups, path)
            found = file.groups[group].attrs.get(name) if group in file.groups else None
            return found.item() if isinstance(found, np.ndarray | np.generic) else found

    return read_stored(directory / DRAWS_FILE, "sample", load)


def _check_draws(attributes: Mapping[str, Any], groups: Container[str], path: Path) -> None:
    check_schema(attributes.get("schema_version"), str(path))
    if "posterior" not in groups:
        raise ValueError("it has no group posterior")


def read_comparison(directory: Path) -> xr.DataTree:
    """Read `comparison.nc`; InputError if it is absent, damaged or of another schema."""

    def load(path: Path) -> xr.DataTree:
        with xr.open_datatree(path, **OPENED) as tree:
            check_schema(tree.attrs.get("schema_version"), str(path))
            if "summary" not in tree.children:
                raise ValueError("it has no group summary")
            return loaded(tree)

    return read_stored(directory / COMPARISON_FILE, "compare", load)


def is_sampled(directory: Path) -> bool:
    return (directory / DRAWS_FILE).is_file()


def has_results(directory: Path) -> bool:
    """Whether there is anything to draw or to report."""
    return (directory / THEORY_FILE).is_file() or is_sampled(directory)


NOTHING = {tuple: (), Mapping: {}, dict: {}, float: float("nan"), int: 0, str: "", bool: False}


def to_json(value: Any) -> Any:
    """A dataclass as a dict of its fields; one that is None by default is left out while it is.

    A class with a `to_json` of its own decides for itself. Arrays and numbers stay as they are.
    """
    if hasattr(value, "to_json"):
        return value.to_json()
    if is_dataclass(value):
        return {
            field.name: to_json(getattr(value, field.name))
            for field in fields(value)
            if not (field.default is None and getattr(value, field.name) is None)
        }
    if isinstance(value, Mapping):
        return {key: to_json(item) for key, item in value.items()}
    return [to_json(item) for item in value] if isinstance(value, list | tuple) else value


def from_json(kind: Any, content: Any) -> Any:
    """The inverse for a type: null is NaN, 0 or what is empty.

    Keys that are not there count as null. Raises ValueError, TypeError or
    AttributeError for content of another shape.
    """
    if hasattr(kind, "from_json"):
        return kind.from_json(content)
    origin, arguments = get_origin(kind) or kind, get_args(kind)
    if origin in (Union, types.UnionType):
        inner = next(argument for argument in arguments if argument is not types.NoneType)
        return None if content is None else from_json(inner, content)
    if content is None:
        return NOTHING.get(origin)
    if is_dataclass(kind):
        return kind(**{n: from_json(hint, content.get(n)) for n, hint in hints_of(kind).items()})
    if origin is tuple and arguments:
        return tuple(from_json(arguments[0], item) for item in content)
    if origin in (Mapping, dict) and arguments:
        return {key: from_json(arguments[1], item) for key, item in content.items()}
    if kind is np.ndarray:
        return np.asarray(content, dtype=np.float64)
    return float(content) if kind is float else content


@cache
def hints_of(kind: type) -> dict[str, Any]:
    hints = get_type_hints(kind)
    return {field.name: hints[field.name] for field in fields(kind)}
