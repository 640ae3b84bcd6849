"""NetCDF-4 files made in memory, to be written at once.

xarray's own writer looks every dimension up again for each variable, and a hundred small variables
take it most of a second. How values and attributes are encoded is decided by xarray here, too.
"""

from collections import ChainMap
from collections.abc import Container, Iterator, Mapping
from itertools import count
from typing import Any

import h5py
import numpy as np
import xarray as xr
from xarray.conventions import cf_encoder, encode_dataset_coordinates

# Arrays from this size on are compressed, and carry a checksum.
COMPRESSED_BYTES = 2**14
COMPRESSION = {"compression": "gzip", "compression_opts": 1, "shuffle": True, "fletcher32": True}
# How the scale of a dimension without coordinates is called, with its length in ten characters.
NO_VARIABLE = "This is a netCDF dimension but not a netCDF variable."

# Name of a dimension → its scale, of a group and of those above it.
Scales = ChainMap[str, h5py.Dataset]


def netcdf_file(tree: xr.DataTree) -> bytes:
    """The content of a file that holds the tree, as `xarray.open_datatree` reads it."""
    options = {"driver": "core", "backing_store": False, "track_order": True}
    with h5py.File("in memory", "w", **options) as file:
        versions = f"version=2,hdf5={h5py.version.hdf5_version},h5py={h5py.__version__}"
        file.attrs["_NCProperties"] = np.bytes_(versions)
        scales, numbers = {tree.path: Scales()}, count()
        for node in tree.subtree:
            group = file
            if node is not tree:
                group = file.create_group(node.path, track_order=True)
                scales[node.path] = scales[node.parent.path].new_child()
            write_group(group, node.to_dataset(inherit=False), scales[node.path], numbers)
        file.flush()
        return file.id.get_file_image()


def write_group(
    group: h5py.Group, table: xr.Dataset, scales: Scales, numbers: Iterator[int]
) -> None:
    """Write a table into a group, and add its dimensions to `scales`, numbered from `numbers`."""
    variables, attributes = cf_encoder(*encode_dataset_coordinates(table))
    add_attributes(group, attributes)
    for name, size in table.sizes.items():
        if name in variables:
            scale, label = stored(group, name, variables[name]), name
        elif name in scales and scales[name].shape == (size,):
            continue
        else:
            limit = {} if size else {"maxshape": (None,)}
            scale = group.create_dataset(name, (size,), ">f4", track_order=True, **limit)
            label = f"{NO_VARIABLE}{size:10}"
        scale.attrs["_Netcdf4Dimid"] = np.int32(next(numbers))
        h5py.h5ds.set_scale(scale.id, label.encode())
        scales[name] = scale
    for name, variable in variables.items():
        if name not in table.sizes:
            written, dimensions = stored(group, name, variable), variable.dims
            for place, dimension in enumerate(dimensions):
                h5py.h5ds.attach_scale(written.id, scales[dimension].id, place)
            if dimensions:
                ids = [scales[dimension].attrs["_Netcdf4Dimid"] for dimension in dimensions]
                written.attrs["_Netcdf4Coordinates"] = np.array(ids, np.int32)


def stored(group: h5py.Group, name: str, variable: xr.Variable) -> h5py.Dataset:
    """The dataset with the values and attributes of an encoded variable."""
    values, attributes = variable.values, dict(variable.attrs)
    options = {"track_order": True, "fillvalue": attributes.get("_FillValue")}
    if values.dtype.kind in "UO":
        values, options = values.astype(object), {"dtype": h5py.string_dtype(), "track_order": True}
    elif values.nbytes >= COMPRESSED_BYTES:
        options |= COMPRESSION
    if 0 in values.shape:
        options["maxshape"] = tuple(size or None for size in values.shape)
    dataset = group.create_dataset(name, values.shape, data=values, **options)
    add_attributes(dataset, attributes)
    return dataset


def add_attributes(to: h5py.Group | h5py.Dataset, attributes: Mapping[str, Any]) -> None:
    """Add attributes: numbers as arrays of one, which is how the library of netCDF writes them."""
    for name, value in attributes.items():
        text = isinstance(value, str | bytes | list | tuple)
        to.attrs[name] = value if text else np.atleast_1d(value)


# --- read back

# Attributes by which files say what dimensions are, and how they were written.
HIDDEN = {
    "CLASS",
    "NAME",
    "DIMENSION_LIST",
    "REFERENCE_LIST",
    "_Netcdf4Dimid",
    "_Netcdf4Coordinates",
    "_NCProperties",
}


def netcdf_tree(file: h5py.File) -> xr.DataTree:
    """All groups of a file, in memory."""
    tables = {"/": netcdf_table(file)}

    def add(path: str, item: h5py.Group | h5py.Dataset) -> None:
        if isinstance(item, h5py.Group):
            tables[path] = netcdf_table(item)

    file.visititems(add)
    return xr.DataTree.from_dict(tables)


def netcdf_table(group: h5py.Group, only: Container[str] | None = None) -> xr.Dataset:
    """The variables of a group, or only these, in memory; without those of the groups above it."""
    variables = {}
    for name, item in group.items():
        if isinstance(item, h5py.Dataset) and (only is None or name in only):
            attributes = dict(item.attrs)
            if not attributes.get("NAME", b"").startswith(NO_VARIABLE.encode()):
                variables[name] = netcdf_variable(item, attributes)
    return xr.decode_cf(xr.Dataset(variables, attrs=shown(dict(group.attrs))))


def netcdf_variable(dataset: h5py.Dataset, attributes: Mapping[str, Any]) -> xr.Variable:
    """A variable as it is stored; `attributes` are all that the file has of it."""
    text = h5py.check_string_dtype(dataset.dtype) is not None
    values = np.asarray(dataset.asstr()[()]).astype(str) if text else dataset[()]
    return xr.Variable(dimensions_of(dataset, attributes), values, shown(attributes))


def dimensions_of(dataset: h5py.Dataset, attributes: Mapping[str, Any] | None = None) -> list[str]:
    """The names of the scales that are attached to a dataset; of a scale its own name."""
    attributes = dataset.attrs if attributes is None else attributes
    paths = [dataset.name]
    if attributes.get("CLASS") != b"DIMENSION_SCALE":
        scales = [attached[0] for attached in attributes.get("DIMENSION_LIST", ())]
        paths = [h5py.h5r.get_name(scale, dataset.file.id).decode() for scale in scales]
    return [path.rpartition("/")[2] for path in paths]


def shown(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """The attributes that were given: arrays of one as what is in them, several texts as a list."""
    found = {}
    for name, value in attributes.items():
        if name not in HIDDEN:
            if isinstance(value, np.ndarray) and value.dtype.kind in "OSU":
                value = value.tolist()
            found[name] = value[0] if np.ndim(value) and len(value) == 1 else value
    return found
