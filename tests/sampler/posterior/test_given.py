"""The network given a position, and draws without data."""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from sampler.data.examples import Examples
from sampler.posterior.given import left_out_labels
from sampler.problem import Problem, attended_blocks
from tests.assertions import assert_within_mcse
from tests.problems import ARCHITECTURES, random_problem, space_of
from theory import Combinations, Features, Predictor, compress
from theory.leave_one_out import LeftOut

DRAWS = 20_000


def of_rows(whole, name="order_parameters"):
    """The space in which rows stand for the examples, which draws are asked about all the same."""
    rows, examples = compress(whole), (whole.attended, whole.labels)
    space = space_of(rows, name, whitened=False)
    asked = {"whole": examples, "combinations": Combinations.of(rows, *examples)}
    return replace(space, data=replace(space.data, **asked, pointwise=True))


def observed_often(space, position, name):
    """Of one position with many random keys, [draw, …]."""
    keys = jax.random.split(jax.random.key(1), DRAWS)
    values = jax.jit(jax.vmap(lambda key: space.observe(key, position)[name]))(keys)
    return np.asarray(values, float)


@pytest.mark.slow
def test_new_labels_have_the_law_of_the_predictor_and_noise_of_their_own(rng):
    """Given U_1, mean m(x) and variance v(x) + 𝒯 at the training inputs.

    Independent of labels given the others: no correlation, with its error √(1/n).
    """
    problem = random_problem(ARCHITECTURES["one layer, two outputs"], rng, temperature=0.5)
    space = space_of(problem, whitened=False)
    position = space.draw_prior(jax.random.key(2))
    names = "posterior_predictive", "leave_one_out_predictive"
    new, others = (observed_often(space, position, name).reshape(DRAWS, -1) for name in names)
    factor = space.factors(position)[0]
    mean, variance = Predictor.for_examples(problem, problem.attended)(factor)
    expected = np.asarray(variance).ravel() + problem.temperature
    assert_within_mcse(new.mean(axis=0), np.ravel(mean), np.sqrt(expected / DRAWS))
    assert_within_mcse(new.var(axis=0), expected, expected * np.sqrt(2.0 / DRAWS))
    both = np.corrcoef(new.T, others.T)[: new.shape[1], new.shape[1] :]
    assert_within_mcse(both, np.zeros_like(both), np.full(both.shape, DRAWS**-0.5))


@pytest.mark.slow
@pytest.mark.parametrize("compressed", [False, True])
def test_labels_given_the_others_have_the_law_of_a_refit(compressed, rng):
    """Mean and covariance of the first example's labels, from the kernel machine without it."""
    arch = ARCHITECTURES["one layer, two outputs"]
    examples = arch.path_count * arch.channels + 3 if compressed else 6
    problem = random_problem(arch, rng, examples=examples, temperature=0.5)
    space = of_rows(problem) if compressed else space_of(problem, whitened=False)
    position = space.draw_prior(jax.random.key(2))
    received = observed_often(space, position, "leave_one_out_predictive")[:, 0]
    kernel = Features(problem.features, None).kernel(space.factors(position)[0])
    noisy, first = np.asarray(kernel) + 0.5 * np.eye(len(kernel)), arch.outputs
    weights = np.linalg.solve(noisy[first:, first:], noisy[first:, :first])
    mean = np.asarray(problem.labels)[1:].ravel() @ weights
    covariance = noisy[:first, :first] - noisy[:first, first:] @ weights
    variance = np.diagonal(covariance)
    assert_within_mcse(received.mean(axis=0), mean, np.sqrt(variance / DRAWS))
    error = np.sqrt((np.outer(variance, variance) + covariance**2) / DRAWS)
    assert_within_mcse(np.atleast_2d(np.cov(received.T)), covariance, error)
    law = scipy.stats.multivariate_normal(mean, covariance)
    likelihood = space.observe(jax.random.key(0), position)["log_likelihood"][0]
    assert float(likelihood) == pytest.approx(law.logpdf(problem.labels[0]), rel=1e-5)


