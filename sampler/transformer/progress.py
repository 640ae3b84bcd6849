"""Progress of a training: steps, time left, loss and validation accuracy."""

import time

from sampler.progress_display import ProgressDisplay
from sampler.transformer.training import TrainingState

RECENT = 100


class TrainingProgress(ProgressDisplay):
    """Shows the state after every chunk of steps."""

    def __init__(self, steps: int) -> None:
        super().__init__()
        self._steps = steps
        self._from: tuple[float, int] | None = None

    def __call__(self, state: TrainingState) -> None:
        self.show("training", state.step, self._steps, self.describe(state))

    def describe(self, state: TrainingState) -> str:
        """Rate, loss of the last hundred steps, and the latest and the best validation."""
        now = time.monotonic()
        # The first chunk is compiled: its rate says nothing about the others.
        start, first = self._from = self._from or (now, state.step)
        parts = []
        if state.step > first:
            rate = (now - start) / (state.step - first)
            left = rate * (self._steps - state.step)
            parts.append(f"{left:.0f} s left, {1000 * rate:.1f} ms per step")
        # A validation takes the losses before it into its point of the curve.
        losses = state.losses[-RECENT:] or (state.curve[-1]["training_loss"],)
        parts.append(f"loss {sum(losses) / len(losses):.3f}")
        if state.curve:
            latest, best = state.curve[-1], state.best_point
            parts.append(
                f"validation accuracy {latest['validation_accuracy']:.3f}, best "
                f"{best['validation_accuracy']:.3f} at step {best['step']}"
            )
        return ", ".join(parts)
