"""A network with fewer heads is a network of its own."""

import jax.numpy as jnp
import numpy as np
import pytest

from tests.assertions import assert_equal_to_rounding
from tests.problems import ARCHITECTURES, NetworkData, random_network_data, random_weights
from theory import LearningProblem, sub_network


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


def test_keeping_every_head_changes_nothing(rng):
    architecture = ARCHITECTURES["two layers"]
    data = random_network_data(architecture, rng)
    labels = jnp.asarray(rng.standard_normal((6, 1)))
    problem = LearningProblem(architecture, data.attended, labels, 0.3)
    same, attended = sub_network(problem, [[0, 1], [0, 1, 2]], data.attended)
    assert same.architecture == architecture
    np.testing.assert_array_equal(same.attended, problem.attended)
    np.testing.assert_array_equal(attended, data.attended)


def test_a_head_that_does_not_exist_is_named(rng):
    architecture = ARCHITECTURES["two layers"]
    data = random_network_data(architecture, rng)
    labels = jnp.asarray(rng.standard_normal((6, 1)))
    problem = LearningProblem(architecture, data.attended, labels, 0.3)
    with pytest.raises(IndexError, match=r"layer 2 has heads 0 … 2"):
        sub_network(problem, [[0, 1], [3]], data.attended)
    with pytest.raises(IndexError, match=r"needs 2 heads"):
        sub_network(problem, [[0, 1]], data.attended)
