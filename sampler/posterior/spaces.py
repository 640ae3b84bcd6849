"""The spaces in which the posterior is sampled."""

from collections.abc import Mapping
from dataclasses import replace

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from sampler.devices import side_by_side
from sampler.network import (
    effective_weights,
    named_order_parameters,
    network_outputs,
    outputs_of,
    overlaps,
    path_weights,
)
from sampler.posterior.density import (
    Density,
    Position,
    observed_temperature,
    specialised,
    weights_at,
)
from sampler.posterior.hidden_weights import Forward, hidden_weight_density
from sampler.posterior.order_parameters import (
    OrderParameterPosterior,
    bartlett_prior,
    find_mode,
    likelihood_factor,
    order_parameter_model,
    order_parameters_at,
)
from sampler.posterior.pointwise import (
    LabelledExamples,
    given_order_parameter,
    given_weights,
)
from sampler.posterior.weights import (
    weight_model,
    weight_priors,
)
from theory.architecture import CHUNK_BYTES, Architecture
from theory.learning_problem import LearningProblem
from theory.leave_one_out import Combinations
from theory.path_kernels import Features, path_features, sum_over_paths
from theory.predictor import Predictor
from theory.wishart_chain import WishartChain

# What is read off a draw for its predictions alone: F with K(F Fᵀ) the kernel of the labels, and
# the weights of attended inputs, which are kept where training examples are too many.
FACTOR, EFFECTIVE = "kernel_factor", "effective_weights"
# Draws are completed so many side by side, if their kernels fit into these bytes.
MOST_TOGETHER, BATCH_BYTES = 64, 256 * 2**20


def weight_density(
    problem: LearningProblem,
    attended_test: Float[Array, "test path channel"],
    with_weights: bool,
    training: LabelledExamples | None = None,
) -> Density:
    """The posterior of all weights; per draw the overlaps U_l and the predictor f(x).

    Also what a draw says of the training labels.
    """
    dtype = problem.attended.dtype
    temperature = jnp.asarray(problem.temperature, dtype)
    variances = jnp.asarray(problem.architecture.variances, dtype)
    sizes, temperature_spread = problem.architecture.sizes, problem.temperature_spread
    residual = () if problem.residual is None else (problem.residual,)
    return Density(
        name="weights",
        model=specialised(weight_model, architecture=sizes, temperature_spread=temperature_spread),
        arguments=(problem.attended, problem.labels, temperature, variances, *residual),
        priors=weight_priors(sizes, variances, temperature_spread),
        observe=specialised(observe_weights, architecture=sizes, with_weights=with_weights),
        observed=(temperature,),
        complete=specialised(predict_of_weights, architecture=sizes),
        completing=(jnp.asarray(attended_test, dtype), temperature, training),
        passing=(EFFECTIVE,),
        together=side_by_side(MOST_TOGETHER),
    )


def observe_weights(
    key: Array,
    position: Position,
    temperature: Float[Array, ""],
    *,
    architecture: Architecture,
    with_weights: bool,
) -> dict[str, Array]:
    """Overlaps of one weight draw (and the weights themselves if kept)."""
    weights = weights_at(position, architecture)
    lowest = path_weights(weights, architecture)[0]
    observables = named_order_parameters(overlaps(weights, architecture))
    observables[EFFECTIVE] = effective_weights(lowest, weights["V_0"], architecture)
    observables |= observed_temperature(position, temperature)
    return observables | (weights if with_weights else {})


def predict_of_weights(
    key: Array,
    seen: Mapping[str, Array],
    attended_test: Float[Array, "test path channel"],
    temperature: Float[Array, ""],
    training: LabelledExamples | None,
    *,
    architecture: Architecture,
) -> dict[str, Array]:
    """Predictor of one weight draw, and what it says of the training labels."""
    found = {"predictor": outputs_of(seen[EFFECTIVE], attended_test, architecture)}
    if training is None:
        return found
    outputs = outputs_of(seen[EFFECTIVE], training.inputs, architecture)
    here = seen.get("temperature", temperature)
    return found | given_weights(key, outputs, training.labels, here)


def at_temperature_of(predictor: Predictor, seen: Mapping[str, Array]) -> Predictor:
    """The predictor at the temperature of a draw, where it is sampled."""
    if "temperature" not in seen:
        return predictor
    return replace(predictor, energy=replace(predictor.energy, temperature=seen["temperature"]))


