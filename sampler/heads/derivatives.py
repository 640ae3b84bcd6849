"""Predictions of the theory for a head, by the derivative of its loss by the head's gate.

ℓ(x) = |m(x) − y|² on unseen examples, ∂ℓ/∂g_h = 2 (m − y)·∂m/∂g_h. Its mean, with the sign that
closing the gate has, is a loss gained to first order; the mean of its size is what Taylor
importance is of a trained model. Both for values that stay as they were learned, and for values and
order parameters that learn again.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import xarray as xr
from jaxtyping import Array, Float

from sampler.analysis.estimate import Estimate
from sampler.analysis.labels import EXACT, LEADING, order_parameter_dimensions
from sampler.heads.gates import Head
from theory import AttentionPaths, LearningProblem, OrderParameters, path_contributions
from theory.architecture import all_heads, is_dense
from theory.gate_response import contributions_by_head, gate_response

AFTER, LEARNING, INFINITE = "slope", "slope_learning", "slope_infinite"
AFTER_EXACT, EVIDENCE_SLOPE = "slope_exact", "slope_evidence"
SIZE = "_size"
# Keys of the predictions, and their names in tables and figures.
DERIVATIVES = {
    AFTER: f"slope of the theory, {LEADING}",
    AFTER + SIZE: f"|slope| of the theory, {LEADING}",
    LEARNING: f"slope of the theory, learning again, {LEADING}",
    LEARNING + SIZE: f"|slope| of the theory, learning again, {LEADING}",
    INFINITE: "slope, infinite width",
    INFINITE + SIZE: "|slope|, infinite width",
    AFTER_EXACT: f"slope, {EXACT}",
    AFTER_EXACT + SIZE: f"|slope|, {EXACT}",
    EVIDENCE_SLOPE: f"slope of ln evidence, {LEADING}",
}

Slopes = Float[np.ndarray, "example output head"]


def predictions_of_slopes(
    key: str, mean: Float[np.ndarray, "example output"], slopes: Slopes, labels: np.ndarray
) -> dict[str, Estimate]:
    """The loss gained to first order, and the mean |∂ℓ/∂g|, with errors over examples."""
    by_example = 2.0 * np.einsum("xo,xoh->hx", mean - labels, slopes)
    return {key: over_examples(-by_example), key + SIZE: over_examples(np.abs(by_example))}


def over_examples(values: Float[np.ndarray, "head example"]) -> Estimate:
    """Mean over examples with its standard error."""
    return Estimate(values.mean(axis=1), values.std(axis=1, ddof=1) / np.sqrt(values.shape[1]))


def predictions_of_gates(
    learning: LearningProblem,
    order_parameters: OrderParameters | None,
    contributions: Mapping[str, Float[np.ndarray, "example path output"]],
    attended: Float[Array, "example path channel"],
    heads: Sequence[Head],
    labels: np.ndarray,
) -> dict[str, Estimate]:
    """Derivatives of what is predicted, by the gates of these heads.

    order_parameters  all of the saddle point; None: nothing learns again
    contributions     m_π(x) by key: at the saddle point, and of whatever else has paths
    """
    paths = AttentionPaths(learning.architecture.heads)
    places = [all_heads(paths.heads).index(head) for head in heads]
    found: dict[str, Estimate] = {}
    for key, terms in contributions.items():
        slopes = contributions_by_head(terms, paths)[..., places]
        found |= predictions_of_slopes(key, terms.sum(axis=1), slopes, labels)
    if order_parameters is None or not is_dense(learning.architecture):
        return found
    response = gate_response(learning, order_parameters, attended)
    mean = contributions[AFTER].sum(axis=1)
    slopes = response.with_learning[..., places]
    found |= predictions_of_slopes(LEARNING, mean, slopes, labels)
    # ln p(y) = −A/2 at leading order: closing a gate loses its slope.
    found[EVIDENCE_SLOPE] = Estimate(-0.5 * response.action[places], np.zeros(len(places)))
    return found


def predictions_at_saddle(
    learning: LearningProblem,
    table: xr.Dataset,
    contributions: Float[np.ndarray, "example path output"],
    attended: Float[Array, "example path channel"],
    heads: Sequence[Head],
    labels: np.ndarray,
) -> dict[str, Estimate]:
    """Derivatives at the saddle point of a table of the theory, and at infinite width.

    contributions  m_π(x) at that saddle point
    """
    names = order_parameter_dimensions(learning.architecture.layers)
    matrices = [table[name].values for name, _ in names]
    terms = {AFTER: contributions, INFINITE: contributions_at_infinite_width(learning, attended)}
    found = OrderParameters.from_matrices(matrices)
    return predictions_of_gates(learning, found, terms, attended, heads, labels)


def contributions_at_infinite_width(
    learning: LearningProblem, attended: Float[Array, "example path channel"]
) -> Float[np.ndarray, "example path output"]:
    """m_π(x) where all paths count alike."""
    factor = OrderParameters.gp_limit(learning.architecture).factors[0]
    return np.asarray(path_contributions(learning, factor, attended))
