"""The tables of a run, each built once: terminal, page and notebooks show the same."""

import math

import numpy as np
import xarray as xr

from sampler.analysis.comparison import Comparison, number_of, summary_of_theory
from sampler.analysis.difference import largest_by_chance
from sampler.analysis.estimates import RESOLVED_MCSE
from sampler.analysis.predictors import (
    AXIS,
    INFINITE,
    LEADING,
    NEXT,
    SAMPLED,
    TUNED,
    TUNED_BY,
    is_users,
    predictor_name,
)
from sampler.analysis.quantities import NUMBER
from sampler.analysis.results import RunResults
from sampler.analysis.text import Number, count, percent
from sampler.presentation.table import Column, Table

MOST_ROWS = 15
# The order in which columns are left out on a narrow terminal, the largest first.
DROPPED = {INFINITE: 1001, TUNED: 1000, NEXT: 0, LEADING: 0, SAMPLED: 0}
OTHER_PREDICTORS = {
    "accuracy_trained": "network trained by gradient descent",
    "accuracy_nearest_neighbour": "nearest neighbour in pixels",
}
READING = (
    "As a whole: the size of the difference without the part that Monte Carlo noise adds to it, "
    "and its 95 % interval; where the interval reaches 0, no difference was found, and its upper "
    "end says above which size there is none. MCSE is "
    f"the Monte Carlo standard error of one element. One element above {RESOLVED_MCSE:g} MCSE is "
    "more than noise; of many elements the largest has to be above the number beside it."
)


def predictor_column(predictor: str, name: str, place: int = 0) -> Column:
    """The column of a predictor; the user's own are left out in their order."""
    dropped = DROPPED.get(predictor, place + 1)
    error = "error" if predictor == SAMPLED else ""
    meaning = "posterior mean ± MCSE" if predictor == SAMPLED else ""
    return Column(name, predictor, error, meaning, dropped=dropped)


# --- element by element


def order_parameter_table(comparison: Comparison | None) -> Table:
    """Elements of U₁; the diagonal alone where there are many."""
    caption = "Path by path: theory and posterior mean ± MCSE; differences are exact − theory."
    names = {} if comparison is None else elements_shown(comparison, "order_parameter")
    if len(names) > MOST_ROWS:
        total = len(names)
        names = {name: at for name, at in names.items() if len(set(at)) == 1}
        names = dict(list(names.items())[:MOST_ROWS])
        caption += f" {len(names)} of {total} elements; all are in comparison.nc."
    return elements_table(comparison, "order_parameter", "Order parameter U₁", "U₁", names, caption)


def head_score_table(comparison: Comparison | None) -> Table:
    """Head scores of the posterior mean of U₁ beside the theory's, largest first."""
    names = {} if comparison is None else elements_shown(comparison, "head_score")
    if names and comparison.elements("head_score").sizes["head"] > 1:
        sampled = comparison.elements("head_score")["sampled"].values
        names = dict(sorted(names.items(), key=lambda item: -sampled[item[1]]))
    else:
        names = {}
    caption = "The share of |U₁| on paths through a head, relative to the largest; sampled ± MCSE."
    return elements_table(comparison, "head_score", "Head scores", "head score", names, caption)


def elements_shown(comparison: Comparison, quantity: str) -> dict[str, tuple[int, ...]]:
    """Names and places of the elements of a quantity that is compared; nothing without a theory."""
    table = comparison.elements(quantity)
    if table is None or not table.sizes[AXIS]:
        return {}
    return comparison.element_names(quantity)


def elements_table(
    comparison: Comparison | None,
    quantity: str,
    title: str,
    header: str,
    names: dict[str, tuple[int, ...]],
    caption: str,
) -> Table:
    """A row for each element: every theory, the samples, and differences in per cent."""
    if comparison is None or not names:
        return Table(title, [Column(header)], [], caption)
    table = comparison.elements(quantity)
    predictors = [str(name) for name in table[AXIS].values]
    predictors = [
        name for name in predictors if np.isfinite(table["predicted"].sel({AXIS: name})).any()
    ]
    columns = [Column(header)]
    columns += [predictor_column(name, comparison.name_of(name), place)
                for place, name in enumerate(predictors)]  # fmt: skip
    columns.append(predictor_column(SAMPLED, comparison.name_of(SAMPLED)))
    against = [name for name in predictors if name in (LEADING, NEXT)] or predictors[:1]
    for place, name in enumerate(against):
        header = f"exact − {comparison.name_of(name)}"
        columns.append(
            Column(header, f"difference_{name}", f"difference_{name}_error", dropped=500 + place)
        )
    sampled, error, rows = table["sampled"].values, table["error"].values, []
    for name, at in names.items():
        values = {who: float(table["predicted"].sel({AXIS: who}).values[at]) for who in predictors}
        value, mcse = float(sampled[at]), float(error[at])
        differences = [relative(value - values[who], mcse, value) for who in against]
        rows.append([name, *values.values(), (value, mcse), *differences])
    return Table(title, columns, rows, caption)


def relative(difference: float, error: float, size: float) -> Number:
    """A difference in per cent of the sampled number, with its error."""
    if not size:
        return Number(None)
    return percent(difference / abs(size), error / abs(size), digits=2)


# --- quantities as a whole


