"""Figures and the page of a run or of a sweep, from results in memory or in its directory."""

from collections.abc import Mapping
from pathlib import Path

from sampler.analysis.results import RunResults, open_run
from sampler.analysis.sweep_dataset import gathered
from sampler.analysis.sweep_results import SweepResults
from sampler.analysis.text import unbroken, wrapped
from sampler.errors import ExitCode
from sampler.presentation.figures.catalogue import draw_figures
from sampler.presentation.report import write_report
from sampler.presentation.terminal import print_line
from sampler.settings.recipe import Recipe
from sampler.storage.directory import RECIPE_FILE


def draw_stored_figures(
    directory: Path,
    results: RunResults | SweepResults | None = None,
    svg: bool = False,
) -> ExitCode:
    """Draw the figures of a run or of a sweep, from results in memory or from its directory.

    svg: as SVG too
    """
    recipe = Recipe.load(directory / RECIPE_FILE)
    if results is None:
        results = gathered(directory, recipe) if recipe.sweep else open_run(directory)
    failed: dict[str, Exception] = {}
    names: dict[Path, list[str]] = {}
    for path in draw_figures(directory, results, svg, failed=failed):
        names.setdefault(path.parent, []).append(path.stem)
    for folder, of_folder in names.items():
        print_line(wrapped(f"figures in {folder}: {unbroken(tuple(dict.fromkeys(of_folder)))}"))
    raise_first(failed)
    return ExitCode.OK


def write_page(
    directory: Path,
    ended: ExitCode | None = None,
    results: RunResults | SweepResults | None = None,
    figures: bool = True,
) -> ExitCode:
    """Write the page of a run or of a sweep, and its figures.

    ended    exit code of a command whose last stage this is
    results  where they are in memory; None: those of the directory
    figures  whether they are drawn
    """
    failed: dict[str, Exception] = {}
    *_, page = write_report(directory, ended, results, figures, failed)
    print_line(f"report: {page}")
    if ended is None:
        raise_first(failed)
    return ExitCode.OK


def raise_first(failed: Mapping[str, Exception]) -> None:
    """Raise the error of the first figure that failed, after all others are drawn."""
    for problem in failed.values():
        raise problem
