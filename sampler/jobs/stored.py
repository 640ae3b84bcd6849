"""One stage of a run or a sweep, from the results that its directory holds."""

from collections.abc import Callable, Sequence
from pathlib import Path

from sampler.analysis.model_comparison import compare_directories
from sampler.analysis.results import RunResults
from sampler.analysis.text import wrapped
from sampler.analysis.verdict import trust_verdict
from sampler.errors import ExitCode, InputError, one_line
from sampler.jobs.done import code_of
from sampler.jobs.pages import draw_stored_figures, write_page
from sampler.jobs.stages import compare_stage, diagnose_stage
from sampler.presentation.several_runs import draw_models, models_table
from sampler.presentation.style import figure_style, save_figure
from sampler.presentation.summary import (
    comparison_text,
    slowest_text,
    verdicts_text,
)
from sampler.storage.directory import DRAWS_FILE, FIGURE_FOLDER, point_directory
from sampler.storage.result_files import read_draws
from sampler.storage.status import state_of


def refuse_sweep(directory: Path) -> None:
    """Raise InputError for the directory of a sweep: its points have draws, it has none."""
    if (directory / DRAWS_FILE).is_file():
        return
    if points := state_of(directory).points:
        point = point_directory(directory, next(iter(points)))
        raise InputError("DIR", directory, f"holds a sweep: name one of its points, as {point}")


def compare_stored(directory: Path) -> ExitCode:
    """Compare the stored theory of a directory with its stored draws."""
    refuse_sweep(directory)
    results = compare_stage(RunResults.held(directory, draws=read_draws(directory)))
    print(comparison_text(results))
    if verdicts := verdicts_text(results):
        print(f"\n{verdicts}")
    return code_of(directory, "compare")


def compare_runs(directories: Sequence[Path]) -> None:
    """Print the table of the models of several runs and draw it, or why they do not compare.

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
    """Judge the stored draws of a directory."""
    refuse_sweep(directory)
    draws = read_draws(directory)
    diagnostics = diagnose_stage(draws)
    print(wrapped(str(trust_verdict(diagnostics))))
    slowest = slowest_text(directory, draws)
    if slowest:
        print(f"\n{slowest}")
    return ExitCode.OK if diagnostics.passed else ExitCode.DIAGNOSTICS_FAILED


STAGES: dict[str, Callable[..., ExitCode]] = {
    "compare": compare_stored,
    "diagnose": diagnose_stored,
    "figures": draw_stored_figures,
    "report": write_page,
}
