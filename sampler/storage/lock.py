"""One process per run directory."""

import fcntl
import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sampler.errors import InputError

LOCK_FILE = "lock"


@dataclass(frozen=True)
class Holder:
    """Who holds a lock."""

    host: str
    pid: int

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Hold the directory for this process, or raise InputError naming the process that has it.

    The operating system gives the lock back when its holder ends, however it ends, so a lock left
    behind on this host is taken over. A lock left behind on another host cannot be told from a
    living one: it is refused.
    """
    path = directory / LOCK_FILE
    try:
        file = _acquire(path)
    except OSError as problem:
        raise InputError(
            "DIR", str(directory), f"{problem.strerror}; a run needs to write there"
        ) from None
    try:
        yield
    finally:
        path.unlink(missing_ok=True)  # while it is still held: nobody else can have taken it
        file.close()


def _acquire(path: Path):
    while True:
        file = path.open("a+")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            holder = read_holder(path)
            raise InputError(
                "DIR",
                str(path.parent),
                f"is in use by {holder or 'another process'}; wait for it, or stop it",
            ) from None
        if not _still_there(path, file):  # its holder removed it between open and lock
            file.close()
            continue
        holder = read_holder(path)
        if holder is not None and holder.host != socket.gethostname():
            file.close()
            raise InputError(
                "DIR",
                str(path.parent),
                f"is in use by {holder}; if that process has ended, remove {LOCK_FILE} there",
            )
        file.seek(0)
        file.truncate()
        json.dump({"host": socket.gethostname(), "pid": os.getpid()}, file)
        file.flush()
        return file


def _still_there(path: Path, file) -> bool:
    try:
        return os.fstat(file.fileno()).st_ino == path.stat().st_ino
    except FileNotFoundError:
        return False


def read_holder(path: Path) -> Holder | None:
    """The holder written in a lock file; None if there is none or it cannot be read."""
    try:
        content = json.loads(path.read_text())
        return Holder(str(content["host"]), int(content["pid"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def living_holder(directory: Path) -> Holder | None:
    """Who is at work in this directory now: on another host, who was there last."""
    path = directory / LOCK_FILE
    holder = read_holder(path)
    if holder is None or holder.host != socket.gethostname():
        return holder
    try:
        with path.open("a+") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return holder
    except OSError:
        return None
    return None


def remove_lock_of_lost_host(directory: Path) -> None:
    """Remove the lock of another host that nobody holds: its host was lost with its process."""
    path = directory / LOCK_FILE
    holder = read_holder(path)
    if holder is None or holder.host == socket.gethostname():
        return
    with path.open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:  # held after all, on a file system whose locks reach other hosts
            return
        path.unlink(missing_ok=True)
