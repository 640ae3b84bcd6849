"""Progress of a command: a line for each stage with the time left of all that can be measured.

Bars in a terminal, one line in a notebook; elsewhere, as in a file, a line now and then.
"""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from rich import progress as rich_progress
from rich.console import Console
from rich.table import Column

from sampler.presentation.terminal import in_terminal, print_stderr
from sampler.storage.directory import LOG

if TYPE_CHECKING:
    from sampler.mcmc.algorithm import Algorithm, Chunk
    from sampler.mcmc.stopping import StoppingRule

SECONDS_BETWEEN_LINES = 10.0
# Seconds over which the speed is measured.
SECONDS_OF_SPEED = 120.0
BAR_WIDTH = 20


class Progress:
    """Shows how far each stage of a command is."""

    def __init__(self) -> None:
        self._bars = rich_progress.Progress(
            rich_progress.SpinnerColumn(finished_text=" "),
            rich_progress.TextColumn("{task.description}"),
            rich_progress.BarColumn(BAR_WIDTH),
            rich_progress.TextColumn("{task.fields[count]}"),
            rich_progress.TextColumn("{task.fields[text]}", table_column=Column(ratio=1)),
            console=Console(stderr=True),
            expand=True,
            speed_estimate_period=SECONDS_OF_SPEED,
            get_time=time.monotonic,
        )
        self._live = in_terminal()
        self._notebook: Callable[[str], None] | None = None
        self._stages: dict[str, rich_progress.TaskID] = {}
        self._waiting: rich_progress.TaskID | None = None
        self._last_line = 0.0

    def __enter__(self) -> "Progress":
        self._notebook = line_in_notebook()
        if self._live:
            with suppress(OSError):  # of a terminal that was closed, here and below
                self._bars.start()
        return self

    def __exit__(self, *_) -> None:
        self._end_waiting()
        if self._live:
            with suppress(OSError):
                self._bars.stop()

    def wait(self, text: str) -> None:
        """Show the step where nothing can be counted, until the next stage begins."""
        self._end_waiting()
        self._waiting = self._bar(text, None)
        self._write(text)

    def show(
        self,
        stage: str,
        done: int,
        total: int | None,
        details: str = "",
        ahead: int | None = None,
        ended: bool = False,
    ) -> None:
        """Move the bar of a stage; elsewhere, write a line where it is time for one.

        total  steps of the stage; None if unknown
        ahead  steps that are still to come, including later stages; else those of this stage
        ended  whether no more steps are made
        """
        self._end_waiting()
        begins = stage not in self._stages
        if begins:
            for earlier in self._bars.tasks:
                self._bars.update(earlier.id, total=earlier.completed, text="")
            self._stages[stage] = self._bar(stage, total)
        count, bar, left = f"{done}", self._stages[stage], ""
        self._bars.update(bar, total=total, completed=done)
        if total is not None:
            count, ended = f"{done}/{total}", ended or done >= total
            (speed,) = (task.speed for task in self._bars.tasks if task.id == bar)
            ahead = total - done if ahead is None else ahead
            left = f"{ahead / speed:.0f} s left" if speed and ahead else ""
        text = ", ".join(filter(None, [left, details]))
        self._bars.update(bar, count=count, text=text)
        line = ", ".join(filter(None, [f"{stage} {count}", text]))
        now = time.monotonic()
        if begins or ended or now - self._last_line > SECONDS_BETWEEN_LINES:
            self._last_line = now
            LOG.info(line)
            self._write(line)
        elif self._notebook is not None:
            self._notebook(line)

    def _bar(self, text: str, total: int | None) -> rich_progress.TaskID:
        with suppress(OSError):
            self._bars.add_task(text, total=total, count="", text="")
        return self._bars.task_ids[-1]

    def _end_waiting(self) -> None:
        if self._waiting is not None:
            self._bars.remove_task(self._waiting)
            self._waiting = None

    def _write(self, line: str) -> None:
        if self._notebook is not None:
            self._notebook(line)
        elif not self._live:
            print_stderr(line)


def line_in_notebook() -> Callable[[str], None] | None:
    """Return the display of a line below a cell, in place of the last; None outside notebooks."""
    if not type(sys.stderr).__module__.startswith("ipykernel"):
        return None
    from IPython.display import display

    shown = display({"text/plain": ""}, raw=True, display_id=True)
    return lambda text: shown.update({"text/plain": text}, raw=True)


@contextmanager
def busy(text: str) -> Iterator[None]:
    """Show the step inside, where nothing can be counted."""
    with Progress() as progress:
        progress.wait(text)
        yield


class SamplingProgress:
    """Shows every chunk of draws: the time left until the last, and their diagnostics.

    steps  of the draws that follow warm-up, those that thinning leaves out included
    """

    def __init__(
        self,
        progress: Progress,
        algorithm: "Algorithm",
        steps: int = 0,
        rule: "StoppingRule | None" = None,
    ) -> None:
        self._progress, self._algorithm = progress, algorithm
        self._steps, self._rule = steps, rule
        self._totals: dict[str, dict[str, float]] = {"warmup": {}, "draws": {}}

    def __call__(self, chunk: "Chunk") -> None:
        totals = self._totals[chunk.phase]
        for name in self._algorithm.summed:
            totals[name] = totals.get(name, 0.0) + float(chunk.statistics[name].sum())
        if not chunk.statistics:
            return
        stage, done, total = chunk.shown or (chunk.phase, chunk.done, chunk.total)
        details, ahead, ended = [], None if total is None else total - done, False
        if stage == "warmup":
            # A step of warm-up is taken to last as long as one of the draws.
            ahead += self._steps
        elif stage == "draws" and self._rule is not None:
            ended = bool(self._rule.ended)
            details = [self._rule.text or "until the first check"]
            ahead = max(0, self._rule.draws_expected(chunk) - done)
        if chunk.compiled:
            details = [f"compiled in {chunk.seconds:.0f} s"]
        else:
            details.append(self._algorithm.describe(chunk.statistics, totals))
        self._progress.show(stage, done, total, ", ".join(filter(None, details)), ahead, ended)
