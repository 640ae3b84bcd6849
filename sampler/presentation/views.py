"""The tables of a run, each built once: terminal, page and notebooks show the same.

Numbers are read from the frame of a comparison, a row for each quantity and predictor, and from its
elements.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from sampler.analysis.comparison import (
    RELATIVE_ELEMENTS,
    RELATIVE_ERROR,
    ComparisonTree,
    frame_of,
    summary_of_theory,
)
from sampler.analysis.difference import NOT_TRUSTED, UNDECIDED, amount, statement
from sampler.analysis.names import is_overlap
from sampler.analysis.predictors import (
    AXIS,
    INFINITE,
    LEADING,
    NEXT,
    OTHER_NETWORKS,
    SAMPLED,
    TUNED,
    TUNED_BY,
    is_theory,
    is_users,
    predictor_name,
)
from sampler.analysis.quantities import NUMBER, QUANTITIES
from sampler.analysis.results import RunResults
from sampler.analysis.text import Number, percent, points
from sampler.presentation.table import Cell, Column, Table

if TYPE_CHECKING:
    import pandas

# A row of a frame.
Row = Mapping[str, Any]
MOST_ROWS = 15
# The order in which columns are left out on a narrow terminal, the largest first.
DROPPED = {LEADING: 0, NEXT: 0, SAMPLED: 0, INFINITE: 1000, TUNED: 1001}
# Behind the name of a column whose numbers have both errors.
BOTH_ERRORS = "± MCSE ± test set"
# Quantities that are shown element by element: titles and captions.
ELEMENTS = {
    "order_parameter": (
        "Order parameter U₁",
        "Path by path: theory and posterior mean ± MCSE; differences are exact − theory, in per "
        "cent of the geometric mean of both diagonal elements of the exact posterior, ± MCSE.",
    ),
    "head_score": (
        "Head scores",
        "The share of |U₁| on paths through a head, relative to the largest; sampled ± MCSE. "
        "Differences are exact − theory, in per cent of the largest share.",
    ),
}
LIMIT = "<: 95 % upper limit"
NOT_PREDICTED = "not predicted"
AS_A_WHOLE = (
    "‖exact − theory‖/‖exact‖ over all elements, the part that Monte Carlo noise adds taken away, "
    f"± its Monte Carlo error. {LIMIT}. Largest pull: of the element that is furthest off, in "
    "Monte Carlo standard errors (MCSE)."
)


def pivot(
    frame: "pandas.DataFrame", cell: Callable[[Row], Cell], names: Mapping[str, str]
) -> dict[str, list[Cell]]:
    """By quantity a cell for each of these predictors, made of its row of a frame."""
    rows = {(row["quantity"], row[AXIS]): row for row in frame.reset_index().to_dict("records")}
    quantities = frame.index.unique("quantity")
    return {name: [cell(rows[name, who]) for who in names] for name in quantities}


def predictor_columns(names: Mapping[str, str]) -> list[Column]:
    """A column for each predictor; the user's own are left out in their order."""
    return [
        Column(
            name,
            dropped=DROPPED.get(who, at),
            meaning="posterior mean ± MCSE" if who == SAMPLED else "",
        )
        for at, (who, name) in enumerate(names.items(), start=1)
    ]


# --- quantities as a whole


def statements_table(comparison: ComparisonTree, brief: bool = False) -> Table:
    """How far every theory is off in every quantity, with 95 % confidence.

    But for the brief table with intervals, and the largest pull with that of noise. It
    has no rows where diagnostics failed.
    """
    frame = comparison.table()
    said = ~frame["state"].isin(["", NOT_TRUSTED])
    told = frame[said & frame.index.get_level_values(AXIS).map(is_theory)]
    if brief:
        told = told[told["brief"].ne(0) & told["show"].ne(NUMBER)]
    theories = set(told.index.get_level_values(AXIS))
    names = {who: name for who, name in comparison.names.items() if who in theories}
    frame = frame.loc[told.index.unique("quantity")]
    columns, cells = predictor_columns(names), [pivot(frame, statement_cell, names)]
    if not brief:
        columns += [Column(f"95 % interval, {name}") for name in names.values()]
        columns += [Column(f"largest pull, {name}", digits=3) for name in names.values()]
        columns += [Column("largest pull by noise", digits=2)]
        cells += [pivot(frame, one, names) for one in (interval_cell, largest_pull_cell)]
        cells += [{name: [comparison.largest_by_chance(name)] for name in cells[0]}]
    rows = [
        [label, *(one for part in cells for one in part[quantity])]
        for quantity, label in labels_of(frame).items()
    ]
    first = "relative error ± MCSE\n(<: 95 %)"
    return Table("Relative error of the theories", [first, *columns], rows, AS_A_WHOLE)


