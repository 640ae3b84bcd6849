"""The action and its coordinates against transcriptions and automatic differentiation."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special
import scipy.stats
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.assertions import assert_equal_to_rounding
from tests.dense import chain, dense_kernel
from tests.problems import (
    ARCHITECTURES,
    EVERY_ARCHITECTURE,
    order_parameters_of,
    random_order_parameters,
    random_problem,
)
from theory import Architecture, BartlettCoordinates, OrderParameters
from theory.action_functional import ActionByProducts, DenseAction, RelativeCoordinates


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


@pytest.mark.slow
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


# --- order parameters and their coordinates relative to the layer above


@st.composite
def sizes(draw) -> tuple:
    """Up to three layers, any numbers of heads, outputs and units, narrow layers among them."""
    heads = tuple(draw(st.lists(st.integers(1, 3), min_size=1, max_size=3)))
    count = len(heads) + 1
    widths = draw(st.lists(st.integers(1, 20), min_size=count, max_size=count))
    variances = draw(st.lists(st.floats(0.1, 10.0), min_size=count + 1, max_size=count + 1))
    return heads, tuple(widths), tuple(variances), 3, draw(st.integers(1, 2))


ANY = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@ANY
@given(sizes=sizes(), seed=st.integers(0, 2**32 - 1))
def test_matrices_and_coordinates_come_back(sizes, seed):
    """U_l of any positive definite matrices, by log-Cholesky and by Bartlett coordinates."""
    architecture = Architecture(*sizes)
    matrices = random_order_parameters(architecture, np.random.default_rng(seed))
    order_parameters = order_parameters_of(matrices)
    for kind in (RelativeCoordinates, BartlettCoordinates):
        coordinates = kind(architecture)
        if kind is BartlettCoordinates and not architecture.is_regular:
            with pytest.raises(ValueError, match="narrow layer"):
                coordinates.point_of(order_parameters.factors)
            continue
        point = coordinates.point_of([np.asarray(one) for one in order_parameters.factors])
        assert point.shape == (coordinates.size,)
        for factor, expected in zip(coordinates.factors(point), matrices, strict=True):
            condition = max(map(np.linalg.cond, matrices))
            rounding = {"operations": 50 * len(expected), "condition": condition}
            assert_equal_to_rounding(factor @ factor.T, expected, **rounding)
            np.testing.assert_array_equal(factor, np.tril(factor))


CHAIN = Architecture((2, 2), (5, 4, 3), (1.1, 0.8, 1.2, 0.7), channels=3)


def test_gp_limit_multiplies_the_variances_from_the_readout_down():
    architecture = ARCHITECTURES["two layers, three outputs"]
    _, first, second, readout = architecture.variances
    expected = (readout * second * first, readout * second, readout)
    matrices = OrderParameters.gp_limit(architecture).matrices
    for matrix, value, size in zip(matrices, expected, (18, 6, 3), strict=True):
        assert_equal_to_rounding(matrix, value * np.eye(size), operations=8)


def test_log_invariant_volume_is_the_log_determinant_of_the_jacobian(rng):
    """ln |∂U/∂x| − Σ (p_l + 1)/2 ln det U_l."""
    point = rng.standard_normal(14)

    def free_entries(point):
        """Entries of all U_l on and below the diagonal."""
        matrices = literal_matrices(CHAIN, point)
        return jnp.concatenate([m[np.tril_indices(len(m))] for m in matrices])

    jacobian = np.asarray(jax.jit(jax.jacfwd(free_entries))(point))
    expected = np.linalg.slogdet(jacobian)[1] - sum(
        (len(matrix) + 1) / 2 * np.linalg.slogdet(matrix)[1]
        for matrix in literal_matrices(CHAIN, point)
    )
    received = RelativeCoordinates(CHAIN).log_invariant_volume(point)
    assert_equal_to_rounding(
        received, expected, operations=100, condition=np.linalg.cond(jacobian), scale=1.0
    )


# --- bartlett coordinates: their prior, and Taylor series of the factors along lines


CASES = pytest.mark.parametrize("name", EVERY_ARCHITECTURE)


def factors_by_definition(architecture, coordinates):
    """F_{L+1} = σ_a B/√N_a and F_l = σ_l (1 ⊗ F_{l+1}) B/√N_l, one entry of B at a time."""
    widths, variances = architecture.widths[::-1], architecture.variances[:0:-1]
    sizes = (architecture.outputs, *architecture.heads[::-1])
    above, blocks = np.eye(1), []
    for width, heads in zip(widths, sizes, strict=True):
        rows = heads * above.shape[1]
        rank = min(width, rows)
        blocks.append((rows, rank, width))
        above = np.eye(rank)
    values, matrices = iter(coordinates), []
    for rows, rank, width in reversed(blocks):
        matrix = np.zeros((rows, rank))
        for i in range(rank):
            nu = width - i
            matrix[i, i] = math.exp(0.5 * math.log(nu) + next(values) / math.sqrt(2 * nu))
        for i, j in itertools.product(range(rows), range(rank)):
            if i > j:
                matrix[i, j] = next(values)
        matrices.append(matrix)
    assert next(values, None) is None
    factor, factors = np.eye(1), []
    for matrix, heads, width, variance in zip(
        matrices[::-1], sizes, widths, variances, strict=True
    ):
        factor = math.sqrt(variance / width) * np.kron(np.eye(heads), factor) @ matrix
        factors.append(factor)
    return factors[::-1]


@CASES
def test_factors(name, rng):
    """By the definition, and by the compiled functions that the sampler uses."""
    architecture = ARCHITECTURES[name]
    coordinates = BartlettCoordinates(architecture)
    assert coordinates.size == architecture.bartlett_coordinate_count
    assert coordinates.architecture.is_regular is ("narrow" not in name)
    point = rng.standard_normal(coordinates.size)
    received = coordinates.factors(point)
    definition = factors_by_definition(architecture, point)
    compiled = jax.jit(lambda x: chain(coordinates, x))(point)
    for factor, *expected in zip(received, definition, compiled, strict=True):
        for other in expected:
            assert factor.shape == other.shape
            assert_equal_to_rounding(factor, other, operations=10 * factor.shape[0])


@CASES
def test_prior_of_the_coordinates(name, rng):
    """Densities of χ_{N_l − i} and of normal variables by SciPy, with the Jacobian dc/dt."""
    architecture = ARCHITECTURES[name]
    coordinates = BartlettCoordinates(architecture)
    point = 1.5 * rng.standard_normal(coordinates.size)
    received = coordinates.prior_derivatives(point)[0]
    factors = iter(received)
    parts = zip(architecture.widths, architecture.bartlett_shapes, coordinates.layers, strict=True)
    for width, shape, layer in parts:
        diagonal, below = np.split(point[layer], [shape.rank])
        for i, t in enumerate(diagonal):
            nu = width - i
            c = math.sqrt(nu) * math.exp(t / math.sqrt(2 * nu))
            expected = -scipy.stats.chi.logpdf(c, nu) - math.log(c / math.sqrt(2 * nu))
            assert next(factors) == pytest.approx(expected, abs=1e-12 * (1 + nu))
        for value in below:
            assert next(factors) == pytest.approx(-scipy.stats.norm.logpdf(value), abs=1e-14)
    assert next(factors, None) is None
