"""Predictions of the theory for a head, by the derivative of its loss by the head's gate.

ℓ(x) = |m(x) − y|² on unseen examples, ∂ℓ/∂g_h = 2 (m − y)·∂m/∂g_h. Its mean, with the sign that
closing the gate has, is a loss gained to first order; the mean of its size is what Taylor
importance is of a trained model. Both for values that stay as they were learned, and for values and
order parameters that learn again. At infinite width order parameters do not move: there the readout
alone learns again.
"""

from collections.abc import Sequence

import numpy as np
import xarray as xr
from jaxtyping import Array, Float

from sampler.analysis.estimate import Estimate
from sampler.analysis.labels import EXACT, LEADING, order_parameter_dimensions
from sampler.heads.gates import Head
from theory import (
    AttentionPaths,
    LearningProblem,
    OrderParameters,
    contributions_by_head,
    gate_response,
    slopes_at_infinite_width,
)
from theory.architecture import all_heads, is_dense

AFTER, LEARNING = "slope", "slope_learning"
INFINITE, INFINITE_LEARNING = "slope_infinite", "slope_infinite_learning"
AFTER_EXACT, LEARNING_EXACT = "slope_exact", "slope_exact_learning"
EVIDENCE_SLOPE, EVIDENCE_SLOPE_EXACT = "slope_evidence", "slope_evidence_exact"
SIZE = "_size"
# Where slopes are taken, by key.
OF = {
    AFTER: f"of the theory, {LEADING}",
    LEARNING: f"of the theory, learning again, {LEADING}",
    INFINITE: "infinite width",
    INFINITE_LEARNING: "learning again, infinite width",
    AFTER_EXACT: EXACT,
    LEARNING_EXACT: f"learning again, {EXACT}",
}
# Keys of the predictions, and their names in tables and figures.
DERIVATIVES = {
    key + size: f"{name} {of}" if of.startswith("of") else f"{name}, {of}"
    for key, of in OF.items()
    for size, name in (("", "slope"), (SIZE, "|slope|"))
} | {
    EVIDENCE_SLOPE: f"slope of ln evidence, {LEADING}",
    EVIDENCE_SLOPE_EXACT: f"slope of ln evidence, {EXACT}",
}

Slopes = Float[np.ndarray, "example output head"]


def gained_by_slope(
    mean: Float[np.ndarray, "example output"],
    slopes: Slopes,
    labels: Float[np.ndarray, "example output"],
) -> Float[np.ndarray, "head example"]:
    """−2 (m − y)·∂m/∂g_h, the loss that an example gains to first order if gate h is closed."""
    return -2.0 * np.einsum("xo,xoh->hx", mean - labels, slopes)


def predictions_of_slopes(
    key: str, mean: Float[np.ndarray, "example output"], slopes: Slopes, labels: np.ndarray
) -> dict[str, Estimate]:
    """The loss gained to first order, and the mean |∂ℓ/∂g|, with errors over examples."""
    gained = gained_by_slope(mean, slopes, labels)
    return {key: over_examples(gained), key + SIZE: over_examples(np.abs(gained))}


def over_examples(values: Float[np.ndarray, "head example"]) -> Estimate:
    """Mean over examples with its standard error."""
    return Estimate(values.mean(axis=1), values.std(axis=1, ddof=1) / np.sqrt(values.shape[1]))


def places_of(heads: Sequence[Head], counts: Sequence[int]) -> list[int]:
    """Places of heads among all heads of layers with so many, lowest layer first."""
    return [all_heads(counts).index(head) for head in heads]


def predictions_at_saddle(
    learning: LearningProblem,
    order_parameters: OrderParameters,
    contributions: Float[np.ndarray, "example path output"],
    attended: Float[Array, "example path channel"],
    heads: Sequence[Head],
    labels: np.ndarray,
) -> dict[str, Estimate]:
    """Derivatives of what is predicted by the gates of these heads, and at infinite width.

    order_parameters  all of the saddle point
    contributions     m_π(x) there

    Order parameters that follow are left out where paths are too many for a Hessian.
    """
    paths, mean = AttentionPaths(learning.architecture.heads), contributions.sum(axis=1)
    places = places_of(heads, paths.heads)
    wide, again = slopes_at_infinite_width(learning, attended)
    slopes = {
        AFTER: (mean, contributions_by_head(contributions, paths)),
        INFINITE: (wide.sum(axis=1), contributions_by_head(wide, paths)),
        INFINITE_LEARNING: (wide.sum(axis=1), again),
    }
    found: dict[str, Estimate] = {}
    if is_dense(learning.architecture):
        response = gate_response(learning, order_parameters, attended)
        slopes[LEARNING] = mean, response.with_learning
        # ln p(y) = −A/2 at leading order: closing a gate loses its slope.
        lost = -0.5 * response.action[places]
        found[EVIDENCE_SLOPE] = Estimate(lost, np.zeros(len(places)))
    for key, (predicted, by_head) in slopes.items():
        found |= predictions_of_slopes(key, predicted, by_head[..., places], labels)
    return found


def order_parameters_of(table: xr.Dataset, layers: int) -> OrderParameters:
    """U_1 … U_a of a table of the theory."""
    names = order_parameter_dimensions(layers)
    return OrderParameters.from_matrices([table[name].values for name, _ in names])
