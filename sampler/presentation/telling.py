"""Texts of a command, and what may fail beside its results without costing more than itself."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from sampler.errors import one_line
from sampler.storage.run_directory import LOG


def tell(text: str, stream: Any = None) -> None:
    """Print a text to stdout, or to another stream, if anybody reads it."""
    with suppress(OSError, ValueError):
        print(text, file=sys.stdout if stream is None else stream, flush=True)


def tell_aside(text: str) -> None:
    """Print a text to stderr."""
    tell(text, sys.stderr)


def in_terminal() -> bool:
    return sys.stderr is not None and sys.stderr.isatty()


@contextmanager
def by_itself(what: str) -> Iterator[None]:
    """Inside, an error is said and logged, and raised no further: the results are stored."""
    try:
        yield
    except Exception as problem:
        LOG.warning("%s failed: %s: %s", what, type(problem).__name__, one_line(str(problem)))
        LOG.info("%s failed", what, exc_info=True)
