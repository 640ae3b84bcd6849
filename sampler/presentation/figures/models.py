"""Models of the same training labels: how well each predicts a label from all others."""

import numpy as np
from matplotlib.figure import Figure

from sampler.analysis.models import ComparedModels
from sampler.presentation import style

NAME = "models"


def draw_models(compared: ComparedModels) -> Figure:
    """Draw elpd relative to the best model, with the error of the difference."""
    models = compared.models
    height = 0.32 * len(models) + 1.7
    figure = style.new_figure(style.WIDTH, height, "Models by leave-one-out cross-validation", "")
    ax = figure.subplots()
    places = np.arange(len(models))
    ax.axvline(0.0, color=style.GREY, linestyle=":", linewidth=1.0)
    ax.errorbar(
        [one.difference for one in models],
        places,
        xerr=[one.of_difference for one in models],
        fmt="o",
        color=style.SAMPLED,
        capsize=3.0,
    )
    ax.set_yticks(places, [one.model.name for one in models])
    ax.set(xlabel="elpd minus that of the best model, ± standard error (nats)")
    ax.set_ylim(len(models) - 0.5, -0.5)
    return figure
