"""Draws without data: order parameters, what has a prior itself, and labels of the examples."""

import jax
import numpy as np
from jaxtyping import Array

from sampler.network import named_order_parameters
from sampler.posterior.pointwise import LabelledExamples
from theory.learning_problem import LearningProblem
from theory.path_kernels import path_features
from theory.wishart_chain import bartlett_shapes, chain_factors, link_scales

PRIOR_STREAM = 3


def prior_keys(seed: int, count: int) -> Array:
    """Keys of so many draws without data, which no chain uses."""
    return jax.random.split(jax.random.fold_in(jax.random.key(seed), PRIOR_STREAM), count)


def prior_draws(
    problem: LearningProblem, training: LabelledExamples | None, count: int, seed: int
) -> dict[str, np.ndarray]:
    """Name → draws [draw, …] without data, in the same law whatever the space.

    Order parameters, the temperature where it has a prior, and labels `posterior_predictive` of the
    training examples, as far as these are known. By NumPy: compiling a generator of χ² takes JAX
    seconds.
    """
    architecture, spread = problem.architecture, problem.temperature_spread
    rng = np.random.default_rng([seed, PRIOR_STREAM])
    matrices = []
    for shape in bartlett_shapes(architecture):
        matrix = np.zeros((count, shape.rows, shape.rank))
        diagonal = np.sqrt(rng.chisquare(shape.degrees, (count, shape.rank)))
        below = rng.standard_normal((count, shape.below_diagonal))
        matrix[:, *shape.places] = np.concatenate([diagonal, below], axis=1)
        matrices.append(matrix)
    factors = chain_factors(matrices, architecture.heads, link_scales(architecture))
    found = named_order_parameters(tuple(f @ f.swapaxes(1, 2) for f in factors))
    shifts = spread * rng.standard_normal(count)
    temperatures = problem.temperature * np.exp(shifts)
    if spread:
        found["temperature"] = temperatures
    if training is None:
        return found
    # f is linear in the features, with weights F z.
    features = path_features(np.asarray(training.inputs), architecture.variances[0])
    _, paths, channels = features.shape
    weights = factors[0] @ rng.standard_normal((count, factors[0].shape[2], channels))
    by_path = weights.reshape(count, paths, -1, channels)
    outputs = np.einsum("xpi,npci->nxc", features, by_path, optimize=True)
    noise = np.sqrt(temperatures)[:, None, None] * rng.standard_normal(outputs.shape)
    return found | {"posterior_predictive": (outputs + noise).astype(np.float32)}
