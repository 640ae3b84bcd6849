"""The tables of a run, each built once: terminal, page and notebooks show the same."""

import math
from dataclasses import replace

import numpy as np
import xarray as xr

from sampler.analysis.comparison import (
    RELATIVE_ELEMENTS,
    RELATIVE_ERROR,
    ComparisonTree,
    number_of,
    summary_of_theory,
)
from sampler.analysis.difference import Difference
from sampler.analysis.predictors import (
    AXIS,
    INFINITE,
    LEADING,
    NEXT,
    SAMPLED,
    TUNED,
    TUNED_BY,
    is_theory,
    predictor_name,
)
from sampler.analysis.quantities import NUMBER
from sampler.analysis.results import RunResults
from sampler.analysis.text import Number, percent, points
from sampler.presentation.table import Column, Table

MOST_ROWS = 15
# The order in which columns are left out on a narrow terminal, the largest first.
DROPPED = {LEADING: 0, NEXT: 0, SAMPLED: 0, INFINITE: 1000, TUNED: 1001}
# Behind the name of a column whose numbers have both errors.
BOTH_ERRORS = "± MCSE ± test set"
OTHER_PREDICTORS = {
    "accuracy_trained": "network trained by gradient descent",
    "accuracy_nearest_neighbour": "nearest neighbour in pixels",
}
AS_A_WHOLE = (
    "The size of the difference without the part that Monte Carlo noise adds to it; where its 95 % "
    "interval reaches 0, what it is below. Differs: single elements are further off than noise."
)
BY_ELEMENT = (
    " Pull: the difference of one element over its Monte Carlo standard error; the largest is more "
    "than noise where it is above the last column."
)


def predictor_column(predictor: str, name: str, place: int = 0) -> Column:
    """The column of a predictor; the user's own are left out in their order."""
    dropped = DROPPED.get(predictor, place + 1)
    if predictor == SAMPLED:
        return Column(name, predictor, "error", "posterior mean ± MCSE", dropped=dropped)
    return Column(name, predictor, dropped=dropped)


def orders_and_users(predictors: list[str]) -> list[str]:
    """Theories of the network itself: both orders and the user's own."""
    return [name for name in predictors if is_theory(name)]


# --- element by element


def order_parameter_table(comparison: ComparisonTree | None) -> Table:
    """Elements of U₁; the diagonal alone where there are many."""
    caption = (
        "Path by path: theory and posterior mean ± MCSE; differences are exact − theory, in per "
        "cent of √(U_ππ U_π'π') of the exact posterior, ± MCSE."
    )
    names = elements_of(comparison, "order_parameter")
    if len(names) > MOST_ROWS:
        diagonal = [(name, at) for name, at in names.items() if len(set(at)) == 1][:MOST_ROWS]
        caption += f" {len(diagonal)} of {len(names)} elements; all are in comparison.nc."
        names = dict(diagonal)
    return elements_table(comparison, "order_parameter", "Order parameter U₁", names, caption)


def head_score_table(comparison: ComparisonTree | None) -> Table:
    """Head scores of the posterior mean of U₁ beside the theory's, largest first."""
    caption = (
        "The share of |U₁| on paths through a head, relative to the largest; sampled ± MCSE. "
        "Differences are exact − theory, in per cent of the largest share."
    )
    names = elements_of(comparison, "head_score")
    if names:
        table = comparison.elements("head_score")
        sampled, several = table["sampled"].values, table.sizes["head"] > 1
        names = dict(sorted(names.items(), key=lambda item: -sampled[item[1]])) if several else {}
    return elements_table(comparison, "head_score", "Head scores", names, caption)


def elements_of(comparison: ComparisonTree | None, quantity: str) -> dict[str, tuple[int, ...]]:
    """Names and places of the elements of a quantity; none where no theory predicts it."""
    table = None if comparison is None else comparison.elements(quantity)
    if table is None or not table.sizes[AXIS]:
        return {}
    return comparison.element_names(quantity)


