"""The exact posterior in Bartlett coordinates as plain JAX functions, to be differentiated."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from tests.dense import dense_kernel
from tests.problems import ARCHITECTURES
from theory import Architecture, BartlettCoordinates, LearningProblem
from theory.wishart_chain import bartlett_matrix, chain_factors, link_scales

# Regular and narrow layers, one output and several.
SMALL = {name: ARCHITECTURES[name] for name in ("one layer, two outputs", "two layers")}
SMALL["narrow, two outputs"] = Architecture((2,), (3, 1), (1.1, 0.5, 0.7), 2, outputs=2)


def chain(coordinates: BartlettCoordinates, point) -> tuple[jax.Array, ...]:
    """F_1 … F_{L+1} by the functions that the sampler uses."""
    matrices, point, architecture = [], jnp.asarray(point), coordinates.architecture
    shapes = architecture.bartlett_shapes
    for width, shape, layer in zip(architecture.widths, shapes, coordinates.layers, strict=True):
        middle = layer.start + shape.rank
        degrees = jnp.asarray(width - np.arange(shape.rank), float)
        diagonal, below = point[layer.start : middle], point[middle : layer.stop]
        matrices.append(bartlett_matrix(diagonal, below, shape.rows, degrees))
    return chain_factors(matrices, architecture.heads, link_scales(architecture))


def plain_energy(problem: LearningProblem) -> Callable:
    """E as a function of U_1, every entry free."""
    labels, noise = problem.labels.reshape(-1), problem.temperature * jnp.eye(problem.labels.size)

    def energy(overlap):
        attended = problem.attended
        kernel = dense_kernel(attended, attended, overlap, problem.architecture) + noise
        # E of all entries by themselves: no factorisation that takes K to be symmetric.
        return jnp.linalg.slogdet(kernel)[1] + labels @ jnp.linalg.solve(kernel, labels)

    return energy


def plain_log_posterior(problem: LearningProblem) -> Callable:
    """Φ(x) = ½ E(U_1(x)) + π(x) + (P O/2) ln 2π, π from the densities of χ and normal variables."""
    coordinates, energy = BartlettCoordinates(problem.architecture), plain_energy(problem)
    chi = coordinates.degrees > 0
    half = jnp.asarray(0.5 * coordinates.degrees[chi])

    def phi(point):
        factor = chain(coordinates, point)[0]
        # ln c² has the density of a gamma variable times c²; du/dt = √(2/ν).
        u = point[chi] / jnp.sqrt(half)
        square = 2.0 * half * jnp.exp(u)
        density = half * jnp.log(0.5 * square) - 0.5 * square - jax.lax.lgamma(half)
        density = jnp.sum(density - 0.5 * jnp.log(half))
        below = point[~chi]
        density -= 0.5 * below @ below + 0.5 * below.size * jnp.log(2.0 * jnp.pi)
        constant = 0.5 * problem.labels.size * jnp.log(2.0 * jnp.pi)
        return 0.5 * energy(factor @ factor.T) - density + constant

    return phi


def plain_predictor(problem: LearningProblem, attended: np.ndarray) -> Callable:
    """U_1 → m and v [test, output] of attended test inputs, from one joint kernel."""
    every, outputs = np.concatenate([attended, problem.attended]), problem.architecture.outputs
    labels, tests = problem.labels.reshape(-1), len(attended) * outputs
    noise = problem.temperature * jnp.eye(labels.size)

    def predict(overlap):
        joint = dense_kernel(every, every, overlap, problem.architecture)
        across, noisy = joint[:tests, tests:], joint[tests:, tests:] + noise
        covariance = joint[:tests, :tests] - across @ jnp.linalg.solve(noisy, across.T)
        mean = across @ jnp.linalg.solve(noisy, labels)
        return mean.reshape(-1, outputs), jnp.diagonal(covariance).reshape(-1, outputs)

    return predict
