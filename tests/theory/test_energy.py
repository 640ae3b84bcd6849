"""The energy of the labels, its hand-written derivatives, and the learning problem."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from jax.test_util import check_grads

from tests.assertions import assert_equal_to_rounding
from tests.problems import (
    ARCHITECTURES,
    EVERY_ARCHITECTURE,
    NetworkData,
    random_network_data,
    random_order_parameters,
    random_problem,
    random_weights,
)
from theory import LabelEnergy, LearningProblem, NoisyKernel, TemperatureTooSmall, sub_network
from theory.energy import energy_of_columns, energy_of_kernel, lowest_temperature
from theory.energy_derivatives import expand_energy
from theory.path_kernels import Features, path_features, store_path_kernels


def problem_and_factor(name, rng):
    problem = random_problem(ARCHITECTURES[name], rng)
    overlap = random_order_parameters(problem.architecture, rng)[0]
    return problem, jnp.asarray(np.linalg.cholesky(overlap))


def both_forms(problem):
    """The energy with path kernels kept as features and stored as kernels."""
    energy = problem.energy
    assert isinstance(energy.kernels, Features), "tiny problems take the feature form"
    stored = store_path_kernels(energy.kernels, problem.architecture.outputs)
    return energy, LabelEnergy(stored, energy.labels, energy.temperature)


def dense_kernel(problem, overlap):
    """K + 𝒯 1 from the features with every index written out."""
    outputs, paths = problem.architecture.outputs, problem.architecture.path_count
    blocks = overlap.reshape(paths, outputs, paths, outputs)
    kernel = jnp.einsum("xpi,pcqd,yqi->xcyd", problem.features, blocks, problem.features)
    size = problem.labels.size
    return kernel.reshape(size, size) + problem.temperature * jnp.eye(size)


def plain_energy(problem, overlap):
    """ln det(K + 𝒯 1) + yᵀ (K + 𝒯 1)⁻¹ y for JAX to differentiate by itself."""
    noisy, labels = dense_kernel(problem, overlap), problem.labels.reshape(-1)
    cholesky = jnp.linalg.cholesky(noisy)
    whitened = jax.scipy.linalg.solve_triangular(cholesky, labels, lower=True)
    return 2 * jnp.sum(jnp.log(jnp.diagonal(cholesky))) + whitened @ whitened


def rounding_of(problem, factor):
    """Tolerance arguments of one Cholesky solve with this problem's K + 𝒯 1."""
    noisy = np.asarray(dense_kernel(problem, factor @ factor.T))
    return {"operations": len(noisy) ** 2, "condition": np.linalg.cond(noisy)}


@pytest.mark.parametrize("name", EVERY_ARCHITECTURE)
def test_energy_is_minus_twice_the_log_likelihood(name, rng):
    problem, factor = problem_and_factor(name, rng)
    noisy = np.asarray(dense_kernel(problem, factor @ factor.T))
    labels = np.asarray(problem.labels).reshape(-1)
    normal = scipy.stats.multivariate_normal(np.zeros(len(noisy)), noisy)
    expected = -2 * normal.logpdf(labels) - len(noisy) * np.log(2 * np.pi)
    for energy in both_forms(problem):
        assert_equal_to_rounding(energy(factor), expected, **rounding_of(problem, factor))


@pytest.mark.heavy
@pytest.mark.parametrize("name", EVERY_ARCHITECTURE)
def test_gradient_is_that_of_autodiff_through_cholesky(name, rng):
    problem, factor = problem_and_factor(name, rng)
    plain = jax.jit(jax.value_and_grad(lambda f: plain_energy(problem, f @ f.T)))
    expected_value, expected = plain(factor)
    for energy in both_forms(problem):
        value, gradient = jax.jit(jax.value_and_grad(energy))(factor)
        rounding = rounding_of(problem, factor)
        assert_equal_to_rounding(value, expected_value, **rounding)
        # the gradient solves twice with K + 𝒯 1
        rounding["condition"] **= 2
        assert_equal_to_rounding(gradient, expected, **rounding)


@pytest.mark.heavy
@pytest.mark.parametrize("name", EVERY_ARCHITECTURE)
def test_slope_in_the_temperature_is_that_of_autodiff_through_cholesky(name, rng):
    problem, factor = problem_and_factor(name, rng)
    noisy, labels = dense_kernel(problem, factor @ factor.T), problem.labels.reshape(-1)

    def plain(temperature):
        matrix = noisy + (temperature - problem.temperature) * jnp.eye(labels.size)
        cholesky = jnp.linalg.cholesky(matrix)
        whitened = jax.scipy.linalg.solve_triangular(cholesky, labels, lower=True)
        return 2 * jnp.sum(jnp.log(jnp.diagonal(cholesky))) + whitened @ whitened

    expected = jax.jit(jax.grad(plain))(problem.temperature)
    rounding = rounding_of(problem, factor)
    rounding["condition"] **= 2  # solves twice with K + 𝒯 1
    for energy in both_forms(problem):
        slope = jax.jit(jax.grad(lambda t, e: replace(e, temperature=t)(factor)))
        assert_equal_to_rounding(slope(problem.temperature, energy), expected, **rounding)


