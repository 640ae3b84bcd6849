"""The spaces in which the posterior is sampled."""

from dataclasses import replace

import jax.numpy as jnp
from jaxtyping import Array, Float

from sampler.network import network_outputs, overlaps, path_weights
from sampler.posterior.density import (
    Density,
    Position,
    energy_at,
    network_scale,
    observed_hyper_parameters,
    specialised,
    weights_at,
)
from sampler.posterior.order_parameters import (
    OrderParameterPosterior,
    bartlett_prior,
    factors_at,
    find_mode,
    kernel_factor,
    likelihood_factor,
    order_parameter_model,
)
from sampler.posterior.weights import (
    draw_input_weights,
    narrowed,
    upper_weight_model,
    weight_model,
    weight_priors,
)
from theory.architecture import Architecture
from theory.bartlett import WishartChain
from theory.energy import LearningProblem
from theory.path_kernels import path_features
from theory.predictor import Predictor


def weight_density(
    problem: LearningProblem,
    attended_test: Float[Array, "test path channel"],
    keep_weights: bool,
) -> Density:
    """The posterior of all weights; per draw the overlaps U_l and the predictor f(x)."""
    dtype = problem.attended.dtype
    temperature = jnp.asarray(problem.temperature, dtype)
    variances = jnp.asarray(problem.architecture.variances, dtype)
    sizes, hyper_priors = problem.architecture.sizes, problem.hyper_priors
    residual = () if problem.residual is None else (problem.residual,)
    return Density(
        name="weights",
        model=specialised(weight_model, architecture=sizes, hyper_priors=hyper_priors),
        arguments=(problem.attended, problem.labels, temperature, variances, *residual),
        priors=weight_priors(sizes, variances, hyper_priors),
        observe=specialised(observe_weights, architecture=sizes, keep_weights=keep_weights),
        observed=(jnp.asarray(attended_test, dtype), temperature, variances),
    )


def observe_weights(
    key: Array,
    position: Position,
    attended_test: Float[Array, "test path channel"],
    temperature: Float[Array, ""],
    variances: Float[Array, " layer"],
    *,
    architecture: Architecture,
    keep_weights: bool,
) -> dict[str, Array]:
    """Overlaps and predictor of one weight draw (and the weights themselves if kept)."""
    weights = weights_at(position, architecture)
    observables = named_order_parameters(overlaps(weights, architecture))
    observables["predictor"] = network_outputs(weights, attended_test, architecture)
    observables |= observed_hyper_parameters(position, temperature, variances)
    return observables | (weights if keep_weights else {})


def named_order_parameters(matrices: tuple[Array, ...]) -> dict[str, Array]:
    """U_1, U_2 …, U_a under the names they have in every stored table."""
    *layers, readout = matrices
    names = ["order_parameter", *(f"order_parameter_layer_{n}" for n in range(2, len(layers) + 1))]
    return dict(zip(names, layers, strict=True)) | {"readout_order_parameter": readout}


def upper_weight_density(
    problem: LearningProblem,
    attended_test: Float[Array, "test path channel"],
    keep_weights: bool,
) -> Density:
    """The posterior of V_1 … V_L and a; V_0 is drawn back from its exact posterior at every draw.

    Per draw: the overlaps U_l, the exact predictor mean and variance given U_1, and f(x) of the
    completed weights (which are kept on request).
    """
    dtype = problem.attended.dtype
    attended_test = jnp.asarray(attended_test, dtype)
    variances = jnp.asarray(problem.architecture.variances, dtype)
    sizes, hyper_priors = problem.architecture.sizes, problem.hyper_priors
    return Density(
        name="upper_weights",
        model=specialised(upper_weight_model, architecture=sizes, hyper_priors=hyper_priors),
        arguments=(problem.energy, variances),
        priors=weight_priors(sizes, variances, hyper_priors, upper=True),
        observe=specialised(observe_upper_weights, architecture=sizes, keep_weights=keep_weights),
        observed=(
            Predictor.for_examples(problem, attended_test),
            problem.features,
            attended_test,
            variances,
        ),
    )


