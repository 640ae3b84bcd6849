"""Chains on disk: draws in segments, the sampler's state in two checkpoints that take turns.

A segment is written before the checkpoint that counts it. After a kill at any moment the newest
checkpoint with all its segments intact tells where to go on; what lies beyond it is drawn again,
with the same result.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from sampler.errors import InputError
from sampler.mcmc.chunks import Chunk
from sampler.mcmc.draws import DrawCollector
from sampler.mcmc.snapshot import Snapshot
from sampler.storage.checkpoint_slots import no_usable_checkpoint, read_slots
from sampler.storage.run_directory import CHECKPOINT_SLOTS
from sampler.storage.sealed import DamagedFile, Sealed, read_sealed, write_sealed

LOG = logging.getLogger("attention_posterior")
STATE, MOMENTS, OBSERVABLE, STATISTIC = "state", "moments", "observable", "statistic"


@dataclass(frozen=True)
class Stored:
    """What a checkpoint and its segments hold.

    segments  one entry per segment, as the header of a checkpoint lists them
    """

    snapshot: Snapshot
    chunks: tuple[Chunk, ...]
    partial_moments: Mapping[str, Mapping[str, np.ndarray]]
    segments: tuple[dict, ...]
    sequence: int
    fingerprint: dict


@dataclass
class ChainStore:
    """Saves chunks of one run; `fingerprint` is what a later run must agree with to go on."""

    directory: Path
    fingerprint: dict
    segments: list[dict] = field(default_factory=list)
    sequence: int = 0
    _waiting: list[Chunk] = field(default_factory=list)

    def add(self, chunk: Chunk) -> None:
        """Take a chunk that the next segment will hold."""
        self._waiting.append(chunk)

    @property
    def seconds_waiting(self) -> float:
        """Computing time that is lost if the run is killed now."""
        return sum(chunk.seconds for chunk in self._waiting)

    def save(self, collected: DrawCollector) -> None:
        """Write what is waiting as one segment, then a checkpoint of its last state."""
        if not self._waiting:
            return
        last = self._waiting[-1]
        name = f"segment-{len(self.segments):06d}.bin"
        header = {
            "phase": last.phase,
            "done": last.done,
            "total": last.total,
            "seconds": sum(chunk.seconds for chunk in self._waiting),
        }
        arrays = segment_arrays(self._waiting, collected.reduced)
        try:
            self.directory.mkdir(exist_ok=True)
            checksum = write_sealed(self.directory / name, header, arrays)
            segments = [*self.segments, {"file": name, "checksum": checksum, **header}]
            self._write_checkpoint(segments, last, collected)
        except OSError as problem:
            reason = problem.strerror or str(problem)
            raise InputError(
                name,
                str(self.directory),
                f"{reason}; free space or make the directory writable, then use `resume`",
            ) from None
        self.segments = segments
        self.sequence += 1
        self._waiting = []

    def _write_checkpoint(self, segments: list[dict], last: Chunk, collected) -> None:
        snapshot = last.snapshot
        arrays = {f"{STATE}/{name}": values for name, values in snapshot.arrays.items()}
        for name, sums in collected.partial_moments.items():
            arrays |= {f"{MOMENTS}/{name}/{part}": values for part, values in sums.items()}
        header = {
            "sequence": self.sequence,
            "phase": snapshot.phase,
            "done": snapshot.done,
            "total": last.total,
            "segments": segments,
            "fingerprint": self.fingerprint,
        }
        write_sealed(self.directory / CHECKPOINT_SLOTS[self.sequence % 2], header, arrays)


def segment_arrays(chunks: list[Chunk], reduced: frozenset[str]) -> dict[str, np.ndarray]:
    """Draws and statistics of consecutive chunks of one phase, [chain, draw, …]."""
    arrays = {}
    for kind, tables in (
        (OBSERVABLE, [chunk.observables for chunk in chunks]),
        (STATISTIC, [chunk.statistics for chunk in chunks]),
    ):
        for name in tables[0]:
            if kind == STATISTIC or name not in reduced:
                values = [np.asarray(table[name]) for table in tables]
                arrays[f"{kind}/{name}"] = np.concatenate(values, axis=1)
    return arrays


def load_chains(directory: Path) -> Stored | None:
    """The newest checkpoint whose segments are all intact, or None if none was written yet.

    A damaged one is reported in the log and the other is used. Raises InputError if there was a
    checkpoint and none can be used: chains never start again in silence.
    """
    slots = read_slots(directory)
    if slots.empty and len(list(directory.glob("segment-*.bin"))) <= 1:
        return None
    damage = list(slots.damage)
    for name, sealed in slots.intact:
        try:
            stored = _with_segments(directory, sealed)
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
    raise no_usable_checkpoint(directory, reason, "sample")


def _with_segments(directory: Path, sealed: Sealed) -> Stored:
    header = sealed.header
    chunks = []
    for entry in header["segments"]:
        segment = read_sealed(directory / entry["file"])
        if segment.checksum != entry["checksum"]:
            raise DamagedFile(f"{entry['file']} is not the segment that was counted")
        chunks.append(_chunk(segment))
    state, moments = {}, {}
    for key, values in sealed.arrays.items():
        kind, _, name = key.partition("/")
        if kind == STATE:
            state[name] = values
        else:
            quantity, _, part = name.partition("/")
            moments.setdefault(quantity, {})[part] = values
    return Stored(
        snapshot=Snapshot(header["phase"], header["done"], state),
        chunks=tuple(chunks),
        partial_moments=moments,
        segments=tuple(header["segments"]),
        sequence=header["sequence"],
        fingerprint=header["fingerprint"],
    )


def _chunk(segment: Sealed) -> Chunk:
    tables: dict[str, dict[str, np.ndarray]] = {OBSERVABLE: {}, STATISTIC: {}}
    for key, values in segment.arrays.items():
        kind, _, name = key.partition("/")
        tables[kind][name] = values
    header = segment.header
    return Chunk(
        header["phase"],
        header["done"],
        header["total"],
        tables[OBSERVABLE],
        tables[STATISTIC],
        header["seconds"],
    )
