"""The log evidence beside chains over order parameters: by importance, else by bridge sampling.

Importance weights need no chains, and are the more accurate where the tail of the weights is
light; bridge sampling of the chains' draws stands where it is heavy.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from sampler.mcmc.algorithm import lost_points_text
from sampler.mcmc.bridge import LARGEST_ERROR, bridge_evidence
from sampler.posterior.importance import importance_draws
from sampler.posterior.order_parameters import OrderParameterSpace

EVALUATIONS = 20_000
IMPORTANCE, BRIDGE = "importance", "bridge"


@dataclass(frozen=True)
class EvidenceBeside:
    """Log evidence ln p(y) with its error, and by which method it was found.

    log_evidence  its value
    error         Monte Carlo standard error
    method        "importance" or "bridge"
    trusted       whether value and error can be trusted
    lost          draws of proposals, of either method, at which the density is not a number
    pareto_k      shape of the tail of the importance weights, which chooses the method
    text          one line about it
    """

    log_evidence: float
    error: float
    method: str
    trusted: bool
    lost: int
    pareto_k: float
    text: str

    @property
    def attributes(self) -> Mapping[str, Any]:
        """What `draws.nc` says of it."""
        return {
            "log_evidence": self.log_evidence,
            "log_evidence_error": self.error,
            "log_evidence_method": self.method,
            "log_evidence_trusted": int(self.trusted),
            "log_evidence_lost": self.lost,
            "log_evidence_pareto_k": self.pareto_k,
        }


def evidence_beside(
    space: OrderParameterSpace, points: Float[np.ndarray, "chain draw coordinate"], seed: int
) -> EvidenceBeside:
    """Log evidence ln p(y) by importance where its weights can be trusted, else from draws.

    space   of the order parameters, with its mode, in float64
    points  flat coordinates of every draw of chains, for bridge sampling
    """
    lost, shape = 0, float("inf")
    try:
        weighted = importance_draws(space, EVALUATIONS, seed)
    except FloatingPointError as problem:
        reason = f"importance: {problem}"
    else:
        value, error = weighted.log_evidence, weighted.log_evidence_error
        lost, shape, reason = weighted.lost, weighted.pareto_k, weighted.explain()
        if weighted.trusted and error <= LARGEST_ERROR:
            return EvidenceBeside(value, error, IMPORTANCE, True, lost, shape, reason)
    bridged = bridge_evidence(space, points, seed)
    text = f"{reason}: not trusted; {bridged.explain()}"
    if lost and not bridged.lost:
        text += f"; {lost_points_text(lost, 'draws of q')}"
    return EvidenceBeside(
        log_evidence=bridged.log_evidence,
        error=bridged.error,
        method=BRIDGE,
        trusted=bridged.trusted and not lost,
        lost=lost + bridged.lost,
        pareto_k=shape,
        text=text,
    )
