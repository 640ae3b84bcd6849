"""Draws kept in checkpoints while they are made: the state of chains, and all draws so far."""

from dataclasses import dataclass, field

from sampler.jobs.interruption import Interruption
from sampler.mcmc.algorithm import Chunk, Snapshot
from sampler.mcmc.collected_draws import DrawCollector
from sampler.mcmc.stopping import StoppingRule
from sampler.storage.archives import joined
from sampler.storage.checkpoints import Checkpoints

# Arrays of a checkpoint: the state of an algorithm, and the gathered draws.
STATE, GATHERED = "state", "gathered"


@dataclass
class DrawKeeper:
    """A callback for chunks: saves draws from time to time, and leaves when asked to.

    seconds_before  computing time of the draws that were in a checkpoint
    """

    checkpoints: Checkpoints = field(default_factory=Checkpoints)
    interruption: Interruption = field(default_factory=Interruption)
    seconds_before: float = 0.0
    _collected: DrawCollector = field(init=False)
    _rule: StoppingRule | None = None
    _unsaved: Chunk | None = None

    def go_on(self, collected: DrawCollector, rule: StoppingRule | None = None) -> Snapshot | None:
        """Fill the collector from the newest checkpoint → the state of chains; None: draws begin.

        `rule` gets back its checks. Raises InputError, naming the difference, for another run.
        """
        self._collected, self._rule = collected, rule
        stored = self.checkpoints.newest()
        if stored is None:
            return None
        try:
            collected.restore(stored.part(GATHERED))
            if rule is not None:
                rule.restore(stored.header.get("checks", ()))
            self.seconds_before = sum(collected.seconds.values())
            header = stored.header
            return Snapshot(header["phase"], header["done"], stored.part(STATE))
        except (KeyError, TypeError, ValueError) as problem:
            raise self.checkpoints.unfit(problem) from None

    def __call__(self, chunk: Chunk) -> None:
        self._unsaved = chunk
        ended = self._rule is not None and self._rule.ended
        if ended or chunk.done == chunk.total or self.checkpoints.due:
            self.save()
        self.interruption.leave_if_asked(chunk.place, self.save)

    def save(self) -> None:
        """Write a checkpoint after the last chunk, unless there is one."""
        if self._unsaved is None or self.checkpoints.folder is None:
            return
        snapshot = self._unsaved.snapshot
        total, about = self._unsaved.total, snapshot.about
        header = {**about, "phase": snapshot.phase, "done": snapshot.done, "total": total}
        if self._rule is not None:
            header |= {"checks": self._rule.stored, "seen": self._rule.text}
        arrays = {STATE: snapshot.arrays, GATHERED: self._collected.arrays}
        self.checkpoints.save(header, joined(**arrays))
        self._unsaved = None
