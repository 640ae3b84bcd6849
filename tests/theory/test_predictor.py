"""Predictor mean and variance, and what each path brings to them."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.assertions import assert_equal_to_rounding, assert_within_mcse
from tests.dense import dense_kernel
from tests.problems import (
    ARCHITECTURES,
    EVERY_ARCHITECTURE,
    random_network_data,
    random_order_parameters,
    random_problem,
)
from theory import (
    Architecture,
    AttentionPaths,
    Features,
    LearningProblem,
    Predictor,
    mean_without,
    path_contributions,
    path_features,
    predict,
)
from theory.path_kernels import store_path_kernels


def both_forms(problem, attended) -> tuple[Predictor, Predictor]:
    """A predictor whose path kernels are all features, and one whose are all stored."""
    architecture = problem.architecture
    test, train = (
        path_features(one, architecture.variances[0]) for one in (attended, problem.attended)
    )
    own, cross = Features(train, None), Features(test, train)
    plain = replace(problem.energy, kernels=own)
    stored = replace(problem.energy, kernels=store_path_kernels(own, architecture.outputs))
    gram = jnp.einsum("xpi,xqi->xpq", test, test)
    return (
        Predictor(plain, cross, None),
        Predictor(stored, store_path_kernels(cross, architecture.outputs), gram),
    )


@pytest.mark.parametrize("name", EVERY_ARCHITECTURE)
def test_mean_and_variance_condition_a_gaussian(name, rng, monkeypatch):
    """With path kernels of both forms, of all test examples at once and in pieces."""
    problem = random_problem(ARCHITECTURES[name], rng)
    arch = problem.architecture
    test = random_network_data(arch, rng, examples=3).attended
    overlap = random_order_parameters(arch, rng)[0]
    factor = jnp.asarray(np.linalg.cholesky(overlap))
    features, stored = both_forms(problem, test)
    found = [predict(features, factor), predict(stored, factor)]
    monkeypatch.setattr("theory.predictor.examples_at_a_time", lambda *_: 2)
    found += [predict(features, factor), features(factor)]
    # the joint Gaussian of training labels and test outputs, conditioned by its precision matrix
    both = np.concatenate([problem.attended, test])
    noise = np.zeros(len(both) * arch.outputs)
    seen = problem.labels.size
    noise[:seen] = problem.temperature
    # a little noise on f keeps the joint covariance regular; its variance is taken off again
    noise[seen:] = 1.0
    joint = dense_kernel(both, both, overlap, arch) + np.diag(noise)
    precision = np.linalg.inv(joint)
    block = np.linalg.inv(precision[seen:, seen:])
    expected_mean = -block @ precision[seen:, :seen] @ np.asarray(problem.labels).reshape(-1)
    expected_variance = np.diagonal(block) - 1.0
    rounding = {
        "operations": len(joint) ** 2,
        "condition": np.linalg.cond(joint),
        "scale": max(np.abs(joint).max(), np.abs(expected_mean).max()),
    }
    shape = (3, arch.outputs)
    for mean, variance in found:
        assert_equal_to_rounding(mean, expected_mean.reshape(shape), **rounding)
        assert_equal_to_rounding(variance, expected_variance.reshape(shape), **rounding)
        assert np.all(np.asarray(variance) > 0)


def test_samples_of_f_have_its_mean_and_covariance(rng):
    """Joint draws of all outputs on all test examples, conditioned by dense algebra."""
    problem = random_problem(ARCHITECTURES["one layer, two outputs"], rng, temperature=0.5)
    arch, draws = problem.architecture, 20_000
    test = random_network_data(arch, rng, examples=3).attended
    overlap = random_order_parameters(arch, rng)[0]
    factor = jnp.asarray(np.linalg.cholesky(overlap))
    predictor = Predictor.for_examples(problem, test)
    features = path_features(test, arch.variances[0])
    keys = jax.random.split(jax.random.key(3), draws)
    whitening = predictor.whitening(factor)
    draw = jax.vmap(lambda k: predictor.draw_weights(k, whitening, factor, problem.features))
    samples = jnp.einsum("kpoi,xpi->kxo", jax.jit(draw)(keys), features)
    mean, variance = predict(predictor, factor)
    noisy = dense_kernel(problem.attended, problem.attended, overlap, arch)
    noisy += problem.temperature * np.eye(len(noisy))
    across = dense_kernel(test, problem.attended, overlap, arch)
    own = dense_kernel(test, test, overlap, arch)
    gain = across @ np.linalg.inv(noisy)
    expected_mean, covariance = gain @ np.asarray(problem.labels).ravel(), own - gain @ across.T
    flat = np.asarray(samples).reshape(draws, -1)
    deviations = np.sqrt(np.diagonal(covariance))
    assert_equal_to_rounding(mean.ravel(), expected_mean, operations=1e4)
    assert_equal_to_rounding(variance.ravel(), deviations**2, operations=1e4, scale=1.0)
    assert_within_mcse(flat.mean(axis=0), expected_mean, deviations / np.sqrt(draws))
    # The error of a covariance of n Gaussian draws is √((C_ii C_jj + C_ij²)/n).
    size = np.outer(deviations**2, deviations**2)
    error = np.sqrt((size + covariance**2) / draws)
    assert_within_mcse(np.cov(flat.T), covariance, error)


# --- what each path brings to the predictor, against the predictor itself and brute force


EXAMPLES, TESTS, CHANNELS, HEADS = 7, 5, 3, (2, 3)


@pytest.fixture(scope="module", params=[1, 2])
def setting(request):
    """A learning problem, a factor of U_1, and attended test inputs."""
    random = np.random.default_rng(0)
    outputs, paths = request.param, 6
    architecture = Architecture(HEADS, (5, 5, 5), (1.5, 1.0, 1.0, 1.0), CHANNELS, outputs)
    shapes = (
        (EXAMPLES, paths, CHANNELS), (EXAMPLES, outputs), (paths * outputs, paths * outputs),
        (TESTS, paths, CHANNELS),
    )  # fmt: skip
    attended, labels, *rest = (jnp.asarray(random.standard_normal(shape)) for shape in shapes)
    return LearningProblem(architecture, attended, labels, 0.3), *rest


def test_they_add_up_to_the_predictor_mean(setting):
    problem, factor, attended = setting
    mean, _ = predict(Predictor.for_examples(problem, attended), factor)
    found = np.asarray(path_contributions(problem, factor, attended))
    assert_equal_to_rounding(found.sum(axis=1), np.asarray(mean), operations=1000)


def test_removal_after_learning_is_the_network_with_its_inputs_zeroed(setting):
    """Without the paths of a head the mean is that at test inputs which have 0 on these paths."""
    problem, factor, attended = setting
    paths = AttentionPaths(HEADS)
    found = np.asarray(path_contributions(problem, factor, attended))
    for layer, head in ((0, 1), (1, 2)):
        silent = jnp.where(paths.uses(layer, head)[None, :, None], 0.0, attended)
        expected, _ = predict(Predictor.for_examples(problem, silent), factor)
        removed = mean_without(found, paths, [(layer, head)])
        assert_equal_to_rounding(removed, np.asarray(expected), operations=1000)
