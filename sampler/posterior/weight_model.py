"""The posterior of all network weights, as a NumPyro model."""

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from jaxtyping import Array, Float

from sampler.network import predict
from sampler.posterior.hyper_parameters import hyper_prior_sites, temperature_ratio, weights_at
from theory.architecture import Architecture
from theory.hyper_priors import KNOWN, HyperPriors


def weight_model(
    attended: Float[Array, "example path channel"],
    labels: Float[Array, "example output"],
    temperature: Float[Array, ""] | float,
    architecture: Architecture,
    hyper_priors: HyperPriors = KNOWN,
) -> None:
    """Gaussian priors per layer and the tempered likelihood.

    V_0 ~ N(0, σ_0²), V_l ~ N(0, σ_l²), a ~ N(0, σ_a²), y ~ N(f(x), 𝒯): the density
    exp(−Σ |f(x_μ) − y_μ|² / (2𝒯)) Π N(weights; 0, σ²). Source: arXiv 2405.15926, posterior.
    Where 𝒯 or the σ² have a prior, they are sites, too, and the weights are `weights_at` them.
    """
    names = tuple(architecture.weight_shapes)
    position = sample_sites(architecture, names, labels.dtype, hyper_priors)
    outputs = predict(weights_at(position, architecture), attended, architecture)
    observe_labels(outputs, labels, temperature * temperature_ratio(position))


def observe_labels(
    outputs: Float[Array, "example output"],
    labels: Float[Array, "example output"],
    temperature: Float[Array, ""] | float,
) -> None:
    """The tempered likelihood, y ~ N(f(x), 𝒯)."""
    numpyro.sample("y", dist.Normal(outputs, jnp.sqrt(temperature)).to_event(2), obs=labels)


def sample_sites(
    architecture: Architecture, names: tuple[str, ...], dtype, hyper_priors: HyperPriors
) -> dict[str, Array]:
    """The named weight arrays at known variances, and the hyper-parameters that have a prior."""
    priors = hyper_prior_sites(hyper_priors, architecture, dtype)
    hyper_parameters = {name: numpyro.sample(name, site) for name, site in priors.items()}
    return sample_weights(architecture, names, dtype) | hyper_parameters


def sample_weights(architecture: Architecture, names: tuple[str, ...], dtype) -> dict[str, Array]:
    """The named weight arrays, drawn from their Gaussian priors."""
    return {
        name: numpyro.sample(
            name,
            dist.Normal(
                jnp.zeros(architecture.weight_shapes[name], dtype),
                jnp.asarray(architecture.weight_variances[name] ** 0.5, dtype),
            ).to_event(len(architecture.weight_shapes[name])),
        )
        for name in names
    }
