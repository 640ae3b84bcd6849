"""The space of all weights but V_0: real weights, at widths where sampling V_0 is too stiff."""

from dataclasses import replace
from functools import partial

import jax.numpy as jnp
from jaxtyping import Array, Float

from sampler.network import overlaps, path_weights, predict
from sampler.posterior.hyper_parameters import (
    energy_at,
    network_scale,
    observed_hyper_parameters,
    weights_at,
)
from sampler.posterior.input_weights import draw_input_weights
from sampler.posterior.order_parameter_model import kernel_factor
from sampler.posterior.space import Position, SampledSpace
from sampler.posterior.upper_weight_model import narrowed, upper_weight_model
from sampler.posterior.weight_space import named_order_parameters
from theory.architecture import Architecture
from theory.learning_problem import LearningProblem
from theory.predictor import Predictor


def upper_weight_space(
    problem: LearningProblem,
    attended_test: Float[Array, "test path channel"],
    keep_weights: bool,
) -> SampledSpace:
    """V_1 … V_L and a by NUTS or HMC, V_0 drawn back from its exact posterior at every draw.

    Per draw: the overlaps U_l, the exact predictor mean and variance given U_1, and f(x) of the
    completed weights (which are kept on request).
    """
    attended_test = jnp.asarray(attended_test, problem.attended.dtype)
    return SampledSpace(
        name="upper_weights",
        model=partial(
            upper_weight_model, architecture=problem.architecture, hyper_priors=problem.hyper_priors
        ),
        arguments=(problem.energy,),
        observe=partial(
            observe_upper_weights, architecture=problem.architecture, keep_weights=keep_weights
        ),
        observed=(
            Predictor.for_examples(problem, attended_test),
            problem.features,
            attended_test,
        ),
    )


def observe_upper_weights(
    key: Array,
    position: Position,
    predictor: Predictor,
    features_train: Float[Array, "example path channel"],
    attended_test: Float[Array, "test path channel"],
    *,
    architecture: Architecture,
    keep_weights: bool,
) -> dict[str, Array]:
    """What one draw of the upper weights says, completed by a draw of V_0."""
    temperature = predictor.energy.temperature
    predictor = replace(predictor, energy=energy_at(predictor.energy, position))
    lowest = path_weights(position, architecture)[0]
    factor = kernel_factor(narrowed(lowest / architecture.widths[0] ** 0.5), position)
    mean, variance = predictor(factor)
    input_weights = draw_input_weights(
        key,
        lowest,
        factor,
        predictor.energy,
        network_scale(position) * features_train,
        architecture.variances[0],
    )
    weights = weights_at({"V_0": input_weights, **position}, architecture)
    observables = named_order_parameters(overlaps(weights, architecture)) | {
        "predictor": predict(weights, attended_test, architecture),
        "predictor_mean": mean,
        "predictor_variance": variance,
    }
    observables |= observed_hyper_parameters(position, temperature, architecture)
    return observables | (weights if keep_weights else {})
