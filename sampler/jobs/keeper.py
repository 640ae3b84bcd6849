"""Running chains kept in checkpoints: where they stand, and all draws so far.

Of chains that came to their end a checkpoint keeps what `draws.nc` beside it does not hold; to
append draws to them the others are read back from there.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import xarray as xr

from sampler.analysis.draws_table import (
    PREDICTIONS,
    collected_draws,
    stored_statistics,
    with_output,
)
from sampler.jobs.interruption import Interruption
from sampler.mcmc.chains import Chunk, Snapshot
from sampler.mcmc.collected_draws import (
    DRAWS,
    SELECTED_PART,
    STATISTICS,
    THINNED,
    VALUES_PART,
    WARMUP,
    DrawCollector,
)
from sampler.mcmc.kept import PREDICTORS
from sampler.mcmc.stopping import StoppingRule
from sampler.storage.checkpoints import Checkpoints, DamagedFile, Sealed, joined
from sampler.storage.directory import DRAWS_FILE
from sampler.storage.results import is_sampled, read_draws

# Arrays of a checkpoint of chains: their state, and what a collector has gathered of them.
STATE, GATHERED = "state", "gathered"
# Key of its header: what `draws.nc` holds in its place, array → shape.
LEFT_OUT = "left_out"
GROUPS = {STATISTICS: "sample_stats", WARMUP: "warmup_sample_stats"}


@dataclass
class ChainKeeper:
    """A callback for chunks: saves chains from time to time, and leaves when asked to.

    seconds_before  computing time of the draws that were in a checkpoint
    """

    checkpoints: Checkpoints = field(default_factory=Checkpoints)
    interruption: Interruption = field(default_factory=Interruption)
    seconds_before: float = 0.0
    _collected: DrawCollector = field(init=False)
    _rule: StoppingRule | None = None
    _unsaved: Chunk | None = None

    def go_on(self, collected: DrawCollector, rule: StoppingRule | None = None) -> Snapshot | None:
        """Fill the collector from the newest checkpoint → where chains go on; None: they begin.

        `rule` gets back its checks. Raises InputError, naming what differs, for another run.
        """
        self._collected, self._rule = collected, rule
        stored = self.checkpoints.newest(completed(self.checkpoints.folder))
        if stored is None:
            return None
        collected.restore(stored.part(GATHERED))
        if rule is not None:
            rule.restore(stored.header.get("checks", ()))
        self.seconds_before = sum(collected.seconds.values())
        return Snapshot(stored.header["phase"], stored.header["done"], stored.part(STATE))

    def __call__(self, chunk: Chunk) -> None:
        self._unsaved = chunk
        ended = self._rule is not None and self._rule.ended
        if ended or chunk.done == chunk.total or self.checkpoints.due:
            self.save()
        where = f"{chunk.phase} {chunk.done} of {chunk.total}"
        self.interruption.leave_if_asked(where, self.save)

    def save(self) -> None:
        """Write a checkpoint after the last chunk, unless there is one."""
        if self._unsaved is None or self.checkpoints.folder is None:
            return
        snapshot = self._unsaved.snapshot
        header = {
            "phase": snapshot.phase,
            "done": snapshot.done,
            "total": self._unsaved.total,
            LEFT_OUT: {},
        }
        if self._rule is not None:
            header |= {"checks": self._rule.stored, "seen": self._rule.text}
        arrays = {STATE: snapshot.arrays, GATHERED: self._collected.arrays}
        self.checkpoints.save(header, joined(**arrays))
        self._unsaved = None


# --- what `draws.nc` holds of chains that came to their end


def without_draws(sealed: Sealed) -> Sealed:
    """A checkpoint of chains that came to their end, without what `draws.nc` holds; else itself."""
    if sealed.header.get(LEFT_OUT) != {}:
        return sealed
    left_out = {key: v.shape for key, v in sealed.arrays.items() if is_in_draws(key)}
    arrays = {key: v for key, v in sealed.arrays.items() if key not in left_out}
    return replace(sealed, header=sealed.header | {LEFT_OUT: left_out}, arrays=arrays)


def is_in_draws(key: str) -> bool:
    """Whether `draws.nc` has this array of a checkpoint as well."""
    part, kind, *name = key.split("/")
    if part == GATHERED and kind == THINNED:
        return name[0] in PREDICTORS and name[1] in (VALUES_PART, SELECTED_PART)
    return part == GATHERED and kind in (DRAWS, STATISTICS, WARMUP)


def completed(folder: Path | None) -> Callable[[Sealed], Sealed]:
    """A function that adds to a checkpoint what it leaves to `draws.nc` beside its folder."""

    def complete(sealed: Sealed) -> Sealed:
        left_out = sealed.header.get(LEFT_OUT)
        if not left_out:
            return sealed
        if not is_sampled(folder.parent):
            raise DamagedFile(f"{DRAWS_FILE} with its draws is missing")
        tree = read_draws(folder.parent)
        back = {key: read_back(tree, key, shape, sealed) for key, shape in left_out.items()}
        return replace(sealed, arrays={**sealed.arrays, **back})

    return complete


def read_back(tree: xr.DataTree, key: str, shape: Sequence[int], sealed: Sealed) -> np.ndarray:
    """An array of a collector as `draws.nc` has it, which may hold further draws.

    Raises DamagedFile where it does not hold them all.
    """
    _, kind, name, *part = key.split("/")
    if kind in GROUPS:
        values = stored_statistics(tree, GROUPS[kind]).get(name)
    elif part == [VALUES_PART]:
        values = thinned_values(tree, name, sealed)
    else:
        values = collected_draws(tree).get(name)
    values = None if values is None else values[:, : shape[1]]
    if values is None or values.shape != tuple(shape):
        raise DamagedFile(f"{DRAWS_FILE} does not hold all its draws of {name}")
    return values


def thinned_values(tree: xr.DataTree, name: str, sealed: Sealed) -> np.ndarray | None:
    """Every k-th draw of a predictor; None where another k is stored."""
    if PREDICTIONS not in tree.children:
        return None
    table = tree[PREDICTIONS].to_dataset()
    seen, stride = (int(sealed.arrays[f"{GATHERED}/{THINNED}/{name}/{one}"])
                    for one in ("seen", "stride"))  # fmt: skip
    numbers = np.arange(0, seen, stride)
    same = name in table and np.array_equal(table["draw"].values[: len(numbers)], numbers)
    return with_output(name, table[name]) if same else None