@pytest.mark.parametrize("name", EVERY_ARCHITECTURE)
def test_slope_in_the_labels_is_twice_the_solution(name, rng):
    problem, factor = problem_and_factor(name, rng)
    noisy = dense_kernel(problem, factor @ factor.T)
    expected = 2.0 * np.linalg.solve(noisy, np.asarray(problem.labels).reshape(-1))
    rounding = rounding_of(problem, factor)
    rounding["condition"] **= 2  # solves twice with K + 𝒯 1
    for energy in both_forms(problem):
        slope = jax.jit(jax.grad(lambda y, e: replace(e, labels=y)(factor)))
        received = slope(problem.labels, energy).reshape(-1)
        assert_equal_to_rounding(received, expected, **rounding)


@pytest.mark.heavy
@pytest.mark.parametrize("name", ["one layer, two outputs", "two layers"])
def test_no_argument_is_left_out_of_the_derivatives_of_path_kernels(name, rng):
    problem, factor = problem_and_factor(name, rng)
    overlap = factor @ factor.T
    expected = jax.jit(jax.grad(lambda x: plain_energy(replace(problem, attended=x), overlap)))(
        problem.attended
    )

    def of_features(attended):
        features = path_features(attended, problem.architecture.variances[0])
        return replace(problem.energy, kernels=Features(features))(factor)

    def of_stored(attended):
        features = path_features(attended, problem.architecture.variances[0])
        stored = store_path_kernels(Features(features), problem.architecture.outputs)
        return replace(problem.energy, kernels=stored)(factor)

    rounding = rounding_of(problem, factor)
    rounding["condition"] **= 2
    for function in (of_features, of_stored):
        received = jax.jit(jax.grad(function))(problem.attended)
        assert_equal_to_rounding(received, expected, **rounding)


@pytest.mark.parametrize("energy", [energy_of_kernel, energy_of_columns])
def test_both_energies_are_differentiable_twice_in_every_argument(energy, rng):
    columns = jnp.asarray(rng.standard_normal((5, 3)))
    first = columns @ columns.T if energy is energy_of_kernel else columns
    arguments = first, jnp.asarray(rng.standard_normal((5, 2))), jnp.asarray(0.3)

    def plain(matrix, labels, temperature):
        kernel = matrix if energy is energy_of_kernel else matrix @ matrix.T
        noisy = 0.5 * (kernel + kernel.T) + temperature * jnp.eye(5)
        quadratic = jnp.sum(labels * jnp.linalg.solve(noisy, labels))
        return 2 * jnp.linalg.slogdet(noisy)[1] + quadratic

    moved = tuple(jnp.asarray(rng.standard_normal(each.shape)) for each in arguments)
    if energy is energy_of_kernel:  # symmetric kernels are all there are
        moved = (moved[0] + moved[0].T, *moved[1:])
    gradient = jax.grad(energy, argnums=(0, 1, 2))
    expected = jax.grad(plain, argnums=(0, 1, 2))
    condition = float(np.linalg.cond(np.asarray(columns @ columns.T) + 0.3 * np.eye(5)))
    for received, wanted in zip(
        jax.jvp(gradient, arguments, moved), jax.jvp(expected, arguments, moved), strict=True
    ):
        for one, other in zip(received, wanted, strict=True):
            assert_equal_to_rounding(one, other, operations=125, condition=condition**3)


@pytest.mark.heavy
@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize("name", ["one layer", "one layer, two outputs"])
def test_derivatives_are_those_of_finite_differences(name, stored, rng):
    """First and second, along attended inputs, factor, labels and temperature at once."""
    problem, factor = problem_and_factor(name, rng)
    architecture = problem.architecture

    def energy(attended, factor, labels, temperature):
        kernels = Features(path_features(attended, architecture.variances[0]))
        if stored:
            kernels = store_path_kernels(kernels, architecture.outputs)
        return LabelEnergy(kernels, labels, temperature)(factor)

    arguments = problem.attended, factor, problem.labels, jnp.asarray(problem.temperature)
    check_grads(jax.jit(energy), arguments, order=2, rtol=1e-4)


