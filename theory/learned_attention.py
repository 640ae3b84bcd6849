"""Theories of attention that is learned: ln p(y | W) and its gradient in the features.

Given logit weights W, the features φ^π(x; W) are known, and all values are integrated out as for
attention that is fixed: exactly at infinite width, at leading order of the saddle point at finite
width. There U* moves with the features, but A is stationary in it: the gradient of the minimum is
the partial one at fixed U* (envelope). So with E the energy of the labels

    ∂ ln p(y | W)/∂φ = −½ ∂E/∂φ |_{U*}

whatever makes features of W. Both theories have posteriors p(W) p(y | W) of their own.
"""

import math
from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.linalg import cho_factor, cho_solve

from theory.architecture import Architecture
from theory.compression import compress
from theory.energy import LearningProblem
from theory.evidence import action_without_data
from theory.order_parameters import OrderParameters
from theory.path_kernels import renormalised_features, with_noise
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
    Features φ^π = σ_0 ξ^π/√(D Π).
    """
    scale = math.prod(architecture.order_parameter_variances) ** 0.5
    columns = scale * np.asarray(features, float).reshape(len(features), -1)
    energy, slope = energy_and_slope(columns, np.asarray(labels, float), temperature)
    gradient = -0.5 * scale * slope.reshape(features.shape)
    return FeatureEvidence(log_of_density(energy, labels.size), gradient)


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
    columns, factor = np.asarray(columns), np.asarray(saddle.order_parameters.factors[0])
    _, slope = energy_and_slope(columns, np.asarray(labels, float).reshape(-1, 1), temperature)
    # Back through G_{(x,c),(r,i)} = Σ_π F_{(π,c),r} φ^π_i(x)
    slope = slope.reshape(len(features), arch.outputs, factor.shape[1], arch.channels)
    by_path = factor.reshape(arch.path_count, arch.outputs, factor.shape[1])
    gradient = -0.5 * np.einsum("xcri,pcr->xpi", slope, by_path, optimize=True)
    excess = max(arch.widths) * saddle.action - action_without_data(arch)
    return FeatureEvidence(log_of_density(excess, labels.size), gradient, saddle)


def log_of_density(energy: float, count: int) -> float:
    """Log density −½ (E + n ln 2π) of n labels."""
    return -0.5 * (energy + count * math.log(2.0 * math.pi))


def energy_and_slope(
    columns: Float[np.ndarray, "row feature"],
    labels: Float[np.ndarray, "row set"],
    temperature: float,
) -> tuple[float, Float[np.ndarray, "row feature"]]:
    """Energy Σ_s [ ln det(G Gᵀ + 𝒯) + y_sᵀ (G Gᵀ + 𝒯)⁻¹ y_s ] and its derivative in G.

    That is 2 [n_s (G Gᵀ + 𝒯)⁻¹ G − α αᵀ G] with α = (G Gᵀ + 𝒯)⁻¹ y. The smaller of G Gᵀ + 𝒯 and
    M = Gᵀ G + 𝒯 is factorised: (G Gᵀ + 𝒯)⁻¹ G = G M⁻¹.
    """
    rows, features = columns.shape
    few = features < rows
    gram = columns.T @ columns if few else columns @ columns.T
    factor = cho_factor(with_noise(gram, temperature), lower=True)
    log_determinant = 2.0 * float(np.sum(np.log(np.diagonal(factor[0]))))
    if few:
        log_determinant += (rows - features) * math.log(temperature)
        carried = cho_solve(factor, columns.T).T
        alpha = (labels - carried @ (columns.T @ labels)) / temperature
    else:
        carried, alpha = cho_solve(factor, columns), cho_solve(factor, labels)
    value = labels.shape[1] * log_determinant + float(np.vdot(labels, alpha))
    return value, 2.0 * (labels.shape[1] * carried - alpha @ (alpha.T @ columns))
