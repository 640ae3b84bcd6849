"""What each path brings to the predictor, against the predictor itself and brute force."""

import jax.numpy as jnp
import numpy as np
import pytest

from tests.assertions import assert_equal_to_rounding
from theory import (
    Architecture,
    AttentionPaths,
    LearningProblem,
    Predictor,
    mean_without,
    path_contributions,
    predict,
)

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


def test_a_head_that_u_1_does_not_use_costs_nothing(setting):
    problem, factor, attended = setting
    paths = AttentionPaths(HEADS)
    outputs = problem.labels.shape[1]
    unused = jnp.where(np.repeat(paths.uses(0, 1), outputs)[:, None], 0.0, factor)
    found = np.asarray(path_contributions(problem, unused, attended))
    np.testing.assert_array_equal(mean_without(found, paths, [(0, 1)]), found.sum(axis=1))
