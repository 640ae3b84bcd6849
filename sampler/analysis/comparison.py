"""Theories against draws: every quantity by every predictor, as one tree of labelled tables.

    elements/<quantity>   predicted [predictor, …], sampled […] and its Monte Carlo error […]
    summary               [quantity, predictor]: values, and differences as a whole

It is the content of `comparison.nc`. `table` is the summary as one data frame, a row for each
quantity and predictor: whatever is shown of numbers, on a terminal, on a page, in a notebook or in
`comparison.json`, is read from it. Figures read the elements.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr
from pydantic import TypeAdapter

from sampler.analysis.difference import (
    NOT_TRUSTED,
    RARE,
    largest_by_chance,
    relative_elements,
)
from sampler.analysis.estimates import Estimate
from sampler.analysis.names import element_name, is_overlap
from sampler.analysis.predictors import (
    AXIS,
    SAMPLED,
    TUNED_BY,
    in_order,
    is_theory,
    is_users,
    number,
    predictor_name,
    predictors_of,
)
from sampler.analysis.quantities import NUMBER, QUANTITIES, Quantity, quantities_of
from sampler.analysis.theory_and_draws import TheoryAndDraws
from sampler.analysis.verdict import (
    Rows,
    Verdict,
    doubt_of_next_order,
    saddle_point_converged,
    theory_verdict,
    trust_verdict,
    user_verdict,
)
from sampler.mcmc.diagnostics import Diagnostics

if TYPE_CHECKING:
    import pandas

ELEMENTS, SUMMARY = "elements", "summary"
# Of elements of an order parameter.
RELATIVE_ELEMENTS, RELATIVE_ERROR = "relative", "relative_error"
# Numbers of the summary. Of an array the value is its size √Σx². `error` is the Monte Carlo error
# of the value, `test_error` that by the finite number of examples; `ahead` is a score of the
# samples minus that of another network; the others are those of `difference_of`. The samples
# differ from nothing: their `state` is empty, or that their number is not trusted.
NUMBERS = (
    "value", "error", "test_error", "difference", "difference_error", "square", "low", "high",
    "below", "compared", "largest_mcse", "degrees", "ahead", "ahead_error",
)  # fmt: skip
# Attributes of a quantity besides its numbers.
ABOUT = {
    "label": object, "unit": object, "show": object, "remark": object,
    "share": int, "brief": int, "spread": float,
}  # fmt: skip

# Predictor → column of the summary → entry of one quantity.
Cells = Mapping[str, Mapping[str, Any]]


def compare(
    given: TheoryAndDraws, diagnostics: Diagnostics, cost: Mapping[str, float]
) -> "ComparisonTree":
    """Everything that is compared, and how far it is apart."""
    predictors = in_order([*given.predictions, SAMPLED])
    rows: dict[str, tuple[Quantity, Cells]] = {}
    elements = {}
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
            axes = axes_of(name, sampled.value)
            of_elements = predictors, predictions, sampled, is_overlap(name)
            elements[name] = elements_table(axes, *of_elements)
            of_heads = {"layer", "head"} <= axes.keys() and given.theory is not None
            if of_heads and "head_name" in given.theory.coords:
                elements[name] = elements[name].assign_coords(head_name=given.theory["head_name"])
        cells = {who: cell(one) for who, one in predictions.items()} | {SAMPLED: cell(sampled)}
        for who, one in predictions.items():
            if is_theory(who):
                cells[who] |= quantity.difference(one, sampled, given, is_overlap(name))
            elif quantity.ahead is not None and diagnostics.passed and sampled.trusted:
                cells[who] |= quantity.ahead(given.predictions[who], given)
        if not diagnostics.passed:
            for who, one in cells.items():
                one |= {"state": NOT_TRUSTED} if who == SAMPLED or "state" in one else {}
        rows[name] = quantity, cells
    tree = xr.DataTree.from_dict(
        {f"/{SUMMARY}": summary_table(rows, predictors)}
        | {f"/{ELEMENTS}/{name}": table for name, table in elements.items()}
    )
    tree.attrs = attributes_of(given) | {
        "diagnostics": json.dumps(diagnostics.to_json()),
        "cost": json.dumps(dict(cost)),
    }
    return ComparisonTree(tree)


def axes_of(name: str, values: Any) -> dict[str, np.ndarray]:
    """Axes of a quantity with their labels; numbered where it has none."""
    if isinstance(values, xr.DataArray):
        return {str(axis): values[axis].values for axis in values.dims}
    return {f"{name}_{place}": np.arange(size) for place, size in enumerate(values.shape)}


def attributes_of(given: TheoryAndDraws) -> dict[str, Any]:
    """Information for verdicts besides the numbers."""
    theory, attributes = given.theory, {}
    if theory is not None:
        attributes = {name: theory.attrs[name] for name in (TUNED_BY,) if name in theory.attrs}
        attributes["converged"] = int(saddle_point_converged(theory))
        widths = np.atleast_1d(theory.attrs.get("widths", ()))
        attributes |= {"width": int(min(widths))} if len(widths) else {}
    sampled = int("temperature" in given.draws)
    doubt = doubt_of_next_order(theory)
    return attributes | {"doubt_of_next_order": doubt, "temperature_sampled": sampled}


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


def cell(of: Estimate) -> dict[str, Any]:
    """One predictor in the summary: value (size of an array) and errors."""
    state = {} if of.trusted else {"state": NOT_TRUSTED}
    if of.shape:
        size = {"value": float(np.sqrt(np.nansum(np.square(of.value))))}
    else:
        errors = {"error": float(of.mcse), "test_error": float(of.test_error)}
        size = {"value": float(of.value)} | errors
    return size | state | {"remark": of.remark, "spread": of.spread}


def summary_table(
    rows: Mapping[str, tuple[Quantity, Cells]], predictors: Sequence[str]
) -> xr.Dataset:
    """Numbers and states [quantity, predictor], and attributes of each quantity."""
    columns: dict[str, tuple] = {}
    shape = len(rows), len(predictors)
    for name in (*NUMBERS, "state"):
        missing, kind = ("", object) if name == "state" else (math.nan, np.float64)
        values = [
            [cells.get(who, {}).get(name, missing) for who in predictors]
            for _, cells in rows.values()
        ]
        columns[name] = (("quantity", AXIS), np.array(values, dtype=kind).reshape(shape))
    # How the samples were obtained, and how far a sampled setting spreads.
    unknown: dict[str, Any] = {"remark": "", "spread": math.nan}
    about = [
        {**unknown, **vars(quantity), **cells.get(SAMPLED, {})} for quantity, cells in rows.values()
    ]
    for name, kind in ABOUT.items():
        columns[name] = (("quantity",), np.array([one[name] for one in about], dtype=kind))
    return xr.Dataset(columns, coords={"quantity": list(rows), AXIS: list(predictors)})


def summary_of_theory(theory: xr.Dataset) -> xr.Dataset:
    """The summary of a table of the theory without draws: single numbers of every predictor."""
    predictors, rows = predictors_of(theory), {}
    for name, quantity in QUANTITIES.items():
        if quantity.show == NUMBER and name in theory:
            values = {who: number(theory, name, who) for who in predictors}
            defined = {who: {"value": value} for who, value in values.items() if np.isfinite(value)}
            if defined:
                rows[name] = quantity, defined
    return summary_table(rows, predictors)


def frame_of(summary: xr.Dataset) -> "pandas.DataFrame":
    """A summary as one data frame, a row for each quantity and predictor."""
    return summary.to_dataframe(dim_order=["quantity", AXIS])


@dataclass(frozen=True)
class ComparisonTree:
    """Theories against draws. tree: the content of `comparison.nc`."""

    tree: xr.DataTree

    @cached_property
    def summary(self) -> xr.Dataset:
        """Values and differences as a whole, [quantity, predictor]."""
        return self.tree[SUMMARY].to_dataset()

    def table(self) -> "pandas.DataFrame":
        """One row for each quantity and predictor, by which it is indexed: the summary as a frame.

        Columns are numbers with their errors, the state of a difference, and attributes of the
        quantity.
        """
        return frame_of(self.summary)

    @cached_property
    def rows(self) -> Rows:
        """(quantity, predictor) → the row of the table."""
        return self.table().to_dict("index")

    @property
    def quantities(self) -> list[str]:
        return [str(name) for name in self.summary["quantity"].values]

    @property
    def predictors(self) -> list[str]:
        """All predictors, the samples among them."""
        return [str(name) for name in self.summary[AXIS].values]

    @property
    def names(self) -> dict[str, str]:
        """Names of the predictors; of infinite width also how it was tuned."""
        tuned_by = self.tree.attrs.get(TUNED_BY)
        return {name: predictor_name(name, tuned_by) for name in self.predictors}

    @property
    def path_names(self) -> list[str]:
        """Names of the paths; none where no U_1 is compared."""
        table = self.elements("order_parameter")
        return [] if table is None else [str(name) for name in table["path"].values]

    def elements(self, quantity: str) -> xr.Dataset | None:
        """Every element of an array: `predicted` [predictor, …], `sampled`, `error`."""
        there = ELEMENTS in self.tree.children and quantity in self.tree[ELEMENTS].children
        return self.tree[ELEMENTS][quantity].to_dataset() if there else None

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

    def largest_by_chance(self, quantity: str) -> float:
        """MCSE that noise alone does not bring an element to; 3 where nothing is compared."""
        told = [self.rows[quantity, who] for who in self.predictors if is_theory(who)]
        limits = [largest_by_chance(row["compared"], row["degrees"]) for row in told]
        return max(filter(math.isfinite, limits), default=RARE)

    # --- diagnostics and verdicts

    @cached_property
    def diagnostics(self) -> Diagnostics:
        """The verdict on the draws, with its numbers."""
        return read_diagnostics(json.loads(self.tree.attrs["diagnostics"]))

    @property
    def cost(self) -> dict[str, float]:
        """Seconds, gradients, effective draws."""
        return json.loads(self.tree.attrs["cost"])

    @cached_property
    def verdict(self) -> Verdict:
        """The verdict on the theory from the samples."""
        attributes = self.tree.attrs
        converged = attributes.get("converged")
        return theory_verdict(
            self.diagnostics,
            None if converged is None else bool(converged),
            self.rows,
            width=int(attributes["width"]) if "width" in attributes else None,
            doubt=attributes["doubt_of_next_order"],
            temperature_sampled=bool(attributes["temperature_sampled"]),
        )

    @property
    def user_verdicts(self) -> dict[str, Verdict]:
        """Name of a theory of the user's own → verdict from the samples."""
        passed, users = self.diagnostics.passed, filter(is_users, self.predictors)
        return {name: user_verdict(name, passed, self.rows) for name in users}

    @property
    def reliability(self) -> Verdict:
        """Whether the samples can be trusted, each number with its limit."""
        return trust_verdict(self.diagnostics)

    def to_json(self) -> dict[str, Any]:
        """The content of `comparison.json`: summary, headline, diagnostics and cost."""
        frame = self.table()[[*NUMBERS, "state"]].dropna(subset="value")
        summary: dict[str, dict] = {}
        for (quantity, predictor), row in frame.to_dict("index").items():
            summary.setdefault(quantity, {})[predictor] = row | {"state": row["state"] or None}
        return {
            "summary": summary,
            "headline": self.verdict.headline,
            "diagnostics": self.diagnostics.to_json(),
            "cost": self.cost,
        }


def read_diagnostics(content: Mapping[str, Any]) -> Diagnostics:
    """Read back the verdict on the draws, with the numbers of whichever algorithm."""
    of_all = Diagnostics.__dataclass_fields__
    numbers = {key: value for key, value in content.items() if key not in of_all}
    return TypeAdapter(Diagnostics).validate_python({**content, "numbers": numbers})
