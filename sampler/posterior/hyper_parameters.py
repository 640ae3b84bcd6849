"""Temperature and prior variances as sites of the model, where they have a prior.

The sites hold ln(𝒯/𝒯_0) and ln(σ_l²/σ_{l,0}²). All other sites keep the priors they have at 𝒯_0
and σ_{l,0}²: weights of variance σ_l² are those of variance σ_{l,0}², times σ_l/σ_{l,0}. So the
network is the one at the known variances times Π_l σ_l/σ_{l,0}, and a chain need not follow weights
whose scale changes under it. A position without such sites has known temperature and variances.
"""

from collections.abc import Mapping
from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import numpyro
from jaxtyping import Array, Float
from numpyro import distributions as dist

from sampler.posterior.density import Position
from theory.architecture import Architecture, HyperPriors
from theory.energy import LabelEnergy, LearningProblem

TEMPERATURE, VARIANCES = "log_temperature_ratio", "log_variance_ratios"
OBSERVED = ("temperature", "prior_variances")


def site_spreads(priors: HyperPriors) -> dict[str, float]:
    """Standard deviation of every site without data; 0 where there is none."""
    return {TEMPERATURE: priors.temperature_spread, VARIANCES: priors.variance_spread}


def hyper_prior_sites(
    priors: HyperPriors, variances: Float[Array, " layer"]
) -> dict[str, dist.Distribution]:
    """Priors of the logarithms of ratios that have a spread."""
    sizes, dtype = {TEMPERATURE: 1, VARIANCES: len(variances)}, variances.dtype
    return {
        name: dist.Normal(jnp.zeros(sizes[name], dtype), jnp.asarray(spread, dtype)).to_event(1)
        for name, spread in site_spreads(priors).items()
        if spread > 0
    }


def sample_sites(priors: Mapping[str, dist.Distribution]) -> dict[str, Array]:
    """All sites of a NumPyro model, in the order of their priors."""
    return {name: numpyro.sample(name, prior) for name, prior in priors.items()}


def temperature_ratio(position: Position) -> Float[Array, ""] | float:
    """Ratio 𝒯/𝒯_0 of the temperature of a position to the known one."""
    return jnp.exp(position[TEMPERATURE][0]) if TEMPERATURE in position else 1.0


def network_scale(position: Position) -> Float[Array, ""] | float:
    """Output of the network relative to that at the known variances, Π_l σ_l/σ_{l,0}."""
    return jnp.exp(jnp.sum(position[VARIANCES]) / 2.0) if VARIANCES in position else 1.0


def input_scale(position: Position) -> Float[Array, ""] | float:
    """Ratio σ_0/σ_{0,0}, which the kernel at an order parameter of a position still lacks."""
    return jnp.exp(position[VARIANCES][0] / 2.0) if VARIANCES in position else 1.0


def energy_at(energy: LabelEnergy, position: Position) -> LabelEnergy:
    """The energy of the labels at the temperature of a position."""
    if TEMPERATURE not in position:
        return energy
    return replace(energy, temperature=energy.temperature * temperature_ratio(position))


def weights_at(position: Position, architecture: Architecture) -> dict[str, Array]:
    """The weights among the sites of a position, with the variances of that position."""
    names = [name for name in architecture.weight_shapes if name in position]
    if VARIANCES not in position:
        return {name: position[name] for name in names}
    scales = jnp.exp(position[VARIANCES] / 2.0)
    layer = {name: index for index, name in enumerate(architecture.weight_shapes)}
    return {name: scales[layer[name]] * position[name] for name in names}


def scaled_factors(
    factors: tuple[Float[Array, "_size _rank"], ...], position: Position
) -> tuple[Float[Array, "_size _rank"], ...]:
    """F_1 … F_{L+1} of the order parameters at the variances of a position.

    U_l is proportional to σ_l² σ_{l+1}² … σ_a².
    """
    if VARIANCES not in position:
        return factors
    above = jnp.cumsum(position[VARIANCES][::-1])[::-1][1:]
    return tuple(jnp.exp(above[i] / 2.0) * factor for i, factor in enumerate(factors))


def observed_hyper_parameters(
    position: Position,
    temperature: float | Float[Array, ""],
    variances: Float[Array, " layer"],
) -> dict[str, Array]:
    """Temperature and prior variances of a draw, where they are sampled."""
    found = {}
    if TEMPERATURE in position:
        found["temperature"] = temperature * temperature_ratio(position)
    if VARIANCES in position:
        found["prior_variances"] = variances * jnp.exp(position[VARIANCES])
    return found


def hyper_positions(
    draws: Mapping[str, np.ndarray], problem: LearningProblem
) -> dict[str, Float[np.ndarray, "chain draw _entry"]]:
    """Sites from stored temperatures [chain, draw] and variances [chain, draw, layer]."""
    found = {}
    if "temperature" in draws:
        found[TEMPERATURE] = np.log(draws["temperature"] / problem.temperature)[..., None]
    if "prior_variances" in draws:
        known = np.asarray(problem.architecture.variances)
        found[VARIANCES] = np.log(draws["prior_variances"] / known)
    return found