def elements_table(
    comparison: ComparisonTree | None,
    quantity: str,
    title: str,
    names: dict[str, tuple[int, ...]],
    caption: str,
) -> Table:
    """A row for each element: every theory, the samples, and differences in per cent.

    Per cent of the size of a row where that is stored with the elements, else of one.
    """
    if not names:
        return Table(title, [""], [], caption)
    table = comparison.elements(quantity)
    predicted = {str(who): table["predicted"].sel({AXIS: who}).values for who in table[AXIS].values}
    predicted = {who: values for who, values in predicted.items() if np.isfinite(values).any()}
    against = [who for who in predicted if who in (LEADING, NEXT)]
    against = against or orders_and_users(list(predicted))[:1]
    columns = [Column(comparison.about(quantity, "label"))]
    columns += [
        predictor_column(who, comparison.name_of(who), place)
        for place, who in enumerate([*predicted, SAMPLED])
    ]
    for place, who in enumerate(against):
        header, key = f"exact − {comparison.name_of(who)}", f"difference_{who}"
        columns.append(Column(header, key, f"{key}_error", dropped=500 + place))
    sampled, errors = table["sampled"].values, table["error"].values
    differences = [(sampled - predicted[who], errors) for who in against]
    if RELATIVE_ELEMENTS in table:
        relative, of_relative = table[RELATIVE_ELEMENTS], table[RELATIVE_ERROR]
        of_theories = [{AXIS: who} for who in against]
        differences = [(relative.sel(of).values, of_relative.sel(of).values) for of in of_theories]
    rows = [
        [
            name,
            *(float(values[at]) for values in predicted.values()),
            (float(sampled[at]), float(errors[at])),
            *(percent(float(gap[at]), float(error[at]), digits=2) for gap, error in differences),
        ]
        for name, at in names.items()
    ]
    return Table(title, columns, rows, caption)


# --- quantities as a whole


def statements_table(comparison: ComparisonTree | None, brief: bool = False) -> Table:
    """How far every theory is off in every quantity, with 95 % confidence.

    But for the brief table with intervals, and the largest pull beside what noise makes of it.
    """
    columns, rows = [Column("off by, or by less than (95 %)")], []
    if comparison is not None:
        theories = [who for who in comparison.predictors if comparison.differences(who)]
        theories = orders_and_users(theories) if brief else theories
        names = [comparison.name_of(who) for who in theories]
        columns += [
            predictor_column(who, name, place)
            for place, (who, name) in enumerate(zip(theories, names, strict=True))
        ]
        shown = comparison.quantities
        if brief:
            shown = [name for name in shown if comparison.about(name, "brief")]
            shown = [name for name in shown if comparison.about(name, "show") != NUMBER]
        elif theories:
            columns += [Column(f"95 % interval, {name}") for name in names]
            columns += [Column(f"largest pull, {name}", digits=3) for name in names]
            columns += [Column("largest pull by noise", digits=2)]
        for quantity in shown:
            cells = [comparison.difference(quantity, who) for who in theories]
            if any(cells):
                row = ["" if cell is None else difference_text(cell) for cell in cells]
                if not brief:
                    row += [interval_text(cell) for cell in cells]
                    row += [cell and cell.largest_mcse for cell in cells]
                    row += [max(cell.largest_by_chance for cell in cells if cell)]
                rows.append([comparison.about(quantity, "label"), *row])
    caption = AS_A_WHOLE if brief else AS_A_WHOLE + BY_ELEMENT
    return Table("How far theories are off", columns, rows, caption)


def interval_text(difference: Difference | None) -> str:
    """The 95 % interval; empty where nothing is said."""
    if difference is None or not difference.decided:
        return ""
    return f"{difference.number(difference.low)} to {difference.number(difference.high)}"


def difference_text(difference: Difference) -> str:
    """How far off, below what, or in a word why nothing is said."""
    return difference.text(short=True) if difference.decided else difference.state


# --- numbers by predictor


def numbers_table(run: RunResults, brief: bool = False) -> Table:
    """Everything that is a single number, by predictor: accuracy, scores, evidence."""
    title = "Accuracy, scores and evidence"
    caption = (
        "Of the test set, but for leave-one-out and evidence, which are of the training labels. "
        "Samples ± Monte Carlo error ± error by the finite number of examples, which is common to "
        "all columns; a theory has it where nothing was sampled."
    )
    summary = summary_of(run)
    if summary is None:
        return Table(title, [""], [], caption)
    tuned_by = None if run.theory is None else run.theory.attrs.get(TUNED_BY)
    predictors = [str(name) for name in summary[AXIS].values]
    columns = [
        predictor_column(who, predictor_name(who, tuned_by), place)
        for place, who in enumerate(predictors)
    ]
    columns = [with_test_error(one) if one.key == SAMPLED else one for one in columns]
    rows = []
    for quantity in map(str, summary["quantity"].values):
        about = {
            str(name): column.values.item()
            for name, column in summary.sel(quantity=quantity).items()
            if AXIS not in column.dims
        }
        no_number = about["show"] != NUMBER or np.isfinite(about["spread"])
        if no_number or (brief and not about["brief"]):
            continue
        form, digits = (percent, 3) if about["share"] else (Number, 5)
        is_sampled = math.isfinite(number_of(summary, quantity, SAMPLED))
        cells = []
        for who in predictors:
            value, error, test_error = (
                number_of(summary, quantity, who, key) for key in ("value", "error", "test_error")
            )
            has_errors = who == SAMPLED or not is_sampled
            cells.append(
                form(
                    value, error if who == SAMPLED else None, digits=digits,
                    test_error=test_error if has_errors else None,
                )
            )  # fmt: skip
        if any(cell.defined for cell in cells):
            remark = f", by {about['remark']}" if about["remark"] and not brief else ""
            rows.append([f"{about['label']}{remark}", *cells])
    return Table(title, [Column("numbers"), *columns], rows, caption)


