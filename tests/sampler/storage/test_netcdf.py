"""Files of results against xarray's own reader and writer, by h5netcdf."""

import h5netcdf
import h5py
import numpy as np
import pytest
import xarray as xr

from sampler.storage.netcdf import netcdf_file, netcdf_tree
from tests import FIXTURES


def tree_of_all_kinds(rng) -> xr.DataTree:
    """All kinds of values, attributes, dimensions and groups."""
    above = xr.Dataset(
        {
            "real": (("row", "column"), rng.standard_normal((3, 4)), {"long_name": "of π", "n": 2}),
            "single": (("row", "column"), rng.standard_normal((3, 4)).astype(np.float32)),
            "missing": ("row", [1.0, np.nan, np.inf]),
            "whole": ("column", np.arange(4, dtype=np.int32), {"weights": np.arange(3.0)}),
            "truth": ("row", [True, False, True]),
            "text": (("row", "two"), [["a", "Ω"], ["", "b b"], ["c", "d"]]),
            "number": 3.5,
            "word": "alone",
            "none": (("nothing", "row"), np.zeros((0, 3))),
            "no_text": ("nothing", np.array([], dtype=str)),
            "large": (("row", "long"), rng.standard_normal((3, 4000))),
        },
        {"row": ["x", "y", "z"], "column": [3, 1, 2, 0], "name": ("row", ["p", "q", "r"])},
        {"names": ["a", "b"], "version": 7, "text": "so", "real": 0.5, "array": np.arange(4)},
    )
    below = xr.Dataset({"below": ("row", rng.standard_normal(3)), "real": ("own", [1.0])})
    groups = {"/": above, "/below": below, "/below/deep": xr.Dataset(attrs={"a": 1})}
    return xr.DataTree.from_dict(groups)


def assert_the_same(received: xr.DataTree, expected: xr.DataTree) -> None:
    xr.testing.assert_identical(received, expected)
    for node in expected.subtree:
        for name, variable in node.variables.items():
            other = received[node.path].variables[name]
            assert other.dtype.kind == variable.dtype.kind, (node.path, name)
            assert other.attrs.keys() == variable.attrs.keys()


def test_what_is_written_is_what_xarray_reads(rng, tmp_path):
    expected, path = tree_of_all_kinds(rng), tmp_path / "written.nc"
    path.write_bytes(netcdf_file(expected))
    with xr.open_datatree(path, engine="h5netcdf") as received:
        assert_the_same(received.load(), expected)


def test_what_xarray_writes_is_read(rng, tmp_path):
    expected, path = tree_of_all_kinds(rng), tmp_path / "written.nc"
    expected.to_netcdf(path, engine="h5netcdf")
    with h5py.File(path) as file:
        assert_the_same(netcdf_tree(file), expected)


@pytest.mark.parametrize("name", ["theory.nc", "comparison.nc"])
def test_files_of_a_run_are_read_as_xarray_reads_them(name):
    path = FIXTURES / "finished" / name
    with xr.open_datatree(path, engine="h5netcdf") as expected, h5py.File(path) as file:
        assert_the_same(netcdf_tree(file), expected.load())


def test_dimensions_are_numbered_and_attached_as_the_library_of_netcdf_asks(rng, tmp_path):
    """Every variable names the numbers of its dimensions, which are unique in the file."""
    path, numbers = tmp_path / "written.nc", {}
    path.write_bytes(netcdf_file(tree_of_all_kinds(rng)))
    with h5py.File(path) as file:

        def look(name: str, item: h5py.Group | h5py.Dataset) -> None:
            if isinstance(item, h5py.Dataset) and item.is_scale:
                numbers[item.name] = int(item.attrs["_Netcdf4Dimid"])
            elif isinstance(item, h5py.Dataset) and item.ndim:
                scales = [item.dims[place][0] for place in range(item.ndim)]
                assert [len(scale) for scale in scales] == list(item.shape)
                ids = [scale.attrs["_Netcdf4Dimid"] for scale in scales]
                assert item.attrs["_Netcdf4Coordinates"].tolist() == ids

        file.visititems(look)
    assert len(numbers) == len(set(numbers.values())) == 6
    with h5netcdf.File(path) as file:
        assert {name: len(size) for name, size in file.dimensions.items()} == {
            "row": 3,
            "column": 4,
            "two": 2,
            "nothing": 0,
            "long": 4000,
        }
