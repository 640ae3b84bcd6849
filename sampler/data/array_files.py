"""Files of arrays that are brought: .npz, read whole, and HDF5, read in parts."""

import hashlib
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.npyio import NpzFile

from sampler.errors import InputError, Verbatim

HDF5_SUFFIXES = (".h5", ".hdf5")
# What HDF5 says of a file that is open in this process as to its lock in another way than here.
OPENED_OTHERWISE = "locking flag"
REQUIRED_ARRAY = "this array is required"
# NamedArrays by name, of NumPy or of HDF5.
NamedArrays = Mapping[str, Any]


@contextmanager
def open_npz(path: Path, field: str, remedy: str = "name an .npz file") -> Iterator[NpzFile]:
    """Open an .npz file that the recipe names under `field`; InputError if it is none."""
    try:
        # Opened here: NumPy leaves a file open when it turns out not to be an archive.
        with path.open("rb") as file:
            # Without the first bytes of an archive NumPy takes anything for one array or a pickle.
            if file.read(2) != b"PK":
                raise ValueError("it is no archive as numpy.savez writes it")
            file.seek(0)
            yield np.load(file, allow_pickle=False)
    except InputError:
        raise
    except OSError as problem:
        raise InputError(field, path, f"{problem.strerror or problem}; {remedy}") from None
    except (ValueError, EOFError, zipfile.BadZipFile) as problem:
        text = f"is not a readable .npz file ({problem}); store it again"
        raise InputError(field, path, text) from None


def read_array(stored: NpzFile, key: str, remedy: str) -> np.ndarray:
    """One array of the file; InputError with this remedy if it cannot be read."""
    try:
        array = stored[key]
        if not hasattr(array, "dtype"):  # bytes: a member that does not begin as an array does
            raise ValueError("is no array")
    except (ValueError, EOFError, OSError, zipfile.BadZipFile, zlib.error) as problem:
        raise InputError(key, Verbatim("(unreadable)"), f"{problem}; {remedy}") from None
    return array


@contextmanager
def open_hdf5(path: Path) -> Iterator[NamedArrays]:
    """The arrays of an HDF5 file, wherever else it is open; InputError if it is none."""
    import h5py  # only here: it takes a moment

    with ExitStack() as stack:
        try:
            path.stat()  # of what is not there HDF5 writes a paragraph
            try:
                file = h5py.File(path, "r", locking="best-effort")
            except OSError as problem:
                if OPENED_OTHERWISE not in str(problem):
                    raise
                # Read by Python it is another file to HDF5, which is slower.
                file = h5py.File(stack.enter_context(path.open("rb")), "r")
        except OSError as problem:
            remedy = f"is not a readable HDF5 file ({problem}); name an .npz or .h5 file"
            raise InputError("task.path", path, remedy) from None
        stack.enter_context(file)
        yield {name: file[name] for name in file}


@dataclass(frozen=True)
class ArrayFile:
    """A file, read once for the checksum of all its splits."""

    path: Path

    @cached_property
    def digest(self) -> str:
        with self.path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
