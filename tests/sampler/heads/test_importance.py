"""Numbers of heads against finite differences, and losses by hand."""

import numpy as np
import pytest

from sampler.heads.importance import LabelledModel, importance, loss_slopes, losses
from sampler.heads.path_sum import PathSum

EXAMPLES, HEADS = 7, (1, 2)


@pytest.mark.parametrize("loss", ["squared", "likelihood"])
def test_taylor_importance_is_the_mean_size_of_finite_differences(loss, rng):
    """Paths (0, 0) and (0, 1); the head of layer 1 is on both."""
    brought = rng.standard_normal((EXAMPLES, 2, 1))
    labels = rng.choice([-1.0, 1.0], (EXAMPLES, 1))
    of = LabelledModel(PathSum(HEADS, brought, np.arange(3.0)), labels, loss)
    found = importance(of, [(0, 0), (1, 1)])
    step, whole, sizes = 1e-6, brought.sum(axis=1), []
    for sent in (whole, brought[:, 1]):
        up, down = (losses(loss, whole + sign * step * sent, labels) for sign in (1, -1))
        sizes.append(np.abs(up - down) / (2 * step))
    errors = np.std(sizes, axis=1, ddof=1) / np.sqrt(EXAMPLES)
    np.testing.assert_allclose(found["taylor"], np.mean(sizes, axis=1), rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(found["taylor_error"], errors, rtol=1e-6, atol=1e-8)
    assert found["magnitude"].values.tolist() == [0.0, 2.0]


@pytest.mark.parametrize(("loss", "outputs"), [("squared", 1), ("likelihood", 3)])
def test_slopes_of_the_losses(loss, outputs):
    random = np.random.default_rng(0)
    values = random.standard_normal((5, outputs))
    classes = random.integers(outputs, size=5)
    labels = np.eye(outputs)[classes] if outputs > 1 else np.sign(values + 0.1)
    slopes = loss_slopes(loss, values, labels)
    for place in range(outputs):
        step = 1e-6 * np.eye(outputs)[place]
        up, down = (losses(loss, values + sign * step, labels) for sign in (1, -1))
        np.testing.assert_allclose(slopes[:, place], (up - down) / 2e-6, rtol=1e-6, atol=1e-8)