def observe_upper_weights(
    key: Array,
    position: Position,
    predictor: Predictor,
    features_train: Float[Array, "example path channel"],
    attended_test: Float[Array, "test path channel"],
    variances: Float[Array, " layer"],
    *,
    architecture: Architecture,
    keep_weights: bool,
) -> dict[str, Array]:
    """Observables of one draw of the upper weights, completed by a draw of V_0."""
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
        variances[0],
    )
    weights = weights_at({"V_0": input_weights, **position}, architecture)
    observables = named_order_parameters(overlaps(weights, architecture)) | {
        "predictor": network_outputs(weights, attended_test, architecture),
        "predictor_mean": mean,
        "predictor_variance": variance,
    }
    observables |= observed_hyper_parameters(position, temperature, variances)
    return observables | (weights if keep_weights else {})


def order_parameter_density(
    problem: LearningProblem, attended_test: Float[Array, "test path channel"]
) -> Density:
    """The posterior of U_1 … U_a in Bartlett coordinates; chains are whitened at its mode.

    Per draw: U_l, the exact predictor mean and variance given U_1 (Rao–Blackwell), one joint draw
    of f on the test set, and the Bartlett coordinates themselves.
    """
    attended_test = jnp.asarray(attended_test, problem.attended.dtype)
    posterior = OrderParameterPosterior.of(problem)

    def log_densities(points):
        return problem.residual_log_likelihood + posterior.for_batches.log_densities(points)

    return Density(
        name="order_parameters",
        model=specialised(order_parameter_model, hyper_priors=problem.hyper_priors),
        arguments=(problem.energy, posterior.chain),
        priors=posterior.priors,
        observe=observe_order_parameters,
        observed=(
            Predictor.for_examples(problem, attended_test),
            posterior.features,
            path_features(attended_test, problem.architecture.variances[0]),
            posterior.chain,
        ),
        mode=find_mode(posterior),
        log_densities=log_densities,
    )


def observe_order_parameters(
    key: Array,
    position: Position,
    predictor: Predictor,
    features_train: Float[Array, "example path channel"],
    features_test: Float[Array, "test path channel"],
    chain: WishartChain,
) -> dict[str, Array]:
    """Observables of one draw of the order parameters."""
    factors = factors_at(position, chain)
    observables = named_order_parameters(tuple(factor @ factor.T for factor in factors))
    here = replace(predictor, energy=energy_at(predictor.energy, position))
    mean, variance, sample = here.with_sample(
        key, likelihood_factor(position, chain), features_train, features_test
    )
    observables |= {
        "predictor": sample,
        "predictor_mean": mean,
        "predictor_variance": variance,
    }
    temperature = predictor.energy.temperature
    observables |= observed_hyper_parameters(position, temperature, chain.variances)
    # Coordinates without entries (the lower triangle of a 1 × 1 factor) are not worth storing.
    sites = {n: position[n] for n in bartlett_prior(chain) if position[n].size}
    return observables | {f"bartlett_{name}": values for name, values in sites.items()}


def make_density(
    name: str,
    problem: LearningProblem,
    attended_test: Float[Array, "test path channel"],
    keep_weights: bool,
) -> Density:
    """The posterior in the space `name`: "order_parameters", "upper_weights" or "weights".

    `keep_weights` has a meaning only where weights are sampled. Raises ValueError for another name.
    """
    if name == "order_parameters":
        return order_parameter_density(problem, attended_test)
    if name == "upper_weights":
        return upper_weight_density(problem, attended_test, keep_weights)
    if name == "weights":
        return weight_density(problem, attended_test, keep_weights)
    raise ValueError(f"space {name!r}: use order_parameters, upper_weights or weights")
