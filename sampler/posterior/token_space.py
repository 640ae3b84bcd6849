"""The space of all weights of a network outside the theory, followed token by token."""

from functools import partial

import jax.numpy as jnp
from jaxtyping import Array, Float

from sampler.posterior.hyper_parameters import (
    observed_hyper_parameters,
    temperature_ratio,
    weights_at,
)
from sampler.posterior.space import Position, SampledSpace
from sampler.posterior.weight_model import observe_labels, sample_sites
from sampler.token_network import TokenNetwork, predict_tokens
from sampler.token_problem import TokenProblem
from theory.hyper_priors import KNOWN, HyperPriors


def token_space(problem: TokenProblem, keep_weights: bool) -> SampledSpace:
    """All weights by NUTS or HMC; per draw the predictor f(x), and the weights themselves if kept.

    The values are not linear, or normalised between layers: there is no product of weights along a
    path, so no overlap U_l is observed.
    """
    temperature = jnp.asarray(problem.temperature, problem.labels.dtype)
    validation = () if problem.validation is None else (problem.validation.arrays,)
    return SampledSpace(
        name="weights",
        model=partial(token_model, network=problem.network, hyper_priors=problem.hyper_priors),
        arguments=(*problem.train.arrays, problem.labels, temperature),
        observe=partial(observe_tokens, network=problem.network, keep_weights=keep_weights),
        observed=(temperature, problem.test.arrays, *validation),
    )


def token_model(
    inputs: Float[Array, "example token channel"],
    attention: tuple[Float[Array, "example _head key query"], ...],
    labels: Float[Array, "example output"],
    temperature: Float[Array, ""] | float,
    network: TokenNetwork,
    hyper_priors: HyperPriors = KNOWN,
) -> None:
    """Priors and likelihood of `weight_model`, f(x) token by token."""
    names = tuple(network.architecture.weight_shapes)
    position = sample_sites(network.architecture, names, labels.dtype, hyper_priors)
    weights = weights_at(position, network.architecture)
    outputs = predict_tokens(weights, inputs, attention, network)
    observe_labels(outputs, labels, temperature * temperature_ratio(position))


def observe_tokens(
    key: Array,
    position: Position,
    temperature: Float[Array, ""],
    test: tuple,
    validation: tuple | None = None,
    *,
    network: TokenNetwork,
    keep_weights: bool,
) -> dict[str, Array]:
    """f on the test set and, where there is one, on the validation set."""
    weights = weights_at(position, network.architecture)
    observables = {"predictor": predict_tokens(weights, *test, network)}
    if validation is not None:
        observables["predictor_validation"] = predict_tokens(weights, *validation, network)
    observables |= observed_hyper_parameters(position, temperature, network.architecture)
    return observables | (weights if keep_weights else {})
