"""Progress of a sampling job: every chunk, as it comes."""

import numpy as np

from sampler.mcmc.chunks import Chunk
from sampler.progress_display import ProgressDisplay


class SamplingProgress(ProgressDisplay):
    """Shows every chunk: time left, step size, acceptance, divergences, steps."""

    def __init__(self) -> None:
        super().__init__()
        self._divergences: dict[str, int] = {}

    def __call__(self, chunk: Chunk) -> None:
        phase = chunk.phase
        divergences = int(chunk.statistics["diverging"].sum())
        self._divergences[phase] = self._divergences.get(phase, 0) + divergences
        compiled = f"compiled in {chunk.seconds:.0f} s"
        text = compiled if chunk.compiled else self.describe(chunk)
        self.show(phase, chunk.done, chunk.total, text)

    def describe(self, chunk: Chunk) -> str:
        """Rate and health of the chains, from the latest chunk."""
        statistics = chunk.statistics
        left = chunk.seconds / chunk.draws * (chunk.total - chunk.done)
        return (
            f"{left:.0f} s left, step size {np.mean(statistics['step_size'][:, -1]):.3g}, "
            f"acceptance {np.mean(statistics['acceptance_rate']):.2f}, "
            f"{self._divergences[chunk.phase]} divergences, "
            f"{np.mean(statistics['n_steps']):.0f} leapfrog steps per draw"
        )
