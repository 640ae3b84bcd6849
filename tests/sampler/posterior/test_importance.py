"""Importance draws: exact answers, honest errors, and weights that are not trusted when bad."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from numpyro.infer.util import log_density
from sampler.mcmc.importance import EFFECTIVE_PER_KEPT
from sampler.posterior.density import Coordinates

from sampler.posterior.importance import (
    Proposal,
    importance_draws,
    pareto_k,
    refit,
    single,
    systematic_resampling,
)
from sampler.posterior.order_parameters import (
    MODE_TOLERANCE,
    OrderParameterPosterior,
    derivatives_by_numpy,
    factors_at,
    find_mode,
    site_priors,
)
from sampler.posterior.spaces import order_parameter_density
from tests.assertions import assert_equal_to_rounding, assert_within_mcse
from tests.problems import (
    ARCHITECTURES,
    EVERY_ARCHITECTURE,
    exact_scalar_posterior,
    order_parameters_of,
    problem_of_many_paths,
    random_problem,
    scalar_problem,
    weighted_mean_and_error,
)
from tests.reference_data import reference_problem
from theory import LearningProblem, solve_saddle_point
from theory.evidence import log_evidence_at_saddle
from theory.path_kernels import Features, StoredKernels
from theory.wishart_chain import WishartChain


def overlaps_of(problem, draws):
    """U_1 … U_a [draw, p, p] of importance draws."""
    factors = jax.jit(
        jax.vmap(lambda position: factors_at(position, WishartChain.of(problem.architecture)))
    )({name: jnp.asarray(values) for name, values in draws.position.items()})
    return [np.asarray(f @ f.swapaxes(1, 2)) for f in factors]


@pytest.mark.heavy
def test_one_head_by_quadrature(rng):
    problem, test = scalar_problem(rng)
    exact = exact_scalar_posterior(problem, test)
    draws = importance_draws(order_parameters_of(problem), 20_000, seed=1)
    assert draws.trusted, draws.explain()
    overlap, readout = (values[:, 0, 0] for values in overlaps_of(problem, draws))
    for values, (mean, deviation) in ((overlap, exact.order_parameter), (readout, exact.readout)):
        received, error = weighted_mean_and_error(draws.weights, values)
        assert_within_mcse(received, mean, error, ess=draws.effective_sample_size)
        square, error = weighted_mean_and_error(draws.weights, (values - mean) ** 2)
        assert_within_mcse(square, deviation**2, error)
    assert_within_mcse(draws.log_evidence, exact.log_evidence, draws.log_evidence_error)


@pytest.mark.heavy
@pytest.mark.parametrize("name", ["one layer", "one layer, two outputs", "two layers", "narrow"])
def test_evidence_without_data(name, rng):
    """With zero inputs the posterior is the prior and the labels are noise: ln p(y) is known."""
    problem = random_problem(ARCHITECTURES[name], rng)
    problem = replace(problem, attended=jnp.zeros_like(problem.attended))
    draws = importance_draws(order_parameters_of(problem), 20_000, seed=2)
    assert draws.trusted, draws.explain()
    expected = scipy.stats.norm.logpdf(problem.labels, scale=problem.temperature**0.5).sum()
    assert_within_mcse(
        draws.log_evidence,
        expected,
        draws.log_evidence_error,
        ess=draws.effective_sample_size,
    )


@pytest.mark.heavy
def test_density_is_that_of_the_model(rng):
    """Batched values equal the log density of the NumPyro model that the chains sample."""
    problem = random_problem(ARCHITECTURES["narrow"], rng)
    space = order_parameter_density(problem, problem.attended)
    points = single(space.mode.point, space.mode.covariance).draw(5, rng)
    received = OrderParameterPosterior.of(problem).log_densities(points)
    unflatten = space.coordinates.unflatten
    expected = [
        log_density(space.model, space.arguments, {}, unflatten(jnp.asarray(point)))[0]
        for point in points
    ]
    size = problem.labels.size
    assert_equal_to_rounding(
        received, expected, operations=size**2, condition=1.0 / problem.temperature
    )


def two_component_proposal(rng, size=3) -> Proposal:
    centres = rng.standard_normal((2, size))
    roots = rng.standard_normal((2, size, 2 * size))
    scales = np.linalg.cholesky(roots @ roots.swapaxes(1, 2))
    return Proposal(np.array([0.3, 0.7]), centres, scales, 9.0)


def test_proposal_density(rng):
    """Its logarithm is that of SciPy's multivariate t, and its draws have it."""
    proposal = two_component_proposal(rng)
    points = proposal.draw(40_000, rng)
    parts = [
        scipy.stats.multivariate_t(centre, scale @ scale.T, df=proposal.degrees)
        for centre, scale in zip(proposal.centres, proposal.scales, strict=True)
    ]
    expected = np.log(sum(s * p.pdf(points) for s, p in zip(proposal.shares, parts, strict=True)))
    received = proposal.log_density(points)
    np.testing.assert_allclose(received, expected, rtol=0, atol=1e-12 * np.abs(expected).max())
    # E_q[g/q] = 1 for a normalised density g with lighter tails, of another centre and shape.
    other = scipy.stats.multivariate_normal(proposal.centres[0], proposal.spread)
    ratio = np.exp(other.logpdf(points) - received)
    assert_within_mcse(ratio.mean(), 1.0, ratio.std() / np.sqrt(len(ratio)))


