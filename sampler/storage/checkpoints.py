"""The two checkpoints in which all that runs for long is saved."""

import hashlib
import math
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from sampler.errors import InputError
from sampler.storage.archives import (
    Archive,
    DamagedFile,
    read_archive,
    read_header,
    write_archive,
)
from sampler.storage.directory import CHECKPOINT_FOLDER, LOG, ROWS_FOLDER
from sampler.storage.files import remove, write_atomically
from sampler.storage.fingerprint import FINGERPRINT, carries, stamp

if TYPE_CHECKING:
    import numpy as np
    import xarray as xr

    Arrays = Mapping[str, np.ndarray]

# They take turns, so that one is whole whatever happens to the other.
SLOTS = ("state-0.npz", "state-1.npz")
# In a header: which arrays of a finished run are read from its draws. Smaller ones stay.
STORED, LARGE = "stored", 2**16
# A save is due after these seconds, or this multiple of the last save's: whichever is later.
SECONDS_BETWEEN, TIMES_THE_LAST = 10.0, 20.0
# Tests save more often, in the processes that they start as well.
EVERY = float(os.environ.get("ATTENTION_POSTERIOR_SAVE_SECONDS", SECONDS_BETWEEN))


@dataclass
class Checkpoints:
    """Two files that take turns, each with the state of a work and all it has gathered.

    A header has the progress: `phase`, and `done` steps of `total`.

    folder       where they are; None: nothing is saved
    determined   what determines it, which a checkpoint must agree with to be used (`determining`)
    every        seconds after which a save is due; with fewer than usual a long save counts less
    work         "run" or "training"
    """

    folder: Path | None = None
    determined: Mapping = field(default_factory=dict)
    every: float = EVERY
    work: str = "run"
    _sequence: int = field(default=0, init=False)
    _saved_at: float = field(default_factory=time.monotonic, init=False)
    _wait: float = field(init=False)

    def __post_init__(self) -> None:
        self._wait = self.every

    @property
    def due(self) -> bool:
        """Whether it is time to save."""
        waited = time.monotonic() - self._saved_at
        return self.folder is not None and waited >= self._wait

    def newest(self) -> Archive | None:
        """The newest checkpoint that is intact; None where nothing was saved yet.

        A damaged one is reported in the log, and the other is used. Raises InputError where there
        was one and none can be used, which are never begun again in silence, and for a checkpoint
        of another work.
        """
        if self.folder is None or not self.folder.is_dir():
            return None
        for stored in self.intact():
            try:
                LOG.info("going on after {phase}, {done} of {total}".format(**stored.header))
                self._sequence = stored.header["sequence"] + 1
            except KeyError as problem:
                raise self.unfit(problem) from None
            return self.completed(stored)
        remedy = f"remove {self.folder.name}/ there to begin the {self.work} again"
        text = f"its checkpoints are damaged or missing; {remedy}"
        raise InputError("DIR", self.folder.parent, text)

    def intact(self) -> Iterator[Archive]:
        """Yield the checkpoints that can be used, the newest first."""
        for path in newest_first(self.folder):
            try:
                stored = read_archive(path)
            except DamagedFile as problem:
                LOG.warning("%s; this checkpoint is not used", problem)
            else:
                self._refuse_another(stored)
                yield stored

    def completed(self, stored: Archive) -> Archive:
        """A checkpoint with the arrays that `draws.nc` has for it; InputError without these."""
        places = stored.header.get(STORED)
        if not places:
            return stored
        from sampler.storage.result_files import read_draws

        draws, arrays = read_draws(self.folder.parent), dict(stored.arrays)
        try:
            for key, (group, name, shape) in places.items():
                arrays[key] = draws[group][name].to_numpy().reshape(shape)
        except (KeyError, ValueError) as problem:
            raise self.unfit(problem) from None
        return Archive(stored.header, arrays)

    def _refuse_another(self, stored: Archive) -> None:
        if not carries(stored.header[FINGERPRINT], self.determined):
            raise self.unfit("other settings, data or versions")

    def unfit(self, problem: object) -> InputError:
        """The error of a checkpoint that is intact and not of this work, with the differences."""
        remedy = f"remove {self.folder.name}/ there to begin the {self.work} again"
        text = f"its checkpoint is of another {self.work} ({problem}); {remedy}"
        return InputError("DIR", self.folder.parent, text)

    def save(self, header: Mapping, arrays: "Arrays") -> None:
        """Write a checkpoint over the older one. Raises DiskError where that fails."""
        if self.folder is None:
            return
        began, name = time.monotonic(), SLOTS[self._sequence % 2]
        full = {**header, "sequence": self._sequence, FINGERPRINT: stamp(self.determined)}

        def write_first(folder: Path) -> None:
            folder.mkdir()
            write_archive(folder / name, full, arrays)

        if self.folder.is_dir():
            write_archive(self.folder / name, full, arrays)
        else:  # the folder comes with its first file: an empty one has lost what it held
            write_atomically(self.folder, write_first)
        self._sequence += 1
        self._saved_at = time.monotonic()
        took = self._saved_at - began
        self._wait = self.every * max(1.0, TIMES_THE_LAST * took / SECONDS_BETWEEN)

    def settle(self, draws: "xr.DataTree") -> None:
        """Keep the newest checkpoint alone, of finished work, without the contents of `draws.nc`.

        Large arrays that stored draws have bit for bit are read from there on resuming.
        """
        newest = next(self.intact(), None)
        if newest is None:
            return
        places = {} if STORED in newest.header else places_in_draws(newest.arrays, draws)
        if places:
            arrays = {key: v for key, v in newest.arrays.items() if key not in places}
            header = {**newest.header, STORED: places, "sequence": newest.header["sequence"] + 1}
            write_archive(self.folder / SLOTS[header["sequence"] % 2], header, arrays)
            newest, self._sequence = Archive(header, arrays), header["sequence"] + 1
        older = SLOTS[(newest.header["sequence"] + 1) % 2]
        (self.folder / older).unlink(missing_ok=True)

    def remove(self) -> None:
        """Remove the checkpoints, whose work is stored."""
        if self.folder is not None:
            remove(self.folder)