def test_left_out_labels_of_several_outputs_have_their_covariance():
    """Of two outputs that go together: each entry within 4.5 of its errors."""
    covariance, mean = np.array([[4.0, 2.0], [2.0, 2.0]]), np.array([0.5, -1.0])
    labels = np.array([[1.0, 3.0]])
    precision = np.linalg.inv(covariance)
    alpha = precision @ (labels[0] - mean)
    left_out = LeftOut(jnp.asarray(alpha[None]), jnp.asarray(precision[None]))
    keys = jax.random.split(jax.random.key(3), DRAWS)
    drawn = jax.vmap(lambda key: left_out_labels(key, left_out, jnp.asarray(labels)))(keys)
    drawn = np.asarray(drawn, float)[:, 0]
    variance = np.diagonal(covariance)
    assert_within_mcse(drawn.mean(axis=0), mean, np.sqrt(variance / DRAWS))
    error = np.sqrt((np.outer(variance, variance) + covariance**2) / DRAWS)
    assert_within_mcse(np.cov(drawn.T), covariance, error)


# --- draws without data: order parameters and labels have the moments of their prior


COUNT = 4000
# The worst of all entries, of which there are a few hundred.
LIMIT = 4.5


def worst(values: np.ndarray, expected: np.ndarray | float = 0.0) -> float:
    """The largest |mean − expected| in its standard errors."""
    error = values.std(axis=0) / len(values) ** 0.5
    return float(np.max(np.abs(values.mean(axis=0) - expected)[error > 0] / error[error > 0]))


@pytest.mark.parametrize("name", ["narrow", "two layers, three outputs"])
@pytest.mark.parametrize("spread", [0.0, 0.4])
def test_order_parameters_and_labels_have_the_moments_of_their_prior(name, spread, rng):
    arch = ARCHITECTURES[name]
    problem = random_problem(arch, rng, examples=3, temperature=0.3)
    problem = replace(problem, temperature_spread=spread)
    drawn = Problem(problem, problem.attended[:1], None, (), ())
    drawn = drawn.prior_draws(COUNT, 5, "order_parameters")
    names = [n for n in drawn if n.endswith("order_parameter") or n.startswith("order_parameter_")]
    assert len(names) == arch.layers + 1
    scales = np.cumprod(arch.order_parameter_variances[::-1])[::-1]
    for overlap, scale in zip((drawn[n] for n in names), scales, strict=True):
        assert worst(overlap, scale * np.eye(overlap.shape[1])) < LIMIT

    temperature = np.full(COUNT, 0.3)
    if spread:
        temperature = drawn["temperature"]
        assert worst(np.log(temperature / 0.3)) < LIMIT
        assert np.log(temperature / 0.3).std() == pytest.approx(spread, rel=0.06)
    features = np.asarray(problem.features)
    outputs, paths = arch.outputs, arch.path_count
    overlap = drawn["order_parameter"].reshape(COUNT, paths, outputs, paths, outputs)
    labels = drawn["posterior_predictive"].astype(float)
    assert labels.shape == (COUNT, 3, outputs)
    missing = np.einsum("sxc,syd->sxcyd", labels, labels)
    for p in range(paths):
        for q in range(paths):
            kernel = features[:, p] @ features[:, q].T
            missing -= np.einsum("scd,xy->sxcyd", overlap[:, p, :, q, :], kernel)
    for x in range(3):
        for c in range(outputs):
            missing[:, x, c, x, c] -= temperature
    trace = np.einsum("spcpc->s", overlap)
    for weight in (1.0, trace, temperature):
        assert worst(missing * np.reshape(weight, (-1, 1, 1, 1, 1))) < LIMIT


def test_labels_are_those_of_the_examples_where_rows_stand_for_them(rng):
    """Twenty examples of a network of few features: as many labels, of their own covariance."""
    arch = ARCHITECTURES["one head"]
    whole = random_problem(arch, rng, examples=20, temperature=0.3)
    problem = compress(whole)
    assert len(problem.labels) < 20
    split = Examples(np.asarray(whole.attended), np.asarray(whole.labels), path_heads=arch.heads)
    examples = partial(attended_blocks, split, "last", ())
    drawn = Problem(problem, whole.attended[:1], None, (), (), whole=examples)
    drawn = drawn.prior_draws(COUNT, 5, "order_parameters")
    labels = drawn["posterior_predictive"][..., 0].astype(float)
    features = np.asarray(whole.features)[:, 0]
    expected = drawn["order_parameter"][:, 0, 0, None, None] * (features @ features.T)
    missing = labels[:, :, None] * labels[:, None, :] - expected - 0.3 * np.eye(20)
    assert worst(missing) < LIMIT
