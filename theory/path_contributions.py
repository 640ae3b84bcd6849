"""What each path brings to the predictor, and the predictor of a network that loses heads."""

from collections.abc import Collection

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from theory.architecture import AttentionPaths
from theory.attended_inputs import path_features
from theory.energy import LearningProblem


def path_contributions(
    problem: LearningProblem,
    factor: Float[Array, "row rank"],
    attended: Float[Array, "test path channel"],
) -> Float[Array, "test path output"]:
    """The terms m_π(x) of the predictor mean m(x) = Σ_π m_π(x), one per path, at U_1 = F Fᵀ.

        m_{π,c}(x) = φ^π(x)·β_{π,c},   β_{π,c} = Σ_{π',c'} U_1^{πc,π'c'} Σ_μ φ^π'(x_μ) α_{μ,c'}

    with α = (K + 𝒯 1)⁻¹ y. Given U_1 it is the posterior mean of the output of path π.
    """
    variance = problem.architecture.variances[0]
    alpha = problem.energy.noisy_kernel(factor).solve(problem.energy.flat_labels)
    alpha = alpha.reshape(problem.labels.shape)
    learned = jnp.einsum("xpi,xc->pci", path_features(problem.attended, variance), alpha)
    paths, outputs, channels = learned.shape
    carried = factor @ (factor.T @ learned.reshape(paths * outputs, channels))
    by_path = carried.reshape(paths, outputs, channels)
    return jnp.einsum("xpi,pci->xpc", path_features(attended, variance), by_path)


def mean_without(
    contributions: Float[np.ndarray, "test path output"],
    paths: AttentionPaths,
    removed: Collection[tuple[int, int]],
) -> Float[np.ndarray, "test output"]:
    """The mean m(x) without the paths through heads (layer, head), counted from 0.

    They are removed after learning: all other paths keep what they learned beside these heads.
    """
    lost = np.zeros(paths.count, dtype=bool)
    for layer, head in removed:
        lost |= paths.uses(layer, head)
    return contributions[:, ~lost].sum(axis=1)
