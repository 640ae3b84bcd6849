"""The action against its transcription, the exact posterior and automatic differentiation."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special
import scipy.stats

from tests.assertions import assert_equal_to_rounding
from tests.dense import dense_kernel
from tests.problems import (
    ARCHITECTURES,
    EVERY_ARCHITECTURE,
    order_parameters_of,
    random_order_parameters,
    random_problem,
)
from theory import OrderParameters
from theory.action_functional import ActionByProducts, DenseAction


def partial_trace(matrix, heads):
    """Σ_h U^{(h,ρ),(h,ρ')}."""
    rows = len(matrix) // heads
    blocks = matrix.reshape(heads, rows, heads, rows)
    return sum(blocks[head, :, head] for head in range(heads))


def literal_action(problem, matrices):
    """The action as it is written down, with inverses, traces and determinants of matrices.

    Of matrices in NumPy or JAX.
    """
    arch, numbers = problem.architecture, matrices[0].__array_namespace__()
    log_determinant = [numbers.linalg.slogdet(matrix)[1] for matrix in matrices]
    top = arch.layers
    total = arch.widths[top] * (
        numbers.trace(matrices[top]) / arch.variances[top + 1] - log_determinant[top]
    )
    for layer in range(arch.layers):  # layer l of the theory is layer + 1
        traced = partial_trace(matrices[layer], arch.heads[layer])
        inverse = numbers.linalg.inv(matrices[layer + 1])
        total += arch.widths[layer] * (
            numbers.trace(inverse @ traced) / arch.variances[layer + 1]
            - log_determinant[layer]
            + arch.heads[layer] * log_determinant[layer + 1]
        )
    noisy = literal_noisy_kernel(problem, matrices[0])
    labels = np.asarray(problem.labels).reshape(-1)
    return total + numbers.linalg.slogdet(noisy)[1] + labels @ numbers.linalg.inv(noisy) @ labels


def literal_noisy_kernel(problem, overlap):
    kernel = dense_kernel(problem.attended, problem.attended, overlap, problem.architecture)
    return kernel + problem.temperature * np.eye(problem.labels.size)


def literal_matrices(arch, point):
    """U_l = F_l F_lᵀ with F_l = σ_l (1 ⊗ F_{l+1}) L_l, from the coordinates of all L_l."""
    triangles, start = [], 0
    for size in arch.order_parameter_sizes:
        triangle = jnp.diag(jnp.exp(point[start : start + size]))
        start += size
        for i, j in zip(*np.tril_indices(size, -1), strict=True):
            triangle = triangle.at[i, j].set(point[start])
            start += 1
        triangles.append(triangle)
    factor, matrices = jnp.eye(1), []
    counts = (*arch.heads, arch.outputs)
    for triangle, count, variance in zip(
        triangles[::-1], counts[::-1], arch.order_parameter_variances[::-1], strict=True
    ):
        factor = variance**0.5 * jnp.kron(jnp.eye(count), factor) @ triangle
        matrices.insert(0, factor @ factor.T)
    return matrices


def value_at(problem, order_parameters: OrderParameters) -> float:
    """A, not divided by a width, as Newton steps have it."""
    function = DenseAction(problem)
    point = function.coordinates.point_of(order_parameters.factors)
    return max(problem.architecture.widths) * function.value_and_gradient(point)[0]


def rounding_of(problem, matrices):
    condition = max(np.linalg.cond(literal_noisy_kernel(problem, matrices[0])), 1)
    condition = max(condition, *(np.linalg.cond(matrix) for matrix in matrices))
    arch = problem.architecture
    scale = sum(n * p for n, p in zip(arch.widths, arch.order_parameter_sizes, strict=True))
    return {"operations": problem.labels.size**2, "condition": condition, "scale": scale}


@pytest.mark.parametrize("name", EVERY_ARCHITECTURE)
def test_action_is_the_formula(name, rng):
    problem = random_problem(ARCHITECTURES[name], rng)
    matrices = random_order_parameters(problem.architecture, rng)
    received = value_at(problem, order_parameters_of(matrices))
    expected = literal_action(problem, matrices)
    assert_equal_to_rounding(received, expected, **rounding_of(problem, matrices))


def wishart_chain_log_density(arch, matrices):
    """ln p(U_a, U_L … U_1): U_a ~ Wishart(σ_a² 1/N_a), U_l ~ Wishart(σ_l² (1 ⊗ U_{l+1})/N_l)."""
    above, total = np.eye(arch.outputs), 0.0
    scales = zip(arch.widths, (*arch.heads, 1), arch.order_parameter_variances, strict=True)
    for matrix, (width, heads, variance) in reversed(list(zip(matrices, scales, strict=True))):
        scale = variance * np.kron(np.eye(heads), above) / width
        total += scipy.stats.wishart(df=width, scale=scale).logpdf(matrix)
        above = matrix
    return total


@pytest.mark.parametrize("name", ["one head", "two layers, three outputs"])
def test_action_is_the_exact_log_posterior_but_for_the_invariant_measure(name, rng):
    """ln p(U, y) + A/2 + ½ Σ (p_l + 1) ln det U_l is one constant, with a known value."""
    problem = random_problem(ARCHITECTURES[name], rng)
    arch = problem.architecture
    widths, variances = np.array(arch.widths), np.array(arch.order_parameter_variances)
    sizes = np.array(arch.order_parameter_sizes)
    constant = sum(
        n * p / 2 * np.log(n / (2 * v)) - scipy.special.multigammaln(n / 2, p)
        for n, p, v in zip(widths, sizes, variances, strict=True)
    )
    constant -= problem.labels.size / 2 * np.log(2 * np.pi)
    labels = np.asarray(problem.labels).reshape(-1)
    for _ in range(2):
        matrices = random_order_parameters(arch, rng)
        order_parameters = order_parameters_of(matrices)
        noisy = literal_noisy_kernel(problem, matrices[0])
        log_joint = wishart_chain_log_density(arch, matrices)
        log_joint += scipy.stats.multivariate_normal(np.zeros(len(noisy)), noisy).logpdf(labels)
        measure = sum(
            (p + 1) / 2 * np.linalg.slogdet(matrix)[1]
            for p, matrix in zip(sizes, matrices, strict=True)
        )
        value = value_at(problem, order_parameters)
        rounding = rounding_of(problem, matrices)
        rounding["scale"] = max(abs(value), abs(constant))
        assert_equal_to_rounding(log_joint + value / 2 + measure, constant, **rounding)


@pytest.mark.heavy
@pytest.mark.parametrize("name", ["narrow", "three layers, two outputs"])
def test_value_gradient_and_hessian(name, rng):
    problem = random_problem(ARCHITECTURES[name], rng)
    arch = problem.architecture

    def expected(point):
        return literal_action(problem, literal_matrices(arch, point)) / max(arch.widths)

    point = 0.4 * rng.standard_normal(arch.coordinate_count)
    dense, by_products = DenseAction(problem), ActionByProducts(arch, problem.energy)
    slope, curvature = jax.jit(lambda x: (jax.grad(expected)(x), jax.hessian(expected)(x)))(point)
    # roundings of a sum over examples, channels and rows, magnified by the inverses
    sizes = {"operations": 1e4, "condition": 1.0 / problem.temperature}
    for function in (dense, by_products):
        value, gradient = function.value_and_gradient(point)
        assert_equal_to_rounding(value, float(jax.jit(expected)(point)), **sizes, what="action")
        assert_equal_to_rounding(gradient, slope, **sizes, what="gradient")
        assert_equal_to_rounding(function.hessian(point), curvature, **sizes, what="Hessian")
