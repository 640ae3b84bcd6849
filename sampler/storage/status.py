"""Which runs there are and where each stands, from their files alone."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from sampler.errors import InputError
from sampler.settings.point_labels import point_labels
from sampler.settings.toml import flattened, read_toml
from sampler.storage.checkpoints import newest_header
from sampler.storage.directory import RECIPE_FILE, RESULTS, is_held, point_directory
from sampler.storage.manifest import MANIFEST_FILE, Manifest, read_manifest

NOT_BEGUN, RUNNING, INTERRUPTED, FINISHED = "not begun", "running", "interrupted", "finished"


@dataclass(frozen=True)
class RunState:
    """State of the run in a directory.

    word         "not begun", "running", "interrupted" or "finished"
    checkpoint   header of the newest checkpoint; None where there is none
    """

    directory: Path
    word: str
    manifest: Manifest
    checkpoint: Mapping | None

    @property
    def command(self) -> str | None:
        """The command that was begun last."""
        return self.manifest.command

    @property
    def exit_code(self) -> int | None:
        """With which that command came to its end."""
        return self.manifest.finished.get(self.command)

    @property
    def repetitions(self) -> Mapping[str, int]:
        """Law in which particles begin → repetitions that are finished."""
        return (self.checkpoint or {}).get("repetitions", {})

    @cached_property
    def settings(self) -> Mapping[str, Any]:
        """The tables of the resolved recipe, as they are written. Raises InputError."""
        return read_toml(self.directory / RECIPE_FILE)

    @property
    def is_training(self) -> bool:
        """Whether a network is trained here."""
        return "training" in self.settings

    @cached_property
    def points(self) -> dict[str, "RunState"] | None:
        """The states of the points of a sweep by their labels; None for a single run."""
        sweep = self.settings.get("sweep")
        swept = flattened(sweep) if isinstance(sweep, dict) else {}
        if not swept or not all(isinstance(values, list) for values in swept.values()):
            return None
        labels = point_labels(swept)
        return {label: state_of(point_directory(self.directory, label)) for label in labels}


def state_of(directory: Path) -> RunState:
    """Gather where a run stands; only files that are small are read."""
    manifest = read_manifest(directory)
    if manifest.command is None:
        word = NOT_BEGUN
    elif is_held(directory):
        word = RUNNING
    else:
        word = FINISHED if manifest.command in manifest.finished else INTERRUPTED
    return RunState(directory, word, manifest, newest_header(directory))


def newest_run() -> Path:
    """Return the directory in runs/results last worked at; InputError if there is none."""
    runs = runs_in([RESULTS])
    if not runs:
        raise InputError("DIR", "latest", f"{RESULTS} holds no run; name the directory of one")
    return runs[0]


def runs_in(directories: Sequence[Path]) -> list[Path]:
    """List the runs that are or lie in these directories, those last worked at first."""
    directories_of_runs = []
    for directory in directories:
        if (directory / RECIPE_FILE).is_file():
            directories_of_runs.append(directory)
        elif directory.is_dir():
            directories_of_runs += [file.parent for file in directory.glob(f"*/{RECIPE_FILE}")]
    return sorted(dict.fromkeys(directories_of_runs), key=last_worked_at, reverse=True)


def last_worked_at(directory: Path) -> float:
    """Return when a command last recorded something there, in seconds since 1970."""
    file = directory / MANIFEST_FILE
    return (file if file.is_file() else directory / RECIPE_FILE).stat().st_mtime
