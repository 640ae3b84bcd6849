"""Results of a run or a sweep in memory, of whatever a test needs."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import xarray as xr

from sampler.analysis.comparison import ComparisonTree, cell, elements_table, summary_table
from sampler.analysis.estimates import Estimate
from sampler.analysis.names import is_overlap
from sampler.analysis.predictors import SAMPLED, in_order
from sampler.analysis.quantities import QUANTITIES
from sampler.analysis.results import RunResults
from sampler.analysis.sweep_results import SweepResults

PASSED = (
    '{"verdict": "pass", "reasons": [], "remarks": [], "quantities": {}, "chains": 2, "draws": 40}'
)


def theory_of(predictions: Mapping[str, Mapping], **columns) -> xr.Dataset:
    """A table of the theory: predictor → name → (axes, values), and columns without predictors."""
    from sampler.analysis.predictors import along_predictors

    return along_predictors(predictions).assign(columns)


def comparison_of(
    sampled: Mapping[str, Estimate],
    predictions: Mapping[str, Mapping[str, object]],
    names: tuple[str, ...] = ("a", "b"),
) -> ComparisonTree:
    """A comparison of these quantities: quantity → samples, predictor → quantity → value."""
    predictors = in_order([*predictions, SAMPLED])
    rows, elements = {}, {}
    for quantity, estimate in sampled.items():
        known = {
            who: Estimate(np.asarray(of[quantity], dtype=float))
            for who, of in predictions.items()
            if quantity in of
        }
        shape = np.shape(estimate.value)
        if shape:
            axes = {f"axis_{place}": np.arange(size) for place, size in enumerate(shape)}
            if quantity == "order_parameter":
                axes = dict.fromkeys(("path", "path_"), np.array(names))
            of_elements = predictors, known, estimate, is_overlap(quantity)
            elements[f"/elements/{quantity}"] = elements_table(axes, *of_elements)
        cells = {who: cell(one) for who, one in (known | {SAMPLED: estimate}).items()}
        rows[quantity] = QUANTITIES[quantity], cells
    tree = xr.DataTree.from_dict({"/summary": summary_table(rows, predictors)} | elements)
    attributes = {"diagnostics": PASSED, "cost": "{}", "doubt_of_next_order": ""}
    tree.attrs = attributes | {"temperature_sampled": 0, "converged": 1}
    return ComparisonTree(tree)


def held(
    theory: xr.Dataset | None = None,
    draws: dict[str, xr.Dataset] | None = None,
    comparison: ComparisonTree | None = None,
) -> RunResults:
    """draws: group → its variables."""
    return RunResults.held(
        None,
        theory=theory,
        draws=draws and xr.DataTree.from_dict(draws),
        comparison=comparison,
    )


def held_sweep(**known: object) -> SweepResults:
    """A sweep without runs: keywords are its properties."""
    sweep = SweepResults(Path())
    vars(sweep).update({"runs": []} | known)
    return sweep
