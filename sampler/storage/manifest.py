"""The manifest of a run directory: what was begun in it, and who may go on with it."""

import math
import os
import platform
import re
import resource
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from sampler import __version__
from sampler.errors import ExitCode, InputError
from sampler.settings.recipe import Recipe
from sampler.settings.training import TrainingRecipe, load_any_recipe
from sampler.storage.lock import LOCK_FILE, locked
from sampler.storage.run_directory import (
    LOG_FILE,
    RECIPE_FILE,
    SCHEMA_VERSION,
    UNFINISHED,
    check_schema,
    damaged,
    read_json,
    write_json,
    write_whole,
)


def determining(settings: Mapping[str, Any], data: Any) -> dict[str, Any]:
    """Return what determines the draws, as JSON: settings, identity of the data, versions.

    settings: `settings_that_fix_draws` of the recipe.
    """
    return {
        "settings": settings,
        "data": data,
        "package major version": __version__.split(".")[0],
        "schema_version": SCHEMA_VERSION,
    }


def differences(stored: dict, current: dict) -> list[str]:
    """Return the differences, `key (then → now)`; empty where one can go on with the other."""
    pairs = [(stored.get("settings", {}), current.get("settings", {})), (stored, current)]
    found = [
        f"{key} ({one.get(key)} → {other.get(key)})"
        for one, other in pairs
        for key in sorted({*one, *other} - {"settings", "data"})
        if one.get(key) != other.get(key)
    ]
    of_data = ("task.", "attention.", "network.heads")
    if not same_data(stored.get("data"), current.get("data")):
        found += [] if any(entry.startswith(of_data) for entry in found) else ["the data"]
    return found


def same_data(stored: Any, current: Any) -> bool:
    """Whether data are equal but for rounding; those of a training are known by a checksum."""
    if isinstance(current, dict) and isinstance(stored, dict):
        return stored["sha256"] == current["sha256"] or agree(stored["sums"], current["sums"])
    return stored == current


def agree(one: Any, other: Any) -> bool:
    """Whether two nested lists are equal, their numbers to eleven digits."""
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(agree, one, other))
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-11)
    return one == other


MANIFEST_FILE = "manifest.json"
PACKAGES = (
    "attention-posterior", "jax", "jaxlib", "numpyro", "numpy", "scipy", "xarray",
    "arviz-base", "arviz-stats",
)  # fmt: skip
FLAGS = (
    "XLA_FLAGS", "JAX_PLATFORMS", "JAX_ENABLE_X64", "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS",
    "CUDA_VISIBLE_DEVICES",
)  # fmt: skip


