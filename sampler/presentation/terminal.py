"""Lines for a terminal, and steps after storing that may fail without ending a command."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from sampler.errors import one_line
from sampler.storage.directory import LOG


def print_line(text: str, stream: Any = None) -> None:
    """Print a text to stdout, or to another stream, if anybody reads it."""
    with suppress(OSError, ValueError):
        print(text, file=sys.stdout if stream is None else stream, flush=True)


def print_stderr(text: str) -> None:
    """Print a text to stderr, if anybody reads it."""
    print_line(text, sys.stderr)


def in_terminal() -> bool:
    """Whether somebody looks at stderr."""
    return sys.stderr is not None and sys.stderr.isatty()


@contextmanager
def log_errors(what: str) -> Iterator[None]:
    """Log an error inside, and raise it no further: results are stored already."""
    try:
        yield
    except Exception as problem:
        LOG.warning("%s failed: %s: %s", what, type(problem).__name__, one_line(str(problem)))
        LOG.info("%s failed", what, exc_info=True)
