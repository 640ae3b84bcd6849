"""The posterior of all weights but V_0, which is integrated out, as a NumPyro model.

The network is linear in V_0, so the labels are Gaussian given the weights above it. Most of the
stiffness of the full weight space goes with V_0, while real weights V_1 … V_L and a are sampled.
"""

import jax
import numpyro
from jaxtyping import Array, Float

from sampler.network import path_weights
from sampler.posterior.hyper_parameters import energy_at
from sampler.posterior.order_parameter_model import kernel_factor, label_log_likelihood
from sampler.posterior.orthonormal_rows import orthonormal_rows
from sampler.posterior.space import Position
from sampler.posterior.weight_model import sample_sites
from theory.architecture import Architecture
from theory.energy import LabelEnergy
from theory.hyper_priors import KNOWN, HyperPriors
from theory.path_kernels import FeatureForm


def upper_weight_model(
    energy: LabelEnergy, architecture: Architecture, hyper_priors: HyperPriors = KNOWN
) -> None:
    """Gaussian priors of V_1 … V_L and a, and y ~ N(0, K(w_1 w_1ᵀ/N_1) + 𝒯 1).

    Where 𝒯 or variances have a prior, they are sites, too.
    """
    names = upper_weight_names(architecture)
    position = sample_sites(architecture, names, energy.labels.dtype, hyper_priors)
    factor = kernel_factor(lowest_factor(position, architecture), position)
    if isinstance(energy.kernels, FeatureForm):
        # There the cost of K grows with the columns of the factor; stored kernels need F Fᵀ only.
        factor = narrowed(factor)
    numpyro.factor("y", label_log_likelihood(energy_at(energy, position), factor))


def upper_weight_names(architecture: Architecture) -> tuple[str, ...]:
    """V_1 … V_L and a."""
    return tuple(name for name in architecture.weight_shapes if name != "V_0")


def lowest_factor(weights: Position, architecture: Architecture) -> Float[Array, "row width"]:
    """F = w_1/√N_1, a factor of the overlap U_1 = w_1 w_1ᵀ/N_1."""
    return path_weights(weights, architecture)[0] / architecture.widths[0] ** 0.5


def narrowed(factor: Float[Array, "row width"]) -> Float[Array, "row rank"]:
    """A factor F Qᵀ of the same F Fᵀ with no more columns than rows.

    The rows of Q are an orthonormal basis of those of F, so F Qᵀ Q Fᵀ = F Fᵀ. It is held fixed in
    derivatives: Qᵀ Q Fᵀ = Fᵀ makes d(F Qᵀ Q Fᵀ) = dF Fᵀ + F dFᵀ exact, and no decomposition is
    differentiated. Only first derivatives are right.
    """
    rows, width = factor.shape
    if width <= rows:
        return factor
    return factor @ orthonormal_rows(jax.lax.stop_gradient(factor)).T
