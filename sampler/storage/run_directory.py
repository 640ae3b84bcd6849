"""A run directory that this process holds: claimed for one recipe, its manifest in memory."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sampler.errors import DISK_FAILURES, DiskError, ExitCode, InputError, RequeueError
from sampler.settings.toml import flattened
from sampler.storage.directory import (
    LOCK_FILE,
    LOG_FILE,
    RECIPE_FILE,
    SECONDS_TO_WAIT,
    locked,
    log_to,
    point_directory,
    remove_unfinished,
)
from sampler.storage.files import UNFINISHED, disk_error, write_whole
from sampler.storage.fingerprint import differences
from sampler.storage.manifest import (
    Manifest,
    Outcome,
    git_commit,
    now,
    read_manifest,
    this_process,
    write_manifest,
)

if TYPE_CHECKING:
    from sampler.settings.recipe import AnyRecipe

# Files of a run that was killed before it began.
BEGINNINGS = {LOCK_FILE, LOG_FILE}
# Keys that an error names.
MOST_NAMED = 3
# Settings of the sampler that say how many draws there are.
NUMBERS_OF_DRAWS = ("sampler.until", "sampler.draws", "sampler.repetitions")


@dataclass
class RunDirectory:
    """A run directory that this process has locked.

    path        where it is
    recipe      of the run
    determined  what determines the draws (`determining`)
    manifest    as it is in the file
    """

    path: Path
    recipe: "AnyRecipe"
    determined: Mapping[str, Any]
    manifest: Manifest
    _before: tuple[Manifest, str | None] | None = field(default=None, init=False)

    def begin(self, command: str, **fields: Any) -> None:
        """Write down the resolved recipe and the command, before anything is computed.

        fields  further ones of the manifest
        """
        git_commit()  # that of now, whatever is committed while stages are computed
        remove_unfinished(self.path)
        earlier, recipe = self.manifest, self.recipe
        file = self.path / RECIPE_FILE
        self._before = earlier, file.read_text(encoding="utf-8") if file.is_file() else None
        write_whole(file, recipe.to_toml(self.path))
        self.record(
            name=recipe.name,
            command=command,
            begun=earlier.begun or now(),
            outcome=None,
            recipe_hash=recipe.hash8,
            seeds=seeds_of(recipe),
            plan=self.determined,
            **fields,
        )
        recipe.task.keep(self.path)

    def record(self, **fields: Any) -> None:
        """Record present information, such as the number of devices on which chains begin."""
        manifest = self.manifest.model_copy(update=fields)
        write_manifest(self.path, manifest)
        self.manifest = manifest

    def record_stage(self, stage: str, seconds: float, **fields: Any) -> None:
        """Record that this process has computed a stage, and more that is known now."""
        self.record(stages=self.manifest.stages | {stage: this_process(seconds)}, **fields)

    def end(self, code: ExitCode) -> None:
        """Record that the command came to its end, and how."""
        self.record(outcome=Outcome(command=self.manifest.command, code=int(code)))

    def put_back(self) -> None:
        """Leave no recipe of a run that never began, and a finished run finished."""
        if self._before is None:
            return
        earlier, recipe = self._before
        drew = earlier.stages.get("sample") != self.manifest.stages.get("sample")
        with suppress(OSError, DiskError):  # there may be no room for it
            if recipe is None and self.manifest.command is None:
                (self.path / RECIPE_FILE).unlink(missing_ok=True)
            elif earlier.outcome is not None and not drew:
                write_whole(self.path / RECIPE_FILE, recipe)
                write_manifest(self.path, earlier)


@contextmanager
def opened_directory(
    path: Path,
    recipe: "AnyRecipe",
    determined: Mapping[str, Any],
    extended: bool = False,
    seconds: float = SECONDS_TO_WAIT,
) -> Iterator[RunDirectory]:
    """Hold the directory of this recipe, with its log; it is made where there is none.

    A directory that holds results of the same recipe is used again; a sweep may have grown.

    extended  draws are appended to a finished run
    seconds   how long another process may have the directory before it is in use

    Raises InputError if it cannot be written, is in use, or holds anything else: other settings,
    data and versions are named. Files of a run that never began are removed.
    """
    made = make_folders(path)
    try:
        refuse_foreign(path)  # where not even a lock is left behind
        refuse_another(path, recipe, extended)
        with locked(path, seconds), log_to(path):
            # Another process may have begun there since: its files stay.
            refuse_foreign(path)
            directory = RunDirectory(path, recipe, determined, read_manifest(path))
            refuse_another(path, recipe, extended)
            refuse_differences(path, directory.manifest, determined)
            try:
                yield directory
            except RequeueError:
                raise
            except Exception:
                directory.put_back()
                raise
    except BaseException:
        if made and not (path / RECIPE_FILE).is_file():
            with suppress(OSError):
                for name in BEGINNINGS:
                    (path / name).unlink(missing_ok=True)
                for folder in made:  # the deepest first; only empty folders made here
                    folder.rmdir()
        raise


def seeds_of(recipe: "AnyRecipe") -> dict[str, int]:
    """Every seed of a recipe, by its dotted key."""
    settings = flattened(recipe.model_dump(exclude={"sweep"})).items()
    return {key: value for key, value in settings if key.endswith("seed")}


def make_folders(path: Path) -> list[Path]:
    """Make a folder and those that it lies in → those that were not there, the deepest first."""
    made: list[Path] = []
    try:
        made = [each for each in (path, *path.parents) if not each.exists()]
        path.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        with suppress(OSError):
            for folder in made:
                folder.rmdir()
        if problem.errno in DISK_FAILURES:
            raise disk_error(path, problem) from None
        reason = problem.strerror or str(problem)
        remedy = f"{reason}; choose a directory that can be written"
        raise InputError("--out", path, remedy) from None
    return made


# --- who may continue it


def refuse_foreign(path: Path) -> None:
    """Raise InputError for a directory that holds anything but a run."""
    try:
        names = {each.name for each in path.iterdir()}
    except OSError as problem:
        remedy = f"{problem.strerror}; choose a directory that can be read"
        raise InputError("--out", path, remedy) from None
    if RECIPE_FILE not in names and any(
        name not in BEGINNINGS and not name.startswith(UNFINISHED) for name in names
    ):
        remedy = "is neither empty nor a run directory; choose another"
        raise InputError("--out", path, remedy)


def refuse_another(path: Path, recipe: "AnyRecipe", extended: bool) -> None:
    """Raise InputError for a directory that holds a run of another recipe."""
    from sampler.settings.recipe import AnyRecipe, Recipe

    remedy = None
    if not (path / RECIPE_FILE).is_file():
        return
    stored = AnyRecipe.load(path / RECIPE_FILE)
    keys = differing_keys(stored, recipe)
    if others := [key for key in keys if key not in NUMBERS_OF_DRAWS]:
        more = ", …" if len(others) > MOST_NAMED else ""
        named = f"{', '.join(others[:MOST_NAMED])}{more}"
        remedy = f"holds a run of another recipe ({named} differ); choose another directory"
    elif keys and not extended:
        how = "use `resume DIR`, which appends draws with --more, or "
        remedy = "holds this run with another number of draws; "
        remedy += (
            f"{'' if isinstance(recipe, Recipe) and recipe.sweep else how}choose another directory"
        )
    elif lost := finished_points_left_out(path, stored, recipe):
        remedy = f"holds a sweep with the point {lost}, which is finished; keep its values and "
        remedy += "add others, or choose another directory"
    if remedy:
        raise InputError("--out", path, remedy)


def refuse_differences(path: Path, manifest: Manifest, determined: Mapping[str, Any]) -> None:
    """Raise InputError, naming the differences, for other settings, data or versions."""
    changes = differences(manifest.plan or determined, determined)
    if changes:
        remedy = "restore them, or use another directory"
        text = f"was begun with other {', '.join(changes)}; {remedy}"
        raise InputError("DIR", path, text)


def differing_keys(recipe: "AnyRecipe", other: "AnyRecipe") -> list[str]:
    """Dotted keys in which two recipes differ, wherever their data lie; none of the same recipe.

    Settings that a run may change count as equal: its limits, and which values the keys of a
    sweep have.
    """

    def compared(recipe: "AnyRecipe") -> dict[str, Any]:
        settings = recipe.without_paths()
        recipe.leave_out_what_changes(settings)
        return flattened(settings)

    mine, others = compared(recipe), compared(other)
    return [key for key in {**mine, **others} if mine.get(key) != others.get(key)]


def finished_points_left_out(
    directory: Path, stored: "AnyRecipe", recipe: "AnyRecipe"
) -> str | None:
    """A point of the stored sweep that came to its end and that a recipe has not; else None."""
    from sampler.settings.recipe import Recipe

    if not (isinstance(stored, Recipe) and isinstance(recipe, Recipe)):
        return None
    if not stored.sweep or stored.sweep == recipe.sweep:
        return None
    kept = {label for label, _ in recipe.points()}
    for label, _ in stored.points():
        if label not in kept and read_manifest(point_directory(directory, label)).outcome:
            return label
    return None
