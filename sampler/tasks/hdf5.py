"""HDF5 files that are brought."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from sampler.errors import InputError, Setting

HDF5_SUFFIXES = (".h5", ".hdf5")


# What HDF5 says of a file that is open in this process, there with a lock and here without, or the
# other way round.
OPENED_OTHERWISE = "locking flag"


@contextmanager
def opened_hdf5(path: Path) -> Iterator[Any]:
    """Open an HDF5 file, open elsewhere in this process or not; InputError if it is none."""
    import h5py  # only here: it takes a moment

    with ExitStack() as stack:
        try:
            path.stat()  # of what is not there HDF5 writes a paragraph
            file = h5py.File(path, "r", locking="best-effort")
        except FileNotFoundError as problem:
            remedy = f"{problem.strerror}; name an .npz or .h5 file"
            raise InputError(Setting("task", "path"), path, remedy) from None
        except OSError as problem:
            if OPENED_OTHERWISE not in str(problem):
                remedy = f"is not a readable HDF5 file ({problem}); name an .npz or .h5 file"
                raise InputError(Setting("task", "path"), path, remedy) from None
            # Read by Python it is another file to HDF5, which is slower.
            file = h5py.File(stack.enter_context(path.open("rb")), "r")
        yield stack.enter_context(file)