def labels_of(frame: "pandas.DataFrame") -> dict[str, str]:
    """Quantity → its name."""
    return dict(zip(frame.index.get_level_values("quantity"), frame["label"], strict=True))


def statement_cell(row: Row) -> Cell:
    return NOT_PREDICTED if is_unpredicted(row) else statement(row, short=True)


def is_unpredicted(row: Row) -> bool:
    """Whether a theory of the user's own leaves a quantity out."""
    return is_users(row[AXIS]) and math.isnan(row["value"])


def interval_cell(row: Row) -> Cell:
    """The 95 % interval; empty if there is none."""
    if not row["state"] or row["state"] in UNDECIDED:
        return ""
    low = replace(amount(row["low"], row["unit"]), unit="")
    return f"{low} to {amount(row['high'], row['unit'])}"


def largest_pull_cell(row: Row) -> Cell:
    return Number(row["largest_mcse"], digits=3)


# --- numbers by predictor


def numbers_table(run: RunResults, brief: bool = False) -> Table:
    """Everything that is a single number, by predictor: accuracy, scores, evidence."""
    caption = (
        "Of the test set, but for elpd and evidence, which are of the training labels. Samples ± "
        "Monte Carlo error (MCSE) ± error by the finite number of examples, which is common to all "
        "columns."
    )
    summary = summary_of(run)
    tuned_by = None if run.theory is None else run.theory.attrs.get(TUNED_BY)
    names = {who: predictor_name(who, tuned_by) for who in map(str, summary[AXIS].values)}
    if SAMPLED in names:
        names[SAMPLED] += f" {BOTH_ERRORS}"
    frame = frame_of(summary)
    frame = frame[frame["show"].eq(NUMBER) & frame["spread"].isna()]
    if brief:
        frame = frame[frame["brief"].ne(0)].assign(remark="")
    if "kernel_similarity" in frame.index.get_level_values("quantity"):
        caption += (
            " The alignment of K has no bias by Monte Carlo noise: it may exceed 1 by its error."
        )
    why = {
        (name, who): text for name in QUANTITIES for who, text in QUANTITIES[name].missing.items()
    }
    if LEADING not in names:  # of networks that the theory does not describe no setting gives it
        why |= {place: "not estimated" for place, text in why.items() if text.startswith("needs ")}
    by = (", by " + frame["remark"]).where(frame["remark"].ne(""), "")
    labels = labels_of(frame.assign(label=frame["label"] + by))
    rows = [
        [labels[name], *cells]
        for name, cells in pivot(frame, partial(number_cell, why), names).items()
    ]
    columns = ["numbers", *predictor_columns(names)]
    return Table("Accuracy, scores and evidence", columns, rows, caption)


def number_cell(why: Mapping[tuple[str, str], str], row: Row) -> Cell:
    """A number, that of the samples with its errors; or why it is missing."""
    sampled, form = row[AXIS] == SAMPLED, percent if row["share"] else Number
    place = row["quantity"], row[AXIS]
    if is_unpredicted(row):
        return NOT_PREDICTED
    if place in why and math.isnan(row["value"]):
        return why[place]
    errors = {"error": row["error"]} if sampled or math.isfinite(row["error"]) else {}
    errors |= {"test_error": row["test_error"]} if sampled else {}
    # A log evidence has as many places as a density.
    digits = 3 if row["share"] else 5 if abs(row["value"]) >= 10.0 else 4
    return form(row["value"], digits=digits, **errors)


def other_networks_table(comparison: ComparisonTree) -> Table:
    """By how much the exact posterior is ahead of infinite width, in scores of both."""
    caption = (
        "Infinite width is another network, not a theory of this one. Scores of the exact "
        "posterior minus its, example by example, ± standard error by the finite number of "
        "examples: of the test set; of the training labels for elpd."
    )
    frame = comparison.table()
    names = {who: name for who, name in comparison.names.items() if who in OTHER_NETWORKS}
    frame = frame.loc[frame.index[frame["ahead"].notna()].unique("quantity")]
    labels, cells = labels_of(frame), pivot(frame, ahead_cell, names)
    rows = [[labels[name], *cells[name]] for name in cells]
    columns = ["exact posterior minus, ± standard error over examples", *predictor_columns(names)]
    return Table("Ahead of infinite width", columns, rows, caption)


def ahead_cell(row: Row) -> Cell:
    form = points if row["share"] else Number
    return form(row["ahead"], row["ahead_error"], digits=2)


