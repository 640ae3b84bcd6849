"""Results of a run or sweep: every NetCDF file is written and read here, its schema checked once.

theory.nc        the theory, `write_result`, `read_table`
sweep.nc         a sweep over its settings, likewise
draws.nc         the draws, `write_result`, `read_draws`
comparison.nc    theories against draws, `write_comparison`, `read_comparison`; its summary in JSON
                 it in `comparison.json`

The readers raise the same InputError, with the file, the damage and the remedy.
"""

from collections.abc import Container, Mapping
from io import BytesIO
from pathlib import Path
from typing import Any

import h5netcdf
import xarray as xr
from xarray.backends import H5NetCDFStore

from sampler.storage.directory import (
    COMPARISON_FILE,
    COMPARISON_SUMMARY_FILE,
    DRAWS_FILE,
    SWEEP_DATASET_FILE,
    THEORY_FILE,
)
from sampler.storage.files import (
    SCHEMA_VERSION,
    check_schema,
    read_stored,
    write_atomically,
    write_json,
)

# Tables: the command that makes each, and the variables that all readers take to be there.
TABLES = {
    THEORY_FILE: ("solve", ("predictor_mean", "predictor_variance")),
    SWEEP_DATASET_FILE: ("run", ("point", "directory", "width", "stored", "predictor", "degrees")),
}
# Arrays of draws from this size on are compressed, and carry a checksum.
COMPRESSED_BYTES = 2**14
COMPRESSION = {"zlib": True, "complevel": 1, "shuffle": True, "fletcher32": True}
ENGINE = "h5netcdf"


def write_result(directory: Path, file: str, content: xr.Dataset | xr.DataTree) -> None:
    """Write a table, or the draws, which open with ArviZ and with `xarray.open_datatree`."""
    tree = content.copy() if isinstance(content, xr.DataTree) else xr.DataTree(content)
    tree.attrs = content.attrs | {"schema_version": SCHEMA_VERSION}
    # In memory first: HDF5 never meets a disk that is full. Not by `to_netcdf`, which writes the
    # same bytes but imports `distributed` where that is installed, a third of a second.
    image = BytesIO()
    with h5netcdf.File(image, "w") as opened:
        for table in tree.subtree:
            store = H5NetCDFStore(opened, group=None if table is tree else table.path, mode="w")
            compressed = {
                name: COMPRESSION
                for name, values in table.data_vars.items()
                if values.nbytes >= COMPRESSED_BYTES and values.dtype.kind in "fiub"
            }
            table.to_dataset(inherit=False).dump_to_store(store, encoding=compressed)
    write_atomically(directory / file, lambda path: path.write_bytes(image.getbuffer()))


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
        with path.open("rb") as content:
            table = xr.load_dataset(content, engine=ENGINE)
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
    return read_tree(directory / DRAWS_FILE, "sample", "posterior")


def read_comparison(directory: Path) -> xr.DataTree:
    """Read `comparison.nc`; InputError if it is absent, damaged or of another schema."""
    return read_tree(directory / COMPARISON_FILE, "compare", "summary", "degrees")


def read_tree(path: Path, command: str, group: str, variable: str = "") -> xr.DataTree:
    """Read a file of groups into memory, which `command` makes.

    One of the groups must be there, with this variable where one is named.
    """

    def load(path: Path) -> xr.DataTree:
        with path.open("rb") as content, xr.open_datatree(content, engine=ENGINE) as tree:
            check_groups(tree.attrs, tree.children, group, path)
            if variable and variable not in tree[group]:
                raise ValueError(f"it has no variable {variable}")
            return loaded(tree)

    return read_stored(path, command, load)


def read_drawn(directory: Path, name: str, group: str = "posterior") -> xr.DataArray | None:
    """Read one variable of `draws.nc`; None if it is not among them, InputError as `read_draws`."""

    def load(path: Path) -> xr.DataArray | None:
        # One variable of one group alone: to open all of them takes many times as long.
        with path.open("rb") as content, h5netcdf.File(content, "r") as file:
            check_groups(file.attrs, file.groups, "posterior", path)
            there = file.groups[group].variables if group in file.groups else {}
            if name not in there:
                return None
            others = set(there) - {name, *there[name].dimensions}
        with path.open("rb") as content:
            options = {"group": group, "drop_variables": others, "engine": ENGINE}
            with xr.open_dataset(content, **options) as table:
                return table[name].load()

    return read_stored(directory / DRAWS_FILE, "sample", load)


def check_groups(
    attributes: Mapping[str, Any], groups: Container[str], group: str, path: Path
) -> None:
    """Raise InputError for another schema, ValueError where a group is missing."""
    check_schema(attributes.get("schema_version"), str(path))
    if group not in groups:
        raise ValueError(f"it has no group {group}")


def has_results(directory: Path) -> bool:
    """Whether there is anything to draw or to report."""
    return any((directory / file).is_file() for file in (THEORY_FILE, DRAWS_FILE))