class Manifest(BaseModel):
    """The content of `manifest.json`; a field that is not stored has its default.

    finished: exit code of each command that came to its end.  seconds, peak_memory_bytes: of each
    finished stage.  draws_per_chain: those that were made, or the number of repetitions.  plan:
    what determines the draws, which a continuation must agree with.  sizes: of the network and its
    data.  concerns: what is doubtful about the data.  choice: the space and algorithm that are
    sampled, why, and the steps of warm-up.  forecast: memory where the command was
    begun last.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    schema_version: int = SCHEMA_VERSION
    name: str = ""
    command: str | None = None
    begun: str | None = None
    finished: dict[str, int] = {}
    seconds: dict[str, float] = {}
    peak_memory_bytes: dict[str, int] = {}
    draws_per_chain: int | None = None
    sizes: dict[str, Any] | None = None
    concerns: list[str] = []
    choice: dict[str, str | int | float | None] | None = None
    forecast: dict[str, Any] | None = None
    recipe_hash: str | None = None
    recipe: str | None = None
    plan: dict[str, Any] | None = None
    seeds: dict[str, Any] = {}
    precision: Any = None
    python: str | None = None
    platform: str | None = None
    package_version: str | None = None
    git_commit: str | None = None
    versions: dict[str, str | None] = {}
    flags: dict[str, str] = {}
    devices: list[str] | None = None
    ended: str | None = None

    def with_stage(self, stage: str, seconds: float, peak_bytes: int) -> "Manifest":
        return self.model_copy(
            update={
                "seconds": self.seconds | {stage: seconds},
                "peak_memory_bytes": self.peak_memory_bytes | {stage: peak_bytes},
            }
        )

    def as_json(self) -> dict[str, Any]:
        """The manifest as JSON; keys known only after sampling where they are known."""
        later = ("ended", "draws_per_chain", "sizes", "choice", "forecast")
        absent = {key for key in later if getattr(self, key) is None}
        return self.model_dump(exclude=absent)


def read_manifest(directory: Path) -> Manifest:
    """The manifest of a directory, one without a command if it has none.

    Raises InputError for one that is damaged or of another schema.
    """
    path = directory / MANIFEST_FILE
    if not path.is_file():
        return Manifest()
    content = read_json(path)
    check_schema(content.get("schema_version"), str(path))
    try:
        return Manifest(**content)
    except ValidationError as problem:
        first = problem.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise damaged(path, f"{where}: {first['msg']}", "run") from None


def write_manifest(directory: Path, manifest: Manifest) -> None:
    write_json(directory / MANIFEST_FILE, manifest.as_json())


def begin_command(
    directory: Path,
    recipe: Recipe | TrainingRecipe,
    command: str,
    plan: dict[str, Any],
    known: dict[str, Any],
    extended: bool,
) -> None:
    """Record, before anything is computed, what was asked for and with which program.

    What earlier commands finished here stays recorded, but for the sampling of a run that is
    extended. Raises InputError, naming what differs, if the directory was begun with other
    settings, data or versions.
    """
    earlier = read_manifest(directory)
    found = differences(earlier.plan or plan, plan)
    if found:
        raise InputError(
            "DIR",
            directory,
            f"was begun with other {', '.join(found)}; restore them, or use another directory",
        )
    seconds, finished = earlier.seconds, earlier.finished
    if extended:
        seconds, finished = {k: v for k, v in seconds.items() if k != "sample"}, {}
    begun = earlier.model_copy(
        update={
            "name": recipe.name,
            "command": command,
            "begun": earlier.begun or now(),
            "seconds": seconds,
            "finished": finished,
            "recipe_hash": recipe.hash8,
            "recipe": recipe.to_toml(),
            "plan": plan,
            **known,
            "seeds": recipe.seeds,
            "precision": recipe.precision,
            "python": sys.version.split()[0],
            "platform": platform.platform(),
            "package_version": __version__,
            "git_commit": git_commit(),
            "versions": {name: installed(name) for name in PACKAGES},
            "flags": {name: os.environ[name] for name in FLAGS if name in os.environ},
            "ended": None,
        }
    )
    write_manifest(directory, begun)


def most_memory() -> int:
    """The most memory that this process ever had, in bytes."""
    # On Linux, ru_maxrss counts that of the process which started this one as well.
    status = Path("/proc/self/status")
    if status.exists():
        return 1024 * int(re.search(r"VmHWM:\s+(\d+) kB", status.read_text())[1])
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak


def record_stage(directory: Path, stage: str, seconds: float) -> None:
    """Record a finished stage, the devices it ran on, and the most memory used so far."""
    import jax  # only here: everything else is wanted before JAX is there

    manifest = read_manifest(directory).with_stage(stage, seconds, most_memory())
    devices = [f"{device.platform}:{device.device_kind}" for device in jax.devices()]
    write_manifest(directory, manifest.model_copy(update={"devices": devices}))


def record(directory: Path, **known: Any) -> None:
    """Record what is known now, such as how many draws each chain made."""
    write_manifest(directory, read_manifest(directory).model_copy(update=known))


def finish_command(directory: Path, command: str, code: ExitCode) -> None:
    """Record that a command came to its end, and how."""
    manifest = read_manifest(directory)
    finished = manifest.finished | {command: int(code)}
    update = {"finished": finished, "ended": now()}
    write_manifest(directory, manifest.model_copy(update=update))


def finished_code(directory: Path, command: str, files: Sequence[str]) -> ExitCode | None:
    """Exit code of a command that came to its end here, its files still there; else None."""
    code = read_manifest(directory).finished.get(command)
    if code is None or not all((directory / file).is_file() for file in files):
        return None
    return ExitCode(code)


def now() -> str:
    """The time as ISO 8601 has it, in UTC."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