def test_a_refit_keeps_the_shares_of_components_far_apart(rng):
    """Shares on either side are those of the sample, but for that of the broad component."""
    target = Proposal(np.array([0.2, 0.8]), np.array([[-30.0], [30.0]]), np.ones((2, 1, 1)), 16.0)
    points = target.draw(40, rng)
    weights = np.full(40, 1.0 / 40)
    refitted = refit(target, points, weights, rng)
    sides = np.sign(refitted.centres[:-1, 0])
    left = np.mean(points[:, 0] < 0)
    if set(sides) == {-1.0, 1.0}:
        received = refitted.shares[:-1][sides < 0].sum()
        np.testing.assert_allclose(received, 0.95 * left, rtol=1e-6)
    assert refitted.shares[-1] == 0.05
    np.testing.assert_allclose(refitted.shares.sum(), 1.0, rtol=1e-12)
    assert set(sides) == {-1.0, 1.0}, "no component began on the other side"


def test_refitting_finds_the_shape(rng):
    """Weighted draws from one proposal refit to the mixture they are weighted by."""
    target = two_component_proposal(rng)
    broad = single(target.centre, 4.0 * target.spread)
    points = broad.draw(20_000, rng)
    log_weights = target.log_density(points) - broad.log_density(points)
    weights = np.exp(log_weights) / np.exp(log_weights).sum()
    refitted = refit(broad, points, weights, rng)
    fresh = refitted.draw(20_000, rng)
    ratio = np.exp(target.log_density(fresh) - refitted.log_density(fresh))
    efficiency = ratio.sum() ** 2 / (ratio**2).sum() / len(ratio)
    before = 1.0 / np.sum(weights**2) / len(weights)
    assert efficiency > before + 0.5 * (1.0 - before)


@pytest.mark.parametrize("shape", [0.2, 0.6, 1.0])
def test_pareto_shape_of_known_tails(shape, rng):
    """Exponential log weights of mean k have a Pareto tail of shape k."""
    count = 40_000
    received = pareto_k(shape * rng.standard_exponential(count))
    tail = 3 * np.sqrt(count)
    # Asymptotic standard error of the fitted shape; a weak prior adds ten draws of shape 1/2.
    error = (1 + shape) / np.sqrt(tail)
    prior = 10 * abs(0.5 - shape) / (10 + tail)
    assert abs(received - shape) <= 4 * error + prior


@pytest.mark.heavy
@pytest.mark.parametrize(("value", "counted"), [(np.nan, True), (np.inf, True), (-np.inf, False)])
def test_densities_that_are_no_numbers_are_counted_and_not_trusted(value, counted, rng):
    """A few draws only, so that the weights alone would be good; no density is a number, too."""
    problem, _ = scalar_problem(rng)
    density = order_parameters_of(problem)
    plain = importance_draws(density, 2000, seed=3)
    limit = np.sort(plain.points[:, 0])[-4]

    def spoiled(points):
        return np.where(points[:, 0] >= limit, value, density.log_densities(points))

    # The refits of other pilot weights would give other draws.
    rest = {"seed": 3, "rounds": 0}
    good = importance_draws(density, 2000, **rest)
    bad = importance_draws(replace(density, log_densities=spoiled), 2000, **rest)
    np.testing.assert_array_equal(bad.points, good.points)
    outside = bad.points[:, 0] >= limit
    assert 0 < outside.sum() < 40
    assert bad.not_finite == (outside.sum() if counted else 0)
    assert good.not_finite == 0
    assert not bad.weights[outside].any()
    np.testing.assert_array_equal(bad.log_weights[~outside], good.log_weights[~outside])
    assert bad.pareto_k <= 0.7
    assert good.trusted
    assert bad.trusted is not counted
    said = f"{outside.sum()} densities not finite (limit 0)"
    assert (said in bad.explain()) is counted