def statements_table(comparison: Comparison | None, brief: bool = False) -> Table:
    """How far every theory is off in every quantity, with 95 % confidence."""
    title, header = "How far theories are off", "off by, or by less than (95 %)"
    if comparison is None:
        return Table(title, [Column(header)], [])
    theories = [name for name in comparison.predictors if name != SAMPLED]
    theories = [name for name in theories if comparison.differences(name)]
    if brief:
        wide = [name for name in theories if name not in (INFINITE, TUNED)]
        theories = wide or theories
    rows = []
    for quantity in comparison.quantities:
        if comparison.about(quantity, "show") == NUMBER and brief:
            continue
        cells = [comparison.difference(quantity, name) for name in theories]
        shown = comparison.about(quantity, "brief") or not brief
        if shown and any(one is not None for one in cells):
            texts = ["" if one is None else one.text(short=True) for one in cells]
            rows.append([comparison.about(quantity, "label"), *texts])
    columns = [predictor_column(name, comparison.name_of(name), place)
               for place, name in enumerate(theories)]  # fmt: skip
    return Table(title, [Column(header), *columns], rows, READING)


def differences_table(comparison: Comparison | None, predictor: str) -> Table:
    """One theory in every quantity: as a whole with its interval, median and largest element."""
    columns = (
        "quantity", "as a whole", "95 % interval", "elements",
        Column("median, MCSE", digits=3), Column("largest, MCSE", digits=3),
        Column("largest by chance, MCSE", digits=2),
    )  # fmt: skip
    rows = []
    for quantity, one in ({} if comparison is None else comparison.differences(predictor)).items():
        interval = f"{one.number(one.low)} to {one.number(one.high)}" if one.decided else ""
        numbers = one.median_mcse, one.largest_mcse, largest_by_chance(one.elements)
        label = comparison.about(quantity, "label")
        rows.append([label, one.text(), interval, count(one.elements), *numbers])
    name = predictor_name(predictor) if comparison is None else comparison.name_of(predictor)
    return Table(f"{name.capitalize()} against the exact posterior", columns, rows, READING)


# --- numbers by predictor


def numbers_table(run: RunResults, brief: bool = False) -> Table:
    """Everything that is a single number, by predictor: accuracy, scores, evidence."""
    summary, title = summary_of(run), "Accuracy, scores and evidence"
    caption = (
        "Of the test set, but for leave-one-out and evidence, which are of the training labels. "
        "Samples ± Monte Carlo error; the error by the finite test set is common to all columns."
    )
    if summary is None:
        return Table(title, [Column("")], [], caption)
    tuned_by = None if run.theory is None else run.theory.attrs.get(TUNED_BY)
    predictors = [str(name) for name in summary[AXIS].values]
    columns = [
        predictor_column(name, predictor_name(name, tuned_by), place)
        for place, name in enumerate(predictors)
    ]
    columns.append(Column("test set error", "test_error", digits=2, dropped=1500))
    rows = []
    for place, quantity in enumerate(map(str, summary["quantity"].values)):
        about = {name: summary[name].values[place] for name in ("label", "show", "share", "brief")}
        remark, spread = str(summary["remark"].values[place]), summary["spread"].values[place]
        if about["show"] != NUMBER or (brief and not about["brief"]) or np.isfinite(spread):
            continue
        cells = [number_cell(summary, quantity, name, bool(about["share"])) for name in predictors]
        if not any(cell.defined for cell in cells):
            continue
        error = number_of(summary, quantity, SAMPLED, "test_error")
        if math.isnan(error):
            error = number_of(summary, quantity, predictors[0], "test_error")
        error = percent(error, digits=2) if about["share"] else error
        label = str(about["label"])
        if remark and not brief:
            label = f"{label}, by {remark}"
        rows.append([label, *cells, error])
    return Table(title, [Column("numbers"), *columns], rows, caption)


def summary_of(run: RunResults) -> xr.Dataset | None:
    """The summary of a comparison; without draws that of the theory."""
    if run.comparison is not None:
        return run.comparison.summary
    return None if run.theory is None else summary_of_theory(run.theory)


def number_cell(summary: xr.Dataset, quantity: str, predictor: str, share: bool) -> Number:
    value, error = (number_of(summary, quantity, predictor, name) for name in ("value", "error"))
    error = error if predictor == SAMPLED else None
    return percent(value, error) if share else Number(value, error, digits=5)


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


def sampled_temperature_table(comparison: Comparison | None) -> Table:
    """Prior median, posterior mean ± MCSE and standard deviation of a sampled temperature."""
    rows = []
    known = None if comparison is None else comparison.estimate("temperature")
    if known is not None:
        median = comparison.number("temperature", LEADING)
        if math.isnan(median):
            median = comparison.number("temperature", INFINITE)
        spread = comparison.about("temperature", "spread")
        rows.append(["temperature", median, (known.value, known.mcse), spread])
    deviation = Column("posterior standard deviation", digits=3)
    caption = "Its prior is log-normal about the median, at which the theory is solved."
    columns = ("", "prior median", "sampled ± MCSE", deviation)
    return Table("Sampled with the rest", columns, rows, caption)


def tables_of(run: RunResults) -> list[Table]:
    """All tables of a comparison, in the order of the page."""
    comparison = run.comparison
    theories = [] if comparison is None else comparison.predictors
    others = [name for name in theories if name in (LEADING, NEXT) or is_users(name)]
    others = others or [name for name in theories if name == INFINITE]
    return [
        statements_table(comparison),
        numbers_table(run),
        other_accuracies_table(run),
        order_parameter_table(comparison),
        head_score_table(comparison),
        sampled_temperature_table(comparison),
        *(differences_table(comparison, name) for name in others),
    ]
