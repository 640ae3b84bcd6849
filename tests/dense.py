"""Definitions: kernels by every index, posteriors as plain functions, one head by quadrature."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import scipy.special

from tests.problems import ARCHITECTURES
from theory import Architecture, BartlettCoordinates, LearningProblem
from theory.wishart_chain import bartlett_matrix, chain_factors, link_scales


def dense_kernel(left, right, overlap, architecture):
    """K = σ_0²/(D Π) Σ_ππ' U_1^ππ' ξ^π(x)·ξ^π'(x'), rows and columns (example, output).

    left, right: ξ [example, path, channel]. Of the kind of array that U_1 is, NumPy's or JAX's.
    """
    paths, outputs = architecture.path_count, architecture.outputs
    einsum = overlap.__array_namespace__().einsum
    blocks = overlap.reshape(paths, outputs, paths, outputs)
    kernel = einsum("xpi,pcqd,yqi->xcyd", np.asarray(left), blocks, np.asarray(right))
    scale = architecture.variances[0] / (architecture.channels * paths)
    return scale * kernel.reshape(len(left) * outputs, len(right) * outputs)


def dense_kernel_of_infinite_width(left, right, architecture):
    """The same at U_1 = σ_1² … σ_a² 1, of one output: outputs are independent of each other."""
    scale = math.prod(architecture.variances) / (architecture.channels * architecture.path_count)
    return scale * np.einsum("xpi,ypi->xy", np.asarray(left), np.asarray(right))


# --- the posterior in Bartlett coordinates, to be differentiated

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


# --- one head, by quadrature


@dataclass(frozen=True)
class ScalarPosterior:
    """Exact posterior of a network with one layer, one head and one output, by quadrature.

    order_parameter, readout         (mean, standard deviation) of U_1 and u_a
    predictor_mean                   E[f(x)] [test]
    predictor_variance               Var[f(x)] = E[v] + Var[m] [test]
    log_evidence                     ln p(y)
    log_order_parameter_grid, density   p(ln U_1 | y) on an even grid, for quantiles and histograms
    """

    order_parameter: tuple[float, float]
    readout: tuple[float, float]
    predictor_mean: np.ndarray
    predictor_variance: np.ndarray
    log_evidence: float
    log_order_parameter_grid: np.ndarray
    density: np.ndarray


def exact_scalar_posterior(
    problem: LearningProblem, attended_test, *, points: int = 400, span: float = 9.0
) -> ScalarPosterior:
    """Quadrature of  u_a ~ σ_a² χ²/N_a,  U_1 | u_a ~ σ_1² u_a χ²/N_1,  y | U_1 ~ N(0, U_1 C + 𝒯 1).

    The trapezoidal rule over (ln u_a, ln U_1); the integrand is analytic and vanishes at both ends
    of the grid, so the rule converges faster than any power of the spacing. Uses NumPy only and
    the eigenvectors of C, no function of `theory`.
    """
    arch = problem.architecture
    if arch.heads != (1,) or arch.outputs != 1:
        raise ValueError(f"heads = {arch.heads}, outputs = {arch.outputs}: need (1,) and 1")
    width, readout_width = arch.widths
    input_variance, variance, readout_variance = arch.variances
    scale = np.sqrt(input_variance / arch.channels)
    train = scale * np.asarray(problem.attended)[:, 0]
    test = scale * np.asarray(attended_test)[:, 0]
    labels = np.asarray(problem.labels)[:, 0]

    grid = np.linspace(-span, span, points)
    overlap, readout = np.exp(grid), np.exp(grid)
    readout_prior = _log_gamma_density(readout, readout_width, readout_variance)
    overlap_prior = _log_gamma_density(overlap[:, None], width, variance * readout[None, :])

    eigenvalues, vectors = np.linalg.eigh(train @ train.T)
    eigenvalues = np.maximum(eigenvalues, 0.0)  # rounding, where examples are more than channels
    noisy = overlap[:, None] * eigenvalues + problem.temperature  # [overlap, component]
    projected = labels @ vectors
    likelihood = -0.5 * np.sum(np.log(2 * np.pi * noisy) + projected**2 / noisy, axis=1)

    log_joint = overlap_prior + readout_prior[None, :] + likelihood[:, None]
    peak, spacing = log_joint.max(), grid[1] - grid[0]
    joint = np.exp(log_joint - peak) * spacing**2
    total = joint.sum()
    joint /= total
    over_overlap, over_readout = joint.sum(axis=1), joint.sum(axis=0)

    cross = overlap[:, None, None] * (test @ train.T @ vectors)  # [overlap, test, component]
    mean = np.einsum("utk,uk,k->ut", cross, 1 / noisy, projected)
    prior_variance = overlap[:, None] * np.sum(test**2, axis=1)
    variance_given = prior_variance - np.einsum("utk,uk->ut", cross**2, 1 / noisy)
    predictor_mean = over_overlap @ mean
    return ScalarPosterior(
        order_parameter=_mean_and_deviation(overlap, over_overlap),
        readout=_mean_and_deviation(readout, over_readout),
        predictor_mean=predictor_mean,
        predictor_variance=over_overlap @ variance_given
        + over_overlap @ (mean - predictor_mean) ** 2,
        log_evidence=float(peak + np.log(total)),
        log_order_parameter_grid=grid,
        density=over_overlap / spacing,
    )


def _log_gamma_density(values, degrees: int, variance):
    """ln density, with respect to ln u, of u = variance · χ²_degrees / degrees."""
    shape, rate = degrees / 2, degrees / (2 * variance)
    return shape * np.log(rate * values) - rate * values - scipy.special.gammaln(shape)


def _mean_and_deviation(values: np.ndarray, probability: np.ndarray) -> tuple[float, float]:
    mean = probability @ values
    return float(mean), float(np.sqrt(probability @ (values - mean) ** 2))
