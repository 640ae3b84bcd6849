"""The state of a training on disk: two files that take turns, so that one is always whole."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from sampler.errors import InputError
from sampler.storage.checkpoint_slots import (
    no_usable_checkpoint,
    read_slots,
    refuse_another_checkpoint,
)
from sampler.storage.run_directory import CHECKPOINT_SLOTS
from sampler.storage.sealed import Sealed, write_sealed
from sampler.transformer.training import TrainingState

LOG = logging.getLogger("attention_posterior")
PARAMETER, BEST, OPTIMISER = "parameter", "best", "optimiser"


@dataclass(frozen=True)
class SavedTraining:
    """What a checkpoint holds: the state, its place in the sequence, and the time it took."""

    state: TrainingState
    sequence: int
    seconds: float


def save_training(
    folder: Path,
    state: TrainingState,
    total: int,
    sequence: int,
    seconds: float,
    fingerprint: dict,
) -> None:
    """Write the checkpoint of this sequence number. Raises InputError if it cannot be written."""
    header = {
        "sequence": sequence,
        "phase": "training",
        "done": state.step,
        "total": total,
        "seconds": seconds,
        "curve": [dict(point) for point in state.curve],
        "losses": list(state.losses),
        "fingerprint": fingerprint,
    }
    leaves = jax.tree.leaves(state.optimiser)
    arrays = {
        **{f"{PARAMETER}/{name}": np.asarray(a) for name, a in state.parameters.items()},
        **{f"{BEST}/{name}": np.asarray(a) for name, a in state.best.items()},
        **{f"{OPTIMISER}/{i}": np.asarray(a) for i, a in enumerate(leaves)},
    }
    name = CHECKPOINT_SLOTS[sequence % 2]
    try:
        folder.mkdir(exist_ok=True)
        write_sealed(folder / name, header, arrays)
    except OSError as problem:
        reason = problem.strerror or str(problem)
        raise InputError(
            name,
            str(folder),
            f"{reason}; free space or make the directory writable, then use `resume`",
        ) from None


def load_training(folder: Path, initial: TrainingState, fingerprint: dict) -> SavedTraining | None:
    """The newest intact checkpoint, None if there is none yet.

    `initial` is a state of the same network, whose structure is taken over. Raises InputError if
    there is a checkpoint and none can be used, or if it is of another training.
    """
    slots = read_slots(folder)
    if slots.empty:
        return None
    if not slots.intact:
        raise no_usable_checkpoint(folder, "; ".join(slots.damage), "train")
    _, newest = slots.intact[0]
    refuse_another_checkpoint(folder, newest.header["fingerprint"], fingerprint, "training")
    LOG.info("going on after %s of %s steps", newest.header["done"], newest.header["total"])
    return restored(newest, initial)


def restored(sealed: Sealed, initial: TrainingState) -> SavedTraining:
    header = sealed.header
    tables: dict[str, dict[str, np.ndarray]] = {PARAMETER: {}, BEST: {}, OPTIMISER: {}}
    for key, values in sealed.arrays.items():
        kind, _, name = key.partition("/")
        tables[kind][name] = values
    state = TrainingState(
        header["done"],
        on_device(tables[PARAMETER]),
        jax.tree.unflatten(
            jax.tree.structure(initial.optimiser),
            list(on_device(tables[OPTIMISER]).values()),
        ),
        tables[BEST],
        tuple(header["curve"]),
        tuple(header["losses"]),
    )
    return SavedTraining(state, header["sequence"], header["seconds"])


def on_device(arrays: Mapping[str, np.ndarray]) -> dict[str, jax.Array]:
    return {name: jnp.asarray(values) for name, values in arrays.items()}