@pytest.mark.heavy
@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize("name", ["one layer", "one layer, two outputs"])
def test_kernels_between_two_sets_have_the_derivatives_of_finite_differences(name, stored, rng):
    problem, factor = problem_and_factor(name, rng)
    architecture = problem.architecture

    def kernel(left, right, factor):
        kernels = Features(left, right)
        if stored:
            kernels = store_path_kernels(kernels, architecture.outputs)
        return jnp.sin(kernels.kernel(factor))

    features = problem.features
    check_grads(jax.jit(kernel), (features[:2], features[2:], factor), order=2, rtol=1e-4)


@pytest.mark.parametrize("size", [3, 20, 100])
def test_singular_kernels_are_factorised_down_to_the_lowest_temperature(size, rng):
    """Of any rank, on every scale; below, Cholesky's algorithm fails for some."""
    failures = 0
    for rank in {1, 2, size // 2}:
        for scale in (1e-6, 1.0, 1e6):
            columns = scale * rng.standard_normal((size, rank))
            kernel = columns @ columns.T
            lowest = lowest_temperature(np.trace(kernel))
            factor = NoisyKernel.factorise(jnp.asarray(kernel), lowest).cholesky
            assert np.isfinite(factor).all()
            factor = NoisyKernel.factorise(jnp.asarray(kernel), lowest / 1e4).cholesky
            failures += not np.isfinite(factor).all()
    assert failures


@pytest.mark.parametrize(
    ("attended", "labels", "temperature", "message"),
    [
        (1.0, 1.0, 1e-16, r"temperature = 1e-16: below .*e-1. rounding decides .* raise it, or"),
        (1e80, 1.0, 0.2, r"temperature = 0.2: below .*e\+14. rounding decides"),
        (1e160, 1.0, 0.2, r"squares of inputs or labels overflow; scale inputs and labels"),
        (1.0, 1e160, 0.2, r"squares of inputs or labels overflow; scale inputs and labels"),
        (1.0, 1e30, 0.2, r"temperature = 0.2: below .* rounding decides"),
    ],
)
def test_a_temperature_lost_in_rounding_is_refused(attended, labels, temperature, message, rng):
    problem = random_problem(ARCHITECTURES["one layer"], rng)
    with pytest.raises(TemperatureTooSmall, match=message):
        replace(
            problem,
            attended=attended * problem.attended,
            labels=labels * problem.labels,
            temperature=temperature,
        )


@pytest.mark.parametrize("name", ["one head", "one layer, two outputs", "two layers"])
def test_second_derivatives_are_those_of_autodiff(name, rng):
    problem, factor = problem_and_factor(name, rng)
    overlap = factor @ factor.T

    def energy_of_a_free_matrix(free):
        # R is symmetric, so K may be symmetrised without changing any derivative in U_1
        noisy = dense_kernel(problem, free)
        noisy, labels = (noisy + noisy.T) / 2, problem.labels.reshape(-1)
        return jnp.linalg.slogdet(noisy)[1] + labels @ jnp.linalg.solve(noisy, labels)

    @jax.jit
    def derivatives(energy, features, factor):
        around = expand_energy(energy, features, factor)
        return around.slope, around.curvature

    gradient, second = derivatives(problem.energy, problem.features, factor)
    expected_gradient = jax.jit(jax.grad(energy_of_a_free_matrix))(overlap)
    expected = jax.jit(jax.hessian(energy_of_a_free_matrix))(overlap)
    # only derivatives along symmetric U_1 exist in this theory: compare on them
    received = symmetrised(np.asarray(second))
    expected = symmetrised(np.asarray(expected))
    rounding = rounding_of(problem, factor)
    rounding["condition"] **= 2
    assert_equal_to_rounding(gradient, expected_gradient, **rounding)
    assert_equal_to_rounding(received, expected, **rounding)


def symmetrised(second):
    second = second + second.transpose(1, 0, 2, 3)
    return second + second.transpose(0, 1, 3, 2)


def test_the_hessian_by_autodiff_of_the_hand_written_gradient_agrees(rng):
    problem, factor = problem_and_factor("two layers", rng)
    direction = jnp.asarray(rng.standard_normal(factor.shape))

    def derivative_of_gradient(function):
        return jax.jit(lambda f, d: jax.jvp(jax.grad(function), (f,), (d,))[1])(factor, direction)

    received = derivative_of_gradient(problem.energy)
    expected = derivative_of_gradient(lambda f: plain_energy(problem, f @ f.T))
    rounding = rounding_of(problem, factor)
    rounding["condition"] **= 2
    assert_equal_to_rounding(received, expected, **rounding)


@pytest.fixture
def problem(rng):
    return random_problem(ARCHITECTURES["one layer, two outputs"], rng)


@pytest.mark.usefixtures("without_annotation_checks")
@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("attended", jnp.ones((6, 2, 5)), r"attended inputs have shape \(6, 2, 5\).*\(6, 3, 5\)"),
        ("attended", jnp.ones((5, 3, 5)), r"attended inputs have shape \(5, 3, 5\)"),
        ("attended", jnp.full((6, 3, 5), jnp.inf), r"attended inputs contain values that are not"),
        ("labels", jnp.ones((6, 1)), r"labels have shape \(6, 1\): need 2 outputs"),
        ("labels", jnp.ones(6), r"labels have shape \(6,\): need \[example, output\]"),
        ("labels", jnp.ones((0, 2)), r"at least one example"),
        ("labels", jnp.full((6, 2), jnp.nan), r"labels contain values that are not finite"),
        ("temperature", 0.0, r"temperature = 0\.0: must be positive and finite"),
        ("temperature", -1.0, r"temperature = -1\.0: must be positive and finite"),
        ("temperature", float("inf"), r"temperature = inf: must be positive and finite"),
    ],
)
def test_data_that_cannot_be_learnt_from_are_refused(problem, field, value, message):
    with pytest.raises(ValueError, match=message):
        replace(problem, **{field: value})