def test_systematic_resampling_is_unbiased(rng):
    weights = rng.dirichlet(np.full(40, 0.3))
    count, seeds = 25, 2000
    taken = np.array(
        [
            np.bincount(systematic_resampling(weights, count, seed), minlength=40)
            for seed in range(seeds)
        ]
    )
    assert np.all(taken.sum(axis=1) == count)
    assert np.all(np.floor(count * weights) <= taken)
    assert np.all(taken <= np.ceil(count * weights))
    # Each count is one of two neighbouring integers: a Bernoulli variable above its floor.
    excess = count * weights % 1.0
    error = np.sqrt(excess * (1 - excess) / seeds)
    assert_within_mcse(taken.mean(axis=0), count * weights, error)


def error_of_resampled(rng, effective_per_kept: float) -> float:
    """True error of a mean over resampled draws, in units of what independent ones would have."""
    found = []
    for seed in range(1500):
        points = rng.standard_normal(600)
        weights = np.exp(0.5 * points)  # from N(0, 1) to N(1/2, 1)
        weights /= weights.sum()
        kept = int(1.0 / np.sum(weights**2) / effective_per_kept)
        chosen = systematic_resampling(weights, kept, seed)
        found.append((points[chosen].mean() - 0.5) * np.sqrt(kept))
    return float(np.sqrt(np.mean(np.square(found))))


def test_errors_of_the_accepted_draws_are_short_by_a_tenth_at_most(rng):
    """As many kept draws as effective ones would have errors short by far more."""
    uncertain = 1.0 + 4.0 / np.sqrt(2.0 * 1500)
    assert error_of_resampled(rng, EFFECTIVE_PER_KEPT) < 1.1 * uncertain
    assert error_of_resampled(rng, 1.0) > 1.1 * uncertain


def test_systematic_resampling_mixes_the_order():
    """The order carries no information: a later half is no later in the sample."""
    indices = np.stack(
        [systematic_resampling(np.full(100, 0.01), 100, seed) for seed in range(200)]
    )
    assert np.array_equal(np.sort(indices, axis=1), np.tile(np.arange(100), (200, 1)))
    halves = indices[:, :50].mean(axis=1) - indices[:, 50:].mean(axis=1)
    assert_within_mcse(halves.mean(), 0.0, halves.std() / np.sqrt(len(halves)))


def test_settings_out_of_range_are_refused(rng):
    problem, _ = scalar_problem(rng)
    with pytest.raises(ValueError, match="float64, got float32"):
        importance_draws(order_parameters_of(problem.astype("float32")), 1000, seed=0)
    with pytest.raises(ValueError, match="draws = 10: must be at least 400"):
        importance_draws(order_parameters_of(problem), 10, seed=0)
    with pytest.raises(ValueError, match="pilot_draws = 10"):
        importance_draws(order_parameters_of(problem), 1000, seed=0, pilot_draws=10)


@pytest.mark.slow
def test_saddle_point_evidence_approaches_importance_sampling(reference):
    """|Laplace − importance| falls at least as fast as 1/N."""
    differences, errors = [], []
    for width in (10, 100):
        problem = reference_problem(reference, width)
        draws = importance_draws(order_parameters_of(problem), 40_000, seed=6)
        laplace = log_evidence_at_saddle(problem, solve_saddle_point(problem))
        differences.append(abs(laplace - draws.log_evidence))
        errors.append(draws.log_evidence_error)
    assert differences[0] > 4 * errors[0]
    assert differences[1] <= differences[0] / 10 + 4 * np.hypot(errors[1], errors[0] / 10)


def sixteen_path_problem(rng, width: int) -> LearningProblem:
    """Two layers of four heads: 147 coordinates."""
    return problem_of_many_paths(rng, width, examples=300, heads=(4, 4))


@pytest.mark.slow
def test_failure_at_sixteen_paths_is_caught(rng):
    """In 147 dimensions one t distribution at the mode fails; the weights' tail must say so."""
    draws = importance_draws(
        order_parameters_of(sixteen_path_problem(rng, 20)), 2_000, seed=9, rounds=0
    )
    assert draws.efficiency < 0.05, "this problem no longer shows the failure"
    assert not draws.trusted, draws.explain()
    assert "use NUTS instead" in draws.explain()


