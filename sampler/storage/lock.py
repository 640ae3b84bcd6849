"""One process per run directory.

It is held by `flock`, which the operating system gives back when a process ends, however it ends.
The file stays.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from sampler.errors import InputError

LOCK_FILE = "lock"
# `is_held` holds a lock for an instant.
SECONDS_TO_WAIT = 0.5


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Hold the directory for this process; InputError if another process has it."""
    lock = FileLock(directory / LOCK_FILE)
    try:
        lock.acquire(timeout=SECONDS_TO_WAIT)
    except Timeout:
        remedy = "is in use by another process; wait for it, or stop it"
        raise InputError("DIR", directory, remedy) from None
    except OSError as problem:
        remedy = f"{problem.strerror}; a run needs to write there"
        raise InputError("DIR", directory, remedy) from None
    try:
        yield
    finally:
        lock.release()


def is_held(directory: Path) -> bool:
    """Whether a process is at work in this directory."""
    path = directory / LOCK_FILE
    try:
        if path.exists():
            FileLock(path).acquire(timeout=0).lock.release()
    except Timeout:
        return True
    except OSError:  # a file that may not be opened for writing
        pass
    return False
