"""The directory of a run: names of its files, its log, and its lock."""

import hashlib
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from sampler.errors import DISK_FAILURES, InputError
from sampler.storage.files import UNFINISHED, disk_error, remove

if TYPE_CHECKING:
    from sampler.settings.recipe import AnyRecipe

RECIPE_FILE, MANIFEST_FILE = "recipe.toml", "manifest.json"
THEORY_FILE, DRAWS_FILE = "theory.nc", "draws.nc"
COMPARISON_FILE, COMPARISON_SUMMARY_FILE = "comparison.nc", "comparison.json"
SWEEP_DATASET_FILE = "sweep.nc"
TEACHER_FILE = "teacher.nc"
LOG_FILE, LOCK_FILE = "run.log", "lock"
# Folders of checkpoints: of a run or a training, and of the pass over too many examples.
CHECKPOINT_FOLDER, ROWS_FOLDER = "checkpoint", "rows"
FIGURE_FOLDER = "figures"
RESULTS = Path("runs") / "results"
# Of the 255 that a name may have; the output of a point has the name of its folder and an ending.
NAME_BYTES = 240


def default_directory(recipe: "AnyRecipe") -> Path:
    """Return runs/results/<name>-<hash8>, relative to the current directory."""
    return RESULTS / f"{recipe.name}-{recipe.hash8}"


def find_directory(directory: Path) -> Path:
    """The directory of an earlier run, ~ being a home; InputError if it is none."""
    if not directory.is_dir():
        directory = Path(os.path.expanduser(directory))
    with suppress(OSError):
        if (directory / RECIPE_FILE).is_file():
            return directory
    remedy = f"holds no {RECIPE_FILE}; name the directory of an earlier run"
    raise InputError("DIR", directory, remedy)


def point_directory(directory: Path, label: str) -> Path:
    """Return the folder of the results of a point of a sweep, whatever its label holds.

    Of a label that is too long for a name its beginning is kept, and a checksum.
    """
    name = label.replace("/", "_")
    if len(whole := name.encode()) > NAME_BYTES:
        checksum = hashlib.sha256(whole).hexdigest()[:16]
        name = f"{whole[: NAME_BYTES - 17].decode(errors='ignore')}-{checksum}"
    return directory / name


def remove_unfinished(directory: Path) -> None:
    """Remove half-written files of a killed process; only for whoever holds the directory."""
    for name in ("", CHECKPOINT_FOLDER, ROWS_FOLDER, FIGURE_FOLDER):
        for path in (directory / name).glob(f"{UNFINISHED}*"):
            remove(path)


# --- log

LOG = logging.getLogger("attention_posterior")


@contextmanager
def log_to(directory: Path) -> Iterator[None]:
    """Append log records to the log of this directory; warnings also go to stderr."""
    try:
        handler = LogFile(directory / LOG_FILE, encoding="utf-8")
    except OSError as problem:
        raise unwritable(directory / LOG_FILE, problem) from None
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    handlers: list[logging.Handler] = [handler]
    # A sweep shows the warnings of its points already.
    if not any(type(each) is logging.StreamHandler for each in LOG.handlers):
        shown = logging.StreamHandler(sys.stderr)
        shown.setLevel(logging.WARNING)
        handlers.append(shown)
    LOG.setLevel(logging.INFO)
    LOG.propagate = False
    for each in handlers:
        LOG.addHandler(each)
    try:
        yield
    finally:
        for each in handlers:
            LOG.removeHandler(each)
        with suppress(OSError):
            handler.close()


class LogFile(logging.FileHandler):
    """A full disk costs lines of the log; saving there fails with an error."""

    def handleError(self, record: logging.LogRecord) -> None:
        if not isinstance(sys.exception(), OSError):
            super().handleError(record)


def unwritable(path: Path, problem: OSError) -> Exception:
    """The error of a file that cannot be opened: that of a failing disk, or of the directory."""
    if problem.errno in DISK_FAILURES:
        return disk_error(path, problem)
    return InputError("DIR", path.parent, f"{path.name} cannot be written: {problem.strerror}")


# --- lock, which the operating system gives back however a process ends; its file stays

# `is_held` holds a lock for an instant.
SECONDS_TO_WAIT = 0.5


@contextmanager
def tried(path: Path, seconds: float = 0.0) -> Iterator[bool]:
    """Hold a lock file inside; False where another process, or thread, has it for so long."""
    from filelock import FileLock, Timeout

    lock = FileLock(path)
    try:
        lock.acquire(timeout=seconds)
    except Timeout:
        yield False
        return
    try:
        yield True
    finally:
        lock.release()


@contextmanager
def locked(directory: Path, seconds: float = SECONDS_TO_WAIT) -> Iterator[None]:
    """Hold the directory for this process; InputError if another process has it for so long."""
    with ExitStack() as stack:
        try:
            is_free = stack.enter_context(tried(directory / LOCK_FILE, seconds))
        except OSError as problem:
            raise unwritable(directory / LOCK_FILE, problem) from None
        if not is_free:
            remedy = "is in use by another process; wait for it, or stop it"
            raise InputError("DIR", directory, remedy)
        yield


def is_held(directory: Path) -> bool:
    """Whether a process is at work in this directory."""
    path = directory / LOCK_FILE
    with suppress(OSError):  # of a file that may not be opened for writing
        if path.exists():
            with tried(path) as is_free:
                return not is_free
    return False
