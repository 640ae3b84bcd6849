"""The energy of the labels and its derivatives to fourth order, and the learning problem."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from tests.assertions import assert_equal_to_rounding
from tests.dense import dense_kernel, plain_energy
from tests.problems import (
    ARCHITECTURES,
    EVERY_ARCHITECTURE,
    all_but,
    random_order_parameters,
    random_problem,
)
from theory import (
    DenseEnergy,
    LabelEnergy,
    NoisyKernel,
)
from theory.energy import energy_of_columns, energy_of_kernel, lowest_temperature
from theory.energy_derivatives import EnergyAverages
from theory.path_kernels import Features, store_path_kernels


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


def noisy_kernel(problem, factor):
    """K + 𝒯 1 at U_1 = F Fᵀ from its definition."""
    overlap = np.asarray(factor @ factor.T)
    kernel = dense_kernel(problem.attended, problem.attended, overlap, problem.architecture)
    return kernel + problem.temperature * np.eye(problem.labels.size)


def rounding_of(problem, factor):
    """Tolerance arguments of one Cholesky solve with this problem's K + 𝒯 1."""
    noisy = noisy_kernel(problem, factor)
    return {"operations": len(noisy) ** 2, "condition": np.linalg.cond(noisy)}


@pytest.mark.parametrize("name", EVERY_ARCHITECTURE)
def test_energy_is_minus_twice_the_log_likelihood(name, rng):
    problem, factor = problem_and_factor(name, rng)
    noisy = noisy_kernel(problem, factor)
    labels = np.asarray(problem.labels).reshape(-1)
    normal = scipy.stats.multivariate_normal(np.zeros(len(noisy)), noisy)
    expected = -2 * normal.logpdf(labels) - len(noisy) * np.log(2 * np.pi)
    for energy in both_forms(problem):
        assert_equal_to_rounding(energy(factor), expected, **rounding_of(problem, factor))
    warm = 3.0 * problem.temperature
    noisy = noisy + (warm - problem.temperature) * np.eye(len(noisy))
    expected = np.linalg.slogdet(noisy)[1] + labels @ np.linalg.solve(noisy, labels)
    received = problem.at(warm).energy(factor)
    assert_equal_to_rounding(received, expected, **rounding_of(problem, factor))


@pytest.mark.parametrize(
    ("energy", "rank"), [(energy_of_kernel, 3), (energy_of_columns, 3), (energy_of_columns, 7)]
)
def test_both_energies_are_differentiable_twice_in_every_argument(energy, rank, rng):
    """Columns are fewer than rows, and more."""
    columns = jnp.asarray(rng.standard_normal((5, rank)))
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


@pytest.mark.parametrize("temperature", [1e-2, 9e-9])
def test_repeated_examples_have_the_energy_of_single_ones(temperature, rng):
    """Examples three times over are √3 times larger ones, and (c − 1) n ln 𝒯: that is all.

    The kernel of the copies is singular but for 𝒯. Rounding of it is ε tr K, which its inverse
    magnifies by 1/𝒯: no formula that forms K, or Gᵀ G, does better.
    """
    copies, examples, features = 3, 6, 12
    columns = rng.standard_normal((examples, features))
    labels = rng.standard_normal((examples, 1))
    repeated = jnp.tile(columns, (copies, 1)), jnp.tile(labels, (copies, 1))
    larger = np.sqrt(copies) * columns, np.sqrt(copies) * labels
    noisy = larger[0] @ larger[0].T + temperature * np.eye(examples)
    alpha = np.linalg.solve(noisy, larger[1])
    expected = np.linalg.slogdet(noisy)[1] + float((larger[1] * alpha).sum())
    expected += (copies - 1) * examples * np.log(temperature)
    by_column = 2.0 * (np.linalg.inv(noisy) - alpha @ alpha.T) @ larger[0]
    slopes = [np.tile(each, (copies, 1)) / np.sqrt(copies) for each in (by_column, 2.0 * alpha)]
    size = copies * examples
    rounding = {"operations": size, "condition": size + np.trace(noisy) / temperature}
    for function in (energy_of_columns, lambda g, y, t: energy_of_kernel(g @ g.T, y, t)):
        found = jax.value_and_grad(function, argnums=(0, 1))
        value, received = found(*repeated, temperature)
        assert_equal_to_rounding(value, expected, **rounding, scale=1.0, what="energy")
        for one, other in zip(received, slopes, strict=True):
            assert_equal_to_rounding(one, other, **rounding, what="slope")


