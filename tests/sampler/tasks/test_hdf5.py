"""What HDF5 files and other machines can hold that is no array of this one's numbers."""

import h5py
import numpy as np
import pytest

from sampler.errors import InputError
from sampler.tasks import splits
from sampler.tasks.arrays import read_arrays
from tests.sampler.tasks.test_arrays import arrays


def of_low_level_type(kind):
    """Five numbers of a type that h5py makes only at its low level."""

    def put(file, key):
        space = h5py.h5s.create_simple((5,))
        h5py.h5d.create(file.id, key.encode(), kind, space)

    return put


def put(value):
    return lambda file, key: file.__setitem__(key, value)


NOT_ARRAYS = {
    "empty": (put(h5py.Empty("f8")), r"^labels_train = \(empty\): must be an array"),
    "soft link": (put(h5py.SoftLink("/nowhere")), r"^labels_train = \(a broken link\)"),
    "external link": (put(h5py.ExternalLink("no.h5", "/x")), r"^labels_train = \(a broken link\)"),
    "group": (lambda file, key: file.create_group(key), r"^labels_train = \(a group\)"),
    "type": (put(np.dtype("f8")), r"^labels_train = \(a type\)"),
    "time": (of_low_level_type(h5py.h5t.UNIX_D32LE), r"^labels_train = \(No NumPy equivalent"),
    "bits": (of_low_level_type(h5py.h5t.STD_B16LE), r"^labels_train = 'uint16': .*float32"),
    "opaque": (put(np.zeros(5, "V2")), r"^labels_train = '\|V2': .*float32"),
    "record": (put(np.zeros(5, [("a", "f8")])), r"^labels_train = .*float32"),
}


@pytest.mark.parametrize(("put", "message"), NOT_ARRAYS.values(), ids=NOT_ARRAYS)
def test_what_is_no_array_of_numbers_is_named(tmp_path, put, message):
    stored = arrays()
    del stored["labels_train"]
    with h5py.File(tmp_path / "mine.h5", "w") as file:
        put(file, "labels_train")
        for key, array in stored.items():
            file[key] = array
    with pytest.raises(InputError, match=message):
        read_arrays(tmp_path / "mine.h5")


@pytest.mark.parametrize("name", [b"labels_\xff", b"\xff"])
def test_a_name_in_bytes_is_refused(tmp_path, name):
    with h5py.File(tmp_path / "mine.h5", "w") as file:
        file[name] = np.ones(3)
    with pytest.raises(InputError, match=r"^name of an array = b'.*\\xff': must be UTF-8"):
        read_arrays(tmp_path / "mine.h5")


def write(path, stored):
    if path.suffix == ".npz":
        np.savez(path, **stored)
    else:
        with h5py.File(path, "w") as file:
            for key, array in stored.items():
                file[key] = array
    return path


@pytest.mark.parametrize("suffix", [".npz", ".h5"])
def test_names_of_heads_in_bytes_are_utf_8(tmp_path, suffix):
    path, stored = tmp_path / f"mine{suffix}", arrays()
    stored["head_names_2"] = np.array([b"a", b"b", b"c"])
    named = stored | {"head_names_1": np.array(["é".encode(), b"x"])}
    assert read_arrays(write(path, named)).head_names[0] == ("é", "x")
    named = stored | {"head_names_1": np.array(["é".encode("latin-1"), b"x"])}
    with pytest.raises(InputError, match=r"^head_names_1 = b'\\xe9': must be UTF-8"):
        read_arrays(write(path, named))


@pytest.mark.parametrize("held", [2**28, 0], ids=["held", "streamed"])
@pytest.mark.parametrize("suffix", [".npz", ".h5"])
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_numbers_of_either_byte_order_are_read(tmp_path, monkeypatch, suffix, dtype, held):
    monkeypatch.setattr(splits, "HELD_BYTES", held)
    lengths = {"lengths_train": np.full(5, 6, "i4"), "lengths_test": np.full(4, 6, "i4")}
    stored = arrays(np.dtype(dtype)) | lengths
    turned = {key: array.astype(array.dtype.newbyteorder()) for key, array in stored.items()}
    found = read_arrays(write(tmp_path / f"turned{suffix}", turned))
    expected = read_arrays(write(tmp_path / f"native{suffix}", stored))
    for split, native in zip(found.splits, expected.splits, strict=True):
        for block, its in zip(split.blocks(), native.blocks(), strict=True):
            assert all(array.dtype.isnative for array in block.arrays)
            for one, other in zip(block.arrays, its.arrays, strict=True):
                assert np.array_equal(one, other)
