"""The exact posterior of the order parameters at any finite width, as a NumPyro model.

With every weight integrated out, p(U_a, U_L … U_1, y) is a Wishart chain times the Gaussian
N(y; 0, K(U_1) + 𝒯 1). Its dimension does not depend on width, channels, tokens or examples. This
file knows nothing of the action, whose witness it is.
"""

import math

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from jaxtyping import Array, Float

from sampler.posterior.hyper_parameters import (
    energy_at,
    hyper_prior_sites,
    network_scale,
    scaled_factors,
)
from sampler.posterior.space import Position
from sampler.posterior.wishart_chain import (
    StandardisedLogChi,
    bartlett_matrix,
    bartlett_shapes,
    chain_factors,
)
from theory.architecture import Architecture
from theory.energy import LabelEnergy
from theory.hyper_priors import KNOWN, HyperPriors


def order_parameter_model(
    energy: LabelEnergy, architecture: Architecture, hyper_priors: HyperPriors = KNOWN
) -> None:
    """Wishart chain in standardised Bartlett coordinates, and the likelihood of all labels.

    Sites: `chi_l` [rank] and `lower_l` [entry] of each Bartlett factor B_l, l = 1 … L + 1, and
    temperature and variances where they have a prior.
    """
    prior = site_priors(architecture, energy.labels.dtype, hyper_priors)
    position = {name: numpyro.sample(name, site) for name, site in prior.items()}
    numpyro.factor("y", log_likelihood_at(position, energy, architecture))


def site_priors(
    architecture: Architecture, dtype, hyper_priors: HyperPriors = KNOWN
) -> dict[str, dist.Distribution]:
    """Prior of every site."""
    hyper_parameters = hyper_prior_sites(hyper_priors, architecture, dtype)
    return bartlett_prior(architecture, dtype) | hyper_parameters


def bartlett_prior(architecture: Architecture, dtype) -> dict[str, dist.Distribution]:
    """Standardised log χ on the diagonals of Bartlett factors, standard normal below them."""
    sites = {}
    for layer, shape in enumerate(bartlett_shapes(architecture), start=1):
        degrees = jnp.asarray(shape.degrees, dtype)
        zeros = jnp.zeros(shape.below_diagonal, dtype)
        sites[f"chi_{layer}"] = StandardisedLogChi(degrees).to_event(1)
        sites[f"lower_{layer}"] = dist.Normal(zeros, jnp.ones_like(zeros)).to_event(1)
    return sites


def log_prior(
    position: Position, architecture: Architecture, hyper_priors: HyperPriors = KNOWN
) -> Float[Array, ""]:
    """ln of the prior density of a position."""
    prior = site_priors(architecture, position["chi_1"].dtype, hyper_priors)
    return sum(site.log_prob(position[name]) for name, site in prior.items())


def bartlett_matrices_at(
    position: Position, architecture: Architecture
) -> tuple[Float[Array, "_rows _rank"], ...]:
    """B_1 … B_{L+1} at a position of the sampler."""
    return tuple(
        bartlett_matrix(position[f"chi_{layer}"], position[f"lower_{layer}"], shape)
        for layer, shape in enumerate(bartlett_shapes(architecture), start=1)
    )


def factors_at(
    position: Position, architecture: Architecture
) -> tuple[Float[Array, "_size _rank"], ...]:
    """F_1 … F_{L+1} with U_l = F_l F_lᵀ at a position of the sampler."""
    factors = chain_factors(bartlett_matrices_at(position, architecture), architecture)
    return scaled_factors(factors, position)


def kernel_factor(factor: Float[Array, "row rank"], position: Position) -> Float[Array, "row rank"]:
    """F with K(F Fᵀ) the kernel at the variances of a position.

    `factor` is that of U_1 at the known variances. K is also proportional to σ_0², with which the
    features were made.
    """
    return network_scale(position) * factor


def likelihood_factor(position: Position, architecture: Architecture) -> Float[Array, "row rank"]:
    """F with K(F Fᵀ) the kernel of the labels at a position of the sampler."""
    matrices = bartlett_matrices_at(position, architecture)
    return kernel_factor(chain_factors(matrices, architecture)[0], position)


def log_likelihood_at(
    position: Position, energy: LabelEnergy, architecture: Architecture
) -> Float[Array, ""]:
    """ln p(y | position)."""
    factor = likelihood_factor(position, architecture)
    return label_log_likelihood(energy_at(energy, position), factor)


def label_log_likelihood(energy: LabelEnergy, factor: Float[Array, "_row _rank"]):
    """ln p(y | U_1) = −E(U_1)/2 − (P O/2) ln 2π."""
    return -0.5 * (energy(factor) + energy.labels.size * math.log(2.0 * math.pi))
