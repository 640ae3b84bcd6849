"""Result files: written whole or not at all, read back with a clear error."""

import os
from pathlib import Path

import xarray as xr

from sampler.storage.json_file import read_stored, write_atomically
from sampler.storage.schema import SCHEMA_VERSION, check_schema

# What a variable takes beside its numbers, on the safe side.
BYTES_PER_VARIABLE = 2048
THEORY_FILE, DRAWS_FILE, COMPARISON_FILE = "theory.nc", "draws.nc", "comparison.json"


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


def read_theory(directory: Path) -> xr.Dataset:
    """Read `theory.nc` into memory."""

    def load(path: Path) -> xr.Dataset:
        table = xr.load_dataset(path, engine="h5netcdf")
        check_schema(table.attrs.get("schema_version"), str(path))
        return table

    return read_stored(directory / THEORY_FILE, "solve", load)


def read_draws(directory: Path) -> xr.DataTree:
    """Read `draws.nc` into memory."""

    def load(path: Path) -> xr.DataTree:
        with xr.open_datatree(path, engine="h5netcdf") as tree:
            check_schema(tree.attrs.get("schema_version"), str(path))
            return tree.load()

    return read_stored(directory / DRAWS_FILE, "sample", load)
