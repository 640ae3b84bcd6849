"""One point of a sweep, from its recipe to its end, in whatever process this is."""

import threading
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

from sampler.errors import ExitCode, one_line
from sampler.jobs.interruption import Interruption, listening
from sampler.numerics import silence_compiled_cache, use_one_blas_thread
from sampler.recipes.recipe import Recipe, load_recipe
from sampler.storage.log import LOG, LOG_FILE, log_to
from sampler.storage.run_directory import RECIPE_FILE

# Modules that read data or compute are imported where they are needed: in another process
# `run_point` is what sets the BLAS threads, and it does so before they are there.

COMMAND = "run"


@dataclass(frozen=True)
class SweepPoint:
    """One recipe of a grid: its label `key=value,…` and the directory of its results."""

    label: str
    recipe: Recipe
    directory: Path


@dataclass(frozen=True)
class PointOutcome:
    """The exit code of a point and, where it was not run to its end, the reason in one line."""

    code: ExitCode
    problem: str = ""


def run_point(recipe: Recipe, directory: Path, alone: bool = False) -> ExitCode:
    """Bring a point to its end, from wherever its directory says it stands.

    A finished one is left as it is. `alone` says that whoever calls gives a point to one process
    at a time: a lock left behind on another host is then that of a lost process. Raises
    RequeueError after a signal, which is heard in the main thread only.
    """
    use_one_blas_thread()
    silence_compiled_cache()
    from sampler.jobs.run_start import start_run

    main = threading.current_thread() is threading.main_thread()
    with listening() if main else nullcontext(Interruption()) as interruption:
        return start_run(COMMAND, recipe, directory, interruption, alone)


def attempt_point(point: SweepPoint, alone: bool = False) -> PointOutcome:
    """Run a point; an error becomes an outcome, so that it does not stop the other points."""
    try:
        return PointOutcome(run_point(point.recipe, point.directory, alone))
    except Exception as problem:
        code = getattr(problem, "exit_code", ExitCode.INTERNAL_ERROR)
        if code != ExitCode.INTERNAL_ERROR:
            return PointOutcome(code, one_line(str(problem)))
        text = f"{type(problem).__name__}: {one_line(str(problem))}"
        if (point.directory / RECIPE_FILE).is_file():
            with log_to(point.directory):
                LOG.info("internal error", exc_info=True)
            text += f" (traceback in {point.directory / LOG_FILE})"
        return PointOutcome(code, text)


def finished_earlier(point: SweepPoint) -> ExitCode | None:
    """The exit code of a point that came to its end earlier, None for any other."""
    from sampler.storage.manifest import finished_code, read_manifest
    from sampler.storage.results import DRAWS_FILE, THEORY_FILE

    sampled = "sample" in read_manifest(point.directory).get("seconds", {})
    solved = point.recipe.network.fits_theory
    files = [RECIPE_FILE, *([THEORY_FILE] if solved else []), *([DRAWS_FILE] if sampled else [])]
    code = finished_code(point.directory, COMMAND, files)
    if code is None:
        return None
    # What was begun with other settings is refused when it is run, with the reason.
    return code if load_recipe(point.directory / RECIPE_FILE) == point.recipe else None
