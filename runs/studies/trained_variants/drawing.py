"""How alike trained heads are, and accuracy, drawn."""

import numpy as np
from matplotlib.figure import Figure

from runs.studies.numbers import mean_over
from runs.studies.trained_variants.mathematics import FORMS, LEVELS
from sampler.presentation import style

SHOWN = ("cosine of matrices", "cosine of outputs", "accuracy")
LOOKS = ((style.GREY, "^"), (style.BLUE, "o"), (style.VERMILLION, "s"))


def draw(trainings: dict[str, list[dict]], title: str) -> Figure:
    """Draw every measure in a panel, a row for each variant, mean ± standard error over seeds.

    Cosines share one axis from 0 to 1; accuracies before training, which are chance, are left out.
    """
    figure = style.new_figure(style.WIDTH, 0.5 * len(FORMS) + 1.7, title)
    rows = np.arange(len(FORMS))
    for ax, measure in zip(figure.subplots(1, len(SHOWN), sharey=True), SHOWN, strict=True):
        accuracy = measure == "accuracy"
        for place, (level, (colour, marker)) in enumerate(zip(LEVELS, LOOKS, strict=True)):
            if accuracy and place == 0:
                continue
            found = [mean_over([one["rows"][place][measure] for one in trainings[name]], "seeds")
                     for name in FORMS]  # fmt: skip
            means, errors = (
                (100.0 if accuracy else 1.0) * np.array([one[key] for one in found])
                for key in ("value", "error")
            )
            marks = {
                "color": colour,
                "marker": marker,
                "linestyle": "none",
                "label": "before training" if level is None else f"squared error {level}",
            }
            ax.errorbar(means, rows + 0.22 * (place - 1), xerr=errors, **marks)
        if accuracy:
            style.accuracy_axis(ax.xaxis)
        else:
            ax.set_xlim(0.0, 1.04)
            ax.set_xticks([0.0, 0.5, 1.0], ["0", "0.5", "1"])
        ax.set_title(f"{measure} (%)" if accuracy else measure.replace(" of ", "\nof "))
        ax.tick_params(axis="y", length=0)
        ax.grid(axis="both", color=style.GRID, linewidth=0.8)
    figure.axes[0].set_yticks(rows, FORMS)
    figure.axes[0].set_ylim(len(FORMS) - 0.5, -0.5)
    style.legend_below(figure, figure.axes[0].get_legend_handles_labels(), columns=3)
    return figure
