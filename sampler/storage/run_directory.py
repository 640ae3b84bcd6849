"""Run directories and the small files in them."""

import errno
import hashlib
import json
import logging
import math
import os
import secrets
import sys
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.npyio import NpzFile

from sampler.errors import InputError, Part, Verbatim, Words
from sampler.settings.recipe import Recipe
from sampler.settings.training import TrainingRecipe

LOG = logging.getLogger("attention_posterior")
LOG_FILE = "run.log"


@contextmanager
def log_to(directory: Path) -> Iterator[None]:
    """Append what is logged to the log of this directory; warnings also go to stderr."""
    try:
        handler = logging.FileHandler(directory / LOG_FILE, encoding="utf-8")
    except OSError as problem:
        raise InputError(
            "DIR", directory, f"{LOG_FILE} cannot be written: {problem.strerror}"
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
        handler.close()


REQUIRED_ARRAY = Words("this array is required; add it to the .npz file", "this array is required")


@contextmanager
def open_npz(path: Path, field: Part, remedy: str = "name an .npz file") -> Iterator[NpzFile]:
    """Open an .npz file that the recipe names under `field`; InputError if it is none."""
    try:
        # Opened here: NumPy leaves a file open when it turns out not to be an archive.
        with path.open("rb") as file:
            # Without the first bytes of an archive NumPy takes anything for one array or a pickle.
            beginning = file.read(6)
            if beginning[:2] != b"PK":
                kind = "not one array" if beginning == b"\x93NUMPY" else "as numpy.savez writes it"
                raise InputError(field, path, f"must be an .npz file, {kind}")
            file.seek(0)
            stored = np.load(file, allow_pickle=False)
            yield stored
    except OSError as problem:
        reason = problem.strerror or str(problem)
        raise InputError(field, path, f"{reason}; {remedy}") from None
    except (ValueError, EOFError, zipfile.BadZipFile) as problem:
        raise InputError(
            field, path, f"is not a readable .npz file ({problem}); store it again"
        ) from None


def read_array(stored: NpzFile, key: str, remedy: str) -> np.ndarray:
    """One array of the file; InputError with this remedy if it cannot be read."""
    try:
        array = stored[key]
        # A member that does not begin as an array does comes as bytes.
        reason = None if isinstance(array, np.ndarray) else "is no array"
    except ValueError:
        reason = "is damaged, or holds Python objects"
    except (EOFError, OSError, zipfile.BadZipFile, zipfile.zlib.error) as problem:
        reason = str(problem)
    if reason:
        raise InputError(key, Verbatim("(unreadable)"), f"{reason}; {remedy}")
    return array


SCHEMA_VERSION = 6
EARLIER = "made by a version before the first release; run it again from its recipe"


def check_schema(version: object, file: str, current: int = SCHEMA_VERSION) -> None:
    """Raise InputError unless a file has the version that this program writes."""
    stored = "none" if version is None else str(version)
    if stored == str(current):
        return
    later = f"this program reads version {current}; install a newer version of this program"
    is_later = stored.isdecimal() and int(stored) > current
    raise InputError(file, f"schema_version {stored}", later if is_later else EARLIER)


RECIPE_FILE = "recipe.toml"
THEORY_FILE, DRAWS_FILE = "theory.nc", "draws.nc"
COMPARISON_FILE, COMPARISON_SUMMARY_FILE = "comparison.nc", "comparison.json"
SWEEP_DATASET_FILE = "sweep.nc"
TASK_FILE, TEACHER_FILE = "task.nc", "teacher.nc"
RESULTS = Path("runs") / "results"
CHECKPOINT_FOLDER = "checkpoint"
FIGURE_FOLDER = "figures"
# Files in the making; a killed process leaves them behind.
UNFINISHED = ".part-"
# What a file system says of a request that it does not know.
UNSUPPORTED = (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOTTY)
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
# For HDF5, which locks every file that it opens. Files of a run are whole under their names and the
# directory has a lock of its own, which also works where a file system has no locks.
UNLOCKED = {"locking": False}
# Of the 255 that a name may have; the output of a point has the name of its folder and an ending.
NAME_BYTES = 240
# Two checkpoints take turns, so that one is whole whatever happens to the other.
CHECKPOINT_SLOTS = ("state-0.bin", "state-1.bin")


def default_directory(recipe: Recipe | TrainingRecipe) -> Path:
    """Return runs/results/<name>-<hash8>, relative to the current directory."""
    return RESULTS / f"{recipe.name}-{recipe.hash8}"


def find_directory(directory: Path) -> Path:
    """The directory of an earlier run; InputError if it is none."""
    try:
        found = (directory / RECIPE_FILE).is_file()
    except OSError:
        found = False
    if not found:
        raise InputError(
            "DIR", directory, f"holds no {RECIPE_FILE}; name the directory of an earlier run"
        )
    return directory


def write_whole(path: Path, text: str) -> None:
    """Write a file so that it is there completely or not at all."""
    fill_whole(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def fill_whole(path: Path, write: Callable[[Path], object]) -> None:
    """Let `write` fill a temporary file beside `path`, then put it in place in one step."""
    temporary = new_file(path)
    try:
        write(temporary)
        synchronise(temporary)
        os.replace(temporary, path)
        synchronise(path.parent)  # or the new name might not survive a power failure
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def new_file(path: Path) -> Path:
    """Make an empty file beside `path`, readable for those whom the user's umask admits."""
    while True:
        name = f"{UNFINISHED}{path.stem}-{secrets.token_hex(4)}{path.suffix}"
        with suppress(FileExistsError):
            (made := path.with_name(name)).touch(exist_ok=False)
            return made


def synchronise(path: Path) -> None:
    """Wait until a file or a directory is on the disk, where its file system can say so."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except PermissionError:  # a directory that may be written and not be read
        return
    try:
        os.fsync(descriptor)
    except OSError as problem:
        if problem.errno not in UNSUPPORTED:
            raise
    finally:
        os.close(descriptor)


def unwritable(problem: OSError) -> str:
    """Return why a file could not be written, and what helps against it."""
    reason = problem.strerror or str(problem)
    if problem.errno in FULL:
        return f"{reason}; free space, then use `resume`"
    if isinstance(problem, PermissionError) or problem.errno == errno.EROFS:
        return f"{reason}; make the directory writable, then use `resume`"
    return f"{reason}; use `resume` when that is mended"


def remove_unfinished(directory: Path) -> None:
    """Remove what a killed process left half-written; only for whoever holds the directory."""
    for folder in (directory, directory / CHECKPOINT_FOLDER, directory / FIGURE_FOLDER):
        for path in folder.glob(f"{UNFINISHED}*"):
            path.unlink(missing_ok=True)


def point_directory(directory: Path, label: str) -> Path:
    """Return the folder of the results of a point of a sweep, whatever its label holds.

    Of a label that is too long for a name its beginning is kept, and a checksum.
    """
    name = label.replace("/", "_")
    if len(whole := name.encode()) > NAME_BYTES:
        checksum = hashlib.sha256(whole).hexdigest()[:16]
        name = f"{whole[: NAME_BYTES - 17].decode(errors='ignore')}-{checksum}"
    return directory / name


def write_atomically(path: Path, write: Callable[[Path], Any]) -> None:
    """Let `write` fill a temporary file beside `path`, then put it in place in one step.

    Raises InputError naming the file when the directory cannot be written or the disk is full.
    """
    try:
        fill_whole(path, write)
    except OSError as problem:
        raise InputError(path.name, path.parent, unwritable(problem)) from None


def write_json(path: Path, content: dict) -> None:
    """Write strict JSON: numbers that are not finite become null."""
    text = json.dumps(plain(content), indent=2, allow_nan=False) + "\n"
    write_atomically(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def plain(value: Any) -> Any:
    """Arrays, NumPy numbers, tuples and NaN as what JSON has for them."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def read_json(path: Path, command: str = "run") -> dict:
    """Read a JSON file of a run directory, which `command` makes. Raises InputError."""

    def load(file: Path) -> dict:
        content = json.loads(file.read_text(encoding="utf-8"))
        if not isinstance(content, dict):
            raise ValueError("it is no JSON object")
        return content

    return read_stored(path, command, load)


def read_stored(path: Path, command: str, load: Callable[[Path], Any]) -> Any:
    """Load a result file; InputError, naming the command that makes it, if that fails."""
    if not path.is_file():
        raise InputError("DIR", path.parent, f"holds no {path.name}; first use `{command}`")
    try:
        return load(path)
    except (OSError, ValueError, KeyError) as problem:
        raise damaged(path, problem, command) from None


def damaged(path: Path, problem: object, command: str) -> InputError:
    """The error for a file that cannot be used: what is wrong, and the command that makes it."""
    remedy = f"cannot be read ({problem}); make it anew with `{command}`"
    return InputError(path.name, path, remedy)