@cache
def git_commit() -> str | None:
    """Commit of the checkout this program runs from, marked where it was changed; else None."""
    source = Path(__file__).resolve()

    def git(*arguments: str) -> str:
        words = ["git", "-C", str(source.parent), *arguments]
        return subprocess.run(words, capture_output=True, text=True, timeout=10).stdout.strip()

    try:
        # An installed package inside somebody's repository is not part of it.
        if not git("ls-files", source.name):
            return None
        return git("rev-parse", "HEAD") + (" (changed)" if git("status", "--porcelain") else "")
    except (OSError, subprocess.SubprocessError):
        return None


def installed(package: str) -> str | None:
    """Version of an installed package, None where it is not installed as one."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


# What a run that was killed while it claimed its directory may have left there.
BEGINNINGS = {MANIFEST_FILE, LOCK_FILE, LOG_FILE}


def claim_directory(
    directory: Path,
    recipe: Recipe | TrainingRecipe,
    command: str,
    plan: dict[str, Any],
    known: dict[str, Any] | None = None,
    extended: bool = False,
) -> None:
    """Make the directory of this recipe; write down the command, then the resolved recipe.

    A directory that holds results of the same recipe is used again; the sweep may have grown.

    plan      what determines the draws (`determining`)
    known     further fields of the manifest
    extended  draws are appended to a finished run

    Raises InputError, leaving nothing behind, if the directory cannot be written, is in use, or
    holds anything else.
    """
    made = missing_ancestors(directory)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        refuse_foreign(directory, recipe, extended)
        with locked(directory):  # or what a process at work there records might be undone
            try:
                begin_command(directory, recipe, command, plan, known or {}, extended)
                write_whole(directory / RECIPE_FILE, recipe.to_toml())
            except (OSError, InputError):
                if made:  # of the directory's files only the manifest can be there
                    for name in (MANIFEST_FILE, LOCK_FILE):
                        (directory / name).unlink(missing_ok=True)
                raise
    except (OSError, InputError) as problem:
        with suppress(OSError):
            for folder in made:  # the deepest first; only what was made here and is empty
                folder.rmdir()
        if isinstance(problem, InputError):
            raise
        reason = problem.strerror or str(problem)
        raise InputError(
            "--out", directory, f"{reason}; choose a directory that can be written"
        ) from None


def refuse_foreign(directory: Path, recipe: Recipe | TrainingRecipe, extended: bool) -> None:
    """Raise InputError unless the directory is empty or holds a run of this recipe."""
    names = {path.name for path in directory.iterdir()}
    if RECIPE_FILE not in names:
        if any(name not in BEGINNINGS and not name.startswith(UNFINISHED) for name in names):
            raise InputError(
                "--out", directory, "is neither empty nor a run directory; choose another"
            )
        return
    held = load_any_recipe(directory / RECIPE_FILE)
    if without_sweep(held) == without_sweep(recipe):
        return
    if differ_in_draws(held, recipe):
        if extended:
            return
        raise InputError(
            "--out",
            directory,
            f"holds this run with {draws_text(held)}; use `resume DIR`, which appends draws with "
            "--more, or choose another directory",
        )
    raise InputError("--out", directory, "holds a run of another recipe; choose another directory")


def draws_text(recipe: Recipe) -> str:
    """Return the number of draws a recipe asks for, in words."""
    if recipe.sampler.until == "trusted":
        return "as many draws as can be trusted"
    return f"{recipe.sampler.draws_per_chain} draws"


def differ_in_draws(held: Recipe | TrainingRecipe, recipe: Recipe | TrainingRecipe) -> bool:
    """Whether two recipes of runs are the same but for the number of draws."""
    if not (isinstance(held, Recipe) and isinstance(recipe, Recipe)):
        return False
    keys = ("until", "draws", "max_draws", "max_minutes", "repetitions")
    update = {key: getattr(recipe.sampler, key) for key in keys}
    sampler = held.sampler.model_copy(update=update)
    return without_sweep(held.model_copy(update={"sampler": sampler})) == without_sweep(recipe)


def without_sweep(recipe: Recipe | TrainingRecipe) -> Recipe | TrainingRecipe:
    """The recipe alone; a key that is swept has its first value there."""
    return recipe.model_copy(update={"sweep": {}}) if isinstance(recipe, Recipe) else recipe


def missing_ancestors(directory: Path) -> list[Path]:
    """The directory and those above it that do not exist, the deepest first."""
    missing = []
    with suppress(OSError):
        for folder in (directory, *directory.parents):
            if folder.exists():
                break
            missing.append(folder)
    return missing
