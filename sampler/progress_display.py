"""Progress of a job: a live bar on a terminal, a line now and then elsewhere and in the log."""

import logging
import sys
import time

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

LOG = logging.getLogger("attention_posterior")
SECONDS_BETWEEN_LINES = 10.0


class ProgressDisplay:
    """Shows how far each phase of a job is."""

    def __init__(self) -> None:
        self._console = Console(stderr=True)
        self._live = sys.stderr.isatty()
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=20),
            TextColumn("{task.completed}/{task.total} {task.fields[text]}"),
            console=self._console,
            disable=not self._live,
        )
        self._tasks: dict[str, int] = {}
        self._last_line = 0.0

    def __enter__(self) -> "ProgressDisplay":
        self._bar.start()
        return self

    def __exit__(self, *_) -> None:
        self._bar.stop()

    def show(self, phase: str, done: int, total: int, text: str) -> None:
        """Move the bar of a phase; write a line if it is time for one, or if this is its end."""
        if phase not in self._tasks:
            self._tasks[phase] = self._bar.add_task(phase, total=total, text="")
        self._bar.update(self._tasks[phase], completed=done, text=text)
        now = time.monotonic()
        if done == total or now - self._last_line > SECONDS_BETWEEN_LINES:
            self._last_line = now
            line = f"{phase} {done}/{total} {text}"
            LOG.info(line)
            if not self._live:
                print(line, file=sys.stderr, flush=True)
