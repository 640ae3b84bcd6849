"""Predictor mean and variance."""

import jax.numpy as jnp
import numpy as np
import pytest

from tests.assertions import assert_equal_to_rounding
from tests.problems import (
    ARCHITECTURES,
    random_network_data,
    random_order_parameters,
    random_problem,
)
from theory import FeatureForm, Predictor, path_features, predict
from theory.predictor import examples_at_a_time


def kernel_of(left, right, overlap, arch):
    """Σ U_1 C with every index written out, rows (example, output)."""
    blocks = overlap.reshape(arch.path_count, arch.outputs, arch.path_count, arch.outputs)
    kernel = np.einsum("xpi,pcqd,yqi->xcyd", left, blocks, right)
    kernel *= arch.variances[0] / (arch.channels * arch.path_count)
    return kernel.reshape(len(left) * arch.outputs, len(right) * arch.outputs)


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_mean_and_variance_condition_a_gaussian(name, rng):
    problem = random_problem(ARCHITECTURES[name], rng)
    arch = problem.architecture
    test = random_network_data(arch, rng, examples=3).attended
    overlap = random_order_parameters(arch, rng)[0]
    mean, variance = predict(
        Predictor.for_examples(problem, test), jnp.asarray(np.linalg.cholesky(overlap))
    )
    # the joint Gaussian of training labels and test outputs, conditioned by its precision matrix
    both = np.concatenate([problem.attended, test])
    noise = np.zeros(len(both) * arch.outputs)
    seen = problem.labels.size
    noise[:seen] = problem.temperature
    # a little noise on f keeps the joint covariance regular; its variance is taken off again
    noise[seen:] = 1.0
    joint = kernel_of(both, both, overlap, arch) + np.diag(noise)
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
    assert_equal_to_rounding(mean, expected_mean.reshape(shape), **rounding)
    assert_equal_to_rounding(variance, expected_variance.reshape(shape), **rounding)
    assert np.all(np.asarray(variance) > 0)


def test_at_low_temperature_training_labels_are_reproduced(rng):
    """K has rank 25 for 6 examples here, so it interpolates: m − y = −𝒯 (K + 𝒯 1)⁻¹ y exactly."""
    problem = random_problem(ARCHITECTURES["two layers"], rng, temperature=1e-6)
    arch = problem.architecture
    overlap = random_order_parameters(arch, rng)[0]
    factor = jnp.asarray(np.linalg.cholesky(overlap))
    mean, variance = predict(Predictor.for_examples(problem, problem.attended), factor)
    noisy = kernel_of(problem.attended, problem.attended, overlap, arch)
    noisy += problem.temperature * np.eye(len(noisy))
    inverse = np.linalg.inv(noisy)
    labels = np.asarray(problem.labels)
    rounding = {"operations": len(noisy) ** 2, "condition": np.linalg.cond(noisy)}
    expected = labels - problem.temperature * inverse @ labels
    assert_equal_to_rounding(mean, expected, **rounding)
    assert np.abs(mean - labels).max() < 1e-3
    # v(x_μ) = 𝒯 − 𝒯² (K + 𝒯)⁻¹_μμ
    expected = problem.temperature - problem.temperature**2 * np.diagonal(inverse)
    rounding["scale"] = np.abs(noisy).max()
    assert_equal_to_rounding(variance[:, 0], expected, **rounding)


def test_prior_variance_is_the_kernel_of_each_example_with_itself(rng):
    problem = random_problem(ARCHITECTURES["two layers, three outputs"], rng)
    arch = problem.architecture
    test = random_network_data(arch, rng, examples=3).attended
    overlap = random_order_parameters(arch, rng)[0]
    predictor = Predictor.for_examples(problem, test)
    received = predictor.prior_variance(jnp.asarray(np.linalg.cholesky(overlap)))
    expected = np.diagonal(kernel_of(test, test, overlap, arch)).reshape(3, arch.outputs)
    assert_equal_to_rounding(received, expected, operations=2 * arch.path_count**2)


@pytest.mark.parametrize("name", ["two layers", "two layers, three outputs"])
def test_chunks_of_test_examples_change_nothing(name, rng, monkeypatch):
    problem = random_problem(ARCHITECTURES[name], rng)
    attended = jnp.asarray(rng.standard_normal((11, *problem.attended.shape[1:])))
    factor = jnp.asarray(np.linalg.cholesky(random_order_parameters(problem.architecture, rng)[0]))
    stored = Predictor.for_examples(problem, attended)
    variance = problem.architecture.variances[0]
    features = [path_features(one, variance) for one in (attended, problem.attended)]
    predictor = Predictor(problem.energy, FeatureForm(*features), None)
    one_by_one = [
        np.concatenate(parts)
        for parts in zip(*(predictor.part(slice(i, i + 1))(factor) for i in range(11)), strict=True)
    ]
    whole = predict(predictor, factor)
    # Room for four examples at a time: two whole chunks and a shorter one.
    monkeypatch.setattr("theory.predictor.CHUNK_BYTES", 4 * bytes_of_one(predictor, factor))
    assert examples_at_a_time(predictor, factor) == 4
    for received in (whole, predict(predictor, factor), predict(stored, factor)):
        for moment, expected in zip(received, one_by_one, strict=True):
            assert_equal_to_rounding(moment, expected, operations=1e4, condition=1e2)


def bytes_of_one(predictor, factor) -> int:
    outputs, channels = predictor.energy.labels.shape[1], predictor.cross.left.shape[2]
    return 8 * outputs * (factor.shape[1] * channels + 3 * predictor.energy.labels.size)