def test_the_precision_of_all_arrays_changes_together(problem):
    single = problem.astype(jnp.float32)
    assert single.attended.dtype == single.labels.dtype == jnp.float32
    factor = jnp.eye(6, dtype=jnp.float32)
    assert single.energy(factor).dtype == jnp.float32
    # single precision agrees with double to its own rounding
    noisy = single.energy.noisy_kernel(factor).cholesky
    condition = np.linalg.cond(np.asarray(noisy, float)) ** 2
    limit = np.finfo(np.float32).eps * problem.labels.size**2 * condition
    expected = float(problem.energy(jnp.eye(6)))
    assert abs(float(single.energy(factor)) - expected) <= limit * max(1, abs(expected))


def test_a_sub_network_is_the_network_built_from_the_kept_heads(rng):
    architecture = ARCHITECTURES["three layers"]
    kept = [[1], [2, 0], [0, 1]]
    data = random_network_data(architecture, rng)
    labels = random_weights(architecture, rng)["V_0"][:6, :1]
    problem = LearningProblem(architecture, data.attended, jnp.asarray(labels), 0.3)
    smaller, attended_test = sub_network(problem, kept, data.attended)
    attention = tuple(omega[:, heads] for omega, heads in zip(data.attention, kept, strict=True))
    expected = NetworkData(data.inputs, attention, data.readout).attended
    assert smaller.architecture.heads == (1, 2, 2)
    assert smaller.architecture.widths == architecture.widths
    assert smaller.temperature == problem.temperature
    for received in (smaller.attended, attended_test):
        assert_equal_to_rounding(received, expected, operations=20, scale=np.abs(data.inputs).max())


def test_its_features_are_divided_by_its_own_number_of_paths(rng):
    architecture = ARCHITECTURES["three layers"]
    data = random_network_data(architecture, rng)
    labels = jnp.asarray(rng.standard_normal((6, 1)))
    problem = LearningProblem(architecture, data.attended, labels, 0.3)
    smaller, _ = sub_network(problem, [[0], [0], [0]], data.attended)
    variance, channels = architecture.variances[0], architecture.channels
    first = np.asarray(data.attended)[:, 0]
    features = np.asarray(smaller.features)[:, 0]
    received = features @ features.T
    expected = variance * first @ first.T / channels
    assert_equal_to_rounding(received, expected, operations=2 * channels + 8)


@pytest.mark.heavy
@pytest.mark.parametrize(("rows", "features"), [(5, 9), (9, 4)])
def test_the_energy_of_columns_has_the_derivatives_of_its_formula(rng, rows, features):
    """With fewer features than rows, and with more: by automatic differentiation of the formula."""
    columns = jnp.asarray(rng.standard_normal((rows, features)))
    labels = jnp.asarray(rng.standard_normal((rows, 3)))

    def plain(columns, labels, temperature):
        noisy = columns @ columns.T + temperature * jnp.eye(rows)
        inverse = jnp.linalg.inv(noisy)
        return 3 * jnp.linalg.slogdet(noisy)[1] + jnp.trace(labels.T @ inverse @ labels)

    arguments = columns, labels, jnp.asarray(0.3)
    expected = jax.value_and_grad(plain, argnums=(0, 1, 2))(*arguments)
    received = jax.value_and_grad(energy_of_columns, argnums=(0, 1, 2))(*arguments)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-11), received, expected)
    direction = jnp.asarray(rng.standard_normal(columns.shape))
    expected, received = (
        jax.jvp(jax.grad(f), (columns, *arguments[1:]), (direction, 0 * labels, jnp.zeros(())))[1]
        for f in (plain, energy_of_columns)
    )
    np.testing.assert_allclose(received, expected, rtol=1e-9, atol=1e-11)
