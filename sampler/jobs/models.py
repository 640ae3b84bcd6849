"""The end of `compare A B …`: all models of several runs in one table and one figure."""

from collections.abc import Sequence
from pathlib import Path

from sampler.analysis.models import compare_models_of, names_of_runs
from sampler.analysis.results import open_run
from sampler.errors import InputError, one_line
from sampler.presentation.figures.models import NAME, draw_models
from sampler.presentation.models import models_table
from sampler.presentation.style import figure_style, save_figure
from sampler.storage.run_directory import FIGURE_FOLDER


def compare_runs(directories: Sequence[Path]) -> None:
    """Print the table of the models of these runs and draw it, or say why they do not compare.

    The figure goes into the figures of the first run.
    """
    opened = [open_run(directory) for directory in directories]
    runs = list(zip(names_of_runs(directories), opened, strict=True))
    try:
        compared = compare_models_of(runs)
    except InputError as reason:
        print(f"\nno table of models: {one_line(str(reason))}")
        return
    print(f"\n{models_table(compared).text()}")
    with figure_style():
        (path, *_) = save_figure(draw_models(compared), directories[0] / FIGURE_FOLDER, NAME)
    print(f"figure of the models: {path}")
