"""One stage of a run or a sweep, from the results that its directory holds."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from sampler.analysis.model_comparison import compare_directories
from sampler.analysis.results import RunResults, open_run
from sampler.analysis.sweep_dataset import gathered
from sampler.analysis.sweep_results import SweepResults
from sampler.analysis.text import unbroken, wrapped
from sampler.errors import ExitCode, InputError, one_line
from sampler.jobs.stages import compare_stage, diagnose_stage, verdict_code
from sampler.presentation.figures.draw import draw_figures
from sampler.presentation.report import write_report
from sampler.presentation.several_runs import draw_models, models_table
from sampler.presentation.style import figure_style, save_figure
from sampler.presentation.summary import (
    arviz_summary,
    comparison_text,
    diagnostics_text,
    verdicts_text,
)
from sampler.presentation.terminal import print_line
from sampler.settings.recipe import load_recipe
from sampler.storage.directory import FIGURE_FOLDER, RECIPE_FILE
from sampler.storage.results import read_draws


def compare_stored(directory: Path) -> ExitCode:
    """Compare the stored theory of a directory with its stored draws."""
    results = compare_stage(RunResults.held(directory, draws=read_draws(directory)))
    print(comparison_text(results))
    print(f"\n{verdicts_text(results)}")
    return verdict_code(results.diagnostics)


def compare_runs(directories: Sequence[Path]) -> None:
    """Print the table of the models of several runs and draw it, or say why they do not compare.

    The figure goes into the figures of the first run.
    """
    try:
        compared = compare_directories(directories)
    except InputError as reason:
        print(f"\nno table of models: {one_line(str(reason))}")
        return
    print(f"\n{models_table(compared).text()}")
    with figure_style():
        (path, *_) = save_figure(draw_models(compared), directories[0] / FIGURE_FOLDER, "models")
    print(f"figure of the models: {path}")


def diagnose_stored(directory: Path) -> ExitCode:
    draws = read_draws(directory)
    diagnostics = diagnose_stage(draws)
    print(diagnostics_text(diagnostics))
    summary = arviz_summary(draws)
    if summary:
        print(f"\n{summary}")
    return verdict_code(diagnostics)


def draw_stored_figures(
    directory: Path,
    results: RunResults | SweepResults | None = None,
    svg: bool = False,
    every: bool = False,
) -> ExitCode:
    """Draw the figures of a run or of a sweep, from results in memory or from its directory.

    svg: as SVG too. every: those too that a run leaves out
    """
    recipe = load_recipe(directory / RECIPE_FILE)
    if results is None:
        results = gathered(directory, recipe) if recipe.sweep else open_run(directory)
    failed: dict[str, Exception] = {}
    names: dict[Path, list[str]] = {}
    for path in draw_figures(directory, results, svg, failed=failed, every=every):
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
    """Raise what the first of some figures failed with, when all others are drawn."""
    for problem in failed.values():
        raise problem


STAGES: dict[str, Callable[..., ExitCode]] = {
    "compare": compare_stored,
    "diagnose": diagnose_stored,
    "figures": draw_stored_figures,
    "report": write_page,
}
