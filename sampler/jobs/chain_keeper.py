"""Keeps running chains on disk, and finds where to go on."""

import logging
from dataclasses import dataclass, field, replace
from pathlib import Path

from sampler.jobs.chain_store import LOG, ChainStore, load_chains
from sampler.jobs.interruption import Interruption
from sampler.mcmc.chunks import Chunk
from sampler.mcmc.draws import DrawCollector
from sampler.mcmc.snapshot import Snapshot
from sampler.storage.checkpoint_slots import refuse_another_checkpoint



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
    _store: ChainStore = field(init=False)
    _collected: DrawCollector = field(init=False)
    _every: float = field(init=False)

    def go_on(self, collected: DrawCollector, every: float) -> Snapshot | None:
        """Fill the collector with the draws found; where chains go on, None for the beginning.

        `every` is the computing time, in seconds, after which chunks are saved. Raises InputError,
        naming what differs, for a checkpoint of another run.
        """
        self._collected, self._every = collected, every
        self._store = ChainStore(self.folder, self.fingerprint)
        stored = load_chains(self.folder)
        if stored is None:
            return None
        refuse_another_checkpoint(self.folder, stored.fingerprint, self.fingerprint, "run")
        collected.restore(stored.partial_moments)
        for chunk in stored.chunks:
            kept = {
                name: values
                for name, values in chunk.observables.items()
                if name not in stored.partial_moments
            }
            collected(replace(chunk, observables=kept))
            self.seconds_before += chunk.seconds
        self._store.segments = list(stored.segments)
        self._store.sequence = stored.sequence + 1
        LOG.info(
            "going on after %s of %s steps (%s)",
            stored.snapshot.done,
            stored.chunks[-1].total,
            stored.snapshot.phase,
        )
        return stored.snapshot

    def __call__(self, chunk: Chunk) -> None:
        self._store.add(chunk)
        asked = self.interruption.received is not None
        if asked or chunk.done == chunk.total or self._store.seconds_waiting >= self._every:
            self._store.save(self._collected)
        self.interruption.leave_if_asked(f"{chunk.phase} {chunk.done} of {chunk.total}")
