"""Which runs there are and the progress of each, from their files alone."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from sampler.errors import InputError
from sampler.settings.point_labels import point_labels
from sampler.settings.toml import flattened, read_toml
from sampler.storage.checkpoints import newest_header
from sampler.storage.directory import (
    MANIFEST_FILE,
    RECIPE_FILE,
    RESULTS,
    is_held,
    point_directory,
)
from sampler.storage.files import read_schema_json, read_stored

NOT_BEGUN, RUNNING, INTERRUPTED, FINISHED = "not begun", "running", "interrupted", "finished"


@dataclass(frozen=True)
class RunState:
    """State of the run in a directory.

    word        "not begun", "running", "interrupted" or "finished"
    command     that was begun last
    exit_code   with which that command came to its end
    seconds     stage → seconds
    checkpoint  header of the newest checkpoint; None where there is none
    """

    directory: Path
    word: str
    command: str | None
    exit_code: int | None
    seconds: Mapping[str, float]
    checkpoint: Mapping | None

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
    """Gather the progress of a run; only files that are small are read.

    The manifest without its class, as pydantic takes a third of the time that `status` has.
    """

    def load(path: Path) -> tuple[str | None, int | None, dict[str, float]]:
        said = read_schema_json(path)
        seconds = {stage: entry["seconds"] for stage, entry in said["stages"].items()}
        return said["command"], said["outcome"] and said["outcome"]["code"], seconds

    path, command, code, seconds = directory / MANIFEST_FILE, None, None, {}
    if path.is_file():
        command, code, seconds = read_stored(path, "run", load)
    if command is None:
        word = NOT_BEGUN
    elif is_held(directory):
        word = RUNNING
    else:
        word = INTERRUPTED if code is None else FINISHED
    return RunState(directory, word, command, code, seconds, newest_header(directory))


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
