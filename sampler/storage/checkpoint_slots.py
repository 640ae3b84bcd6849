"""The two checkpoints of a run that take turns: which can be read, and which may be used."""

import logging
from dataclasses import dataclass
from pathlib import Path

from sampler.errors import InputError
from sampler.storage.fingerprint import differences
from sampler.storage.run_directory import CHECKPOINT_SLOTS
from sampler.storage.sealed import DamagedFile, Sealed, read_sealed

LOG = logging.getLogger("attention_posterior")


@dataclass(frozen=True)
class Slots:
    """What was found in a folder: intact checkpoints, the newest first, and what is wrong."""

    intact: tuple[tuple[str, Sealed], ...]
    damage: tuple[str, ...]

    @property
    def empty(self) -> bool:
        """Whether no checkpoint was ever written here."""
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
        str(folder.parent),
        f"no checkpoint can be used ({reason}); remove {folder.name}/ there to {again} from the "
        "beginning",
    )


def refuse_another_checkpoint(folder: Path, stored: dict, current: dict, what: str) -> None:
    """Raise InputError, naming what differs, for a checkpoint of another run or training."""
    found = differences(stored, current)
    if found:
        raise InputError(
            "DIR",
            str(folder.parent),
            f"its checkpoint is of a {what} with other {', '.join(found)}; restore them, or use "
            "another directory",
        )
