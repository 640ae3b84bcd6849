"""The log of a run, `run.log`: what happened when, whatever command it was."""

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sampler.errors import InputError

LOG = logging.getLogger("attention_posterior")
LOG_FILE = "run.log"


class _LogFile(logging.FileHandler):
    """A log that cannot be written is said once, and stops nothing."""

    said = False

    def handleError(self, record: logging.LogRecord) -> None:
        problem = sys.exc_info()[1]
        if not self.said:
            self.said = True
            print(f"{self.baseFilename} cannot be written: {problem}", file=sys.stderr)


@contextmanager
def log_to(directory: Path) -> Iterator[None]:
    """Append what is logged to the log of this directory; warnings also go to stderr."""
    try:
        handler = _LogFile(directory / LOG_FILE, encoding="utf-8")
    except OSError as problem:
        raise InputError(
            "DIR", str(directory), f"{LOG_FILE} cannot be written: {problem.strerror}"
        ) from None
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    shown = logging.StreamHandler(sys.stderr)
    shown.setLevel(logging.WARNING)
    LOG.setLevel(logging.INFO)
    LOG.propagate = False
    for each in (handler, shown):
        LOG.addHandler(each)
    try:
        yield
    finally:
        for each in (handler, shown):
            LOG.removeHandler(each)
        # Flushing what a full disk did not take would raise once more.
        try:
            handler.close()
        except OSError as problem:
            print(f"{handler.baseFilename} cannot be written: {problem}", file=sys.stderr)
