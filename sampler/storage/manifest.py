"""Where results came from and how far they are: `manifest.json`."""

import os
import platform
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from sampler import __version__
from sampler.errors import ExitCode, InputError
from sampler.recipes.recipe import Recipe
from sampler.recipes.training_recipe import TrainingRecipe
from sampler.storage.fingerprint import differences
from sampler.storage.json_file import read_json, write_json
from sampler.storage.schema import SCHEMA_VERSION, check_schema

MANIFEST_FILE = "manifest.json"
PACKAGES = (
    "attention-posterior", "jax", "jaxlib", "numpyro", "numpy", "scipy", "xarray",
    "arviz-base", "arviz-stats",
)  # fmt: skip
FLAGS = (
    "XLA_FLAGS", "JAX_PLATFORMS", "JAX_ENABLE_X64", "JAX_COMPILATION_CACHE_DIR",
    "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES",
)  # fmt: skip


def begin_command(
    directory: Path, recipe: Recipe | TrainingRecipe, command: str, fingerprint: dict
) -> None:
    """Record, before anything is computed, what was asked for and with which program.

    What earlier commands finished here stays recorded. Raises InputError, naming what differs, if
    the directory was begun with other settings, data or versions.
    """
    earlier = read_manifest(directory)
    refuse_another(directory, earlier, fingerprint)
    write_json(
        directory / MANIFEST_FILE,
        {
            "schema_version": SCHEMA_VERSION,
            "name": recipe.name,
            "command": command,
            "begun": earlier.get("begun") or now(),
            "finished": earlier.get("finished", {}),
            "seconds": earlier.get("seconds", {}),
            "peak_memory_bytes": earlier.get("peak_memory_bytes", {}),
            "recipe_hash": recipe.hash8,
            "recipe": recipe.to_toml(),
            "fingerprint": fingerprint,
            "seeds": recipe.seeds,
            "precision": recipe.precision,
            "python": sys.version.split()[0],
            "platform": platform.platform(),
            "package_version": __version__,
            "git_commit": git_commit(),
            "versions": {name: installed(name) for name in PACKAGES},
            "flags": {name: os.environ[name] for name in FLAGS if name in os.environ},
            "devices": earlier.get("devices"),
        },
    )


def refuse_another(directory: Path, manifest: dict, fingerprint: dict) -> None:
    """Raise InputError if the directory was begun with another fingerprint."""
    found = differences(manifest.get("fingerprint") or fingerprint, fingerprint)
    if found:
        raise InputError(
            "DIR",
            str(directory),
            f"was begun with other {', '.join(found)}; restore them, or use another directory",
        )


def record_stage(directory: Path, stage: str, seconds: float) -> None:
    """Record a finished stage, the devices it ran on, and the most memory used so far."""
    import jax  # only here: everything else is wanted before JAX is there

    manifest = read_manifest(directory)
    manifest["seconds"] = manifest.get("seconds", {}) | {stage: seconds}
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    peak *= 1 if sys.platform == "darwin" else 1024
    manifest["peak_memory_bytes"] = manifest.get("peak_memory_bytes", {}) | {stage: peak}
    manifest["devices"] = [f"{device.platform}:{device.device_kind}" for device in jax.devices()]
    write_json(directory / MANIFEST_FILE, manifest)


def forget_stage(directory: Path, stage: str) -> None:
    """Record that a stage and the commands that contain it are to be done again."""
    manifest = read_manifest(directory)
    manifest["seconds"].pop(stage, None)
    manifest["finished"] = {}
    write_json(directory / MANIFEST_FILE, manifest)


def finish_command(directory: Path, command: str, code: ExitCode) -> None:
    """Record that a command came to its end, and how."""
    manifest = read_manifest(directory)
    manifest["finished"] = manifest.get("finished", {}) | {command: int(code)}
    manifest["ended"] = now()
    write_json(directory / MANIFEST_FILE, manifest)


def finished_code(directory: Path, command: str, files: Sequence[str]) -> ExitCode | None:
    """Exit code of a command that came to its end here, its files still there; else None."""
    code = read_manifest(directory).get("finished", {}).get(command)
    if code is None or not all((directory / file).is_file() for file in files):
        return None
    return ExitCode(code)


def read_manifest(directory: Path) -> dict:
    """The manifest of a directory, empty if it has none; InputError for one of another schema."""
    path = directory / MANIFEST_FILE
    if not path.is_file():
        return {}
    manifest = read_json(path)
    check_schema(manifest.get("schema_version"), str(path))
    return manifest


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
