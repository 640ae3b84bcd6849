"""Theories of attention that is learned: ln p(y | W) and its gradient in the features.

Given logit weights W, the features φ^π(x; W) are known, and all values are integrated out as for
attention that is fixed: exactly at infinite width, at leading order of the saddle point at finite
width. There U* moves with the features, but A is stationary in it: the gradient of the minimum is
the partial one at fixed U* (envelope). So with E the energy of the labels

    ∂ ln p(y | W)/∂φ = −½ ∂E/∂φ |_{U*}

whatever makes features of W. Both theories have posteriors p(W) p(y | W) of their own. So have
those that know the fluctuations of the order parameters, ½ ln det H, and the next order in 1/N;
their gradients need more than the envelope gives, and draws of W are weighted by them instead.
"""

import math
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from theory.architecture import Architecture, is_regular
from theory.compression import compress
from theory.energy import LearningProblem, energy_of_columns
from theory.evidence import log_evidence_at_leading_order, log_evidence_at_saddle
from theory.infinite_width import InfiniteWidth
from theory.next_order import NextOrder, solve_next_order
from theory.order_parameters import OrderParameters
from theory.path_kernels import renormalised_features
from theory.predictor import Predictor, predict
from theory.saddle_point import SaddlePoint, solve_saddle_point

Features = Float[Array | np.ndarray, "example path channel"]
Labels = Float[Array | np.ndarray, "example output"]


@dataclass(frozen=True)
class FeatureEvidence:
    """Log evidence of a theory, with what an optimiser or a sampler of attention needs of it.

    value     ln p(y | W), with all constants
    gradient  ∂/∂φ [example, path, channel]
    saddle    order parameters at leading order, where they are solved for: U* of these features,
              from which a search at similar ones may start. The numbers mean nothing unless it is
              converged
    """

    value: float
    gradient: Float[np.ndarray, "example path channel"]
    saddle: SaddlePoint | None = None


def evidence_at_infinite_width(
    features: Features, labels: Labels, architecture: Architecture, temperature: float
) -> FeatureEvidence:
    """Log evidence ln p(y | W) of a network of infinite width, and its exact gradient.

    The kernel is σ_1² ··· σ_a² Σ_π φ^π(x)·φ^π(x') for every output by itself; widths are not used.
    Features φ^π = σ_0 ξ^π/√(D Π). Needs float64.
    """
    scale = math.prod(architecture.order_parameter_variances) ** 0.5
    columns = scale * jnp.asarray(features).reshape(len(features), -1)
    energy, slope = energy_and_slope(columns, jnp.asarray(labels), temperature)
    gradient = -0.5 * scale * np.asarray(slope).reshape(features.shape)
    return FeatureEvidence(log_of_density(float(energy), labels.size), gradient)


def evidence_at_leading_order(
    features: Features,
    labels: Labels,
    architecture: Architecture,
    temperature: float,
    initial: OrderParameters | None = None,
    tolerance: float | None = None,
) -> FeatureEvidence:
    """Log evidence ln p(y | W) at leading order, −½ (A* − A_0) − (P O/2) ln 2π, and its gradient.

    A* is the minimum of the action and A_0 that without data, so that this tends to
    `evidence_at_infinite_width` as widths grow. The fluctuations of the order parameters,
    ½ ln det H, are of the next order and left out.

    features   φ^π = σ_0 ξ^π/√(D Π)
    initial    where the search for U* begins: U* of similar features
    tolerance  of the search, as in `solve_saddle_point`; the error of the value is of second order
               in what it leaves, that of the gradient of first order

    Needs float64. Never raises for a search that fails: `saddle` says what happened.
    """
    arch = architecture
    size = (arch.variances[0] / (arch.channels * arch.path_count)) ** 0.5
    problem = LearningProblem(arch, jnp.asarray(features) / size, jnp.asarray(labels), temperature)
    saddle = solve_saddle_point(compress(problem), tolerance=tolerance, initial=initial)
    columns = renormalised_features(jnp.asarray(features), saddle.order_parameters.factors[0])
    factor = np.asarray(saddle.order_parameters.factors[0])
    _, slope = energy_and_slope(columns, jnp.asarray(labels).reshape(-1, 1), temperature)
    # Back through G_{(x,c),(r,i)} = Σ_π F_{(π,c),r} φ^π_i(x)
    slope = np.asarray(slope).reshape(len(features), arch.outputs, factor.shape[1], arch.channels)
    by_path = factor.reshape(arch.path_count, arch.outputs, factor.shape[1])
    gradient = -0.5 * np.einsum("xcri,pcr->xpi", slope, by_path, optimize=True)
    value = log_evidence_at_leading_order(problem, saddle.action)
    return FeatureEvidence(value, gradient, saddle)


