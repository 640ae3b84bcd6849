"""Draws without data: order parameters, what has a prior itself, and labels of the examples."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from sampler.network import outputs_of
from sampler.posterior.density import (
    drawn_sites,
    observed_hyper_parameters,
    temperature_ratio,
)
from sampler.posterior.order_parameters import likelihood_factor, order_parameters_at, site_priors
from sampler.posterior.pointwise import LabelledExamples, new_labels
from sampler.posterior.spaces import EFFECTIVE, named_order_parameters, observe_weights
from sampler.posterior.weights import weight_priors
from theory.architecture import Architecture, HyperPriors
from theory.bartlett import WishartChain
from theory.energy import LearningProblem
from theory.path_kernels import path_features, summed_over_paths

PRIOR_STREAM = 3


def prior_keys(seed: int, count: int) -> Array:
    """Keys of so many draws without data, which no chain uses."""
    return jax.random.split(jax.random.fold_in(jax.random.key(seed), PRIOR_STREAM), count)


def prior_draws(
    problem: LearningProblem,
    training: LabelledExamples | None,
    keep_weights: bool,
    count: int,
    seed: int,
) -> dict[str, np.ndarray]:
    """Name → draws [draw, …] without data, in the same law whatever the space.

    Order parameters, temperature and variances where they have a prior, weights if they are kept,
    and labels `posterior_predictive` of the training examples, as far as these are known.
    """
    keys, dtype = prior_keys(seed, count), problem.labels.dtype
    temperature = jnp.asarray(np.asarray(problem.temperature, dtype))
    if keep_weights:
        variances = jnp.asarray(np.asarray(problem.architecture.variances, dtype))
        arguments = keys, variances, temperature, training
        found = _of_weights(*arguments, problem.architecture.sizes, problem.hyper_priors)
    else:
        chain = WishartChain.of(problem.architecture, dtype)
        found = _of_order_parameters(keys, chain, temperature, training, problem.hyper_priors)
    return {name: np.asarray(values) for name, values in found.items()}


@partial(jax.jit, static_argnames="hyper_priors")
def _of_order_parameters(
    keys, chain: WishartChain, temperature, training, hyper_priors: HyperPriors
):
    def one(key):
        site_key, function_key, noise_key = jax.random.split(key, 3)
        position = drawn_sites(site_key, site_priors(chain, hyper_priors))
        found = named_order_parameters(order_parameters_at(position, chain))
        found |= observed_hyper_parameters(position, temperature, chain.variances)
        if training is None:
            return found
        # f is linear in the features, with weights F z.
        factor = likelihood_factor(position, chain)
        _, paths, channels = training.inputs.shape
        normal = jax.random.normal(function_key, (factor.shape[1], channels), factor.dtype)
        features = path_features(training.inputs, chain.variances[0])
        outputs = summed_over_paths(features, (factor @ normal).reshape(paths, -1, channels))
        here = temperature * temperature_ratio(position)
        return found | new_labels(noise_key, outputs, here)

    return jax.lax.map(one, keys)


@partial(jax.jit, static_argnames=("architecture", "hyper_priors"))
def _of_weights(
    keys,
    variances: Float[Array, " layer"],
    temperature,
    training,
    architecture: Architecture,
    hyper_priors: HyperPriors,
):
    def one(key):
        site_key, noise_key = jax.random.split(key)
        position = drawn_sites(site_key, weight_priors(architecture, variances, hyper_priors))
        seen = (key, position, temperature, variances)
        found = observe_weights(*seen, architecture=architecture, keep_weights=True)
        effective = found.pop(EFFECTIVE)
        if training is None:
            return found
        outputs = outputs_of(effective, training.inputs, architecture)
        return found | new_labels(noise_key, outputs, temperature * temperature_ratio(position))

    return jax.lax.map(one, keys)
