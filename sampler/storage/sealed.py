"""Sealed files: a JSON header and arrays under a checksum, so that damage is always noticed.

First line: SHA-256 of everything after it; second line: the header; then arrays in NumPy's format.
"""

import hashlib
import io
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from zipfile import BadZipFile

import numpy as np

from sampler.storage.run_directory import fill_whole


class DamagedFile(Exception):
    """A sealed file whose content is not what was written; the text says how that shows."""


@dataclass(frozen=True)
class Sealed:
    """The content of a sealed file, and the checksum it carries."""

    header: dict
    arrays: Mapping[str, np.ndarray]
    checksum: str


def write_sealed(path: Path, header: dict, arrays: Mapping[str, np.ndarray]) -> str:
    """Write a file completely or not at all, and return its checksum. Raises OSError."""
    # Keys of arrays may hold any characters, member names of the archive may not.
    names = list(arrays)
    payload = io.BytesIO()
    np.savez(payload, **{f"a{i}": np.asarray(arrays[name]) for i, name in enumerate(names)})
    text = json.dumps({**header, "arrays": names}, allow_nan=False).encode()
    body = text + b"\n" + payload.getvalue()
    checksum = hashlib.sha256(body).hexdigest()
    fill_whole(path, lambda temporary: temporary.write_bytes(checksum.encode() + b"\n" + body))
    return checksum


def read_sealed(path: Path) -> Sealed:
    """Read a file and check every bit of it. Raises DamagedFile, also where it is missing."""
    checksum, body = _checked(path)
    text, _, payload = body.partition(b"\n")
    try:
        header = json.loads(text)
        with np.load(io.BytesIO(payload), allow_pickle=False) as archive:
            arrays = {name: archive[f"a{i}"] for i, name in enumerate(header.pop("arrays"))}
    except (ValueError, KeyError, BadZipFile) as problem:
        raise DamagedFile(f"{path.name} is not a file of this program ({problem})") from None
    return Sealed(header, arrays, checksum)


def peek_header(path: Path) -> dict:
    """The header alone, read at once and not checked. Raises DamagedFile if there is none."""
    try:
        with path.open("rb") as file:
            file.readline()
            return json.loads(file.readline())
    except (OSError, ValueError) as problem:
        raise DamagedFile(f"{path.name} has no header ({problem})") from None


def _checked(path: Path) -> tuple[str, bytes]:
    try:
        content = path.read_bytes()
    except OSError as problem:
        raise DamagedFile(f"{path.name}: {problem.strerror}") from None
    checksum, _, body = content.partition(b"\n")
    if hashlib.sha256(body).hexdigest().encode() != checksum:
        raise DamagedFile(f"{path.name} does not have the checksum it was written with")
    return checksum.decode(), body
