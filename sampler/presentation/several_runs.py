"""Several runs side by side: points of a sweep, points that were chosen, and models."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote

import numpy as np

from sampler.analysis.difference import RESOLVED, UNDECIDED, amount, statement
from sampler.analysis.predictors import LEADING, NEXT, SAMPLED, in_order, predictor_name
from sampler.analysis.sweep_results import PointSummary, Row
from sampler.analysis.text import NO_BREAK, count
from sampler.analysis.verdict import HEADLINE
from sampler.presentation.status_text import state_text
from sampler.presentation.table import Cell, Column, Link, Table
from sampler.presentation.views import BOTH_ERRORS
from sampler.settings.point_labels import short_label
from sampler.storage.status import FINISHED, state_of

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure

SHARE = {"unit": f"{NO_BREAK}%", "scale": 100.0, "digits": 3}
POINTS = {"unit": f"{NO_BREAK}points"}
DIAGNOSTICS = {None: "not sampled", True: "passed", False: "failed"}
MODELS = "Models by leave-one-out cross-validation"


# --- the points of a sweep


def points_table(points: Sequence[PointSummary]) -> Table:
    """The points of a sweep: relative errors, accuracies, diagnostics, and the page of each."""
    known = {who for point in points for _, who in point.cells}
    columns = [
        (Column("point"), [linked(point) for point in points]),
        (Column("U₁ relative error ± MCSE"), relative_errors(points, HEADLINE)),
        (
            Column("U₁ relative error, next order", dropped=40),
            relative_errors(points, HEADLINE, NEXT),
        ),
        *accuracies(points, [LEADING, SAMPLED, *in_order(known - {LEADING, SAMPLED})]),
        (Column("m(x) relative error", dropped=10), relative_errors(points, "predictor_mean")),
        (Column("U₁, largest pull", digits=3, dropped=43), [largest_pull(p) for p in points]),
        (Column("R-hat", digits=5, dropped=42), [point.column("r_hat") for point in points]),
        (Column("ESS", dropped=41), [count(point.column("ess")) for point in points]),
        (Column("MCMC diagnostics", dropped=3), [DIAGNOSTICS[point.trusted] for point in points]),
        (Column("state"), [unfinished(point) for point in points]),
    ]
    caption = (
        "Relative error of the leading order, ± Monte Carlo error; <: 95 % upper limit. Accuracy "
        "on the test set, that of samples ± MCSE ± error by the finite test set. Largest pull: of "
        "the element of U₁ that is furthest off, in MCSE. Worst R-hat, smallest ESS."
    )
    rows = list(zip(*(cells for _, cells in columns), strict=True))
    return Table("Points", [column for column, _ in columns], rows, caption)


def linked(point: PointSummary) -> str | Link:
    """The settings of a point, with the link to its page where that was written."""
    label, there = short_label(point.settings), (point.directory / "report.html").is_file()
    return Link(label, f"{quote(point.directory.name)}/report.html") if there else label


def unfinished(point: PointSummary) -> str:
    """Progress of an unfinished point."""
    state = state_of(point.directory)
    return "" if state.word == FINISHED else state_text(state, short=True)


def relative_errors(
    points: Sequence[PointSummary], quantity: str, predictor: str = LEADING
) -> list[Cell]:
    """Relative errors of a theory, or why there is none; empty where no point has one."""
    rows = [point.compared(quantity, predictor) for point in points]
    if not any(rows):
        return [""] * len(points)
    return [
        why_not(point, predictor) if row is None else error_cell(row)
        for point, row in zip(points, rows, strict=True)
    ]


def error_cell(row: Row) -> Cell:
    """A resolved difference with its error, its upper limit, or the reason why there is none."""
    if row["state"] == RESOLVED:
        return amount(row["difference"], row["unit"], row["difference_error"])
    return row["state"] if row["state"] in UNDECIDED else statement(row, short=True)


def why_not(point: PointSummary, predictor: str) -> str:
    """Why nothing of a predictor is compared at a point."""
    if not point.stored:
        return "not run"
    if np.isfinite(point.number("accuracy", predictor)):
        return "not sampled"
    return "no theory" if predictor == LEADING else "no next order"


def accuracies(
    points: Sequence[PointSummary], predictors: Sequence[str]
) -> list[tuple[Column, list[object]]]:
    """A column for each predictor, of samples with both errors."""
    columns = []
    for place, who in enumerate(predictors, start=1):
        names, header = ("value",), predictor_name(who)
        if who == SAMPLED:
            names, header = ("value", "error", "test_error"), f"{header} {BOTH_ERRORS}"
        header = f"accuracy, {header}" if place == 1 else header
        cells = [tuple(point.number("accuracy", who, name) for name in names) for point in points]
        if who == SAMPLED and any(point.trusted is not None for point in points):
            cells = [
                "not sampled" if point.trusted is None else cell
                for point, cell in zip(points, cells, strict=True)
            ]
        columns.append((Column(header, **SHARE, dropped=place), cells))
    return columns


def largest_pull(point: PointSummary) -> float | None:
    """Of the samples that can be trusted."""
    return point.number(HEADLINE, name="largest_mcse") if point.trusted else None


# --- temperatures chosen on the validation split


def selection_table(rows: Mapping[str, Mapping] | None) -> Table:
    """The temperatures that the validation split chooses. rows: the content of `selection.json`."""
    columns = (
        "at",
        Column("𝒯 chosen", digits=3),
        Column("accuracy", **SHARE),
        Column("log density", dropped=2),
        Column("next best 𝒯", digits=3, dropped=1),
        Column("accuracy ahead of it", **SHARE | POINTS, dropped=1),
        Column("infinite width: 𝒯", digits=3, dropped=3),
        Column("its accuracy", **SHARE, dropped=3),
    )
    cells = [
        [
            short_label(row["settings"]) or "all points",
            row["temperature"],
            score_of(row, "accuracy"),
            score_of(row, "log_predictive_density"),
            row["next_best"],
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
    """A score of `selection.json` with its error; None where labels are not classes."""
    return (row[name], row[f"{name}_error"]) if row.get(name) is not None else None


# --- models of several runs


def models_table(models: "pandas.DataFrame") -> Table:
    """Models, the best first: elpd, differences, weights, evidence and test set."""
    columns = (
        "model",
        Column("elpd", dropped=4),
        "elpd behind best ± SE",
        Column("weight", digits=2),
        Column("unreliable", dropped=5),
        Column("log evidence ± MCSE", dropped=1),
        Column("test accuracy ± MCSE", **SHARE, dropped=2),
        Column("accuracy behind best", **SHARE | POINTS, dropped=6),
        Column("test log density", dropped=3),
        Column("density behind best", dropped=7),
    )
    scores = {"log_evidence": "log_evidence_error"}
    for score in ("accuracy", "log_predictive_density"):
        scores |= {score: f"{score}_error", f"{score}_diff": f"{score}_dse"}
    rows = [
        [
            name,
            (row["elpd"], row["se"]),
            (row["elpd_diff"], row["dse"]) if row["dse"] else row["elpd_diff"],
            round(row["weight"], 4),  # a weight of 1e-16 is the solver's
            count(row["unreliable"]),
            *((row[score], row[error]) for score, error in scores.items()),
        ]
        for name, row in models.astype(float).iterrows()
    ]
    caption = (
        "elpd: sum over training examples of ln p(label | all other labels), ± standard error by "
        "the finite number of examples; of samples by PSIS, of the theory at a saddle point that "
        "moves as each example is left out, to first order, exact at infinite width. How "
        "far behind the best model: ± standard error of the difference, example by "
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
    ax.errorbar(-models["elpd_diff"].astype(float), places, xerr=models["dse"], **marks)
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
