"""HDF5 files that are brought: what is there by name, and what of it is no array."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sampler.errors import InputError, Verbatim

HDF5_SUFFIXES = (".h5", ".hdf5")


@contextmanager
def opened_hdf5(path: Path) -> Iterator[Any]:
    """Open an HDF5 file; InputError if it is none, or not whole."""
    import h5py  # only here: it takes a moment

    try:
        file = h5py.File(path, "r", locking="best-effort")
    except OSError as problem:
        if not path.is_file():
            remedy = "there is no such file; name an .npz or .h5 file"
        elif "truncated" in str(problem):
            remedy = "the file is not whole (truncated); copy or write it again"
        else:
            remedy = f"is not a readable HDF5 file ({problem}); write it again"
        raise InputError("task.path", path, remedy) from None
    with file:
        yield file


def names_in(file: Any) -> list[str]:
    """List the names in a file. Raises InputError for one that is no text."""
    for name in file:
        if isinstance(name, bytes):  # what h5py makes of a name that is not UTF-8
            raise InputError("name of an array", name, "must be UTF-8; give it another name")
    return list(file)


def datasets_of(file: Any) -> dict[str, Any]:
    """Return the arrays of a file by name. Raises InputError for one that cannot be read."""
    return {name: readable(name, file.get(name)) for name in file}


def readable(name: str, found: Any) -> Any:
    """Return what stands under a name, with type and shape; InputError for anything else."""
    try:
        kind, shape = getattr(found, "dtype", None), getattr(found, "shape", None)
    except TypeError as problem:
        raise InputError(name, Verbatim(f"({problem})"), "store a plain array again") from None
    if found is None:
        refused = "(a broken link)"
    elif kind is None or not hasattr(found, "shape"):
        refused = "(a type)" if kind else "(a group)"
    elif shape is None:
        refused = "(empty)"
    else:
        return found
    raise InputError(name, Verbatim(refused), "must be an array; store it again, or remove it")
