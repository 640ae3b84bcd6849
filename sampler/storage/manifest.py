"""The manifest of a run directory: what was asked for there, and who computed what.

Every stage that was computed has an entry with versions, commit, flags and time of the process that
computed it. A command that computes nothing leaves the file as it is.
"""

import math
import os
import platform
import re
import resource
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sampler import __version__
from sampler.errors import ExitCode, InputError
from sampler.storage.files import (
    SCHEMA_VERSION,
    check_schema,
    from_json,
    read_json,
    read_stored,
    write_json,
)

if TYPE_CHECKING:
    from sampler.settings.recipe import Recipe, TrainingRecipe

MANIFEST_FILE = "manifest.json"
PACKAGES = ("jax", "jaxlib", "numpyro", "numpy", "scipy", "xarray", "arviz-base", "arviz-stats")
FLAGS = (
    "XLA_FLAGS", "JAX_PLATFORMS", "JAX_ENABLE_X64", "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS",
    "CUDA_VISIBLE_DEVICES",
)  # fmt: skip

# --- what determines the draws


def determining(settings: Mapping[str, Any], data: Any) -> dict[str, Any]:
    """Return what determines the draws, as JSON: settings, identity of the data, versions.

    settings: `settings_that_fix_draws` of the recipe; data: None where those of parts differ.
    """
    return {
        "settings": settings,
        "data": data,
        "package major version": __version__.split(".")[0],
        "schema_version": SCHEMA_VERSION,
    }


def differences(stored: Mapping, current: Mapping) -> list[str]:
    """Return the differences, `key (then → now)`; empty where one can go on with the other."""
    pairs = [(stored.get("settings", {}), current.get("settings", {})), (stored, current)]
    changes = [
        f"{key} ({then.get(key)} → {now.get(key)})"
        for then, now in pairs
        for key in sorted({*then, *now} - {"settings", "data"})
        if then.get(key) != now.get(key)
    ]
    of_data = ("task.", "attention.", "network.heads")
    explained = any(change.startswith(of_data) for change in changes)
    if not explained and not same_data(stored.get("data"), current.get("data")):
        changes.append("the data")
    return changes


def same_data(stored: Any, current: Any) -> bool:
    """Whether data are equal but for rounding; those of a training are known by a checksum."""
    if isinstance(current, dict) and isinstance(stored, dict):
        return stored["sha256"] == current["sha256"] or agree(stored["sums"], current["sums"])
    return stored == current


def agree(value: Any, other: Any) -> bool:
    """Whether two nested lists are equal, their numbers to eleven digits."""
    if isinstance(value, list) and isinstance(other, list):
        return len(value) == len(other) and all(map(agree, value, other))
    if isinstance(value, float) and isinstance(other, float):
        return math.isclose(value, other, rel_tol=1e-11)
    return value == other


# --- the file


@dataclass(frozen=True)
class StageEntry:
    """Who computed a stage, when it was finished, and what it took.

    seconds            computing time of the process that finished the stage
    peak_memory_bytes  the most memory that this process had until then
    """

    seconds: float
    peak_memory_bytes: int
    ended: str
    package_version: str
    git_commit: str | None
    python: str
    platform: str
    devices: list[str]
    versions: dict[str, str]
    flags: dict[str, str]


@dataclass(frozen=True)
class Manifest:
    """The content of `manifest.json`; what is not known yet is null there.

    finished         exit code of each command that came to its end
    stages           stage → who computed it
    draws_per_chain  those that were made, or the number of repetitions
    devices          that chains began on
    sizes            of the network and its data
    concerns         what is doubtful about the data
    choice           space and algorithm that are sampled, why, and the steps of warm-up
    memory_bytes     that its largest arrays need, and that there was where the run was begun
    plan             what determines the draws, which a continuation must agree with
    """

    schema_version: int = SCHEMA_VERSION
    name: str = ""
    command: str | None = None
    begun: str | None = None
    finished: dict[str, int] = field(default_factory=dict)
    stages: dict[str, StageEntry] = field(default_factory=dict)
    draws_per_chain: int | None = None
    devices: int | None = None
    sizes: dict[str, Any] | None = None
    concerns: list[str] = field(default_factory=list)
    choice: dict[str, str | int | float | None] | None = None
    memory_bytes: dict[str, float] | None = None
    recipe_hash: str | None = None
    recipe: str | None = None
    plan: dict[str, Any] | None = None
    seeds: dict[str, Any] = field(default_factory=dict)
    precision: Any = None

    @property
    def seconds(self) -> dict[str, float]:
        """Stage → seconds."""
        return {stage: entry.seconds for stage, entry in self.stages.items()}