def test_singular_kernels_are_factorised_down_to_the_lowest_temperature(rng):
    """Of any rank, on every scale; below, Cholesky's algorithm fails for some."""
    failures, size = 0, 20
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


# --- the energy of the labels to fourth order in U_1 against repeated differentiation


NAMES = ("one layer, two outputs", "two layers")
CASES = pytest.mark.parametrize("name", all_but(NAMES, NAMES[:1]))
# Brute-force derivatives of K + 𝒯 1 with a condition number below 1e3 keep ten digits and more.
RELATIVE = 1e-8


def energy_around(name, rng):
    """A problem, U_1 and E around it; labels larger than usual, so that both parts of E count."""
    problem = random_problem(ARCHITECTURES[name], rng, examples=5, temperature=0.3)
    overlap = random_order_parameters(problem.architecture, rng)[0]
    energy = DenseEnergy(problem).at(np.linalg.cholesky(overlap))
    return problem, overlap, energy


def random_covariance(rows, rng):
    """T_{ab,cd} of random symmetric deviations: positive, of full rank, none of its own shape."""
    count = rows * (rows + 1) // 2 + 2
    deviations = rng.standard_normal((count, rows, rows))
    deviations += deviations.swapaxes(1, 2)
    return deviations, np.einsum("kab,kcd->abcd", deviations, deviations)


def close(received, expected):
    """Equal to RELATIVE of the largest entry."""
    scale = float(np.max(np.abs(expected)))
    assert scale > 1e-3, "nothing is compared"
    np.testing.assert_allclose(received, expected, rtol=0, atol=RELATIVE * scale)


@pytest.mark.slow
@CASES
def test_value_slope_and_curvature(name, rng):
    problem, overlap, energy = energy_around(name, rng)
    plain = plain_energy(problem)
    close(energy.value, plain(overlap))
    close(energy.slope, jax.grad(plain)(overlap))
    # Entries are free: ∂²E is compared on symmetric deviations, the only ones that occur.
    deviations, _ = random_covariance(len(overlap), rng)
    received = np.einsum("abcd,kab,lcd->kl", energy.curvature, deviations, deviations)
    second = jax.hessian(lambda e: plain(overlap + jnp.tensordot(e, jnp.asarray(deviations), 1)))
    close(received, second(jnp.zeros(len(deviations))))


@CASES
def test_averages(name, rng, monkeypatch):
    """Σ T ∂³E and Σ T T ∂⁴E: T = Σ_k D_k D_k, so along every D_k and every pair of them.

    Of all channels at once, and of two at a time.
    """
    problem, overlap, energy = energy_around(name, rng)
    plain, (deviations, covariance) = plain_energy(problem), random_covariance(len(overlap), rng)
    averages = EnergyAverages(energy, covariance)

    def laplacian(u):
        def twice(d):
            return jax.jvp(lambda v: jax.jvp(plain, (v,), (d,))[1], (u,), (d,))[1]

        return jnp.sum(jax.vmap(twice)(jnp.asarray(deviations)))

    gradient = np.asarray(jax.jit(jax.grad(laplacian))(jnp.asarray(overlap)))
    close(averages.third, (gradient + gradient.T) / 2)

    def twice_again(d):
        def once(v):
            return jax.jvp(laplacian, (v,), (d,))[1]

        return jax.jvp(once, (jnp.asarray(overlap),), (d,))[1]

    expected = jnp.sum(jax.jit(jax.vmap(twice_again))(jnp.asarray(deviations)))
    close(averages.fourth, expected)
    of_a_channel = 8 * len(overlap) ** 4 * problem.architecture.channels
    monkeypatch.setattr("theory.size_limits.AT_A_TIME_BYTES", 2 * of_a_channel)
    close(averages.fourth, expected)
