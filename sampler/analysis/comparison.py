"""Theories against draws: every quantity by every predictor, as one tree of labelled tables.

    elements/<quantity>   predicted [predictor, …], sampled […] and its Monte Carlo error […]
    summary               [quantity, predictor]: values, and differences as a whole

It is the content of `comparison.nc`; `comparison.json` has the summary, and `table` is a tidy frame
of it from which the terminal, the report, notebooks and sweeps take what they show.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from sampler.analysis.difference import (
    NOT_TRUSTED,
    RARE,
    RELATIVE,
    Difference,
    relative_elements,
)
from sampler.analysis.estimates import Estimate
from sampler.analysis.names import element_name, is_overlap
from sampler.analysis.predictors import (
    AXIS,
    LEADING,
    OTHER_NETWORKS,
    SAMPLED,
    TUNED_BY,
    in_order,
    is_theory,
    is_users,
    number,
    predictor_name,
    predictors_of,
)
from sampler.analysis.quantities import (
    HEADS,
    NUMBER,
    QUANTITIES,
    Quantity,
    quantities_of,
)
from sampler.analysis.theory_and_draws import TheoryAndDraws
from sampler.analysis.verdict import (
    Verdict,
    doubt_of_next_order,
    saddle_point_converged,
    theory_verdict,
    trust_verdict,
    user_verdict,
)
from sampler.mcmc.diagnostics import Diagnostics
from sampler.storage.files import from_json, to_json

if TYPE_CHECKING:
    import pandas

ELEMENTS, SUMMARY = "elements", "summary"
# Of elements of an order parameter.
RELATIVE_ELEMENTS, RELATIVE_ERROR = "relative", "relative_error"
# Numbers of the summary. Of an array the value is its size √Σx². `error` is the Monte Carlo error
# of the value, `test_error` that by the finite number of examples; the others are those of a
# `Difference`, whose value is `difference` with the error `difference_error`. The samples differ
# from nothing: their `state` is empty, or says that their number is not trusted.
OF_DIFFERENCE = {
    "value": "difference",
    "error": "difference_error",
    **{name: name for name in ("square", "low", "high", "below")},
    # Not "elements": xarray does not load a variable with the name of a group.
    "elements": "compared",
    **{name: name for name in ("median_mcse", "largest_mcse", "degrees")},
}
# Of scores, beside other networks: those of the samples minus theirs on the same examples, with
# the standard error of this difference by the finite number of examples.
AHEAD = ("ahead", "ahead_error")
NUMBERS = ("value", "error", "test_error", *OF_DIFFERENCE.values(), *AHEAD)
# What a quantity is, beside its numbers.
ABOUT = {
    "label": object, "unit": object, "show": object, "remark": object,
    "share": int, "brief": int, "spread": float,
}  # fmt: skip
STORED_IN_JSON = (
    "value", "error", "test_error", "difference", "difference_error", "low", "high", "below",
    *AHEAD, "state",
)  # fmt: skip


def compare(
    given: TheoryAndDraws, diagnostics: Diagnostics, cost: Mapping[str, float]
) -> "ComparisonTree":
    """Everything that is compared, and how far it is apart."""
    predictors = in_order([*given.predictions, SAMPLED])
    rows, elements = {}, {}
    for name, quantity in quantities_of(given).items():
        sampled = quantity.sampled(given)
        predictions = {who: quantity.prediction(of, given) for who, of in given.predictions.items()}
        predictions = {who: value for who, value in predictions.items() if value is not None}
        if sampled is None:
            sampled = Estimate(math.nan)
            predictions = {who: value for who, value in predictions.items() if not value.shape}
            if not any(np.isfinite(value.value) for value in predictions.values()):
                continue
        if sampled.shape:
            axes = given.axes_of(name, sampled.shape)
            of_elements = predictors, predictions, sampled, is_overlap(name)
            elements[name] = elements_table(axes, *of_elements)
            if quantity.show == HEADS and "head_name" in given.theory.coords:
                elements[name] = elements[name].assign_coords(head_name=given.theory["head_name"])
        differences = {
            who: quantity.difference(value, sampled, given, is_overlap(name))
            for who, value in predictions.items()
            if is_theory(who)
        }
        ahead = {}
        if quantity.ahead is not None and diagnostics.passed and sampled.trusted:
            others = {who: of for who, of in given.predictions.items() if who in OTHER_NETWORKS}
            ahead = {who: quantity.ahead(of, given) for who, of in others.items()}
        if not diagnostics.passed:
            differences = {
                who: difference and replace(difference, state=NOT_TRUSTED)
                for who, difference in differences.items()
            }
            sampled = replace(sampled, trusted=False)
        rows[name] = Row(quantity, predictions | {SAMPLED: sampled}, differences, ahead)
    tree = xr.DataTree.from_dict(
        {f"/{SUMMARY}": summary_table(rows, predictors)}
        | {f"/{ELEMENTS}/{name}": table for name, table in elements.items()}
    )
    tree.attrs = attributes_of(given) | {
        "diagnostics": json.dumps(to_json(diagnostics)),
        "cost": json.dumps(dict(cost)),
    }
    return ComparisonTree(tree)


def attributes_of(given: TheoryAndDraws) -> dict[str, Any]:
    """What verdicts need beside the numbers."""
    converged, doubt = saddle_point_converged(given.theory), doubt_of_next_order(given.theory)
    attributes: dict[str, Any] = {} if converged is None else {"converged": int(converged)}
    if given.theory is not None and TUNED_BY in given.theory.attrs:
        attributes[TUNED_BY] = given.theory.attrs[TUNED_BY]
    sampled = int("temperature" in given.draws)
    return attributes | {"doubt_of_next_order": doubt or "", "temperature_sampled": sampled}


def elements_table(
    axes: Mapping[str, np.ndarray],
    predictors: Sequence[str],
    predictions: Mapping[str, Estimate],
    sampled: Estimate,
    symmetric: bool = False,
) -> xr.Dataset:
    """Every element by every predictor that predicts the quantity.

    Of a symmetric matrix with the relative differences of `relative_elements`.
    """
    names = [name for name in predictors if name in predictions]
    values = np.array([predictions[name].value for name in names], dtype=np.float64)
    columns = {
        "predicted": ((AXIS, *axes), values.reshape(len(names), *sampled.shape)),
        "sampled": (tuple(axes), np.asarray(sampled.value, dtype=np.float64)),
        "error": (tuple(axes), np.asarray(sampled.mcse, dtype=np.float64)),
    }
    if symmetric and names:
        found = zip(*(relative_elements(one, sampled) for one in values), strict=True)
        for name, of_all in zip((RELATIVE_ELEMENTS, RELATIVE_ERROR), found, strict=True):
            columns[name] = ((AXIS, *axes), np.array(of_all))
    return xr.Dataset(columns, coords={AXIS: names, **axes})


# --- the summary


@dataclass(frozen=True)
class Row:
    """A quantity by every predictor, the samples among them, and how far theories are off.

    ahead  other network → by how much the samples are ahead of it, of a score
    """

    quantity: Quantity
    estimates: Mapping[str, Estimate]
    differences: Mapping[str, Difference | None] = field(default_factory=dict)
    ahead: Mapping[str, Estimate | None] = field(default_factory=dict)

    @property
    def about(self) -> dict[str, Any]:
        """Attributes of the quantity, and of how its samples were obtained."""
        words = {name: getattr(self.quantity, name) for name in ("label", "unit", "show")}
        flags = {name: int(getattr(self.quantity, name)) for name in ("share", "brief")}
        sampled = self.estimates.get(SAMPLED, Estimate(math.nan))
        return words | flags | {"remark": sampled.remark, "spread": sampled.spread}

    def cell(self, predictor: str) -> dict[str, Any]:
        """Value, errors and difference of one predictor; of an array its size as the value."""
        estimate, difference = self.estimates.get(predictor), self.differences.get(predictor)
        ahead = self.ahead.get(predictor)
        cell: dict[str, Any] = {}
        if estimate is not None and estimate.shape:
            cell["value"] = float(np.sqrt(np.nansum(np.square(estimate.value))))
        elif estimate is not None:
            cell = {"value": float(estimate.value), "error": float(estimate.mcse)}
            cell["test_error"] = float(estimate.test_error)
        if estimate is not None and not estimate.trusted:
            cell["state"] = NOT_TRUSTED
        if difference is not None:
            cell |= {stored: float(getattr(difference, n)) for n, stored in OF_DIFFERENCE.items()}
            cell["state"] = difference.state
        if ahead is not None:
            cell |= {"ahead": float(ahead.value), "ahead_error": float(ahead.test_error)}
        return cell


def summary_table(rows: Mapping[str, Row], predictors: Sequence[str]) -> xr.Dataset:
    """Numbers and states [quantity, predictor], and what each quantity is."""
    cells = [[row.cell(predictor) for predictor in predictors] for row in rows.values()]
    columns: dict[str, tuple] = {}
    for name in (*NUMBERS, "state"):
        missing, kind = ("", object) if name == "state" else (math.nan, np.float64)
        values = [[cell.get(name, missing) for cell in of_row] for of_row in cells]
        shape = len(rows), len(predictors)
        columns[name] = (("quantity", AXIS), np.array(values, dtype=kind).reshape(shape))
    for name, kind in ABOUT.items():
        values = [row.about[name] for row in rows.values()]
        columns[name] = (("quantity",), np.array(values, dtype=kind))
    return xr.Dataset(columns, coords={"quantity": list(rows), AXIS: list(predictors)})


def summary_of_theory(theory: xr.Dataset) -> xr.Dataset:
    """The summary of a table of the theory without draws: single numbers of every predictor."""
    predictors, rows = predictors_of(theory), {}
    for name, quantity in QUANTITIES.items():
        if quantity.show == NUMBER and name in theory:
            values = {who: number(theory, name, who) for who in predictors}
            defined = {who: Estimate(value) for who, value in values.items() if np.isfinite(value)}
            if defined:
                rows[name] = Row(quantity, defined)
    return summary_table(rows, predictors)


def cell_of(summary: xr.Dataset, quantity: str, predictor: str, name: str = "value") -> Any:
    """What a variable has of one quantity by one predictor; None where there is no such entry."""
    rows, columns = (summary.variables[axis].values.tolist() for axis in ("quantity", AXIS))
    if quantity not in rows or predictor not in columns:
        return None
    # Not by `sel`, which takes a hundred times as long: there are a thousand cells.
    return summary.variables[name].values.item(rows.index(quantity), columns.index(predictor))


def number_of(summary: xr.Dataset, quantity: str, predictor: str, name: str = "value") -> float:
    """A number of a summary; NaN where there is none."""
    value = cell_of(summary, quantity, predictor, name)
    return math.nan if value is None else float(value)


def difference_at(summary: xr.Dataset, quantity: str, predictor: str) -> Difference | None:
    """A predictor against the samples as a whole; None where nothing is said of it."""
    state = cell_of(summary, quantity, predictor, "state")
    if not state or predictor == SAMPLED:
        return None
    numbers = {
        name: number_of(summary, quantity, predictor, stored)
        for name, stored in OF_DIFFERENCE.items()
    }
    numbers["elements"] = int(numbers["elements"])
    unit = str(summary["unit"].sel(quantity=quantity).values)
    return Difference(str(state), **numbers, unit=unit or RELATIVE)


@dataclass(frozen=True)
class ComparisonTree:
    """Theories against draws. tree: the content of `comparison.nc`."""

    tree: xr.DataTree

    @cached_property
    def summary(self) -> xr.Dataset:
        """Values and differences as a whole, [quantity, predictor]."""
        return self.tree[SUMMARY].to_dataset()

    @property
    def quantities(self) -> list[str]:
        return [str(name) for name in self.summary["quantity"].values]

    @property
    def predictors(self) -> list[str]:
        """All predictors, the samples among them."""
        return [str(name) for name in self.summary[AXIS].values]

    @property
    def user_theories(self) -> list[str]:
        return [name for name in self.predictors if is_users(name)]

    def elements(self, quantity: str) -> xr.Dataset | None:
        """Every element of an array: `predicted` [predictor, …], `sampled`, `error`."""
        there = ELEMENTS in self.tree.children and quantity in self.tree[ELEMENTS].children
        return self.tree[ELEMENTS][quantity].to_dataset() if there else None

    def about(self, quantity: str, name: str) -> Any:
        """Label, unit, show, remark, share or spread of a quantity."""
        return self.summary[name].sel(quantity=quantity).values.item()

    def name_of(self, predictor: str) -> str:
        """What a predictor is called; infinite width with how it was tuned."""
        return predictor_name(predictor, self.tree.attrs.get(TUNED_BY))

    def number(self, quantity: str, predictor: str, name: str = "value") -> float:
        """A number of the summary; NaN where there is none."""
        return number_of(self.summary, quantity, predictor, name)

    def estimate(self, quantity: str, predictor: str = SAMPLED) -> Estimate | None:
        """A number with its errors; None where there is none."""
        value = self.number(quantity, predictor)
        if math.isnan(value):
            return None
        mcse, test_error = (self.number(quantity, predictor, n) for n in ("error", "test_error"))
        estimate = Estimate(value, mcse, test_error=test_error)
        if predictor != SAMPLED:
            return estimate
        state = cell_of(self.summary, quantity, SAMPLED, "state")
        remark = str(self.about(quantity, "remark"))
        return replace(estimate, remark=remark, trusted=state != NOT_TRUSTED)

    def difference(self, quantity: str, predictor: str = LEADING) -> Difference | None:
        """A predictor against the samples as a whole; None where nothing is said of it."""
        return difference_at(self.summary, quantity, predictor)

    def ahead(self, quantity: str, predictor: str) -> Estimate | None:
        """A score of the samples minus that of another network; None where it is not known.

        `test_error` is that of the difference, example by example.
        """
        value, test_error = (self.number(quantity, predictor, name) for name in AHEAD)
        if math.isnan(value):
            return None
        return Estimate(value, self.number(quantity, SAMPLED, "error"), test_error=test_error)

    def differences(self, predictor: str = LEADING) -> dict[str, Difference]:
        """Quantity → a predictor against the samples, of those that something is said of."""
        of_all = {name: self.difference(name, predictor) for name in self.quantities}
        return {name: difference for name, difference in of_all.items() if difference is not None}

    def largest_by_chance(self, quantity: str) -> float:
        """MCSE that noise alone does not bring an element to; 3 where nothing is compared."""
        found = (self.difference(quantity, who) for who in self.predictors)
        limits = [one.largest_by_chance for one in found if one is not None]
        return max(filter(math.isfinite, limits), default=RARE)

    @cached_property
    def diagnostics(self) -> Diagnostics:
        """The verdict on the draws, with its numbers."""
        return read_diagnostics(json.loads(self.tree.attrs["diagnostics"]))

    @property
    def cost(self) -> dict[str, float]:
        """Seconds, gradients, effective draws."""
        return json.loads(self.tree.attrs["cost"])

    @property
    def labels(self) -> dict[str, str]:
        """Quantity → what it is called."""
        return {name: str(self.about(name, "label")) for name in self.quantities}

    @cached_property
    def verdict(self) -> Verdict:
        """What the samples allow to say of the theory."""
        attributes = self.tree.attrs
        converged = attributes.get("converged")
        predictors = [name for name in self.predictors if is_theory(name) and not is_users(name)]
        verdict = theory_verdict(
            self.diagnostics.passed,
            None if converged is None else bool(converged),
            {name: self.differences(name) for name in predictors},
            self.labels,
            bool(attributes["temperature_sampled"]),
            attributes["doubt_of_next_order"] or None,
            bool(self.user_theories),
            bool(set(OTHER_NETWORKS) & set(self.predictors)),
        )
        warning = self.diagnostics.warning
        return replace(verdict, reasons=(warning, *verdict.reasons)) if warning else verdict

    @property
    def user_verdicts(self) -> dict[str, Verdict]:
        """Name of a theory of the user's own → what the samples allow to say of it."""
        passed = self.diagnostics.passed
        return {
            name: user_verdict(name, passed, self.differences(name), self.labels)
            for name in self.user_theories
        }

    @property
    def reliability(self) -> Verdict:
        """Whether the samples can be trusted, every number beside its limit."""
        return trust_verdict(self.diagnostics)

    @property
    def path_names(self) -> list[str]:
        """Names of the paths; none where no U_1 is compared."""
        table = self.elements("order_parameter")
        return [] if table is None else [str(name) for name in table["path"].values]

    def table(self) -> "pandas.DataFrame":
        """One row for each quantity and predictor, by which it is indexed: the summary as a frame.

        Columns are numbers with their errors, the state of a difference, and what the quantity is.
        """
        return self.summary.to_dataframe(dim_order=["quantity", AXIS])

    def element_names(self, quantity: str) -> dict[str, tuple[int, ...]]:
        """Name → place of every defined element; of a symmetric matrix its upper triangle."""
        table = self.elements(quantity)
        shown = np.isfinite(table["sampled"].values)
        if is_overlap(quantity):
            shown = np.triu(np.ones(shown.shape, dtype=bool))
        heads = table["head_name"].values if "head_name" in table.coords else None
        places = [tuple(place) for place in np.argwhere(shown).tolist()]
        layers = table["layer"].values.tolist() if "layer" in table.coords else ()
        return {element_name(quantity, at, self.path_names, heads, layers): at for at in places}

    def to_json(self) -> dict[str, Any]:
        """The content of `comparison.json`: summary, headline, diagnostics and cost."""
        summary: dict[str, dict] = {}
        for quantity in self.quantities:
            cells = self.summary[list(STORED_IN_JSON)].sel(quantity=quantity)
            for predictor in self.predictors:
                cell = cells.sel({AXIS: predictor})
                if np.isfinite(cell["value"]):
                    stored = {str(name): value.item() for name, value in cell.items()}
                    stored["state"] = stored["state"] or None
                    summary.setdefault(quantity, {})[predictor] = stored
        return {
            "summary": summary,
            "headline": self.verdict.headline,
            "diagnostics": to_json(self.diagnostics),
            "cost": self.cost,
        }


def read_diagnostics(content: Mapping[str, Any]) -> Diagnostics:
    """Read back the verdict on the draws, with the numbers of whichever algorithm."""
    of_all = Diagnostics.__dataclass_fields__
    numbers = {key: value for key, value in content.items() if key not in of_all}
    return from_json(Diagnostics, {**content, "numbers": numbers})
