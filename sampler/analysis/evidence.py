"""The log evidence ln p(y): Laplace's at the saddle point, the GP limit's, and the exact one."""

import math

import numpy as np
import xarray as xr

from sampler.posterior.hyper_parameters import OBSERVED
from sampler.problem import Problem
from theory import OrderParameters, SaddlePoint
from theory.laplace_evidence import is_regular, log_evidence_at_saddle
from theory.saddle_point import is_dense


def evidence_columns(problem: Problem, saddle_point: SaddlePoint) -> dict:
    """Columns `log_evidence` and `log_evidence_gp` of the table of the theory.

    Laplace's form is NaN where it does not exist: without a minimum of the action, in layers
    narrower than their order parameter, and for a Hessian too large to be factorised.
    """
    learning = problem.learning
    exists = saddle_point.converged and is_regular(learning.architecture)
    known = exists and is_dense(learning.architecture)
    laplace = log_evidence_at_saddle(learning, saddle_point) if known else float("nan")
    limit = OrderParameters.gp_limit(learning.architecture)
    energy = float(learning.energy(limit.factors[0]))
    gp = -0.5 * (energy + learning.labels.size * math.log(2.0 * math.pi))
    return {"log_evidence": ((), laplace), "log_evidence_gp": ((), gp)}


def evidence_comparison(theory: xr.Dataset | None, tree: xr.DataTree) -> dict:
    """What `comparison.json` says of ln p(y); None for whatever is not known.

    The sampled one is exact at this width up to its Monte Carlo error, and has its `method`.
    """
    attributes = tree["sample_stats"].attrs
    sampled = None
    if "log_evidence" in attributes:
        sampled = {
            "value": float(attributes["log_evidence"]),
            "mcse": float(attributes["log_evidence_error"]),
            "method": str(attributes.get("log_evidence_method", "importance")),
            "trusted": bool(attributes.get("log_evidence_trusted", 1)),
        }
    if any(name in tree["posterior"] for name in OBSERVED):
        # The samples' evidence is averaged over hyper-parameters, the theory's is at given ones.
        theory = None
    return {
        "theory": known(theory, "log_evidence"),
        "gp": known(theory, "log_evidence_gp"),
        "sampled": sampled,
    }


def known(theory: xr.Dataset | None, name: str) -> float | None:
    """A number of the table of the theory, None where there is none."""
    value = float(theory[name]) if theory is not None and name in theory else math.nan
    return value if np.isfinite(value) else None
