"""One process per run directory.

The file `lock` names its holder. The holder keeps it locked by `flock`, which the operating system
gives back when a process ends, however it ends; some network file systems tell other hosts of it,
others do not. Where a file system has no `flock`, the file alone is the lock, and on this host the
holder's number tells whether it still runs.

Who may take the lock that was left by   | this host | another host | another host, `alone`
a process that runs                      | nobody    | nobody       | nobody, if `flock` reaches it
a process that has ended                 | anybody   | nobody       | anybody

Times play no part: clocks may differ between hosts, or be set back.
"""

import errno
import fcntl
import json
import os
import socket
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from sampler.errors import InputError
from sampler.storage.run_directory import UNFINISHED, UNLOCKED

LOCK_FILE = "lock"
# So long a process may look who holds a lock (`living_holder`), on a machine that is busy.
SECONDS_TO_LOOK = 2.0
# Lustre mounted without locks, NFS without its lock service, and others.
WITHOUT_FLOCK = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOTSUP)


@dataclass(frozen=True)
class Holder:
    """Process that holds a lock, and its host."""

    host: str
    pid: int

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"

    @property
    def is_here(self) -> bool:
        """Whether it is, or was, a process of this host."""
        return self.host == socket.gethostname()

    @property
    def is_running(self) -> bool:
        """Whether this host has a process of that number."""
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:  # it is somebody else's
            pass
        return True


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Hold the directory for this process, or raise InputError naming the process that has it.

    A lock left behind on this host is taken over. A lock left behind on another host cannot be told
    from a living one: it is refused.
    """
    path = directory / LOCK_FILE
    try:
        file = _acquire(path) if has_flock(directory) else _create(path)
    except OSError as problem:
        raise InputError(
            "DIR", directory, f"{problem.strerror}; a run needs to write there"
        ) from None
    try:
        yield
    finally:
        path.unlink(missing_ok=True)  # while it is still held: nobody else can have taken it
        file.close()


def has_flock(directory: Path) -> bool:
    """Whether the file system of a directory that can be written has `flock`."""
    with tempfile.TemporaryFile(dir=directory, prefix=UNFINISHED) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as problem:
            if problem.errno in WITHOUT_FLOCK:
                return False
            raise
    return True


def locking(path: Path) -> Mapping[str, bool]:
    """Return how HDF5 is to open a file that others may be writing: as ever, but on a file system
    without locks without one. Raises OSError where the file cannot be read.
    """
    with path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError as problem:
            if problem.errno in WITHOUT_FLOCK:
                return UNLOCKED
    return {}


def _acquire(path: Path) -> IO[str]:
    """The file of the lock, held by `flock`."""
    given_up = time.monotonic() + SECONDS_TO_LOOK
    while True:
        file = path.open("a+")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            holder = read_holder(path)
            left = holder is not None and holder.is_here and not holder.is_running
            if left and time.monotonic() < given_up:  # somebody looks whether it still runs
                time.sleep(0.01)
                continue
            raise in_use(path, holder) from None
        if not _still_there(path, file):  # its holder removed it between open and lock
            file.close()
            continue
        holder = read_holder(path)
        if holder is not None and not holder.is_here:
            file.close()
            raise in_use(path, holder)
        file.seek(0)
        file.truncate()
        _write_holder(file)
        return file


def _create(path: Path) -> IO[str]:
    """The same without `flock`: one process alone can give a file, complete by then, its name."""
    with tempfile.NamedTemporaryFile("w+", dir=path.parent, prefix=UNFINISHED) as own:
        _write_holder(own)
        _name(Path(own.name), path)
        return path.open()


def _name(own: Path, path: Path) -> None:
    """Give a file the name of a lock, also of one that was left behind.

    What was left behind is replaced by who holds another lock, named after the process that left
    it, and nobody else: so it is what it was when it was read. That lock is taken like any other.
    """
    while True:
        with suppress(FileExistsError):
            os.link(own, path)
            return
        found = _content(path)
        if found is None:  # removed in between
            continue
        left = _holder_in(found)
        if left is not None and (not left.is_here or left.is_running):
            raise in_use(path, left)
        claim = path.with_name(f"{path.name}-left-by-{left.pid if left else 'nobody'}")
        _name(own, claim)
        if _content(path) == found:
            os.rename(claim, path)
            return
        claim.unlink()


def _write_holder(file: IO[str]) -> None:
    json.dump({"host": socket.gethostname(), "pid": os.getpid()}, file)
    file.flush()


def in_use(path: Path, holder: Holder | None) -> InputError:
    """The error for a directory that another process has, or had on another host."""
    remedy = "wait for it, or stop it"
    if holder is not None and not holder.is_here:
        remedy += f"; if that process has ended, remove {LOCK_FILE} there"
    text = f"is in use by {holder or 'another process'}; {remedy}"
    return InputError("DIR", path.parent, text)


def _still_there(path: Path, file: IO[str]) -> bool:
    try:
        return os.fstat(file.fileno()).st_ino == path.stat().st_ino
    except FileNotFoundError:
        return False


def read_holder(path: Path) -> Holder | None:
    """The holder written in a lock file; None if there is none or it cannot be read."""
    try:
        return _holder_in(_content(path) or "")
    except OSError:
        return None


def _content(path: Path) -> str | None:
    """What a lock file says; None if there is none."""
    try:
        return path.read_text(errors="replace")
    except FileNotFoundError:
        return None


def _holder_in(content: str) -> Holder | None:
    try:
        found = json.loads(content)
        return Holder(str(found["host"]), int(found["pid"]))
    except (ValueError, KeyError, TypeError):
        return None


def living_holder(directory: Path) -> Holder | None:
    """Return the process at work in this directory; on another host, the last one there."""
    path = directory / LOCK_FILE
    holder = read_holder(path)
    if holder is None or not holder.is_here:
        return holder
    try:
        with path.open("a+") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return holder
    except OSError as problem:
        return holder if problem.errno in WITHOUT_FLOCK and holder.is_running else None
    return None


def remove_lock_of_lost_host(directory: Path) -> None:
    """Remove the lock of another host that nobody holds: its host was lost with its process."""
    path = directory / LOCK_FILE
    holder = read_holder(path)
    if holder is None or holder.is_here:
        return
    with path.open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as problem:
            if problem.errno not in WITHOUT_FLOCK:
                return  # held after all, on a file system whose locks reach other hosts
        path.unlink(missing_ok=True)
