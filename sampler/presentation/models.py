"""Models of several runs, as a table in the terminal, notebooks and pages, and as a figure."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from sampler.analysis.labels import EXACT, LEADING, LIMIT, OWN_LIMIT
from sampler.analysis.leave_one_out import LeaveOneOut
from sampler.analysis.models import ComparedModels
from sampler.analysis.text import count
from sampler.presentation.table import Column, Table

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure


def leave_one_out_table_of(found: LeaveOneOut | None) -> Table:
    """The elpd of a run with its errors, and whether PSIS could find it."""
    columns = (
        "what",
        "elpd_loo",
        Column("standard error", digits=2),
        Column("MCSE", digits=2),
        Column("largest Pareto k", digits=2),
        Column("limit of k", digits=2),
        "examples above it",
        "examples",
        "draws",
    )
    rows = []
    if found is not None:
        psis = found.largest_k, found.limit_of_k, count(found.unreliable)
        sizes = count(found.examples), count(found.draws)
        rows.append([EXACT, found.elpd, found.error, found.mcse, *psis, *sizes])
        of_theories = ((LEADING, found.theory), (OWN_LIMIT, found.gp_own), (LIMIT, found.gp))
        nothing = [None] * 4 + ["", sizes[0], ""]
        rows += [[name, one, None, *nothing[1:]] for name, one in of_theories if one is not None]
    caption = (
        "elpd_loo: sum over training examples of ln p(label | all other labels), by "
        "Pareto-smoothed importance sampling (PSIS). Standard error: by the finite number of "
        "examples; MCSE: by the finite number of draws. Above the limit of k an example's term is "
        "not reliable."
    )
    return Table("Leave-one-out cross-validation", columns, rows, caption)


def models_table(compared: ComparedModels) -> Table:
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
            one.model.name,
            (one.elpd, one.error),
            (one.difference, one.of_difference) if one.of_difference else one.difference,
            one.weight,
            "" if one.model.unreliable is None else count(one.model.unreliable),
            one.model.evidence,
            one.model.accuracy,
            one.model.density,
        ]
        for one in compared.models
    ]
    caption = (
        "elpd: sum over training examples of ln p(label | all other labels), ± standard error by "
        "the finite number of examples; of samples by PSIS, of the theory at a saddle point that "
        "moves as each example is left out, to first order, exact at infinite width. Weight: share "
        "in the average of models that predicts best (stacking). Unreliable: examples whose Pareto "
        "k is above its limit."
    )
    return Table("Models by leave-one-out cross-validation", columns, rows, caption)


def draw_models(compared: ComparedModels) -> "Figure":
    """Draw elpd relative to the best model, with the error of the difference."""
    from sampler.presentation import style  # only here: a table needs no Matplotlib

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


@dataclass(frozen=True, repr=False)
class Models:
    """Models of runs with the same training labels, compared by leave-one-out cross-validation.

    `print` and notebooks show the table, best model first.
    """

    compared: ComparedModels

    def to_dataframe(self) -> "pandas.DataFrame":
        """A row for each model: elpd, its error, difference to the best, weight, evidence, …."""
        return self.compared.to_dataframe()

    def plot(self) -> "Figure":
        """Draw the differences with their errors."""
        from sampler.presentation.style import figure_style

        with figure_style():
            return draw_models(self.compared)

    def __repr__(self) -> str:
        return models_table(self.compared).text()

    def _repr_html_(self) -> str:
        return models_table(self.compared)._repr_html_()
