"""Progress of a running job: moving bars in a terminal, one line in a notebook, else lines."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from textwrap import indent
from typing import TYPE_CHECKING

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn
from rich.spinner import Spinner
from rich.status import Status
from rich.text import Text

from sampler.analysis.text import NARROWEST, unbroken, wrapped
from sampler.presentation.terminal import in_terminal, print_stderr
from sampler.storage.directory import LOG

if TYPE_CHECKING:
    from sampler.mcmc.algorithm import Algorithm
    from sampler.mcmc.chains import Chunk
    from sampler.mcmc.stopping import StoppingRule
    from sampler.training.steps import TrainingState

SECONDS_BETWEEN_LINES = 10.0


def line_in_notebook() -> Callable[[str], None] | None:
    """Return the display of a line below a cell, in place of the last; None outside notebooks."""
    if not type(sys.stderr).__module__.startswith("ipykernel"):
        return None
    from IPython.display import display

    shown = display({"text/plain": ""}, raw=True, display_id=True)
    return lambda text: shown.update({"text/plain": text}, raw=True)


@contextmanager
def moving(picture: Live | Status) -> Iterator[None]:
    """Show a picture inside, as long as anybody sees it: a terminal may be closed meanwhile."""
    with suppress(OSError):
        picture.start()
    try:
        yield
    finally:
        with suppress(OSError):
            picture.stop()


@contextmanager
def busy(text: str) -> Iterator[None]:
    """Say what is done inside: with a spinner in a terminal, elsewhere in a line."""
    if in_terminal():
        with moving(Console(stderr=True).status(text)):
            yield
    else:
        print_stderr(text)
        yield


class ProgressDisplay:
    """Shows how far each phase of a job is."""

    def __init__(self) -> None:
        self._console = Console(stderr=True)
        self._live = in_terminal()
        self._bar = Progress(
            SpinnerColumn(finished_text=" "),
            TextColumn("{task.description}"),
            BarColumn(bar_width=None),
            TextColumn("{task.completed}/{task.total}"),
            TextColumn("{task.fields[left]}"),
            expand=True,
        )
        self._waiting: Spinner | None = None
        self._details: tuple[str, ...] = ()
        self._line: Callable[[str], None] | None = None
        self._tasks: dict[str, int] = {}
        self._last_line = 0.0
        self._picture = Live(
            get_renderable=self._drawn, console=self._console, refresh_per_second=8
        )
        self._shown = ExitStack()

    def __enter__(self) -> "ProgressDisplay":
        self._line = line_in_notebook()
        if self._live:
            self._shown.enter_context(moving(self._picture))
        return self

    def __exit__(self, *_) -> None:
        self._waiting = None
        self._shown.close()

    def _drawn(self) -> Group:
        """The bars, and below them what else there is to say of the latest phase."""
        details = wrapped(unbroken(self._details), max(NARROWEST, self._console.width) - 2)
        shown = [self._bar, Text(indent(details, "  "))] if self._tasks else []
        return Group(*shown, *([self._waiting] if self._waiting else []))

    def wait(self, text: str) -> None:
        """Say what is done before anything can be counted, until the next phase moves."""
        self._waiting = Spinner("dots", text)
        if self._line is not None:
            self._line(text)
        elif self._live:
            with suppress(OSError):
                self._picture.refresh()
        else:
            print_stderr(text)

    def show(self, phase: str, done: int, total: int, text: str, ended: bool = False) -> None:
        """Move the bar of a phase; write a line if it is time for one, or if this is its end.

        text: the time left, then after commas what else there is to say.
        """
        if phase not in self._tasks:
            self._tasks[phase] = self._bar.add_task(phase, total=total, left="")
        left, *details = text.split(", ")
        self._bar.update(self._tasks[phase], completed=done, left=left)
        self._waiting, self._details = None, tuple(details)
        line = f"{phase} {done}/{total} {text}"
        if self._line is not None:
            self._line(line)
        now = time.monotonic()
        if ended or done == total or now - self._last_line > SECONDS_BETWEEN_LINES:
            self._last_line = now
            LOG.info(line)
            if not self._live and self._line is None:
                print_stderr(line)


class SamplingProgress(ProgressDisplay):
    """Shows every chunk: time left until the last draw, and what the algorithm says of its chains.

    steps  of the draws that follow warm-up, those that thinning leaves out included
    """

    def __init__(
        self, algorithm: "Algorithm", steps: int = 0, rule: "StoppingRule | None" = None
    ) -> None:
        super().__init__()
        self._algorithm, self._steps, self._rule = algorithm, steps, rule
        self._totals: dict[tuple[str, str], float] = {}

    def __enter__(self) -> "SamplingProgress":
        super().__enter__()
        self.wait("compiling")
        return self

    def __call__(self, chunk: "Chunk") -> None:
        for name in self._algorithm.summed:
            key = chunk.phase, name
            self._totals[key] = self._totals.get(key, 0.0) + float(chunk.statistics[name].sum())
        compiled = f"compiled in {chunk.seconds:.0f} s"
        text = compiled if chunk.compiled else self.describe(chunk)
        ended = chunk.phase == "draws" and self._rule is not None and self._rule.ended
        self.show(chunk.phase, chunk.done, chunk.total, text, bool(ended))

    def describe(self, chunk: "Chunk") -> str:
        """Rate and health of the chains, from the latest chunk."""
        total, seen = chunk.total, ""
        if self._rule is not None and self._rule.checks and chunk.phase == "draws":
            last = self._rule.checks[-1]
            total = chunk.done if self._rule.ended else last.draws_needed(chunk.total)
            seen = f", {last.text}"
        elif self._rule is not None and chunk.phase == "draws":
            total = self._rule.next_end("draws", chunk.done)
            seen = " to the first check"
        # A step of warm-up is taken to last as long as one of the draws.
        following = self._steps if chunk.phase == "warmup" else 0
        steps = max(0, total - chunk.done) + following
        left = f"{chunk.seconds / chunk.draws * steps:.0f} s left{seen}"
        totals = {name: v for (phase, name), v in self._totals.items() if phase == chunk.phase}
        health = self._algorithm.describe(chunk.statistics, totals)
        return f"{left}, {health}" if health else left


RECENT = 100


class TrainingProgress(ProgressDisplay):
    """Shows the state after every chunk of steps."""

    def __init__(self, steps: int) -> None:
        super().__init__()
        self._steps = steps
        self._from: tuple[float, int] | None = None

    def __enter__(self) -> "TrainingProgress":
        super().__enter__()
        self.wait("compiling")
        return self

    def __call__(self, state: "TrainingState") -> None:
        self.show("training", state.step, self._steps, self.describe(state))

    def describe(self, state: "TrainingState") -> str:
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