def summary_of(run: RunResults) -> xr.Dataset:
    """The summary of a comparison; without draws that of the theory."""
    if run.comparison is None:
        return summary_of_theory(run.theory)
    return run.comparison.summary


def other_accuracies_table(run: RunResults) -> Table:
    """Accuracies of other networks: sub-networks, trained networks."""
    rows = []
    if run.theory is not None and "accuracy_of_sub_network" in run.theory:
        limits = run.theory["accuracy_of_sub_network"].to_series()
        rows += [[f"infinite width, only {name}", percent(value)] for name, value in limits.items()]
    if run.theory is not None and "accuracy_trained" in run.theory:
        value = percent(float(run.theory["accuracy_trained"]))
        rows.append(["network trained by gradient descent", value])
    return Table("Others", ("predictor", "accuracy"), rows)


def sampled_temperature_table(comparison: ComparisonTree) -> Table:
    """Prior median, posterior mean ± MCSE and standard deviation of a sampled temperature."""
    columns = (
        "", "prior median", "sampled ± MCSE", Column("posterior standard deviation", digits=3)
    )  # fmt: skip
    caption = "Its prior is log-normal about the median, at which the theory is solved."
    rows = []
    if ("temperature", SAMPLED) in comparison.rows:
        by = {who: comparison.rows["temperature", who] for who in comparison.predictors}
        medians = [by[who]["value"] for who in (LEADING, INFINITE) if who in by]
        median, sampled = next(filter(math.isfinite, medians), math.nan), by[SAMPLED]
        mean = Number(sampled["value"], sampled["error"])
        rows = [["temperature", median, mean, sampled["spread"]]]
    return Table("Sampled with the rest", columns, rows, caption)


# --- element by element


def elements_table(comparison: ComparisonTree, quantity: str) -> Table:
    """Elements of U₁ or head scores: every theory, the samples, and differences in per cent.

    Of an order parameter with many elements the diagonal alone; head scores largest first.
    """
    title, caption = ELEMENTS[quantity]
    table = comparison.elements(quantity)
    if table is None or not table.sizes[AXIS]:
        return Table(title, [""], [], caption)
    sampled, errors = table["sampled"].values, table["error"].values
    places = comparison.element_names(quantity)
    if is_overlap(quantity) and len(places) > MOST_ROWS:
        every, places = places, {name: at for name, at in places.items() if at[0] == at[1]}
        places = dict([*places.items()][:MOST_ROWS])
        caption += f" {len(places)} of {len(every)} elements; all are in comparison.nc."
    elif not is_overlap(quantity):
        alone = table.sizes["head"] == 1
        places = {} if alone else dict(sorted(places.items(), key=lambda one: -sampled[one[1]]))
    predicted = {str(who): table["predicted"].sel({AXIS: who}).values for who in table[AXIS].values}
    predicted = {who: values for who, values in predicted.items() if np.isfinite(values).any()}
    against = [who for who in predicted if who in (LEADING, NEXT)]
    against = against or [who for who in predicted if is_theory(who)][:1]
    if not comparison.diagnostics.passed:
        against = []  # no difference is stated
    gaps = [(sampled - predicted[who], errors) for who in against]
    if RELATIVE_ELEMENTS in table:
        of_theories = [table.sel({AXIS: who}) for who in against]
        gaps = [(of[RELATIVE_ELEMENTS].values, of[RELATIVE_ERROR].values) for of in of_theories]
    names = {who: comparison.names[who] for who in [*predicted, SAMPLED]}
    names[SAMPLED] += " ± MCSE"
    columns = [Column(comparison.rows[quantity, SAMPLED]["label"]), *predictor_columns(names)]
    columns += [Column(f"exact − {names[who]}", dropped=500 + at) for at, who in enumerate(against)]
    rows = [
        [
            name,
            *(values[at] for values in predicted.values()),
            (sampled[at], errors[at]),
            *(percent(gap[at], error[at], digits=2) for gap, error in gaps),
        ]
        for name, at in places.items()
    ]
    return Table(title, columns, rows, caption)


def tables_of(run: RunResults) -> list[Table]:
    """All tables of a comparison, or of a theory alone, in the order of the page."""
    comparison = run.comparison
    if comparison is None:
        return [] if run.theory is None else [numbers_table(run), other_accuracies_table(run)]
    return [
        statements_table(comparison),
        numbers_table(run),
        other_networks_table(comparison),
        other_accuracies_table(run),
        *(elements_table(comparison, quantity) for quantity in ELEMENTS),
        sampled_temperature_table(comparison),
    ]
