"""The manifest of a run directory: commands, and who computed each stage.

Every stage that was computed has an entry with versions, commit, flags and time of the process that
computed it. Whether its file is there and fits is said by the file itself.
"""

import os
import platform
import re
import resource
import subprocess
import sys
import time
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from sampler import __version__
from sampler.storage.directory import MANIFEST_FILE
from sampler.storage.files import SCHEMA_VERSION, read_schema_json, read_stored, write_json

PACKAGES = ("jax", "jaxlib", "numpyro", "numpy", "scipy", "xarray", "arviz-base", "arviz-stats")
FLAGS = (
    "XLA_FLAGS", "JAX_PLATFORMS", "JAX_ENABLE_X64", "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS",
    "CUDA_VISIBLE_DEVICES",
)  # fmt: skip


class Frozen(BaseModel):
    model_config = ConfigDict(frozen=True)


class StageEntry(Frozen):
    """Process, end and cost of a stage.

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


class Outcome(Frozen):
    """How the last command ended that came to its end here.

    The files say as much, and are asked before a run is taken for finished. It is kept for `status`
    and `list`, which have no time to open them, and because figures are no stage: without it a
    `run` that was killed while it drew them would look finished.
    """

    command: str
    code: int


class Manifest(Frozen):
    """The content of `manifest.json`; unknown values are null.

    command   the one that was begun last
    outcome   of the command; None until it came to its end
    stages    stage → who computed it
    devices   that chains began on
    concerns  about suspicious data
    choice    space and algorithm that are sampled, why, and the steps of warm-up
    seeds     by their keys in the recipe
    plan      what determines the draws, which a continuation must agree with
    """

    schema_version: int = SCHEMA_VERSION
    name: str = ""
    command: str | None = None
    begun: str | None = None
    outcome: Outcome | None = None
    stages: dict[str, StageEntry] = {}
    devices: int | None = None
    concerns: list[str] = []
    choice: dict[str, Any] | None = None
    recipe_hash: str | None = None
    seeds: dict[str, int] = {}
    plan: dict[str, Any] | None = None

    @property
    def seconds(self) -> dict[str, float]:
        """Stage → seconds."""
        return {stage: entry.seconds for stage, entry in self.stages.items()}


def read_manifest(directory: Path) -> Manifest:
    """The manifest of a directory, one without a command if it has none.

    Raises InputError for one that is damaged or of another schema.
    """
    path = directory / MANIFEST_FILE
    if not path.is_file():
        return Manifest()
    return read_stored(path, "run", lambda path: Manifest(**read_schema_json(path)))


def write_manifest(directory: Path, manifest: Manifest) -> None:
    """Write a manifest, if it has changed; DiskError where that fails."""
    write_json(directory / MANIFEST_FILE, manifest.model_dump())


# --- this process


def this_process(seconds: float) -> StageEntry:
    """The entry of a stage that this process has computed, with its seconds."""
    from importlib.metadata import version

    import jax  # only here: everything else is wanted before JAX is there

    return StageEntry(
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
