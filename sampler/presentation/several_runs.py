"""Several runs beside each other: points of a sweep, points that were chosen, and models."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote

import numpy as np

from sampler.analysis.difference import NOT_TRUSTED, Difference
from sampler.analysis.predictors import (
    AXIS,
    INFINITE,
    LEADING,
    NEXT,
    SAMPLED,
    TUNED,
    is_users,
    predictor_name,
)
from sampler.analysis.sweep_results import PointSummary
from sampler.analysis.text import NO_BREAK, Number, count
from sampler.analysis.verdict import HEADLINE
from sampler.presentation.status_text import state_text
from sampler.presentation.table import Cell, Column, Link, Table
from sampler.presentation.views import AS_A_WHOLE, BOTH_ERRORS
from sampler.settings.point_labels import short_label
from sampler.storage.status import state_of

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure

SHARE = {"unit": f"{NO_BREAK}%", "scale": 100.0, "digits": 3}
POINTS = {"unit": f"{NO_BREAK}points"}
MODELS = "Models by leave-one-out cross-validation"


# --- the points of a sweep


def points_table(points: Sequence[PointSummary]) -> Table:
    """The points of a sweep: accuracies, differences, diagnostics, and the page of each."""
    users = [name for name in map(str, points[0].summary[AXIS].values) if is_users(name)]
    predictors = {LEADING: 0, NEXT: 1, **{name: at for at, name in enumerate(users, start=2)}}
    predictors |= {SAMPLED: 0, INFINITE: 999, TUNED: 1000}
    of_predictors = {
        name: Column(predictor_name(name), **SHARE, dropped=at) for name, at in predictors.items()
    }
    header = f"{predictor_name(SAMPLED)} {BOTH_ERRORS}"
    of_predictors[SAMPLED] = Column(header, **SHARE)
    columns = [
        Column("point"),
        *of_predictors.values(),
        Column("U₁ off by", dropped=1001),
        Column("U₁ off by, next order", dropped=1003),
        Column("m(x) off by", dropped=1002),
        Column("U₁, MCSE", digits=3, dropped=1006),
        Column("R-hat", digits=5, dropped=1005),
        Column("ESS", dropped=1004),
        Column("samples", dropped=1007),
        Column("state"),
    ]
    caption = (
        "Accuracy on the test set, that of samples ± MCSE ± error by the finite test set, how far "
        "theory and samples are apart in U₁ and predictor mean m(x), the largest difference of U₁ "
        f"in MCSE, worst R-hat, smallest ESS. {AS_A_WHOLE}"
    )
    return Table("Points", columns, [point_cells(point, predictors) for point in points], caption)


def point_cells(point: PointSummary, predictors: Mapping[str, int]) -> list[object]:
    """The row of a point, its accuracies by these predictors."""
    page = f"{quote(point.directory.name)}/report.html"
    there = (point.directory / "report.html").is_file()
    overlap = point.difference(HEADLINE)
    words = {None: "not sampled", True: "trusted", False: "diagnostics failed"}
    return [
        Link(point.label, page) if there else point.label,
        *(
            tuple(point.number("accuracy", name, key) for key in ("value", "error", "test_error"))
            if name == SAMPLED
            else point.number("accuracy", name)
            for name in predictors
        ),
        difference_cell(overlap),
        difference_cell(point.difference(HEADLINE, NEXT)),
        difference_cell(point.difference("predictor_mean")),
        None if overlap is None or overlap.state == NOT_TRUSTED else overlap.largest_mcse,
        point.column("r_hat"),
        count(point.column("ess")),
        words[point.trusted],
        state_text(state_of(point.directory), short=True),
    ]


def difference_cell(difference: Difference | None) -> Cell:
    """A resolved difference with its error, or what it is below."""
    if difference is None or not difference.decided:
        return Number(None)
    return (
        difference.number(difference.value, difference.error)
        if difference.resolved
        else difference.text(short=True)
    )


# --- temperatures chosen on the validation split


def selection_table(rows: Mapping[str, Mapping] | None) -> Table:
    """The temperatures that the validation split chooses. rows: the content of `selection.json`."""
    columns = (
        "at",
        Column("𝒯 chosen"),
        Column("accuracy", **SHARE),
        Column("log density", dropped=2),
        Column("next best 𝒯", dropped=1),
        Column("accuracy ahead of it", **SHARE | POINTS, dropped=1),
        Column("infinite width: 𝒯", digits=3, dropped=3),
        Column("its accuracy", **SHARE, dropped=3),
    )
    cells = [
        [
            short_label(row["settings"]) or "all points",
            f"{row['temperature']:g}",
            score_of(row, "accuracy"),
            score_of(row, "log_predictive_density"),
            "" if row["next_best"] is None else f"{row['next_best']:g}",
            score_of(row, "ahead_accuracy"),
            row["infinite_tuned_temperature"],
            score_of(row, "infinite_tuned_accuracy"),
        ]
        for row in (rows or {}).values()
    ]
    caption = (
        "Temperature with the best accuracy of the leading order on the validation split, of equal "
        "ones that with the best log predictive density. ± standard error by the finite number of "
        "examples, that of the difference example by example. Infinite width is at a "
        "temperature of its own."
    )
    return Table("Temperatures chosen by validation", columns, cells, caption)


def score_of(row: Mapping, name: str) -> tuple | None:
    """A score of `selection.json` with its error; None where labels are no classes."""
    return (row[name], row[f"{name}_error"]) if row.get(name) is not None else None


# --- models of several runs


def models_table(models: "pandas.DataFrame") -> Table:
    """Models, the best first: elpd, differences, weights, evidence and test set."""
    columns = (
        "model",
        Column("elpd", dropped=4),
        "elpd minus best",
        Column("weight", digits=2),
        Column("unreliable", dropped=5),
        Column("log evidence", dropped=1),
        Column("test accuracy", **SHARE, dropped=2),
        Column("accuracy minus best", **SHARE | POINTS, dropped=6),
        Column("test log density", dropped=3),
        Column("density minus best", dropped=7),
    )
    scores = {"log_evidence": "log_evidence_error"}
    for score in ("accuracy", "log_predictive_density"):
        scores |= {score: f"{score}_error", f"{score}_diff": f"{score}_dse"}
    rows = [
        [
            name,
            (row["elpd"], row["se"]),
            (row["elpd_diff"], row["dse"]) if row["dse"] else row["elpd_diff"],
            row["weight"],
            count(row["unreliable"]),
            *((row[score], row[error]) for score, error in scores.items()),
        ]
        for name, row in models.astype(float).iterrows()
    ]
    caption = (
        "elpd: sum over training examples of ln p(label | all other labels), ± standard error by "
        "the finite number of examples; of samples by PSIS, of the theory at a saddle point that "
        "moves as each example is left out, to first order, exact at infinite width. Scores on the "
        "test set minus those of the best model ± standard error of the difference, example by "
        "example. A theory stands here only in place of samples, by name. Weight: share "
        "in the average of models that predicts best (stacking). Unreliable: examples whose Pareto "
        "k is above its limit. Samples with such examples, or whose diagnostics failed, are not "
        "compared."
    )
    return Table(MODELS, columns, rows, caption)


def draw_models(models: "pandas.DataFrame") -> "Figure":
    """Draw elpd relative to the best model, with the error of the difference."""
    from sampler.presentation import style  # only here: a table needs no Matplotlib

    figure = style.new_figure(style.WIDTH, 0.32 * len(models) + 1.7, MODELS)
    ax = figure.subplots()
    places = np.arange(len(models))
    ax.axvline(0.0, color=style.GREY, linestyle=":", linewidth=1.0)
    marks = {"fmt": "o", "color": style.SAMPLED}
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
