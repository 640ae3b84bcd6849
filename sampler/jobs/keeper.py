"""Running chains kept on disk: segments of draws, and checkpoints that take turns.

A segment is written before the checkpoint that counts it. After a kill at any moment the newest
checkpoint with all its segments intact tells where to go on; what lies beyond it is drawn again,
with the same result. When `draws.nc` is complete the segments are removed: draws that none holds
are read back from there.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path

import numpy as np
import xarray as xr

from sampler.analysis.draws_table import (
    PREDICTIONS,
    collected_draws,
    stored_selected,
    stored_statistics,
    stored_thinned,
    with_output,
)
from sampler.errors import InputError
from sampler.jobs.interruption import Interruption
from sampler.mcmc.chains import Chunk, Snapshot
from sampler.mcmc.collected_draws import DrawCollector
from sampler.mcmc.kept import PREDICTORS, ThinnedDraws
from sampler.mcmc.stopping import StoppingRule
from sampler.storage.checkpoint import (
    MOMENTS,
    SECONDS_BETWEEN,
    STATE,
    DamagedFile,
    Sealed,
    no_usable_checkpoint,
    read_sealed,
    read_slots,
    refuse_another_checkpoint,
    write_sealed,
)
from sampler.storage.results import is_sampled, read_draws
from sampler.storage.run_directory import CHECKPOINT_SLOTS, DRAWS_FILE, LOG, unwritable

# Draws are saved before they take more than this.
MOST_WAITING = 16 * 2**20
OBSERVABLE, STATISTIC = "observable", "statistic"
SEGMENTS = "segment-*.bin"
# Of a checkpoint, what `draws.nc` has as well: predictors of which every k-th draw is kept.
PREDICTOR_VALUES = frozenset(f"{MOMENTS}/{name}/values" for name in PREDICTORS)


@dataclass(frozen=True)
class StoredChains:
    """Content of a checkpoint and its segments.

    segments  one entry per segment, as the header of a checkpoint lists them, removed ones too
    """

    snapshot: Snapshot
    chunks: tuple[Chunk, ...]
    partial_moments: Mapping[str, Mapping[str, np.ndarray]]
    segments: tuple[dict, ...]
    sequence: int
    fingerprint: dict
    checks: tuple[dict, ...] = ()


def segment_arrays(chunks: list[Chunk], collected: DrawCollector) -> dict[str, np.ndarray]:
    """Join draws and statistics [chain, draw, …] of consecutive chunks of one phase.

    Of the draws, what the collector of these chunks wants back.
    """
    arrays = {}
    for kind, tables in (
        (OBSERVABLE, [collected.kept(chunk.observables) for chunk in chunks]),
        (STATISTIC, [chunk.statistics for chunk in chunks]),
    ):
        for name in tables[0]:
            values = [np.asarray(table[name]) for table in tables]
            arrays[f"{kind}/{name}"] = np.concatenate(values, axis=1)
    return arrays


def load_chains(folder: Path) -> StoredChains | None:
    """Find the newest checkpoint whose segments are all intact; None if none was written yet.

    A damaged one is reported in the log and the other is used. Raises InputError if there was a
    checkpoint and none can be used: chains never start again in silence.
    """
    slots = read_slots(folder)
    if slots.empty and len(list(folder.glob(SEGMENTS))) <= 1:
        return None
    damage = list(slots.damage)
    stored_draws = cache(partial(_stored_draws, folder.parent))
    for name, sealed in slots.intact:
        try:
            stored = _with_segments(folder, sealed, stored_draws)
        except DamagedFile as problem:
            damage.append(str(problem))
            LOG.warning("%s, which %s needs; it is not used", problem, name)
            continue
        if damage:
            LOG.warning(
                "going on from the checkpoint before it: %s, %s of %s",
                stored.snapshot.phase,
                stored.snapshot.done,
                sealed.header["total"],
            )
        return stored
    reason = "; ".join(damage) or "its checkpoints are missing"
    raise no_usable_checkpoint(folder, reason, "sample")


def settle(folder: Path) -> None:
    """Keep of chains that ended what `draws.nc` beside the folder does not hold: their last state.

    Segments go, and the older checkpoint; the other one leaves predictors to `draws.nc`.
    """
    slots = read_slots(folder)
    if slots.intact:
        name, newest = slots.intact[0]
        arrays = {key: v for key, v in newest.arrays.items() if key not in PREDICTOR_VALUES}
        if len(arrays) < len(newest.arrays):
            sequence = newest.header["sequence"] + 1
            name = CHECKPOINT_SLOTS[sequence % 2]
            write_sealed(folder / name, newest.header | {"sequence": sequence}, arrays)
        for slot in {*CHECKPOINT_SLOTS} - {name}:
            (folder / slot).unlink(missing_ok=True)
    for path in folder.glob(SEGMENTS):
        path.unlink(missing_ok=True)


@dataclass(frozen=True)
class _StoredDraws:
    """Warm-up and draws of `draws.nc`, each as one chunk.

    reduced     names of the quantities of which the file has some elements, or some draws
    predictors  every k-th draw of those that are not stored whole
    """

    chunks: Mapping[str, Chunk]
    reduced: frozenset[str]
    predictors: Mapping[str, ThinnedDraws]


def _stored_draws(directory: Path) -> _StoredDraws:
    if not is_sampled(directory):
        return _StoredDraws({}, frozenset(), {})
    tree, found = read_draws(directory), {}
    for phase, group, drawn in (
        ("warmup", "warmup_sample_stats", {}),
        ("draws", "sample_stats", collected_draws(tree)),
    ):
        statistics = stored_statistics(tree, group)
        steps = statistics["lp"].shape[1] if statistics else 0
        found[phase] = Chunk(phase, steps, steps, statistics, drawn)
    reduced = stored_thinned(tree).union(stored_selected(tree))
    predictors = tree[PREDICTIONS].to_dataset() if PREDICTIONS in tree.children else xr.Dataset()
    thinned = {
        str(name): ThinnedDraws(with_output(str(name), drawn), predictors["draw"].values)
        for name, drawn in predictors.items()
        if predictors.attrs.get("thinned")
    }
    return _StoredDraws(found, reduced, thinned)


def _with_segments(
    folder: Path, sealed: Sealed, stored_draws: Callable[[], _StoredDraws]
) -> StoredChains:
    header = sealed.header
    moments: dict[str, dict[str, np.ndarray]] = {}
    for name, values in sealed.tables.get(MOMENTS, {}).items():
        quantity, _, part = name.partition("/")
        moments.setdefault(quantity, {})[part] = values
    for name, of_name in moments.items():
        if "values" not in of_name:
            of_name["values"] = _thinned_values(name, of_name, stored_draws())
    chunks, done = [], {"warmup": 0, "draws": 0}
    for entry in header["segments"]:
        phase, before = entry["phase"], done[entry["phase"]]
        if (folder / entry["file"]).exists():
            chunk = _read_segment(folder, entry, before)
        else:
            stored = stored_draws()
            whole = stored.chunks.get(entry["phase"])
            if whole is None or whole.done < entry["done"]:
                raise DamagedFile(f"neither {entry['file']} nor {DRAWS_FILE} holds its draws")
            if lost := stored.reduced - moments.keys():
                raise DamagedFile(
                    f"{DRAWS_FILE} holds some draws alone of {', '.join(sorted(lost))}"
                )
            cut = slice(before, entry["done"])
            drawn = {name: values[:, cut] for name, values in whole.observables.items()}
            statistics = {name: whole.statistics[name][:, cut] for name in entry["statistics"]}
            chunk = _chunk(entry, drawn, statistics)
        done[phase] = chunk.done
        chunks.append(chunk)
    phase = header["phase"]
    if done[phase] != header["done"]:
        raise DamagedFile(f"segments hold {done[phase]} of {header['done']} steps ({phase})")
    return StoredChains(
        snapshot=Snapshot(header["phase"], header["done"], sealed.tables.get(STATE, {})),
        chunks=tuple(chunks),
        partial_moments=moments,
        segments=tuple(header["segments"]),
        sequence=header["sequence"],
        fingerprint=header["fingerprint"],
        checks=tuple(header.get("checks", ())),
    )


def _thinned_values(
    name: str, moments: Mapping[str, np.ndarray], stored: _StoredDraws
) -> np.ndarray:
    """The draws of a predictor that a settled checkpoint leaves to `draws.nc`."""
    numbers = np.arange(0, int(moments["seen"]), int(moments["stride"]))
    kept = stored.predictors.get(name)
    if kept is None or not np.array_equal(kept.draws, numbers):
        raise DamagedFile(f"{DRAWS_FILE} does not hold {len(numbers)} draws of {name}")
    return kept.values


def _read_segment(folder: Path, entry: dict, before: int) -> Chunk:
    """Read the segment of this entry, whose first step comes after `before`."""
    segment = read_sealed(folder / entry["file"])
    if segment.checksum != entry["checksum"]:
        raise DamagedFile(f"{entry['file']} is not the segment that was counted")
    steps, held = entry["done"] - before, {v.shape[1] for v in segment.arrays.values()}
    if held != {steps}:
        raise DamagedFile(f"{entry['file']} holds {sorted(held)} steps instead of {steps}")
    tables = segment.tables
    return _chunk(entry, tables.get(OBSERVABLE, {}), tables.get(STATISTIC, {}))


def _chunk(entry: dict, observables: dict, statistics: dict) -> Chunk:
    phase, done, total = entry["phase"], entry["done"], entry["total"]
    return Chunk(phase, done, total, statistics, observables, entry["seconds"])


@dataclass
class ChainKeeper:
    """A callback for chunks: saves them from time to time, and leaves when asked to.

    folder          where segments and checkpoints are
    fingerprint     what a checkpoint must agree with to be used
    seconds_before  computing time of the chunks found there
    """

    folder: Path
    fingerprint: dict
    interruption: Interruption
    seconds_before: float = 0.0
    _segments: list[dict] = field(default_factory=list)
    _sequence: int = 0
    _waiting: list[Chunk] = field(default_factory=list)
    _collected: DrawCollector = field(init=False)
    _every: float = field(init=False)
    _rule: StoppingRule | None = None

    def go_on(
        self,
        collected: DrawCollector,
        every: float = SECONDS_BETWEEN,
        rule: StoppingRule | None = None,
    ) -> Snapshot | None:
        """Fill the collector with the draws found; where chains go on, None for the beginning.

        `every` is the computing time, in seconds, after which chunks are saved; `rule` gets back
        its checks. Raises InputError, naming what differs, for a checkpoint of another run.
        """
        self._collected, self._every, self._rule = collected, every, rule
        stored = load_chains(self.folder)
        if stored is None:
            return None
        refuse_another_checkpoint(self.folder, stored.fingerprint, self.fingerprint, "run")
        collected.restore(stored.partial_moments, stored.chunks)
        if rule is not None:
            rule.restore(stored.checks)
        self.seconds_before = sum(chunk.seconds for chunk in stored.chunks)
        self._segments, self._sequence = list(stored.segments), stored.sequence + 1
        LOG.info(
            "going on after %s of %s steps (%s)",
            stored.snapshot.done,
            stored.chunks[-1].total,
            stored.snapshot.phase,
        )
        return stored.snapshot

    def __call__(self, chunk: Chunk) -> None:
        # What is too large to keep would not fit here either.
        self._waiting.append(replace(chunk, observables=self._collected.kept(chunk.observables)))
        unsaved = sum(one.seconds for one in self._waiting)
        held = sum(v.nbytes for one in self._waiting for v in one.observables.values())
        enough = unsaved >= self._every or held >= MOST_WAITING
        ended = self._rule is not None and self._rule.ended
        if ended or chunk.done == chunk.total or enough:
            self._save()
        where = f"{chunk.phase} {chunk.done} of {chunk.total}"
        self.interruption.leave_if_asked(where, self._save)

    def _save(self) -> None:
        """Write the chunks that are waiting as one segment, then a checkpoint of the last state."""
        if not self._waiting:
            return
        last = self._waiting[-1]
        name = f"segment-{len(self._segments):06d}.bin"
        header = {
            "phase": last.phase,
            "done": last.done,
            "total": last.total,
            "seconds": sum(chunk.seconds for chunk in self._waiting),
            "statistics": list(last.statistics),
        }
        arrays = segment_arrays(self._waiting, self._collected)
        try:
            self.folder.mkdir(exist_ok=True)
            checksum = write_sealed(self.folder / name, header, arrays)
            segments = [*self._segments, {"file": name, "checksum": checksum, **header}]
            self._write_checkpoint(segments, last)
        except OSError as problem:
            raise InputError(name, str(self.folder), unwritable(problem)) from None
        self._segments = segments
        self._sequence += 1
        self._waiting = []

    def _write_checkpoint(self, segments: list[dict], last: Chunk) -> None:
        snapshot = last.snapshot
        arrays = {f"{STATE}/{name}": values for name, values in snapshot.arrays.items()}
        for name, sums in self._collected.partial_moments.items():
            arrays |= {f"{MOMENTS}/{name}/{part}": values for part, values in sums.items()}
        header = {
            "sequence": self._sequence,
            "phase": snapshot.phase,
            "done": snapshot.done,
            "total": last.total,
            "segments": segments,
            "fingerprint": self.fingerprint,
        }
        if self._rule is not None:
            header |= {"checks": self._rule.stored, "seen": self._rule.text}
        write_sealed(self.folder / CHECKPOINT_SLOTS[self._sequence % 2], header, arrays)