def places_in_draws(arrays: "Arrays", draws: "xr.DataTree") -> dict[str, list]:
    """Group and variable of stored draws with the bits of an array, and its shape, by its key."""

    def bits_of(values: "np.ndarray") -> tuple[str, bytes]:
        return values.dtype.str, hashlib.sha256(values.tobytes()).digest()

    stored = {
        bits_of(values.values): (table.path, name)
        for table in draws.subtree
        for name, values in table.data_vars.items()
        if values.nbytes >= LARGE
    }
    large = {key: values for key, values in arrays.items() if values.nbytes >= LARGE}
    found = {key: stored.get(bits_of(values)) for key, values in large.items()}
    return {key: [*place, list(large[key].shape)] for key, place in found.items() if place}


def newest_first(folder: Path | None) -> list[Path]:
    """The checkpoints in a folder, by their headers; one without a header comes first."""

    def sequence(path: Path) -> int | float:
        try:
            return read_header(path)["sequence"]
        except (DamagedFile, KeyError, TypeError):
            return math.inf

    paths = [folder / name for name in SLOTS] if folder else []
    return sorted(filter(Path.exists, paths), key=sequence, reverse=True)


def has_checkpoint(directory: Path) -> bool:
    """Whether chains or particles were saved in the directory of a run."""
    return bool(newest_first(directory / CHECKPOINT_FOLDER))


def newest_header(directory: Path) -> dict | None:
    """Header of the newest checkpoint in the directory of a run; None where there is none."""
    for folder in (CHECKPOINT_FOLDER, ROWS_FOLDER):
        for path in newest_first(directory / folder):
            with suppress(DamagedFile):
                return read_header(path)
    return None
