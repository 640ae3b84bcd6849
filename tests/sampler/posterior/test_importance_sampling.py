"""Importance draws: exact answers, honest errors, and weights that are not trusted when bad."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from sampler.posterior.importance_sampling import (
    BatchedDensity,
    ImportanceDraws,
    adapt_proposal,
    draw_weighted,
    proposal_about,
)
from sampler.posterior.importance_weights import (
    effective_draws,
    normalised_weights,
    pareto_k,
    systematic_resampling,
)
from sampler.posterior.space import Gaussian
from sampler.posterior.t_mixture import TMixture, refit
from tests.assertions import assert_within_mcse
from tests.problems import scalar_problem, space_of

SHARES = np.array([0.3, 0.7])


def two_components(rng, size=3) -> tuple[TMixture, np.ndarray]:
    """A mixture, and the scale matrices of its components."""
    centres = rng.standard_normal((2, size))
    roots = rng.standard_normal((2, size, 2 * size))
    covariances = roots @ roots.swapaxes(1, 2)
    return TMixture.of(SHARES, centres, covariances, 9.0), covariances


def expected_density(mixture, covariances, points):
    """Log density by SciPy's multivariate t."""
    parts = [
        share * scipy.stats.multivariate_t(centre, covariance, df=mixture.degrees).pdf(points)
        for share, centre, covariance in zip(SHARES, mixture.centres, covariances, strict=True)
    ]
    return np.log(sum(parts))


def test_draws_of_a_component_have_the_radius_of_its_density(rng):
    """|W (x − m)|²/d of a t law of d coordinates has the law F(d, ν)."""
    mixture, covariances = two_components(rng, size=6)
    points = mixture.draw_each(np.zeros(20_000, int), rng) - mixture.centres[0]
    squares = np.einsum("xi,ij,xj->x", points, np.linalg.inv(covariances[0]), points)
    assert scipy.stats.kstest(squares / 6, scipy.stats.f(6, mixture.degrees).cdf).pvalue > 1e-3


def test_density_of_a_mixture(rng):
    """Its logarithm is that of SciPy's multivariate t, and its draws have it."""
    mixture, covariances = two_components(rng)
    points = mixture.draw(40_000, rng)
    expected = expected_density(mixture, covariances, points)
    received = mixture.log_density(points)
    np.testing.assert_allclose(received, expected, rtol=0, atol=1e-12 * np.abs(expected).max())
    # Centre and scale matrix of all together, by the loops of the definition.
    centre = sum(share * c for share, c in zip(SHARES, mixture.centres, strict=True))
    spread = -np.outer(centre, centre)
    for share, c, covariance in zip(SHARES, mixture.centres, covariances, strict=True):
        spread += share * (covariance + np.outer(c, c))
    for one, other in zip(mixture.moments, (centre, spread), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12)
    # E_q[g/q] = 1 for a normalised density g with lighter tails, of another centre and shape.
    other = scipy.stats.multivariate_normal(mixture.centres[0], mixture.moments[1])
    ratio = np.exp(other.logpdf(points) - received)
    assert_within_mcse(ratio.mean(), 1.0, ratio.std() / np.sqrt(len(ratio)))


def test_a_mixture_of_diagonals_in_jax_and_numpy(rng):
    """One component after the other or of one point, the same as that of the dense matrices."""
    mixture, _ = two_components(rng)
    stretches = rng.uniform(0.5, 2.0, mixture.centres.shape)
    covariances = np.stack([np.diag(stretch**-2.0) for stretch in stretches])
    volumes = np.log(stretches).sum(axis=1)
    diagonal = replace(mixture, whitenings=stretches, log_volumes=volumes)
    points = rng.standard_normal((5, 3))
    expected = expected_density(diagonal, covariances, points)
    np.testing.assert_allclose(diagonal.log_density(points), expected, rtol=1e-12)

    def of_point(point, mixture):
        return jax.nn.logsumexp(mixture.log_terms(mixture.squares(point)))

    by_jax = jax.jit(jax.vmap(of_point, in_axes=(0, None)))(jnp.asarray(points), diagonal)
    np.testing.assert_allclose(by_jax, expected, rtol=1e-12)
    component = np.repeat([0, 1], 20_000)
    drawn = diagonal.draw_each(component, rng)
    for k, (centre, stretch) in enumerate(zip(diagonal.centres, stretches, strict=True)):
        away = (drawn[component == k] - centre) * stretch
        law = scipy.stats.t(diagonal.degrees)
        assert min(scipy.stats.kstest(away, law.cdf, axis=0).pvalue) > 1e-4


def worth(target, proposal, points) -> float:
    """Effective draws of a normal law by points of a mixture, of all."""
    weights = normalised_weights(target.logpdf(points) - proposal.log_density(points))
    return effective_draws(weights) / len(points)


def test_a_mixture_that_is_refitted_is_nearer_to_what_it_was_fitted_to(rng):
    """By weighted points of a t law that is off centre and too wide: most draws then count."""
    root = rng.standard_normal((3, 3))
    target = scipy.stats.multivariate_normal(np.ones(3), root @ root.T)
    off = np.ones(3) + root @ np.array([1.0, -1.0, 0.5])
    first = TMixture.of(np.ones(1), off[None], 4.0 * target.cov[None], 8.0)
    points = first.draw(8000, rng)
    assert worth(target, first, points) < 0.3
    weights = normalised_weights(target.logpdf(points) - first.log_density(points))
    fitted = refit(first, points, weights, rng)
    assert worth(target, fitted, fitted.draw(8000, rng)) > 0.8


