"""Models of several runs, as a table in the terminal, notebooks and pages, and as a figure."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from sampler.analysis.text import count
from sampler.presentation.table import Column, Table

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure


def models_table(models: "pandas.DataFrame") -> Table:
    """Models, the best first: elpd, differences, weights, evidence and test set."""
    columns = (
        "model",
        Column("elpd", dropped=4),
        "elpd minus best",
        Column("weight", digits=2),
        Column("unreliable", dropped=5),
        Column("log evidence", dropped=1),
        Column("test accuracy", unit=" %", scale=100.0, dropped=2),
        Column("test log density", dropped=3),
    )
    rows = [
        [
            name,
            (row["elpd"], row["se"]),
            (row["elpd_diff"], row["dse"]) if row["dse"] else row["elpd_diff"],
            row["weight"],
            count(row["unreliable"]),
            *(
                (row[score], row[f"{score}_error"])
                for score in ("log_evidence", "accuracy", "log_predictive_density")
            ),
        ]
        for name, row in models.astype(float).iterrows()
    ]
    caption = (
        "elpd: sum over training examples of ln p(label | all other labels), ± standard error by "
        "the finite number of examples; of samples by PSIS, of the theory at a saddle point that "
        "moves as each example is left out, to first order, exact at infinite width. Weight: share "
        "in the average of models that predicts best (stacking). Unreliable: examples whose Pareto "
        "k is above its limit."
    )
    return Table("Models by leave-one-out cross-validation", columns, rows, caption)


def draw_models(models: "pandas.DataFrame") -> "Figure":
    """Draw elpd relative to the best model, with the error of the difference."""
    from sampler.presentation import style  # only here: a table needs no Matplotlib

    height = 0.32 * len(models) + 1.7
    figure = style.new_figure(style.WIDTH, height, "Models by leave-one-out cross-validation", "")
    ax = figure.subplots()
    places = np.arange(len(models))
    ax.axvline(0.0, color=style.GREY, linestyle=":", linewidth=1.0)
    marks = {"fmt": "o", "color": style.SAMPLED, "capsize": 3.0}
    ax.errorbar(models["elpd_diff"], places, xerr=models["dse"], **marks)
    ax.set_yticks(places, list(models.index))
    ax.set(xlabel="elpd minus that of the best model, ± standard error (nats)")
    ax.set_ylim(len(models) - 0.5, -0.5)
    return figure


@dataclass(frozen=True, repr=False)
class Models:
    """Models of runs with the same training labels, compared by leave-one-out cross-validation.

    `print` and notebooks show the table, best model first.
    """

    table: "pandas.DataFrame"

    def to_dataframe(self) -> "pandas.DataFrame":
        """A row for each model: elpd, its error, difference to the best, weight, evidence, …."""
        return self.table

    def plot(self) -> "Figure":
        """Draw the differences with their errors."""
        from sampler.presentation.style import figure_style

        with figure_style():
            return draw_models(self.table)

    def __repr__(self) -> str:
        return models_table(self.table).text()

    def _repr_html_(self) -> str:
        return models_table(self.table)._repr_html_()
