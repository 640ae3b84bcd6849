"""The space of order parameters: exact at any width, in a dimension that does not depend on it."""

from dataclasses import replace
from functools import partial

import jax.numpy as jnp
from jaxtyping import Array, Float

from sampler.posterior.hyper_parameters import energy_at, observed_hyper_parameters
from sampler.posterior.mode import find_mode
from sampler.posterior.order_parameter_model import (
    bartlett_prior,
    factors_at,
    likelihood_factor,
    order_parameter_model,
)
from sampler.posterior.space import Position, SampledSpace
from sampler.posterior.weight_space import named_order_parameters
from theory.architecture import Architecture
from theory.attended_inputs import path_features
from theory.learning_problem import LearningProblem
from theory.predictor import Predictor


def order_parameter_space(
    problem: LearningProblem, attended_test: Float[Array, "test path channel"]
) -> SampledSpace:
    """Bartlett coordinates of U_1 … U_a; chains start around the mode, whitened by its Hessian.

    Per draw: U_l, the exact predictor mean and variance given U_1 (Rao–Blackwell), one joint draw
    of f on the test set, and the Bartlett coordinates themselves.
    """
    architecture, dtype = problem.architecture, problem.attended.dtype
    attended_test = jnp.asarray(attended_test, dtype)
    variance = architecture.variances[0]
    mode = find_mode(problem)
    return SampledSpace(
        name="order_parameters",
        model=partial(
            order_parameter_model,
            architecture=architecture,
            hyper_priors=problem.hyper_priors,
        ),
        arguments=(problem.energy,),
        observe=partial(observe_order_parameters, architecture=architecture),
        observed=(
            Predictor.for_examples(problem, attended_test),
            problem.features,
            path_features(attended_test, variance),
        ),
        start=mode.draw,
        inverse_mass_matrix=mode.inverse_mass_matrix,
    )


def observe_order_parameters(
    key: Array,
    position: Position,
    predictor: Predictor,
    features_train: Float[Array, "example path channel"],
    features_test: Float[Array, "test path channel"],
    *,
    architecture: Architecture,
) -> dict[str, Array]:
    """What one draw of the order parameters says."""
    factors = factors_at(position, architecture)
    observables = named_order_parameters(tuple(factor @ factor.T for factor in factors))
    here = replace(predictor, energy=energy_at(predictor.energy, position))
    mean, variance, sample = here.with_sample(
        key, likelihood_factor(position, architecture), features_train, features_test
    )
    observables |= {
        "predictor": sample,
        "predictor_mean": mean,
        "predictor_variance": variance,
    }
    observables |= observed_hyper_parameters(position, predictor.energy.temperature, architecture)
    # Coordinates without entries (the lower triangle of a 1 × 1 factor) are not worth storing.
    sites = {n: position[n] for n in bartlett_prior(architecture, mean.dtype) if position[n].size}
    return observables | {f"bartlett_{name}": values for name, values in sites.items()}
