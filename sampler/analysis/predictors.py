"""The axis `predictor`: predictors, their names, and one table of all of them.

Tables of the theory and of a comparison have an entry for each predictor along one axis; missing
predictions are NaN.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import xarray as xr

# Entries of the axis: the theory to both orders in 1/N, the network of infinite width at the
# temperature of the others and at its own, and the exact posterior by its samples. Further
# entries are theories of the user's own, by name.
LEADING, NEXT, INFINITE, TUNED, SAMPLED = "leading", "next", "infinite", "infinite_tuned", "sampled"
AXIS = "predictor"
NAMES = {
    LEADING: "leading order",
    NEXT: "next order",
    SAMPLED: "exact posterior",
    INFINITE: "infinite width",
    TUNED: "infinite width, tuned",
}
# Infinite width is another network, not a theory of the one that was sampled.
OTHER_NETWORKS = (TUNED, INFINITE)
# How infinite width chose its own temperature; the attribute of a table for it.
TUNED_BY = "infinite_tuned_by"
BY_VALIDATION, BY_EVIDENCE = "log_predictive_density", "log_evidence"
TUNED_NAMES = {
    BY_VALIDATION: "infinite, 𝒯 by validation",
    BY_EVIDENCE: "infinite, 𝒯 by evidence",
}

Variable = tuple[tuple[str, ...], Any]


def predictor_name(predictor: str, tuned_by: str | None = None) -> str:
    """Name of a predictor in text; a theory of the user's own by its name."""
    if predictor == TUNED and tuned_by in TUNED_NAMES:
        return TUNED_NAMES[tuned_by]
    return NAMES.get(predictor, predictor)


def is_users(predictor: str) -> bool:
    """Whether a predictor is a theory of the user's own."""
    return predictor not in NAMES


def is_theory(predictor: str) -> bool:
    """Whether a predictor approximates the posterior of the network itself."""
    return predictor != SAMPLED and predictor not in OTHER_NETWORKS


def along_predictors(predictions: Mapping[str, Mapping[str, Variable]]) -> xr.Dataset:
    """Predictions of all predictors in one table: name → (axes, values), NaN where one lacks it."""
    tables = [xr.Dataset(dict(columns)) for columns in predictions.values()]
    return xr.concat(tables, xr.Variable(AXIS, list(predictions)), data_vars="all")


def predictors_of(table: xr.Dataset | None) -> list[str]:
    """The entries of the axis of a table, in its order; none without a table."""
    return [] if table is None else [str(name) for name in table[AXIS].values]


def predicted(table: xr.Dataset | None, name: str, predictor: str = LEADING) -> np.ndarray | None:
    """An array of one predictor; None where it is absent or has no finite entry."""
    if table is None or name not in table or predictor not in predictors_of(table):
        return None
    values = np.asarray(table[name].sel({AXIS: predictor}).values, dtype=np.float64)
    return values if np.isfinite(values).any() else None


def of_predictor(table: xr.Dataset, predictor: str) -> xr.Dataset:
    """Everything that one predictor of a table predicts, labelled; nothing that is NaN alone."""
    along = table[[name for name, values in table.items() if AXIS in values.dims]]
    one = along.sel({AXIS: predictor}, drop=True)
    return one[[name for name, values in one.items() if np.isfinite(values.values).any()]]


def number(table: xr.Dataset | None, name: str, predictor: str = LEADING) -> float:
    """A single number of one predictor; NaN where there is none."""
    value = predicted(table, name, predictor)
    return float("nan") if value is None else float(value)


def in_order(predictors: Iterable[str]) -> list[str]:
    """Predictors as tables list them: both orders, the user's own, the samples, infinite width."""
    given = list(predictors)
    first = [name for name in (LEADING, NEXT) if name in given]
    last = [name for name in (SAMPLED, INFINITE, TUNED) if name in given]
    return [*first, *(name for name in given if is_users(name)), *last]
