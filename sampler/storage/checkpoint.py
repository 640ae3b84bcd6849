"""Sealed files, and two checkpoints that take turns.

First line of a sealed file: SHA-256 of everything after it; second line: the header; then arrays in
NumPy's format.
"""

import hashlib
import io
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from zipfile import BadZipFile

import numpy as np

from sampler.errors import InputError
from sampler.storage.manifest import differences
from sampler.storage.run_directory import (
    CHECKPOINT_FOLDER,
    CHECKPOINT_SLOTS,
    LOG,
    fill_whole,
)

# Computing after which draws, or a network in training, are saved; tests save more often.
SECONDS_BETWEEN = float(os.environ.get("ATTENTION_POSTERIOR_SAVE_SECONDS", "10"))


class DamagedFile(Exception):
    """A sealed file whose content is not what was written; the text says how that shows."""


@dataclass(frozen=True)
class Sealed:
    """The content of a sealed file, and the checksum it carries."""

    header: dict
    arrays: Mapping[str, np.ndarray]
    checksum: str

    @property
    def tables(self) -> dict[str, dict[str, np.ndarray]]:
        """Kind → name → array, of arrays under keys `kind/name`."""
        found: dict[str, dict[str, np.ndarray]] = {}
        for key, values in self.arrays.items():
            kind, _, name = key.partition("/")
            found.setdefault(kind, {})[name] = values
        return found


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


# The file of one repetition of particles.
REPETITION = "repetition-{law}-{number:03d}.bin"

# Arrays of a checkpoint of chains: their state, and moments of draws that are not kept.
STATE, MOMENTS = "state", "moments"


@dataclass(frozen=True)
class Slots:
    """Checkpoints found in a folder: intact ones, the newest first, and what is wrong."""

    intact: tuple[tuple[str, Sealed], ...]
    damage: tuple[str, ...]

    @property
    def empty(self) -> bool:
        return not self.intact and not self.damage


def read_slots(folder: Path) -> Slots:
    """Read both checkpoints; a damaged one is reported in the log."""
    intact, damage = [], []
    for path in (folder / name for name in CHECKPOINT_SLOTS):
        if path.exists():
            try:
                intact.append((path.name, read_sealed(path)))
            except DamagedFile as problem:
                damage.append(str(problem))
                LOG.warning("%s; it is not used", problem)
    intact.sort(key=lambda entry: entry[1].header["sequence"], reverse=True)
    return Slots(tuple(intact), tuple(damage))


def no_usable_checkpoint(folder: Path, reason: str, again: str) -> InputError:
    """The error where there was a checkpoint and none can be used."""
    return InputError(
        "DIR",
        folder.parent,
        f"no checkpoint can be used ({reason}); remove {folder.name}/ there to {again} from the "
        "beginning",
    )


def refuse_another_checkpoint(folder: Path, stored: dict, current: dict, what: str) -> None:
    """Raise InputError, naming what differs, for a checkpoint of another run or training."""
    found = differences(stored, current)
    if found:
        raise InputError(
            "DIR",
            folder.parent,
            f"its checkpoint is of a {what} with other {', '.join(found)}; restore them, or use "
            "another directory",
        )


def has_checkpoint(directory: Path) -> bool:
    """Whether chains, or repetitions, were saved in the directory of a run."""
    folder = directory / CHECKPOINT_FOLDER
    names = (*CHECKPOINT_SLOTS, REPETITION.format(law="modes", number=0))
    return any((folder / name).is_file() for name in names)
