"""The exact posterior around its mode, and the log evidence at the saddle point."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from tests.dense import SMALL, chain, exact_scalar_posterior, plain_log_posterior
from tests.problems import ARCHITECTURES, all_but, random_problem, scalar_problem
from theory import Architecture, Fluctuations, LogPosterior, solve_saddle_point
from theory.log_evidence import log_evidence_at_saddle, third_and_fourth

CASES = pytest.mark.parametrize(
    "name", all_but(SMALL, ("one layer, two outputs", "narrow, two outputs"))
)
RELATIVE = 1e-8


def close(received, expected):
    """Equal to RELATIVE of the largest entry."""
    scale = float(np.max(np.abs(expected)))
    assert scale > 1e-3, "nothing is compared"
    np.testing.assert_allclose(received, expected, rtol=0, atol=RELATIVE * scale)


def posterior_of(name, rng):
    """A problem whose labels are large, so that its mode is far from the centre of the prior."""
    problem = random_problem(SMALL[name], rng, temperature=0.3)
    problem = replace(problem, labels=2.0 * problem.labels)
    return problem, LogPosterior(problem)


@pytest.mark.slow
@CASES
def test_density_and_its_first_two_derivatives(name, rng):
    problem, posterior = posterior_of(name, rng)
    phi = plain_log_posterior(problem)
    point = 0.5 * rng.standard_normal(posterior.coordinates.size)
    value, gradient = posterior.value_and_gradient(point)
    close(value, phi(point))
    close(gradient, jax.jit(jax.grad(phi))(point))
    close(posterior.hessian(point), jax.jit(jax.hessian(phi))(point))


@CASES
def test_mode(name, rng):
    """Of narrow layers, too; where the gradient vanishes and the Hessian is positive."""
    problem, posterior = posterior_of(name, rng)
    mode = posterior.mode(solve_saddle_point(problem))
    assert mode.converged, mode.status
    assert np.linalg.norm(posterior.value_and_gradient(mode.point)[1]) <= 1e-8
    assert np.linalg.eigvalsh(posterior.hessian(mode.point))[0] > 0
    assert np.linalg.norm(mode.point) > 0.1


@pytest.mark.slow
@pytest.mark.parametrize("name", ["narrow, two outputs"])
def test_third_and_fourth_derivatives(name, rng):
    """All along the directions v_a of unit variance: drift t, Φ_abc and Σ_ac Φ_aacc."""
    problem, posterior = posterior_of(name, rng)
    mode = posterior.mode(solve_saddle_point(problem))
    around = Fluctuations.around(posterior, mode.point, mode.value)
    directions = jnp.asarray(around.directions)
    hessian = posterior.hessian(mode.point)
    np.testing.assert_allclose(directions @ hessian @ directions.T, np.eye(len(hessian)), atol=1e-9)
    phi = plain_log_posterior(problem)

    def along(e):
        return phi(mode.point + e @ directions)

    origin = jnp.zeros(len(directions))
    every_third = jax.jit(jax.jacfwd(jax.hessian(along)))(origin)
    third, fourth = third_and_fourth(around)
    close(third, every_third)
    close(around.drift, jnp.einsum("aac->c", every_third))
    basis = jnp.eye(len(directions))
    twice = jax.jit(lambda e: laplacian(lambda d: laplacian(along, d, basis), e, basis))
    close(fourth, twice(origin))


def laplacian(function, point, basis):
    """Sum of second derivatives along every row of `basis`."""

    def second(direction):
        def first(x):
            return jax.jvp(function, (x,), (direction,))[1]

        return jax.jvp(first, (point,), (direction,))[1]

    return jnp.sum(jax.vmap(second)(basis))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["one layer, two outputs"])
def test_moments_of_the_order_parameters(name, rng):
    """ΔU_l = −½ ∂U_l·S t + ½ tr(S ∂²U_l), T = ∂U_1 S ∂U_1ᵀ with S from the plain Hessian."""
    problem, posterior = posterior_of(name, rng)
    mode = posterior.mode(solve_saddle_point(problem))
    around = Fluctuations.around(posterior, mode.point, mode.value)
    phi, point = plain_log_posterior(problem), jnp.asarray(mode.point)
    covariance = jnp.linalg.inv(jax.jit(jax.hessian(phi))(point))
    drift = jax.jit(jax.grad(lambda x: jnp.vdot(covariance, jax.hessian(phi)(x))))(point)

    def overlaps(x):
        return [factor @ factor.T for factor in chain(posterior.coordinates, x)]

    jacobians = jax.jit(jax.jacfwd(overlaps))(point)
    bends = jax.jit(jax.hessian(overlaps))(point)
    for shift, mean, centre, jacobian, bend in zip(
        around.shifts, around.means, overlaps(point), jacobians, bends, strict=True
    ):
        expected = 0.5 * jnp.einsum("abij,ij->ab", bend, covariance)
        expected -= 0.5 * jacobian @ (covariance @ drift)
        close(shift, expected)
        close(mean, centre + expected)
    expected = jnp.einsum("abi,ij,cdj->abcd", jacobians[0], covariance, jacobians[0])
    close(around.averages.covariance, expected)


# --- the log evidence at the saddle point: exact without data, of order 1/N with them


# The last has layers exactly as wide as order parameters that are regular need.
REGULAR = [ARCHITECTURES[name] for name in ("one layer, two outputs", "three layers, two outputs")]
REGULAR += [Architecture((3,), (6, 2), (1.1, 0.5, 0.7), channels=2, outputs=2)]


@pytest.mark.parametrize("architecture", REGULAR)
def test_exact_without_data(architecture, rng):
    """With zero inputs the labels are pure noise, whatever the order parameters."""
    problem = random_problem(architecture, rng)
    problem = replace(problem, attended=jnp.zeros_like(problem.attended))
    saddle = solve_saddle_point(problem)
    assert saddle.converged, saddle.explain()
    expected = scipy.stats.norm.logpdf(problem.labels, scale=problem.temperature**0.5).sum()
    received = log_evidence_at_saddle(problem, saddle)
    # The gradient that remains, up to its norm times the largest width, moves ln det H by as much
    # per coordinate; the rest is rounding of the numbers that are added up.
    count = architecture.coordinate_count
    remaining = saddle.gradient_norm * max(architecture.widths) * count
    size = abs(expected) + max(architecture.widths) * (abs(saddle.action) + count)
    rounding = 2.0**-52 * (count + problem.labels.size) * size
    assert abs(received - expected) <= remaining + rounding


def test_the_error_falls_as_the_square_of_the_width_where_data_are_fixed(rng):
    """Against quadrature. With data in proportion to the width it falls as 1/N (`test_next_order`).

    Fixed data change the 1/N term of the expansion, which is exact for the prior, by 1/N only.
    """
    problem, _ = scalar_problem(rng)
    errors = []
    for width in (16, 32, 64, 128, 256):
        wide = replace(problem, architecture=replace(problem.architecture, widths=(width, width)))
        exact = exact_scalar_posterior(wide, wide.attended[:1], points=1500, span=6.0).log_evidence
        errors.append(log_evidence_at_saddle(wide, solve_saddle_point(wide)) - exact)
    orders = np.log2(np.abs(errors[:-1]) / np.abs(errors[1:]))
    # The next term of the expansion, smaller by 1/N, explains what is missing: it halves.
    deviations = np.abs(orders - 2.0)
    assert np.all(deviations[1:] < 0.75 * deviations[:-1]), orders
    assert deviations[-1] < 0.1, orders