@pytest.mark.heavy
def test_stored_path_kernels_give_the_same_density(rng):
    """The kernel form that batches use agrees with the feature form of single evaluations."""
    problem = sixteen_path_problem(rng, 20)
    problem = replace(problem, attended=problem.attended[:9], labels=problem.labels[:9])
    energy = replace(problem.energy, kernels=Features(problem.features, None))
    posterior = replace(OrderParameterPosterior.of(problem), energy=energy)
    stored = posterior.for_batches
    assert isinstance(stored.energy.kernels, StoredKernels)
    points = 0.5 * rng.standard_normal((20, posterior.coordinates.size))
    received, expected = (form.log_densities(points) for form in (stored, posterior))
    assert_equal_to_rounding(
        received, expected, operations=9 * 16**2, condition=1.0 / problem.temperature
    )


@pytest.mark.heavy
def test_many_coordinates_do_without_a_hessian(rng, monkeypatch):
    """The same mode, unit masses, and a refusal of what needs the Hessian."""
    problem = random_problem(ARCHITECTURES["two layers"], rng)
    exact = find_mode(problem, OrderParameterPosterior.of(problem))
    monkeypatch.setattr("sampler.posterior.order_parameters.HESSIAN_COORDINATES", 10)
    monkeypatch.setattr("sampler.posterior.density.HESSIAN_COORDINATES", 10)
    rough = find_mode(problem, OrderParameterPosterior.of(problem))
    assert rough.converged
    # Within a fraction of the posterior's own width.
    away = rough.point - exact.point
    distance = float(away @ jnp.linalg.solve(exact.covariance, away)) ** 0.5
    assert distance < 0.2 * away.size**0.5
    (masses,) = rough.inverse_mass_matrix.values()
    np.testing.assert_array_equal(masses, np.ones(away.size))
    key = jax.random.key(0)
    flat = jnp.concatenate([rough.draw(key)[name] for name in rough.coordinates.names])
    np.testing.assert_allclose(flat - rough.point, jax.random.normal(key, away.shape), atol=1e-12)
    with pytest.raises(ValueError, match="the Hessian at the mode is too large"):
        importance_draws(order_parameters_of(problem), 500, seed=0)


@pytest.mark.heavy
@pytest.mark.parametrize("name", EVERY_ARCHITECTURE)
def test_derivatives_by_numpy_are_those_of_the_model(name, rng):
    problem = random_problem(ARCHITECTURES[name], rng, temperature=0.5)
    posterior = OrderParameterPosterior.of(problem)
    value_and_gradient, hessian = derivatives_by_numpy(problem, posterior.coordinates)
    point = rng.standard_normal(posterior.coordinates.size)
    value, gradient = posterior.value_and_gradient(jnp.asarray(point))
    constant = 0.5 * problem.labels.size * np.log(2.0 * np.pi)
    received = value_and_gradient(point)
    np.testing.assert_allclose(received[0], float(value) + constant, rtol=1e-12)
    np.testing.assert_allclose(received[1], gradient, rtol=1e-9, atol=1e-9)
    expected = posterior.curvature(jnp.asarray(point))
    np.testing.assert_allclose(hessian(point), expected, rtol=1e-9, atol=1e-9)


def test_columns_make_the_same_hessian_as_the_formula(rng, monkeypatch):
    problem = random_problem(ARCHITECTURES["two layers, three outputs"], rng, temperature=1.0)
    monkeypatch.setattr("sampler.posterior.order_parameters.NUMPY_PRODUCTS", 0)
    by_formula = find_mode(problem, OrderParameterPosterior.of(problem))
    monkeypatch.setattr("sampler.posterior.order_parameters.FORMULA_NUMBERS", 10)
    by_columns = find_mode(problem, OrderParameterPosterior.of(problem))
    assert by_columns.converged
    ratio = np.linalg.solve(by_formula.covariance, by_columns.covariance)
    # Both are as exact as the modes, whose gradients are at most the tolerance.
    assert np.abs(ratio - np.eye(len(ratio))).max() < 1e3 * MODE_TOLERANCE


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_coordinates_are_counted_without_the_model(name):
    arch = ARCHITECTURES[name]
    assert arch.bartlett_coordinate_count == Coordinates.of(site_priors(WishartChain.of(arch))).size
