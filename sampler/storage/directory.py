"""The directory of a run: names of its files, its log, its lock, and who may go on with it."""

import hashlib
import logging
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sampler.errors import DISK_FAILURES, DiskError, InputError, RequeueError
from sampler.settings.toml import take_out
from sampler.storage.files import UNFINISHED, disk_error, remove, write_whole
from sampler.storage.manifest import MANIFEST_FILE, begin_command, read_manifest

if TYPE_CHECKING:
    from sampler.settings.recipe import Recipe, TrainingRecipe

    AnyRecipe = Recipe | TrainingRecipe

RECIPE_FILE = "recipe.toml"
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
    """Remove what a killed process left half-written; only for whoever holds the directory."""
    for name in ("", CHECKPOINT_FOLDER, ROWS_FOLDER, FIGURE_FOLDER):
        for path in (directory / name).glob(f"{UNFINISHED}*"):
            remove(path)


# --- log

LOG = logging.getLogger("attention_posterior")


@contextmanager
def log_to(directory: Path) -> Iterator[None]:
    """Append what is logged to the log of this directory; warnings also go to stderr."""
    try:
        handler = LogFile(directory / LOG_FILE, encoding="utf-8")
    except OSError as problem:
        if problem.errno in DISK_FAILURES:
            raise disk_error(directory / LOG_FILE, problem) from None
        text = f"{LOG_FILE} cannot be written: {problem.strerror}"
        raise InputError("DIR", directory, text) from None
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
    """A full disk costs lines of the log; what is to be saved there fails with a sentence."""

    def handleError(self, record: logging.LogRecord) -> None:
        if not isinstance(sys.exception(), OSError):
            super().handleError(record)


# --- lock, which the operating system gives back however a process ends; its file stays

# `is_held` holds a lock for an instant.
SECONDS_TO_WAIT = 0.5


@contextmanager
def locked(directory: Path, seconds: float = SECONDS_TO_WAIT) -> Iterator[None]:
    """Hold the directory for this process; InputError if another process has it for so long."""
    from filelock import FileLock, Timeout

    lock = FileLock(directory / LOCK_FILE)
    try:
        lock.acquire(timeout=seconds)
    except Timeout:
        remedy = "is in use by another process; wait for it, or stop it"
        raise InputError("DIR", directory, remedy) from None
    except OSError as problem:
        if problem.errno in DISK_FAILURES:
            raise disk_error(directory / LOCK_FILE, problem) from None
        remedy = f"{problem.strerror}; a run needs to write there"
        raise InputError("DIR", directory, remedy) from None
    try:
        yield
    finally:
        lock.release()


def is_held(directory: Path) -> bool:
    """Whether a process is at work in this directory."""
    from filelock import FileLock, Timeout

    path = directory / LOCK_FILE
    try:
        if path.exists():
            FileLock(path).acquire(timeout=0).lock.release()
    except Timeout:
        return True
    except OSError:  # a file that may not be opened for writing
        pass
    return False


# --- claim

# What a run that was killed while it claimed its directory may have left there.
BEGINNINGS = {MANIFEST_FILE, LOCK_FILE, LOG_FILE}