def with_test_error(column: Column) -> Column:
    """A column of samples whose numbers have an error by the number of examples, too."""
    return replace(
        column,
        header=f"{column.header} {BOTH_ERRORS}",
        test_error="test_error",
        meaning="posterior mean ± Monte Carlo error ± error by the finite number of examples",
    )


def other_networks_table(comparison: ComparisonTree | None) -> Table:
    """By how much the exact posterior is ahead of infinite width, in scores of both."""
    caption = (
        "Infinite width is another network, not a theory of this one. Scores of the exact "
        "posterior minus its, example by example, ± standard error by the finite number of "
        "examples: of the test set; of the training labels for leave-one-out."
    )
    title, others = "Ahead of infinite width", []
    if comparison is not None:
        others = [who for who in (INFINITE, TUNED) if who in comparison.predictors]
    rows = []
    for quantity in comparison.quantities if others else ():
        scores = [comparison.ahead(quantity, who) for who in others]
        if any(scores):
            form = points if comparison.about(quantity, "share") else Number
            cells = [
                form(score.value, score.test_error, digits=2) if score else Number(None)
                for score in scores
            ]
            rows.append([comparison.about(quantity, "label"), *cells])
    columns = (
        [Column("exact posterior minus"), *map(comparison.name_of, others)] if others else [""]
    )
    return Table(title, columns, rows, caption)


def summary_of(run: RunResults) -> xr.Dataset | None:
    """The summary of a comparison; without draws that of the theory."""
    if run.comparison is not None:
        return run.comparison.summary
    return None if run.theory is None else summary_of_theory(run.theory)


def other_accuracies_table(run: RunResults) -> Table:
    """Accuracies of what is no predictor of the posterior: sub-networks, trained networks."""
    rows = []
    if run.theory is not None and "accuracy_of_sub_network" in run.theory:
        limits = run.theory["accuracy_of_sub_network"]
        rows += [
            [f"{predictor_name(INFINITE)}, only {name}", percent(float(value))]
            for name, value in zip(limits["sub_network"].values, limits.values, strict=True)
        ]
    for name, label in OTHER_PREDICTORS.items():
        if run.theory is not None and name in run.theory:
            rows.append([label, percent(float(run.theory[name]))])
    return Table("Others", ("predictor", "accuracy"), rows)


def sampled_temperature_table(comparison: ComparisonTree | None) -> Table:
    """Prior median, posterior mean ± MCSE and standard deviation of a sampled temperature."""
    rows = []
    sampled = None if comparison is None else comparison.estimate("temperature")
    if sampled is not None:
        medians = [comparison.number("temperature", who) for who in (LEADING, INFINITE)]
        median = next((value for value in medians if math.isfinite(value)), math.nan)
        spread = comparison.about("temperature", "spread")
        rows.append(["temperature", median, (sampled.value, sampled.mcse), spread])
    deviation = Column("posterior standard deviation", digits=3)
    caption = "Its prior is log-normal about the median, at which the theory is solved."
    columns = ("", "prior median", "sampled ± MCSE", deviation)
    return Table("Sampled with the rest", columns, rows, caption)


def tables_of(run: RunResults) -> list[Table]:
    """All tables of a comparison, in the order of the page."""
    comparison = run.comparison
    return [
        statements_table(comparison),
        numbers_table(run),
        other_networks_table(comparison),
        other_accuracies_table(run),
        order_parameter_table(comparison),
        head_score_table(comparison),
        sampled_temperature_table(comparison),
    ]