def test_the_best_of_all_proposals_is_kept(rng):
    """Begun two deviations beside the mode, where few draws count."""
    density = BatchedDensity.of(space_of(scalar_problem(rng)[0]))
    gaussian = density.space.mode.gaussian
    beside = proposal_about(Gaussian(gaussian.at(2.0 * jnp.ones(2)), gaussian.scale))
    first = draw_weighted(beside, density, 8192, rng)
    _, pilot = adapt_proposal(beside, density, rng)
    assert first.effective_sample_size < 0.3 * 8192 < 0.7 * 8192 < pilot.effective_sample_size


@pytest.mark.parametrize("shape", [0.2, 1.0])
def test_pareto_shape_of_known_tails(shape, rng):
    """Exponential log weights of mean k have a Pareto tail of shape k."""
    count = 40_000
    received = pareto_k(shape * rng.standard_exponential(count))
    tail = 3 * np.sqrt(count)
    # Asymptotic standard error of the fitted shape; a weak prior adds ten draws of shape 1/2.
    error = (1 + shape) / np.sqrt(tail)
    prior = 10 * abs(0.5 - shape) / (10 + tail)
    assert abs(received - shape) <= 4 * error + prior


@pytest.mark.slow
@pytest.mark.parametrize(("value", "counted"), [(np.nan, True), (-np.inf, False)])
def test_densities_that_are_no_numbers_are_counted_and_not_trusted(value, counted, rng):
    """A few draws only, so that the weights alone would be good; no density is a number, too."""
    problem, _ = scalar_problem(rng)
    density = BatchedDensity.of(space_of(problem))
    proposal = proposal_about(density.space.mode.gaussian)
    good = draw_weighted(proposal, density, 2000, np.random.default_rng(3))
    limit = np.sort(good.points[:, 0])[-4]

    class Spoiled(BatchedDensity):
        def __call__(self, points):
            return np.where(points[:, 0] >= limit, value, super().__call__(points))

    spoiled = Spoiled(density.space, density.batch)
    bad = draw_weighted(proposal, spoiled, 2000, np.random.default_rng(3))
    np.testing.assert_array_equal(bad.points, good.points)
    outside = bad.points[:, 0] >= limit
    assert 0 < outside.sum() < 40
    assert bad.lost == (outside.sum() if counted else 0)
    assert good.lost == 0
    assert not bad.weights[outside].any()
    np.testing.assert_array_equal(bad.log_weights[~outside], good.log_weights[~outside])
    assert bad.pareto_k <= 0.7
    assert good.trusted
    assert bad.trusted is not counted


def test_points_without_a_density_count_in_every_pilot_sample(rng):
    """Whichever of them is the best, and lost how many itself."""
    problem, _ = scalar_problem(rng)
    density, asked = BatchedDensity.of(space_of(problem)), []
    proposal = proposal_about(density.space.mode.gaussian)
    *_, first, last = np.sort(proposal.draw(500, np.random.default_rng(3))[:, 0])

    class Spoiled(BatchedDensity):
        def __call__(self, points):
            beyond = (first <= points[:, 0]) & (points[:, 0] <= last)
            asked.append(beyond.sum())
            return np.where(beyond, np.nan, super().__call__(points))

    _, pilot = adapt_proposal(proposal, Spoiled(density.space, density.batch), rng)
    assert np.count_nonzero(asked) > 1
    assert pilot.lost == sum(asked)


def test_systematic_resampling_is_unbiased(rng):
    weights = rng.dirichlet(np.full(40, 0.3))
    count, seeds = 25, 2000
    taken = np.array(
        [
            np.bincount(
                systematic_resampling(weights, count, np.random.default_rng(seed)), minlength=40
            )
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


def test_weights_of_large_logarithms_sum_to_one_and_are_resampled(rng):
    """To rounding of a sum of so many, not to that of their logarithms."""
    for _ in range(100):
        log_weights = rng.standard_normal(8) - 1e4
        weights = normalised_weights(log_weights)
        assert abs(weights.sum() - 1.0) <= len(weights) * np.finfo(float).eps
        assert len(systematic_resampling(weights, 5, rng)) == 5


def weighted(log_weights, shape: float, lost: int = 0) -> ImportanceDraws:
    """Draws with these weights, of a tail that has this shape."""
    points = np.zeros((len(log_weights), 1))
    return ImportanceDraws(points, log_weights, shape, lost)


@pytest.mark.parametrize("shape", [-0.2, 0.3, 0.5, 0.6, 0.7])
def test_the_error_of_the_evidence_falls_more_slowly_where_weights_have_no_variance(shape, rng):
    """That of a mean of n numbers whose tail is k > ½ as n^(k − 1), not as n^(−½)."""
    log_weights = rng.standard_normal(3000)
    weights = np.exp(log_weights)
    plain = weights.std(ddof=1) / weights.mean() / np.sqrt(len(weights))
    slower = 3000.0 ** (shape - 1.0) / 3000.0**-0.5 if shape > 0.5 else 1.0
    found = weighted(log_weights, shape)
    assert found.log_evidence_error == pytest.approx(slower * plain, rel=1e-9)
    assert found.trusted
    assert not weighted(log_weights, 0.7 + 1e-9).trusted
    assert not weighted(log_weights, shape, lost=1).trusted