def draws_together(predictor: Predictor, problem: LearningProblem) -> int | None:
    """Return the number of draws completed side by side, None for one after the other."""
    examples, outputs = problem.labels.shape
    numbers = 3 * predictor.cross.examples * examples * outputs**2
    if isinstance(predictor.cross, Features):
        numbers = 3 * CHUNK_BYTES // 8
    return side_by_side(int(max(1, min(MOST_TOGETHER, BATCH_BYTES // (8 * numbers)))))


def order_parameter_density(
    problem: LearningProblem,
    attended_test: Float[Array, "test path channel"],
    whitened: bool = True,
    training: LabelledExamples | None = None,
) -> Density:
    """The posterior of U_1 … U_a in Bartlett coordinates; chains are whitened at its mode.

    Per draw: U_l, the exact predictor mean and variance given U_1 (Rao–Blackwell), one joint draw
    of f on the test set, the Bartlett coordinates themselves, and what U_1 says of the training
    labels.
    """
    attended_test = jnp.asarray(attended_test, problem.attended.dtype)
    posterior = OrderParameterPosterior.of(problem)
    predictor = Predictor.for_examples(problem, attended_test)
    temperature = jnp.asarray(np.asarray(problem.temperature, attended_test.dtype))
    if training is not None and training.rows:
        combinations = Combinations.of(problem, training.inputs, training.labels)
        training = replace(training, combinations=combinations)

    def log_densities(points):
        return problem.residual_log_likelihood + posterior.for_batches.log_densities(points)

    return Density(
        name="order_parameters",
        model=specialised(order_parameter_model, temperature_spread=problem.temperature_spread),
        arguments=(problem.energy, posterior.chain),
        priors=posterior.priors,
        observe=observe_order_parameters,
        observed=(posterior.chain, temperature),
        complete=predict_of_order_parameters,
        completing=(
            predictor,
            posterior.features,
            path_features(attended_test, problem.architecture.variances[0]),
            jnp.asarray(np.asarray(problem.architecture.variances[0], problem.labels.dtype)),
            training,
        ),
        passing=(FACTOR,),
        together=draws_together(predictor, problem),
        mode=find_mode(problem, posterior) if whitened else None,
        log_densities=log_densities,
    )


def observe_order_parameters(
    key: Array,
    position: Position,
    chain: WishartChain,
    temperature: Float[Array, ""],
) -> dict[str, Array]:
    observables = named_order_parameters(order_parameters_at(position, chain))
    observables[FACTOR] = likelihood_factor(position, chain)
    observables |= observed_temperature(position, temperature)
    return observables | {f"bartlett_{name}": position[name] for name in bartlett_prior(chain)}


def predict_of_order_parameters(
    key: Array,
    seen: Mapping[str, Array],
    predictor: Predictor,
    features_train: Float[Array, "example path channel"],
    features_test: Float[Array, "test path channel"],
    input_variance: Float[Array, ""],
    training: LabelledExamples | None,
) -> dict[str, Array]:
    """Exact predictor mean and variance given U_1, and one joint draw of f on the test set.

    And what U_1 says of the training labels, for which the same f is drawn.
    """
    predictor, factor = at_temperature_of(predictor, seen), seen[FACTOR]
    whitening = predictor.whitening(factor)
    mean, variance = predictor.moments(whitening, factor)
    weights = predictor.draw_weights(key, whitening, factor, features_train)
    sample = sum_over_paths(features_test, weights)
    found = {"predictor": sample, "predictor_mean": mean, "predictor_variance": variance}
    if training is None:
        return found
    outputs = sum_over_paths(path_features(training.inputs, input_variance), weights)
    return found | given_order_parameter(key, predictor.energy, whitening, outputs, training)


def linear_outputs(architecture: Architecture) -> Forward:
    """The forward pass of a network of these sizes whose readout is one row per hidden unit."""
    wide = replace(architecture.sizes, outputs=architecture.widths[-1])
    return specialised(network_outputs, architecture=wide)


def hidden_density(
    problem: LearningProblem,
    attended_test: Float[Array, "test path channel"],
    with_weights: bool,
    training: LabelledExamples | None = None,
) -> Density:
    """The posterior of V_0 … V_L; the readout is drawn back from its exact posterior at every draw.

    Per draw: the overlaps U_l, the exact predictor mean and variance given the hidden weights, f(x)
    of the completed weights, and what the hidden weights say of the training labels.
    """
    return hidden_weight_density(
        problem.attended,
        problem.labels,
        problem.temperature,
        problem.architecture,
        linear_outputs(problem.architecture),
        jnp.asarray(attended_test, problem.attended.dtype),
        temperature_spread=problem.temperature_spread,
        training=training,
        residual=problem.residual,
        fits_theory=True,
        kept=tuple(problem.architecture.weight_shapes) if with_weights else (),
    )


def make_density(
    name: str,
    problem: LearningProblem,
    attended_test: Float[Array, "test path channel"],
    with_weights: bool,
    whitened: bool = True,
    training: LabelledExamples | None = None,
) -> Density:
    """The posterior in a space: "order_parameters", "hidden_weights" or "weights".

    `with_weights` has a meaning only where weights are sampled, `whitened` (the mode is looked for)
    only where they are not. `training` are the examples of which every draw says something. Raises
    ValueError for another name.
    """
    if name == "order_parameters":
        return order_parameter_density(problem, attended_test, whitened, training)
    if name == "hidden_weights":
        return hidden_density(problem, attended_test, with_weights, training)
    if name == "weights":
        return weight_density(problem, attended_test, with_weights, training)
    known = "order_parameters, hidden_weights or weights"
    raise ValueError(f"space {name!r}: use {known}")
