"""Arrays in .npz files that users bring, read with an error that names the file or the array."""

import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from numpy.lib.npyio import NpzFile

from sampler.errors import InputError, Verbatim


@contextmanager
def open_npz(path: Path, field: str, remedy: str = "name an .npz file") -> Iterator[NpzFile]:
    """Open an .npz file that the recipe names under `field`; InputError if it is none."""
    try:
        # Opened here: NumPy leaves a file open when it turns out not to be an archive.
        with path.open("rb") as file:
            stored = np.load(file, allow_pickle=False)
            if not isinstance(stored, NpzFile):
                raise InputError(field, str(path), "must be an .npz file, not one array")
            yield stored
    except OSError as problem:
        reason = problem.strerror or str(problem)
        raise InputError(field, str(path), f"{reason}; {remedy}") from None
    except (ValueError, EOFError, zipfile.BadZipFile) as problem:
        raise InputError(
            field, str(path), f"is not a readable .npz file ({problem}); store it again"
        ) from None


def read_array(stored: NpzFile, key: str, remedy: str) -> np.ndarray:
    """One array of the file; InputError with this remedy if it cannot be read."""
    try:
        return stored[key]
    except (ValueError, EOFError, OSError, zipfile.BadZipFile, zipfile.zlib.error) as problem:
        raise InputError(key, Verbatim("(unreadable)"), f"{problem}; {remedy}") from None