def read_manifest(directory: Path) -> Manifest:
    """The manifest of a directory, one without a command if it has none.

    Raises InputError for one that is damaged or of another schema.
    """

    def load(path: Path) -> Manifest:
        content = read_json(path)
        check_schema(content.get("schema_version"), str(path))
        return from_json(Manifest, content)

    path = directory / MANIFEST_FILE
    return read_stored(path, "run", load) if path.is_file() else Manifest()


def record(directory: Path, **fields: Any) -> None:
    """Record what is known now, such as how many draws each chain made."""
    manifest = replace(read_manifest(directory), **fields)
    write_json(directory / MANIFEST_FILE, asdict(manifest))


def refuse_differences(directory: Path, stored: Manifest, plan: Mapping[str, Any]) -> None:
    """Raise InputError, naming what differs, for other settings, data or versions."""
    changes = differences(stored.plan or plan, plan)
    if changes:
        remedy = "restore them, or use another directory"
        text = f"was begun with other {', '.join(changes)}; {remedy}"
        raise InputError("DIR", directory, text)


def begin_command(
    directory: Path,
    recipe: "Recipe | TrainingRecipe",
    command: str,
    plan: Mapping[str, Any],
    fields: Mapping[str, Any],
    extended: bool,
) -> None:
    """Record, before anything is computed, what was asked for.

    What earlier commands finished here stays recorded, but for the sampling of a run that is
    extended. Raises InputError, naming what differs, if the directory was begun with other
    settings, data or versions.
    """
    git_commit()  # that of now, whatever is committed while stages are computed
    earlier = read_manifest(directory)
    refuse_differences(directory, earlier, plan)
    kept: dict[str, Any] = {}
    if extended:
        stages = {name: entry for name, entry in earlier.stages.items() if name != "sample"}
        kept = {"finished": {}, "stages": stages}
    elif earlier.memory_bytes is not None:
        kept = {"memory_bytes": earlier.memory_bytes}
    asked = {
        "name": recipe.name,
        "command": command,
        "begun": earlier.begun or now(),
        "recipe_hash": recipe.hash8,
        "recipe": recipe.to_toml(directory),
        "plan": plan,
        "seeds": recipe.seeds,
        "precision": recipe.precision,
    }
    record(directory, **{**asked, **fields, **kept})


def record_stage(directory: Path, stage: str, seconds: float) -> None:
    """Record that this process has computed a stage."""
    from importlib.metadata import version

    import jax  # only here: everything else is wanted before JAX is there

    entry = StageEntry(
        seconds=seconds,
        peak_memory_bytes=most_memory(),
        ended=now(),
        package_version=__version__,
        git_commit=git_commit(),
        python=sys.version.split()[0],
        platform=platform.platform(),
        devices=[f"{device.platform}:{device.device_kind}" for device in jax.devices()],
        versions={name: version(name) for name in PACKAGES},
        flags={name: os.environ[name] for name in FLAGS if name in os.environ},
    )
    record(directory, stages=read_manifest(directory).stages | {stage: entry})


def finish_command(directory: Path, command: str, code: ExitCode) -> None:
    """Record that a command came to its end, and how."""
    record(directory, finished=read_manifest(directory).finished | {command: int(code)})


def finished_code(directory: Path, command: str, files: Sequence[str]) -> ExitCode | None:
    """Exit code of a command that came to its end here, its files still there; else None."""
    code = read_manifest(directory).finished.get(command)
    complete = all((directory / file).is_file() for file in files)
    return ExitCode(code) if code is not None and complete else None


# --- this process


def now() -> str:
    """The time as ISO 8601 has it, in UTC."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def most_memory() -> int:
    """The most memory that this process ever had, in bytes."""
    # On Linux, ru_maxrss counts that of the process which started this one as well.
    status = Path("/proc/self/status")
    if status.exists():
        return 1024 * int(re.search(r"VmHWM:\s+(\d+) kB", status.read_text())[1])
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak


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
