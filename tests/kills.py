"""Works of the program that are killed at random moments, resumed, and compared.

A moment is a stage, read off the directory, and a time since it began. Moments are drawn from the
course of an undisturbed work: one in each of its stages, the others evenly over its time.
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import xarray as xr

from sampler.errors import ExitCode
from sampler.storage.archives import read_archive
from sampler.storage.checkpoints import newest_header
from sampler.storage.files import UNFINISHED
from sampler.storage.fingerprint import read_stamp
from sampler.storage.manifest import read_manifest
from sampler.storage.result_files import read_draws, read_table
from tests import ROOT
from tests.commands import Command, environment, finish

STAGES = (
    "start", "examples", "theory", "compilation", "warmup", "draws", "particles", "training",
    "saving", "comparison", "figures", "end",
)  # fmt: skip
# Attributes that are times, or follow from them.
TIMES = {"seconds", "seconds_warmup", "seconds_draws", "effective_draws_per_second"}


class Moment(NamedTuple):
    """A time in seconds since a stage began."""

    stage: str
    seconds: float


@dataclass(frozen=True)
class Work:
    """What is killed, and the same undisturbed.

    words     its command; the directory is added
    whole     the directory of the undisturbed work
    cache     of compiled functions
    steps     of its last phase: draws, repetitions, or steps of a training
    streamed  whether its examples are read in a pass that is saved
    extended  the finished run to which it appends draws
    course    when each stage began undisturbed, in seconds, and when the process ended
    """

    words: tuple
    whole: Path
    cache: Path
    steps: int = 0
    streamed: bool = False
    extended: Path | None = None
    course: tuple[tuple[str, float], ...] = ()

    def begin_or_resume(self, directory: Path) -> Command:
        """Start what a user would start: `resume` as soon as the directory knows the work."""
        words = [*self.words, "--out", directory]
        if self.stage_of(directory) != "start":
            words = ["resume", directory, *(word for word in self.words if word == "--no-figures")]
        elif self.extended is not None:
            words = [*self.words, directory]
            if not directory.exists():
                shutil.copytree(self.extended, directory)
        variables = environment(None) | {
            "ATTENTION_POSTERIOR_CACHE": str(self.cache),
            "ATTENTION_POSTERIOR_SAVE_SECONDS": "0",
        }
        variables.pop("JAX_COMPILATION_CACHE_DIR", None)  # which would take its place
        words = [sys.executable, "-m", "sampler", *map(str, words)]
        return Command(words, env=variables, cwd=ROOT)

    def stage_of(self, directory: Path) -> str:
        """The stage that a directory is in."""
        manifest, header = read_manifest(directory), newest_header(directory)
        if manifest.command is None:
            return "start"
        made = read_stamp(directory / "draws.nc").get("made")
        if manifest.outcome:
            return "end" if self.extended is None or made == self.steps else "start"
        if made == self.steps or "train" in manifest.stages:
            files = [directory / name for name in ("draws.nc", "comparison.json")]
            latest = max(filter(Path.is_file, files), key=os.path.getmtime, default=None)
            return "figures" if latest == files[1] else "comparison"
        if header is None or header["phase"] == "examples":
            if self.streamed and not any(directory.glob("rows-*.npz")):
                return "examples"
            solved = "solve" in manifest.stages or "train" in self.words
            return "compilation" if solved else "theory"
        if header["phase"] == "warmup":
            return "warmup" if header["done"] < header["total"] else "draws"
        return header["phase"] if header["done"] < self.steps else "saving"

    def end(self, process: Command) -> bool:
        """Wait for a process → whether it came to its end; else it was killed."""
        code, errors = finish(process)
        ended = ExitCode.OK, ExitCode.DIAGNOSTICS_FAILED, ExitCode.NOT_CONVERGED
        assert code in (*ended, -signal.SIGKILL), errors
        return code != -signal.SIGKILL

    def undisturbed(self, directory: Path) -> "Work":
        """This work with its whole course, in this directory."""
        started, course = time.monotonic(), {}
        process = self.begin_or_resume(directory)
        while process.poll() is None:
            course.setdefault(self.stage_of(directory), time.monotonic() - started)
            time.sleep(0.02)
        assert self.end(process)
        ended = "ended", time.monotonic() - started
        return replace(self, whole=directory, course=(*course.items(), ended))

    def moments(self, count: int, seed: int) -> list[Moment]:
        """So many random moments, the earliest first."""
        stages, times = zip(*self.course, strict=True)
        rng = np.random.default_rng(seed)
        drawn = rng.permuted(rng.uniform(times[:-1], times[1:]))[:count]
        drawn = np.sort([*drawn, *rng.uniform(0.0, times[-1], count - len(drawn))])
        places = np.searchsorted(times, drawn, side="right") - 1
        return [Moment(stages[n], at - times[n]) for n, at in zip(places, drawn, strict=True)]

    def kill(self, directory: Path, moment: Moment) -> str | None:
        """The stage in which the work was killed; None where it came to its end before."""
        # What goes on with a stage comes to it as late as an undisturbed work to its first.
        there = self.stage_of(directory) == moment.stage != "start"
        seconds = moment.seconds + (self.course[1][1] if there else 0.0)
        process, place = self.begin_or_resume(directory), STAGES.index(moment.stage)
        while process.poll() is None and STAGES.index(self.stage_of(directory)) < place:
            time.sleep(0.02)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(seconds)
        process.kill()
        if self.end(process):
            return None
        check_files(directory)
        return self.stage_of(directory)

    def killed(self, folder: Path, moments: Sequence[Moment], works: int) -> Counter[str]:
        """Kill so many works at these moments, and compare them → how often in which stage.

        What came too late is tried once more in another work, in half the time.
        """
        hits: Counter[str] = Counter()
        waiting = [list(moments[first::works]) for first in range(works)]
        for number, some in enumerate(waiting):
            directory, late = folder / f"{number}", []
            for moment in some:
                if late or (stage := self.kill(directory, moment)) is None:
                    late.append(Moment(moment.stage, moment.seconds / 2))
                else:
                    hits[stage] += 1
            waiting += [late] if late else []
            assert self.end(self.begin_or_resume(directory))
            assert_same_results(directory, self.whole)
        print(hits)
        assert hits.total() == len(moments)
        return hits


def assert_same_results(directory: Path, whole: Path) -> None:
    """Both have the same files, with the same content but for times."""
    assert read_manifest(directory).outcome == read_manifest(whole).outcome
    assert files_of(directory) == files_of(whole)
    for name in files_of(whole):
        if name.endswith(".nc"):
            one, other = content(directory / name), content(whole / name)
            assert [key for key in {*one, *other} if one.get(key) != other.get(key)] == [], name
        elif name.endswith((".csv", ".npz")) or name.startswith("rows-"):
            assert (directory / name).read_bytes() == (whole / name).read_bytes()


def files_of(directory: Path) -> set[str]:
    """Names of all files; which of the two checkpoints is left depends on how many were saved."""
    paths = (path for path in directory.rglob("*") if path.is_file())
    names = {str(path.relative_to(directory)) for path in paths}
    return {name for name in names if not name.startswith("checkpoint/state")}


def content(path: Path) -> dict[tuple, object]:
    """Every variable of a netCDF file, and every attribute without its times."""
    stored: dict[tuple, object] = {}
    with xr.open_datatree(path, engine="h5netcdf") as tree:
        for group in tree.subtree:
            variables = group.to_dataset(inherit=False).variables
            for name, variable in variables.items():
                values = variable.values
                bits = values.tolist() if values.dtype == object else values.tobytes()
                stored[group.path, name] = values.dtype, values.shape, bits
            for name, owner in {"": group, **variables}.items():
                attributes = dict(owner.attrs)
                attributes |= json.loads(attributes.pop("cost", "{}"))
                for key in attributes.keys() - TIMES:
                    stored[group.path, name, key] = repr(np.asarray(attributes[key]).tolist())
    return stored


def check_files(directory: Path) -> None:
    """Every file under a final name loads; parts have names of their own."""
    for path in directory.rglob("*"):
        if path.is_dir() or path.name.startswith(UNFINISHED):
            continue
        if path.suffix == ".npz":
            read_archive(path)
        elif path.suffix == ".json":
            json.loads(path.read_text())
    if (directory / "theory.nc").is_file():
        read_table(directory, "theory.nc")
    if (directory / "draws.nc").is_file():
        read_draws(directory)
