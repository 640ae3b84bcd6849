"""The energy of the labels to fourth order in U_1 against repeated differentiation."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.plain_posterior import plain_energy
from tests.problems import ARCHITECTURES, all_but, random_order_parameters, random_problem
from theory import DenseEnergy
from theory.energy_derivatives import EnergyAverages
from theory.log_evidence import third_of_energy

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


@pytest.mark.heavy
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
def test_third_derivatives(name, rng):
    problem, overlap, energy = energy_around(name, rng)
    plain, deviations = plain_energy(problem), random_covariance(len(overlap), rng)[0][:5]

    def along(e):
        return plain(overlap + jnp.tensordot(e, jnp.asarray(deviations), 1))

    expected = jax.jit(jax.jacfwd(jax.hessian(along)))(jnp.zeros(len(deviations)))
    flat = deviations.reshape(len(deviations), -1)
    received = np.einsum("xyz,kx,ly,mz->klm", third_of_energy(energy), *(flat,) * 3, optimize=True)
    close(received, expected)


@CASES
def test_averages(name, rng):
    """Σ T ∂³E and Σ T T ∂⁴E: T = Σ_k D_k D_k, so along every D_k and every pair of them."""
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

    close(averages.fourth, jnp.sum(jax.jit(jax.vmap(twice_again))(jnp.asarray(deviations))))
