"""The space of all network weights: every V and a is sampled."""

from functools import partial

import jax.numpy as jnp
from jaxtyping import Array, Float

from sampler.network import overlaps, predict
from sampler.posterior.hyper_parameters import observed_hyper_parameters, weights_at
from sampler.posterior.space import Position, SampledSpace
from sampler.posterior.weight_model import weight_model
from theory.architecture import Architecture
from theory.learning_problem import LearningProblem


def weight_space(
    problem: LearningProblem,
    attended_test: Float[Array, "test path channel"],
    keep_weights: bool,
) -> SampledSpace:
    """All weights by NUTS or HMC; per draw the overlaps U_l and the predictor f(x)."""
    dtype = problem.attended.dtype
    temperature = jnp.asarray(problem.temperature, dtype)
    return SampledSpace(
        name="weights",
        model=partial(
            weight_model, architecture=problem.architecture, hyper_priors=problem.hyper_priors
        ),
        arguments=(problem.attended, problem.labels, temperature),
        observe=partial(
            observe_weights, architecture=problem.architecture, keep_weights=keep_weights
        ),
        observed=(jnp.asarray(attended_test, dtype), temperature),
    )


def observe_weights(
    key: Array,
    position: Position,
    attended_test: Float[Array, "test path channel"],
    temperature: Float[Array, ""],
    *,
    architecture: Architecture,
    keep_weights: bool,
) -> dict[str, Array]:
    """Overlaps and predictor of one weight draw (and the weights themselves if kept)."""
    weights = weights_at(position, architecture)
    observables = named_order_parameters(overlaps(weights, architecture))
    observables["predictor"] = predict(weights, attended_test, architecture)
    observables |= observed_hyper_parameters(position, temperature, architecture)
    return observables | (weights if keep_weights else {})


def named_order_parameters(matrices: tuple[Array, ...]) -> dict[str, Array]:
    """U_1, U_2 …, U_a under the names they have in every stored table."""
    *layers, readout = matrices
    names = ["order_parameter", *(f"order_parameter_layer_{n}" for n in range(2, len(layers) + 1))]
    return dict(zip(names, layers, strict=True)) | {"readout_order_parameter": readout}
