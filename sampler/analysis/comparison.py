"""Theories against draws: every quantity by every predictor, as one tree of labelled tables.

    elements/<quantity>   predicted [predictor, …], sampled […] and its Monte Carlo error […]
    summary               [quantity, predictor]: values, and differences as a whole

It is the content of `comparison.nc`; `comparison.json` has the summary, and `table` is a tidy frame
of it from which the terminal, the report, notebooks and sweeps take what they show.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from sampler.analysis.difference import NOT_TRUSTED, RELATIVE, Difference
from sampler.analysis.estimates import Estimate
from sampler.analysis.names import element_name, is_overlap
from sampler.analysis.predictors import (
    AXIS,
    LEADING,
    SAMPLED,
    TUNED_BY,
    in_order,
    is_users,
    number,
    predictor_name,
    predictors_of,
)
from sampler.analysis.quantities import (
    HEADS,
    NUMBER,
    PATHS,
    QUANTITIES,
    axes_of_quantity,
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
from sampler.storage.results import from_json, to_json

if TYPE_CHECKING:
    import pandas

ELEMENTS, SUMMARY = "elements", "summary"
# Numbers of the summary. Of an array the value is its size √Σx². `error` is the Monte Carlo error
# of the value, `test_error` that by the finite number of examples; the others are those of a
# `Difference`, whose value is `difference` with the error `difference_error`.
OF_DIFFERENCE = {
    "value": "difference",
    "error": "difference_error",
    **{name: name for name in ("square", "low", "high", "below", "elements")},
    **{name: name for name in ("median_mcse", "largest_mcse")},
}
NUMBERS = ("value", "error", "test_error", *OF_DIFFERENCE.values())
# What a quantity is, beside its numbers.
ABOUT = {
    "label": object, "unit": object, "show": object, "remark": object,
    "share": int, "brief": int, "spread": float,
}  # fmt: skip
STORED_IN_JSON = (
    "value", "error", "test_error", "difference", "difference_error", "low", "high", "below",
    "state",
)  # fmt: skip


def compare(
    given: TheoryAndDraws, diagnostics: Diagnostics, cost: Mapping[str, float]
) -> "Comparison":
    """Everything that is compared, and how far it is apart."""
    predictors = in_order([*given.predictions, SAMPLED])
    rows, elements = {}, {}
    for name, quantity in quantities_of(given).items():
        sampled = quantity.sampled(given)
        predictions = {
            predictor: value
            for predictor, of in given.predictions.items()
            if (value := quantity.prediction(of, given)) is not None
        }
        if sampled is None:
            predictions = {who: v for who, v in predictions.items() if not np.ndim(v.value)}
            if not any(np.isfinite(value.value) for value in predictions.values()):
                continue
            sampled = Estimate(math.nan)
        axes = axes_of_quantity(name, given, sampled)
        if axes:
            elements[name] = elements_table(axes, predictors, predictions, sampled)
            if quantity.show == HEADS and "head_name" in given.theory.coords:
                elements[name] = elements[name].assign_coords(head_name=given.theory["head_name"])
        symmetric = is_overlap(name)
        cells = {SAMPLED: cell_of(sampled)}
        for predictor, value in predictions.items():
            cells[predictor] = cell_of(value)
            found = quantity.difference(value, sampled, given, symmetric)
            if found is not None:
                state = found.state if diagnostics.passed else NOT_TRUSTED
                cells[predictor] |= difference_cell(replace(found, state=state))
        about = {"label": quantity.label, "unit": quantity.unit, "show": quantity.show}
        about |= {"share": int(quantity.share), "brief": int(quantity.brief)}
        about |= {"remark": sampled.remark}
        rows[name] = (about | {"spread": sampled.spread}, cells)
    tree = xr.DataTree.from_dict(
        {f"/{SUMMARY}": summary_table(rows, predictors)}
        | {f"/{ELEMENTS}/{name}": table for name, table in elements.items()}
    )
    tree.attrs = attributes_of(given) | {
        "diagnostics": json.dumps(to_json(diagnostics)),
        "cost": json.dumps(dict(cost)),
    }
    return Comparison(tree)


def elements_table(
    axes: Mapping[str, np.ndarray],
    predictors: list[str],
    predictions: Mapping[str, Estimate],
    sampled: Estimate,
) -> xr.Dataset:
    """Every element by every predictor, NaN where one of them does not predict it."""
    names = [name for name in predictors if name in predictions]
    shape = np.shape(sampled.value)
    values = np.array([predictions[name].value for name in names], dtype=np.float64)
    columns = {
        "predicted": ((AXIS, *axes), values.reshape(len(names), *shape)),
        "sampled": (tuple(axes), np.asarray(sampled.value, dtype=np.float64)),
        "error": (tuple(axes), np.asarray(sampled.mcse, dtype=np.float64)),
    }
    return xr.Dataset(columns, coords={AXIS: names, **axes})


def cell_of(estimate: Estimate) -> dict[str, Any]:
    """Value and errors of a number; of an array its size alone."""
    if np.ndim(estimate.value):
        return {"value": float(np.sqrt(np.nansum(np.square(estimate.value))))}
    numbers = {"value": estimate.value, "error": estimate.mcse, "test_error": estimate.test_error}
    return {name: float(number) for name, number in numbers.items()}


def difference_cell(found: Difference) -> dict[str, Any]:
    numbers = {stored: float(getattr(found, name)) for name, stored in OF_DIFFERENCE.items()}
    return numbers | {"state": found.state}


def summary_table(rows: Mapping[str, tuple[dict, dict]], predictors: list[str]) -> xr.Dataset:
    shape = (len(rows), len(predictors))
    columns: dict[str, tuple] = {}
    for name in (*NUMBERS, "state"):
        values = np.full(shape, "" if name == "state" else math.nan, dtype=object)
        for row, (_, cells) in enumerate(rows.values()):
            for place, predictor in enumerate(predictors):
                values[row, place] = cells.get(predictor, {}).get(name, values[row, place])
        kind = object if name == "state" else np.float64
        columns[name] = (("quantity", AXIS), values.astype(kind))
    for name, kind in ABOUT.items():
        values = [about[name] for about, _ in rows.values()]
        columns[name] = (("quantity",), np.array(values, dtype=kind))
    return xr.Dataset(columns, coords={"quantity": list(rows), AXIS: predictors})


def number_of(summary: xr.Dataset, quantity: str, predictor: str, name: str = "value") -> float:
    """A number of a summary; NaN where there is none."""
    cell = cell_of_summary(summary, quantity, predictor, name)
    return math.nan if cell is None else float(cell)


def cell_of_summary(summary: xr.Dataset, quantity: str, predictor: str, name: str) -> Any:
    """What a variable has of one quantity by one predictor; None where there is no such entry."""
    there = quantity in summary["quantity"].values and predictor in summary[AXIS].values
    return summary[name].sel({"quantity": quantity, AXIS: predictor}).values[()] if there else None


def difference_at(summary: xr.Dataset, quantity: str, predictor: str) -> Difference | None:
    """A predictor against the samples as a whole; None where nothing is said of it."""
    state = cell_of_summary(summary, quantity, predictor, "state")
    if not state:
        return None
    numbers = {
        name: number_of(summary, quantity, predictor, stored)
        for name, stored in OF_DIFFERENCE.items()
    }
    numbers["elements"] = int(numbers["elements"])
    unit = str(summary["unit"].sel(quantity=quantity).values)
    return Difference(str(state), **numbers, unit=unit or RELATIVE)


def summary_of_theory(theory: xr.Dataset) -> xr.Dataset:
    """The summary of a table of the theory without draws: single numbers of every predictor."""
    predictors, rows = predictors_of(theory), {}
    for name, row in QUANTITIES.items():
        if row.show == NUMBER and name in theory:
            values = {who: number(theory, name, who) for who in predictors}
            cells = {who: {"value": one} for who, one in values.items() if math.isfinite(one)}
            about = {"label": row.label, "unit": "", "show": NUMBER, "remark": ""}
            about |= {"share": int(row.share), "brief": int(row.brief), "spread": math.nan}
            if cells:
                rows[name] = (about, cells)
    return summary_table(rows, predictors)


def attributes_of(given: TheoryAndDraws) -> dict[str, Any]:
    """What verdicts need beside the numbers."""
    converged, doubt = saddle_point_converged(given.theory), doubt_of_next_order(given.theory)
    known = {} if converged is None else {"converged": int(converged)}
    if given.theory is not None and TUNED_BY in given.theory.attrs:
        known[TUNED_BY] = given.theory.attrs[TUNED_BY]
    sampled = int("temperature" in given.draws)
    return known | {"doubt_of_next_order": doubt or "", "temperature_sampled": sampled}


@dataclass(frozen=True)
class Comparison:
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
        errors = (self.number(quantity, predictor, name) for name in ("error", "test_error"))
        mcse, test_error = errors
        remark = str(self.about(quantity, "remark")) if predictor == SAMPLED else ""
        return Estimate(value, mcse, test_error=test_error, remark=remark)

    def difference(self, quantity: str, predictor: str = LEADING) -> Difference | None:
        """A predictor against the samples as a whole; None where nothing is said of it."""
        return difference_at(self.summary, quantity, predictor)

    def differences(self, predictor: str = LEADING) -> dict[str, Difference]:
        """Quantity → a predictor against the samples, of those that something is said of."""
        found = {name: self.difference(name, predictor) for name in self.quantities}
        return {name: one for name, one in found.items() if one is not None}

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
        known = attributes.get("converged")
        predictors = [name for name in self.predictors if name != SAMPLED and not is_users(name)]
        verdict = theory_verdict(
            self.diagnostics.passed,
            None if known is None else bool(known),
            {name: self.differences(name) for name in predictors},
            self.labels,
            bool(attributes["temperature_sampled"]),
            attributes["doubt_of_next_order"] or None,
            bool(self.user_theories),
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

    def table(self, elements: bool = True) -> "pandas.DataFrame":
        """A tidy frame: a row for each quantity and predictor, and for each element.

        Elements are those of U_1 and head scores; their `difference` is sampled − predicted with
        its Monte Carlo error, that of a quantity as a whole a size in its `unit`.
        """
        import pandas

        rows = []
        for quantity in self.quantities:
            about = {"quantity": quantity, "element": "", "unit": self.about(quantity, "unit")}
            for predictor in self.predictors:
                cell = self.summary.sel({"quantity": quantity, AXIS: predictor})
                numbers = {name: float(cell[name]) for name in NUMBERS}
                if np.isfinite([*numbers.values()]).any():
                    state = {"state": str(cell["state"].values)}
                    rows.append(about | {AXIS: predictor} | numbers | state)
            if elements and self.about(quantity, "show") in (PATHS, HEADS):
                rows += self._element_rows(quantity)
        columns = ["quantity", "element", AXIS, *NUMBERS, "state", "unit"]
        return pandas.DataFrame(rows, columns=columns)

    def _element_rows(self, quantity: str) -> list[dict[str, Any]]:
        table, rows = self.elements(quantity), []
        predicted = {str(name): table["predicted"].sel({AXIS: name}).values
                     for name in table[AXIS].values}  # fmt: skip
        sampled, error = table["sampled"].values, table["error"].values
        for name, place in self.element_names(quantity).items():
            about = {"quantity": quantity, "element": name, "state": "", "unit": ""}
            for predictor, values in predicted.items():
                difference = float(sampled[place] - values[place])
                numbers = {"value": float(values[place]), "difference": difference}
                numbers["difference_error"] = float(error[place])
                rows.append(about | {AXIS: predictor} | numbers)
            numbers = {"value": float(sampled[place]), "error": float(error[place])}
            rows.append(about | {AXIS: SAMPLED} | numbers)
        return rows

    def element_names(self, quantity: str) -> dict[str, tuple[int, ...]]:
        """Name → place of every defined element; of a symmetric matrix its upper triangle."""
        sampled = self.elements(quantity)["sampled"].values
        shown = np.isfinite(sampled)
        if is_overlap(quantity):
            shown = np.triu(np.ones(shown.shape, dtype=bool))
        table, heads = self.elements(quantity), None
        if "head_name" in table.coords:
            heads = table["head_name"].values
        places = [tuple(place) for place in np.argwhere(shown).tolist()]
        return {element_name(quantity, at, self.path_names, heads): at for at in places}

    def to_json(self) -> dict[str, Any]:
        """The content of `comparison.json`: summary, headline, diagnostics and cost."""
        summary: dict[str, dict] = {}
        for quantity in self.quantities:
            cells = self.summary.sel(quantity=quantity)
            for predictor in self.predictors:
                cell = cells.sel({AXIS: predictor})
                if math.isfinite(float(cell["value"])):
                    stored = {name: cell[name].values.item() for name in STORED_IN_JSON}
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
