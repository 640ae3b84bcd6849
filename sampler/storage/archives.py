"""Files of arrays: an uncompressed `.npz`, and in it one more member, `header`, of JSON.

The zip format keeps a CRC-32 of every member and its table of contents at the end: a truncated file
has none, and a changed one is noticed but for one in 2³² by chance. Against SHA-256 two things are
lost: whoever changes a file on purpose can keep its CRC, and bytes that hold no content, such as
dates, may change unnoticed.
"""

import json
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sampler.storage.files import write_atomically

if TYPE_CHECKING:
    import numpy as np

    Arrays = Mapping[str, np.ndarray]

HEADER = "header"


class DamagedFile(Exception):
    """A file with damaged content; the text describes the damage."""


@dataclass(frozen=True)
class Archive:
    """The content of a file of arrays."""

    header: dict
    arrays: "Arrays"

    def part(self, kind: str) -> "dict[str, np.ndarray]":
        """Name → array, of the arrays under keys `kind/name`."""
        start, arrays = f"{kind}/", self.arrays.items()
        return {key.removeprefix(start): v for key, v in arrays if key.startswith(start)}


def joined(**kinds: "Arrays") -> "dict[str, np.ndarray]":
    """The arrays of several kinds under keys `kind/name`."""
    return {f"{kind}/{name}": v for kind, arrays in kinds.items() for name, v in arrays.items()}


def write_archive(path: Path, header: Mapping, arrays: "Arrays") -> None:
    """Write a file completely or not at all; DiskError if that fails. Equal content, equal bytes.

    The header keeps the keys of the arrays, so that one that is missing is noticed.
    """
    import numpy as np  # only here: the progress of runs is said without it

    text = json.dumps({**header, "arrays": list(arrays)}, allow_nan=False)

    def write(temporary: Path) -> None:
        with zipfile.ZipFile(temporary, "w") as archive:
            with archive.open(HEADER, "w") as member:
                member.write(text.encode())
            for key, values in arrays.items():
                with archive.open(f"{key}.npy", "w", force_zip64=True) as member:
                    np.lib.format.write_array(member, np.asarray(values), allow_pickle=False)

    write_atomically(path, write)


def read_archive(path: Path) -> Archive:
    """Read a file, checking all that it holds. Raises DamagedFile, also where it is missing."""
    import numpy as np

    header = read_header(path)
    try:
        with np.load(path, allow_pickle=False) as archive:
            arrays = {key: archive[f"{key}.npy"] for key in header.pop("arrays")}
    except Exception as problem:  # zip and NumPy raise a dozen kinds for damaged bytes
        raise damaged(path, problem) from None
    return Archive(header, arrays)


def read_header(path: Path) -> dict:
    """The header alone, without NumPy. Raises DamagedFile where there is none."""
    try:
        with zipfile.ZipFile(path) as archive:
            return dict(json.loads(archive.read(HEADER)))
    except Exception as problem:
        raise damaged(path, problem) from None


def damaged(path: Path, problem: Exception) -> DamagedFile:
    return DamagedFile(f"{path.name} is not what this program wrote ({problem})")