@dataclass(frozen=True)
class PredictionsAtAttention:
    """Predictions of one theory at known attention W.

    order_parameter  E[U_1] given W
    mean, variance   of f on test examples, given W
    """

    order_parameter: Float[np.ndarray, "row row"]
    mean: Float[np.ndarray, "test output"]
    variance: Float[np.ndarray, "test output"]


@dataclass(frozen=True)
class TheoriesAtAttention:
    """All theories at one W: three sets of predictions, four values of ln p(y | W).

    saddle           that of the leading order, whose numbers mean nothing unless it is converged
    expansion        around it; says whether the next order is defined, and fine
    infinite_width   N → ∞
    leading_order    U* and the predictor there
    next_order       to next order in 1/N; None where that is not defined
    log_evidence     ln p(y | W) by "infinite_width", "leading_order", "fluctuations" (that of
                     Laplace) and "next_order"; NaN where one is not defined
    """

    saddle: SaddlePoint
    expansion: NextOrder
    infinite_width: PredictionsAtAttention
    leading_order: PredictionsAtAttention
    next_order: PredictionsAtAttention | None
    log_evidence: dict[str, float]


def theories_at_attention(
    problem: LearningProblem,
    attended: Float[Array, "test path channel"],
    initial: OrderParameters | None = None,
    evidence: bool = True,
) -> TheoriesAtAttention:
    """Everything that the theories of fixed attention say at one W, in float64.

    problem   whose attended inputs were made with W
    attended  those of the test examples, made with W
    initial   where the search for U* begins: U* of similar attention. Where it fails from there, it
              begins once more at infinite width
    evidence  whether that to next order is wanted, which takes most of the time

    Never raises for a search that fails.
    """
    problem = compress(problem)
    arch, temperature = problem.architecture, problem.temperature
    limit = InfiniteWidth.of(problem)
    scale = math.prod(arch.order_parameter_variances)
    of_limit = limit.predictor(attended).moments(temperature)
    saddle = solve_saddle_point(problem, initial=initial)
    if initial is not None and not saddle.converged:
        saddle = solve_saddle_point(problem)
    factor = saddle.order_parameters.factors[0]
    moments = predict(Predictor.for_examples(problem, jnp.asarray(attended)), factor)
    logs = dict.fromkeys(("leading_order", "fluctuations", "next_order"), math.nan)
    logs["infinite_width"] = limit.log_evidence(temperature)
    expansion = solve_next_order(problem, saddle, evidence=evidence)
    if saddle.converged:
        logs["leading_order"] = log_evidence_at_leading_order(problem, saddle.action)
        if is_regular(arch):
            logs["fluctuations"] = log_evidence_at_saddle(problem, saddle)
    corrected = None
    if expansion.defined:
        logs["next_order"] = expansion.log_evidence
        corrected = PredictionsAtAttention(
            expansion.order_parameters[0], *expansion.predict(attended)
        )
    return TheoriesAtAttention(
        saddle,
        expansion,
        PredictionsAtAttention(scale * np.eye(len(factor)), *of_limit),
        PredictionsAtAttention(np.asarray(factor @ factor.T), *map(np.asarray, moments)),
        corrected,
        logs,
    )


def log_of_density(energy: float, count: int) -> float:
    """Log density −½ (E + n ln 2π) of n labels."""
    return -0.5 * (energy + count * math.log(2.0 * math.pi))


# E and its derivative in the columns G, of which K = G Gᵀ.
energy_and_slope = jax.jit(jax.value_and_grad(energy_of_columns))
