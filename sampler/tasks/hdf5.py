"""HDF5 files that are brought."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sampler.errors import InputError, Setting

HDF5_SUFFIXES = (".h5", ".hdf5")


@contextmanager
def opened_hdf5(path: Path) -> Iterator[Any]:
    """Open an HDF5 file; InputError if it is none, or not whole."""
    import h5py  # only here: it takes a moment

    try:
        path.stat()  # of what is not there HDF5 writes a paragraph
        file = h5py.File(path, "r", locking="best-effort")
    except FileNotFoundError as problem:
        remedy = f"{problem.strerror}; name an .npz or .h5 file"
        raise InputError(Setting("task", "path"), path, remedy) from None
    except OSError as problem:
        remedy = f"is not a readable HDF5 file ({problem}); name an .npz or .h5 file"
        raise InputError(Setting("task", "path"), path, remedy) from None
    with file:
        yield file
