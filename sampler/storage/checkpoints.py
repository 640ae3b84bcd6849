"""The two checkpoints in which all that runs for long is saved."""

import math
import os
import time
from collections.abc import Mapping
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

    Arrays = Mapping[str, np.ndarray]

# They take turns, so that one is whole whatever happens to the other.
SLOTS = ("state-0.npz", "state-1.npz")
# A save is due after so many seconds, or so many times those of the last save: whichever is later.
SECONDS_BETWEEN, TIMES_THE_LAST = 10.0, 20.0
# Tests save more often, in the processes that they start, too.
EVERY = float(os.environ.get("ATTENTION_POSTERIOR_SAVE_SECONDS", SECONDS_BETWEEN))


@dataclass
class Checkpoints:
    """Two files that take turns, each with the state of a work and all it has gathered.

    A header says how far the work is: `phase`, and `done` steps of `total`.

    folder       where they are; None: nothing is saved
    determined   what determines it, which a checkpoint must agree with to be used (`determining`)
    every        seconds after which a save is due; with fewer than usual a long save counts less
    """

    folder: Path | None = None
    determined: Mapping = field(default_factory=dict)
    every: float = EVERY
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
        for path in newest_first(self.folder):
            try:
                stored = read_archive(path)
            except DamagedFile as problem:
                LOG.warning("%s; this checkpoint is not used", problem)
                continue
            try:
                if not carries(stored.header[FINGERPRINT], self.determined):
                    raise self.unfit("other settings, data or versions")
                LOG.info("going on after {phase}, {done} of {total}".format(**stored.header))
                self._sequence = stored.header["sequence"] + 1
            except KeyError as problem:
                raise self.unfit(problem) from None
            return stored
        raise self._refusal("its checkpoints are damaged or missing")

    def unfit(self, problem: object) -> InputError:
        """The error of a checkpoint that is intact and not of this work, with what differs."""
        return self._refusal(f"its checkpoint is of another work ({problem})")

    def _refusal(self, text: str) -> InputError:
        remedy = f"remove {self.folder.name}/ there to begin again"
        return InputError("DIR", self.folder.parent, f"{text}; {remedy}")

    def save(self, header: Mapping, arrays: "Arrays") -> None:
        """Write a checkpoint in the place of the older one. Raises DiskError where that fails."""
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

    def settle(self) -> None:
        """Keep the newest checkpoint alone, of what came to its end here."""
        (self.folder / SLOTS[self._sequence % 2]).unlink(missing_ok=True)

    def remove(self) -> None:
        """Remove the checkpoints, whose work is stored."""
        if self.folder is not None:
            remove(self.folder)


def newest_first(folder: Path | None) -> list[Path]:
    """The checkpoints in a folder, by their headers; one without a header comes first."""

    def sequence(path: Path) -> int | float:
        try:
            return read_header(path)["sequence"]
        except (DamagedFile, KeyError, TypeError):
            return math.inf

    paths = [folder / name for name in SLOTS] if folder else []
    return sorted(filter(Path.exists, paths), key=sequence, reverse=True)


def newest_header(directory: Path) -> dict | None:
    """Header of the newest checkpoint in the directory of a run; None where there is none."""
    for folder in (CHECKPOINT_FOLDER, ROWS_FOLDER):
        for path in newest_first(directory / folder):
            with suppress(DamagedFile):
                return read_header(path)
    return None