def claim_directory(
    directory: Path,
    recipe: "AnyRecipe",
    command: str,
    plan: Mapping[str, Any],
    fields: Mapping[str, Any] | None = None,
    extended: bool = False,
    seconds: float = SECONDS_TO_WAIT,
) -> None:
    """Make the directory of this recipe; write down the command, then the resolved recipe.

    A directory that holds results of the same recipe is used again; the sweep may have grown. Where
    nothing is new, nothing is written.

    plan      what determines the draws (`determining`)
    fields    further fields of the manifest
    extended  draws are appended to a finished run
    seconds   how long another process may have the directory before it is in use

    Raises InputError, leaving nothing behind, if the directory cannot be written, is in use, or
    holds anything else.
    """
    made: list[Path] = []
    try:
        made = [each for each in (directory, *directory.parents) if not each.exists()]
        directory.mkdir(parents=True, exist_ok=True)
        refuse_foreign(directory, recipe, extended)  # where not even a lock is left behind
        with locked(directory, seconds):  # or what a process there records might be undone
            # Another process may have claimed it since: what that wrote stays.
            refuse_foreign(directory, recipe, extended)
            is_new = not (directory / MANIFEST_FILE).is_file()
            try:
                begin_command(directory, recipe, command, plan, fields or {}, extended)
                write_whole(directory / RECIPE_FILE, recipe.to_toml(directory))
                recipe.task.keep(directory)
            except (InputError, DiskError):
                if made and is_new:
                    (directory / RECIPE_FILE).unlink(missing_ok=True)
                    (directory / MANIFEST_FILE).unlink(missing_ok=True)
                    (directory / LOCK_FILE).unlink(missing_ok=True)
                raise
    except (OSError, InputError, DiskError) as problem:
        with suppress(OSError):
            for folder in made:  # the deepest first; only what was made here and is empty
                folder.rmdir()
        if isinstance(problem, InputError | DiskError):
            raise
        if problem.errno in DISK_FAILURES:
            raise disk_error(directory, problem) from None
        reason = problem.strerror or str(problem)
        remedy = f"{reason}; choose a directory that can be written"
        raise InputError("--out", directory, remedy) from None


@contextmanager
def left_finished(directory: Path) -> Iterator[None]:
    """Leave a finished run as finished as it was, where appending draws to it inside fails.

    What was interrupted is resumed, and draws that are stored already stay.
    """
    names = (RECIPE_FILE, MANIFEST_FILE)
    before = {name: (directory / name).read_text(encoding="utf-8") for name in names}
    try:
        yield
    except RequeueError:
        raise
    except Exception:
        with suppress(InputError, DiskError), locked(directory):
            if "sample" not in read_manifest(directory).stages:
                for name, text in before.items():
                    write_whole(directory / name, text)
        raise


def refuse_foreign(directory: Path, recipe: "AnyRecipe", extended: bool) -> None:
    """Raise InputError unless the directory is empty or holds a run of this recipe."""
    from sampler.settings.recipe import AnyRecipe, load_recipe

    names, remedy = {path.name for path in directory.iterdir()}, None
    if RECIPE_FILE not in names:
        if any(name not in BEGINNINGS and not name.startswith(UNFINISHED) for name in names):
            remedy = "is neither empty nor a run directory; choose another"
    else:
        stored = load_recipe(directory / RECIPE_FILE, kind=AnyRecipe)
        if not ask_the_same(stored, recipe, NUMBERS_OF_DRAWS):
            remedy = "holds a run of another recipe; choose another directory"
        elif not extended and not ask_the_same(stored, recipe):
            how = "use `resume DIR`, which appends draws with --more, or "
            remedy = "holds this run with another number of draws; "
            remedy += f"{'' if recipe.sweep else how}choose another directory"
        elif lost := finished_points_left_out(directory, stored, recipe):
            remedy = f"holds a sweep with the point {lost}, which is finished; keep its values and "
            remedy += "add others, or choose another directory"
    if remedy:
        raise InputError("--out", directory, remedy)


# Settings of the sampler that say how many draws there are.
NUMBERS_OF_DRAWS = ("sampler.until", "sampler.draws", "sampler.repetitions")


def ask_the_same(recipe: "AnyRecipe", other: "AnyRecipe", but_for: Sequence[str] = ()) -> bool:
    """Whether two recipes are the same, wherever their data lie, but for what a run may change.

    That is how far it goes at most, and which values the keys of a sweep have.

    but_for  dotted keys that may differ, too
    """

    def compared(recipe: "AnyRecipe") -> dict[str, Any]:
        settings = recipe.without_paths()
        recipe.leave_out_what_changes(settings)
        for key in but_for:
            take_out(settings, key)
        return settings

    return type(recipe) is type(other) and compared(recipe) == compared(other)


def finished_points_left_out(
    directory: Path, stored: "AnyRecipe", recipe: "AnyRecipe"
) -> str | None:
    """A point of the stored sweep that came to its end and that a recipe has not; else None."""
    if not getattr(stored, "sweep", None) or stored.sweep == recipe.sweep:
        return None
    kept = {label for label, _ in recipe.points()}
    for label, _ in stored.points():
        if label not in kept and read_manifest(point_directory(directory, label)).finished:
            return label
    return None
